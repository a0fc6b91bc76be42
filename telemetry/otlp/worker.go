package otlp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Reasons of quarantined entries.
const (
	ReasonRefused      = "refused"    // the receiver refused exactly this record
	ReasonTooLarge     = "too-large"  // over the receiver's limit, alone
	ReasonOverLimit    = "over-limit" // over the sender's own limit, alone
	ReasonPartial      = "partial"    // the receiver took part of a batch and did not say which
	ReasonUndecoded    = "undecoded"  // the stored record cannot be read
	ReasonNotRefreshed = "refresh"    // it could not be made to fit the present policy
)

// worker settles one lease after the other.
type worker struct {
	d         *Deliverer
	transport *transport
	exporter  *otlploghttp.Exporter
	encode    encoder
	requests  context.Context // of each request: ends StopGrace after delivery's own

	// Memory used again by every lease.
	record telemetry.Record
	items  []item
}

// item is one leased entry on its way.
type item struct {
	id   outbox.ID
	size int // stored bytes
	encoded
	record *telemetry.Record // as sent, if not as stored
}

// batch is a lease in work. Spans are the parts not yet settled, the next one
// last, so that order is kept.
type batch struct {
	lease Lease
	items []item
	spans []span

	// suspects were refused alone; whether the record or the receiver is at
	// fault shows when another record is accepted, or at the end.
	suspects []suspect
	// bad are to be put aside as soon as the outbox has room for them.
	bad []outbox.Refused
	// witness: another record was tried after too many refusals.
	witness bool
	// searching for refused records: the batch is not given back for a pause.
	searching bool

	tooLarge int  // smallest request of several records that was too large
	largeOne bool // a single record was too large, which explains the others
	accepted int  // largest request that was taken, 0: none
}

type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

type suspect struct {
	at     int // index of the item
	reason string
	words  string
}

func (w *worker) run(ctx context.Context, drain bool) error {
	pause := w.d.cfg.MinBackoff
	for {
		if drain && w.d.source.Pending() == 0 {
			return nil
		}
		// Not leased before the receiver can be tried: a lease blocks its streams.
		t, err := w.d.circuit.enter(ctx)
		if err != nil {
			return nil
		}
		w.d.circuit.cancelled(t)
		done, err := w.lease(ctx, drain)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, outbox.ErrClosed):
			return err
		case err != nil:
			w.d.cfg.Logger.Error("the outbox fails; trying again", "err", err, "in", pause)
			if !sleep(ctx, pause) {
				return nil
			}
			pause = min(2*pause, w.d.cfg.MaxBackoff)
		case done:
			return nil
		default:
			pause = w.d.cfg.MinBackoff
		}
	}
}

// sleep returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lease takes one lease and settles it. It returns true when nothing is left.
func (w *worker) lease(ctx context.Context, drain bool) (bool, error) {
	records, bytes := w.d.circuit.limits()
	if err := w.d.budget.take(ctx, bytes); err != nil {
		return true, nil
	}
	taken := bytes
	defer func() { w.d.budget.give(taken) }()
	lease, err := w.d.next(ctx, drain, outbox.Limits{Records: records, Bytes: bytes})
	if err != nil || lease == nil {
		return true, err
	}
	defer w.d.leaseEnd(len(lease.Entries()))
	stored := 0
	for _, e := range lease.Entries() {
		stored += len(e.Payload)
	}
	if stored < taken {
		w.d.budget.give(taken - stored)
		taken = stored
	}
	err = w.deliver(ctx, lease)
	clear(w.items)
	w.encode.reset()
	if cerr := lease.Close(); err == nil {
		err = cerr
	}
	return false, err
}

// deliver settles a lease, or leaves the rest of it unsettled: when ctx ends,
// and when the receiver refuses everything. Errors are the source's.
func (w *worker) deliver(ctx context.Context, lease Lease) error {
	b := &batch{lease: lease}
	if err := w.load(ctx, b); err != nil {
		return err
	}
	for len(b.spans) > 0 {
		if done, err := w.step(ctx, b); done || err != nil {
			return err
		}
	}
	if !b.largeOne {
		w.d.circuit.learnSize(b.tooLarge, b.accepted)
	}
	if b.accepted > 0 || !w.d.circuit.suspicious() {
		b.convict() // else by refusals that other workers met: not the time
	}
	return w.putAside(ctx, b, fullPatience)
}

