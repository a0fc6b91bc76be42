package redact_test

import (
	"bytes"
	"os"
	"testing"
)

func BenchmarkLabelled(b *testing.B) {
	e := builtin(b)
	raw, err := os.ReadFile("/tmp/recs.jsonl")
	if err != nil {
		b.Skip()
	}
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		for _, l := range lines {
			dst, _, _ = e.JSON(dst[:0], l)
		}
	}
}
