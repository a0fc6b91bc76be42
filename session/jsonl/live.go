package jsonl

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
)

// LiveReader reads a session file that is still being written. It gives whole
// rows only, and of a compressed file only frames that are complete and have
// passed their checksum. What is not whole yet is no error: Next returns false
// with Err nil, and is called again when the file may have grown. Asking then
// costs one stat as long as it has not.
//
// A LiveReader holds its file open, so a file that was renamed or removed is
// still read to its end; Replaced tells whether the path leads elsewhere now.
// One that will wait for long is better closed and opened again at its
// Position: an open one keeps its buffers.
type LiveReader struct {
	text   *text
	o      options
	header *session.Header
	d      *session.Dialect
	rows   rows
	err    error

	at      place     // of the current row
	behind  place     // of the row after it
	waiting bool      // for the file to change, with nothing buffered
	seen    fileState // of the file, before the bytes at hand were read
	noEnd   int64     // raw file: no line ends between behind and here
	head    []byte    // the file's first bytes, the header's
	guard   []byte    // the last bytes before the place where it waits
}

// fileState tells that a file has changed. An append always changes its size;
// the time tells a rollback and an append of the same length.
type fileState struct {
	size int64
	time time.Time
}

const (
	guardBytes = 64
	headBytes  = 4 << 10
)

// OpenLive opens a growing session file and goes to from: the zero Position is
// the first event, one that a LiveReader gave for the same file makes Next give
// the event that would have followed. Errors are those of Open; for a file
// whose header line is not whole yet ErrHeaderIncomplete. When the file no
// longer reaches up to from, or no row starts there, the error is a
// *TruncatedError: what was read before does not precede what is there now.
func OpenLive(path string, from Position, opts ...Option) (*LiveReader, error) {
	o := newOptions(opts)
	t, err := openText(path, &o)
	if err != nil {
		return nil, err
	}
	r := &LiveReader{text: t, o: o}
	if err := r.start(from); err != nil {
		t.Close()
		return nil, err
	}
	return r, nil
}

func (r *LiveReader) start(from Position) (err error) {
	if r.header, r.d, err = r.text.parseHeader(); err != nil {
		return err
	}
	r.rows = newRows(r.d, r.o.vocab)
	if r.seen, err = r.stat(); err != nil {
		return err
	}
	r.behind = r.text.place()
	if r.head, err = r.bytesAt(0, min(headBytes, r.behind.offset)); err != nil {
		return err
	}
	if from.Row == 0 {
		return nil
	}
	if from.Offset < r.behind.offset || from.Row < 2 || from.Seq < from.Member {
		return &CorruptError{File: r.text.path, Offset: from.Offset, Code: CodePosition, Err: errors.New("the position is not one of this file")}
	}
	if r.seen.size < from.Offset {
		return &TruncatedError{File: r.text.path, Offset: from.Offset, Size: r.seen.size}
	}
	if r.text.frames == nil {
		var before [1]byte
		if _, err := r.text.f.ReadAt(before[:], from.Offset-1); err != nil {
			return err
		}
		if before[0] != '\n' || from.Skip != 0 {
			return &TruncatedError{File: r.text.path, Offset: from.Offset, Size: r.seen.size}
		}
	}
	r.behind = place{from.Offset, from.Skip}
	r.text.seek(r.behind)
	r.rows.row, r.rows.seq = from.Row-1, from.Seq-from.Member
	for range from.Member {
		if r.Next() {
			continue
		}
		if r.err != nil {
			return r.err
		}
		return &TruncatedError{File: r.text.path, Offset: from.Offset, Size: r.seen.size}
	}
	if from.Member > 0 && (r.rows.row != from.Row || r.rows.left() == 0) {
		return &CorruptError{File: r.text.path, Row: from.Row, Offset: from.Offset, Code: CodePosition, Err: errors.New("the row has fewer events than the position says")}
	}
	return nil
}

// Header returns the header.
func (r *LiveReader) Header() *session.Header { return r.header }

// Dialect returns the dialect that the header's version names.
func (r *LiveReader) Dialect() *session.Dialect { return r.d }

// Next goes on to the next event. False with Err nil means that nothing whole
// is there yet. After an error it stays false: open the file again, at Position
// where the error was not ErrTruncated.
func (r *LiveReader) Next() bool {
	for r.err == nil {
		if r.rows.next() {
			return true
		}
		if r.waiting && !r.changed() {
			return false
		}
		ln, err := r.text.next(r.rows.row + 1)
		if err == nil {
			if _, cause := r.rows.load(ln); cause != nil {
				err = &CorruptError{File: r.text.path, Row: r.rows.row + 1, Offset: ln.at.offset, Code: codeOf(cause), Err: cause}
			}
		}
		switch err {
		case nil:
			r.at, r.behind = ln.at, r.text.place()
		case io.EOF, errPartial, io.ErrUnexpectedEOF:
			r.behind = r.text.place()
			r.wait(max(r.behind.offset, r.text.raw.off))
		default:
			// A writer that rolls back and appends anew while its bytes are
			// read leaves a mix of both. It counts only when it stays.
			r.wait(r.behind.offset)
			if now, statErr := r.stat(); statErr != nil {
				r.err = statErr
			} else if now == r.seen {
				r.err = err
			}
			return false
		}
	}
	return false
}

