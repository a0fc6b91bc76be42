package jsonl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// text gives the decoded text of a file.
func textOf(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, zstdMagic) {
		return data
	}
	parts, err := readFrames(data, DefaultMaxWindow)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join(parts, nil)
}

// The repaired partners were made by the real recovery; a raw one has one more
// turn behind it.
func TestTornFilesRecoverToTheirPartners(t *testing.T) {
	dir := shared(t, "data", "dsh")
	for _, c := range []struct {
		torn, repaired string
		closers        int
	}{
		{"torn/raw-halfline.v0.jsonl", "torn/repaired-subagent-child.v0.jsonl", 1},
		{"torn/zstd-cut-lastframe.v0.jsonl.zstd", "torn/repaired-multiturn.v0.jsonl.zstd", 0},
		{"v0/lab-openturn.jsonl", "torn/repaired-openturn.v0.jsonl", 3},
		{"v0/lab-fork.jsonl", "torn/repaired-fork.v0.jsonl", 0},
	} {
		t.Run(filepath.Base(c.torn), func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, c.torn))
			if err != nil {
				t.Fatal(err)
			}
			path := write(t, "session.jsonl", data)
			rec, err := Inspect(path)
			if err != nil {
				t.Fatal(err)
			}
			if now, _ := os.ReadFile(path); !bytes.Equal(now, data) {
				t.Fatal("inspecting changed the file")
			}
			if len(rec.Closers) != c.closers {
				t.Errorf("%d closers, want %d", len(rec.Closers), c.closers)
			}
			for range 2 {
				if _, err := Recover(path); err != nil {
					t.Fatal(err)
				}
				got, want := textOf(t, path), textOf(t, filepath.Join(dir, c.repaired))
				rest, ok := bytes.CutPrefix(want, got)
				if !ok || len(rest) > 0 && !bytes.HasPrefix(rest, []byte(`{"type":"session/end-seed"`)) {
					t.Fatalf("recovered to\n%s\nwant\n%s", got, want)
				}
			}
			evs, r, err := readAll(path)
			if err != nil || r.Tail().Torn() {
				t.Fatal(err)
			}
			if err := trace(r, evs); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFilesThatRecoveryRefuses(t *testing.T) {
	dir := shared(t, "data", "dsh", "torn")
	for name, want := range map[string]session.Code{
		"raw-corrupt-committed.v0.jsonl": session.CodeRowJSON,
		"zstd-bitflip-mid.v0.jsonl.zstd": "",
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		path := write(t, "session.jsonl", data)
		_, err = Recover(path)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || want != "" && corrupt.Code != want || corrupt.Row < 2 || corrupt.Offset == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, data) {
			t.Errorf("%s was changed", name)
		}
	}
}

// The open turn with a call that had started, cut in the middle of its result.
func TestRecoveryClosesAnOpenTurn(t *testing.T) {
	data, err := os.ReadFile(shared(t, "data", "dsh", "torn", "raw-openturn-halfline.v0.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, "session.jsonl", data)
	rec, err := Recover(path)
	if err != nil {
		t.Fatal(err)
	}
	evs, r, err := readAll(path)
	if err != nil || r.Tail().Torn() || trace(r, evs) != nil {
		t.Fatal(err, trace(r, evs))
	}
	var got []string
	for _, ev := range evs[rec.Events:] {
		got = append(got, ev.Type)
		if ev.Time != evs[rec.Events-1].Time {
			t.Error("a closer has a time of its own")
		}
	}
	if len(got) != 3 || got[0] != "tool/result" || got[1] != "step/end" || got[2] != "turn/end" {
		t.Errorf("%v", got)
	}
	if res := r.Dialect().ToolResult(evs[rec.Events].Data); res.ErrorCode() != "TOOL_OUTCOME_UNKNOWN" {
		t.Error(res.ErrorCode())
	}
}

// Whatever is cut off a file, recovery leaves one that reads whole, goes on and
// keeps every row that was whole.
func TestRecoveryAfterACutAnywhere(t *testing.T) {
	full := mixed()
	for name, file := range map[string][]byte{"raw": full, "zstd": frames(t, full, 2), "big frame": bigFrame(t)} {
		t.Run(name, func(t *testing.T) {
			step := 1 + len(file)/60
			for cut := 1; cut < len(file); cut += step {
				path := write(t, "session.jsonl", file[:cut])
				before, _, err := readAll(path)
				if errors.Is(err, ErrHeaderIncomplete) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				rec, err := Recover(path)
				if err != nil {
					t.Fatal(cut, err)
				}
				after, r, err := readAll(path)
				if err != nil || r.Tail().Torn() || len(after) != len(before)+len(rec.Closers) {
					t.Fatal(cut, err, len(before), len(after))
				}
				if err := same(after[:len(before)], before); err != nil {
					t.Fatal(cut, err)
				}
				w, err := OpenWriter(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(w.Append(event(len(after), "a/b", `{}`)), w.Close()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func bigFrame(t *testing.T) []byte {
	text := []byte(headerV0)
	for i := range 4_000 {
		text = append(text, rowOf(i)...)
	}
	return frames(t, text, 1<<30)
}

// A complete frame was acknowledged to the session: nothing of it is dropped.
func TestRecoveryRefusesABadRowInACompleteFrame(t *testing.T) {
	file := frames(t, []byte(headerV0+rowOf(0)+rowOf(1)+"{\n"+rowOf(2)), 10)
	path := write(t, "session.jsonl", file)
	var corrupt *CorruptError
	if _, err := Recover(path); !errors.As(err, &corrupt) || corrupt.Row != 4 || corrupt.Code != session.CodeRowJSON {
		t.Errorf("%v", err)
	}
	if now, _ := os.ReadFile(path); !bytes.Equal(now, file) {
		t.Error("the file was changed")
	}
}
