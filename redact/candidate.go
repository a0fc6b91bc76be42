package redact

import (
	"bytes"
	"sort"
)

// Candidate is one place in a text where a native rule may match: the rule's
// literal, or a run of digits, stands at Start:End. Find methods look around
// it, report what they find with Emit, and do an amount of work that does not
// depend on the length of the text: what may be long is read with Run or RunEnd,
// decided by its beginning, or behind a Skip or Note not read again.
type Candidate struct {
	s          *scan
	v          *view
	rule       *rule
	text       []byte
	start, end int
}

// Text is the whole decoded text.
func (c *Candidate) Text() []byte { return c.text }

// Start is where the literal or the digits begin.
func (c *Candidate) Start() int { return c.start }

// End is where they end.
func (c *Candidate) End() int { return c.end }

// Joined says that the text is put together from several strings, which may
// or may not be pieces of one.
func (c *Candidate) Joined() bool { return c.v.joined }

// WholeStrings says that start and end are both limits of strings in a joined
// text.
func (c *Candidate) WholeStrings(start, end int) bool {
	return c.v.joined && c.v.edge(start) && c.v.edge(end)
}

// Edge says that one of the strings of a joined text ends at pos.
func (c *Candidate) Edge(pos int) bool { return c.v.edge(pos) }

// Emit reports that [start,end) of the text is a match.
func (c *Candidate) Emit(start, end int) {
	if start < 0 || end > len(c.text) || start >= end {
		return
	}
	c.s.emitChecked(c.v, start, end, c.rule)
}

// EmitSecret reports a match of an imported rule: the secret in the match,
// subject to the rule's entropy and allow lists.
func (c *Candidate) EmitSecret(start, end, matchStart, matchEnd int) {
	if c.s.acceptSecret(c.rule, c.text, start, end, matchStart, matchEnd) {
		c.s.emitChecked(c.v, start, end, c.rule)
	}
}

// Skip says that the rule need not be asked about literals that end at or
// before pos.
func (c *Candidate) Skip(pos int) {
	if pos > c.s.skip[c.rule.index] {
		c.s.skip[c.rule.index] = pos
	}
}

// Work takes n bytes of fuel for looking further than a literal's
// surroundings. It returns false when there is none left; then the whole text
// is replaced, and the rule gives up.
func (c *Candidate) Work(n int) bool {
	if n <= c.s.fuel {
		c.s.fuel -= n
		return true
	}
	if c.s.gaveUp != c.v {
		c.s.gaveUp = c.v
		c.s.exhaust(c.v)
	}
	return false
}

// Class is a set of bytes.
type Class [256]bool

// ClassOf is the set of the bytes that ok accepts.
func ClassOf(ok func(byte) bool) *Class {
	var t Class
	for i := range t {
		t[i] = ok(byte(i))
	}
	return &t
}

// Run returns where the run of bytes of a class ends that goes on at from. The
// last run of each class is remembered for the text, so that asking again from
// inside of it costs nothing.
func (c *Candidate) Run(from int, class *Class) int {
	s := c.s
	var m *memo
	for i := range s.memos {
		if s.memos[i].class == class {
			m = &s.memos[i]
			if m.start <= from && from < m.end {
				return m.end
			}
			break
		}
	}
	e := from
	for e < len(c.text) && class[c.text[e]] {
		e++
	}
	s.fuel -= e - from
	switch {
	case e == from:
	case m != nil:
		m.start, m.end = from, e
	default:
		s.memos = append(s.memos, memo{class: class, start: from, end: e})
	}
	return e
}

// RunEnd does so for a run of at most most bytes of which some depend on what
// stands around them: those that are not in sure are asked ok. The class, below
// RunClasses, names the two.
func (c *Candidate) RunEnd(from, most int, class int, sure *Class, ok func(text []byte, i int) bool) int {
	m := &c.s.bounded[class]
	if m.start <= from && from < m.end {
		return m.end
	}
	e := from
	text := c.text[:min(len(c.text), from+most)]
	for e < len(text) && (sure[text[e]] || ok(c.text, e)) {
		e++
	}
	c.s.fuel -= e - from
	*m = memo{start: from, end: e}
	return e
}

// RunClasses is the number of classes that RunEnd knows.
const RunClasses = 16

// Note is a number that the rule keeps about the text, 0 at first; i is below
// Notes. It serves not to read the same stretch again for every literal in it.
func (c *Candidate) Note(i int) *int {
	s := c.s
	n := &s.notes[c.rule.index]
	if *n == nil {
		*n = new([Notes]int)
	}
	if !s.seenNote[c.rule.index] {
		s.seenNote[c.rule.index] = true
		s.noted = append(s.noted, c.rule.index)
		**n = [Notes]int{}
	}
	return &(*n)[i]
}

