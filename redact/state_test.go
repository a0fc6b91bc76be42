package redact_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/corpus"
	"github.com/otel-bridge/otel-bridge/redact"
)

// What a record gives depends on nothing that came before it, whatever that was:
// withheld, dropped, beyond a limit, invalid, or a panic.
func TestARecordGivesTheSameAfterAnyOther(t *testing.T) {
	defer redact.AddValidator("test-panic", func(b []byte) bool { panic("validator") })()
	p, err := redact.ParsePolicy("test.toml", []byte(`
[extend]
use = ["builtin:secrets", "builtin:pii"]
[[rules]]
id = "sealed"
regex = 'STAMP'
action = "withhold"
[[rules]]
id = "closed"
keys = ["closed"]
action = "withhold"
[[rules]]
id = "codename"
regex = 'PROJECT [A-Z]{4,}'
action = "drop"
[[rules]]
id = "ticket"
regex = 'TCK-[0-9]{6}'
action = "token"
[[rules]]
id = "panics"
regex = 'BOOM[0-9]'
validator = "test-panic"
[[rules]]
id = "gone"
keys = ["gone"]
action = "drop"
[[rules]]
id = "there"
regex = 'WORD[a-z]+'
paths = ["here.*"]
`))
	if err != nil {
		t.Fatal(err)
	}
	key, err := redact.NewKey("k1", []byte(strings.Repeat("0123456789abcdef", 2)))
	if err != nil {
		t.Fatal(err)
	}
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{p}, Resolve: resolve, Key: key,
		Limits: redact.Limits{ScanBytes: 20 << 10, Steps: 40, Depth: 12, Decode: 3}})
	if err != nil {
		t.Fatal(err)
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	docs := []string{
		`{"t":"jane@example.com"}`, `{"t":"STAMP"}`, `{"t":"nothing"}`, `{"closed":"yes"}`, `{"closed":{"a":[1]}}`,
		`{"a":1,"b":"about PROJECT ZEBRA","c":2}`, `"PROJECT ZEBRA"`, `{"gone":"x1","stays":[1,"PROJECT ZEBRA"]}`,
		`{"a":"PROJECT ZEBRA"`, `{"a":{"b":"PROJECT ZEBRA","c":`, `{"a":"STAMP",`, `{"t":"TCK-123456 TCK-654321"}`, `{"t":"BOOM1"}`,
		`{"gone":"x","t":"BOOM1"}`, `{"closed":"x","t":"BOOM1"}`, `{"here":{"x":"WORDone"}}`, `{"there":{"x":"WORDone"}}`,
		`{"t":"joe@example.com","u":"joe2@example.com"}`, `{"t":"joe2@example.com"}`,
		`{"d":"` + b64(`{"a":"ann@example.com","b":"ann2@example.com","c":"4111111111111111"}`) + `"}`, `{"d":"ann2@example.com"}`,
		`{"d":"` + b64(`{"a":"TCK-123456","b":"TCK-654321"}`) + `"}`, `{"d":"TCK-654321"}`,
		`{"t":"` + strings.Repeat(`%41%42c `, 30) + `"}`, `{"t":"` + strings.Repeat("{ ", 2000) + `"}`,
		`{"a":` + strings.Repeat("[", 20) + `1` + strings.Repeat("]", 20) + `}`, `{"a":[` + strings.Repeat(`"\\u0041x",`, 60) + `1]}`,
		`{"password":"hunter2xyz","n":4111111111111111}`, `{"auth:` + ghp + `":1}`, `{"t":["ghp_n38iq0A7umyTZ7Ac","jR3WaQK5etdC0801HDrV"]}`,
	}
	g := corpus.New(7)
	for _, c := range corpus.Classes {
		for range 3 {
			if d := g.Record(c); len(d) < 64<<10 {
				docs = append(docs, string(d))
			}
		}
	}
	type result struct {
		out []byte
		rep *redact.Report
		err string
	}
	run := func(s *redact.State, doc string) result {
		out, rep, err := s.JSON([]byte(doc))
		return result{out, rep, fmt.Sprint(err)}
	}
	fresh := make([]result, len(docs))
	for i, d := range docs {
		fresh[i] = run(redact.NewState(e), d)
	}
	used := redact.NewState(e)
	check := func(before, i int) bool {
		t.Helper()
		got := run(used, docs[i])
		if !bytes.Equal(got.out, fresh[i].out) || got.err != fresh[i].err || !reflect.DeepEqual(got.rep, fresh[i].rep) {
			t.Errorf("after %.80s\n%.80s gives %.200s %+v %s\n alone %.200s %+v %s", docs[before], docs[i], got.out, got.rep, got.err, fresh[i].out, fresh[i].rep, fresh[i].err)
			used = redact.NewState(e)
			return false
		}
		return true
	}
	failed := 0
	for i := range docs { // each after each
		for j := range docs {
			used = redact.NewState(e)
			run(used, docs[i])
			if !check(i, j) {
				failed++
			}
			if failed > 5 {
				t.FailNow()
			}
		}
	}
	used = redact.NewState(e)
	r := rand.New(rand.NewPCG(1, 2))
	before := 0
	for range 3000 {
		i := r.IntN(len(docs))
		if !check(before, i) && failed > 5 {
			break
		}
		before = i
	}
}
