package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
)

// The numbers of RFC 8785, appendix B, without the two that are no numbers.
var rfc8785Numbers = []struct {
	bits uint64
	want string
}{
	{0x0000000000000000, "0"},
	{0x8000000000000000, "0"},
	{0x0000000000000001, "5e-324"},
	{0x8000000000000001, "-5e-324"},
	{0x7fefffffffffffff, "1.7976931348623157e+308"},
	{0xffefffffffffffff, "-1.7976931348623157e+308"},
	{0x4340000000000000, "9007199254740992"},
	{0xc340000000000000, "-9007199254740992"},
	{0x4430000000000000, "295147905179352830000"},
	{0x44b52d02c7e14af5, "9.999999999999997e+22"},
	{0x44b52d02c7e14af6, "1e+23"},
	{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
	{0x444b1ae4d6e2ef4e, "999999999999999700000"},
	{0x444b1ae4d6e2ef4f, "999999999999999900000"},
	{0x444b1ae4d6e2ef50, "1e+21"},
	{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
	{0x3eb0c6f7a0b5ed8d, "0.000001"},
	{0x41b3de4355555553, "333333333.3333332"},
	{0x41b3de4355555554, "333333333.33333325"},
	{0x41b3de4355555555, "333333333.3333333"},
	{0x41b3de4355555556, "333333333.3333334"},
	{0x41b3de4355555557, "333333333.33333343"},
	{0xbecbf647612f3696, "-0.0000033333333333333333"},
	{0x43143ff3c1cb0959, "1424953923781206.2"},
}

func TestCanonicalPrintsTheNumbersOfRFC8785(t *testing.T) {
	for _, c := range rfc8785Numbers {
		f := math.Float64frombits(c.bits)
		if got := string(AppendDouble(nil, f)); got != c.want {
			t.Errorf("%016x prints %s, want %s", c.bits, got, c.want)
		}
		for _, lexeme := range []string{c.want, strconv.FormatFloat(f, 'e', -1, 64), strconv.FormatFloat(f, 'f', -1, 64)} {
			got, err := Canonical(nil, []byte(lexeme))
			if err != nil || string(got) != c.want {
				// An integer that int64 holds stays exact, and these are.
				if n, err := strconv.ParseInt(lexeme, 10, 64); err == nil && strconv.FormatInt(n, 10) == string(got) {
					continue
				}
				t.Errorf("%s is %s, %v, want %s", lexeme, got, err, c.want)
			}
		}
	}
}

func TestCanonicalSortsAsRFC8785Does(t *testing.T) {
	// RFC 8785, sections 3.2.2 to 3.2.4.
	for _, c := range []struct{ in, want string }{
		{
			`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		{
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		},
	} {
		got, err := Canonical(nil, []byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
		}
	}
}

func TestCanonicalValues(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"integers within int64 stay exact", `[9007199254740993,-9223372036854775808,9223372036854775807]`, `[9007199254740993,-9223372036854775808,9223372036854775807]`},
		{"integers beyond int64 are doubles", `[9223372036854775808,18446744073709551615]`, `[9223372036854776000,18446744073709552000]`},
		{"the value counts, not the spelling", `[1.0,1e3,1E0,-0,-0.0,0e7,10e-1]`, `[1,1000,1,0,0,0,1]`},
		{"the last duplicate wins", `{"b":1,"a":2,"b":3,"\u0062":4}`, `{"a":2,"b":4}`},
		{"duplicates inside duplicates", `{"a":{"x":1,"x":2},"a":{"x":3,"x":4}}`, `{"a":{"x":4}}`},
		{"lone surrogates", `["\ud800","\udc00x","\ud83d\ud83d\ude00","\ude00\ud83d"]`, "[\"\uFFFD\",\"\uFFFDx\",\"\uFFFD😀\",\"\uFFFD\uFFFD\"]"},
		{"keys of lone surrogates are one key", `{"\ud800":1,"\udfff":2}`, "{\"\uFFFD\":2}"},
		{"white space", " { \"a\" : [ 1 , 2 ] ,\t\"b\":{ } , \"c\" : [ ] }\r\n", `{"a":[1,2],"b":{},"c":[]}`},
		{"escapes", `"\u0000\u001f\u007f\u2028\/\b\f\n\r\t"`, "\"\\u0000\\u001f\u007f\u2028/\\b\\f\\n\\r\\t\""},
		{"the maximal part of invalid UTF-8 is one character", "\"a\xe2\x82b\xffc\xf0\x9f\x98d\"", "\"a\uFFFDb\uFFFDc\uFFFDd\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Canonical([]byte("dst:"), []byte(c.in))
			if err != nil || string(got) != "dst:"+c.want {
				t.Fatalf("got %s, %v, want %s", got, err, c.want)
			}
			again, err := Canonical(nil, got[4:])
			if err != nil || string(again) != c.want {
				t.Errorf("the canonical form of the canonical form is %s, %v", again, err)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2)
	var syntax *SyntaxError
	for _, c := range []struct {
		in   string
		want func(error) bool
	}{
		{`{"a":1e400}`, func(err error) bool { return errors.Is(err, ErrNotFinite) }},
		{deep, func(err error) bool { return errors.Is(err, ErrDepth) }},
		{`{"a":}`, func(err error) bool { return errors.As(err, &syntax) && syntax.Offset == 5 }},
		{``, func(err error) bool { return errors.As(err, &syntax) }},
	} {
		got, err := Canonical([]byte("kept"), []byte(c.in))
		if !c.want(err) || string(got) != "kept" {
			t.Errorf("%.20s: got %q, %v", c.in, got, err)
		}
	}
}

func TestLosslessJSONHasNoNegativeZeroAndNothingInfinite(t *testing.T) {
	for in, want := range map[string]error{
		`{"a":[0,1.5,-1,1e300,0.0]}`:           nil,
		`{"a":"-0 1e400"}`:                     nil,
		`[-0]`:                                 ErrNegativeZero,
		`[-0.0]`:                               ErrNegativeZero,
		`{"x":{"y":-0e5}}`:                     ErrNegativeZero,
		`-1e-400`:                              ErrNegativeZero,
		`[1e400]`:                              ErrNotFinite,
		`[-1e309]`:                             ErrNotFinite,
		`1` + strings.Repeat("0", 400):         ErrNotFinite,
		`1` + strings.Repeat("0", 300):         nil,
		`-0.` + strings.Repeat("0", 400) + `1`: ErrNegativeZero,
	} {
		if err := CheckLossless([]byte(in)); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("%.30s: got %v, want %v", in, err, want)
		}
	}
}

func TestValidJSONAgreesWithTheStandardLibrary(t *testing.T) {
	for _, in := range []string{
		`{}`, `[]`, `null`, `true`, `false`, `0`, `-0`, `-1.5e+10`, `""`, `"a"`, ` [ 1 , 2 ] `, `{"a":{"b":[]}}`,
		``, ` `, `{`, `}`, `[`, `]`, `[1,]`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{a:1}`, `[1 2]`, `{"a":1 "b":2}`, `01`, `1.`, `.5`,
		`1e`, `1e+`, `+1`, `--1`, `-`, `nul`, `tru`, `truex`, `"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", "\"\x00\"",
		`"\ud800"`, `[[[[[[[[]]]]]]]]`, `[[]`, `{}{}`, `1 1`, "\ufeff{}", `{"a":1}x`, `{1:2}`, `{"a":[}`, "\"\x1f\"", "\"\x7f\"",
		`"1234567\"`, `"12345678"`, `"1234567890123456\\"`,
	} {
		if got, want := ValidJSON([]byte(in)) == nil, json.Valid([]byte(in)); got != want {
			t.Errorf("%q is valid: %v, want %v", in, got, want)
		}
	}
}

func TestNestingCostsNoStack(t *testing.T) {
	const depth = 3_000_000
	deep := append(bytes.Repeat([]byte(`{"a":[`), depth/2), bytes.Repeat([]byte("]}"), depth/2)...)
	if err := ValidJSON(deep); err != nil {
		t.Fatal(err)
	}
	row := append(append([]byte(`{"type":"x/deep","seq":0,"time":0,"data":`), deep...), '}')
	var ev Event
	if err := DecodeEvent(dialect(t, 4), nil, row, &ev); err != nil {
		t.Fatal(err)
	}
	if Member(ev.Data, "a") == nil {
		t.Error("the walker lost its way")
	}
}

func TestMembersAreFoundByWhatTheirKeysMean(t *testing.T) {
	raw := []byte(`{"a":1,"\u0061":2,"b":{"c":"x,\"}"},"a\"":3}`)
	if got := string(Member(raw, "a")); got != "2" {
		t.Errorf("a is %s, want the last one, 2", got)
	}
	if got := string(Path(raw, "b", "c")); got != `"x,\"}"` {
		t.Errorf("b.c is %s", got)
	}
	if got := string(Member(raw, `a"`)); got != "3" {
		t.Errorf(`a" is %s`, got)
	}
	if Member(raw, "c") != nil || Member([]byte("[1]"), "a") != nil || Path(raw, "b", "c", "d") != nil {
		t.Error("found what is not there")
	}
	if StringIs([]byte(`"\u0000"`), "") || !StringIs([]byte(`""`), "") || !StringIs([]byte("\"\\ud800\""), "\uFFFD") || !StringIs([]byte("\"\xff\""), "\uFFFD") {
		t.Error("strings are compared by their bytes, not by what they mean")
	}
}

func FuzzValidJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"x\u00e9\n"],"b":{}}`, `[`, `"\ud800"`, `{"a":1,"a":2}`, "\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		// The standard library limits nesting; so short a text cannot reach it.
		if len(raw) > 4096 {
			return
		}
		if got, want := ValidJSON(raw) == nil, json.Valid(raw); got != want {
			t.Fatalf("%q is valid: %v, want %v", raw, got, want)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.0,1e21,-0,"\ud83d\ude00"],"a":null}`, `{"\ud800":{"x":[]}}`, `1e400`, `9007199254740993`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := Canonical(nil, raw)
		if err != nil {
			return
		}
		if !json.Valid(once) {
			t.Fatalf("the canonical form of %q is no JSON: %q", raw, once)
		}
		twice, err := Canonical(nil, once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q is canonical as %q, and that as %q, %v", raw, once, twice, err)
		}
	})
}
