package telemetry

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/otel-bridge/otel-bridge/session"
)

// Leaf is SHA-256 over the canonical form (session.Canonical) of a body: what an
// auditor computes again from what a receiver has. The zero Leaf stands for a
// body that has none: no body at all, one with a number beyond the range of
// doubles, or one that nests deeper than MaxValueDepth, which receivers do not
// get as it is.
type Leaf [sha256.Size]byte

// LeafOf returns the leaf of a body, which must be valid JSON.
func LeafOf(body []byte) Leaf {
	leaf, _ := leafOf(nil, body)
	return leaf
}

// leafOf is LeafOf with a buffer that is used again.
func leafOf(buf, body []byte) (Leaf, []byte) {
	if len(body) == 0 {
		return Leaf{}, buf
	}
	out, _, ok := appendCanonical(buf[:0], body, skipBlank(body, 0), 0)
	if !ok {
		var err error
		if nesting(body) > MaxValueDepth {
			return Leaf{}, out
		}
		if out, err = session.Canonical(out[:0], body); err != nil {
			return Leaf{}, out
		}
	}
	return sha256.Sum256(out), out
}

// canonical is session.Canonical, in one pass where appendCanonical knows how.
func canonical(dst, body []byte) ([]byte, error) {
	if out, _, ok := appendCanonical(dst, body, skipBlank(body, 0), 0); ok {
		return out, nil
	}
	return session.Canonical(dst, body)
}

// maxQuickDepth bounds the nesting for which appendCanonical is linear in
// practice: an object whose members are out of order is copied once more at
// each level.
const maxQuickDepth = 64

// appendCanonical appends the canonical form of the valid JSON value at raw[i:]
// and returns where the value ends. It is session.Canonical in one pass and
// without allocations for what ledgers are made of; where something rarer stands
// (keys with escapes or beyond the BMP, duplicate keys, surrogates, fractions)
// it asks session.Canonical for that value. False: ask it for the whole.
func appendCanonical(dst, raw []byte, i, depth int) (out []byte, end int, ok bool) {
	switch c := raw[i]; c {
	case '{':
		return appendCanonicalObject(dst, raw, i, depth)
	case '[':
		if depth >= maxQuickDepth {
			return dst, 0, false
		}
		dst = append(dst, '[')
		i = skipBlank(raw, i+1)
		for raw[i] != ']' {
			if dst, i, ok = appendCanonical(dst, raw, i, depth+1); !ok {
				return dst, 0, false
			}
			if i = skipBlank(raw, i); raw[i] == ',' {
				dst = append(dst, ',')
				i = skipBlank(raw, i+1)
			}
		}
		return append(dst, ']'), i + 1, true
	case '"':
		end, plain := scanText(raw, i)
		if !plain {
			dst, ok = askCanonical(dst, raw[i:end])
			return dst, end, ok
		}
		return append(dst, raw[i:end]...), end, true
	default:
		end := i + 1
		for end < len(raw) && raw[end] > ' ' && raw[end] != ',' && raw[end] != ']' && raw[end] != '}' {
			end++
		}
		lexeme := raw[i:end]
		if c == '-' || c-'0' < 10 {
			if !plainInteger(lexeme) {
				dst, ok = askCanonical(dst, lexeme)
				return dst, end, ok
			}
		}
		return append(dst, lexeme...), end, true
	}
}

// quickMembers is how many members are put in order without a list on the heap.
const quickMembers = 24

type canonicalMember struct{ from, key, to int } // in dst: the member, the end of its key, its end

