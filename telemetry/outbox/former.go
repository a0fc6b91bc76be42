package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// was is the value that a cursor had before a segment.
type was struct {
	value string
	there bool   // false: it had none
	seg   uint64 // number of that segment
}

// former is what the cursors that moved in a segment were before it. When entries are lost
// whose keys cannot be read, that is from where their owner has to go on again.
//
// It is in memory, and in the checkpoint, until those of sealed segments take too much there;
// then it goes into a file beside its segment.
type former map[string]was

func formerCost(key, value string) int64 { return int64(8 + deltaFixed + len(key) + len(value)) }

// of leaves of the cursors the one that is named like the stream of an entry, if there is one.
func (f former) of(stream string) former {
	if w, one := f[stream]; one {
		return former{stream: w}
	}
	return f
}

func (f former) cost() (n int64) {
	for k, w := range f {
		n += formerCost(k, w.value)
	}
	return n
}

// merge takes from g what is older than what f has.
func (f former) merge(g former) {
	for k, w := range g {
		if old, ok := f[k]; !ok || w.seg < old.seg {
			f[k] = w
		}
	}
}

func (f former) append(b []byte) []byte {
	b = le.AppendUint32(b, uint32(len(f)))
	for k, w := range f {
		b = appendDelta(le.AppendUint64(b, w.seg), k, w.value, !w.there)
	}
	return b
}

func readFormer(p []byte) (f former, rest []byte, ok bool) {
	if len(p) < 4 {
		return nil, p, false
	}
	f, rest, ok = former{}, p[4:], true
	for n := int(le.Uint32(p)); ok && n > 0; n-- {
		if ok = len(rest) >= 8; ok {
			seg := le.Uint64(rest)
			rest, ok = eachDelta(rest[8:], 1, func(k, v []byte, del bool) { f[string(k)] = was{string(v), !del, seg} })
		}
	}
	return f, rest, ok
}

// noteFormer keeps what a cursor is before it moves in s for the first time.
func (o *Outbox) noteFormer(s *segment, key string) {
	if s.former == nil {
		return
	}
	if _, ok := s.former[key]; ok {
		return
	}
	v, ok := o.cursors[key]
	s.former[key] = was{v, ok, s.num}
	o.formerBytes += formerCost(key, v)
	s.formerSize += formerCost(key, v)
}

// setFormer takes f in the place of what is known of s; nil: nothing is, but what its file says.
func (o *Outbox) setFormer(s *segment, f former) {
	size := f.cost()
	o.formerBytes += size - s.formerSize
	s.former, s.formerSize = f, size
}

// inheritFormer is for an entry of from that stands in s now: who loses it there has to go back
// to before from. Of a cursor that is named like the entry's stream, only that one counts.
func (o *Outbox) inheritFormer(s, from *segment, stream string) {
	if s.former == nil || from == s {
		return
	}
	older, ok := o.formerOf(from)
	o.inherit(s, older, ok, stream)
}

func (o *Outbox) inherit(s *segment, older former, ok bool, stream string) {
	older = older.of(stream)
	if !ok {
		o.setFormer(s, nil)
		return
	}
	for k, w := range older {
		size := formerCost(k, w.value)
		if old, ok := s.former[k]; ok {
			if old.seg <= w.seg {
				continue
			}
			size -= formerCost(k, old.value)
		}
		s.former[k] = w
		s.formerSize += size
		o.formerBytes += size
	}
}

// formerGrowth is what r adds to the former values of s at most; nil: of a new segment.
func (o *Outbox) formerGrowth(s *segment, r *request) (n int64) {
	for i := range r.deltas {
		key := r.deltas[i].Key
		if s != nil {
			if _, ok := s.former[key]; ok || s.former == nil {
				continue
			}
		}
		n += formerCost(key, o.cursors[key])
	}
	return n
}

