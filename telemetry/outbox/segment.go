package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// segment is one file of the log. Its fields belong to Outbox.mu, except where said.
type segment struct {
	num, last uint64
	version   uint32
	firstID   ID
	slots     uint32
	dataStart int64
	end       int64 // of the committed data
	entries   uint32
	rewritten bool
	unnamed   bool // its name may not be on disk yet
	sealed    bool
	carried   totals
	// counts of entries by state byte
	counts [numStates]uint32
	// live is the log bytes of entries that are not settled, about: at a start it is estimated.
	live int64

	area       *stateArea // nil: as on disk
	keepArea   bool       // a view corrects states in memory only
	former     former     // of its cursors; nil: see its file
	formerSize int64
	gaps       bool // found at the start: not all of it could be read
	file       File
	refs       int    // users of file outside of Outbox.mu
	gone       bool   // no longer part of the log; the file is closed with the last user
	wseq       uint64 // writes of states and log bytes so far
	synced     uint64 // of these, on disk

	// fails counts failed syncs. The kernel tells of lost writes once, so everybody with
	// unsynced writes has to learn it from here.
	fails uint64

	// When it could not be read first and last, of late.
	firstUnread, lastUnread time.Time

	syncMu sync.Mutex // one sync at a time; holders may take Outbox.mu
}

// segSet is the few segments that one call touches, in the order of their first touch.
type segSet []*segment

func (a segSet) has(s *segment) bool {
	// The last ones are the likely ones.
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] == s {
			return true
		}
	}
	return false
}

func (a *segSet) add(s *segment) {
	if !a.has(s) {
		*a = append(*a, s)
	}
}

func segName(num uint64) string { return fmt.Sprintf("%016x.seg", num) }

func (s *segment) pending() uint32     { return s.counts[stWritten] + s.counts[stPendingAgain] }
func (s *segment) quarantined() uint32 { return s.counts[stRefused] + s.counts[stUnknown] }

// unsettled entries keep the segment alive.
func (s *segment) unsettled() uint32 {
	return s.pending() + s.quarantined() + s.counts[stHeld] + s.counts[stDamaged]
}

// totals of what is gone or lost in it, for when the segment itself goes.
func (s *segment) settled() totals {
	t := s.carried
	t.add(totals{int64(s.counts[stAcked]), int64(s.counts[stDiscarded]), int64(s.counts[stDamaged] + s.counts[stDamagedDone])})
	return t
}

// stateArea is the state bytes in memory and what is known of their two copies.
type stateArea struct {
	st  []byte
	blk []stateBlock
}

type stateBlock struct {
	gen     [2]uint32
	ok      [2]bool // valid and on disk
	pending int8    // copy written and not yet synced, -1 none
	dirty   bool    // memory is ahead of both copies
	seq     uint64  // write that pending came from
}

func (a *stateArea) flushed() bool {
	for i := range a.blk {
		if a.blk[i].dirty || a.blk[i].pending >= 0 {
			return false
		}
	}
	return true
}

// openSeg returns the segment's file, opening it when needed. Caller holds o.mu.
func (o *Outbox) openSeg(s *segment) (File, error) {
	if o.shut {
		return nil, ErrClosed
	}
	if s.file != nil {
		return s.file, nil
	}
	o.closeIdle()
	f, err := o.fs.OpenFile(filepath.Join(o.dir, segName(s.num)), o.fileFlag, 0o600)
	if err != nil {
		return nil, err
	}
	s.file = f
	o.openFiles = append(o.openFiles, s)
	return f, nil
}

const maxOpenFiles = 64

// closeIdle keeps the number of open files bounded, and with it the state areas in memory.
func (o *Outbox) closeIdle() {
	for i := 0; len(o.openFiles) >= maxOpenFiles && i < len(o.openFiles); {
		s := o.openFiles[i]
		if s.refs > 0 || s == o.active || s.wseq != s.synced || (s.area != nil && !s.area.flushed()) {
			i++
			continue
		}
		o.forget(s)
	}
}

// forget closes the file and drops the states; they are read again when needed.
func (o *Outbox) forget(s *segment) {
	for i, t := range o.openFiles {
		if t == s {
			o.openFiles = append(o.openFiles[:i], o.openFiles[i+1:]...)
			break
		}
	}
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
	if !s.keepArea {
		s.area = nil
	}
}

