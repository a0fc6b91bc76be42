package outbox

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"sync"
)

// The layout is specified in docs/outbox-format.md; the names here follow that page.
const (
	formatVersion = 2

	pageSize       = 4096
	blockSize      = 512
	blockStates    = blockSize - 8
	slotsPerPage   = pageSize / blockSize * blockStates // 4032
	segHeaderSize  = 112
	recHeaderSize  = 40
	commitFixed    = 20
	quarFixed      = 20
	ckptHeaderSize = 40
	ckptBodyFixed  = 9*8 + 4 + 4 // of version 1, the least there is
	ckptSegSize    = 4*8 + 3*4
	deltaFixed     = 6

	formerHeaderSize = 56

	maxName    = 1<<16 - 1
	maxPayload = 64 << 20
	maxWords   = 4 << 10

	valueDeleted = 1<<32 - 1
)

const (
	segMagic  = "OTBOUTBX"
	ckptMagic = "OTBCHECK"
	// formerMagic begins the file with the former values of a segment's cursors.
	formerMagic = "OTBFORMR"
	marker      = uint32(0x9A424FF5)
)

const (
	kindEntry       = 1
	kindCommit      = 2
	kindQuarantined = 3
	kindVoid        = 4

	flagHeld    = 1
	flagUnknown = 2

	flagRewritten = 1
)

