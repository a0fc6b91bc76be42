// Package faultfs is a file system in memory for tests of durable code. It forgets what was
// not synced, fails or crashes at a chosen operation, runs full, and flips bits.
//
// The crash model: content and size of a file are on disk as of its last Sync, the names in
// a directory as of its last SyncDir. [FS.Crash] makes the file system that is found after
// a crash: with nothing of what came later, with all of it, or with a random part (single
// 512-byte sectors of single writes, single directory operations, in any combination).
package faultfs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"syscall"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// ErrCrashed is returned by every operation from the crash point on.
var ErrCrashed = errors.New("faultfs: crashed")

// Sector is the unit that a crash keeps or loses.
const Sector = 512

// Op is one operation that changes something.
type Op struct {
	N    int    // 1 for the first one
	Kind string // create, write, truncate, sync, rename, remove, syncdir
	Name string // base name of the file
	Size int    // of a write
}

// FS is the file system. Its zero value is not usable; see [New].
type FS struct {
	mu     sync.Mutex
	names  map[string]*inode
	disk   map[string]*inode // names as of the last SyncDir
	dirOps []dirOp
	locks  map[string]string
	ops    int
	fault  func(Op) error
	crash  int // operation to crash at, 0 none
	down   bool
	budget int64 // bytes of all files, -1 no limit
	trace  []Op
}

type inode struct {
	data   []byte // as the process sees it
	disk   []byte // as of the last Sync
	writes []write
	shared bool // data and disk belong to another FS too
}

type write struct {
	off      int64
	data     []byte
	truncate bool
}

type dirOp struct {
	kind     string
	from, to string
	node     *inode
}

var _ outbox.FS = (*FS)(nil)

// New returns an empty file system.
func New() *FS {
	return &FS{names: map[string]*inode{}, disk: map[string]*inode{}, locks: map[string]string{}, budget: -1}
}

// Fault sets a function that may fail an operation before it does anything. nil: none.
func (f *FS) Fault(fn func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fn
}

// CrashAt makes operation n and all later ones return ErrCrashed. A write at the crash point
// may be on disk in part. 0: never.
func (f *FS) CrashAt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crash = n
}

// SetBudget limits the bytes of all files together; -1 lifts the limit. A write beyond it
// writes what fits and returns ENOSPC.
func (f *FS) SetBudget(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.budget = n
}

// Used returns the bytes of all files.
func (f *FS) Used() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used()
}

func (f *FS) used() int64 {
	var n int64
	for _, i := range f.names {
		n += int64(len(i.data))
	}
	return n
}

// Ops returns how many operations there were.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Trace returns the operations so far.
func (f *FS) Trace() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Op(nil), f.trace...)
}

// step counts an operation and decides its fate. Caller holds f.mu.
func (f *FS) step(kind, name string, size int) error {
	f.ops++
	op := Op{N: f.ops, Kind: kind, Name: filepath.Base(name), Size: size}
	f.trace = append(f.trace, op)
	if f.crash > 0 && f.ops >= f.crash {
		f.down = true
	}
	if f.down {
		return ErrCrashed
	}
	if f.fault != nil {
		return f.fault(op)
	}
	return nil
}

// Kept says what of the unsynced operations a crash leaves.
type Kept int

// What a crash leaves.
const (
	KeepNothing Kept = iota
	KeepAll
	KeepSome
)

