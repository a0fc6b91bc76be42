package surface

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

func TestDeriveMessageAddsNoFraming(t *testing.T) {
	for _, c := range []struct {
		version   int
		typ, data string
		want      string // "" for none
	}{
		{0, typeUser, ` {"role":"user","content":[]} `, `{"role":"user","content":[]}`},
		{0, typeAssistant, `{"message":{"content":[{}],"id":"a"},"usage":{}}`, `{"content":[{}],"id":"a"}`},
		{0, typeAssistant, `{"message":{"content":[ ],"id":"a"},"usage":{}}`, ``},
		{0, typeTool, `{"message":{"content":[]}}`, `{"content":[]}`},
		{0, typeTool, `{"message":1,"m\u0065ssage":{"x":1}}`, `{"x":1}`},
		{0, typeSystem, `{"message":{"content":[{}]}}`, ``},
		{3, typeSystem, `{"message":{"content":[{}]}}`, `{"content":[{}]}`},
		{3, typeSystem, `{"message":{"content":[]}}`, ``},
		{3, typeDeveloper, `{"message":{"content":[{}]}}`, ``},
		{4, typeDeveloper, `{"message":{"content":[{}]}}`, `{"content":[{}]}`},
		{4, typeDeveloper, `{"message":{"content":[]}}`, ``},
		{4, "assistant/attempt", `{"message":{"content":[{}]}}`, ``},
		{4, typeTool, `{}`, ``},
		{4, typeAssistant, `null`, ``},
	} {
		got, ok := DeriveMessage(dialect(t, c.version), &session.Event{Type: c.typ, Data: json.RawMessage(c.data)})
		if ok != (c.want != "") || string(got) != c.want {
			t.Errorf("v%d %s %s: got %s, %t", c.version, c.typ, c.data, got, ok)
		}
	}
}

func TestViewFoldsWhatTheLedgerHasGained(t *testing.T) {
	var l ledger
	l.user("a")
	v := NewView(&l, dialect(t, 3))
	s, err := v.Surface()
	if err != nil {
		t.Fatal(err)
	}
	wantNodes(t, s, 0)
	l.user("b")
	l.add("turn/start", nil, `{}`)
	wantNodes(t, s, 0)
	if s, err = v.Surface(); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, s, 0, 1)
	if at, err := v.At(0); err != nil || at.Len() != 1 {
		t.Errorf("at 0: %v, %v", at, err)
	}
	if _, err := v.At(3); !errors.Is(err, ErrNoSuchSeq) {
		t.Errorf("at 3: %v", err)
	}
}

// counting counts how often events are asked for.
type counting struct {
	*ledger
	asked int
	fail  error
}

func (c *counting) Event(seq int64) (*session.Event, error) {
	c.asked++
	if c.fail != nil {
		return nil, c.fail
	}
	return c.ledger.Event(seq)
}

func TestPlannedEventIsNotValidatedTwice(t *testing.T) {
	c := &counting{ledger: &ledger{}}
	c.user("a")
	v := NewView(c, dialect(t, 3))
	ev := &session.Event{Seq: 1, Type: typeUser, SurfaceOp: appendOp(), Data: json.RawMessage(userData("b"))}
	if err := session.Admit(ev, v); err != nil {
		t.Fatal(err)
	}
	c.events = append(c.events, ev)
	asked := c.asked
	s, err := v.Surface()
	if err != nil {
		t.Fatal(err)
	}
	wantNodes(t, s, 0, 1)
	if c.asked != asked {
		t.Errorf("the ledger was asked for the event that a plan had folded")
	}
}

func TestViewSaysWhichEventCouldNotBeRead(t *testing.T) {
	c := &counting{ledger: &ledger{}, fail: errors.New("disk")}
	c.user("a")
	v := NewView(c, dialect(t, 3))
	_, err := v.Surface()
	if !errors.Is(err, c.fail) || !strings.Contains(err.Error(), "seq 0") {
		t.Errorf("error is %v", err)
	}
	for _, err := range v.Messages() {
		if !errors.Is(err, c.fail) {
			t.Errorf("error is %v", err)
		}
	}
	if _, err := v.Plan(&session.Event{Seq: 1}); !errors.Is(err, c.fail) {
		t.Errorf("error is %v", err)
	}
	c.fail = nil
	if _, err := v.Surface(); err != nil {
		t.Errorf("once it can be read: %v", err)
	}
}

