package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"sort"
	"unicode/utf8"
)

// view is a decoded form of a piece of the input: the text that rules look at,
// and how its positions map back to its parent's. The root view is the input
// itself. A match is found in some view and travels up the chain, so that what
// is cut out of the input are always whole escape sequences and never a quote
// of the JSON around them.
type view struct {
	text   []byte
	parent *view
	segs   []seg // nil: text is parent.text[base:base+len(text)], unless escaped says otherwise
	base   int
	// > 0: text is what the JSON string content parent.text[base:base+escaped]
	// means. The segments are made when somebody asks: most strings hold
	// nothing to replace.
	escaped int
	whole   int         // > 0: a match anywhere replaces parent[base:base+whole]
	takers  []taker     // which rules have matched somewhere in such a view
	number  bool        // the view is a JSON number: its replacement needs quotes
	json    bool        // it is another JSON value, as a whole
	plain   bool        // ASCII without control characters that hide something
	joined  bool        // pieces of several strings; number rules are careful here
	blobs   []window    // stretches of base64 data, where match has found some
	pieces  []joinPiece // the strings of a joined view, until their segments are asked for
	edges   []int32     // where the strings of a joined view begin, once somebody has asked
	taken   []taken     // values that a rule with Within has taken whole
	nested  int         // how many JSON strings lie around the text; < 0: unknown
	depth   int         // decode steps from the root
}

// taker is a rule that has matched in a view, so many decode steps down.
type taker struct {
	rule  int32
	depth int8
}

// seg maps the view's bytes from pos up to the next seg's pos. Unless unit is
// set they are the same bytes as at raw in the parent; a unit stands for
// rlen parent bytes and cannot be split.
type seg struct {
	pos, raw, rlen int32
	unit           bool
	gap            bool // what lies before is another string: a match is cut here
	dead           bool // the bytes exist only in the view
}

// mapped makes the segments of an escaped string.
func (v *view) mapped() {
	if v.pieces != nil && v.segs == nil {
		pos := int32(0)
		for _, p := range v.pieces {
			if p.v.parent != v.parent {
				continue
			}
			first := len(v.segs)
			p.v.mapped()
			if p.v.segs == nil {
				v.segs = append(v.segs, seg{pos: pos, raw: int32(p.v.base), rlen: int32(len(p.v.text))})
			}
			for _, g := range p.v.segs {
				g.pos += pos
				v.segs = append(v.segs, g)
			}
			v.segs[first].gap = true
			pos += int32(len(p.v.text))
		}
		return
	}
	if v.escaped > 0 && v.segs == nil {
		raw := v.parent.text[v.base : v.base+v.escaped]
		v.segs = make([]seg, 0, 2*bytes.Count(raw, []byte{'\\'})+1)
		pos := 0 // in the view
		for i := 0; i < len(raw); {
			j := bytes.IndexByte(raw[i:], '\\')
			if j < 0 {
				j = len(raw) - i
			}
			if j > 0 {
				v.segs = append(v.segs, seg{pos: int32(pos), raw: int32(v.base + i), rlen: int32(j)})
				pos += j
				i += j
			}
			if i == len(raw) {
				break
			}
			var tmp [4]byte
			out, n := decodeEscape(tmp[:0], raw[i:])
			if n == 0 {
				out, n = raw[i:i+1], 1
			}
			v.segs = append(v.segs, seg{pos: int32(pos), raw: int32(v.base + i), rlen: int32(n), unit: true})
			pos += len(out)
			i += n
		}
	}
}

func (v *view) segAt(pos int) int {
	return sort.Search(len(v.segs), func(i int) bool { return int(v.segs[i].pos) > pos }) - 1
}

func (v *view) segEnd(i int) int {
	if i+1 < len(v.segs) {
		return int(v.segs[i+1].pos)
	}
	return len(v.text)
}