// Crash returns the file system that is found after a crash now. The old one stays as it is;
// rng is needed for KeepSome only.
func (f *FS) Crash(k Kept, rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep := func() bool { return k == KeepAll || k == KeepSome && rng.IntN(2) == 0 }
	names := map[string]*inode{}
	for n, i := range f.disk {
		names[n] = i
	}
	for _, op := range f.dirOps {
		if !keep() {
			continue
		}
		switch op.kind {
		case "create":
			names[op.from] = op.node
		case "remove":
			if names[op.from] == op.node {
				delete(names, op.from)
			}
		case "rename":
			if names[op.from] == op.node {
				delete(names, op.from)
				names[op.to] = op.node
			}
		}
	}
	out := New()
	sorted := make([]string, 0, len(names))
	for n := range names {
		sorted = append(sorted, n)
	}
	sort.Strings(sorted)
	for _, n := range sorted {
		i := names[n]
		data := append([]byte(nil), i.disk...)
		for _, w := range i.writes {
			if w.truncate {
				if keep() {
					data = resize(data, w.off)
				}
				continue
			}
			for at := int64(0); at < int64(len(w.data)); {
				// To the next sector edge of the file.
				n := min(Sector-(w.off+at)%Sector, int64(len(w.data))-at)
				if keep() {
					if end := w.off + at + n; end > int64(len(data)) {
						data = resize(data, end)
					}
					copy(data[w.off+at:], w.data[at:at+n])
				}
				at += n
			}
		}
		node := &inode{data: data, disk: data, shared: true}
		out.names[n], out.disk[n] = node, node
	}
	return out
}

// Clone returns a copy with everything on disk, without locks and faults.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := New()
	for n, i := range f.names {
		node := &inode{data: i.data, disk: i.data, shared: true}
		i.shared = true
		out.names[n], out.disk[n] = node, node
	}
	return out
}

func resize(b []byte, n int64) []byte {
	if n <= int64(len(b)) {
		return b[:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

// Names returns the paths of all files, sorted.
func (f *FS) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]string, 0, len(f.names))
	for n := range f.names {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// Bytes returns a copy of a file's content.
func (f *FS) Bytes(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.names[name]; i != nil {
		return append([]byte(nil), i.data...)
	}
	return nil
}

// Put replaces a file's content on disk, as damage does.
func (f *FS) Put(name string, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b = append([]byte(nil), b...)
	i := f.names[name]
	if i == nil {
		i = &inode{}
		f.names[name], f.disk[name] = i, i
	}
	i.data, i.disk, i.writes, i.shared = b, b, nil, true
}

// FlipBit flips one bit of a file on disk.
func (f *FS) FlipBit(name string, bit int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.names[name]
	i.own()
	i.data[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(i.disk)) {
		i.disk[bit/8] ^= 1 << (bit % 8)
	}
}

// own makes data and disk this inode's alone.
func (i *inode) own() {
	if !i.shared {
		return
	}
	i.data = append([]byte(nil), i.data...)
	i.disk = append([]byte(nil), i.disk...)
	i.shared = false
}

// MkdirAll does nothing: directories are not kept.
func (f *FS) MkdirAll(string, os.FileMode) error { return nil }

// OpenFile opens or creates a file.
func (f *FS) OpenFile(name string, flag int, _ os.FileMode) (outbox.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, ErrCrashed
	}
	i := f.names[name]
	if i == nil {
		if flag&os.O_CREATE == 0 {
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		}
		if err := f.step("create", name, 0); err != nil {
			return nil, err
		}
		i = &inode{}
		f.names[name] = i
		f.dirOps = append(f.dirOps, dirOp{kind: "create", from: name, node: i})
	}
	if flag&os.O_TRUNC != 0 && len(i.data) > 0 {
		if err := f.step("truncate", name, 0); err != nil {
			return nil, err
		}
		i.own()
		i.data = i.data[:0:0]
		i.writes = append(i.writes, write{truncate: true})
	}
	return &file{fs: f, name: name, i: i, ro: flag&(os.O_RDWR|os.O_WRONLY) == 0}, nil
}

// ReadDir returns the base names of the files in dir.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, ErrCrashed
	}
	var out []string
	for n := range f.names {
		if filepath.Dir(n) == filepath.Clean(dir) {
			out = append(out, filepath.Base(n))
		}
	}
	sort.Strings(out)
	return out, nil
}

// Rename moves a name.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("rename", to, 0); err != nil {
		return err
	}
	i := f.names[from]
	if i == nil {
		return &os.PathError{Op: "rename", Path: from, Err: os.ErrNotExist}
	}
	delete(f.names, from)
	f.names[to] = i
	f.dirOps = append(f.dirOps, dirOp{kind: "rename", from: from, to: to, node: i})
	return nil
}

