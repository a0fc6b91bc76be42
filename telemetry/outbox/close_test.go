package outbox_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// hookFS asks functions before it does something.
type hookFS struct {
	*faultfs.FS
	open, rename, sync, list func(name string) error
	read                     func(off int64, n int) error
	mkdir                    func()
	syncedDirs               []string
}

type hookFile struct {
	outbox.File
	fs   *hookFS
	name string
}

func (h *hookFS) OpenFile(name string, flag int, perm os.FileMode) (outbox.File, error) {
	if h.open != nil {
		if err := h.open(name); err != nil {
			return nil, err
		}
	}
	f, err := h.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &hookFile{f, h, name}, nil
}

func (h *hookFS) MkdirAll(dir string, perm os.FileMode) error {
	if h.mkdir != nil {
		h.mkdir()
	}
	return h.FS.MkdirAll(dir, perm)
}

func (h *hookFS) ReadDir(dir string) ([]string, error) {
	if h.list != nil {
		if err := h.list(dir); err != nil {
			return nil, err
		}
	}
	return h.FS.ReadDir(dir)
}

func (h *hookFS) SyncDir(dir string) error {
	h.syncedDirs = append(h.syncedDirs, dir)
	return h.FS.SyncDir(dir)
}

func (h *hookFS) Rename(from, to string) error {
	if h.rename != nil {
		if err := h.rename(from); err != nil {
			return err
		}
	}
	return h.FS.Rename(from, to)
}

func (f *hookFile) Sync() error {
	if f.fs.sync != nil {
		if err := f.fs.sync(f.name); err != nil {
			return err
		}
	}
	return f.File.Sync()
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if f.fs.read != nil {
		if err := f.fs.read(off, len(p)); err != nil {
			return 0, err
		}
	}
	return f.File.ReadAt(p, off)
}

func TestCloseWhileALeaseIsReadIsNoCrashAndNoDamage(t *testing.T) {
	var log bytes.Buffer
	fs := &hookFS{FS: faultfs.New()}
	b := open(t, "/box", outbox.Options{FS: fs, SegmentSize: 16 << 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 4 {
		commit(t, b, 10*i, 10, 3000)
	}
	// Headers are read in small pieces; several payloads at once are a lease's.
	var once atomic.Bool
	fs.read = func(_ int64, n int) error {
		if n > 20<<10 && once.CompareAndSwap(false, true) {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	l, err := b.TryLease(outbox.Limits{})
	if l != nil || !errors.Is(err, outbox.ErrClosed) || !once.Load() {
		t.Errorf("lease %v, error %v", l, err)
	}
	if log.Len() > 0 {
		t.Errorf("said: %s", log.String())
	}
}

func TestCloseWhileEntriesAreScannedIsNoDamage(t *testing.T) {
	var log bytes.Buffer
	b := open(t, "/box", outbox.Options{FS: faultfs.New(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	commit(t, b, 0, 200, 3000) // more than is read at once
	n := 0
	err := b.Scan(func(i outbox.Info) bool {
		if n++; n == 2 {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if i.State != outbox.Pending {
			t.Errorf("entry %d is %s", i.ID, i.State)
		}
		return true
	})
	if !errors.Is(err, outbox.ErrClosed) || b.Stats().Damaged != 0 || log.Len() > 0 {
		t.Errorf("error %v, %d damaged, said: %s", err, b.Stats().Damaged, log.String())
	}
}

// A directory whose own name is on no disk is gone after a crash, with all that was committed.
func TestTheNameOfANewDirectoryIsSynced(t *testing.T) {
	fs := &hookFS{FS: faultfs.New()}
	made := map[string]bool{"/": true, "/var": true}
	fs.list = func(dir string) error {
		if !made[dir] {
			return &os.PathError{Op: "open", Path: dir, Err: os.ErrNotExist}
		}
		return nil
	}
	fs.mkdir = func() {
		for _, dir := range []string{"/var/lib", "/var/lib/box"} {
			made[dir] = true
		}
	}
	open(t, "/var/lib/box", outbox.Options{FS: fs})
	for _, parent := range []string{"/var", "/var/lib"} {
		if !slices.Contains(fs.syncedDirs, parent) {
			t.Errorf("%s is not synced, only %q", parent, fs.syncedDirs)
		}
	}
	if slices.Contains(fs.syncedDirs, "/") {
		t.Error("a directory in which nothing is new is synced")
	}
}
