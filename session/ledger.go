package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

var (
	// ErrReentrant says that an append was asked for while another one of the
	// same ledger was being judged or published, for instance by an observer.
	// Nothing has changed.
	ErrReentrant = errors.New("session: an append is under way on this ledger")
	// ErrDisposed says that the ledger has left its store.
	ErrDisposed = errors.New("session: the session is disposed of")
)

// Observer is told of every event that joins a ledger, after it has joined: it
// cannot refuse it. The event is not to be changed. A panic is contained.
type Observer func(ev *Event)

// Candidate is an event that wants to join a ledger; its seq comes from there.
type Candidate struct {
	// Type is the event type.
	Type string
	// Data is the payload. The ledger keeps these very bytes, so that the
	// caller must not change them any more.
	Data json.RawMessage
	// SurfaceOp is what an event of a surface type does to the surface.
	SurfaceOp *SurfaceOp
	// SourceEventSeqs lists the events that this one was made from, nil for
	// none.
	SourceEventSeqs []int64
	// Ignorable lets readers that do not know the type pass over the event.
	Ignorable bool
	// Time is in Unix milliseconds; nil means now.
	Time *int64
}

// Ledger is the log of one session in memory: events join it at its end, when
// all admitters agree, and never leave. Append serves one caller at a time and
// refuses a second one; everything else may be called from any goroutine.
type Ledger struct {
	header    Header
	d         *Dialect
	v         *Vocabulary
	trace     *Trace
	admitters []Admitter
	now       func() time.Time
	onPanic   func(recovered any)

	inherited int64
	firstLive int64

	mu        sync.RWMutex
	events    []Event // the elements below committed never change
	committed int
	observers []*Observer
	appending bool
	disposed  bool
	afterward func() // what a dispose during an append left to do

	plans []Plan
}

// LedgerOption changes how a ledger works.
type LedgerOption func(*Ledger)

// WithVocabulary sets the event types that the ledger knows; without it, those
// of Core.
func WithVocabulary(v *Vocabulary) LedgerOption { return func(l *Ledger) { l.v = v } }

// WithAdmitter adds one that has a say in every event, behind the trace: a
// surface, or a check of the caller's own.
func WithAdmitter(a Admitter) LedgerOption {
	return func(l *Ledger) { l.admitters = append(l.admitters, a) }
}

// WithClock sets where the times of events come from.
func WithClock(now func() time.Time) LedgerOption { return func(l *Ledger) { l.now = now } }

// WithPanicHandler sets who is told of an observer's panic. What is recovered
// may hold content of events.
func WithPanicHandler(f func(recovered any)) LedgerOption {
	return func(l *Ledger) { l.onPanic = f }
}

// NewLedger returns an empty ledger that begins with h.
func NewLedger(h Header, opts ...LedgerOption) (*Ledger, error) {
	return Replay(h, nil, opts...)
}

// Replay returns a ledger that holds events already, each judged as if it were
// appended now; observers are not told of them. The ledger keeps the slice's
// events and what they point to. It takes time linear in their number.
func Replay(h Header, events []Event, opts ...LedgerOption) (*Ledger, error) {
	d, err := DialectOf(h.Version)
	if err != nil {
		return nil, err
	}
	if _, err := d.headerShape(AppendHeader(nil, &h)); err != nil {
		return nil, err
	}
	l := &Ledger{header: h, d: d, now: time.Now, onPanic: func(any) {}}
	for _, o := range opts {
		o(l)
	}
	if l.v == nil {
		l.v = Core(d)
	}
	l.trace = NewTrace(&l.header, d, l.v)
	l.admitters = append([]Admitter{l.trace}, l.admitters...)
	l.plans = make([]Plan, len(l.admitters))
	l.events = make([]Event, 0, len(events))
	if h.SeedLength != nil {
		l.inherited = *h.SeedLength
	}
	for i := range events {
		if err := l.admit(&events[i]); err != nil {
			return nil, err
		}
		l.events = append(l.events, events[i])
		l.commit()
	}
	if l.inherited > int64(l.committed) {
		return nil, &InvariantError{Code: CodeMarkerMissing, Seq: int64(l.committed), Type: TypeEndSeed, Detail: "the header counts more inherited events than there are"}
	}
	if d.seedLength {
		l.firstLive = int64(l.committed)
		return l, nil
	}
	marked := false
	for i := range l.events {
		inherited, _ := IsEndSeed(&l.events[i])
		marked = marked || inherited
	}
	if marked != h.IsSeeded {
		code, detail := CodeMarkerMissing, "the header says seeded, and no session/end-seed is inherited"
		if marked {
			code, detail = CodeMarkerUnexpected, "the header does not say seeded, and a session/end-seed is inherited"
		}
		return nil, &InvariantError{Code: code, Seq: int64(l.committed), Type: TypeEndSeed, Detail: detail}
	}
	l.firstLive = int64(l.committed)
	return l, nil
}

