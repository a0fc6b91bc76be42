//go:build unix

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// A session whose file is removed, with or without its directory, has ended: that
// is told once, behind its last event, until something comes again.
func TestRemovedSessionHasEnded(t *testing.T) {
	r := newRig(t)
	r.write(r.path("file"), head("file"), rows(0, 2))
	r.write(r.path("directory"), head("directory"), rows(0, 1))
	r.write(r.path("stays"), head("stays"), rows(0, 1))
	r.start()
	for session, last := range map[string]int64{"file": 2, "directory": 1, "stays": 1} {
		r.awaitEvents(session, last)
	}
	if err := os.Remove(r.path("file")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(r.path("directory"))); err != nil {
		t.Fatal(err)
	}
	for session, last := range map[string]int64{"file": 2, "directory": 1} {
		r.poll("session.ended of "+session, func() bool { return r.ops("session.ended", session) > 0 })
		i := slices.IndexFunc(r.received(), func(rec received) bool {
			return rec.Attrs["otel_bridge.op"] == "session.ended" && rec.Attrs["session.id"] == session
		})
		if body, _ := r.received()[i].Body.(map[string]any); body["last_seq"] != last {
			t.Errorf("%s: %v, want last_seq %d", session, body, last)
		}
	}
	// It comes back, has one event more, and goes again.
	r.write(r.path("file"), head("file"), rows(0, 3))
	r.awaitEvents("file", 3)
	r.once("file", 3)
	if err := os.Remove(r.path("file")); err != nil {
		t.Fatal(err)
	}
	r.poll("the second session.ended", func() bool { return r.ops("session.ended", "file") == 2 })
	r.stop()
	if n := r.ops("session.ended", ""); n != 3 {
		t.Errorf("session.ended was told %d times, want 3", n)
	}
	r.audit()
}

// A session that is held for a type that is not known goes on when the
// configuration allows it, without a restart.
func TestHeldSessionGoesOnWhenTheVocabularyGrows(t *testing.T) {
	r := newRig(t)
	note := `{"type":"acme/note","seq":2,"time":1,"data":{"note":"x"}}` + "\n"
	r.write(r.path("s"), head("s"), rows(0, 1), note, rows(3, 4))
	r.start()
	r.awaitLog(`session is held.*/s/session\.jsonl seq=2 code=unknown-type`)
	r.awaitEvents("s", 1)
	r.once("s", 1)
	r.configure("vocabulary: [{ type: acme/note, surface: false }]")
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.awaitEvents("s", 4)
	r.once("s", 4)
	r.awaitMetric(`otel_bridge_sessions{state="held"}`, 0)
	r.stop()
	r.audit(r.root)
}

// Sessions with much to read, more of them than are read at a time, do not keep out
// those with little: what is new there is received while they are at it.
func TestBusySessionsDoNotKeepQuietOnesOut(t *testing.T) {
	r := newRig(t)
	const busy, events, quiet = 2 * 4, 9000, 20 // each busy one needs two turns
	for i := range busy {
		s := fmt.Sprint("busy", i)
		var b strings.Builder
		b.WriteString(head(s))
		for seq := range events {
			b.WriteString(`{"type":"permission/preset","seq":` + strconv.Itoa(seq) + `,"time":1,"data":{"preset":"x"}}` + "\n")
		}
		r.write(r.path(s), b.String())
	}
	for i := range quiet {
		s := fmt.Sprint("quiet", i)
		r.write(r.path(s), head(s), row(0, "first"))
	}
	r.start()
	for i := range quiet {
		r.write(r.path(fmt.Sprint("quiet", i)), row(1, "second"))
	}
	arrived := map[string]int{} // place among all records
	r.poll("all events", func() bool {
		n := 0
		for _, req := range r.srv.Requests() {
			n += req.Kept
		}
		return n >= busy*events+2*quiet
	})
	last := 0
	for i, rec := range r.received() {
		id, _ := rec.Attrs["session.id"].(string)
		switch seq, _ := rec.Attrs["event.seq"].(int64); {
		case strings.HasPrefix(id, "quiet") && seq == 1:
			arrived[id] = i
		case strings.HasPrefix(id, "busy") && seq == events-1:
			last = i
		}
	}
	r.stop()
	if len(arrived) != quiet {
		t.Fatalf("%d quiet sessions of %d", len(arrived), quiet)
	}
	latest := 0
	for session, at := range arrived {
		if at > last {
			t.Errorf("%s had to wait for all others", session)
		}
		latest = max(latest, at)
	}
	t.Logf("the last quiet session's event is record %d of %d", latest, len(r.received()))
}

// Many sessions: all are captured, and after the next start nothing goes out again
// and a new event does not have to wait for them.
func TestManySessionsAndARestart(t *testing.T) {
	n := 10_000
	if raceDetector || testing.Short() {
		n = 1000
	}
	r := newRig(t)
	path := func(i int) string {
		return filepath.Join(r.root, fmt.Sprint("p", i%20), fmt.Sprint("s", i), "session.jsonl")
	}
	for i := range n {
		r.write(path(i), head(fmt.Sprint("s", i)), row(0, "first"))
	}
	begin := time.Now()
	r.start()
	started := time.Since(begin)
	r.awaitMetric(`otel_bridge_events_total{outcome="exported"}`, float64(n))
	r.awaitMetric(`otel_bridge_records{state="pending"}`, 0)
	t.Logf("%d sessions: started after %v, all delivered after %v, %d MiB resident at most", n, started, time.Since(begin), highWater(r.cmd.Process.Pid)>>20)
	r.stop()

	before := len(r.received())
	begin = time.Now()
	r.start()
	r.awaitMetric(`otel_bridge_sessions{state="known"}`, float64(n))
	r.write(path(n/2), row(1, "second"))
	r.awaitEvents(fmt.Sprint("s", n/2), 1)
	t.Logf("started again: a new event is received after %v, %d MiB resident at most", time.Since(begin), highWater(r.cmd.Process.Pid)>>20)
	r.stop()
	// Ops records may have been left over: the stop of a busy machine has not the
	// time to deliver the summaries of all sessions.
	again := 0
	for _, rec := range r.received()[before:] {
		if _, ok := rec.Attrs["event.seq"]; ok {
			again++
		}
	}
	if again != 1 {
		t.Errorf("%d events after the restart, want the new one", again)
	}
	r.once(fmt.Sprint("s", n/2), 1)
}

