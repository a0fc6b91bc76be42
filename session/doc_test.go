package session

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// page reads docs/invariants.md into its sections by code: the rows of the
// example, empty where there is none.
func page(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("../docs/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]string{}
	for _, part := range strings.Split(string(raw), "\n### ")[1:] {
		code, text, _ := strings.Cut(part, "\n")
		var rows []string
		if _, example, ok := strings.Cut(text, "```jsonl\n"); ok {
			example, _, _ = strings.Cut(example, "\n```")
			rows = strings.Split(example, "\n")
		}
		sections[code] = rows
	}
	return sections
}

func TestEveryCodeIsDocumented(t *testing.T) {
	sections := page(t)
	declared := map[string]bool{}
	for _, file := range []string{"errors.go", "relations.go", "ledger.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`Code\w+ +Code = "([^"]+)"`).FindAllStringSubmatch(string(src), -1) {
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
	for code, rows := range page(t) {
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
