//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// The tests named by a number are cases that users of comparable programs have
// reported, each with its neighbours, over the real program.

// message is a row of a user's message, of a turn that is open.
func message(seq, turn int, text string) string {
	return fmt.Sprintf(`{"type":"user/message","seq":%d,"time":1796031738743,"data":{"content":[{"type":"text","text":"%s"}],"source":{"kind":"user"},"role":"user","id":"m%d"},"surfaceOp":"append"}`+"\n", seq, text, seq)
}

func turnStart(seq, turn int) string {
	return fmt.Sprintf(`{"type":"turn/start","seq":%d,"time":1796031738742,"data":{"turn":%d}}`+"\n", seq, turn)
}

func turnEnd(seq, turn int) string {
	return fmt.Sprintf(`{"type":"turn/end","seq":%d,"time":1796031738744,"data":{"turn":%d,"reason":{"kind":"completed"}}}`+"\n", seq, turn)
}

// frame is one zstd frame as DSH writes it: checksum, no content size.
func frame(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(2<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A line of 15 MB and one of 100 MB among short ones: the first is whole for the
// engine and cut to a record's size after it, of the second the envelope goes out.
// A line beyond the limit without an envelope holds its ledger.
func TestA01LongLines(t *testing.T) {
	unit, settings := 1<<20, []string(nil)
	if raceDetector {
		unit, settings = 64<<10, []string{"max_line_bytes: 1MiB", "max_record_bytes: 64KiB"}
	}
	r := newRig(t, settings...)
	words := func(n int) string { return strings.Repeat("a long line ", n/12) }
	r.write(r.path("long"), head("long"), turnStart(0, 1),
		message(1, 1, words(15*unit)), message(2, 1, words(100*unit)), message(3, 1, "short"), turnEnd(4, 1))
	r.write(r.path("garbage"), head("garbage"), row(0, "before"), strings.Repeat("x", 20*unit), "\n", row(1, "behind"))
	r.write(r.path("packed"), head("packed"), turnStart(0, 1),
		`{"type":"text-chunks","seq0":1,"time0":10,"data":{"turn":1,"step":1,"index":0,"dt":[5,2],"texts":["a","b","`, words(20*unit), `"]}}`+"\n", turnEnd(4, 1))
	r.start()
	r.awaitEvents("long", 4)
	r.once("long", 4)
	for _, rec := range r.events("long") {
		switch seq := rec.Attrs["event.seq"].(int64); seq {
		case 1:
			if cut, _ := rec.Attrs["otel_bridge.cut"].(int64); cut < int64(15*unit-12) || rec.Attrs["otel_bridge.withheld"] != nil {
				t.Errorf("15 MB: cut from %d, withheld %v", cut, rec.Attrs["otel_bridge.withheld"])
			}
		case 2:
			if rec.Attrs["otel_bridge.withheld"] == nil || rec.Body != nil || rec.Attrs["event.type"] != "user/message" {
				t.Errorf("100 MB: %v, body %t", rec.Attrs, rec.Body != nil)
			}
		case 3:
			if rec.Attrs["otel_bridge.withheld"] != nil || rec.Attrs["surface.op"] != "append" {
				t.Errorf("the line behind: %v", rec.Attrs)
			}
		}
	}
	r.awaitMetric(`otel_bridge_sessions{state="held"}`, 2)
	r.once("garbage", 0)
	r.once("packed", 0)
	for _, session := range []string{"garbage", "packed"} {
		if r.ops("session.held", session) != 1 {
			t.Errorf("%s is not told as held", session)
		}
	}
	if peak := highWater(r.cmd.Process.Pid); !raceDetector && peak > memoryLimit {
		t.Errorf("%d MiB resident", peak>>20)
	}
	r.stop()
	r.audit(r.path("long"))
}

// A bad line in the middle: what stands before it goes out, the hold names file,
// row and code, nothing behind it goes out until it is mended, and others go on.
func TestA02BadLineInTheMiddle(t *testing.T) {
	bad := map[string]struct{ text, code string }{
		"json":   {`{"type":"session/title","seq":2,` + "\n", "row-json"},
		"gap":    {row(3, "x"), "seq-gap"},
		"packed": {`{"type":"text-chunks","seq0":2,"time0":10,"data":{"turn":1,"step":1,"index":0,"dt":[5,2,9],"texts":["a"]}}` + "\n", ""},
		"empty":  {"\n", ""},
	}
	r := newRig(t)
	for name, b := range bad {
		r.write(r.path(name), head(name), rows(0, 1), b.text, rows(3, 4))
	}
	r.write(filepath.Join(r.root, "q", "frame", "session.jsonl.zstd"), frame(t, head("frame")), frame(t, rows(0, 1)),
		frame(t, row(2, "in one frame with it")+bad["json"].text), frame(t, rows(3, 4)))
	// Bytes that are no UTF-8 are what the reference makes of them: U+FFFD.
	r.write(r.path("good"), head("good"), rows(0, 1), strings.Replace(row(2, "@"), "@", "\xff", 1), rows(3, 4))
	r.start()
	r.awaitEvents("good", 4)
	r.once("good", 4)
	if body, _ := r.events("good")[2].Body.(map[string]any); body["title"] != "\ufffd" {
		t.Errorf("not UTF-8: %q", body["title"])
	}
	r.awaitMetric(`otel_bridge_sessions{state="held"}`, float64(len(bad)+1))
	for name, b := range bad {
		r.awaitEvents(name, 1)
		r.once(name, 1)
		r.awaitLog(`session is held.*file=\S*` + name + `/session\.jsonl seq=2 code=` + b.code + `.*` + name + `/session\.jsonl: row 4`)
	}
	r.awaitEvents("frame", 2)
	r.once("frame", 2)
	if page := r.page("/healthz"); !strings.Contains(page, "5 sessions are held") {
		t.Errorf("health: %s", page)
	}
	// The writer cuts it off and goes on.
	for name := range bad {
		text := r.file(r.path(name))
		r.truncate(r.path(name), len(head(name)+rows(0, 1)))
		r.write(r.path(name), rows(2, 4))
		if len(text) == 0 {
			t.Fatal("nothing was there")
		}
	}
	for name := range bad {
		r.awaitEvents(name, 4)
		r.once(name, 4)
		if n := r.ops("session.diverged", name); n > 0 {
			t.Errorf("%s: %d divergences", name, n)
		}
	}
	r.awaitMetric(`otel_bridge_sessions{state="held"}`, 1)
	r.stop()
	r.audit(filepath.Join(r.root, "p"))
}

// A line, and a character in it, that comes in two pieces, cut at every byte: raw,
// and as a compressed frame.
func TestA03CutAtEveryByte(t *testing.T) {
	r := newRig(t)
	const text = "会话 😀 ends"
	line := row(1, text)
	compressed := frame(t, line)
	type split struct {
		session, path, first, rest string
	}
	var splits []split
	for i := range len(line) {
		s := fmt.Sprint("raw", i)
		splits = append(splits, split{s, r.path(s), head(s) + row(0, "first") + line[:i], line[i:]})
	}
	for i := range len(compressed) {
		s := fmt.Sprint("zstd", i)
		path := filepath.Join(r.root, "q", s, "session.jsonl.zstd")
		splits = append(splits, split{s, path, frame(t, head(s)) + frame(t, row(0, "first")) + compressed[:i], compressed[i:]})
	}
	for _, s := range splits {
		r.write(s.path, s.first)
	}
	r.start()
	for _, s := range splits {
		r.awaitEvents(s.session, 0)
		r.once(s.session, 0)
	}
	for _, s := range splits {
		r.write(s.path, s.rest)
	}
	for _, s := range splits {
		r.awaitEvents(s.session, 1)
		r.once(s.session, 1)
		if body, _ := r.events(s.session)[1].Body.(map[string]any); body["title"] != text {
			t.Errorf("%s: %v", s.session, body)
		}
	}
	r.stop()
	r.audit(r.root)
}

// A half line at SIGTERM, and over restarts, is completed later: it goes out once,
// whole, and no piece of it before.
func TestA04HalfLine(t *testing.T) {
	r := newRig(t)
	const secret = "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"
	line := row(1, "use "+secret+" now")
	half := strings.Index(line, secret) + len(secret)/2
	whole := frame(t, line)
	zpath := filepath.Join(r.root, "q", "zstd", "session.jsonl.zstd")
	r.write(r.path("raw"), head("raw"), row(0, "first"), line[:half])
	r.write(zpath, frame(t, head("zstd")), frame(t, row(0, "first")), whole[:len(whole)/2])
	for range 3 {
		r.start()
		r.awaitEvents("raw", 0)
		r.awaitEvents("zstd", 0)
		r.stop()
	}
	r.once("raw", 0)
	r.once("zstd", 0)
	r.write(r.path("raw"), line[half:])
	r.write(zpath, whole[len(whole)/2:])
	r.start()
	for _, session := range []string{"raw", "zstd"} {
		r.awaitEvents(session, 1)
		r.once(session, 1)
		if body, _ := r.events(session)[1].Body.(map[string]any); body["title"] != "use [REDACTED:github-pat] now" {
			t.Errorf("%s: %v", session, body)
		}
	}
	r.stop()
	if bytes.Contains([]byte(r.file(r.got)), []byte(secret[:len(secret)/2])) {
		t.Error("half of the secret went out")
	}
	r.audit(r.root)
}

// All frames are read; an unfinished one waits; a wrong checksum is corruption and
// says so; a frame that asks for much memory, or inflates without bound, does not
// get it.
func TestA05Zstd(t *testing.T) {
	r := newRig(t)
	at := func(s string) string { return filepath.Join(r.root, "p", s, "session.jsonl.zstd") }
	start := func(s string) string { return frame(t, head(s)) + frame(t, rows(0, 1)) }
	r.write(at("all"), start("all"), frame(t, row(2, "two")), frame(t, rows(3, 4)))
	last := frame(t, row(2, "late"))
	r.write(at("unfinished"), start("unfinished"), last[:len(last)-1])
	flipped := []byte(frame(t, row(2, "never words")))
	flipped[len(flipped)-1] ^= 1
	r.write(at("checksum"), start("checksum"), string(flipped), frame(t, row(3, "never words")))
	// A window of 1 GiB (descriptor 20<<3), one raw block.
	window := binary.LittleEndian.AppendUint32(nil, 0xFD2FB528)
	window = append(window, 0, 20<<3, 1|1<<3, 0, 0, 'x')
	r.write(at("window"), start("window"), string(window))
	size := memoryLimit + memoryLimit/4
	if raceDetector {
		size = 32 << 20
	}
	r.write(at("bomb"), start("bomb"), frame(t, row(2, strings.Repeat("0", size))), frame(t, row(3, "behind")))
	r.write(at("bomb without a line"), start("bomb without a line"), frame(t, strings.Repeat("0", size)+"\n"))
	r.start()
	r.awaitEvents("all", 4)
	r.once("all", 4)
	r.awaitEvents("unfinished", 1)
	r.awaitLog(`session is held.*checksum/session\.jsonl\.zstd seq=2 code=zstd-checksum`)
	r.awaitLog(`session is held.*window/session\.jsonl\.zstd seq=2 code=zstd-window`)
	r.awaitLog(`session is held.*bomb without a line/session\.jsonl\.zstd.* seq=2 code=`)
	r.awaitEvents("bomb", 3)
	r.once("bomb", 3)
	for _, rec := range r.events("bomb") {
		if rec.Attrs["event.seq"] == int64(2) && (rec.Attrs["otel_bridge.withheld"] == nil || rec.Body != nil) {
			t.Errorf("bomb: %v", rec.Attrs)
		}
	}
	for _, session := range []string{"unfinished", "checksum", "window", "bomb without a line"} {
		r.once(session, 1)
	}
	r.write(at("unfinished"), last[len(last)-1:])
	r.awaitEvents("unfinished", 2)
	if peak := highWater(r.cmd.Process.Pid); !raceDetector && peak > memoryLimit {
		t.Errorf("%d MiB resident", peak>>20)
	}
	r.stop()
	r.audit(at("all"), at("unfinished"), at("bomb"))
}

// A format version that this build does not know is refused by name and number,
// in log, health and metrics, alone or beside an older file that was captured.
func TestA06UnknownVersion(t *testing.T) {
	r := newRig(t)
	nine := `{"type":"session","version":9,"id":"%s","createdAt":1,"delegationDepth":0}` + "\n"
	r.write(filepath.Join(r.root, "p", "alone", "session.v9.jsonl"), fmt.Sprintf(nine, "alone"), row(0, "never words"))
	r.write(r.path("beside"), head("beside"), rows(0, 1))
	r.start()
	r.awaitEvents("beside", 1)
	r.write(filepath.Join(r.root, "p", "beside", "session.v9.jsonl"), fmt.Sprintf(nine, "beside"), row(0, "never words"))
	r.write(r.path("good"), head("good"), rows(0, 1))
	r.awaitEvents("good", 1)
	r.awaitLog(`session is held.*alone/session\.v9\.jsonl.* code=version .*version 9`)
	r.awaitLog(`session is held.*beside/session\.v9\.jsonl.* code=version .*version 9`)
	r.awaitMetric(`otel_bridge_sessions{state="held"}`, 2)
	if page := r.page("/healthz"); !strings.Contains(page, "2 sessions are held") {
		t.Errorf("health: %s", page)
	}
	r.write(r.path("good"), rows(2, 3))
	r.awaitEvents("good", 3)
	r.poll("session.held is told", func() bool { return r.ops("session.held", "") >= 1 })
	r.once("beside", 1)
	r.stop()
	if strings.Contains(r.file(r.got), "never words") {
		t.Error("an event of an unknown version went out")
	}
}

// A resumed session: the torn tail is cut, closers follow, a new turn begins, while
// the program runs and while it does not, raw and compressed.
func TestA07Resumed(t *testing.T) {
	open := r07(t)
	for _, live := range []bool{true, false} {
		for _, compressed := range []bool{false, true} {
			t.Run(fmt.Sprintf("live %t zstd %t", live, compressed), func(t *testing.T) {
				r := newRig(t)
				path := r.path("lab-openturn")
				text, torn := open, `{"type":"tool/result","seq":24,"time":17960317`
				if compressed {
					path += ".zstd"
					header, rest, _ := strings.Cut(open, "\n")
					text, torn = frame(t, header+"\n")+frame(t, rest), frame(t, row(24, "lost"))
					torn = torn[:len(torn)/2]
				}
				r.write(path, text, torn)
				r.start()
				r.awaitEvents("lab-openturn", 23)
				before := len(r.events("lab-openturn"))
				if !live {
					r.stop()
				}
				if _, err := jsonl.Recover(path); err != nil {
					t.Fatal(err)
				}
				w, err := jsonl.OpenWriter(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				next := ledgerEvents(t, path)
				turn := turnStart(next, 2) + message(next+1, 2, "go on") + turnEnd(next+2, 2)
				if compressed {
					turn = frame(t, turn)
				}
				r.write(path, turn)
				if !live {
					r.start()
				}
				r.awaitEvents("lab-openturn", int64(next+2))
				got := r.seqs("lab-openturn")
				if len(slices.Compact(slices.Clone(got))) != len(got) {
					t.Errorf("something came twice: %v", got)
				}
				if n := r.ops("session.diverged", ""); n > 0 {
					t.Errorf("%d divergences", n)
				}
				// What DSH appends is real: it says itself that it closes what was open.
				closers := 0
				for _, rec := range r.events("lab-openturn")[before:] {
					body, err := json.Marshal(rec.Body)
					if err != nil {
						t.Fatal(err)
					}
					if bytes.Contains(body, []byte("TOOL_OUTCOME_UNKNOWN")) || bytes.Contains(body, []byte("TOOL_NOT_STARTED")) || bytes.Contains(body, []byte(`"interrupted"`)) {
						closers++
					}
				}
				if closers < 2 {
					t.Errorf("%d closers say what they are", closers)
				}
				r.stop()
				r.audit(path)
			})
		}
	}
}

// r07 is a session whose turn and tool call are open.
func r07(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "sessions", "lab-openturn.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func ledgerEvents(t *testing.T, path string) (n int) {
	t.Helper()
	led, err := jsonl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer led.Close()
	for led.Next() {
		n++
	}
	if led.Err() != nil {
		t.Fatal(led.Err())
	}
	return n
}

// The inode of a removed session is given to the next one: that starts at its
// beginning. So does another session under the same name, in the same inode.
func TestA08InodeReuse(t *testing.T) {
	r := newRig(t)
	inode := func(path string) uint64 {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Ino
	}
	// While it does not run: the outbox has a cursor of the first.
	r.write(r.path("first"), head("first"), rows(0, 9))
	r.start()
	r.awaitEvents("first", 9)
	r.stop()
	old := inode(r.path("first"))
	if err := os.RemoveAll(filepath.Dir(r.path("first"))); err != nil {
		t.Fatal(err)
	}
	reused := false
	var sessions []string
	for i := range 50 {
		s := fmt.Sprint("next", i)
		sessions = append(sessions, s)
		r.write(r.path(s), head(s), rows(0, 9))
		if reused = inode(r.path(s)) == old; reused {
			break
		}
	}
	t.Logf("the inode was given again: %t", reused)
	r.start()
	for _, s := range sessions {
		r.awaitEvents(s, 9)
		r.once(s, 9)
	}
	// In place, while it runs: the same inode for certain; shorter, as long, longer.
	for i, n := range []int{4, 9, 20} {
		s := fmt.Sprint("place", i)
		path := r.path(sessions[0])
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(head(s) + rows(0, n)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		r.awaitEvents(s, int64(n))
		r.once(s, int64(n))
	}
	// Renamed over it: another inode under the same name.
	r.write(filepath.Join(r.dir, "new"), head("over"), rows(0, 5))
	r.rename(filepath.Join(r.dir, "new"), r.path(sessions[0]))
	r.awaitEvents("over", 5)
	r.once("over", 5)
	r.stop()
}

// copytruncate: the ledger without its header line is held by name; the copy, if it
// lies in the root, is the same session, gives what the original had not given yet,
// and nothing goes out twice.
func TestA09Copytruncate(t *testing.T) {
	for _, place := range []string{"another session's directory", "the session's directory", "outside"} {
		t.Run(place, func(t *testing.T) {
			r := newRig(t)
			path := r.path("s")
			r.write(path, head("s"), rows(0, 4))
			r.start()
			r.awaitEvents("s", 4)
			copied := map[string]string{
				"another session's directory": r.path("copy"), "the session's directory": path + ".1", "outside": filepath.Join(r.dir, "s.1"),
			}[place]
			r.write(copied, r.file(path))
			r.write(r.path("other"), head("other"), rows(0, 0))
			r.awaitEvents("other", 0) // the copy was looked at
			r.truncate(path, 0)
			r.write(path, rows(5, 6))
			r.awaitLog(`session is held.*/s/session\.jsonl seq=\d+ code=header`)
			r.awaitMetric(`otel_bridge_sessions{state="held"}`, 1)
			if place == "another session's directory" {
				r.write(copied, rows(5, 7))
				r.awaitEvents("s", 7)
				r.once("s", 7)
			} else {
				r.once("s", 4)
			}
			// It stays so over a restart.
			r.stop()
			r.start()
			r.awaitMetric(`otel_bridge_sessions{state="held"}`, 1)
			r.write(r.path("other"), rows(1, 1))
			r.awaitEvents("other", 1)
			r.stop()
			if place == "another session's directory" {
				r.once("s", 7)
			} else {
				r.once("s", 4)
			}
			if n := r.ops("session.diverged", ""); n > 0 {
				t.Errorf("%d divergences", n)
			}
		})
	}
}

// A file is renamed, or removed, while its writer has it open: it is read to its
// end, whatever has its name then.
func TestA10RenamedWhileOpen(t *testing.T) {
	for name, move := range map[string]func(r *rig, path string){
		"in its directory":   func(r *rig, path string) { r.rename(path, path+".1") },
		"out of the root":    func(r *rig, path string) { r.rename(path, filepath.Join(r.dir, "old")) },
		"removed":            func(r *rig, path string) { r.rename(path, path+".1"); _ = os.Remove(path + ".1") },
		"with its directory": func(r *rig, path string) { r.rename(filepath.Dir(path), filepath.Join(r.root, "moved", "s")) },
		"directory out of the root": func(r *rig, path string) {
			r.rename(filepath.Dir(path), filepath.Join(r.dir, "moved"))
		},
		"another session has its name": func(r *rig, path string) {
			r.write(filepath.Join(r.dir, "new"), head("other"), rows(0, 3))
			r.rename(path, path+".1")
			r.rename(filepath.Join(r.dir, "new"), path)
		},
		"an empty file has its name": func(r *rig, path string) { r.rename(path, path+".1"); r.write(path, "") },
	} {
		for _, mode := range []string{"FULL", "FEEDBACK_ONLY"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, "mode: "+mode)
				path := r.path("s")
				good := func(seq int) string {
					return fmt.Sprintf(`{"type":"feedback/record","seq":%d,"time":2,"data":{"text":"good"}}`+"\n", seq)
				}
				r.write(path, head("s"), row(0, "first"), good(1))
				writer := r.open(path)
				r.start()
				r.awaitEvents("s", 1)
				move(r, path)
				for seq := 2; seq < 8; seq += 2 {
					if _, err := writer.WriteString(row(seq, "late words") + good(seq+1)); err != nil {
						t.Fatal(err)
					}
					if seq < 6 {
						r.awaitEvents("s", int64(seq+1))
					}
				}
				r.awaitEvents("s", 7)
				r.once("s", 7)
				if name == "another session has its name" && mode == "FULL" {
					r.awaitEvents("other", 3)
					r.once("other", 3)
				}
				if n := r.ops("session.diverged", ""); n > 0 {
					t.Errorf("%d divergences", n)
				}
				r.stop()
				r.audit()
			})
		}
	}
}

// One session as .jsonl and as .jsonl.zstd, both there for a while, however far the
// other one is: one session, nothing twice.
func TestA11BothEncodings(t *testing.T) {
	for _, name := range []string{"compressed in place", "compressed at once", "unpacked", "both at the start"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			raw, packed := r.path("s"), r.path("s")+".zstd"
			pieces := []string{frame(t, head("s")), frame(t, rows(0, 3)), frame(t, rows(4, 7))}
			old, now := raw, packed
			switch name {
			case "unpacked":
				old, now = packed, raw
				r.write(packed, pieces...)
			default:
				r.write(raw, head("s"), rows(0, 7))
			}
			// The rest of the root is written as the new one is.
			for i := range 3 {
				s := fmt.Sprint("other", i)
				if now == packed {
					r.write(r.path(s)+".zstd", frame(t, head(s)), frame(t, row(0, "x")))
				} else {
					r.write(r.path(s), head(s), row(0, "x"))
				}
			}
			if name == "both at the start" {
				r.write(packed, pieces[0], pieces[1])
			}
			r.start()
			r.awaitEvents("s", 7)
			r.write(r.path("mark"), head("mark"))
			marks := 0
			look := func() { // until what was changed before has been looked at
				r.write(r.path("mark"), row(marks, "mark"))
				r.awaitEvents("mark", int64(marks))
				marks++
			}
			switch name {
			case "compressed in place":
				for _, p := range pieces {
					r.write(packed, p[:len(p)/2])
					look()
					r.write(packed, p[len(p)/2:])
					look()
				}
			case "compressed at once":
				r.write(filepath.Join(r.dir, "tmp"), pieces...)
				r.rename(filepath.Join(r.dir, "tmp"), packed)
				look()
			case "unpacked":
				r.write(raw, head("s"), rows(0, 2))
				look()
				r.write(raw, rows(3, 7))
				look()
			case "both at the start":
				r.write(packed, pieces[2])
				look()
			}
			r.once("s", 7)
			// Both are there; then the old one goes, and the new one goes on.
			if err := os.Remove(old); err != nil {
				t.Fatal(err)
			}
			more := rows(8, 9)
			if now == packed {
				more = frame(t, more)
			}
			r.write(now, more)
			r.awaitEvents("s", 9)
			r.once("s", 9)
			if n := r.ops("session.diverged", "s"); n > 0 {
				t.Errorf("%d divergences", n)
			}
			r.stop()
			r.audit(r.root)
		})
	}
}

