package outbox

// WithVersion gives the image of a segment or checkpoint another format version, its
// checksum made right.
func WithVersion(b []byte, version uint32) []byte {
	le.PutUint32(b[8:], version)
	if string(b[:8]) == segMagic {
		le.PutUint32(b[108:], checksum(b[:108]))
	} else {
		le.PutUint32(b[36:], checksum(b[:36]))
	}
	return b
}

// Datasync is the sync that the outbox uses, for the bare append beside it.
var Datasync = datasync

// Reseal makes the checksums of an edited segment or checkpoint right, as far as it can be read.
func Reseal(b []byte) []byte {
	if len(b) >= ckptHeaderSize && string(b[:8]) == ckptMagic {
		if n := le.Uint64(b[24:]); n <= uint64(len(b)-ckptHeaderSize) {
			le.PutUint32(b[32:], checksum(b[ckptHeaderSize:ckptHeaderSize+int(n)]))
		}
		le.PutUint32(b[36:], checksum(b[:36]))
		return b
	}
	if len(b) < segHeaderSize {
		return b
	}
	le.PutUint32(b[108:], checksum(b[:108]))
	h, ok := decodeSegHeader(b)
	if !ok {
		return b
	}
	for off := h.dataStart; off+recHeaderSize <= int64(len(b)); {
		r, _ := parseFixed(b[off:])
		r.off = off
		if r.payloadOff()+int64(r.payloadLen) > int64(len(b)) {
			break
		}
		le.PutUint32(b[off+32:], checksum(b[r.payloadOff():r.payloadOff()+int64(r.payloadLen)]))
		le.PutUint32(b[off+36:], checksumAt(h.salt, h.num, uint64(off), b[off:off+36], b[off+recHeaderSize:off+r.metaLen()]))
		off = r.end()
	}
	return b
}

// VersionOf reads the format version of a segment or checkpoint.
func VersionOf(b []byte) uint32 { return le.Uint32(b[8:]) }

// SpillFormers sets how many bytes of former cursors of sealed segments stay in the checkpoint,
// until the returned function is called.
func SpillFormers(limit int64) (restore func()) {
	a, b := maxFormer, maxFormerMemory
	maxFormer, maxFormerMemory = limit, limit
	return func() { maxFormer, maxFormerMemory = a, b }
}

// FormersKnown tells whether the former cursors of every segment are known that holds something.
func (o *Outbox) FormersKnown() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.segs {
		if _, ok := o.formerOf(s); !ok && s.unsettled() > 0 && s != o.active {
			return false
		}
	}
	return true
}

// Queued counts the commits that wait for the next group.
func (o *Outbox) Queued() int {
	o.qmu.Lock()
	defer o.qmu.Unlock()
	return len(o.queue)
}
