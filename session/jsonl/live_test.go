package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
)

// growing is a file that the test writes step by step. Each change gets its own
// time, as changes of a real file that lie apart do.
type growing struct {
	t    testing.TB
	path string
	f    *os.File
	tick time.Time
}

func grow(t testing.TB, data []byte) *growing {
	t.Helper()
	path := write(t, "session.jsonl", data)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &growing{t: t, path: path, f: f, tick: time.Unix(1_700_000_000, 0)}
}

func (g *growing) touch(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	g.tick = g.tick.Add(time.Second)
	if err := os.Chtimes(g.path, g.tick, g.tick); err != nil {
		g.t.Fatal(err)
	}
}

func (g *growing) append(data []byte) {
	g.t.Helper()
	end, err := g.f.Seek(0, 2)
	if err == nil {
		_, err = g.f.WriteAt(data, end)
	}
	g.touch(err)
}

func (g *growing) truncate(size int) {
	g.t.Helper()
	g.touch(g.f.Truncate(int64(size)))
}

func (g *growing) open(from Position, opts ...Option) *LiveReader {
	g.t.Helper()
	r, err := OpenLive(g.path, from, opts...)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { r.Close() })
	return r
}

// drain reads what is there.
func drain(t testing.TB, r *LiveReader) (evs []session.Event) {
	t.Helper()
	for r.Next() {
		evs = append(evs, r.Event().Clone())
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return evs
}

// mixed is a version 0 text with packed and plain rows and characters of
// several bytes.
func mixed() []byte {
	return []byte(headerV0 +
		`{"type":"permission/preset","seq":0,"time":0,"data":{"preset":"会话 😀"}}` + "\n" +
		`{"type":"text-chunks","seq0":1,"time0":10,"data":{"turn":1,"step":1,"index":0,"dt":[5,2,1],"texts":["a","é","c","😀"]}}` + "\n" +
		`{"type":"turn/start","seq":5,"time":20,"data":{"turn":1}}` + "\n" +
		`{"type":"reasoning-chunks","seq0":6,"time0":10,"data":{"turn":1,"step":1,"index":0,"dt":[5,2],"texts":["a","é","c"]}}` + "\n" +
		`{"type":"turn/end","seq":9,"time":20,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n")
}

// Every byte of the file becomes visible by itself: every event comes once,
// whole, and never early.
func TestLiveReaderGivesEachEventOnceHoweverTheFileGrows(t *testing.T) {
	text := mixed()
	for name, file := range map[string][]byte{"raw": text, "zstd": frames(t, text, 2)} {
		t.Run(name, func(t *testing.T) {
			want, _, err := readAll(write(t, "s", file))
			if err != nil {
				t.Fatal(err)
			}
			g := grow(t, nil)
			var r *LiveReader
			var got []session.Event
			for i := range file {
				g.append(file[i : i+1])
				if r == nil {
					if r, err = OpenLive(g.path, Position{}); err != nil {
						if !errors.Is(err, ErrHeaderIncomplete) {
							t.Fatalf("byte %d: %v", i, err)
						}
						r = nil
						continue
					}
					defer r.Close()
				}
				got = append(got, drain(t, r)...)
				if err := same(got, want[:min(len(got), len(want))]); err != nil {
					t.Fatalf("byte %d: %v", i, err)
				}
			}
			if err := same(got, want); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The file is cut at every offset, read, and read on from a fresh reader at the
// stored position after the rest has come.
func TestLiveReaderGoesOnAfterARestartAtEverySplit(t *testing.T) {
	text := mixed()
	for name, file := range map[string][]byte{"raw": text, "zstd": frames(t, text, 2), "zstd, one body frame": frames(t, text, 1000)} {
		t.Run(name, func(t *testing.T) {
			want, _, err := readAll(write(t, "s", file))
			if err != nil {
				t.Fatal(err)
			}
			for cut := range len(file) + 1 {
				g := grow(t, file[:cut])
				var got []session.Event
				var at Position
				if r, err := OpenLive(g.path, at); err == nil {
					got = drain(t, r)
					at = r.Position()
					r.Close()
				} else if !errors.Is(err, ErrHeaderIncomplete) {
					t.Fatal(err)
				}
				g.append(file[cut:])
				got = append(got, drain(t, g.open(at))...)
				if err := same(got, want); err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				g.f.Close()
			}
		})
	}
}

// After each event the reader is thrown away.
func TestLiveReaderGoesOnAfterEveryEvent(t *testing.T) {
	text := mixed()
	for name, file := range map[string][]byte{"raw": text, "zstd": frames(t, text, 2), "zstd, one body frame": frames(t, text, 1000)} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "s", file)
			want, _, err := readAll(path)
			if err != nil {
				t.Fatal(err)
			}
			var at Position
			var got []session.Event
			for range want {
				r, err := OpenLive(path, at)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Next() {
					t.Fatal(r.Err())
				}
				got = append(got, r.Event().Clone())
				stored, err := r.Position().MarshalBinary()
				if err := errors.Join(err, at.UnmarshalBinary(stored)); err != nil || at != r.Position() {
					t.Fatalf("%+v became %+v, %v", r.Position(), at, err)
				}
				if at.Seq != int64(len(got)) {
					t.Fatalf("%+v after %d events", at, len(got))
				}
				r.Close()
			}
			if err := same(got, want); err != nil {
				t.Fatal(err)
			}
			r, err := OpenLive(path, at)
			if err != nil || r.Next() || r.Err() != nil || r.Position().Seq != at.Seq || r.Position().Row != at.Row {
				t.Fatalf("at the end: %v, %v", err, r.Err())
			}
			r.Close()
		})
	}
}

func TestLiveReaderResumesInsideABigFrame(t *testing.T) {
	text := []byte(headerV0)
	for i := range 60_000 {
		text = append(text, rowOf(i)...)
	}
	g := grow(t, frames(t, text, 1<<30))
	r := g.open(Position{})
	for range 40_000 {
		if !r.Next() {
			t.Fatal(r.Err())
		}
	}
	at := r.Position()
	if at.Skip == 0 || at.Seq != 40_000 {
		t.Fatalf("%+v", at)
	}
	g.append(stream(t, []byte(rowOf(60_000))))
	got := drain(t, g.open(at))
	if len(got) != 20_001 || got[0].Seq != 40_000 || got[20_000].Seq != 60_000 {
		t.Fatalf("%d events from %d", len(got), got[0].Seq)
	}
}

func TestLiveReaderTellsThatTheFileShrank(t *testing.T) {
	base := headerV0 + rowOf(0) + rowOf(1)
	for name, file := range map[string][]byte{"raw": []byte(base), "zstd": frames(t, []byte(base), 1)} {
		t.Run(name, func(t *testing.T) {
			g := grow(t, file)
			r := g.open(Position{})
			if n := len(drain(t, r)); n != 2 {
				t.Fatal(n)
			}
			at := r.Position()
			g.truncate(len(file) - 5)
			var shrank *TruncatedError
			if r.Next() || !errors.Is(r.Err(), ErrTruncated) || !errors.As(r.Err(), &shrank) || shrank.Size != int64(len(file)-5) {
				t.Fatalf("%v", r.Err())
			}
			if _, err := OpenLive(g.path, at); !errors.Is(err, ErrTruncated) {
				t.Errorf("opened again: %v", err)
			}
		})
	}
}

func TestLiveReaderTellsThatItsPastWasRewritten(t *testing.T) {
	g := grow(t, []byte(headerV0+rowOf(0)+rowOf(1)))
	r := g.open(Position{})
	drain(t, r)
	g.truncate(len(headerV0 + rowOf(0)))
	other := strings.Replace(rowOf(1), "opaque", "opaqua", 1)
	g.append([]byte(other + rowOf(2)))
	if r.Next() || !errors.Is(r.Err(), ErrTruncated) {
		t.Fatalf("%v", r.Err())
	}
}

// A failed append leaves part of a batch, is rolled back, and the next one is
// of the same length, shorter, or longer.
func TestLiveReaderForgetsAHalfLineThatWasRolledBack(t *testing.T) {
	base := headerV0 + rowOf(0)
	row := rowOf(1)
	for half := 1; half < len(row); half++ {
		for _, pad := range []int{0, 1, 30} {
			g := grow(t, []byte(base))
			r := g.open(Position{})
			if n := len(drain(t, r)); n != 1 {
				t.Fatal(n)
			}
			g.append(bytes.Repeat([]byte{'#'}, half+pad))
			if n := len(drain(t, r)); n != 0 {
				t.Fatal("gave a half line")
			}
			g.truncate(len(base))
			g.append([]byte(row))
			if evs := drain(t, r); len(evs) != 1 || evs[0].Seq != 1 {
				t.Fatalf("half %d, pad %d: %d events", half, pad, len(evs))
			}
			r.Close()
			g.f.Close()
		}
	}
}

func TestLiveReaderReportsABadRowAndStaysThere(t *testing.T) {
	g := grow(t, []byte(headerV0+rowOf(0)+"{\n"+rowOf(1)))
	r := g.open(Position{})
	var corrupt *CorruptError
	if !r.Next() || r.Next() || !errors.As(r.Err(), &corrupt) || corrupt.Row != 3 || corrupt.Code != session.CodeRowJSON {
		t.Fatal(r.Err())
	}
	at := r.Position()
	g.truncate(len(headerV0 + rowOf(0)))
	g.append([]byte(rowOf(1)))
	if evs := drain(t, g.open(at)); len(evs) != 1 || evs[0].Seq != 1 {
		t.Fatalf("%d events after the repair", len(evs))
	}
}

func TestLiveReaderReportsDamagedFrames(t *testing.T) {
	text := []byte(headerV0 + rowOf(0) + rowOf(1))
	whole := frames(t, text, 1)
	for name, file := range map[string][]byte{
		string(CodeChecksum):  flip(bytes.Clone(whole), -1),
		string(CodeFrameLine): append(bytes.Clone(whole), compress(t, []byte(rowOf(2)[:9]))...),
		string(CodeFrame):     append(bytes.Clone(whole), make([]byte, 10)...),
	} {
		t.Run(name, func(t *testing.T) {
			r := grow(t, file).open(Position{})
			for r.Next() {
			}
			var corrupt *CorruptError
			if !errors.As(r.Err(), &corrupt) || string(corrupt.Code) != name || corrupt.Offset == 0 {
				t.Errorf("%v", r.Err())
			}
		})
	}
}

func TestLiveReaderReadsARemovedFileToItsEnd(t *testing.T) {
	g := grow(t, []byte(headerV0+rowOf(0)))
	r := g.open(Position{})
	drain(t, r)
	before, err := r.Identity()
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := r.Replaced(); gone || err != nil {
		t.Fatal(gone, err)
	}
	other := filepath.Join(filepath.Dir(g.path), "other")
	if err := os.Rename(g.path, other); err != nil {
		t.Fatal(err)
	}
	g.path = other
	g.append([]byte(rowOf(1)))
	if n := len(drain(t, r)); n != 1 {
		t.Errorf("%d events of the old file", n)
	}
	if gone, err := r.Replaced(); !gone || err != nil {
		t.Error("not replaced", err)
	}
	after, err := Identify(other)
	if err != nil || !after.Same(before) || after.Size <= before.Size {
		t.Errorf("%+v, %+v, %v", before, after, err)
	}
	keyed, err := Identify(other, WithDigestKey([]byte("k")))
	if err != nil || keyed.HeaderDigest == after.HeaderDigest {
		t.Errorf("digest does not depend on the key, %v", err)
	}
}

func TestUnchangedFileCostsNoReading(t *testing.T) {
	g := grow(t, []byte(headerV0+rowOf(0)+`{"half`))
	r := g.open(Position{})
	drain(t, r)
	r.Next()
	if n := testing.AllocsPerRun(100, func() { r.Next() }); n > 3 {
		t.Errorf("%v allocations", n)
	}
}

func TestPositionThatIsNoneIsRefused(t *testing.T) {
	g := grow(t, mixed())
	r := g.open(Position{})
	r.Next()
	r.Next()
	good := r.Position()
	if good.Member != 1 {
		t.Fatalf("%+v", good)
	}
	for _, edit := range []func(*Position){
		func(p *Position) { p.Offset = 3 },
		func(p *Position) { p.Offset++ },
		func(p *Position) { p.Member = 4 },
		func(p *Position) { p.Member = 40 },
		func(p *Position) { p.Seq = 0 },
		func(p *Position) { p.Skip = 1 },
		func(p *Position) { p.Offset = 1 << 40 },
	} {
		p := good
		edit(&p)
		if r, err := OpenLive(g.path, p); err == nil {
			r.Close()
			t.Errorf("%+v was taken", p)
		}
	}
	for _, b := range [][]byte{nil, {0}, {1}, {2, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 60)} {
		if err := new(Position).UnmarshalBinary(b); err == nil {
			t.Errorf("%x was taken", b)
		}
	}
}

func FuzzLiveReader(f *testing.F) {
	f.Add(mixed(), 100, 7, false)
	f.Add(mixed(), 300, 200, true)
	f.Add([]byte(headerV3+rowOf(0)+"{\n"), 20, 1, false)
	f.Fuzz(func(t *testing.T, text []byte, cut, chunk int, compressed bool) {
		if len(text) > 4096 || chunk < 1 || cut < 0 {
			t.Skip()
		}
		file := text
		if compressed && bytes.IndexByte(text, '\n') >= 0 && text[len(text)-1] == '\n' {
			file = frames(t, text, chunk)
		}
		cut = min(cut, len(file))
		whole, _, err := readAll(write(t, "s", file), WithMaxLine(1024))
		g := grow(t, file[:cut])
		var got []session.Event
		var at Position
		if r, err := OpenLive(g.path, at, WithMaxLine(1024)); err == nil {
			for r.Next() {
				got = append(got, r.Event().Clone())
			}
			at = r.Position()
			r.Close()
		}
		g.append(file[cut:])
		r, errLive := OpenLive(g.path, at, WithMaxLine(1024))
		if errLive != nil {
			if err == nil {
				t.Fatalf("the reader takes it, the live reader says %v", errLive)
			}
			return
		}
		defer r.Close()
		for r.Next() {
			got = append(got, r.Event().Clone())
		}
		// A refused file gives a prefix either way; how long it is depends on
		// when the fault is met.
		if err == nil {
			if err := same(got, whole); err != nil {
				t.Fatal(err)
			}
		}
		for i := range got {
			if got[i].Seq != int64(i) {
				t.Fatal(fmt.Sprint("seq ", got[i].Seq, " at ", i))
			}
		}
	})
}

// A removed session's inode is given to the next file: here the file is
// rewritten in place, which has the same inode for certain.
func TestSameInodeWithAnotherHeaderIsAnotherSession(t *testing.T) {
	g := grow(t, []byte(headerV0+rowOf(0)))
	before, err := Identify(g.path)
	if err != nil {
		t.Fatal(err)
	}
	r := g.open(Position{})
	drain(t, r)
	g.truncate(0)
	g.append([]byte(strings.Replace(headerV0, `"id":"s"`, `"id":"z"`, 1) + rowOf(0)))
	after, err := Identify(g.path)
	if err != nil || before.Inode != after.Inode || before.Same(after) {
		t.Errorf("%+v, %+v, %v", before, after, err)
	}
	if r.Next() || !errors.Is(r.Err(), ErrTruncated) {
		t.Errorf("%v", r.Err())
	}
}

// copytruncate: the file is copied, truncated, and the writer goes on.
func TestLedgerWithoutItsHeaderLineIsRefusedByName(t *testing.T) {
	g := grow(t, []byte(headerV0+rowOf(0)))
	r := g.open(Position{})
	drain(t, r)
	at := r.Position()
	g.truncate(0)
	if r.Next() || !errors.Is(r.Err(), ErrTruncated) {
		t.Errorf("%v", r.Err())
	}
	if _, err := OpenLive(g.path, at); !errors.Is(err, ErrHeaderIncomplete) {
		t.Errorf("while it is empty: %v", err)
	}
	g.append([]byte(rowOf(1) + rowOf(2)))
	var corrupt *CorruptError
	if _, err := OpenLive(g.path, at); !errors.As(err, &corrupt) || corrupt.Row != 1 || corrupt.File != g.path {
		t.Errorf("%v", err)
	}
}
