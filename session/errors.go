package session

import (
	"fmt"
	"strconv"
	"strings"
)

// Code names why something of a ledger is refused. Codes are stable: programs
// may compare them, and docs/invariants.md explains each with an example.
type Code string

// Codes of headers (HeaderError).
const (
	// CodeHeaderFraming: the record is not one line ended by one line feed.
	CodeHeaderFraming Code = "header-framing"
	// CodeHeaderJSON: the header line is not JSON.
	CodeHeaderJSON Code = "header-json"
	// CodeHeaderNotObject: the header line is JSON, but no object.
	CodeHeaderNotObject Code = "header-not-object"
	// CodeHeaderRetired: the header has a field of a retired pre-release.
	CodeHeaderRetired Code = "header-retired-field"
	// CodeHeaderShape: a field is missing, unexpected or of the wrong type.
	CodeHeaderShape Code = "header-shape"
	// CodeHeaderCwd: the working directory is not an absolute path.
	CodeHeaderCwd Code = "header-cwd-relative"
)

// Codes of rows (DecodeError).
const (
	// CodeRowJSON: the row is not JSON.
	CodeRowJSON Code = "row-json"
	// CodeRowNotObject: the row is JSON, but no object.
	CodeRowNotObject Code = "row-not-object"
	// CodeRowPacked: a packed run stands where one event was asked for.
	CodeRowPacked Code = "row-packed"
	// CodeRowRun: a packed run is malformed.
	CodeRowRun Code = "row-run-malformed"
	// CodeFieldMissing: the envelope lacks a required field.
	CodeFieldMissing Code = "envelope-field-missing"
	// CodeFieldUnexpected: the envelope has a field that no event has.
	CodeFieldUnexpected Code = "envelope-field-unexpected"
	// CodeType: the event type is no string.
	CodeType Code = "envelope-type"
	// CodeTime: the time is no safe integer.
	CodeTime Code = "envelope-time"
	// CodeSeq: the seq is no count.
	CodeSeq Code = "envelope-seq"
	// CodeIgnorable: ignorable is there and not true.
	CodeIgnorable Code = "envelope-ignorable"
	// CodeSources: sourceEventSeqs does not decode.
	CodeSources Code = "envelope-sources"
	// CodeEndSeed: the data of session/end-seed is no object.
	CodeEndSeed Code = "end-seed-data"
	// CodeStructure: a payload that the format generation refuses outright.
	CodeStructure Code = "payload-structure"
	// CodeRetired: something that the format generation has retired.
	CodeRetired Code = "retired"
)

// Codes of events (InvariantError), from the envelope's surface fields on.
const (
	// CodeSeqGap: the seq is not the next one.
	CodeSeqGap Code = "seq-gap"
	// CodeUnknownType: the type is unknown and not marked ignorable.
	CodeUnknownType Code = "unknown-type"
	// CodeSurfaceOpMissing: an event of a surface type lacks surfaceOp.
	CodeSurfaceOpMissing Code = "surface-op-missing"
	// CodeSurfaceOpMalformed: surfaceOp is neither append nor an exact replace.
	CodeSurfaceOpMalformed Code = "surface-op-malformed"
	// CodeSurfaceOpForbidden: an event that is not of a surface type has it.
	CodeSurfaceOpForbidden Code = "surface-op-forbidden"
	// CodeReplaceNotEarlier: a replace names an event that is not earlier.
	CodeReplaceNotEarlier Code = "replace-not-earlier"
	// CodeSourcesForbidden: the event may not carry sourceEventSeqs.
	CodeSourcesForbidden Code = "sources-forbidden"
	// CodeSourcesEmpty: sourceEventSeqs is there and empty.
	CodeSourcesEmpty Code = "sources-empty"
	// CodeSourcesDuplicate: sourceEventSeqs names an event twice.
	CodeSourcesDuplicate Code = "sources-duplicate"
	// CodeSourcesNotEarlier: sourceEventSeqs names an event that is not earlier.
	CodeSourcesNotEarlier Code = "sources-not-earlier"
	// CodePayload: the payload is not what its type needs.
	CodePayload Code = "payload"
	// CodeTurnOpen: a turn starts inside an open one.
	CodeTurnOpen Code = "turn-already-open"
	// CodeTurnNumber: a turn does not count up by one, from 1.
	CodeTurnNumber Code = "turn-number"
	// CodeTurnNotOpen: the event needs an open turn.
	CodeTurnNotOpen Code = "turn-not-open"
	// CodeTurnMismatch: the event names another turn than the open one.
	CodeTurnMismatch Code = "turn-mismatch"
	// CodeStepOpen: a step starts, or a turn ends, inside an open step.
	CodeStepOpen Code = "step-already-open"
	// CodeStepNumber: a step does not count up by one, from 1 in each turn.
	CodeStepNumber Code = "step-number"
	// CodeStepNotOpen: the event needs an open step.
	CodeStepNotOpen Code = "step-not-open"
	// CodeStepMismatch: the event names another step than the open one.
	CodeStepMismatch Code = "step-mismatch"
	// CodeCallNotPending: a tool/result answers no pending tool/call.
	CodeCallNotPending Code = "call-not-pending"
	// CodeInbox: a splice of the agent's inbox does not fit what waits there.
	CodeInbox Code = "inbox-splice"
	// CodeMarkerMissing: a seeded ledger has no inherited session/end-seed.
	CodeMarkerMissing Code = "seed-marker-missing"
	// CodeMarkerUnexpected: an unseeded ledger has an inherited marker.
	CodeMarkerUnexpected Code = "seed-marker-unexpected"
)

