package surface_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/surface"
)

// This file measures what a ledger costs from its bytes to its surface. Figures
// and how to read them are in docs/ledger-performance.md:
//
//	go test -run '^$' -bench Ledger ./surface

// verify reads a file as `otel-bridge verify` does: rows are decoded, the trace
// and the surface admit every event. every is called after each event, if it is
// not nil.
func verify(path string, every func(seq int64)) (events int64, err error) {
	r, err := jsonl.Open(path)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	trace, fold := session.NewTrace(r.Header(), r.Dialect(), nil), surface.New(r.Dialect())
	for r.Next() {
		if err := session.Admit(r.Event(), trace, fold); err != nil {
			return events, err
		}
		if events++; every != nil {
			every(events)
		}
	}
	return events, r.Err()
}

// realLedgers are the session files of one version that end in ext, without the
// one that is refused on purpose, and their rows, headers left out.
func realLedgers(b *testing.B, version int, ext string) (paths []string, rows [][][]byte, size int64) {
	b.Helper()
	all, err := filepath.Glob(filepath.Join(shared(b, "dsh", fmt.Sprintf("v%d", version)), "*"+ext))
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range all {
		if version == 3 && strings.HasPrefix(filepath.Base(path), "native-v3-restart") {
			continue
		}
		text, err := os.ReadFile(strings.TrimSuffix(path, ".zstd"))
		if err != nil {
			b.Fatal(err)
		}
		paths = append(paths, path)
		rows = append(rows, bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))[1:])
		size += int64(len(text))
	}
	return paths, rows, size
}

// beside runs ours in turns with encoding/json.Valid over the rows. x-Valid is the
// time of json.Valid divided by ours.
func beside(b *testing.B, rows [][][]byte, size int64, ours func() (events int64, err error)) {
	b.SetBytes(size)
	b.ReportAllocs()
	var took, valid time.Duration
	var events int64
	for b.Loop() {
		start := time.Now()
		n, err := ours()
		took += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		events += n
		start = time.Now()
		for _, file := range rows {
			for _, row := range file {
				if !json.Valid(row) {
					b.Fatal("invalid")
				}
			}
		}
		valid += time.Since(start)
	}
	b.ReportMetric(0, "ns/op") // of both together
	b.ReportMetric(float64(size)*float64(b.N)/1e6/took.Seconds(), "MB/s")
	b.ReportMetric(float64(events)/took.Seconds(), "events/s")
	b.ReportMetric(valid.Seconds()/took.Seconds(), "x-Valid")
}

// BenchmarkLedgerReadValidateFold decodes the rows of every real ledger of a
// version, and trace and surface admit the events. x-Valid has to be 0.5 or more.
func BenchmarkLedgerReadValidateFold(b *testing.B) {
	for version := session.MinVersion; version <= session.MaxVersion; version++ {
		b.Run(fmt.Sprintf("v%d", version), func(b *testing.B) {
			_, rows, size := realLedgers(b, version, ".jsonl")
			d, err := session.DialectOf(version)
			if err != nil {
				b.Fatal(err)
			}
			beside(b, rows, size, func() (events int64, err error) {
				for _, file := range rows {
					n, err := admitRows(d, file)
					if err != nil {
						return 0, err
					}
					events += n
				}
				return events, nil
			})
		})
	}
}

func admitRows(d *session.Dialect, rows [][]byte) (events int64, err error) {
	dec, trace, fold := session.NewDecoder(d, nil), session.NewTrace(nil, d, nil), surface.New(d)
	var ev session.Event
	for _, row := range rows {
		dec.Expect(trace.NextSeq())
		run, err := dec.Decode(row, &ev)
		if err != nil {
			return 0, err
		}
		for run == nil || run.Next(&ev) {
			if err := session.Admit(&ev, trace, fold); err != nil {
				return 0, err
			}
			if events++; run == nil {
				break
			}
		}
	}
	return events, nil
}

