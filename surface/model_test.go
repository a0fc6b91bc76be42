package surface

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/otel-bridge/otel-bridge/session"
)

// model is the fold as DSH-SEMANTICS §3.1 words it, with no regard to cost: a
// list of seqs, the whole ledger beside it, and a splice.
type model struct {
	version           int
	events            []*session.Event
	nodes             []int64
	replaced, changed int64
	images            map[int64][]bool // of live nodes: offloaded
	decisions         map[int64][]int64
}

func newModel(version int) *model {
	return &model{version: version, images: map[int64][]bool{}, decisions: map[int64][]int64{}}
}

// fold folds ev and returns "", or returns the code of the rule it breaks.
func (m *model) fold(ev *session.Event) session.Code {
	seq := int64(len(m.events))
	if ev.Seq != seq {
		return session.CodeSeqGap
	}
	if ev.Type == typeOffload {
		return m.offload(ev)
	}
	if ev.SurfaceOp == nil {
		m.events = append(m.events, ev)
		return ""
	}
	seen := map[int64]bool{}
	dup := false
	for _, s := range ev.SourceEventSeqs {
		dup = dup || seen[s]
		seen[s] = true
	}
	op := ev.SurfaceOp
	if op.Replace && max(op.Start, op.End) >= seq {
		return session.CodeReplaceNotEarlier
	}
	if ev.SourceEventSeqs != nil {
		switch {
		case ev.Type == typeAssistant && m.version >= 2:
			return session.CodeSourcesForbidden
		case len(ev.SourceEventSeqs) == 0 && ev.Type != typeAssistant:
			return session.CodeSourcesEmpty
		case dup:
			return session.CodeSourcesDuplicate
		case len(ev.SourceEventSeqs) > 0 && slices.Max(ev.SourceEventSeqs) >= seq:
			return session.CodeSourcesNotEarlier
		}
	}
	at, end := len(m.nodes), len(m.nodes)-1
	if op.Replace {
		at, end = slices.Index(m.nodes, op.Start), slices.Index(m.nodes, op.End)
		if at < 0 || end < 0 {
			return CodeReplaceNotCurrent
		}
		if at > end {
			return CodeReplaceOrder
		}
		shadowed := m.nodes[at : end+1]
		for _, s := range shadowed {
			if !seen[s] {
				return CodeReplaceUncited
			}
		}
		if ev.Type == typeTool {
			if len(shadowed) != 1 || m.events[shadowed[0]].Type != typeTool {
				return CodeRewriteSpan
			}
			// Generated results differ in nothing but call and content.
			if callOf(m.events[shadowed[0]]) != callOf(ev) {
				return CodeRewriteContent
			}
		}
		if m.version >= 3 && at == 0 && m.events[m.nodes[0]].Type == typeSystem && (ev.Type != typeSystem || len(shadowed) != 1) {
			return CodeHeadProtected
		}
		for _, s := range shadowed {
			delete(m.images, s)
			delete(m.decisions, s)
		}
		m.replaced++
		m.changed++
	}
	m.nodes = slices.Replace(m.nodes, at, end+1, seq)
	m.events = append(m.events, ev)
	if n := imagesOf(ev); n > 0 {
		m.images[seq] = make([]bool, n)
	}
	return ""
}

// offload takes a decision with one target, all that the generator makes.
func (m *model) offload(ev *session.Event) session.Code {
	var seq int64
	var index int
	if _, err := fmt.Sscanf(string(ev.Data), `{"targets":[{"seq":%d,"imageIndexes":[%d]}]}`, &seq, &index); err != nil {
		panic(err)
	}
	switch images := m.images[seq]; {
	case !slices.Contains(m.nodes, seq):
		return CodeOffloadNotCurrent
	case m.events[seq].Type != typeUser && m.events[seq].Type != typeTool:
		return CodeOffloadType
	case index >= len(images):
		return CodeOffloadMissing
	case images[index]:
		return CodeOffloadAgain
	default:
		images[index] = true
	}
	m.decisions[seq] = append(m.decisions[seq], ev.Seq)
	m.changed++
	m.events = append(m.events, ev)
	return ""
}

func callOf(ev *session.Event) string {
	s, _ := session.String(session.Path(ev.Data, "message", "source", "callId"))
	return s
}

func imagesOf(ev *session.Event) (n int) {
	m, ok := derive(ev)
	if !ok || ev.Type != typeUser && ev.Type != typeTool {
		return 0
	}
	for _, s := range appendImages(nil, &session.Event{}, session.Member(m, "content"), 0) {
		if s != imagesBroken {
			n++
		}
	}
	return n
}