// load encodes the leased entries. What can't be is quarantined unsent.
func (w *worker) load(ctx context.Context, b *batch) error {
	entries := b.lease.Entries()
	w.items = slices.Grow(w.items[:0], len(entries))
	for i := range entries {
		it, refused := w.prepare(&entries[i])
		if refused != nil {
			b.bad = append(b.bad, *refused)
			continue
		}
		w.items = append(w.items, it)
	}
	b.items = w.items
	if len(b.items) > 0 {
		b.spans = append(b.spans, span{0, len(b.items)})
	}
	return w.putAside(ctx, b, 1)
}

func (w *worker) prepare(e *outbox.Leased) (item, *outbox.Refused) {
	it := item{id: e.ID, size: len(e.Payload)}
	refuse := func(reason string) *outbox.Refused {
		return &outbox.Refused{ID: e.ID, Reason: reason, Outcome: outbox.OutcomeRefused}
	}
	var err error
	if w.record, err = w.encode.decoder.Decode(e.Payload); err != nil {
		return it, refuse(ReasonUndecoded)
	}
	rec := &w.record
	if fn := w.d.cfg.Refresh; fn != nil {
		policy, withheld := rec.Policy, rec.Withheld
		if err := refresh(fn, rec); err != nil {
			return it, refuse(ReasonNotRefreshed)
		}
		if rec.Policy != policy || rec.Withheld != withheld {
			w.d.counts.refreshed.Add(1)
			changed := *rec
			it.record = &changed
		}
	}
	if it.encoded, err = w.encode.add(rec); err != nil {
		return it, refuse(ReasonUndecoded)
	}
	// What stands around a record is small.
	if limit := w.d.cfg.MaxRequestBytes; it.to-it.from > limit/2 {
		if size := w.encode.layout([]item{it}).size; size > limit {
			out := it.refusal(ReasonOverLimit, outbox.OutcomeRefused, fmt.Sprintf("request of %d bytes is over the sender's limit of %d", size, limit))
			return it, &out
		}
	}
	return it, nil
}

// refresh calls fn, and takes a panic for a failure. The error's text is not
// used: it may hold content.
func refresh(fn func(*telemetry.Record) error, r *telemetry.Record) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("refresh panicked")
		}
	}()
	return fn(r)
}

// step sends the next span. It returns true when this lease is to be left.
func (w *worker) step(ctx context.Context, b *batch) (bool, error) {
	s := b.spans[len(b.spans)-1]
	b.spans = b.spans[:len(b.spans)-1]
	if most := w.d.circuit.maxRecords(); s.len() > most {
		b.spans = append(b.spans, span{s.from + most, s.to})
		s.to = s.from + most
	}
	if n := w.fit(b, s); n < s.len() {
		w.d.counts.splits.Add(1)
		b.spans = append(b.spans, span{s.from + n, s.to})
		s.to = s.from + n
	}
	enter := w.d.circuit.enter
	if !b.searching {
		enter = w.d.circuit.enterNow // what an operator holds or discards in a pause is not to be sent
	}
	t, err := enter(ctx)
	if err != nil {
		return true, nil
	}
	return w.act(ctx, b, s, t, w.send(b, s))
}

// fit returns how many records of s, from its start, make a request within the
// limits, of the sender and of what is known of the receiver; at least one.
func (w *worker) fit(b *batch, s span) int {
	limit := w.d.cfg.MaxRequestBytes
	if known := b.sizeLimit(w.d.circuit.sizeLimit()); known > 0 {
		limit = min(limit, known)
	}
	size := func(n int) int { return w.encode.layout(b.items[s.from : s.from+n]).size }
	if s.len() == 1 || size(s.len()) <= limit {
		return s.len()
	}
	return max(1, sort.Search(s.len(), func(n int) bool { return size(n+1) > limit }))
}

