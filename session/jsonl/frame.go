package jsonl

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"

	"github.com/otel-bridge/otel-bridge/session"
)

const (
	frameMagic   = 0xFD2FB528
	maxBlock     = 128 << 10
	walkBuffer   = 4 << 10
	smallFrame   = 64 << 10 // bytes of a frame that may be decoded as a whole
	verifyBuffer = 1 << 20  // decoded bytes that may come of it
)

// zstdMagic starts every frame (RFC 8878, section 3.1.1).
var zstdMagic = []byte{0x28, 0xB5, 0x2F, 0xFD}

var (
	errFrameMagic    = errors.New("no zstd frame starts here")
	errFrameFormat   = errors.New("malformed zstd frame")
	errFrameDict     = errors.New("the frame wants a dictionary, which session files never do")
	errFrameWindow   = errors.New("the frame's window is larger than allowed")
	errFrameContent  = errors.New("the frame does not decode")
	errFrameChecksum = errors.New("the frame is complete and its checksum is wrong")
)

// walker finds where frames end by their block headers. Compressed bytes may
// hold the magic number anywhere, so searching for it would cut frames in two.
type walker struct {
	f         io.ReaderAt
	maxWindow uint64
	buf       [walkBuffer]byte
	at        int64
	n         int
}

// bytes returns n (a few) bytes of the file at off; io.ErrUnexpectedEOF when
// the file ends before.
func (w *walker) bytes(off int64, n int) ([]byte, error) {
	if off < w.at || off+int64(n) > w.at+int64(w.n) {
		got, err := w.f.ReadAt(w.buf[:], off)
		w.at, w.n = off, got
		if got < n {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return w.buf[:got], err
		}
	}
	i := int(off - w.at)
	return w.buf[i : i+n], nil
}

// end returns the offset behind the frame that starts at off. The error is
// io.EOF when the file ends at off, io.ErrUnexpectedEOF when it ends inside the
// frame, and a format error when there is no such frame.
func (w *walker) end(off int64) (int64, error) {
	w.n = 0 // the file may have changed since the last walk
	head, err := w.bytes(off, 5)
	if err != nil {
		if err == io.ErrUnexpectedEOF && len(head) == 0 {
			return 0, io.EOF
		}
		// Fewer bytes than a magic number are a frame that was cut off, whatever
		// they are: so the reference has it.
		if err == io.ErrUnexpectedEOF && len(head) == 4 && !bytes.Equal(head, zstdMagic) {
			return 0, errFrameMagic
		}
		return 0, err
	}
	if binary.LittleEndian.Uint32(head) != frameMagic {
		return 0, errFrameMagic
	}
	desc := head[4]
	off += 5
	if desc&0x08 != 0 {
		return 0, fmt.Errorf("%w: reserved bit", errFrameFormat)
	}
	if desc&3 != 0 {
		return 0, errFrameDict
	}
	single := desc&0x20 != 0
	sizeLen := [4]int{0, 2, 4, 8}[desc>>6]
	if single && sizeLen == 0 {
		sizeLen = 1
	}
	var window uint64
	if !single {
		b, err := w.bytes(off, 1)
		if err != nil {
			return 0, err
		}
		window = 1 << (10 + b[0]>>3)
		window += window / 8 * uint64(b[0]&7)
		off++
	}
	if sizeLen > 0 {
		b, err := w.bytes(off, sizeLen)
		if err != nil {
			return 0, err
		}
		if single {
			var le [8]byte
			copy(le[:], b)
			if window = binary.LittleEndian.Uint64(le[:]); sizeLen == 2 {
				window += 256
			}
		}
		off += int64(sizeLen)
	}
	if window > w.maxWindow {
		return 0, fmt.Errorf("%w: %d bytes, allowed are %d", errFrameWindow, window, w.maxWindow)
	}
	for {
		b, err := w.bytes(off, 3)
		if err != nil {
			return 0, err
		}
		block := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		off += 3
		size := int64(block >> 3)
		if size > maxBlock {
			return 0, fmt.Errorf("%w: block of %d bytes", errFrameFormat, size)
		}
		switch block >> 1 & 3 {
		case 1: // one byte, repeated size times
			size = 1
		case 3:
			return 0, fmt.Errorf("%w: reserved block type", errFrameFormat)
		}
		off += size
		if block&1 == 0 {
			continue
		}
		if desc&0x04 != 0 {
			off += 4
		}
		// The last byte has to be there, not only the headers before it.
		if _, err := w.bytes(off-1, 1); err != nil {
			return 0, err
		}
		return off, nil
	}
}

// frameReader decodes a file of concatenated frames, one frame at a time.
type frameReader struct {
	walker
	dec     *zstd.Decoder
	in      *bufio.Reader // for frames that are not decoded as a whole
	start   int64         // of the current frame
	end     int64         // behind it; for a torn one, the end of the file
	torn    bool          // the current frame is not complete
	started bool          // the decoder has taken the torn frame's header
	first   []byte        // decoded bytes that are held since the frame was verified
	done    bool          // first is all that is left of the frame
	small   []byte        // the bytes of a small frame
	buffer  []byte        // what they decode to
}

