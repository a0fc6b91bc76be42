package outbox

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sort"
)

// ref is where a pending entry stands in the log.
type ref struct {
	seg  *segment
	id   ID
	off  int64
	size uint32 // of the record
	plen uint32
	slot uint32
}

// leasedRef is a ref that a lease holds.
type leasedRef struct {
	ref
	st    *stream
	lease *Lease
	busy  bool // on its way into quarantine
}

// stream is an ordering domain as far as the window sees it.
type stream struct {
	name string
	q    []ref // pending, not leased, by id
	out  int   // leased
	pos  int   // in window.ready, -1: not there
}

// ordered: the empty stream promises no order, so nothing of it waits for a lease.
func (s *stream) ordered() bool { return s.name != "" }

// window is the part of the backlog that is looked at ahead of the oldest pending entry.
// It holds places, never payloads.
type window struct {
	streams map[string]*stream
	ready   streamHeap // streams with a queue and nothing leased, oldest first
	n       int        // queued
	bytes   int64      // payload bytes of these

	seg   uint64 // scan position: segment number and offset
	off   int64
	track slotTrack
	stale bool // entries behind the scan position became pending: begin again
	rd    chunkReader
	rdSeg *segment
}

type streamHeap []*stream

func (h streamHeap) Len() int           { return len(h) }
func (h streamHeap) Less(i, j int) bool { return h[i].q[0].id < h[j].q[0].id }
func (h streamHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *streamHeap) Push(x any)        { s := x.(*stream); s.pos = len(*h); *h = append(*h, s) }
func (h *streamHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.pos = -1
	return s
}

func (w *window) init() { w.streams = map[string]*stream{} }

func (w *window) stream(name []byte) *stream {
	s := w.streams[string(name)]
	if s == nil {
		s = &stream{name: string(name), pos: -1}
		w.streams[s.name] = s
	}
	return s
}

// update puts a stream where its queue and leases say it belongs.
func (w *window) update(s *stream) {
	free := len(s.q) > 0 && (s.out == 0 || !s.ordered())
	switch {
	case free && s.pos < 0:
		heap.Push(&w.ready, s)
	case free:
		heap.Fix(&w.ready, s.pos)
	case s.pos >= 0:
		heap.Remove(&w.ready, s.pos)
	}
	if len(s.q) == 0 && s.out == 0 {
		delete(w.streams, s.name)
	}
}

func (w *window) add(s *stream, r ref) {
	if n := len(s.q); n == 0 || s.q[n-1].id < r.id {
		s.q = append(s.q, r)
	} else {
		i := sort.Search(n, func(i int) bool { return s.q[i].id > r.id })
		s.q = append(s.q, ref{})
		copy(s.q[i+1:], s.q[i:])
		s.q[i] = r
	}
	w.n++
	w.bytes += int64(r.plen)
	if s.pos < 0 || s.q[0].id == r.id {
		w.update(s)
	}
}

func (w *window) pop(s *stream) ref {
	r := s.q[0]
	s.q = s.q[1:]
	if len(s.q) == 0 {
		s.q = nil
	}
	w.n--
	w.bytes -= int64(r.plen)
	return r
}

// restart forgets the queues; the scan finds their entries again.
func (w *window) restart() {
	w.ready = w.ready[:0]
	w.n, w.bytes = 0, 0
	for name, s := range w.streams {
		s.q, s.pos = nil, -1
		if s.out == 0 {
			delete(w.streams, name)
		}
	}
	w.seg, w.off, w.stale, w.rdSeg = 0, 0, false, nil
}

// passed reports whether the scan has been at a place already.
func (w *window) passed(s *segment, off int64) bool {
	return w.seg > s.last || w.seg >= s.num && w.off > off
}