// ranges calls fn for each range of the parent that [start,end) maps to.
func (v *view) ranges(start, end int, fn func(start, end int)) {
	if v.whole > 0 {
		fn(v.base, v.base+v.whole)
		return
	}
	v.mapped()
	if v.segs == nil {
		fn(v.base+start, v.base+end)
		return
	}
	from, to := -1, -1
	for i := max(v.segAt(start), 0); i < len(v.segs) && int(v.segs[i].pos) < end; i++ {
		g := &v.segs[i]
		if (g.gap || g.dead) && from >= 0 {
			fn(from, to)
			from = -1
		}
		if g.dead {
			continue
		}
		a, b := int(g.raw), int(g.raw+g.rlen)
		if !g.unit {
			s, e := max(start, int(g.pos)), min(end, v.segEnd(i))
			if s >= e {
				continue
			}
			a, b = int(g.raw)+s-int(g.pos), int(g.raw)+e-int(g.pos)
		}
		if from < 0 {
			from = a
		}
		to = b
	}
	if from >= 0 {
		fn(from, to)
	}
}

// crosses reports whether [start,end) touches more than one string.
func (v *view) crosses(start, end int) bool {
	return v.firstEdge(start) < end
}

// builder assembles the text and segments of a view.
type builder struct {
	text []byte
	segs []seg
}

func (b *builder) literal(text []byte, raw int) {
	if len(text) == 0 {
		return
	}
	if n := len(b.segs); n > 0 {
		if g := &b.segs[n-1]; !g.unit && !g.dead && int(g.raw)+len(b.text)-int(g.pos) == raw {
			b.text = append(b.text, text...)
			g.rlen += int32(len(text))
			return
		}
	}
	b.segs = append(b.segs, seg{pos: int32(len(b.text)), raw: int32(raw), rlen: int32(len(text))})
	b.text = append(b.text, text...)
}

func (b *builder) unit(text []byte, raw, rlen int) {
	b.segs = append(b.segs, seg{pos: int32(len(b.text)), raw: int32(raw), rlen: int32(rlen), unit: true})
	b.text = append(b.text, text...)
}

func (b *builder) dead(text []byte) {
	b.segs = append(b.segs, seg{pos: int32(len(b.text)), dead: true})
	b.text = append(b.text, text...)
}

// appendUnescaped appends what unescape makes of text.
func appendUnescaped(dst, text []byte) []byte {
	for {
		j := bytes.IndexByte(text, '\\')
		if j < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:j]...)
		text = text[j:]
		var n int
		if dst, n = decodeEscape(dst, text); n == 0 {
			dst, n = append(dst, '\\'), 1
		}
		text = text[n:]
	}
}

// unescape decodes JSON's escapes (and \xHH) in text and leaves every other
// backslash alone. It reports whether there was any.
func (b *builder) unescape(text []byte, raw int) bool {
	found := false
	for i := 0; i < len(text); {
		j := bytes.IndexByte(text[i:], '\\')
		if j < 0 {
			b.literal(text[i:], raw+i)
			break
		}
		if j > 0 && bytes.HasPrefix(text[i+j-1:], shellQuote) {
			b.literal(text[i:i+j-1], raw+i)
			b.unit(shellQuote[:1], raw+i+j-1, len(shellQuote))
			i += j - 1 + len(shellQuote)
			found = true
			continue
		}
		b.literal(text[i:i+j], raw+i)
		i += j
		var tmp [4]byte
		out, n := decodeEscape(tmp[:0], text[i:])
		if n == 0 {
			b.literal(text[i:i+1], raw+i)
			i++
			continue
		}
		found = true
		if len(out) == 1 && out[0] == 0 {
			out[0] = ' ' // written out it separates, as \n does
		}
		b.unit(out, raw+i, n)
		i += n
	}
	return found
}

// shellQuote is a quote inside of a shell's quotes.
var shellQuote = []byte(`'\''`)

// decodeEscape decodes the escape sequence at the start of text and returns
// its length, 0 when there is none.
func decodeEscape(dst, text []byte) ([]byte, int) {
	if len(text) < 2 {
		return dst, 0
	}
	switch c := text[1]; c {
	case '"', '\\', '/', '\'':
		return append(dst, c), 2
	case 'n':
		return append(dst, '\n'), 2
	case 't':
		return append(dst, '\t'), 2
	case 'r':
		return append(dst, '\r'), 2
	case 'b', 'f':
		return append(dst, ' '), 2
	case 'u':
		r, ok := hex4(text[2:])
		if !ok {
			return dst, 0
		}
		if 0xd800 <= r && r < 0xdc00 && len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
			if lo, ok := hex4(text[8:]); ok && 0xdc00 <= lo && lo < 0xe000 {
				return utf8.AppendRune(dst, (r-0xd800)<<10+(lo-0xdc00)+0x10000), 12
			}
		}
		return utf8.AppendRune(dst, r), 6 // a lone surrogate becomes U+FFFD
	case 'x':
		if len(text) >= 4 && unhex(text[2]) < 16 && unhex(text[3]) < 16 {
			return append(dst, unhex(text[2])<<4|unhex(text[3])), 4
		}
	}
	return dst, 0
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	r := rune(0)
	for _, c := range b[:4] {
		h := unhex(c)
		if h > 15 {
			return 0, false
		}
		r = r<<4 | rune(h)
	}
	return r, true
}

