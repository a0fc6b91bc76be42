package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/redact"
)

// Work is counted, not timed: fuel is the same on every machine.

// adversarial are pieces that, repeated, give rules as many places to look at as
// there can be.
var adversarial = map[string]string{
	"one letter": "a", "digits": "1", "digits and spaces": "1 ", "quotes": `"`, "backslashes": `\`, "quoted backslashes": `\"`, "percent": "%41", "percent signs": "%",
	"begin": "-----BEGIN PRIVATE KEY-----\n", "end": "-----END PRIVATE KEY-----\n", "almost pem": "-----BEGIN RSA PRIVATE KEY----", "key": "key=", "key words": "password secret token key ",
	"jwt start": "eyJ", "jwt parts": "eyJhbGciOiJIUzI1NiJ9.", "at": "a@", "emails": "a@b.co ", "url": "https://", "userinfo": "://a:b",
	"curl": "curl -u ", "curl quoted": "curl '' ", "curl in quotes": "curl 'curl \"", "curl and mysql": "curl mysql -p", "commands in paths": "/mongodump.", "mysql": "mysql -p ",
	"base64 text": "cGFzc3dvcmQ9", "base64 lines": "cGFzc3dvcmQ9IHBhc3N3b3JkPSBwYXNzd29yZD0gcGFzc3dvcmQ9IHBhc3N3b3JkPSBw\n", "base64 of two alphabets": "cGFzc3dvcmQ9IHBhc3N3b3JkPSBwYXNzd29yZD0gcGFzc3dvcmQ9IHBhc3N3b3Jk\n-_+/c3dvcmQ9IHBhc3N3b3JkPSBwYXNzd29yZD0gcGFzc3dvcmQ9IHBhc3N3b3Jk\n",
	"zero width": "a\u200b", "ansi": "\x1b[", "ansi whole": "\x1b[31mx", "operating system commands": "\x1b]", "insert": "insert into (password) values (", "insert without end": "insert into (a,", "data": "\ndata:\n", "kind": "kind: Secret\ndata:\n  a: b\n", "nested data": "kind: Secret\n data:\n",
	"manifests": `"kind":"Secret","data":{"a":"b"`, "json": `{"a":`, "arrays": "[", "cookies": "Cookie: a=b;", "cookie in cookie": "cookie=a;", "markers": "[REDACTED:x]", "cards": "4111-1111-1111-111 ", "iban": "GB82 WEST ", "akia": "AKIAM3ISVNWS2EXTD4BR ", "akia again": "akia", "private-lines": "Private-Lines: 1\n",
	"ghp": "ghp_", "dots": "hvs.", "tskey": "/tskey-.", "assign": "a.b_c-d", "echo": "echo x | docker login -p ", "phone": "+1 (555) ", "name value": "name: TOKEN\n  value: ", "name value on a line": ": token value: ", "generic": "token token token = ", "matches on a line": "key=aB3dE5gH7jK9mN1pQ3 ",
	"openings": "{", "hash": "$2a$", "hash with colons": "=$7$,a:", "hash names": "bcrypt_sha", "sentry": "a@b.ingest.sentry.io", "session": "session", "sid": "sid=", "pgpass": "-:*:-", "azure": "Q~", "openai": "T3BlbkFJ", "lines of JSON": "{\"a\":\"b\"}\n", "events": "data: {\"a\":\"b\"}\n\n", "nested parts": `[{"a":"b","c":`, "user flags": "-u a -p b ", "operands": "net user a b ", "htpasswd": "htpasswd -b a ", "arguments": "login('a',", "data sources": "a:b@tcp(", "table headings": "password,x\n", "table bars": "| password | x |\n", "copy": "copy x (password) from stdin\n", "cells": "<td>password</td>", "attributes": "value='a' name='password' ", "references of markup": "&quot;", "aligned": "password  ", "fallbacks": "password=a || ", "shell quotes": `'\''`, "authorization": "authorization=", "digest": `authorization:a="`, "forms": "a=b+c&d=%20", "fly": "-fo1_-",
}

// mostWork bounds the work for a byte of input.
const mostWork = 250

func TestWorkIsLinearInTheLengthOfAdversarialInput(t *testing.T) {
	e := builtin(t)
	for name, s := range adversarial {
		work := func(n int) int {
			doc, err := json.Marshal(map[string]any{"t": strings.Repeat(s, n/len(s)+1)})
			if err != nil {
				t.Fatal(err)
			}
			w, err := redact.Work(e, doc)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return w
		}
		size := 24 << 10
		if sampled() {
			size = 4 << 10
		}
		small, large := work(size), work(8*size)
		t.Logf("%-24s %8.1f %8.1f a byte", name, float64(small)/float64(size), float64(large)/float64(8*size))
		if large > 10*small {
			t.Errorf("%s: %d bytes take %d, 8 times as many take %d", name, size, small, large)
		}
		if large > 8*size*mostWork {
			t.Errorf("%s: %d for a byte", name, large/size/8)
		}
	}
}

