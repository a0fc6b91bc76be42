package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxSize     = 10 << 30
	defaultSegmentSize = 8 << 20
	minSegmentSize     = 16 << 10
	maxSegmentSize     = 16 << 20
	defaultWindow      = 32 << 10
	maxGroupDelay      = 100 * time.Millisecond
	maxLease           = 4096
)

// Outbox is a durable log of entries and cursors in one directory. All methods may be
// called from any goroutine; it starts none of its own.
type Outbox struct {
	dir      string
	fs       FS
	fileFlag int
	log      *slog.Logger
	now      func() time.Time
	unlock   func() error

	maxSize     int64
	segmentSize int64
	groupDelay  time.Duration
	windowSize  int

	salt uint64

	// qmu guards the queue of commits. One caller leads: it writes what waits.
	qmu     sync.Mutex
	queue   []*request
	leading bool
	// How many committed in the last group and meanwhile, and how long it took.
	around    int
	groupTook time.Duration
	joined    chan struct{} // closed when so many are queued
	fullAt    int

	// wmu is held by the leader while it writes, and by whoever must keep the end of the log still.
	wmu      sync.Mutex
	wbuf     []byte
	rollback atomic.Bool // the file may be longer than active.end: cut it before the next write

	growMu sync.Mutex // one change of the checkpoint's length or of the reserve at a time

	// maint is held by the one that does housekeeping.
	maint sync.Mutex

	// mu guards everything below. It is never held during a sync of the log.
	mu      sync.Mutex
	opened  bool       // Open has returned
	closed  bool       // no new work
	shut    bool       // no files any more
	segs    []*segment // by number; active is the last when it is not nil
	active  *segment
	highest uint64 // highest segment number ever
	nextID  ID
	// committed is the running total of the log; lost what Open could not account for.
	committed int64
	base      totals // of segments that are gone
	byState   [numStates]int64
	carried   totals // of rewritten segments

	cursors     map[string]string
	cursorBytes int64

	ckpt        checkpoint       // the last durable one
	ckptFirst   int              // slot to write first: the one that may be lost
	ckptRoom    int64            // both slots are at least this long
	slotRoom    [2]int64         // what of each is known to be on disk
	sinceCkpt   int64            // log bytes since then
	formerBytes int64            // of all former values in memory
	formerFiles map[uint64]int64 // sizes of files of them, by segment
	formerRead  struct {         // the last one read
		num, last uint64
		f         former
	}
	lostFormer map[uint64]former // of segments that were lost; nil: not known
	ckptBuf    []byte            // of o.maint
	reserve    int64             // bytes held back for quarantines

	damaged   []Damage
	recovery  Recovery
	full      bool
	fullSaid  time.Time // when a full outbox was last logged
	need      int64     // what the last refused batch wanted
	degraded  bool
	lastErr   error
	openFiles []*segment
	block     [blockSize]byte

	win    window
	leased map[ID]*leasedRef
	group  chan struct{} // closed and replaced when a group of commits is through
	wake   chan struct{} // closed and replaced when something becomes pending
	room   chan struct{} // likewise when bytes are given back
	quit   chan struct{} // closed by Close
}

// Open opens or makes the outbox in dir and takes its lock. A directory in use fails at
// once with [*LockedError]; one of a newer format with [*VersionError]. What had to be
// mended is in [Outbox.Recovery].
func Open(dir string, opts Options) (*Outbox, error) {
	o := newOutbox(dir, opts)
	if err := o.makeDir(); err != nil {
		return nil, fmt.Errorf("outbox: make directory: %w", err)
	}
	host, _ := os.Hostname()
	if host == "" {
		host = "unknown"
	}
	unlock, holder, held, err := o.fs.Lock(filepath.Join(dir, "LOCK"), fmt.Sprintf("%d %s %s", os.Getpid(), host, opts.Instance))
	if err != nil {
		return nil, fmt.Errorf("outbox: lock: %w", err)
	}
	if held {
		e := &LockedError{Dir: dir}
		f := strings.SplitN(holder, " ", 3)
		e.PID, _ = strconv.Atoi(f[0])
		if len(f) > 1 {
			e.Host = f[1]
		}
		if len(f) > 2 {
			e.Instance = f[2]
		}
		return nil, e
	}
	o.unlock = unlock
	patient := &patientFS{FS: o.fs, log: o.log, left: startPatience}
	o.fs = patient
	if err := o.load(false); err != nil {
		o.closeFiles()
		return nil, errors.Join(err, unlock())
	}
	o.fs, patient.left = patient.FS, 0
	o.opened = true
	return o, nil
}