// percent decodes %XX sequences; it reports whether there was any. An
// ampersand that is not encoded separates what was encoded: it becomes a line
// end, so that no value goes on behind it.
func (b *builder) percent(text []byte, raw int) bool { return b.encoded(text, raw, false) }

// form does so for form encoding, where a plus is a space.
func (b *builder) form(text []byte, raw int) bool { return b.encoded(text, raw, true) }

func (b *builder) encoded(text []byte, raw int, plus bool) bool {
	found := false
	for i := 0; i < len(text); {
		j := bytes.IndexByte(text[i:], '%')
		if j < 0 {
			j = len(text) - i
		}
		k := bytes.IndexByte(text[i:i+j], '&')
		if plus {
			if p := bytes.IndexByte(text[i:i+j], '+'); p >= 0 && (k < 0 || p < k) {
				b.literal(text[i:i+p], raw+i)
				b.unit([]byte{' '}, raw+i+p, 1)
				i += p + 1
				found = true
				continue
			}
		}
		if k >= 0 {
			b.literal(text[i:i+k], raw+i)
			b.unit(newline, raw+i+k, 1)
			i += k + 1
			continue
		}
		b.literal(text[i:i+j], raw+i)
		i += j
		if i == len(text) {
			break
		}
		if i+2 < len(text) && unhex(text[i+1]) < 16 && unhex(text[i+2]) < 16 {
			b.unit([]byte{unhex(text[i+1])<<4 | unhex(text[i+2])}, raw+i, 3)
			found = true
			i += 3
			continue
		}
		b.literal(text[i:i+1], raw+i)
		i++
	}
	return found
}

// entities decodes the character references of HTML and XML.
func (b *builder) entities(text []byte, raw int) bool {
	found := false
	last := 0
	for i := 0; i < len(text); i++ {
		j := bytes.IndexByte(text[i:], '&')
		if j < 0 {
			break
		}
		i += j
		r, n := entity(text[i:])
		if n == 0 {
			continue
		}
		b.literal(text[last:i], raw+last)
		var tmp [4]byte
		b.unit(utf8.AppendRune(tmp[:0], r), raw+i, n)
		found = true
		last = i + n
		i = last - 1
	}
	b.literal(text[last:], raw+last)
	return found
}

// nextEntity finds a reference that matters to rules: a quote, a bracket, or
// what is written by its number. An ampersand alone, as in addresses, does not.
func nextEntity(text []byte, from int) int {
	for i := from; i < len(text); i++ {
		k := bytes.IndexByte(text[i:], '&')
		if k < 0 {
			return -1
		}
		i += k
		r, n := entity(text[i:])
		if n > 0 && (r != '&' && r != ' ' || r == '&' && nested(text[i+n:])) {
			return i
		}
	}
	return -1
}

// nested reports whether what follows an encoded ampersand is the rest of
// another reference.
func nested(rest []byte) bool {
	for i := 0; i < len(rest) && i < 8; i++ {
		if c := rest[i]; c == ';' {
			return i > 1
		} else if c != '#' && base64Class[c] != 1 {
			return false
		}
	}
	return false
}