// BenchmarkLedgerFiles verifies the same ledgers as files, opened one by one: most
// are a few KB, so that opening counts, and so does decompression.
func BenchmarkLedgerFiles(b *testing.B) {
	for version := session.MinVersion; version <= session.MaxVersion; version++ {
		for _, ext := range []string{".jsonl", ".jsonl.zstd"} {
			b.Run(fmt.Sprintf("v%d%s", version, ext), func(b *testing.B) {
				paths, rows, size := realLedgers(b, version, ext)
				if len(paths) == 0 {
					b.Skip("no such files")
				}
				beside(b, rows, size, func() (events int64, err error) {
					for _, path := range paths {
						n, err := verify(path, nil)
						if err != nil {
							return 0, err
						}
						events += n
					}
					return events, nil
				})
			})
		}
	}
}

// longLedger writes a file of at least n events in whole turns. Every compact
// turns, if that is not 0, one message takes the place of all before it, as a
// compaction leaves it.
func longLedger(tb testing.TB, version, n, compact int) (path string, events int64) {
	tb.Helper()
	d, err := session.DialectOf(version)
	if err != nil {
		tb.Fatal(err)
	}
	path = filepath.Join(tb.TempDir(), "session.jsonl")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	h := session.Header{Version: version, ID: "long", CreatedAt: 1}
	w.Write(append(session.AppendHeader(nil, &h), '\n'))
	seq := int64(0)
	var row []byte
	var nodes []int64
	var pending int64
	add := func(typ, data string, op *session.SurfaceOp, sources []int64) {
		ev := session.Event{Seq: seq, Time: 1_790_000_000_000 + seq, Type: typ, Data: json.RawMessage(data), SurfaceOp: op, SourceEventSeqs: sources}
		row = append(session.AppendEvent(row[:0], d, &ev), '\n')
		w.Write(row)
		if op != nil {
			nodes = append(nodes, seq)
		}
		seq++
	}
	user := `{"content":[{"type":"text","text":"%s"}],"source":{"kind":"user"},"role":"user","id":"u%d"}`
	text := strings.Repeat("some words of a message, ", 8)
	for turn := 1; seq < int64(n); turn++ {
		at := fmt.Sprintf(`"turn":%d,"step":1`, turn)
		add("turn/start", fmt.Sprintf(`{"turn":%d}`, turn), nil, nil)
		add("step/start", "{"+at+"}", nil, nil)
		op, sources := &session.SurfaceOp{}, []int64(nil)
		if compact > 0 && turn%compact == 0 {
			op = &session.SurfaceOp{Replace: true, Start: nodes[0], End: nodes[len(nodes)-1]}
			sources, nodes = nodes, nil
		}
		add("user/message", fmt.Sprintf(user, text, seq), op, sources)
		if d.StreamsAsChunks() {
			fmt.Fprintf(w, `{"type":"text-chunks","seq0":%d,"time0":%d,"data":{%s,"index":0,"dt":[1,2,3,4],"texts":["some ","words ","of ","a ","message"]}}`+"\n", seq, seq, at)
			seq += 5
		}
		add("assistant/message", fmt.Sprintf(`{%s,"message":{"role":"assistant","content":[{"type":"text","text":"%s"},{"type":"tool-call","id":"c%d","name":"read","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a%d"}}`, at, text, turn, turn), &session.SurfaceOp{}, nil)
		add("tool/call", fmt.Sprintf(`{%s,"callId":"c%d","name":"read","arguments":"{}"}`, at, turn), nil, nil)
		pending = seq - 1
		add("tool/result", fmt.Sprintf(`{%s,"message":{"source":{"kind":"tool","callId":"c%d"},"content":[{"type":"tool-result","toolCallId":"c%d","content":[{"type":"text","text":"%s"}],"isError":false}],"role":"user","id":"t%d"}}`, at, turn, turn, text, turn), &session.SurfaceOp{}, []int64{pending})
		add("step/end", "{"+at+"}", nil, nil)
		add("turn/end", fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, turn), nil, nil)
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	return path, seq
}