// makeDir makes the directory, and what is new of its path durable.
func (o *Outbox) makeDir() error {
	var parents []string
	for d := filepath.Clean(o.dir); ; d = filepath.Dir(d) {
		if _, err := o.fs.ReadDir(d); !errors.Is(err, os.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		parents = append(parents, filepath.Dir(d))
	}
	if err := o.fs.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	for _, d := range parents {
		// One that may be written and not be read cannot be synced.
		if err := o.fs.SyncDir(d); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	return nil
}

func newOutbox(dir string, opts Options) *Outbox {
	o := &Outbox{
		dir: dir, fs: opts.FS, fileFlag: os.O_RDWR, log: opts.Logger, now: time.Now,
		maxSize: opts.MaxSize, segmentSize: opts.SegmentSize, windowSize: opts.Window,
		groupDelay: min(max(opts.GroupDelay, 0), maxGroupDelay),
		cursors:    map[string]string{}, leased: map[ID]*leasedRef{},
		formerFiles: map[uint64]int64{}, lostFormer: map[uint64]former{},
		group: make(chan struct{}), wake: make(chan struct{}), room: make(chan struct{}), quit: make(chan struct{}),
	}
	if o.fs == nil {
		o.fs = osFS{}
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	if o.maxSize <= 0 {
		o.maxSize = defaultMaxSize
	}
	if o.segmentSize <= 0 {
		o.segmentSize = defaultSegmentSize
	}
	o.segmentSize = min(max(min(o.segmentSize, o.maxSize/4), minSegmentSize), maxSegmentSize)
	if o.windowSize <= 0 {
		o.windowSize = defaultWindow
	}
	o.win.init()
	return o
}

// Close writes a checkpoint and gives the directory free. Leases still open count as
// returned. Commits under way end first.
func (o *Outbox) Close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	close(o.quit)
	o.mu.Unlock()

	o.wmu.Lock() // the leader has finished its group
	defer o.wmu.Unlock()
	o.maint.Lock()
	defer o.maint.Unlock()
	var err error
	o.mu.Lock()
	due := o.sinceCkpt > 0
	var unsynced segSet
	for _, s := range o.segs {
		if s.wseq != s.synced || s.area != nil && !s.area.flushed() {
			unsynced.add(s)
		}
	}
	err = o.flushAll(unsynced)
	o.mu.Unlock()
	if err = errors.Join(err, o.syncAll(unsynced)); err == nil && due {
		err = o.writeCheckpoint()
	}
	o.closeFiles()
	return errors.Join(err, o.unlock())
}

func (o *Outbox) closeFiles() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
	for _, s := range o.segs {
		if s.file != nil {
			s.file.Close() // it stays there for readers that have pinned it: they get errors
		}
	}
	o.openFiles = nil
}

// count keeps the totals by state.
func (o *Outbox) count(st byte, n int64) { o.byState[st] += n }

// Stats returns the totals and the present state. They are exact at every moment.
func (o *Outbox) Stats() Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := &o.byState
	damaged := b[stDamaged]
	lost := damaged + b[stDamagedDone] + o.base.lost + o.carried.lost
	st := Stats{
		Committed:   o.committed - lost,
		Acked:       b[stAcked] + o.base.acked + o.carried.acked,
		Quarantined: b[stRefused] + b[stUnknown],
		Held:        b[stHeld],
		Discarded:   b[stDiscarded] + o.base.discarded + o.carried.discarded,
		Pending:     b[stWritten] + b[stPendingAgain],
		Leased:      int64(len(o.leased)),
		Lost:        lost,
		Damaged:     int64(len(o.damaged)),
		Cursors:     len(o.cursors),
		NextID:      o.nextID,
		Segments:    len(o.segs),
		DiskBytes:   o.diskBytes(),
		Full:        o.full,
		Degraded:    o.degraded || damaged > 0,
		LastError:   o.lastErr,
	}
	for _, s := range o.segs {
		if s.unsettled() > 0 {
			st.UnackedBytes += s.end - s.dataStart
		}
	}
	return st
}

func (o *Outbox) diskBytes() int64 {
	n := 2*o.ckptRoom + o.reserve
	for _, s := range o.segs {
		n += s.end
	}
	for _, size := range o.formerFiles {
		n += size
	}
	return n
}

// Recovery returns what Open found and did.
func (o *Outbox) Recovery() Recovery {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.recovery
}

// Cursor returns a copy of the value of a cursor.
func (o *Outbox) Cursor(key string) ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.cursors[key]
	return []byte(v), ok
}

// Cursors calls fn for every cursor whose key begins with prefix, in no order, until fn
// returns false. fn may call the outbox; it sees the cursors as they were when it was
// called first.
func (o *Outbox) Cursors(prefix string, fn func(key string, value []byte) bool) {
	o.mu.Lock()
	type kv struct{ k, v string }
	var all []kv
	for k, v := range o.cursors {
		if strings.HasPrefix(k, prefix) {
			all = append(all, kv{k, v})
		}
	}
	o.mu.Unlock()
	for _, c := range all {
		if !fn(c.k, []byte(c.v)) {
			return
		}
	}
}

