package session

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ledgers lists the real ledger files that are plain JSON lines.
func ledgers(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob(shared(t, "dsh", "v*", "*.jsonl"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no ledgers: %v", err)
	}
	return all
}

func TestTraceAcceptsEveryRealLedger(t *testing.T) {
	for _, path := range ledgers(t) {
		rel, _ := filepath.Rel(shared(t, "dsh"), path)
		t.Run(filepath.ToSlash(rel), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			h, d, events := readLedger(t, raw)
			trace := NewTrace(h, d, nil)
			for i := range events {
				err := Admit(&events[i], trace)
				if strings.HasSuffix(path, filepath.Join("v3", "native-v3-restart.jsonl")) {
					var broken *InvariantError
					if errors.As(err, &broken) && broken.Code == CodeTurnOpen {
						return // refused by name, as the reference's restorer does
					}
					if i == len(events)-1 {
						t.Fatal("a turn that starts inside another one was accepted")
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if trace.NextSeq() != int64(len(events)) {
				t.Errorf("next seq is %d after %d events", trace.NextSeq(), len(events))
			}
		})
	}
}

func TestRowsAreWrittenBackByteForByte(t *testing.T) {
	for _, path := range ledgers(t) {
		rel, _ := filepath.Rel(shared(t, "dsh"), path)
		t.Run(filepath.ToSlash(rel), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rows := lines(raw)
			h, d, err := ParseHeader(rows[0])
			if err != nil {
				t.Fatal(err)
			}
			if got := string(AppendHeader(nil, h)); got != string(rows[0]) {
				t.Errorf("header is written as\n%s\nwant\n%s", got, rows[0])
			}
			dec := NewDecoder(d, nil)
			for i, row := range rows[1:] {
				var ev Event
				run, err := dec.Decode(row, &ev)
				if err != nil {
					t.Fatalf("row %d: %v", i+2, err)
				}
				if run != nil {
					continue
				}
				if got := AppendEvent(nil, d, &ev); string(got) != string(row) {
					t.Fatalf("row %d is written as\n%.300s\nwant\n%.300s", i+2, got, row)
				}
			}
		})
	}
}
