package session

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// tally runs the cases of one conformance table and tells at its end what became
// of them.
type tally struct {
	table                 string
	cases, passed, listed int
	why                   map[string]string // the cases that do not run
}

func newTally(t *testing.T, table string) *tally {
	c := &tally{table: table, why: notRun(t, table)}
	t.Cleanup(func() {
		t.Logf("table %s: %d cases, %d passed, %d listed", table, c.cases, c.passed, c.listed)
		if strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
			return // not all cases have run
		}
		for id := range c.why {
			t.Errorf("docs/conformance.md lists %s, which the table does not have", id)
		}
	})
	return c
}

// run runs a case, unless it is listed as one that does not.
func (c *tally) run(t *testing.T, id string, f func(t *testing.T)) {
	t.Helper()
	c.cases++
	if why, listed := c.why[id]; listed {
		delete(c.why, id)
		c.listed++
		t.Run(id, func(t *testing.T) { t.Skip("listed: " + why) })
		return
	}
	if t.Run(id, f) {
		c.passed++
	}
}

// notRun reads the list of cases that do not run.
func notRun(t *testing.T, table string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for line := range strings.Lines(string(text)) {
		id, ok := strings.CutPrefix(line, "| `"+table+"/")
		if id, why, cell := strings.Cut(id, "` | "); ok && cell {
			list[id] = strings.TrimSuffix(strings.TrimSpace(why), " |")
		}
	}
	return list
}
