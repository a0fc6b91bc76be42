package receiver

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// AppendJSON appends req as one line of OTLP JSON without the line end, field
// order and omissions as the Collector's own marshaller writes them.
// (protojson would write enumerations and ids differently and put blanks in
// at random.)
func AppendJSON(dst []byte, req *collogs.ExportLogsServiceRequest) []byte {
	dst = append(dst, `{"resourceLogs":[`...)
	for i, rl := range req.GetResourceLogs() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendResourceLogs(dst, rl)
	}
	return append(dst, "]}"...)
}

func appendResourceLogs(dst []byte, rl *logs.ResourceLogs) []byte {
	dst = append(dst, `{"resource":{`...)
	start := len(dst)
	dst = appendAttributes(dst, start, rl.GetResource().GetAttributes())
	dst = appendUint(dst, start, "droppedAttributesCount", rl.GetResource().GetDroppedAttributesCount())
	dst = append(dst, '}')
	if scopes := rl.GetScopeLogs(); len(scopes) > 0 {
		dst = append(dst, `,"scopeLogs":[`...)
		for i, sl := range scopes {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendScopeLogs(dst, sl)
		}
		dst = append(dst, ']')
	}
	dst = appendText(dst, start, "schemaUrl", rl.GetSchemaUrl())
	return append(dst, '}')
}

func appendScopeLogs(dst []byte, sl *logs.ScopeLogs) []byte {
	dst = append(dst, `{"scope":{`...)
	start := len(dst)
	dst = appendText(dst, start, "name", sl.GetScope().GetName())
	dst = appendText(dst, start, "version", sl.GetScope().GetVersion())
	dst = appendAttributes(dst, start, sl.GetScope().GetAttributes())
	dst = appendUint(dst, start, "droppedAttributesCount", sl.GetScope().GetDroppedAttributesCount())
	dst = append(dst, '}')
	if records := sl.GetLogRecords(); len(records) > 0 {
		dst = append(dst, `,"logRecords":[`...)
		for i, r := range records {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendRecord(dst, r)
		}
		dst = append(dst, ']')
	}
	dst = appendText(dst, start, "schemaUrl", sl.GetSchemaUrl())
	return append(dst, '}')
}

func appendRecord(dst []byte, r *logs.LogRecord) []byte {
	dst = append(dst, '{')
	start := len(dst)
	dst = appendNano(dst, start, "timeUnixNano", r.GetTimeUnixNano())
	dst = appendNano(dst, start, "observedTimeUnixNano", r.GetObservedTimeUnixNano())
	dst = appendUint(dst, start, "severityNumber", uint32(r.GetSeverityNumber())) // enum of 0 to 24
	dst = appendText(dst, start, "severityText", r.GetSeverityText())
	dst = append(appendKey(dst, start, "body"), '{')
	dst = append(appendValue(dst, r.GetBody()), '}')
	dst = appendAttributes(dst, start, r.GetAttributes())
	dst = appendUint(dst, start, "droppedAttributesCount", r.GetDroppedAttributesCount())
	dst = appendUint(dst, start, "flags", r.GetFlags())
	dst = appendID(dst, start, "traceId", r.GetTraceId())
	dst = appendID(dst, start, "spanId", r.GetSpanId())
	dst = appendText(dst, start, "eventName", r.GetEventName())
	return append(dst, '}')
}

// appendKey writes the separator and the key; start is where the object's
// first member would stand.
func appendKey(dst []byte, start int, key string) []byte {
	if len(dst) > start {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, key...)
	return append(dst, `":`...)
}

func appendText(dst []byte, start int, key, value string) []byte {
	if value == "" {
		return dst
	}
	return appendString(appendKey(dst, start, key), value)
}

func appendUint(dst []byte, start int, key string, value uint32) []byte {
	if value == 0 {
		return dst
	}
	return strconv.AppendUint(appendKey(dst, start, key), uint64(value), 10)
}

func appendNano(dst []byte, start int, key string, value uint64) []byte {
	if value == 0 {
		return dst
	}
	dst = append(appendKey(dst, start, key), '"')
	return append(strconv.AppendUint(dst, value, 10), '"')
}

