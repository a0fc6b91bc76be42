package surface_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/conformance"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/surface"
)

// shared finds a path in the folder of shared data, which stands beside the
// module, and skips the test where that is absent.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		path := filepath.Join(append([]string{dir, "shared", "data"}, elem...)...)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skipf("no folder above has shared/data/%s: the case tables and sessions are not part of the module", filepath.Join(elem...))
		}
		dir = up
	}
}

// conformanceCase is what the tables have in common (DSH-SEMANTICS §1).
type conformanceCase struct {
	ID    string
	Log   string
	Edits []struct {
		Truncate     *int
		Header, Text *string
		Append, Tail *string
		Row          *int
		Find         string
		Replace      string
	}
	TS json.RawMessage
}

type conformanceTable struct {
	Logs  map[string]string
	Cases []conformanceCase
}

func readTable(t *testing.T, name string) conformanceTable {
	t.Helper()
	text, err := os.ReadFile(shared(t, "conformance", "session", name))
	if err != nil {
		t.Fatal(err)
	}
	var table conformanceTable
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

// editedLog is a log with a case's edits: rows without the header, in order.
type editedLog struct {
	header, tail string
	rows         []string
}

func (c *conformanceCase) edited(t *testing.T, table conformanceTable) *editedLog {
	t.Helper()
	text, err := os.ReadFile(shared(t, filepath.FromSlash(table.Logs[c.Log])))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	l := &editedLog{header: lines[0], rows: lines[1:]}
	for _, e := range c.Edits {
		switch {
		case e.Truncate != nil:
			l.rows = l.rows[:*e.Truncate]
		case e.Header != nil:
			l.header = *e.Header
		case e.Append != nil:
			l.rows = append(l.rows, *e.Append)
		case e.Tail != nil:
			l.tail = *e.Tail
		case e.Row != nil && e.Text != nil:
			l.rows[*e.Row] = *e.Text
		case e.Row != nil:
			if n := strings.Count(l.rows[*e.Row], e.Find); n != 1 {
				t.Fatalf("the text to find stands %d times in row %d", n, *e.Row)
			}
			l.rows[*e.Row] = strings.Replace(l.rows[*e.Row], e.Find, e.Replace, 1)
		default:
			t.Fatal("an edit of unknown kind")
		}
	}
	return l
}

func (l *editedLog) write(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.jsonl")
	text := l.header + "\n"
	for _, row := range l.rows {
		text += row + "\n"
	}
	if err := os.WriteFile(path, []byte(text+l.tail), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// resolve replaces {"$log":pointer} and {"$closer":pointer} in raw.
func resolve(t *testing.T, raw []byte, l *editedLog, closers []json.RawMessage) []byte {
	t.Helper()
	switch session.KindOf(raw) {
	case session.KindArray:
		out := []byte{'['}
		for a := session.WalkArray(raw); a.Next(); {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, resolve(t, a.Value(), l, closers)...)
		}
		return append(out, ']')
	case session.KindObject:
		out := []byte{'{'}
		for o := session.WalkObject(raw); o.Next(); {
			if o.KeyIs("$log") || o.KeyIs("$closer") {
				pointer, _ := session.String(o.Value())
				parts := strings.Split(pointer, "/")[1:]
				n, err := strconv.Atoi(parts[0])
				if err != nil {
					t.Fatal(err)
				}
				at := []byte(nil)
				if o.KeyIs("$log") {
					at = []byte(l.rows[n])
				} else {
					at = closers[n]
				}
				for _, key := range parts[1:] {
					at = child(at, key)
				}
				if at == nil {
					t.Fatalf("nothing at %s", pointer)
				}
				return at
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(out, o.RawKey()...), ':')
			out = append(out, resolve(t, o.Value(), l, closers)...)
		}
		return append(out, '}')
	}
	return raw
}

func child(raw []byte, key string) []byte {
	if session.KindOf(raw) == session.KindObject {
		return session.Member(raw, key)
	}
	n := 0
	for a := session.WalkArray(raw); a.Next(); n++ {
		if strconv.Itoa(n) == key {
			return a.Value()
		}
	}
	return nil
}

// memory is a ledger that is held in memory.
type memory struct{ events []*session.Event }

func (m *memory) Bounds() (first, next int64) { return 0, int64(len(m.events)) }

func (m *memory) Event(seq int64) (*session.Event, error) { return m.events[seq], nil }

// restored is a ledger with everything that restores it.
type restored struct {
	ledger   *memory
	d        *session.Dialect
	header   *session.Header
	view     *surface.View
	requests *surface.Requests
}

func newRestored(h *session.Header, d *session.Dialect, opts ...surface.Option) *restored {
	r := &restored{ledger: &memory{}, d: d, header: h}
	r.view = surface.NewView(r.ledger, d, opts...)
	r.requests = surface.NewRequests(r.view)
	return r
}

func (r *restored) admit(ev session.Event) error {
	if err := session.Admit(&ev, r.view, r.requests); err != nil {
		return err
	}
	r.ledger.events = append(r.ledger.events, &ev)
	return nil
}

// restore reads a session file and admits its events.
func restore(path string, opts ...jsonl.Option) (*restored, error) {
	reader, err := jsonl.Open(path, opts...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	r := newRestored(reader.Header(), reader.Dialect())
	for reader.Next() {
		if err := r.admit(reader.Event().Clone()); err != nil {
			return nil, err
		}
	}
	return r, reader.Err()
}

// close admits the synthetic closers of an interrupted ledger.
func (r *restored) close(t *testing.T) int {
	t.Helper()
	stored := make([]session.Event, len(r.ledger.events))
	for i, ev := range r.ledger.events {
		stored[i] = *ev
	}
	closers, err := session.Closers(r.d, stored)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range closers {
		if err := r.admit(ev); err != nil {
			t.Fatal(err)
		}
	}
	return len(closers)
}

func TestConformancePromptAdmission(t *testing.T) {
	table := readTable(t, "prompt-admission-cases.json")
	count := conformance.New(t, "prompt-admission")
	for _, c := range table.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			var want struct {
				ContentGeneration int64
				Prompts           []struct {
					Rendered                string
					InHistory, StartsSeries bool
					Commits                 []struct {
						Text   string
						Intent json.RawMessage
					}
				}
				ToolsChanged []struct {
					Tools   json.RawMessage
					Changed bool
				}
				Series []struct {
					Declared, ToolUpdateRoute, StartsSeries bool
					GenerationAtLastRequest                 int64
					Tools                                   json.RawMessage
				}
			}
			if err := json.Unmarshal(c.TS, &want); err != nil {
				t.Fatal(err)
			}
			log := c.edited(t, table)
			r, err := restore(log.write(t))
			if err != nil {
				t.Fatal(err)
			}
			r.close(t)
			s, err := r.view.Surface()
			if err != nil {
				t.Fatal(err)
			}
			if s.ContentGeneration() != want.ContentGeneration {
				t.Errorf("content generation is %d, want %d", s.ContentGeneration(), want.ContentGeneration)
			}
			for _, p := range want.Prompts {
				commits, err := surface.NewSystemPrompt(r.view).Project(p.Rendered, surface.PromptInput{InHistory: p.InHistory, StartsSeries: p.StartsSeries})
				if err != nil {
					t.Fatal(err)
				}
				got, wanted := []string{}, []string{}
				for _, x := range commits {
					intent := `"append"`
					if x.Replace {
						intent = fmt.Sprintf(`{"replace":%d}`, x.Seq)
					}
					got = append(got, fmt.Sprintf("%q %s", x.Text, intent))
				}
				for _, x := range p.Commits {
					intent, err := session.Canonical(nil, x.Intent)
					if err != nil {
						t.Fatal(err)
					}
					wanted = append(wanted, fmt.Sprintf("%q %s", x.Text, intent))
				}
				if fmt.Sprint(got) != fmt.Sprint(wanted) {
					t.Errorf("%q, in history %t, starts series %t: got %v, want %v", p.Rendered, p.InHistory, p.StartsSeries, got, wanted)
				}
			}
			for _, x := range want.ToolsChanged {
				tools := resolve(t, x.Tools, log, nil)
				if got, err := r.requests.ToolsChanged(tools); err != nil || got != x.Changed {
					t.Errorf("tools %s changed: %t, %v; want %t", tools, got, err, x.Changed)
				}
			}
			for _, x := range want.Series {
				in := surface.SeriesInput{Declared: x.Declared, GenerationAtLastRequest: x.GenerationAtLastRequest,
					ToolUpdateRoute: x.ToolUpdateRoute, Tools: resolve(t, x.Tools, log, nil)}
				if got, err := r.requests.StartsSeries(in); err != nil || got != x.StartsSeries {
					t.Errorf("%+v starts a series: %t, %v; want %t", in, got, err, x.StartsSeries)
				}
			}
		})
	}
}

