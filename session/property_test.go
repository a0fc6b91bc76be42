package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawDialect draws a format version.
func drawDialect(t *rapid.T) *Dialect {
	d, err := DialectOf(rapid.IntRange(MinVersion, MaxVersion).Draw(t, "version"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// drawEvent draws an event that could follow what trace has seen: most often one
// that fits, otherwise one that may not.
func drawEvent(t *rapid.T, d *Dialect, trace *Trace) Event {
	turn, inTurn := trace.OpenTurn()
	openStep, inStep := trace.OpenStep()
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "call")
	seq := trace.NextSeq()
	fits := rapid.IntRange(0, 3).Draw(t, "fits") > 0
	if !fits {
		turn += rapid.SampledFrom([]int64{0, 0, 1}).Draw(t, "turn")
		openStep += rapid.SampledFrom([]int64{0, 0, 1}).Draw(t, "step")
		seq += rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "seq error")
	}
	data := fmt.Sprintf(`{"turn":%d,"step":%d}`, turn, openStep)
	between := []string{fmt.Sprintf(`turn/start {"turn":%d}`, trace.LastTurn()+1), user, `session/end-seed {}`, `permission/preset {"preset":"x"}`}
	inside := []string{fmt.Sprintf(`step/start {"turn":%d,"step":%d}`, turn, trace.state.nextStep), "turn/end " + data, user, header}
	within := []string{
		fmt.Sprintf(`assistant/message {"turn":%d,"step":%d,"message":{"content":[{"type":"tool-call","id":%q,"name":"n","arguments":"{}"}]}}`, turn, openStep, id),
		fmt.Sprintf(`tool/call {"turn":%d,"step":%d,"callId":%q}`, turn, openStep, id), result(d, int(turn), int(openStep), id, ""), "step/end " + data,
	}
	from := between
	switch {
	case !fits:
		from = slices.Concat(between, inside, within, []string{`x/unknown {}`})
	case inStep:
		from = within
	case inTurn:
		from = inside
	}
	typ, payload, _ := strings.Cut(rapid.SampledFrom(from).Draw(t, "event"), " ")
	ev := Event{Seq: seq, Time: rapid.Int64Range(-9, 9).Draw(t, "time"), Type: typ, Data: json.RawMessage(payload)}
	if d.IsSurface(typ) {
		ev.SurfaceOp = &SurfaceOp{}
	}
	return ev
}

// drawEvents draws a ledger that a trace accepts.
func drawEvents(t *rapid.T, d *Dialect) []Event {
	trace := NewTrace(nil, d, nil)
	var events []Event
	for range rapid.IntRange(0, 80).Draw(t, "events") {
		if ev := drawEvent(t, d, trace); Admit(&ev, trace) == nil {
			events = append(events, ev)
		}
	}
	return events
}

// storedState is a trace's state as it would be stored.
func storedState(t *rapid.T, trace *Trace) string {
	b, err := trace.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type veto struct{}

func (veto) Plan(*Event) (Plan, error) { return nil, errors.New("vetoed") }

// counter agrees to everything and counts what is applied.
type counter struct{ applied int }

func (c *counter) Plan(*Event) (Plan, error) { return planFunc(func() { c.applied++ }), nil }

func TestPlanWithoutCommitChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDialect(t)
		trace := NewTrace(nil, d, nil)
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			ev := drawEvent(t, d, trace)
			before := storedState(t, trace)
			_, first := trace.Plan(&ev)
			_, second := trace.Plan(&ev)
			if storedState(t, trace) != before {
				t.Fatal("planning changed the trace")
			}
			if (first == nil) != (second == nil) {
				t.Fatalf("planning again says %v after %v", second, first)
			}
			if err := Admit(&ev, trace); (err == nil) != (first == nil) {
				t.Fatalf("planned %v, admitted %v", first, err)
			} else if err != nil && storedState(t, trace) != before {
				t.Fatal("a refused event changed the trace")
			}
		}
	})
}

// The one that vetoes stands anywhere among the admitters, the trace included.
func TestVetoOfAnyAdmitterChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDialect(t)
		trace := NewTrace(nil, d, nil)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			ev := drawEvent(t, d, trace)
			counts := []*counter{{}, {}}
			admitters := []Admitter{trace, counts[0], counts[1]}
			at := rapid.IntRange(0, len(admitters)).Draw(t, "veto at")
			vetoed := append(append(append([]Admitter{}, admitters[:at]...), veto{}), admitters[at:]...)
			before := storedState(t, trace)
			if Admit(&ev, vetoed...) == nil {
				t.Fatal("the veto did not count")
			}
			if storedState(t, trace) != before || counts[0].applied+counts[1].applied > 0 {
				t.Fatal("a vetoed event changed an admitter")
			}
			if err := Admit(&ev, admitters...); err == nil && counts[0].applied+counts[1].applied != 2 {
				t.Fatal("an admitter was not applied")
			}
		}
	})
}