func appendID(dst []byte, start int, key string, id []byte) []byte {
	if len(id) == 0 {
		return dst
	}
	dst = append(appendKey(dst, start, key), '"')
	return append(hex.AppendEncode(dst, id), '"')
}

func appendAttributes(dst []byte, start int, attrs []*common.KeyValue) []byte {
	if len(attrs) == 0 {
		return dst
	}
	dst = append(appendKey(dst, start, "attributes"), '[')
	return append(appendPairs(dst, attrs), ']')
}

func appendPairs(dst []byte, attrs []*common.KeyValue) []byte {
	for i, kv := range attrs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"key":`...)
		dst = appendString(dst, kv.GetKey())
		dst = append(dst, `,"value":{`...)
		dst = append(appendValue(dst, kv.GetValue()), "}}"...)
	}
	return dst
}

// appendValue writes the members of an AnyValue object.
func appendValue(dst []byte, v *common.AnyValue) []byte {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		dst = append(dst, `"stringValue":`...)
		return appendString(dst, v.StringValue)
	case *common.AnyValue_BoolValue:
		dst = append(dst, `"boolValue":`...)
		return strconv.AppendBool(dst, v.BoolValue)
	case *common.AnyValue_IntValue:
		dst = append(dst, `"intValue":"`...)
		return append(strconv.AppendInt(dst, v.IntValue, 10), '"')
	case *common.AnyValue_DoubleValue:
		dst = append(dst, `"doubleValue":`...)
		return appendDouble(dst, v.DoubleValue)
	case *common.AnyValue_BytesValue:
		dst = append(dst, `"bytesValue":"`...)
		return append(base64.StdEncoding.AppendEncode(dst, v.BytesValue), '"')
	case *common.AnyValue_ArrayValue:
		dst = append(dst, `"arrayValue":{`...)
		if vals := v.ArrayValue.GetValues(); len(vals) > 0 {
			dst = append(dst, `"values":[`...)
			for i, e := range vals {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = append(dst, '{')
				dst = append(appendValue(dst, e), '}')
			}
			dst = append(dst, ']')
		}
		return append(dst, '}')
	case *common.AnyValue_KvlistValue:
		dst = append(dst, `"kvlistValue":{`...)
		if vals := v.KvlistValue.GetValues(); len(vals) > 0 {
			dst = append(dst, `"values":[`...)
			dst = append(appendPairs(dst, vals), ']')
		}
		return append(dst, '}')
	}
	return dst
}

func appendDouble(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64)
}

// appendString writes s quoted. Protobuf strings are valid UTF-8, so only
// quotes, backslashes and control characters need an escape.
func appendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

var errID = errors.New("trace and span ids are 16 and 8 bytes in hex")

// ParseJSON reads one OTLP JSON request, which is also one line of the
// written file. Unknown fields are ignored, as OTLP asks.
func ParseJSON(raw []byte) (*collogs.ExportLogsServiceRequest, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("OTLP JSON is not valid UTF-8")
	}
	req := new(collogs.ExportLogsServiceRequest)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, req); err != nil {
		return nil, fmt.Errorf("OTLP JSON does not parse as a logs request (%d bytes)", len(raw))
	}
	for _, rl := range req.GetResourceLogs() {
		for _, sl := range rl.GetScopeLogs() {
			for _, r := range sl.GetLogRecords() {
				var err1, err2 error
				r.TraceId, err1 = hexID(r.GetTraceId(), 16)
				r.SpanId, err2 = hexID(r.GetSpanId(), 8)
				if err := errors.Join(err1, err2); err != nil {
					return nil, errID
				}
			}
		}
	}
	return req, nil
}

// hexID undoes protojson, which takes every bytes field for base64: OTLP
// writes ids in hex, and a hex text of these lengths is also base64.
func hexID(id []byte, size int) ([]byte, error) {
	if len(id) == 0 {
		return nil, nil
	}
	raw, err := hex.DecodeString(base64.StdEncoding.EncodeToString(id))
	if err != nil || len(raw) != size {
		return nil, errID
	}
	return raw, nil
}
