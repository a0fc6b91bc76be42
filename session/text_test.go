package session

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// meansWhatJSONSays compares AppendString with encoding/json, for a string that
// is valid UTF-8: what is to become of other bytes the two see differently.
func meansWhatJSONSays(t *testing.T, raw string) {
	t.Helper()
	var want string
	if json.Unmarshal([]byte(raw), &want) != nil || raw[0] != '"' || !utf8.ValidString(raw) {
		return
	}
	if got := AppendString([]byte("before"), []byte(raw)); string(got) != "before"+want {
		t.Errorf("%q means %q, want %q", raw, got[len("before"):], want)
	}
	// The text may end where its memory does.
	b := []byte(raw)
	if got, ok := String(b[:len(b):len(b)]); !ok || got != want {
		t.Errorf("%q is %q, want %q", raw, got, want)
	}
}

var textCases = []string{
	`""`, `"a"`, `"\n"`, `"1234567"`, `"12345678"`, `"123456\n"`, `"1234567\n"`, `"12345678\n"`, `"\\\\\\\\\\\\\\\\"`, `"\"\"\"\"\"\"\"\"\""`,
	`"\u00e4"`, `"x\u00e4yyyyyyyyyyy\u20ac"`, `"\ud83d\ude00"`, `"aaaaaa\ud83d\ude00aaaaaa"`, `"\ud83d"`, `"\ud83dxxxxxxxxxx"`, `"\ude00\ud83d\n"`, `"\ud83d\u0041"`,
	`"äöüäöüäöü"`, `"漢字漢字\t漢字漢字"`, `"\b\f\n\r\t\/\\\""`, `"🙂🙂🙂🙂\\"`,
}

func TestAppendStringMeansWhatJSONSays(t *testing.T) {
	for _, c := range textCases {
		meansWhatJSONSays(t, c)
	}
	for n := range 40 {
		meansWhatJSONSays(t, `"`+strings.Repeat("a", n)+`\u00e4`+strings.Repeat(`\n`, n%5)+strings.Repeat("b", 40-n)+`"`)
	}
	// What was never checked ends where it cannot go on.
	for _, c := range []string{`"\"`, `"aaaaaaaa\"`, `"\u"`, `"aaaaaa\u12"`, `"aaaaaaaaaa\ud83d\u"`, "\"a\xffb\\\"", `"`, ``} {
		AppendString(nil, []byte(c))
	}
}

func FuzzAppendString(f *testing.F) {
	for _, c := range textCases {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		AppendString(nil, []byte(raw))
		if len(raw) > 0 {
			meansWhatJSONSays(t, raw)
		}
	})
}

// The text of a tool's output, as JSON has it.
func BenchmarkAppendString(b *testing.B) {
	raw := []byte(`"` + strings.Repeat(`if err := f(\"x\"); err != nil {\n\treturn err\n}\n`, 64<<10/50) + `"`)
	b.SetBytes(int64(len(raw)))
	var dst []byte
	for b.Loop() {
		dst = AppendString(dst[:0], raw)
	}
}
