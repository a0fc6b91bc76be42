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
// are cheap to move, and for long ones the guess is mostly right.
type parser struct {
	b    []byte
	i    int
	keys []member // of the objects that are open, for duplicates
}

// member is where a member of an object was written.
type member struct {
	from, to int
	key      int // length of the key's field, 0 for the empty key
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
	outer := len(dst) + 1
	reserved := varintSize(len(p.b) - p.i)
	dst = append(append(dst, tag), zeros[:reserved]...)
	inner := len(dst) + 1
	if open == '{' {
		dst = p.object(append(append(dst, anyMap), zeros[:reserved]...), depth)
	} else {
		dst = p.array(append(append(dst, anyArray), zeros[:reserved]...), depth)
	}
	dst = closeLength(dst, inner, reserved)
	return closeLength(dst, outer, reserved)
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
		var reserved int
		switch p.b[start] {
		case '{', '[':
			reserved = varintSize(len(p.b) - start)
		case '"':
			p.skipString()
			reserved = varintSize(len(key) + p.i - start + 4)
		default:
			reserved = 1
		}
		dst = append(append(dst, listValue), zeros[:reserved]...)
		if len(key) > len(`""`) {
			at := len(dst) + 1
			dst = telemetry.AppendText(append(dst, pairKey, 0), key)
			dst = closeLength(dst, at, 1)
			m.key = len(dst) - m.from - 1 - reserved // so long is the field
		}
		if p.b[start] == '"' {
			dst = appendJSONString(dst, pairValue, p.b[start:p.i])
		} else {
			dst = p.any(dst, pairValue, depth+1)
		}
		dst = closeLength(dst, m.from+1, reserved)
		m.to = len(dst)
		p.keys = append(p.keys, m)
		p.take(',')
	}
	dst = lastWins(dst, p.keys[first:])
	p.keys = p.keys[:first]
	return dst
}

// few is how many members are compared each with each.
const few = 16

// lastWins takes all but the last of the members with one key out of dst, which
// ends with members.
func lastWins(dst []byte, members []member) []byte {
	if len(members) <= few {
		for i := range members {
			for j := i + 1; j < len(members) && !members[i].dead; j++ {
				members[i].dead = members[i].key == members[j].key && bytes.Equal(members[i].name(dst), members[j].name(dst))
			}
		}
	} else {
		seen := make(map[string]struct{}, len(members))
		for i := len(members) - 1; i >= 0; i-- {
			name := members[i].name(dst)
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
		if !m.dead {
			end += copy(dst[end:], dst[m.from:m.to])
		}
	}
	return dst[:end]
}

// name is the key's field of a member.
func (m *member) name(dst []byte) []byte {
	_, n := binary.Uvarint(dst[m.from+1 : m.to])
	return dst[m.from+1+n:][:m.key]
}

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
