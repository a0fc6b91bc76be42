package redact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/redact/internal/corpus"
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

func TestTimeIsLinearInTheLengthOfAdversarialInput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	e := builtin(t)
	shapes := map[string]string{
		"one letter": "a", "digits": "1", "digits and spaces": "1 ", "quotes": `"`, "backslashes": `\`, "quoted backslashes": `\"`, "percent": "%41", "percent signs": "%",
		"begin": "-----BEGIN PRIVATE KEY-----\n", "end": "-----END PRIVATE KEY-----\n", "almost pem": "-----BEGIN RSA PRIVATE KEY----", "key": "key=", "key words": "password secret token key ",
		"jwt start": "eyJ", "jwt parts": "eyJhbGciOiJIUzI1NiJ9.", "at": "a@", "emails": "a@b.co ", "url": "https://", "userinfo": "://a:b", "curl": "curl -u ", "mysql": "mysql -p ",
		"base64 text": "cGFzc3dvcmQ9", "zero width": "a\u200b", "ansi": "\x1b[", "ansi whole": "\x1b[31mx", "insert": "insert into (password) values (", "data": "\ndata:\n", "kind": "kind: Secret\ndata:\n  a: b\n",
		"json": `{"a":`, "arrays": "[", "cookies": "Cookie: a=b;", "markers": "[REDACTED:x]", "cards": "4111-1111-1111-111 ", "iban": "GB82 WEST ", "akia": "AKIAM3ISVNWS2EXTD4BR ", "private-lines": "Private-Lines: 1\n",
		"ghp": "ghp_", "assign": "a.b_c-d", "echo": "echo x | docker login -p ", "phone": "+1 (555) ", "name value": "name: TOKEN\n  value: ", "generic": "token token token = ", "openings": "{", "hash": "$2a$", "sentry": "a@b.ingest.sentry.io",
	}
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			run := func(n int) time.Duration {
				text := strings.Repeat(s, n/len(s)+1)
				doc, err := json.Marshal(map[string]any{"t": text})
				if err != nil {
					t.Fatal(err)
				}
				best := time.Duration(1 << 62)
				for i := 0; i < 2; i++ {
					start := cpuSeconds()
					wall := time.Now()
					if _, _, err := e.JSON(nil, doc); err != nil {
						t.Fatal(err)
					}
					d := time.Duration((cpuSeconds() - start) * 1e9)
					if start == 0 {
						d = time.Since(wall)
					}
					best = min(best, d)
				}
				return best
			}
			small, large := run(32<<10), run(256<<10)
			if large > 30*small+200*time.Millisecond {
				t.Errorf("32 KiB take %v, 256 KiB %v", small, large)
			}
			if large > 3*time.Second {
				t.Errorf("256 KiB take %v", large)
			}
		})
	}
}

func TestTimeIsLinearInTheNumberOfMembers(t *testing.T) {
	e := builtin(t)
	for name, make := range map[string]func(i int) string{
		"distinct keys":     func(i int) string { return fmt.Sprintf(`"k%d":"v"`, i) },
		"secret keys":       func(i int) string { return fmt.Sprintf(`"ghp_%036d":1`, i*7919) },
		"objects of keys":   func(i int) string { return fmt.Sprintf(`"o%d":{"k%d":["a","b",{"c":"d"}]}`, i, i) },
		"passwords":         func(i int) string { return fmt.Sprintf(`"password%d":"Hunter%d!"`, i, i) },
		"name value pairs":  func(i int) string { return fmt.Sprintf(`"p%d":{"name":"TOKEN","value":"abc%ddef"}`, i, i) },
		"kubernetes secret": func(i int) string { return fmt.Sprintf(`"s%d":{"kind":"Secret","data":{"a":"b%d"}}`, i, i) },
	} {
		run := func(n int) float64 {
			var b strings.Builder
			b.WriteString(`[{`)
			for i := 0; i < n; i++ {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(make(i))
			}
			b.WriteString(`}]`)
			start := cpuSeconds()
			if _, _, err := e.JSON(nil, []byte(b.String())); err != nil {
				t.Fatal(err)
			}
			return cpuSeconds() - start
		}
		small, large := run(1000), run(8000)
		if large > 30*small+0.3 {
			t.Errorf("%s: 1,000 members take %.3f s, 8,000 %.3f s", name, small, large)
		}
	}
}
