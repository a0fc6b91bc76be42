package surface_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/surface"
)

// file is a session file as a source.
func file(path string) surface.Source {
	return func(yield func(*session.Event, error) bool) {
		r, err := jsonl.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		for r.Next() {
			if !yield(r.Event(), nil) {
				return
			}
		}
		if err := r.Err(); err != nil {
			yield(nil, err)
		}
	}
}

func dialectOf(t *testing.T, path string) *session.Dialect {
	t.Helper()
	r, err := jsonl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return r.Dialect()
}

func messagesOf(t *testing.T, path string, at int64) []surface.Message {
	t.Helper()
	d := dialectOf(t, path)
	var out []surface.Message
	for m, err := range surface.Messages(file(path), d, at) {
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		m.Message = bytes.Clone(m.Message)
		out = append(out, m)
	}
	return out
}

// normal gives the messages as a later generation would say them: without the
// system prompt in front, tool results in a role of their own, and sources by
// kind alone, whose names changed.
func normal(t *testing.T, d *session.Dialect, messages []surface.Message) []string {
	t.Helper()
	out := []string{}
	for i, m := range messages {
		if m.Type == "system/message" {
			if i != 0 {
				t.Errorf("a system message stands at %d", i)
			}
			continue
		}
		var v map[string]any
		if err := json.Unmarshal(m.Message, &v); err != nil {
			t.Fatal(err)
		}
		if m.Type == "tool/result" && !d.ToolRoleResults() {
			block := v["content"].([]any)[0].(map[string]any)
			v["role"] = "tool"
			for _, key := range []string{"toolCallId", "content", "isError"} {
				v[key] = block[key]
			}
		}
		if source, ok := v["source"].(map[string]any); ok {
			delete(source, "plugin")
			if m.Type == "user/message" && source["kind"] != "user" {
				delete(source, "kind")
			}
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

// TestAllVersionsOfASessionShowTheSameMessages: v0 raw, v1 and v2 the very same;
// v3 and v4 but for the system prompt in front and v4's tool role.
func TestAllVersionsOfASessionShowTheSameMessages(t *testing.T) {
	names := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(shared(t, "dsh"), "v*", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		names[filepath.Base(p)] = true
	}
	compared := 0
	for name := range names {
		t.Run(name, func(t *testing.T) {
			var first, later []string
			for version := range 5 {
				path := filepath.Join(shared(t, "dsh"), fmt.Sprintf("v%d", version), name)
				if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
					continue
				}
				messages := messagesOf(t, path, surface.End)
				if version <= 2 {
					raw := []string{}
					for _, m := range messages {
						text, err := session.Canonical(nil, m.Message)
						if err != nil {
							t.Fatal(err)
						}
						raw = append(raw, string(text))
					}
					if first == nil {
						first = raw
					} else if compared++; !slices.Equal(first, raw) {
						t.Errorf("v%d shows other messages than the version before it:\n%.500q\n%.500q", version, first, raw)
					}
				}
				got := normal(t, dialectOf(t, path), messages)
				if later == nil {
					later = got
				} else if compared++; !slices.Equal(later, got) {
					t.Errorf("v%d shows other messages than the version before it:\n%.500q\n%.500q", version, later, got)
				}
			}
		})
	}
	if compared < 30 {
		t.Errorf("only %d pairs were compared", compared)
	}
}

// TestEverySessionFoldsInEveryEncoding also shows that a zstd file, where it is
// the same run, gives what its raw partner gives, and that reading in memory
// gives what streaming gives.
func TestEverySessionFoldsInEveryEncoding(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(shared(t, "dsh"), "v*", "*.jsonl*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 60 {
		t.Fatalf("only %d files", len(paths))
	}
	for _, path := range paths {
		rel := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
		t.Run(rel, func(t *testing.T) {
			messages := messagesOf(t, path, surface.End)
			if len(messages) == 0 {
				t.Error("no messages")
			}
			r, err := restore(path)
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			for m, err := range r.view.Messages() {
				if err != nil {
					t.Fatal(err)
				}
				if m.Seq != messages[i].Seq || !bytes.Equal(m.Message, messages[i].Message) {
					t.Errorf("message %d differs between view and stream", i)
				}
				i++
			}
			if i != len(messages) {
				t.Errorf("%d messages in the view, %d in the stream", i, len(messages))
			}
			raw, isZstd := strings.CutSuffix(path, ".zstd")
			if !isZstd || strings.HasPrefix(rel, "v0/lab-") {
				return
			}
			if _, err := os.Stat(raw); err != nil {
				return
			}
			partner := messagesOf(t, raw, surface.End)
			if !slices.EqualFunc(messages, partner, func(a, b surface.Message) bool {
				return a.Seq == b.Seq && bytes.Equal(a.Message, b.Message)
			}) {
				t.Error("zstd and raw show other messages")
			}
		})
	}
}

// TestSecondRunOfAScriptShowsTheSameMessages: raw and zstd of one lab-* name in
// v0 are two runs of one script, which differ in ids and times.
func TestSecondRunOfAScriptShowsTheSameMessages(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(shared(t, "dsh"), "v0", "lab-*.jsonl"))
	if err != nil || len(paths) < 8 {
		t.Fatal(len(paths), err)
	}
	ids := regexp.MustCompile(`"(id|messageId|compactionId|callId|toolCallId)":"[^"]*"`)
	normal := func(path string) (out []string) {
		for _, m := range messagesOf(t, path, surface.End) {
			out = append(out, m.Type+" "+ids.ReplaceAllString(string(m.Message), `"$1":""`))
		}
		return out
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if a, b := normal(path), normal(path+".zstd"); !slices.Equal(a, b) {
				t.Errorf("%d and %d messages differ", len(a), len(b))
				for i := range min(len(a), len(b)) {
					if a[i] != b[i] {
						t.Logf("%d:\n%.600s\n%.600s", i, a[i], b[i])
					}
				}
			}
		})
	}
}

