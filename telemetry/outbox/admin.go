package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"sort"
	"time"
)

func stateOf(st byte) State {
	switch st {
	case stAcked:
		return Acked
	case stRefused, stUnknown:
		return Quarantined
	case stHeld:
		return Held
	case stDiscarded:
		return Discarded
	case stDamaged, stDamagedDone:
		return Lost
	}
	return Pending
}

// place is an entry found in a segment.
type place struct {
	seg  *segment
	slot uint32
	id   ID
	size uint32
	off  int64
}

// eachSegment calls fn with every segment that want chooses, pinned, and a copy of its
// states, until fn returns false. fn runs without o.mu.
func (o *Outbox) eachSegment(want func(*segment) bool, fn func(s *segment, f File, end int64, states []byte) bool) error {
	for num := uint64(0); ; {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return ErrClosed
		}
		i := sort.Search(len(o.segs), func(i int) bool { return o.segs[i].num >= num })
		for i < len(o.segs) && !want(o.segs[i]) {
			i++
		}
		if i == len(o.segs) {
			o.mu.Unlock()
			return nil
		}
		s := o.segs[i]
		num = s.last + 1
		f, err := o.openSeg(s)
		var states []byte
		if err == nil {
			var a *stateArea
			if a, err = o.states(s); err == nil {
				states = append(states, a.st[:s.entries]...)
			}
		}
		if err != nil {
			o.mu.Unlock()
			return fmt.Errorf("outbox: read %s: %w", segName(s.num), err)
		}
		s.refs++
		end := s.end
		o.mu.Unlock()
		more := fn(s, f, end, states)
		o.mu.Lock()
		o.unpin(s)
		o.mu.Unlock()
		if !more {
			return nil
		}
	}
}

// scanSegment calls fn for the entries of one segment. With payloads they are read and
// verified; what does not verify is reported as damage and shown as Lost. The error says that
// something could not be read that does not count as damage yet; it is shown as Lost, or not at all.
func (o *Outbox) scanSegment(s *segment, f File, end int64, states []byte, payloads bool, want func(st byte) bool, fn func(p place, i *Info) bool) (more bool, err error) {
	src := &chunkReader{f: f, end: end}
	track := newTrack(s.num)
	var key []byte
	more = true
	shut := false
	lost := func(d Damage) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if why := o.notYet(s, src.err); why != nil {
			err = why
		} else {
			o.markDamaged(s, d)
		}
		shut = o.shut
	}
	walk(src, o.salt, s.num, s.dataStart, end, func(h *recHeader, k, name []byte) bool {
		if h.kind != kindEntry && h.kind != kindQuarantined || int(h.slot) >= len(states) || !track.see(h, lost) {
			return true
		}
		st := states[h.slot]
		if st == stMoved || !want(st) {
			return true
		}
		key = append(key[:0], k...)
		info := Info{ID: h.id, State: stateOf(st), Key: key, Stream: string(name)}
		at := place{seg: s, slot: h.slot, id: h.id, size: uint32(h.size()), off: h.off}
		if payloads && info.State != Lost {
			p := src.at(h.payloadOff(), h.payloadLen)
			if len(p) != h.payloadLen || checksum(p) != h.payloadCRC {
				lost(Damage{ID: h.id, Key: append([]byte(nil), key...), Stream: info.Stream, Segment: s.num, Offset: h.off, slot: h.slot})
				info.State = Lost
			} else {
				fillInfo(&info, h, p)
			}
		}
		if shut {
			return false // eachSegment says so
		}
		more = fn(at, &info)
		return more
	}, func(from, _ int64) bool {
		track.gapAt = from
		return true
	})
	if more {
		track.finish(uint32(len(states)), end, lost)
	}
	return more, err
}

func fillInfo(i *Info, h *recHeader, p []byte) {
	i.Payload = p
	if h.kind != kindQuarantined {
		return
	}
	q, ok := decodeQuar(p)
	if !ok {
		return
	}
	i.Payload = q.payload
	i.Quarantine = &Quarantine{Reason: string(q.reason), Outcome: OutcomeRefused, ReceiverWords: string(q.words), Time: time.Unix(0, q.time)}
	if h.flags&flagUnknown != 0 {
		i.Quarantine.Outcome = OutcomeUnknown
	}
}