// fill scans on until want entries are queued, bytes payload bytes are, or the log ends.
func (o *Outbox) fill(want int, bytes int64) error {
	w := &o.win
	if w.stale {
		w.restart()
	}
	want = min(want, o.windowSize)
	for w.n < want && w.bytes < bytes {
		i := sort.Search(len(o.segs), func(i int) bool { return o.segs[i].last >= w.seg })
		if i == len(o.segs) {
			return nil
		}
		s := o.segs[i]
		if w.seg != s.num || w.off < s.dataStart {
			w.seg, w.off, w.track = s.num, s.dataStart, newTrack(s.num)
		}
		if w.off == s.dataStart && s.pending() == 0 {
			w.off, w.track.slot = s.end, s.entries
		}
		// Of a segment that was cut short the end may be reached and entries be missing.
		if w.off >= s.end && (w.track.slot >= s.entries || s.pending() == 0) {
			if s == o.segs[len(o.segs)-1] {
				return nil
			}
			w.seg, w.off = s.last+1, 0
			continue
		}
		if err := o.scanOn(s, want, bytes); err != nil {
			return err
		}
		if w.stale {
			w.restart() // states were lost and restored on the way
		}
	}
	return nil
}

// scanOn takes pending entries of s into the window.
func (o *Outbox) scanOn(s *segment, want int, bytes int64) error {
	w := &o.win
	f, err := o.openSeg(s)
	if err != nil {
		return fmt.Errorf("outbox: read backlog: %w", err)
	}
	a, err := o.states(s)
	if err != nil {
		return fmt.Errorf("outbox: read backlog: %w", err)
	}
	if w.stale {
		return nil
	}
	if w.rdSeg != s || w.rd.f != f || w.rd.end != s.end {
		w.rd.reset(f, s.end)
		w.rdSeg = s
	}
	var missing []Damage
	lost := func(d Damage) { missing = append(missing, d) }
	w.rd.err = nil
	w.off = walk(&w.rd, o.salt, s.num, w.off, s.end, func(h *recHeader, _, name []byte) bool {
		if w.n >= want || w.bytes >= bytes {
			return false
		}
		if h.kind != kindEntry && h.kind != kindQuarantined || h.slot >= s.entries {
			return true
		}
		if !w.track.see(h, lost) {
			return true
		}
		st := a.st[h.slot]
		if st != stWritten && st != stPendingAgain || o.leased[h.id] != nil {
			return true
		}
		w.add(w.stream(name), ref{seg: s, id: h.id, off: h.off, size: uint32(h.size()), plen: uint32(h.payloadLen), slot: h.slot})
		return true
	}, func(from, _ int64) bool {
		w.track.gapAt = from
		return true
	})
	if w.off >= s.end {
		w.track.finish(s.entries, s.end, lost)
	}
	if len(missing) > 0 {
		if err := o.notYet(s, w.rd.err); err != nil {
			w.stale = true
			return err
		}
	}
	for _, d := range missing {
		o.markDamaged(s, d)
	}
	return nil
}

// slotTrack notices entries whose headers cannot be read by the slots that are missing.
type slotTrack struct {
	seg    uint64
	slot   uint32 // next expected
	lastID ID
	gapAt  int64 // where unreadable bytes were met, -1: nowhere
}

func newTrack(seg uint64) slotTrack { return slotTrack{seg: seg, gapAt: -1} }

// see reports whether h is the next entry or one after lost ones, which go to lost. An
// older slot is a remnant inside a void whose own header is damaged.
func (t *slotTrack) see(h *recHeader, lost func(Damage)) bool {
	if h.slot < t.slot {
		return false
	}
	t.missing(h.slot, h.id, h.off, lost)
	t.slot, t.lastID = h.slot+1, h.id
	return true
}

func (t *slotTrack) finish(entries uint32, end int64, lost func(Damage)) {
	t.missing(entries, 0, end, lost)
	t.slot = max(t.slot, entries)
}

