package jsonl

import (
	"fmt"
	"io"
	"os"

	"github.com/otel-bridge/otel-bridge/session"
)

// Recovery is what a file holds after a crash, and what makes it whole again.
type Recovery struct {
	Header  *session.Header
	Dialect *session.Dialect
	// Events is the number of events in the accepted prefix; the next seq.
	Events int64
	// CommittedBytes is the length of that prefix in bytes of decoded text.
	CommittedBytes int64
	// InheritedCount is the number of events inherited from the parent.
	InheritedCount int64
	// Tail is what does not belong to the prefix.
	Tail Tail
	// Closers are the events that close the turn that the crash left open.
	Closers []session.Event
}

// Inspect reads the file of a session that is not running and tells what
// recovery would make of it. It writes nothing. Errors are those of Reader: a
// file that it refuses cannot be recovered.
func Inspect(path string, opts ...Option) (*Recovery, error) {
	r, err := Open(path, opts...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	follow := session.NewRecovery(r.d)
	for r.Next() {
		if err := follow.Observe(r.Event()); err != nil {
			return nil, &CorruptError{File: path, Row: r.Row(), Code: codeOf(err), Err: err}
		}
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	return &Recovery{
		Header: r.header, Dialect: r.d, Events: r.rows.seq, CommittedBytes: r.committed,
		InheritedCount: r.InheritedCount(), Tail: r.Tail(), Closers: follow.Closers(session.CauseInterrupted),
	}, nil
}

// Recover makes the file of a session that is not running whole: the tail is
// cut off, what whole lines a torn frame had are written again, and the closers
// are appended, durably. It returns what Inspect said before. Done twice it
// changes nothing more.
//
// It works in place, as the reference does. A crash meanwhile may lose rows of a
// torn frame, which no writer has ever acknowledged, and nothing else.
func Recover(path string, opts ...Option) (*Recovery, error) {
	rec, err := Inspect(path, opts...)
	if err != nil || !rec.Tail.Torn() && len(rec.Closers) == 0 {
		return rec, err
	}
	if rec.Tail.Torn() {
		if err := cutTail(path, rec, opts); err != nil {
			return rec, err
		}
	}
	w, err := OpenWriter(path)
	if err != nil {
		return rec, err
	}
	if err := w.Append(rec.Closers...); err != nil {
		w.Close()
		return rec, err
	}
	return rec, w.Close()
}

// cutTail takes the tail off and writes the accepted rows of its frame again.
func cutTail(path string, rec *Recovery, opts []Option) error {
	var kept []byte
	if rec.Tail.Skip > 0 {
		var err error
		if kept, err = keptFrame(path, rec, opts); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(rec.Tail.Offset); err != nil {
		return err
	}
	if _, err := f.WriteAt(kept, rec.Tail.Offset); err != nil {
		return err
	}
	return f.Sync()
}

// keptFrame compresses the accepted rows of the torn frame anew.
func keptFrame(path string, rec *Recovery, opts []Option) ([]byte, error) {
	o := newOptions(opts)
	t, err := openText(path, &o)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	t.seek(place{offset: rec.Tail.Offset})
	if err := t.openTorn(); err != nil {
		return nil, err
	}
	w, err := newWriter(path, rec.Header, rec.Dialect, nil)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.zstd.Reset(&w.frame)
	if _, err := io.CopyN(w.zstd, t.frames, rec.Tail.Skip); err != nil {
		return nil, fmt.Errorf("%s: reading the torn frame again: %w", path, err)
	}
	if err := w.zstd.Close(); err != nil {
		return nil, err
	}
	return w.frame.Bytes(), nil
}
