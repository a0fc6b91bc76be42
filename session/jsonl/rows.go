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

	probe []byte
}

func newRows(d *session.Dialect, v *session.Vocabulary) rows {
	return rows{dec: session.NewDecoder(d, v), row: 1}
}

// load takes the next line. On an error the line is not counted; its bytes, or
// what is left of them, are returned in any case.
func (r *rows) load(ln line) (row []byte, err error) {
	var run *session.ChunkRun
	r.dec.Expect(r.seq)
	if ln.over == nil {
		row = ln.data
		run, err = r.dec.Decode(row, &r.ev)
	} else if row, err = ln.over.row, ln.over.err; err == nil {
		err = r.loadOversized(row)
	}
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
	r.run, r.used, r.one = run, 0, run == nil
	r.row++
	return row, nil
}

// loadOversized decodes the envelope of a row whose payload has been reduced.
// The decoder judges payloads by their type, and this one is no longer what its
// type says: so it gets the envelope under a type that it does not know.
func (r *rows) loadOversized(row []byte) error {
	var typ, data []byte
	probe := append(r.probe[:0], '{')
	for o := session.WalkObject(row); o.Next(); {
		if len(probe) > 1 {
			probe = append(probe, ',')
		}
		probe = append(append(probe, o.RawKey()...), ':')
		switch {
		case o.KeyIs("type"):
			typ = o.Value()
			if session.KindOf(typ) == session.KindString {
				probe = append(probe, `""`...)
				continue
			}
		case o.KeyIs("data"):
			data = o.Value()
			probe = append(probe, "{}"...)
			continue
		}
		probe = append(probe, o.Value()...)
	}
	r.probe = append(probe, '}')
	if _, err := r.dec.Decode(r.probe, &r.ev); err != nil {
		return err
	}
	r.ev.Type, _ = session.String(typ)
	r.ev.Data, r.ev.DataTruncated = data, true
	return nil
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
