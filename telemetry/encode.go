package telemetry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"go.opentelemetry.io/otel/attribute"
)

// The stored form of a record. Byte 0 is the version of the form; a later
// version is read by later programs only. Then, in this order: flags, the
// numbers (varint), the strings (length, bytes), lists (count, members),
// resource and scope, and last the body, which is the rest of the payload.
const recordVersion = 1

const (
	flagOps = 1 << iota
	flagSessionScoped
	flagInherited
	flagBody
	flagSources
	flagSeen
	flagLog
)

// ErrRecordForm is wrapped by the errors of DecodeRecord: the payload was not
// written by AppendBinary, or by a later version of it.
var ErrRecordForm = errors.New("not a stored record")

// AppendBinary appends the stored form of r to dst, which DecodeRecord reads.
func (r *Record) AppendBinary(dst []byte) ([]byte, error) {
	var flags byte
	if r.Channel == ChannelOps {
		flags |= flagOps
	}
	if r.SessionScoped {
		flags |= flagSessionScoped
	}
	if r.Inherited {
		flags |= flagInherited
	}
	if len(r.Body) > 0 {
		flags |= flagBody
	}
	f := &r.Surface
	if f.Sources != nil {
		flags |= flagSources
	}
	if f.Seen {
		flags |= flagSeen
	}
	if r.Channel == ChannelLog {
		flags |= flagLog
	}
	dst = append(dst, recordVersion, flags, byte(r.Severity), byte(f.Op))
	if f.Op == SurfaceReplace {
		dst = binary.AppendVarint(dst, f.Start)
		dst = binary.AppendVarint(dst, f.End)
	}
	if f.Sources != nil {
		dst = binary.AppendUvarint(dst, uint64(len(f.Sources)))
		for _, seq := range f.Sources {
			dst = binary.AppendVarint(dst, seq)
		}
	}
	if f.Seen {
		dst = binary.AppendVarint(dst, f.Nodes)
		dst = binary.AppendVarint(dst, f.ReplaceGeneration)
		dst = binary.AppendVarint(dst, f.ContentGeneration)
		dst = append(dst, f.Hash[:]...)
	}
	dst = binary.AppendVarint(dst, r.Identity.CreatedAt)
	dst = binary.AppendVarint(dst, int64(r.Identity.FormatVersion))
	dst = binary.AppendUvarint(dst, uint64(r.Identity.Incarnation))
	dst = binary.AppendVarint(dst, r.Identity.Seq)
	dst = binary.AppendVarint(dst, r.TimeMs)
	dst = binary.AppendVarint(dst, r.ObservedMs)
	dst = binary.AppendVarint(dst, r.Cut)
	for _, s := range [...]string{r.Identity.SessionID, r.Type, r.Op, r.UID, r.Policy, string(r.Withheld)} {
		dst = appendString(dst, s)
	}
	name := r.EventName
	if name == r.Type && name != "" {
		name = "" // the usual case; the decoder puts it back
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	dst = appendString(dst, name)
	dst = binary.AppendUvarint(dst, uint64(len(r.Redactions)))
	for _, c := range r.Redactions {
		dst = appendString(dst, c.Rule)
		dst = binary.AppendVarint(dst, c.Count)
	}
	dst = appendAttributes(dst, r.Attributes)
	var resource []byte
	if r.Resource != nil {
		resource = r.Resource.enc
	}
	dst = binary.AppendUvarint(dst, uint64(len(resource)))
	dst = append(dst, resource...)
	dst = appendString(dst, r.Scope.Name)
	dst = appendString(dst, r.Scope.Version)
	if r.Channel == ChannelLog {
		log := r.Log
		if log == nil {
			log = &LogFields{}
		}
		dst = appendString(dst, r.Scope.SchemaURL)
		dst = appendAttributes(dst, r.Scope.Attributes.ToSlice())
		dst = binary.AppendVarint(dst, log.TimeNs)
		dst = binary.AppendVarint(dst, log.ObservedNs)
		dst = binary.AppendVarint(dst, log.Dropped)
		dst = appendString(dst, log.SeverityText)
		dst = append(dst, log.TraceID[:]...)
		dst = append(dst, log.SpanID[:]...)
		dst = append(dst, log.TraceFlags)
		dst = appendValue(dst, log.Body)
	}
	return append(dst, r.Body...), nil
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendAttributes(dst []byte, kvs []attribute.KeyValue) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(kvs)))
	for _, kv := range kvs {
		dst = appendString(dst, string(kv.Key))
		dst = appendValue(dst, kv.Value)
	}
	return dst
}

// Types of stored values. They are part of the form, so they don't follow the
// numbers of attribute.Type.
const (
	valueEmpty = iota
	valueFalse
	valueTrue
	valueInt
	valueDouble
	valueString
	valueBytes
	valueInts
	valueSlice
	valueMap
	valueBools
	valueDoubles
	valueStrings
)