// BenchmarkLedgerLength verifies a ledger of a million events, and after every ten
// thousand of them a whole ledger of ten thousand, so that both are measured at
// the same times. x-short is what an event of the long one costs, divided by what
// one of the short one costs: not above 1.5.
func BenchmarkLedgerLength(b *testing.B) {
	const short, long = 10_000, 1_000_000
	for _, version := range []int{0, 2} {
		b.Run(fmt.Sprintf("v%d", version), func(b *testing.B) {
			shortPath, shortEvents := longLedger(b, version, short, 0)
			longPath, longEvents := longLedger(b, version, long, 0)
			var tookShort, tookLong time.Duration
			runs := int64(0)
			for b.Loop() {
				start := time.Now()
				events, err := verify(longPath, func(n int64) {
					if n%short != 0 {
						return
					}
					tookLong += time.Since(start)
					start = time.Now()
					if events, err := verify(shortPath, nil); err != nil || events != shortEvents {
						b.Fatal(events, err)
					}
					tookShort += time.Since(start)
					runs++
					start = time.Now()
				})
				tookLong += time.Since(start)
				if err != nil || events != longEvents {
					b.Fatal(events, err)
				}
			}
			perShort := float64(tookShort.Nanoseconds()) / float64(runs*shortEvents)
			perLong := float64(tookLong.Nanoseconds()) / float64(int64(b.N)*longEvents)
			b.ReportMetric(0, "ns/op") // of both together
			b.ReportMetric(perShort, "ns/event-of-10k")
			b.ReportMetric(perLong, "ns/event-of-1M")
			b.ReportMetric(perLong/perShort, "x-short")
		})
	}
}

// BenchmarkLedgerReplace replaces spans in the middle of surfaces of two lengths, in
// turns: what a replace costs depends on its span and not on the surface. x-short
// is the longer one's cost divided by the shorter one's.
func BenchmarkLedgerReplace(b *testing.B) {
	const short, long = 5_000, 100_000
	for _, span := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("span=%d", span), func(b *testing.B) {
			surfaces := [2]*replaced{newReplaced(b, short), newReplaced(b, long)}
			for b.Loop() {
				for _, r := range surfaces {
					r.replace(b, span)
				}
			}
			perShort := float64(surfaces[0].took.Nanoseconds()) / float64(b.N)
			perLong := float64(surfaces[1].took.Nanoseconds()) / float64(b.N)
			b.ReportMetric(0, "ns/op") // with the appends that keep the length
			b.ReportMetric(perShort, "ns/replace-in-5k")
			b.ReportMetric(perLong, "ns/replace-in-100k")
			b.ReportMetric(perLong/perShort, "x-short")
		})
	}
}

// replaced is a surface that keeps its length while spans of it are replaced.
type replaced struct {
	s     *surface.Surface
	nodes []int64
	took  time.Duration // by replaces
}

func newReplaced(b *testing.B, n int) *replaced {
	d, err := session.DialectOf(2)
	if err != nil {
		b.Fatal(err)
	}
	r := &replaced{s: surface.New(d)}
	for range n {
		r.append(b)
	}
	return r
}

