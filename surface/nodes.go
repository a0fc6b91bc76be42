package surface

import (
	"slices"
	"sort"
)

// nodeList is the ordered list of the live nodes.
//
// Every append takes a new slot at the end, so slots stand in surface order. A
// replace puts the new node into the slot where its span started and lets it
// own the slots of the whole span:
//
//	slots   0    1    2    3    4    5        replace 1..3 by seq 9
//	seq     10   11   12   13   14   15
//	width   1    1    1    1    1    1
//
//	seq     10   9    ·    ·    14   15
//	width   1    3    ·    ·    1    1
//
// The order of two nodes is the order of their slots, and the node behind one
// is found by its width: neither takes a walk. Seqs only ever grow, so an index
// that is appended to stays sorted and finds a slot by bisection.
type nodeList struct {
	slots []slot
	seqs  []int64 // of every node that got a slot, live or not, ascending
	where []int32 // its slot; the node is live while the slot has its seq
	live  int
	chain chain
}

type slot struct {
	seq    int64
	digest digest
	width  uint32 // slots that the node owns, itself included
	kind   kind
}

// packSlack is the number of dead entries that are never worth packing for.
const packSlack = 64

// find returns the slot of a live node.
func (l *nodeList) find(seq int64) (int, bool) {
	i := sort.Search(len(l.seqs), func(i int) bool { return l.seqs[i] >= seq })
	if i == len(l.seqs) || l.seqs[i] != seq {
		return 0, false
	}
	at := int(l.where[i])
	return at, l.slots[at].seq == seq
}

// next returns the slot of the node behind the one at i.
func (l *nodeList) next(i int) int { return i + int(l.slots[i].width) }

func (l *nodeList) append(seq int64, k kind, d digest) {
	l.seqs = append(l.seqs, seq)
	l.where = append(l.where, int32(len(l.slots)))
	l.slots = append(l.slots, slot{seq: seq, digest: d, width: 1, kind: k})
	l.live++
}

// replace puts a node in the place of the shadowed nodes from slot start to
// slot end, both included.
func (l *nodeList) replace(start, end, shadowed int, seq int64, k kind, d digest) {
	l.chain.cut(start)
	stop := l.next(end)
	for i := start; i < stop; {
		next := l.next(i)
		l.slots[i] = slot{seq: -1}
		i = next
	}
	l.slots[start] = slot{seq: seq, digest: d, width: uint32(stop - start), kind: k}
	l.seqs = append(l.seqs, seq)
	l.where = append(l.where, int32(start))
	l.live -= shadowed - 1
	if len(l.seqs) > 2*l.live+packSlack {
		l.pack()
	}
}

// pack drops dead slots and dead index entries.
func (l *nodeList) pack() {
	packed := make([]slot, 0, l.live+l.live/2+packSlack)
	for i := 0; i < len(l.slots); {
		next := l.next(i)
		n := l.slots[i]
		l.slots[i].width = uint32(len(packed)) // where the node has gone
		n.width = 1
		packed = append(packed, n)
		i = next
	}
	for i := range l.chain.points {
		l.chain.points[i].slot = int(l.slots[l.chain.points[i].slot].width)
	}
	if l.chain.slot < len(l.slots) {
		l.chain.slot = int(l.slots[l.chain.slot].width)
	} else {
		l.chain.slot = len(packed)
	}
	live := 0
	for i, seq := range l.seqs {
		if old := l.slots[l.where[i]]; old.seq == seq {
			l.seqs[live], l.where[live] = seq, int32(old.width)
			live++
		}
	}
	l.seqs, l.where, l.slots = l.seqs[:live], l.where[:live], packed
}

func (l *nodeList) appendSeqs(dst []int64) []int64 {
	dst = slices.Grow(dst, l.live)
	for i := 0; i < len(l.slots); i = l.next(i) {
		dst = append(dst, l.slots[i].seq)
	}
	return dst
}

// backward walks the seqs of the nodes from the last one to the first.
func (l *nodeList) backward(yield func(seq int64) bool) {
	for i := len(l.slots) - 1; i >= 0; i-- {
		if seq := l.slots[i].seq; seq >= 0 && !yield(seq) {
			return
		}
	}
}

func (l *nodeList) hash() [32]byte { return l.chain.read(l) }

func (l *nodeList) clone() nodeList {
	c := *l
	c.slots = slices.Clone(l.slots)
	c.seqs = slices.Clone(l.seqs)
	c.where = slices.Clone(l.where)
	c.chain.points = slices.Clone(l.chain.points)
	return c
}
