package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// FuzzProjection gives the projector any JSON as payload: what comes out is
// JSON, and a first chunk never has the fragment.
func FuzzProjection(f *testing.F) {
	f.Add([]byte(`{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"frag"}}`))
	f.Add([]byte(`{"turn":1,"stream":[{"type":"chunk","chunk":{"type":"block-end","index":0,"block":{"type":"text"}}},{"type":"text-chunks","index":0,"texts":["a","b"]}]}`))
	f.Add([]byte(`[1,{"stream":[]}]`))
	f.Add([]byte(`{"stream":{"a":1},"stream":[[]],"chunk":[],"turn":"x","step":1e400}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if session.ValidJSON(data) != nil {
			t.Skip()
		}
		data = session.TrimSpace(data)
		for version := range 5 {
			d, err := session.DialectOf(version)
			if err != nil {
				t.Fatal(err)
			}
			p := projector{dialect: d}
			for _, typ := range []string{session.TypeAssistantChunk, session.TypeAssistantChunk, session.TypeStepEnd,
				session.TypeAssistantMessage, session.TypeAssistantAttempt} {
				pr := p.observe(&session.Event{Type: typ, Data: data}, true)
				if pr.attempt {
					if body, _, ok := p.takeAttempt(); ok && !json.Valid(body) {
						t.Fatalf("attempt: %q", body)
					}
				}
				if !pr.elided && !json.Valid(pr.body) {
					t.Fatalf("%s in format %d: %q", typ, version, pr.body)
				}
				if d.EmbedsStreams() && typ == session.TypeAssistantMessage && session.Member(pr.body, "stream") != nil {
					t.Fatalf("the stream goes out: %q", pr.body)
				}
			}
		}
	})
}

// FuzzCut cuts any JSON to any size.
func FuzzCut(f *testing.F) {
	f.Add([]byte(`{"a":"\ud83d\ude00[REDACTED:x]","b" : ["é","x"]}`), 12)
	f.Fuzz(func(t *testing.T, body []byte, limit int) {
		if session.ValidJSON(body) != nil || limit < 0 {
			t.Skip()
		}
		out, ok := cut(nil, body, limit)
		switch {
		case !ok:
		case !json.Valid(out):
			t.Fatalf("not JSON: %q", out)
		case len(out) > limit && !(len(body) <= limit && bytes.Equal(out, body)):
			t.Fatalf("%d bytes for %d", len(out), limit)
		}
	})
}

// A small outbox, a slow receiver: capture waits, and everything arrives once
// and in order.
func TestSmallOutboxSlowsCaptureAndLosesNothing(t *testing.T) {
	path := shared(t, "dsh/v0/lab-bigoutput.jsonl")
	want, _ := captured(t, FinishedFile(path, nil), nil)
	o, err := outbox.Open(t.TempDir(), outbox.Options{MaxSize: 8 << 20, SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	ctx, stop := context.WithCancel(t.Context())
	var got []Record
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for {
			lease, err := o.Lease(ctx, outbox.Limits{Records: 3})
			if err != nil {
				return
			}
			for _, e := range lease.Entries() {
				r, err := DecodeRecord(bytes.Clone(e.Payload))
				if err != nil {
					t.Error(err)
				}
				got = append(got, r)
				if err := lease.Ack(e.ID); err != nil {
					t.Error(err)
				}
			}
			if err := lease.Close(); err != nil {
				t.Error(err)
			}
			if len(got) == 20*len(want) {
				stop()
				return
			}
		}
	})
	// Twenty sessions from one file are more than the outbox holds.
	for i := range 20 {
		src := &renamed{FinishedFile(path, nil), string(rune('a' + i))}
		p, err := testCapture(t, o, func(c *Config) { c.MaxRecordBytes = 1 << 20 }).Session(src, SessionOptions{}).Pull(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		reconciles(t, p.Outcomes)
	}
	receiver.Wait()
	stop()
	next := map[string]int64{}
	for _, r := range got {
		if r.Identity.Seq < next[r.Identity.SessionID] {
			t.Fatalf("%s: %d after %d", r.Identity.SessionID, r.Identity.Seq, next[r.Identity.SessionID])
		}
		next[r.Identity.SessionID] = r.Identity.Seq + 1
	}
	if len(next) != 20 || len(got) != 20*len(want) {
		t.Errorf("%d records of %d sessions", len(got), len(next))
	}
}

// renamed gives a session another id.
type renamed struct {
	*File
	id string
}

func (r *renamed) Open() (Ledger, error) {
	led, err := r.File.Open()
	if err != nil {
		return nil, err
	}
	h := *led.Header()
	h.ID = r.id
	return &renamedLedger{led, &h}, nil
}

type renamedLedger struct {
	Ledger
	header *session.Header
}

func (l *renamedLedger) Header() *session.Header { return l.header }
