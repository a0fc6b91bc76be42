package jsonl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

// reduce runs the envelope scanner over row in pieces of n bytes.
func reduce(row string, n int) (string, error) {
	var s envelopeScanner
	s.reset()
	for b := []byte(row); len(b) > 0; b = b[min(n, len(b)):] {
		s.write(b[:min(n, len(b))])
	}
	o := s.finish()
	return string(o.row), o.err
}

func TestOversizedRowKeepsTheEnvelopeAndIdsOnly(t *testing.T) {
	long := strings.Repeat("héllo \\\"", 1000)
	for _, c := range []struct{ name, row, want string }{
		{"usual order",
			`{"type":"user/message","seq":3,"time":5,"data":{"content":[{"type":"text","text":"` + long + `"}],"role":"user"},"surfaceOp":"append"}`,
			`{"type":"user/message","seq":3,"time":5,"data":{},"surfaceOp":"append"}`},
		{"body first",
			`{"data":{"x":"` + long + `","turn":2,"y":[1,2,{"turn":9}],"step":1},"sourceEventSeqs":[1,[2,4]],"surfaceOp":{"op":"replace","start":1,"end":4},"seq":5,"type":"user/message","time":-1,"ignorable":true}`,
			`{"data":{"turn":2,"step":1},"sourceEventSeqs":[1,[2,4]],"surfaceOp":{"op":"replace","start":1,"end":4},"seq":5,"type":"user/message","time":-1,"ignorable":true}`},
		{"escaped keys and values",
			`{"t\u0079pe":"a\/b","seq":1,"time":0,"data":{"tu\u0072n":1,"text":"` + long + `"}}`,
			`{"t\u0079pe":"a\/b","seq":1,"time":0,"data":{"tu\u0072n":1}}`},
		{"tool result",
			`{"type":"tool/result","seq":1,"time":0,"data":{"turn":1,"step":1,"message":{"source":{"kind":"tool","callId":"c1"},"content":[{"type":"tool-result","toolCallId":"c1","content":[{"type":"text","text":"` + long + `"}],"isError":false}],"role":"user","id":"m"},"error":{"code":"E","message":"` + long + `"}},"surfaceOp":"append"}`,
			`{"type":"tool/result","seq":1,"time":0,"data":{"turn":1,"step":1,"message":{"source":{"kind":"tool","callId":"c1"},"content":[{"type":"tool-result","toolCallId":"c1","isError":false}],"role":"user","id":"m"},"error":{"code":"E"}},"surfaceOp":"append"}`},
		{"white space and numbers",
			` { "type" : "x" , "seq" : 1.0e0 , "time" : -0.5E+3 , "data" : [ 1 , true , null , false , { } , [ ] , "` + long + `" ] } ` + "\r",
			`{"type":"x","seq":1.0e0,"time":-0.5E+3,"data":null}`},
		{"empty object", `{}`, `{}`},
		{"duplicate keys stay in order", `{"seq":1,"data":{"turn":1},"seq":2,"data":{"turn":2}}`, `{"seq":1,"data":{"turn":1},"seq":2,"data":{"turn":2}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 7, 1 << 20} {
				got, err := reduce(c.row, n)
				if err != nil || got != c.want {
					t.Fatalf("in pieces of %d: %s, %v\nwant %s", n, got, err, c.want)
				}
			}
		})
	}
}

func TestOversizedRowThatIsNotOneObjectIsRefused(t *testing.T) {
	for _, row := range []string{
		``, `{`, `}`, `[]`, `"x"`, `1`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":1e}`,
		`{"a":tru}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, "{\"a\":\"\t\"}", `{"a":[1,]}`, `{"a":[1}`, `{"a":{]}`, `{} {}`, `{"a":1}x`,
		`{"a" 1}`, `{a:1}`, `{"` + strings.Repeat("k", 1000) + `":1}`, `{"type":"` + strings.Repeat("k", 2<<20) + `"}`,
	} {
		for _, n := range []int{1, 1 << 22} {
			if got, err := reduce(row, n); err == nil {
				t.Errorf("%.40q in pieces of %d gave %s", row, n, got)
			}
		}
	}
}

// The scanner must take exactly what encoding/json takes, and its result must
// be JSON with the same envelope.
func FuzzEnvelopeScanner(f *testing.F) {
	for _, s := range []string{
		`{"type":"x","seq":1,"time":2,"data":{"turn":1,"step":2,"x":[{"turn":3}]}}`,
		`{"a":[[],{},"\ud800",1e5,-0,0.1],"data":null}`, `{"data":{"message":{"content":[1,{"type":"t"}]}}}`, `[1]`, `{"a":1}{`,
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, row []byte, n int) {
		if bytes.IndexByte(row, '\n') >= 0 || n < 1 {
			t.Skip()
		}
		got, err := reduce(string(row), n)
		var want map[string]json.RawMessage
		valid := json.Valid(row) && json.Unmarshal(row, &want) == nil && want != nil
		if err != nil {
			if valid && len(row) < 200 {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		if !valid {
			t.Fatalf("accepted as %s", got)
		}
		var have map[string]json.RawMessage
		if err := json.Unmarshal([]byte(got), &have); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if len(have) != len(want) {
			t.Fatalf("%d keys of %d", len(have), len(want))
		}
		for k, v := range want {
			if k != "data" && !bytes.Equal(have[k], v) {
				t.Fatalf("%q: %s, want %s", k, have[k], v)
			}
		}
	})
}

func TestLinesAreCutTheSameWhereverReadsEnd(t *testing.T) {
	text := "a\n\n" + strings.Repeat("é", 700) + "\nlast"
	for n := 1; n < 40; n++ {
		l := lineReader{max: 2048}
		l.reset(&slowReader{s: text, n: n}, 0)
		var got []string
		for {
			ln, err := l.next()
			if err != nil {
				if err != errPartial {
					t.Fatal(err)
				}
				break
			}
			got = append(got, string(ln.data))
		}
		if want := strings.Split(text, "\n"); fmt.Sprint(got) != fmt.Sprint(want[:3]) || l.pos != int64(len(text)-4) {
			t.Fatalf("reads of %d: %q at %d", n, got, l.pos)
		}
	}
}

type slowReader struct {
	s string
	n int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.s == "" {
		return 0, io.EOF
	}
	n := copy(p, r.s[:min(r.n, len(r.s))])
	r.s = r.s[n:]
	return n, nil
}
