package session

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestStoredEventsOfRealLedgersAreSoundByThemselves(t *testing.T) {
	for _, path := range ledgers(t) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, d, events := readLedger(t, raw)
		for i := range events {
			if err := CheckStored(d, &events[i]); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

func TestStoredEventsAreJudgedByThemselves(t *testing.T) {
	user := `{"id":"u","role":"user","source":{"kind":"user"},"content":[]}`
	answer := `{"turn":1,"step":1,"message":{"id":"a","role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[]},"stream":[]}`
	result3 := `{"turn":1,"step":1,"message":{"id":"r","role":"user","source":{"kind":"tool","callId":"c"},"content":[{"type":"tool-result","toolCallId":"c","content":[]}]}}`
	header := `{"header":{"config":{"provider":"p","model":"m","maxTokens":1}},"reason":"initial"}`
	system := `{"turn":1,"step":1,"message":{"id":"s","role":"system","source":{"kind":"plugin","plugin":"p"},"content":[]}}`
	for _, c := range []struct {
		typ, data string
		changes   [][2]string // each of them spoils it
	}{
		{TypeUserMessage, user, [][2]string{{`"u"`, `""`}, {`"u"`, `1`}, {`"role":"user"`, `"role":"system"`}, {`{"kind":"user"}`, `"user"`}, {`"kind":"user"`, `"kind":""`}, {`[]`, `"x"`}, {user, `null`}}},
		{TypeAssistantMessage, answer, [][2]string{{`"kind":"model"`, `"kind":"user"`}, {`"provider":"p"`, `"provider":""`}, {`"model":"m"`, `"x":1`}, {`"stream":[]`, `"stream":{}`}, {`"turn":1`, `"turn":-1`}, {`"step":1`, `"step":1.5`}}},
		{TypeAssistantAttempt, `{"turn":1,"step":1,"stream":[]}`, [][2]string{{`[]`, `{}`}, {`"turn":1,`, ``}}},
		{TypeToolResult, result3, [][2]string{{`"callId":"c"`, `"callId":""`}, {`"callId":"c"`, `"callId":"d"`}, {`"kind":"tool"`, `"kind":"user"`}, {`"content":[]`, `"content":1`}, {`"type":"tool-result"`, `"type":"text"`}, {`"role":"user"`, `"role":"tool"`}}},
		{TypeSystemMessage, system, [][2]string{{`"plugin":"p"`, `"plugin":""`}, {`"kind":"plugin"`, `"kind":"user"`}, {`"role":"system"`, `"role":"user"`}}},
		{TypeRequestHeader, header, [][2]string{
			{`"provider":"p"`, `"provider":""`}, {`"model":"m",`, ``}, {`"initial"`, `"fallback"`}, {`"initial"`, `"other"`}, {`,"reason":"initial"`, ``},
			{`"initial"`, `"initial","startsSeries":false`}, {`"maxTokens":1`, `"reasoningEffort":""`}, {`"maxTokens":1}`, `"x":1},"adapterDefaults":{"maxTokens":true}`},
			{`"maxTokens":1}`, `"maxTokens":1},"adapterDefaults":{"maxTokens":1}`}, {`"maxTokens":1}`, `"maxTokens":1},"adapterDefaults":null`}, {`"maxTokens":1}`, `"maxTokens":1},"adapterDefaults":{"other":true}`},
		}},
		{TypeFeedbackRecord, `{}`, nil},
	} {
		d := dialect(t, 3)
		ev := Event{Type: c.typ, Data: json.RawMessage(c.data)}
		if err := CheckStored(d, &ev); err != nil {
			t.Errorf("%s: %v", c.data, err)
		}
		for _, ch := range c.changes {
			ev.Data = json.RawMessage(strings.Replace(c.data, ch[0], ch[1], 1))
			var broken *InvariantError
			if err := CheckStored(d, &ev); !errors.As(err, &broken) || broken.Code != CodePayload && broken.Code != CodeRetired {
				t.Errorf("%s: %v", ev.Data, err)
			}
		}
	}
}

// Of the restore table, the cases that only an event by itself refuses. The
// rest of it is run where files are read.
func TestConformanceRestoreOfSingleEvents(t *testing.T) {
	var tab struct {
		Logs  map[string]string
		Cases []struct {
			ID, Log string
			Edits   []edit
			TS      struct{ Outcome string }
		}
	}
	table(t, "restore", &tab)
	d := dialect(t, 3)
	refused := map[string]bool{
		"empty-call-id-closer": true, "non-string-call-id": true, "adoption-beats-earlier-settlement": true,
		"adoption-beats-earlier-header-check": true, "header-reason": true, "later-adoption-failure-beats-offload-error": true,
		"fallback-header-before-unknown-type": true,
	}
	for _, c := range tab.Cases {
		if c.TS.Outcome != "restored" && !refused[c.ID] {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			_, rows := edited(t, fixture(t, tab.Logs[c.Log]), c.Edits)
			var events []Event
			for _, row := range rows {
				var ev Event
				if err := DecodeEvent(d, nil, []byte(row), &ev); err != nil {
					break // the end of what is committed
				}
				events = append(events, ev)
			}
			closers, err := Closers(d, events)
			for _, list := range [][]Event{events, closers} {
				for i := range list {
					if err == nil {
						err = CheckStored(d, &list[i])
					}
				}
			}
			if (err != nil) != refused[c.ID] {
				t.Errorf("got %v", err)
			}
		})
	}
}
