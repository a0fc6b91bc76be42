package audit

import (
	"slices"
	"testing"
)

// What a twin says is compared event by event, however its rows are written.
func TestTwin(t *testing.T) {
	b := newBridge(t, 1)
	for _, tc := range []struct {
		name   string
		change func(m *memory)
		want   []string
	}{
		{"the same", func(*memory) {}, nil},
		{"the same in other words", func(m *memory) { m.events[1].Data = []byte(` { "n" : 1.0 } `) }, nil},
		{"shorter", func(m *memory) { m.events = m.events[:2] }, nil},
		{"longer", func(m *memory) { m.events = append(m.events, ledgerOf(b.id, 4).events[3]) }, []string{"twin-differs 3"}},
		{"another body", func(m *memory) { m.events[1].Data = []byte(`{"n":7}`) }, []string{"twin-differs 1"}},
		{"another time", func(m *memory) { m.events[2].Time++ }, []string{"twin-differs 2"}},
		{"another type", func(m *memory) { m.events[0].Type = "x" }, []string{"twin-differs 0"}},
		{"other sources", func(m *memory) { m.events[1].SourceEventSeqs = []int64{0} }, []string{"twin-differs 1"}},
		{"another header", func(m *memory) { cwd := "/x"; m.header.Cwd = &cwd }, []string{"twin-differs"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := New()
			twin := ledgerOf(b.id, 3)
			tc.change(twin)
			if err := a.Twin("twin.jsonl", ledgerOf(b.id, 3), twin); err != nil {
				t.Fatal(err)
			}
			findings, totals := a.Report()
			if got := told(findings); !slices.Equal(got, tc.want) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
			if totals.Complete != (tc.want == nil) {
				t.Errorf("%+v", totals)
			}
		})
	}
}
