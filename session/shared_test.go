package session

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// shared finds ../shared beside the module and skips the test where it is not.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if info, err := os.Stat(filepath.Join(dir, "shared", "data")); err == nil && info.IsDir() {
			return filepath.Join(append([]string{dir, "shared", "data"}, elem...)...)
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("the shared data is not beside this module; its tables and ledgers are not part of the project")
		}
		dir = up
	}
}

// table reads one conformance table into v.
func table(t testing.TB, name string, v any) {
	t.Helper()
	raw, err := os.ReadFile(shared(t, "conformance", "session", name+"-cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// fixture reads a file that a table names by its path in the tables' own
// repository.
func fixture(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(shared(t, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// lines splits bytes into lines without their line feeds; a tail without one
// is left out.
func lines(raw []byte) [][]byte {
	var out [][]byte
	for {
		i := bytes.IndexByte(raw, '\n')
		if i < 0 {
			return out
		}
		out = append(out, raw[:i])
		raw = raw[i+1:]
	}
}

func dialect(t testing.TB, version int) *Dialect {
	t.Helper()
	d, err := DialectOf(version)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// readLedger decodes a whole ledger file in memory, packed rows expanded.
func readLedger(t testing.TB, raw []byte) (*Header, *Dialect, []Event) {
	t.Helper()
	rows := lines(raw)
	h, d, err := ParseHeader(rows[0])
	if err != nil {
		t.Fatal(err)
	}
	dec := NewDecoder(d, nil)
	var events []Event
	for i, row := range rows[1:] {
		var ev Event
		run, err := dec.Decode(row, &ev)
		if err != nil {
			t.Fatalf("row %d: %v", i+2, err)
		}
		if run == nil {
			events = append(events, ev.Clone())
			continue
		}
		for run.Next(&ev) {
			events = append(events, ev.Clone())
		}
	}
	return h, d, events
}
