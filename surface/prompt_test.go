package surface

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// commit appends what the projection decides, as an agent would.
func commit(t *testing.T, l *ledger, v *View, ev session.Event) *session.Event {
	t.Helper()
	ev.Seq = int64(len(l.events))
	if err := session.ValidJSON(ev.Data); err != nil {
		t.Fatal(err)
	}
	if err := session.Admit(&ev, v); err != nil {
		t.Fatal(err)
	}
	l.events = append(l.events, &ev)
	return &ev
}

func TestSystemPromptEventsLeadToThePromptInForce(t *testing.T) {
	for _, version := range []int{3, 4} {
		d := dialect(t, version)
		var l ledger
		v := NewView(&l, d)
		p := NewSystemPrompt(v)
		set := func(text string, in PromptInput) string {
			commits, err := p.Project(text, in)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range commits {
				commit(t, &l, v, c.Event(d, 1, 2, fmt.Sprintf("id-%d", i)))
			}
			again, err := p.Project(text, in)
			if err != nil || len(again) != 0 {
				t.Errorf("the prompt is in force, and yet %v, %v", again, err)
			}
			return fmt.Sprint(commits)
		}
		got := []string{
			set("", PromptInput{InHistory: true}),
			set("one <&> \"two\"", PromptInput{InHistory: true}),
			set("three", PromptInput{InHistory: true}),
			set("three", PromptInput{InHistory: true, StartsSeries: true}),
			set("", PromptInput{}),
		}
		want := []string{
			`[{ false 0}]`,
			`[{one <&> "two" false 0}]`,
			`[{three false 0}]`,
			`[{ true 1} { true 2} {three true 0}]`,
			`[{ true 5}]`,
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("v%d: got %q, want %q", version, got, want)
		}
		wantSource := `"source":{"kind":"plugin","plugin":"@deepseek-ai/dsh-system-prompt"}`
		if version == 4 {
			wantSource = `"source":{"kind":"system-prompt"}`
		}
		want0 := `{"turn":1,"step":2,"message":{"id":"id-0","role":"system",` + wantSource + `,"content":[]}}`
		want1 := `{"turn":1,"step":2,"message":{"id":"id-0","role":"system",` + wantSource + `,"content":[{"type":"text","text":"one <&> \"two\""}]}}`
		if string(l.events[0].Data) != want0 || string(l.events[1].Data) != want1 {
			t.Errorf("events are\n%s\n%s", l.events[0].Data, l.events[1].Data)
		}
	}
}

