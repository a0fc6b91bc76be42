package otlp

import (
	"context"
	"sync"
)

// budget bounds the stored bytes that all workers hold together. What is
// larger than all of it is taken when nobody else holds anything.
type budget struct {
	mu     sync.Mutex
	size   int
	used   int
	change chan struct{} // closed when something is given back
}

func newBudget(size int) *budget { return &budget{size: size, change: make(chan struct{})} }

func (b *budget) take(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		if b.used == 0 || b.used+n <= b.size {
			b.used += n
			b.mu.Unlock()
			return nil
		}
		change := b.change
		b.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	close(b.change)
	b.change = make(chan struct{})
}
