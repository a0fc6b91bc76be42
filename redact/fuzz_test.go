package redact_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/corpus"
)

var markerText = regexp.MustCompile(`(\\*")?\[(?:REDACTED|TOKEN):[^\]]*\](~[0-9]+)?(\\*")?`)

// piecesInOrder reports whether out is in with some parts replaced by
// markers: what lies between the markers stands in in, in this order.
func piecesInOrder(in, out []byte) bool {
	pos := 0
	for _, p := range markerText.Split(string(out), -1) {
		i := strings.Index(string(in[pos:]), p)
		if i < 0 {
			return false
		}
		pos += i + len(p)
	}
	return true
}

func FuzzJSON(f *testing.F) {
	e := builtin(f)
	for _, c := range corpus.Classes {
		g := corpus.New(7)
		for i := 0; i < 3; i++ {
			f.Add(g.Record(c))
		}
	}
	for _, s := range []string{
		`{"password":"foo\"bar","pan":4111111111111111}`, `["a",["gh","p_n38iq0A7umyTZ7AcjR3WaQK5etdC0801HDrV"]]`, `"{\"a\":\"{\\\"token\\\":\\\"x1y2z3\\\"}\"}"`,
		`{"a":[{"text":"-----BEGIN PRIVATE KEY-----"},{"text":"MIIB"}]}`, `{"key":"password","value":[1,"two",{"x":"three"}]}`, `{"t":"%70assword%3Dabc123!&x=1"}`,
		`{"Cookie":"a=b; session=Abc123Def456Ghi789"}`, `{"t":"curl -u a:b\\nmysql -p'x y'"}`, "{\"t\":\"g\u200bhp_\"}", `[[[[{"kind":"Secret","data":{"a":"b"}}]]]]`, `"\ud800 \u0000 \/"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		valid := json.Valid(in)
		out, rep, err := e.JSON(nil, in)
		if err != nil {
			if valid {
				t.Fatalf("valid input is refused: %v", err)
			}
			return
		}
		if !valid {
			t.Fatalf("invalid input is accepted")
		}
		if !json.Valid(out) {
			t.Fatalf("the output is not JSON: %s", out)
		}
		if len(rep.Counts) == 0 && !bytes.Equal(in, out) {
			t.Fatalf("changed without a finding")
		}
		if !bytes.Contains(in, []byte("[REDACTED:")) && !bytes.Contains(in, []byte("[TOKEN:")) && !piecesInOrder(in, out) {
			t.Fatalf("bytes outside of matches changed:\n%q\n%q", in, out)
		}
		again, _, err := e.JSON(nil, out)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("redacting twice differs: %v\n%q\n%q", err, out, again)
		}
	})
}

func FuzzText(f *testing.F) {
	e := builtin(f)
	g := corpus.New(9)
	for _, c := range corpus.Classes {
		f.Add(g.Text(c))
	}
	f.Add("password: Hunter2!x\nDB_URL=postgres://a:b@c/d\n-----BEGIN PRIVATE KEY-----\nabc")
	f.Fuzz(func(t *testing.T, in string) {
		out, _, err := e.Text(nil, in)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(in, "[REDACTED:") && !strings.Contains(in, "[TOKEN:") && !piecesInOrder([]byte(in), out) {
			t.Fatalf("bytes outside of matches changed:\n%q\n%q", in, out)
		}
		again, _, err := e.Text(nil, string(out))
		if err != nil || string(again) != string(out) {
			t.Fatalf("redacting twice differs: %v\n%q\n%q", err, out, again)
		}
	})
}
