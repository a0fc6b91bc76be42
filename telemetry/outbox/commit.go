package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// request is one batch on its way into the log.
type request struct {
	buf     []byte // records and the commit record, aligned, as if at offset 0 of a batch
	entries int
	records int64  // bytes of the entries' records
	fresh   int    // entries that are new; the others take the place of earlier ones
	initial []byte // state bytes of the entries, nil: all as written
	deltas  []Cursor
	grow    int64 // what the deltas add to the checkpoint at most
	moves   []*leasedRef
	urgent  bool

	first ID
	err   error
	ready chan bool // true: lead, false: done
	lead  bool
}

var requests = sync.Pool{New: func() any { return &request{ready: make(chan bool, 1)} }}

func (r *request) reset() {
	*r = request{buf: r.buf[:0], initial: r.initial[:0], ready: r.ready}
	if cap(r.buf) > 8<<20 {
		r.buf = nil
	}
}

// settling requests may use the reserve and pass the size limit.
func (r *request) settling() bool { return r.moves != nil || r.urgent }

const maxGroup = 4 << 20

// maxBatch bounds one batch: places in it have 32 bits on disk.
const maxBatch = 1 << 30

// Commit makes a batch durable: when it returns nil, all of it is on disk; when it returns
// an error other than the context's, none of it counts. It returns the id of the first
// entry; the others follow. Callers at the same time share a sync.
//
// Errors: [ErrFull] when there is no room (see [Outbox.WaitRoom]), [ErrTooLarge] when there
// can never be, [ErrClosed], or the disk's. Once a batch is being written, ctx is not looked
// at any more.
func (o *Outbox) Commit(ctx context.Context, b *Batch) (ID, error) {
	if len(b.Entries) == 0 && len(b.Cursors) == 0 {
		return 0, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.size()
	if err != nil {
		return 0, err
	}
	if n > min(o.maxSize/2, maxBatch) {
		return 0, fmt.Errorf("%w: %d bytes, the size limit is %d", ErrTooLarge, n, o.maxSize)
	}
	r := requests.Get().(*request)
	defer func() { r.reset(); requests.Put(r) }()
	r.encode(b)
	if err := o.submit(ctx, r); err != nil {
		return 0, err
	}
	o.housekeep(false)
	return r.first, nil
}

// size is what the batch takes in the log, or an error where a part of it is too large.
func (b *Batch) size() (int64, error) {
	n := int64(0)
	for i := range b.Entries {
		e := &b.Entries[i]
		if len(e.Key) > maxName || len(e.Stream) > maxName || len(e.Payload) > maxPayload {
			return 0, fmt.Errorf("%w: entry %d: key %d, stream %d, payload %d bytes", ErrTooLarge, i, len(e.Key), len(e.Stream), len(e.Payload))
		}
		n += align8(int64(recHeaderSize + len(e.Key) + len(e.Stream) + len(e.Payload)))
	}
	n += recHeaderSize + commitFixed
	for i := range b.Cursors {
		c := &b.Cursors[i]
		if len(c.Key) > maxName || len(c.Value) > maxPayload {
			return 0, fmt.Errorf("%w: cursor %d: key %d, value %d bytes", ErrTooLarge, i, len(c.Key), len(c.Value))
		}
		n += int64(deltaFixed + len(c.Key) + len(c.Value))
	}
	return align8(n), nil
}

func (r *request) encode(b *Batch) {
	for i := range b.Entries {
		e := &b.Entries[i]
		h := recHeader{kind: kindEntry, payloadCRC: checksum(e.Payload)}
		if e.Held {
			h.flags = flagHeld
			r.initialState(i, stHeld)
		}
		r.record(h, e.Key, e.Stream, nil, e.Payload)
	}
	r.entries, r.fresh = len(b.Entries), len(b.Entries)
	for i := range b.Cursors {
		c := &b.Cursors[i]
		r.grow += int64(deltaFixed + len(c.Key) + len(c.Value))
	}
	r.deltas = b.Cursors
	r.urgent = b.Urgent
	r.commitRecord()
}

func (r *request) initialState(i int, st byte) {
	for len(r.initial) <= i {
		r.initial = append(r.initial, stWritten)
	}
	r.initial[i] = st
}

// record appends one record, its payload in two parts; id, slot and header crc follow when its place is known.
func (r *request) record(h recHeader, key []byte, stream string, head, payload []byte) {
	off := len(r.buf)
	h.keyLen, h.streamLen, h.batchOff, h.payloadLen = len(key), len(stream), uint32(off), len(head)+len(payload)
	r.buf = append(r.buf, make([]byte, recHeaderSize)...)
	r.buf = append(r.buf, key...)
	r.buf = append(r.buf, stream...)
	r.buf = append(r.buf, head...)
	r.buf = append(r.buf, payload...)
	h.put(r.buf[off:])
	r.pad()
}

func (r *request) pad() {
	for len(r.buf)%8 != 0 {
		r.buf = append(r.buf, 0)
	}
}

func (r *request) commitRecord() {
	off := len(r.buf)
	r.records = int64(off)
	r.buf = append(r.buf, make([]byte, recHeaderSize+commitFixed)...)
	le.PutUint32(r.buf[off+recHeaderSize+16:], uint32(len(r.deltas)))
	for i := range r.deltas {
		r.buf = appendDelta(r.buf, r.deltas[i].Key, r.deltas[i].Value, r.deltas[i].Value == nil)
	}
	h := recHeader{kind: kindCommit, slot: uint32(r.entries), batchOff: uint32(off), payloadLen: len(r.buf) - off - recHeaderSize}
	h.put(r.buf[off:])
	r.pad()
}

// place fills in what depends on where the batch goes.
func (r *request) place(salt, seg uint64, off int64, id ID, slot uint32, durable, committed int64) {
	b := r.buf
	for at := int64(0); at < int64(len(b)); {
		h, _ := parseFixed(b[at:])
		p := b[at:]
		switch h.kind {
		case kindEntry:
			h.id, h.slot = id, slot
			id, slot = id+1, slot+1
		case kindQuarantined:
			h.slot = slot
			slot++
		case kindCommit:
			h.id = id
			body := p[recHeaderSize : recHeaderSize+h.payloadLen]
			le.PutUint64(body, uint64(durable))
			le.PutUint64(body[8:], uint64(committed))
			h.payloadCRC = checksum(body)
		}
		h.put(p)
		h.seal(p, salt, seg, off+at)
		at += h.size()
	}
}

// submit queues r and either leads the next group or waits for the leader.
func (o *Outbox) submit(ctx context.Context, r *request) error {
	o.qmu.Lock()
	o.queue = append(o.queue, r)
	if o.joined != nil && len(o.queue) >= o.fullAt {
		close(o.joined)
		o.joined = nil
	}
	if !o.leading {
		o.leading, r.lead = true, true
		o.qmu.Unlock()
		o.leadGroup(ctx)
		return r.err
	}
	o.qmu.Unlock()
	for {
		select {
		case lead := <-r.ready:
			if lead {
				o.leadGroup(ctx)
			}
			return r.err
		case <-ctx.Done():
			if o.withdraw(r) {
				return ctx.Err()
			}
			// Too late: it is being written, or its turn to lead has come.
			if <-r.ready {
				o.leadGroup(context.WithoutCancel(ctx))
			}
			return r.err
		}
	}
}

// withdraw takes a request back that nobody has begun with.
func (o *Outbox) withdraw(r *request) bool {
	o.qmu.Lock()
	defer o.qmu.Unlock()
	if r.lead {
		return false
	}
	for i, q := range o.queue {
		if q == r {
			o.queue = append(o.queue[:i], o.queue[i+1:]...)
			return true
		}
	}
	return false
}

// maxCompany bounds the wait after a sync that took unusually long.
const maxCompany = 5 * time.Millisecond

// company waits for those who committed in the last group: they come back just now. Without
// it two halves of them take turns, each waiting for the other's sync. It takes at most half
// the time of a sync, and no time when there is nobody else.
func (o *Outbox) company(ctx context.Context) {
	o.qmu.Lock()
	missing := o.around - len(o.queue)
	if missing <= 0 || o.groupTook <= 0 {
		o.qmu.Unlock()
		return
	}
	full := make(chan struct{})
	o.joined, o.fullAt = full, o.around
	wait := min(o.groupTook/2, maxCompany)
	o.qmu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-full:
	case <-t.C:
	case <-ctx.Done():
	case <-o.quit:
	}
	o.qmu.Lock()
	o.joined = nil
	o.qmu.Unlock()
}