// Header is the ledger's first line. It is not to be changed.
func (l *Ledger) Header() *Header { return &l.header }

// ID is the session's id.
func (l *Ledger) ID() string { return l.header.ID }

// Dialect is the one that the ledger is written in.
func (l *Ledger) Dialect() *Dialect { return l.d }

// Vocabulary is the set of event types that the ledger knows.
func (l *Ledger) Vocabulary() *Vocabulary { return l.v }

// Len is the number of events, and the seq of the next one.
func (l *Ledger) Len() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int64(l.committed)
}

// InheritedCount is the number of leading events that the session inherited
// from its parent.
func (l *Ledger) InheritedCount() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.inherited
}

// FirstLiveSeq is the seq of the first event that joined in this process.
func (l *Ledger) FirstLiveSeq() int64 { return l.firstLive }

// At returns the event of that seq, nil where there is none. It is shared, and
// not to be changed.
func (l *Ledger) At(seq int64) *Event {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if seq < 0 || seq >= int64(l.committed) {
		return nil
	}
	return &l.events[seq]
}

// Events returns the events from that seq on, as they are now. The slice is
// shared, and not to be changed; later appends do not show in it.
func (l *Ledger) Events(from int64) []Event {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if from < 0 {
		from = 0
	}
	if from >= int64(l.committed) {
		return nil
	}
	return l.events[from:l.committed:l.committed]
}

// OpenTurn is the open turn, if there is one.
func (l *Ledger) OpenTurn() (turn int64, open bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.trace.OpenTurn()
}

// Observe has f told of every event that joins from now on, until cancel is
// called. Observers are called in the order in which they came.
func (l *Ledger) Observe(f Observer) (cancel func()) {
	p := &f
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observers = append(l.observers[:len(l.observers):len(l.observers)], p)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		kept := make([]*Observer, 0, len(l.observers))
		for _, o := range l.observers {
			if o != p {
				kept = append(kept, o)
			}
		}
		l.observers = kept
	}
}

// Append lets c join the ledger when everything agrees: its payload is lossless
// JSON that the format can hold, and each admitter plans it. Then the event
// stands, whatever observers do. It returns the event as it joined, shared.
//
// The error is ErrReentrant, ErrDisposed, an *InvariantError, a *DecodeError
// for what the format generation refuses, or an admitter's own; nothing has
// changed then.
func (l *Ledger) Append(c Candidate) (*Event, error) {
	observers, err := l.begin()
	if err != nil {
		return nil, err
	}
	defer l.end()
	n := l.committed
	// Readers see the slice grow, but nothing of it beyond committed.
	l.mu.Lock()
	l.events = append(l.events[:n], Event{
		Seq: int64(n), Type: c.Type, Data: c.Data, SurfaceOp: c.SurfaceOp,
		SourceEventSeqs: c.SourceEventSeqs, Ignorable: c.Ignorable,
	})
	ev := &l.events[n]
	l.mu.Unlock()
	if c.Time != nil {
		ev.Time = *c.Time
	} else {
		ev.Time = l.now().UnixMilli()
	}
	if err := l.check(ev); err != nil {
		l.events[n] = Event{}
		return nil, err
	}
	if err := l.admit(ev); err != nil {
		l.events[n] = Event{}
		return nil, err
	}
	l.mu.Lock()
	l.commit()
	l.mu.Unlock()
	for _, o := range observers {
		l.tell(*o, ev)
	}
	return ev, nil
}

