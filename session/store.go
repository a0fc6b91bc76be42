package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

var (
	// ErrExists says that a store has a session of that id already.
	ErrExists = errors.New("session: a session of that id exists already")
	// ErrNotFound says that a store has no session of that id.
	ErrNotFound = errors.New("session: no session of that id")
)

// Store keeps the sessions that live in a process. A store with a durable
// backend writes them as well; Flush and Dispose wait for it.
type Store interface {
	// Create makes a session and publishes it.
	Create(ctx context.Context, o CreateOptions) (*Ledger, error)
	// Get finds a live session.
	Get(id string) (*Ledger, bool)
	// List returns the live sessions in the order in which they were published.
	List() []*Ledger
	// Fork makes a child of a live session and publishes it.
	Fork(ctx context.Context, source string, o ForkOptions) (*Ledger, error)
	// Flush returns once everything that the session holds is durable, as far
	// as anyone cares.
	Flush(ctx context.Context, id string) error
	// Dispose takes a session out of the store, after a last Flush.
	Dispose(ctx context.Context, id string) error
}

// CreateOptions describes a session to be made.
type CreateOptions struct {
	// Header is its first line, with the format version to be written. An empty
	// ID asks the store for one; a zero CreatedAt means now.
	Header Header
	// Events is what it holds already: the stored history of a session that is
	// resumed, or the seed of a fork.
	Events []Event
	// Ledger has further options of the ledger.
	Ledger []LedgerOption
}

// ForkOptions describes a fork.
type ForkOptions struct {
	// Boundary is the seq of the last event that the child inherits; nil means
	// the last one.
	Boundary *int64
	// ID is the child's id; empty asks the store for one.
	ID string
	// Ledger has further options of the child's ledger.
	Ledger []LedgerOption
}

// MemoryStore is a Store that keeps sessions in memory only. What its flush
// listeners have not taken when the process ends is lost; Dispose waits for
// them.
type MemoryStore struct {
	now func() time.Time

	mu       sync.Mutex
	entries  map[string]*entry
	order    []*entry
	counter  int
	created  []func(*Ledger) error
	flush    []func(context.Context, *Ledger) error
	disposed []func(*Ledger)
	onPanic  func(recovered any)
}

// entry is one session in the store. announcing and leave are the store's to
// guard: who is told of a beginning is told of the end, and not before it.
type entry struct {
	ledger     *Ledger
	announcing bool
	leave      bool
}

var _ Store = (*MemoryStore)(nil)

// NewMemoryStore returns an empty store. now is where times come from; nil
// means the clock. onPanic is told of panics of listeners; nil drops them.
func NewMemoryStore(now func() time.Time, onPanic func(recovered any)) *MemoryStore {
	if now == nil {
		now = time.Now
	}
	if onPanic == nil {
		onPanic = func(any) {}
	}
	return &MemoryStore{now: now, entries: map[string]*entry{}, onPanic: onPanic}
}

// OnCreated has f told of every session that is published from now on. An error
// or a panic of f vetoes the publication: the session leaves the store again,
// and those that were told are told of its end.
func (s *MemoryStore) OnCreated(f func(*Ledger) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created = append(s.created, f)
}

// OnFlush has f called by every Flush, and by Dispose, with the others at the
// same time; they wait until it returns.
func (s *MemoryStore) OnFlush(f func(context.Context, *Ledger) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush = append(s.flush, f)
}

// OnDisposed has f told of every session that leaves. A panic is contained.
func (s *MemoryStore) OnDisposed(f func(*Ledger)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disposed = append(s.disposed, f)
}

// Prepared is a session that is made but not published: nobody finds it yet,
// its id is not taken, and it may be dropped without a trace.
type Prepared struct {
	store  *MemoryStore
	ledger *Ledger
}

// Ledger is the session's log. Events may join it before it is published.
func (p *Prepared) Ledger() *Ledger { return p.ledger }

// Prepare makes a session without publishing it.
func (s *MemoryStore) Prepare(o CreateOptions) (*Prepared, error) {
	h := o.Header
	if h.CreatedAt == 0 {
		h.CreatedAt = s.now().UnixMilli()
	}
	s.mu.Lock()
	if h.ID == "" {
		for {
			s.counter++
			h.ID = "session-" + strconv.Itoa(s.counter)
			if s.entries[h.ID] == nil {
				break
			}
		}
	}
	taken := s.entries[h.ID] != nil
	s.mu.Unlock()
	if taken {
		return nil, ErrExists
	}
	opts := append([]LedgerOption{WithClock(s.now), WithPanicHandler(s.onPanic)}, o.Ledger...)
	l, err := Replay(h, o.Events, opts...)
	if err != nil {
		return nil, err
	}
	return &Prepared{s, l}, nil
}

// Publish enters the session into its store and announces it. ErrExists means
// that another session took the id in the meantime; any other error is a veto.
func (p *Prepared) Publish(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, l := p.store, p.ledger
	e := &entry{ledger: l, announcing: true}
	s.mu.Lock()
	if s.entries[l.ID()] != nil {
		s.mu.Unlock()
		return ErrExists
	}
	s.entries[l.ID()] = e
	s.order = append(s.order, e)
	listeners := slices.Clone(s.created)
	s.mu.Unlock()
	var veto error
	for _, f := range listeners {
		if veto = s.announce(f, l); veto != nil {
			break
		}
	}
	s.mu.Lock()
	e.announcing = false
	leave := e.leave || veto != nil
	s.mu.Unlock()
	if leave {
		s.remove(e)
	}
	if veto != nil {
		return fmt.Errorf("session: publication refused: %w", veto)
	}
	return nil
}