func (r *replaced) fold(b *testing.B, op session.SurfaceOp, sources []int64) time.Duration {
	ev := session.Event{Seq: r.s.Next(), Type: session.TypeUserMessage, SurfaceOp: &op, SourceEventSeqs: sources,
		Data: json.RawMessage(`{"id":"u","role":"user","content":[],"source":{"kind":"user"}}`)}
	start := time.Now()
	err := r.s.Fold(&ev)
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

func (r *replaced) append(b *testing.B) {
	r.nodes = append(r.nodes, r.s.Next())
	r.fold(b, session.SurfaceOp{}, nil)
}

func (r *replaced) replace(b *testing.B, span int) {
	at := len(r.nodes)/2 - span/2
	shadowed := append([]int64(nil), r.nodes[at:at+span]...)
	seq := r.s.Next()
	r.took += r.fold(b, session.SurfaceOp{Replace: true, Start: shadowed[0], End: shadowed[span-1]}, shadowed)
	r.nodes[at] = seq
	r.nodes = append(r.nodes[:at+1], r.nodes[at+span:]...)
	for range span - 1 {
		r.append(b)
	}
}

// BenchmarkLedgerAdmission admits one event at a time to trace and surface: no
// allocation beyond the event.
func BenchmarkLedgerAdmission(b *testing.B) {
	d, err := session.DialectOf(4)
	if err != nil {
		b.Fatal(err)
	}
	kinds := []session.Event{
		{Type: session.TypeUserMessage, Data: json.RawMessage(`{"id":"u","role":"user","content":[],"source":{"kind":"user"}}`), SurfaceOp: &session.SurfaceOp{}},
		{Type: session.TypeAssistantMessage, Data: json.RawMessage(`{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[{"type":"text","text":"x"}]}}`), SurfaceOp: &session.SurfaceOp{}},
		{Type: session.TypeToolCall, Data: json.RawMessage(`{"turn":1,"step":1,"callId":"c","name":"read","arguments":"{}"}`)},
		{Type: session.TypeToolResult, Data: json.RawMessage(`{"turn":1,"step":1,"message":{"id":"r","role":"tool","source":{"kind":"tool","callId":"c"},"toolCallId":"c","content":[]}}`), SurfaceOp: &session.SurfaceOp{}},
		{Type: session.TypeFeedbackRecord, Data: json.RawMessage(`{"text":"x"}`)},
	}
	trace, fold := session.NewTrace(nil, d, nil), surface.New(d)
	seq := int64(0)
	admit := func(ev *session.Event) {
		ev.Seq = seq
		if err := session.Admit(ev, trace, fold); err != nil {
			b.Fatal(err)
		}
		seq++
	}
	admit(&session.Event{Type: session.TypeTurnStart, Data: json.RawMessage(`{"turn":1}`)})
	admit(&session.Event{Type: session.TypeStepStart, Data: json.RawMessage(`{"turn":1,"step":1}`)})
	b.ReportAllocs()
	for b.Loop() {
		admit(&kinds[seq%int64(len(kinds))])
	}
}

// peakHeap verifies a file and returns the most memory that was live on the way.
func peakHeap(tb testing.TB, path string, want int64) uint64 {
	tb.Helper()
	var peak uint64
	var m runtime.MemStats
	look := func() uint64 {
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := look()
	events, err := verify(path, func(n int64) {
		if n%(want/20) == 0 {
			peak = max(peak, look())
		}
	})
	if err != nil || events != want {
		tb.Fatal(events, err)
	}
	return peak - min(before, peak)
}

// BenchmarkLedgerVerifyMemory reports what is live at most while a ledger is
// verified whose surface a compaction keeps short, as agents do.
func BenchmarkLedgerVerifyMemory(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			path, want := longLedger(b, 2, n, 50)
			var peak uint64
			for b.Loop() {
				peak = max(peak, peakHeap(b, path, want))
			}
			b.ReportMetric(float64(peak)/1024, "peak-KiB")
		})
	}
}

func TestStreamingVerifyNeedsConstantMemory(t *testing.T) {
	short, shortEvents := longLedger(t, 2, 20_000, 50)
	long, longEvents := longLedger(t, 2, 200_000, 50)
	a, b := peakHeap(t, short, shortEvents), peakHeap(t, long, longEvents)
	t.Logf("%d events: %d KiB; %d events: %d KiB", shortEvents, a>>10, longEvents, b>>10)
	if b > a+256<<10 {
		t.Errorf("ten times the events take %d KiB more", (b-a)>>10)
	}
}
