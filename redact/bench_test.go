package redact_test

import (
	"encoding/json"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/corpus"
	"github.com/otel-bridge/otel-bridge/redact"
)

func BenchmarkJSON(b *testing.B) {
	e := builtin(b)
	for _, c := range corpus.Classes {
		recs := corpus.New(1).Records(c, 1<<20)
		n := 0
		for _, r := range recs {
			n += len(r)
		}
		b.Run(string(c), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			var dst []byte
			start := cpuSeconds()
			for b.Loop() {
				for _, r := range recs {
					var err error
					if dst, _, err = e.JSON(dst[:0], r); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(len(recs)*b.N)/b.Elapsed().Seconds(), "records/s")
			reportCPU(b, start, n)
		})
		b.Run(string(c)+"/automaton", func(b *testing.B) {
			b.SetBytes(int64(n))
			start := cpuSeconds()
			defer func() { reportCPU(b, start, n) }()
			for b.Loop() {
				for _, r := range recs {
					redact.BareAutomaton(e, r)
				}
			}
		})
	}
}

func BenchmarkCleanSmallRecord(b *testing.B) {
	e := builtin(b)
	r := []byte(`{"type":"tool/result","seq":12,"data":{"turn":1,"step":2,"message":{"role":"tool","content":[{"type":"text","text":"` +
		"package client\\n\\nfunc (c *Client) open(ctx context.Context) error {\\n\\tif err := c.dial(ctx); err != nil {\\n\\t\\treturn fmt.Errorf(\\\"open: %w\\\", err)\\n\\t}\\n\\treturn nil\\n}\\n" +
		`"}]},"usage":{"input_tokens":1234,"output_tokens":99}}}`)
	var dst []byte
	b.SetBytes(int64(len(r)))
	b.ReportAllocs()
	for b.Loop() {
		dst, _, _ = e.JSON(dst[:0], r)
	}
}

func BenchmarkImage(b *testing.B) {
	e := builtin(b)
	text := corpus.New(2).Image(1 << 20)
	doc, err := json.Marshal(map[string]string{"data": text})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("redact", func(b *testing.B) {
		var dst []byte
		b.SetBytes(int64(len(doc)))
		start := cpuSeconds()
		defer func() { reportCPU(b, start, len(doc)) }()
		for b.Loop() {
			dst, _, _ = e.JSON(dst[:0], doc)
		}
	})
	b.Run("json.Valid", func(b *testing.B) {
		b.SetBytes(int64(len(doc)))
		start := cpuSeconds()
		defer func() { reportCPU(b, start, len(doc)) }()
		for b.Loop() {
			json.Valid(doc)
		}
	})
}

// reportCPU reports the speed in processor time, which other work on the
// machine does not change.
func reportCPU(b *testing.B, start float64, n int) {
	if used := cpuSeconds() - start; start > 0 && used > 0 {
		b.ReportMetric(float64(n)*float64(b.N)/1e6/used, "MB/cpu-s")
	}
}

func TestACleanSmallRecordCostsNoAllocation(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes sync.Pool forget")
	}
	e := builtin(t)
	r := []byte(`{"type":"tool/result","seq":12,"data":{"turn":1,"message":{"role":"tool","content":[{"type":"text","text":"func open() error {\n\treturn fmt.Errorf(\"open: %w\", err)\n}\n"}]},"usage":{"input_tokens":1234}}}`)
	dst := make([]byte, 0, 4096)
	n := testing.AllocsPerRun(200, func() {
		if _, _, err := e.JSON(dst, r); err != nil {
			t.Fatal(err)
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations", n)
	}
}
