package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/goleak"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an outbox in memory: entries of one stream are leased in order,
// by one lease at a time.
type memory struct {
	mu         sync.Mutex
	entries    []*entry
	change     chan struct{}
	ackErrors  []error // returned by the next acks
	acks       int
	maxLeased  int
	nowLeased  int
	leaseSizes []int
	full       bool // Quarantine finds no room
	leaseError int  // so many leases fail
}

type entry struct {
	outbox.Leased
	leased  bool
	settled bool
	acked   int
	refused *outbox.Refused
}

func newMemory() *memory { return &memory{change: make(chan struct{})} }

func (m *memory) add(stream string, payloads ...[]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range payloads {
		m.entries = append(m.entries, &entry{Leased: outbox.Leased{ID: outbox.ID(len(m.entries) + 1), Stream: stream, Payload: p}})
	}
	m.changed()
}

func (m *memory) changed() {
	close(m.change)
	m.change = make(chan struct{})
}

func (m *memory) Pending() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := int64(0)
	for _, e := range m.entries {
		if !e.settled {
			n++
		}
	}
	return n
}

func (m *memory) TryLease(lim outbox.Limits) (Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaseError > 0 {
		m.leaseError--
		return nil, errors.New("input/output error")
	}
	busy := make(map[string]bool)
	for _, e := range m.entries {
		if e.leased && e.Stream != "" {
			busy[e.Stream] = true
		}
	}
	l := &memoryLease{m: m}
	size := 0
	for _, e := range m.entries {
		if e.settled || e.leased || busy[e.Stream] {
			continue
		}
		if len(l.entries) > 0 && (len(l.entries) >= lim.Records || size+len(e.Payload) > lim.Bytes) {
			break
		}
		l.entries = append(l.entries, e)
		size += len(e.Payload)
	}
	if len(l.entries) == 0 {
		return nil, nil
	}
	for _, e := range l.entries {
		e.leased = true
	}
	m.leaseSizes = append(m.leaseSizes, len(l.entries))
	m.nowLeased += size
	m.maxLeased = max(m.maxLeased, m.nowLeased)
	l.size = size
	return l, nil
}

func (m *memory) Lease(ctx context.Context, lim outbox.Limits) (Lease, error) {
	for {
		m.mu.Lock()
		change := m.change
		m.mu.Unlock()
		if l, err := m.TryLease(lim); l != nil || err != nil {
			return l, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type memoryLease struct {
	m       *memory
	entries []*entry
	size    int
}

func (l *memoryLease) Entries() []outbox.Leased {
	out := make([]outbox.Leased, len(l.entries))
	for i, e := range l.entries {
		out[i] = e.Leased
	}
	return out
}

func (l *memoryLease) find(id outbox.ID) *entry {
	for _, e := range l.entries {
		if e.ID == id && e.leased && !e.settled {
			return e
		}
	}
	return nil
}

func (l *memoryLease) Ack(ids ...outbox.ID) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.acks++
	if len(l.m.ackErrors) > 0 {
		err := l.m.ackErrors[0]
		l.m.ackErrors = l.m.ackErrors[1:]
		if err != nil {
			return err
		}
	}
	for _, id := range ids {
		e := l.find(id)
		if e == nil {
			return outbox.ErrNotLeased
		}
		e.settled = true
		e.acked++
	}
	return nil
}

func (l *memoryLease) Quarantine(refused ...outbox.Refused) error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m.full {
		return outbox.ErrFull
	}
	for _, r := range refused {
		e := l.find(r.ID)
		if e == nil {
			return outbox.ErrNotLeased
		}
		e.settled = true
		e.refused = &r
	}
	return nil
}

func (l *memoryLease) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	for _, e := range l.entries {
		e.leased = false
	}
	l.m.nowLeased -= l.size
	l.m.changed()
	return nil
}

// counts returns how many entries are acked, quarantined and pending.
func (m *memory) counts() (acked, refused, pending int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		switch {
		case e.refused != nil:
			refused++
		case e.settled:
			acked++
		default:
			pending++
		}
	}
	return acked, refused, pending
}

func (m *memory) quarantined() []outbox.Refused {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []outbox.Refused
	for _, e := range m.entries {
		if e.refused != nil {
			out = append(out, *e.refused)
		}
	}
	return out
}

var testResource = telemetry.NewResource("", attribute.String("service.name", "agent"), attribute.String("service.instance.id", "i-1"))

func record(session string, seq int, body string) *telemetry.Record {
	r := &telemetry.Record{
		Identity:      telemetry.Identity{SessionID: session, CreatedAt: 1796031742000, FormatVersion: 1, Seq: int64(seq)},
		SessionScoped: true,
		Type:          "user/message", EventName: "user/message",
		TimeMs: 1796031742486, ObservedMs: 1796031742999,
		Severity:   telemetry.SeverityInfo,
		Body:       json.RawMessage(body),
		Resource:   testResource,
		Scope:      telemetry.Scope{Name: telemetry.ScopeLedger, Version: "1.2.3"},
		Policy:     "sha256:p",
		Attributes: []attribute.KeyValue{attribute.String(telemetry.KeyCwd, "/home/x")},
	}
	r.UID = r.Identity.UID()
	return r
}

func stored(tb testing.TB, r *telemetry.Record) []byte {
	tb.Helper()
	b, err := r.AppendBinary(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// fill adds n records to one session.
func fill(tb testing.TB, m *memory, session string, n int) {
	tb.Helper()
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = stored(tb, record(session, i, fmt.Sprintf(`{"text":"record %d of %s"}`, i, session)))
	}
	m.add(session, payloads...)
}

// quick is a configuration whose pauses are short.
func quick(url string) Config {
	return Config{
		Endpoint: url, MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
		MinHold: time.Millisecond, MaxHold: 4 * time.Millisecond, Workers: 1,
		Redact: func(s string) string { return s },
	}
}

func newDeliverer(tb testing.TB, src Source, cfg Config) *Deliverer {
	tb.Helper()
	d, err := New(src, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func startReceiver(tb testing.TB, o receiver.Options) *receiver.Server {
	tb.Helper()
	if o.Keep == 0 {
		o.Keep = 10000
	}
	s, err := receiver.Start(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// patience bounds every wait: it only ends a hang.
const patience = 2 * time.Minute

// drain delivers everything within the test's patience.
func drain(tb testing.TB, d *Deliverer) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.Drain(ctx); err != nil {
		tb.Fatalf("%v (state %+v)", err, d.State())
	}
}

// until runs the deliverer until cond holds, and stops it.
func until(tb testing.TB, d *Deliverer, what string, cond func() bool) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			cancel()
			<-done
			tb.Fatalf("did not happen: %s (state %+v)", what, d.State())
		}
		time.Sleep(time.Millisecond) // polls, decides nothing
	}
	cancel()
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

func behavior(tb testing.TB, spec string) receiver.Behavior {
	tb.Helper()
	b, err := receiver.ParseBehavior(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// uids returns what the receiver kept, in order of arrival.
func uids(s *receiver.Server) []string {
	var out []string
	for _, r := range s.Records() {
		for _, kv := range r.Log.GetAttributes() {
			if kv.GetKey() == telemetry.KeyRecordUID {
				out = append(out, kv.GetValue().GetStringValue())
			}
		}
	}
	return out
}

// distinct returns the number of different values.
func distinct(list []string) int {
	list = slices.Clone(list)
	slices.Sort(list)
	return len(slices.Compact(list))
}

// logs collects what a Deliverer logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) count(s string) int { return strings.Count(l.String(), s) }

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func gzipWriter(w io.Writer) *gzip.Writer { return gzip.NewWriter(w) }
