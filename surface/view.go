package surface

import (
	"encoding/json"
	"fmt"
	"iter"

	"github.com/otel-bridge/otel-bridge/session"
)

// Events is a ledger, or a window of one, that gives its events by seq.
type Events interface {
	// Bounds returns the seq of the first event and the one behind the last.
	Bounds() (first, next int64)
	// Event returns the event with this seq, which lies within the bounds. The
	// view is done with it before it asks for another one.
	Event(seq int64) (*session.Event, error)
}

// View is the surface of a ledger that can be asked for its events. It folds
// lazily: reading folds what the ledger has gained since.
//
// A View is a session.Admitter for that ledger. An event that its plan has
// folded is not looked at again when the ledger has it.
//
// A View must not be used by several goroutines at a time.
type View struct {
	events Events
	d      *session.Dialect
	opts   []Option
	s      *Surface
	cache  messageCache
}

var _ session.Admitter = (*View)(nil)

// NewView returns a view of events, which are written in dialect d. A window
// works like a whole ledger, with what stands before it out of reach.
func NewView(events Events, d *session.Dialect, opts ...Option) *View {
	first, _ := events.Bounds()
	opts = append([]Option{WithBase(first)}, opts...)
	return &View{events: events, d: d, opts: opts, s: New(d, opts...), cache: messageCache{limit: defaultCache}}
}

// LimitCache bounds the memory, in bytes of JSON, in which the view keeps
// messages that it has derived. It starts at 4 MiB; 0 keeps none.
func (v *View) LimitCache(bytes int) {
	v.cache.limit = bytes
	v.cache.shrink()
}

// Surface folds what the ledger has gained and returns the fold, which stays
// the view's: read it before the view is used again, and do not fold into it.
// The error is that of the first event that the fold refuses.
func (v *View) Surface() (*Surface, error) {
	for _, next := v.events.Bounds(); v.s.next < next; {
		ev, err := v.event(v.s.next)
		if err != nil {
			return nil, err
		}
		if err := v.s.Fold(ev); err != nil {
			return nil, err
		}
	}
	return v.s, nil
}

func (v *View) event(seq int64) (*session.Event, error) {
	ev, err := v.events.Event(seq)
	if err != nil {
		return nil, fmt.Errorf("surface: reading the event with seq %d: %w", seq, err)
	}
	return ev, nil
}

// Plan judges ev, the next event of the ledger, which does not have it yet.
func (v *View) Plan(ev *session.Event) (session.Plan, error) {
	s, err := v.Surface()
	if err != nil {
		return nil, err
	}
	return s.Plan(ev)
}

// At folds the ledger anew up to the event with this seq, itself included.
func (v *View) At(seq int64) (*Surface, error) {
	first, next := v.events.Bounds()
	if seq < first-1 || seq >= next {
		return nil, noSuchSeq(seq, first, next)
	}
	s := New(v.d, v.opts...)
	for s.next <= seq {
		ev, err := v.event(s.next)
		if err != nil {
			return nil, err
		}
		if err := s.Fold(ev); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Message is what one node shows to the model.
type Message struct {
	// Seq and Type are those of the node's event.
	Seq  int64
	Type string
	// Message is the JSON of the message as derived, projections applied.
	Message json.RawMessage
}

// Message derives what the event with this seq shows, with all that decisions
// have changed when it is a current node. ok is false where it shows none. The
// message must not be written to.
func (v *View) Message(seq int64) (m Message, ok bool, err error) {
	s, err := v.Surface()
	if err != nil {
		return Message{}, false, err
	}
	return v.message(s, seq)
}

func (v *View) message(s *Surface, seq int64) (m Message, ok bool, err error) {
	decisions := s.decisions[seq]
	if m, ok := v.cache.get(seq, len(decisions)); ok {
		return m, true, nil
	}
	ev, err := v.event(seq)
	if err != nil {
		return Message{}, false, err
	}
	raw, ok := DeriveMessage(v.d, ev)
	if !ok {
		return Message{}, false, nil
	}
	m = Message{seq, ev.Type, append(json.RawMessage(nil), raw...)}
	for _, at := range decisions {
		ev, err := v.event(at)
		if err != nil {
			return Message{}, false, err
		}
		if m.Message, err = s.project(ev, seq, m.Message); err != nil {
			return Message{}, false, err
		}
	}
	v.cache.put(m, len(decisions))
	return m, true, nil
}

// project applies one decision to the message of a node.
func (s *Surface) project(decision *session.Event, seq int64, message json.RawMessage) (json.RawMessage, error) {
	p, _ := s.projection(decision.Type)
	if p == nil {
		return nil, refuse(decision, CodeProjectionMissing, "its message projection is not installed")
	}
	return p.Project(decision, seq, message)
}

// Messages derives what the model sees, in surface order, without the nodes
// that show nothing. It ends with the first error.
func (v *View) Messages() iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		s, err := v.Surface()
		if err != nil {
			yield(Message{}, err)
			return
		}
		for _, seq := range s.Nodes() {
			m, ok, err := v.message(s, seq)
			if err != nil {
				yield(Message{}, err)
				return
			}
			if ok && !yield(m, nil) {
				return
			}
		}
	}
}
