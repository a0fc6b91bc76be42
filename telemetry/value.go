package telemetry

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
)

// ErrNotJSON is returned by BodyValue for bytes that are not one JSON value.
var ErrNotJSON = errors.New("not one JSON value")

// MaxValueDepth is how deep BodyValue nests. What lies deeper goes out as a
// string with its JSON text: receivers refuse messages that nest further.
const MaxValueDepth = 1000

// BodyValue reads one JSON value as OTLP has it: objects, arrays, strings
// (lone surrogates and invalid UTF-8 become U+FFFD), booleans, null as the
// empty value. A number is an int when it is written as an integer that int64
// holds, or when the double that JavaScript reads is an integer up to 2^53;
// every other number is that double. Of duplicate keys the last wins. Key
// order is not kept, since OTLP values have none.
func BodyValue(json []byte) (attribute.Value, error) {
	p := parser{b: json}
	p.space()
	v, ok := p.value(0)
	if !ok {
		return attribute.Value{}, ErrNotJSON
	}
	p.space()
	if p.i != len(p.b) {
		return attribute.Value{}, ErrNotJSON
	}
	return v, nil
}

type parser struct {
	b []byte
	i int
}

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) literal(s string) bool {
	if len(p.b)-p.i < len(s) || string(p.b[p.i:p.i+len(s)]) != s {
		return false
	}
	p.i += len(s)
	return true
}

func (p *parser) value(depth int) (attribute.Value, bool) {
	if p.i >= len(p.b) {
		return attribute.Value{}, false
	}
	switch p.b[p.i] {
	case '{', '[':
		if depth >= MaxValueDepth {
			start := p.i
			if !p.skip() {
				return attribute.Value{}, false
			}
			return attribute.StringValue(strings.ToValidUTF8(string(p.b[start:p.i]), "\uFFFD")), true
		}
		if p.b[p.i] == '{' {
			return p.object(depth)
		}
		return p.array(depth)
	case '"':
		s, ok := p.string()
		return attribute.StringValue(s), ok
	case 't':
		return attribute.BoolValue(true), p.literal("true")
	case 'f':
		return attribute.BoolValue(false), p.literal("false")
	case 'n':
		return attribute.Value{}, p.literal("null")
	}
	return p.number()
}

func (p *parser) object(depth int) (attribute.Value, bool) {
	p.i++
	var few [8]attribute.KeyValue
	kvs := few[:0]
	p.space()
	if p.i < len(p.b) && p.b[p.i] == '}' {
		p.i++
		return attribute.MapValue(), true
	}
	for {
		p.space()
		if p.i >= len(p.b) || p.b[p.i] != '"' {
			return attribute.Value{}, false
		}
		key, ok := p.string()
		if !ok {
			return attribute.Value{}, false
		}
		p.space()
		if !p.literal(":") {
			return attribute.Value{}, false
		}
		p.space()
		v, ok := p.value(depth + 1)
		if !ok {
			return attribute.Value{}, false
		}
		kvs = append(kvs, attribute.KeyValue{Key: attribute.Key(key), Value: v})
		p.space()
		if p.literal(",") {
			continue
		}
		if !p.literal("}") {
			return attribute.Value{}, false
		}
		return attribute.MapValue(lastWins(kvs)...), true
	}
}

// lastWins drops all but the last of the members with one key.
func lastWins(kvs []attribute.KeyValue) []attribute.KeyValue {
	if len(kvs) < 16 {
		for i := len(kvs) - 1; i > 0; i-- {
			for j := i - 1; j >= 0; j-- {
				if kvs[j].Key == kvs[i].Key {
					return dedupe(kvs)
				}
			}
		}
		return kvs
	}
	return dedupe(kvs)
}

func dedupe(kvs []attribute.KeyValue) []attribute.KeyValue {
	at := make(map[attribute.Key]int, len(kvs))
	out := kvs[:0]
	for _, kv := range kvs {
		if i, ok := at[kv.Key]; ok {
			out[i].Value = kv.Value
			continue
		}
		at[kv.Key] = len(out)
		out = append(out, kv)
	}
	return out
}

