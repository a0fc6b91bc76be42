package telemetry

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Outbox is what capture needs of an outbox.Outbox.
type Outbox interface {
	// Commit makes a batch durable, all of it or nothing. outbox.ErrFull means
	// that it works again when there is room.
	Commit(ctx context.Context, b *outbox.Batch) (outbox.ID, error)
	// WaitRoom waits until intake is possible again.
	WaitRoom(ctx context.Context) error
	// Cursor returns the value of a cursor.
	Cursor(key string) ([]byte, bool)
	// Cursors calls fn with every cursor whose key starts with prefix.
	Cursors(prefix string, fn func(key string, value []byte) bool)
}

// commit commits b, and waits for room as long as there is none: back-pressure
// is a cursor that stops, never a record that is dropped.
func commit(ctx context.Context, o Outbox, b *outbox.Batch) error {
	for pause := time.Duration(0); ; pause = min(2*pause+time.Millisecond, time.Second) {
		_, err := o.Commit(ctx, b)
		if !errors.Is(err, outbox.ErrFull) {
			return err
		}
		if err := o.WaitRoom(ctx); err != nil {
			return err
		}
		// There was room for something, but not for this: do not spin.
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wait waits for d, or returns why ctx has ended.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// opsNumbers gives out the numbers of ops records, which are never used twice
// in one installation. They are reserved in blocks, ahead of their use, so that
// a crash leaves a gap and no doubt.
type opsNumbers struct {
	outbox Outbox

	mu          sync.Mutex
	next, limit uint64
}

const (
	opsCursor = "ops/next"
	opsBlock  = 256
)

func (n *opsNumbers) take(ctx context.Context) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.limit {
		from := n.limit
		if from == 0 {
			if v, ok := n.outbox.Cursor(opsCursor); ok && len(v) == 8 {
				from = binary.BigEndian.Uint64(v)
			}
		}
		to := from + opsBlock
		b := outbox.Batch{Cursors: []outbox.Cursor{{Key: opsCursor, Value: binary.BigEndian.AppendUint64(nil, to)}}}
		if err := commit(ctx, n.outbox, &b); err != nil {
			return 0, err
		}
		n.next, n.limit = from, to
	}
	n.next++
	return n.next, nil
}
