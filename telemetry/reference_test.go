package telemetry

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
)

// reference is what DSH's own backend sent, by session and seq.
type reference struct {
	severity int
	attrs    map[string]any
	body     any
}

func referencePayloads(t testing.TB, pattern string) map[string]map[int64]reference {
	t.Helper()
	files, err := filepath.Glob(shared(t, "otlp") + "/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatal("no payloads", err)
	}
	out := map[string]map[int64]reference{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var payload struct {
			ResourceLogs []struct {
				ScopeLogs []struct {
					LogRecords []struct {
						SeverityNumber int
						Body           map[string]any
						Attributes     []any
					}
				}
			}
		}
		if err := json.Unmarshal(text, &payload); err != nil {
			t.Fatal(err)
		}
		for _, rl := range payload.ResourceLogs {
			for _, sl := range rl.ScopeLogs {
				for _, lr := range sl.LogRecords {
					attrs := plainMap(lr.Attributes)
					if attrs["event.seq"] == nil {
						continue // ops
					}
					id := attrs["session.id"].(string)
					if out[id] == nil {
						out[id] = map[int64]reference{}
					}
					out[id][int64(attrs["event.seq"].(float64))] = reference{lr.SeverityNumber, attrs, plainValue(lr.Body)}
				}
			}
		}
	}
	return out
}

func plainMap(list []any) map[string]any {
	m := map[string]any{}
	for _, e := range list {
		kv := e.(map[string]any)
		v, _ := kv["value"].(map[string]any)
		m[kv["key"].(string)] = plainValue(v)
	}
	return m
}

func plainValue(v map[string]any) any {
	for kind, x := range v {
		switch kind {
		case "kvlistValue":
			values, _ := x.(map[string]any)["values"].([]any)
			return plainMap(values)
		case "arrayValue":
			list := []any{}
			values, _ := x.(map[string]any)["values"].([]any)
			for _, e := range values {
				list = append(list, plainValue(e.(map[string]any)))
			}
			return list
		default:
			return x
		}
	}
	return nil
}

// ours turns a value of ours into the same form.
func ours(v attribute.Value) any {
	switch v.Type() {
	case attribute.MAP:
		m := map[string]any{}
		for _, kv := range v.AsMap() {
			m[string(kv.Key)] = ours(kv.Value)
		}
		return m
	case attribute.SLICE:
		list := []any{}
		for _, e := range v.AsSlice() {
			list = append(list, ours(e))
		}
		return list
	case attribute.INT64:
		return float64(v.AsInt64())
	case attribute.EMPTY:
		return nil
	}
	return v.AsInterface()
}

