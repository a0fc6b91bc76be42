package telemetry_test

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/attribute"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func redaction(key []byte) (*telemetry.Redaction, error) {
	engine, err := redact.New(redact.Options{Policies: []*redact.Policy{pii.Policy()}})
	if err != nil {
		return nil, err
	}
	return telemetry.NewRedaction(telemetry.NewEngine(engine), key), nil
}

// show prints what an outbox holds.
func show(o *outbox.Outbox) error {
	var decoder telemetry.Decoder
	var broken error
	err := o.Scan(func(i outbox.Info) bool {
		r, err := decoder.Decode(i.Payload)
		if err != nil {
			broken = err
			return false
		}
		if r.Log != nil {
			fmt.Println(r.Severity, r.Log.Body.AsString())
		} else {
			fmt.Println(r.Severity, r.EventName, string(r.Body))
		}
		return true
	})
	if err == nil {
		err = broken
	}
	return err
}

// The sessions of a store are captured as they are written. An otlp.Deliverer
// over the same outbox sends what is shown here.
func ExampleAttach() {
	dir, err := os.MkdirTemp("", "telemetry")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := capture(dir); err != nil {
		fmt.Println(err)
	}
	// Output:
	// INFO turn/start {"turn":1}
	// INFO user/message {"role":"user","id":"m1","source":{"kind":"user"},"content":[{"type":"text","text":"I am [REDACTED:pii-email]"}]}
	// INFO turn/end {"turn":1,"reason":{"kind":"completed"}}
}

func capture(dir string) error {
	ctx := context.Background()
	o, err := outbox.Open(dir, outbox.Options{Instance: "example"})
	if err != nil {
		return err
	}
	defer o.Close()
	installation, err := telemetry.OpenInstallation(dir)
	if err != nil {
		return err
	}
	redaction, err := redaction(installation.Key)
	if err != nil {
		return err
	}
	if _, _, err := installation.Start(telemetry.Full, redaction.Policy()); err != nil { // consent
		return err
	}
	c, err := telemetry.NewCapture(telemetry.Config{Outbox: o, Mode: telemetry.Full, Installation: installation, Redaction: redaction})
	if err != nil {
		return err
	}

	store := session.NewMemoryStore(nil, nil)
	pipeline := telemetry.Attach(store, c, nil) // a program that lives long has pipeline.Run go on beside it
	ledger, err := store.Create(ctx, session.CreateOptions{Header: session.Header{Version: session.MaxVersion}})
	if err != nil {
		return err
	}
	for _, e := range []session.Candidate{
		{Type: "turn/start", Data: []byte(`{"turn":1}`)},
		{Type: "user/message", Data: []byte(`{"role":"user","id":"m1","source":{"kind":"user"},"content":[{"type":"text","text":"I am jane@example.com"}]}`),
			SurfaceOp: &session.SurfaceOp{}},
		{Type: "turn/end", Data: []byte(`{"turn":1,"reason":{"kind":"completed"}}`)},
	} {
		if _, err := ledger.Append(e); err != nil {
			return err
		}
	}
	if err := store.Dispose(ctx, ledger.ID()); err != nil { // when all of it is captured
		return err
	}
	if err := pipeline.Close(ctx); err != nil {
		return err
	}
	return show(o)
}

// A program's own log records, kept until a receiver has accepted them.
func ExampleDurableProcessor() {
	dir, err := os.MkdirTemp("", "telemetry")
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
	redaction, err := redaction([]byte("a key of this installation, 32 b"))
	if err != nil {
		fmt.Println(err)
		return
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(telemetry.NewDurableProcessor(o, telemetry.WithRedaction(redaction))))

	var record apilog.Record
	record.SetSeverity(apilog.SeverityWarn)
	record.SetBody(attribute.StringValue("no such user: jane@example.com"))
	provider.Logger("example").Emit(context.Background(), record) // durable when it returns

	if err := show(o); err != nil {
		fmt.Println(err)
	}
	if err := provider.Shutdown(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// WARN no such user: [REDACTED:pii-email]
}
