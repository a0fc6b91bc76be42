package telemetry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/otel-bridge/otel-bridge/session"
)

// Outcomes counts what became of the events of ledgers. They add up:
//
//	Read = Exported + Withheld + Elided + Inherited + OutOfScope (+ beyond the watermark)
//
// where the last is not in a cursor, since nothing is decided about it.
type Outcomes struct {
	Read       int64 `json:"read"`
	Exported   int64 `json:"exported"`
	Withheld   int64 `json:"withheld"`
	Elided     int64 `json:"elided"`
	Inherited  int64 `json:"inherited"`
	OutOfScope int64 `json:"out_of_scope"`
	// Attempts counts ops records of attempts; they are no events.
	Attempts int64 `json:"attempts"`
}

// Add adds o's counts.
func (t *Outcomes) Add(o Outcomes) {
	t.Read += o.Read
	t.Exported += o.Exported
	t.Withheld += o.Withheld
	t.Elided += o.Elided
	t.Inherited += o.Inherited
	t.OutOfScope += o.OutOfScope
	t.Attempts += o.Attempts
}

func (t *Outcomes) fields() [7]*int64 {
	return [...]*int64{&t.Read, &t.Exported, &t.Withheld, &t.Elided, &t.Inherited, &t.OutOfScope, &t.Attempts}
}

// inheritance is what was decided about the inherited events.
type inheritance byte

const (
	inheritUndecided inheritance = iota
	inheritSkip
	inheritExport
)

// cursor is where capture of a session stands: a few hundred bytes, committed
// together with the records that it accounts for. What else capture needs to
// know (trace, surface, open stream) is rebuilt from the ledger.
type cursor struct {
	id          string // as records have it
	createdAt   int64
	version     int
	next        int64 // the seq of the next event to be decided about
	incarnation uint32
	epoch       uint32 // of the installation's consent, see Installation
	inherited   inheritance
	from        int64 // the seq after the last event that was out of scope
	feedback    int64 // the seq after the last own feedback/record, 0 without one
	lifetime    int64 // the seq after the last session/end-seed
	skipping    bool  // what stands in the ledger now is out of scope
	accepted    bool  // an operator lets the session go on where it has diverged
	truncated   []int64
	outcomes    Outcomes
	points      []point
	held        *HeldError
	fingerprint string // of the source, when nothing more could be read of it

	opened   bool     // session.opened is out
	unplaced bool     // its place behind an older generation is not found
	rested   byte     // session.idle (1) or session.ended (2) is out, and nothing came since
	span     openSpan // what no summary speaks of yet
	path     path     // of the events as every generation of the session has them
}

// Version 1 had no span and no path: it is read as one that has neither.
const cursorVersion = 2

// cursorPrefix starts the keys of session cursors in an outbox.
const cursorPrefix = "session/"

var errCursor = errors.New("cursor has another form")

// sessionKey is the name of a session in an outbox: a keyed digest, since an id
// may be content. The format version comes behind it, so that the generations
// of one session stand together.
func sessionKey(key []byte, h *session.Header) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("otel-bridge/session/1\x00"))
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(h.CreatedAt))
	mac.Write(n[:])
	mac.Write([]byte(h.ID))
	return fmt.Sprintf("%s/%d", hex.EncodeToString(mac.Sum(nil)[:16]), h.Version)
}

const (
	cursorHeld = 1 << iota
	cursorAccepted
	cursorSkipping
	cursorOpened
	cursorUnplaced
)

func (c *cursor) encode() []byte {
	var flags byte
	if c.held != nil {
		flags |= cursorHeld
	}
	if c.accepted {
		flags |= cursorAccepted
	}
	if c.skipping {
		flags |= cursorSkipping
	}
	if c.opened {
		flags |= cursorOpened
	}
	if c.unplaced {
		flags |= cursorUnplaced
	}
	b := []byte{cursorVersion, flags, byte(c.inherited)}
	b = appendString(b, c.id)
	b = binary.AppendVarint(b, c.createdAt)
	b = binary.AppendUvarint(b, uint64(c.version))
	b = binary.AppendUvarint(b, uint64(c.next))
	b = binary.AppendUvarint(b, uint64(c.incarnation))
	b = binary.AppendUvarint(b, uint64(c.epoch))
	b = binary.AppendUvarint(b, uint64(c.from))
	b = binary.AppendUvarint(b, uint64(c.feedback))
	b = binary.AppendUvarint(b, uint64(c.lifetime))
	b = binary.AppendUvarint(b, uint64(len(c.truncated)))
	for _, seq := range c.truncated {
		b = binary.AppendUvarint(b, uint64(seq))
	}
	for _, n := range c.outcomes.fields() {
		b = binary.AppendUvarint(b, uint64(*n))
	}
	b = binary.AppendUvarint(b, uint64(len(c.points)))
	last := int64(0)
	for _, p := range c.points {
		b = binary.AppendUvarint(b, uint64(p.n-last))
		b = binary.BigEndian.AppendUint64(b, p.mac)
		last = p.n
	}
	if c.held != nil {
		b = appendString(b, c.held.Code)
		b = binary.AppendUvarint(b, uint64(c.held.Seq))
	}
	b = appendString(b, c.fingerprint)
	b = append(b, c.rested)
	b = c.span.appendTo(b)
	return c.path.appendTo(b)
}

func decodeCursor(b []byte) (cursor, error) {
	if len(b) < 3 || b[0] < 1 || b[0] > cursorVersion {
		return cursor{}, errCursor
	}
	in := reader{b: b[3:]}
	c := cursor{inherited: inheritance(b[2]), accepted: b[1]&cursorAccepted != 0, skipping: b[1]&cursorSkipping != 0}
	c.id = in.string()
	c.createdAt = in.varint()
	c.version = int(in.uvarint())
	c.next = int64(in.uvarint())
	c.incarnation = uint32(in.uvarint())
	c.epoch = uint32(in.uvarint())
	c.from = int64(in.uvarint())
	c.feedback = int64(in.uvarint())
	c.lifetime = int64(in.uvarint())
	for range in.count(1) {
		c.truncated = append(c.truncated, int64(in.uvarint()))
	}
	for _, n := range c.outcomes.fields() {
		*n = int64(in.uvarint())
	}
	last := int64(0)
	for range in.count(9) {
		last += int64(in.uvarint())
		var p point
		p.n = last
		if b := in.take(8); b != nil {
			p.mac = binary.BigEndian.Uint64(b)
		}
		c.points = append(c.points, p)
	}
	if b[1]&cursorHeld != 0 {
		c.held = &HeldError{Code: in.string(), Seq: int64(in.uvarint())}
	}
	c.fingerprint = in.string()
	if b[0] > 1 {
		c.opened = b[1]&cursorOpened != 0
		c.unplaced = b[1]&cursorUnplaced != 0
		c.rested = in.byte()
		c.span = in.span()
		c.path = in.path()
	}
	if in.bad || len(in.b) > 0 {
		return cursor{}, errCursor
	}
	return c, nil
}

// truncatedAt counts the lines beyond the reader's limit among the first n
// events.
func (c *cursor) truncatedAt(n int64) int64 {
	var count int64
	for _, seq := range c.truncated {
		if seq < n {
			count++
		}
	}
	return count
}
