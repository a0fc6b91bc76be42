package redact

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// automaton is an Aho-Corasick machine over ASCII-case-folded bytes, compiled
// to one dense transition table. States that end at least one literal are
// numbered last, so that the scan loop needs a single comparison per byte.
type automaton struct {
	class    [256]uint8 // byte -> column; bytes in no literal share column 0, bytes beyond ASCII a few
	columns  int        // a power of two
	shift    uint
	next     []uint16 // premultiplied only by shift at use: next[state<<shift|column]
	next32   []uint32 // used instead of next above 65,535 states
	firstOut uint32   // states >= firstOut have outputs
	out      [][]int32
	length   []int32  // literal id -> length in bytes
	exact    []string // literal id -> itself, to be compared, where columns do not tell it; or ""
	longest  int
}

func foldByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 32
	}
	return c
}

// newAutomaton builds the machine for the literals; the id of a literal is its
// index. Literals must not be empty; duplicates are allowed.
func newAutomaton(literals []string) *automaton {
	a := &automaton{length: make([]int32, len(literals)), exact: make([]string, len(literals))}
	used := [256]bool{}
	for _, l := range literals {
		for i := 0; i < len(l); i++ {
			used[foldByte(l[i])] = true
		}
	}
	column := 1
	for c := range 0x80 {
		if used[c] {
			a.class[c] = uint8(column)
			column++
		}
	}
	for c := 'A'; c <= 'Z'; c++ {
		a.class[c] = a.class[c+32]
	}
	a.columns = 1
	for a.columns <= column {
		a.columns <<= 1
		a.shift++
	}
	// The table has to fit a processor's cache. Bytes beyond ASCII are in few
	// literals and share the columns that are left, at least one.
	left := a.columns - column
	for c := 0x80; c < 0x100; c++ {
		if used[c] {
			a.class[c] = uint8(column + c%left)
		}
	}

	type node struct {
		next []int32
		fail int32
		out  []int32
	}
	newNode := func() node { return node{next: make([]int32, a.columns)} }
	nodes := []node{newNode()}
	for id, l := range literals {
		a.length[id] = int32(len(l))
		if strings.ContainsFunc(l, func(r rune) bool { return r >= utf8.RuneSelf }) {
			a.exact[id] = l
		}
		a.longest = max(a.longest, len(l))
		s := int32(0)
		for i := 0; i < len(l); i++ {
			c := a.class[foldByte(l[i])]
			if nodes[s].next[c] == 0 {
				nodes = append(nodes, newNode())
				nodes[s].next[c] = int32(len(nodes) - 1)
			}
			s = nodes[s].next[c]
		}
		nodes[s].out = append(nodes[s].out, int32(id))
	}
	order := make([]int32, 0, len(nodes))
	for c := 0; c < a.columns; c++ {
		if t := nodes[0].next[c]; t != 0 {
			order = append(order, t)
		}
	}
	for i := 0; i < len(order); i++ {
		s := order[i]
		f := nodes[s].fail
		nodes[s].out = append(nodes[s].out, nodes[f].out...)
		for c := 0; c < a.columns; c++ {
			t := nodes[s].next[c]
			if t == 0 {
				nodes[s].next[c] = nodes[f].next[c]
				continue
			}
			nodes[t].fail = nodes[f].next[c]
			order = append(order, t)
		}
	}
	// Renumber: silent states first.
	rank := make([]int32, len(nodes))
	for i := range rank {
		rank[i] = int32(i)
	}
	sort.SliceStable(rank, func(i, j int) bool {
		return len(nodes[rank[i]].out) == 0 && len(nodes[rank[j]].out) != 0
	})
	number := make([]int32, len(nodes))
	a.firstOut = uint32(len(nodes))
	for n, s := range rank {
		number[s] = int32(n)
		if len(nodes[s].out) != 0 {
			if uint32(n) < a.firstOut {
				a.firstOut = uint32(n)
			}
			a.out = append(a.out, nodes[s].out)
		}
	}
	wide := len(nodes) > 1<<16-1
	if wide {
		a.next32 = make([]uint32, len(nodes)*a.columns)
	} else {
		a.next = make([]uint16, len(nodes)*a.columns)
	}
	for s, n := range nodes {
		for c, t := range n.next {
			i := int(number[s])<<a.shift | c
			if wide {
				a.next32[i] = uint32(number[t])
			} else {
				a.next[i] = uint16(number[t])
			}
		}
	}
	return a
}

// hit says that a literal ends at byte end (exclusive).
type hit struct {
	literal int32
	end     int32
}

// scan appends a hit for each literal occurrence, in order of their ends.
func (a *automaton) scan(text []byte, hits []hit) []hit {
	return a.scanAt(text, 0, len(text), hits)
}