// unpin ends a use of the file. Caller holds o.mu.
func (o *Outbox) unpin(s *segment) {
	s.refs--
	if s.refs == 0 && s.gone {
		o.forget(s)
	}
}

// retire takes a segment out of use whose file is gone or about to go.
func (o *Outbox) retire(s *segment) {
	s.gone = true
	if s.refs == 0 {
		o.forget(s)
	}
}

// states returns the state bytes of a segment. Caller holds o.mu.
func (o *Outbox) states(s *segment) (*stateArea, error) {
	if s.area != nil {
		return s.area, nil
	}
	f, err := o.openSeg(s)
	if err != nil {
		return nil, err
	}
	var bad []int
	var why error
	s.area, bad, why = readStates(f, s, o.salt)
	if len(bad) > 0 {
		if err := o.notYet(s, why); err != nil {
			s.area = nil
			return nil, err
		}
	}
	if !o.readOnly() {
		// What is read must be on disk before one copy is trusted to stand in for the other: a
		// process that was killed may have left it in the page cache only.
		err := o.confirmStates(f, s)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			s.area = nil
			return nil, err
		}
	}
	if len(bad) > 0 {
		o.restoreStates(s, f, bad)
	}
	return s.area, nil
}

// restoreStates gives the entries of lost blocks the state they were written with and
// corrects the counts: they may go out again, and an entry committed as held stays held.
func (o *Outbox) restoreStates(s *segment, f File, bad []int) {
	o.recovery.StateBlocksLost += len(bad)
	o.degraded = true
	o.log.Error("outbox: states of entries are lost, they count as just written and may be delivered again", "segment", s.num, "blocks", len(bad))
	lost := make(map[uint32]bool, len(bad))
	for _, i := range bad {
		lost[uint32(i)] = true
	}
	a := s.area
	src := &chunkReader{f: f, end: s.end}
	walk(src, o.salt, s.num, s.dataStart, s.end, func(h *recHeader, _, _ []byte) bool {
		if (h.kind == kindEntry || h.kind == kindQuarantined) && h.slot < s.entries && lost[h.slot/blockStates] {
			a.st[h.slot] = h.initialState()
		}
		return true
	}, func(int64, int64) bool { return true })
	for _, i := range bad {
		a.blk[i].dirty = !o.readOnly()
	}
	for st, n := range s.counts {
		o.count(byte(st), -int64(n))
	}
	s.counts = [numStates]uint32{}
	for _, st := range a.st[:s.entries] {
		s.counts[st]++
		o.count(st, 1)
	}
	o.win.stale = true
}

func (o *Outbox) readOnly() bool { return o.fileFlag == os.O_RDONLY }

// readPatience is how long a segment may be unreadable before that counts as damage: a disk
// that is away for a while has lost nothing.
const readPatience = 2 * time.Minute

// notYet returns err, why s cannot be read, as long as that does not count as damage. At the
// start it does at once, and for a view.
func (o *Outbox) notYet(s *segment, err error) error {
	if err == nil || !o.opened {
		return nil
	}
	now := o.now()
	if now.Sub(s.lastUnread) > 5*readPatience {
		s.firstUnread = now
	}
	s.lastUnread = now
	if now.Sub(s.firstUnread) >= readPatience {
		return nil
	}
	return fmt.Errorf("outbox: read %s: %w", segName(s.num), err)
}

// readStates reads both copies; a block without a valid copy counts as never written. The
// error says what could not be read.
func readStates(f File, s *segment, salt uint64) (a *stateArea, bad []int, why error) {
	slots := s.slots
	area := int64(slots / slotsPerPage * pageSize)
	raw := make([]byte, 2*area)
	if n, err := f.ReadAt(raw, pageSize); err != nil && n < len(raw) {
		// Read what can be read, block by block.
		for i := range len(raw) / blockSize {
			if k, err := f.ReadAt(raw[i*blockSize:(i+1)*blockSize], pageSize+int64(i*blockSize)); k < blockSize {
				if unread(err) {
					why = err
				}
				for j := range blockSize {
					raw[i*blockSize+j] = 0xFF
				}
			}
		}
	}
	n := int(slots / blockStates)
	a = &stateArea{st: make([]byte, slots), blk: make([]stateBlock, n)}
	for i := range n {
		b := &a.blk[i]
		b.pending = -1
		best := -1
		for c := range 2 {
			p := raw[int64(c)*area+int64(i*blockSize):][:blockSize]
			b.gen[c], b.ok[c] = decodeBlock(p, s.version, salt, s.num, i)
			if b.ok[c] && (best < 0 || b.gen[c] > b.gen[best]) {
				best = c
			}
		}
		if best < 0 {
			bad = append(bad, i)
			continue
		}
		if w := 1 - best; b.ok[w] && b.gen[w] < b.gen[best] {
			b.ok[w] = false // the older one is the next to be written
		}
		copy(a.st[i*blockStates:(i+1)*blockStates], raw[int64(best)*area+int64(i*blockSize)+8:][:blockStates])
	}
	for i, st := range a.st {
		if st >= numStates {
			a.st[i] = stWritten
		}
	}
	return a, bad, why
}

