package jsonl

import (
	"bytes"
	"io"

	"github.com/otel-bridge/otel-bridge/session"
)

var endSeedPrefix = []byte(`{"type":"`)

// InheritedCount finds how many events the session at path inherited from its
// parent, without reading its events one by one: up to version 1 the header
// says it; from version 2 it is the seq of the last session/end-seed with
// inherited true, for which all lines are looked through. In a growing file it
// looks at what is whole now; the marker is published together with the
// inherited events. It judges nothing: that is the readers' part.
func InheritedCount(path string, opts ...Option) (int64, error) {
	o := newOptions(opts)
	t, err := openText(path, &o)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	h, d, err := t.parseHeader()
	if err != nil {
		return 0, err
	}
	switch {
	case d.HasSeedLength() && h.SeedLength != nil:
		return *h.SeedLength, nil
	case d.HasSeedLength(), !h.IsSeeded:
		return 0, nil
	}
	var count int64
	var ev session.Event
	dec := session.NewDecoder(d, o.vocab)
	dec.Expect(0) // what markers cite is of no interest
	for row := int64(2); ; row++ {
		ln, err := t.next(row)
		switch err {
		case nil:
		case io.EOF, errPartial, io.ErrUnexpectedEOF:
			return count, nil
		default:
			return 0, err
		}
		if ln.over != nil || !maybeEndSeed(ln.data) {
			continue
		}
		if run, err := dec.Decode(ln.data, &ev); err != nil || run != nil {
			continue
		}
		if inherited, ok := session.IsEndSeed(&ev); ok && inherited {
			count = ev.Seq
		}
	}
}

// maybeEndSeed tells by its first bytes whether a row may be a session/end-seed:
// a type that stands first, as every writer puts it, and is spelled without
// escapes needs no decoding.
func maybeEndSeed(row []byte) bool {
	rest, ok := bytes.CutPrefix(row, endSeedPrefix)
	if !ok {
		return true
	}
	typ, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(typ) == session.TypeEndSeed || bytes.IndexByte(typ, '\\') >= 0
}