func appendValue(dst []byte, v attribute.Value) []byte {
	switch v.Type() {
	case attribute.BOOL:
		if v.AsBool() {
			return append(dst, valueTrue)
		}
		return append(dst, valueFalse)
	case attribute.INT64:
		return binary.AppendVarint(append(dst, valueInt), v.AsInt64())
	case attribute.FLOAT64:
		return binary.BigEndian.AppendUint64(append(dst, valueDouble), math.Float64bits(v.AsFloat64()))
	case attribute.STRING:
		return appendString(append(dst, valueString), v.AsString())
	case attribute.BYTESLICE:
		return appendString(append(dst, valueBytes), string(v.AsByteSlice()))
	case attribute.INT64SLICE:
		list := v.AsInt64Slice()
		dst = binary.AppendUvarint(append(dst, valueInts), uint64(len(list)))
		for _, n := range list {
			dst = binary.AppendVarint(dst, n)
		}
		return dst
	case attribute.BOOLSLICE:
		list := v.AsBoolSlice()
		dst = binary.AppendUvarint(append(dst, valueBools), uint64(len(list)))
		for _, b := range list {
			dst = appendValue(dst, attribute.BoolValue(b))
		}
		return dst
	case attribute.FLOAT64SLICE:
		list := v.AsFloat64Slice()
		dst = binary.AppendUvarint(append(dst, valueDoubles), uint64(len(list)))
		for _, f := range list {
			dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(f))
		}
		return dst
	case attribute.STRINGSLICE:
		list := v.AsStringSlice()
		dst = binary.AppendUvarint(append(dst, valueStrings), uint64(len(list)))
		for _, s := range list {
			dst = appendString(dst, s)
		}
		return dst
	case attribute.SLICE:
		list := v.AsSlice()
		dst = binary.AppendUvarint(append(dst, valueSlice), uint64(len(list)))
		for _, m := range list {
			dst = appendValue(dst, m)
		}
		return dst
	case attribute.MAP:
		return appendAttributes(append(dst, valueMap), v.AsMap())
	}
	return append(dst, valueEmpty)
}

// DecodeRecord reads the stored form of a record. Its Body shares memory with
// payload; everything else is a copy. Errors wrap ErrRecordForm.
func DecodeRecord(payload []byte) (Record, error) {
	var d Decoder
	return d.Decode(payload)
}

// Decoder decodes many records. Records whose stored resources are equal get
// the same *Resource, which is what a backlog of one bridge mostly has. The
// zero value is ready; it is not safe for concurrent use.
type Decoder struct {
	resources map[string]*Resource
}

// maxInterned bounds what a Decoder remembers.
const maxInterned = 64

// Decode is DecodeRecord.
func (d *Decoder) Decode(payload []byte) (Record, error) {
	if len(payload) < 4 {
		return Record{}, fmt.Errorf("%w: %d bytes", ErrRecordForm, len(payload))
	}
	if payload[0] != recordVersion {
		return Record{}, fmt.Errorf("%w of version %d: it has version %d; use a program that knows it",
			ErrRecordForm, recordVersion, payload[0])
	}
	in := reader{b: payload[4:]}
	flags := payload[1]
	r := Record{
		SessionScoped: flags&flagSessionScoped != 0,
		Inherited:     flags&flagInherited != 0,
		Severity:      Severity(payload[2]),
	}
	switch {
	case flags&flagOps != 0:
		r.Channel = ChannelOps
	case flags&flagLog != 0:
		r.Channel = ChannelLog
	}
	f := &r.Surface
	f.Op = SurfaceOp(payload[3])
	if f.Op == SurfaceReplace {
		f.Start = in.varint()
		f.End = in.varint()
	}
	if flags&flagSources != 0 {
		f.Sources = make([]int64, in.count(1))
		for i := range f.Sources {
			f.Sources[i] = in.varint()
		}
	}
	if f.Seen = flags&flagSeen != 0; f.Seen {
		f.Nodes = in.varint()
		f.ReplaceGeneration = in.varint()
		f.ContentGeneration = in.varint()
		copy(f.Hash[:], in.take(len(f.Hash)))
	}
	r.Identity.CreatedAt = in.varint()
	r.Identity.FormatVersion = int(in.varint())
	r.Identity.Incarnation = uint32(in.uvarint())
	r.Identity.Seq = in.varint()
	r.TimeMs = in.varint()
	r.ObservedMs = in.varint()
	r.Cut = in.varint()
	r.Identity.SessionID = in.string()
	r.Type = in.string()
	r.Op = in.string()
	r.UID = in.string()
	r.Policy = in.string()
	r.Withheld = Reason(in.string())
	same := in.byte() == 1
	r.EventName = in.string()
	if same {
		r.EventName = r.Type
	}
	if n := in.count(2); n > 0 {
		r.Redactions = make([]RuleCount, n)
		for i := range r.Redactions {
			r.Redactions[i].Rule = in.string()
			r.Redactions[i].Count = in.varint()
		}
	}
	r.Attributes = in.attributes(0)
	resource := in.bytes()
	r.Scope.Name = in.string()
	r.Scope.Version = in.string()
	if r.Channel == ChannelLog {
		log := &LogFields{}
		r.Scope.SchemaURL = in.string()
		if kvs := in.attributes(0); len(kvs) > 0 {
			r.Scope.Attributes = attribute.NewSet(kvs...)
		}
		log.TimeNs = in.varint()
		log.ObservedNs = in.varint()
		log.Dropped = in.varint()
		log.SeverityText = in.string()
		copy(log.TraceID[:], in.take(len(log.TraceID)))
		copy(log.SpanID[:], in.take(len(log.SpanID)))
		log.TraceFlags = in.byte()
		log.Body = in.value(0)
		r.Log = log
	}
	if in.bad {
		return Record{}, fmt.Errorf("%w: it ends or breaks %d bytes before its end", ErrRecordForm, len(in.b))
	}
	if len(resource) > 0 {
		res, err := d.resource(resource)
		if err != nil {
			return Record{}, err
		}
		r.Resource = res
	}
	if flags&flagBody != 0 {
		r.Body = in.b
	} else if len(in.b) > 0 {
		return Record{}, fmt.Errorf("%w: %d bytes after its end", ErrRecordForm, len(in.b))
	}
	return r, nil
}