// confirmStates writes the newer copy of a block once more, the same bytes over themselves,
// when its twin does not say the same: then no sync is known to have covered it, and one may
// have failed, after which the page cache shows what no disk has.
func (o *Outbox) confirmStates(f File, s *segment) error {
	wrote := false
	for i := range s.area.blk {
		b := &s.area.blk[i]
		if b.ok[0] == b.ok[1] {
			continue
		}
		c := 0
		if b.ok[1] {
			c = 1
		}
		if err := o.writeBlock(f, s, i, c, b.gen[c]); err != nil {
			return err
		}
		wrote = true
	}
	if !wrote {
		return nil
	}
	return f.Sync()
}

// setState changes the state of a slot in memory and in the counts. The caller flushes.
func (o *Outbox) setState(s *segment, slot uint32, st byte) error {
	a, err := o.states(s)
	if err != nil {
		return err
	}
	old := a.st[slot]
	if old == st {
		return nil
	}
	a.st[slot] = st
	a.blk[slot/blockStates].dirty = true
	if slot < s.entries {
		s.counts[old]--
		s.counts[st]++
		o.count(old, -1)
		o.count(st, 1)
	}
	return nil
}

// flushStates writes the dirty blocks over the copy that may be lost. Memory stays the
// truth when that fails: the blocks stay dirty and the next flush tries again.
func (o *Outbox) flushStates(s *segment) error {
	a := s.area
	if a == nil {
		return nil
	}
	for i := range a.blk {
		b := &a.blk[i]
		if !b.dirty {
			continue
		}
		f, err := o.openSeg(s)
		if err != nil {
			return err
		}
		c := 0
		switch {
		case b.pending >= 0:
			c = int(b.pending)
		case b.ok[0] && (!b.ok[1] || b.gen[1] <= b.gen[0]):
			c = 1
		}
		gen := max(b.gen[0], b.gen[1]) + 1
		b.ok[c] = false
		s.wseq++
		if err := o.writeBlock(f, s, i, c, gen); err != nil {
			return err
		}
		b.gen[c], b.pending, b.seq, b.dirty = gen, int8(c), s.wseq, false
	}
	return nil
}

func (o *Outbox) writeBlock(f File, s *segment, i, c int, gen uint32) error {
	encodeBlock(o.block[:], o.salt, s.num, i, gen, s.area.st[i*blockStates:(i+1)*blockStates])
	off := pageSize + int64(c)*int64(s.slots/slotsPerPage*pageSize) + int64(i*blockSize)
	_, err := f.WriteAt(o.block[:], off)
	return err
}