func TestNativeSessionHasReplacesProjectionsAndDevelopers(t *testing.T) {
	path := shared(t, "dsh", "v4", "native-v4.jsonl")
	d := dialectOf(t, path)
	s, err := surface.At(file(path), d, surface.End)
	if err != nil {
		t.Fatal(err)
	}
	// 55 replaced the span 40..29, whose start seq is above its end seq.
	if !s.IsNode(55) || s.IsNode(40) || s.IsNode(29) {
		t.Errorf("nodes are %v", s.Nodes())
	}
	before, err := surface.At(file(path), d, 54)
	if err != nil {
		t.Fatal(err)
	}
	if s.ReplaceGeneration() <= before.ReplaceGeneration() || s.ContentGeneration() <= s.ReplaceGeneration() {
		t.Errorf("generations went from %d to %d, content %d", before.ReplaceGeneration(), s.ReplaceGeneration(), s.ContentGeneration())
	}
	seen := map[string]bool{}
	for m, err := range surface.Messages(file(path), d, 54) {
		if err != nil {
			t.Fatal(err)
		}
		seen[m.Type] = true
		if len(before.Decisions(m.Seq)) > 0 && !strings.Contains(string(m.Message), `"offloaded":true`) {
			t.Errorf("seq %d shows no offloaded image", m.Seq)
		}
	}
	for _, typ := range d.SurfaceTypes() {
		if !seen[typ] {
			t.Errorf("no %s among the messages", typ)
		}
	}
}

// TestTornFilesShowWhatTheirRepairedPartnersShow compares with what the real
// recovery made of the damaged files, as far as those had been written.
func TestTornFilesShowWhatTheirRepairedPartnersShow(t *testing.T) {
	for torn, repaired := range map[string]string{
		"raw-halfline.v0.jsonl":            "repaired-subagent-child.v0.jsonl",
		"zstd-cut-lastframe.v0.jsonl.zstd": "repaired-multiturn.v0.jsonl.zstd",
	} {
		t.Run(torn, func(t *testing.T) {
			a := messagesOf(t, shared(t, "dsh", "torn", torn), surface.End)
			b := messagesOf(t, shared(t, "dsh", "torn", repaired), surface.End)
			if len(a) == 0 || len(a) > len(b) {
				t.Fatalf("%d messages, %d after repair", len(a), len(b))
			}
			for i, m := range a {
				if m.Seq != b[i].Seq || !bytes.Equal(m.Message, b[i].Message) {
					t.Errorf("message %d: seq %d and %d differ", i, m.Seq, b[i].Seq)
				}
			}
		})
	}
}
