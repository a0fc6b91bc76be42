package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// batch gathers the records of one session until they are committed together
// with its cursor. While one parcel is on its way to the disk the next is filled.
type batch struct {
	c      *Capture
	stream string

	rec  Record
	now  *parcel  // is being filled; nil: there is nothing yet
	sent *sending // is on its way; nil: nothing is
	turn bool     // the session has one of the Capture's turns
}

// parcel is what is committed at once, with the buffers that it is made in.
type parcel struct {
	entries  []outbox.Entry
	tapped   []Record
	payloads []byte
	keys     []byte
	bytes    int

	cutBuf, leafBuf, scratch []byte
}

// parcels are used again, by any session: one that is at rest holds no buffers.
var parcels = sync.Pool{New: func() any { return new(parcel) }}

// free empties a parcel and lets others have its buffers, but for those that a
// large record has made large.
func (p *parcel) free() {
	clear(p.entries)
	clear(p.tapped)
	p.entries, p.tapped, p.payloads, p.keys, p.bytes = p.entries[:0], p.tapped[:0], p.payloads[:0], p.keys[:0], 0
	for _, b := range []*[]byte{&p.payloads, &p.cutBuf, &p.leafBuf, &p.scratch} {
		if cap(*b) > 2*batchBytes {
			*b = nil
		}
	}
	parcels.Put(p)
}

// parcel is the one that is being filled.
func (b *batch) parcel() *parcel {
	if b.now == nil {
		b.now = parcels.Get().(*parcel)
	}
	return b.now
}

// add puts an entry into the batch as it is.
func (b *batch) add(e outbox.Entry) {
	p := b.parcel()
	p.entries = append(p.entries, e)
	p.bytes += len(e.Payload)
}

// len is how many entries wait to be committed.
func (b *batch) len() int {
	if b.now == nil {
		return 0
	}
	return len(b.now.entries)
}

// full tells whether the batch should be committed.
func (b *batch) full() bool {
	return b.now != nil && (len(b.now.entries) >= batchRecords || b.now.bytes >= batchBytes)
}

// put takes a record down the waterfall, to its size, and into the batch. It
// returns what became of it, and with Config.Attest the leaf of its body.
func (b *batch) put(ctx context.Context, rec *Record, key []byte) (withheld bool, leaf Leaf, err error) {
	p := b.parcel()
	rec.scratch = p.scratch
	out, err := b.c.waterfall.Run(ctx, rec)
	if err != nil {
		return false, leaf, err
	}
	if out.scratch != nil {
		p.scratch = out.scratch
	}
	limit := b.c.cfg.MaxRecordBytes
	if len(out.Body) > limit {
		short, ok := cut(p.cutBuf[:0], out.Body, limit)
		p.cutBuf = short
		if ok {
			out.Cut, out.Body = int64(len(out.Body)), short
		} else {
			out = b.c.waterfall.finish(out, ReasonTooLarge)
		}
	}
	start := len(p.payloads)
	if p.payloads, err = out.AppendBinary(p.payloads); err != nil {
		return false, leaf, err
	}
	// What is not body is small, unless a listener has made it large.
	if extra := len(p.payloads) - start - len(out.Body) - 10*len(out.Surface.Sources); extra > limit {
		out = b.c.waterfall.finish(out, ReasonTooLarge)
		if p.payloads, err = out.AppendBinary(p.payloads[:start]); err != nil {
			return false, leaf, err
		}
	}
	b.add(outbox.Entry{Key: key, Stream: b.stream, Payload: p.payloads[start:len(p.payloads):len(p.payloads)]})
	if b.c.cfg.Tap != nil {
		p.tapped = append(p.tapped, *out.private())
	}
	if b.c.cfg.Attest {
		leaf, p.leafBuf = leafOf(p.leafBuf, out.Body)
	}
	return out.Withheld != "", leaf, nil
}

// putOwn puts a record of the bridge into the batch that no listener sees.
func (b *batch) putOwn(rec *Record) error {
	payload, err := rec.AppendBinary(nil)
	if err != nil {
		return err
	}
	b.add(outbox.Entry{Key: opsKey(rec.UID), Stream: b.stream, Payload: payload})
	if b.c.cfg.Tap != nil {
		b.now.tapped = append(b.now.tapped, *rec.private())
	}
	return nil
}

