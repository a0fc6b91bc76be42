package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/otel-bridge/otel-bridge/session"
)

// text is the decoded text of a session file, line by line, with the place of
// each line in the file. Both readers stand on it.
type text struct {
	path   string
	f      *os.File
	frames *frameReader // nil for a raw file
	raw    offsetReader
	lines  lineReader
	opened bool // a frame is open
	header []byte
}

// offsetReader reads a file from an offset on, without moving the file's own.
type offsetReader struct {
	f   io.ReaderAt
	off int64
}

func (r *offsetReader) Read(p []byte) (int, error) {
	n, err := r.f.ReadAt(p, r.off)
	r.off += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// openText opens path and reads its header line. The encoding is told by the
// content; the name counts for nothing.
func openText(path string, o *options) (*text, error) {
	// Asked before it is opened: opening a pipe waits for its other end.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file; name a session file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	t := &text{path: path, f: f, raw: offsetReader{f: f}}
	if err := t.readHeader(o); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close closes the file. Lines that it has given are not valid any more.
func (t *text) Close() error {
	t.lines.release()
	if t.frames != nil {
		t.frames.Close()
	}
	return t.f.Close()
}

func (t *text) readHeader(o *options) error {
	var magic [4]byte
	n, err := t.f.ReadAt(magic[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	t.lines.max, t.lines.hard = maxHeader, maxHeader
	compressed := n > 0 && bytes.HasPrefix(zstdMagic, magic[:n])
	if compressed {
		if t.frames, err = newFrameReader(t.f, o.maxWindow); err != nil {
			return err
		}
		switch err := t.frames.open(0, 0); {
		case err == io.ErrUnexpectedEOF || err == io.EOF:
			return fmt.Errorf("%s: %w", t.path, ErrHeaderIncomplete)
		case err != nil:
			return t.corrupt(1, err)
		}
		t.lines.reset(t.frames, 0)
	} else {
		t.lines.reset(&t.raw, 0)
	}
	ln, err := t.lines.next()
	switch {
	case err == nil && ln.over == nil:
	case err == nil || err == errLineTooLong:
		return &CorruptError{File: t.path, Row: 1, Code: session.CodeHeaderFraming, Err: fmt.Errorf("the header line is longer than %d bytes", maxHeader)}
	case compressed && (err == io.EOF || err == errPartial):
		return &CorruptError{File: t.path, Row: 1, Code: CodeHeaderFrame, Err: errors.New("frame 0 does not end with the header's line end")}
	case err == io.EOF || err == errPartial:
		return fmt.Errorf("%s: %w", t.path, ErrHeaderIncomplete)
	default:
		return t.corrupt(1, err)
	}
	t.header = bytes.Clone(ln.data)
	if compressed {
		if _, err := t.lines.next(); err != io.EOF {
			return &CorruptError{File: t.path, Row: 1, Code: CodeHeaderFrame, Err: errors.New("frame 0 holds more than the header line")}
		}
		t.seek(place{offset: t.frames.end})
	}
	t.lines.max, t.lines.hard = o.maxLine, o.longest
	return nil
}

// place is where the next line starts. It is the next frame's start, if that is
// known already, rather than the end of a frame.
func (t *text) place() place {
	switch {
	case t.frames == nil:
		return place{offset: t.lines.pos}
	case t.opened && t.frames.drained() && t.lines.empty():
		return place{offset: t.frames.end}
	default:
		return place{t.frames.start, t.lines.pos}
	}
}

// seek makes the line at p the next one. The frame is opened by
// the next call of next.
func (t *text) seek(p place) {
	if t.frames == nil {
		t.raw.off = p.offset
		t.lines.reset(&t.raw, p.offset)
		return
	}
	t.frames.start, t.opened = p.offset, false
	t.lines.reset(t.frames, p.skip)
}

// next returns the next line. Errors: io.EOF when the file ends on a line
// boundary, errPartial when bytes without a line end follow in a raw file,
// io.ErrUnexpectedEOF when the next frame is not complete, errTornFrame at the
// end of one that openTorn opened; all others refuse the file. row is the
// number of the line for those.
func (t *text) next(row int64) (line, error) {
	for {
		if t.frames != nil && !t.opened {
			skip := t.lines.pos
			if err := t.frames.open(t.frames.start, skip); err != nil {
				if err == io.EOF || err == io.ErrUnexpectedEOF {
					return line{}, err
				}
				return line{}, t.corrupt(row, err)
			}
			t.opened = true
			t.lines.reset(t.frames, skip)
		}
		ln, err := t.lines.next()
		switch {
		case err == nil:
			if t.frames == nil {
				ln.at = place{offset: t.lines.pos - ln.size}
			} else {
				ln.at = place{t.frames.start, t.lines.pos - ln.size}
			}
			return ln, nil
		case t.frames != nil && err == io.EOF:
			t.seek(place{offset: t.frames.end})
		case t.frames != nil && err == errPartial:
			return line{}, &CorruptError{File: t.path, Row: row, Offset: t.frames.start, Code: CodeFrameLine, Err: errors.New("a complete frame ends inside a line")}
		case err == io.EOF || err == errPartial || err == errTornFrame:
			return line{}, err
		default:
			return line{}, t.corrupt(row, err)
		}
	}
}

// openTorn goes on with what can be decoded of the incomplete frame at the end.
func (t *text) openTorn() error {
	info, err := t.f.Stat()
	if err != nil {
		return err
	}
	if err := t.frames.openTorn(t.frames.start, info.Size()); err != nil {
		return err
	}
	t.opened = true
	t.lines.reset(t.frames, 0)
	return nil
}

// corrupt places err. Errors of the operating system stay what they are.
func (t *text) corrupt(row int64, err error) error {
	code := frameCode(err)
	if errors.Is(err, errLineTooLong) {
		code = CodeLineTooLong
	}
	if code == "" {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	return &CorruptError{File: t.path, Row: row, Offset: t.place().offset, Code: code, Err: err}
}
