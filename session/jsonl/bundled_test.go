package jsonl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The bundled files do a little of what the shared ones do at length.
func TestBundledSessionsReadAndRecover(t *testing.T) {
	ledgers, err := Discover(filepath.Join("testdata", "lab"))
	if err != nil || len(ledgers) < 15 {
		t.Fatal(len(ledgers), err)
	}
	for _, l := range ledgers {
		name := filepath.Base(l.Path)
		t.Run(name, func(t *testing.T) {
			evs, r, err := readAll(l.Path)
			var corrupt *CorruptError
			if strings.Contains(name, "corrupt") || strings.Contains(name, "bitflip") {
				if !errors.As(err, &corrupt) {
					t.Fatalf("%v", err)
				}
				return
			}
			if err != nil || len(evs) == 0 {
				t.Fatal(len(evs), err)
			}
			if err := trace(r, evs); err != nil {
				t.Error(err)
			}
			live, err := OpenLive(l.Path, Position{})
			if err != nil {
				t.Fatal(err)
			}
			defer live.Close()
			if got := drain(t, live); len(got) != len(evs) {
				t.Errorf("the live reader gave %d events, want %d", len(got), len(evs))
			}
			n, err := InheritedCount(l.Path)
			if err != nil || n != r.InheritedCount() || (n > 0) != strings.Contains(name, "fork") {
				t.Errorf("%d inherited, looking ahead %d, %v", r.InheritedCount(), n, err)
			}
		})
	}
	for torn, repaired := range map[string]string{
		"torn-raw-halfline.v0.jsonl":            "torn-repaired-subagent-child.v0.jsonl",
		"torn-zstd-cut-lastframe.v0.jsonl.zstd": "torn-repaired-multiturn.v0.jsonl.zstd",
	} {
		data, err := os.ReadFile(filepath.Join("testdata", "lab", torn))
		if err != nil {
			t.Fatal(err)
		}
		path := write(t, "session.jsonl", data)
		if _, err := Recover(path); err != nil {
			t.Fatal(err)
		}
		if got, want := textOf(t, path), textOf(t, filepath.Join("testdata", "lab", repaired)); !bytes.HasPrefix(want, got) || len(got) < len(want)/2 {
			t.Errorf("%s recovers to %d bytes, want a prefix of %d", torn, len(got), len(want))
		}
	}
}