// A ledger whose size and time stand is not read again: not after a start, and not
// while it is only looked at.
func TestUnchangedLedgersAreNotRead(t *testing.T) {
	r := newRig(t)
	n := 100
	if raceDetector {
		n = 20
	}
	body := row(0, strings.Repeat("long ", 200<<10)) // 1 MiB
	for i := range n {
		s := fmt.Sprint("s", i)
		r.write(r.path(s), head(s), body, row(1, "second"))
	}
	r.start()
	r.awaitMetric(`otel_bridge_records{state="pending"}`, 0)
	r.awaitMetric(`otel_bridge_events_total{outcome="exported"}`, float64(2*n))
	r.stop()
	r.start()
	r.awaitMetric(`otel_bridge_sessions{state="known"}`, float64(n))
	for i := range 3 { // each after everything that the start has brought
		r.write(r.path("new"), []string{head("new") + row(0, "x"), row(1, "x"), row(2, "x")}[i])
		r.awaitEvents("new", int64(i))
	}
	read := processReads(r.cmd.Process.Pid)
	r.stop()
	if read == 0 {
		t.Skip("the system does not tell how much a process reads")
	}
	t.Logf("%d KiB read for %d KiB of ledgers", read>>10, n*len(body)>>10)
	if read > int64(n*len(body)/2) { // headers, and the program itself
		t.Errorf("%d bytes were read for ledgers of %d", read, n*len(body))
	}
}

// processReads is how many bytes a process has read, 0 where that is not told.
func processReads(pid int) (n int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
		return 0
	}
	return n
}

// A session moves from each format that the reference has migrated it to, to the
// next one, while the program runs and while it does not: each event that a
// migration keeps goes out once.
func TestMigratedSessionsGoOn(t *testing.T) {
	shared, ok := sharedDir()
	if !ok {
		t.Skip("the migrated files stand beside the project")
	}
	for _, lab := range []string{"lab-compaction", "lab-multiturn", "lab-unicode", "lab-secrets", "lab-openturn"} {
		for _, live := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s live %t", lab, live), func(t *testing.T) {
				r := newRig(t)
				r.start()
				generations, newest, id := 0, "", ""
				var created int64
				for version := range 5 {
					from := filepath.Join(shared, "data", "dsh", fmt.Sprint("v", version), lab+".jsonl")
					led, err := jsonl.Open(from)
					if errors.Is(err, os.ErrNotExist) {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					h := led.Header()
					if err := led.Close(); err != nil {
						t.Fatal(err)
					}
					if newest != "" && h.CreatedAt != created {
						continue // another run of the same script
					}
					created, id = h.CreatedAt, h.ID
					if !live && newest != "" {
						r.stop()
					}
					newest = filepath.Join(r.root, "p", lab, jsonl.Name{Generation: version}.String())
					r.write(newest+".0123456789ab.tmp", r.file(from))
					r.rename(newest+".0123456789ab.tmp", newest)
					if !live && generations > 0 {
						r.start()
					}
					generations++
					r.awaitCursors(newest, map[string]cursorPlace{id: {version, int64(ledgerEvents(t, newest))}})
				}
				next := ledgerEvents(t, newest)
				r.write(newest, row(next, "goes on"))
				r.awaitEvents(id, int64(next))
				r.stop()
				if generations < 3 {
					t.Fatalf("only %d generations", generations)
				}
				if n := r.ops("session.generation", id); n != generations-1 {
					t.Errorf("%d records of a new generation, want %d", n, generations-1)
				}
				want, got := map[string]int{}, map[string]int{}
				led, err := jsonl.Open(newest)
				if err != nil {
					t.Fatal(err)
				}
				for led.Next() {
					want[keptEvent(led.Event().Type, led.Event().Time)]++
				}
				if err := errors.Join(led.Err(), led.Close()); err != nil {
					t.Fatal(err)
				}
				for _, rec := range r.events(id) {
					got[keptEvent(rec.Attrs["event.type"].(string), int64(rec.Record.TimeUnixNano/1e6))]++
				}
				delete(want, "")
				delete(got, "")
				if len(want) == 0 || !maps.Equal(got, want) {
					t.Errorf("received %v\nwant %v", got, want)
				}
				r.audit(r.root)
			})
		}
	}
}

// keptEvent names an event as all formats have it, "" for those that a migration
// drops or makes.
func keptEvent(typ string, ms int64) string {
	switch typ {
	case "assistant/chunk", "assistant/attempt", "system/message":
		return ""
	}
	return fmt.Sprint(strings.TrimPrefix(strings.Replace(typ, "code-dispatch", "ptc-dispatch", 1), "plugin:"), " ", ms)
}