func TestCacheKeepsWithinItsBoundAndFollowsProjections(t *testing.T) {
	c := &counting{ledger: &ledger{}}
	for i := range 50 {
		c.add(typeUser, appendOp(), userContent(`[`+shown+`,`+fmt.Sprint(i)+`]`))
	}
	v := NewView(c, dialect(t, 3))
	size := len(userContent(`[` + shown + `,10]`))
	v.LimitCache(10 * size)
	read := func(seq int64) string {
		m, ok, err := v.Message(seq)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return string(m.Message)
	}
	for seq := range int64(50) {
		read(seq)
	}
	if v.cache.size > 10*size || v.cache.order.Len() != 10 || len(v.cache.bySeq) != 10 {
		t.Errorf("the cache has %d entries of %d bytes", v.cache.order.Len(), v.cache.size)
	}
	asked := c.asked
	read(49)
	if c.asked != asked {
		t.Error("a cached message was derived again")
	}
	c.add(typeOffload, nil, targets(`[{"seq":49,"imageIndexes":[0]}]`))
	if !strings.Contains(read(49), offloaded) {
		t.Error("a cached message hides a decision")
	}
	c.add(typeUser, replaceOp(49, 49), userData("x"), 49)
	if strings.Contains(read(49), offloaded) {
		t.Error("a replaced node keeps its projection")
	}
	v.LimitCache(0)
	if v.cache.size != 0 || v.cache.order.Len() != 0 {
		t.Errorf("an emptied cache has %d entries", v.cache.order.Len())
	}
}