// sending is a parcel on its way, with what holds when it has come there.
type sending struct {
	*parcel
	cursor   []byte
	outcomes Outcomes
	done     chan error
}

// send begins to make the batch durable together with cursors, and empties it.
// Only one parcel may be on its way, so that records keep their order.
func (b *batch) send(ctx context.Context, cursors ...outbox.Cursor) *sending {
	w := &sending{parcel: b.parcel(), done: make(chan error, 1)}
	b.now, b.sent = nil, w
	go func() {
		w.done <- commit(ctx, b.c.cfg.Outbox, &outbox.Batch{Entries: w.entries, Cursors: cursors})
	}()
	return w
}

// arrived waits for the parcel that is on its way; nil when there is none, or
// when it has not come there: then nobody knows whether it was made durable.
func (b *batch) arrived() (*sending, error) {
	w := b.sent
	if w == nil {
		return nil, nil
	}
	b.sent = nil
	if err := b.await(w); err != nil {
		return nil, err
	}
	for i := range w.tapped {
		b.c.cfg.Tap(&w.tapped[i])
	}
	return w, nil
}

// await waits for a parcel, and lets another session have the turn meanwhile.
func (b *batch) await(w *sending) error {
	select {
	case err := <-w.done:
		return err
	default:
	}
	if b.turn {
		b.c.turns.give()
		defer func() { _ = b.c.turns.take(context.Background()) }()
	}
	return <-w.done
}

// commit makes the batch durable together with cursors, and empties it.
func (b *batch) commit(ctx context.Context, cursors ...outbox.Cursor) error {
	b.send(ctx, cursors...)
	w, err := b.arrived()
	if err == nil {
		w.free()
	}
	return err
}

// event is an event on its way into a batch, with what only the session knows.
type event struct {
	*session.Event
	dialect   *session.Dialect
	isSurface bool
	body      []byte
	seen      SurfaceFacts
	inherited bool
	ident     Identity // but for the seq
	attrs     []attribute.KeyValue
	session   string
	consent   consent
}

// putEvent makes the record of an event and puts it, or its marker, into the
// batch.
func (b *batch) putEvent(ctx context.Context, ev *event) (withheld bool, leaf Leaf, err error) {
	facts := ev.seen
	if ev.isSurface && ev.SurfaceOp != nil {
		facts.Op = SurfaceAppend
		if ev.SurfaceOp.Replace {
			facts.Op, facts.Start, facts.End = SurfaceReplace, ev.SurfaceOp.Start, ev.SurfaceOp.End
		}
		facts.Sources = ev.SourceEventSeqs
	}
	id := ev.ident
	id.Seq = ev.Seq
	b.rec = Record{
		SessionScoped: true, Identity: id, UID: id.UID(),
		Type: ev.Type, EventName: ev.Type,
		TimeMs: ev.Time, ObservedMs: b.c.cfg.Now().UnixMilli(),
		Severity: severityOf(ev.dialect, ev.Event),
		Surface:  facts, Attributes: ev.attrs, Body: ev.body,
		Resource: b.c.cfg.Resource, Scope: Scope{Name: ScopeLedger, Version: b.c.cfg.Version},
		Inherited: ev.inherited,
		about:     ev.Seq, consent: ev.consent,
	}
	if ev.DataTruncated {
		b.rec.Withheld = ReasonLineTooLong
	}
	p := b.parcel()
	start := len(p.keys)
	p.keys = EventKey{ev.session, id.Incarnation, id.Seq}.append(p.keys)
	return b.put(ctx, &b.rec, p.keys[start:len(p.keys):len(p.keys)])
}

// severityOf is ERROR for what failed and INFO for everything else.
func severityOf(d *session.Dialect, ev *session.Event) Severity {
	switch ev.Type {
	case session.TypeToolResult:
		if d.ToolResultOf(ev).IsError {
			return SeverityError
		}
	case session.TypeTurnEnd:
		if session.StringIs(ev.Path("reason", "kind"), "error") {
			return SeverityError
		}
	}
	return SeverityInfo
}
