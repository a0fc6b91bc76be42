package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// DurableProcessor is a processor of the OpenTelemetry log SDK that keeps every
// record in an outbox until a receiver has accepted it. It takes the place of a
// BatchProcessor; an otlp.Deliverer over the same outbox delivers.
//
//	Logger.Emit ──▶ OnEmit ──▶ redaction ──▶ outbox (fdatasync) ──▶ Deliverer
//
// OnEmit returns when its record is durable; calls at the same time share one
// sync. While the outbox is full it waits, until its context or the configured
// time ends; then it returns an error, and the record is counted as refused.
// What was acknowledged survives overflow, Shutdown and crashes. The outbox
// directory must be one of its own, since no ledger stands behind its records.
//
// WithEarlyReturn makes OnEmit return before the sync; the window that this opens
// is described there.
type DurableProcessor struct {
	outbox    Outbox
	waterfall *Waterfall
	wait      time.Duration
	early     chan boarded // nil: OnEmit returns after the sync
	landing   sync.Once    // closes early

	mu       sync.Mutex
	closed   bool
	current  *flight
	earlier  []*flight // not yet landed
	resource atomic.Pointer[knownResource]

	committed, refused, withheld, failed atomic.Int64
}

var _ sdklog.Processor = (*DurableProcessor)(nil)

// flight is the records that are on their way between two flushes.
type flight struct {
	records int
	sealed  bool // no more join
	landed  chan struct{}
}

type knownResource struct {
	of *resource.Resource
	as *Resource
}

// DurableOption configures a DurableProcessor.
type DurableOption func(*DurableProcessor)

// WithRedaction redacts each record, its scope and resource included, before it
// is stored. Without it records are stored as they are.
func WithRedaction(d *Redaction, own ...Listener) DurableOption {
	return func(p *DurableProcessor) { p.waterfall = NewWaterfall(nil, d, own...) }
}

// WithWait sets how long OnEmit waits for room in the outbox when its context
// has no earlier end. The default is 10 seconds.
func WithWait(d time.Duration) DurableOption {
	return func(p *DurableProcessor) { p.wait = d }
}

// WithEarlyReturn makes OnEmit return when its record is redacted and in line for
// the next sync, with at most so many records (at least 1) in line. When the line
// is full OnEmit waits as it does for room; no record is dropped from it.
//
// The window: a record whose OnEmit has returned is lost when the process is
// killed, or the machine stops, before the sync that it waits for. That sync
// begins when the one before it ends, so the window is about two syncs long
// while the outbox has room, and as long as it has none otherwise. ForceFlush
// and Shutdown wait until the line is empty; a program that ends without them,
// or whose Shutdown ends by its context, loses what is in line. A record that
// the outbox refuses for another reason than room is counted in
// DurableStats.Failed, since nobody is left to get the error.
//
// A goroutine commits what is in line. It ends with a Shutdown that succeeds, as
// one does at the latest when the outbox has been closed.
func WithEarlyReturn(records int) DurableOption {
	return func(p *DurableProcessor) { p.early = make(chan boarded, max(1, records)) }
}

// NewDurableProcessor returns a processor that stores records in o.
func NewDurableProcessor(o Outbox, opts ...DurableOption) *DurableProcessor {
	p := &DurableProcessor{outbox: o, waterfall: NewWaterfall(nil, nil), wait: 10 * time.Second, current: newFlight()}
	for _, opt := range opts {
		opt(p)
	}
	if p.early != nil {
		go p.commitLine()
	}
	return p
}

// boarded is a record in line for the next sync.
type boarded struct {
	entry    outbox.Entry
	flight   *flight
	withheld bool
}

