package outbox

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// loader is Open at work. It changes files only where mend is true.
type loader struct {
	*Outbox
	mend bool

	ckptOK      bool
	ckptVersion uint32
	ckptFormer  map[uint64]former // former values that the checkpoint has
	cursorB     []byte            // of the newest valid slot
	cursorN     int
	known       map[uint64]ckptSeg
	headers     map[uint64]segHeader // by segment number
	sizes       map[uint64]int64
	redo        []redo
	orphans     []orphan
	remove      []string // files that nothing needs, once the checkpoint that says so is in both slots
	lostSegment bool     // one is missing or set aside that was there the last time
	doubt       bool     // something is lost and it is not known where it was
	repair      bool     // the state on disk is not what a next start may read: write a checkpoint
}

// orphan is a quarantined entry of seg whose earlier segment is not there.
type orphan struct {
	seg    *segment
	source uint64
	stream string
}

// redo is a record of kind 3 whose predecessor has to be marked as moved.
type redo struct {
	source uint64
	id     ID
	seg    *segment
	off    int64
	slot   uint32
}

func (o *Outbox) load(ro bool) error {
	start := o.now()
	l := &loader{Outbox: o, mend: !ro, known: map[uint64]ckptSeg{}, headers: map[uint64]segHeader{}, sizes: map[uint64]int64{}}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := l.run(); err != nil {
		return err
	}
	r := &o.recovery
	r.Took = o.now().Sub(start)
	if r.CheckpointLost || r.HeadersRebuilt+r.StateBlocksLost+r.SegmentsMissing+len(r.SegmentsAside) > 0 || r.Unaccounted != 0 {
		o.degraded = true
	}
	if o.degraded || r.TornBytes > 0 || r.TornBatches > 0 {
		o.log.Warn("outbox: opened after a crash or damage", "torn_bytes", r.TornBytes, "torn_batches", r.TornBatches,
			"checkpoint_lost", r.CheckpointLost, "headers_rebuilt", r.HeadersRebuilt, "state_blocks_lost", r.StateBlocksLost,
			"segments_missing", r.SegmentsMissing, "segments_aside", len(r.SegmentsAside), "unaccounted", r.Unaccounted, "damaged", len(o.damaged))
	}
	if ro {
		return nil
	}
	o.mu.Unlock()
	o.keepLostFormers()
	o.mu.Lock()
	if upgrade := l.ckptOK && l.ckptVersion < formatVersion; !l.ckptOK || l.repair || upgrade || o.degraded || len(l.remove) > 0 {
		need := o.checkpointSize() - o.formerBytes // without room for these it goes as well
		o.mu.Unlock()
		err := o.growCheckpoint(need)
		if err == nil {
			err = o.writeCheckpoint()
		}
		o.mu.Lock()
		if err != nil {
			if noSpace(err) {
				err = fullError(err)
			}
			if len(o.segs) == 0 && !l.ckptOK || l.repair {
				return err
			}
			o.log.Warn("outbox: first checkpoint failed, it is tried again", "error", err)
			return nil
		}
	}
	// The checkpoint that does not know of them is in both slots now.
	for _, name := range l.remove {
		if err := o.fs.Remove(filepath.Join(o.dir, name)); err != nil {
			o.log.Warn("outbox: a file that is not needed any more could not be removed", "file", name, "error", err)
		}
	}
	return nil
}

func (l *loader) run() error {
	names, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("outbox: read directory: %w", err)
	}
	if err := l.readCheckpoints(); err != nil {
		return err
	}
	if l.mend {
		// The names that are seen here must be the ones that a crash leaves.
		if err := l.fs.SyncDir(l.dir); err != nil {
			return fmt.Errorf("outbox: sync directory: %w", err)
		}
	}
	nums, err := l.readHeaders(names)
	if err != nil {
		return err
	}
	if nums, err = l.dropReplaced(nums); err != nil {
		return err
	}
	if err := l.loadCursors(); err != nil {
		return err
	}
	l.nextID, l.committed, l.base = max(l.ckpt.nextID, 1), l.ckpt.committed, l.ckpt.base
	l.highest = max(l.highest, l.ckpt.highest)
	for i, num := range nums {
		if err := l.loadSegment(num, i == len(nums)-1); err != nil {
			return err
		}
	}
	if err := l.redoMoves(); err != nil {
		return err
	}
	if err := l.mendFormers(); err != nil {
		return err
	}
	if err := l.account(); err != nil {
		return err
	}
	l.recovery.CheckpointLost = !l.ckptOK && len(l.segs)+len(l.recovery.SegmentsAside) > 0
	if n := len(l.segs); n > 0 {
		s := l.segs[n-1]
		// Below the checkpoint's position nothing is ever read again.
		s.sealed = s.rewritten || s.version < formatVersion || s.end-s.dataStart >= l.segmentSize || s.entries >= s.slots || l.ckptOK && s.num < l.ckpt.seg
		if !s.sealed {
			l.active = s
		}
	}
	return nil
}