// restoreWhole goes all the way from the bytes of a file to what a request is made
// of, as the reference restores a session: the file is scanned, what is unfinished
// is closed, each event is judged by itself, its type has to be known, and surface
// and requests admit it. The error is the first refusal of any of them. Turns and
// steps are not restoring's to judge: that is the trace's part, as it is that of
// the reference's invariant companion (DSH-SEMANTICS §3.4).
func restoreWhole(path string) (*restored, *jsonl.Recovery, error) {
	rec, err := jsonl.Inspect(path)
	if err != nil {
		return nil, nil, err
	}
	reader, err := jsonl.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer reader.Close()
	var events []session.Event
	for reader.Next() {
		events = append(events, reader.Event().Clone())
	}
	if err := reader.Err(); err != nil {
		return nil, nil, err
	}
	r := newRestored(rec.Header, rec.Dialect)
	known := session.Core(rec.Dialect)
	for _, ev := range append(events, rec.Closers...) {
		if err := errors.Join(session.CheckPayload(rec.Dialect, &ev), session.CheckStored(rec.Dialect, &ev)); err != nil {
			return nil, nil, err
		}
		if _, ok := known.Lookup(ev.Type); !ok && !ev.Ignorable {
			return nil, nil, &session.InvariantError{Code: session.CodeUnknownType, Seq: ev.Seq, Type: ev.Type}
		}
		if err := r.admit(ev); err != nil {
			return nil, nil, err
		}
	}
	return r, rec, nil
}

