// Package archtest holds the check that keeps the import arrows of
// ARCHITECTURE.md true. It has no code of its own.
package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/otel-bridge/otel-bridge"

// allowed lists, for each package of the library, which packages of this module
// its non-test code may import, itself and its folder's children aside. A
// package that is not listed here fails the test, so that a new one gets its
// place on the map first.
var allowed = map[string][]string{
	"session":          {},
	"session/jsonl":    {"session"},
	"surface":          {"session"},
	"redact":           {},
	"redact/secrets":   {"redact"},
	"redact/pii":       {"redact"},
	"telemetry/outbox": {},
	"telemetry":        {"session", "session/jsonl", "surface", "redact", "telemetry/outbox"},
	"telemetry/otlp":   {"telemetry", "telemetry/outbox"},
}

// onlyIn lists modules that exactly one package may bring in, since they are
// heavy or have effects at start.
var onlyIn = map[string]string{
	"github.com/zricethezav/gitleaks": "redact/secrets",
}

func TestImportsFollowTheArrows(t *testing.T) {
	for pkg, imports := range moduleImports(t) {
		if exempt(pkg) {
			continue
		}
		may, listed := allowed[pkg]
		if !listed {
			t.Errorf("package %s has no place on the map: add it to ARCHITECTURE.md and to this test", pkg)
			continue
		}
		for _, imp := range imports {
			own, isOwn := strings.CutPrefix(imp, module+"/")
			if isOwn && !slices.Contains(may, own) && !sharesTree(pkg, own) {
				t.Errorf("%s imports %s, which is against the arrows", pkg, own)
			}
		}
	}
}

func TestHeavyModulesStayWhereTheyBelong(t *testing.T) {
	for pkg, imports := range moduleImports(t) {
		for _, imp := range imports {
			for mod, home := range onlyIn {
				if strings.HasPrefix(imp, mod) && pkg != home {
					t.Errorf("%s imports %s, which only %s may", pkg, imp, home)
				}
			}
		}
	}
}

func TestLibraryKnowsNothingOfTheProgram(t *testing.T) {
	for pkg, imports := range moduleImports(t) {
		if strings.HasPrefix(pkg, "cmd/") {
			continue
		}
		for _, imp := range imports {
			if strings.HasPrefix(imp, module+"/cmd/") {
				t.Errorf("%s imports %s", pkg, imp)
			}
		}
	}
}

// exempt are the packages above the library: the program, the examples, and
// what only tests and the program share.
func exempt(pkg string) bool {
	for _, top := range []string{"cmd/", "examples", "internal/"} {
		if strings.HasPrefix(pkg, top) {
			return true
		}
	}
	return strings.Contains(pkg, "/internal/")
}

// sharesTree reports whether imp is an internal package of the tree that pkg
// belongs to, such as redact/internal/shape for redact/pii.
func sharesTree(pkg, imp string) bool {
	root, _, internal := strings.Cut(imp, "/internal/")
	return internal && (pkg == root || strings.HasPrefix(pkg, root+"/"))
}

func moduleImports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[strings.TrimPrefix(fields[0], module+"/")] = fields[1:]
	}
	if len(all) < len(allowed) {
		t.Fatalf("go list names %d packages, fewer than the %d on the map", len(all), len(allowed))
	}
	return all
}
