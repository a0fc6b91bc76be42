package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// corpus is every real ledger of one version, as rows with their dialect.
func corpus(b *testing.B, version int) (*Dialect, [][]byte, int64) {
	b.Helper()
	paths, err := filepath.Glob(shared(b, "dsh", fmt.Sprintf("v%d", version), "*.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	var files [][]byte
	size := int64(0)
	for _, p := range paths {
		if filepath.Base(p) == "native-v3-restart.jsonl" {
			continue
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			b.Fatal(err)
		}
		files = append(files, raw)
		size += int64(len(raw))
	}
	return dialect(b, version), files, size
}

// readAndTrace decodes rows and checks their invariants, as verify does.
func readAndTrace(b *testing.B, d *Dialect, rows [][]byte) (events int) {
	dec, trace := NewDecoder(d, nil), NewTrace(nil, d, nil)
	var ev Event
	for _, row := range rows {
		run, err := dec.Decode(row, &ev)
		if err != nil {
			b.Fatal(err)
		}
		if run == nil {
			events++
			if err := Admit(&ev, trace); err != nil {
				b.Fatal(err)
			}
			continue
		}
		for run.Next(&ev) {
			events++
			if err := Admit(&ev, trace); err != nil {
				b.Fatal(err)
			}
		}
	}
	return events
}

// BenchmarkDecodeAndTrace reads every real ledger of a version and checks its
// invariants. json.Valid over the same rows runs in turns with it; what is
// reported as x-Valid is its time divided by ours, which has to stay above 0.5.
func BenchmarkDecodeAndTrace(b *testing.B) {
	for version := range MaxVersion + 1 {
		b.Run(fmt.Sprintf("v%d", version), func(b *testing.B) {
			d, files, size := corpus(b, version)
			var rows [][][]byte
			for _, f := range files {
				rows = append(rows, lines(f)[1:])
			}
			b.SetBytes(size)
			b.ReportAllocs()
			events := 0
			var valid, ours time.Duration
			for b.Loop() {
				start := time.Now()
				for _, file := range rows {
					events += readAndTrace(b, d, file)
				}
				ours += time.Since(start)
				b.StopTimer()
				start = time.Now()
				for _, file := range rows {
					for _, row := range file {
						if !json.Valid(row) {
							b.Fatal("invalid")
						}
					}
				}
				valid += time.Since(start)
				b.StartTimer()
			}
			b.ReportMetric(float64(events)/ours.Seconds(), "events/s")
			b.ReportMetric(valid.Seconds()/ours.Seconds(), "x-Valid")
		})
	}
}

// turns writes n events of plain turns.
func turns(n int) []Event {
	var out []Event
	add := func(typ, data string) {
		ev := Event{Seq: int64(len(out)), Time: int64(len(out)), Type: typ, Data: json.RawMessage(data)}
		if typ == TypeUserMessage || typ == TypeToolResult || typ == TypeAssistantMessage {
			ev.SurfaceOp = &SurfaceOp{}
		}
		out = append(out, ev)
	}
	for turn := 1; len(out) < n; turn++ {
		add(TypeTurnStart, fmt.Sprintf(`{"turn":%d}`, turn))
		add(TypeStepStart, fmt.Sprintf(`{"turn":%d,"step":1}`, turn))
		add(TypeUserMessage, `{"id":"u","role":"user","content":[],"source":{"kind":"user"}}`)
		add(TypeToolCall, fmt.Sprintf(`{"turn":%d,"step":1,"callId":"call-%d","name":"read","arguments":"{}"}`, turn, turn))
		add(TypeToolResult, fmt.Sprintf(`{"turn":%d,"step":1,"message":{"role":"tool","id":"r","toolCallId":"call-%d","source":{"kind":"tool","callId":"call-%d"},"content":[]}}`, turn, turn, turn))
		add(TypeStepEnd, fmt.Sprintf(`{"turn":%d,"step":1}`, turn))
		add(TypeTurnEnd, fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, turn))
	}
	return out[:n]
}

// BenchmarkLength reads ledgers of different lengths: what an event costs must
// not depend on how many came before.
func BenchmarkLength(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		d := dialect(b, 4)
		var text []byte
		events := turns(n)
		for i := range events {
			text = append(AppendEvent(text, d, &events[i]), '\n')
		}
		events = nil
		rows := lines(text)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				readAndTrace(b, d, rows)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
		})
	}
}

// BenchmarkAdmission is the trace alone.
func BenchmarkAdmission(b *testing.B) {
	events := turns(7_000)
	d := dialect(b, 4)
	b.ReportAllocs()
	for b.Loop() {
		trace := NewTrace(nil, d, nil)
		for i := range events {
			if err := Admit(&events[i], trace); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
}

func BenchmarkLedgerAppend(b *testing.B) {
	data := json.RawMessage(`{"preset":"workspace-write"}`)
	l, err := NewLedger(Header{Version: 4, ID: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Append(Candidate{Type: "permission/preset", Data: data}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		events := turns(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Replay(Header{Version: 4, ID: "bench"}, events, WithClock(time.Now)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/event")
		})
	}
}

func BenchmarkCanonical(b *testing.B) {
	_, files, size := corpus(b, 4)
	b.SetBytes(size)
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		for _, f := range files {
			for _, row := range lines(f) {
				var err error
				if out, err = Canonical(out[:0], row); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