func (t *slotTrack) missing(upTo uint32, id ID, off int64, lost func(Damage)) {
	if t.gapAt >= 0 {
		off = t.gapAt
	}
	for slot := t.slot; slot < upTo; slot++ {
		d := Damage{Segment: t.seg, Offset: off, slot: slot}
		if t.lastID > 0 && (id == 0 || id-t.lastID == ID(upTo-t.slot)+1) {
			d.ID = t.lastID + ID(slot-t.slot) + 1
		}
		lost(d)
	}
	t.gapAt = -1
}

// markDamaged reports an entry as lost, unless it was settled before: then nothing is lost.
func (o *Outbox) markDamaged(s *segment, d Damage) {
	if o.shut {
		return // the files were closed under the reader
	}
	a, err := o.states(s)
	if err != nil {
		return
	}
	switch a.st[d.slot] {
	case stWritten, stPendingAgain, stHeld, stRefused, stUnknown:
	default:
		return
	}
	o.damaged = append(o.damaged, d)
	if o.readOnly() {
		return
	}
	if o.setState(s, d.slot, stDamaged) != nil {
		return
	}
	if err := o.flushStates(s); err != nil {
		o.log.Warn("outbox: states could not be written yet", "error", err)
	}
	o.log.Error("outbox: an entry is damaged on disk and lost here; its owner can capture it again", "segment", d.Segment, "offset", d.Offset, "id", uint64(d.ID))
}

// pick takes what a lease may hold out of the window. Of one stream it takes as much as it
// can before it takes the next, so that other workers find other streams free.
func (o *Outbox) pick(lim Limits) ([]*leasedRef, error) {
	w := &o.win
	records := lim.Records
	if records <= 0 || records > maxLease {
		records = maxLease
	}
	limit := int64(1) << 62
	ahead := limit
	if lim.Bytes > 0 {
		limit = int64(lim.Bytes)
		ahead = 8 * limit
	}
	if err := o.fill(4*records, ahead); err != nil {
		return nil, err
	}
	var out []*leasedRef
	var slab []leasedRef // one allocation for many
	var bytes int64
	for len(out) < records {
		if len(w.ready) == 0 {
			before := w.n
			if err := o.fill(w.n+1024, 1<<62); err != nil {
				return out, err
			}
			if len(w.ready) == 0 && w.n == before {
				break
			}
			continue
		}
		s := w.ready[0]
		taken := 0
		for len(s.q) > 0 && len(out) < records && (len(out) == 0 || bytes+int64(s.q[0].plen) <= limit) {
			r := w.pop(s)
			bytes += int64(r.plen)
			if len(slab) == cap(slab) {
				slab = make([]leasedRef, 0, min(records-len(out), 128))
			}
			slab = append(slab, leasedRef{ref: r, st: s})
			out = append(out, &slab[len(slab)-1])
			taken++
		}
		s.out += taken
		w.update(s)
		if len(s.q) > 0 || taken == 0 {
			break // a limit is reached
		}
	}
	return out, nil
}

// Lease is a set of entries handed out for delivery. Each is settled once: by Ack,
// Quarantine or Return. Close returns the rest.
type Lease struct {
	o       *Outbox
	entries []Leased
	open    map[ID]*leasedRef
	acked   map[ID]*segment // so that an Ack whose sync failed can be repeated
}

// Lease waits until entries are pending whose streams are not leased, and hands them out.
// It returns ctx's error or [ErrClosed] when there is none until then.
func (o *Outbox) Lease(ctx context.Context, lim Limits) (*Lease, error) {
	for {
		o.mu.Lock()
		wake := o.wake
		o.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, err := o.TryLease(lim)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.quit:
			return nil, ErrClosed
		case <-wake:
		}
	}
}

