package surface

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

func dialect(t testing.TB, version int) *session.Dialect {
	t.Helper()
	d, err := session.DialectOf(version)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ledger builds events by hand; each method returns the event it appended.
type ledger struct {
	events []*session.Event
}

func (l *ledger) add(typ string, op *session.SurfaceOp, data string, sources ...int64) *session.Event {
	ev := &session.Event{
		Seq: int64(len(l.events)), Time: int64(1000 + len(l.events)), Type: typ,
		Data: json.RawMessage(data), SurfaceOp: op, SourceEventSeqs: sources,
	}
	l.events = append(l.events, ev)
	return ev
}

func (l *ledger) user(text string, sources ...int64) *session.Event {
	return l.add(typeUser, appendOp(), userData(text), sources...)
}

func userData(text string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"source":{"kind":"user"},"role":"user","id":"u"}`, text)
}

func toolData(callID, content string) string {
	return fmt.Sprintf(`{"turn":1,"step":1,"message":{"source":{"kind":"tool","callId":%q},"content":[{"type":"tool-result","toolCallId":%q,"content":%s,"isError":false}],"role":"user","id":"t"}}`, callID, callID, content)
}

func toolDataV4(callID, content string) string {
	return fmt.Sprintf(`{"turn":1,"step":1,"message":{"role":"tool","source":{"kind":"tool","callId":%q},"toolCallId":%q,"content":%s,"isError":false,"id":"t"}}`, callID, callID, content)
}

func systemData(text string) string {
	content := "[]"
	if text != "" {
		content = fmt.Sprintf(`[{"type":"text","text":%q}]`, text)
	}
	return fmt.Sprintf(`{"turn":1,"step":1,"message":{"role":"system","content":%s,"source":{"kind":"plugin","plugin":"@deepseek-ai/dsh-system-prompt"},"id":"s"}}`, content)
}

func appendOp() *session.SurfaceOp { return &session.SurfaceOp{} }

func replaceOp(start, end int64) *session.SurfaceOp {
	return &session.SurfaceOp{Replace: true, Start: start, End: end}
}

func (l *ledger) Bounds() (first, next int64) { return 0, int64(len(l.events)) }

func (l *ledger) Event(seq int64) (*session.Event, error) { return l.events[seq], nil }

func (l *ledger) source(yield func(*session.Event, error) bool) {
	for _, ev := range l.events {
		c := ev.Clone()
		ok := yield(&c, nil)
		// The event is used up: whoever kept its memory reads nonsense.
		for i := range c.Data {
			c.Data[i] = '#'
		}
		if !ok {
			return
		}
	}
}

func mustFold(t testing.TB, s *Surface, events ...*session.Event) {
	t.Helper()
	for _, ev := range events {
		if err := s.Fold(ev); err != nil {
			t.Fatal(err)
		}
	}
}

func wantNodes(t testing.TB, s *Surface, want ...int64) {
	t.Helper()
	if got := s.Nodes(); !slices.Equal(got, want) {
		t.Errorf("nodes are %v, want %v", got, want)
	}
	if s.Len() != len(want) {
		t.Errorf("length is %d, want %d", s.Len(), len(want))
	}
	if got, want := s.Hash(), chainOf(want); got != want {
		t.Errorf("hash of %v is %x, want %x", s.Nodes(), got, want)
	}
}

// chainOf is the hash chain as DESIGN §5 words it.
func chainOf(seqs []int64) (h [32]byte) {
	for _, seq := range seqs {
		h = sha256.Sum256(binary.BigEndian.AppendUint64(h[:], uint64(seq)))
	}
	return h
}

func wantRefusal(t testing.TB, err error, code session.Code) {
	t.Helper()
	var inv *session.InvariantError
	if !errors.As(err, &inv) {
		t.Fatalf("got %v, want a refusal with code %s", err, code)
	}
	if inv.Code != code {
		t.Fatalf("refused with code %s (%v), want %s", inv.Code, err, code)
	}
}

func TestAppendsStandInOrder(t *testing.T) {
	for version := range 5 {
		s := New(dialect(t, version))
		var l ledger
		l.add("turn/start", nil, `{"turn":1}`)
		l.user("a")
		l.add("step/start", nil, `{"turn":1,"step":1}`)
		l.user("b")
		mustFold(t, s, l.events...)
		wantNodes(t, s, 1, 3)
		if s.ReplaceGeneration() != 0 || s.ContentGeneration() != 0 || s.Next() != 4 {
			t.Errorf("version %d: generations %d and %d, next %d", version, s.ReplaceGeneration(), s.ContentGeneration(), s.Next())
		}
	}
}

func TestEmptySurfaceHashesToZeros(t *testing.T) {
	if got := New(dialect(t, 4)).Hash(); got != [32]byte{} {
		t.Errorf("hash is %x", got)
	}
}

func TestReplaceMeansSpanOfPositionsNotOfNumbers(t *testing.T) {
	s := New(dialect(t, 2))
	var l ledger
	for range 5 {
		l.user("x")
	}
	// 5 takes the place of 1..2; then the span from 5 to 3 has start > end.
	l.add(typeUser, replaceOp(1, 2), userData("sum"), 1, 2)
	mustFold(t, s, l.events...)
	wantNodes(t, s, 0, 5, 3, 4)
	mustFold(t, s, l.add(typeUser, replaceOp(5, 3), userData("sum of sums"), 3, 5))
	wantNodes(t, s, 0, 6, 4)
	if s.ReplaceGeneration() != 2 || s.ContentGeneration() != 2 {
		t.Errorf("generations are %d and %d, want 2 and 2", s.ReplaceGeneration(), s.ContentGeneration())
	}
	mustFold(t, s, l.user("y"))
	wantNodes(t, s, 0, 6, 4, 7)
}

func TestPlanTellsWhatAnEventDoes(t *testing.T) {
	s := New(dialect(t, 3))
	var l ledger
	mustFold(t, s, l.user("a"), l.user("b"), l.user("c"))
	p, err := s.Plan(l.add(typeUser, replaceOp(0, 1), userData("ab"), 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	plan := p.(*Plan)
	start, end := plan.Span()
	if plan.Op() != OpReplace || start != 0 || end != 1 || plan.Shadowed() != 2 {
		t.Errorf("plan is %s %d..%d over %d nodes", plan.Op(), start, end, plan.Shadowed())
	}
	wantNodes(t, s, 0, 1, 2)
	plan.Apply()
	wantNodes(t, s, 3, 2)
	plan.Apply()
	wantNodes(t, s, 3, 2)
}

func TestRefusalsHaveStableCodes(t *testing.T) {
	// Nodes 0 (user), 1 (tool), 2 (tool), 3 (assistant); seq 4 is log only.
	base := func() *ledger {
		var l ledger
		l.user("a")
		l.add(typeTool, appendOp(), toolData("c1", `[{"type":"text","text":"one"}]`))
		l.add(typeTool, appendOp(), toolData("c2", `[{"type":"text","text":"two"}]`))
		l.add(typeAssistant, appendOp(), `{"turn":1,"step":1,"message":{"content":[]}}`)
		l.add("turn/start", nil, `{"turn":1}`)
		return &l
	}
	for _, c := range []struct {
		name    string
		version int
		ev      session.Event
		code    session.Code
	}{
		{"seq gap", 3, session.Event{Seq: 6, Type: "turn/end"}, session.CodeSeqGap},
		{"log-only with op", 3, session.Event{Seq: 5, Type: "turn/end", SurfaceOp: appendOp()}, session.CodeSurfaceOpForbidden},
		{"log-only with raw op", 3, session.Event{Seq: 5, Type: "turn/end", RawSurfaceOp: json.RawMessage(`7`)}, session.CodeSurfaceOpForbidden},
		{"log-only with sources", 3, session.Event{Seq: 5, Type: "turn/end", SourceEventSeqs: []int64{}}, session.CodeSourcesForbidden},
		{"no op", 3, session.Event{Seq: 5, Type: typeUser}, session.CodeSurfaceOpMissing},
		{"malformed op", 3, session.Event{Seq: 5, Type: typeUser, RawSurfaceOp: json.RawMessage(`"appendix"`)}, session.CodeSurfaceOpMalformed},
		{"replace of itself", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: replaceOp(0, 5)}, session.CodeReplaceNotEarlier},
		{"replace of a negative seq", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: replaceOp(-1, 0)}, session.CodeReplaceNotEarlier},
		{"assistant with sources", 3, session.Event{Seq: 5, Type: typeAssistant, SurfaceOp: appendOp(), SourceEventSeqs: []int64{1}}, session.CodeSourcesForbidden},
		{"empty sources", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: appendOp(), SourceEventSeqs: []int64{}}, session.CodeSourcesEmpty},
		{"duplicate sources", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: appendOp(), SourceEventSeqs: []int64{3, 1, 3}}, session.CodeSourcesDuplicate},
		{"source of itself", 0, session.Event{Seq: 5, Type: typeUser, SurfaceOp: appendOp(), SourceEventSeqs: []int64{5}}, session.CodeSourcesNotEarlier},
		{"start is no node", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: replaceOp(4, 3), SourceEventSeqs: []int64{3, 4}}, CodeReplaceNotCurrent},
		{"end is no node", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: replaceOp(3, 4), SourceEventSeqs: []int64{3, 4}}, CodeReplaceNotCurrent},
		{"start behind end", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: replaceOp(2, 1), SourceEventSeqs: []int64{1, 2}}, CodeReplaceOrder},
		{"no sources", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: replaceOp(1, 1)}, CodeReplaceUncited},
		{"one shadowed node not cited", 3, session.Event{Seq: 5, Type: typeUser, SurfaceOp: replaceOp(1, 3), SourceEventSeqs: []int64{1, 3}}, CodeReplaceUncited},
		{"rewrite of two", 3, session.Event{Seq: 5, Type: typeTool, Data: []byte(toolData("c1", `[]`)), SurfaceOp: replaceOp(1, 2), SourceEventSeqs: []int64{1, 2}}, CodeRewriteSpan},
		{"rewrite of a user message", 3, session.Event{Seq: 5, Type: typeTool, Data: []byte(toolData("c1", `[]`)), SurfaceOp: replaceOp(0, 0), SourceEventSeqs: []int64{0}}, CodeRewriteSpan},
		{"rewrite of another call", 3, session.Event{Seq: 5, Type: typeTool, Data: []byte(toolData("c2", `[]`)), SurfaceOp: replaceOp(1, 1), SourceEventSeqs: []int64{1}}, CodeRewriteContent},
		{"no such projection target", 3, session.Event{Seq: 5, Type: typeOffload, Data: []byte(`{"targets":[{"seq":4,"imageIndexes":[0]}]}`)}, CodeOffloadNotCurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(dialect(t, c.version))
			mustFold(t, s, base().events...)
			before := fmt.Sprint(s.Nodes(), s.Hash(), s.Next())
			wantRefusal(t, s.Fold(&c.ev), c.code)
			if after := fmt.Sprint(s.Nodes(), s.Hash(), s.Next()); after != before {
				t.Errorf("a refused event changed the surface from %s to %s", before, after)
			}
		})
	}
}

func TestReplaceCitesEveryShadowedNodeAndMayCiteMore(t *testing.T) {
	s := New(dialect(t, 3))
	var l ledger
	l.user("a")
	l.add("turn/start", nil, `{}`)
	l.user("b")
	l.user("c")
	l.add(typeUser, replaceOp(2, 3), userData("bc"), 3, 1, 0, 2)
	mustFold(t, s, l.events...)
	wantNodes(t, s, 0, 4)
}

func TestUnknownIgnorableEventIsOpaque(t *testing.T) {
	s := New(dialect(t, 3))
	mustFold(t, s, &session.Event{Seq: 0, Type: "acme/bookmark", Ignorable: true,
		SurfaceOp: replaceOp(7, 9), RawSurfaceOp: json.RawMessage(`{}`), SourceEventSeqs: []int64{5, 5}})
	wantNodes(t, s)
	wantRefusal(t, s.Fold(&session.Event{Seq: 1, Type: "turn/end", Ignorable: true, SurfaceOp: appendOp()}),
		session.CodeSurfaceOpForbidden)
}

func TestAssistantSourcesBelongToTheGenerationsWithChunks(t *testing.T) {
	for version, allowed := range []bool{true, true, false, false, false} {
		s := New(dialect(t, version))
		mustFold(t, s, &session.Event{Type: "turn/start"})
		err := s.Fold(&session.Event{Seq: 1, Type: typeAssistant, SurfaceOp: appendOp(), SourceEventSeqs: []int64{},
			Data: []byte(`{"message":{"content":[]}}`)})
		if allowed && err != nil {
			t.Errorf("version %d: %v", version, err)
		} else if !allowed {
			wantRefusal(t, err, session.CodeSourcesForbidden)
		}
	}
}

func TestToolResultRewriteChangesOnlyContent(t *testing.T) {
	type build func(callID, content string) string
	for version, data := range []build{toolData, toolData, toolData, toolData, toolDataV4} {
		one := data("c1", `[{"type":"text","text":"one"}]`)
		for _, c := range []struct {
			name, rewrite string
			code          session.Code
		}{
			{"other content", data("c1", `[]`), ""},
			{"same values in other order and spelling", strings.Replace(data("c1", `"x"`), `{"turn":1,"step":1,`, `{ "step":1.0,"turn":1e0, "turn" : 1,`, 1), ""},
			{"another call", data("c2", `[]`), CodeRewriteContent},
			{"another turn", strings.Replace(one, `"turn":1`, `"turn":2`, 1), CodeRewriteContent},
			{"another error flag", strings.Replace(one, `false`, `true`, 1), CodeRewriteContent},
			{"an error", strings.Replace(one, `"turn":1`, `"turn":1,"error":{"code":"X"}`, 1), CodeRewriteContent},
			{"another id", strings.Replace(one, `"id":"t"`, `"id":"u"`, 1), CodeRewriteContent},
		} {
			t.Run(fmt.Sprintf("v%d %s", version, c.name), func(t *testing.T) {
				s := New(dialect(t, version))
				var l ledger
				mustFold(t, s, l.user("a"), l.add(typeTool, appendOp(), one))
				err := s.Fold(l.add(typeTool, replaceOp(1, 1), c.rewrite, 1))
				if c.code != "" {
					wantRefusal(t, err, c.code)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				wantNodes(t, s, 0, 2)
			})
		}
	}
}

func TestRewriteOfAResultTooLongToReadIsAccepted(t *testing.T) {
	s := New(dialect(t, 3))
	mustFold(t, s,
		&session.Event{Seq: 0, Type: typeTool, SurfaceOp: appendOp(), Data: []byte(`{"turn":1,"step":1}`), DataTruncated: true},
		&session.Event{Seq: 1, Type: typeTool, SurfaceOp: replaceOp(0, 0), Data: []byte(toolData("c", `[]`)), SourceEventSeqs: []int64{0}})
	wantNodes(t, s, 1)
}

func TestSystemHeadYieldsOnlyToASystemMessageOverExactlyIt(t *testing.T) {
	for _, version := range []int{3, 4} {
		var l ledger
		l.add(typeSystem, appendOp(), systemData("one"))
		l.user("a")
		l.add(typeSystem, appendOp(), systemData("two"))
		l.user("b")
		s := New(dialect(t, version))
		mustFold(t, s, l.events...)
		for name, ev := range map[string]session.Event{
			"a user message over the head":   {Seq: 4, Type: typeUser, Data: []byte(userData("x")), SurfaceOp: replaceOp(0, 0), SourceEventSeqs: []int64{0}},
			"a user message over head and a": {Seq: 4, Type: typeUser, Data: []byte(userData("x")), SurfaceOp: replaceOp(0, 1), SourceEventSeqs: []int64{0, 1}},
			"a system message over two":      {Seq: 4, Type: typeSystem, Data: []byte(systemData("x")), SurfaceOp: replaceOp(0, 1), SourceEventSeqs: []int64{0, 1}},
		} {
			t.Run(name, func(t *testing.T) { wantRefusal(t, s.Fold(&ev), CodeHeadProtected) })
		}
		mustFold(t, s, l.add(typeUser, replaceOp(1, 2), userData("a later system message may go"), 1, 2))
		mustFold(t, s, l.add(typeSystem, replaceOp(0, 0), systemData("three"), 0))
		wantNodes(t, s, 5, 4, 3)
	}
}

func TestVocabularyAddsSurfaceTypes(t *testing.T) {
	d := dialect(t, 3)
	v, err := session.Core(d).With(
		session.EventType{Name: "acme/note", Surface: true}, session.EventType{Name: "acme/card", Surface: true},
		session.EventType{Name: "acme/log"})
	if err != nil {
		t.Fatal(err)
	}
	s := New(d, WithVocabulary(v))
	var l ledger
	mustFold(t, s, l.add("acme/note", appendOp(), `{}`), l.add("acme/log", nil, `{}`), l.add("acme/card", appendOp(), `{}`),
		l.add("acme/note", replaceOp(2, 2), `{}`, 2))
	wantNodes(t, s, 0, 3)
	if got := s.NodeType(0) + " " + s.NodeType(3); got != "acme/note acme/note" {
		t.Errorf("types are %s", got)
	}
	wantRefusal(t, s.Fold(&session.Event{Seq: 4, Type: "acme/card"}), session.CodeSurfaceOpMissing)
	wantRefusal(t, New(d).Fold(&session.Event{Type: "acme/note", SurfaceOp: appendOp()}), session.CodeSurfaceOpForbidden)
}

func TestWindowWithABaseSeqWorksLikeAWholeLog(t *testing.T) {
	var l ledger
	for range 20 {
		l.user("x")
	}
	l.add(typeUser, replaceOp(12, 15), userData("sum"), 12, 13, 14, 15)
	whole, window := New(dialect(t, 3)), New(dialect(t, 3), WithBase(10))
	mustFold(t, whole, l.events...)
	mustFold(t, window, l.events[10:]...)
	wantNodes(t, window, whole.Nodes()[10:]...)
	wantRefusal(t, window.Fold(&session.Event{Seq: 21, Type: typeUser, Data: []byte(userData("x")), SurfaceOp: replaceOp(3, 3), SourceEventSeqs: []int64{3}}),
		CodeReplaceNotCurrent)
	wantRefusal(t, New(dialect(t, 3), WithBase(10)).Fold(l.events[0]), session.CodeSeqGap)
}

func TestCloneIsIndependent(t *testing.T) {
	s := New(dialect(t, 3))
	var l ledger
	mustFold(t, s, l.user("a"), l.user("b"), l.user("c"))
	c := s.Clone()
	replace := l.add(typeUser, replaceOp(0, 1), userData("ab"), 0, 1)
	mustFold(t, c, replace)
	wantNodes(t, s, 0, 1, 2)
	wantNodes(t, c, 3, 2)
	mustFold(t, s, replace)
	wantNodes(t, s, 3, 2)
}

func TestHashOfALongSurfaceSurvivesReplacesAnywhere(t *testing.T) {
	s := New(dialect(t, 2))
	var l ledger
	for range 3 * checkpointEvery {
		mustFold(t, s, l.user("x"))
	}
	for _, at := range []int{0, 1, checkpointEvery - 1, checkpointEvery, checkpointEvery + 1, 2 * checkpointEvery, 3*checkpointEvery - 1} {
		s.Hash()
		seq := s.Nodes()[at]
		mustFold(t, s, l.add(typeUser, replaceOp(seq, seq), userData("y"), seq))
		wantNodes(t, s, s.Nodes()...)
	}
	// A long span, so that the list is packed.
	nodes := s.Nodes()
	from, to := nodes[10], nodes[len(nodes)-10]
	mustFold(t, s, l.add(typeUser, replaceOp(from, to), userData("sum"), nodes[10:len(nodes)-9]...))
	for range 2 * checkpointEvery {
		mustFold(t, s, l.user("z"))
	}
	wantNodes(t, s, s.Nodes()...)
	if len(s.nodes.seqs) > 2*s.Len()+packSlack {
		t.Errorf("%d index entries for %d nodes", len(s.nodes.seqs), s.Len())
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	d := dialect(t, 4)
	s := New(d)
	ev := session.Event{Data: []byte(toolDataV4("c1", `[{"type":"text","text":"some output"}]`)), SurfaceOp: appendOp(), SourceEventSeqs: []int64{}}
	s.nodes.slots = make([]slot, 0, 10000)
	s.nodes.seqs = make([]int64, 0, 10000)
	s.nodes.where = make([]int32, 0, 10000)
	for _, typ := range []string{typeTool, typeUser, "turn/start"} {
		ev.Type = typ
		ev.SourceEventSeqs = nil
		switch typ {
		case typeUser:
			ev.Data = []byte(userData("hello"))
		case "turn/start":
			ev.SurfaceOp = nil
		}
		step := func() {
			ev.Seq = s.Next()
			p, err := s.Plan(&ev)
			if err != nil {
				t.Fatal(err)
			}
			p.Apply()
		}
		step()
		if n := testing.AllocsPerRun(1000, step); n != 0 {
			t.Errorf("%s: %v allocations", typ, n)
		}
	}
}

func TestErrorsQuoteNoPayload(t *testing.T) {
	const secret = "sk-SECRET"
	s := New(dialect(t, 3))
	var l ledger
	mustFold(t, s, l.add(typeTool, appendOp(), toolData(secret, `["`+secret+`"]`)))
	err := s.Fold(l.add(typeTool, replaceOp(0, 0), toolData("x", `["`+secret+`"]`), 0))
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error is %v", err)
	}
}

// A ledger must not be held for what nobody has seen: lines longer than the
// reader's limit come without their payload.
func TestPayloadsTooLongToReadAreNotHeldAgainstALedger(t *testing.T) {
	s := New(dialect(t, 4))
	truncated := func(ev session.Event) *session.Event {
		ev.Seq, ev.Data, ev.DataTruncated = s.Next(), json.RawMessage(`{"turn":1,"step":1}`), true
		return &ev
	}
	mustFold(t, s, truncated(session.Event{Type: typeUser, SurfaceOp: appendOp()}))
	mustFold(t, s, truncated(session.Event{Type: typeHeader}))
	mustFold(t, s, &session.Event{Seq: 2, Type: typeOffload, Data: []byte(`{"targets":[{"seq":0,"imageIndexes":[3]}]}`)})
	mustFold(t, s, &session.Event{Seq: 3, Type: typeOffload, Data: []byte(`{"targets":[{"seq":0,"imageIndexes":[4]}]}`)})
	mustFold(t, s, truncated(session.Event{Type: typeOffload}))
	mustFold(t, s, &session.Event{Seq: 5, Type: typeDeveloper, SurfaceOp: appendOp(),
		Data: []byte(`{"headerSeq":1,"message":{"content":[{"type":"tool-addition","toolName":"a"}]}}`)})
	mustFold(t, s, truncated(session.Event{Type: typeDeveloper, SurfaceOp: appendOp()}))
	wantNodes(t, s, 0, 5, 6)
	if s.ContentGeneration() != 3 {
		t.Errorf("content generation is %d, want 3", s.ContentGeneration())
	}
}
