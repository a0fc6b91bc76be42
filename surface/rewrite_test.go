package surface

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/otel-bridge/otel-bridge/session"
)

// restOf is what a rewrite must not change, in its canonical form, made the
// long way: the payload with null for the content.
func restOf(t *rapid.T, data []byte, toolRole bool) string {
	without := func(object []byte, name string) (rest, value []byte) {
		rest = []byte{'{'}
		for o := session.WalkObject(object); o.Next(); {
			if o.KeyIs(name) {
				value = o.Value()
				continue
			}
			rest = append(append(append(append(rest, o.RawKey()...), ':'), o.Value()...), ',')
		}
		return rest, value
	}
	rest, message := without(data, "message")
	inner, content := without(message, "content")
	if toolRole {
		inner = append(inner, `"content":null}`...)
	} else {
		blocks := session.WalkArray(content)
		first := []byte{'{'}
		if blocks.Next() {
			first, _ = without(blocks.Value(), "content")
		}
		inner = append(append(append(inner, `"content":[`...), first...), `"content":null}]}`...)
	}
	rest = append(append(append(rest, `"message":`...), inner...), '}')
	// Numbers are compared as doubles there, and exactly here: none that differ
	// only beyond a double are drawn.
	canon, err := session.Canonical(nil, rest)
	if err != nil {
		t.Fatalf("%s: %v", rest, err)
	}
	return string(canon)
}

// drawJSON draws a value with few distinct parts, so that equal ones are common.
func drawJSON(t *rapid.T, depth int) string {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
	case 1:
		return rapid.SampledFrom([]string{"1", "1.0", "1e0", "2", "-0", "0", "0.5", "5e-1"}).Draw(t, "number")
	case 2, 3:
		return rapid.SampledFrom([]string{`"a"`, `"\u0061"`, `"b"`, `""`, `"1"`, `"é"`, `"\u00e9"`}).Draw(t, "string")
	case 4:
		return rapid.SampledFrom([]string{"[]", "{}"}).Draw(t, "empty")
	case 5:
		parts := []string{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			parts = append(parts, drawJSON(t, depth-1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return drawObject(t, depth-1)
}

func drawObject(t *rapid.T, depth int, more ...string) string {
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		key := rapid.SampledFrom([]string{`"a"`, `"\u0061"`, `"b"`, `"turn"`, `"é"`}).Draw(t, "key")
		more = append(more, key+":"+drawJSON(t, depth))
	}
	return "{" + strings.Join(rapid.Permutation(more).Draw(t, "order"), ",") + "}"
}

func TestRewriteDigestsAreEqualWhereTheRestMeansTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.SampledFrom([]int{2, 4}).Draw(t, "version")
		d, err := session.DialectOf(version)
		if err != nil {
			t.Fatal(err)
		}
		draw := func() []byte {
			content := `"content":` + drawJSON(t, 1)
			if version == 2 {
				content = `"content":[` + drawObject(t, 0, content) + `]`
			}
			return []byte(drawObject(t, 2, `"message":`+drawObject(t, 1, content)))
		}
		a, b := draw(), draw()
		s := New(d)
		same := s.rewriteDigest(&session.Event{Data: a}) == s.rewriteDigest(&session.Event{Data: b})
		if want := restOf(t, a, version == 4) == restOf(t, b, version == 4); same != want {
			t.Fatalf("equal: %t, want %t\n%s\n%s", same, want, a, b)
		}
	})
}

func TestRewriteDigestOfManyMembersKeepsTheLastOfEach(t *testing.T) {
	s := New(dialect(t, 4))
	object := func(order []int, last string) *session.Event {
		parts := []string{}
		for _, i := range order {
			parts = append(parts, fmt.Sprintf(`"k%d":%d`, i%60, i))
		}
		return &session.Event{Data: []byte(`{"message":{"content":[]},"x":{` + strings.Join(parts, ",") + last + `}}`)}
	}
	// 60 names, each written three times; the last values are 120 to 179.
	up := make([]int, 180)
	for i := range up {
		up[i] = i
	}
	onlyLast := slices.Clone(up[120:])
	slices.Reverse(onlyLast)
	a, b := s.rewriteDigest(object(up, "")), s.rewriteDigest(object(onlyLast, ""))
	if a != b {
		t.Error("duplicates count")
	}
	if c := s.rewriteDigest(object(onlyLast, `,"k7":0`)); c == a {
		t.Error("a changed member does not count")
	}
}