// Remove removes a name.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("remove", name, 0); err != nil {
		return err
	}
	i := f.names[name]
	if i == nil {
		return &os.PathError{Op: "remove", Path: name, Err: os.ErrNotExist}
	}
	delete(f.names, name)
	f.dirOps = append(f.dirOps, dirOp{kind: "remove", from: name, node: i})
	return nil
}

// SyncDir puts the names on disk.
func (f *FS) SyncDir(string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("syncdir", "", 0); err != nil {
		return err
	}
	f.disk = map[string]*inode{}
	for n, i := range f.names {
		f.disk[n] = i
	}
	f.dirOps = nil
	return nil
}

// Lock takes a lock that ends with its release; it is not a file and survives no crash.
func (f *FS) Lock(name, text string) (func() error, string, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if holder, held := f.locks[name]; held {
		return nil, holder, true, nil
	}
	f.locks[name] = text
	return func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.locks, name)
		return nil
	}, "", false, nil
}

type file struct {
	fs   *FS
	name string
	i    *inode
	ro   bool
	shut bool
}

func (h *file) check() error {
	if h.fs.down {
		return ErrCrashed
	}
	if h.shut {
		return os.ErrClosed
	}
	return nil
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check(); err != nil {
		return 0, err
	}
	if off >= int64(len(h.i.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.i.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	f := h.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.ro {
		return 0, &os.PathError{Op: "write", Path: h.name, Err: os.ErrPermission}
	}
	if err := h.check(); err != nil {
		return 0, err
	}
	err := f.step("write", h.name, len(p))
	if err != nil && !errors.Is(err, ErrCrashed) {
		// A failed write may have written a part.
		h.put(p[:len(p)/2], off)
		return len(p) / 2, &os.PathError{Op: "write", Path: h.name, Err: err}
	}
	if err != nil {
		h.i.writes = append(h.i.writes, write{off: off, data: append([]byte(nil), p...)})
		return 0, err
	}
	if f.budget >= 0 {
		if grow := off + int64(len(p)) - int64(len(h.i.data)); grow > 0 {
			if room := max(f.budget-f.used(), 0); room < grow {
				n := max(int64(len(p))-(grow-room), 0)
				h.put(p[:n], off)
				return int(n), &os.PathError{Op: "write", Path: h.name, Err: syscall.ENOSPC}
			}
		}
	}
	h.put(p, off)
	return len(p), nil
}

func (h *file) put(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	h.i.own()
	if end := off + int64(len(p)); end > int64(len(h.i.data)) {
		h.i.data = resize(h.i.data, end)
	}
	copy(h.i.data[off:], p)
	h.i.writes = append(h.i.writes, write{off: off, data: append([]byte(nil), p...)})
}

func (h *file) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check(); err != nil {
		return err
	}
	if err := h.fs.step("truncate", h.name, 0); err != nil {
		return fmt.Errorf("truncate %s: %w", h.name, err)
	}
	h.i.own()
	h.i.data = resize(h.i.data, size)
	h.i.writes = append(h.i.writes, write{off: size, truncate: true})
	return nil
}

func (h *file) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check(); err != nil {
		return err
	}
	if err := h.fs.step("sync", h.name, 0); err != nil {
		if !errors.Is(err, ErrCrashed) && len(h.i.writes) > 0 {
			// As kernels do: what could not be written stays in the cache, counts as clean, and
			// is on no disk; a later Sync does not write it.
			h.i.writes = nil
		}
		return fmt.Errorf("sync %s: %w", h.name, err)
	}
	if len(h.i.writes) > 0 {
		h.i.own()
		for _, w := range h.i.writes {
			if w.truncate {
				h.i.disk = resize(h.i.disk, w.off)
				continue
			}
			if end := w.off + int64(len(w.data)); end > int64(len(h.i.disk)) {
				h.i.disk = resize(h.i.disk, end)
			}
			copy(h.i.disk[w.off:], w.data)
		}
		h.i.writes = nil
	}
	return nil
}

func (h *file) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check(); err != nil {
		return 0, err
	}
	return int64(len(h.i.data)), nil
}

func (h *file) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.shut = true
	return nil
}

// Down reports whether the crash point has been reached.
func (f *FS) Down() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}
