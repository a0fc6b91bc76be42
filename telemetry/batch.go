package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// batch gathers the records of one session until they are committed together
// with its cursor. Its buffers are used again.
type batch struct {
	c      *Capture
	stream string

	rec      Record
	cutBuf   []byte
	leafBuf  []byte
	payloads []byte
	keys     []byte
	entries  []outbox.Entry
	tapped   []Record
	bytes    int
}

// put takes a record down the waterfall, to its size, and into the batch. It
// returns what became of it, and with Config.Attest the leaf of its body.
func (b *batch) put(ctx context.Context, rec *Record, key []byte) (withheld bool, leaf Leaf, err error) {
	out, err := b.c.waterfall.Run(ctx, rec)
	if err != nil {
		return false, leaf, err
	}
	rec.scratch = out.scratch
	limit := b.c.cfg.MaxRecordBytes
	if len(out.Body) > limit {
		short, ok := cut(b.cutBuf[:0], out.Body, limit)
		b.cutBuf = short
		if ok {
			out.Cut, out.Body = int64(len(out.Body)), short
		} else {
			out = b.c.waterfall.finish(out, ReasonTooLarge)
		}
	}
	start := len(b.payloads)
	if b.payloads, err = out.AppendBinary(b.payloads); err != nil {
		return false, leaf, err
	}
	// What is not body is small, unless a listener has made it large.
	if extra := len(b.payloads) - start - len(out.Body) - 10*len(out.Surface.Sources); extra > limit {
		out = b.c.waterfall.finish(out, ReasonTooLarge)
		if b.payloads, err = out.AppendBinary(b.payloads[:start]); err != nil {
			return false, leaf, err
		}
	}
	payload := b.payloads[start:len(b.payloads):len(b.payloads)]
	b.entries = append(b.entries, outbox.Entry{Key: key, Stream: b.stream, Payload: payload})
	b.bytes += len(payload)
	if b.c.cfg.Tap != nil {
		b.tapped = append(b.tapped, *out.private())
	}
	if b.c.cfg.Attest {
		if leaf, b.leafBuf = leafOf(b.leafBuf, out.Body); cap(b.leafBuf) > 2*batchBytes {
			b.leafBuf = nil
		}
	}
	return out.Withheld != "", leaf, nil
}

// commit makes the batch durable together with cursors, and empties it.
func (b *batch) commit(ctx context.Context, cursors ...outbox.Cursor) error {
	if err := commit(ctx, b.c.cfg.Outbox, &outbox.Batch{Entries: b.entries, Cursors: cursors}); err != nil {
		return err
	}
	for i := range b.tapped {
		b.c.cfg.Tap(&b.tapped[i])
	}
	if cap(b.payloads) > 2*batchBytes {
		b.payloads = nil // a large record is no reason to keep its memory
	}
	clear(b.entries)
	clear(b.tapped)
	b.entries, b.tapped, b.payloads, b.keys = b.entries[:0], b.tapped[:0], b.payloads[:0], b.keys[:0]
	b.bytes = 0
	return nil
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
		scratch:   b.rec.scratch, about: ev.Seq, consent: ev.consent,
	}
	if ev.DataTruncated {
		b.rec.Withheld = ReasonLineTooLong
	}
	start := len(b.keys)
	b.keys = EventKey{ev.session, id.Incarnation, id.Seq}.append(b.keys)
	return b.put(ctx, &b.rec, b.keys[start:len(b.keys):len(b.keys)])
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