// commitLine commits what is in line, as much at a time as there is.
func (p *DurableProcessor) commitLine() {
	var line []boarded
	for first := range p.early {
		line = append(line[:0], first)
		b := outbox.Batch{Entries: []outbox.Entry{first.entry}}
		bytes := len(first.entry.Payload)
	more:
		for len(line) < batchRecords && bytes < batchBytes {
			select {
			case next, open := <-p.early:
				if !open {
					break more
				}
				line = append(line, next)
				b.Entries = append(b.Entries, next.entry)
				bytes += len(next.entry.Payload)
			default:
				break more
			}
		}
		err := commit(context.Background(), p.outbox, &b) // ends when the outbox is closed
		for i := range line {
			failed := err
			if len(line) > 1 && errors.Is(err, outbox.ErrTooLarge) {
				// One that can never be stored takes no others with it.
				failed = commit(context.Background(), p.outbox, &outbox.Batch{Entries: b.Entries[i : i+1]})
			}
			p.landed(&line[i], failed)
		}
		clear(line)
	}
}

// landed counts a record of the line and lets those go on that wait for it.
func (p *DurableProcessor) landed(q *boarded, err error) {
	switch {
	case err != nil:
		p.failed.Add(1)
	default:
		p.committed.Add(1)
		if q.withheld {
			p.withheld.Add(1)
		}
	}
	p.leave(q.flight)
}

// DurableStats counts records since the processor was made.
type DurableStats struct {
	// Committed counts records that were made durable, Withheld those of them
	// of which only a marker is left, Refused those that OnEmit returned an
	// error for, Failed those that OnEmit had returned nil for when the outbox
	// refused them (only WithEarlyReturn).
	Committed, Withheld, Refused, Failed int64
}

// Stats returns the counts.
func (p *DurableProcessor) Stats() DurableStats {
	return DurableStats{p.committed.Load(), p.withheld.Load(), p.refused.Load(), p.failed.Load()}
}

// Enabled is always true.
func (p *DurableProcessor) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// OnEmit makes the record durable. A context that has ended already does not
// keep a record out as long as there is room.
func (p *DurableProcessor) OnEmit(ctx context.Context, r *sdklog.Record) error {
	f := p.board()
	if f == nil {
		return nil
	}
	if p.early != nil {
		return p.queue(ctx, r, f)
	}
	defer p.leave(f)
	if err := p.store(ctx, r); err != nil {
		p.refused.Add(1)
		return err
	}
	p.committed.Add(1)
	return nil
}

// queue puts a record in line for the next sync, and waits for a place there.
func (p *DurableProcessor) queue(ctx context.Context, r *sdklog.Record, f *flight) error {
	entry, withheld, err := p.entry(context.WithoutCancel(ctx), r)
	if err == nil {
		q := boarded{entry, f, withheld}
		select {
		case p.early <- q:
			return nil
		default:
		}
		wait, cancel := context.WithTimeoutCause(ctx, p.wait, outbox.ErrFull)
		defer cancel()
		select {
		case p.early <- q:
			return nil
		case <-wait.Done():
			err = errors.Join(outbox.ErrFull, wait.Err())
		}
	}
	p.refused.Add(1)
	p.leave(f)
	return err
}

// entry is a record as it is stored.
func (p *DurableProcessor) entry(ctx context.Context, r *sdklog.Record) (e outbox.Entry, withheld bool, err error) {
	out, err := p.waterfall.Run(ctx, p.record(r))
	if err != nil {
		return e, false, err
	}
	payload, err := out.AppendBinary(nil)
	return outbox.Entry{Key: []byte(out.UID), Payload: payload}, out.Withheld != "", err
}

func (p *DurableProcessor) store(ctx context.Context, r *sdklog.Record) error {
	work := context.WithoutCancel(ctx)
	entry, withheld, err := p.entry(work, r)
	if err != nil {
		return err
	}
	b := outbox.Batch{Entries: []outbox.Entry{entry}}
	_, err = p.outbox.Commit(work, &b)
	if errors.Is(err, outbox.ErrFull) {
		ctx, cancel := context.WithTimeoutCause(ctx, p.wait, outbox.ErrFull)
		defer cancel()
		if err = p.outbox.WaitRoom(ctx); err == nil {
			err = commit(ctx, p.outbox, &b)
		}
		if err != nil && ctx.Err() != nil {
			err = errors.Join(outbox.ErrFull, ctx.Err())
		}
	}
	if err == nil && withheld {
		p.withheld.Add(1)
	}
	return err
}