// Notes is how many numbers a rule can keep about a text.
const Notes = 8

// Skipped is the position that Skip was called with, 0 at first.
func (c *Candidate) Skipped() int { return c.s.skip[c.rule.index] }

// StringStart is where the string of a joined text begins in which the literal
// begins; 0 in other texts.
func (c *Candidate) StringStart() int {
	if !c.v.joined {
		return 0
	}
	if i := c.v.edgeAfter(c.start); i > 0 {
		return int(c.v.edges[i-1])
	}
	return 0
}

// NextEdge is where the string of a joined text ends in which pos lies; the
// end of the text for other texts.
func (c *Candidate) NextEdge(pos int) int { return c.v.firstEdge(pos) }

// edge reports whether pos is a limit of one of the strings of a joined view.
func (v *view) edge(pos int) bool {
	if pos <= 0 || pos >= len(v.text) {
		return true
	}
	i := v.edgeAfter(pos)
	return i > 0 && int(v.edges[i-1]) == pos
}

// edgeAfter is the index of the first edge behind pos.
func (v *view) edgeAfter(pos int) int {
	if v.edges == nil {
		v.edges = make([]int32, 0, len(v.pieces))
		pos := int32(0)
		for _, p := range v.pieces {
			if p.v.parent == v.parent {
				v.edges = append(v.edges, pos)
				pos += int32(len(p.v.text))
			}
		}
		for i := range v.segs {
			if v.pieces == nil && v.segs[i].gap {
				v.edges = append(v.edges, v.segs[i].pos)
			}
		}
	}
	return sort.Search(len(v.edges), func(i int) bool { return int(v.edges[i]) > pos })
}

// emitChecked is emit for matches that may reach over the end of a string in
// a joined view. Neighbouring strings need not belong together: where the
// first one holds a whole match by itself and the rest is a plain word or the
// name of a next setting, the match ends with the string.
func (s *scan) emitChecked(v *view, start, end int, r *rule) {
	if !v.joined || !v.crosses(start, end) {
		s.emit(v, start, end, r)
		return
	}
	if cut := v.firstEdge(start); cut < end && plainRest(v.text, start, cut) && s.found(v, cut, min(end, v.firstEdge(cut))) {
		start = cut
	}
	if cut := v.firstEdge(start); cut < end && s.found(v, start, cut) && plainRest(v.text, cut, end) {
		end = cut
	}
	s.emit(v, start, end, r)
}

func (v *view) firstEdge(after int) int {
	if !v.joined {
		return len(v.text)
	}
	if i := v.edgeAfter(after); i < len(v.edges) {
		return int(v.edges[i])
	}
	return len(v.text)
}

// found reports whether the string's own scan has found a match that begins
// at start and reaches its end.
func (s *scan) found(v *view, start, cut int) bool {
	var a, b int
	v.rootRange(start, cut, &a, &b)
	const most = 1024 // the strings' own matches are among the last
	s.fuel -= min(len(s.spans), most) / 8
	for i := max(len(s.spans)-most, 0); i < len(s.spans); i++ {
		if int(s.spans[i].start) <= a && int(s.spans[i].end) >= b {
			return true
		}
	}
	return false
}

func (v *view) rootRange(start, end int, a, b *int) {
	*a, *b = -1, -1
	v.ranges(start, end, func(x, y int) {
		if *a < 0 {
			*a, *b = x, y
		}
	})
	if v.parent != nil && v.parent.parent != nil {
		v.parent.rootRange(*a, *b, a, b)
	}
}

// plainRest reports whether text[cut:end] is one word, or the name of a
// setting.
func plainRest(text []byte, cut, end int) bool {
	rest := text[cut:end]
	if len(rest) > 2 && rest[0] == '-' && rest[1] == '-' && rest[2]|0x20 >= 'a' && rest[2]|0x20 <= 'z' {
		return true // the next flag; more dashes are a PEM block's
	}
	if end < len(text) && (text[end] == '=' || text[end] == ':') && settingName(rest) {
		return true
	}
	if i := bytes.IndexByte(rest, '='); i > 0 && i+1 < len(rest) && rest[i+1] != '=' && settingName(rest[:i]) {
		return true
	}
	rest = bytes.TrimRight(rest, ".")
	lower, upper, other := 0, 0, 0
	for i, c := range rest {
		switch {
		case 'a' <= c && c <= 'z':
			lower++
		case 'A' <= c && c <= 'Z':
			if i > 0 {
				upper++
			}
		case c == '_' && i > 0:
		default:
			other++
		}
	}
	return other == 0 && (upper == 0 || lower == 0)
}

// settingName: letters and underscores, as names of variables are.
func settingName(b []byte) bool {
	for _, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_') {
			return false
		}
	}
	return len(b) >= 2
}