// State bytes.
const (
	stWritten byte = iota
	stAcked
	stRefused
	stUnknown
	stHeld
	stDiscarded
	stDamaged
	stDamagedDone
	stMoved
	stPendingAgain
	numStates
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func checksum2(a, b []byte) uint32 { return crc32.Update(checksum(a), castagnoli, b) }

// checksumAt is the crc that ties b to its place.
func checksumAt(salt, a, b uint64, first, second []byte) uint32 {
	p := prefixes.Get().(*[24]byte)
	le.PutUint64(p[0:], salt)
	le.PutUint64(p[8:], a)
	le.PutUint64(p[16:], b)
	c := crc32.Update(0, castagnoli, p[:])
	prefixes.Put(p)
	return crc32.Update(crc32.Update(c, castagnoli, first), castagnoli, second)
}

// prefixes are reused because crc32 lets its argument escape.
var prefixes = sync.Pool{New: func() any { return new([24]byte) }}

func align8(n int64) int64 { return (n + 7) &^ 7 }

func dataStartFor(slots uint32) int64 {
	return 2*pageSize + 2*int64(slots/slotsPerPage)*pageSize
}

func roundSlots(n int64) uint32 {
	if n < 1 {
		n = 1
	}
	return uint32((n + slotsPerPage - 1) / slotsPerPage * slotsPerPage)
}

// segHeader is the first page of a segment, and its copy before the data.
type segHeader struct {
	version   uint32
	rewritten bool
	num, last uint64
	salt      uint64
	firstID   ID
	slots     uint32
	dataStart int64
	made      int64
	carried   totals
	committed int64
	entries   uint32 // of a rewritten segment
	dataEnd   int64  // of a rewritten segment

	rebuilt bool // found from its records
}

// totals of entries that are gone.
type totals struct{ acked, discarded, lost int64 }

func (t *totals) add(u totals) {
	t.acked += u.acked
	t.discarded += u.discarded
	t.lost += u.lost
}

func (h *segHeader) encode(b []byte) {
	clear(b[:segHeaderSize])
	copy(b, segMagic)
	le.PutUint32(b[8:], h.version)
	if h.rewritten {
		le.PutUint32(b[12:], flagRewritten)
	}
	le.PutUint64(b[16:], h.num)
	le.PutUint64(b[24:], h.last)
	le.PutUint64(b[32:], h.salt)
	le.PutUint64(b[40:], uint64(h.firstID))
	le.PutUint32(b[48:], h.slots)
	le.PutUint32(b[52:], uint32(h.dataStart))
	le.PutUint64(b[56:], uint64(h.made))
	le.PutUint64(b[64:], uint64(h.carried.acked))
	le.PutUint64(b[72:], uint64(h.carried.discarded))
	le.PutUint64(b[80:], uint64(h.carried.lost))
	le.PutUint64(b[88:], uint64(h.committed))
	le.PutUint32(b[96:], h.entries)
	le.PutUint64(b[100:], uint64(h.dataEnd))
	le.PutUint32(b[108:], checksum(b[:108]))
}

// decodeSegHeader reports false when b is not a genuine header. The version stands in
// the same place in all versions, so a newer one is told from damage.
func decodeSegHeader(b []byte) (h segHeader, ok bool) {
	if len(b) < segHeaderSize || string(b[:8]) != segMagic || le.Uint32(b[108:]) != checksum(b[:108]) {
		return h, false
	}
	h = segHeader{
		version:   le.Uint32(b[8:]),
		rewritten: le.Uint32(b[12:])&flagRewritten != 0,
		num:       le.Uint64(b[16:]),
		last:      le.Uint64(b[24:]),
		salt:      le.Uint64(b[32:]),
		firstID:   ID(le.Uint64(b[40:])),
		slots:     le.Uint32(b[48:]),
		dataStart: int64(le.Uint32(b[52:])),
		made:      int64(le.Uint64(b[56:])),
		carried:   totals{int64(le.Uint64(b[64:])), int64(le.Uint64(b[72:])), int64(le.Uint64(b[80:]))},
		committed: int64(le.Uint64(b[88:])),
		entries:   le.Uint32(b[96:]),
		dataEnd:   int64(le.Uint64(b[100:])),
	}
	if h.version > formatVersion {
		return h, true
	}
	if h.slots == 0 || h.slots%slotsPerPage != 0 || h.dataStart != dataStartFor(h.slots) || h.last < h.num {
		return h, false
	}
	return h, true
}

// recHeader is the header of one record, at off in its segment.
type recHeader struct {
	kind       byte
	flags      byte
	keyLen     int
	streamLen  int
	payloadLen int
	id         ID
	slot       uint32
	batchOff   uint32
	payloadCRC uint32

	off       int64
	corrected bool
}

func (h *recHeader) metaLen() int64    { return recHeaderSize + int64(h.keyLen) + int64(h.streamLen) }
func (h *recHeader) size() int64       { return align8(h.metaLen() + int64(h.payloadLen)) }
func (h *recHeader) end() int64        { return h.off + h.size() }
func (h *recHeader) payloadOff() int64 { return h.off + h.metaLen() }

// initialState is the state that the record itself tells.
func (h *recHeader) initialState() byte {
	switch {
	case h.kind == kindQuarantined && h.flags&flagUnknown != 0:
		return stUnknown
	case h.kind == kindQuarantined:
		return stRefused
	case h.flags&flagHeld != 0:
		return stHeld
	}
	return stWritten
}

// put writes everything but the crc of the header.
func (h *recHeader) put(b []byte) {
	le.PutUint32(b[0:], marker)
	b[4] = h.kind
	b[5] = h.flags
	le.PutUint16(b[6:], uint16(h.keyLen))
	le.PutUint16(b[8:], uint16(h.streamLen))
	le.PutUint16(b[10:], 0)
	le.PutUint32(b[12:], uint32(h.payloadLen))
	le.PutUint64(b[16:], uint64(h.id))
	le.PutUint32(b[24:], h.slot)
	le.PutUint32(b[28:], h.batchOff)
	le.PutUint32(b[32:], h.payloadCRC)
}

// seal writes the crc of the header: b begins with the record, key and stream included.
func (h *recHeader) seal(b []byte, salt, seg uint64, off int64) {
	le.PutUint32(b[36:], checksumAt(salt, seg, uint64(off), b[:36], b[recHeaderSize:h.metaLen()]))
}

func parseFixed(b []byte) (h recHeader, ok bool) {
	h = recHeader{
		kind:       b[4],
		flags:      b[5],
		keyLen:     int(le.Uint16(b[6:])),
		streamLen:  int(le.Uint16(b[8:])),
		payloadLen: int(le.Uint32(b[12:])),
		id:         ID(le.Uint64(b[16:])),
		slot:       le.Uint32(b[24:]),
		batchOff:   le.Uint32(b[28:]),
		payloadCRC: le.Uint32(b[32:]),
	}
	ok = le.Uint32(b) == marker && h.kind >= kindEntry && h.kind <= kindVoid && le.Uint16(b[10:]) == 0
	return h, ok
}

// source gives n bytes at off, or fewer at the end. The slice is valid until the next call.
type source interface {
	at(off int64, n int) []byte
	size() int64
}

// readRecHeader reads the record header at off. With correct set, a header with exactly
// one wrong bit is mended; the returned key and stream are copies then.
func readRecHeader(src source, salt, seg uint64, off int64, correct bool) (h recHeader, key, stream []byte, ok bool) {
	b := src.at(off, recHeaderSize)
	if len(b) < recHeaderSize {
		return h, nil, nil, false
	}
	if h, ok = parseFixed(b); ok {
		h.off = off
		if h.end() <= src.size() || h.payloadOff()+int64(h.payloadLen) <= src.size() {
			if b = src.at(off, int(h.metaLen())); int64(len(b)) == h.metaLen() {
				meta := b[recHeaderSize:]
				if checksumAt(salt, seg, uint64(off), b[:36], meta) == le.Uint32(b[36:]) {
					return h, meta[:h.keyLen], meta[h.keyLen:], true
				}
			}
		}
	}
	if !correct {
		return h, nil, nil, false
	}
	return correctRecHeader(src, salt, seg, off)
}

// correctRecHeader tries every single bit. CRC-32C tells all single-bit errors of a
// header from one another; a header that is wrong in more ways passes by chance once in
// 2^32 tries, and the payload's own crc stands behind it.
func correctRecHeader(src source, salt, seg uint64, off int64) (recHeader, []byte, []byte, bool) {
	var fixed [recHeaderSize]byte
	raw := src.at(off, recHeaderSize)
	if len(raw) < recHeaderSize {
		return recHeader{}, nil, nil, false
	}
	copy(fixed[:], raw)
	// More than one wrong bit in the marker: not worth the search.
	if bits.OnesCount32(le.Uint32(fixed[:])^marker) > 1 {
		return recHeader{}, nil, nil, false
	}
	accept := func(f [recHeaderSize]byte) (recHeader, []byte, []byte, bool) {
		h, ok := parseFixed(f[:])
		h.off, h.corrected = off, true
		if !ok || h.payloadOff()+int64(h.payloadLen) > src.size() {
			return h, nil, nil, false
		}
		b := src.at(off, int(h.metaLen()))
		if int64(len(b)) < h.metaLen() || checksumAt(salt, seg, uint64(off), f[:36], b[recHeaderSize:]) != le.Uint32(f[36:]) {
			return h, nil, nil, false
		}
		meta := append([]byte(nil), b[recHeaderSize:]...)
		return h, meta[:h.keyLen], meta[h.keyLen:], true
	}
	for i := range recHeaderSize * 8 {
		f := fixed
		f[i/8] ^= 1 << (i % 8)
		if h, k, s, ok := accept(f); ok {
			return h, k, s, true
		}
	}
	h, ok := parseFixed(fixed[:])
	h.off, h.corrected = off, true
	if !ok || h.payloadOff()+int64(h.payloadLen) > src.size() || h.keyLen+h.streamLen > 8<<10 {
		return h, nil, nil, false
	}
	b := src.at(off, int(h.metaLen()))
	if int64(len(b)) < h.metaLen() {
		return h, nil, nil, false
	}
	meta := append([]byte(nil), b[recHeaderSize:]...)
	want := le.Uint32(fixed[36:])
	for i := range len(meta) * 8 {
		meta[i/8] ^= 1 << (i % 8)
		if checksumAt(salt, seg, uint64(off), fixed[:36], meta) == want {
			return h, meta[:h.keyLen], meta[h.keyLen:], true
		}
		meta[i/8] ^= 1 << (i % 8)
	}
	return h, nil, nil, false
}

// mendPayload corrects one wrong bit of a commit's payload, which holds cursors that no
// other place has. It is not used for entries.
func mendPayload(p []byte, want uint32) bool {
	if checksum(p) == want {
		return true
	}
	if len(p) > 8<<10 {
		return false
	}
	for i := range len(p) * 8 {
		p[i/8] ^= 1 << (i % 8)
		if checksum(p) == want {
			return true
		}
		p[i/8] ^= 1 << (i % 8)
	}
	return false
}

type commitBody struct {
	durable   int64
	committed int64
	deltas    []byte
	count     int
}

func decodeCommit(p []byte) (c commitBody, ok bool) {
	if len(p) < commitFixed {
		return c, false
	}
	c = commitBody{
		durable:   int64(le.Uint64(p)),
		committed: int64(le.Uint64(p[8:])),
		count:     int(le.Uint32(p[16:])),
		deltas:    p[commitFixed:],
	}
	return c, true
}

func appendDelta[B []byte | string](b []byte, key string, value B, del bool) []byte {
	b = le.AppendUint16(b, uint16(len(key)))
	if del {
		b = le.AppendUint32(b, valueDeleted)
	} else {
		b = le.AppendUint32(b, uint32(len(value)))
	}
	b = append(b, key...)
	return append(b, value...)
}

// eachDelta calls fn for count deltas and returns what follows them.
func eachDelta(p []byte, count int, fn func(key, value []byte, del bool)) (rest []byte, ok bool) {
	for range count {
		if len(p) < deltaFixed {
			return p, false
		}
		kl, vl := int(le.Uint16(p)), le.Uint32(p[2:])
		p = p[deltaFixed:]
		del := vl == valueDeleted
		if del {
			vl = 0
		}
		if uint64(len(p)) < uint64(kl)+uint64(vl) {
			return p, false
		}
		fn(p[:kl], p[kl:kl+int(vl)], del)
		p = p[kl+int(vl):]
	}
	return p, true
}

type quarBody struct {
	source  uint64
	time    int64
	reason  []byte
	words   []byte
	payload []byte
}

func appendQuar(b []byte, q *quarBody) []byte {
	b = le.AppendUint64(b, q.source)
	b = le.AppendUint64(b, uint64(q.time))
	b = le.AppendUint16(b, uint16(len(q.reason)))
	b = le.AppendUint16(b, uint16(len(q.words)))
	b = append(b, q.reason...)
	b = append(b, q.words...)
	return append(b, q.payload...)
}

func decodeQuar(p []byte) (q quarBody, ok bool) {
	if len(p) < quarFixed {
		return q, false
	}
	rl, wl := int(le.Uint16(p[16:])), int(le.Uint16(p[18:]))
	if len(p) < quarFixed+rl+wl {
		return q, false
	}
	q = quarBody{source: le.Uint64(p), time: int64(le.Uint64(p[8:]))}
	p = p[quarFixed:]
	q.reason, q.words, q.payload = p[:rl], p[rl:rl+wl], p[rl+wl:]
	return q, true
}

// encodeBlock writes state block i of a segment.
func encodeBlock(b []byte, salt, seg uint64, i int, gen uint32, states []byte) {
	clear(b[:blockSize])
	le.PutUint32(b[4:], gen)
	copy(b[8:blockSize], states)
	le.PutUint32(b, checksumAt(salt, seg, uint64(i), b[4:blockSize], nil))
}

// decodeBlock reports whether b is genuine; in version 1 a block of zeros is.
func decodeBlock(b []byte, version uint32, salt, seg uint64, i int) (gen uint32, ok bool) {
	if le.Uint32(b) == checksumAt(salt, seg, uint64(i), b[4:blockSize], nil) {
		return le.Uint32(b[4:]), true
	}
	if version > 1 {
		return 0, false
	}
	for _, c := range b[:blockSize] {
		if c != 0 {
			return 0, false
		}
	}
	return 0, true
}

// checkpoint is the body of a slot, its cursors apart.
type checkpoint struct {
	gen       uint64
	salt      uint64
	nextID    ID
	seg       uint64
	off       int64
	committed int64
	base      totals
	highest   uint64
	segs      []ckptSeg
}

type ckptSeg struct {
	num, last uint64
	firstID   ID
	dataEnd   int64
	entries   uint32
	slots     uint32
	dataStart int64
}

// encode appends cursors, and former values by segment, to the body.
func (c *checkpoint) encode(b []byte, cursors map[string]string, formers map[uint64]former) []byte {
	b = append(b[:0], make([]byte, ckptHeaderSize)...)
	for _, v := range []uint64{c.salt, uint64(c.nextID), c.seg, uint64(c.off), uint64(c.committed),
		uint64(c.base.acked), uint64(c.base.discarded), uint64(c.base.lost), c.highest} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, uint32(len(c.segs)))
	for _, s := range c.segs {
		b = le.AppendUint64(b, s.num)
		b = le.AppendUint64(b, s.last)
		b = le.AppendUint64(b, uint64(s.firstID))
		b = le.AppendUint64(b, uint64(s.dataEnd))
		b = le.AppendUint32(b, s.entries)
		b = le.AppendUint32(b, s.slots)
		b = le.AppendUint32(b, uint32(s.dataStart))
	}
	b = le.AppendUint32(b, uint32(len(cursors)))
	for k, v := range cursors {
		b = le.AppendUint16(b, uint16(len(k)))
		b = le.AppendUint32(b, uint32(len(v)))
		b = append(b, k...)
		b = append(b, v...)
	}
	b = le.AppendUint32(b, uint32(len(formers)))
	for num, f := range formers {
		b = f.append(le.AppendUint64(b, num))
	}
	copy(b, ckptMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint64(b[16:], c.gen)
	le.PutUint64(b[24:], uint64(len(b)-ckptHeaderSize))
	le.PutUint32(b[32:], checksum(b[ckptHeaderSize:]))
	le.PutUint32(b[36:], checksum(b[:36]))
	return b
}

// decodeCheckpoint reports the version it found when the header is genuine; the cursors
// are the deltas that eachDelta reads from the rest, former values stand behind them.
func decodeCheckpoint(b []byte) (c checkpoint, cursors []byte, count int, version uint32, ok bool) {
	if len(b) < ckptHeaderSize || string(b[:8]) != ckptMagic || le.Uint32(b[36:]) != checksum(b[:36]) {
		return c, nil, 0, 0, false
	}
	version = le.Uint32(b[8:])
	if version > formatVersion {
		return c, nil, 0, version, false
	}
	n := le.Uint64(b[24:])
	c.gen = le.Uint64(b[16:])
	if n < ckptBodyFixed || n > uint64(len(b)-ckptHeaderSize) {
		return c, nil, 0, version, false
	}
	p := b[ckptHeaderSize : ckptHeaderSize+int(n)]
	if checksum(p) != le.Uint32(b[32:]) {
		return c, nil, 0, version, false
	}
	c.salt, c.nextID, c.seg, c.off = le.Uint64(p), ID(le.Uint64(p[8:])), le.Uint64(p[16:]), int64(le.Uint64(p[24:]))
	c.committed = int64(le.Uint64(p[32:]))
	c.base = totals{int64(le.Uint64(p[40:])), int64(le.Uint64(p[48:])), int64(le.Uint64(p[56:]))}
	c.highest = le.Uint64(p[64:])
	segs := int(le.Uint32(p[72:]))
	p = p[76:]
	if int64(len(p)) < int64(segs)*ckptSegSize+4 {
		return c, nil, 0, version, false
	}
	for range segs {
		c.segs = append(c.segs, ckptSeg{
			num: le.Uint64(p), last: le.Uint64(p[8:]), firstID: ID(le.Uint64(p[16:])), dataEnd: int64(le.Uint64(p[24:])),
			entries: le.Uint32(p[32:]), slots: le.Uint32(p[36:]), dataStart: int64(le.Uint32(p[40:])),
		})
		p = p[ckptSegSize:]
	}
	count = int(le.Uint32(p))
	return c, p[4:], count, version, true
}