// act does what a verdict asks for and gives the ticket back.
func (w *worker) act(ctx context.Context, b *batch, s span, t ticket, v verdict) (bool, error) {
	switch v.outcome {
	case stopped:
		w.d.circuit.cancelled(t)
		return true, nil

	case retryLater, holdAll:
		w.fail(t, v)
		b.spans = append(b.spans, s)
		return v.outcome == holdAll || !b.searching, nil

	case acked:
		w.d.circuit.answered(t, true)
		w.d.circuit.took(s.len(), v.size, b.stored(s))
		b.accepted = max(b.accepted, v.size)
		if v.words != "" {
			w.d.warn(v.words)
		}
		if err := w.ack(ctx, b, s); err != nil {
			return false, err
		}
		// Others are accepted: what was refused alone is at fault itself.
		b.convict()
		return false, w.putAside(ctx, b, 1)

	case refusedSome:
		w.d.circuit.unknownOutcome()
		w.d.circuit.answered(t, false)
		w.d.cfg.Logger.Warn("a batch goes to quarantine with unknown outcome", "reason", v.reason, "records", s.len())
		// Never sent again by itself, so it does not go back for want of room.
		unknown := b.refusals(s, ReasonPartial, outbox.OutcomeUnknown, join(v.reason, w.d.safeWords(v.words)))
		if err := w.settle(ctx, func() error { return b.lease.Quarantine(unknown...) }); err != nil {
			return false, err
		}
		w.d.counts.unknown.Add(int64(len(unknown)))
		return false, nil
	}
	return w.refused(ctx, b, s, t, v) // refusedAll or tooLarge
}

// refused looks for the record that a request was refused for.
func (w *worker) refused(ctx context.Context, b *batch, s span, t ticket, v verdict) (bool, error) {
	b.searching = true
	reason := ReasonRefused
	if v.outcome == tooLarge {
		reason = ReasonTooLarge
	}
	if s.len() > 1 {
		w.d.circuit.answered(t, false)
		if v.outcome == tooLarge && (b.tooLarge == 0 || v.size < b.tooLarge) {
			b.tooLarge = v.size
		}
		w.split(b, s)
		return false, nil
	}
	b.suspects = append(b.suspects, suspect{s.from, reason, w.d.safeWords(v.words)})
	b.largeOne = b.largeOne || v.outcome == tooLarge
	if !w.d.circuit.refusedOne() {
		w.d.circuit.answered(t, false)
		return false, nil
	}
	// Many in a row. If another record, the last of the batch, is accepted, the
	// receiver is well; so it is when it took others of a batch that ends with
	// these. Else everything is held, the refused ones too: the next lease may
	// bring a witness.
	if witness, ok := b.takeWitness(); ok {
		return w.act(ctx, b, witness, t, w.send(b, witness))
	}
	if len(b.spans) == 0 && b.accepted > 0 {
		w.d.circuit.answered(t, false)
		return false, nil
	}
	w.d.counts.holds.Add(1)
	w.d.circuit.failed(t, verdict{
		outcome: holdAll, status: v.status,
		reason: "the receiver refuses every record, also alone; nothing more is put aside, see its log for the reason",
	}, b.suspects[len(b.suspects)-1].words)
	return true, nil
}

// takeWitness takes the last record off the batch, once between two
// acknowledgements.
func (b *batch) takeWitness() (span, bool) {
	if b.witness || len(b.spans) == 0 {
		return span{}, false
	}
	b.witness = true
	last := &b.spans[0]
	s := span{last.to - 1, last.to}
	if last.to--; last.len() == 0 {
		b.spans = b.spans[1:]
	}
	return s, true
}

// convict makes the suspects bad.
func (b *batch) convict() {
	for _, s := range b.suspects {
		b.bad = append(b.bad, b.refusals(span{s.at, s.at + 1}, s.reason, outbox.OutcomeRefused, s.words)...)
	}
	b.suspects = b.suspects[:0]
	b.witness = false
}

// fullPatience is how often a quarantine that finds no room is tried before
// the lease is left: the records are then refused again later, while others,
// whose delivery makes room, go on.
const fullPatience = 6