// begin takes the only place for an append and the observers it will tell.
func (l *Ledger) begin() ([]*Observer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.disposed:
		return nil, ErrDisposed
	case l.appending:
		return nil, ErrReentrant
	}
	l.appending = true
	return l.observers, nil
}

func (l *Ledger) end() {
	l.mu.Lock()
	l.appending = false
	afterward := l.afterward
	l.afterward = nil
	l.mu.Unlock()
	if afterward != nil {
		afterward()
	}
}

// check judges what a reader has checked already in events that are replayed.
func (l *Ledger) check(ev *Event) error {
	if err := ValidJSON(ev.Data); err != nil {
		return &InvariantError{Code: CodePayload, Seq: ev.Seq, Type: ev.Type, Err: err}
	}
	if err := CheckLossless(ev.Data); err != nil {
		return &InvariantError{Code: CodePayload, Seq: ev.Seq, Type: ev.Type, Err: err}
	}
	if ev.Time > MaxSafeInteger || ev.Time < -MaxSafeInteger {
		return fail(ev, CodeTime, "want a safe integer")
	}
	if t := l.v.types[ev.Type]; t != nil && t.Surface && ev.Ignorable {
		return fail(ev, CodeIgnorable, "an event of a surface type cannot be passed over")
	}
	if ev.Type == TypeEndSeed && KindOf(TrimSpace(ev.Data)) != KindObject {
		return fail(ev, CodeEndSeed, "want an object")
	}
	if inherited, _ := IsEndSeed(ev); inherited {
		return fail(ev, CodeMarkerUnexpected, "only the seed of a fork has an inherited marker")
	}
	return CheckPayload(l.d, ev)
}

// admit asks every admitter, the trace first.
func (l *Ledger) admit(ev *Event) error {
	for i, a := range l.admitters {
		p, err := a.Plan(ev)
		if err != nil {
			return err
		}
		l.plans[i] = p
	}
	return nil
}

// commit takes the element behind the last event, and applies its plans.
func (l *Ledger) commit() {
	if inherited, _ := IsEndSeed(&l.events[l.committed]); inherited && !l.d.seedLength {
		l.inherited = int64(l.committed)
	}
	l.committed++
	for i, p := range l.plans {
		p.Apply()
		l.plans[i] = nil
	}
}

// tell calls one observer and contains its panic.
func (l *Ledger) tell(o Observer, ev *Event) {
	defer func() {
		if r := recover(); r != nil {
			l.onPanic(r)
		}
	}()
	o(ev)
}

// dispose ends the ledger once no append is under way. finish is called then,
// on whichever goroutine that is.
func (l *Ledger) dispose(finish func()) {
	l.mu.Lock()
	if l.appending {
		l.afterward = func() { l.dispose(finish) }
		l.mu.Unlock()
		return
	}
	l.disposed = true
	l.mu.Unlock()
	finish()
}

// Resume returns the candidates that close what a stored ledger left open: the
// interrupted closers, and a session/end-seed unless the ledger ends in one.
// What follows them belongs to a new lifetime.
func Resume(d *Dialect, events []Event, now time.Time) ([]Event, error) {
	out, err := Closers(d, events)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 && len(events) > 0 && events[len(events)-1].Type == TypeEndSeed {
		return nil, nil
	}
	marker := Event{Seq: int64(len(events) + len(out)), Time: now.UnixMilli(), Type: TypeEndSeed, Data: json.RawMessage("{}")}
	return append(out, marker), nil
}

// ForkError says why a session cannot be forked.
type ForkError struct {
	// Code is one of the CodeFork constants.
	Code Code
	// Boundary is the seq that was asked for, or LastSeq.
	Boundary int64
	// Detail says what is wrong.
	Detail string
	// Err is the cause, if there is one.
	Err error
}

func (e *ForkError) Error() string {
	where := "the last event"
	if e.Boundary != LastSeq {
		where = fmt.Sprintf("seq %d", e.Boundary)
	}
	s := fmt.Sprintf("fork behind %s: %s: %s", where, e.Code, e.Detail)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *ForkError) Unwrap() error { return e.Err }