// entity decodes the character reference at the start of text and returns its
// length, 0 when there is none.
func entity(text []byte) (rune, int) {
	if len(text) < 4 {
		return 0, 0
	}
	switch text[1] {
	case '#':
	case 'q', 'a', 'l', 'g', 'n':
		for _, e := range [...]struct {
			name string
			r    rune
		}{{"&quot;", '"'}, {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&apos;", '\''}, {"&nbsp;", ' '}} {
			if len(text) >= len(e.name) && string(text[:len(e.name)]) == e.name {
				return e.r, len(e.name)
			}
		}
		return 0, 0
	default:
		return 0, 0
	}
	i, base := 2, rune(10)
	if text[2]|0x20 == 'x' {
		i, base = 3, 16
	}
	r, from := rune(0), i
	for i < len(text) && i-from < 7 {
		h := rune(unhex(text[i]))
		if h >= base {
			break
		}
		r = r*base + h
		i++
	}
	if i == from || i >= len(text) || text[i] != ';' || r < ' ' && r != '\n' && r != '\r' && r != '\t' || r > utf8.MaxRune {
		return 0, 0
	}
	return r, i + 1
}

// folded returns the ASCII character that a full width form, a space of some
// width or a dash at the start of text stands for, and its length; 0 for none.
func folded(text []byte) (byte, int) {
	if len(text) < 2 {
		return 0, 0
	}
	switch text[0] {
	case 0xc2:
		if text[1] == 0xa0 {
			return ' ', 2
		}
	case 0xe2:
		if len(text) < 3 {
			break
		}
		switch c := text[2]; {
		case text[1] == 0x80 && (c <= 0x8a || c == 0xaf), text[1] == 0x81 && c == 0x9f:
			return ' ', 3
		case text[1] == 0x80 && 0x90 <= c && c <= 0x95, text[1] == 0x88 && c == 0x92:
			return '-', 3
		}
	case 0xe3:
		if len(text) >= 3 && text[1] == 0x80 && text[2] == 0x80 {
			return ' ', 3
		}
	case 0xef:
		if len(text) < 3 {
			break
		}
		switch c := text[2]; {
		case text[1] == 0xbc && 0x81 <= c:
			return c - 0x80 + 0x20, 3
		case text[1] == 0xbd && c <= 0x9e:
			return c - 0x80 + 0x60, 3
		}
	}
	return 0, 0
}

// nextFolded finds a letter, a digit or an @ of full width, or a space or dash
// beyond ASCII between digits. Punctuation of full width is that of Chinese
// and Japanese, and needs no other reading.
func nextFolded(text []byte, from int) int {
	for i := from; i < len(text); {
		if i+8 <= len(text) && binary.LittleEndian.Uint64(text[i:])&0x8080808080808080 == 0 {
			i += 8
			continue
		}
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		if folds(text, i) {
			return i
		}
		for i++; i < len(text) && text[i]&0xc0 == 0x80; i++ {
		}
	}
	return -1
}

// folds reports whether what nextFolded looks for stands at i.
func folds(text []byte, i int) bool {
	c, n := folded(text[i:])
	return n > 0 && (base64Class[c] == 1 || c == '@' ||
		(c == ' ' || c == '-') && i > 0 && digit(text[i-1]) && i+n < len(text) && (digit(text[i+n]) || text[i+n] == '('))
}

// spellings is what a text may have to be read without.
type spellings struct {
	hidden bool // nextHidden finds something
	folded bool // nextFolded does
}

// spelled looks for both in one pass: most text beyond ASCII has neither.
func spelled(text []byte) (s spellings) {
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf && i+8 <= len(text) {
			m := unusual(binary.LittleEndian.Uint64(text[i:]))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		if lead := spells[text[i]]; lead != 0 {
			s.hidden = s.hidden || lead&1 != 0 && hidden(text[i:]) > 0
			s.folded = s.folded || lead&2 != 0 && folds(text, i)
			if s.hidden && s.folded {
				break
			}
		}
		// The rest of a character begins nothing.
		for i++; i < len(text) && text[i]&0xc0 == 0x80; i++ {
		}
	}
	return s
}

// spells has bit 0 for bytes that begin what hidden knows, bit 1 for folded.
var spells = func() (t [256]uint8) {
	for c := range t {
		if mayHide[c] {
			t[c] = 1
		}
	}
	for _, c := range []byte{0xc2, 0xe2, 0xe3, 0xef} {
		t[c] |= 2
	}
	return t
}()

// unusual is not zero when one of eight bytes is beyond ASCII, NUL or ESC; its
// lowest bit is in the first of these.
func unusual(w uint64) uint64 {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	e := w ^ ones*0x1b
	return (w | (w-ones)&^w | (e-ones)&^e) & high
}

// fold replaces what folded knows.
func (b *builder) fold(text []byte, raw int) bool {
	found := false
	last := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		c, n := folded(text[i:])
		if n == 0 {
			i++
			continue
		}
		b.literal(text[last:i], raw+last)
		b.unit([]byte{c}, raw+i, n)
		found = true
		i += n
		last = i
	}
	b.literal(text[last:], raw+last)
	return found
}

