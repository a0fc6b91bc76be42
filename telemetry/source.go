package telemetry

import (
	"fmt"
	"os"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// Ledger is one reading of a session's events, from the first one on.
// jsonl.Reader and jsonl.LiveReader are Ledgers.
type Ledger interface {
	// Header returns the session's header.
	Header() *session.Header
	// Next goes on to the next event. False with Err nil means that there is
	// none yet (or any more): it may be called again later.
	Next() bool
	// Event is the event that Next went to, valid until the next call of Next.
	Event() *session.Event
	// Err is what ended the reading.
	Err() error
	Close() error
}

// Source is a session's ledger that can be read again and again.
type Source interface {
	// Open starts a reading from the first event.
	Open() (Ledger, error)
	// Inherited is the number of events that the session has from its parent.
	Inherited() (int64, error)
	// Fingerprint tells cheaply whether the ledger has changed: as long as it
	// returns the same string, there is nothing new to read. An empty string
	// says nothing.
	Fingerprint() (string, error)
}

// File is a session file as a Source.
type File struct {
	path  string
	live  bool
	types []session.EventType
	opts  []jsonl.Option

	unseeded bool // what was opened last has inherited nothing
}

// LiveFile is a session file that may still grow. The event types, beyond the
// core's, are those that rows may have.
func LiveFile(path string, types []session.EventType, opts ...jsonl.Option) *File {
	return &File{path: path, live: true, types: types, opts: opts}
}

// FinishedFile is a session file of which the accepted prefix is read, by the
// rules of jsonl.Reader.
func FinishedFile(path string, types []session.EventType, opts ...jsonl.Option) *File {
	return &File{path: path, types: types, opts: opts}
}

// Path returns the file's path.
func (f *File) Path() string { return f.path }

// Open opens the file and reads its header.
func (f *File) Open() (Ledger, error) {
	led, err := f.open()
	if err == nil {
		f.unseeded = !led.Header().IsSeeded
	}
	return led, err
}

func (f *File) open() (Ledger, error) {
	if !f.live {
		r, err := jsonl.Open(f.path, f.opts...)
		if err != nil || len(f.types) == 0 {
			return ledgerOrError(r, err)
		}
		opts, err := f.withTypes(r.Dialect())
		r.Close()
		if err != nil {
			return nil, err
		}
		r, err = jsonl.Open(f.path, opts...)
		return ledgerOrError(r, err)
	}
	r, err := jsonl.OpenLive(f.path, jsonl.Position{}, f.opts...)
	if err != nil || len(f.types) == 0 {
		return ledgerOrError(r, err)
	}
	opts, err := f.withTypes(r.Dialect())
	r.Close()
	if err != nil {
		return nil, err
	}
	r, err = jsonl.OpenLive(f.path, jsonl.Position{}, opts...)
	return ledgerOrError(r, err)
}

func (f *File) withTypes(d *session.Dialect) ([]jsonl.Option, error) {
	v, err := vocabulary(d, f.types)
	return append(f.opts[:len(f.opts):len(f.opts)], jsonl.WithVocabulary(v)), err
}

// ledgerOrError keeps a nil pointer from becoming a Ledger.
func ledgerOrError[T Ledger](r T, err error) (Ledger, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// vocabulary is the core of d and the types that it does not know.
func vocabulary(d *session.Dialect, types []session.EventType) (*session.Vocabulary, error) {
	v := session.Core(d)
	var extra []session.EventType
	for _, t := range types {
		if _, known := v.Lookup(t.Name); !known {
			extra = append(extra, t)
		}
	}
	if len(extra) == 0 {
		return v, nil
	}
	return v.With(extra...)
}

// Inherited looks ahead for the cut, where the header that Open has read says
// that there is one.
func (f *File) Inherited() (int64, error) {
	if f.unseeded {
		return 0, nil
	}
	return jsonl.InheritedCount(f.path, f.opts...)
}

// Fingerprint is the file's size and the time of its last change.
func (f *File) Fingerprint() (string, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano()), nil
}
