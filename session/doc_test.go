package session

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// section explains one code: the heading that it stands under, and the rows of
// its example, if it has one.
type section struct {
	chapter string
	rows    []string
}

// page reads docs/invariants.md into its sections by code.
func page(t *testing.T) map[string]section {
	t.Helper()
	raw, err := os.ReadFile("../docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]section{}
	for _, chapter := range strings.Split(string(raw), "\n## ")[1:] {
		name, _, _ := strings.Cut(chapter, "\n")
		for _, part := range strings.Split(chapter, "\n### ")[1:] {
			code, text, _ := strings.Cut(part, "\n")
			s := section{chapter: name}
			if _, example, ok := strings.Cut(text, "```jsonl\n"); ok {
				example, _, _ = strings.Cut(example, "\n```")
				s.rows = strings.Split(example, "\n")
			}
			if _, twice := sections[code]; twice {
				t.Errorf("docs/invariants.md explains %s twice", code)
			}
			sections[code] = s
		}
	}
	return sections
}

func TestEveryCodeIsDocumented(t *testing.T) {
	sections := page(t)
	declared := map[string]bool{}
	for _, file := range []string{"errors.go", "relations.go", "ledger.go", "jsonl/errors.go", "../surface/errors.go", "../cmd/otel-bridge/internal/cli/verify.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^\s+[Cc]ode\w+ +(?:session\.)?Code += "([^"]+)"`).FindAllStringSubmatch(string(src), -1)
		if len(found) == 0 {
			t.Errorf("%s declares no code", file)
		}
		for _, m := range found {
			declared[m[1]] = true
			if _, ok := sections[m[1]]; !ok {
				t.Errorf("docs/invariants.md does not explain %s", m[1])
			}
		}
	}
	for code := range sections {
		if !declared[code] {
			t.Errorf("docs/invariants.md explains %s, which nothing declares", code)
		}
	}
}

func TestDocumentedExamplesAreRefusedWithTheirCode(t *testing.T) {
	for code, section := range page(t) {
		rows := section.rows
		switch section.chapter {
		case "Surface", "Files":
			continue // held to it by the packages that refuse
		}
		if len(rows) == 0 {
			continue
		}
		t.Run(code, func(t *testing.T) {
			h, d, err := ParseHeader([]byte(rows[0]))
			if len(rows) == 1 {
				var shape *HeaderError
				if !errors.As(err, &shape) || string(shape.Code) != code {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			strict := NewTrace(h, d, nil, WithStrict())
			lenient := NewTrace(h, d, nil)
			for i, row := range rows[1:] {
				var ev Event
				var row0 error
				run, err := NewDecoder(d, nil).Decode([]byte(row), &ev)
				if err == nil && run == nil {
					row0 = Admit(&ev, lenient)
					err = Admit(&ev, strict)
				}
				if last := i == len(rows)-2; !last {
					if err != nil {
						t.Fatalf("row %d is refused before the last one: %v", i+2, err)
					}
					continue
				}
				var broken *InvariantError
				var decode *DecodeError
				switch {
				case errors.As(err, &decode) && string(decode.Code) == code:
				case errors.As(err, &broken) && string(broken.Code) == code:
					if relation := isRelation(broken.Code); relation != (row0 == nil) {
						t.Errorf("without the strict profile: %v", row0)
					}
				default:
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// isRelation tells the codes that only the strict profile has.
func isRelation(c Code) bool {
	switch c {
	case CodeData, CodeCallAdvertised, CodeCallNotAdvertised, CodeCallUnresolved, CodeResultNotAdvertised, CodeRepairInexact,
		CodeSurfaceSpan, CodeSurfaceSources, CodeSystemHead, CodeRetry, CodeRetryChain, CodeRetryStarted, CodeDispatch, CodeTitle,
		CodeCommand, CodeDelivery, CodeCompaction, CodeCompactionSpan, CodeCatalog, CodeDeveloperHeader:
		return true
	}
	return false
}
