package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Codes and names of the errors in results that repair makes up.
const (
	codeNotStarted     = "TOOL_NOT_STARTED"
	codeOutcomeUnknown = "TOOL_OUTCOME_UNKNOWN"
	nameNotStarted     = "ToolNotStartedError"
	nameOutcomeUnknown = "ToolOutcomeUnknownError"
)

// Trace checks the invariants of one ledger, event by event: seqs are
// contiguous, turns and steps open and close in pairs and count up, step-scoped
// events name what is open, and results answer calls, as DSH's invariant companion
// has it (docs/invariants.md). It is an Admitter. Its memory is that of the calls
// which are pending in the open step, 32 bytes each.
//
//	            turn/start n                 step/start m
//	(between) ───────────────▶ (in turn n) ───────────────▶ (in step n/m)
//	          ◀───────────────             ◀───────────────
//	             turn/end n                   step/end n/m
type Trace struct {
	d *Dialect
	v *Vocabulary

	state    traceState
	pending  map[callKey]struct{}
	most     int // entries that pending has held since it was made
	plan     tracePlan
	extra    []Admitter
	lastType string
	lastKind eventKind
	strict   *Relations
}

type traceState struct {
	next       int64 // the seq of the next event
	turn, step int64 // what is open; 0 is nothing
	nextTurn   int64
	nextStep   int64
	// blind is true when a call of the open step lost its id with a payload
	// that was too long to read.
	blind bool
}

// callKey stands for a call's id: the id itself where it is short, with its
// length behind it, or else a digest.
type callKey [32]byte

func keyOf(rawCallID []byte) (k callKey) {
	var few [128]byte
	id := rawCallID[1 : len(rawCallID)-1]
	if bytes.IndexByte(id, '\\') >= 0 {
		id = AppendString(few[:0], rawCallID)
	}
	if len(id) < len(k) {
		copy(k[:], id)
		k[len(k)-1] = byte(len(id))
		return k
	}
	k = sha256.Sum256(id)
	k[len(k)-1] = byte(len(k))
	return k
}

// TraceOption changes what a Trace checks.
type TraceOption func(*Trace)

// WithStrict checks the relations between events as well that the reference
// checks when it moves a ledger to a newer format, and that real ledgers may
// break: calls unanswered at a step's end, chains of retries, brackets of
// compactions, sources of titles, pairs of commands (see Relations).
func WithStrict() TraceOption {
	return func(t *Trace) { t.strict = newRelations(t.d) }
}

// NewTrace returns a trace for a ledger that begins with h, written in d; v nil
// means Core(d). h may be nil where no relation to the header is checked.
func NewTrace(h *Header, d *Dialect, v *Vocabulary, opts ...TraceOption) *Trace {
	if v == nil {
		v = Core(d)
	}
	t := &Trace{d: d, v: v, pending: map[callKey]struct{}{}}
	t.state = traceState{nextTurn: 1, nextStep: 1}
	t.plan.t = t
	for _, e := range v.extra {
		t.extra = append(t.extra, e.Invariant())
	}
	for _, o := range opts {
		o(t)
	}
	if t.strict != nil {
		t.strict.begin(h)
	}
	return t
}

// NextSeq is the seq that the next event has to have.
func (t *Trace) NextSeq() int64 { return t.state.next }

// OpenTurn is the open turn, if there is one.
func (t *Trace) OpenTurn() (turn int64, open bool) { return t.state.turn, t.state.turn != 0 }

// OpenStep is the open step of the open turn, if there is one.
func (t *Trace) OpenStep() (step int64, open bool) { return t.state.step, t.state.step != 0 }

// LastTurn is the number of the last turn that was opened, 0 before the first.
func (t *Trace) LastTurn() int64 {
	if t.state.turn != 0 {
		return t.state.turn
	}
	return t.state.nextTurn - 1
}

type callChange byte

const (
	callNone callChange = iota
	callAdd
	callRemove
	callClear
)

type tracePlan struct {
	t      *Trace
	state  traceState
	change callChange
	key    callKey
	plans  []Plan
	strict Plan
}

// Apply makes the change.
func (p *tracePlan) Apply() {
	t := p.t
	t.state = p.state
	switch p.change {
	case callAdd:
		t.pending[p.key] = struct{}{}
		t.most = max(t.most, len(t.pending))
	case callRemove:
		delete(t.pending, p.key)
	case callClear:
		t.pending = emptied(t.pending, &t.most)
	}
	for _, q := range p.plans {
		q.Apply()
	}
	if p.strict != nil {
		p.strict.Apply()
	}
}

// emptied empties m. Clearing a map costs what it has ever held, so that one that
// held much is made anew: a ledger that once had a million calls in a step must
// not pay for them at the end of every later one.
func emptied[K comparable, V any](m map[K]V, most *int) map[K]V {
	if *most > 1<<10 {
		*most = 0
		return map[K]V{}
	}
	clear(m)
	return m
}

// eventKind is what a type means to the trace, so that one look at the
// vocabulary serves a run of events of one type.
type eventKind byte

