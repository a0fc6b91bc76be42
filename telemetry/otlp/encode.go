package otlp

import (
	"encoding/binary"
	"io"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// encoder writes stored records as the OTLP protobufs of the logs signal, in
// one pass over the body's JSON and without a tree of values between. Field
// numbers are those of opentelemetry-proto; fields stand in their order and
// lengths are minimal, so that the same records are the same bytes. It is not
// safe for concurrent use.
type encoder struct {
	json    bool // bodies as JSON text
	decoder telemetry.Decoder
	attrs   []attribute.KeyValue
	buf     []byte // encoded records
	keys    []member
	sizes   []int
}

// Wire types and tags: field number << 3 | type.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

const (
	anyString = 1<<3 | typeBytes
	anyBool   = 2<<3 | typeVarint
	anyInt    = 3<<3 | typeVarint
	anyDouble = 4<<3 | typeFixed64
	anyArray  = 5<<3 | typeBytes
	anyMap    = 6<<3 | typeBytes
	anyBytes  = 7<<3 | typeBytes

	pairKey   = 1<<3 | typeBytes
	pairValue = 2<<3 | typeBytes
	listValue = 1<<3 | typeBytes // ArrayValue.values, KeyValueList.values

	requestResource  = 1<<3 | typeBytes // ExportLogsServiceRequest.resource_logs
	resourceResource = 1<<3 | typeBytes
	resourceScope    = 2<<3 | typeBytes
	resourceAttrs    = 1<<3 | typeBytes
	scopeScope       = 1<<3 | typeBytes
	scopeRecord      = 2<<3 | typeBytes
	schemaURL        = 3<<3 | typeBytes // of ResourceLogs and ScopeLogs
	scopeName        = 1<<3 | typeBytes
	scopeVersion     = 2<<3 | typeBytes
	scopeAttrs       = 3<<3 | typeBytes

	recordTime         = 1<<3 | typeFixed64
	recordSeverity     = 2<<3 | typeVarint
	recordSeverityText = 3<<3 | typeBytes
	recordBody         = 5<<3 | typeBytes
	recordAttrs        = 6<<3 | typeBytes
	recordDropped      = 7<<3 | typeVarint
	recordFlags        = 8<<3 | typeFixed32
	recordTraceID      = 9<<3 | typeBytes
	recordSpanID       = 10<<3 | typeBytes
	recordObserved     = 11<<3 | typeFixed64
	recordEventName    = 12<<3 | typeBytes
)

// encoded is a record in the encoder's buffer, with what it is grouped by.
type encoded struct {
	from, to int
	resource *telemetry.Resource
	scope    telemetry.Scope
}

// maxKept bounds the memory that a worker keeps from one batch to the next, for
// its records and for its requests.
const maxKept = 2 << 20

// reset forgets what was encoded.
func (e *encoder) reset() {
	if cap(e.buf) > maxKept {
		e.buf = nil
	}
	e.buf = e.buf[:0]
}

// add encodes r behind what is in the buffer. An error, of a body that is not
// JSON, leaves the buffer as it was.
func (e *encoder) add(r *telemetry.Record) (encoded, error) {
	if len(r.Body) > 0 && !e.json {
		if err := telemetry.CheckBody(r.Body); err != nil {
			return encoded{}, err
		}
	}
	from := len(e.buf)
	reserve := varintSize(len(r.Body) + 512)
	dst := append(e.buf, scopeRecord)
	dst = e.record(append(dst, zeros[:reserve]...), r)
	e.buf = closeLength(dst, from+1, reserve)
	return encoded{from, len(e.buf), r.Resource, r.Scope}, nil
}

func (e *encoder) record(dst []byte, r *telemetry.Record) []byte {
	text, log := r.Severity.String(), r.Log
	if log != nil {
		text = log.SeverityText
	}
	dst = appendFixed64(dst, recordTime, uint64(r.Nanoseconds()))
	if s := r.Severity; s >= 1 && s <= 24 { // those that the protocol has
		dst = append(dst, recordSeverity, byte(s))
	}
	dst = appendText(dst, recordSeverityText, text)
	switch {
	case log != nil:
		dst = appendAny(dst, recordBody, log.Body)
	case len(r.Body) == 0:
		dst = append(dst, recordBody, 0)
	case e.json:
		dst = appendAny(dst, recordBody, attribute.StringValue(string(r.Body)))
	default:
		p := parser{b: r.Body, keys: e.keys[:0], sizes: e.sizes[:0]}
		p.space()
		dst = p.any(dst, recordBody, 0)
		e.keys, e.sizes = p.keys, p.sizes
	}
	e.attrs = r.AppendAttributes(e.attrs[:0])
	for _, kv := range e.attrs {
		if kv.Key != "" { // the protocol has none such, and the SDK drops it
			dst = appendPair(dst, recordAttrs, kv)
		}
	}
	clear(e.attrs)
	if log != nil {
		if n := min(max(log.Dropped, 0), math.MaxUint32); n > 0 {
			dst = binary.AppendUvarint(append(dst, recordDropped), uint64(n))
		}
		if log.TraceFlags != 0 {
			dst = binary.LittleEndian.AppendUint32(append(dst, recordFlags), uint32(log.TraceFlags))
		}
		if log.TraceID != [16]byte{} {
			dst = append(append(dst, recordTraceID, 16), log.TraceID[:]...)
		}
		if log.SpanID != [8]byte{} {
			dst = append(append(dst, recordSpanID, 8), log.SpanID[:]...)
		}
	}
	dst = appendFixed64(dst, recordObserved, uint64(r.ObservedNanoseconds()))
	return appendText(dst, recordEventName, r.EventName)
}

func appendFixed64(dst []byte, tag byte, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.LittleEndian.AppendUint64(append(dst, tag), v)
}

// appendText appends a string field, unless it is empty. Protobuf refuses
// invalid UTF-8, and a receiver the whole request for it.
func appendText(dst []byte, tag byte, s string) []byte {
	if s == "" {
		return dst
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	dst = binary.AppendUvarint(append(dst, tag), uint64(len(s)))
	return append(dst, s...)
}

func appendPair(dst []byte, tag byte, kv attribute.KeyValue) []byte {
	at := len(dst) + 1
	dst = appendText(append(dst, tag, 0), pairKey, string(kv.Key))
	return closeLength(appendAny(dst, pairValue, kv.Value), at, 1)
}

// appendAny appends v as a field of type AnyValue.
func appendAny(dst []byte, tag byte, v attribute.Value) []byte {
	at := len(dst) + 1
	dst = append(dst, tag, 0)
	switch v.Type() {
	case attribute.STRING:
		// Not appendText: a oneof that holds "" is not empty.
		s := v.AsString()
		if !utf8.ValidString(s) {
			s = strings.ToValidUTF8(s, "\uFFFD")
		}
		dst = binary.AppendUvarint(append(dst, anyString), uint64(len(s)))
		dst = append(dst, s...)
	case attribute.BOOL:
		dst = append(dst, anyBool, 0)
		if v.AsBool() {
			dst[len(dst)-1] = 1
		}
	case attribute.INT64:
		dst = binary.AppendUvarint(append(dst, anyInt), uint64(v.AsInt64()))
	case attribute.FLOAT64:
		dst = binary.LittleEndian.AppendUint64(append(dst, anyDouble), math.Float64bits(v.AsFloat64()))
	case attribute.BYTESLICE:
		b := v.AsByteSlice()
		dst = binary.AppendUvarint(append(dst, anyBytes), uint64(len(b)))
		dst = append(dst, b...)
	case attribute.MAP:
		dst = append(dst, anyMap, 0)
		for _, kv := range v.AsMap() {
			dst = appendPair(dst, listValue, kv)
		}
		dst = closeLength(dst, at+2, 1)
	case attribute.SLICE:
		dst = appendArray(dst, v.AsSlice(), func(m attribute.Value) attribute.Value { return m })
	case attribute.BOOLSLICE:
		dst = appendArray(dst, v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		dst = appendArray(dst, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		dst = appendArray(dst, v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.STRINGSLICE:
		dst = appendArray(dst, v.AsStringSlice(), attribute.StringValue)
	}
	return closeLength(dst, at, 1)
}

func appendArray[T any](dst []byte, list []T, value func(T) attribute.Value) []byte {
	at := len(dst) + 1
	dst = append(dst, anyArray, 0)
	for _, m := range list {
		dst = appendAny(dst, listValue, value(m))
	}
	return closeLength(dst, at, 1)
}

var zeros [binary.MaxVarintLen64]byte

// closeLength writes the length of what has been appended since at, where so
// many bytes were reserved for it. A guess that was wrong moves the rest.
func closeLength(dst []byte, at, reserved int) []byte {
	n := len(dst) - at - reserved
	if n < 0x80 && reserved == 1 {
		dst[at] = byte(n)
		return dst
	}
	if need := varintSize(n); need != reserved {
		if need > reserved {
			dst = append(dst, zeros[:need-reserved]...)
		}
		copy(dst[at+need:], dst[at+reserved:at+reserved+n])
		dst = dst[:at+need+n]
	}
	binary.PutUvarint(dst[at:], uint64(n))
	return dst
}

func varintSize(n int) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// request is the layout of one ExportLogsServiceRequest over encoded records.
type request struct {
	buf       []byte
	size      int // bytes
	records   int
	resources []resourceLogs
}

type resourceLogs struct {
	resource *telemetry.Resource
	head     []byte // Resource
	tail     []byte // schema URL
	size     int
	scopes   []scopeLogs
}

type scopeLogs struct {
	scope      telemetry.Scope
	head, tail []byte
	size       int
	parts      []part
}

// part is a run of records in the encoder's buffer.
type part struct{ from, to int }

// layout groups records by resource and scope, in order of appearance, and
// adds the sizes up. The request is good until the encoder's buffer is used
// again.
func (e *encoder) layout(items []item) request {
	q := request{buf: e.buf, records: len(items)}
	for i := range items {
		q.group(&items[i].encoded).add(items[i].from, items[i].to)
	}
	for i := range q.resources {
		rl := &q.resources[i]
		rl.size = len(rl.head) + len(rl.tail)
		for j := range rl.scopes {
			rl.size += fieldSize(rl.scopes[j].size)
		}
		q.size += fieldSize(rl.size)
	}
	return q
}

// fieldSize is the size of a field of n bytes with a tag of one byte.
func fieldSize(n int) int { return 1 + varintSize(n) + n }

func (q *request) group(e *encoded) *scopeLogs {
	var rl *resourceLogs
	for i := len(q.resources) - 1; i >= 0 && rl == nil; i-- {
		if q.resources[i].resource == e.resource {
			rl = &q.resources[i]
		}
	}
	if rl == nil {
		q.resources = append(q.resources, newResourceLogs(e.resource))
		rl = &q.resources[len(q.resources)-1]
	}
	for i := range rl.scopes {
		if rl.scopes[i].scope == e.scope {
			return &rl.scopes[i]
		}
	}
	rl.scopes = append(rl.scopes, newScopeLogs(e.scope))
	return &rl.scopes[len(rl.scopes)-1]
}

func newResourceLogs(r *telemetry.Resource) resourceLogs {
	rl := resourceLogs{resource: r, tail: appendText(nil, schemaURL, r.SchemaURL())}
	if attrs := r.Attributes(); len(attrs) > 0 {
		rl.head = []byte{resourceResource, 0}
		for _, kv := range attrs {
			rl.head = appendPair(rl.head, resourceAttrs, kv)
		}
		rl.head = closeLength(rl.head, 1, 1)
	}
	return rl
}

func newScopeLogs(s telemetry.Scope) scopeLogs {
	sl := scopeLogs{scope: s, tail: appendText(nil, schemaURL, s.SchemaURL)}
	if s != (telemetry.Scope{}) {
		sl.head = appendText([]byte{scopeScope, 0}, scopeName, s.Name)
		sl.head = appendText(sl.head, scopeVersion, s.Version)
		for it := s.Attributes.Iter(); it.Next(); {
			sl.head = appendPair(sl.head, scopeAttrs, it.Attribute())
		}
		sl.head = closeLength(sl.head, 1, 1)
	}
	sl.size = len(sl.head) + len(sl.tail)
	return sl
}

func (sl *scopeLogs) add(from, to int) {
	sl.size += to - from
	if n := len(sl.parts); n > 0 && sl.parts[n-1].to == from {
		sl.parts[n-1].to = to
		return
	}
	sl.parts = append(sl.parts, part{from, to})
}

// write writes the request's bytes to w, which remembers its errors.
func (q *request) write(w io.Writer) {
	put := func(b []byte) { _, _ = w.Write(b) }
	var head [1 + binary.MaxVarintLen64]byte
	field := func(tag byte, n int) {
		put(binary.AppendUvarint(append(head[:0], tag), uint64(n)))
	}
	for i := range q.resources {
		rl := &q.resources[i]
		field(requestResource, rl.size)
		put(rl.head)
		for j := range rl.scopes {
			sl := &rl.scopes[j]
			field(resourceScope, sl.size)
			put(sl.head)
			for _, p := range sl.parts {
				put(q.buf[p.from:p.to])
			}
			put(sl.tail)
		}
		put(rl.tail)
	}
}