// mayHide is set for bytes that start an invisible sequence or are one.
var mayHide = [256]bool{0x00: true, 0x1b: true, 0xc2: true, 0xcd: true, 0xd8: true, 0xe1: true, 0xe2: true, 0xe3: true, 0xef: true, 0xf0: true, 0xf3: true}

// hidden returns the length of the invisible character or terminal sequence
// at the start of text, 0 when there is none: Default_Ignorable_Code_Point of
// Unicode (zero width characters, soft hyphen, directional marks, fillers,
// variation selectors, tags), what else is blank without being a space (U+2800,
// U+FFF9 to U+FFFB, U+1D159), NUL, ANSI.
func hidden(text []byte) int {
	switch text[0] {
	case 0:
		return 1
	case 0x1b:
		return ansi(text)
	case 0xe3: // U+3164; most of what begins so is Japanese or Chinese
		if len(text) >= 3 && text[1] == 0x85 && text[2] == 0xa4 {
			return 3
		}
	case 0xf0: // emoji too
		if len(text) < 4 || text[1] != 0x9b && text[1] != 0x9d {
			return 0
		}
		switch r, n := utf8.DecodeRune(text); {
		case 0x1bca0 <= r && r <= 0x1bca3, r == 0x1d159, 0x1d173 <= r && r <= 0x1d17a:
			return n
		}
	case 0xc2, 0xcd, 0xd8, 0xe1, 0xe2, 0xef, 0xf3:
		r, n := utf8.DecodeRune(text)
		switch {
		case r == 0xad, r == 0x34f, r == 0x61c, r == 0x2800, r == 0xfeff, r == 0xffa0,
			0x115f <= r && r <= 0x1160, 0x17b4 <= r && r <= 0x17b5, 0x180b <= r && r <= 0x180f,
			0x200b <= r && r <= 0x200f, 0x202a <= r && r <= 0x202e,
			0x2060 <= r && r <= 0x206f, 0xfe00 <= r && r <= 0xfe0f, 0xfff0 <= r && r <= 0xfffb,
			0xe0000 <= r && r <= 0xe0fff:
			return n
		}
	}
	return 0
}

func ansi(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case '[':
		i := 2
		for i < len(text) && i < 64 && (text[i] >= 0x20 && text[i] < 0x40) {
			i++
		}
		if i < len(text) && text[i] >= 0x40 && text[i] < 0x7f {
			return i + 1
		}
	case ']': // operating system command, to BEL or ST
		for i := 2; i < len(text) && i < 4096; i++ {
			if text[i] == 7 {
				return i + 1
			}
			if text[i] == 0x1b { // the end, or another sequence that breaks this one off
				if i+1 < len(text) && text[i+1] == '\\' {
					return i + 2
				}
				return 0
			}
		}
	case '(', ')':
		if len(text) >= 3 {
			return 3
		}
	}
	return 0
}

// visible copies text without its hidden sequences; it reports whether there
// were any.
func (b *builder) visible(text []byte, raw int) bool {
	found := false
	last := 0
	for i := 0; i < len(text); {
		if !mayHide[text[i]] {
			i++
			continue
		}
		n := hidden(text[i:])
		if n == 0 {
			i++
			continue
		}
		found = true
		b.literal(text[last:i], raw+last)
		i += n
		last = i
	}
	b.literal(text[last:], raw+last)
	return found
}

