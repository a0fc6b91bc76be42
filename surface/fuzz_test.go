package surface

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// FuzzFold folds rows of a ledger, the first byte being the format version.
// Rows that cannot be decoded, or that the fold refuses, are left out; what is
// accepted has to give the same surface and messages whichever way it is read.
func FuzzFold(f *testing.F) {
	// Rows of ours that meet every rule once: a replace whose start is above its
	// end, a rewrite, decisions, a protected head, a developer message.
	seeds, err := filepath.Glob(filepath.Join("testdata", "*.rows"))
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range seeds {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for version := range byte(5) {
			f.Add(append([]byte{version}, text...))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 1<<16 {
			return
		}
		d, err := session.DialectOf(int(in[0] % 5))
		if err != nil {
			t.Fatal(err)
		}
		s, l := New(d), &ledger{}
		dec := session.NewDecoder(d, nil)
		for _, row := range bytes.Split(in[1:], []byte("\n")) {
			var ev session.Event
			if run, err := dec.Decode(row, &ev); err != nil || run != nil {
				continue
			}
			if s.Fold(&ev) != nil {
				continue
			}
			c := ev.Clone()
			l.events = append(l.events, &c)
		}
		nodes := s.Nodes()
		if s.Hash() != chainOf(nodes) {
			t.Fatal("the hash is not the chain over the nodes")
		}
		if sorted := slices.Sorted(slices.Values(nodes)); len(slices.Compact(sorted)) != len(nodes) {
			t.Fatalf("a node stands twice: %v", nodes)
		}
		v := NewView(l, d)
		var want [][]byte
		for m, err := range v.Messages() {
			if err != nil {
				t.Fatal(err)
			}
			line := m.AppendJSON(nil)
			if err := session.ValidJSON(line); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			want = append(want, line)
		}
		again, err := v.Surface()
		if err != nil || !slices.Equal(again.Nodes(), nodes) {
			t.Fatalf("folded again: %v, %v; want %v", again, err, nodes)
		}
		for m, err := range Messages(l.source, d, End) {
			if err != nil {
				t.Fatal(err)
			}
			if len(want) == 0 || !bytes.Equal(m.AppendJSON(nil), want[0]) {
				t.Fatalf("streaming shows another message for seq %d", m.Seq)
			}
			want = want[1:]
		}
		if len(want) > 0 {
			t.Fatalf("streaming leaves out %d messages", len(want))
		}
		if _, err := NewSystemPrompt(v).Project("x", PromptInput{}); err != nil {
			t.Fatal(err)
		}
		if r, err := NewRuntimeContext(v); err != nil {
			t.Fatal(err)
		} else if _, _, err := r.Project("x", nil, "id"); err != nil {
			t.Fatal(err)
		}
		if _, err := NewRequests(v).ToolHistory(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSeedRowsFoldWholeInTheirOwnVersion(t *testing.T) {
	for version, want := range map[int]string{2: "v2.rows", 3: "v3.rows", 4: "v4.rows"} {
		d := dialect(t, version)
		text, err := os.ReadFile(filepath.Join("testdata", want))
		if err != nil {
			t.Fatal(err)
		}
		s, dec := New(d), session.NewDecoder(d, nil)
		rows := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		for i, row := range rows {
			var ev session.Event
			if _, err := dec.Decode(row, &ev); err != nil {
				t.Fatalf("%s row %d: %v", want, i, err)
			}
			if err := s.Fold(&ev); err != nil {
				t.Fatalf("%s row %d: %v", want, i, err)
			}
		}
		if s.Next() != int64(len(rows)) || s.ReplaceGeneration() < 3 || s.Len() < 3 {
			t.Errorf("%s: next %d, %d replacements, %d nodes", want, s.Next(), s.ReplaceGeneration(), s.Len())
		}
	}
}
