//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// What the data directory has lost of a ledger is captured again from it: the
// receiver gets every record, and none of them altered.
func TestDamagedRecordsAreCapturedAgainFromTheLedger(t *testing.T) {
	const rows = 60
	for name, c := range map[string]struct {
		killed bool // else stopped, so that the checkpoint covers what is damaged next
		harm   func(segment []byte) []byte
	}{
		"a flipped bit in a payload": {false, func(b []byte) []byte {
			b[bytes.LastIndex(b, []byte("row 20 "))] ^= 0x04
			return b
		}},
		"a flipped bit in a header": {false, func(b []byte) []byte {
			b[bytes.LastIndex(b, []byte("\xf5\x4f\x42\x9a"))+20] ^= 0x04
			return b
		}},
		"noise over the segment's head": {false, func(b []byte) []byte {
			copy(b, bytes.Repeat([]byte("noise"), 1000))
			return b
		}},
		"zeros over the headers of records": {false, func(b []byte) []byte {
			at := 0
			for range 30 {
				i := bytes.Index(b[at:], []byte("\xf5\x4f\x42\x9a"))
				clear(b[at+i : at+i+40])
				at += i + 40
			}
			return b
		}},
		"a whole segment of noise":       {false, func(b []byte) []byte { return bytes.Repeat([]byte("noise "), len(b)/6) }},
		"a segment that is not there":    {false, func([]byte) []byte { return nil }},
		"a torn tail after a clean stop": {false, func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte("row 50 "))] }},
		"a torn tail":                    {true, func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte("row 50 "))] }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ledger := filepath.Join(dir, "root", "--p--", "s", "session.jsonl")
			if err := os.MkdirAll(filepath.Dir(ledger), 0o700); err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			fmt.Fprintln(&text, `{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}`)
			for i := range rows {
				fmt.Fprintf(&text, `{"type":"session/title","seq":%d,"time":1,"data":{"title":%q,"messageSeqs":[],"source":{"kind":"fallback"}}}`+"\n", i, crashTitle(i))
			}
			if err := os.WriteFile(ledger, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			srv, err := receiver.Start(receiver.Options{Behavior: receiver.Behavior{Kind: receiver.Refuse, Status: 503}, Keep: 1000})
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			cfg := filepath.Join(dir, "config.yaml")
			config := fmt.Sprintf("mode: FULL\nsources: [{ dsh: { path: ./root } }]\noutbox: { dir: ./data }\nadmin: { listen: \"\" }\nshutdown_timeout: 500ms\nexporter: { endpoint: %q }\n", srv.URL())
			if err := os.WriteFile(cfg, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			run := func(until func(errs []byte) bool) []byte {
				cmd := exec.Command("otel-bridge", "run", "--config", cfg)
				var errs lockedBuffer
				cmd.Stderr = &errs
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				for deadline := time.Now().Add(scriptPatience); !until(errs.bytes()) && time.Now().Before(deadline); {
					time.Sleep(20 * time.Millisecond) // between two looks
				}
				signal := os.Interrupt
				if c.killed {
					signal = os.Kill
				}
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err != nil && !c.killed {
					t.Errorf("%v\n%s", err, errs.bytes())
				}
				return errs.bytes()
			}
			segments := filepath.Join(dir, "data", "*.seg")
			stored := func() (string, []byte) {
				names, _ := filepath.Glob(segments)
				if len(names) != 1 {
					return "", nil
				}
				b, err := os.ReadFile(names[0])
				if err != nil {
					t.Fatal(err)
				}
				return names[0], b
			}
			run(func([]byte) bool {
				_, b := stored()
				return bytes.Contains(b, []byte(crashTitle(rows-1)))
			})
			file, b := stored()
			if !bytes.Contains(b, []byte(crashTitle(rows-1))) {
				t.Fatal("nothing is stored")
			}
			if b = c.harm(b); b == nil {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			srv.SetBehavior(receiver.Behavior{})
			got := map[int64]bool{}
			errs := run(func([]byte) bool {
				eachRow(srv.Requests(), func(_ int, _ string, seq int64, body any) {
					if m, ok := body.(map[string]any); !ok || m["title"] != crashTitle(int(seq)) {
						t.Errorf("seq %d is altered", seq)
					}
					got[seq] = true
				})
				return len(got) == rows
			})
			if len(got) != rows {
				t.Fatalf("%d of %d records arrived\n%s", len(got), rows, errs)
			}
		})
	}
}

func crashTitle(seq int) string {
	return fmt.Sprint("row ", seq, strings.Repeat(" and more", 20))
}
