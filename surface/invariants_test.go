package surface_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/surface"
)

// The last row of each example is refused with the code of its section.
func TestDocumentedExamplesOfTheSurfaceAreRefusedWithTheirCode(t *testing.T) {
	text, err := os.ReadFile("../docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(text), "\n## Surface\n")
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	sections := strings.Split(chapter, "\n### ")[1:]
	if len(sections) < 17 {
		t.Errorf("%d codes", len(sections))
	}
	for _, section := range sections {
		code, rest, _ := strings.Cut(section, "\n")
		t.Run(code, func(t *testing.T) {
			_, example, ok := strings.Cut(rest, "```jsonl\n")
			if !ok {
				t.Fatal("no example")
			}
			example, _, _ = strings.Cut(example, "\n```")
			rows := strings.Split(example, "\n")
			h, d, err := session.ParseHeader([]byte(rows[0]))
			if err != nil {
				t.Fatal(err)
			}
			var opts []surface.Option
			if code == string(surface.CodeProjectionMissing) {
				opts = append(opts, surface.WithProjections())
			}
			r := newRestored(h, d, opts...)
			for i, row := range rows[1:] {
				var ev session.Event
				if err := session.DecodeEvent(d, nil, []byte(row), &ev); err != nil {
					t.Fatalf("row %d: %v", i+2, err)
				}
				err := r.admit(ev)
				var broken *session.InvariantError
				if last := i == len(rows)-2; last != (err != nil) || last && (!errors.As(err, &broken) || string(broken.Code) != code) {
					t.Errorf("row %d: %v", i+2, err)
				}
			}
		})
	}
}
