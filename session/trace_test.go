package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script makes events of "type data" lines; surface types append unless the line
// ends in " replace START END SOURCES...".
func script(t testing.TB, d *Dialect, text ...string) []Event {
	t.Helper()
	events := make([]Event, len(text))
	for i, line := range text {
		typ, data, _ := strings.Cut(line, " ")
		ev := Event{Seq: int64(i), Time: int64(1000 + i), Type: typ}
		if d.IsSurface(typ) {
			ev.SurfaceOp = &SurfaceOp{}
			if at := strings.Index(data, " replace "); at >= 0 {
				ev.SurfaceOp.Replace = true
				var source int64
				if _, err := fmt.Sscan(data[at+9:], &ev.SurfaceOp.Start, &ev.SurfaceOp.End, &source); err != nil {
					t.Fatal(err)
				}
				ev.SourceEventSeqs = []int64{source}
				data = data[:at]
			}
		}
		if data == "" {
			data = "{}"
		}
		ev.Data = json.RawMessage(data)
		events[i] = ev
	}
	return events
}

func step(turn, step int) string { return fmt.Sprintf(`{"turn":%d,"step":%d}`, turn, step) }

func result(d *Dialect, turn, step int, id, more string) string {
	if d.ToolRoleResults() {
		return fmt.Sprintf(`tool/result {"turn":%d,"step":%d,"message":{"id":"r","role":"tool","source":{"kind":"tool","callId":%q},"toolCallId":%q,"content":[]%s}}`, turn, step, id, id, more)
	}
	return fmt.Sprintf(`tool/result {"turn":%d,"step":%d,"message":{"id":"r","role":"user","source":{"kind":"tool","callId":%q},"content":[{"type":"tool-result","toolCallId":%q,"content":[]%s}]}}`, turn, step, id, id, more)
}

const (
	start1 = `turn/start {"turn":1}`
	end1   = `turn/end {"turn":1,"reason":{"kind":"completed"}}`
	header = `request/header {"header":{"config":{"provider":"p","model":"m"}},"reason":"initial"}`
	reqCtx = `request/context {"provider":"p","model":"m"}`
	user   = `user/message {"id":"u","role":"user","content":[],"source":{"kind":"user"}}`
)

