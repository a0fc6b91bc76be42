//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// Killed again and again at random moments, while sessions grow and the receiver
// comes and goes, the sidecar loses nothing and alters nothing; what comes twice
// is at most the requests in flight.
func TestKillsAtRandomMomentsLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills and starts the program many times")
	}
	const kills, rows, batch = 12, 600, 32
	dir := t.TempDir()
	sink := filepath.Join(dir, "got.jsonl")
	file, err := receiver.OpenFile(sink)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := receiver.Start(receiver.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	cfg := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("mode: FULL\nsources: [{ dsh: { path: ./root } }]\noutbox: { dir: ./data }\nadmin: { listen: \"\" }\nshutdown_timeout: 20s\nexporter: { endpoint: %q, workers: 1, max_batch: { records: %d } }\n", srv.URL(), batch)
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	var ledgers []*os.File
	for i := range 3 {
		path := filepath.Join(dir, "root", "--p--", fmt.Sprint("s", i), "session.jsonl")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, `{"type":"session","version":0,"id":"s%d","createdAt":1,"delegationDepth":0}`+"\n", i)
		ledgers = append(ledgers, f)
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	written := 0
	grow := func(n int) {
		for ; n > 0 && written < rows; n-- {
			for i, f := range ledgers {
				row := fmt.Sprintf(`{"type":"session/title","seq":%d,"time":1,"data":{"title":"row %d of %d","messageSeqs":[],"source":{"kind":"fallback"}}}`+"\n", written, written, i)
				if _, err := f.WriteString(row); err != nil {
					t.Fatal(err)
				}
			}
			written++
		}
	}
	start := func() (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command("otel-bridge", "run", "--config", cfg)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &errs
	}

	behaviors := []receiver.Behavior{{}, {Kind: receiver.Refuse, Status: 503}, {}, {Kind: receiver.Lost}, {}, {Kind: receiver.Hang}}
	for i := range kills {
		srv.SetBehavior(behaviors[i%len(behaviors)])
		cmd, _ := start()
		grow(rows / kills)
		time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond) // the random moment
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
	}
	srv.SetBehavior(receiver.Behavior{})
	grow(rows)
	cmd, errs := start()
	deadline := time.Now().Add(scriptPatience)
	different := func() map[string]int {
		list, err := readReceived(sink)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, r := range list {
			if body, ok := r.Body.(map[string]any); !ok || body["title"] != fmt.Sprintf("row %v of %s", r.Attrs["event.seq"], r.Attrs["session.id"].(string)[1:]) {
				t.Fatalf("altered: %v", r.Body)
			}
			seen[r.uid()]++
		}
		return seen
	}
	for len(different()) < 3*rows {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d records arrived; stderr:\n%s", len(different()), 3*rows, errs.Bytes())
		}
		time.Sleep(50 * time.Millisecond) // between two looks
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.Bytes())
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	twice := 0
	for _, n := range different() {
		twice += n - 1
	}
	if most := 2 * kills * batch; twice > most {
		t.Errorf("%d records came again, at most %d were in flight", twice, most)
	}
	t.Logf("%d records, %d of them again", 3*rows, twice)
}
