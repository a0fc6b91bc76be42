package telemetry

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
)

// MaxValueDepth is how deep BodyValue nests. What lies deeper goes out as a
// string with its JSON text: receivers refuse messages that nest further.
const MaxValueDepth = 1000

// BodyValue reads one JSON value as OTLP has it: objects, arrays, strings
// (lone surrogates and invalid UTF-8 become U+FFFD), booleans, null as the
// empty value, numbers as session.ParseNumber reads them (an integer that
// int64 holds is an int, every other number the double that JavaScript reads).
// Of duplicate keys the last wins. Key order is not kept, since OTLP values
// have none. The error is a *session.SyntaxError.
func BodyValue(json []byte) (attribute.Value, error) {
	if err := session.ValidJSON(json); err != nil {
		return attribute.Value{}, err
	}
	p := parser{b: json}
	p.space()
	return p.value(0), nil
}

// parser reads JSON that was found valid, each byte once.
type parser struct {
	b []byte
	i int
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

func (p *parser) value(depth int) attribute.Value {
	start := p.i
	switch p.b[p.i] {
	case '{', '[':
		if depth >= MaxValueDepth {
			p.skip()
			return attribute.StringValue(strings.ToValidUTF8(string(p.b[start:p.i]), "\uFFFD"))
		}
		if p.b[p.i] == '{' {
			return p.object(depth)
		}
		return p.array(depth)
	case '"':
		return attribute.StringValue(p.string())
	}
	for p.i < len(p.b) && p.b[p.i] > ' ' && p.b[p.i] != ',' && p.b[p.i] != ']' && p.b[p.i] != '}' {
		p.i++
	}
	switch p.b[start] {
	case 't':
		return attribute.BoolValue(true)
	case 'f':
		return attribute.BoolValue(false)
	case 'n':
		return attribute.Value{}
	}
	n, _ := session.ParseNumber(p.b[start:p.i])
	if n.IsInt {
		return attribute.Int64Value(n.Int)
	}
	return attribute.Float64Value(n.Float)
}

func (p *parser) object(depth int) attribute.Value {
	var few [8]attribute.KeyValue
	kvs := few[:0]
	p.take('{')
	for !p.take('}') {
		key := p.string()
		p.take(':')
		kvs = append(kvs, attribute.KeyValue{Key: attribute.Key(key), Value: p.value(depth + 1)})
		p.take(',')
	}
	return attribute.MapValue(lastWins(kvs)...)
}

func (p *parser) array(depth int) attribute.Value {
	var few [8]attribute.Value
	list := few[:0]
	p.take('[')
	for !p.take(']') {
		list = append(list, p.value(depth+1))
		p.take(',')
	}
	return attribute.SliceValue(list...)
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

func (p *parser) string() string {
	start := p.i
	p.skipString()
	s, _ := session.String(p.b[start:p.i])
	return s
}

func (p *parser) skipString() {
	for p.i++; p.b[p.i] != '"'; p.i++ {
		if p.b[p.i] == '\\' {
			p.i++
		}
	}
	p.i++
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
