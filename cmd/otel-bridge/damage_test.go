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
//
// CASES 30, 31 and 32.
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
			r := newDamageRig(t, rows)
			r.capture(c.killed)
			r.harm(c.harm)
			r.srv.SetBehavior(receiver.Behavior{})
			got := map[int64]bool{}
			errs := r.run(c.killed, func([]byte) bool {
				eachRow(r.srv.Requests(), func(_ int, _ string, seq int64, body any) {
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

// What the ledger does not have any more stays reported as lost, over restarts, until an
// operator gives it up.
func TestWhatIsLostForGoodStaysReported(t *testing.T) {
	r := newDamageRig(t, 60)
	r.capture(false)
	r.harm(func(b []byte) []byte {
		b[bytes.LastIndex(b, []byte("row 50 "))] ^= 0x04
		return b
	})
	r.write(40)
	r.srv.SetBehavior(receiver.Behavior{})
	// status says what is counted, list what it is.
	check := func(when string, n int) {
		t.Helper()
		if out := r.outbox("status"); !strings.Contains(out, fmt.Sprintf("not captured again %d\n", n)) {
			t.Errorf("%s: status\n%s", when, out)
		}
		if out := r.outbox("list"); strings.Contains(out, "damaged") != (n > 0) || strings.Contains(out, ", event 50)") != (n > 0) {
			t.Errorf("%s: list\n%s", when, out)
		}
	}
	for range 2 {
		errs := r.run(false, func(errs []byte) bool { return bytes.Contains(errs, []byte("the ledger does not have them any more")) })
		if !bytes.Contains(errs, []byte("the ledger does not have them any more")) {
			t.Fatalf("not said:\n%s", errs)
		}
		check("after a run", 1)
	}
	if out := r.outbox("discard", "--damaged"); out != "1 records\n" {
		t.Errorf("discard: %s", out)
	}
	check("given up", 0)
}

// damageRig is a session, a data directory and a receiver that refuses to take anything yet.
type damageRig struct {
	t      *testing.T
	dir    string
	rows   int
	ledger string
	cfg    string
	srv    *receiver.Server
}

func newDamageRig(t *testing.T, rows int) *damageRig {
	t.Helper()
	dir := t.TempDir()
	r := &damageRig{t: t, dir: dir, ledger: filepath.Join(dir, "root", "--p--", "s", "session.jsonl"), cfg: filepath.Join(dir, "config.yaml")}
	if err := os.MkdirAll(filepath.Dir(r.ledger), 0o700); err != nil {
		t.Fatal(err)
	}
	r.write(rows)
	srv, err := receiver.Start(receiver.Options{Behavior: receiver.Behavior{Kind: receiver.Refuse, Status: 503}, Keep: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	r.srv = srv
	config := fmt.Sprintf("mode: FULL\nsources: [{ dsh: { path: ./root } }]\noutbox: { dir: ./data }\nadmin: { listen: \"\" }\nshutdown_timeout: 500ms\nexporter: { endpoint: %q }\n", srv.URL())
	if err := os.WriteFile(r.cfg, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// write makes the ledger one of so many rows.
func (r *damageRig) write(rows int) {
	r.t.Helper()
	r.rows = rows
	var text strings.Builder
	fmt.Fprintln(&text, `{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}`)
	for i := range rows {
		fmt.Fprintf(&text, `{"type":"session/title","seq":%d,"time":1,"data":{"title":%q,"messageSeqs":[],"source":{"kind":"fallback"}}}`+"\n", i, crashTitle(i))
	}
	if err := os.WriteFile(r.ledger, []byte(text.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run runs the sidecar until something, and stops or kills it.
func (r *damageRig) run(kill bool, until func(errs []byte) bool) []byte {
	r.t.Helper()
	cmd := exec.Command("otel-bridge", "run", "--config", r.cfg)
	var errs lockedBuffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	for deadline := time.Now().Add(scriptPatience); !until(errs.bytes()) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond) // between two looks
	}
	signal := os.Interrupt
	if kill {
		signal = os.Kill
	}
	if err := cmd.Process.Signal(signal); err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && !kill {
		r.t.Errorf("%v\n%s", err, errs.bytes())
	}
	return errs.bytes()
}

// segment is the one that there is, once it holds everything.
func (r *damageRig) segment() (file string, image []byte) {
	names, _ := filepath.Glob(filepath.Join(r.dir, "data", "*.seg"))
	if len(names) != 1 {
		return "", nil
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		r.t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(crashTitle(r.rows-1))) {
		return "", nil
	}
	return names[0], b
}

// capture runs until everything is stored.
func (r *damageRig) capture(kill bool) {
	r.t.Helper()
	r.run(kill, func([]byte) bool {
		file, _ := r.segment()
		return file != ""
	})
}

// harm replaces the segment; nil removes it.
func (r *damageRig) harm(by func(segment []byte) []byte) {
	r.t.Helper()
	file, b := r.segment()
	if file == "" {
		r.t.Fatal("nothing is stored")
	}
	var err error
	if b = by(b); b == nil {
		err = os.Remove(file)
	} else {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// outbox is what the command says.
func (r *damageRig) outbox(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("otel-bridge", append(append([]string{"outbox"}, args...), "--data-dir", filepath.Join(r.dir, "data"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("outbox %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func crashTitle(seq int) string {
	return fmt.Sprint("row ", seq, strings.Repeat(" and more", 20))
}