// TryLease is Lease without waiting: nil, nil when nothing can be handed out now.
func (o *Outbox) TryLease(lim Limits) (*Lease, error) {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return nil, ErrClosed
		}
		refs, err := o.pick(lim)
		if len(refs) == 0 {
			o.mu.Unlock()
			return nil, err
		}
		l := &Lease{o: o, open: make(map[ID]*leasedRef, len(refs))}
		pinned, err := o.pin(refs)
		for _, r := range refs {
			r.lease = l
			l.open[r.id] = r
			o.leased[r.id] = r
		}
		o.mu.Unlock()
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		bad, unread := l.read(refs)
		o.mu.Lock()
		for _, s := range pinned {
			o.unpin(s)
		}
		if o.closed {
			o.mu.Unlock()
			return nil, ErrClosed // the files were closed under the reader
		}
		for r, why := range unread {
			if err := o.notYet(r.seg, why); err != nil {
				o.mu.Unlock()
				return nil, errors.Join(err, l.Close())
			}
		}
		for i, r := range bad {
			o.drop(r)
			o.markDamaged(r.seg, bad[i].damage(l.o))
		}
		o.mu.Unlock()
		if len(l.entries) > 0 {
			return l, nil
		}
	}
}

// pin opens the files of refs and keeps them open and in place.
func (o *Outbox) pin(refs []*leasedRef) (segSet, error) {
	var pinned segSet
	for _, r := range refs {
		if pinned.has(r.seg) {
			continue
		}
		if _, err := o.openSeg(r.seg); err != nil {
			for _, s := range pinned {
				o.unpin(s)
			}
			return nil, fmt.Errorf("outbox: read entries: %w", err)
		}
		r.seg.refs++
		pinned.add(r.seg)
	}
	return pinned, nil
}

// damage describes a record whose payload does not match; its header may still be readable.
func (r *leasedRef) damage(o *Outbox) Damage {
	d := Damage{ID: r.id, Stream: r.st.name, Segment: r.seg.num, Offset: r.off, slot: r.slot}
	if f, err := o.openSeg(r.seg); err == nil {
		src := &chunkReader{f: f, end: r.seg.end}
		if _, key, _, ok := readRecHeader(src, o.salt, r.seg.num, r.off, true); ok {
			d.Key = append([]byte(nil), key...)
		}
	}
	return d
}

// span is a stretch of one segment that is read at once.
type span struct {
	seg      *segment
	from, to int64
	b        []byte
}

// size and at make a span a source, so that records are checked where they lie.
func (s *span) size() int64 { return s.to }
func (s *span) at(off int64, n int) []byte {
	if off < s.from || off >= s.from+int64(len(s.b)) {
		return nil
	}
	b := s.b[off-s.from:]
	return b[:min(n, len(b))]
}

// read loads and verifies the entries. It returns those that do not verify, and the errors of
// those that could not be read.
func (l *Lease) read(refs []*leasedRef) (bad []*leasedRef, errs map[*leasedRef]error) {
	order := append([]*leasedRef(nil), refs...)
	sort.Slice(order, func(i, j int) bool {
		a, b := order[i], order[j]
		return a.seg.num < b.seg.num || a.seg.num == b.seg.num && a.off < b.off
	})
	const gap = 4 << 10
	var spans []span
	total := int64(0)
	where := make(map[*leasedRef]int, len(refs))
	for _, r := range order {
		end := r.off + int64(r.size)
		if n := len(spans) - 1; n >= 0 && spans[n].seg == r.seg && r.off-spans[n].to <= gap {
			total += end - spans[n].to
			spans[n].to = end
		} else {
			spans = append(spans, span{seg: r.seg, from: r.off, to: end})
			total += end - r.off
		}
		where[r] = len(spans) - 1
	}
	buf := make([]byte, total)
	for i := range spans {
		s := &spans[i]
		s.b, buf = buf[:s.to-s.from:s.to-s.from], buf[s.to-s.from:]
		n, err := s.seg.file.ReadAt(s.b, s.from)
		if err != nil && n < len(s.b) {
			clear(s.b[n:]) // does not verify
			for _, r := range order {
				if where[r] == i && r.off+int64(r.size) > s.from+int64(n) {
					at := r.off - s.from
					if _, err := s.seg.file.ReadAt(s.b[at:at+int64(r.size)], r.off); unread(err) {
						if errs == nil {
							errs = map[*leasedRef]error{}
						}
						errs[r] = err
					}
				}
			}
		}
	}
	l.entries = make([]Leased, 0, len(refs))
	for _, r := range refs {
		s := &spans[where[r]]
		e, ok := decodeLeased(s, l.o.salt, r)
		if !ok {
			bad = append(bad, r)
			continue
		}
		l.entries = append(l.entries, e)
	}
	return bad, errs
}