func newFrameReader(f io.ReaderAt, maxWindow uint64) (*frameReader, error) {
	// One goroutine, the caller's: a reader that is left open costs nothing.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	return &frameReader{
		walker: walker{f: f, maxWindow: maxWindow},
		dec:    dec,
		buffer: make([]byte, 32<<10),
	}, nil
}

// Close frees the decoder.
func (r *frameReader) Close() { r.dec.Close() }

// open makes the complete frame at off the current one and passes over its
// first skip decoded bytes. Nothing of a frame is handed out before all of it
// has passed its checksum; a big one is decoded twice for that, unless skip says
// that it has been verified before.
// Errors are those of walker.end, and of decoding.
func (r *frameReader) open(off, skip int64) error {
	end, err := r.walker.end(off)
	if err != nil {
		return err
	}
	r.start, r.end, r.torn = off, end, false
	r.first, r.done = nil, false
	if small, err := r.openSmall(skip); small || err != nil {
		return err
	}
	if skip == 0 {
		if err := r.restart(); err != nil {
			return decodeError(err)
		}
		if _, err := io.Copy(io.Discard, r.dec); err != nil {
			return decodeError(err)
		}
	}
	if err := r.restart(); err != nil {
		return decodeError(err)
	}
	if _, err := io.CopyN(io.Discard, r.dec, skip); err != nil {
		return decodeError(err)
	}
	return nil
}

// openSmall decodes the current frame as a whole where that takes no more than
// verifyBuffer bytes: what a session writes in a batch does not, and this way a
// reader of such frames never needs the memory of a window.
func (r *frameReader) openSmall(skip int64) (bool, error) {
	size := r.end - r.start
	if size > smallFrame {
		return false, nil
	}
	if int64(len(r.small)) < size {
		r.small = make([]byte, max(size, 8<<10))
	}
	in := r.small[:size]
	if _, err := r.f.ReadAt(in, r.start); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // it shrank meanwhile
		}
		return false, err
	}
	for {
		out, err := r.dec.DecodeAll(in, r.buffer[:0])
		if err == nil {
			if skip > int64(len(out)) {
				return false, fmt.Errorf("%w: it is shorter than what was read of it", errFrameContent)
			}
			r.first, r.done = out[skip:], true
			return true, nil
		}
		// What the buffer is too small for fails in ways that damage does too.
		// Decoding it as a stream tells them apart.
		if len(r.buffer) >= verifyBuffer {
			return false, nil
		}
		r.buffer = make([]byte, min(8*len(r.buffer), verifyBuffer))
	}
}

// openTorn makes the incomplete frame at off the current one. Reading it gives
// what can be decoded, and then errTornFrame. Its checksum, if that is what is
// incomplete, must not keep the last block back: the decoder is told that there
// is none.
func (r *frameReader) openTorn(off, size int64) error {
	r.start, r.end, r.torn = off, size, true
	r.first, r.done = nil, false
	head := make([]byte, min(size-off, 5))
	if _, err := r.f.ReadAt(head, off); err != nil && err != io.EOF {
		return err
	}
	if len(head) == 5 {
		head[4] &^= 0x04
	}
	body := io.NewSectionReader(r.f, off+int64(len(head)), size-off-int64(len(head)))
	// Where not even the frame's header is whole, reading says so.
	r.started = r.decode(io.MultiReader(bytes.NewReader(head), body)) == nil
	return nil
}

// drained tells whether it is known that the current, complete frame has no
// more bytes.
func (r *frameReader) drained() bool { return r.done && len(r.first) == 0 }

func (r *frameReader) restart() error {
	return r.decode(io.NewSectionReader(r.f, r.start, r.end-r.start))
}

// decode starts to decode a stream.
func (r *frameReader) decode(frame io.Reader) error {
	if r.in == nil {
		r.in = bufio.NewReaderSize(nil, smallFrame)
	}
	r.in.Reset(frame)
	return r.dec.Reset(r.in)
}

// Read reads decoded bytes of the current frame; io.EOF at its end.
func (r *frameReader) Read(p []byte) (int, error) {
	if len(r.first) > 0 || r.done {
		if len(r.first) == 0 {
			return 0, io.EOF
		}
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	if r.torn && !r.started {
		return 0, errTornFrame
	}
	n, err := r.dec.Read(p)
	switch {
	case err == nil || err == io.EOF && !r.torn:
		return n, err
	case r.torn:
		return n, errTornFrame
	default:
		return n, decodeError(err)
	}
}

// decodeError makes one of the package's errors of the decoder's. Errors of
// the file itself stay.
func decodeError(err error) error {
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return err
	case errors.Is(err, zstd.ErrCRCMismatch):
		return errFrameChecksum
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return errFrameWindow
	default:
		return fmt.Errorf("%w: %w", errFrameContent, err)
	}
}

// frameCode is the code of an error that a frameReader gave; empty for one that
// is not about the file's content.
func frameCode(err error) session.Code {
	switch {
	case errors.Is(err, errFrameChecksum):
		return CodeChecksum
	case errors.Is(err, errFrameWindow):
		return CodeWindow
	case errors.Is(err, errFrameMagic), errors.Is(err, errFrameFormat), errors.Is(err, errFrameDict), errors.Is(err, errFrameContent):
		return CodeFrame
	}
	return ""
}
