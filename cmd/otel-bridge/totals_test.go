//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// totals are the counters of /metrics that have to add up, by their names there.
type totals map[string]float64

func (r *rig) totals() totals {
	r.t.Helper()
	out := totals{}
	for line := range strings.Lines(r.page("/metrics")) {
		for _, family := range []string{"otel_bridge_events_total{", "otel_bridge_records_total{", "otel_bridge_records{"} {
			if !strings.HasPrefix(line, family) {
				continue
			}
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			var v float64
			if _, err := fmt.Sscan(value, &v); err != nil {
				r.t.Fatal(err)
			}
			out[name] = v
		}
	}
	return out
}

func event(outcome string) string {
	return fmt.Sprintf("otel_bridge_events_total{outcome=%q}", outcome)
}
func records(state string) string  { return fmt.Sprintf("otel_bridge_records{state=%q}", state) }
func settled(state string) string  { return fmt.Sprintf("otel_bridge_records_total{state=%q}", state) }
func (t totals) of(n string) int64 { return int64(t[n]) }

// addUp checks the two sums of docs/delivery.md.
func (t totals) addUp(test *testing.T, when string) {
	test.Helper()
	sum := t[event("exported")] + t[event("withheld")] + t[event("elided")] + t[event("inherited")] + t[event("out_of_scope")]
	if _, ok := t[event("read")]; !ok || t[event("read")] != sum {
		test.Errorf("%s: %v events were read, %v are accounted for: %v", when, t[event("read")], sum, t)
	}
	sum = t[settled("acked")] + t[settled("discarded")] + t[records("pending")] + t[records("held")] + t[records("quarantined")]
	if _, ok := t[settled("committed")]; !ok || t[settled("committed")] != sum {
		test.Errorf("%s: %v records were committed, %v are accounted for: %v", when, t[settled("committed")], sum, t)
	}
}

// Case 37: after faults of the receiver and kills in the middle of them the counters
// add up at every look, go on from where they were, and agree with the ledgers and
// with what the receiver has.
func TestB37TotalsAgreeAfterFaultsAndKills(t *testing.T) {
	r := newRig(t, "max_line_bytes: 4KiB")
	// The bundled sessions have chunks, which are elided, and a fork, which inherits;
	// their 602 events are counted in examples/sessions.
	files, err := filepath.Glob(inExamples("sessions", "*.jsonl"))
	if err != nil || len(files) != 7 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r.write(r.path(strings.TrimSuffix(filepath.Base(f), ".jsonl")), string(text))
	}
	withheld := row(1, strings.Repeat("long ", 2000)) // over max_line_bytes
	r.write(r.path("own"), head("own"), row(0, "short"), withheld, row(2, "POISON"), rows(3, 30))
	const read = 602 + 31

	behave := func(spec string) {
		t.Helper()
		b, err := receiverBehavior(spec)
		if err != nil {
			t.Fatal(err)
		}
		r.srv.SetBehavior(b)
	}
	var last totals
	look := func(when string) totals {
		t.Helper()
		now := r.totals()
		now.addUp(t, when)
		for _, name := range slices.Sorted(maps.Keys(last)) {
			if strings.Contains(name, "_total{") && now[name] < last[name] {
				t.Errorf("%s: %s went back from %v to %v", when, name, last[name], now[name])
			}
		}
		last = now
		return now
	}

	behave("503")
	r.start()
	r.awaitMetric(event("read"), read)
	look("with an absent receiver")
	r.kill()
	r.start()
	look("after a kill with everything pending")

	behave("lost") // takes everything and never says so
	r.poll("records whose answer is lost", func() bool { return r.srv.Totals().Kept > 32 })
	look("with answers that are lost")
	r.kill()

	behave("400-if=POISON")
	r.start()
	look("after a kill with requests under way")
	r.poll("the poison record in quarantine", func() bool { return look("while it is drained")[records("quarantined")] == 1 })
	r.write(r.path("own"), rows(31, 40))
	r.awaitMetric(event("read"), read+10)
	r.kill() // at whatever point delivery has come to
	r.start()
	look("after a kill while it is drained")
	r.awaitMetric(records("pending"), 0)
	end := look("in the end")

	if got := end.of(event("read")); got != read+10 {
		t.Errorf("%d events read, the ledgers have %d", got, read+10)
	}
	if got := end.of(event("withheld")); got < 1 {
		t.Errorf("%d withheld", got)
	}
	// What the receiver has of events, each once by its uid, is what was exported or
	// withheld, but for the one in quarantine, which may have come when answers were
	// lost.
	distinct := map[string]bool{}
	for _, rec := range r.received() {
		if _, isEvent := rec.Attrs["event.seq"]; isEvent && !strings.Contains(fmt.Sprint(rec.Body), "POISON") {
			distinct[rec.uid()] = true
		}
	}
	if want := end.of(event("exported")) + end.of(event("withheld")) - 1; int64(len(distinct)) != want {
		t.Errorf("the receiver has %d events, the counters say %d", len(distinct), want)
	}
	r.stop()

	// A clean start tells the same.
	r.start()
	after := look("after a clean stop")
	for _, o := range []string{"read", "exported", "withheld", "elided", "inherited", "out_of_scope"} {
		if after[event(o)] != end[event(o)] {
			t.Errorf("%s: %v before the stop, %v after it", o, end[event(o)], after[event(o)])
		}
	}
	r.stop()
}
