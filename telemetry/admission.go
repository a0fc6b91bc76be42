package telemetry

import (
	"errors"
	"fmt"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/surface"
)

// HeldError says that a ledger cannot be understood from some event on. Capture
// waits there and tries again when the ledger, the vocabulary or the program
// changes. It holds codes and numbers, no content.
type HeldError struct {
	// Code is one of session's, jsonl's or surface's codes, or CodeDiverged or
	// CodeOperator.
	Code string
	// Seq is the first event that is not captured.
	Seq int64
	// Err is the cause; nil when it is known from the cursor only.
	Err error
}

// Codes of a HeldError that no other package has.
const (
	// CodeDiverged: the ledger has another past, and configuration says to stop.
	CodeDiverged = "diverged"
	// CodeGeneration: the session has moved to a newer format, and its events do
	// not follow those that were captured in the older one.
	CodeGeneration = "generation"
	// CodeOperator: an operator has held the session.
	CodeOperator = "operator"
)

func (e *HeldError) Error() string {
	s := fmt.Sprintf("session held at seq %d [%s]", e.Seq, e.Code)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *HeldError) Unwrap() error { return e.Err }

// heldBy makes a HeldError of an error that says that a ledger cannot be
// understood; other errors (of the operating system) come back as they are.
func heldBy(err error, seq int64) error {
	var corrupt *jsonl.CorruptError
	var invariant *session.InvariantError
	var decode *session.DecodeError
	var version *session.UnsupportedVersionError
	var header *session.HeaderError
	code := ""
	switch {
	case errors.As(err, &corrupt):
		code = string(corrupt.Code)
	case errors.As(err, &invariant):
		code = string(invariant.Code)
	case errors.As(err, &decode):
		code = string(decode.Code)
	case errors.As(err, &version):
		code = string(jsonl.CodeVersion)
	case errors.As(err, &header):
		code = string(header.Code)
	default:
		return err
	}
	return &HeldError{Code: code, Seq: seq, Err: err}
}

// admission is what judges and folds the events of one reading.
type admission struct {
	dialect *session.Dialect
	vocab   *session.Vocabulary
	trace   *session.Trace
	surf    *surface.Surface
}

func newAdmission(h *session.Header, types []session.EventType) (*admission, error) {
	d, err := session.DialectOf(h.Version)
	if err != nil {
		return nil, heldBy(err, 0)
	}
	v, err := vocabulary(d, types)
	if err != nil {
		return nil, err
	}
	return &admission{
		dialect: d, vocab: v,
		trace: session.NewTrace(h, d, v),
		surf:  surface.New(d, surface.WithVocabulary(v)),
	}, nil
}

// next is the seq of the next event.
func (a *admission) next() int64 { return a.trace.NextSeq() }

func (a *admission) admit(ev *session.Event) error {
	if err := session.Admit(ev, a.trace, a.surf); err != nil {
		return heldBy(err, a.next())
	}
	return nil
}

// isSurface reports whether events of this type are nodes of the surface.
func (a *admission) isSurface(typ string) bool {
	t, ok := a.vocab.Lookup(typ)
	return ok && t.Surface
}

// Verify reads a whole ledger once and returns nil when every event of it can
// be understood, or a *HeldError. It needs no more memory for a long ledger.
func Verify(src Source, types []session.EventType) error {
	led, err := src.Open()
	if err != nil {
		return heldBy(err, 0)
	}
	defer led.Close()
	adm, err := newAdmission(led.Header(), types)
	if err != nil {
		return err
	}
	for led.Next() {
		if err := adm.admit(led.Event()); err != nil {
			return err
		}
	}
	if err := led.Err(); err != nil {
		return heldBy(err, adm.next())
	}
	return nil
}
