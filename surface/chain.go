package surface

import (
	"crypto/sha256"
	"encoding/binary"
)

// chain is the hash chain over the node seqs in surface order (docs/mapping.md):
// h = SHA-256(h ‖ seq as 8 bytes, big endian), starting from 32 zero bytes. It
// is extended when it is read. Checkpoints on the way keep a replace from
// costing a chain over everything in front of it.
type chain struct {
	h      [32]byte // over the nodes before slot
	slot   int
	since  int // nodes since the last checkpoint
	points []checkpoint
}

type checkpoint struct {
	slot int
	h    [32]byte
}

// checkpointEvery is a balance: each one costs 40 bytes, each node between two
// costs a replace one more SHA-256 block.
const checkpointEvery = 128

func (c *chain) read(l *nodeList) [32]byte {
	var block [40]byte
	for c.slot < len(l.slots) {
		if c.since == checkpointEvery {
			c.points = append(c.points, checkpoint{c.slot, c.h})
			c.since = 0
		}
		copy(block[:32], c.h[:])
		binary.BigEndian.PutUint64(block[32:], uint64(l.slots[c.slot].seq))
		c.h = sha256.Sum256(block[:])
		c.slot = l.next(c.slot)
		c.since++
	}
	return c.h
}

// cut forgets what the chain knows of the nodes from slot on.
func (c *chain) cut(slot int) {
	if c.slot <= slot {
		return
	}
	n := len(c.points)
	for n > 0 && c.points[n-1].slot > slot {
		n--
	}
	c.points = c.points[:n]
	c.h, c.slot, c.since = [32]byte{}, 0, 0
	if n > 0 {
		c.h, c.slot = c.points[n-1].h, c.points[n-1].slot
	}
}
