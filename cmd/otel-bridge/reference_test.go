package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/cli"
	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// export runs `export` over paths into a sink's file of its own, and returns
// what was received.
func export(t *testing.T, config string, paths ...string) []received {
	t.Helper()
	return exportIn(t, nil, config, paths...)
}

// exportIn is export in an environment.
func exportIn(t *testing.T, env map[string]string, config string, paths ...string) []received {
	t.Helper()
	dir := t.TempDir()
	sink := filepath.Join(dir, "got.jsonl")
	file, err := receiver.OpenFile(sink)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := receiver.Start(receiver.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	cfg := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(cfg, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := append([]string{"export", "--config", cfg, "--mode", "FULL", "--endpoint", srv.URL(), "--data-dir", filepath.Join(dir, "data")}, paths...)
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	code := cli.Run(context.Background(), args, bytes.NewReader(nil), &out, &errs, lookup)
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if code != 0 {
		t.Fatalf("export %v: exit code %d: %s%s", paths, code, out.Bytes(), errs.Bytes())
	}
	got, err := readReceived(sink)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

type place struct {
	session string
	seq     int64
}

func byPlace(list []received) map[place]received {
	m := map[place]received{}
	for _, r := range list {
		if seq, ok := r.Attrs["event.seq"].(int64); ok {
			m[place{r.Attrs["session.id"].(string), seq}] = r
		}
	}
	return m
}

var (
	runIDs = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	callID = regexp.MustCompile(`call_([0-9]+)_[0-9a-f]{8}`)
)

// sameRun takes out of a body what differs from one run of a script to another:
// message ids, call ids and times.
func sameRun(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = sameRun(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = sameRun(e)
		}
		return l
	case string:
		return callID.ReplaceAllString(runIDs.ReplaceAllString(v, "<id>"), "call_$1_<id>")
	case int64:
		if v > 1_700_000_000_000 {
			return "<time>"
		}
	}
	return v
}

// The reference sent these requests for the same scripts, in another run.
// Deliberate differences: more attributes, an event name, other scopes and
// resource, observed time by our clock, and no trace of its ops records.
func TestExportSaysWhatTheReferenceSays(t *testing.T) {
	shared, ok := sharedDir()
	if !ok {
		t.Skip("the reference's requests stand beside the project")
	}
	files, err := filepath.Glob(filepath.Join(shared, "data", "otlp", "corpus-default-*[0-9].json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no requests of the reference")
	}
	var reference []received
	for _, f := range files {
		list, err := readReceived(flat(t, f))
		if err != nil {
			t.Fatal(err)
		}
		reference = append(reference, list...)
	}
	var paths []string
	for _, s := range []string{"multiturn", "unicode", "secrets", "compaction", "openturn", "fork"} {
		paths = append(paths, filepath.Join(shared, "data", "dsh", "v0", "lab-"+s+".jsonl"))
	}
	ours := byPlace(export(t, "redact: none\n", paths...))
	compared := 0
	for at, want := range byPlace(reference) {
		got, ok := ours[at]
		if !ok {
			t.Errorf("%v (%v) is missing", at, want.Attrs["event.type"])
			continue
		}
		compared++
		for _, key := range slices.Sorted(maps.Keys(want.Attrs)) {
			if !reflect.DeepEqual(got.Attrs[key], want.Attrs[key]) {
				t.Errorf("%v: %s = %v, want %v", at, key, got.Attrs[key], want.Attrs[key])
			}
		}
		if got.Record.SeverityNumber != want.Record.SeverityNumber || got.Record.SeverityText != want.Record.SeverityText {
			t.Errorf("%v: severity %v, want %v", at, got.Record.SeverityText, want.Record.SeverityText)
		}
		if g, w := sameRun(got.Body), sameRun(want.Body); !reflect.DeepEqual(g, w) {
			t.Errorf("%v (%v): body\n%v\nwant\n%v", at, want.Attrs["event.type"], g, w)
		}
	}
	if compared < 150 {
		t.Errorf("only %d records compared", compared)
	}
}

// flat writes a request on one line, as a sink's file has it.
func flat(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "request.jsonl")
	if err := os.WriteFile(out, append(b.Bytes(), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// ledgerRow is as much of a session file as the expectations below need. It is
// read here without the packages under test.
type ledgerRow struct {
	Type  string          `json:"type"`
	Seq   int64           `json:"seq"`
	Seq0  *int64          `json:"seq0"`
	Time  int64           `json:"time"`
	Data  json.RawMessage `json:"data"`
	OpRaw json.RawMessage `json:"surfaceOp"`
	ID    string          `json:"id"`
	Ver   int64           `json:"version"`
	Made  int64           `json:"createdAt"`
}

// expected is what a file's events have to become: every event but the
// fragments of a stream, of which the first of each (turn, step) is a signal
// without text.
func expected(t *testing.T, path string) (header ledgerRow, want map[int64]ledgerRow) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want = map[int64]ledgerRow{}
	started := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(text))
	for first := true; ; first = false {
		var row ledgerRow
		if err := dec.Decode(&row); err == io.EOF {
			return header, want
		} else if err != nil {
			t.Fatal(err)
		}
		if first {
			header = row
			continue
		}
		if row.Seq0 != nil || row.Type == "assistant/chunk" {
			var at struct{ Turn, Step int64 }
			if err := json.Unmarshal(row.Data, &at); err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprint(at.Turn, "/", at.Step)
			if started[key] {
				continue
			}
			started[key] = true
			if row.Seq0 != nil {
				row.Seq = *row.Seq0
			}
			row.Type, row.Data = "assistant/chunk", nil
		}
		want[row.Seq] = row
	}
}

func TestEachFileBecomesItsEvents(t *testing.T) {
	shared, ok := sharedDir()
	if !ok {
		t.Skip("the session files stand beside the project")
	}
	var paths []string
	for _, version := range []string{"v0", "v1"} {
		files, err := filepath.Glob(filepath.Join(shared, "data", "dsh", version, "*.jsonl"))
		if err != nil || len(files) == 0 {
			t.Fatal("no files")
		}
		paths = append(paths, files...)
	}
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			header, want := expected(t, path)
			seen := map[int64]bool{}
			for _, r := range export(t, "redact: none\n", path) {
				seq, isEvent := r.Attrs["event.seq"].(int64)
				if !isEvent {
					continue
				}
				w, ok := want[seq]
				if !ok || seen[seq] {
					t.Errorf("seq %d (%v) is not expected", seq, r.Attrs["event.type"])
					continue
				}
				seen[seq] = true
				if r.Attrs["event.type"] != w.Type || r.Record.EventName != w.Type {
					t.Errorf("seq %d: type %v, want %s", seq, r.Attrs["event.type"], w.Type)
				}
				if r.Attrs["session.id"] != header.ID || r.Attrs["session.format_version"] != header.Ver || r.Attrs["session.created_at"] != header.Made {
					t.Errorf("seq %d: identity %v", seq, r.Attrs)
				}
				if len(w.OpRaw) > 0 && r.Attrs["surface.op"] == nil {
					t.Errorf("seq %d: no surface.op", seq)
				}
				if w.Data == nil {
					continue // a signal: no text
				}
				if r.Record.TimeUnixNano != uint64(w.Time)*1_000_000 {
					t.Errorf("seq %d: time %d, want %d ms", seq, r.Record.TimeUnixNano, w.Time)
				}
				if got := canonical(t, r.Body); got != canonicalRaw(t, w.Data) {
					t.Errorf("seq %d: body\n%s\nwant\n%s", seq, got, canonicalRaw(t, w.Data))
				}
			}
			if len(seen) != len(want) {
				t.Errorf("%d events received, want %d", len(seen), len(want))
			}
		})
	}
}

