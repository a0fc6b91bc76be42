package receiver

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

func text(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

// The line is what the Collector's marshaller writes for the same request:
// field order, omissions, ids in hex, 64-bit integers as strings.
func TestAppendJSONWritesTheCollectorsForm(t *testing.T) {
	req := &collogs.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{{Key: "service.name", Value: text("a\"b\\\n\x01é")}}, DroppedAttributesCount: 2},
		ScopeLogs: []*logs.ScopeLogs{{
			Scope:     &common.InstrumentationScope{Name: "s", Version: "1"},
			SchemaUrl: "u",
			LogRecords: []*logs.LogRecord{{
				TimeUnixNano: 1796031742486000000, ObservedTimeUnixNano: 5, SeverityNumber: 9, SeverityText: "INFO",
				Body: &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: &common.KeyValueList{Values: []*common.KeyValue{
					{Key: "i", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: math.MinInt64}}},
					{Key: "d", Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: 0.1}}},
					{Key: "b", Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{}}},
					{Key: "n", Value: &common.AnyValue{}},
					{Key: "e", Value: &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{}}}},
					{Key: "a", Value: &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{Values: []*common.AnyValue{text("x"), {}}}}}},
					{Key: "y", Value: &common.AnyValue{Value: &common.AnyValue_BytesValue{BytesValue: []byte{0, 255}}}},
				}}}},
				Attributes: []*common.KeyValue{{Key: "session.id", Value: text("x")}}, DroppedAttributesCount: 1, Flags: 1,
				TraceId: bytes.Repeat([]byte{0xab}, 16), SpanId: bytes.Repeat([]byte{1}, 8), EventName: "user/message",
			}, {}},
		}},
	}, {}}}
	want := `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"a\"b\\\n\u0001é"}}],"droppedAttributesCount":2},` +
		`"scopeLogs":[{"scope":{"name":"s","version":"1"},"logRecords":[{"timeUnixNano":"1796031742486000000","observedTimeUnixNano":"5","severityNumber":9,"severityText":"INFO",` +
		`"body":{"kvlistValue":{"values":[{"key":"i","value":{"intValue":"-9223372036854775808"}},{"key":"d","value":{"doubleValue":0.1}},{"key":"b","value":{"boolValue":false}},` +
		`{"key":"n","value":{}},{"key":"e","value":{"arrayValue":{}}},{"key":"a","value":{"arrayValue":{"values":[{"stringValue":"x"},{}]}}},{"key":"y","value":{"bytesValue":"AP8="}}]}},` +
		`"attributes":[{"key":"session.id","value":{"stringValue":"x"}}],"droppedAttributesCount":1,"flags":1,"traceId":"abababababababababababababababab","spanId":"0101010101010101","eventName":"user/message"},{"body":{}}],"schemaUrl":"u"}]},{"resource":{}}]}`
	got := AppendJSON(nil, req)
	if string(got) != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	back, err := ParseJSON(got)
	if err != nil {
		t.Fatal(err)
	}
	if got := AppendJSON(nil, back); string(got) != want {
		t.Fatalf("parsed again %s\nwant %s", got, want)
	}
}