func TestRewriteDigestOfDeepNestingIsBounded(t *testing.T) {
	s := New(dialect(t, 4))
	deep := func(leaf string) *session.Event {
		return &session.Event{Data: []byte(`{"message":{"content":[]},"error":` + strings.Repeat("[", 200_000) + leaf + strings.Repeat("]", 200_000) + `}`)}
	}
	if s.rewriteDigest(deep("1")) == s.rewriteDigest(deep("2")) {
		t.Error("what lies deep does not count")
	}
}

// TestLongRunsOfReplacesGiveWhatSplicingGives is long enough for the list to be
// packed many times, and reads the hash now and then.
func TestLongRunsOfReplacesGiveWhatSplicingGives(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := New(dialect(t, 2))
		var want []int64
		var replaced int64
		data := []byte(userData("x"))
		for seq := range int64(20_000) {
			ev := session.Event{Seq: seq, Type: typeUser, Data: data, SurfaceOp: appendOp()}
			if len(want) > 0 && r.IntN(3) == 0 {
				from := r.IntN(len(want))
				if r.IntN(2) == 0 {
					from = max(0, len(want)-1-r.IntN(10))
				}
				to := min(len(want), from+1+r.IntN(1+r.IntN(12)))
				ev.SurfaceOp = replaceOp(want[from], want[to-1])
				ev.SourceEventSeqs = slices.Clone(want[from:to])
				want = slices.Replace(want, from, to, seq)
				replaced++
			} else {
				want = append(want, seq)
			}
			if err := s.Fold(&ev); err != nil {
				t.Fatal(err)
			}
			if r.IntN(50) == 0 && s.Hash() != chainOf(want) {
				t.Fatalf("seed %d, seq %d: the hash is not the chain", seed, seq)
			}
			if r.IntN(500) == 0 {
				wantNodes(t, s, want...)
				s = s.Clone()
			}
		}
		wantNodes(t, s, want...)
		if s.ReplaceGeneration() != replaced {
			t.Errorf("%d replacements, want %d", s.ReplaceGeneration(), replaced)
		}
		if len(s.nodes.seqs) > 2*s.Len()+packSlack {
			t.Errorf("%d entries for %d nodes", len(s.nodes.seqs), s.Len())
		}
	}
}