// putAside quarantines what is bad. Where the outbox has no room for it after
// some tries it stays in the batch, or pending at the end of the lease.
func (w *worker) putAside(ctx context.Context, b *batch, tries int) error {
	if len(b.bad) == 0 {
		return nil
	}
	full := false
	err := w.settle(ctx, func() error {
		err := b.lease.Quarantine(b.bad...)
		if tries--; errors.Is(err, outbox.ErrFull) && tries <= 0 {
			full = true
			return nil
		}
		return err
	})
	if err != nil || full {
		return err
	}
	for _, r := range b.bad {
		if r.Reason == ReasonRefused || r.Reason == ReasonTooLarge {
			w.d.counts.refused.Add(1)
		} else {
			w.d.counts.unsendable.Add(1)
		}
	}
	b.bad = b.bad[:0]
	return nil
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

// refusals are the items of s for quarantine.
func (b *batch) refusals(s span, reason, outcome, words string) []outbox.Refused {
	out := make([]outbox.Refused, 0, s.len())
	for i := s.from; i < s.to; i++ {
		out = append(out, b.items[i].refusal(reason, outcome, words))
	}
	return out
}

// refusal is the item for quarantine, as sent.
func (it *item) refusal(reason, outcome, words string) outbox.Refused {
	r := outbox.Refused{ID: it.id, Reason: reason, Outcome: outcome, ReceiverWords: words}
	if it.record != nil {
		if payload, err := it.record.AppendBinary(nil); err == nil {
			r.Payload = payload
		}
	}
	return r
}

func (w *worker) split(b *batch, s span) {
	w.d.counts.splits.Add(1)
	mid := s.from + (s.len()+1)/2
	b.spans = append(b.spans, span{mid, s.to}, span{s.from, mid})
}

func (b *batch) stored(s span) int {
	n := 0
	for i := s.from; i < s.to; i++ {
		n += b.items[i].size
	}
	return n
}

func (w *worker) ack(ctx context.Context, b *batch, s span) error {
	ids := make([]outbox.ID, 0, s.len())
	for i := s.from; i < s.to; i++ {
		ids = append(ids, b.items[i].id)
	}
	if err := w.settle(ctx, func() error { return b.lease.Ack(ids...) }); err != nil {
		return err
	}
	w.d.counts.acked.Add(int64(len(ids)))
	return nil
}

func (w *worker) fail(t ticket, v verdict) {
	if v.outcome == holdAll {
		w.d.counts.holds.Add(1)
	} else {
		w.d.counts.retries.Add(1)
	}
	w.d.circuit.failed(t, v, w.d.safeWords(v.words))
}

// send makes one request. The exporter gets one empty record, which stands for
// the span: it makes the request around the body that the transport puts in,
// see [transport].
func (w *worker) send(b *batch, s span) verdict {
	t := w.transport
	t.request, t.judged = w.encode.layout(b.items[s.from:s.to]), false
	err := w.exporter.Export(w.requests, standIn[:])
	switch {
	case t.judged:
		return t.last
	case w.requests.Err() != nil:
		return verdict{outcome: stopped}
	}
	return verdict{outcome: holdAll, reason: fmt.Sprintf("the exporter makes no request: %v", err)} // an empty record: no content in err
}

var standIn [1]sdklog.Record

// sizeLimit is the known limit of the receiver, or what this batch has shown
// of it: something smaller was taken, something larger refused, and no single
// record explains that.
func (b *batch) sizeLimit(known int) int {
	if b.largeOne || b.accepted == 0 || b.tooLarge == 0 || b.accepted >= b.tooLarge {
		return known
	}
	if known == 0 {
		return b.tooLarge - 1
	}
	return min(known, b.tooLarge-1)
}

// settle records a result in the source and tries again when that fails, since
// otherwise what a receiver has would be sent again. It gives up when the
// source is closed or ctx ends (the error then); the entries stay pending.
func (w *worker) settle(ctx context.Context, fn func() error) error {
	pause := w.d.cfg.MinBackoff
	for said := false; ; said = true {
		err := fn()
		if err == nil || errors.Is(err, outbox.ErrClosed) || errors.Is(err, outbox.ErrNotLeased) {
			return err
		}
		if !said {
			w.d.cfg.Logger.Error("the outbox does not take a result; trying again", "err", err)
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, w.d.cfg.MaxBackoff)
	}
}
