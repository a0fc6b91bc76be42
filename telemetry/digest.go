package telemetry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/bits"

	"github.com/otel-bridge/otel-bridge/session"
)

// chain is a keyed hash chain over the events of a ledger. What is stored of it
// are points: the number of events, and 8 bytes of an HMAC of the chain there.
// So a cursor tells whether the ledger still has the past that was captured,
// and gives nothing away to those who do not have the key.
type chain struct {
	key  []byte
	hash hash.Hash
	h    [32]byte
	n    int64 // events so far
	meta []byte

	recent []link // of the open turn, the oldest first
}

type link struct {
	n int64
	h [32]byte
}

// point is a stored place of a chain: the first n events have this digest.
type point struct {
	n   int64
	mac uint64
}

// recentPoints is how many events of an open turn have a point of their own,
// keptPoints how many of them keep it when the turn is over.
const (
	recentPoints = 16
	keptPoints   = 4
)

func newChain(key []byte) *chain {
	c := &chain{key: key, hash: sha256.New()}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("otel-bridge/chain/1\x00"))
	mac.Sum(c.h[:0])
	return c
}

func (c *chain) add(ev *session.Event) {
	m := append(c.meta[:0], c.h[:]...)
	m = binary.BigEndian.AppendUint64(m, uint64(ev.Seq))
	m = binary.BigEndian.AppendUint64(m, uint64(ev.Time))
	m = binary.BigEndian.AppendUint64(m, uint64(len(ev.Type)))
	m = append(m, ev.Type...)
	m = append(m, 0)
	if op := ev.SurfaceOp; op != nil {
		m[len(m)-1] |= 1
		if op.Replace {
			m[len(m)-1] |= 2
			m = binary.BigEndian.AppendUint64(m, uint64(op.Start))
			m = binary.BigEndian.AppendUint64(m, uint64(op.End))
		}
	}
	m = binary.BigEndian.AppendUint64(m, uint64(len(ev.SourceEventSeqs)))
	for _, seq := range ev.SourceEventSeqs {
		m = binary.BigEndian.AppendUint64(m, uint64(seq))
	}
	c.meta = m
	c.hash.Reset()
	c.hash.Write(m)
	c.hash.Write(ev.Data)
	c.hash.Sum(c.h[:0])
	c.n++
	if len(c.recent) == recentPoints {
		copy(c.recent, c.recent[1:])
		c.recent = c.recent[:recentPoints-1]
	}
	c.recent = append(c.recent, link{c.n, c.h})
}

func (c *chain) mac(h [32]byte) uint64 {
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte("otel-bridge/point/1\x00"))
	mac.Write(h[:])
	return binary.BigEndian.Uint64(mac.Sum(nil))
}

// here is the point after the last event.
func (c *chain) here() point { return point{c.n, c.mac(c.h)} }

// turnEnded forgets the single events of the turn but for the last ones: they
// may still be rolled back.
func (c *chain) turnEnded() {
	n := copy(c.recent, c.recent[max(0, len(c.recent)-keptPoints):])
	c.recent = c.recent[:n]
}

// points merges the points of the last events into those of turn ends.
func (c *chain) points(turns []point) []point {
	all := make([]point, 0, len(turns)+len(c.recent))
	for _, l := range c.recent {
		for len(turns) > 0 && turns[0].n <= l.n {
			all, turns = append(all, turns[0]), turns[1:]
		}
		if len(all) == 0 || all[len(all)-1].n < l.n {
			all = append(all, point{l.n, c.mac(l.h)})
		}
	}
	return append(all, turns...)
}

// thin keeps, of points that lie about as far back, the oldest one: a long
// session keeps about as many as its length has bits.
func thin(points []point) []point {
	if len(points) < 3 {
		return points
	}
	end := points[len(points)-1].n
	out := points[:0]
	bucket := -1
	for _, p := range points {
		if b := bits.Len64(uint64(end - p.n)); b != bucket {
			out = append(out, p)
			bucket = b
		}
	}
	return out
}
