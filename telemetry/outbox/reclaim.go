package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const minCheckpoint = 16 << 10

var ckptNames = [2]string{"checkpoint.a", "checkpoint.b"}

// checkpointSize is what a checkpoint of the present state takes at most. The spare entries
// are for segments that are made before the next one.
func (o *Outbox) checkpointSize() int64 {
	return ckptHeaderSize + ckptBodyFixed + 4 + int64(len(o.segs)+64)*(ckptSegSize+12) + o.cursorBytes + o.formerBytes
}

// growCheckpoint makes both slots long enough before the state that needs it is committed,
// so that a full disk stops intake and never a checkpoint.
func (o *Outbox) growCheckpoint(need int64) error {
	o.growMu.Lock()
	defer o.growMu.Unlock()
	o.mu.Lock()
	room, rooms := o.ckptRoom, o.slotRoom
	o.mu.Unlock()
	size := max(room, minCheckpoint)
	for size < need {
		size *= 2
	}
	if size <= room {
		return nil
	}
	made := false
	for i, name := range ckptNames {
		f, err := o.fs.OpenFile(filepath.Join(o.dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("outbox: extend %s: %w", name, err)
		}
		old, err := f.Size()
		made = made || old == 0
		// Not from the present end: what an extension that failed left there may not be on disk.
		if from := min(old, rooms[i]); err == nil && from < size {
			if err = zeroFill(f, from, size); err == nil {
				err = f.Sync()
			}
			if err != nil {
				err = errors.Join(err, f.Truncate(from))
			}
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("outbox: extend %s: %w", name, err)
		}
		o.mu.Lock()
		o.slotRoom[i] = max(rooms[i], size)
		o.mu.Unlock()
	}
	if made {
		if err := o.fs.SyncDir(o.dir); err != nil {
			return fmt.Errorf("outbox: extend checkpoint: %w", err)
		}
	}
	o.mu.Lock()
	o.ckptRoom = size
	o.mu.Unlock()
	return nil
}

// dead are the segments that nothing needs any more.
func (o *Outbox) dead() (segs []*segment, bytes int64) {
	for _, s := range o.segs {
		if s != o.active && s.unsettled() == 0 && s.refs == 0 {
			segs = append(segs, s)
			bytes += s.end
		}
	}
	return segs, bytes
}

// housekeep writes a checkpoint when one is due and gives space back. It runs in the caller that made it necessary; its failures do not fail that
// one, they stand in Stats.LastError and are tried again.
func (o *Outbox) housekeep(force bool) {
	if !o.maint.TryLock() {
		return
	}
	defer o.maint.Unlock()
	force = o.sealSpent() || force
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	size := o.checkpointSize()
	dead, bytes := o.dead()
	idle := o.byState[stWritten]+o.byState[stPendingAgain] == 0
	// The larger a checkpoint, the rarer.
	ckpt := force || o.sinceCkpt > max(o.segmentSize, 8*size) ||
		len(dead) > 0 && (bytes >= 2*size || idle || o.full)
	waste := o.waste()
	rewrite := waste >= 2*o.segmentSize || (idle || o.full) && waste >= o.segmentSize/2
	spill := false
	if o.formerBytes > maxFormerMemory {
		_, sealed := o.sealedFormers()
		spill = sealed > maxFormerMemory
	}
	o.mu.Unlock()
	if !ckpt && !rewrite && !spill {
		return
	}
	if err := o.spillFormers(); err != nil {
		o.log.Warn("outbox: former cursors stay in memory and checkpoint", "error", err)
	}
	if !ckpt && !rewrite {
		return
	}
	err := o.writeCheckpoint()
	if err == nil && rewrite {
		err = o.rewriteSome()
	}
	o.mu.Lock()
	if err != nil && (o.lastErr == nil || o.lastErr.Error() != err.Error()) {
		o.log.Warn("outbox: housekeeping failed, it is tried again", "error", err)
	}
	o.lastErr = err
	o.mu.Unlock()
}

// sealSpent takes the active segment out of use when there is no room and little or nothing
// in it is needed any more, so that it can be given back or rewritten: on a small disk, or
// below a lowered limit, it may be all there is. It reports that this needs a checkpoint
// past it.
func (o *Outbox) sealSpent() bool {
	if !o.wmu.TryLock() {
		return false // a commit is on its way; the next call looks again
	}
	defer o.wmu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.active
	if o.closed || !o.full || o.rollback.Load() {
		return false
	}
	if s == nil {
		return o.ckpt.seg <= o.highest
	}
	if s.end == s.dataStart || s.refs > 0 {
		return false
	}
	size := s.end - s.dataStart
	if s.unsettled() > 0 && (4*s.live >= size || size-s.live < o.segmentSize/2) {
		return false
	}
	s.sealed = true
	o.active = nil
	return true
}

// writeCheckpoint writes both slots and then removes the segments that the state in them
// no longer needs. Caller holds o.maint.
func (o *Outbox) writeCheckpoint() error {
	o.mu.Lock()
	dead, _ := o.dead()
	if o.rollback.Load() {
		dead = nil // a quarantine that failed is still there to be read, and its entry's fate with it
	}
	gone := make(map[*segment]bool, len(dead))
	c := checkpoint{gen: o.ckpt.gen + 1, salt: o.salt, nextID: o.nextID, committed: o.committed, base: o.base, highest: o.highest}
	for _, s := range dead {
		gone[s] = true
		c.base.add(s.settled())
	}
	// Without an active segment the next record goes to the start of a new one.
	c.seg = o.highest + 1
	if o.active != nil {
		c.seg, c.off = o.active.num, o.active.end
	}
	var unsynced []*segment
	var err error
	formers := map[uint64]former{}
	for _, s := range o.segs {
		if gone[s] {
			continue
		}
		if s.former != nil {
			formers[s.num] = s.former
		}
		c.segs = append(c.segs, ckptSeg{num: s.num, last: s.last, firstID: s.firstID, dataEnd: s.end, entries: s.entries, slots: s.slots, dataStart: s.dataStart})
		err = errors.Join(err, o.flushStates(s))
		if s.wseq != s.synced || s.unnamed {
			unsynced = append(unsynced, s)
		}
	}
	o.ckpt.gen = c.gen // also when it fails: no two checkpoints with one generation
	since := o.sinceCkpt
	o.ckptBuf = c.encode(o.ckptBuf, o.cursors, formers)
	room, first := o.ckptRoom, o.ckptFirst
	o.mu.Unlock()
	if err != nil {
		return fmt.Errorf("outbox: checkpoint: %w", err)
	}
	// An entry that moved into quarantine must not come back when the checkpoint hides the
	// record that says so.
	for _, s := range unsynced {
		if err := o.syncSeg(s); err != nil {
			return fmt.Errorf("outbox: checkpoint: %w", err)
		}
	}
	if int64(len(o.ckptBuf)) > room {
		// A slot that was cut short, or former values that a quarantine has brought. These help
		// against damage only: not a reason to go without a checkpoint.
		err := o.growCheckpoint(int64(len(o.ckptBuf)))
		if noSpace(err) {
			o.mu.Lock()
			o.ckptBuf = c.encode(o.ckptBuf, o.cursors, nil)
			o.mu.Unlock()
			if int64(len(o.ckptBuf)) <= room {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	buf := o.ckptBuf
	for i := range 2 {
		slot := first ^ i
		if err := o.writeSlot(ckptNames[slot], buf); err != nil {
			o.mu.Lock()
			o.ckptFirst = slot
			o.mu.Unlock()
			return fmt.Errorf("outbox: write %s: %w", ckptNames[slot], err)
		}
	}
	if cap(o.ckptBuf) > 1<<20 {
		o.ckptBuf = nil
	}

	o.mu.Lock()
	o.ckpt = c
	o.ckpt.segs = nil
	o.base = c.base
	o.sinceCkpt -= since
	keep := o.segs[:0:0]
	for _, s := range o.segs {
		if !gone[s] {
			keep = append(keep, s)
			continue
		}
		for st, n := range s.counts {
			o.count(byte(st), -int64(n))
		}
		o.carried.acked -= s.carried.acked
		o.carried.discarded -= s.carried.discarded
		o.carried.lost -= s.carried.lost
		o.setFormer(s, nil)
		o.retire(s)
	}
	o.segs = keep
	unneeded := o.unneededFormers()
	o.mu.Unlock()
	if len(dead)+len(unneeded) == 0 {
		return nil
	}
	failpoint("checkpoint: written, dead segments there")
	for _, s := range dead {
		if rerr := o.fs.Remove(filepath.Join(o.dir, segName(s.num))); rerr != nil {
			err = errors.Join(err, rerr) // the next start removes it
		}
	}
	for _, num := range unneeded {
		if rerr := o.fs.Remove(filepath.Join(o.dir, formerName(num))); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
			continue
		}
		o.mu.Lock()
		delete(o.formerFiles, num)
		o.mu.Unlock()
	}
	failpoint("checkpoint: dead segments removed, not synced")
	if err = errors.Join(err, o.fs.SyncDir(o.dir)); err != nil {
		return fmt.Errorf("outbox: remove segments: %w", err)
	}
	o.mu.Lock()
	signal(&o.room)
	o.mu.Unlock()
	return nil
}

func (o *Outbox) writeSlot(name string, buf []byte) error {
	f, err := o.fs.OpenFile(filepath.Join(o.dir, name), os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(buf, 0); err == nil {
		failpoint("checkpoint: slot written, not synced")
		err = f.Sync()
	}
	failpoint("checkpoint: slot synced")
	return errors.Join(err, f.Close())
}

// reserveSize is an eighth of a segment, and what a new segment needs before its first record.
func (o *Outbox) reserveSize() int64 {
	return o.segmentSize/8 + dataStartFor(roundSlots(o.segmentSize/256))
}

// makeReserve takes room that a quarantine may need when the disk is full.
func (o *Outbox) makeReserve() error {
	o.growMu.Lock()
	defer o.growMu.Unlock()
	name := filepath.Join(o.dir, "reserve")
	n := o.reserveSize()
	f, err := o.fs.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("outbox: reserve: %w", err)
	}
	old, err := f.Size()
	if err == nil && old < n {
		if err = zeroFill(f, old, n); err == nil {
			err = f.Sync()
		}
		if err != nil {
			err = errors.Join(err, f.Truncate(old)) // what is left of it stays
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("outbox: reserve: %w", err)
	}
	o.mu.Lock()
	o.reserve = n
	o.mu.Unlock()
	return nil
}

// mergeable: so little of the segment is needed that rewriting is worth it, or it is small
// already and may join a neighbour.
func (o *Outbox) mergeable(s *segment) bool {
	return s != o.active && s.refs == 0 && s.last < o.ckpt.seg && s.unsettled() > 0 && s.counts[stDamaged] == 0 &&
		(4*s.live < s.end-s.dataStart || s.end < o.segmentSize/8)
}

// waste is what rewriting would give back, roughly.
func (o *Outbox) waste() int64 {
	var n int64
	for _, s := range o.segs {
		if o.mergeable(s) && 4*s.live < s.end-s.dataStart {
			n += s.end - s.dataStart - s.live
		}
	}
	return n
}

// rewriteSome replaces runs of mergeable neighbours by one segment each. On a full disk
// the reserve lends the room for it: entries that wait for room themselves, as the drafts of
// summaries do, would otherwise keep all of the disk for ever.
func (o *Outbox) rewriteSome() error {
	var full error // of a run that there was no room for
	limit := o.segmentSize / 4
	for from := uint64(0); ; {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return nil
		}
		run := o.nextRun(from, limit)
		if len(run) == 0 {
			o.mu.Unlock()
			return full
		}
		next, need := run[len(run)-1].last+1, imageSize(run)
		err := o.rewrite(run)
		o.mu.Unlock()
		switch {
		case err == nil:
		case !noSpace(err):
			return err
		case o.lendReserve(need):
			continue
		case limit > o.segmentSize/16:
			limit = o.segmentSize / 16 // the reserve is twice as much
			continue
		default:
			full = err // what another run gives back may be enough
		}
		from = next
	}
}

// imageSize is about what rewriting a run writes.
func imageSize(run []*segment) int64 {
	var live int64
	entries := uint32(0)
	for _, s := range run {
		live += s.live
		entries += s.unsettled()
	}
	return dataStartFor(roundSlots(int64(entries))) + live
}

// nextRun returns neighbours of which rewriting gives back at least a quarter, and that have
// up to limit bytes to keep.
func (o *Outbox) nextRun(from uint64, limit int64) []*segment {
	for i := 0; i < len(o.segs); i++ {
		if o.segs[i].num < from {
			continue
		}
		var live, size int64
		j := i
		for ; j < len(o.segs) && o.mergeable(o.segs[j]) && live+o.segs[j].live <= limit; j++ {
			live += o.segs[j].live
			size += o.segs[j].end
		}
		if j == i {
			continue
		}
		if run := o.segs[i:j]; imageSize(run) < size-size/4 {
			return append([]*segment(nil), run...)
		}
		i = j - 1
	}
	return nil
}

// errKept says that a segment was not rewritten because of damage in it, which is marked now.
var errKept = errors.New("outbox: damage found while rewriting")

// rewrite puts the unsettled entries of a run into one new segment with the number of the
// first, in their order, under their ids. Caller holds o.maint and o.mu: it moves a quarter
// of a segment at most.
func (o *Outbox) rewrite(run []*segment) error {
	first, last := run[0], run[len(run)-1]
	h := segHeader{version: formatVersion, rewritten: true, num: first.num, last: last.last, salt: o.salt, firstID: first.firstID, made: o.now().UnixNano()}
	n := uint32(0)
	before := former{} // nil when that of one is not known
	for _, s := range run {
		n += s.unsettled()
		t := s.settled()
		h.carried.add(t)
		if f, ok := o.formerOf(s); ok && before != nil {
			before.merge(f)
		} else {
			before = nil
		}
	}
	h.slots = roundSlots(int64(n))
	h.dataStart = dataStartFor(h.slots)
	buf := make([]byte, h.dataStart)
	ns := &segment{num: h.num, last: h.last, version: h.version, firstID: h.firstID, slots: h.slots, dataStart: h.dataStart, rewritten: true, sealed: true, carried: h.carried}
	ns.area = freshArea(make([]byte, h.slots))
	type move struct {
		seg  *segment
		slot uint32
	}
	moved := map[move]ref{}
	for _, s := range run {
		var err error
		if buf, err = o.copyLive(buf, s, ns, func(slot uint32, r ref) { moved[move{s, slot}] = r }); err != nil {
			if errors.Is(err, errKept) {
				return nil
			}
			return fmt.Errorf("outbox: rewrite %s: %w", segName(s.num), err)
		}
	}
	h.entries, h.dataEnd = ns.entries, int64(len(buf))
	ns.end = h.dataEnd
	h.encode(buf)
	h.encode(buf[h.dataStart-pageSize:])
	h.encodeStates(buf, ns.area.st)
	name := filepath.Join(o.dir, segName(ns.num))
	tmp := name + ".tmp"
	f, err := o.fs.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("outbox: rewrite %s: %w", segName(ns.num), err)
	}
	if _, err = f.WriteAt(buf, 0); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		failpoint("rewrite: written, not renamed")
		area := first.area
		o.forget(first)
		first.area = area // states that are on no disk yet must outlive a rename that fails
		err = o.fs.Rename(tmp, name)
		failpoint("rewrite: renamed, not synced")
	}
	if err != nil {
		return fmt.Errorf("outbox: rewrite %s: %w", segName(ns.num), errors.Join(err, o.fs.Remove(tmp)))
	}

	i := 0
	for o.segs[i] != first {
		i++
	}
	for _, s := range run {
		for st, n := range s.counts {
			o.count(byte(st), -int64(n))
		}
		o.carried.acked -= s.carried.acked
		o.carried.discarded -= s.carried.discarded
		o.carried.lost -= s.carried.lost
		o.setFormer(s, nil)
		o.retire(s)
	}
	o.setFormer(ns, before)
	for st, n := range ns.counts {
		o.count(byte(st), int64(n))
	}
	o.carried.add(ns.carried)
	o.segs = append(o.segs[:i], append([]*segment{ns}, o.segs[i+len(run):]...)...)
	for _, l := range o.leased {
		if r, ok := moved[move{l.seg, l.slot}]; ok {
			l.ref = r
		}
	}
	if o.win.seg <= ns.last {
		o.win.stale = true
	} else {
		o.win.stale = o.win.stale || ns.pending() > 0
	}
	// Until the new name is on disk the others must stay, or their entries could go with it.
	if err := o.fs.SyncDir(o.dir); err != nil {
		ns.unnamed = true
		return fmt.Errorf("outbox: rewrite %s: %w", segName(ns.num), err)
	}
	failpoint("rewrite: synced, the others still there")
	for _, s := range run[1:] {
		err = errors.Join(err, o.fs.Remove(filepath.Join(o.dir, segName(s.num))))
	}
	signal(&o.room)
	if err != nil {
		return fmt.Errorf("outbox: rewrite: %w", err)
	}
	return nil
}

// copyLive appends the unsettled entries of s to the image of ns.
func (o *Outbox) copyLive(buf []byte, s, ns *segment, moved func(slot uint32, r ref)) ([]byte, error) {
	f, err := o.openSeg(s)
	if err != nil {
		return buf, err
	}
	a, err := o.states(s)
	if err != nil {
		return buf, err
	}
	src := &chunkReader{f: f, end: s.end}
	track := newTrack(s.num)
	var missing []Damage
	lost := func(d Damage) { missing = append(missing, d) }
	want, kept := s.unsettled(), uint32(0)
	var meta []byte
	walk(src, o.salt, s.num, s.dataStart, s.end, func(h *recHeader, key, stream []byte) bool {
		if h.kind != kindEntry && h.kind != kindQuarantined || h.slot >= s.entries || !track.see(h, lost) {
			return true
		}
		st := a.st[h.slot]
		switch st {
		case stAcked, stDiscarded, stDamaged, stDamagedDone, stMoved:
			return true
		}
		meta = append(append(meta[:0], key...), stream...)
		p := src.at(h.payloadOff(), h.payloadLen)
		if len(p) != h.payloadLen || checksum(p) != h.payloadCRC {
			lost(Damage{ID: h.id, Key: append([]byte(nil), meta[:h.keyLen]...), Stream: string(meta[h.keyLen:]), Segment: s.num, Offset: h.off, slot: h.slot})
			return true
		}
		c := *h
		c.off, c.slot, c.batchOff = int64(len(buf)), ns.entries, uint32(int64(len(buf))-ns.dataStart)
		if st == stHeld {
			c.flags |= flagHeld
		}
		at := len(buf)
		buf = append(buf, make([]byte, recHeaderSize)...)
		buf = append(buf, meta...)
		buf = append(buf, p...)
		for len(buf)%8 != 0 {
			buf = append(buf, 0)
		}
		c.put(buf[at:])
		c.seal(buf[at:], o.salt, ns.num, c.off)
		ns.area.st[c.slot] = st
		ns.counts[st]++
		ns.entries++
		ns.live += c.size()
		moved(h.slot, ref{seg: ns, id: c.id, off: c.off, size: uint32(c.size()), plen: uint32(c.payloadLen), slot: c.slot})
		kept++
		return true
	}, func(from, _ int64) bool {
		track.gapAt = from
		return true
	})
	track.finish(s.entries, s.end, lost)
	if len(missing) > 0 {
		if err := o.notYet(s, src.err); err != nil {
			return buf, err
		}
	}
	for _, d := range missing {
		o.markDamaged(s, d)
	}
	if kept != want || want != s.unsettled() {
		return buf, errKept
	}
	return buf, nil
}