// Scan calls fn for every entry that is still in the log, in the order of the log, until fn
// returns false. Settled entries show up until their segment goes. It reads every payload.
func (o *Outbox) Scan(fn func(Info) bool) error {
	return o.scan(func(*segment) bool { return true }, func(byte) bool { return true }, fn)
}

// ScanStates is Scan for entries in one of these states only; segments without such an
// entry are not read.
func (o *Outbox) ScanStates(fn func(Info) bool, states ...State) error {
	want := func(st byte) bool {
		for _, s := range states {
			if stateOf(st) == s && st != stMoved {
				return true
			}
		}
		return false
	}
	return o.scan(func(s *segment) bool {
		for st, n := range s.counts {
			if n > 0 && want(byte(st)) {
				return true
			}
		}
		return false
	}, want, fn)
}

func (o *Outbox) scan(segs func(*segment) bool, want func(byte) bool, fn func(Info) bool) error {
	var missed error
	err := o.eachSegment(segs, func(s *segment, f File, end int64, states []byte) bool {
		more, err := o.scanSegment(s, f, end, states, true, want, func(_ place, i *Info) bool {
			o.mu.Lock()
			_, i.Leased = o.leased[i.ID]
			o.mu.Unlock()
			return fn(*i)
		})
		missed = cmp.Or(missed, err)
		return more
	})
	return cmp.Or(err, missed)
}

// Get calls fn with one entry, or returns [ErrNotFound].
func (o *Outbox) Get(id ID, fn func(Info)) error {
	found := false
	err := o.Scan(func(i Info) bool {
		if i.ID == id {
			found = true
			fn(i)
		}
		return !found
	})
	if err != nil || found {
		return err
	}
	return fmt.Errorf("%w: %d", ErrNotFound, id)
}

// change is a move of entries from one of some states to another, by an operator's word.
type change struct {
	op   string
	from func(st byte) bool
	to   byte
}

var (
	opHold    = change{"hold", isPending, stHeld}
	opSend    = change{"send", func(st byte) bool { return st == stHeld }, stPendingAgain}
	opDiscard = change{"discard", func(st byte) bool { return st == stHeld || isPending(st) }, stDiscarded}
	opRetry   = change{"retry", isQuarantined, stPendingAgain}
	opDrop    = change{"drop", isQuarantined, stDiscarded}
)

func isPending(st byte) bool     { return st == stWritten || st == stPendingAgain }
func isQuarantined(st byte) bool { return st == stRefused || st == stUnknown }

// Hold takes pending entries that match out of delivery until they are sent or discarded
// by hand. One that is leased at the moment is held when its lease returns it; if the
// receiver accepts it first it is acked. It returns how many it held.
func (o *Outbox) Hold(match func(Info) bool) (int, error) { return o.changeAll(opHold, match) }

// Send makes held entries pending again. All of them or none.
func (o *Outbox) Send(ids ...ID) error { return o.changeIDs(opSend, ids) }

// SendHeld is Send for every held entry that matches; nil matches all.
func (o *Outbox) SendHeld(match func(Info) bool) (int, error) { return o.changeAll(opSend, match) }

// Discard forgets held or pending entries. All of them or none. If the receiver accepts one
// that is leased at the moment it is acked.
func (o *Outbox) Discard(ids ...ID) error { return o.changeIDs(opDiscard, ids) }

// DiscardHeld is Discard for every held entry that matches; nil matches all.
func (o *Outbox) DiscardHeld(match func(Info) bool) (int, error) {
	return o.changeAll(change{opDiscard.op, opSend.from, stDiscarded}, match)
}

// Retry makes quarantined entries pending again. All of them or none.
func (o *Outbox) Retry(ids ...ID) error { return o.changeIDs(opRetry, ids) }

// RetryAll is Retry for every quarantined entry that matches; nil matches all.
func (o *Outbox) RetryAll(match func(Info) bool) (int, error) { return o.changeAll(opRetry, match) }