const (
	kindUnknown eventKind = iota
	kindOther
	kindTurnStart
	kindTurnEnd
	kindStepStart
	kindStepEnd
	kindStepScoped
	kindToolCall
	kindToolResult
	kindTurnScoped
)

func (t *Trace) kind(typ string) eventKind {
	if typ == t.lastType {
		return t.lastKind
	}
	k := kindUnknown
	if e := t.v.types[typ]; e != nil {
		k = t.d.kind(typ)
		// The vocabulary's string, so that no event's memory is kept.
		t.lastType, t.lastKind = e.Name, k
	}
	return k
}

func (d *Dialect) kind(typ string) eventKind {
	switch typ {
	case TypeTurnStart:
		return kindTurnStart
	case TypeTurnEnd:
		return kindTurnEnd
	case TypeStepStart:
		return kindStepStart
	case TypeStepEnd:
		return kindStepEnd
	case TypeAssistantMessage, TypeAssistantAttempt, TypeAssistantChunk, TypeSystemMessage, TypeDeveloperMessage:
		return kindStepScoped
	case TypeToolCall:
		return kindToolCall
	case TypeToolResult:
		return kindToolResult
	case TypeRequestHeader, TypeRequestContext, "request/tool-update":
		return kindTurnScoped
	case "todo/write":
		if d.todoNeedsTurn {
			return kindTurnScoped
		}
	}
	return kindOther
}

// Finish returns what a strict trace still finds when the ledger ends here (see
// Relations). Open turns and pending calls are no findings.
func (t *Trace) Finish() []error {
	if t.strict == nil {
		return nil
	}
	return t.strict.Finish()
}

// Plan judges ev. The error is an *InvariantError. Nothing is allocated for an
// event that is agreed to; the plan is valid until the next call.
func (t *Trace) Plan(ev *Event) (Plan, error) {
	p := &t.plan
	p.state = t.state
	p.change = callNone
	p.strict = nil
	p.plans = p.plans[:0]
	if ev.Seq != t.state.next {
		return nil, fail(ev, CodeSeqGap, "want seq %d, got %d", t.state.next, ev.Seq)
	}
	p.state.next++
	kind := t.kind(ev.Type)
	if kind == kindUnknown {
		if !ev.Ignorable {
			return nil, fail(ev, CodeUnknownType, "version %d does not know the type and it is not ignorable", t.d.version)
		}
	} else if err := t.known(ev, kind, p); err != nil {
		return nil, err
	}
	for _, a := range t.extra {
		q, err := a.Plan(ev)
		if err != nil {
			return nil, err
		}
		p.plans = append(p.plans, q)
	}
	if t.strict != nil {
		q, err := t.strict.Plan(ev)
		if err != nil {
			return nil, err
		}
		p.strict = q
	}
	return p, nil
}

func (t *Trace) known(ev *Event, kind eventKind, p *tracePlan) error {
	e := t.v.types[ev.Type]
	if code, detail := t.d.surfaceFields(ev, e.Surface); code != "" {
		return fail(ev, code, "%s", detail)
	}
	if e.Check != nil && !ev.DataTruncated {
		if err := e.Check(ev); err != nil {
			return &InvariantError{Code: CodePayload, Seq: ev.Seq, Type: ev.Type, Err: err}
		}
	}
	s := &p.state
	switch kind {
	case kindTurnStart:
		turn, ok := Turn(ev)
		switch {
		case s.turn != 0:
			return fail(ev, CodeTurnOpen, "turn %d is open; want its turn/end first", s.turn)
		case !ok || turn != s.nextTurn:
			return fail(ev, CodeTurnNumber, "want turn %d, got %s", s.nextTurn, number(turn, ok))
		}
		s.turn, s.step, s.nextStep = turn, 0, 1
	case kindTurnEnd:
		turn, ok := Turn(ev)
		switch {
		case s.turn == 0:
			return fail(ev, CodeTurnNotOpen, "no turn is open")
		case !ok || turn != s.turn:
			return fail(ev, CodeTurnMismatch, "turn %d is open, the event names %s", s.turn, number(turn, ok))
		case s.step != 0:
			return fail(ev, CodeStepOpen, "step %d of turn %d is open", s.step, s.turn)
		}
		s.turn = 0
		s.nextTurn++
	case kindStepStart:
		turn, step, ok := TurnStep(ev)
		switch {
		case s.turn == 0:
			return fail(ev, CodeTurnNotOpen, "no turn is open")
		case !ok || turn != s.turn:
			return fail(ev, CodeTurnMismatch, "turn %d is open, the event names %s", s.turn, number(turn, ok))
		case s.step != 0:
			return fail(ev, CodeStepOpen, "step %d of turn %d is open", s.step, s.turn)
		case step != s.nextStep:
			return fail(ev, CodeStepNumber, "want step %d, got %d", s.nextStep, step)
		}
		s.step = step
	case kindStepEnd:
		if err := s.openStep(ev); err != nil {
			return err
		}
		s.step, s.blind = 0, false
		s.nextStep++
		p.change = callClear
	case kindStepScoped:
		return s.openStep(ev)
	case kindToolCall:
		if err := s.openStep(ev); err != nil {
			return err
		}
		id := stringOnly(ev.Member(ev.Data, "callId"))
		if id == nil {
			if !ev.DataTruncated {
				return fail(ev, CodePayload, "callId has to be a string")
			}
			s.blind = true
			return nil
		}
		p.change, p.key = callAdd, keyOf(id)
	case kindToolResult:
		return t.toolResult(ev, p)
	case kindTurnScoped:
		if s.turn == 0 {
			return fail(ev, CodeTurnNotOpen, "no turn is open")
		}
	}
	return nil
}