// Event is the event that Next went to. It shares memory with the reader and is
// valid until the next call of Next.
func (r *LiveReader) Event() *session.Event { return &r.rows.ev }

// Row is the 1-based number of the line that the event stands in; the header is
// row 1.
func (r *LiveReader) Row() int64 { return r.rows.row }

// Err is what ended the reading: a *CorruptError, a *TruncatedError, or an
// error of the operating system.
func (r *LiveReader) Err() error { return r.err }

// Position is the place behind the event that Next went to, the place to open
// the file at in order to get the following one.
func (r *LiveReader) Position() Position {
	if r.rows.left() > 0 {
		return Position{Offset: r.at.offset, Skip: r.at.skip, Member: r.rows.given(), Seq: r.rows.seq, Row: r.rows.row}
	}
	return Position{Offset: r.behind.offset, Skip: r.behind.skip, Seq: r.rows.seq, Row: r.rows.row + 1}
}

// Identity tells which file is open.
func (r *LiveReader) Identity() (Identity, error) { return r.text.identity(&r.o) }

// Replaced tells whether the path leads to another file than the one that is
// open, or to none.
func (r *LiveReader) Replaced() (bool, error) {
	there, err := os.Stat(r.text.path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	here, err := r.text.f.Stat()
	if err != nil {
		return false, err
	}
	return !os.SameFile(here, there), nil
}

// Close closes the file.
func (r *LiveReader) Close() error {
	if r.err == nil {
		r.err = ErrClosed
	}
	return r.text.Close()
}

func (r *LiveReader) stat() (fileState, error) {
	info, err := r.text.f.Stat()
	if err != nil {
		return fileState{}, err
	}
	return fileState{size: info.Size(), time: info.ModTime()}, nil
}

// wait forgets what was read behind the last whole row: a failed append may be
// cut off and others come in its place. noEnd is how far a raw file was seen to
// have no further line end.
func (r *LiveReader) wait(noEnd int64) {
	r.noEnd = noEnd
	r.waiting = true
	r.guard, _ = r.bytesAt(r.behind.offset-min(guardBytes, r.behind.offset), min(guardBytes, r.behind.offset))
	r.text.seek(r.behind)
}

// bytesAt reads n bytes of the file, or fewer where it ends before.
func (r *LiveReader) bytesAt(off, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := r.text.f.ReadAt(b, off)
	if err == io.EOF {
		err = nil
	}
	return b[:got], err
}

// isAt tells whether the file has b at off.
func (r *LiveReader) isAt(b []byte, off int64) bool {
	now, err := r.bytesAt(off, int64(len(b)))
	return err == nil && bytes.Equal(now, b)
}

// changed tells whether it is worth while to read again.
func (r *LiveReader) changed() bool {
	now, err := r.stat()
	if err != nil {
		r.err = err
		return false
	}
	if now == r.seen {
		return false
	}
	offset := r.behind.offset
	if now.size < offset || !r.isAt(r.head, 0) || !r.isAt(r.guard, offset-int64(len(r.guard))) {
		r.err = &TruncatedError{File: r.text.path, Offset: offset, Size: now.size}
		return false
	}
	r.seen = now
	if r.text.frames == nil && !r.lineEnds(offset, now.size) {
		return false
	}
	r.waiting = false
	return true
}

// lineEnds looks for a line end in what has grown, so that a long line that
// comes in many small writes is read once. A writer's appends end with a line
// end, so one that took the place of a failed append ends at the last byte.
func (r *LiveReader) lineEnds(offset, size int64) bool {
	if size < r.noEnd {
		r.noEnd = offset
	}
	r.text.raw.off = max(offset, r.noEnd-1)
	var buf [32 << 10]byte
	for {
		n, err := r.text.raw.Read(buf[:])
		if bytes.IndexByte(buf[:n], '\n') >= 0 || err != nil && err != io.EOF {
			// An error of the file is met again, and told, by the reading.
			break
		}
		if n == 0 {
			r.noEnd = r.text.raw.off
			r.text.seek(r.behind)
			return false
		}
	}
	r.text.seek(r.behind)
	return true
}