func (o *Outbox) setCursor(key string, value []byte, del bool) {
	if old, ok := o.cursors[key]; ok {
		o.cursorBytes -= int64(deltaFixed + len(key) + len(old))
	}
	if del {
		delete(o.cursors, key)
		return
	}
	o.cursors[key] = string(value)
	o.cursorBytes += int64(deltaFixed + len(key) + len(value))
}

// Damaged returns the entries that were lost to damage and not dealt with yet, oldest
// first. The owner captures them again where it can, and then says so with
// [Outbox.Recovered].
func (o *Outbox) Damaged() []Damage {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]Damage, len(o.damaged))
	copy(out, o.damaged)
	return out
}

// Recovered says that these were captured again, or are given up: they are not reported
// any more, not after a restart either.
func (o *Outbox) Recovered(ds ...Damage) error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return ErrClosed
	}
	type place struct {
		seg  uint64
		slot uint32
	}
	done := make(map[place]bool, len(ds))
	for _, d := range ds {
		done[place{d.Segment, d.slot}] = true
	}
	var touched segSet
	keep := o.damaged[:0:0]
	var first error
	for _, d := range o.damaged {
		if !done[place{d.Segment, d.slot}] {
			keep = append(keep, d)
			continue
		}
		if d.slot == wholeSegment {
			if err := o.seen(segName(d.Segment) + ".damaged"); err != nil {
				keep = append(keep, d)
				first = errors.Join(first, err)
			}
			continue
		}
		s := o.findSeg(d.Segment)
		if s == nil || d.slot >= s.entries {
			continue
		}
		a, err := o.states(s)
		if err == nil && a.st[d.slot] == stDamaged {
			err = o.setState(s, d.slot, stDamagedDone)
			touched.add(s)
		}
		if err != nil {
			keep = append(keep, d)
			first = errors.Join(first, err)
		}
	}
	o.damaged = keep
	err := o.flushAll(touched)
	o.mu.Unlock()
	if err = errors.Join(first, err, o.syncAll(touched)); err != nil {
		return fmt.Errorf("outbox: mark recovered: %w", err)
	}
	o.housekeep(false)
	return nil
}

// seen renames a segment that was set aside, so that the next start does not report it again.
func (o *Outbox) seen(name string) error {
	name = filepath.Join(o.dir, name)
	if err := o.fs.Rename(name, name+".seen"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return o.fs.SyncDir(o.dir)
}

func (o *Outbox) flushAll(segs segSet) error {
	var err error
	for _, s := range segs {
		err = errors.Join(err, o.flushStates(s))
	}
	return err
}

func (o *Outbox) syncAll(segs segSet) error {
	var err error
	for _, s := range segs {
		err = errors.Join(err, o.syncSeg(s))
	}
	return err
}

// findSeg returns the segment that stands for a number.
func (o *Outbox) findSeg(num uint64) *segment {
	for _, s := range o.segs {
		if s.num <= num && num <= s.last {
			return s
		}
	}
	return nil
}

// signal wakes everybody that waits on *c.
func signal(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// fullError makes an error that says ErrFull and why.
func fullError(err error) error { return fmt.Errorf("%w: %w", ErrFull, err) }

// WaitRoom returns when a Commit has a chance again: at once when nothing says that the
// outbox is full. Under the size limit it waits for bytes to be given back; with a full
// disk it tries, less and less often, at most every second.
func (o *Outbox) WaitRoom(ctx context.Context) error {
	delay := 20 * time.Millisecond
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return ErrClosed
		}
		room, full, need := o.room, o.full, o.need+max(o.reserveSize()-o.reserve, 0)
		fits := o.diskBytes()+need <= o.maxSize
		o.mu.Unlock()
		if !full {
			return nil
		}
		o.housekeep(false) // there may be something to give back
		if fits && o.probe(need) == nil {
			o.mu.Lock()
			o.full = false
			o.mu.Unlock()
			return nil
		}
		t := time.NewTimer(delay)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-o.quit:
			t.Stop()
			return ErrClosed
		case <-room:
		case <-t.C:
		}
		t.Stop()
		delay = min(2*delay, time.Second)
	}
}

// probe asks the disk for n bytes of room and gives them back.
func (o *Outbox) probe(n int64) error {
	name := filepath.Join(o.dir, "probe.tmp")
	f, err := o.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = zeroFill(f, 0, n); err == nil {
		err = f.Sync()
	}
	f.Close()
	return errors.Join(err, o.fs.Remove(name))
}

// zeroFill writes zeros over [from, to), which is the portable way to own the space.
func zeroFill(f File, from, to int64) error {
	zero := make([]byte, 64<<10)
	for off := from; off < to; {
		n, err := f.WriteAt(zero[:min(int64(len(zero)), to-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