// refusedByTrace are the sessions of the table that the reference restores and
// that break an invariant of turns and steps: edits of a kind that no writer makes.
var refusedByTrace = map[string]session.Code{
	"call-pending-across-step":           session.CodeStepOpen,
	"repeated-step-start":                session.CodeStepOpen,
	"step-start-without-turn":            session.CodeTurnNotOpen,
	"null-turn-closes":                   session.CodeTurnNumber,
	"open-turn-not-a-count":              session.CodeTurnNumber,
	"image-offload-replacement-node":     session.CodeTurnNotOpen,
	"image-offload-then-replacement":     session.CodeTurnNotOpen,
	"image-offload-tool-update-anchor":   session.CodeStepOpen,
	"image-offload-prune-then-reoffload": session.CodeTurnNotOpen,
	"known-ignorable-prune":              session.CodeTurnNotOpen,
}

// TestConformanceRestore runs the table end to end: what is refused, and what a
// restored session says of its file, its closers, its messages and its requests.
func TestConformanceRestore(t *testing.T) {
	table := readTable(t, "restore-cases.json")
	count := conformance.New(t, "restore")
	for _, c := range table.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			var want struct {
				Outcome             string
				Header              json.RawMessage
				InheritedEventCount int64
				CommittedBytes      int64
				StoredEventCount    int64
				Closers             []json.RawMessage
				EndSeedAppended     bool
				Messages            json.RawMessage
				RequestHeader       json.RawMessage
				RequestContext      json.RawMessage
				ToolHistory         struct {
					Tools   json.RawMessage
					Updates []struct {
						AfterMessageID string
						Additions      json.RawMessage
						Removals       []string
					}
				}
			}
			if err := json.Unmarshal(c.TS, &want); err != nil {
				t.Fatal(err)
			}
			log := c.edited(t, table)
			r, rec, err := restoreWhole(log.write(t))
			if want.Outcome == "rejected" {
				if err == nil {
					t.Error("restored, want a refusal")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equalJSON(t, "header", strings.Replace(string(session.AppendHeader(nil, rec.Header)), `"type":"session",`, "", 1), want.Header)
			if rec.Events != want.StoredEventCount || rec.InheritedCount != want.InheritedEventCount || rec.CommittedBytes != want.CommittedBytes {
				t.Errorf("%d events, %d inherited, %d bytes; want %d, %d, %d", rec.Events, rec.InheritedCount, rec.CommittedBytes,
					want.StoredEventCount, want.InheritedEventCount, want.CommittedBytes)
			}
			trace := session.NewTrace(rec.Header, rec.Dialect, nil)
			var broken *session.InvariantError
			for _, ev := range r.ledger.events {
				if err := session.Admit(ev, trace); err != nil {
					if !errors.As(err, &broken) {
						t.Fatal(err)
					}
					break
				}
			}
			if code := refusedByTrace[c.ID]; (broken == nil) != (code == "") || broken != nil && broken.Code != code {
				t.Errorf("the trace says %v, want %q", broken, code)
			}
			closers, wantClosers := []string{}, []string{}
			for i := range rec.Closers {
				closers = append(closers, string(session.AppendEvent(nil, rec.Dialect, &rec.Closers[i])))
			}
			for _, raw := range want.Closers {
				wantClosers = append(wantClosers, compact(t, raw))
			}
			if !slices.Equal(closers, wantClosers) {
				t.Errorf("closers are %s, want %s", closers, wantClosers)
			}
			last := r.ledger.events[max(0, len(r.ledger.events)-1):]
			if marked := len(last) == 1 && last[0].Type == session.TypeEndSeed; marked == want.EndSeedAppended {
				t.Errorf("the ledger ends in a session/end-seed: %t", marked)
			}

			messages := []string{}
			for m, err := range r.view.Messages() {
				if err != nil {
					t.Fatal(err)
				}
				messages = append(messages, string(m.Message))
			}
			equalJSON(t, "messages", "["+strings.Join(messages, ",")+"]", resolve(t, want.Messages, log, want.Closers))
			header, err := r.requests.Header()
			if err != nil {
				t.Fatal(err)
			}
			// The table compares the header's text, order of members included.
			wantHeader := compact(t, resolve(t, want.RequestHeader, log, nil))
			if header == nil {
				header = json.RawMessage("null")
			}
			if string(header) != wantHeader {
				t.Errorf("request header is %s, want %s", header, wantHeader)
			}
			history, err := r.requests.ToolHistory()
			if err != nil {
				t.Fatal(err)
			}
			equalJSON(t, "tools", list(history.Tools), resolve(t, want.ToolHistory.Tools, log, nil))
			if len(history.Updates) != len(want.ToolHistory.Updates) {
				t.Fatalf("%d tool updates, want %d", len(history.Updates), len(want.ToolHistory.Updates))
			}
			for i, u := range history.Updates {
				w := want.ToolHistory.Updates[i]
				if u.AfterMessageID != w.AfterMessageID || fmt.Sprint(u.Removals) != fmt.Sprint(w.Removals) {
					t.Errorf("update %d is %+v, want %+v", i, u, w)
				}
				equalJSON(t, "additions", list(u.Additions), resolve(t, w.Additions, log, nil))
			}
			count.Part(t, c.ID, "request context", func(t *testing.T) {
				context, err := r.requests.Context()
				if err != nil {
					t.Fatal(err)
				}
				if context == nil {
					context = json.RawMessage("null")
				}
				equalJSON(t, "request context", string(context), resolve(t, want.RequestContext, log, nil))
			})
		})
	}
}

func list(raws []json.RawMessage) string {
	parts := make([]string, len(raws))
	for i, raw := range raws {
		parts[i] = string(raw)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// equalJSON compares values, as the tables do: numbers by the double they mean.
func equalJSON(t *testing.T, what, got string, want []byte) {
	t.Helper()
	a, err := session.Canonical(nil, []byte(got))
	b, err2 := session.Canonical(nil, want)
	if err = errors.Join(err, err2); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("%s:\ngot  %.2000s\nwant %.2000s", what, a, b)
	}
}