// leadGroup writes what waits, the caller's own request first, and hands the lead on.
func (o *Outbox) leadGroup(ctx context.Context) {
	if o.groupDelay > 0 {
		o.qmu.Lock()
		alone := len(o.queue) == 1
		o.qmu.Unlock()
		if alone {
			t := time.NewTimer(o.groupDelay)
			select {
			case <-t.C:
			case <-ctx.Done():
			case <-o.quit:
			}
			t.Stop()
		}
	}
	o.company(ctx)
	o.wmu.Lock()
	o.qmu.Lock()
	n, size := 0, 0
	for n < len(o.queue) && (n == 0 || size+len(o.queue[n].buf) <= maxGroup) {
		size += len(o.queue[n].buf)
		n++
	}
	group := append([]*request(nil), o.queue[:n]...)
	o.queue = append(o.queue[:0], o.queue[n:]...)
	o.qmu.Unlock()

	start := time.Now()
	o.writeGroup(group)
	took := time.Since(start)
	o.wmu.Unlock()

	for _, r := range group[1:] {
		r.ready <- false
	}
	o.qmu.Lock()
	o.around, o.groupTook = len(group)+len(o.queue), took
	if len(o.queue) > 0 {
		next := o.queue[0]
		next.lead = true
		next.ready <- true
	} else {
		o.leading = false
	}
	o.qmu.Unlock()
	o.mu.Lock()
	signal(&o.group)
	o.mu.Unlock()
}

