// Command embed is a Go agent that writes its own ledger and sends it, checked
// and redacted, without the otel-bridge program: it embeds the packages
// session, redact and telemetry.
//
//	go run ./examples/embed -endpoint http://127.0.0.1:4318/v1/logs -dir /tmp/embed
//
// The session is kept as a DSH file below -dir/sessions; what has not been
// delivered yet is kept in -dir/outbox and goes out with the next run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func main() {
	endpoint := flag.String("endpoint", "http://127.0.0.1:4318/v1/logs", "OTLP/HTTP logs `URL`")
	dir := flag.String("dir", "embed-data", "`directory` for the session and what is not delivered yet")
	flag.Parse()
	if err := run(context.Background(), *endpoint, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, endpoint, dir string) (err error) {
	// Redaction: the built-in rules, and one of our own.
	own, err := redact.ParsePolicy("own", []byte(`
[[rules]]
id = "acme-order"
regex = '''ORDER-\d{6}'''
keywords = ["order-"]
`))
	if err != nil {
		return err
	}
	engine, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy(), own}})
	if err != nil {
		return err
	}

	// The outbox keeps records until a receiver has acknowledged them.
	box := filepath.Join(dir, "outbox")
	ob, err := outbox.Open(box, outbox.Options{Instance: "embed"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ob.Close()) }()
	installation, err := telemetry.OpenInstallation(box)
	if err != nil {
		return err
	}
	redaction := telemetry.NewRedaction(telemetry.NewEngine(engine), installation.Key)
	// Consent is said here, and remembered with the data.
	if _, _, err := installation.Start(telemetry.Full, redaction.Policy()); err != nil {
		return err
	}
	capture, err := telemetry.NewCapture(telemetry.Config{
		Outbox: ob, Mode: telemetry.Full, Installation: installation, Redaction: redaction,
		Resource:  telemetry.NewResource("", attribute.String("service.name", "embed-example")),
		Listeners: []telemetry.Listener{telemetry.ListenerFunc(tagTeam)},
	})
	if err != nil {
		return err
	}

	// The session: a store in memory, kept in files, followed by capture.
	store := session.NewMemoryStore(nil, nil)
	jsonl.Persist(store, filepath.Join(dir, "sessions"))
	pipeline := telemetry.Attach(store, capture, nil)
	capturing, stopCapture := context.WithCancel(ctx)
	captured := make(chan struct{})
	go func() {
		defer close(captured)
		pipeline.Run(capturing)
	}()
	worked := work(ctx, store)
	stopCapture()
	<-captured
	if err := errors.Join(worked, pipeline.Close(ctx)); err != nil {
		return err
	}

	// Delivery. A long-lived program would let deliverer.Run go on beside it.
	deliverer, err := otlp.New(otlp.FromOutbox(ob), otlp.Config{
		Endpoint: endpoint,
		// What an earlier run has left goes out under the rules of this one.
		Refresh: func(r *telemetry.Record) error { *r = *redaction.Again(r); return nil },
	})
	if err != nil {
		return err
	}
	draining, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := deliverer.Drain(draining); err != nil {
		return err // what is left goes out with the next run
	}
	fmt.Printf("%d records acknowledged\n", deliverer.Stats().Acked)
	return nil
}

// tagTeam is a listener of our own. Redaction comes after it, so that it may
// use what it sees, and nothing it adds can leave unredacted.
func tagTeam(ctx context.Context, r *telemetry.Record, next telemetry.Next) (*telemetry.Record, error) {
	r, err := next(ctx, r)
	if err != nil || r == nil {
		return r, err
	}
	r.Attributes = append(r.Attributes, attribute.String("acme.team", "platform"))
	return r, nil
}

// work is the agent: one turn with a question and an answer.
func work(ctx context.Context, store *session.MemoryStore) error {
	ledger, err := store.Create(ctx, session.CreateOptions{})
	if err != nil {
		return err
	}
	type object = map[string]any
	text := func(s string) []object { return []object{{"type": "text", "text": s}} }
	at := object{"turn": 1, "step": 1}
	for _, e := range []struct {
		typ  string
		data object
		node bool
	}{
		{"turn/start", object{"turn": 1}, false},
		{"user/message", object{"role": "user", "id": "m1", "source": object{"kind": "user"},
			"content": text("Where is ORDER-123456? My mail is jane@example.com.")}, true},
		{"step/start", at, false},
		{"assistant/message", object{"turn": 1, "step": 1, "message": object{"role": "assistant", "id": "m2",
			"source": object{"kind": "assistant", "provider": "example", "model": "example"}, "content": text("It arrives tomorrow.")}}, true},
		{"step/end", at, false},
		{"turn/end", object{"turn": 1, "reason": object{"kind": "completed"}}, false},
	} {
		data, err := json.Marshal(e.data)
		if err != nil {
			return err
		}
		c := session.Candidate{Type: e.typ, Data: data}
		if e.node {
			c.SurfaceOp = &session.SurfaceOp{}
		}
		if e.typ == "assistant/message" {
			c.SourceEventSeqs = []int64{}
		}
		if _, err := ledger.Append(c); err != nil {
			return err
		}
	}
	// Dispose returns when the session is in its file and captured to its end.
	return store.Dispose(ctx, ledger.ID())
}