// A fork's file repeats its parent's events, a subagent's names its parent: what is
// inherited does not go out again, and the lineage stands on the records. Whether
// the parent comes first, later, or not at all.
func TestA12Lineage(t *testing.T) {
	examples := filepath.Join("..", "..", "examples", "sessions")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(examples, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var fork struct {
		ID            string
		ParentSession string
		SeedLength    int64
	}
	header, _, _ := strings.Cut(read("lab-fork.jsonl"), "\n")
	if err := json.Unmarshal([]byte(header), &fork); err != nil || fork.SeedLength == 0 {
		t.Fatal(header, err)
	}
	for _, order := range []string{"together", "later", "alone"} {
		t.Run(order, func(t *testing.T) {
			r := newRig(t)
			parent := func() { r.write(r.path(fork.ParentSession), read(fork.ParentSession+".jsonl")) }
			if order == "together" {
				parent()
			}
			r.write(r.path("a-fork"), read("lab-fork.jsonl"))
			r.write(r.path("a-child"), read("lab-subagent-child.jsonl"))
			r.start()
			last := int64(ledgerEvents(t, r.path("a-fork")) - 1)
			r.awaitEvents(fork.ID, last)
			if order == "later" {
				parent()
				r.awaitEvents(fork.ParentSession, int64(ledgerEvents(t, r.path(fork.ParentSession))-1))
			}
			inherited := 0
			for _, rec := range r.events(fork.ID) {
				if rec.Attrs["session.parent_id"] != fork.ParentSession || rec.Attrs["session.seed_length"] != fork.SeedLength {
					t.Fatalf("lineage %v", rec.Attrs)
				}
				if rec.Attrs["event.seq"].(int64) < fork.SeedLength {
					inherited++
					if rec.Attrs["otel_bridge.inherited"] != true {
						t.Fatalf("not marked as inherited: %v", rec.Attrs)
					}
				}
			}
			if order == "together" != (inherited == 0) {
				t.Errorf("%d inherited events went out", inherited)
			}
			r.poll("the subagent's events", func() bool { return len(r.events("lab-subagent-child")) > 0 })
			for _, rec := range r.events("lab-subagent-child") {
				if rec.Attrs["session.parent_id"] == nil {
					t.Fatalf("no parent: %v", rec.Attrs)
				}
			}
			r.stop()
			r.audit(r.root)
		})
	}
}

// Where the system gives no watches, or not enough, sessions are found by polling,
// and the log says so.
func TestA13WatchLimits(t *testing.T) {
	for limit, value := range map[string]string{"max_inotify_instances": "0", "max_inotify_watches": "3"} {
		t.Run(limit, func(t *testing.T) {
			r := newRig(t)
			r.cmd = exec.Command("/bin/sh", "-c", `echo "$1" > /proc/sys/user/"$2" || exit 99; shift 2; exec "$@"`, "sh",
				value, limit, program(t), "run", "--config", r.cfg)
			// Limits of a user namespace of its own touch nobody else.
			r.cmd.SysProcAttr = userNamespace()
			if r.cmd.SysProcAttr == nil {
				t.Skip("user namespaces are Linux's")
			}
			r.log = &lockedBuffer{}
			r.cmd.Stderr = r.log
			probe := exec.Command("/bin/sh", "-c", `echo "$0" > /proc/sys/user/"$1"`, value, limit)
			probe.SysProcAttr = userNamespace()
			if out, err := probe.CombinedOutput(); err != nil {
				t.Skipf("no user namespace with limits of its own here: %v %s", err, out)
			}
			for i := range 5 {
				s := fmt.Sprint("s", i)
				r.write(r.path(s), head(s), row(0, "first"))
			}
			r.launch()
			r.awaitLog("sessions are found by polling from now on")
			for i := range 6 {
				s := fmt.Sprint("s", i)
				if i == 5 {
					r.write(r.path(s), head(s), rows(0, 1))
				} else {
					r.write(r.path(s), row(1, "second"))
				}
				r.awaitEvents(s, 1)
				r.once(s, 1)
			}
			r.stop()
			r.audit(r.root)
		})
	}
}

// A second process on one data directory fails, and names the first one.
func TestA14TwoProcesses(t *testing.T) {
	r := newRig(t)
	r.start()
	named := regexp.MustCompile(fmt.Sprintf(`is in use by process %d\b`, r.cmd.Process.Pid))
	r.write(r.path("s"), head("s"), rows(0, 1))
	for _, args := range [][]string{{"run", "--config", r.cfg}, {"export", "--config", r.cfg, r.path("s")}} {
		begin := time.Now()
		out, err := exec.Command(program(t), args...).CombinedOutput()
		if err == nil || !named.Match(out) {
			t.Errorf("%s: %v\n%s", args[0], err, out)
		}
		t.Logf("%s failed after %v", args[0], time.Since(begin))
	}
	// A killed one holds nothing.
	r.awaitEvents("s", 1)
	r.kill()
	r.start()
	r.stop()
	r.once("s", 1)
}

// A broken configuration at a restart is refused before the outbox is touched, and
// while it runs it changes nothing.
func TestA15BrokenConfiguration(t *testing.T) {
	r := newRig(t)
	unavailable, err := receiverBehavior("503")
	if err != nil {
		t.Fatal(err)
	}
	r.srv.SetBehavior(unavailable)
	r.write(r.path("s"), head("s"), rows(0, 9))
	r.start()
	r.awaitMetric(`otel_bridge_events_total{outcome="exported"}`, 10)
	good := r.file(r.cfg)
	broken := map[string]string{
		"no YAML": "mode: [", "unknown key": good + "outbocks: {}\n", "unknown mode": strings.Replace(good, "FULL", "SOME", 1),
		"a policy that is not there": good + "redact: { policies: [./nowhere.toml] }\n",
		"plain HTTP":                 strings.Replace(good, "http://127.0.0.1", "http://192.0.2.1", 1),
	}
	for name, text := range broken {
		if err := os.WriteFile(r.cfg, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := strings.Count(string(r.log.bytes()), "the configuration was not taken")
		if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		r.poll(name+" is refused", func() bool {
			return strings.Count(string(r.log.bytes()), "the configuration was not taken") > n
		})
	}
	r.kill()
	before := treeDigest(t, r.data())
	for name, text := range broken {
		if err := os.WriteFile(r.cfg, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program(t), "run", "--config", r.cfg)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 78 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if now := treeDigest(t, r.data()); now != before {
			t.Fatalf("%s: the data directory has changed\n%s\n%s", name, before, now)
		}
	}
	if err := os.WriteFile(r.cfg, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	r.srv.SetBehavior(accept)
	r.start()
	r.awaitEvents("s", 9)
	r.stop()
	r.once("s", 9)
}

// treeDigest is names, modes, sizes, times and contents of a directory.
func treeDigest(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v %d %d", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(text))
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
