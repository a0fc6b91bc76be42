package telemetry

import (
	"encoding/json"
	"fmt"
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

func TestFirstChunkOfAStepIsASignalWithoutText(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{`{"turn":1,"step":2,"chunk":{"type":"block-start","index":0,"blockType":"reasoning"}}`,
			`{"turn":1,"step":2,"chunk":{"type":"block-start","index":0,"blockType":"reasoning"}}`},
		{`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"AKIA"}}`,
			`{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0}}`},
		{`{"step":2,"turn":1,"extra":"x","chunk":{"argumentsDelta":"{\"k\"","type":"tool-call-delta","index":3,"id":"c","name":"n"}}`,
			`{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":3}}`},
		{`{"turn":1,"step":2,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"x"}}}`,
			`{"turn":1,"step":2,"chunk":{"type":"block-end","index":0}}`},
		{`{"turn":1,"step":2,"chunk":{"type":"odd","index":"a text","blockType":{"t":"x"}}}`,
			`{"turn":1,"step":2,"chunk":{"type":"odd"}}`},
	} {
		p := projector{dialect: dialect(t, 0)}
		p.observe(&session.Event{Type: session.TypeStepStart, Data: []byte(`{"turn":1,"step":2}`)}, true)
		ev := &session.Event{Type: session.TypeAssistantChunk, Data: []byte(c.data)}
		if got := p.observe(ev, true); got.elided || string(got.body) != c.want {
			t.Errorf("got %s, want %s", got.body, c.want)
		}
		if got := p.observe(ev, true); !got.elided {
			t.Errorf("a second chunk goes out as %s", got.body)
		}
		p.observe(&session.Event{Type: session.TypeStepStart, Data: []byte(`{"turn":1,"step":3}`)}, true)
		if got := p.observe(ev, true); got.elided {
			t.Error("the first chunk of the next step was elided")
		}
	}
}

func TestEmbeddedStreamsAreDroppedFromMessagesAndJoinedInAttempts(t *testing.T) {
	p := projector{dialect: dialect(t, 2)}
	msg := &session.Event{Type: session.TypeAssistantMessage,
		Data: []byte(`{"turn":1,"stream":[{"a":"]}"}],"message":{"stream":1},"str\u0065am":2,"usage":null}`)}
	if got := p.observe(msg, true); string(got.body) != `{"turn":1,"message":{"stream":1},"usage":null}` {
		t.Errorf("message %s", got.body)
	}
	none := &session.Event{Type: session.TypeAssistantMessage, Data: []byte(`{ "turn":1 }`)}
	if got := p.observe(none, true); string(got.body) != `{ "turn":1 }` {
		t.Errorf("message without stream %s", got.body)
	}
	attempt := &session.Event{Type: session.TypeAssistantAttempt, Data: []byte(`{"turn":1,"step":1,"stream":[` +
		`{"type":"chunk","time":5,"chunk":{"type":"block-start","index":0,"blockType":"reasoning"}},` +
		`{"type":"reasoning-chunks","time0":6,"index":0,"dt":[1],"texts":["AKIA","IOSF"]},` +
		`{"type":"chunk","time":7,"chunk":{"type":"text-delta","index":1,"text":"\ud83d"}},` +
		`{"type":"text-chunks","time0":6,"index":1,"dt":[],"texts":["\ude00!"]},` +
		`{"type":"tool-call-chunks","time0":8,"index":2,"dt":[1],"id":"c1","name":"bash","args":["{\"co","mmand\":1}"]},` +
		`{"type":"chunk","time":9,"chunk":{"type":"block-end","index":0,"block":{"type":"reasoning","text":"AKIAIOSF","signature":"s"}}},` +
		`{"type":"chunk","time":9,"chunk":{"type":"usage","usage":{"inputTokens":1}}},` +
		`{"type":"chunk","time":9,"chunk":{"type":"finish","reason":{"kind":"stop"}}},` +
		`{"type":"chunk","time":9,"chunk":{"type":"odd","piece":"AKIA"}},{"type":7}]}`)}
	want := `{"turn":1,"step":1,"stream":[` +
		`{"index":0,"block":{"type":"reasoning","text":"AKIAIOSF","signature":"s"}},` +
		`{"index":1,"block":{"type":"text","text":"\ud83d\ude00!"},"ended":false},` +
		`{"index":2,"block":{"type":"tool-call","id":"c1","name":"bash","arguments":"{\"command\":1}"},"ended":false},` +
		`{"type":"usage","usage":{"inputTokens":1}},{"type":"finish","reason":{"kind":"stop"}},` +
		`{"type":"odd"},{"type":"unknown"}]}`
	if got := p.observe(attempt, true); string(got.body) != want {
		t.Errorf("attempt\n%s\nwant\n%s", got.body, want)
	}
}