// genEvent draws an event that mostly fits the ledger so far.
func genEvent(t *rapid.T, m *model) *session.Event {
	seq := int64(len(m.events))
	ev := &session.Event{Seq: seq, Time: seq, Type: "llm/retry", Data: []byte(`{}`)}
	types := []string{typeUser, typeUser, typeTool, typeAssistant}
	if m.version >= 3 {
		types = append(types, typeSystem, typeOffload)
	}
	anySeq := rapid.Int64Range(0, seq+1)
	node := func(label string) int64 {
		if len(m.nodes) == 0 || rapid.IntRange(0, 9).Draw(t, label+" is any") == 0 {
			return anySeq.Draw(t, label)
		}
		return rapid.SampledFrom(m.nodes).Draw(t, label)
	}
	if rapid.IntRange(0, 4).Draw(t, "log only") == 0 {
		return ev
	}
	ev.Type = rapid.SampledFrom(types).Draw(t, "type")
	content := rapid.SampledFrom([]string{`[]`, `[{"type":"text","text":"x"}]`, `[` + shown + `]`, `[` + shown + `,` + shown + `]`}).Draw(t, "content")
	switch ev.Type {
	case typeUser:
		ev.Data = []byte(userContent(content))
	case typeTool:
		call := rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "call")
		ev.Data = []byte(toolData(call, content))
		if m.version >= 4 {
			ev.Data = []byte(toolDataV4(call, content))
		}
	case typeAssistant, typeSystem:
		ev.Data = []byte(`{"turn":1,"step":1,"message":{"content":` + content + `}}`)
	case typeOffload:
		ev.Data = fmt.Appendf(nil, `{"targets":[{"seq":%d,"imageIndexes":[%d]}]}`, node("target"), rapid.IntRange(0, 2).Draw(t, "index"))
		return ev
	}
	ev.SurfaceOp = appendOp()
	if ev.Type != typeAssistant && rapid.IntRange(0, 2).Draw(t, "replace") == 0 {
		ev.SurfaceOp = replaceOp(node("start"), node("end"))
		if rapid.Bool().Draw(t, "alone") {
			ev.SurfaceOp.End = ev.SurfaceOp.Start
		}
		a, b := slices.Index(m.nodes, ev.SurfaceOp.Start), slices.Index(m.nodes, ev.SurfaceOp.End)
		if a >= 0 && b >= 0 {
			if a > b && rapid.IntRange(0, 9).Draw(t, "keep order") > 0 {
				a, b = b, a
				ev.SurfaceOp.Start, ev.SurfaceOp.End = ev.SurfaceOp.End, ev.SurfaceOp.Start
			}
			if a <= b {
				ev.SourceEventSeqs = rapid.Permutation(m.nodes[a:b+1]).Draw(t, "sources")
			}
		}
	}
	switch rapid.IntRange(0, 19).Draw(t, "disturb") {
	case 0:
		ev.SourceEventSeqs = append(slices.Clone(ev.SourceEventSeqs), anySeq.Draw(t, "extra source"))
	case 1:
		if len(ev.SourceEventSeqs) > 0 {
			ev.SourceEventSeqs = ev.SourceEventSeqs[1:]
		}
	case 2:
		ev.Seq += rapid.SampledFrom([]int64{-1, 1}).Draw(t, "seq error")
	case 3:
		ev.SourceEventSeqs = []int64{}
	}
	return ev
}

func (m *model) check(t *rapid.T, s *Surface) {
	if got := s.Nodes(); !slices.Equal(got, m.nodes) {
		t.Fatalf("nodes are %v, want %v", got, m.nodes)
	}
	if s.Len() != len(m.nodes) || s.Next() != int64(len(m.events)) ||
		s.ReplaceGeneration() != m.replaced || s.ContentGeneration() != m.changed {
		t.Fatalf("length %d, next %d, generations %d and %d; want %d, %d, %d and %d", s.Len(), s.Next(),
			s.ReplaceGeneration(), s.ContentGeneration(), len(m.nodes), len(m.events), m.replaced, m.changed)
	}
	for _, seq := range m.nodes {
		if got := s.NodeType(seq); got != m.events[seq].Type {
			t.Fatalf("node %d is of type %q, want %q", seq, got, m.events[seq].Type)
		}
		if got := s.Decisions(seq); !slices.Equal(got, m.decisions[seq]) {
			t.Fatalf("node %d was changed by %v, want %v", seq, got, m.decisions[seq])
		}
	}
	if len(s.decisions) != len(m.decisions) {
		t.Fatalf("decisions about %d nodes are remembered, want %d", len(s.decisions), len(m.decisions))
	}
}

// TestAnyInterleavingOfAppendsAndReadsGivesTheSurfaceOfAFullFold also plans
// without committing, clones, and continues on the clone.
func TestAnyInterleavingOfAppendsAndReadsGivesTheSurfaceOfAFullFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.IntRange(0, 4).Draw(t, "version")
		d, err := session.DialectOf(version)
		if err != nil {
			t.Fatal(err)
		}
		m, s := newModel(version), New(d)
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				ev := genEvent(t, m)
				want := m.fold(ev)
				err := s.Fold(ev)
				if got := codeOf(err); got != want {
					t.Fatalf("%s at %d: got %q (%v), want %q", ev.Type, ev.Seq, got, err, want)
				}
			},
			"plan only": func(t *rapid.T) {
				_, _ = s.Plan(genEvent(t, m))
				m.check(t, s)
			},
			"read": func(t *rapid.T) { m.check(t, s) },
			"hash": func(t *rapid.T) {
				if got, want := s.Hash(), chainOf(m.nodes); got != want {
					t.Fatalf("hash of %v is %x, want %x", m.nodes, got, want)
				}
			},
			"clone": func(t *rapid.T) { s = s.Clone() },
		})
		full := New(d)
		for _, ev := range m.events {
			if err := full.Fold(ev); err != nil {
				t.Fatal(err)
			}
		}
		m.check(t, full)
		m.check(t, s)
		if s.Hash() != full.Hash() || s.Hash() != chainOf(m.nodes) {
			t.Fatal("hashes differ")
		}
	})
}