// Codes of forks (ForkError).
const (
	// CodeForkBoundary: the boundary is no seq of the ledger.
	CodeForkBoundary Code = "fork-invalid-boundary"
	// CodeForkOpenTurn: the boundary lies inside an open turn (up to version 3).
	CodeForkOpenTurn Code = "fork-open-turn"
	// CodeForkLossy: an event of the prefix is no lossless JSON.
	CodeForkLossy Code = "fork-not-lossless"
	// CodeForkNotFound: the store has no session of that id.
	CodeForkNotFound Code = "fork-session-not-found"
	// CodeForkNotLive: the ledger is not the one that lives in the store.
	CodeForkNotLive Code = "fork-session-not-live"
	// CodeForkExists: the store has a session of the child's id.
	CodeForkExists Code = "fork-session-exists"
)

// LastSeq is the boundary that means the last event.
const LastSeq = math.MinInt64

// ForkSeed returns what a child that is forked behind boundary begins with: the
// events up to it, shared; the marker that ends them; and from version 4 the
// forked closers of a turn that is open there. inherited is the number of events
// that are the parent's. Up to version 3 a boundary inside an open turn is
// refused. The error is a *ForkError.
func ForkSeed(d *Dialect, events []Event, boundary int64, now time.Time) (seed []Event, inherited int64, err error) {
	asked := boundary
	refuse := func(code Code, detail string, err error) ([]Event, int64, error) {
		return nil, 0, &ForkError{Code: code, Boundary: asked, Detail: detail, Err: err}
	}
	if boundary == LastSeq {
		boundary = int64(len(events)) - 1
	} else if boundary < 0 || boundary > MaxSafeInteger {
		return refuse(CodeForkBoundary, "want a safe integer that is not negative", nil)
	}
	if boundary >= int64(len(events)) {
		return refuse(CodeForkBoundary, fmt.Sprintf("the last seq is %d", len(events)-1), nil)
	}
	prefix := events[:boundary+1]
	if !d.sealsForks {
		for i := len(prefix) - 1; i >= 0; i-- {
			if prefix[i].Type == TypeTurnEnd {
				break
			}
			if prefix[i].Type == TypeTurnStart {
				return refuse(CodeForkOpenTurn, fmt.Sprintf("inside the turn that starts at seq %d; end the turn first", i), nil)
			}
		}
	}
	for i := range prefix {
		err := CheckLossless(prefix[i].Data)
		if err == nil {
			err = CheckLossless(prefix[i].RawSurfaceOp)
		}
		if err != nil {
			return refuse(CodeForkLossy, fmt.Sprintf("event %d", i), err)
		}
	}
	marker := Event{Seq: boundary + 1, Time: now.UnixMilli(), Type: TypeEndSeed, Data: json.RawMessage(`{"inherited":true}`)}
	if d.seedLength {
		marker.Data = json.RawMessage("{}")
	}
	if d.sealsForks && len(prefix) > 0 {
		marker.Time = prefix[boundary].Time
	}
	seed = append(make([]Event, 0, len(prefix)+1), prefix...)
	seed = append(seed, marker)
	if d.sealsForks {
		r := NewRecovery(d)
		for i := range seed {
			if err := r.Observe(&seed[i]); err != nil {
				return refuse(CodeForkOpenTurn, "the open turn cannot be sealed", err)
			}
		}
		seed = append(seed, r.Closers(CauseForked)...)
	}
	return seed, boundary + 1, nil
}

// ForkHeader is the header of a child of parent: its working directory, its
// lineage, and the number of inherited events where the version keeps it.
func ForkHeader(parent *Header, id string, inherited int64, now time.Time) Header {
	h := Header{Version: parent.Version, ID: id, CreatedAt: now.UnixMilli(), Cwd: parent.Cwd, IsSeeded: true}
	parentID := parent.ID
	h.ParentSession = &parentID
	if hasSeedLength(parent.Version) {
		h.SeedLength = &inherited
	}
	return h
}