// Each literal of each rule, as often as it fits in, with what may stand around
// it.
func TestNoLiteralCostsMoreThanItsShare(t *testing.T) {
	e := builtin(t)
	forms := []string{"%s", "%s ", "-%s-", "/%s.", "=%s,a:", "%s=", "\n%s: '", `"%s":"a1b2c3d4",`, "%s=aB3dE5gH7jK9mN1pQ3 ", "%s\n"}
	worst, at := 0, ""
	for i, l := range redact.Literals(e) {
		for k, f := range forms {
			if (i+k)%2 != 0 || sampled() && (i+k)%40 != 0 {
				continue // each costs half a second for a MB
			}
			const size = 8 << 10
			s := fmt.Sprintf(f, l)
			doc, err := json.Marshal([]string{strings.Repeat(s, size/len(s)), strings.Repeat(s, 8)})
			if err != nil {
				t.Fatal(err)
			}
			w, err := redact.Work(e, doc)
			if err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			if w > worst {
				worst, at = w, s
			}
			if w > size*mostWork {
				t.Errorf("%q: %d for a byte", s, w/size)
			}
		}
	}
	t.Logf("the worst is %q with %d for a byte", at, worst>>13)
}

func TestWorkIsLinearInTheNumberOfMembers(t *testing.T) {
	e := builtin(t)
	for name, member := range map[string]func(i int) string{
		"distinct keys":        func(i int) string { return fmt.Sprintf(`"k%d":"v"`, i) },
		"secret keys":          func(i int) string { return fmt.Sprintf(`"ghp_%036d":1`, i*7919) },
		"objects of keys":      func(i int) string { return fmt.Sprintf(`"o%d":{"k%d":["a","b",{"c":"d"}]}`, i, i) },
		"objects of secrets":   func(i int) string { return fmt.Sprintf(`"o%d":{"ghp_%036d":1}`, i, i*7919) },
		"passwords":            func(i int) string { return fmt.Sprintf(`"password%d":"Hunter%d!"`, i, i) },
		"name value pairs":     func(i int) string { return fmt.Sprintf(`"p%d":{"name":"TOKEN","value":"abc%ddef"}`, i, i) },
		"kubernetes secret":    func(i int) string { return fmt.Sprintf(`"s%d":{"kind":"Secret","data":{"a":"b%d"}}`, i, i) },
		"arrays under a name":  func(i int) string { return fmt.Sprintf(`"token%d":["a","b%d","c","d","e","f"]`, i, i) },
		"pieces of one string": func(i int) string { return fmt.Sprintf(`"a%d":["token=","token=x%d","token=y token="]`, i, i) },
	} {
		work := func(n int) (int, int) {
			var b strings.Builder
			b.WriteString(`[{`)
			for i := 0; i < n; i++ {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(member(i))
			}
			b.WriteString(`}]`)
			w, err := redact.Work(e, []byte(b.String()))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return w, b.Len()
		}
		small, _ := work(500)
		large, size := work(4000)
		t.Logf("%-24s %8d %8d, %d a byte", name, small, large, large/size)
		if large > 11*small || large > mostWork*size {
			t.Errorf("%s: 500 members take %d, 4,000 %d", name, small, large)
		}
	}
}

// What is nested is not looked at again for each level around it.
func TestWorkIsLinearInTheDepthOfNesting(t *testing.T) {
	e := builtin(t)
	for name, level := range map[string][2]string{
		"pairs":                {`{"name":"TOKEN","value":[`, `,"a1b2c3d4e5"]}`},
		"secrets of clusters":  {`{"kind":"Secret","data":{"k":"value-1","data":`, `}}`},
		"secret keys":          {`{"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":`, `}`},
		"arrays under a name":  {`{"password":["x1",`, `]}`},
		"objects and arrays":   {`{"a":[`, `]}`},
		"members after a name": {`{"key":"password","value":{"v":1},"next":`, `}`},
	} {
		work := func(depth int) (int, int) {
			doc := strings.Repeat(level[0], depth) + `"plain text of some length"` + strings.Repeat(level[1], depth)
			w, err := redact.Work(e, []byte(doc))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return w, len(doc)
		}
		small, _ := work(30)
		large, size := work(240)
		t.Logf("%-24s %8d %8d, %d a byte", name, small, large, large/size)
		if large > 11*small || large > mostWork*size {
			t.Errorf("%s: 30 levels take %d, 240 take %d", name, small, large)
		}
	}
}

// A text with all that can be decoded in each other's shape is bounded by fuel:
// what is left unread is replaced, never passed on.
func TestDecodingIsBoundedByFuel(t *testing.T) {
	e, err := redact.New(redact.Options{Policies: bothSets(), Limits: redact.Limits{ScanBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	inner := ghp
	for i := 0; i < 6; i++ {
		inner = base64.StdEncoding.EncodeToString([]byte("token " + inner + " \\u0041 %2541 a=b+c \u200b"))
	}
	doc, err := json.Marshal(map[string]string{"t": strings.Repeat(inner+" \\u005cu0025 %5cu0025 a=b+c \u200b\n", 200)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := redact.Work(e, doc)
	if err != nil {
		t.Fatal(err)
	}
	if limit := 16 * (1<<20 + 64*len(doc)); w > limit {
		t.Errorf("%d bytes take %d", len(doc), w)
	}
	out, _, err := e.JSON(nil, doc)
	if err != nil || strings.Contains(string(out), inner) {
		t.Errorf("what could not be looked at is still there: %v", err)
	}
}

// BenchmarkAdversarial tells the speed for each of the shapes.
func BenchmarkAdversarial(b *testing.B) {
	e := builtin(b)
	for name, s := range adversarial {
		doc, err := json.Marshal(map[string]any{"t": strings.Repeat(s, (256<<10)/len(s)+1)})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			start := cpuSeconds()
			defer func() { reportCPU(b, start, len(doc)) }()
			for b.Loop() {
				if _, _, err := e.JSON(nil, doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
