package session

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestInboxTargetIsReadAsAPropertyName(t *testing.T) {
	for target, want := range map[string]string{
		`"next-turn"`: "next-turn", `["next-turn"]`: "next-turn", `[ [ "next-step" ] ]`: "next-step", `["a","b"]`: "", `[]`: "", `7`: "", `[["a"],1]`: "",
	} {
		if got := propertyKey([]byte(target)); got != want {
			t.Errorf("%s is %q, want %q", target, got, want)
		}
	}
}

// A hostile target nests as deep as a line is long; finding that it is no target
// takes one walk, milliseconds. One for each level would take many minutes, which
// is what the bound is there to end.
func TestNestedInboxTargetTakesOneWalk(t *testing.T) {
	const depth = 1 << 20
	u := NewUnfinished(dialect(t, 4), 0)
	ev := Event{Type: "agent/inbox/spliced", Data: json.RawMessage(`{"target":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `,"start":0,"inserted":[]}`)}
	done := make(chan error, 1)
	go func() { done <- u.Observe(&ev) }()
	select {
	case err := <-done:
		if err != nil || u.InboxErr == nil {
			t.Errorf("%v, %v", err, u.InboxErr)
		}
	case <-time.After(time.Minute):
		t.Fatal("one walk for each level")
	}
}
