package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/otel-bridge/otel-bridge/session"
)

// What the reference packed, batch by batch, comes out the same when its events
// are written again: the frames of its files are its batches.
func TestRowsComeOutAsTheReferenceWroteThem(t *testing.T) {
	dir := shared(t, "data", "dsh", "v0")
	files, err := filepath.Glob(filepath.Join(dir, "*.zstd"))
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	packed := 0
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := readFrames(data, DefaultMaxWindow)
		if err != nil {
			t.Fatal(err)
		}
		h, d, err := session.ParseHeaderRecord(batches[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := append(session.AppendHeader(nil, h), '\n'); !bytes.Equal(got, batches[0]) {
			t.Errorf("%s: header %s", path, got)
		}
		for i, batch := range batches[1:] {
			var evs []session.Event
			rs := newRows(d, nil)
			for _, row := range bytes.Split(bytes.TrimSuffix(batch, []byte("\n")), []byte("\n")) {
				run, err := rs.dec.Decode(row, &rs.ev)
				if err != nil {
					t.Fatal(err)
				}
				if run == nil {
					evs = append(evs, rs.ev.Clone())
					continue
				}
				packed++
				for run.Next(&rs.ev) {
					evs = append(evs, rs.ev.Clone())
				}
			}
			if got := appendRows(nil, d, evs, true); !bytes.Equal(got, batch) {
				t.Errorf("%s: batch %d differs\n%s\n%s", filepath.Base(path), i, got, batch)
			}
		}
	}
	if packed < 40 {
		t.Errorf("only %d packed rows", packed)
	}
}

// Plain files of the later versions come out byte for byte.
func TestWritingWhatWasReadGivesTheSameBytes(t *testing.T) {
	ledgers, err := Discover(shared(t, "data", "dsh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range ledgers {
		dir := filepath.Base(filepath.Dir(l.Path))
		if dir == "torn" || !strings.HasPrefix(dir, "v") || strings.HasSuffix(l.Path, ".zstd") {
			continue
		}
		t.Run(dir+"/"+filepath.Base(l.Path), func(t *testing.T) {
			evs, r, err := readAll(l.Path)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "a", "b", "session.jsonl")
			w, err := Create(path, r.Header(), WithoutCompression())
			if err == nil {
				err = errors.Join(w.Append(evs...), w.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := readAll(path)
			if err := errors.Join(err, same(got, evs)); err != nil {
				t.Fatal(err)
			}
			if r.Dialect().StreamsAsChunks() {
				return // packed in other batches
			}
			want, _ := os.ReadFile(l.Path)
			have, _ := os.ReadFile(path)
			if !bytes.Equal(have, want) {
				a, b := bytes.Split(have, []byte("\n")), bytes.Split(want, []byte("\n"))
				for i := range a {
					if !bytes.Equal(a[i], b[i]) && !onlyOrder(a[i], b[i]) {
						t.Fatalf("row %d:\n%s\n%s", i+1, a[i], b[i])
					}
				}
			}
		})
	}
}

// onlyOrder tells that two rows differ in the order of their members only: the
// order of surfaceOp and sourceEventSeqs is not fixed (DSH-FORMAT-V3-V4 §9).
func onlyOrder(a, b []byte) bool {
	x, errX := session.Canonical(nil, a)
	y, errY := session.Canonical(nil, b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func event(seq int, typ, data string) session.Event {
	return session.Event{Seq: int64(seq), Time: int64(seq) * 3, Type: typ, Data: []byte(data)}
}

func chunk(seq int, text string) session.Event {
	return event(seq, session.TypeAssistantChunk, `{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"`+text+`"}}`)
}

func TestWriterPublishesHeaderAndFirstBatchAtOnce(t *testing.T) {
	for _, opts := range [][]WriterOption{nil, {WithoutCompression()}} {
		path := filepath.Join(t.TempDir(), "p", "s", "session.jsonl")
		w, err := Create(path, &session.Header{ID: "s", CreatedAt: 5}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("a session that never appended left something", err)
		}
		if err := w.Append(event(0, "a/b", `{}`), event(1, "a/b", `{}`)); err != nil {
			t.Fatal(err)
		}
		if err := w.Append(event(2, "a/b", `{"x":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Append(), w.Flush(), w.Close(), w.Close()); err != nil && !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if err := w.Append(event(3, "a/b", `{}`)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		entries, _ := os.ReadDir(filepath.Dir(path))
		if len(entries) != 1 {
			t.Errorf("%d files", len(entries))
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info.Mode(), err)
		}
		if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
			t.Error(info.Mode(), err)
		}
		evs, _, err := readAll(path)
		if err != nil || len(evs) != 3 {
			t.Errorf("%d events, %v", len(evs), err)
		}
	}
}

func TestWriterMakesOneFrameABatchInTheReferencesForm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.jsonl.zstd")
	w, err := Create(path, &session.Header{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range 3 {
		if err := w.Append(event(2*i, "a/b", `{}`), event(2*i+1, "a/b", `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte{0x28, 0xB5, 0x2F, 0xFD, 0x04, 0x58}) {
		t.Errorf("frame header % x", data[:6])
	}
	got, err := readFrames(data, DefaultMaxWindow)
	if err != nil || len(got) != 4 || bytes.Count(got[0], []byte("\n")) != 1 || bytes.Count(got[3], []byte("\n")) != 2 {
		t.Errorf("%d frames, %v", len(got), err)
	}
}

func TestWriterNeverOverwrites(t *testing.T) {
	path := write(t, "session.jsonl", []byte("precious"))
	if _, err := Create(path, &session.Header{}); !errors.Is(err, ErrExists) || !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	path = filepath.Join(t.TempDir(), "session.jsonl")
	a, errA := Create(path, &session.Header{ID: "a"})
	b, errB := Create(path, &session.Header{ID: "b"})
	if err := errors.Join(errA, errB, a.Append(event(0, "a/b", `{}`))); err != nil {
		t.Fatal(err)
	}
	if err := b.Append(event(0, "a/b", `{}`)); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	r, err := Open(path)
	if err != nil || r.Header().ID != "a" {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("%d files left", len(entries))
	}
	if err := errors.Join(r.Close(), a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

func TestWriterRefusesWhatNoReaderWouldTake(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "x"), &session.Header{Version: 9}); err == nil {
		t.Error("version 9")
	}
	rel := "relative"
	if _, err := Create(filepath.Join(t.TempDir(), "x"), &session.Header{Version: 3, Cwd: &rel}); err == nil {
		t.Error("relative cwd")
	}
	w, err := Create(filepath.Join(t.TempDir(), "x"), &session.Header{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, ev := range map[string]session.Event{
		"gap":       event(1, "a/b", `{}`),
		"no data":   event(0, "a/b", ``),
		"not JSON":  event(0, "a/b", `{`),
		"truncated": {Data: []byte(`{}`), Type: "a/b", DataTruncated: true},
		"op":        {Data: []byte(`{}`), Type: "a/b", RawSurfaceOp: []byte("[")},
	} {
		if err := w.Append(ev); err == nil {
			t.Error(name, "was written")
		}
	}
	if err := w.Append(event(0, "a/b", `{}`)); err != nil {
		t.Error("after refusals:", err)
	}
}

func TestFlushedEmptySessionIsAHeaderLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.v3.jsonl.zstd")
	w, err := Create(path, &session.Header{Version: 3, ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Flush(), w.Flush(), w.Append(event(0, "a/b", `{}`)), w.Close()); err != nil {
		t.Fatal(err)
	}
	if evs, _, err := readAll(path); err != nil || len(evs) != 1 {
		t.Error(len(evs), err)
	}
}

func TestWriterGoesOnWithAFile(t *testing.T) {
	for name, file := range map[string][]byte{"raw": mixed(), "zstd": frames(t, mixed(), 2)} {
		path := write(t, "session.jsonl", file)
		w, err := OpenWriter(path)
		if err != nil || w.NextSeq() != 10 {
			t.Fatal(name, err)
		}
		if err := errors.Join(w.Append(chunk(10, "a"), chunk(11, "b"), chunk(12, "c")), w.Close()); err != nil {
			t.Fatal(err)
		}
		evs, _, err := readAll(path)
		if err != nil || len(evs) != 13 {
			t.Error(name, len(evs), err)
		}
	}
	if _, err := OpenWriter(write(t, "s", append(mixed(), `{"ha`...))); !errors.Is(err, ErrTornTail) {
		t.Error(err)
	}
}

// faulty is a file that fails when told to.
type faulty struct {
	writeFile
	write, sync, truncate int // calls until one fails, 0: never
	short                 int // bytes that the failing write leaves
}

var errFault = errors.New("injected fault")

func count(n *int) bool {
	*n--
	return *n == 0
}

func (f *faulty) WriteAt(p []byte, off int64) (int, error) {
	if count(&f.write) {
		n, _ := f.writeFile.WriteAt(p[:min(f.short, len(p))], off)
		return n, errFault
	}
	return f.writeFile.WriteAt(p, off)
}

func (f *faulty) Sync() error {
	if count(&f.sync) {
		return errFault
	}
	return f.writeFile.Sync()
}

func (f *faulty) Truncate(n int64) error {
	if count(&f.truncate) {
		return errFault
	}
	return f.writeFile.Truncate(n)
}

func withFaults(f *faulty) WriterOption {
	return func(o *writerOptions) {
		o.open = func(path string, flag int, mode fs.FileMode) (writeFile, error) {
			file, err := openFile(path, flag, mode)
			f.writeFile = file
			return f, err
		}
	}
}

func TestFailedAppendLeavesTheFileAsItWas(t *testing.T) {
	for _, raw := range []bool{true, false} {
		for _, fault := range []faulty{{write: 2}, {write: 2, short: 40}, {sync: 2}} {
			path := filepath.Join(t.TempDir(), "session.jsonl")
			f := fault
			opts := []WriterOption{withFaults(&f)}
			if raw {
				opts = append(opts, WithoutCompression())
			}
			w, err := Create(path, &session.Header{}, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Append(event(0, "a/b", `{}`)); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			if err := w.Append(event(1, "a/b", `{"lost":true}`), event(2, "a/b", `{}`)); !errors.Is(err, errFault) {
				t.Fatal(err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the failed batch left something")
			}
			if err := errors.Join(w.Append(event(1, "a/b", `{"kept":true}`)), w.Close()); err != nil {
				t.Fatal(err)
			}
			if evs, r, err := readAll(path); err != nil || len(evs) != 2 || r.Tail().Torn() {
				t.Error(len(evs), err)
			}
		}
	}
}

func TestFailedRollbackStopsTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.jsonl")
	w, err := Create(path, &session.Header{}, WithoutCompression(), withFaults(&faulty{write: 2, short: 5, truncate: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Append(event(0, "a/b", `{}`)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Append(event(1, "a/b", `{}`)); !errors.Is(err, errFault) {
			t.Fatal(err)
		}
	}
}

func TestFailedFirstWriteLeavesNoFile(t *testing.T) {
	for _, fault := range []faulty{{write: 1, short: 10}, {sync: 1}} {
		path := filepath.Join(t.TempDir(), "session.jsonl")
		w, err := Create(path, &session.Header{}, withFaults(&fault))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(event(0, "a/b", `{}`)); !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 0 {
			t.Errorf("%d files left", len(entries))
		}
		if err := errors.Join(w.Append(event(0, "a/b", `{}`)), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOnlyRunsThatUnpackToTheSameBytesArePacked(t *testing.T) {
	d, err := session.DialectOf(0)
	if err != nil {
		t.Fatal(err)
	}
	data := func(s string) session.Event { return event(0, session.TypeAssistantChunk, s) }
	for name, ev := range map[string]session.Event{
		"other key order":  data(`{"step":1,"turn":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}`),
		"white space":      data(`{"turn":1, "step":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}`),
		"more members":     data(`{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a","x":1}}`),
		"text is last two": data(`{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a","text":"b"}}`),
		"no string":        data(`{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":[1]}}`),
		"number spelling":  data(`{"turn":1.0,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}`),
		"other kind":       data(`{"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}`),
		"tool without id":  data(`{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":0,"argumentsDelta":"a"}}`),
		"ignorable":        {Type: session.TypeAssistantChunk, Data: chunk(0, "a").Data, Ignorable: true},
	} {
		evs := []session.Event{ev, ev, ev, ev}
		for i := range evs {
			evs[i].Seq = int64(i)
		}
		if rows := appendRows(nil, d, evs, true); bytes.Count(rows, []byte("\n")) != 4 {
			t.Errorf("%s: %s", name, rows)
		}
	}
	evs := []session.Event{chunk(0, "a"), chunk(1, "b"), chunk(2, `\"}}`), event(3, "a/b", `{}`), chunk(4, "a"), chunk(5, "b")}
	evs[1].Time = -5
	if rows := string(appendRows(nil, d, evs, true)); strings.Count(rows, "\n") != 4 ||
		!strings.HasPrefix(rows, `{"type":"text-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":0,"dt":[-5,11],"texts":["a","b","\"}}"]}}`+"\n") {
		t.Error(rows)
	}
}

// Whatever the events and batches, what was written is what is read, to the
// byte of every payload, in every version and encoding; and writing what was
// read, in the same batches, gives the same file.
func TestWriterThenReaderIsTheIdentity(t *testing.T) {
	dir, files := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.IntRange(0, 4).Draw(t, "version")
		h := &session.Header{Version: version, ID: rapid.String().Draw(t, "id"), CreatedAt: rapid.Int64Range(0, 1<<53-1).Draw(t, "created")}
		evs := drawEvents(t, version)
		var opts []WriterOption
		if rapid.Bool().Draw(t, "raw") {
			opts = append(opts, WithoutCompression())
		}
		if rapid.Bool().Draw(t, "plain") {
			opts = append(opts, WithoutPacking())
		}
		var batches []int
		for left := len(evs); left > 0; left -= batches[len(batches)-1] {
			batches = append(batches, rapid.IntRange(1, left).Draw(t, "batch"))
		}
		reopen := rapid.IntRange(0, len(batches)).Draw(t, "reopen before")
		writeAll := func(evs []session.Event, reopen int) string {
			files++
			path := filepath.Join(dir, fmt.Sprint(files), "s")
			w, err := Create(path, h, opts...)
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range batches {
				if i > 0 && i == reopen {
					if err = w.Close(); err == nil {
						w, err = OpenWriter(path, opts...)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Append(evs[:n]...); err != nil {
					t.Fatal(err)
				}
				evs = evs[n:]
			}
			if err := errors.Join(w.Flush(), w.Close()); err != nil {
				t.Fatal(err)
			}
			return path
		}
		path := writeAll(evs, reopen)
		got, r, err := readAll(path)
		if err != nil || r.Tail().Torn() || r.Header().ID != h.ID {
			t.Fatalf("%v, %+v", err, r)
		}
		for i := range got {
			if a, b := got[i].SurfaceOp, evs[i].SurfaceOp; a != nil && (b == nil || *a != *b) {
				t.Fatalf("event %d: %+v", i, a)
			}
		}
		if err := same(stripped(got), evs); err != nil {
			t.Fatal(err)
		}
		first, err1 := os.ReadFile(path)
		second, err2 := os.ReadFile(writeAll(got, 0))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("writing what was read gives another file: %v", err)
		}
	})
}

// drawEvents draws events that a writer takes, sound as a ledger or not.
func drawEvents(t *rapid.T, version int) []session.Event {
	var evs []session.Event
	for i := range rapid.IntRange(0, 40).Draw(t, "events") {
		kinds := []string{"message", "opaque", "replace"}
		if version < 2 {
			kinds = []string{"chunk", "chunk", "chunk", "message", "opaque", "replace"}
		}
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		text := rapid.SampledFrom([]string{"a", "é", `\u0000`, "", `\\`, `\ud800`, strings.Repeat("x", 3000)}).Draw(t, "text")
		var ev session.Event
		switch kind {
		case "chunk":
			ev = chunk(i, text)
		case "opaque":
			ev = event(i, "acme/thing", strings.Repeat(`[`, i)+`1e5`+strings.Repeat(` ]`, i))
			ev.Ignorable = true
		default:
			ev = event(i, session.TypeUserMessage, `{"text" : "`+text+`","n":-0.0}`)
			ev.SurfaceOp = &session.SurfaceOp{}
			if kind == "replace" && i > 4 {
				ev.SurfaceOp = &session.SurfaceOp{Replace: true, Start: int64(i - 1), End: int64(i - 3)}
				ev.SourceEventSeqs = rapid.SampledFrom([][]int64{{0, 1, 2, int64(i - 1)}, {3, 1}, {0}}).Draw(t, "sources")
			}
		}
		ev.Time = rapid.Int64Range(-500, 500).Draw(t, "time")
		evs = append(evs, ev)
	}
	return evs
}

// Rows of any bytes, in either version with chunk events: what decodes is packed
// again into rows that decode to the same events, and nothing panics.
func FuzzChunkRows(f *testing.F) {
	for _, l := range bytes.Split(mixed(), []byte("\n"))[1:] {
		f.Add(false, append(l, '\n'))
	}
	f.Add(true, []byte(`{"type":"tool-call-chunks","seq0":0,"time0":1,"data":{"turn":1,"step":1,"index":1,"dt":[0,1],"id":"c","name":"n","args":["{","\"",""]}}`+"\n"))
	f.Fuzz(func(t *testing.T, one bool, text []byte) {
		d, err := session.DialectOf(map[bool]int{false: 0, true: 1}[one])
		if err != nil {
			t.Fatal(err)
		}
		evs := eventsOf(d, text)
		if err := same(eventsOf(d, appendRows(nil, d, evs, true)), evs); err != nil {
			t.Fatal(err)
		}
	})
}

// eventsOf decodes rows, leaving out those that are none and what does not have
// the next seq.
func eventsOf(d *session.Dialect, text []byte) (evs []session.Event) {
	rs := newRows(d, nil)
	for _, row := range bytes.Split(text, []byte("\n")) {
		if _, err := rs.load(line{data: row}); err != nil {
			continue
		}
		for rs.next() {
			evs = append(evs, rs.ev.Clone())
		}
	}
	return evs
}

func TestPayloadOverSeveralLinesIsPutOnOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	w, err := Create(path, &session.Header{}, WithoutCompression())
	if err != nil {
		t.Fatal(err)
	}
	ev := event(0, "a/b", "{\n \"x\": \"<\\n>\",\r\n \"n\": 1e400}")
	if err := errors.Join(w.Append(ev), w.Close()); err != nil {
		t.Fatal(err)
	}
	if evs, _, err := readAll(path); err != nil || string(evs[0].Data) != `{"x":"<\n>","n":1e400}` || ev.Data[1] != '\n' {
		t.Errorf("%s, %v", evs[0].Data, err)
	}
}
