package jsonl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// ledgerText makes a version 3 ledger of n turns, with rows of many sizes.
func ledgerText(n int) []byte {
	text := []byte(strings.Replace(headerV3, "false", "true", 1)) // an end-seed follows
	seq := 0
	row := func(typ, data, rest string) {
		text = fmt.Appendf(text, `{"type":"%s","seq":%d,"time":%d,"data":%s%s}`+"\n", typ, seq, 1_790_000_000_000+int64(seq), data, rest)
		seq++
	}
	row(session.TypeEndSeed, `{"inherited":true}`, "")
	words := []byte("the quick brown fox \\\"jumps\\\" over 会话 the lazy dog\\n")
	for turn := 1; turn <= n; turn++ {
		body := bytes.Repeat(words, 1+turn%60)
		row("turn/start", fmt.Sprintf(`{"turn":%d}`, turn), "")
		row("step/start", fmt.Sprintf(`{"turn":%d,"step":1}`, turn), "")
		row("user/message", fmt.Sprintf(`{"content":[{"type":"text","text":"%s"}],"source":{"kind":"user"},"role":"user","id":"u%d"}`, body[:len(words)], turn), `,"surfaceOp":"append"`)
		row("assistant/message", fmt.Sprintf(`{"turn":%d,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"%s"},{"type":"tool-call","id":"c%d","name":"bash","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"},"id":"a%d"},"usage":{"inputTokens":1034,"outputTokens":2}}`, turn, body, turn, turn), `,"surfaceOp":"append"`)
		row("tool/call", fmt.Sprintf(`{"turn":%d,"step":1,"callId":"c%d","name":"bash","arguments":"{\"command\":\"ls -la\"}"}`, turn, turn), "")
		row("tool/result", fmt.Sprintf(`{"turn":%d,"step":1,"message":{"source":{"kind":"tool","callId":"c%d"},"content":[{"type":"tool-result","toolCallId":"c%d","content":[{"type":"text","text":"%s"}],"isError":false}],"role":"user","id":"t%d"}}`, turn, turn, turn, body, turn), fmt.Sprintf(`,"surfaceOp":"append","sourceEventSeqs":[%d]`, seq-1))
		row("step/end", fmt.Sprintf(`{"turn":%d,"step":1}`, turn), "")
		row("turn/end", fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, turn), "")
	}
	return text
}

// BenchmarkRead reports MB of decoded text a second, beside encoding/json.Valid
// over the same bytes.
func BenchmarkRead(b *testing.B) {
	text := ledgerText(5000)
	dir := b.TempDir()
	for name, file := range map[string][]byte{"raw": text, "zstd/batches": frames(b, text, 20), "zstd/one frame": frames(b, text, 1<<30)} {
		path := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(path, file, 0o600); err != nil {
			b.Fatal(err)
		}
		b.Run("finished/"+name, func(b *testing.B) {
			benchmark(b, text, func() (n int, err error) {
				r, err := Open(path)
				if err != nil {
					return 0, err
				}
				defer r.Close()
				for r.Next() {
					n++
				}
				return n, r.Err()
			})
		})
		b.Run("live/"+name, func(b *testing.B) {
			benchmark(b, text, func() (n int, err error) {
				r, err := OpenLive(path, Position{})
				if err != nil {
					return 0, err
				}
				defer r.Close()
				for r.Next() {
					n++
				}
				return n, r.Err()
			})
		})
		b.Run("inherited/"+name, func(b *testing.B) {
			benchmark(b, text, func() (int, error) {
				_, err := InheritedCount(path)
				return 40_000, err
			})
		})
	}
	b.Run("encoding-json.Valid", func(b *testing.B) {
		lines := bytes.Split(text, []byte("\n"))
		benchmark(b, text, func() (int, error) {
			for _, l := range lines[:len(lines)-1] {
				if !json.Valid(l) {
					return 0, fmt.Errorf("invalid")
				}
			}
			return len(lines), nil
		})
	})
}

func benchmark(b *testing.B, text []byte, f func() (int, error)) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	events := 0
	for b.Loop() {
		n, err := f()
		if err != nil || n < 40_000 {
			b.Fatal(n, err)
		}
		events += n
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkAppend(b *testing.B) {
	for _, raw := range []bool{true, false} {
		b.Run(fmt.Sprint("raw ", raw), func(b *testing.B) {
			var opts []WriterOption
			if raw {
				opts = append(opts, WithoutCompression())
			}
			w, err := Create(filepath.Join(b.TempDir(), "s"), &session.Header{}, opts...)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			evs := make([]session.Event, 64)
			size := 0
			for b.Loop() {
				for i := range evs {
					evs[i] = chunk(int(w.NextSeq())+i, "some text of a model")
					size += len(evs[i].Data)
				}
				if err := w.Append(evs...); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(size / b.N))
			b.ReportMetric(float64(64*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkOversized reads a line that is over the limit.
func BenchmarkOversized(b *testing.B) {
	const n = 50_000_000
	path := sparse(b, n, false)
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		if evs, _, err := readAll(path); err != nil || len(evs) != 3 {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdle is what asking costs when nothing has changed.
func BenchmarkIdle(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s")
	if err := os.WriteFile(path, mixed(), 0o600); err != nil {
		b.Fatal(err)
	}
	r, err := OpenLive(path, Position{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for r.Next() {
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Next()
	}
}

// BenchmarkOpen is what opening a file, reading its header and first event and
// closing it costs.
func BenchmarkOpen(b *testing.B) {
	text := ledgerText(100)
	for name, file := range map[string][]byte{"raw": text, "zstd": frames(b, text, 10)} {
		path := filepath.Join(b.TempDir(), name)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := OpenLive(path, Position{})
				if err != nil {
					b.Fatal(err)
				}
				if !r.Next() {
					b.Fatal(r.Err())
				}
				r.Close()
			}
		})
	}
}