// record makes a Record of one of the SDK's.
func (p *DurableProcessor) record(r *sdklog.Record) *Record {
	out := &Record{
		Channel: ChannelLog, Severity: Severity(r.Severity()), EventName: r.EventName(),
		Attributes: make([]attribute.KeyValue, 0, r.AttributesLen()),
		Resource:   p.resourceOf(r.Resource()),
		Log: &LogFields{
			TimeNs: unixNano(r.Timestamp()), ObservedNs: unixNano(r.ObservedTimestamp()),
			SeverityText: r.SeverityText(), Body: r.Body(),
			TraceID: r.TraceID(), SpanID: r.SpanID(), TraceFlags: byte(r.TraceFlags()),
			Dropped: int64(r.DroppedAttributes()),
		},
	}
	scope := r.InstrumentationScope()
	out.Scope = Scope{Name: scope.Name, Version: scope.Version, SchemaURL: scope.SchemaURL}
	if scope.Attributes.Len() > 0 {
		out.Scope.Attributes = scope.Attributes
	}
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		if kv.Key == KeyRecordUID && kv.Value.Type() == attribute.STRING {
			out.UID = kv.Value.AsString()
			return true
		}
		out.Attributes = append(out.Attributes, kv)
		return true
	})
	if out.UID == "" {
		out.UID = randomUID()
	}
	return out
}

// unixNano is 0 for times that OTLP does not have.
func unixNano(t time.Time) int64 {
	if t.IsZero() || t.Unix() < 0 || t.Unix() > otlpSeconds {
		return 0
	}
	return t.UnixNano()
}

const otlpSeconds = 9223372035

// resourceOf remembers the last resource, since a provider has but one.
func (p *DurableProcessor) resourceOf(r *resource.Resource) *Resource {
	if known := p.resource.Load(); known != nil && known.of == r {
		return known.as
	}
	as := NewResource(r.SchemaURL(), r.Attributes()...)
	p.resource.Store(&knownResource{r, as})
	return as
}

// randomUID is a UUID of version 4.
func randomUID() string {
	var u [16]byte
	rand.Read(u[:]) // never fails
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// ForceFlush returns when every record whose OnEmit has begun is durable. It
// does not wait for delivery.
func (p *DurableProcessor) ForceFlush(ctx context.Context) error { return p.settle(ctx, false) }

// Shutdown is ForceFlush, after which OnEmit does nothing. What was committed
// stays in the outbox, which is the caller's to close.
func (p *DurableProcessor) Shutdown(ctx context.Context) error {
	err := p.settle(ctx, true)
	if err == nil && p.early != nil {
		// Nobody is on the way into the line any more.
		p.landing.Do(func() { close(p.early) })
	}
	return err
}

func newFlight() *flight { return &flight{landed: make(chan struct{})} }

// board joins the current flight; nil after Shutdown.
func (p *DurableProcessor) board() *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.current.records++
	return p.current
}

func (p *DurableProcessor) leave(f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.records--
	p.land(f)
}

// land tells those who wait when a sealed flight is over. The caller holds mu.
func (p *DurableProcessor) land(f *flight) {
	if f.sealed && f.records == 0 {
		close(f.landed)
		p.earlier = slices.DeleteFunc(p.earlier, func(e *flight) bool { return e == f })
	}
}

// settle waits for the records that are on their way now.
func (p *DurableProcessor) settle(ctx context.Context, closing bool) error {
	p.mu.Lock()
	p.closed = p.closed || closing
	f := p.current
	f.sealed, p.current = true, newFlight()
	p.earlier = append(p.earlier, f)
	waiting := slices.Clone(p.earlier)
	p.land(f)
	p.mu.Unlock()
	for _, f := range waiting {
		select {
		case <-f.landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