// writeGroup writes requests in order, as many as a segment takes with one sync. When
// that fails each is tried alone, so that one which is refused does not stop the others.
func (o *Outbox) writeGroup(group []*request) {
	for len(group) > 0 {
		n, err := o.writeRun(group)
		if n == 0 {
			group[0].err = o.refused(group[0], err)
			group = group[1:]
			continue
		}
		group = group[n:]
	}
}

// writeRun writes the first requests of a group, those that fit into one segment, and
// returns how many are durable. With n == 0, err is why the first one is not.
func (o *Outbox) writeRun(group []*request) (n int, err error) {
	if err := o.prepare(group[0]); err != nil {
		return 0, err
	}
	n, err = o.writeSome(group)
	if err != nil && n > 1 {
		n, err = o.writeSome(group[:1])
	}
	for err != nil && group[0].settling() && noSpace(err) && o.useReserve(group[0]) {
		n, err = o.writeSome(group[:1])
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// prepare makes the active segment fit for r, or says why r cannot be taken.
func (o *Outbox) prepare(r *request) error {
	if o.rollback.Load() {
		if err := o.cut(); err != nil {
			return err
		}
	}
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return ErrClosed
	}
	need := int64(len(r.buf))
	roll := o.active == nil || !o.fits(o.active, 0, 0, r)
	if roll {
		need += dataStartFor(o.slotsFor(r))
	}
	if !r.settling() && o.diskBytes()+need > o.maxSize {
		o.need = need
		o.mu.Unlock()
		return fullError(errors.New("size limit"))
	}
	last := o.active
	if roll {
		last = nil
	}
	room := o.checkpointSize() + r.grow + o.formerGrowth(last, r)
	reserve := o.reserve
	o.mu.Unlock()
	if reserve < o.reserveSize() && !r.settling() {
		// Intake pays for what a quarantine may need when the disk is full.
		if err := o.makeReserve(); err != nil {
			return err
		}
	}
	if room > o.ckptRoom {
		// What a quarantine adds helps against damage only, and a checkpoint goes without it.
		if err := o.growCheckpoint(room); err != nil && !(r.moves != nil && noSpace(err)) {
			return err
		}
	}
	if roll {
		err := o.roll(o.slotsFor(r))
		for err != nil && r.settling() && noSpace(err) && o.useReserve(r) {
			err = o.roll(o.slotsFor(r))
		}
		return err
	}
	return nil
}

func (o *Outbox) slotsFor(r *request) uint32 {
	return roundSlots(max(o.segmentSize/256, int64(r.entries)))
}

// fits: a batch lies in one segment; one that is larger than a segment has it for itself.
func (o *Outbox) fits(s *segment, bytes int64, entries int, r *request) bool {
	if s.sealed || int(s.entries)+entries+r.entries > int(s.slots) {
		return false
	}
	used := s.end - s.dataStart + bytes
	return used == 0 || used+int64(len(r.buf)) <= o.segmentSize
}

// roll seals the active segment and begins the next.
func (o *Outbox) roll(slots uint32) error {
	o.mu.Lock()
	num, id, committed := o.highest+1, o.nextID, o.committed
	o.mu.Unlock()
	s, err := o.createSegment(num, slots, id, committed)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.active != nil {
		o.active.sealed = true
	}
	o.closeIdle()
	o.openFiles = append(o.openFiles, s)
	o.segs = append(o.segs, s)
	o.active, o.highest = s, num
	return nil
}

// writeSome writes those of group that fit after one another, syncs, and applies them. n is
// how many it took on; none of them counts when err is not nil.
func (o *Outbox) writeSome(group []*request) (n int, err error) {
	o.mu.Lock()
	s := o.active
	off, id, slot, committed := s.end, o.nextID, s.entries, o.committed
	disk, room := o.diskBytes(), o.checkpointSize()
	f, err := o.openSeg(s)
	if err != nil {
		o.mu.Unlock()
		return 1, err
	}
	s.refs++
	var bytes int64
	entries := 0
	for i, r := range group {
		room += r.grow + o.formerGrowth(s, r)
		if i > 0 && (!o.fits(s, bytes, entries, r) || room > o.ckptRoom ||
			!r.settling() && disk+bytes+int64(len(r.buf)) > o.maxSize) {
			break
		}
		n++
		committed += int64(r.fresh)
		r.first = id
		r.place(o.salt, s.num, off+bytes, id, slot, off, committed)
		for j, st := range r.initial {
			if err == nil && st != stWritten {
				err = o.setState(s, slot+uint32(j), st)
			}
		}
		bytes += int64(len(r.buf))
		entries += r.entries
		id += ID(r.fresh)
		slot += uint32(r.entries)
	}
	if err == nil {
		err = o.flushStates(s)
	}
	s.wseq++ // the log bytes
	upTo, fails := s.wseq, s.fails
	o.mu.Unlock()

	if err == nil {
		failpoint("commit: before the write")
		err = o.writeBytes(f, off, group[:n], bytes)
	}
	if err == nil {
		failpoint("commit: written, not synced")
		s.syncMu.Lock()
		err = o.rawSync(s, f, fails)
		s.syncMu.Unlock()
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	o.unpin(s)
	if err != nil {
		o.rollback.Store(true)
		if s.area != nil {
			for i := s.entries; i < slot; i++ {
				if s.area.st[i] != stWritten {
					s.area.st[i] = stWritten
					s.area.blk[i/blockStates].dirty = true
				}
			}
			err = errors.Join(err, o.flushStates(s))
		}
		o.mu.Unlock()
		if cerr := o.cut(); cerr != nil {
			o.log.Warn("outbox: a partial write could not be rolled back yet", "segment", s.num, "error", cerr)
		}
		o.mu.Lock()
		return n, err
	}
	failpoint("commit: synced, nobody told")
	o.settleBlocks(f, s, upTo)
	o.apply(s, group[:n], bytes)
	return n, nil
}

func (o *Outbox) writeBytes(f File, off int64, group []*request, bytes int64) error {
	if len(group) == 1 || bytes > maxGroup {
		for _, r := range group {
			if _, err := f.WriteAt(r.buf, off); err != nil {
				return err
			}
			off += int64(len(r.buf))
		}
		return nil
	}
	o.wbuf = o.wbuf[:0]
	for _, r := range group {
		o.wbuf = append(o.wbuf, r.buf...)
	}
	_, err := f.WriteAt(o.wbuf, off)
	return err
}

// apply makes durable requests visible, all at one moment. Caller holds o.mu.
func (o *Outbox) apply(s *segment, group []*request, bytes int64) {
	var touched segSet
	pending := false
	for _, r := range group {
		for i := range r.entries {
			st := stWritten
			if i < len(r.initial) {
				st = r.initial[i]
			}
			s.counts[st]++
			o.count(st, 1)
			pending = pending || st == stWritten
		}
		s.entries += uint32(r.entries)
		o.nextID += ID(r.fresh)
		o.committed += int64(r.fresh)
		s.live += r.records
		for i := range r.deltas {
			c := &r.deltas[i]
			o.noteFormer(s, c.Key)
			o.setCursor(c.Key, c.Value, c.Value == nil)
		}
		for _, l := range r.moves {
			o.inheritFormer(s, l.seg, l.st.name)
			_ = o.setState(l.seg, l.slot, stMoved) // the states are in memory, see takeOut
			l.seg.live -= int64(l.size)
			touched.add(l.seg)
			o.drop(l)
		}
		if r.fresh > 0 {
			o.full = false
		}
	}
	s.end += bytes
	o.sinceCkpt += bytes
	// A failure leaves memory right and the blocks dirty; recovery would do it again.
	if err := o.flushAll(touched); err != nil {
		o.log.Warn("outbox: states could not be written yet", "error", err)
	}
	if pending {
		signal(&o.wake)
	}
}

// cut rolls the file back to the end of the committed data.
func (o *Outbox) cut() error {
	o.mu.Lock()
	s := o.active
	if s == nil {
		o.rollback.Store(false)
		o.mu.Unlock()
		return nil
	}
	f, err := o.openSeg(s)
	end, fails := s.end, s.fails
	o.mu.Unlock()
	if err != nil {
		return err
	}
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if err := f.Truncate(end); err != nil {
		return fmt.Errorf("outbox: roll back %s to %d: %w", segName(s.num), end, err)
	}
	// On disk before anything follows, or a crash could bring the rest back behind a new segment.
	if err := o.rawSync(s, f, fails); err != nil {
		return fmt.Errorf("outbox: roll back %s to %d: %w", segName(s.num), end, err)
	}
	o.rollback.Store(false)
	return nil
}

// fullQuiet is the least time between two words about a full outbox: one that is drained
// as fast as it is filled is full many times a second.
const fullQuiet = time.Minute

// refused turns an error into what the caller gets, and notes a full disk.
func (o *Outbox) refused(r *request, err error) error {
	if err == nil || errors.Is(err, ErrClosed) {
		return err
	}
	if noSpace(err) {
		err = fullError(err)
	}
	if errors.Is(err, ErrFull) && !r.settling() {
		o.mu.Lock()
		if now := o.now(); !o.full && now.Sub(o.fullSaid) > fullQuiet {
			o.fullSaid = now
			o.log.Warn("outbox: no room, intake stops until there is", "error", err)
		}
		o.full = true
		o.need = max(int64(len(r.buf))+dataStartFor(o.slotsFor(r)), r.grow)
		o.mu.Unlock()
		return err
	}
	return fmt.Errorf("outbox: commit: %w", err)
}

// useReserve gives as much of the reserve back to the disk as a quarantine may need, and
// reports false when nothing is left. It is made whole before anything new is taken in.
func (o *Outbox) useReserve(r *request) bool {
	o.growMu.Lock()
	defer o.growMu.Unlock()
	return o.shrinkReserve(int64(len(r.buf)), true)
}

// lendReserve gives the disk room for a file of n bytes, if the reserve has so much.
func (o *Outbox) lendReserve(n int64) bool {
	o.growMu.Lock()
	defer o.growMu.Unlock()
	return o.shrinkReserve(n, false)
}

// shrinkReserve gives back what n bytes need; with some, less will do. Caller holds
// o.growMu.
func (o *Outbox) shrinkReserve(n int64, some bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	// In whole pages, and one more for the end of the file that grows.
	left := o.reserve - (n/pageSize+2)*pageSize
	if o.reserve == 0 || left < 0 && !some {
		return false
	}
	left = max(left, 0)
	f, err := o.fs.OpenFile(filepath.Join(o.dir, "reserve"), os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	if err := f.Truncate(left); err != nil {
		return false
	}
	o.reserve = left
	return true
}
