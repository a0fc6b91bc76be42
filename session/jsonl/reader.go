package jsonl

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/otel-bridge/otel-bridge/session"
)

// Reader reads a finished session file. For one that is still being written
// there is LiveReader.
//
// What it gives is the accepted prefix, by the rules of the reference's
// recovery. Bytes after the last line end are not part of the
// ledger. The first row that cannot be decoded, or does not have the next seq,
// ends the prefix, and the reader then looks at all rows behind it before it
// decides: if any of them is a turn/end, committed work would be lost and the
// file is refused (Err); also if any of them is something that the format
// generation refuses outright. If none is, the rest is a torn tail (Tail), and
// Err is nil. In versions 0 and 1 a row that has the next seq and is no event
// otherwise refuses the file at once.
//
// In a compressed file only an incomplete last frame can be torn: a complete one
// that is damaged, or has a row that is not accepted, refuses the file.
type Reader struct {
	text   *text
	header *session.Header
	d      *session.Dialect
	rows   rows

	done      bool
	err       error
	tail      Tail
	committed int64 // bytes of decoded text in the accepted prefix
	cut       int64 // seq of the last inherited marker, -1 without one
}

// Tail is the part of a file behind the accepted prefix; its zero value says
// that there is none.
type Tail struct {
	// Offset is where the prefix ends: behind its last line in a raw file; at
	// the start of the torn frame in a compressed one. Recovery cuts the file
	// here.
	Offset int64
	// Skip is the number of decoded bytes of the torn frame which belong to the
	// prefix nevertheless. Recovery writes them again.
	Skip int64
	// Bytes is what the file has from Offset on.
	Bytes int64
	// Row is the 1-based number of the first row that is not accepted, the
	// header being row 1. It is complete when Cause is not nil.
	Row int64
	// Cause says why a complete row was not accepted; nil when the tail is a
	// line or a frame that was not written to its end.
	Cause error
}

// Torn tells whether there is a tail.
func (t Tail) Torn() bool { return t.Bytes > 0 }

// Open opens a finished session file and reads its header. The encoding is told
// by the content and the format version by the header; the name counts for
// neither. Errors: those of the operating system, ErrHeaderIncomplete, a
// *CorruptError, and inside one a *session.HeaderError or
// *session.UnsupportedVersionError.
func Open(path string, opts ...Option) (*Reader, error) {
	o := newOptions(opts)
	t, err := openText(path, &o)
	if err != nil {
		return nil, err
	}
	h, d, err := t.parseHeader()
	if err != nil {
		t.Close()
		return nil, err
	}
	return &Reader{
		text: t, header: h, d: d,
		rows:      newRows(d, o.vocab),
		committed: int64(len(t.header)) + 1,
		cut:       -1,
	}, nil
}

// Header returns the header.
func (r *Reader) Header() *session.Header { return r.header }

// Dialect returns the dialect that the header's version names.
func (r *Reader) Dialect() *session.Dialect { return r.d }

// Next goes on to the next event; false at the end of the accepted prefix or on
// an error.
func (r *Reader) Next() bool {
	for !r.done {
		if r.rows.next() {
			if r.marks(&r.rows.ev) {
				r.cut = r.rows.ev.Seq
			}
			return true
		}
		ln, err := r.text.next(r.rows.row + 1)
		if err != nil {
			r.ended(err)
			continue
		}
		row, cause := r.rows.load(ln)
		if cause != nil {
			r.rejected(row, ln, cause)
			continue
		}
		r.committed += ln.size
	}
	return false
}

// Event is the event that Next went to. It shares memory with the reader and is
// valid until the next call of Next, or Close.
func (r *Reader) Event() *session.Event { return &r.rows.ev }

// Row is the 1-based number of the line that the event stands in; the header is
// row 1. All events of a packed chunk row have one number.
func (r *Reader) Row() int64 { return r.rows.row }

// Err is why the file is refused: a *CorruptError, or an error of the operating
// system. It is nil at the end of an accepted prefix, torn tail or not.
func (r *Reader) Err() error { return r.err }

// Tail describes what follows the accepted prefix; it is known when Next has
// returned false.
func (r *Reader) Tail() Tail { return r.tail }

// CommittedBytes is the length of the accepted prefix in bytes of decoded text,
// header included, up to the row of the current event.
func (r *Reader) CommittedBytes() int64 { return r.committed }

// InheritedCount is the number of events that the session inherited from its
// parent. Up to version 1 the header says it. From version 2 it is the seq of
// the last inherited session/end-seed and therefore known only when Next has
// returned false; the function InheritedCount looks ahead.
func (r *Reader) InheritedCount() int64 {
	if r.d.HasSeedLength() {
		if r.header.SeedLength == nil {
			return 0
		}
		return *r.header.SeedLength
	}
	return max(r.cut, 0)
}

// Close closes the file.
func (r *Reader) Close() error {
	r.done = true
	return r.text.Close()
}

// ended handles the end of the lines.
func (r *Reader) ended(err error) {
	switch err {
	case io.EOF:
		r.finish()
	case io.ErrUnexpectedEOF:
		if r.err = r.text.openTorn(); r.err != nil {
			r.done = true
		}
	case errPartial, errTornFrame:
		r.setTail(r.text.place(), nil)
		r.finish()
	default:
		r.err, r.done = err, true
	}
}