func canonical(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return canonicalRaw(t, b)
}

// canonicalRaw compares numbers as doubles and objects without their order.
func canonicalRaw(t *testing.T, raw []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The zstd files are another run of the same scripts: they give the same events
// as the raw ones but for ids and times.
func TestCompressedFilesGiveTheSameEvents(t *testing.T) {
	shared, ok := sharedDir()
	if !ok {
		t.Skip("the session files stand beside the project")
	}
	files, err := filepath.Glob(filepath.Join(shared, "data", "dsh", "v0", "*.jsonl.zstd"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files")
	}
	for _, zstd := range files {
		t.Run(filepath.Base(zstd), func(t *testing.T) {
			raw := byPlace(export(t, "redact: none\n", zstd[:len(zstd)-len(".zstd")]))
			got := byPlace(export(t, "redact: none\n", zstd))
			if len(got) == 0 || len(got) != len(raw) {
				t.Fatalf("%d records, and %d of the raw file", len(got), len(raw))
			}
			for at, w := range raw {
				if g := got[at]; g.Attrs["event.type"] != w.Attrs["event.type"] || !reflect.DeepEqual(sameRun(g.Body), sameRun(w.Body)) {
					t.Errorf("%v: %v, want %v", at, g.Body, w.Body)
				}
			}
		})
	}
}
