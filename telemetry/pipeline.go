package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
)

// Memory is a ledger in memory as a Source.
//
// What it holds is lost with the process. Until its cursor has reached the end
// (Store.Flush and Store.Dispose wait for that) a crash loses what was appended
// in between; only a ledger that is also written to a file has no such window.
func Memory(l *session.Ledger) Source { return memory{l} }

type memory struct{ l *session.Ledger }

func (m memory) Open() (Ledger, error)        { return &memoryReading{l: m.l}, nil }
func (m memory) Inherited() (int64, error)    { return m.l.InheritedCount(), nil }
func (m memory) Fingerprint() (string, error) { return "", nil }

type memoryReading struct {
	l    *session.Ledger
	next int64
	ev   *session.Event
}

func (r *memoryReading) Header() *session.Header { return r.l.Header() }
func (r *memoryReading) Event() *session.Event   { return r.ev }
func (r *memoryReading) Err() error              { return nil }
func (r *memoryReading) Close() error            { return nil }

func (r *memoryReading) Next() bool {
	ev := r.l.At(r.next)
	if ev == nil {
		return false
	}
	r.ev = ev
	r.next++
	return true
}

// Store is what a pipeline needs of a store of sessions; session.MemoryStore is
// one.
type Store interface {
	Get(id string) (*session.Ledger, bool)
	List() []*session.Ledger
	OnCreated(func(*session.Ledger) error)
	OnFlush(func(context.Context, *session.Ledger) error)
	OnDisposed(func(*session.Ledger))
}

// Parents finds the ledgers of parents in a store, for Config.Parent.
func Parents(store Store) func(id string) (Source, bool) {
	return func(id string) (Source, bool) {
		l, ok := store.Get(id)
		if !ok {
			return nil, false
		}
		return Memory(l), true
	}
}

// Pipeline captures the sessions of a Go program as they are written. The
// ledger is the buffer: an append only marks its session, and never waits.
//
// Flushing a session in its store returns when its cursor has reached the end,
// or what consent covers, and so does disposing of it. Where capture cannot go
// on the flush fails, and the session stays in the store.
//
// What the outbox loses to damage is captured again from the sessions that are in
// the store, see Mender, as long as Run runs.
type Pipeline struct {
	capture *Capture
	mender  *Mender // nil where the outbox does not tell of damage
	onError func(sessionID string, err error)

	mu     sync.Mutex
	live   map[*session.Ledger]*liveSession
	queue  []*liveSession
	wake   chan struct{}
	closed bool
}

// liveSession is one session of the store. Its mutex makes pulls of it take
// turns; queued is the pipeline's to guard.
type liveSession struct {
	mu     sync.Mutex
	s      *Session
	mender *Mender
	queued bool
	stop   func()
}

// retryEvery is how long a session rests whose capture has failed.
const retryEvery = time.Second

// Attach makes a pipeline for the sessions that a store has and will have.
// onError, if not nil, is told why a session could not be captured; it is tried
// again. Nothing runs until Run is called, but for flushes.
func Attach(store Store, c *Capture, onError func(sessionID string, err error)) *Pipeline {
	p := &Pipeline{
		capture: c, onError: onError,
		live: make(map[*session.Ledger]*liveSession),
		wake: make(chan struct{}, 1),
	}
	if p.onError == nil {
		p.onError = func(string, error) {}
	}
	if o, ok := c.cfg.Outbox.(MendOutbox); ok {
		p.mender = NewMender(o)
	}
	store.OnCreated(func(l *session.Ledger) error { p.add(l); return nil })
	store.OnFlush(p.flush)
	store.OnDisposed(p.remove)
	for _, l := range store.List() {
		p.add(l)
	}
	return p
}

func (p *Pipeline) add(l *session.Ledger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.live[l] != nil {
		return
	}
	ls := &liveSession{s: p.capture.Session(Memory(l), SessionOptions{}), mender: p.mender}
	p.live[l] = ls
	ls.stop = l.Observe(func(*session.Event) { p.mark(ls) })
	p.enqueue(ls)
}

func (p *Pipeline) mark(ls *liveSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueue(ls)
}

// enqueue puts a session in line. The caller holds mu.
func (p *Pipeline) enqueue(ls *liveSession) {
	if ls.queued || p.closed {
		return
	}
	ls.queued = true
	p.queue = append(p.queue, ls)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Pipeline) next() *liveSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil
	}
	ls := p.queue[0]
	p.queue = p.queue[1:]
	ls.queued = false
	return ls
}

// Run captures what is appended until ctx ends. Call it once.
func (p *Pipeline) Run(ctx context.Context) {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	var failed []*liveSession
	damaged := int64(0)
	for {
		for ls := p.next(); ls != nil; ls = p.next() {
			progress, err := ls.pull(ctx, turnEvents)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				p.onError(progress.SessionID, err)
				failed = append(failed, ls)
			case progress.More:
				p.mark(ls)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-retry.C:
			before := damaged
			if damaged = p.damaged(); damaged > before {
				p.markAll() // it shows when an entry is read to be sent
			}
			for _, ls := range failed {
				p.mark(ls)
			}
			failed = failed[:0]
		}
	}
}

// turnEvents is how much is read of one session before the next has its turn.
const turnEvents = 4096

func (ls *liveSession) pull(ctx context.Context, limit int) (Progress, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.s == nil {
		return Progress{}, nil // it has left the store, flushed
	}
	progress, err := ls.s.Pull(ctx, limit)
	for err == nil && !progress.More && ls.mender != nil {
		var done Mended
		if done, err = ls.mender.Mend(ctx, ls.s); err != nil || !done.Back {
			break
		}
		progress, err = ls.s.Pull(ctx, limit)
	}
	return progress, err
}

// damaged counts what the outbox has lost and nobody has captured again.
func (p *Pipeline) damaged() int64 {
	if p.mender == nil {
		return 0
	}
	return p.mender.outbox.Stats().Damaged
}

func (p *Pipeline) markAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ls := range p.live {
		p.enqueue(ls)
	}
}

func (ls *liveSession) close() {
	ls.stop()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.s != nil {
		ls.s.Close()
		ls.s = nil
	}
}

// flush takes a session's cursor to its end.
func (p *Pipeline) flush(ctx context.Context, l *session.Ledger) error {
	p.mu.Lock()
	ls := p.live[l]
	p.mu.Unlock()
	if ls == nil {
		return nil
	}
	_, err := ls.pull(ctx, 0)
	return err
}

func (p *Pipeline) remove(l *session.Ledger) {
	p.mu.Lock()
	ls := p.live[l]
	delete(p.live, l)
	p.mu.Unlock()
	if ls != nil {
		ls.close()
	}
}

// Close captures what is left, as far as ctx allows, and lets go of all
// sessions. Run must have returned. The error joins those of sessions that
// could not be captured to their end.
func (p *Pipeline) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	live := p.live
	p.live = nil
	p.mu.Unlock()
	var errs []error
	for _, ls := range live {
		_, err := ls.pull(ctx, 0)
		errs = append(errs, err)
		ls.close()
	}
	return errors.Join(errs...)
}
