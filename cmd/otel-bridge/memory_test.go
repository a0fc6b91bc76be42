//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

const (
	// ledgerSizeEnv makes the ledger of the memory test larger: 1GiB is the size
	// that the limit is promised for.
	ledgerSizeEnv     = "OTEL_BRIDGE_TEST_LEDGER"
	ledgerSizeDefault = 64 << 20
	longestText       = 1 << 20
	memoryLimit       = 128 << 20
)

// writeLedger writes a ledger of about so many bytes whose lines have up to
// 1 MB, and returns the number of its events.
func writeLedger(t *testing.T, path string, size int64) (events int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("the agent reads a file and counts its lines, then it writes what it found: func main() { return nil } error=0 path/to/file.go:42 请统计行数 if err != nil")
	text := make([]byte, 0, longestText+100)
	fmt.Fprintln(w, `{"type":"session","version":0,"id":"large","createdAt":1796031738741,"cwd":"/srv/demo","delegationDepth":0}`)
	written := int64(0)
	put := func(format string, args ...any) {
		n, err := fmt.Fprintf(w, format+"\n", args...)
		if err != nil {
			t.Fatal(err)
		}
		written += int64(n)
		events++
	}
	for turn := 1; written < size; turn++ {
		put(`{"type":"turn/start","seq":%d,"time":1796031738742,"data":{"turn":%d}}`, events, turn)
		// Mostly short, some long, a few as long as they get.
		length := 200 << rnd.IntN(13)
		for text = text[:0]; len(text) < min(length, longestText-200); {
			text = append(append(text, words[rnd.IntN(len(words))]...), ' ')
		}
		put(`{"type":"user/message","seq":%d,"time":1796031738743,"data":{"content":[{"type":"text","text":%q}],"source":{"kind":"user"},"role":"user","id":"m%d"},"surfaceOp":"append"}`, events, text, turn)
		put(`{"type":"turn/end","seq":%d,"time":1796031738744,"data":{"turn":%d,"reason":{"kind":"completed"}}}`, events, turn)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return events
}

// peakMemory runs the program and returns its exit code and the largest
// resident set that was seen.
func peakMemory(t *testing.T, args ...string) (code int, peak int64) {
	t.Helper()
	cmd := exec.Command("otel-bridge", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // the exit code is in ProcessState
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			if t.Failed() || cmd.ProcessState.ExitCode() == 1 {
				t.Logf("stderr: %s", errs.Bytes())
			}
			return cmd.ProcessState.ExitCode(), peak
		case <-tick.C:
			peak = max(peak, highWater(cmd.Process.Pid))
		}
	}
}

// highWater reads VmHWM, or 0 for a process that is gone.
func highWater(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

func TestMemoryDoesNotGrowWithLedgerOrBacklog(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory is a multiple of the program's")
	}
	size := int64(ledgerSizeDefault)
	if v := os.Getenv(ledgerSizeEnv); v != "" {
		n, err := config.ParseSize(v)
		if err != nil {
			t.Fatalf("%s: %v", ledgerSizeEnv, err)
		}
		size = int64(n)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "large.jsonl")
	events := writeLedger(t, path, size)
	srv, err := receiver.Start(receiver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	data := filepath.Join(dir, "data")

	// Nobody listens: all of it becomes backlog.
	code, peak := peakMemory(t, "export", "--mode", "FULL", "--endpoint", "http://127.0.0.1:9", "--timeout", "1s", "--data-dir", data, path)
	t.Logf("capture into a backlog: %d MiB", peak>>20)
	if code != 75 || peak == 0 || peak > memoryLimit {
		t.Errorf("exit code %d, peak %d MiB, want 75 and below %d MiB", code, peak>>20, memoryLimit>>20)
	}
	// The backlog is delivered.
	code, peak = peakMemory(t, "export", "--mode", "FULL", "--endpoint", srv.URL(), "--timeout", "10m", "--data-dir", data, path)
	t.Logf("delivery of the backlog: %d MiB", peak>>20)
	if code != 0 || peak == 0 || peak > memoryLimit {
		t.Errorf("exit code %d, peak %d MiB, want 0 and below %d MiB", code, peak>>20, memoryLimit>>20)
	}
	if kept := srv.Totals().Kept; kept < int64(events) || kept > int64(events)+int64(events)/100 { // and ops records
		t.Errorf("%d records received, want %d", kept, events)
	}
	// Capture and delivery at the same time.
	code, peak = peakMemory(t, "export", "--mode", "FULL", "--endpoint", srv.URL(), "--timeout", "10m", "--data-dir", filepath.Join(dir, "data2"), path)
	t.Logf("capture and delivery: %d MiB", peak>>20)
	if code != 0 || peak == 0 || peak > memoryLimit {
		t.Errorf("exit code %d, peak %d MiB, want 0 and below %d MiB", code, peak>>20, memoryLimit>>20)
	}
}