// syncSeg makes everything written to s so far durable. Callers that come while one sync
// runs share the next. Caller does not hold o.mu.
func (o *Outbox) syncSeg(s *segment) error {
	o.mu.Lock()
	if s.gone {
		// Its states went into the segment or the checkpoint that took its place.
		o.mu.Unlock()
		return nil
	}
	if s.unnamed {
		// Held over the sync: it is rare, and nobody may count on the file before.
		if err := o.fs.SyncDir(o.dir); err != nil {
			o.mu.Unlock()
			return err
		}
		s.unnamed = false
	}
	want, fails := s.wseq, s.fails
	f, err := o.openSeg(s)
	if err != nil {
		o.mu.Unlock()
		return err
	}
	s.refs++
	o.awaitGroup(s, want, fails)
	o.mu.Unlock()

	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	o.mu.Lock()
	done, upTo := s.synced >= want && s.fails == fails, s.wseq
	o.mu.Unlock()
	if !done {
		err = o.rawSync(s, f, fails)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unpin(s)
	if err != nil || done {
		return err
	}
	o.settleBlocks(f, s, upTo)
	return nil
}

// awaitGroup waits while commits are on their way into s whose sync takes along what was
// written up to want: a sync of its own would cost as much, and hold the next commit up. Caller
// holds o.mu, which is given up meanwhile.
func (o *Outbox) awaitGroup(s *segment, want, fails uint64) {
	for s == o.active && s.synced < want && s.fails == fails && !o.closed {
		o.qmu.Lock()
		leading := o.leading
		o.qmu.Unlock()
		if !leading {
			return
		}
		through := o.group
		o.mu.Unlock()
		<-through
		o.mu.Lock()
	}
}

var errSync = errors.New("outbox: a sync of the segment failed, what it covered is written again")

// rawSync syncs and makes sure that no sync failed since the caller looked at s.fails.
// Caller holds s.syncMu.
func (o *Outbox) rawSync(s *segment, f File, fails uint64) error {
	err := f.Sync()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		// What could not be written may have been dropped from the cache as well.
		s.fails++
		if s.area != nil {
			for i := range s.area.blk {
				if s.area.blk[i].pending >= 0 {
					s.area.blk[i].dirty = true
				}
			}
		}
		return err
	}
	if s.fails != fails {
		return errSync
	}
	return nil
}

// settleBlocks notes that writes up to seq are on disk and brings the twins up to date.
func (o *Outbox) settleBlocks(f File, s *segment, seq uint64) {
	s.synced = max(s.synced, seq)
	if s.area == nil {
		return
	}
	for i := range s.area.blk {
		b := &s.area.blk[i]
		if b.pending < 0 || b.dirty || b.seq > seq {
			continue
		}
		c := int(b.pending)
		b.ok[c], b.pending = true, -1
		if o.writeBlock(f, s, i, 1-c, b.gen[c]) == nil {
			b.gen[1-c] = b.gen[c]
		}
		b.ok[1-c] = false // not known to be on disk: the next to be written
	}
}

// createSegment makes an empty segment durable under its name.
func (o *Outbox) createSegment(num uint64, slots uint32, firstID ID, committed int64) (*segment, error) {
	h := segHeader{version: formatVersion, num: num, last: num, salt: o.salt, firstID: firstID, slots: slots, dataStart: dataStartFor(slots),
		made: o.now().UnixNano(), committed: committed}
	name := filepath.Join(o.dir, segName(num))
	f, err := o.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	page := make([]byte, h.dataStart)
	h.encode(page)
	h.encode(page[h.dataStart-pageSize:])
	states := make([]byte, slots)
	h.encodeStates(page, states)
	_, err = f.WriteAt(page, 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		failpoint("segment: made, its name not synced")
		err = o.fs.SyncDir(o.dir)
	}
	if err != nil {
		f.Close()
		if rerr := o.fs.Remove(name); rerr != nil && o.log != nil {
			o.log.Warn("outbox: a segment that could not be made could not be removed either", "segment", num, "error", rerr)
		}
		return nil, err
	}
	s := &segment{num: num, last: num, version: h.version, firstID: firstID, slots: slots, dataStart: h.dataStart, end: h.dataStart,
		former: former{}, file: f}
	s.area = freshArea(states)
	return s, nil
}

// encodeStates writes both copies of all state blocks, generation 1, into the image of what
// comes before the records.
func (h *segHeader) encodeStates(image, states []byte) {
	for i := range int(h.slots / blockStates) {
		at := pageSize + i*blockSize
		encodeBlock(image[at:], h.salt, h.num, i, 1, states[i*blockStates:(i+1)*blockStates])
		copy(image[at+int(h.slots/slotsPerPage)*pageSize:], image[at:at+blockSize])
	}
}

// freshArea is what encodeStates has written, once it is on disk.
func freshArea(states []byte) *stateArea {
	a := &stateArea{st: states, blk: make([]stateBlock, len(states)/blockStates)}
	for i := range a.blk {
		a.blk[i] = stateBlock{gen: [2]uint32{1, 1}, ok: [2]bool{true, true}, pending: -1}
	}
	return a
}