func TestToolUpdateFitsTheHeadersAndTheMessageBeforeIt(t *testing.T) {
	header := func(tools string) string {
		return `{"header":{"config":{},"tools":[` + tools + `]},"reason":"change"}`
	}
	const a, b = `{"name":"a"}`, `{"name":"b"}`
	base := func(t *testing.T) (*ledger, *View, *Requests) {
		l := &ledger{}
		l.add(typeHeader, nil, header(a))
		l.user("first")
		l.add(typeHeader, nil, header(b))
		v := NewView(l, dialect(t, 3))
		return l, v, NewRequests(v)
	}
	update := func(headerSeq, after, additions, removals string) string {
		return `{"headerSeq":` + headerSeq + `,"afterMessageId":"` + after + `","additions":[` + additions + `],"removals":[` + removals + `]}`
	}
	good := update("2", "u", `"b"`, `"a"`)
	l, v, r := base(t)
	ev := &session.Event{Seq: 3, Type: typeToolUpdate, Data: []byte(good)}
	if err := session.Admit(ev, v, r); err != nil {
		t.Fatal(err)
	}
	l.events = append(l.events, ev)
	h, err := r.ToolHistory()
	if err != nil || len(h.Tools) != 1 || len(h.Updates) != 1 || string(h.Updates[0].Additions[0]) != b || h.Updates[0].Removals[0] != "a" {
		t.Errorf("history is %s, %v", h, err)
	}
	if _, err := r.Plan(&session.Event{Seq: 4, Type: typeToolUpdate, Data: []byte(good)}); err == nil {
		t.Error("one header was used twice")
	}

	for name, c := range map[string]session.Event{
		"ignorable":             {Data: []byte(good), Ignorable: true},
		"an older header":       {Data: []byte(update("0", "u", `"b"`, `"a"`))},
		"no header":             {Data: []byte(update("1", "u", `"b"`, `"a"`))},
		"no addition":           {Data: []byte(update("2", "u", ``, `"a"`))},
		"another addition":      {Data: []byte(update("2", "u", `"c"`, `"a"`))},
		"another message":       {Data: []byte(update("2", "x", `"b"`, `"a"`))},
		"no message id":         {Data: []byte(update("2", "", `"b"`, `"a"`))},
		"nothing":               {Data: []byte(update("2", "u", ``, ``))},
		"twice the same":        {Data: []byte(update("2", "u", `"b","b"`, `"a"`))},
		"added and removed":     {Data: []byte(update("2", "u", `"b"`, `"b"`))},
		"a number for a name":   {Data: []byte(update("2", "u", `1`, `"a"`))},
		"a string for a seq":    {Data: []byte(update(`"2"`, "u", `"b"`, `"a"`))},
		"no lists":              {Data: []byte(`{"headerSeq":2,"afterMessageId":"u"}`)},
		"a payload of no shape": {Data: []byte(`null`)},
	} {
		t.Run(name, func(t *testing.T) {
			_, v, r := base(t)
			c.Seq, c.Type = 3, typeToolUpdate
			wantRefusal(t, session.Admit(&c, v, r), CodeToolUpdate)
		})
	}
	t.Run("an assistant spoke last", func(t *testing.T) {
		l, v, r := base(t)
		l.add(typeAssistant, appendOp(), `{"message":{"id":"u","role":"assistant","content":[{}]}}`)
		wantRefusal(t, session.Admit(&session.Event{Seq: 4, Type: typeToolUpdate, Data: []byte(good)}, v, r), CodeToolUpdate)
	})
	t.Run("no baseline", func(t *testing.T) {
		l := &ledger{}
		l.user("first")
		l.add(typeHeader, nil, header(b))
		v := NewView(l, dialect(t, 3))
		wantRefusal(t, session.Admit(&session.Event{Seq: 2, Type: typeToolUpdate, Data: []byte(update("1", "u", `"b"`, ``))}, v, NewRequests(v)), CodeToolUpdate)
	})
}

func TestToolHistoryWithoutUpdatesIsTheLastHeadersTools(t *testing.T) {
	l := &ledger{}
	l.add(typeHeader, nil, `{"header":{"config":{},"tools":[{"name":"a"}]},"reason":"initial"}`)
	l.add(typeHeader, nil, `{"header":{"config":{},"tools":[{"name":"b"},{"name":"a"}]},"reason":"change"}`)
	h, err := NewRequests(NewView(l, dialect(t, 4))).ToolHistory()
	if err != nil || len(h.Updates) != 0 || len(h.Tools) != 2 || !bytes.Equal(h.Tools[0], []byte(`{"name":"b"}`)) {
		t.Errorf("history is %s, %v", h, err)
	}
}

// window is a ledger of which only the end is at hand.
type window struct {
	*ledger
	first int64
}

func (w window) Bounds() (first, next int64) { return w.first, int64(len(w.events)) }

func TestViewOfAWindowWorksLikeOneOfAWholeLedger(t *testing.T) {
	l := &ledger{}
	for range 10 {
		l.user("x")
	}
	l.add(typeUser, replaceOp(6, 7), userData("sum"), 6, 7)
	v := NewView(window{l, 4}, dialect(t, 3))
	s, err := v.Surface()
	if err != nil {
		t.Fatal(err)
	}
	wantNodes(t, s, 4, 5, 10, 8, 9)
	at, err := v.At(9)
	if err != nil {
		t.Fatal(err)
	}
	wantNodes(t, at, 4, 5, 6, 7, 8, 9)
	if _, err := v.At(2); err == nil {
		t.Error("a point before the window was found")
	}
	if r, err := NewRuntimeContext(v); err != nil {
		t.Fatal(err)
	} else if _, ok, err := r.Project("", nil, "id"); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}