func TestMessageLineIsTheMessageAsDerived(t *testing.T) {
	m := Message{7, `we"ird<type>`, json.RawMessage("{ \"a\":\t1.0,\n\"b\":\"x\\n\" }")}
	if got, want := string(m.AppendJSON(nil)), `{"seq":7,"type":"we\"ird<type>","message":{ "a":	1.0,"b":"x\n" }}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(Difference{true, Message{1, "t", json.RawMessage(`1`)}}.AppendJSON(nil)); got != `{"change":"gained","seq":1,"type":"t","message":1}` {
		t.Errorf("got %s", got)
	}
}

func TestDiffShowsWhatTheModelLostAndGained(t *testing.T) {
	var l ledger
	l.add(typeUser, appendOp(), userContent(`[`+shown+`]`))
	l.user("a")
	l.user("b")
	l.add(typeUser, replaceOp(1, 2), userData("ab"), 1, 2)
	l.add(typeOffload, nil, targets(`[{"seq":0,"imageIndexes":[0]}]`))
	got := ""
	for x, err := range Diff(l.source, dialect(t, 3), 2, 4) {
		if err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintf("%t %d %t; ", x.Gained, x.Seq, strings.Contains(string(x.Message.Message), "offloaded"))
	}
	if want := "false 0 false; false 1 false; false 2 false; true 0 true; true 3 false; "; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for x, err := range Diff(l.source, dialect(t, 3), 4, 4) {
		t.Errorf("a point differs from itself: %+v, %v", x, err)
	}
}

func TestPointsThatALedgerDoesNotHaveAreRefused(t *testing.T) {
	var l ledger
	l.user("a")
	for _, at := range []int64{-2, 1, 7} {
		for _, err := range Messages(l.source, dialect(t, 3), at) {
			if !errors.Is(err, ErrNoSuchSeq) {
				t.Errorf("at %d: %v", at, err)
			}
		}
		for _, err := range Diff(l.source, dialect(t, 3), 0, at) {
			if !errors.Is(err, ErrNoSuchSeq) {
				t.Errorf("0..%d: %v", at, err)
			}
		}
	}
	for m, err := range Messages(l.source, dialect(t, 3), -1) {
		t.Errorf("before the first event: %+v, %v", m, err)
	}
}

func TestSourceThatEndsInAnErrorSaysSo(t *testing.T) {
	var l ledger
	l.user("a")
	broken := errors.New("row 7")
	src := func(yield func(*session.Event, error) bool) {
		if yield(l.events[0], nil) {
			yield(nil, broken)
		}
	}
	n := 0
	for _, err := range Messages(src, dialect(t, 3), End) {
		n++
		if !errors.Is(err, broken) {
			t.Errorf("error is %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d results", n)
	}
	// What lies behind the point is not read.
	for _, err := range Messages(src, dialect(t, 3), 0) {
		if err != nil {
			t.Errorf("at 0: %v", err)
		}
	}
}

func TestSourceThatChangesBetweenReadingsIsNoticed(t *testing.T) {
	var l ledger
	l.user("a")
	l.user("b")
	reading := 0
	src := func(yield func(*session.Event, error) bool) {
		reading++
		for _, ev := range l.events[:2-(reading-1)] {
			if !yield(ev, nil) {
				return
			}
		}
	}
	var last error
	for _, err := range Messages(src, dialect(t, 3), End) {
		last = err
	}
	if !errors.Is(last, ErrNoSuchSeq) {
		t.Errorf("error is %v", last)
	}
}

func TestStreamingHoldsOnlyWhatStandsOutOfOrder(t *testing.T) {
	var l ledger
	l.add(typeSystem, appendOp(), systemData("one"))
	for range 100 {
		l.user("x")
	}
	l.add(typeSystem, replaceOp(0, 0), systemData("two"), 0)
	readings := 0
	src := func(yield func(*session.Event, error) bool) {
		readings++
		l.source(yield)
	}
	n := 0
	for m, err := range Messages(src, dialect(t, 4), End) {
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(n); n > 0 && m.Seq != want || n == 0 && m.Seq != 101 {
			t.Errorf("message %d has seq %d", n, m.Seq)
		}
		n++
	}
	if n != 101 || readings != 3 {
		t.Errorf("%d messages in %d readings", n, readings)
	}
}

func TestDeveloperMessageAddsToolsOfTheHeaderItNames(t *testing.T) {
	tool := func(name, extra string) string {
		return `{"name":"` + name + `","description":"d","parameters":{}` + extra + `}`
	}
	header := func(tools ...string) string {
		return `{"header":{"config":{},"tools":[` + strings.Join(tools, ",") + `]},"reason":"change"}`
	}
	developer := func(headerSeq, blocks string) string {
		if headerSeq != "" {
			headerSeq = `,"headerSeq":` + headerSeq
		}
		return `{"turn":1,"step":1` + headerSeq + `,"message":{"role":"developer","content":[` + blocks + `]}}`
	}
	const addA, removeA = `{"type":"tool-addition","toolName":"a"}`, `{"type":"tool-removal","toolName":"a"}`
	for name, c := range map[string]struct {
		data string
		code session.Code
	}{
		"an addition":                   {developer("0", addA), ""},
		"deferred":                      {developer("2", addA), ""},
		"a removal":                     {developer("", removeA), ""},
		"nothing":                       {developer("", ""), ""},
		"an addition without header":    {developer("", addA), CodeDeveloperHeader},
		"a removal with header":         {developer("0", removeA), CodeDeveloperHeader},
		"a header that is none":         {developer("1", addA), CodeDeveloperHeader},
		"a header to come":              {developer("9", addA), CodeDeveloperHeader},
		"no seq":                        {developer(`"0"`, addA), CodeDeveloperHeader},
		"a tool that is not there":      {developer("0", `{"type":"tool-addition","toolName":"z"}`), CodeDeveloperTool},
		"a tool that is there twice":    {developer("3", addA), CodeDeveloperTool},
		"a tool that is not described":  {developer("4", addA), CodeDeveloperTool},
		"a tool that is deferred false": {developer("5", addA), CodeDeveloperTool},
		"an addition without a name":    {developer("0", `{"type":"tool-addition"}`), CodeDeveloperTool},
	} {
		t.Run(name, func(t *testing.T) {
			var l ledger
			l.add(typeHeader, nil, header(tool("a", ""), tool("b", "")))
			l.add("turn/start", nil, `{}`)
			l.add(typeHeader, nil, header(tool("a", `,"deferLoading":true`)))
			l.add(typeHeader, nil, header(tool("a", ""), tool("a", "")))
			l.add(typeHeader, nil, header(`{"name":"a","parameters":{}}`))
			l.add(typeHeader, nil, header(tool("a", `,"deferLoading":false`)))
			s := New(dialect(t, 4))
			mustFold(t, s, l.events...)
			err := s.Fold(l.add(typeDeveloper, appendOp(), c.data))
			if c.code == "" && err != nil {
				t.Error(err)
			} else if c.code != "" {
				wantRefusal(t, err, c.code)
			}
		})
	}
	s := New(dialect(t, 4))
	var l ledger
	for range 100 {
		mustFold(t, s, l.add(typeHeader, nil, header(tool("a", ""))))
	}
	if len(s.headers.byID) != 1 {
		t.Errorf("%d tool sets are remembered for one", len(s.headers.byID))
	}
}
