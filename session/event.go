package session

import "encoding/json"

// Event is one entry of a session ledger, as DSH's event envelope defines it
// (DSH session format, versions 0 to 4).
//
// An Event that a reader hands out may share memory with that reader; Clone
// gives one that does not.
type Event struct {
	// Seq is the 0-based, contiguous number of the event in its ledger. It
	// counts decoded events, not rows of a file.
	Seq int64
	// Time is in Unix milliseconds. It may go backwards and may be negative.
	Time int64
	// Type is the event type, such as "user/message".
	Type string
	// Data is the payload: the exact JSON bytes of the ledger.
	Data json.RawMessage
	// SurfaceOp says what the event does to the surface; nil for events of
	// types that are not surface types, and where RawSurfaceOp is not well
	// formed.
	SurfaceOp *SurfaceOp
	// RawSurfaceOp is the surfaceOp field as the ledger has it, well formed or
	// not: on an unknown type it is opaque. Nil when absent. Programs that make
	// events set SurfaceOp and leave this nil.
	RawSurfaceOp json.RawMessage
	// SourceEventSeqs lists the events that this one was made from, with
	// ranges expanded. Nil when the field is absent, empty but not nil for [].
	SourceEventSeqs []int64
	// Ignorable is true when the event says that a reader which does not know
	// its type may pass over it.
	Ignorable bool
	// DataTruncated is true when the ledger line was longer than the reader's
	// limit: the envelope is whole, and of the payload Data holds numbers, flags,
	// ids and kinds only, no text that anybody wrote: turn, step, callId and
	// inherited; kind and plugin of source; of message its id, role, toolCallId and isError, kind, plugin
	// and callId of its source, and type, id, toolCallId and isError of each
	// block of its content; of error its name and code. It is enough for a Trace,
	// a Recovery and Relations. Such an event must not be exported with a body.
	DataTruncated bool

	// opFirst says that surfaceOp stood before sourceEventSeqs in its row: the
	// reference writes both orders, and a row is written back as it was.
	opFirst bool
	// facts remembers what a decoder has found out about Data.
	facts facts
}

// facts are valid only as long as Data still is the slice they were read from.
type facts struct {
	of         *byte
	counted    bool // turn and step are known
	turn, step int64
	jumps      []jump // the long values of the row
	start      int    // where Data begins in the row
}

// SurfaceOp is what an event of a surface type does to the surface.
type SurfaceOp struct {
	// Replace is false for an append.
	Replace bool
	// Start and End name the live nodes between which, both included, a
	// replace takes all positions. Start may be larger than End, since the span
	// is one of positions, not of numbers.
	Start, End int64
}

// Clone returns a copy of e that shares no memory with it.
func (e *Event) Clone() Event {
	c := *e
	c.facts = facts{}
	c.Data = append(json.RawMessage(nil), e.Data...)
	if e.RawSurfaceOp != nil {
		c.RawSurfaceOp = append(json.RawMessage{}, e.RawSurfaceOp...)
	}
	if e.SurfaceOp != nil {
		op := *e.SurfaceOp
		c.SurfaceOp = &op
	}
	if e.SourceEventSeqs != nil {
		c.SourceEventSeqs = append([]int64{}, e.SourceEventSeqs...)
	}
	return c
}

// TurnStep reads turn and step of the payload; ok is false unless both are
// there and counts.
func TurnStep(ev *Event) (turn, step int64, ok bool) {
	if ev.facts.counted && len(ev.Data) > 0 && ev.facts.of == &ev.Data[0] {
		return ev.facts.turn, ev.facts.step, true
	}
	rawTurn, rawStep := turnStep(ev.Data)
	turn, okTurn := Count(rawTurn)
	step, okStep := Count(rawStep)
	return turn, step, okTurn && okStep
}

func turnStep(data []byte) (turn, step []byte) {
	for o := WalkObject(data); o.Next(); {
		switch {
		case o.KeyIs("turn"):
			turn = o.Value()
		case o.KeyIs("step"):
			step = o.Value()
		}
	}
	return turn, step
}

// Turn reads the turn of the payload; ok is false unless it is a count.
func Turn(ev *Event) (turn int64, ok bool) {
	if ev.facts.counted && len(ev.Data) > 0 && ev.facts.of == &ev.Data[0] {
		return ev.facts.turn, true
	}
	return Count(Member(ev.Data, "turn"))
}

// IsEndSeed reports whether ev ends the stored history of a session: what
// follows the last one belongs to its current lifetime. inherited says that
// everything before it was inherited from the parent (from version 2).
func IsEndSeed(ev *Event) (inherited, ok bool) {
	if ev.Type != TypeEndSeed {
		return false, false
	}
	return string(Member(ev.Data, "inherited")) == "true", true
}