// formerOf returns the former values of a segment; not ok when they are not known.
func (o *Outbox) formerOf(s *segment) (former, bool) {
	if s.former != nil {
		return s.former, true
	}
	return o.formerFile(s.num, s.last)
}

// Before returns the cursors that moved in the segment of a damaged entry, with the values
// they had before it, by key; a nil Value says that there was none. For an entry whose Key is
// lost: an owner that goes back to them, as far as it has not gone back further, captures the
// entry again, and others of the segment and later ones a second time. With ok false this is
// not known (the damage took it too, or an older version wrote the segment); then anything
// that the owner ever committed may be among what is lost.
func (o *Outbox) Before(d Damage) (cursors []Cursor, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var f former
	if s := o.findSeg(d.Segment); d.slot != wholeSegment && s != nil {
		f, ok = o.formerOf(s)
	} else {
		f = o.lostFormer[d.Segment]
		ok = f != nil
	}
	for k, w := range f {
		c := Cursor{Key: k}
		if w.there {
			c.Value = append([]byte{}, w.value...)
		}
		cursors = append(cursors, c)
	}
	slices.SortFunc(cursors, func(a, b Cursor) int { return cmp.Compare(a.Key, b.Key) })
	return cursors, ok
}

func formerName(num uint64) string { return segName(num) + formerSuffix }

const formerSuffix = ".cursors"

// formerFile reads the file of a segment; with last 0 whatever range it stands for.
func (o *Outbox) formerFile(num, last uint64) (former, bool) {
	if o.formerFiles[num] == 0 {
		return nil, false
	}
	if c := &o.formerRead; c.num == num && c.f != nil && (last == 0 || c.last == last) {
		return c.f, true
	}
	b, err := o.readFile(formerName(num))
	if err != nil || len(b) < formerHeaderSize || string(b[:8]) != formerMagic || le.Uint32(b[52:]) != checksum(b[:52]) {
		return nil, false
	}
	p := b[formerHeaderSize:]
	upTo := le.Uint64(b[24:])
	if le.Uint64(b[16:]) != num || last != 0 && upTo != last || le.Uint64(b[32:]) != o.salt ||
		le.Uint64(b[40:]) != uint64(len(p)) || le.Uint32(b[48:]) != checksum(p) {
		return nil, false
	}
	f, rest, ok := readFormer(p)
	if !ok || len(rest) > 0 {
		return nil, false
	}
	o.formerRead.num, o.formerRead.last, o.formerRead.f = num, upTo, f
	return f, true
}

// writeFormer writes the file of a segment; its name is not synced. Caller does not hold o.mu.
func (o *Outbox) writeFormer(num, last uint64, f former) error {
	b := make([]byte, formerHeaderSize, formerHeaderSize+4+f.cost())
	b = f.append(b)
	copy(b, formerMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint64(b[16:], num)
	le.PutUint64(b[24:], last)
	le.PutUint64(b[32:], o.salt)
	le.PutUint64(b[40:], uint64(len(b)-formerHeaderSize))
	le.PutUint32(b[48:], checksum(b[formerHeaderSize:]))
	le.PutUint32(b[52:], checksum(b[:52]))
	name := filepath.Join(o.dir, formerName(num))
	tmp := name + ".tmp"
	file, err := o.fs.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("outbox: write %s: %w", formerName(num), err)
	}
	if _, err = file.WriteAt(b, 0); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = o.fs.Rename(tmp, name)
	}
	if err != nil {
		return fmt.Errorf("outbox: write %s: %w", formerName(num), errors.Join(err, o.fs.Remove(tmp)))
	}
	o.mu.Lock()
	o.formerFiles[num] = int64(len(b))
	if o.formerRead.num == num {
		o.formerRead.f = nil
	}
	o.mu.Unlock()
	return nil
}

// What the former values of sealed segments may take in the checkpoint, and in memory until
// the next one. Variables for tests.
var (
	maxFormer       int64 = 64 << 10
	maxFormerMemory int64 = 1 << 20
)