func codeOf(err error) session.Code {
	if err == nil {
		return ""
	}
	return err.(*session.InvariantError).Code
}

// genLedger draws a ledger that the fold accepts.
func genLedger(t *rapid.T, most int) (*session.Dialect, *ledger, *model) {
	version := rapid.IntRange(0, 4).Draw(t, "version")
	d, err := session.DialectOf(version)
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(version)
	for range rapid.IntRange(0, most).Draw(t, "events") {
		m.fold(genEvent(t, m))
	}
	return d, &ledger{m.events}, m
}

func TestReplayFromAnyPrefixGivesTheSameSurface(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, l, m := genLedger(t, 60)
		cut := rapid.IntRange(0, len(l.events)).Draw(t, "cut")
		s := New(d)
		for _, ev := range l.events[:cut] {
			if err := s.Fold(ev); err != nil {
				t.Fatal(err)
			}
		}
		// Time travel finds the same prefix, whichever way it reads.
		v := NewView(l, d)
		past, err := v.At(int64(cut) - 1)
		if err != nil {
			t.Fatal(err)
		}
		past2, err := At(l.source, d, int64(cut)-1)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(past.Nodes(), s.Nodes()) || past.Hash() != s.Hash() || past2.Hash() != s.Hash() {
			t.Fatalf("at %d: %v and %v, want %v", cut-1, past.Nodes(), past2.Nodes(), s.Nodes())
		}
		for _, ev := range l.events[cut:] {
			if err := s.Fold(ev); err != nil {
				t.Fatal(err)
			}
		}
		m.check(t, s)
	})
}

func TestVetoOfAnyAdmitterChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, l, m := genLedger(t, 40)
		v := NewView(l, d)
		s, err := v.Surface()
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Admit(genEvent(t, m), v, veto{}); err == nil {
			t.Fatal("the veto did not count")
		}
		m.check(t, s)
		// And what all agree to is folded once, by its plan.
		ev := genEvent(t, m)
		if session.Admit(ev, v) == nil {
			l.events = append(l.events, ev)
			m.fold(ev)
		}
		if s, err = v.Surface(); err != nil {
			t.Fatal(err)
		}
		m.check(t, s)
	})
}

type veto struct{}

func (veto) Plan(ev *session.Event) (session.Plan, error) {
	return nil, &session.InvariantError{Code: "veto", Seq: ev.Seq, Type: ev.Type}
}

func TestStreamingMessagesEqualThoseOfAView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, l, _ := genLedger(t, 60)
		v := NewView(l, d)
		v.LimitCache(rapid.SampledFrom([]int{0, 300, 1 << 20}).Draw(t, "cache"))
		want := lines(t, v.Messages())
		if again := lines(t, v.Messages()); !slices.Equal(again, want) {
			t.Fatalf("read again: %q, want %q", again, want)
		}
		if got := lines(t, Messages(l.source, d, End)); !slices.Equal(got, want) {
			t.Fatalf("streamed: %q, want %q", got, want)
		}

		// What is lost and gained leads from one point to the other.
		n := int64(len(l.events))
		from := rapid.Int64Range(-1, n-1).Draw(t, "from")
		to := rapid.Int64Range(-1, n-1).Draw(t, "to")
		at := map[string]bool{}
		for _, line := range lines(t, Messages(l.source, d, from)) {
			at[line] = true
		}
		for x, err := range Diff(l.source, d, from, to) {
			if err != nil {
				t.Fatal(err)
			}
			line := string(x.Message.AppendJSON(nil))
			if at[line] == x.Gained {
				t.Fatalf("gained %t: %s", x.Gained, line)
			}
			at[line] = x.Gained
		}
		for line, there := range at {
			if !there {
				delete(at, line)
			}
		}
		then := lines(t, Messages(l.source, d, to))
		for _, line := range then {
			if !at[line] {
				t.Fatalf("%d..%d does not lead to %s", from, to, line)
			}
		}
		if len(at) != len(then) {
			t.Fatalf("%d..%d leads to %d messages, want %d", from, to, len(at), len(then))
		}
	})
}

func lines(t *rapid.T, messages func(func(Message, error) bool)) (out []string) {
	for m, err := range messages {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(m.AppendJSON(nil)))
	}
	return out
}
