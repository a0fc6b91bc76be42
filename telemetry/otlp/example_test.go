package otlp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Drain sends what an outbox holds and returns when it is empty; Run goes on. A
// program whose redaction policy may change sets Refresh, so that what waits is
// redacted again before it is sent.
func ExampleDeliverer_Drain() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Content-Type"))
		w.Header().Set("Content-Type", "application/x-protobuf") // and an empty answer: accepted
	}))
	defer receiver.Close()
	dir, err := os.MkdirTemp("", "otlp")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	o, err := outbox.Open(dir, outbox.Options{Instance: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Close()

	ctx := context.Background()
	record := telemetry.Record{Channel: telemetry.ChannelLog, UID: "uid-1", Severity: telemetry.SeverityInfo, Log: &telemetry.LogFields{}}
	payload, err := record.AppendBinary(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := o.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{{Key: []byte("uid-1"), Payload: payload}}}); err != nil {
		fmt.Println(err)
		return
	}

	deliverer, err := otlp.New(otlp.FromOutbox(o), otlp.Config{Endpoint: receiver.URL + "/v1/logs"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := deliverer.Drain(ctx); err != nil { // *otlp.UndeliveredError: it stays in the outbox
		fmt.Println(err)
	}
	fmt.Println(deliverer.Stats().Acked, "acknowledged,", o.Stats().Pending, "left")
	// Output:
	// POST /v1/logs application/x-protobuf
	// 1 acknowledged, 0 left
}