// InvariantError says which rule of the ledger an event breaks. Use errors.As.
// It holds numbers and names of types, never content of an event.
type InvariantError struct {
	// Code is stable.
	Code Code
	// File names the ledger's file where the reader knows it.
	File string
	// Row is the 1-based line of the file, header included; 0 when unknown.
	Row int64
	// Seq is the seq that the event says it has.
	Seq int64
	// Type is the event's type.
	Type string
	// Detail says what was found and what was expected.
	Detail string
	// Err is the cause, if there is one.
	Err error
}

func (e *InvariantError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Row > 0 {
			b.WriteByte(':')
			b.WriteString(strconv.FormatInt(e.Row, 10))
		}
		b.WriteString(": ")
	} else if e.Row > 0 {
		fmt.Fprintf(&b, "row %d: ", e.Row)
	}
	fmt.Fprintf(&b, "seq %d %s: %s", e.Seq, shortType(e.Type), e.Code)
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

func (e *InvariantError) Unwrap() error { return e.Err }

// shortType quotes an event type, cut so that a line of log stays one.
func shortType(t string) string {
	const most = 80
	if len(t) > most {
		return strconv.Quote(t[:most]) + "..."
	}
	return strconv.Quote(t)
}

// Stage says which layer of the reference refuses a row. Recovery of a damaged
// ledger needs to know.
type Stage byte

const (
	// StageStructure: refused before anything else and, unlike the others,
	// even behind a row that already ended the accepted prefix.
	StageStructure Stage = iota
	// StageJSON: the row is not JSON.
	StageJSON
	// StageEnvelope: the envelope is wrong.
	StageEnvelope
	// StageGeneration: the envelope is right, and a rule that the generation
	// adds refuses the event (from version 3). The event is filled in: an
	// inherited session/end-seed still marks the cut.
	StageGeneration
)

// DecodeError says why a row is no event. It quotes nothing of the row but its
// numbers and its type.
type DecodeError struct {
	// Code is stable.
	Code Code
	// Stage is the layer that refuses.
	Stage Stage
	// Type is the event type, where it was read.
	Type string
	// Seq is the row's seq, or -1 where it was not read.
	Seq int64
	// Detail says what was expected.
	Detail string
	// Err is the cause, if there is one.
	Err error
}

func (e *DecodeError) Error() string {
	s := string(e.Code)
	if e.Type != "" {
		s = shortType(e.Type) + ": " + s
	}
	if e.Seq >= 0 {
		s = "seq " + strconv.FormatInt(e.Seq, 10) + " " + s
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *DecodeError) Unwrap() error { return e.Err }

// HeaderError says why a first line is no session header. It quotes none of it.
type HeaderError struct {
	// Code is stable.
	Code Code
	// Field names the field at fault, where one is.
	Field string
	// Detail says what was expected.
	Detail string
	// Err is the cause, if there is one.
	Err error
}

func (e *HeaderError) Error() string {
	s := "session header: " + string(e.Code)
	if e.Field != "" {
		s += ": " + e.Field
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *HeaderError) Unwrap() error { return e.Err }

// UnsupportedVersionError says that a ledger is of a format generation that is
// not read here.
type UnsupportedVersionError struct {
	// Version is the header's version; one that is no int is rounded and cut to
	// the range of int.
	Version int
	// Newer is true for a version above those that are read.
	Newer bool
	// Fraction is true for a version that is a number and no integer.
	Fraction bool
	// Literal is how the header writes a version that Version does not hold,
	// cut where it is long; "" for others.
	Literal string
}

func (e *UnsupportedVersionError) Error() string {
	version := e.Literal
	if version == "" {
		version = strconv.Itoa(e.Version)
	}
	switch {
	case e.Fraction:
		return "session format version " + version + " is not an integer"
	case e.Newer:
		return "session format version " + version + " is newer than this program reads; use a newer one"
	}
	return "session format version " + version + " is not one that this program reads"
}