func decodeLeased(src source, salt uint64, r *leasedRef) (Leased, bool) {
	h, key, _, ok := readRecHeader(src, salt, r.seg.num, r.off, true)
	if !ok || h.id != r.id {
		return Leased{}, false
	}
	p := src.at(h.payloadOff(), h.payloadLen)
	if len(p) != h.payloadLen || checksum(p) != h.payloadCRC {
		return Leased{}, false
	}
	if h.kind == kindQuarantined {
		q, ok := decodeQuar(p)
		if !ok {
			return Leased{}, false
		}
		p = q.payload
	}
	return Leased{ID: h.id, Key: key[:len(key):len(key)], Stream: r.st.name, Payload: p[:len(p):len(p)]}, true
}

// drop ends the lease of one entry. Caller holds o.mu.
func (o *Outbox) drop(r *leasedRef) {
	delete(o.leased, r.id)
	delete(r.lease.open, r.id)
	r.st.out--
	o.win.update(r.st)
	if r.st.pos >= 0 {
		signal(&o.wake)
	}
}

// giveBack returns an entry to the window. Caller holds o.mu.
func (o *Outbox) giveBack(r *leasedRef) {
	w := &o.win
	if o.closed {
		return
	}
	a, err := o.states(r.seg)
	pending := err == nil && (a.st[r.slot] == stWritten || a.st[r.slot] == stPendingAgain)
	if err != nil {
		w.stale = true // the scan will look again
	}
	// What the scan has not reached again it will find by itself.
	if pending && !w.stale && w.passed(r.seg, r.off) {
		w.add(r.st, r.ref)
	}
	o.drop(r)
	if w.stale {
		signal(&o.wake)
	}
}

// Entries of the lease, those of one stream in order. They stay valid after the lease.
func (l *Lease) Entries() []Leased { return l.entries }

// Ack says that a receiver has accepted these entries: they are forgotten. It needs no
// room on the disk. After an error they are not handed out again by this process, but a
// crash may bring them back; Ack may be repeated.
func (l *Lease) Ack(ids ...ID) error {
	o := l.o
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return ErrClosed
	}
	for _, id := range ids {
		if r := l.open[id]; (r == nil || r.busy) && l.acked[id] == nil {
			o.mu.Unlock()
			return fmt.Errorf("%w: %d", ErrNotLeased, id)
		}
	}
	if l.acked == nil {
		l.acked = make(map[ID]*segment, len(ids))
	}
	failpoint("ack: accepted, nothing written")
	var touched segSet
	var err error
	for _, id := range ids {
		r := l.open[id]
		if r == nil {
			touched.add(l.acked[id])
			continue
		}
		if serr := o.setState(r.seg, r.slot, stAcked); serr != nil {
			err = errors.Join(err, serr)
			continue
		}
		r.seg.live -= int64(r.size)
		l.acked[id] = r.seg
		touched.add(r.seg)
		o.drop(r)
	}
	err = errors.Join(err, o.flushAll(touched))
	o.mu.Unlock()
	failpoint("ack: written, not synced")
	if err = errors.Join(err, o.syncAll(touched)); err != nil {
		return fmt.Errorf("outbox: ack: %w", err)
	}
	failpoint("ack: synced")
	o.housekeep(false)
	return nil
}

// Return gives entries back: they are pending again, in their old place.
func (l *Lease) Return(ids ...ID) error {
	o := l.o
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		if r := l.open[id]; r == nil || r.busy {
			return fmt.Errorf("%w: %d", ErrNotLeased, id)
		}
	}
	for _, id := range ids {
		o.giveBack(l.open[id])
	}
	return nil
}