// scanAt does so for text[from:to]; positions are those in text.
func (a *automaton) scanAt(text []byte, from, to int, hits []hit) []hit {
	if a.next32 != nil {
		return a.scanWide(text, from, to, hits)
	}
	if to-from >= max(minLanes, 4*a.longest) {
		return a.scanLanes(text, from, to, hits)
	}
	return a.scanPlain(text, from, to, hits)
}

// scanPlain is the machine as it is in books: a byte, a step.
func (a *automaton) scanPlain(text []byte, from, to int, hits []hit) []hit {
	var (
		s        uint32
		next     = a.next
		class    = &a.class
		shift    = a.shift & 15
		firstOut = a.firstOut
	)
	for i, c := range text[from:to] {
		s = uint32(next[s<<shift|uint32(class[c])])
		if s >= firstOut {
			hits = a.tell(hits, text, s, from+i+1)
		}
	}
	return hits
}

// minLanes is the length from which four lanes are faster than one, the way
// that they begin early included.
const minLanes = 192

// scanLanes runs over the four quarters of a text side by side: a step waits for
// the one before it, and four machines wait at the same time. Each begins early
// enough, by the longest literal, to be in the right state where its quarter
// begins.
func (a *automaton) scanLanes(text []byte, from, to int, hits []hit) []hit {
	var (
		next       = a.next
		class      = &a.class
		shift      = a.shift & 15
		firstOut   = a.firstOut
		s, t, u, v uint32
		late       [3][32]hit
	)
	n := (to - from) / 4
	early := from - a.longest
	q1, q2, q3 := text[early+n:from+n], text[early+2*n:from+2*n], text[early+3*n:from+3*n]
	q2, q3 = q2[:len(q1)], q3[:len(q1)]
	for i, c := range q1 {
		t = uint32(next[t<<shift|uint32(class[c])])
		u = uint32(next[u<<shift|uint32(class[q2[i]])])
		v = uint32(next[v<<shift|uint32(class[q3[i]])])
	}
	q0 := text[from : from+n]
	q1, q2, q3 = text[from+n:from+2*n], text[from+2*n:from+3*n], text[from+3*n:from+4*n]
	q1, q2, q3 = q1[:len(q0)], q2[:len(q0)], q3[:len(q0)]
	h1, h2, h3 := late[0][:0], late[1][:0], late[2][:0]
	for i, c := range q0 {
		s = uint32(next[s<<shift|uint32(class[c])])
		t = uint32(next[t<<shift|uint32(class[q1[i]])])
		u = uint32(next[u<<shift|uint32(class[q2[i]])])
		v = uint32(next[v<<shift|uint32(class[q3[i]])])
		if max(s, t, u, v) < firstOut {
			continue
		}
		if s >= firstOut {
			hits = a.tell(hits, text, s, from+i+1)
		}
		if t >= firstOut {
			h1 = a.tell(h1, text, t, from+n+i+1)
		}
		if u >= firstOut {
			h2 = a.tell(h2, text, u, from+2*n+i+1)
		}
		if v >= firstOut {
			h3 = a.tell(h3, text, v, from+3*n+i+1)
		}
	}
	hits = append(append(append(hits, h1...), h2...), h3...)
	for i, c := range text[from+4*n : to] {
		v = uint32(next[v<<shift|uint32(class[c])])
		if v >= firstOut {
			hits = a.tell(hits, text, v, from+4*n+i+1)
		}
	}
	return hits
}

// tell appends the hits of a state that has some.
func (a *automaton) tell(hits []hit, text []byte, state uint32, end int) []hit {
	for _, id := range a.out[state-a.firstOut] {
		if l := a.exact[id]; l == "" || foldsTo(text[end-len(l):end], l) {
			hits = append(hits, hit{id, int32(end)})
		}
	}
	return hits
}

// foldsTo compares without ASCII case.
func foldsTo(text []byte, literal string) bool {
	for i, c := range text {
		if foldByte(c) != foldByte(literal[i]) {
			return false
		}
	}
	return true
}

func (a *automaton) scanWide(text []byte, from, to int, hits []hit) []hit {
	s := uint32(0)
	for i, c := range text[from:to] {
		s = a.next32[s<<a.shift|uint32(a.class[c])]
		if s >= a.firstOut {
			hits = a.tell(hits, text, s, from+i+1)
		}
	}
	return hits
}

// contains reports whether any literal occurs in text.
func (a *automaton) contains(text []byte) bool {
	var one [8]hit
	s := uint32(0)
	for end, c := range text {
		i := s<<a.shift | uint32(a.class[c])
		if a.next32 != nil {
			s = a.next32[i]
		} else {
			s = uint32(a.next[i])
		}
		if s >= a.firstOut && len(a.tell(one[:0], text, s, end+1)) > 0 {
			return true
		}
	}
	return false
}