func TestTraceRefusesEachBrokenInvariantByItsCode(t *testing.T) {
	stepStart, stepEnd := "step/start "+step(1, 1), "step/end "+step(1, 1)
	call := `tool/call {"turn":1,"step":1,"callId":"a","name":"n","arguments":"{}"}`
	for _, c := range []struct {
		name string
		code Code // of the last event; empty: accepted
		text []string
	}{
		{"a whole turn", "", []string{start1, stepStart, user, header, reqCtx, call, "RESULT", stepEnd, end1}},
		{"a turn that does not begin with 1", CodeTurnNumber, []string{`turn/start {"turn":2}`}},
		{"a turn 0", CodeTurnNumber, []string{`turn/start {"turn":0}`}},
		{"a turn that is no number", CodeTurnNumber, []string{`turn/start {"turn":"1"}`}},
		{"a turn without a number", CodeTurnNumber, []string{`turn/start {}`}},
		{"a turn that is spelled 1.0", "", []string{`turn/start {"turn":1.0}`, `turn/end {"turn":1e0,"reason":{}}`}},
		{"a turn inside a turn", CodeTurnOpen, []string{start1, `turn/start {"turn":2}`}},
		{"a turn that skips one", CodeTurnNumber, []string{start1, end1, `turn/start {"turn":3}`}},
		{"a turn that comes again", CodeTurnNumber, []string{start1, end1, start1}},
		{"the second turn", "", []string{start1, end1, `turn/start {"turn":2}`}},
		{"an end without a turn", CodeTurnNotOpen, []string{end1}},
		{"the end of another turn", CodeTurnMismatch, []string{start1, `turn/end {"turn":2}`}},
		{"the end of a turn inside a step", CodeStepOpen, []string{start1, stepStart, end1}},
		{"a step outside turns", CodeTurnNotOpen, []string{stepStart}},
		{"a step of another turn", CodeTurnMismatch, []string{start1, "step/start " + step(2, 1)}},
		{"a step that does not begin with 1", CodeStepNumber, []string{start1, "step/start " + step(1, 2)}},
		{"a step inside a step", CodeStepOpen, []string{start1, stepStart, "step/start " + step(1, 2)}},
		{"the second step", "", []string{start1, stepStart, stepEnd, "step/start " + step(1, 2)}},
		{"steps begin again in the next turn", "", []string{start1, stepStart, stepEnd, end1, `turn/start {"turn":2}`, "step/start " + step(2, 1)}},
		{"steps do not go on in the next turn", CodeStepNumber, []string{start1, stepStart, stepEnd, end1, `turn/start {"turn":2}`, "step/start " + step(2, 2)}},
		{"the end of no step", CodeStepNotOpen, []string{start1, stepEnd}},
		{"the end of another step", CodeStepMismatch, []string{start1, stepStart, "step/end " + step(1, 2)}},
		{"the end of a step outside turns", CodeTurnNotOpen, []string{stepEnd}},
		{"a message outside a step", CodeStepNotOpen, []string{start1, `assistant/message {"turn":1,"step":1,"message":{}}`}},
		{"a message of another step", CodeStepMismatch, []string{start1, stepStart, `assistant/message {"turn":1,"step":2,"message":{}}`}},
		{"a message of another turn", CodeTurnMismatch, []string{start1, stepStart, `assistant/message {"turn":2,"step":1,"message":{}}`}},
		{"a message without coordinates", CodeTurnMismatch, []string{start1, stepStart, `assistant/message {"message":{}}`}},
		{"a call outside a step", CodeStepNotOpen, []string{start1, call}},
		{"a call without an id", CodePayload, []string{start1, stepStart, `tool/call {"turn":1,"step":1,"callId":7}`}},
		{"a result without its call", CodeCallNotPending, []string{start1, stepStart, "RESULT"}},
		{"a second result", CodeCallNotPending, []string{start1, stepStart, call, "RESULT", "RESULT"}},
		{"a result outside the step of its call", CodeStepNotOpen, []string{start1, stepStart, call, stepEnd, "RESULT"}},
		{"a call that is never answered", "", []string{start1, stepStart, call, stepEnd, end1}},
		{"a result without an id", CodePayload, []string{start1, stepStart, call, `tool/result {"turn":1,"step":1,"message":{"source":{}}}`}},
		{"a failed result that never started", "", []string{start1, stepStart, "NOTSTARTED"}},
		{"a header outside turns", CodeTurnNotOpen, []string{header}},
		{"a context outside turns", CodeTurnNotOpen, []string{start1, end1, reqCtx}},
		{"a header between steps", "", []string{start1, header}},
		{"a user's message anywhere", "", []string{user, start1, user, stepStart, user}},
		{"the end of a seed anywhere", "", []string{`session/end-seed {}`, start1, stepStart, `session/end-seed {}`}},
		{"log only events between turns", "", []string{`permission/preset {"preset":"x"}`, start1, end1, `session/title {"title":"x"}`}},
		{"a rewrite outside turns", CodeTurnNotOpen, []string{start1, stepStart, call, "RESULT", stepEnd, end1, "RESULT replace 3 3 3"}},
		{"a rewrite in a later turn", "", []string{start1, stepStart, call, "RESULT", stepEnd, end1, `turn/start {"turn":2}`, "RESULT replace 3 3 3"}},
		{"an unknown type", CodeUnknownType, []string{`x/unknown {}`}},
	} {
		for version := MinVersion; version <= MaxVersion; version++ {
			t.Run(fmt.Sprintf("v%d/%s", version, c.name), func(t *testing.T) {
				d := dialect(t, version)
				text := append([]string{}, c.text...)
				for i, line := range text {
					line = strings.Replace(line, "RESULT", result(d, 1, 1, "a", `,"isError":false`), 1)
					if line == "NOTSTARTED" {
						line = strings.TrimSuffix(result(d, 1, 1, "b", `,"isError":true`), "}") + `,"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}}`
					}
					text[i] = line
				}
				trace := NewTrace(nil, d, nil)
				events := script(t, d, text...)
				for i := range events {
					err := Admit(&events[i], trace)
					last := i == len(events)-1
					var broken *InvariantError
					switch {
					case err == nil && last && c.code != "":
						t.Fatalf("accepted, want %s", c.code)
					case err != nil && (!last || !errors.As(err, &broken) || broken.Code != c.code):
						t.Fatalf("event %d: %v, want %q for the last one", i, err, c.code)
					case err != nil && (broken.Seq != int64(i) || broken.Type != events[i].Type || broken.Error() == ""):
						t.Fatalf("the error does not name seq and type: %v", err)
					}
				}
			})
		}
	}
}

