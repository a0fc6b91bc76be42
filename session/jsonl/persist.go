package jsonl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
)

// Persistence keeps the sessions of a session.MemoryStore in a DSH sessions
// root, where DSH and this package's readers find them. What a session holds is
// durable when Flush or Dispose of its store has returned; a failed flush has
// written nothing, and the next one tries again.
type Persistence struct {
	store *session.MemoryStore
	root  string
	opts  []WriterOption

	mu    sync.Mutex
	files map[*session.Ledger]*sessionFile
}

// sessionFile is the file of one live session.
type sessionFile struct {
	mu sync.Mutex
	w  *Writer
}

// Persist keeps every session that is published in store from now on in root. A
// root holds one encoding: give every Persistence of a root the same options.
func Persist(store *session.MemoryStore, root string, opts ...WriterOption) *Persistence {
	p := &Persistence{store: store, root: root, opts: opts, files: map[*session.Ledger]*sessionFile{}}
	store.OnCreated(p.created)
	store.OnFlush(p.flush)
	store.OnDisposed(p.disposed)
	return p
}

// Path is where the file of a session is, or will be with its first flush.
func (p *Persistence) Path(h *session.Header) string {
	var o writerOptions
	for _, opt := range p.opts {
		opt(&o)
	}
	return filepath.Join(p.root, ProjectDir(h.Cwd), SessionDir(h.ID), Name{Generation: h.Version, Zstd: !o.raw}.String())
}

// Resume recovers a session file of root and publishes the session anew, with a
// session/end-seed behind its stored history where there is none yet.
func (p *Persistence) Resume(ctx context.Context, path string, now time.Time, opts ...session.LedgerOption) (*session.Ledger, error) {
	if _, err := Recover(path); err != nil {
		return nil, err
	}
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var evs []session.Event
	for r.Next() {
		if r.Event().DataTruncated {
			return nil, fmt.Errorf("%s: row %d is over the line limit; a session that has to be held in memory cannot be resumed without it", path, r.Row())
		}
		evs = append(evs, r.Event().Clone())
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	more, err := session.Resume(r.d, evs, now)
	if err != nil {
		return nil, err
	}
	return p.store.Create(ctx, session.CreateOptions{Header: *r.header, Events: append(evs, more...), Ledger: opts})
}

// created vetoes a session whose file belongs to another one.
func (p *Persistence) created(l *session.Ledger) error {
	if l.ID() == "" {
		return errors.New("a session needs an id to have a file")
	}
	path := p.Path(l.Header())
	w, err := Create(path, l.Header(), p.opts...)
	if errors.Is(err, fs.ErrExist) {
		w, err = p.resumed(path, l)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[l] = &sessionFile{w: w}
	return nil
}

// resumed opens the file that is there, if it holds the ledger's beginning: its
// header and its events, to the byte.
func (p *Persistence) resumed(path string, l *session.Ledger) (*Writer, error) {
	if err := sameBeginning(path, l); err != nil {
		return nil, err
	}
	return OpenWriter(path, p.opts...)
}

func sameBeginning(path string, l *session.Ledger) error {
	r, err := Open(path, WithVocabulary(l.Vocabulary()))
	if err != nil {
		return err
	}
	defer r.Close()
	same := bytes.Equal(session.AppendHeader(nil, r.Header()), session.AppendHeader(nil, l.Header()))
	var there, here []byte
	for same && r.Next() {
		ours := l.At(r.Event().Seq)
		if same = ours != nil; !same {
			break
		}
		written, err := writable(*ours)
		if err != nil {
			return err
		}
		there = session.AppendEvent(there[:0], r.d, r.Event())
		here = session.AppendEvent(here[:0], r.d, &written)
		same = bytes.Equal(there, here)
	}
	if r.Err() != nil {
		return r.Err()
	}
	if !same {
		return fmt.Errorf("%s: %w, of another session or with other events", path, ErrExists)
	}
	return nil
}

// flush writes what the file does not have yet, in one batch.
func (p *Persistence) flush(ctx context.Context, l *session.Ledger) error {
	p.mu.Lock()
	f := p.files[l]
	p.mu.Unlock()
	if f == nil {
		return nil // it was published before
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.w.Append(l.Events(f.w.NextSeq())...)
}

func (p *Persistence) disposed(l *session.Ledger) {
	p.mu.Lock()
	f := p.files[l]
	delete(p.files, l)
	p.mu.Unlock()
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.w.Close() // all that was flushed is durable
	}
}
