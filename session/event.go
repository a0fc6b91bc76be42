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
	// types that are not surface types.
	SurfaceOp *SurfaceOp
	// SourceEventSeqs lists the events that this one was made from, with
	// ranges expanded. Nil when the field is absent, empty but not nil for [].
	SourceEventSeqs []int64
	// Ignorable is true when the event says that a reader which does not know
	// its type may pass over it.
	Ignorable bool
	// DataTruncated is true when the ledger line was longer than the reader's
	// limit: the envelope is whole, and Data holds only the members of the
	// payload that the trace invariants need (turn, step). Such an event must
	// not be exported with a body.
	DataTruncated bool
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
	c.Data = append(json.RawMessage(nil), e.Data...)
	if e.SurfaceOp != nil {
		op := *e.SurfaceOp
		c.SurfaceOp = &op
	}
	if e.SourceEventSeqs != nil {
		c.SourceEventSeqs = append([]int64{}, e.SourceEventSeqs...)
	}
	return c
}