func TestTraceFollowsTheDialect(t *testing.T) {
	stepStart := "step/start " + step(1, 1)
	for _, c := range []struct {
		typ  string
		from int // first version that knows it, and
		to   int // last
	}{
		{TypeAssistantChunk, 0, 1},
		{TypeAssistantAttempt, 2, 4},
		{TypeSystemMessage, 3, 4},
		{TypeDeveloperMessage, 4, 4},
		{TypeImageOffload, 3, 4},
		{"tool/code-dispatch", 0, 2},
		{"tool/ptc-dispatch", 3, 4},
		{"feedback/message-put", 2, 4},
		{TypeFeedbackRecord, 0, 4},
		{"request/tool-update", 3, 3},
	} {
		for version := MinVersion; version <= MaxVersion; version++ {
			d := dialect(t, version)
			events := script(t, d, start1, stepStart, c.typ+" "+step(1, 1))
			trace := NewTrace(nil, d, nil)
			var err error
			for i := range events {
				err = Admit(&events[i], trace)
			}
			var broken *InvariantError
			if known := version >= c.from && version <= c.to; known != (err == nil) || err != nil && (!errors.As(err, &broken) || broken.Code != CodeUnknownType) {
				t.Errorf("version %d, %s: %v", version, c.typ, err)
			}
		}
	}
	for version := MinVersion; version <= MaxVersion; version++ {
		d := dialect(t, version)
		ev := script(t, d, `todo/write {"todos":[]}`)[0]
		err := Admit(&ev, NewTrace(nil, d, nil))
		if needsTurn := version < 2; needsTurn != (err != nil) {
			t.Errorf("version %d: todo/write outside turns: %v", version, err)
		}
	}
}

func TestSurfaceFieldsAreJudgedByDialect(t *testing.T) {
	v0, v3 := dialect(t, 0), dialect(t, 3)
	for _, c := range []struct {
		name string
		d    *Dialect
		ev   Event
		code Code
	}{
		{"a surface type without surfaceOp", v0, Event{Type: TypeUserMessage}, CodeSurfaceOpMissing},
		{"a malformed surfaceOp", v0, Event{Type: TypeUserMessage, RawSurfaceOp: json.RawMessage("null")}, CodeSurfaceOpMalformed},
		{"surfaceOp on another type", v0, Event{Type: "todo/write", SurfaceOp: &SurfaceOp{}}, CodeSurfaceOpForbidden},
		{"an opaque surfaceOp on another type", v0, Event{Type: TypeFeedbackRecord, RawSurfaceOp: json.RawMessage("1")}, CodeSurfaceOpForbidden},
		{"sources on another type", v0, Event{Type: TypeFeedbackRecord, SourceEventSeqs: []int64{}}, CodeSourcesForbidden},
		{"a replace of itself", v0, Event{Seq: 3, Type: TypeUserMessage, SurfaceOp: &SurfaceOp{Replace: true, Start: 0, End: 3}}, CodeReplaceNotEarlier},
		{"a replace from behind", v0, Event{Seq: 3, Type: TypeUserMessage, SurfaceOp: &SurfaceOp{Replace: true, Start: 2, End: 1}}, ""},
		{"no sources", v0, Event{Type: TypeUserMessage, SurfaceOp: &SurfaceOp{}, SourceEventSeqs: []int64{}}, CodeSourcesEmpty},
		{"no sources of a message, up to version 1", v0, Event{Type: TypeAssistantMessage, SurfaceOp: &SurfaceOp{}, SourceEventSeqs: []int64{}}, ""},
		{"sources of a message, from version 2", v3, Event{Seq: 2, Type: TypeAssistantMessage, SurfaceOp: &SurfaceOp{}, SourceEventSeqs: []int64{1}}, CodeSourcesForbidden},
		{"a later source", v0, Event{Seq: 2, Type: TypeUserMessage, SurfaceOp: &SurfaceOp{}, SourceEventSeqs: []int64{2}}, CodeSourcesNotEarlier},
		{"a source twice", v0, Event{Seq: 5, Type: TypeUserMessage, SurfaceOp: &SurfaceOp{}, SourceEventSeqs: []int64{3, 1, 3}}, CodeSourcesDuplicate},
		{"sources in any order", v0, Event{Seq: 5, Type: TypeUserMessage, SurfaceOp: &SurfaceOp{}, SourceEventSeqs: []int64{3, 1, 4}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			known, _ := Core(c.d).Lookup(c.ev.Type)
			if code, detail := c.d.surfaceFields(&c.ev, known.Surface); code != c.code {
				t.Errorf("got %q (%s), want %q", code, detail, c.code)
			}
		})
	}
}

