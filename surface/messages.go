package surface

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"

	"github.com/otel-bridge/otel-bridge/session"
)

// Source is a ledger that is read from its start, such as a file. Ranging over
// it reads it once; Messages and Diff do so several times. An event is used up
// before the next one is asked for. Reading ends with the first error.
type Source = iter.Seq2[*session.Event, error]

// End is a point behind every event.
const End int64 = math.MaxInt64

// ErrNoSuchSeq says that a point was asked for which the ledger does not have.
var ErrNoSuchSeq = errors.New("the ledger has no such seq")

func noSuchSeq(seq, first, next int64) error {
	return fmt.Errorf("surface: seq %d: %w: it has %d to %d", seq, ErrNoSuchSeq, first, next-1)
}

// AppendJSON appends m as one line of JSON, without a line feed:
// {"seq":…,"type":…,"message":…}.
func (m Message) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, m.Seq, 10)
	dst = append(dst, `,"type":`...)
	dst = session.AppendQuoted(dst, m.Type)
	dst = append(dst, `,"message":`...)
	for _, c := range m.Message {
		// Outside of strings these are white space, inside they cannot be.
		if c != '\n' && c != '\r' {
			dst = append(dst, c)
		}
	}
	return append(dst, '}')
}

// At folds src up to the event with seq at, itself included; End folds all of
// it, -1 nothing. It reads src once.
func At(src Source, d *session.Dialect, at int64, opts ...Option) (*Surface, error) {
	s := New(d, opts...)
	if err := s.foldTo(src, at); err != nil {
		return nil, err
	}
	return s, nil
}

// foldTo folds what src has between s and the event with seq at.
func (s *Surface) foldTo(src Source, at int64) error {
	if at < s.base-1 {
		return fmt.Errorf("surface: seq %d: %w: it starts with %d", at, ErrNoSuchSeq, s.base)
	}
	if s.next > at {
		return nil
	}
	for ev, err := range src {
		if err != nil {
			return err
		}
		if ev.Seq < s.next && ev.Seq >= s.base {
			continue
		}
		if err := s.Fold(ev); err != nil {
			return err
		}
		if s.next > at {
			return nil
		}
	}
	if at != End {
		return noSuchSeq(at, s.base, s.next)
	}
	return nil
}

// Messages derives what the model saw when the event with seq at was the last
// one, in surface order, without the nodes that show nothing. A message is valid
// until the next one. It ends with the first error.
//
// It reads src two or three times and holds, beside the fold, only the bodies
// of nodes that stand before a node with a smaller seq (those that replaced
// something) and of the decisions that changed messages.
func Messages(src Source, d *session.Dialect, at int64, opts ...Option) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		s, err := At(src, d, at, opts...)
		if err != nil {
			yield(Message{}, err)
			return
		}
		s.derive(src, s.Nodes())(yield)
	}
}

// Difference is a message that the model lost or gained between two points. A
// message that a decision changed is lost as it was and gained as it is.
type Difference struct {
	Gained bool
	Message
}

// AppendJSON appends the difference as one line of JSON, without a line feed:
// {"change":"lost"|"gained","seq":…,"type":…,"message":…}.
func (x Difference) AppendJSON(dst []byte) []byte {
	change := "lost"
	if x.Gained {
		change = "gained"
	}
	dst = append(dst, `{"change":"`...)
	dst = append(dst, change...)
	dst = append(dst, `",`...)
	line := x.Message.AppendJSON(nil)
	return append(dst, line[1:]...)
}

// Diff derives what the model lost and gained between two points, which are as
// for Messages: first what it lost, in the order of the surface at from, then
// what it gained, in that of the surface at to. To may be before from. It costs
// what two calls of Messages cost.
func Diff(src Source, d *session.Dialect, from, to int64, opts ...Option) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		a, err := At(src, d, min(from, to), opts...)
		if err != nil {
			yield(Difference{}, err)
			return
		}
		b := a.Clone()
		if err := b.foldTo(src, max(from, to)); err != nil {
			yield(Difference{}, err)
			return
		}
		if from > to {
			a, b = b, a
		}
		for _, side := range []struct {
			s, other *Surface
			gained   bool
		}{{a, b, false}, {b, a, true}} {
			for m, err := range side.s.derive(src, side.s.without(side.other)) {
				if !yield(Difference{side.gained, m}, err) || err != nil {
					return
				}
			}
		}
	}
}

// without returns the nodes of s that other does not have, or shows otherwise.
// Both are folds of one ledger, so that a node which as many decisions changed
// was changed by the same ones.
func (s *Surface) without(other *Surface) []int64 {
	var out []int64
	for _, seq := range s.Nodes() {
		if !other.IsNode(seq) || len(s.decisions[seq]) != len(other.decisions[seq]) {
			out = append(out, seq)
		}
	}
	return out
}

// derive reads src and derives the messages of nodes, which stand in surface
// order.
func (s *Surface) derive(src Source, nodes []int64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		// A first reading fetches what is needed earlier than it is read: nodes
		// with a smaller one behind them, and decisions.
		early := map[int64]*session.Event{}
		last, least := int64(-1), End
		for i := len(nodes) - 1; i >= 0; i-- {
			if nodes[i] > least {
				early[nodes[i]] = nil
				last = max(last, nodes[i])
			}
			least = min(least, nodes[i])
			for _, at := range s.decisions[nodes[i]] {
				early[at] = nil
				last = max(last, at)
			}
		}
		if err := fetch(src, early, last); err != nil {
			yield(Message{}, err)
			return
		}
		emit := func(ev *session.Event) bool {
			raw, ok := DeriveMessage(s.rules.d, ev)
			if !ok {
				return true
			}
			m := Message{ev.Seq, ev.Type, raw}
			for _, at := range s.decisions[ev.Seq] {
				var err error
				if m.Message, err = s.project(early[at], ev.Seq, m.Message); err != nil {
					yield(Message{}, err)
					return false
				}
			}
			return yield(m, nil)
		}
		flush := func() bool {
			for len(nodes) > 0 && early[nodes[0]] != nil {
				if !emit(early[nodes[0]]) {
					return false
				}
				nodes = nodes[1:]
			}
			return true
		}
		if !flush() || len(nodes) == 0 {
			return
		}
		for ev, err := range src {
			if err != nil {
				yield(Message{}, err)
				return
			}
			if ev.Seq != nodes[0] {
				continue
			}
			if !emit(ev) {
				return
			}
			if nodes = nodes[1:]; !flush() || len(nodes) == 0 {
				return
			}
		}
		yield(Message{}, changedSource(nodes[0]))
	}
}

// fetch reads copies of the wanted events, the last of which has seq last.
func fetch(src Source, wanted map[int64]*session.Event, last int64) error {
	if len(wanted) == 0 {
		return nil
	}
	left := len(wanted)
	for ev, err := range src {
		if err != nil {
			return err
		}
		if _, ok := wanted[ev.Seq]; ok {
			c := ev.Clone()
			wanted[ev.Seq] = &c
			left--
		}
		if ev.Seq == last {
			break
		}
	}
	if left > 0 {
		return changedSource(last)
	}
	return nil
}

func changedSource(seq int64) error {
	return fmt.Errorf("surface: seq %d: %w any more: it has changed since it was folded", seq, ErrNoSuchSeq)
}