func (d *Decoder) resource(enc []byte) (*Resource, error) {
	if res, ok := d.resources[string(enc)]; ok {
		return res, nil
	}
	in := reader{b: enc}
	res := &Resource{schemaURL: in.string(), attrs: in.attributes(0)}
	if in.bad || len(in.b) > 0 {
		return nil, fmt.Errorf("%w: its resource is broken", ErrRecordForm)
	}
	res.enc = append([]byte(nil), enc...)
	if len(d.resources) >= maxInterned {
		clear(d.resources)
	}
	if d.resources == nil {
		d.resources = make(map[string]*Resource)
	}
	d.resources[string(enc)] = res
	return res, nil
}

// reader takes the stored form apart. After the first thing that does not fit
// it gives zero values and bad is true.
type reader struct {
	b   []byte
	bad bool
}

func (in *reader) fail() { in.bad, in.b = true, nil }

func (in *reader) byte() byte {
	if len(in.b) == 0 {
		in.fail()
		return 0
	}
	c := in.b[0]
	in.b = in.b[1:]
	return c
}

func (in *reader) varint() int64 {
	v, n := binary.Varint(in.b)
	if n <= 0 {
		in.fail()
		return 0
	}
	in.b = in.b[n:]
	return v
}

func (in *reader) uvarint() uint64 {
	v, n := binary.Uvarint(in.b)
	if n <= 0 {
		in.fail()
		return 0
	}
	in.b = in.b[n:]
	return v
}

// count reads the length of a list whose members take at least size bytes
// each, so that a broken length cannot ask for more memory than the payload
// accounts for.
func (in *reader) count(size int) int {
	n := in.uvarint()
	if n > uint64(len(in.b)/size) {
		in.fail()
		return 0
	}
	return int(n)
}

func (in *reader) bytes() []byte {
	return in.take(in.count(1))
}

func (in *reader) take(n int) []byte {
	if n > len(in.b) {
		in.fail()
		return nil
	}
	b := in.b[:n:n]
	in.b = in.b[n:]
	return b
}

func (in *reader) string() string { return string(in.bytes()) }

func (in *reader) double() float64 {
	b := in.take(8)
	if b == nil {
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b))
}

// maxStoredDepth bounds the nesting of attribute values that are read.
const maxStoredDepth = 1 << 12

func (in *reader) attributes(depth int) []attribute.KeyValue {
	n := in.count(2)
	if n == 0 {
		return nil
	}
	kvs := make([]attribute.KeyValue, n)
	for i := range kvs {
		kvs[i].Key = attribute.Key(in.string())
		kvs[i].Value = in.value(depth)
	}
	return kvs
}

func (in *reader) value(depth int) attribute.Value {
	if depth > maxStoredDepth {
		in.fail()
	}
	switch in.byte() {
	case valueEmpty:
		return attribute.Value{}
	case valueFalse:
		return attribute.BoolValue(false)
	case valueTrue:
		return attribute.BoolValue(true)
	case valueInt:
		return attribute.Int64Value(in.varint())
	case valueDouble:
		return attribute.Float64Value(in.double())
	case valueString:
		return attribute.StringValue(in.string())
	case valueBytes:
		return attribute.ByteSliceValue(in.bytes())
	case valueInts:
		list := make([]int64, in.count(1))
		for i := range list {
			list[i] = in.varint()
		}
		return attribute.Int64SliceValue(list)
	case valueBools:
		list := make([]bool, in.count(1))
		for i := range list {
			list[i] = in.byte() == valueTrue
		}
		return attribute.BoolSliceValue(list)
	case valueDoubles:
		list := make([]float64, in.count(8))
		for i := range list {
			list[i] = in.double()
		}
		return attribute.Float64SliceValue(list)
	case valueStrings:
		list := make([]string, in.count(1))
		for i := range list {
			list[i] = in.string()
		}
		return attribute.StringSliceValue(list)
	case valueSlice:
		list := make([]attribute.Value, in.count(1))
		for i := range list {
			list[i] = in.value(depth + 1)
		}
		return attribute.SliceValue(list...)
	case valueMap:
		return attribute.MapValue(in.attributes(depth + 1)...)
	}
	in.fail()
	return attribute.Value{}
}