// Drop forgets quarantined entries. All of them or none. They count as discarded.
func (o *Outbox) Drop(ids ...ID) error { return o.changeIDs(opDrop, ids) }

func (c *change) wants(s *segment) bool {
	for st, n := range s.counts {
		if n > 0 && c.from(byte(st)) {
			return true
		}
	}
	return false
}

// changeAll works segment by segment, so that its memory does not grow with the backlog.
func (o *Outbox) changeAll(c change, match func(Info) bool) (n int, err error) {
	var failed, missed error
	err = o.eachSegment(c.wants, func(s *segment, f File, end int64, states []byte) bool {
		var at []place
		_, merr := o.scanSegment(s, f, end, states, match != nil, c.from, func(p place, i *Info) bool {
			if i.State != Lost && (match == nil || match(*i)) {
				at = append(at, p)
			}
			return true
		})
		missed = cmp.Or(missed, merr)
		if len(at) == 0 {
			return true
		}
		k, cerr := o.applyChange(c, at)
		n += k
		failed = errors.Join(failed, cerr, o.syncSeg(s))
		return failed == nil
	})
	if err = errors.Join(err, failed, missed); err != nil {
		return n, fmt.Errorf("outbox: %s: %w", c.op, err)
	}
	o.housekeep(false)
	return n, nil
}

// changeIDs finds all entries first and changes them only when the operation applies to each.
func (o *Outbox) changeIDs(c change, ids []ID) error {
	missing := make(map[ID]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	var at []place
	var wrong, missed error
	var pinned []*segment
	defer func() {
		o.mu.Lock()
		for _, s := range pinned {
			o.unpin(s)
		}
		o.mu.Unlock()
		o.housekeep(false)
	}()
	err := o.eachSegment(func(s *segment) bool { return s.entries > 0 }, func(s *segment, f File, end int64, states []byte) bool {
		found := false
		_, merr := o.scanSegment(s, f, end, states, false, func(byte) bool { return true }, func(p place, i *Info) bool {
			if !missing[p.id] {
				return true
			}
			delete(missing, p.id)
			if !c.from(states[p.slot]) {
				wrong = &StateError{ID: p.id, State: i.State, Op: c.op}
				return false
			}
			at, found = append(at, p), true
			return len(missing) > 0
		})
		if found {
			o.mu.Lock()
			s.refs++ // so that it is not rewritten before the change
			o.mu.Unlock()
			pinned = append(pinned, s)
		}
		missed = cmp.Or(missed, merr)
		return wrong == nil && len(missing) > 0
	})
	if err != nil || wrong != nil {
		return errors.Join(err, wrong)
	}
	if len(missing) > 0 && missed != nil {
		return missed
	}
	for id := range missing {
		return fmt.Errorf("%w: %d", ErrNotFound, id)
	}
	n, err := o.applyChange(c, at)
	if err == nil && n < len(at) {
		err = fmt.Errorf("outbox: %s: %d of %d entries had changed their state meanwhile", c.op, len(at)-n, len(at))
	}
	for _, s := range pinned {
		err = errors.Join(err, o.syncSeg(s))
	}
	return err
}

// applyChange sets the states of those places that are still in one that c changes.
func (o *Outbox) applyChange(c change, at []place) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, ErrClosed
	}
	var touched segSet
	for _, p := range at {
		a, serr := o.states(p.seg)
		if serr == nil && !c.from(a.st[p.slot]) {
			continue
		}
		if l := o.leased[p.id]; l != nil && l.busy {
			continue // it is in quarantine soon
		}
		if serr == nil {
			// The window knows only what was pending when it passed.
			if isPending(a.st[p.slot]) || o.win.passed(p.seg, p.off) {
				o.win.stale = true
			}
			serr = o.setState(p.seg, p.slot, c.to)
		}
		if serr != nil {
			err = errors.Join(err, serr)
			continue
		}
		if c.to == stDiscarded {
			p.seg.live -= int64(p.size)
		}
		touched.add(p.seg)
		n++
	}
	err = errors.Join(err, o.flushAll(touched))
	if c.to == stPendingAgain {
		signal(&o.wake)
	}
	return n, err
}