func TestRuntimeContextIsSentWhenTheModelDoesNotKnowIt(t *testing.T) {
	sections := []ContextSection{{"git", "branch <main>"}}
	for version, wantSource := range map[int]string{
		0: `{"kind":"plugin","plugin":"@deepseek-ai/dsh-system-prompt"`,
		2: `{"kind":"plugin","plugin":"@deepseek-ai/dsh-system-prompt"`,
		3: `{"kind":"plugin","plugin":"@deepseek-ai/dsh-system-prompt"`,
		4: `{"kind":"runtime-context"`,
	} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			var l ledger
			v := NewView(&l, dialect(t, version))
			r, err := NewRuntimeContext(v)
			if err != nil {
				t.Fatal(err)
			}
			send := func(current string, sections []ContextSection) *session.Event {
				t.Helper()
				ev, ok, err := r.Project(current, sections, "id")
				if err != nil {
					t.Fatal(err)
				}
				// A projection that starts now decides the same.
				fresh, err := NewRuntimeContext(v)
				if err != nil {
					t.Fatal(err)
				}
				if _, ok2, err := fresh.Project(current, sections, "id"); err != nil || ok2 != ok {
					t.Errorf("a fresh projection of %q says %t, %v; want %t", current, ok2, err, ok)
				}
				if !ok {
					return nil
				}
				return commit(t, &l, v, ev)
			}
			if send("", nil) != nil {
				t.Error("no context was sent, though there had never been one")
			}
			first := send("branch main", sections)
			if want := `{"content":[{"type":"text","text":"branch main"}],"source":` + wantSource +
				`,"form":"snapshot","sections":[{"name":"git","text":"branch <main>"}]},"role":"user","id":"id"}`; first == nil || string(first.Data) != want {
				t.Fatalf("got  %+v\nwant %s", first, want)
			}
			if send("branch main", sections) != nil {
				t.Error("the same context was sent twice")
			}
			l.user("hello")
			if send("branch main", sections) != nil {
				t.Error("another message made the context be sent again")
			}

			// A compaction shadows the snapshot: it is sent again, the same.
			l.add(typeUser, replaceOp(0, 1), userData("sum"), 0, 1)
			second := send("branch main", nil)
			if want := `{"content":[{"type":"text","text":"branch main"}],"source":` + wantSource + `},"role":"user","id":"id"}`; second == nil || string(second.Data) != want {
				t.Fatalf("got  %+v\nwant %s", second, want)
			}

			cleared := send("", nil)
			if cleared == nil || !strings.Contains(string(cleared.Data), `"text":"`+ContextCleared+`"`) {
				t.Fatalf("got %+v", cleared)
			}
			if send("", nil) != nil {
				t.Error("clearing was said twice")
			}
			l.add(typeUser, replaceOp(cleared.Seq, cleared.Seq), userData("sum"), cleared.Seq)
			// The one before it stands on the surface still, but is not the last.
			fresh, err := NewRuntimeContext(v)
			if err != nil {
				t.Fatal(err)
			}
			if ev, ok, err := fresh.Project("branch main", nil, "id"); err != nil || ok {
				t.Errorf("a projection that starts now finds the newest snapshot on the surface; it said %+v, %v", ev, err)
			}
			if ev, ok, err := r.Project("", nil, "id"); err != nil || !ok || !strings.Contains(string(ev.Data), ContextCleared) {
				t.Errorf("clearing that was shadowed is said again; got %+v, %t, %v", ev, ok, err)
			}
		})
	}
}

func TestRuntimeContextOfOtherOwnersDoesNotCount(t *testing.T) {
	var l ledger
	l.add(typeUser, appendOp(), `{"content":[{"type":"text","text":"x"}],"source":{"kind":"plugin","plugin":"acme"},"role":"user","id":"u"}`)
	r, err := NewRuntimeContext(NewView(&l, dialect(t, 3)))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.Project("", nil, "id"); ok || err != nil {
		t.Errorf("cleared what was never sent: %t, %v", ok, err)
	}
	if _, ok, err := r.Project("x", nil, "id"); !ok || err != nil {
		t.Errorf("took another owner's message for a snapshot: %t, %v", ok, err)
	}
}

func TestRequestsReadsBackTheLastHeader(t *testing.T) {
	var l ledger
	v := NewView(&l, dialect(t, 0))
	r := NewRequests(v)
	if h, err := r.Header(); h != nil || err != nil {
		t.Errorf("header is %s, %v", h, err)
	}
	l.add(typeHeader, nil, `{"header":{"tools":[],"system":"you are","config":{"b":1.0,"2":0,"a":-0,"b":2},"adapterDefaults":{},"x":1}}`)
	l.add(typeContext, nil, `{"provider" : "p"}`)
	h, err := r.Header()
	if want := `{"config":{"2":0,"b":2,"a":0},"system":"you are"}`; err != nil || string(h) != want {
		t.Errorf("header is %s, %v; want %s", h, err, want)
	}
	if c, err := r.Context(); err != nil || string(c) != `{"provider":"p"}` {
		t.Errorf("context is %s, %v", c, err)
	}
	if changed, err := r.ToolsChanged(json.RawMessage(`[]`)); changed || err != nil {
		t.Errorf("no tools differ from none: %t, %v", changed, err)
	}
}

func TestDeepHeadersAreReadWithinBounds(t *testing.T) {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	var l ledger
	l.add(typeHeader, nil, `{"header":{"config":`+deep+`}}`)
	h, err := NewRequests(NewView(&l, dialect(t, 3))).Header()
	if want := `{"config":` + deep + `}`; err != nil || string(h) != want {
		t.Errorf("%d bytes, %v; want %d", len(h), err, len(want))
	}
}
