package secrets

import (
	"testing"

	"github.com/otel-bridge/otel-bridge/redact"
)

// BenchmarkNew makes an engine of the built-in rules, as each start of the
// program does.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := redact.New(redact.Options{Policies: []*redact.Policy{Policy()}}); err != nil {
			b.Fatal(err)
		}
	}
}