func (s *MemoryStore) announce(f func(*Ledger) error, l *Ledger) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.onPanic(r)
			err = errors.New("a listener panicked")
		}
	}()
	return f(l)
}

// Create makes a session and publishes it.
func (s *MemoryStore) Create(ctx context.Context, o CreateOptions) (*Ledger, error) {
	p, err := s.Prepare(o)
	if err != nil {
		return nil, err
	}
	if err := p.Publish(ctx); err != nil {
		return nil, err
	}
	return p.ledger, nil
}

// Get finds a session that is in the store.
func (s *MemoryStore) Get(id string) (*Ledger, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil {
		return nil, false
	}
	return e.ledger, true
}

// List returns the sessions in the order in which they were published.
func (s *MemoryStore) List() []*Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Ledger, len(s.order))
	for i, e := range s.order {
		out[i] = e.ledger
	}
	return out
}

// Fork makes a child of a session that lives here and publishes it. The error
// is a *ForkError, or one of Create.
func (s *MemoryStore) Fork(ctx context.Context, source string, o ForkOptions) (*Ledger, error) {
	boundary := int64(LastSeq)
	if o.Boundary != nil {
		boundary = *o.Boundary
	}
	if o.ID != "" {
		if _, taken := s.Get(o.ID); taken {
			return nil, &ForkError{Code: CodeForkExists, Boundary: boundary, Detail: "choose another id for the child", Err: ErrExists}
		}
	}
	parent, ok := s.Get(source)
	if !ok {
		return nil, &ForkError{Code: CodeForkNotFound, Boundary: boundary, Detail: "the source is not in the store", Err: ErrNotFound}
	}
	return s.fork(ctx, parent, boundary, o)
}

// ForkLedger is Fork for a ledger in hand, which has to be the one that lives
// in the store.
func (s *MemoryStore) ForkLedger(ctx context.Context, source *Ledger, o ForkOptions) (*Ledger, error) {
	if live, ok := s.Get(source.ID()); ok && live != source {
		return nil, &ForkError{Code: CodeForkNotLive, Boundary: LastSeq, Detail: "another ledger of that id lives in the store"}
	}
	return s.Fork(ctx, source.ID(), o)
}

func (s *MemoryStore) fork(ctx context.Context, parent *Ledger, boundary int64, o ForkOptions) (*Ledger, error) {
	now := s.now()
	seed, inherited, err := ForkSeed(parent.Dialect(), parent.Events(0), boundary, now)
	if err != nil {
		return nil, err
	}
	h := ForkHeader(parent.Header(), o.ID, inherited, now)
	opts := append([]LedgerOption{WithVocabulary(parent.Vocabulary())}, o.Ledger...)
	return s.Create(ctx, CreateOptions{Header: h, Events: seed, Ledger: opts})
}

// Flush calls every flush listener at once and waits for all of them. The error
// joins theirs.
func (s *MemoryStore) Flush(ctx context.Context, id string) error {
	l, ok := s.Get(id)
	if !ok {
		return ErrNotFound
	}
	return s.flushLedger(ctx, l)
}

func (s *MemoryStore) flushLedger(ctx context.Context, l *Ledger) error {
	s.mu.Lock()
	listeners := slices.Clone(s.flush)
	s.mu.Unlock()
	errs := make([]error, len(listeners))
	var wait sync.WaitGroup
	for i, f := range listeners {
		wait.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					s.onPanic(r)
					errs[i] = errors.New("session: a flush listener panicked")
				}
			}()
			errs[i] = f(ctx, l)
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Dispose flushes a session and takes it out of the store. Where the flush
// fails the session stays, so that nothing is lost by accident. Inside an append
// of that session, an observer's call returns at once and the session leaves
// when the append is done.
func (s *MemoryStore) Dispose(ctx context.Context, id string) error {
	s.mu.Lock()
	e := s.entries[id]
	s.mu.Unlock()
	if e == nil {
		return ErrNotFound
	}
	if err := s.flushLedger(ctx, e.ledger); err != nil {
		return err
	}
	s.remove(e)
	return nil
}

// remove takes one exact entry out, once, and not while it is announced.
func (s *MemoryStore) remove(e *entry) {
	s.mu.Lock()
	if e.announcing {
		e.leave = true
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	e.ledger.dispose(func() {
		s.mu.Lock()
		if s.entries[e.ledger.ID()] != e {
			s.mu.Unlock()
			return
		}
		delete(s.entries, e.ledger.ID())
		s.order = slices.DeleteFunc(s.order, func(o *entry) bool { return o == e })
		listeners := slices.Clone(s.disposed)
		s.mu.Unlock()
		for _, f := range listeners {
			s.contained(func() { f(e.ledger) })
		}
	})
}

// contained calls f and reports its panic instead of passing it on.
func (s *MemoryStore) contained(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.onPanic(r)
		}
	}()
	f()
}
