package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// sealing is an outbox as a source of entries to deliver, which keeps the drafts
// of summaries back and has them sealed when what they speak of is settled.
//
// A stream is leased in order and by one lease at a time. So the entries before
// a draft are settled before its lease began, or are in the same lease.
type sealing struct {
	outbox *outbox.Outbox
	sealer *telemetry.Sealer
	log    *slog.Logger
	ops    atomic.Int64 // delivered ops records, attempts left out
}

var _ otlp.Source = (*sealing)(nil)

// sealPause is how long a lease of nothing but drafts waits when the outbox has
// no room for their summaries: the records of others make some.
const sealPause = time.Second

// Lease waits until there is something to deliver.
func (s *sealing) Lease(ctx context.Context, lim outbox.Limits) (otlp.Lease, error) {
	for {
		l, err := s.outbox.Lease(ctx, lim)
		if err != nil {
			return nil, err
		}
		out, full, err := s.wrap(l)
		if out != nil || err != nil {
			return out, err
		}
		if full {
			// Behind the drafts may stand what makes room.
			lim.Records, lim.Bytes = 0, 0
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(sealPause):
			}
		}
	}
}

// TryLease returns nil, nil when nothing can be delivered now.
func (s *sealing) TryLease(lim outbox.Limits) (otlp.Lease, error) {
	for {
		l, err := s.outbox.TryLease(lim)
		if err != nil || l == nil {
			return nil, err
		}
		out, full, err := s.wrap(l)
		if out != nil || err != nil || full {
			return out, err
		}
	}
}

// Pending counts entries that wait for delivery; drafts are on their way to it.
func (s *sealing) Pending() int64 { return s.outbox.Stats().Pending }

// wrap returns nil when there are only drafts in l; they are dealt with then.
// full says that there was no room for their summaries.
func (s *sealing) wrap(l *outbox.Lease) (out otlp.Lease, full bool, err error) {
	w := &sealedLease{Lease: l, s: s, all: l.Entries(), entries: l.Entries()}
	for i := range w.all {
		e := &w.all[i]
		switch {
		case telemetry.IsDraft(e.Key):
			w.drafts++
		case isOps(e):
			if w.ops == nil {
				w.ops = make(map[outbox.ID]bool)
			}
			w.ops[e.ID] = true
		}
	}
	if w.drafts == 0 {
		return w, false, nil
	}
	w.settled = make(map[outbox.ID]bool, len(w.all))
	w.entries = make([]outbox.Leased, 0, len(w.all)-w.drafts)
	for _, e := range w.all {
		if !telemetry.IsDraft(e.Key) {
			w.entries = append(w.entries, e)
		}
	}
	if len(w.entries) > 0 {
		return w, false, nil
	}
	err = w.seal()
	if errors.Is(err, outbox.ErrFull) {
		full, err = true, nil
	}
	return nil, full, errors.Join(err, l.Close())
}

// isOps tells the records in which the bridge speaks of itself and of what became
// of a session; an attempt is part of one.
func isOps(e *outbox.Leased) bool {
	if _, event := telemetry.ParseEventKey(e.Key); event {
		return false
	}
	r, err := telemetry.DecodeRecord(e.Payload)
	return err == nil && r.Channel == telemetry.ChannelOps && r.Op != telemetry.OpAttempt
}

// sealedLease is a lease without the drafts in it.
type sealedLease struct {
	*outbox.Lease
	s       *sealing
	all     []outbox.Leased
	entries []outbox.Leased
	drafts  int
	ops     map[outbox.ID]bool
	settled map[outbox.ID]bool // nil: no drafts
}

// Entries are those to be delivered.
func (l *sealedLease) Entries() []outbox.Leased { return l.entries }

// Ack says that a receiver has accepted these entries.
func (l *sealedLease) Ack(ids ...outbox.ID) error {
	err := l.Lease.Ack(ids...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if l.settled != nil {
			l.settled[id] = true
		}
		if l.ops[id] {
			l.s.ops.Add(1)
			delete(l.ops, id)
		}
	}
	return nil
}

// Quarantine takes entries out of delivery.
func (l *sealedLease) Quarantine(refused ...outbox.Refused) error {
	if err := l.Lease.Quarantine(refused...); err != nil {
		return err
	}
	for _, r := range refused {
		if l.settled != nil {
			l.settled[r.ID] = true
		}
		for i := range l.entries {
			if l.entries[i].ID == r.ID {
				l.s.sealer.Troubled(l.entries[i].Stream)
			}
		}
	}
	return nil
}

// Close seals the drafts whose turn has come, and gives back what is not
// settled.
func (l *sealedLease) Close() error {
	err := l.seal()
	if errors.Is(err, outbox.ErrFull) {
		err = nil // they come again
	}
	return errors.Join(err, l.Lease.Close())
}

// seal has the drafts sealed whose streams are settled up to them. They share
// their syncs: of a summary and of the acknowledgement of its draft.
func (l *sealedLease) seal() error {
	if l.drafts == 0 {
		return nil
	}
	ready := make([]outbox.Leased, 0, l.drafts)
	blocked := make(map[string]bool)
	for i := range l.all {
		e := &l.all[i]
		switch {
		case blocked[e.Stream]:
		case telemetry.IsDraft(e.Key):
			ready = append(ready, *e)
		default:
			blocked[e.Stream] = !l.settled[e.ID]
		}
	}
	var done []outbox.ID
	var failed error
	for len(ready) > 0 && failed == nil {
		n, err := l.s.sealer.SealAll(context.Background(), ready) // waits for nothing
		for _, e := range ready[:n] {
			done = append(done, e.ID)
		}
		ready = ready[n:]
		switch {
		case errors.Is(err, telemetry.ErrSummary), errors.Is(err, telemetry.ErrRecordForm):
			l.s.log.Error("the draft of a summary cannot be read; it goes to quarantine", "entry", uint64(ready[0].ID))
			failed = l.Lease.Quarantine(outbox.Refused{ID: ready[0].ID, Reason: otlp.ReasonUndecoded, Outcome: outbox.OutcomeRefused})
			ready = ready[1:]
		case err != nil:
			failed = err
		}
	}
	if len(done) > 0 {
		failed = errors.Join(failed, l.Lease.Ack(done...))
	}
	return failed
}