// A piece belongs to the block with its index that began last and has not ended.
func TestBlocksOfOneIndexAreJoinedFromTheInsideOut(t *testing.T) {
	p := projector{dialect: dialect(t, 2)}
	delta := `{"type":"chunk","chunk":{"type":"text-delta","index":0,"text":"%s"}}`
	start := `{"type":"chunk","chunk":{"type":"block-start","index":0,"blockType":"text"}}`
	end := `{"type":"chunk","chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"%s"}}}`
	stream := strings.Join([]string{
		start, fmt.Sprintf(delta, "a"), start, fmt.Sprintf(delta, "b"),
		`{"type":"chunk","chunk":{"type":"block-end","index":0}}`, // ends nothing
		fmt.Sprintf(delta, "c"), fmt.Sprintf(end, "bc"), fmt.Sprintf(delta, "d"), fmt.Sprintf(end, "ad"), fmt.Sprintf(delta, "e"),
	}, ",")
	got := p.observe(&session.Event{Type: session.TypeAssistantAttempt, Data: []byte(`{"stream":[` + stream + `]}`)}, true)
	want := `{"stream":[{"index":0,"block":{"type":"text","text":"ad"}},{"index":0,"block":{"type":"text","text":"bc"}},` +
		`{"index":0,"block":{"type":"text","text":"e"},"ended":false}]}`
	if string(got.body) != want {
		t.Errorf("attempt\n%s\nwant\n%s", got.body, want)
	}
}

// A stream of as many blocks as a line can hold took minutes when each piece
// looked through all blocks for its own.
func TestStreamOfManyBlocksIsJoined(t *testing.T) {
	const blocks = 200_000
	p := projector{dialect: dialect(t, 2)}
	data := []byte(`{"stream":[`)
	for i := range blocks {
		if i > 0 {
			data = append(data, ',')
		}
		data = fmt.Appendf(data, `{"type":"text-chunks","index":%d}`, i)
	}
	got := p.observe(&session.Event{Type: session.TypeAssistantAttempt, Data: append(data, `]}`...)}, true)
	if n := strings.Count(string(got.body), `"ended":false`); n != blocks {
		t.Errorf("%d blocks, want %d", n, blocks)
	}
}

func TestStreamWithoutMessageIsAnAttemptWhenItEnds(t *testing.T) {
	chunk := func(c string) *session.Event {
		return &session.Event{Type: session.TypeAssistantChunk, Time: 9, Data: []byte(`{"turn":1,"step":1,"chunk":` + c + `}`)}
	}
	for _, end := range []string{"llm/retry", session.TypeStepEnd} {
		p := projector{dialect: dialect(t, 1)}
		p.observe(&session.Event{Type: session.TypeStepStart, Data: []byte(`{}`)}, true)
		p.observe(chunk(`{"type":"text-delta","index":0,"text":"sk-"}`), true)
		p.observe(chunk(`{"type":"text-delta","index":0,"text":"abc"}`), true)
		if got := p.observe(&session.Event{Type: end, Data: []byte(`{}`)}, true); !got.attempt {
			t.Fatalf("%s: no attempt", end)
		}
		body, at, ok := p.takeAttempt()
		want := `{"turn":1,"step":1,"stream":[{"index":0,"block":{"type":"text","text":"sk-abc"},"ended":false}]}`
		if !ok || at != 9 || string(body) != want {
			t.Errorf("%s: %s at %d", end, body, at)
		}
		if got := p.observe(&session.Event{Type: session.TypeTurnEnd, Data: []byte(`{}`)}, true); got.attempt {
			t.Error("the attempt ends twice")
		}
	}
	p := projector{dialect: dialect(t, 0)}
	p.observe(chunk(`{"type":"text-delta","index":0,"text":"sk-"}`), true)
	p.observe(&session.Event{Type: session.TypeAssistantMessage, Data: []byte(`{}`)}, true)
	if got := p.observe(&session.Event{Type: session.TypeStepEnd, Data: []byte(`{}`)}, true); got.attempt {
		t.Error("a stream that became a message is an attempt")
	}
}

func TestStreamBeyondItsBoundIsWithheldNotCut(t *testing.T) {
	p := projector{dialect: dialect(t, 0)}
	big, _ := json.Marshal(string(make([]byte, 1<<20)))
	for range 4 {
		p.observe(&session.Event{Type: session.TypeAssistantChunk,
			Data: []byte(`{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":` + string(big) + `}}`)}, true)
	}
	if got := p.observe(&session.Event{Type: session.TypeStepEnd, Data: []byte(`{}`)}, true); !got.attempt {
		t.Fatal("no attempt")
	}
	if _, _, ok := p.takeAttempt(); ok {
		t.Error("an attempt over the bound goes out")
	}
}
