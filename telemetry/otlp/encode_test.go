package otlp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// sdk makes requests as a program does that logs through the SDK and its
// exporter: what the encoder is compared with.
type sdk struct {
	providers map[*telemetry.Resource]*sdklog.LoggerProvider
	records   []sdklog.Record
	exporter  *otlploghttp.Exporter
	body      []byte
}

func newSDK(tb testing.TB) *sdk {
	tb.Helper()
	s := &sdk{providers: make(map[*telemetry.Resource]*sdklog.LoggerProvider)}
	take := roundTripper(func(req *http.Request) (resp *http.Response, err error) {
		s.body, err = io.ReadAll(req.Body)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, err
	})
	var err error
	s.exporter, err = otlploghttp.New(context.Background(), otlploghttp.WithHTTPClient(&http.Client{Transport: take}),
		otlploghttp.WithRetry(otlploghttp.RetryConfig{}), otlploghttp.WithMaxRequestSize(0))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// The SDK has no constructor for its records: one is emitted into a processor
// that keeps it.
func (s *sdk) OnEmit(_ context.Context, r *sdklog.Record) error {
	s.records = append(s.records, *r)
	return nil
}
func (s *sdk) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (s *sdk) Shutdown(context.Context) error                         { return nil }
func (s *sdk) ForceFlush(context.Context) error                       { return nil }

func (s *sdk) add(tb testing.TB, r *telemetry.Record, jsonBody bool) {
	tb.Helper()
	p, ok := s.providers[r.Resource]
	if !ok {
		p = sdklog.NewLoggerProvider(sdklog.WithProcessor(s), sdklog.WithAllowKeyDuplication(),
			sdklog.WithResource(resource.NewWithAttributes(r.Resource.SchemaURL(), r.Resource.Attributes()...)),
			sdklog.WithAttributeCountLimit(-1), sdklog.WithAttributeValueLengthLimit(-1), sdklog.WithAttributeValueDepthLimit(-1))
		s.providers[r.Resource] = p
	}
	ctx, rec, err := r.LogRecord(context.Background(), jsonBody)
	if err != nil {
		tb.Fatal(err)
	}
	p.Logger(r.Scope.Name, apilog.WithInstrumentationVersion(r.Scope.Version), apilog.WithSchemaURL(r.Scope.SchemaURL),
		apilog.WithInstrumentationAttributes(r.Scope.Attributes.ToSlice()...)).Emit(ctx, rec)
}

func (s *sdk) export(tb testing.TB) []byte {
	tb.Helper()
	if err := s.exporter.Export(context.Background(), s.records); err != nil {
		tb.Fatal(err)
	}
	return s.body
}

// encodeAll makes one request of records, by way of their stored form.
func encodeAll(tb testing.TB, jsonBody bool, records ...*telemetry.Record) []byte {
	tb.Helper()
	e := encoder{json: jsonBody}
	items := make([]item, len(records))
	for i, r := range records {
		back, err := e.decoder.Decode(stored(tb, r))
		if err != nil {
			tb.Fatal(err)
		}
		if items[i].encoded, err = e.add(&back); err != nil {
			tb.Fatal(err)
		}
	}
	q := e.layout(items)
	var out bytes.Buffer
	q.write(&out)
	if q.size != out.Len() {
		tb.Fatalf("a request of %d bytes was announced as %d", out.Len(), q.size)
	}
	return out.Bytes()
}

func parseRequest(tb testing.TB, b []byte) *collogs.ExportLogsServiceRequest {
	tb.Helper()
	req := new(collogs.ExportLogsServiceRequest)
	if err := proto.Unmarshal(b, req); err != nil {
		tb.Fatalf("no request: %v", err)
	}
	return req
}

// canonical puts in order what has none: members of maps, resources, scopes.
func canonical(req *collogs.ExportLogsServiceRequest) {
	for _, rl := range req.ResourceLogs {
		for _, sl := range rl.ScopeLogs {
			for _, r := range sl.LogRecords {
				sortValue(r.Body)
				for _, kv := range r.Attributes {
					sortValue(kv.Value)
				}
			}
		}
	}
	slices.SortFunc(req.ResourceLogs, func(a, b *logspb.ResourceLogs) int { return strings.Compare(a.String(), b.String()) })
}

func sortValue(v *common.AnyValue) {
	for _, m := range v.GetArrayValue().GetValues() {
		sortValue(m)
	}
	kvs := v.GetKvlistValue().GetValues()
	for _, kv := range kvs {
		sortValue(kv.Value)
	}
	slices.SortStableFunc(kvs, func(a, b *common.KeyValue) int { return strings.Compare(a.Key, b.Key) })
}

// same checks that records become the message that the SDK sends, in bytes
// which another encoder would make of that message too.
func same(tb testing.TB, jsonBody bool, records ...*telemetry.Record) {
	tb.Helper()
	raw := encodeAll(tb, jsonBody, records...)
	got := parseRequest(tb, raw)
	if again, err := proto.Marshal(got); err != nil || !bytes.Equal(again, raw) {
		tb.Fatalf("not the bytes that proto.Marshal makes (%v)", err)
	}
	s := newSDK(tb)
	for _, r := range records {
		mended := *r
		mended.Body = bytes.ToValidUTF8(r.Body, []byte("\uFFFD")) // the SDK would send nothing
		if !jsonBody {
			mended.Body = r.Body
		}
		s.add(tb, &mended, jsonBody)
	}
	want := parseRequest(tb, s.export(tb))
	canonical(got)
	canonical(want)
	if !proto.Equal(got, want) {
		tb.Fatalf("got\n%s\nwant, as the SDK has it,\n%s", clip(got.String()), clip(want.String()))
	}
}

func clip(s string) string { return s[:min(len(s), 4000)] }

func TestEncodingIsWhatTheSDKSends(t *testing.T) {
	for _, body := range []string{
		``, `null`, `true`, `false`, `0`, `-1`, `1.5`, `1e400`, `1e-400`, `9223372036854775808`, `-9223372036854775808`, `-0`, `""`, `"x"`,
		`"\ud800\u0041\ud83d\ude00\n\\\""`, "\"a\xff\xfeb\"", `[]`, `{}`, `{"":1}`, `{"":{"":[]},"a":null}`, ` { "a" : [ 1 , 2 ] , "b" : { } } `,
		`{"a":1,"b":2,"a":3}`, `{"a":1,"\u0061":2}`, `{"a":{"b":1,"b":2},"a":{"c":[1,{"d":1,"d":2}]}}`,
		`[[[[]]],{"x":[{}]}]`, `[1,-1,300,1e100,"s",null,true]`,
		"{" + strings.Repeat(`"k":"old",`, 40) + `"z":1,"k":{"last":true}}`,
		manyKeys(20, 1), manyKeys(20, 3), manyKeys(16, 2), manyKeys(17, 2),
	} {
		for _, jsonBody := range []bool{false, true} {
			same(t, jsonBody, record("s", 1, body))
		}
	}
	// Sizes where the length of a length changes, at several depths.
	for _, n := range []int{100, 115, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 16370, 16375, 16380, 16381, 16383, 16384, 16390, 1 << 21, 1<<21 - 20} {
		text := strings.Repeat("x", n)
		same(t, false, record("s", 1, `"`+text+`"`))
		same(t, false, record("s", 1, `{"a":[{"`+text+`":"`+text+`"},["`+text+`"]],"pad":"`+strings.Repeat(" ", n)+`"}`))
		same(t, false, record("s", 1, `{"a":[{"b":"`+strings.Repeat(`\n`, n)+`"}]}`))
	}
}

// manyKeys is an object with n keys, each of them so many times.
func manyKeys(n, times int) string {
	var b strings.Builder
	for i := range n * times {
		fmt.Fprintf(&b, `,"key%d":[%d]`, i%n, i)
	}
	return "{" + b.String()[1:] + "}"
}

func TestValuesNestAsDeepAsTelemetrySays(t *testing.T) {
	for _, n := range []int{telemetry.MaxValueDepth - 1, telemetry.MaxValueDepth, telemetry.MaxValueDepth + 1, 3 * telemetry.MaxValueDepth} {
		for _, in := range []string{`"x"`, "\"]}\\\"\xff\"", "[" + strings.Repeat("1,", 70_000) + "1]"} {
			same(t, false, record("s", 1, strings.Repeat(`[`, n)+in+strings.Repeat(`]`, n)))
			same(t, false, record("s", 1, strings.Repeat(`{"a":`, n)+in+strings.Repeat(`}`, n)))
		}
	}
}

// Duplicates, long and short lengths on both sides of where sizes are measured
// beforehand, and more than one such value.
func TestDeepValuesAreMeasured(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var value func(depth int) string
	value = func(depth int) string {
		if depth == 0 {
			return fmt.Sprintf(`"%s\\n"`, strings.Repeat("x", rnd.IntN(300)))
		}
		in := value(depth - 1)
		switch rnd.IntN(4) {
		case 0:
			return "[" + in + ",0.5,[],{}]"
		case 1:
			return `{"a":` + in + `,"b":{"a":` + in + `},"a":[` + strings.Repeat("0.5,", rnd.IntN(40)) + "1]}"
		case 2:
			return `{"a":1,"` + strings.Repeat("k", rnd.IntN(200)) + `":` + in + `,"a":2}`
		}
		return "[" + in + "]"
	}
	for range 300 {
		body := value(measuredDepth - 4 + rnd.IntN(12))
		if len(body) > 1<<20 {
			continue
		}
		same(t, false, record("s", 1, `[`+body+`,`+value(rnd.IntN(3))+`,`+body+`]`))
	}
}

// BenchmarkDeepValues shows that a value that nests deep costs a few times what a
// flat one costs, not a thousand times.
func BenchmarkDeepValues(b *testing.B) {
	numbers := strings.Repeat("0.5,", 100_000) + "1"
	for name, body := range map[string]string{
		"flat": "[" + numbers + "]",
		"deep": strings.Repeat("[", 999) + numbers + strings.Repeat("]", 999),
	} {
		b.Run(name, func(b *testing.B) {
			r := record("s", 1, body)
			for b.Loop() {
				var e encoder
				if _, err := e.add(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestRecordsAreGroupedByResourceAndScope(t *testing.T) {
	other := telemetry.NewResource("https://example.com/schema", attribute.String("service.name", "other"), attribute.Int("n", 5))
	var records []*telemetry.Record
	for i := range 40 {
		r := record("s", i, fmt.Sprintf(`{"n":%d}`, i))
		if i%3 == 1 {
			r.Resource = other
		}
		if i%5 == 2 {
			r.Resource = nil
		}
		if i%2 == 1 {
			r.Scope = telemetry.Scope{Name: "other"}
		}
		if i%7 == 3 {
			r.Scope = telemetry.Scope{}
		}
		records = append(records, r)
	}
	got := parseRequest(t, encodeAll(t, false, records...))
	if len(got.ResourceLogs) != 3 {
		t.Errorf("%d resources", len(got.ResourceLogs))
	}
	n := 0
	for _, rl := range got.ResourceLogs {
		for _, sl := range rl.ScopeLogs {
			last := -1
			for _, r := range sl.LogRecords {
				at := int(r.Body.GetKvlistValue().GetValues()[0].Value.GetIntValue())
				want := records[at]
				if at <= last || rl.Resource == nil != (want.Resource == nil) || rl.SchemaUrl != want.Resource.SchemaURL() || len(rl.Resource.GetAttributes()) != len(want.Resource.Attributes()) ||
					sl.Scope.GetName() != want.Scope.Name || (sl.Scope == nil) != (want.Scope == telemetry.Scope{}) {
					t.Errorf("record %d stands under %v, %v", at, rl.Resource, sl.Scope)
				}
				last = at
				n++
			}
		}
	}
	if n != len(records) {
		t.Errorf("%d records", n)
	}
}

func TestAttributesOfEveryKindAndRecordsOfPrograms(t *testing.T) {
	all := []attribute.KeyValue{
		attribute.Bool("b", true), attribute.Bool("nb", false), attribute.Int64("i", -5), attribute.Float64("f", math.Pi), attribute.String("s", ""), attribute.String("t", "é"),
		attribute.ByteSlice("y", []byte{0, 255}), attribute.ByteSlice("y0", nil), attribute.BoolSlice("bs", []bool{true, false}), attribute.Int64Slice("is", []int64{1, -1}),
		attribute.Float64Slice("fs", []float64{0, 1.5}), attribute.StringSlice("ss", []string{"", "x"}), attribute.StringSlice("s0", nil),
		attribute.Slice("l", attribute.IntValue(1), attribute.Value{}, attribute.SliceValue()), attribute.Map("m", attribute.String("k", strings.Repeat("v", 300)), attribute.Map("n")),
		{Key: "empty"}, attribute.String("", "no key"),
	}
	r := record("s", 1, `{}`)
	r.Attributes = append(r.Attributes, all...)
	r.Redactions = []telemetry.RuleCount{{Rule: "a", Count: 1}, {Rule: "b", Count: 200}}
	r.Surface = telemetry.SurfaceFacts{Op: telemetry.SurfaceReplace, Start: 1, End: 2, Sources: []int64{1, 2}, Seen: true, Nodes: 5}
	same(t, false, r)

	for _, severity := range []telemetry.Severity{0, 1, 9, 24, 25} {
		p := &telemetry.Record{
			Channel: telemetry.ChannelLog, UID: "u", EventName: "name", Severity: severity, Attributes: all, Resource: testResource,
			Scope: telemetry.Scope{Name: "lib", Version: "1", SchemaURL: "https://example.com/s", Attributes: attribute.NewSet(all[0], all[10])},
			Log: &telemetry.LogFields{
				TimeNs: 12345, ObservedNs: 1796031742486123457, SeverityText: "odd", Body: attribute.MapValue(all...),
				TraceID: [16]byte{1}, SpanID: [8]byte{2}, TraceFlags: 1,
			},
		}
		same(t, false, p)
		same(t, true, p)
	}
	p := &telemetry.Record{Channel: telemetry.ChannelLog, Resource: testResource, Log: &telemetry.LogFields{Dropped: 300}}
	if got := parseRequest(t, encodeAll(t, false, p)).ResourceLogs[0].ScopeLogs[0].LogRecords[0]; got.DroppedAttributesCount != 300 || got.TimeUnixNano != 0 || got.Body.GetValue() != nil {
		t.Errorf("%v", got)
	}
}

// Every event of every session in the shared data.
func TestEncodingOfTheSharedSessionsIsWhatTheSDKSends(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "data", "dsh", "v*", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the shared data is not beside the module")
	}
	events := 0
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var records []*telemetry.Record
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if data := session.Member(lines.Bytes(), "data"); data != nil {
				records = append(records, record("s", len(records), string(data)))
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		same(t, false, records...)
		same(t, true, records...)
		events += len(records)
	}
	t.Logf("%d events of %d sessions", events, len(files))
}

// The fuzzer draws a JSON text and what else a record has.
func FuzzEncodingIsWhatTheSDKSends(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5,"x\n",null,{"b":true,"b":"\ud800"}]}`), "name", uint64(1))
	f.Add([]byte("\"\xff\""), "\xff", uint64(2))
	f.Add([]byte(`[[[[{"":""}]]]]`), "", uint64(3))
	f.Add([]byte(strings.Repeat(`{"a":[`, 12)+`{"a":1,"a":"x"}`+strings.Repeat(`]}`, 12)), "", uint64(4))
	f.Fuzz(func(t *testing.T, body []byte, name string, seed uint64) {
		r := record("s", 1, string(body))
		if session.ValidJSON(body) != nil {
			e := new(encoder)
			if _, err := e.add(r); err == nil && len(body) > 0 || len(e.buf) > 0 {
				t.Fatalf("invalid JSON: %v, %d bytes", err, len(e.buf))
			}
			return
		}
		rnd := rand.New(rand.NewPCG(seed, 0))
		r.EventName = strings.ToValidUTF8(name, "\uFFFD")
		r.Severity = telemetry.Severity(rnd.IntN(30))
		r.TimeMs, r.ObservedMs = rnd.Int64()-rnd.Int64(), rnd.Int64N(1<<45)
		r.Attributes = append(r.Attributes, attribute.String("drawn", r.EventName))
		same(t, false, r, record("s", 2, `1`))
	})
}