func appendCanonicalObject(dst, raw []byte, i, depth int) ([]byte, int, bool) {
	if depth >= maxQuickDepth {
		return dst, 0, false
	}
	var few [quickMembers]canonicalMember
	members := few[:0]
	begin, start := i, len(dst)
	sorted, odd := true, false
	dst = append(dst, '{')
	i = skipBlank(raw, i+1)
	for raw[i] != '}' {
		end := stringEnd(raw, i)
		key := raw[i:end]
		odd = odd || !plainKey(key)
		m := canonicalMember{from: len(dst), key: len(dst) + len(key)}
		dst = append(dst, key...)
		dst = append(dst, ':')
		i = skipBlank(raw, skipBlank(raw, end)+1)
		var ok bool
		if dst, i, ok = appendCanonical(dst, raw, i, depth+1); !ok {
			return dst, 0, false
		}
		m.to = len(dst)
		if n := len(members); n > 0 && sorted {
			sorted = bytes.Compare(members[n-1].name(dst), m.name(dst)) < 0
		}
		members = append(members, m)
		if i = skipBlank(raw, i); raw[i] == ',' {
			dst = append(dst, ',')
			i = skipBlank(raw, i+1)
		}
	}
	end := i + 1
	dst = append(dst, '}')
	if odd {
		dst, ok := askCanonical(dst[:start], raw[begin:end])
		return dst, end, ok
	}
	if sorted {
		return dst, end, true
	}
	// Insertion sort: objects of ledgers have few members, mostly in one order.
	if len(members) > 4*quickMembers {
		dst, ok := askCanonical(dst[:start], raw[begin:end])
		return dst, end, ok
	}
	for a := 1; a < len(members); a++ {
		for b := a; b > 0; b-- {
			switch bytes.Compare(members[b-1].name(dst), members[b].name(dst)) {
			case 0: // the last of duplicates counts
				dst, ok := askCanonical(dst[:start], raw[begin:end])
				return dst, end, ok
			case 1:
				members[b-1], members[b] = members[b], members[b-1]
				continue
			}
			break
		}
	}
	// The members in order go behind the object, then into its place.
	n := len(dst)
	for k, m := range members {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, dst[m.from:m.to]...)
	}
	copy(dst[start+1:], dst[n:])
	return dst[:n], end, true
}

// name is the inside of a member's key.
func (m *canonicalMember) name(dst []byte) []byte { return dst[m.from+1 : m.key-1] }

// plainKey tells keys whose bytes sort like their UTF-16 code units and need no
// other spelling.
func plainKey(key []byte) bool {
	for _, c := range key[1 : len(key)-1] {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

func plainInteger(lexeme []byte) bool {
	if len(lexeme) > 18 || lexeme[0] == '-' && lexeme[1] == '0' {
		return false
	}
	for _, c := range lexeme[1:] {
		if c-'0' > 9 {
			return false
		}
	}
	return true
}

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// scanText finds the end of the string that starts at i, and tells whether it is
// canonical as it stands: valid UTF-8, and no escapes but the short ones, \/ not
// among them. It looks at each byte once, eight at a time.
func scanText(raw []byte, i int) (end int, plain bool) {
	start, ascii := i+1, true
	plain = true
	for i++; ; {
		for i+8 <= len(raw) {
			w := binary.LittleEndian.Uint64(raw[i:])
			quote, escape := w^everyByte*'"', w^everyByte*'\\'
			// The lowest bit that is set is exact: borrows go upwards only.
			stop := ((quote-everyByte)&^quote | (escape-everyByte)&^escape) & highBits
			if stop != 0 {
				n := bits.TrailingZeros64(stop) >> 3
				ascii = ascii && w<<(64-8*n)&highBits == 0
				i += n
				break
			}
			ascii = ascii && w&highBits == 0
			i += 8
		}
		switch c := raw[i]; {
		case c == '"':
			return i + 1, plain && (ascii || utf8.Valid(raw[start:i]))
		case c == '\\':
			plain = plain && raw[i+1] != '/' && raw[i+1] != 'u'
			i += 2
		default: // among the last seven bytes of raw
			ascii = ascii && c < utf8.RuneSelf
			i++
		}
	}
}

func askCanonical(dst, raw []byte) ([]byte, bool) {
	out, err := session.Canonical(dst, raw)
	return out, err == nil
}

func stringEnd(raw []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(raw[i:], '"')
		i += n
		back := i
		for raw[back-1] == '\\' {
			back--
		}
		if (i-back)&1 == 0 {
			return i + 1
		}
	}
}

func skipBlank(raw []byte, i int) int {
	for i < len(raw) && raw[i] <= ' ' {
		i++
	}
	return i
}

// nesting is how deep a valid value nests.
func nesting(raw []byte) int {
	deepest, depth := 0, 0
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i)
			continue
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
		i++
	}
	return deepest
}