func TestEveryRequestSurvivesTheTripThroughJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	str := func() string {
		b := make([]rune, r.IntN(12))
		for i := range b {
			b[i] = []rune{'a', '"', '\\', '\n', 0, 0x7f, 'é', '\u2028', 0x1f600, 0xfffd, '<'}[r.IntN(11)]
		}
		return string(b)
	}
	var value func(depth int) *common.AnyValue
	value = func(depth int) *common.AnyValue {
		n := 8
		if depth == 0 {
			n = 6
		}
		switch r.IntN(n) {
		case 0:
			return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(r.Uint64())}}
		case 1:
			return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: []float64{math.Float64frombits(r.Uint64() &^ (1 << 52)), 0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 1e21, 1e-7, 5e-324, math.MaxFloat64}[r.IntN(9)]}}
		case 2:
			return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: r.IntN(2) == 0}}
		case 3:
			return &common.AnyValue{Value: &common.AnyValue_BytesValue{BytesValue: []byte(str())}}
		case 4:
			return &common.AnyValue{}
		case 6:
			av := &common.ArrayValue{}
			for range r.IntN(4) {
				av.Values = append(av.Values, value(depth-1))
			}
			return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: av}}
		case 7:
			kv := &common.KeyValueList{}
			for range r.IntN(4) {
				kv.Values = append(kv.Values, &common.KeyValue{Key: str(), Value: value(depth - 1)})
			}
			return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: kv}}
		default:
			return text(str())
		}
	}
	for i := range 2000 {
		rec := &logs.LogRecord{TimeUnixNano: r.Uint64(), ObservedTimeUnixNano: r.Uint64(), SeverityNumber: logs.SeverityNumber(r.IntN(25)), SeverityText: str(), EventName: str(), Body: value(4), Flags: r.Uint32()}
		for range r.IntN(4) {
			rec.Attributes = append(rec.Attributes, &common.KeyValue{Key: str(), Value: value(2)})
		}
		if r.IntN(2) == 0 {
			rec.TraceId = make([]byte, 16)
			rec.TraceId[r.IntN(16)] = byte(r.Uint32())
			rec.SpanId = []byte{0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4}
		}
		req := &collogs.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
			Resource:  &resource.Resource{Attributes: []*common.KeyValue{{Key: str(), Value: value(2)}}},
			ScopeLogs: []*logs.ScopeLogs{{Scope: &common.InstrumentationScope{Name: str(), Version: str()}, SchemaUrl: str(), LogRecords: []*logs.LogRecord{rec}}},
			SchemaUrl: str(),
		}}}
		line := AppendJSON(nil, req)
		if !json.Valid(line) || bytes.ContainsRune(line, '\n') {
			t.Fatalf("request %d is not one line of JSON: %s", i, line)
		}
		back, err := ParseJSON(line)
		if err != nil {
			t.Fatalf("request %d: %v: %s", i, err, line)
		}
		if !proto.Equal(back, req) {
			t.Fatalf("request %d came back changed:\n%v\n%v", i, req, back)
		}
	}
}

func TestWhatTheReferenceSystemSentIsReadWhole(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/otlp/corpus-*-000?.json")
	if len(files) == 0 {
		t.Skip("captured requests (../shared/data/otlp beside the module) are not here")
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		req, err := ParseJSON(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := count(req), bytes.Count(raw, []byte(`"severityText"`)); got != want || got == 0 {
			t.Errorf("%s: %d records, want %d", filepath.Base(name), got, want)
		}
	}
}

func TestParseJSONRefusesWhatIsNoRequest(t *testing.T) {
	for _, raw := range []string{``, `[]`, `{"resourceLogs":3}`, "{\"resourceLogs\":[{\"schemaUrl\":\"\xff\"}]}",
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"zz"}]}]}]}`,
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"spanId":"abcd"}]}]}]}`} {
		if _, err := ParseJSON([]byte(raw)); err == nil {
			t.Errorf("ParseJSON(%q) accepted", raw)
		}
	}
}

func FuzzParseJSONWritesWhatItReads(f *testing.F) {
	f.Add([]byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"abababababababababababababababab","body":{"intValue":"3"}}]}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		req, err := ParseJSON(raw)
		if err != nil {
			return
		}
		line := AppendJSON(nil, req)
		back, err := ParseJSON(line)
		if err != nil {
			t.Fatalf("own line is refused: %v: %s", err, line)
		}
		if again := AppendJSON(nil, back); !bytes.Equal(again, line) {
			t.Fatalf("not stable:\n%s\n%s", line, again)
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	rec := &logs.LogRecord{TimeUnixNano: 1, SeverityNumber: 9, Body: text(string(bytes.Repeat([]byte("hello \"world\" "), 70)))}
	req := &collogs.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{ScopeLogs: []*logs.ScopeLogs{{LogRecords: []*logs.LogRecord{rec}}}}}}
	buf := AppendJSON(nil, req)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendJSON(buf[:0], req)
	}
}
