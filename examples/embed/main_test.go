package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func TestEmbeddedSessionArrivesRedacted(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "got.jsonl")
	file, err := receiver.OpenFile(out)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := receiver.Start(receiver.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	leave(t, filepath.Join(dir, "data", "outbox"), "left by an earlier run: joe@example.com")
	if err := run(context.Background(), srv.URL(), filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for _, want := range []string{
		"Where is [REDACTED:acme-order]? My mail is [REDACTED:pii-email].", "It arrives tomorrow.", "left by an earlier run: [REDACTED:pii-email]", `"acme.team"`, `"embed-example"`, `"turn/end"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s has not arrived", want)
		}
	}
	for _, secret := range []string{"ORDER-123456", "jane@example.com", "joe@example.com"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s has arrived", secret)
		}
	}
	ledgers, err := jsonl.DiscoverRoot(filepath.Join(dir, "data", "sessions"))
	if err != nil || len(ledgers) != 1 {
		t.Errorf("%d sessions kept as files, %v", len(ledgers), err)
	}
}

// leave puts a record of an earlier program, with fewer rules, into the outbox.
func leave(t *testing.T, dir, text string) {
	t.Helper()
	o, err := outbox.Open(dir, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := telemetry.Record{Channel: telemetry.ChannelLog, UID: "left", Policy: "an earlier one", Log: &telemetry.LogFields{Body: attribute.StringValue(text)}}
	payload, err := r.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Commit(t.Context(), &outbox.Batch{Entries: []outbox.Entry{{Key: []byte(r.UID), Payload: payload}}}); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
}