// around calls decode for the lines in which next finds something to decode,
// with the line before and the line after each, and separates what is left
// out by a line end. It reports whether anything was decoded. Where a PEM
// block begins or ends in these lines, they are not enough: then the whole
// text is decoded.
func (b *builder) around(text []byte, next func(text []byte, from int) int, decode func(text []byte, raw int) bool) bool {
	found := false
	for pos := 0; pos < len(text); {
		at := next(text, pos)
		if at < 0 {
			break
		}
		lo, hi := at, at
		for n := 0; n < 2 && lo > pos; n++ {
			lo = max(bytes.LastIndexByte(text[pos:lo], '\n')+pos, pos)
		}
		for n := 0; n < 2 && hi < len(text); n++ {
			i := bytes.IndexByte(text[hi:], '\n')
			if i < 0 {
				hi = len(text)
				break
			}
			hi += i + 1
			// A following line that has work too is taken into the same window.
			if n == 1 {
				if k := next(text, hi); k >= 0 && bytes.Count(text[hi:k], newline) <= 1 {
					n = -1
					hi = k
				}
			}
		}
		if len(b.text) > 0 {
			b.dead(newline)
		}
		if decode(text[lo:hi], lo) {
			found = true
		}
		pos = hi
	}
	if found && len(b.text) < len(text)/2 && bytes.Contains(b.text, []byte("-----")) {
		b.text, b.segs = b.text[:0], b.segs[:0]
		return decode(text, 0)
	}
	return found
}

var newline = []byte{'\n'}

func nextHidden(text []byte, from int) int {
	for i := from; i < len(text); {
		if i+8 <= len(text) {
			m := unusual(binary.LittleEndian.Uint64(text[i:]))
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		}
		if mayHide[text[i]] && hidden(text[i:]) > 0 {
			return i
		}
		// The rest of a character begins nothing.
		for i++; i < len(text) && text[i]&0xc0 == 0x80; i++ {
		}
	}
	return -1
}

// nextForm finds a plus inside the value of a query: name=a+b.
func nextForm(text []byte, from int) int {
	for i := from; i < len(text); i++ {
		k := bytes.IndexByte(text[i:], '=')
		if k < 0 {
			return -1
		}
		i += k
		if i == 0 || !wordByte(text[i-1]) && text[i-1] != ']' {
			continue
		}
		for j := i + 1; j+1 < len(text) && j-i < 256; j++ {
			c := text[j]
			if c == '+' && text[j+1] > ' ' {
				return j
			}
			if !wordByte(c) && c != '%' && c != '.' && c != '-' && c != '*' && c != '~' && c != ':' && c != '@' && c != '/' {
				break
			}
		}
	}
	return -1
}

func nextByte(c byte) func([]byte, int) int {
	return func(text []byte, from int) int {
		if i := bytes.IndexByte(text[from:], c); i >= 0 {
			return from + i
		}
		return -1
	}
}

var (
	nextBackslash = nextByte('\\')
	nextPercent   = nextByte('%')
)

var base64Class = func() (t [256]uint8) {
	for c := range t {
		switch b := byte(c); {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
			t[c] = 1
		case b == '+' || b == '/':
			t[c] = 2
		case b == '-' || b == '_':
			t[c] = 3
		}
	}
	return t
}()

const minBase64 = 16

// base64Run finds the next run of at least minBase64 base64 characters at or
// after from; lines of a wrapped block count as one run, unless it begins before
// tried: then the block has been tried, and is none.
func base64Run(text []byte, from, tried int) (start, line1, end int, ok bool) {
	for i := from + minBase64 - 1; i < len(text); {
		// Backwards from where a run that begins at i-15 would end: the first
		// byte that is none moves the window past itself.
		start = i + 1
		for start > from && base64Class[text[start-1]] != 0 {
			start--
		}
		if i+1-start < minBase64 {
			i = start + minBase64 - 1
			continue
		}
		end = i + 1
		for end < len(text) && base64Class[text[end]] != 0 {
			end++
		}
		line1 = end
		// A wrapped block goes on after a line end when the line is full.
		for line := end - start; start >= tried && line >= 60 && line%4 == 0; {
			j := end
			for j < len(text) && (text[j] == '\r' || text[j] == '\n') {
				j++
			}
			if j == end {
				break
			}
			for j < len(text) && (text[j] == ' ' || text[j] == '\t') {
				j++
			}
			k := j
			for k < len(text) && base64Class[text[k]] != 0 {
				k++
			}
			if k == j || k-j > line {
				break
			}
			end, line = k, k-j
		}
		for n := 0; n < 2 && end < len(text) && text[end] == '='; n++ {
			end++
		}
		return start, line1, end, true
	}
	return 0, 0, 0, false
}

