//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// Whatever of the stored records is damaged, once all have been captured again an
// audit says that it is complete, though drafts of summaries were lost too.
func TestAnAuditAfterDamageIsComplete(t *testing.T) {
	const rows = 600 // two summaries of 256 records, and one of the rest
	used := func(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }
	zero := func(from, to int) func([]byte) []byte {
		return func(b []byte) []byte {
			n := used(b)
			clear(b[n*from/100 : n*to/100])
			return b
		}
	}
	for name, harm := range map[string]func([]byte) []byte{
		"zeros in the middle":      zero(30, 50),
		"zeros towards the end":    zero(60, 90),
		"zeros at the end":         zero(97, 100),
		"cut in the middle":        func(b []byte) []byte { return b[:used(b)/2] },
		"the segment is not there": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newDamageRig(t, rows)
			r.capture(false)
			r.harm(harm)
			r.srv.SetBehavior(receiver.Behavior{})
			seen, verdict := 0, []byte("nothing was received")
			complete := false
			errs := r.run(false, func([]byte) bool {
				requests := r.srv.Requests()
				if len(requests) == seen {
					return complete
				}
				seen = len(requests)
				var lines []byte
				for _, req := range requests {
					lines = append(receiver.AppendJSON(lines, req.Logs), '\n')
				}
				got := filepath.Join(r.dir, "got.jsonl")
				if err := os.WriteFile(got, lines, 0o600); err != nil {
					t.Fatal(err)
				}
				var err error
				verdict, err = exec.Command("otel-bridge", "audit", "--received", got, "--ledger", filepath.Dir(r.ledger), "--config", r.cfg).CombinedOutput()
				complete = err == nil
				return complete
			})
			if !complete {
				t.Errorf("%s\n%s", verdict, errs)
			}
		})
	}
}
