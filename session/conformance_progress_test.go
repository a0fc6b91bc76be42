package session

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/conformance"
)

func TestConformanceBoundary(t *testing.T) {
	var tab struct {
		Logs  map[string]string
		Cases []struct {
			ID, Fold, Log string
			Edits         []edit
			TS            map[string]any
		}
	}
	table(t, "boundary", &tab)
	count := conformance.New(t, "boundary")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			d := dialect(t, 3)
			_, rows := edited(t, fixture(t, tab.Logs[c.Log]), c.Edits)
			events := decodeRows(t, d, rows)
			closers, err := Closers(d, events)
			if err != nil && c.TS["threw"] == nil {
				t.Fatal(err)
			}
			boundary, title := NewTurnBoundary(), NewTitle()
			for _, list := range [][]Event{events, closers} {
				for i := range list {
					step := boundary.Observe
					if c.Fold == "title" {
						step = title.Observe
					}
					if err = step(&list[i]); err != nil {
						break
					}
				}
				if err != nil {
					break
				}
			}
			if c.TS["threw"] != nil {
				if err == nil {
					t.Error("the reference throws")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			if c.Fold == "title" {
				if title.Raw != nil {
					got["title"] = value(t, title.Raw)
				}
			} else {
				got["openTurnStartSeq"] = orNull(boundary.OpenTurnStartSeq)
				got["lastStepStartSeq"] = orNull(boundary.LastStepStartSeq)
				got["lastStepBoundary"] = nil
				if boundary.LastStepSeq >= 0 {
					kind := "start"
					if boundary.LastStepEnded {
						kind = "end"
					}
					got["lastStepBoundary"] = map[string]any{"kind": kind, "seq": float64(boundary.LastStepSeq)}
				}
				if boundary.LastTurn != nil {
					got["lastTurn"] = value(t, boundary.LastTurn)
				}
			}
			if !reflect.DeepEqual(got, c.TS) {
				t.Errorf("got %v, want %v", got, c.TS)
			}
		})
	}
}

func orNull(seq int64) any {
	if seq < 0 {
		return nil
	}
	return float64(seq)
}

func TestConformanceUnfinishedWork(t *testing.T) {
	var tab struct {
		Logs map[string]struct {
			Path  string
			Lines []string
		}
		Cases []struct {
			ID, Log string
			Rows    int
			TS      map[string]any
		}
	}
	table(t, "unfinished-work", &tab)
	count := conformance.New(t, "unfinished-work")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			d := dialect(t, 3)
			log := tab.Logs[c.Log]
			all := log.Lines
			if log.Path != "" {
				for _, l := range lines(fixture(t, log.Path)) {
					all = append(all, string(l))
				}
			}
			if _, err := d.ParseHeader([]byte(all[0])); err != nil {
				t.Fatal(err)
			}
			rows := all[1 : 1+c.Rows]
			events := decodeRows(t, d, rows)
			inherited := int64(0)
			for i := range events {
				if tagged, _ := IsEndSeed(&events[i]); tagged {
					inherited = events[i].Seq
				}
			}
			u := NewUnfinished(d, inherited)
			for i := range events {
				if err := u.Observe(&events[i]); err != nil {
					t.Fatal(err)
				}
			}
			got := map[string]any{"turn": nil, "compaction": nil, "tools": []any{}, "children": []any{}}
			closers := u.Recovery.Closers(CauseInterrupted)
			if turn, open := u.Recovery.OpenTurn(); open {
				var step any
				if s, open := u.Recovery.OpenStep(); open {
					step = value(t, s)
				}
				got["turn"] = map[string]any{"turn": value(t, turn), "step": step}
			}
			tools := []any{}
			for i, p := range u.Recovery.Pending() {
				res := d.ToolResult(closers[i].Data)
				tools = append(tools, map[string]any{
					"callId": value(t, p.RawCallID), "closerSeq": float64(closers[i].Seq), "step": value(t, p.RawStep),
					"code": res.ErrorCode(), "callSeq": orNull(p.CallSeq),
				})
			}
			got["tools"] = tools
			if u.CompactionSeq >= 0 {
				got["compaction"] = map[string]any{"startSeq": float64(u.CompactionSeq), "data": value(t, events[u.CompactionSeq].Data)}
			}
			children := []any{}
			for _, ch := range u.Children {
				m := map[string]any{"seq": float64(ch.Seq), "id": ch.ID, "createdAt": value(t, ch.RawCreatedAt), "mode": ch.Mode}
				if ch.Label != nil {
					m["label"] = *ch.Label
				}
				children = append(children, m)
			}
			got["children"] = children
			if u.ChildrenErr != nil {
				got["children"] = map[string]any{"refusal": map[string]any{"seq": float64(u.ChildrenErr.(*InvariantError).Seq)}}
			}
			got["inbox"] = map[string]any{"nextTurn": messages(t, u.NextTurn), "nextStep": messages(t, u.NextStep)}
			want := resolve(t, c.TS, rows).(map[string]any)
			if refusal := want["inbox"].(map[string]any)["refusal"]; refusal != nil {
				// That it is refused counts, the message does not.
				if u.InboxErr == nil {
					t.Errorf("the inbox is %v, want a refusal", got["inbox"])
				}
				delete(got, "inbox")
				delete(want, "inbox")
			} else if u.InboxErr != nil {
				t.Error(u.InboxErr)
			}
			if !reflect.DeepEqual(got, want) {
				a, _ := json.Marshal(got)
				b, _ := json.Marshal(want)
				t.Errorf("got  %s\nwant %s", a, b)
			}
		})
	}
}

func messages(t *testing.T, list []json.RawMessage) []any {
	out := []any{}
	for _, m := range list {
		out = append(out, value(t, m))
	}
	return out
}