// decodeBase64 decodes a run when it holds text: the start must decode to
// printable UTF-8, and so must at least most of the rest.
func decodeBase64(dst, run []byte) ([]byte, bool) {
	if !textStart(run) {
		return dst, false
	}
	var head [24]byte
	var clean [32]byte
	n := 0
	for _, c := range run {
		if base64Class[c] != 0 {
			clean[n] = c
			n++
			if n == len(clean) {
				break
			}
		}
	}
	url := bytes.ContainsAny(run, "-_")
	if url && bytes.ContainsAny(run, "+/") {
		return dst, false
	}
	enc := base64.RawStdEncoding
	if url {
		enc = base64.RawURLEncoding
	}
	n -= n % 4
	m, err := enc.Decode(head[:], clean[:n])
	if err != nil || !printable(head[:m], true) {
		return dst, false
	}
	body := make([]byte, 0, len(run))
	for _, c := range run {
		if base64Class[c] != 0 {
			body = append(body, c)
		}
	}
	if len(body)%4 == 1 {
		body = body[:len(body)-1]
	}
	out := make([]byte, enc.DecodedLen(len(body)))
	m, err = enc.Decode(out, body)
	if err != nil {
		// Non-zero trailing bits of a cut run: the whole quanta still decode.
		m, err = enc.Decode(out, body[:len(body)-len(body)%4])
		if err != nil {
			return dst, false
		}
	}
	if !printable(out[:m], true) {
		return dst, false
	}
	return out[:m], true
}

// base64Value is the six bits of a character.
var base64Value = func() (t [256]byte) {
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = byte(i)
	}
	t['-'], t['_'] = 62, 63
	return t
}()

// textStart decodes the first six bytes: what begins with a control character
// is no text. It turns away most runs at little cost.
func textStart(run []byte) bool {
	if first := base64Value[run[0]]<<2 | base64Value[run[1]]>>4; first&0xc0 == 0x80 {
		return false // the middle of a character
	}
	for i := 0; i < 8; i += 4 {
		a, b, c, d := base64Value[run[i]], base64Value[run[i+1]], base64Value[run[i+2]], base64Value[run[i+3]]
		for _, x := range [3]byte{a<<2 | b>>4, b<<4 | c>>2, c<<6 | d} {
			if x < ' ' && x != '\n' && x != '\r' && x != '\t' && x != 0x1b && x != 0 || x == 0x7f || x >= 0xf5 || x == 0xc0 || x == 0xc1 {
				return false
			}
		}
	}
	return true
}

// printable accepts UTF-8 text; a cut last character is tolerated when
// tail is set.
func printable(b []byte, tail bool) bool {
	for i := 0; i < len(b); {
		c := b[i]
		if c < utf8.RuneSelf {
			if c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != 0x1b && c != 0 || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return tail && i > 0 && !utf8.FullRune(b[i:])
		}
		i += n
	}
	return len(b) > 0
}

// minBlob is the length from which a run of base64 may be data that nobody
// reads; blobEdge of it is looked at on either side all the same.
const (
	minBlob  = 512
	blobEdge = 128
)

// blob finds the next run, at or after from, of at least minBlob characters of
// the standard base64 alphabet that mixes cases and digits as data does, and
// does not decode to text.
func blob(text []byte, from int) (start, end int, ok bool) {
	for i := from + minBlob - 1; i < len(text); i += minBlob {
		if k := base64Class[text[i]]; k == 0 || k == 3 {
			continue
		}
		start = i
		for start > from && base64Class[text[start-1]]-1 < 2 {
			start--
		}
		end = i + 1
		for end < len(text) && base64Class[text[end]]-1 < 2 {
			end++
		}
		if end-start < minBlob || !dataLike(text[start:start+64]) || !dataLike(text[end-64:end]) || textStart(text[start:]) {
			i = max(i, end-1)
			continue
		}
		return start, end, true
	}
	return 0, 0, false
}

func dataLike(b []byte) bool {
	var lower, upper, digits int
	for _, c := range b {
		switch {
		case 'a' <= c && c <= 'z':
			lower++
		case 'A' <= c && c <= 'Z':
			upper++
		case '0' <= c && c <= '9':
			digits++
		}
	}
	return lower >= 8 && upper >= 8 && digits >= 2
}