func (r *Reader) setTail(at place, cause error) {
	info, err := r.text.f.Stat()
	if err != nil {
		r.err, r.done = err, true
		return
	}
	r.tail = Tail{Offset: at.offset, Skip: at.skip, Bytes: info.Size() - at.offset, Row: r.rows.row + 1, Cause: cause}
}

// finish ends a prefix that was accepted: header and markers have to agree.
func (r *Reader) finish() {
	r.done = true
	if r.err != nil {
		return
	}
	refuse := func(code session.Code, why string) {
		r.err = &CorruptError{File: r.text.path, Code: code, Err: errors.New(why)}
	}
	const disagree = "the header's isSeeded and the inherited session/end-seed have to agree"
	switch {
	case r.d.HasSeedLength():
		if r.InheritedCount() > r.rows.seq {
			refuse(session.CodeMarkerMissing, "the header's seedLength counts more inherited events than there are")
		}
	case r.header.IsSeeded && r.cut < 0:
		refuse(session.CodeMarkerMissing, disagree)
	case !r.header.IsSeeded && r.cut >= 0:
		refuse(session.CodeMarkerUnexpected, disagree)
	}
}

// marks tells whether ev is an inherited marker.
func (r *Reader) marks(ev *session.Event) bool {
	inherited, ok := session.IsEndSeed(ev)
	return ok && inherited && !r.d.HasSeedLength()
}

// rejected handles the first row that is not accepted. row is its bytes.
func (r *Reader) rejected(row []byte, ln line, cause error) {
	refusal := &CorruptError{File: r.text.path, Row: r.rows.row + 1, Offset: ln.at.offset, Code: codeOf(cause), Err: cause}

	var de *session.DecodeError
	isDecode := errors.As(cause, &de)
	acknowledged := r.text.frames != nil && !r.text.frames.torn
	if acknowledged || isDecode && (de.Stage == session.StageStructure || r.installed(de)) || isTurnEnd(row) {
		r.err, r.done = refusal, true
		return
	}
	if isDecode && de.Stage == session.StageGeneration && r.rows.ev.Seq == r.rows.seq && r.marks(&r.rows.ev) {
		r.cut = r.rows.ev.Seq
	}
	r.setTail(ln.at, cause)
	for n := r.rows.row + 2; !r.done; n++ {
		ln, err := r.text.next(n)
		switch err {
		case nil:
		case io.ErrUnexpectedEOF:
			if r.err = r.text.openTorn(); r.err != nil {
				r.done = true
			}
			continue
		case io.EOF, errPartial, errTornFrame:
			r.finish()
			return
		default:
			r.err, r.done = err, true
			return
		}
		row := ln.data
		var structure error
		if ln.over != nil {
			row = ln.over.row // of a payload that is left out nothing can be said
		} else {
			structure = session.CheckStructure(r.d, row)
		}
		if structure != nil {
			r.err, r.done = &CorruptError{File: r.text.path, Row: n, Offset: ln.at.offset, Code: codeOf(structure), Err: structure}, true
		} else if isTurnEnd(row) {
			r.err, r.done = refusal, true
		}
	}
}

// installed tells a refusal that is not the codec's. The codec of a generation
// knows a fixed set of types, and takes a row of any other type whatever surface
// fields it has. That such a type may carry none is known where it is installed,
// which is when the codec has accepted the row: it refuses the file. And in
// versions 0 and 1 the codec takes any object that has the next seq: the rest of
// its envelope is judged when a session is made of the file.
func (r *Reader) installed(de *session.DecodeError) bool {
	if r.d.StreamsAsChunks() && de.Seq == r.rows.seq && de.Stage == session.StageEnvelope && de.Code != session.CodeRowRun {
		return true
	}
	if de.Code != session.CodeSurfaceOpForbidden && de.Code != session.CodeSourcesForbidden {
		return false
	}
	if _, core := session.Core(r.d).Lookup(de.Type); !core {
		return true
	}
	return slices.Contains(installedTypes, de.Type)
}

// installedTypes are those of the core vocabularies that came after the codec
// of version 3 was fixed.
var installedTypes = []string{
	session.TypeImageOffload, "deliverables/presented", "request/tool-update", "subagent/catalog",
	"subagent/routing-decision", "workspace/changes",
}

func isTurnEnd(row []byte) bool {
	typ, ok := session.RowType(row)
	return ok && typ == session.TypeTurnEnd
}

// parseHeader makes a header of the first line.
func (t *text) parseHeader() (*session.Header, *session.Dialect, error) {
	h, d, err := session.ParseHeader(t.header)
	if err != nil {
		return nil, nil, &CorruptError{File: t.path, Row: 1, Code: codeOf(err), Err: err}
	}
	return h, d, nil
}

// codeOf finds the code of an error of package session.
func codeOf(err error) session.Code {
	var decode *session.DecodeError
	var invariant *session.InvariantError
	var header *session.HeaderError
	var version *session.UnsupportedVersionError
	var over *oversizedError
	switch {
	case errors.As(err, &decode):
		return decode.Code
	case errors.As(err, &invariant):
		return invariant.Code
	case errors.As(err, &header):
		return header.Code
	case errors.As(err, &version):
		return CodeVersion
	case errors.As(err, &over):
		return CodeOversized
	}
	return ""
}

// oversizedError says that a line over the limit has no readable envelope.
type oversizedError struct {
	size int64
	err  error
}

func (e *oversizedError) Error() string {
	return fmt.Sprintf("a line of %d bytes, over the limit, has no readable envelope: %v", e.size, e.err)
}

func (e *oversizedError) Unwrap() error { return e.err }
