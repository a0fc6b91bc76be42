package outbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// The backlog child fills an outbox or opens and drains one, in a process of its own so that
// its memory can be measured, and prints what it saw.
const (
	backlogChildEnv = "OUTBOX_BACKLOG_CHILD" // fill | drain
	backlogDirEnv   = "OUTBOX_BACKLOG_DIR"
	backlogSizeEnv  = "OUTBOX_BACKLOG" // bytes; 64 MiB when not set
)

func backlogSize() int64 {
	if n, err := strconv.ParseInt(os.Getenv(backlogSizeEnv), 10, 64); err == nil {
		return n
	}
	return 64 << 20
}

func backlogChild() {
	fail := func(err error) {
		fmt.Println("X", err)
		os.Exit(1)
	}
	start := time.Now()
	b, err := outbox.Open(os.Getenv(backlogDirEnv), outbox.Options{})
	if err != nil {
		fail(err)
	}
	took := time.Since(start)
	entries := 0
	if os.Getenv(backlogChildEnv) == "fill" {
		batch := batchOf(512)
		for range backlogSize() / (512 * benchPayload) {
			if _, err := b.Commit(ctx, batch); err != nil {
				fail(err)
			}
			entries += 512
		}
	} else {
		for {
			l, err := b.TryLease(outbox.Limits{Records: 512, Bytes: 4 << 20})
			if err != nil {
				fail(err)
			}
			if l == nil {
				break
			}
			ids := make([]outbox.ID, 0, 512)
			for _, e := range l.Entries() {
				ids = append(ids, e.ID)
			}
			if err := l.Ack(ids...); err != nil {
				fail(err)
			}
			entries += len(ids)
		}
	}
	work := time.Since(start) - took
	s := b.Stats()
	if err := b.Close(); err != nil {
		fail(err)
	}
	fmt.Println("R", entries, took.Microseconds(), work.Milliseconds(), peakRSS(), s.DiskBytes, s.Segments)
}

// peakRSS in KiB, 0 where the system does not say.
func peakRSS() int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// TestMemoryAndStartDoNotGrowWithTheBacklog runs with 64 MiB, and with 2 GiB by
// OUTBOX_BACKLOG=2147483648.
//
// CASES 33 and 34.
func TestMemoryAndStartDoNotGrowWithTheBacklog(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a backlog")
	}
	dir := t.TempDir()
	want := int(backlogSize() / (512 * benchPayload) * 512)
	for _, what := range []string{"fill", "drain"} {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), backlogChildEnv+"="+what, backlogDirEnv+"="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", what, err, out)
		}
		var entries, openUS, ms, rss, disk, segs int
		if _, err := fmt.Sscanf(string(out), "R %d %d %d %d %d %d", &entries, &openUS, &ms, &rss, &disk, &segs); err != nil {
			t.Fatalf("%s: %s", what, out)
		}
		t.Logf("%s: %d entries in %d ms, start %.1f ms, peak RSS %.1f MiB, %.1f MiB on disk in %d segments",
			what, entries, ms, float64(openUS)/1e3, float64(rss)/1024, float64(disk)/(1<<20), segs)
		if entries != want {
			t.Fatalf("%s: %d of %d entries", what, entries, want)
		}
		if runtime.GOOS == "linux" && (rss == 0 || rss > 128<<10) {
			t.Errorf("%s: peak RSS %d KiB", what, rss)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	if len(files) != 1 {
		t.Errorf("%d segments after draining", len(files))
	}
}