// Close returns what is not settled yet.
func (l *Lease) Close() error {
	o := l.o
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range l.open {
		if !r.busy {
			o.giveBack(r)
		}
	}
	return nil
}

// Quarantine takes entries out of delivery and keeps them, with why, until an operator
// retries or drops them. All of q or nothing; what an operator has discarded meanwhile stays
// discarded. A full disk does not refuse it as long as the reserve lasts (an eighth of a
// segment and the head of a new one; an entry takes its size); after that it returns
// [ErrFull] and the entries stay leased.
func (l *Lease) Quarantine(q ...Refused) error {
	if err := l.quarantine(q); err != nil {
		return err
	}
	l.o.housekeep(false)
	return nil
}

func (l *Lease) quarantine(q []Refused) error {
	o := l.o
	byID := make(map[ID]*Leased, len(q))
	for i := range l.entries {
		byID[l.entries[i].ID] = &l.entries[i]
	}
	r := requests.Get().(*request)
	defer func() { r.reset(); requests.Put(r) }()
	o.mu.Lock()
	q, pinned, err := l.takeOut(q, r)
	if err != nil || len(q) == 0 {
		o.mu.Unlock()
		return err
	}
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, m := range r.moves {
			m.busy = false
		}
		for _, s := range pinned {
			o.unpin(s)
		}
	}()
	for i := range q {
		e, body := byID[q[i].ID], quarBody{source: r.moves[i].seg.num, time: o.now().UnixNano()}
		payload := q[i].Payload
		if payload == nil {
			payload = e.Payload
		}
		body.reason, body.words = []byte(clip(q[i].Reason)), []byte(clip(q[i].ReceiverWords))
		h := recHeader{kind: kindQuarantined, id: q[i].ID}
		st := stRefused
		if q[i].Outcome != OutcomeRefused {
			h.flags, st = flagUnknown, stUnknown
		}
		r.initialState(i, st)
		head := appendQuar(nil, &body)
		h.payloadCRC = checksum2(head, payload)
		r.record(h, e.Key, e.Stream, head, payload)
	}
	o.mu.Unlock()
	r.entries = len(q)
	r.commitRecord()
	if err := o.submit(context.Background(), r); err != nil {
		return err
	}
	failpoint("quarantine: stored, its old place not synced")
	if err := o.syncAll(pinned); err != nil {
		return fmt.Errorf("outbox: quarantine: %w", err)
	}
	return nil
}

// takeOut puts the entries of q that are not discarded into r, busy, so that no operator changes
// them, and with the states of their segments in memory to stay, so that their old place can be
// marked for sure once the new one is on disk. After an error it has done nothing. Caller holds o.mu.
func (l *Lease) takeOut(q []Refused, r *request) (kept []Refused, pinned segSet, err error) {
	o := l.o
	for i := range q {
		m := l.open[q[i].ID]
		if m == nil || m.busy {
			err = fmt.Errorf("%w: %d", ErrNotLeased, q[i].ID)
			break
		}
		m.busy = true
		r.moves = append(r.moves, m)
	}
	if err == nil {
		pinned, err = o.pin(r.moves)
	}
	for _, s := range pinned {
		if _, serr := o.states(s); serr != nil {
			err = fmt.Errorf("outbox: read %s: %w", segName(s.num), serr)
		}
	}
	moves := r.moves
	r.moves = r.moves[:0:0]
	for i, m := range moves {
		if err != nil || m.seg.area.st[m.slot] == stDiscarded {
			m.busy = false
			continue
		}
		r.moves, kept = append(r.moves, m), append(kept, q[i])
	}
	if len(kept) == 0 {
		for _, s := range pinned {
			o.unpin(s)
		}
	}
	return kept, pinned, err
}

// clip bounds a text to what is kept, at a character's edge.
func clip(s string) string {
	if len(s) <= maxWords {
		return s
	}
	n := maxWords
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
