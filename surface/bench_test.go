package surface

import (
	"fmt"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// BenchmarkAppend folds ledgers of two lengths: an event must not cost more in
// the longer one. Of four events one is a tool/result with 1 KB of output.
func BenchmarkAppend(b *testing.B) {
	d, err := session.DialectOf(4)
	if err != nil {
		b.Fatal(err)
	}
	result := []byte(toolDataV4("call-1", `[{"type":"text","text":"`+strings.Repeat(`line of output\n`, 64)+`"}]`))
	events := []session.Event{
		{Type: typeUser, Data: []byte(userData("hello")), SurfaceOp: appendOp()},
		{Type: typeAssistant, Data: []byte(`{"turn":1,"step":1,"message":{"content":[]}}`), SurfaceOp: appendOp()},
		{Type: "tool/call", Data: []byte(`{"turn":1,"step":1,"callId":"call-1","name":"bash","arguments":"{}"}`)},
		{Type: typeTool, Data: result, SurfaceOp: appendOp()},
	}
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := New(d)
				for i := range n {
					ev := &events[i&3]
					ev.Seq = int64(i)
					if err := s.Fold(ev); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
		})
	}
}

// BenchmarkPlan judges one event again and again without folding it.
func BenchmarkPlan(b *testing.B) {
	d, err := session.DialectOf(4)
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat(`line of output\n`, 64*64)
	for name, ev := range map[string]session.Event{
		"log-only":    {Type: "tool/call", Data: []byte(`{"turn":1,"step":1}`)},
		"user":        {Type: typeUser, Data: []byte(userData("hello")), SurfaceOp: appendOp()},
		"tool-64KiB":  {Type: typeTool, Data: []byte(toolDataV4("c", `[{"type":"text","text":"`+text+`"}]`)), SurfaceOp: appendOp()},
		"tool-image":  {Type: typeTool, Data: []byte(toolDataV4("c", `[`+shown+`]`)), SurfaceOp: appendOp()},
		"tool-tiny":   {Type: typeTool, Data: []byte(toolDataV4("c", `[{"type":"text","text":"ok"}]`)), SurfaceOp: appendOp()},
		"assistant":   {Type: typeAssistant, Data: []byte(`{"message":{"content":[{}]}}`), SurfaceOp: appendOp()},
		"user-64KiB":  {Type: typeUser, Data: []byte(userContent(`[{"type":"text","text":"` + text + `"}]`)), SurfaceOp: appendOp()},
		"user-source": {Type: typeUser, Data: []byte(userData("hello")), SurfaceOp: appendOp(), SourceEventSeqs: []int64{}},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(d, WithBase(10))
			ev.Seq = 10
			if name == "user-source" {
				ev.SourceEventSeqs = []int64{1, 2, 5}
			}
			b.SetBytes(int64(len(ev.Data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Plan(&ev); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReplace replaces spans of two lengths, at the end, in the middle and
// at the head of surfaces of two lengths, with and without a reading of the
// hash after each. The span decides, not the surface; the hash costs what
// stands behind the span.
func BenchmarkReplace(b *testing.B) {
	d, err := session.DialectOf(2)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1_000, 100_000} {
		for _, span := range []int{1, 100} {
			for _, where := range []string{"head", "middle", "end"} {
				for _, hash := range []bool{false, true} {
					b.Run(fmt.Sprintf("nodes=%d/span=%d/%s/hash=%t", n, span, where, hash), func(b *testing.B) {
						benchmarkReplace(b, d, n, span, where, hash)
					})
				}
			}
		}
	}
}

func benchmarkReplace(b *testing.B, d *session.Dialect, n, span int, where string, hash bool) {
	s := New(d)
	data := []byte(userData("x"))
	add := func(op *session.SurfaceOp, sources []int64) {
		ev := session.Event{Seq: s.Next(), Type: typeUser, Data: data, SurfaceOp: op, SourceEventSeqs: sources}
		if err := s.Fold(&ev); err != nil {
			b.Fatal(err)
		}
	}
	for range n {
		add(appendOp(), nil)
	}
	s.Hash()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		at := map[string]int{"head": 0, "middle": n / 2, "end": n - span}[where]
		i := 0
		for range at {
			i = s.nodes.next(i)
		}
		sources := make([]int64, 0, span)
		for range span {
			sources = append(sources, s.nodes.slots[i].seq)
			i = s.nodes.next(i)
		}
		op := replaceOp(sources[0], sources[span-1])
		b.StartTimer()
		add(op, sources)
		if hash {
			s.Hash()
		}
		b.StopTimer()
		for s.Len() < n { // the surface keeps its length
			add(appendOp(), nil)
		}
		s.Hash()
		b.StartTimer()
	}
}

// BenchmarkReplaceChurn replaces the node in the middle of 100,000 over and
// over, so that what packing costs is part of the mean.
func BenchmarkReplaceChurn(b *testing.B) {
	d, err := session.DialectOf(2)
	if err != nil {
		b.Fatal(err)
	}
	s := New(d)
	ev := session.Event{Type: typeUser, Data: []byte(userData("x")), SurfaceOp: appendOp()}
	for range 100_000 {
		ev.Seq = s.Next()
		if err := s.Fold(&ev); err != nil {
			b.Fatal(err)
		}
	}
	ev.SurfaceOp, ev.SourceEventSeqs = replaceOp(50_000, 50_000), []int64{50_000}
	b.ReportAllocs()
	for b.Loop() {
		ev.Seq = s.Next()
		if err := s.Fold(&ev); err != nil {
			b.Fatal(err)
		}
		ev.SurfaceOp.Start, ev.SurfaceOp.End, ev.SourceEventSeqs[0] = ev.Seq, ev.Seq, ev.Seq
	}
}

func BenchmarkHash(b *testing.B) {
	d, err := session.DialectOf(2)
	if err != nil {
		b.Fatal(err)
	}
	s := New(d)
	ev := session.Event{Type: typeUser, Data: []byte(userData("x")), SurfaceOp: appendOp()}
	b.ReportAllocs()
	for b.Loop() {
		ev.Seq = s.Next()
		if err := s.Fold(&ev); err != nil {
			b.Fatal(err)
		}
		s.Hash()
	}
}

func BenchmarkMessages(b *testing.B) {
	d, err := session.DialectOf(3)
	if err != nil {
		b.Fatal(err)
	}
	var l ledger
	size := 0
	for range 1000 {
		size += len(l.user(strings.Repeat("hello ", 100)).Data)
	}
	src := func(yield func(*session.Event, error) bool) {
		for _, ev := range l.events {
			if !yield(ev, nil) {
				return
			}
		}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range Messages(src, d, End) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
