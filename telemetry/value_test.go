package telemetry

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
)

func TestBodyValueReadsJSONAsReceiversGetIt(t *testing.T) {
	str := attribute.StringValue
	for _, c := range []struct {
		json string
		want attribute.Value
	}{
		{`null`, attribute.Value{}},
		{` true `, attribute.BoolValue(true)},
		{`false`, attribute.BoolValue(false)},
		{`0`, attribute.Int64Value(0)},
		{`-0`, attribute.Int64Value(0)},
		{`-0.0`, attribute.Int64Value(0)},
		{`1.0`, attribute.Int64Value(1)},
		{`1e3`, attribute.Int64Value(1000)},
		{`9007199254740993`, attribute.Int64Value(9007199254740993)},
		{`9223372036854775807`, attribute.Int64Value(math.MaxInt64)},
		{`-9223372036854775808`, attribute.Int64Value(math.MinInt64)},
		{`9223372036854775808`, attribute.Float64Value(9223372036854775808)},
		{`1e18`, attribute.Int64Value(1e18)},
		{`1.5`, attribute.Float64Value(1.5)},
		{`1e-400`, attribute.Int64Value(0)},
		{`1e400`, attribute.Float64Value(math.Inf(1))},
		{`-1e400`, attribute.Float64Value(math.Inf(-1))},
		{`""`, str("")},
		{`"\"\\\/\b\f\n\r\t\u0041"`, str("\"\\/\b\f\n\r\tA")},
		{`"\ud83d\ude00"`, str("😀")},
		{`"\ud83d"`, str("\uFFFD")},
		{`"\ude00x"`, str("\uFFFDx")},
		{`"\ud83d\u0041"`, str("\uFFFDA")},
		{`"\ud83d\ud83d\ude00"`, str("\uFFFD😀")},
		{"\"a\xffb\"", str("a\uFFFDb")},
		{"\"\\n\xc3\"", str("\n\uFFFD")},
		{`[]`, attribute.SliceValue()},
		{`{}`, attribute.MapValue()},
		{`[1,"a",null]`, attribute.SliceValue(attribute.Int64Value(1), str("a"), attribute.Value{})},
		{`{"a":1,"b":{"c":[]}}`, attribute.MapValue(attribute.Int64("a", 1),
			attribute.Map("b", attribute.Slice("c")))},
		{`{"a":1,"b":2,"a":3}`, attribute.MapValue(attribute.Int64("a", 3), attribute.Int64("b", 2))},
		{`{"a":1,"\u0061":3}`, attribute.MapValue(attribute.Int64("a", 3))},
	} {
		got, err := BodyValue([]byte(c.json))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, %v; want %v", c.json, got, err, c.want)
		}
	}
}

func TestBodyValueRefusesWhatIsNotOneJSONValue(t *testing.T) {
	for _, s := range []string{
		``, ` `, `{`, `[`, `[1`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `nul`, `tru`, `01`, `1.`, `.5`,
		`1e`, `-`, `+1`, `"`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", "\"a\\\n\"", `1 2`, `{}x`, `[}`, "\ufeff1",
	} {
		if v, err := BodyValue([]byte(s)); !errors.As(err, new(*session.SyntaxError)) {
			t.Errorf("%q: got %v, %v", s, v, err)
		}
	}
}

func TestBodyValueTurnsWhatLiesTooDeepIntoText(t *testing.T) {
	deep := strings.Repeat("[", 100_000) + `"]"` + strings.Repeat("]", 100_000)
	v, err := BodyValue([]byte(deep))
	if err != nil {
		t.Fatal(err)
	}
	depth := 0
	for v.Type() == attribute.SLICE {
		v = v.AsSlice()[0]
		depth++
	}
	if depth != MaxValueDepth || v.AsString() != deep[MaxValueDepth:len(deep)-MaxValueDepth] {
		t.Fatalf("nested %d deep, then %v", depth, v.Type())
	}
}

// FuzzBodyValue compares with encoding/json: what it accepts must be accepted,
// and every string that comes out must be valid UTF-8.
func FuzzBodyValue(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x\ud800",null,true]}`, `"\u00e9"`, `[1e5,-0]`, `{"a":1,"a":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := BodyValue(b)
		if valid := json.Valid(b); valid != (err == nil) {
			t.Fatalf("encoding/json says valid=%v, we say %v", valid, err)
		}
		var walk func(v attribute.Value)
		walk = func(v attribute.Value) {
			switch v.Type() {
			case attribute.STRING:
				if !utf8.ValidString(v.AsString()) {
					t.Fatalf("not UTF-8: %q", v.AsString())
				}
			case attribute.SLICE:
				for _, m := range v.AsSlice() {
					walk(m)
				}
			case attribute.MAP:
				for _, kv := range v.AsMap() {
					walk(attribute.StringValue(string(kv.Key)))
					walk(kv.Value)
				}
			}
		}
		walk(v)
	})
}

func BenchmarkBodyValue(b *testing.B) {
	body := []byte(`{"turn":1,"step":2,"message":{"role":"assistant","content":[{"type":"text","text":"` +
		strings.Repeat("The quick brown fox. ", 40) + `"}],"usage":{"inputTokens":1153,"outputTokens":9}}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := BodyValue(body); err != nil {
			b.Fatal(err)
		}
	}
}
