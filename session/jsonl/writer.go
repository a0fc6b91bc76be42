package jsonl

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/otel-bridge/otel-bridge/session"
)

// Writer keeps the file of one session. A batch that Append has taken is
// durable; one that it has refused is not in the file at all.
//
//	Create ──▶ no file ──Append──▶ temp file: header + batch, fsync
//	                               ──hard link──▶ the file appears, whole
//	           Append ──▶ write behind the end, fsync
//	                      on failure: truncate to the size before
//
// Only one writer may be at a file at a time; the caller sees to that, as it
// does in the reference. A Writer is used by one goroutine at a time.
type Writer struct {
	path   string
	header *session.Header
	d      *session.Dialect
	zstd   *zstd.Encoder // nil for a raw file
	pack   bool
	open   func(path string, flag int, mode fs.FileMode) (writeFile, error)

	f      writeFile // nil until the file is there
	size   int64
	next   int64
	buf    []byte
	frame  bytes.Buffer
	broken error
}

// writeFile is what a Writer needs of an *os.File.
type writeFile interface {
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

// WriterOption changes how a file is written.
type WriterOption func(*writerOptions)

type writerOptions struct {
	raw   bool
	plain bool
	open  func(path string, flag int, mode fs.FileMode) (writeFile, error)
}

// WithoutCompression writes plain lines. The default is zstd, a frame a batch.
func WithoutCompression() WriterOption { return func(o *writerOptions) { o.raw = true } }

// WithoutPacking writes every chunk event as a row of its own. The default
// packs runs of three and more, in the versions that have chunk events.
func WithoutPacking() WriterOption { return func(o *writerOptions) { o.plain = true } }

var (
	// ErrExists is what creating a session file reports where there is one; it
	// is not touched.
	ErrExists = fmt.Errorf("session file exists already: %w", fs.ErrExist)
	// ErrTornTail is what opening a file for appending reports that does not
	// end with its accepted prefix: recover it first.
	ErrTornTail = errors.New("session file has a torn tail; recover it before appending")
)

// Create prepares the file of a new session at path. There is none until the
// first Append or Flush: it then appears with its header and first batch at
// once, in directories that are made where they are missing (0700; files 0600).
// A file that is there is never overwritten: ErrExists.
func Create(path string, h *session.Header, opts ...WriterOption) (*Writer, error) {
	d, err := session.DialectOf(h.Version)
	if err != nil {
		return nil, err
	}
	copied := *h
	w, err := newWriter(path, &copied, d, opts)
	if err != nil {
		return nil, err
	}
	// What would be written has to be a header that a reader takes.
	if _, err := d.ParseHeader(session.AppendHeader(nil, &copied)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s: %w", path, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return w, nil
}

// OpenWriter goes on with the file of a session, which has to be whole: read it
// to its end once, and is refused with ErrTornTail when it has a tail that is
// not part of the ledger. The file's encoding is kept, whatever opts say.
func OpenWriter(path string, opts ...WriterOption) (*Writer, error) {
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for r.Next() {
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	if r.Tail().Torn() {
		return nil, fmt.Errorf("%s: %w", path, ErrTornTail)
	}
	info, err := r.text.f.Stat()
	if err != nil {
		return nil, err
	}
	raw := r.text.frames == nil
	w, err := newWriter(path, r.header, r.d, append(opts[:len(opts):len(opts)], func(o *writerOptions) { o.raw = raw }))
	if err != nil {
		return nil, err
	}
	if w.f, err = w.open(path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	w.size, w.next = info.Size(), r.rows.seq
	return w, nil
}

func newWriter(path string, h *session.Header, d *session.Dialect, opts []WriterOption) (*Writer, error) {
	o := writerOptions{open: openFile}
	for _, opt := range opts {
		opt(&o)
	}
	w := &Writer{path: path, header: h, d: d, pack: d.StreamsAsChunks() && !o.plain, open: o.open}
	if o.raw {
		return w, nil
	}
	var err error
	// The reference's frames: level 3, checksum, a window of 2 MiB.
	w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true),
		zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(2<<20), zstd.WithZeroFrames(true))
	return w, err
}

func openFile(path string, flag int, mode fs.FileMode) (writeFile, error) {
	return os.OpenFile(path, flag, mode)
}

// Header returns the header.
func (w *Writer) Header() *session.Header { return w.header }

// NextSeq is the seq of the next event to append.
func (w *Writer) NextSeq() int64 { return w.next }

// Append adds a batch of events and returns when it is durable. Their seqs have
// to go on where the file ends, and their payloads have to be JSON; nothing else
// of them is judged here. On an
// error none of them is in the file; errors.Is ErrExists when another writer
// has created it first. When even the rollback of a failed write fails, every
// later call reports it, and the file needs recovery.
func (w *Writer) Append(evs ...session.Event) error {
	if len(evs) == 0 {
		return w.broken
	}
	batch := make([]session.Event, len(evs))
	for i := range evs {
		if want := w.next + int64(i); evs[i].Seq != want {
			return &session.InvariantError{Code: session.CodeSeqGap, File: w.path, Seq: evs[i].Seq, Type: evs[i].Type, Detail: fmt.Sprintf("expected %d", want)}
		}
		var err error
		if batch[i], err = writable(evs[i]); err != nil {
			return fmt.Errorf("%s: event %d cannot be written: %w", w.path, evs[i].Seq, err)
		}
	}
	w.buf = appendRows(w.buf[:0], w.d, batch, w.pack)
	if err := w.commit(w.buf); err != nil {
		return err
	}
	w.next += int64(len(evs))
	return nil
}

// writable gives ev as it can stand in a line of its own: line feeds between the
// tokens of its JSON are taken out.
func writable(ev session.Event) (session.Event, error) {
	if ev.DataTruncated {
		return ev, errors.New("its payload was lost to a reader's line limit")
	}
	var err error
	if ev.Data, err = oneLine(ev.Data); err != nil || ev.RawSurfaceOp == nil {
		return ev, err
	}
	ev.RawSurfaceOp, err = oneLine(ev.RawSurfaceOp)
	return ev, err
}

func oneLine(raw []byte) ([]byte, error) {
	if err := session.ValidJSON(raw); err != nil || bytes.IndexByte(raw, '\n') < 0 {
		return raw, err
	}
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	return b.Bytes(), err
}

// Flush makes the file of a session without events: a header line and nothing
// else. It does nothing when the file is there.
func (w *Writer) Flush() error {
	if w.f != nil || w.broken != nil {
		return w.broken
	}
	return w.commit(nil)
}

// Close closes the file. It flushes nothing: all that Append took is durable.
func (w *Writer) Close() error {
	if errors.Is(w.broken, ErrClosed) {
		return nil
	}
	w.broken = ErrClosed
	if w.zstd != nil {
		w.zstd.Close()
	}
	if w.f == nil {
		return nil
	}
	return w.f.Close()
}

// commit makes whole lines durable.
func (w *Writer) commit(lines []byte) error {
	if w.broken != nil {
		return w.broken
	}
	if w.f == nil {
		return w.publish(lines)
	}
	data, err := w.encode(nil, lines)
	if err != nil {
		return err
	}
	if _, err = w.f.WriteAt(data, w.size); err == nil {
		err = w.f.Sync()
	}
	if err != nil {
		return w.rollback(err)
	}
	w.size += int64(len(data))
	return nil
}

// rollback takes a failed append back.
func (w *Writer) rollback(cause error) error {
	err := w.f.Truncate(w.size)
	if err == nil {
		err = w.f.Sync()
	}
	if err != nil {
		w.broken = fmt.Errorf("%s: an append failed (%w) and could not be taken back; recover the file before appending: %w", w.path, cause, err)
		return w.broken
	}
	return fmt.Errorf("append to %s: %w", w.path, cause)
}

// encode appends lines to dst as they stand in the file.
func (w *Writer) encode(dst, lines []byte) ([]byte, error) {
	if w.zstd == nil {
		return append(dst, lines...), nil
	}
	w.frame.Reset()
	w.zstd.Reset(&w.frame)
	if _, err := w.zstd.Write(lines); err != nil {
		return nil, err
	}
	// A flush before the end keeps the frame a streamed one: no content size,
	// as the reference writes it.
	if err := w.zstd.Flush(); err != nil {
		return nil, err
	}
	if err := w.zstd.Close(); err != nil {
		return nil, err
	}
	return append(dst, w.frame.Bytes()...), nil
}

// publish makes the file: a temporary one is written and synced, and then given
// its name by a hard link, which fails where that name is taken.
func (w *Writer) publish(lines []byte) (err error) {
	data, err := w.encode(nil, append(session.AppendHeader(nil, w.header), '\n'))
	if err == nil && len(lines) > 0 {
		data, err = w.encode(data, lines)
	}
	if err != nil {
		return err
	}
	dir := filepath.Dir(w.path)
	if err := makeDir(dir); err != nil {
		return err
	}
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	temp := w.path + "." + hex.EncodeToString(id[:]) + ".tmp"
	f, err := w.open(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create %s: %w", w.path, err)
	}
	linked := false
	defer func() {
		os.Remove(temp)
		if err != nil {
			f.Close()
			if linked {
				os.Remove(w.path)
			}
			err = fmt.Errorf("create %s: %w", w.path, err)
		}
	}()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Link(temp, w.path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return ErrExists
		}
		return err
	}
	linked = true
	if err := syncDir(dir); err != nil {
		return err
	}
	w.f, w.size = f, int64(len(data))
	return nil
}

// makeDir makes dir and what is missing above it, durably.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}
