package telemetry

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

func checkLeaf(t *testing.T, body []byte) {
	t.Helper()
	var want Leaf
	if canon, err := session.Canonical(nil, body); err == nil && nesting(body) <= MaxValueDepth {
		want = sha256.Sum256(canon)
	}
	if got := LeafOf(body); got != want {
		t.Errorf("leaf of %.200s differs from the hash of its canonical form", body)
	}
}

var leafCases = []string{
	`{}`, `[]`, `null`, `"x"`, `-0`, `1.0`, `1e3`, `1e999`, `123456789012345678901`, ` { "b" : [ 1 , 2 ] , "a" : { "z":1,"y":2 } } `,
	`{"a":1,"a":2}`, `{"b":1,"a":2,"b":3}`, `{"\u0061":1,"a":2}`, `{"é":1,"z":2}`, `{"𝒳":1,"":2}`,
	`{"s":"a\/b\u000a\ud800\t\"\\"}`, "{\"s\":\"\xff\"}", `{"a\"":1,"a":2}`, `{"a!":1,"a":2,"a\"b":3}`, `{"k":"\\"}`, `["\\\""]`,
	`"é"`, `"éééééééé"`, `"aaaaaaaé"`, `"aaaaaa\u00e9"`, `["aaaaaaaa","b\/","c"]`, "\"aaaaaa\xff\"", "[\"aaaaaaaaaaaa\xff\",1]", "[\"a\",\"\xff\"]", `["\\u",1]`, `"\\\\u\\"`,
	strings.Repeat(`{"b":1,"a":`, 70) + `1` + strings.Repeat(`}`, 70),
	strings.Repeat(`[`, 1001) + strings.Repeat(`]`, 1001),
}

func TestLeafIsTheHashOfTheCanonicalForm(t *testing.T) {
	for _, c := range leafCases {
		checkLeaf(t, []byte(c))
	}
	var wide strings.Builder
	for i := range 200 {
		wide.WriteString(`"k` + string(rune('z'-i%26)) + strings.Repeat("x", i/26) + `":1,`)
	}
	checkLeaf(t, []byte(`{`+strings.TrimSuffix(wide.String(), ",")+`}`))
}

func TestLeavesOfRealEventsAreTheHashesOfTheirCanonicalForms(t *testing.T) {
	files, err := filepath.Glob(shared(t, "dsh") + "/v*/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, path := range files {
		r, err := jsonl.Open(path)
		if err != nil {
			continue // the sanitized ones
		}
		for r.Next() {
			checkLeaf(t, r.Event().Data)
		}
		r.Close()
	}
}

func FuzzLeafIsTheHashOfTheCanonicalForm(f *testing.F) {
	for _, c := range leafCases {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if session.ValidJSON(body) == nil {
			checkLeaf(t, body)
		}
	})
}

func BenchmarkLeaf(b *testing.B) {
	text, err := os.ReadFile(shared(b, "dsh/v2/lab-secrets.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		for _, l := range lines {
			_, buf = leafOf(buf, []byte(l))
		}
	}
}
