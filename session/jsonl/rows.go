package jsonl

import (
	"fmt"

	"github.com/otel-bridge/otel-bridge/session"
)

// rows makes events of lines, and counts both. A line is taken as a whole or
// not at all: all members of a packed chunk row are judged before the first is
// given.
type rows struct {
	dec  *session.Decoder
	ev   session.Event
	row  int64             // 1-based number of the last line taken; the header is 1
	seq  int64             // of the next event
	one  bool              // ev has been decoded and not been given
	run  *session.ChunkRun // the last line, if it is a packed row
	used int               // members of run that have been given
}

func newRows(d *session.Dialect, v *session.Vocabulary) rows {
	return rows{dec: session.NewDecoder(d, v), row: 1}
}

// load takes the next line. On an error the line is not counted; its bytes, or
// what is left of them, are returned in any case.
func (r *rows) load(ln line) (row []byte, err error) {
	row = ln.data
	if ln.over != nil {
		if ln.over.err != nil {
			return nil, &oversizedError{size: ln.size, err: ln.over.err}
		}
		row = ln.over.row
	}
	run, err := r.dec.Decode(row, &r.ev)
	if err != nil && ln.over != nil {
		err = &oversizedError{size: ln.size, err: err}
	}
	if err != nil {
		return row, err
	}
	seq, typ := r.ev.Seq, r.ev.Type
	if run != nil {
		seq, typ = run.Seq0, session.TypeAssistantChunk
	}
	if seq != r.seq {
		return row, &session.InvariantError{
			Code: session.CodeSeqGap, Seq: seq, Type: typ,
			Detail: fmt.Sprintf("expected %d", r.seq),
		}
	}
	r.ev.DataTruncated = ln.over != nil
	r.run, r.used, r.one = run, 0, run == nil
	r.row++
	return row, nil
}

// next makes ev the next event of the line; false when it has been given whole.
func (r *rows) next() bool {
	switch {
	case r.one:
		r.one = false
	case r.run != nil && r.run.Next(&r.ev):
		r.used++
	default:
		return false
	}
	r.seq++
	return true
}

// given is how many events of a packed row have been given, left how many have
// not.
func (r *rows) given() int64 { return int64(r.used) }

func (r *rows) left() int64 {
	if r.run == nil {
		return 0
	}
	return int64(r.run.Len() - r.used)
}
