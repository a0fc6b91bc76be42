package surface_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/conformance"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/surface"
)

// requestOf puts together what a model is asked when the ledger of r stands where
// it does: the configuration of the last header, what the surface shows, and the
// tools with their history.
func requestOf(t *testing.T, r *restored) string {
	t.Helper()
	header, err := r.requests.Header()
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for o := session.WalkObject(session.Member(header, "config")); o.Next(); {
		parts = append(parts, fmt.Sprintf("%s:%s", o.RawKey(), o.Value()))
	}
	var messages []json.RawMessage
	for m, err := range r.view.Messages() {
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m.Message)
	}
	history, err := r.requests.ToolHistory()
	if err != nil {
		t.Fatal(err)
	}
	var updates []string
	for _, u := range history.Updates {
		removals := []string{}
		for _, name := range u.Removals {
			removals = append(removals, string(session.AppendQuoted(nil, name)))
		}
		updates = append(updates, fmt.Sprintf(`{"afterMessageId":%s,"additions":%s,"removals":[%s]}`,
			session.AppendQuoted(nil, u.AfterMessageID), list(u.Additions), strings.Join(removals, ",")))
	}
	parts = append(parts, `"messages":`+list(messages),
		`"toolHistory":{"tools":`+list(history.Tools)+`,"updates":[`+strings.Join(updates, ",")+`]}`,
		`"sessionId":`+string(session.AppendQuoted(nil, r.header.ID)))
	if tools := session.Member(header, "tools"); tools != nil {
		parts = append(parts, `"tools":`+string(tools))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// requestsOf reads rows and returns what was asked at each answer, the failed
// ones included, by its seq.
func requestsOf(t *testing.T, rows []string) (seqs []int64, requests map[int64]string) {
	t.Helper()
	h, d, err := session.ParseHeader([]byte(rows[0]))
	if err != nil {
		t.Fatal(err)
	}
	r := newRestored(h, d)
	requests = map[int64]string{}
	for i, row := range rows[1:] {
		var ev session.Event
		if err := session.DecodeEvent(d, nil, []byte(row), &ev); err != nil {
			t.Fatalf("row %d: %v", i+2, err)
		}
		if ev.Type == session.TypeAssistantMessage || ev.Type == session.TypeAssistantAttempt {
			seqs = append(seqs, ev.Seq)
			requests[ev.Seq] = requestOf(t, r)
		}
		if err := r.admit(ev); err != nil {
			t.Fatal(err)
		}
	}
	return seqs, requests
}

// The derivations of the number table are requests with numbers of every kind.
func TestConformanceNumber(t *testing.T) {
	text, err := os.ReadFile(shared(t, "conformance", "session", "number-cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Derivation []struct {
			ID              string
			Lines, Requests []string
		}
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	count := conformance.New(t, "number (requests)")
	for _, c := range table.Derivation {
		count.Run(t, c.ID, func(t *testing.T) {
			seqs, requests := requestsOf(t, c.Lines)
			if len(seqs) != len(c.Requests) {
				t.Fatalf("%d requests, want %d", len(seqs), len(c.Requests))
			}
			for i, seq := range seqs {
				// As JavaScript compares them: every number is its double.
				equalJSON(t, "request", doubles(requests[seq]), []byte(doubles(c.Requests[i])))
			}
		})
	}
}

// doubles writes every number of raw as the double that JavaScript reads.
func doubles(raw string) string {
	var v any
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return string(out)
}

// TestConformanceRequestReconstruction rebuilds every request of three session
// files from the rows before its answer. What has to come out is told by seqs of
// the files' rows: their header, their messages, and the updates of tools.
func TestConformanceRequestReconstruction(t *testing.T) {
	type request struct {
		answer, header int64
		messages       []int64
		baseline       int64   // the header whose tools the history starts with
		updates        []int64 // the request/tool-update events since
	}
	shared(t, "conformance", "runtime", "request-reconstruction") // or skip
	count := conformance.New(t, "request-reconstruction")
	for _, c := range []struct {
		log  string
		want []request
	}{
		{"tool-call-turn", []request{
			{8, 6, []int64{4, 5}, 6, nil},
			{13, 6, []int64{4, 5, 8, 10}, 6, nil},
		}},
		// An attempt that failed, and the retry under another header.
		{"retry-attempt", []request{
			{8, 6, []int64{4, 5}, 6, nil},
			{11, 9, []int64{4, 5}, 6, nil},
		}},
		{"dynamic-tools", []request{
			{8, 6, []int64{4, 5}, 6, nil},
			{15, 13, []int64{4, 5, 8, 10}, 6, []int64{14}},
			{25, 23, []int64{4, 5, 8, 10, 15, 22}, 6, []int64{14, 24}},
			{35, 33, []int64{4, 5, 8, 10, 15, 22, 25, 32}, 6, []int64{14, 24, 34}},
		}},
	} {
		text, err := os.ReadFile(shared(t, "conformance", "runtime", "request-reconstruction", c.log, "session.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		rows := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		count.Run(t, c.log, func(t *testing.T) {
			seqs, got := requestsOf(t, rows)
			if len(seqs) != len(c.want) {
				t.Fatalf("answers at %v, want %d", seqs, len(c.want))
			}
			at := func(seq int64, path ...string) []byte { return session.Path([]byte(rows[seq+1]), path...) }
			for _, w := range c.want {
				request := got[w.answer]
				if request == "" {
					t.Fatalf("no answer at %d, but at %v", w.answer, seqs)
				}
				want := []string{}
				for o := session.WalkObject(at(w.header, "data", "header", "config")); o.Next(); {
					want = append(want, fmt.Sprintf("%s:%s", o.RawKey(), o.Value()))
				}
				var messages []json.RawMessage
				for _, seq := range w.messages {
					message := at(seq, "data", "message")
					if string(at(seq, "type")) == `"user/message"` {
						message = at(seq, "data")
					}
					messages = append(messages, message)
				}
				var updates []string
				for _, seq := range w.updates {
					updates = append(updates, wantUpdate(t, at(seq, "data"), at))
				}
				want = append(want, `"messages":`+list(messages), `"sessionId":`+string(session.Member([]byte(rows[0]), "id")),
					fmt.Sprintf(`"toolHistory":{"tools":%s,"updates":[%s]}`, orEmpty(at(w.baseline, "data", "header", "tools")), strings.Join(updates, ",")))
				if tools := at(w.header, "data", "header", "tools"); tools != nil {
					want = append(want, `"tools":`+string(tools))
				}
				equalJSON(t, fmt.Sprintf("request at %d", w.answer), request, []byte("{"+strings.Join(want, ",")+"}"))
			}
			streamedAgrees(t, rows, seqs, got)
		})
	}
}

// wantUpdate is an update as a request tells it: the names that it adds with their
// definitions in the header that it names.
func wantUpdate(t *testing.T, update []byte, at func(seq int64, path ...string) []byte) string {
	t.Helper()
	seq, ok := session.Count(session.Member(update, "headerSeq"))
	if !ok {
		t.Fatal("an update without a headerSeq")
	}
	var additions []json.RawMessage
	for a := session.WalkArray(session.Member(update, "additions")); a.Next(); {
		name, _ := session.String(a.Value())
		for tools := session.WalkArray(at(seq, "data", "header", "tools")); tools.Next(); {
			if session.StringIs(session.Member(tools.Value(), "name"), name) {
				additions = append(additions, tools.Value())
			}
		}
	}
	return fmt.Sprintf(`{"afterMessageId":%s,"additions":%s,"removals":%s}`,
		session.Member(update, "afterMessageId"), list(additions), orEmpty(session.Member(update, "removals")))
}

func orEmpty(raw []byte) []byte {
	if raw == nil {
		return []byte("[]")
	}
	return raw
}

// streamedAgrees reads the file as a stream, for the messages just before each
// answer.
func streamedAgrees(t *testing.T, rows []string, seqs []int64, requests map[int64]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, d, err := session.ParseHeader([]byte(rows[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range seqs {
		var messages []json.RawMessage
		for m, err := range surface.Messages(file(path), d, seq-1) {
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, append(json.RawMessage(nil), m.Message...))
		}
		equalJSON(t, fmt.Sprintf("messages before %d", seq), list(messages), session.Member([]byte(requests[seq]), "messages"))
	}
}
