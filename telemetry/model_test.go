package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// modelOutbox is an outbox in memory. It copies what it is given, as a disk
// would.
type modelOutbox struct {
	mu      sync.Mutex
	entries []outbox.Entry
	cursors map[string][]byte
	commits int
	full    int   // so many commits are refused for want of room
	fail    error // what the next commit returns
	failOn  int   // the commit that fails, counted from 1; 0: none
	after   bool  // the failing commit is made nevertheless
	waited  int
}

func newModelOutbox() *modelOutbox { return &modelOutbox{cursors: map[string][]byte{}} }

func (o *modelOutbox) Commit(_ context.Context, b *outbox.Batch) (outbox.ID, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.full > 0 {
		o.full--
		return 0, fmt.Errorf("no room: %w", outbox.ErrFull)
	}
	o.commits++
	failing := o.failOn == o.commits
	if failing && !o.after {
		return 0, o.fail
	}
	for _, e := range b.Entries {
		o.entries = append(o.entries, outbox.Entry{Key: slices.Clone(e.Key), Stream: e.Stream, Payload: slices.Clone(e.Payload)})
	}
	for _, c := range b.Cursors {
		o.cursors[c.Key] = slices.Clone(c.Value)
	}
	if failing {
		return 0, o.fail
	}
	return outbox.ID(len(o.entries)), nil
}

func (o *modelOutbox) WaitRoom(context.Context) error { o.waited++; return nil }

func (o *modelOutbox) Cursor(key string) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.cursors[key]
	return append([]byte{}, v...), ok // never nil, as the outbox has it
}

func (o *modelOutbox) Cursors(prefix string, fn func(string, []byte) bool) {
	o.mu.Lock()
	all := maps.Clone(o.cursors)
	o.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(k, prefix) && !fn(k, all[k]) {
			return
		}
	}
}

func (o *modelOutbox) records(t testing.TB) []Record {
	t.Helper()
	var out []Record
	for _, e := range o.entries {
		r, err := DecodeRecord(e.Payload)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// ledgerOf returns the ledger records, as "seq type".
func ledgerOf(records []Record) []string {
	var out []string
	for _, r := range records {
		if r.Channel == ChannelLedger {
			out = append(out, fmt.Sprintf("%d %s", r.Identity.Seq, r.Type))
		}
	}
	return out
}

func seqsOf(records []Record) []int64 {
	var out []int64
	for _, r := range records {
		if r.Channel == ChannelLedger {
			out = append(out, r.Identity.Seq)
		}
	}
	return out
}

func opsOf(records []Record) []string {
	var out []string
	for _, r := range records {
		if r.Channel == ChannelOps {
			out = append(out, r.Op+" "+string(r.Body))
		}
	}
	return out
}

// memSource is a ledger in memory that tests write.
type memSource struct {
	header         session.Header
	events         []session.Event
	seed           int64
	cut            int // of the readings open, so many times shortened
	print          bool
	opened, closed int
}

func (m *memSource) Open() (Ledger, error) {
	m.opened++
	return &memLedger{src: m, cut: m.cut}, nil
}
func (m *memSource) Inherited() (int64, error) { return m.seed, nil }
func (m *memSource) Fingerprint() (string, error) {
	if !m.print {
		return "", nil
	}
	return fmt.Sprint(len(m.events), m.cut), nil
}

type memLedger struct {
	src *memSource
	at  int
	cut int
	err error
}

func (l *memLedger) Header() *session.Header { return &l.src.header }
func (l *memLedger) Next() bool {
	if l.cut != l.src.cut {
		l.err = &jsonl.TruncatedError{File: "memory"}
	}
	if l.err != nil || l.at >= len(l.src.events) {
		return false
	}
	l.at++
	return true
}
func (l *memLedger) Event() *session.Event { return &l.src.events[l.at-1] }
func (l *memLedger) Err() error            { return l.err }
func (l *memLedger) Close() error          { l.src.closed++; return nil }

// ledger writes events of format 0: each line is a type and its data.
func ledger(id string, lines ...string) *memSource {
	m := &memSource{header: session.Header{ID: id, CreatedAt: 1000}}
	m.append(lines...)
	return m
}

func (m *memSource) append(lines ...string) {
	for _, line := range lines {
		typ, data, _ := strings.Cut(line, " ")
		if data == "" {
			data = "{}"
		}
		ev := session.Event{Seq: int64(len(m.events)), Time: 2000 + int64(len(m.events)), Type: typ, Data: json.RawMessage(data)}
		switch typ {
		case session.TypeUserMessage, session.TypeAssistantMessage, session.TypeToolResult, session.TypeSystemMessage:
			ev.SurfaceOp = &session.SurfaceOp{}
			if typ != session.TypeAssistantMessage {
				ev.SourceEventSeqs = nil
			}
		}
		m.events = append(m.events, ev)
	}
}

// turn is one turn with one step that has a chunk stream and a message.
func turn(n int) []string {
	at := fmt.Sprintf(`{"turn":%d}`, n)
	step := fmt.Sprintf(`{"turn":%d,"step":1}`, n)
	chunk := func(c string) string { return fmt.Sprintf(`assistant/chunk {"turn":%d,"step":1,"chunk":%s}`, n, c) }
	return []string{
		"turn/start " + at,
		"step/start " + step,
		fmt.Sprintf(`user/message {"id":"u%d","role":"user","source":{"kind":"user"},"content":[{"type":"text","text":"question %d"}]}`, n, n),
		chunk(`{"type":"block-start","index":0,"blockType":"text"}`),
		chunk(`{"type":"text-delta","index":0,"text":"ans"}`),
		chunk(`{"type":"text-delta","index":0,"text":"wer"}`),
		fmt.Sprintf(`assistant/message {"turn":%d,"step":1,"message":{"id":"a%d","role":"assistant","content":[{"type":"text","text":"answer"}]}}`, n, n),
		"step/end " + step,
		"turn/end " + fmt.Sprintf(`{"turn":%d,"reason":{"kind":"completed"}}`, n),
	}
}

var testInstallation = &Installation{ID: "0011", Key: []byte("0123456789abcdef0123456789abcdef"), Epoch: 1, Mode: Full}

func testCapture(t testing.TB, o Outbox, change func(*Config)) *Capture {
	t.Helper()
	cfg := Config{Outbox: o, Mode: Full, Installation: testInstallation, Version: "test",
		Now: func() time.Time { return time.UnixMilli(5000) }}
	if change != nil {
		change(&cfg)
	}
	c, err := NewCapture(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pull(t testing.TB, s *Session) Progress {
	t.Helper()
	p, err := s.Pull(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
