package audit

import (
	"os"
	"regexp"
	"testing"
)

// Scripts go by the kinds: docs/troubleshooting.md has each of them, on the right side.
func TestKindsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("audit.go")
	if err != nil {
		t.Fatal(err)
	}
	parts := regexp.MustCompile(`(?s)## What an audit finds\n(.*?)These are told, (.*?)\n## `).FindSubmatch(page)
	kinds := regexp.MustCompile(`Kind += "([a-z-]+)"`).FindAllSubmatch(source, -1)
	if parts == nil || len(kinds) < 20 {
		t.Fatalf("the page has no such section, or there are only %d kinds", len(kinds))
	}
	for _, k := range kinds {
		inRow := regexp.MustCompile("(?m)^\\|[^|]*`" + string(k[1]) + "`[^|]*\\|")
		if fatal := Kind(k[1]).Fatal(); inRow.Match(parts[1]) != fatal || inRow.Match(parts[2]) == fatal {
			t.Errorf("%s is not in its table", k[1])
		}
	}
}