func TestUnknownTypesNeedToBeIgnorableOrRegistered(t *testing.T) {
	d := dialect(t, 4)
	ev := Event{Type: "acme/bookmark", Data: json.RawMessage(`{}`), Ignorable: true, RawSurfaceOp: json.RawMessage(`"x"`)}
	if err := Admit(&ev, NewTrace(nil, d, nil)); err != nil {
		t.Errorf("an ignorable unknown type: %v", err)
	}
	bad := errors.New("no label")
	v, err := Core(d).With(EventType{Name: "acme/bookmark", Check: func(ev *Event) error {
		if Member(ev.Data, "label") == nil {
			return bad
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ev = Event{Type: "acme/bookmark", Data: json.RawMessage(`{"label":"x"}`)}
	if err := Admit(&ev, NewTrace(nil, d, v)); err != nil {
		t.Errorf("a registered type: %v", err)
	}
	ev.Data = json.RawMessage(`{}`)
	if err := Admit(&ev, NewTrace(nil, d, v)); !errors.Is(err, bad) {
		t.Errorf("the type's own check is not asked: %v", err)
	}
	if _, ok := Core(d).Lookup("acme/bookmark"); ok {
		t.Error("registering a type changed the core vocabulary")
	}
	for _, types := range [][]EventType{{{Name: ""}}, {{Name: TypeTurnStart}}, {{Name: "a"}, {Name: "a"}}} {
		if _, err := Core(d).With(types...); err == nil {
			t.Errorf("registered %v", types)
		}
	}
}

// bookmarkLimit is an invariant of a caller's own: at most one bookmark.
type bookmarkLimit struct{ seen bool }

func (b *bookmarkLimit) Plan(ev *Event) (Plan, error) {
	if ev.Type != "acme/bookmark" {
		return planFunc(nil), nil
	}
	if b.seen {
		return nil, errors.New("a second bookmark")
	}
	return planFunc(func() { b.seen = true }), nil
}

func TestATypesOwnInvariantHasASay(t *testing.T) {
	d := dialect(t, 4)
	v, err := Core(d).With(EventType{Name: "acme/bookmark", Invariant: func() Admitter { return &bookmarkLimit{} }})
	if err != nil {
		t.Fatal(err)
	}
	trace := NewTrace(nil, d, v)
	for seq, want := range []bool{true, true, false} {
		ev := Event{Seq: int64(seq), Type: "acme/bookmark", Data: json.RawMessage("{}")}
		if seq == 1 {
			ev.Type = TypeFeedbackRecord
		}
		if err := Admit(&ev, trace); (err == nil) != want {
			t.Errorf("event %d: %v", seq, err)
		}
	}
	if trace.NextSeq() != 2 {
		t.Error("the refused event counted")
	}
}

func TestTruncatedPayloadsAreBelieved(t *testing.T) {
	d := dialect(t, 4)
	events := script(t, d, start1, "step/start "+step(1, 1), "assistant/message "+step(1, 1), "tool/call "+step(1, 1), "tool/result "+step(1, 1), result(d, 1, 1, "a", ""), "step/end "+step(1, 1))
	trace := NewTrace(nil, d, nil)
	for i := range events {
		events[i].DataTruncated = i >= 2 && i <= 4
		if err := Admit(&events[i], trace); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
}

func state(t testing.TB, trace *Trace) string {
	t.Helper()
	b, err := trace.AppendState(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestATraceGoesOnFromItsStoredState(t *testing.T) {
	for _, path := range ledgers(t) {
		if filepath.Base(path) == "native-v3-restart.jsonl" {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		h, d, events := readLedger(t, raw)
		whole, trace := NewTrace(h, d, nil), NewTrace(h, d, nil)
		for i := range events {
			if err := Admit(&events[i], whole); err != nil {
				t.Fatal(err)
			}
			trace, err = RestoreTrace(h, d, nil, []byte(state(t, trace)))
			if err != nil {
				t.Fatal(err)
			}
			if err := Admit(&events[i], trace); err != nil {
				t.Fatalf("%s: event %d: %v", path, i, err)
			}
			if state(t, trace) != state(t, whole) {
				t.Fatalf("%s: event %d: the states differ", path, i)
			}
		}
	}
	good := []byte(state(t, NewTrace(nil, dialect(t, 4), nil)))
	for n := range good {
		if _, err := RestoreTrace(nil, dialect(t, 4), nil, good[:n]); err == nil {
			t.Errorf("a state cut at %d bytes was restored", n)
		}
	}
	if _, err := RestoreTrace(nil, dialect(t, 4), nil, append(good, 0)); err == nil {
		t.Error("a state with a byte too much was restored")
	}
}

func TestAdmissionAllocatesNothing(t *testing.T) {
	d := dialect(t, 4)
	events := turns(7 * 50)
	allocs := testing.AllocsPerRun(20, func() {
		trace := NewTrace(nil, d, nil)
		for i := range events {
			if err := Admit(&events[i], trace); err != nil {
				t.Fatal(err)
			}
		}
	})
	// A new trace is a handful; 350 events are none.
	if allocs > 10 {
		t.Errorf("%v allocations for a trace and %d events", allocs, len(events))
	}
}

func TestStrictTraceRefusesWhatRelationsFind(t *testing.T) {
	d := dialect(t, 0)
	advertise := `assistant/message {"turn":1,"step":1,"message":{"content":[{"type":"tool-call","id":"a","name":"n","arguments":"{}"}]}}`
	text := []string{start1, "step/start " + step(1, 1), advertise, "step/end " + step(1, 1)}
	lenient, strict := NewTrace(nil, d, nil), NewTrace(&Header{ID: "s"}, d, nil, WithStrict())
	var broken *InvariantError
	for i, ev := range script(t, d, text...) {
		if err := Admit(&ev, lenient); err != nil {
			t.Errorf("event %d: %v", i, err)
		}
		err := Admit(&ev, strict)
		if last := i == len(text)-1; last != (err != nil) || last && (!errors.As(err, &broken) || broken.Code != CodeCallUnresolved) {
			t.Errorf("event %d, strict: %v", i, err)
		}
	}
	if _, err := strict.AppendState(nil); err == nil {
		t.Error("a strict trace stored a state that is not all of it")
	}
}

func TestStrictTraceFinishesWithWhatNothingExcused(t *testing.T) {
	d := dialect(t, 0)
	open := `compaction/start {"compactionId":"c","turn":null}`
	for name, c := range map[string]struct {
		text []string
		want int
	}{
		"a turn crosses a compaction that stays open": {[]string{open, start1}, 1},
		"a later end of the seed orphans it":          {[]string{open, start1, `session/end-seed {}`}, 0},
		"nothing crosses it":                          {[]string{open}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			trace := NewTrace(&Header{}, d, nil, WithStrict())
			for _, ev := range script(t, d, c.text...) {
				if err := Admit(&ev, trace); err != nil {
					t.Fatal(err)
				}
			}
			if got := trace.Finish(); len(got) != c.want {
				t.Errorf("finishes with %v, want %d findings", got, c.want)
			}
		})
	}
}

func TestStrictProfileAcceptsEveryRealLedger(t *testing.T) {
	for _, path := range ledgers(t) {
		if filepath.Base(path) == "native-v3-restart.jsonl" {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		h, d, events := readLedger(t, raw)
		trace := NewTrace(h, d, nil, WithStrict())
		for i := range events {
			if err := Admit(&events[i], trace); err != nil {
				t.Errorf("%s: %v", path, err)
				break
			}
		}
		for _, err := range trace.Finish() {
			t.Errorf("%s: %v", path, err)
		}
	}
}