// sealedFormers are the segments whose former values can go into a file, and their bytes.
func (o *Outbox) sealedFormers() (segs []*segment, size int64) {
	for _, s := range o.segs {
		if s != o.active && len(s.former) > 0 && s.unsettled() > 0 {
			segs = append(segs, s)
			size += s.formerSize
		}
	}
	return segs, size
}

// spillFormers writes those of sealed segments into their files when they are too many for
// the next checkpoint. Caller holds o.maint.
func (o *Outbox) spillFormers() error {
	o.mu.Lock()
	todo, size := o.sealedFormers()
	o.mu.Unlock()
	if size <= maxFormer {
		return nil
	}
	for _, s := range todo {
		if err := o.writeFormer(s.num, s.last, s.former); err != nil {
			return err
		}
	}
	if err := o.fs.SyncDir(o.dir); err != nil {
		return fmt.Errorf("outbox: write former cursors: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range todo {
		if !s.gone {
			o.setFormer(s, nil)
		}
	}
	return nil
}

// unneededFormers are the files that no segment, and no loss that is still reported, needs
// beside the checkpoint.
func (o *Outbox) unneededFormers() (nums []uint64) {
	needed := make(map[uint64]bool, len(o.formerFiles))
	for _, s := range o.segs {
		needed[s.num] = s.former == nil
	}
	for _, d := range o.damaged {
		if d.slot == wholeSegment {
			needed[d.Segment] = true
		}
	}
	for num := range o.formerFiles {
		if !needed[num] {
			nums = append(nums, num)
		}
	}
	slices.Sort(nums)
	return nums
}

// loadFormer takes what is known of a segment from the checkpoint, before its records above it
// are read.
func (l *loader) loadFormer(s *segment) {
	switch {
	case !l.ckptOK || s.num > l.ckpt.seg || s.num == l.ckpt.seg && l.ckpt.off <= s.dataStart:
		l.setFormer(s, former{}) // all of it is still to come
		return
	case l.known[s.num].last == s.last || s.num == l.ckpt.seg:
		if f, ok := l.ckptFormer[s.num]; ok {
			l.setFormer(s, f)
		}
		return
	}
	// Rewritten since: the former values of its parts.
	all := former{}
	for _, num := range slices.Sorted(maps.Keys(l.known)) {
		if num < s.num || num > s.last {
			continue
		}
		f, ok := l.ckptFormer[num]
		if !ok {
			f, ok = l.formerFile(num, 0)
		}
		if !ok {
			return
		}
		all.merge(f)
	}
	l.setFormer(s, all)
}

// mendFormers completes what the log above the checkpoint says of former values where part of
// it could not be read: a cursor whose move is lost, and that moved later, has the value from
// before both. It also finds those of lost segments.
func (l *loader) mendFormers() error {
	var lost []uint64
	for _, d := range l.damaged {
		if d.slot == wholeSegment && d.Segment > 0 {
			lost = append(lost, d.Segment)
		}
	}
	if len(lost)+len(l.orphans) == 0 && !slices.ContainsFunc(l.segs, func(s *segment) bool { return s.gaps }) {
		return nil
	}
	slices.Sort(lost)
	moved, err := l.movedAway()
	if err != nil {
		return err
	}
	later, known := former{}, true
	know := func(num uint64) {
		f, ok := l.formerFile(num, 0)
		switch {
		case ok:
		case l.ckptOK && num < l.ckpt.seg:
			f, ok = l.ckptFormer[num]
		default:
			f, ok = maps.Clone(l.ckptFormer[num]), true
			if f == nil {
				f, ok = former{}, num > l.ckpt.seg || l.ckpt.off <= l.known[num].dataStart
			}
			f.merge(later)
			ok = ok && known
		}
		if ok {
			// A quarantined entry need not have been in it: the last segment may be gone unseen.
			f = maps.Clone(f)
			ok = l.mayHold(f, math.MaxUint64, moved)
		}
		if ok {
			l.lostFormer[num] = f
		}
	}
	for i := len(l.segs) - 1; i >= 0; i-- {
		s := l.segs[i]
		for len(lost) > 0 && lost[len(lost)-1] > s.num {
			know(lost[len(lost)-1])
			lost = lost[:len(lost)-1]
		}
		if l.ckptOK && s.num < l.ckpt.seg {
			continue
		}
		known = known && s.former != nil
		switch {
		case s.gaps && !known:
			l.setFormer(s, nil)
		case s.gaps:
			f := maps.Clone(s.former)
			f.merge(later)
			if !l.mayHold(f, s.num, moved) {
				f = nil
			}
			l.setFormer(s, f)
		}
		later.merge(s.former)
	}
	for i := len(lost) - 1; i >= 0; i-- {
		know(lost[i])
	}
	for _, m := range l.orphans {
		if m.seg.former != nil {
			f, ok := l.lostFormer[m.source]
			l.inherit(m.seg, f, ok, m.stream)
		}
	}
	return nil
}

// movedAway finds entries that were moved into quarantine and whose record there cannot be
// seen, by segment and stream: settled since and gone with its segment, or lost. Nothing is
// read when no segment is lost, nor anything above the checkpoint.
func (l *loader) movedAway() (all []orphan, err error) {
	harmed := slices.ContainsFunc(l.damaged, func(d Damage) bool {
		return !l.ckptOK || d.Segment >= l.ckpt.seg || d.slot == wholeSegment
	})
	if !harmed {
		return nil, nil
	}
	moved := map[ID]orphan{} // by the last record there is
	for _, s := range l.segs {
		f, err := l.openSeg(s)
		if err != nil {
			return nil, fmt.Errorf("outbox: open %s: %w", segName(s.num), err)
		}
		a, err := l.states(s)
		if err != nil {
			return nil, fmt.Errorf("outbox: read %s: %w", segName(s.num), err)
		}
		walk(&chunkReader{f: f, end: s.end}, l.salt, s.num, s.dataStart, s.end, func(h *recHeader, _, stream []byte) bool {
			switch {
			case h.kind != kindEntry && h.kind != kindQuarantined || h.slot >= s.entries:
			case a.st[h.slot] == stMoved:
				moved[h.id] = orphan{s, s.num, string(stream)}
			default:
				delete(moved, h.id)
			}
			return true
		}, func(int64, int64) bool { return true })
	}
	seen := map[orphan]bool{}
	for _, m := range moved {
		if !seen[m] {
			seen[m], all = true, append(all, m)
		}
	}
	return all, nil
}

// mayHold takes into f, of a segment of which part is lost, what the quarantined entries need
// that may have been in it; false when that is not known.
func (l *loader) mayHold(f former, num uint64, moved []orphan) bool {
	for _, m := range moved {
		if m.source > num {
			continue
		}
		older, ok := l.formerOf(m.seg)
		if !ok {
			return false
		}
		f.merge(older.of(m.stream))
	}
	return true
}

// keepLostFormers writes down what is known of lost segments, before the checkpoint that
// forgets them.
func (o *Outbox) keepLostFormers() {
	wrote := false
	for _, num := range slices.Sorted(maps.Keys(o.lostFormer)) {
		if o.lostFormer[num] == nil || o.formerFiles[num] > 0 {
			continue
		}
		if err := o.writeFormer(num, num, o.lostFormer[num]); err != nil {
			o.log.Warn("outbox: what stood before a lost segment could not be kept", "segment", num, "error", err)
			continue
		}
		wrote = true
	}
	if wrote {
		if err := o.fs.SyncDir(o.dir); err != nil {
			o.log.Warn("outbox: what stood before a lost segment could not be kept", "error", err)
		}
	}
}
