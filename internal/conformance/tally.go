// Package conformance runs the case tables of a second implementation of the
// ledger in tests, and keeps them to docs/conformance.md, which lists the cases
// that do not run and why.
package conformance

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tally runs the cases of one table and tells at its end what became of them.
type Tally struct {
	table                 string
	cases, passed, listed int
	parts                 int               // listed parts of cases that do run
	why                   map[string]string // the cases and parts that do not run
}

// New returns the tally of a table. A case that is listed and not in the table is
// an error, unless only some of the cases were asked for.
func New(t *testing.T, table string) *Tally {
	t.Helper()
	c := &Tally{table: table, why: notRun(t, table)}
	t.Cleanup(func() {
		t.Logf("table %s: %d cases, %d passed, %d listed, %d parts of cases listed", table, c.cases, c.passed, c.listed, c.parts)
		if strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
			return // not all cases have run
		}
		for id := range c.why {
			t.Errorf("docs/conformance.md lists %s, which the table does not have", id)
		}
	})
	return c
}

// Run runs a case, unless it is listed as one that does not.
func (c *Tally) Run(t *testing.T, id string, f func(t *testing.T)) {
	t.Helper()
	c.cases++
	if c.skips(t, id, id) {
		c.listed++
		return
	}
	if t.Run(id, f) {
		c.passed++
	}
}

// Part runs a part of a case, unless it is listed.
func (c *Tally) Part(t *testing.T, id, name string, f func(t *testing.T)) {
	t.Helper()
	if c.skips(t, id+"/"+name, name) {
		c.parts++
		return
	}
	t.Run(name, f)
}

// skips tells whether something is listed, and shows it as skipped then.
func (c *Tally) skips(t *testing.T, id, name string) bool {
	t.Helper()
	why, listed := c.why[id]
	if listed {
		delete(c.why, id)
		t.Run(name, func(t *testing.T) { t.Skip("listed: " + why) })
	}
	return listed
}

// notRun reads the list of cases that do not run.
func notRun(t *testing.T, table string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", "conformance.md"))
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

// moduleRoot is the folder above a package's test that has go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}