func (l *loader) readCheckpoints() error {
	var best checkpoint
	var raw []byte
	var sizes [2]int64
	var gens [2]uint64
	for i, name := range ckptNames {
		b, err := l.readFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("outbox: read %s: %w", name, err)
		}
		sizes[i] = int64(len(b))
		c, cur, n, version, ok := decodeCheckpoint(b)
		if version > formatVersion {
			return &VersionError{File: filepath.Join(l.dir, name), Version: version}
		}
		if !ok {
			continue
		}
		l.recovery.CheckpointSlots++
		gens[i] = c.gen
		if !l.ckptOK || c.gen > best.gen {
			best, l.cursorB, l.cursorN, l.ckptOK, l.ckptVersion = c, cur, n, true, version
			l.ckptFirst, raw = 1-i, b[:ckptHeaderSize+int(le.Uint64(b[24:]))]
		}
	}
	l.slotRoom, l.ckptRoom = sizes, min(sizes[0], sizes[1])
	l.ckpt = best
	l.salt = best.salt
	for _, s := range best.segs {
		l.known[s.num] = s
	}
	if !l.ckptOK || gens[0] == gens[1] {
		return nil
	}
	l.repair = true // bring the other one up to date
	if !l.mend {
		return nil
	}
	// Its sync may have failed, so that it is in the page cache only. The same bytes over
	// themselves do no harm if it is not; only then may the other slot be overwritten.
	if err := l.writeSlot(ckptNames[1-l.ckptFirst], raw); err != nil {
		return fmt.Errorf("outbox: write %s: %w", ckptNames[1-l.ckptFirst], err)
	}
	return nil
}

