package jsonl

import (
	"bytes"
	"io"
	"sync"
)

const (
	minBuffer = 64 << 10
	// A buffer that grew for a long line is given back after this many reads
	// that found it nearly empty: long lines that follow each other share it.
	calmReads = 64
)

// buffers are used again, by any reader: one for each doubling of minBuffer up to
// 1 MiB. What is given back must not be looked at any more, lines included.
var buffers [5]sync.Pool // of *[]byte

// bufferClass is the place in buffers of those of a size, -1 where there is none.
func bufferClass(size int) int {
	for i := range buffers {
		if size == minBuffer<<i {
			return i
		}
	}
	return -1
}

func takeBuffer(size int) []byte {
	if i := bufferClass(size); i >= 0 {
		if b, ok := buffers[i].Get().(*[]byte); ok {
			return *b
		}
	}
	return make([]byte, size)
}

func giveBuffer(b []byte) {
	if i := bufferClass(len(b)); i >= 0 {
		buffers[i].Put(&b)
	}
}

// line is one line of the decoded text.
type line struct {
	data []byte     // without LF; nil when over is set
	over *oversized // what is left of a line beyond the limit
	size int64      // bytes, LF included
	at   place      // set by text.next
}

// place is where a line starts: the line's offset in a raw file, skip being 0;
// the frame's offset and the decoded bytes before the line in a compressed one.
type place struct{ offset, skip int64 }

// lineReader cuts a byte stream into lines ended by LF, in memory bounded by
// the line limit. It only frames: what is in a line is of no interest, so a
// UTF-8 sequence split over two reads is never seen split.
type lineReader struct {
	src  io.Reader
	max  int   // longest line that is kept whole
	hard int64 // longest line that is read at all
	buf  []byte
	r, w int   // buf[r:w] is unread
	scan int   // buf[r:scan] holds no LF
	pos  int64 // bytes of src before buf[r]
	calm int
	env  envelopeScanner
}

// reset starts over on src, of which pos bytes have been consumed already.
func (l *lineReader) reset(src io.Reader, pos int64) {
	l.src, l.pos = src, pos
	l.r, l.w, l.scan = 0, 0, 0
}

// empty tells whether all bytes that were read have been given as lines.
func (l *lineReader) empty() bool { return l.r == l.w }

// next returns the next line; its data is valid until the following call. At
// the end of src the error is io.EOF on a line boundary and errPartial inside a
// line; any other error is that of src, given when all whole lines before it
// have been.
func (l *lineReader) next() (line, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.scan:l.w], '\n'); i >= 0 {
			end := l.scan + i
			ln := line{data: l.buf[l.r:end:end], size: int64(end + 1 - l.r)}
			l.pos += ln.size
			l.r, l.scan = end+1, end+1
			if len(ln.data) > l.max {
				l.env.reset()
				l.env.write(ln.data)
				ln.data, ln.over = nil, l.env.finish()
			}
			return ln, nil
		}
		l.scan = l.w
		if l.w-l.r > l.max {
			return l.oversize()
		}
		if err := l.fill(); err != nil {
			if err == io.EOF && l.w > l.r {
				err = errPartial
			}
			if l.empty() {
				l.release() // who waits for more holds no memory
			}
			return line{}, err
		}
	}
}

// release gives the buffer back, and with it what has been read and not been
// given as lines.
func (l *lineReader) release() {
	giveBuffer(l.buf)
	l.buf = nil
	l.r, l.w, l.scan = 0, 0, 0
}

// fill reads at least one byte behind buf[w], making room first.
func (l *lineReader) fill() error {
	n := l.w - l.r
	switch {
	case len(l.buf) == 0:
		l.buf = takeBuffer(minBuffer)
	case len(l.buf) > minBuffer && n < minBuffer/2 && l.calmed():
		l.move(takeBuffer(minBuffer))
	case n == len(l.buf):
		l.move(takeBuffer(min(2*n, l.max+minBuffer)))
		l.calm = 0
	case l.r > 0:
		copy(l.buf, l.buf[l.r:l.w])
		l.r, l.w, l.scan = 0, n, l.scan-l.r
	}
	for range 100 {
		n, err := l.src.Read(l.buf[l.w:])
		l.w += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

func (l *lineReader) calmed() bool {
	l.calm++
	return l.calm > calmReads
}

// move copies the unread bytes to the front of to, which becomes the buffer.
func (l *lineReader) move(to []byte) {
	n := copy(to, l.buf[l.r:l.w])
	giveBuffer(l.buf)
	l.buf, l.r, l.w, l.scan = to, 0, n, l.scan-l.r
}

// oversize reads the line at buf[r:w] to its end as a stream, keeping its
// envelope only.
func (l *lineReader) oversize() (line, error) {
	size := int64(0)
	l.env.reset()
	for {
		chunk := l.buf[l.r:l.w]
		i := bytes.IndexByte(chunk, '\n')
		if i >= 0 {
			chunk = chunk[:i]
		}
		l.env.write(chunk)
		size += int64(len(chunk))
		if i >= 0 {
			l.r += i + 1
			l.scan = l.r
			l.pos += size + 1
			return line{over: l.env.finish(), size: size + 1}, nil
		}
		if size > l.hard {
			return line{}, errLineTooLong
		}
		l.r, l.w, l.scan = 0, 0, 0
		if len(l.buf) > minBuffer {
			giveBuffer(l.buf)
			l.buf = takeBuffer(minBuffer)
		}
		if err := l.fill(); err != nil {
			if err == io.EOF {
				err = errPartial
			}
			return line{}, err
		}
	}
}