// The captured payloads and the files are two runs of one script: ids are
// random and times differ, and nothing else.
var random = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|call_00_[0-9a-f]{8}`)

func withoutIDs(v any) any {
	text, _ := json.Marshal(v)
	var out any
	_ = json.Unmarshal(random.ReplaceAll(text, []byte("ID")), &out)
	return out
}

func compareToReference(t *testing.T, got []Record, want map[int64]reference) {
	t.Helper()
	var gotSeqs, wantSeqs []int64
	for _, r := range got {
		if r.Channel == ChannelOps {
			continue
		}
		gotSeqs = append(gotSeqs, r.Identity.Seq)
		ref, ok := want[r.Identity.Seq]
		if !ok {
			continue
		}
		body, err := BodyValue(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if g, w := withoutIDs(ours(body)), withoutIDs(ref.body); !reflect.DeepEqual(g, w) {
			t.Errorf("seq %d: body\n%v\nwant\n%v", r.Identity.Seq, g, w)
		}
		if int(r.Severity) != ref.severity {
			t.Errorf("seq %d: severity %d, want %d", r.Identity.Seq, r.Severity, ref.severity)
		}
		attrs := map[string]any{}
		for _, kv := range r.AllAttributes() {
			attrs[string(kv.Key)] = ours(kv.Value)
		}
		for k, v := range ref.attrs {
			if !reflect.DeepEqual(attrs[k], v) {
				t.Errorf("seq %d: attribute %s is %v, want %v", r.Identity.Seq, k, attrs[k], v)
			}
		}
	}
	for seq := range want {
		wantSeqs = append(wantSeqs, seq)
	}
	slices.Sort(wantSeqs)
	if !slices.Equal(gotSeqs, wantSeqs) {
		t.Errorf("seqs\n%v\nwant\n%v", gotSeqs, wantSeqs)
	}
}

// v0Files are the recorded sessions of format 0 by session id.
func v0Files(t testing.TB) map[string]*File {
	t.Helper()
	out := map[string]*File{}
	paths, _ := filepath.Glob(shared(t, "dsh/v0") + "/lab-*.jsonl")
	for _, p := range paths {
		f := FinishedFile(p, nil)
		led, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		out[led.Header().ID] = f
		led.Close()
	}
	return out
}

// The sessions of which the payloads hold everything. One request, with three
// outputs of 200 KB, is not among them.
func TestRecordsAreThoseThatDSHsOwnBackendSent(t *testing.T) {
	want := referencePayloads(t, "corpus-default-*.json")
	files := v0Files(t)
	o := newModelOutbox()
	c := testCapture(t, o, func(c *Config) {
		c.Parent = func(id string) (Source, bool) { f, ok := files[id]; return f, ok }
	})
	for _, id := range []string{"lab-multiturn", "lab-unicode-会话/😀:..", "lab-secrets", "lab-compaction", "lab-openturn", "lab-fork"} {
		t.Run(id, func(t *testing.T) {
			before := len(o.entries)
			p := pull(t, c.Session(files[id], SessionOptions{}))
			reconciles(t, p.Outcomes)
			got := o.records(t)[before:]
			ref := want[id]
			if id == "lab-fork" || id == "lab-openturn" {
				// The files go on: they were resumed, with an end-seed, after
				// the payload was captured.
				got = slices.DeleteFunc(got, func(r Record) bool {
					_, sent := ref[r.Identity.Seq]
					return !sent && r.Identity.Seq > maxKey(ref)
				})
			}
			if id == "lab-compaction" {
				got = slices.DeleteFunc(got, func(r Record) bool { return r.Identity.Seq > maxKey(ref) })
			}
			compareToReference(t, got, ref)
		})
	}
}

func maxKey(m map[int64]reference) int64 {
	last := int64(-1)
	for seq := range m {
		last = max(last, seq)
	}
	return last
}

func TestFeedbackOnlyRecordsAreThoseThatDSHsOwnBackendSent(t *testing.T) {
	files := v0Files(t)
	for id, want := range referencePayloads(t, "corpus-feedbackonly-*.json") {
		t.Run(id, func(t *testing.T) {
			got, p := captured(t, files[id], feedbackOnly)
			reconciles(t, p.Outcomes)
			compareToReference(t, got, want)
		})
	}
}

// Every recorded session of every format, whole, in any encoding: captured, and
// captured again with a new process after each 31 events.
func TestRecordedSessionsOfEveryFormatAreCaptured(t *testing.T) {
	root := shared(t, "dsh")
	var paths []string
	for _, pattern := range []string{"v*/*.jsonl", "v*/*.jsonl.zstd"} {
		more, _ := filepath.Glob(root + "/" + pattern)
		paths = append(paths, more...)
	}
	for _, path := range paths {
		name := strings.TrimPrefix(path, root+"/")
		t.Run(name, func(t *testing.T) {
			led, err := FinishedFile(path, nil).Open()
			if err != nil {
				t.Skip("refused: ", err)
			}
			id := led.Header().ID
			led.Close()
			live := LiveFile(path, nil)
			if err := Verify(live, nil); err != nil {
				if !strings.Contains(name, "native-v3-restart") {
					t.Fatal(err)
				}
				t.Skip("refused on purpose: ", err)
			}
			want, wantP := captured(t, live, nil)
			reconciles(t, wantP.Outcomes)
			finished, _ := captured(t, FinishedFile(path, nil), nil)
			if !reflect.DeepEqual(finished, want) {
				t.Error("the readers for finished and for growing files differ")
			}
			o := newModelOutbox()
			var p Progress
			for p.More = true; p.More; {
				s := testCapture(t, o, nil).Session(live, SessionOptions{})
				if p, err = s.Pull(t.Context(), 31); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
			if got := o.records(t); !reflect.DeepEqual(ledgerOf(got), ledgerOf(want)) || len(got) != len(want) || p.Outcomes != wantP.Outcomes {
				t.Errorf("%s: in pieces %d records, whole %d", id, len(got), len(want))
			}
			for _, r := range want {
				if r.Type == session.TypeAssistantMessage && !r.Surface.Seen {
					t.Errorf("seq %d does not say what the model had seen", r.Identity.Seq)
				}
				if r.Surface.Op != SurfaceNone != (strings.HasSuffix(r.Type, "/message") && r.Type != "feedback/message" || r.Type == session.TypeToolResult) {
					t.Errorf("seq %d %s: surface op %d", r.Identity.Seq, r.Type, r.Surface.Op)
				}
			}
		})
	}
}
