package otlp

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// parser writes one valid JSON value as AnyValue, each byte read once. What a
// value becomes is [telemetry.BodyValue]'s rule; here keys stay in the order
// that they have.
//
// Lengths stand before what they count, so room for one is reserved by what is
// left of the text and the content moved where that was wrong. Short values
// are cheap to move, and for long ones the guess is mostly right. So that a
// value which nests deep cannot make the same bytes move a thousand times, what
// lies below measuredDepth is written twice: the first time to learn its sizes.
type parser struct {
	b    []byte
	i    int
	keys []member // of the objects that are open, for duplicates

	mode  mode
	sizes []int // of what was opened while measuring, in order
	next  int   // while sized: the next of them
	short int   // while measuring: bytes that the room reserved so far lacks
}

// mode is how a parser knows the length of what it opens.
type mode uint8

const (
	guessing mode = iota
	measuring
	sized
)

// measuredDepth is deeper than what ledgers hold.
const measuredDepth = 16

// room is what was reserved for a length.
type room struct {
	at, size int
	index    int // in sizes, while measuring
	short    int // of the parser, then
}

// open reserves room for a length of about guess.
func (p *parser) open(dst []byte, guess int) ([]byte, room) {
	r := room{at: len(dst), index: len(p.sizes), short: p.short}
	switch p.mode {
	case measuring:
		p.sizes = append(p.sizes, 0)
	case sized:
		guess = p.sizes[p.next]
		p.next++
	}
	r.size = varintSize(guess)
	return append(dst, zeros[:r.size]...), r
}

// close writes the length of what followed, and returns how many bytes it takes.
func (p *parser) close(dst []byte, r room) ([]byte, int) {
	if p.mode != measuring {
		n := len(dst) - r.at - r.size
		return closeLength(dst, r.at, r.size), varintSize(n)
	}
	n := len(dst) - r.at - r.size + p.short - r.short
	p.sizes[r.index] = n
	p.short += varintSize(n) - r.size
	return dst, r.size
}

// member is where a member of an object was written.
type member struct {
	from, to int
	name     int // where the key's field begins
	key      int // length of that field, 0 for the empty key
	short    int // what the parser lacks for it, while measuring
	dead     bool
}

func (p *parser) space() {
	for p.i < len(p.b) && p.b[p.i] <= ' ' {
		p.i++
	}
}

// take passes over c, with white space before and after it, if it is next.
func (p *parser) take(c byte) bool {
	p.space()
	if p.b[p.i] != c {
		return false
	}
	p.i++
	p.space()
	return true
}

// any appends the next value as a field of type AnyValue.
func (p *parser) any(dst []byte, tag byte, depth int) []byte {
	start := p.i
	c := p.b[start]
	switch {
	case c == '"':
		p.skipString()
		return appendJSONString(dst, tag, p.b[start:p.i])
	case c == '{' || c == '[':
		if depth >= telemetry.MaxValueDepth {
			p.skip()
			return appendAny(dst, tag, attribute.StringValue(string(p.b[start:p.i])))
		}
		return p.list(dst, tag, c, depth)
	}
	for p.i < len(p.b) && p.b[p.i] > ' ' && p.b[p.i] != ',' && p.b[p.i] != ']' && p.b[p.i] != '}' {
		p.i++
	}
	switch c {
	case 't':
		return append(dst, tag, 2, anyBool, 1)
	case 'f':
		return append(dst, tag, 2, anyBool, 0)
	case 'n':
		return append(dst, tag, 0)
	}
	integer, double, isInt := telemetry.BodyNumber(p.b[start:p.i])
	if isInt {
		at := len(dst) + 1
		dst = binary.AppendUvarint(append(dst, tag, 0, anyInt), uint64(integer))
		dst[at] = byte(len(dst) - at - 1)
		return dst
	}
	return binary.LittleEndian.AppendUint64(append(dst, tag, 9, anyDouble), math.Float64bits(double))
}

