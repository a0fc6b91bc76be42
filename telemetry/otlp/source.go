package otlp

import (
	"context"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Source hands out the entries to deliver. [FromOutbox] makes one.
type Source interface {
	// Lease waits until there is something to lease.
	Lease(ctx context.Context, lim outbox.Limits) (Lease, error)
	// TryLease returns nil, nil when nothing can be leased now.
	TryLease(lim outbox.Limits) (Lease, error)
	// Pending counts entries that wait for delivery, leased ones included.
	Pending() int64
}

// Lease is a set of entries that one worker settles. Close gives back, in
// order, what was not settled. Payloads are valid until then.
type Lease interface {
	Entries() []outbox.Leased
	Ack(ids ...outbox.ID) error
	Quarantine(refused ...outbox.Refused) error
	Close() error
}

// FromOutbox returns o as a source.
func FromOutbox(o *outbox.Outbox) Source { return fromOutbox{o} }

type fromOutbox struct{ o *outbox.Outbox }

func (s fromOutbox) Lease(ctx context.Context, lim outbox.Limits) (Lease, error) {
	return lease(s.o.Lease(ctx, lim))
}

func (s fromOutbox) TryLease(lim outbox.Limits) (Lease, error) { return lease(s.o.TryLease(lim)) }

func (s fromOutbox) Pending() int64 { return s.o.Stats().Pending }

// lease keeps a nil *outbox.Lease from becoming a Lease that is not nil.
func lease(l *outbox.Lease, err error) (Lease, error) {
	if err != nil || l == nil {
		return nil, err
	}
	return l, nil
}