func (o *Outbox) readFile(name string) ([]byte, error) {
	f, err := o.fs.OpenFile(filepath.Join(o.dir, name), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	k, err := f.ReadAt(b, 0)
	if int64(k) < n && err != nil {
		b = b[:k] // a bad sector: the checksum decides
	}
	return b, nil
}

func (o *Outbox) fileSize(name string) (int64, error) {
	f, err := o.fs.OpenFile(filepath.Join(o.dir, name), os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Size()
}

func (l *loader) loadCursors() error {
	rest, ok := eachDelta(l.cursorB, l.cursorN, func(k, v []byte, del bool) { l.setCursor(string(k), v, del) })
	l.cursorB = nil
	l.ckptFormer = map[uint64]former{}
	if ok && l.ckptVersion > 1 {
		if ok = len(rest) >= 4; ok {
			n := int(le.Uint32(rest))
			for rest = rest[4:]; ok && n > 0; n-- {
				if ok = len(rest) >= 8; ok {
					num := le.Uint64(rest)
					l.ckptFormer[num], rest, ok = readFormer(rest[8:])
				}
			}
		}
	}
	if !ok || len(rest) > 0 {
		return &DamageError{File: ckptNames[0], What: "a checkpoint with a good checksum does not parse; this is a bug"}
	}
	return nil
}

func parseSegName(name string) (num uint64, rest string, ok bool) {
	if len(name) < 20 || name[16:20] != ".seg" {
		return 0, "", false
	}
	num, err := strconv.ParseUint(name[:16], 16, 64)
	return num, name[20:], err == nil
}

// readHeaders reads the headers of all segments and rebuilds those that are damaged.
func (l *loader) readHeaders(names []string) ([]uint64, error) {
	var nums, broken []uint64
	for _, name := range names {
		num, rest, ok := parseSegName(name)
		switch {
		case name == "reserve":
			if n, err := l.fileSize(name); err == nil {
				l.reserve = n
			}
			continue
		case ok && rest == formerSuffix:
			if err := l.foundFormer(num, name); err != nil {
				return nil, err
			}
			continue
		case name == "probe.tmp" || ok && strings.HasSuffix(rest, ".tmp"):
			if l.mend {
				if err := l.fs.Remove(filepath.Join(l.dir, name)); err != nil {
					return nil, fmt.Errorf("outbox: remove %s: %w", name, err)
				}
			}
			continue
		case ok && rest == ".damaged":
			l.aside(num, name)
			continue
		case !ok || rest != "":
			continue
		}
		h, size, good, err := l.readHeader(num)
		if err != nil {
			return nil, err
		}
		l.sizes[num] = size
		if good && l.salt == 0 {
			l.salt = h.salt
		}
		_, listed := l.known[num]
		if !good || size < h.dataStart || size == h.dataStart && !listed {
			// Without a header, or without a record: never finished, or cut. An empty one could
			// be in the page cache only, so it is made anew.
			broken = append(broken, num)
			continue
		}
		l.headers[num] = h
		l.highest = max(l.highest, num)
		nums = append(nums, num)
	}
	for _, num := range broken {
		if l.ckptOK && num <= l.ckpt.highest && l.known[num].num == 0 {
			nums = append(nums, num) // removed already, as far as the checkpoint knows
			continue
		}
		h, ok, err := l.rebuildHeader(num, names)
		if err != nil {
			return nil, err
		}
		if ok {
			l.headers[num] = h
			l.highest = max(l.highest, num)
			nums = append(nums, num)
		}
	}
	if l.salt == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		l.salt = le.Uint64(b[:]) | 1
	}
	sort.Slice(nums, func(i, j int) bool { return nums[i] < nums[j] })
	return nums, nil
}

func (l *loader) aside(num uint64, name string) {
	l.highest = max(l.highest, num)
	l.recovery.SegmentsAside = append(l.recovery.SegmentsAside, name)
	l.damaged = append(l.damaged, Damage{Segment: num, slot: wholeSegment})
}

// wholeSegment is the slot of a Damage that stands for a segment set aside.
const wholeSegment = 1<<32 - 1

func (l *loader) readHeader(num uint64) (h segHeader, size int64, good bool, err error) {
	name := segName(num)
	f, err := l.fs.OpenFile(filepath.Join(l.dir, name), os.O_RDONLY, 0)
	if err != nil {
		return h, 0, false, fmt.Errorf("outbox: open %s: %w", name, err)
	}
	defer f.Close()
	if size, err = f.Size(); err != nil {
		return h, 0, false, fmt.Errorf("outbox: open %s: %w", name, err)
	}
	var page [segHeaderSize]byte
	try := func(off int64) bool {
		if n, _ := f.ReadAt(page[:], off); n < len(page) {
			return false
		}
		h, good = decodeSegHeader(page[:])
		good = good && (h.version > formatVersion || h.num == num && (off == 0 || off == h.dataStart-pageSize))
		return good
	}
	if !try(0) {
		// The copy stands at the end of some number of pages of states.
		for slots := uint32(slotsPerPage); dataStartFor(slots) <= min(size, 1<<20) && !try(dataStartFor(slots)-pageSize); slots += slotsPerPage {
		}
		good = good && size > h.dataStart // else its making was cut short
		if good {
			l.recovery.HeadersRebuilt++
			l.writeBackHeader(num, h)
		}
	}
	if good && h.version > formatVersion {
		return h, size, false, &VersionError{File: filepath.Join(l.dir, name), Version: h.version}
	}
	return h, size, good, nil
}

// writeBackHeader restores both copies; a failure is no harm, the next start tries again.
func (l *loader) writeBackHeader(num uint64, h segHeader) {
	if !l.mend {
		return
	}
	f, err := l.fs.OpenFile(filepath.Join(l.dir, segName(num)), os.O_RDWR, 0)
	if err != nil {
		return
	}
	var b [segHeaderSize]byte
	h.encode(b[:])
	_, err = f.WriteAt(b[:], 0)
	if err == nil {
		_, err = f.WriteAt(b[:], h.dataStart-pageSize)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		l.log.Warn("outbox: a segment header could not be restored", "segment", num, "error", err)
	}
}

// rebuildHeader finds the layout of a segment without a header from its records.
func (l *loader) rebuildHeader(num uint64, names []string) (h segHeader, ok bool, err error) {
	name := segName(num)
	f, err := l.fs.OpenFile(filepath.Join(l.dir, name), os.O_RDONLY, 0)
	if err != nil {
		return h, false, fmt.Errorf("outbox: open %s: %w", name, err)
	}
	defer f.Close()
	size := l.sizes[num]
	src := &chunkReader{f: f, end: size}
	info, listed := l.known[num]
	h = segHeader{version: formatVersion, num: num, last: num, salt: l.salt, rebuilt: true}
	if l.ckptVersion == 1 {
		h.version = 1
	}
	if off, found := findRecord(src, l.salt, num, 2*pageSize, size); found && l.salt != 0 {
		rec, _, _, _ := readRecHeader(src, l.salt, num, off, false)
		h.firstID = rec.id
		switch {
		case rec.batchOff == 0 && (rec.kind == kindCommit || rec.slot == 0) && dataStartFor(roundSlots(slotsAt(off))) == off:
			h.dataStart = off
		case listed:
			h.dataStart = info.dataStart
		default:
			h.dataStart = dataStartFor(roundSlots(l.segmentSize / 256))
		}
		if h.dataStart <= off {
			h.slots = uint32(slotsAt(h.dataStart))
			if listed && info.dataStart == h.dataStart {
				h.last, h.firstID = info.last, info.firstID
			}
			if listed && num < l.ckpt.seg && info.dataStart != h.dataStart {
				// Rewritten after the checkpoint; how far it goes only its header knew.
				delete(l.known, num)
			}
			l.recovery.HeadersRebuilt++
			l.repair = true
			l.writeBackHeader(num, h)
			return h, true, nil
		}
	}
	// Never used: its making was cut short, or everything in it is gone.
	if !listed && (l.ckptOK || size <= dataStartFor(roundSlots(l.segmentSize/256))) && size <= 2*maxSegmentSize && l.blank(src, size) {
		if l.mend {
			if err := l.fs.Remove(filepath.Join(l.dir, name)); err != nil {
				return h, false, fmt.Errorf("outbox: remove %s: %w", name, err)
			}
		}
		return h, false, nil
	}
	if listed && info.entries == 0 && num < l.ckpt.seg {
		return h, false, nil
	}
	l.repair, l.lostSegment = true, true
	aside := name + ".damaged"
	if l.mend {
		if err := l.fs.Rename(filepath.Join(l.dir, name), filepath.Join(l.dir, aside)); err != nil {
			return h, false, fmt.Errorf("outbox: set %s aside: %w", name, err)
		}
		if err := l.fs.SyncDir(l.dir); err != nil {
			return h, false, fmt.Errorf("outbox: set %s aside: %w", name, err)
		}
		l.log.Error("outbox: a segment could not be understood and is set aside", "segment", num, "file", aside)
	}
	l.aside(num, aside)
	return h, false, nil
}

// slotsAt is the number of slots with which the data would start at off.
func slotsAt(off int64) int64 { return (off - 2*pageSize) / (2 * pageSize) * slotsPerPage }

// blank reports whether a file holds no data behind the place where records begin at the earliest:
// nothing but a copy of the header and state blocks of slots that were never used.
func (l *loader) blank(src *chunkReader, size int64) bool {
	zero := func(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
	for off := int64(4 * pageSize); off < size; off += blockSize {
		n := int(min(blockSize, size-off))
		b := src.at(off, n)
		head := 8 // of a state block: its checksum and generation
		switch {
		case len(b) < n:
			return false // it cannot be read
		case off%pageSize == 0:
			head = segHeaderSize
		case len(b) >= 8 && le.Uint64(b) != 0 && le.Uint32(b[4:]) != 1:
			return false
		}
		if len(b) > head && !zero(b[head:]) {
			return false
		}
	}
	return true
}

// dropReplaced removes what the checkpoint or a rewritten segment stands for.
func (l *loader) dropReplaced(nums []uint64) ([]uint64, error) {
	keep := nums[:0:0]
	upTo := uint64(0)
	have := map[uint64]bool{}
	for _, num := range nums {
		_, listed := l.known[num]
		h, understood := l.headers[num]
		if upTo >= num || l.ckptOK && num <= l.ckpt.highest && !listed || !understood {
			l.remove = append(l.remove, segName(num))
			continue
		}
		upTo = h.last
		for n := range l.known {
			if num <= n && n <= h.last {
				have[n] = true
			}
		}
		keep = append(keep, num)
	}
	// Above what the checkpoint knows numbers follow one another: one that is not there is lost.
	for n := l.ckpt.highest + 1; l.ckptOK && n < l.highest; n++ {
		if !slices.ContainsFunc(keep, func(k uint64) bool { return k <= n && n <= l.headers[k].last }) {
			l.known[n] = ckptSeg{num: n, last: n}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(l.known)) {
		info := l.known[n]
		lost := info.entries > 0 || n >= l.ckpt.seg && n < l.highest
		if !have[n] && lost && !l.setAside(n) {
			l.recovery.SegmentsMissing++
			l.repair = true
			if err := l.markMissing(n); err != nil {
				return nil, err
			}
		}
	}
	return keep, nil
}

// foundFormer notes a file of former values.
func (l *loader) foundFormer(num uint64, name string) error {
	n, err := l.fileSize(name)
	if !l.mend && errors.Is(err, os.ErrNotExist) {
		return nil // its writer has removed it meanwhile
	}
	if err != nil {
		return fmt.Errorf("outbox: open %s: %w", name, err)
	}
	l.formerFiles[num] = n
	return nil
}

// markMissing leaves an empty file in the place of a segment that is not there, so that it is
// reported until the owner has dealt with it.
func (l *loader) markMissing(num uint64) error {
	name := segName(num) + ".damaged"
	l.lostSegment = true
	if l.mend {
		f, err := l.fs.OpenFile(filepath.Join(l.dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			err = errors.Join(f.Close(), l.fs.SyncDir(l.dir))
		}
		if err != nil {
			return fmt.Errorf("outbox: mark %s as missing: %w", segName(num), err)
		}
	}
	l.damaged = append(l.damaged, Damage{Segment: num, slot: wholeSegment})
	return nil
}

func (l *loader) setAside(num uint64) bool {
	for _, name := range l.recovery.SegmentsAside {
		if strings.HasPrefix(name, segName(num)) {
			return true
		}
	}
	return false
}

// loadSegment adds one segment. Below the checkpoint its records are not read.
func (l *loader) loadSegment(num uint64, lastOne bool) error {
	h := l.headers[num]
	s := &segment{num: num, last: h.last, version: h.version, firstID: h.firstID, slots: h.slots, dataStart: h.dataStart, rewritten: h.rewritten,
		sealed: !lastOne, carried: h.carried}
	l.carried.add(s.carried)
	l.segs = append(l.segs, s)
	l.loadFormer(s)
	if !l.ckptOK && len(l.segs) == 1 {
		l.committed = h.committed
	}
	info, listed := l.known[num]
	f, err := l.openSeg(s)
	if err != nil {
		return fmt.Errorf("outbox: open %s: %w", segName(num), err)
	}
	scan := true
	switch {
	case h.rewritten && h.entries > 0 && h.entries <= h.slots && h.dataEnd >= h.dataStart:
		s.end, s.entries, scan = h.dataEnd, h.entries, false
	case listed && num < l.ckpt.seg && info.entries <= s.slots && info.dataEnd >= s.dataStart:
		s.end, s.entries, scan = info.dataEnd, info.entries, false
	}
	if scan {
		if err := l.scanTail(s, f, lastOne); err != nil {
			return err
		}
	} else {
		s.end = min(s.end, l.sizes[num])
		if err := l.loadStates(s, f); err != nil {
			return err
		}
		l.nextID = max(l.nextID, s.firstID)
	}
	if s.counts[stDamaged] > 0 {
		l.collectDamage(s, f)
	}
	if s.entries > 0 {
		s.live = (s.end - s.dataStart) * int64(s.unsettled()) / int64(s.entries)
	}
	if s != l.active && (l.mend || !s.keepArea) && (s.area == nil || s.area.flushed()) {
		l.forget(s)
	}
	return nil
}

// loadStates counts a sealed segment from its state blocks alone.
func (l *loader) loadStates(s *segment, f File) error {
	a, bad, _ := readStates(f, s, l.salt)
	s.area = a
	if l.mend {
		if err := l.confirmStates(f, s); err != nil {
			return fmt.Errorf("outbox: read %s: %w", segName(s.num), err)
		}
	}
	if len(bad) > 0 {
		s.keepArea = !l.mend
		l.repair = true
		l.restoreStates(s, f, bad)
		return l.flushStates(s)
	}
	for _, st := range a.st[:s.entries] {
		s.counts[st]++
		l.count(st, 1)
	}
	return nil
}

func (l *loader) collectDamage(s *segment, f File) {
	src := &chunkReader{f: f, end: s.end}
	track := newTrack(s.num)
	report := func(d Damage) {
		if s.area.st[d.slot] == stDamaged && !l.reported(d) {
			l.damaged = append(l.damaged, d)
		}
	}
	walk(src, l.salt, s.num, s.dataStart, s.end, func(h *recHeader, key, stream []byte) bool {
		if h.kind != kindEntry && h.kind != kindQuarantined || h.slot >= s.entries || !track.see(h, report) {
			return true
		}
		report(Damage{ID: h.id, Key: append([]byte(nil), key...), Stream: string(stream), Segment: s.num, Offset: h.off, slot: h.slot})
		return true
	}, func(from, _ int64) bool {
		track.gapAt = from
		return true
	})
	track.finish(s.entries, s.end, report)
}

func (l *loader) reported(d Damage) bool {
	for _, e := range l.damaged {
		if e.Segment == d.Segment && e.slot == d.slot {
			return true
		}
	}
	return false
}

// tail is what scanTail knows of a segment while it reads it.
type tail struct {
	s       *segment
	src     *chunkReader
	items   []recHeader
	gaps    []gapRange
	commits map[int]commitBody // by index of the item
}

type gapRange struct{ from, to int64 }

// scanTail reads the records of a segment that the checkpoint does not cover.
func (l *loader) scanTail(s *segment, f File, lastOne bool) error {
	size := l.sizes[s.num]
	t := &tail{s: s, src: &chunkReader{f: f, end: size}, commits: map[int]commitBody{}}
	walk(t.src, l.salt, s.num, s.dataStart, size, func(h *recHeader, _, _ []byte) bool {
		if h.corrected {
			l.recovery.HeadersCorrected++
		}
		t.items = append(t.items, *h)
		return true
	}, func(from, to int64) bool {
		t.gaps = append(t.gaps, gapRange{from, to})
		return true
	})
	line := size // below it everything had been synced
	if lastOne {
		line = s.dataStart
		if l.ckptOK && l.ckpt.seg == s.num {
			line = max(line, min(l.ckpt.off, size))
		}
	}
	for i := range t.items {
		h := &t.items[i]
		if h.kind != kindCommit {
			continue
		}
		p := append([]byte(nil), t.src.at(h.payloadOff(), h.payloadLen)...)
		if len(p) != h.payloadLen || !mendPayload(p, h.payloadCRC) {
			t.gaps = append(t.gaps, gapRange{h.off, h.end()})
			continue
		}
		if c, ok := decodeCommit(p); ok {
			t.commits[i] = c
			if lastOne && c.durable <= h.off {
				line = max(line, c.durable)
			}
		}
	}
	defer func() { l.recovery.ScannedBytes += t.src.read }()

	a, bad, _ := readStates(f, s, l.salt)
	s.area, s.keepArea = a, !l.mend
	if l.mend {
		if err := l.confirmStates(f, s); err != nil {
			return fmt.Errorf("outbox: read %s: %w", segName(s.num), err)
		}
	}
	for _, i := range bad {
		a.blk[i].dirty = true
	}
	l.recovery.StateBlocksLost += len(bad)

	// Below the line every record counts.
	i := 0
	gap := false
	for ; i < len(t.items) && t.items[i].off < line; i++ {
		gap = l.accept(t, i, gap)
	}
	s.end = min(line, size)
	if n := len(t.gaps); lastOne && n > 0 && t.gaps[n-1].to >= s.end && t.gaps[n-1].from < s.end {
		s.end = t.gaps[n-1].from // nothing readable is behind it
	}
	if info, ok := l.known[s.num]; ok && l.ckpt.seg == s.num {
		s.entries = max(s.entries, min(info.entries, s.slots)) // what was cut off is missed
	}
	s.gaps = len(t.gaps) > 0
	if next, ok := l.headers[s.last+1]; ok && !lastOne && !next.rebuilt {
		l.missTail(s, int64(next.firstID)-int64(max(l.nextID, s.firstID)))
	}
	voids := []gapRange{}
	if lastOne {
		voids = l.lastGroup(t, i, line)
	}
	track := newTrack(s.num)
	end := s.end
	lost := func(d Damage) { l.lose(s, d) }
	for j := range t.items {
		h := &t.items[j]
		if h.off >= end || h.kind != kindEntry && h.kind != kindQuarantined || h.slot >= s.entries || inside(voids, h.off) {
			continue
		}
		for _, g := range t.gaps {
			if g.to == h.off {
				track.gapAt = g.from
			}
		}
		track.see(h, lost)
	}
	track.finish(s.entries, end, lost)
	l.nextID = max(l.nextID, s.firstID)

	clear := false
	for slot := range a.st {
		if uint32(slot) >= s.entries && a.st[slot] != stWritten {
			a.st[slot] = stWritten
			a.blk[slot/blockStates].dirty = true
			clear = true
		}
	}
	for _, st := range a.st[:s.entries] {
		s.counts[st]++
		l.count(st, 1)
	}
	if !l.mend {
		return nil
	}
	return l.mendTail(s, f, t.src, voids, line, size, clear, lastOne)
}

// missTail counts in what is cut off at the end of a segment that another one follows, where
// ids ids do not turn up. Quarantined entries have slots beside these; their states show them.
func (l *loader) missTail(s *segment, ids int64) {
	if ids <= 0 {
		return
	}
	s.gaps = true
	if !l.ckptOK {
		l.doubt = true // ids may have been left out as well
		return
	}
	n := int64(s.entries) + ids
	for _, st := range s.area.st[s.entries:] {
		if st != stWritten {
			n++
		}
	}
	s.entries = uint32(min(n, int64(s.slots)))
}

func inside(rs []gapRange, off int64) bool {
	for _, r := range rs {
		if r.from <= off && off < r.to {
			return true
		}
	}
	return false
}

// lose marks a slot whose record is gone, before the counts are made.
func (l *loader) lose(s *segment, d Damage) {
	switch s.area.st[d.slot] {
	case stWritten, stPendingAgain, stHeld, stRefused, stUnknown:
	default:
		return
	}
	s.area.st[d.slot] = stDamaged
	s.area.blk[d.slot/blockStates].dirty = true
	l.damaged = append(l.damaged, d)
	l.log.Error("outbox: an entry is damaged on disk and lost here; its owner can capture it again", "segment", d.Segment, "offset", d.Offset, "id", uint64(d.ID))
}

// accept takes one record of the log as committed. gap says that something unreadable came
// before it since the last commit.
func (l *loader) accept(t *tail, i int, gap bool) bool {
	h, s := &t.items[i], t.s
	after := !l.ckptOK || s.num > l.ckpt.seg || s.num == l.ckpt.seg && h.off >= l.ckpt.off
	for _, g := range t.gaps {
		gap = gap || g.to == h.off
	}
	switch h.kind {
	case kindEntry, kindQuarantined:
		if h.slot >= s.slots {
			return gap
		}
		s.entries = max(s.entries, h.slot+1)
		l.nextID = max(l.nextID, h.id+1)
		if st := h.initialState(); st != stWritten && s.area.st[h.slot] == stWritten {
			s.area.st[h.slot] = st
			s.area.blk[h.slot/blockStates].dirty = true
		}
		if after && h.kind == kindEntry {
			l.committed++
		}
		if after && h.kind == kindQuarantined {
			if p := t.src.at(h.payloadOff(), 8); len(p) == 8 {
				r := redo{source: le.Uint64(p), id: h.id, seg: s, off: h.off, slot: h.slot}
				l.redo = append(l.redo, r)
				if _, _, stream, ok := readRecHeader(t.src, l.salt, s.num, h.off, true); ok {
					if from := l.findSeg(r.source); from != nil {
						l.inheritFormer(s, from, string(stream))
					} else {
						l.orphans = append(l.orphans, orphan{s, r.source, string(stream)})
					}
				}
			}
		}
	case kindCommit:
		c, ok := t.commits[i]
		if !ok {
			return true
		}
		l.nextID = max(l.nextID, h.id)
		if after {
			if gap {
				l.committed = max(l.committed, c.committed)
			}
			eachDelta(c.deltas, c.count, func(k, v []byte, del bool) {
				l.noteFormer(s, string(k))
				l.setCursor(string(k), v, del)
			})
		}
		return false
	}
	return gap
}

// lastGroup judges the batches above the line: whole ones count, the others are void.
func (l *loader) lastGroup(t *tail, from int, line int64) (voids []gapRange) {
	s := t.s
	cur := line
	void := func(upTo int64) {
		if upTo > cur {
			voids = append(voids, gapRange{cur, upTo})
			l.recovery.TornBatches++
		}
	}
	for i := from; i < len(t.items); i++ {
		c := &t.items[i]
		if c.kind != kindCommit {
			// Not even a torn batch may make an id come twice.
			if c.kind != kindVoid {
				l.nextID = max(l.nextID, c.id+1)
			} else if c.off == cur {
				cur = c.end()
			}
			continue
		}
		if _, ok := t.commits[i]; !ok {
			continue
		}
		start := c.off - int64(c.batchOff)
		first, whole := i, start >= cur
		n := uint32(0)
		at := c.off
		for first > from && t.items[first-1].off >= max(start, cur) {
			first--
			h := &t.items[first]
			whole = whole && h.end() == at && h.kind != kindVoid && h.kind != kindCommit && l.payloadOK(t, h)
			at = h.off
			n++
		}
		whole = whole && at == start && n == c.slot
		switch {
		case whole:
			void(start)
		case start >= cur && l.settledAny(t, first, i):
			// Entries of it were delivered, so it had been synced: this is damage.
			void(start)
			for j := first; j < i; j++ {
				if h := &t.items[j]; h.slot < s.slots && !l.payloadOK(t, h) {
					_, key, stream, _ := readRecHeader(t.src, l.salt, s.num, h.off, true)
					l.lose(s, Damage{ID: h.id, Key: append([]byte(nil), key...), Stream: string(stream), Segment: s.num, Offset: h.off, slot: h.slot})
				}
			}
		default:
			void(c.end())
			cur = c.end()
			continue
		}
		gap := !whole
		for j := first; j <= i; j++ {
			gap = l.accept(t, j, gap)
		}
		cur = c.end()
		s.end = cur
	}
	// A void that nothing follows is cut instead.
	for len(voids) > 0 && voids[len(voids)-1].to > s.end {
		voids = voids[:len(voids)-1]
	}
	for _, v := range voids {
		for j := from; j < len(t.items); j++ {
			if h := &t.items[j]; inside([]gapRange{v}, h.off) && (h.kind == kindEntry || h.kind == kindQuarantined) && h.slot < s.slots {
				s.area.st[h.slot] = stMoved
				s.area.blk[h.slot/blockStates].dirty = true
			}
		}
	}
	if len(voids) > 0 {
		l.voidSlots(t, voids, line)
	}
	if torn := t.src.end - s.end; torn > 0 {
		l.recovery.TornBytes += torn
		if len(voids) == 0 && l.recovery.TornBatches == 0 {
			l.recovery.TornBatches = 1
		}
	}
	return voids
}

// voidSlots takes the slots of void batches out of the count, those with unreadable headers too.
func (l *loader) voidSlots(t *tail, voids []gapRange, line int64) {
	s := t.s
	seen := make(map[uint32]bool)
	low := uint32(0)
	for i := range t.items {
		h := &t.items[i]
		if h.kind != kindEntry && h.kind != kindQuarantined || h.off >= s.end || inside(voids, h.off) {
			continue
		}
		if h.off < line {
			low = max(low, h.slot+1)
		} else {
			seen[h.slot] = true
		}
	}
	for slot := low; slot < s.entries; slot++ {
		if !seen[slot] && s.area.st[slot] == stWritten {
			s.area.st[slot] = stMoved
			s.area.blk[slot/blockStates].dirty = true
		}
	}
}

func (l *loader) payloadOK(t *tail, h *recHeader) bool {
	p := t.src.at(h.payloadOff(), h.payloadLen)
	return len(p) == h.payloadLen && checksum(p) == h.payloadCRC
}

func (l *loader) settledAny(t *tail, from, to int) bool {
	for i := from; i < to; i++ {
		h := &t.items[i]
		if h.slot >= t.s.slots {
			continue
		}
		switch t.s.area.st[h.slot] {
		case stAcked, stDiscarded, stPendingAgain, stDamaged, stDamagedDone, stMoved:
			return true
		}
	}
	return false
}

// mendTail makes the file what loadSegment took it for.
func (l *loader) mendTail(s *segment, f File, src *chunkReader, voids []gapRange, line, size int64, clear, lastOne bool) error {
	fail := func(err error) error { return fmt.Errorf("outbox: mend %s: %w", segName(s.num), err) }
	// A process whose sync failed may have left the last group in the page cache as if it were
	// on disk: write it once more.
	for off := line; lastOne && off < s.end; {
		b := src.at(off, int(min(s.end-off, chunkSize)))
		if len(b) == 0 {
			break
		}
		if _, err := f.WriteAt(b, off); err != nil {
			return fail(err)
		}
		off += int64(len(b))
	}
	for _, v := range voids {
		var b [recHeaderSize]byte
		h := recHeader{kind: kindVoid, payloadLen: int(v.to-v.from) - recHeaderSize}
		h.put(b[:])
		h.seal(b[:], l.salt, s.num, v.from)
		if _, err := f.WriteAt(b[:], v.from); err != nil {
			return fail(err)
		}
		l.repair = true
	}
	if lastOne && size > s.end {
		if err := f.Truncate(s.end); err != nil {
			return fail(err)
		}
		l.repair = true
	}
	if err := l.flushStates(s); err != nil {
		return fail(err)
	}
	failpoint("start: tail mended, not synced")
	// What was read may be in the page cache only, from a process that was killed.
	if err := f.Sync(); err != nil {
		return fail(err)
	}
	l.settleBlocks(f, s, s.wseq)
	if clear {
		// A stale "acked" must not come back from the twin for a new entry in that slot.
		if err := f.Sync(); err != nil {
			return fail(err)
		}
	}
	return nil
}

// redoMoves marks predecessors of quarantined entries where the crash came between.
func (l *loader) redoMoves() error {
	for _, r := range l.redo {
		s := l.findSeg(r.source)
		if s == nil {
			continue
		}
		f, err := l.openSeg(s)
		if err != nil {
			return fmt.Errorf("outbox: open %s: %w", segName(s.num), err)
		}
		a, err := l.states(s)
		if err != nil {
			return fmt.Errorf("outbox: read %s: %w", segName(s.num), err)
		}
		s.keepArea = s.keepArea || !l.mend
		src := &chunkReader{f: f, end: s.end}
		walk(src, l.salt, s.num, s.dataStart, s.end, func(h *recHeader, _, _ []byte) bool {
			if h.id != r.id || h.kind == kindCommit || h.kind == kindVoid || h.slot >= s.entries || s == r.seg && h.off >= r.off {
				return true
			}
			switch a.st[h.slot] {
			case stWritten, stPendingAgain, stHeld, stRefused, stUnknown:
				err = errors.Join(err, l.setState(s, h.slot, stMoved))
			case stAcked, stDiscarded:
				// The quarantine failed and could not be rolled back, the entry was settled after that.
				r.seg.keepArea = r.seg.keepArea || !l.mend
				err = errors.Join(err, l.setState(r.seg, r.slot, stMoved))
			}
			return true
		}, func(int64, int64) bool { return true })
		if l.mend {
			err = errors.Join(err, l.flushStates(s), l.flushStates(r.seg))
		}
		if err != nil {
			return fmt.Errorf("outbox: mark moved entries: %w", err)
		}
	}
	return nil
}

// unaccounted is the running total of the log less what the states account for.
func (l *loader) unaccounted() int64 {
	b := &l.byState
	here := b[stWritten] + b[stPendingAgain] + b[stAcked] + b[stRefused] + b[stUnknown] + b[stHeld] + b[stDiscarded] + b[stDamaged] + b[stDamagedDone]
	gone := l.base.acked + l.base.discarded + l.base.lost + l.carried.acked + l.carried.discarded + l.carried.lost
	return l.committed - here - gone
}

// account compares the running total of the log with the states. They differ only when
// damage took entries without a trace; those are lost ones then.
func (l *loader) account() error {
	switch diff := l.unaccounted(); {
	case diff > 0:
		l.base.lost += diff
		l.recovery.Unaccounted = diff
		l.repair = true
		l.doubt = l.doubt || !l.lostSegment
	case diff < 0:
		l.committed -= diff
		l.recovery.Unaccounted = diff
		l.repair = true
	}
	// Without a checkpoint nobody knows which segments there were, unless they are all there.
	if !l.ckptOK {
		whole := uint64(1)
		for _, s := range l.segs {
			if s.num == whole {
				whole = s.last + 1
			}
		}
		l.doubt = l.doubt || whole <= l.highest
	}
	if l.doubt && !l.setAside(nowhere) {
		return l.markMissing(nowhere)
	}
	return nil
}

// nowhere is the segment of a loss of which it is not even known where it was.
const nowhere = 0