func (p *parser) array(depth int) (attribute.Value, bool) {
	p.i++
	var few [8]attribute.Value
	list := few[:0]
	p.space()
	if p.i < len(p.b) && p.b[p.i] == ']' {
		p.i++
		return attribute.SliceValue(), true
	}
	for {
		p.space()
		v, ok := p.value(depth + 1)
		if !ok {
			return attribute.Value{}, false
		}
		list = append(list, v)
		p.space()
		if p.literal(",") {
			continue
		}
		if !p.literal("]") {
			return attribute.Value{}, false
		}
		return attribute.SliceValue(list...), true
	}
}

// skip passes over one object or array without recursion. Only its brackets
// and strings are looked at: what reaches a receiver this way is text.
func (p *parser) skip() bool {
	depth := 0
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				p.i++
				return true
			}
		case '"':
			if !p.skipString() {
				return false
			}
			continue
		}
		p.i++
	}
	return false
}

func (p *parser) skipString() bool {
	for p.i++; p.i < len(p.b); p.i++ {
		switch p.b[p.i] {
		case '\\':
			p.i++
		case '"':
			p.i++
			return true
		}
	}
	return false
}

func (p *parser) string() (string, bool) {
	start := p.i + 1
	for j := start; j < len(p.b); j++ {
		switch c := p.b[j]; {
		case c == '"':
			p.i = j + 1
			s := p.b[start:j]
			if utf8.Valid(s) {
				return string(s), true
			}
			return toValid(s), true
		case c == '\\':
			return p.escaped(start, j)
		case c < 0x20:
			return "", false
		}
	}
	return "", false
}

// toValid replaces every byte that is not part of a character by U+FFFD.
func toValid(s []byte) string {
	out := make([]byte, 0, len(s)+8)
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		out = utf8.AppendRune(out, r)
		s = s[n:]
	}
	return string(out)
}

// escaped reads on from the first backslash at j of a string that began at
// start.
func (p *parser) escaped(start, j int) (string, bool) {
	out := make([]byte, 0, len(p.b[start:j])+64)
	out = append(out, p.b[start:j]...)
	for j < len(p.b) {
		switch c := p.b[j]; {
		case c == '"':
			p.i = j + 1
			if utf8.Valid(out) {
				return string(out), true
			}
			return toValid(out), true
		case c < 0x20:
			return "", false
		case c != '\\':
			out = append(out, c)
			j++
		default:
			if j+1 >= len(p.b) {
				return "", false
			}
			switch e := p.b[j+1]; e {
			case '"', '\\', '/':
				out = append(out, e)
			case 'b':
				out = append(out, '\b')
			case 'f':
				out = append(out, '\f')
			case 'n':
				out = append(out, '\n')
			case 'r':
				out = append(out, '\r')
			case 't':
				out = append(out, '\t')
			case 'u':
				r, ok := p.hex4(j + 2)
				if !ok {
					return "", false
				}
				j += 6
				if utf16.IsSurrogate(r) {
					pair := rune(utf8.RuneError)
					if j+1 < len(p.b) && p.b[j] == '\\' && p.b[j+1] == 'u' {
						if low, ok := p.hex4(j + 2); ok {
							pair = utf16.DecodeRune(r, low)
						}
					}
					if pair != utf8.RuneError {
						j += 6
					}
					r = pair
				}
				out = utf8.AppendRune(out, r)
				continue
			default:
				return "", false
			}
			j += 2
		}
	}
	return "", false
}

func (p *parser) hex4(at int) (rune, bool) {
	if at+4 > len(p.b) {
		return 0, false
	}
	var r rune
	for _, c := range p.b[at : at+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func (p *parser) number() (attribute.Value, bool) {
	start := p.i
	p.literal("-")
	digits := func() bool {
		from := p.i
		for p.i < len(p.b) && '0' <= p.b[p.i] && p.b[p.i] <= '9' {
			p.i++
		}
		return p.i > from
	}
	if !p.literal("0") && !digits() {
		return attribute.Value{}, false
	}
	whole := true
	if p.literal(".") {
		whole = false
		if !digits() {
			return attribute.Value{}, false
		}
	}
	if p.literal("e") || p.literal("E") {
		whole = false
		if !p.literal("+") {
			p.literal("-")
		}
		if !digits() {
			return attribute.Value{}, false
		}
	}
	text := string(p.b[start:p.i])
	if whole {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return attribute.Int64Value(n), true
		}
	}
	f, _ := strconv.ParseFloat(text, 64) // out of range gives the infinity that JavaScript reads
	if f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		return attribute.Int64Value(int64(f)), true
	}
	return attribute.Float64Value(f), true
}