// list appends an object or an array.
func (p *parser) list(dst []byte, tag, open byte, depth int) []byte {
	if depth == measuredDepth && p.mode == guessing {
		start, size := p.i, len(dst)
		p.mode, p.sizes, p.short = measuring, p.sizes[:0], 0
		dst = p.list(dst, tag, open, depth)[:size]
		p.mode, p.next, p.i = sized, 0, start
		dst = p.list(dst, tag, open, depth)
		p.mode = guessing
		return dst
	}
	guess := len(p.b) - p.i
	dst, outer := p.open(append(dst, tag), guess)
	kind := byte(anyArray)
	if open == '{' {
		kind = anyMap
	}
	dst, inner := p.open(append(dst, kind), guess)
	if open == '{' {
		dst = p.object(dst, depth)
	} else {
		dst = p.array(dst, depth)
	}
	dst, _ = p.close(dst, inner)
	dst, _ = p.close(dst, outer)
	return dst
}

func (p *parser) array(dst []byte, depth int) []byte {
	p.take('[')
	for !p.take(']') {
		dst = p.any(dst, listValue, depth+1)
		p.take(',')
	}
	return dst
}

func (p *parser) object(dst []byte, depth int) []byte {
	first := len(p.keys)
	p.take('{')
	for !p.take('}') {
		m := member{from: len(dst)}
		start := p.i
		p.skipString()
		key := p.b[start:p.i]
		p.take(':')
		start = p.i
		guess := 0
		switch p.b[start] {
		case '{', '[':
			guess = len(p.b) - start
		case '"':
			p.skipString()
			guess = len(key) + p.i - start + 4
		}
		short := p.short
		var whole room
		dst, whole = p.open(append(dst, listValue), guess)
		if len(key) > len(`""`) {
			at := len(dst) + 1
			dst = telemetry.AppendText(append(dst, pairKey, 0), key)
			dst = closeLength(dst, at, 1)
			m.key = len(dst) - whole.at - whole.size
		}
		if p.b[start] == '"' {
			dst = appendJSONString(dst, pairValue, p.b[start:p.i])
		} else {
			dst = p.any(dst, pairValue, depth+1)
		}
		var n int
		dst, n = p.close(dst, whole)
		m.to, m.name, m.short = len(dst), whole.at+n, p.short-short
		p.keys = append(p.keys, m)
		p.take(',')
	}
	dst = p.lastWins(dst, p.keys[first:])
	p.keys = p.keys[:first]
	return dst
}

// few is how many members are compared each with each.
const few = 16

// lastWins takes all but the last of the members with one key out of dst, which
// ends with members.
func (p *parser) lastWins(dst []byte, members []member) []byte {
	if len(members) <= few {
		for i := range members {
			for j := i + 1; j < len(members) && !members[i].dead; j++ {
				members[i].dead = members[i].key == members[j].key && bytes.Equal(members[i].text(dst), members[j].text(dst))
			}
		}
	} else {
		seen := make(map[string]struct{}, len(members))
		for i := len(members) - 1; i >= 0; i-- {
			name := members[i].text(dst)
			_, members[i].dead = seen[string(name)]
			if !members[i].dead {
				seen[string(name)] = struct{}{}
			}
		}
	}
	i := slices.IndexFunc(members, func(m member) bool { return m.dead })
	if i < 0 {
		return dst
	}
	end := members[i].from
	for _, m := range members[i:] {
		if m.dead {
			p.short -= m.short
		} else {
			end += copy(dst[end:], dst[m.from:m.to])
		}
	}
	return dst[:end]
}

// text is the key's field of a member.
func (m *member) text(dst []byte) []byte { return dst[m.name : m.name+m.key] }

// appendJSONString appends the JSON string raw as a field of type AnyValue.
func appendJSONString(dst []byte, tag byte, raw []byte) []byte {
	guess := len(raw) - len(`""`)
	inside := varintSize(guess)
	outside := varintSize(1 + inside + guess)
	at := len(dst) + 1
	dst = append(append(dst, tag), zeros[:outside]...)
	dst = append(append(dst, anyString), zeros[:inside]...)
	dst = telemetry.AppendText(dst, raw)
	dst = closeLength(dst, at+outside+1, inside)
	return closeLength(dst, at, outside)
}

// skipString passes over a string.
func (p *parser) skipString() {
	for p.i++; ; {
		n := bytes.IndexByte(p.b[p.i:], '"')
		end := p.i + n
		escapes := 0
		for end-escapes > p.i && p.b[end-escapes-1] == '\\' {
			escapes++
		}
		p.i = end + 1
		if escapes%2 == 0 {
			return
		}
	}
}

// skip passes over one object or array without recursion.
func (p *parser) skip() {
	for depth := 0; ; {
		switch p.b[p.i] {
		case '"':
			p.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		p.i++
		if depth == 0 {
			return
		}
	}
}
