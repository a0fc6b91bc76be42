package jsonl

import (
	"encoding/binary"
	"errors"
)

// Position is a place between two events of a file. It is what a reader of a
// growing file keeps in order to go on after a restart. The zero value is the
// beginning.
type Position struct {
	// Offset is the byte offset in the file: of the line that the next event
	// stands in, or of the frame that the line stands in.
	Offset int64
	// Skip is the number of decoded bytes of that frame that precede the line;
	// always 0 in a raw file.
	Skip int64
	// Member is the number of events of that line that precede the next one: a
	// packed chunk row is one line of several events.
	Member int64
	// Seq is the seq of the next event.
	Seq int64
	// Row is the 1-based number of that line; the header is row 1.
	Row int64
}

const positionVersion = 1

var errPosition = errors.New("malformed position")

// AppendBinary appends the position in a stable form of a few bytes.
func (p Position) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, positionVersion)
	for _, n := range p.fields() {
		if *n < 0 {
			return nil, errPosition
		}
		dst = binary.AppendUvarint(dst, uint64(*n))
	}
	return dst, nil
}

// MarshalBinary is AppendBinary to a new slice.
func (p Position) MarshalBinary() ([]byte, error) { return p.AppendBinary(nil) }

// UnmarshalBinary reads what AppendBinary wrote, and nothing besides it.
func (p *Position) UnmarshalBinary(b []byte) error {
	if len(b) == 0 || b[0] != positionVersion {
		return errPosition
	}
	b = b[1:]
	var q Position
	for _, n := range q.fields() {
		v, size := binary.Uvarint(b)
		if size <= 0 || v > 1<<62 {
			return errPosition
		}
		*n, b = int64(v), b[size:]
	}
	if len(b) > 0 {
		return errPosition
	}
	*p = q
	return nil
}

func (p *Position) fields() [5]*int64 {
	return [5]*int64{&p.Offset, &p.Skip, &p.Member, &p.Seq, &p.Row}
}