// A veto inside a ledger leaves its events, its turns and its observers alone.
func TestVetoedAppendLeavesTheLedgerAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDialect(t)
		refuse, told := false, 0
		l, err := NewLedger(Header{Version: d.Version(), ID: "s"}, WithClock(clockAt(5)), WithAdmitter(admitterFunc(func(*Event) error {
			if refuse {
				return errors.New("no")
			}
			return nil
		})))
		if err != nil {
			t.Fatal(err)
		}
		l.Observe(func(*Event) { told++ })
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			ev := drawEvent(t, d, l.trace)
			refuse = rapid.Bool().Draw(t, "veto")
			before, snapshot, toldBefore := storedState(t, l.trace), l.Events(0), told
			_, err := l.Append(Candidate{Type: ev.Type, Data: ev.Data, SurfaceOp: ev.SurfaceOp})
			if refuse && err == nil {
				t.Fatal("the veto did not count")
			}
			if err != nil && (storedState(t, l.trace) != before || told != toldBefore || !reflect.DeepEqual(l.Events(0), snapshot)) {
				t.Fatal("a refused event changed the ledger")
			}
			if err == nil && (told != toldBefore+1 || l.Len() != int64(len(snapshot))+1) {
				t.Fatal("an accepted event did not join")
			}
		}
	})
}

// Appends one by one, with readings between them, lead to what replaying all of
// them at once leads to, wherever the replay takes over.
func TestReplayFromAnyPrefixGivesTheSameLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDialect(t)
		events := drawEvents(t, d)
		h := Header{Version: d.Version(), ID: "s"}
		whole, err := Replay(h, events)
		if err != nil {
			t.Fatal(err)
		}
		cut := rapid.IntRange(0, len(events)).Draw(t, "cut")
		l, err := Replay(h, events[:cut])
		if err != nil {
			t.Fatal(err)
		}
		past := l.Events(0)
		for i := cut; i < len(events); i++ {
			ev := &events[i]
			if _, err := l.Append(Candidate{Type: ev.Type, Data: ev.Data, SurfaceOp: ev.SurfaceOp, Time: &ev.Time}); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "read") && !reflect.DeepEqual(l.Events(0), events[:i+1]) {
				t.Fatalf("the ledger does not hold the first %d events", i+1)
			}
		}
		if len(past) != cut || storedState(t, l.trace) != storedState(t, whole.trace) || !reflect.DeepEqual(l.Events(0), whole.Events(0)) {
			t.Fatal("replaying the prefix and appending the rest gives another ledger")
		}
		if cut < len(events) && l.FirstLiveSeq() != int64(cut) {
			t.Fatalf("the first live event is %d, want %d", l.FirstLiveSeq(), cut)
		}
	})
}

func TestForkOfAnyPrefixReplaysToThePrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDialect(t)
		events := drawEvents(t, d)
		if len(events) == 0 {
			return
		}
		boundary := rapid.IntRange(0, len(events)-1).Draw(t, "boundary")
		parent := Header{Version: d.Version(), ID: "s"}
		before, err := Replay(parent, events[:boundary+1])
		if err != nil {
			t.Fatal(err)
		}
		_, open := before.OpenTurn()
		seed, inherited, err := ForkSeed(d, events, int64(boundary), time.UnixMilli(1))
		if open && !d.SealsForks() {
			var refused *ForkError
			if !errors.As(err, &refused) || refused.Code != CodeForkOpenTurn {
				t.Fatalf("a fork inside a turn gave %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		child, err := Replay(ForkHeader(&parent, "child", inherited, time.UnixMilli(1)), seed)
		if err != nil {
			t.Fatal(err)
		}
		if child.InheritedCount() != int64(boundary)+1 || !reflect.DeepEqual(child.Events(0)[:boundary+1], events[:boundary+1]) {
			t.Fatal("the child does not begin with the prefix")
		}
		if _, open := child.OpenTurn(); open {
			t.Fatal("the child begins inside a turn")
		}
	})
}

func TestClosersCloseWhateverIsOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDialect(t)
		trace, recovery := NewTrace(nil, d, nil), NewRecovery(d)
		for _, ev := range drawEvents(t, d) {
			if err := Admit(&ev, trace); err != nil {
				t.Fatal(err)
			}
			if err := recovery.Observe(&ev); err != nil {
				t.Fatal(err)
			}
			restored, err := RestoreTrace(nil, d, nil, []byte(storedState(t, trace)))
			if err != nil {
				t.Fatal(err)
			}
			closers := recovery.Closers(CauseInterrupted)
			if _, open := trace.OpenTurn(); open != (len(closers) > 0) {
				t.Fatalf("%d closers, a turn is open: %v", len(closers), open)
			}
			for i := range closers {
				if err := Admit(&closers[i], restored); err != nil {
					t.Fatalf("closer %d: %v", i, err)
				}
			}
			if _, open := restored.OpenTurn(); open {
				t.Fatal("the turn is still open")
			}
		}
	})
}
