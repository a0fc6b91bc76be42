package outbox

import (
	"errors"
	"io"
)

const chunkSize = 256 << 10

// chunkReader reads a file up to end in chunks. A sector that cannot be read counts as
// damaged: at gives fewer bytes then, and skip steps over it.
type chunkReader struct {
	f    io.ReaderAt
	end  int64
	buf  []byte
	off  int64
	read int64 // bytes read, for the report
	err  error // why something could not be read
}

func (r *chunkReader) size() int64 { return r.end }

func (r *chunkReader) at(off int64, n int) []byte {
	if off < 0 || off >= r.end || n <= 0 {
		return nil
	}
	if off < r.off || off+int64(n) > r.off+int64(len(r.buf)) {
		r.fill(off, n)
	}
	if off < r.off || off >= r.off+int64(len(r.buf)) {
		return nil
	}
	b := r.buf[off-r.off:]
	return b[:min(n, len(b))]
}

func (r *chunkReader) fill(off int64, n int) {
	chunk := chunkSize
	if off > r.off+int64(len(r.buf)) {
		chunk = 8 << 10 // stepping over large payloads: read little
	}
	want := min(int64(max(n, chunk)), r.end-off)
	if int64(cap(r.buf)) < want {
		r.buf = make([]byte, 0, want)
	}
	r.off = off
	k, err := r.f.ReadAt(r.buf[:want], off)
	if err != nil && int64(k) < int64(n) && want > int64(n) {
		// A bad sector behind what is asked for must not hide it.
		k, err = r.f.ReadAt(r.buf[:n], off)
	}
	if k < n && unread(err) {
		r.err = err
	}
	r.buf = r.buf[:max(k, 0)]
	r.read += int64(len(r.buf))
}

// unread reports whether an error says more than that the file ends.
func unread(err error) bool { return err != nil && !errors.Is(err, io.EOF) }

// reset forgets what was read, so that bytes written meanwhile are seen.
func (r *chunkReader) reset(f io.ReaderAt, end int64) {
	r.f, r.end, r.buf, r.off, r.err = f, end, r.buf[:0], 0, nil
}

// findRecord looks for the next genuine record header at or after off.
func findRecord(src source, salt, seg uint64, off, end int64) (int64, bool) {
	off = align8(off)
	for off+recHeaderSize <= end {
		n := int(min(end-off, 64<<10))
		b := src.at(off, n)
		if len(b) < recHeaderSize {
			off += blockSize // unreadable
			continue
		}
		hit := int64(-1)
		for i := 0; i+4 <= len(b); i += 8 {
			if le.Uint32(b[i:]) == marker {
				hit = int64(i)
				break
			}
		}
		if hit < 0 {
			off += int64(len(b)) &^ 7
			continue
		}
		off += hit
		if _, _, _, ok := readRecHeader(src, salt, seg, off, false); ok {
			return off, true
		}
		off += 8
	}
	return 0, false
}

// walk calls fn for every genuine record in [from, end) and gap for every stretch that holds
// none. Either may stop it by returning false. It returns where it stopped.
func walk(src source, salt, seg uint64, from, end int64, fn func(h *recHeader, key, stream []byte) bool, gap func(from, to int64) bool) int64 {
	off := from
	for off < end {
		h, key, stream, ok := readRecHeader(src, salt, seg, off, true)
		if ok {
			if !fn(&h, key, stream) {
				return off
			}
			off = h.end()
			continue
		}
		next, found := findRecord(src, salt, seg, off+8, end)
		if !found {
			next = end
		}
		if !gap(off, next) {
			return off
		}
		off = next
	}
	return off
}