func (t *Trace) toolResult(ev *Event, p *tracePlan) error {
	s := &p.state
	if ev.SurfaceOp != nil && ev.SurfaceOp.Replace {
		// A rewrite of content is work of some turn, not an answer to a call.
		if s.turn == 0 {
			return fail(ev, CodeTurnNotOpen, "a rewritten result needs an open turn")
		}
		return nil
	}
	if err := s.openStep(ev); err != nil {
		return err
	}
	r := t.d.ToolResultOf(ev)
	if r.RawCallID == nil {
		if ev.DataTruncated {
			return nil
		}
		return fail(ev, CodePayload, "message.source.callId has to be a string")
	}
	key := keyOf(r.RawCallID)
	if _, pending := t.pending[key]; !pending && !s.blind &&
		!(r.IsError && StringIs(r.RawErrorCode, codeNotStarted)) {
		return fail(ev, CodeCallNotPending, "no pending tool/call in step %d of turn %d has its call id", s.step, s.turn)
	}
	p.change, p.key = callRemove, key
	return nil
}

// openStep checks that ev names the open turn and step.
func (s *traceState) openStep(ev *Event) error {
	turn, step, ok := TurnStep(ev)
	switch {
	case ok && s.step != 0 && turn == s.turn && step == s.step:
		return nil
	case s.turn == 0:
		return fail(ev, CodeTurnNotOpen, "no turn is open")
	case !ok || turn != s.turn:
		return fail(ev, CodeTurnMismatch, "turn %d is open, the event names %s", s.turn, number(turn, ok))
	case s.step == 0:
		return fail(ev, CodeStepNotOpen, "no step of turn %d is open", s.turn)
	}
	return fail(ev, CodeStepMismatch, "step %d is open, the event names %d", s.step, step)
}

func number(n int64, ok bool) string {
	if !ok {
		return "no count"
	}
	return fmt.Sprint(n)
}

func fail(ev *Event, code Code, format string, args ...any) error {
	return &InvariantError{Code: code, Seq: ev.Seq, Type: ev.Type, Detail: fmt.Sprintf(format, args...)}
}

// traceStateVersion is the first byte of a stored state.
const traceStateVersion = 1

// AppendState appends the trace's state, so that RestoreTrace can go on from
// here after a restart. A trace that is strict, or whose vocabulary has
// invariants of its own, has state that it cannot store.
func (t *Trace) AppendState(dst []byte) ([]byte, error) {
	if t.strict != nil || len(t.extra) > 0 {
		return dst, errors.New("session: a trace with further invariants has no stored state")
	}
	s := t.state
	dst = append(dst, traceStateVersion)
	for _, n := range []int64{s.next, s.turn, s.step, s.nextTurn, s.nextStep} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	blind := byte(0)
	if s.blind {
		blind = 1
	}
	dst = append(dst, blind)
	keys := make([]callKey, 0, len(t.pending))
	for k := range t.pending {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b callKey) int { return bytes.Compare(a[:], b[:]) })
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, k := range keys {
		dst = append(dst, k[:]...)
	}
	return dst, nil
}

// RestoreTrace returns a trace in the state that AppendState stored.
func RestoreTrace(h *Header, d *Dialect, v *Vocabulary, state []byte) (*Trace, error) {
	bad := errors.New("session: stored trace state is damaged")
	if len(state) == 0 || state[0] != traceStateVersion {
		return nil, bad
	}
	state = state[1:]
	next := func() int64 {
		n, size := binary.Uvarint(state)
		if size <= 0 || n > math.MaxInt64 {
			state = nil
			return -1
		}
		state = state[size:]
		return int64(n)
	}
	t := NewTrace(h, d, v)
	if len(t.extra) > 0 {
		return nil, errors.New("session: a trace with further invariants has no stored state")
	}
	t.state = traceState{next: next(), turn: next(), step: next(), nextTurn: next(), nextStep: next()}
	if len(state) == 0 || t.state.nextStep < 1 || t.state.nextTurn < 1 {
		return nil, bad
	}
	t.state.blind = state[0] == 1
	state = state[1:]
	n := next()
	if n < 0 || int64(len(state)) != n*int64(len(callKey{})) {
		return nil, bad
	}
	for ; len(state) > 0; state = state[len(callKey{}):] {
		t.pending[callKey(state[:len(callKey{})])] = struct{}{}
	}
	t.most = len(t.pending)
	return t, nil
}
