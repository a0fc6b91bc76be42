package redact_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/corpus"
)

// mutate changes text a little: bytes, repeats, cuts, pieces of other texts.
func mutate(r *rand.Rand, s []byte, pool [][]byte) []byte {
	s = append([]byte(nil), s...)
	for k := r.IntN(6) + 1; k > 0; k-- {
		i := r.IntN(len(s))
		switch r.IntN(5) {
		case 0:
			s[i] = byte(r.IntN(128))
		case 1:
			j := i + r.IntN(min(len(s)-i, 200))
			s = append(append(append([]byte(nil), s[:j]...), s[i:j]...), s[j:]...)
		case 2:
			s = s[:i+1]
		case 3:
			o := pool[r.IntN(len(pool))]
			j := r.IntN(len(o))
			s = append(append(append([]byte(nil), s[:i]...), o[j:min(len(o), j+60)]...), s[i:]...)
		case 4:
			j := i + r.IntN(min(len(s)-i, 40))
			s = append(append([]byte(nil), s[:i]...), s[j:]...)
		}
		if len(s) == 0 {
			s = []byte("x")
		}
	}
	return s
}

// TestMutatedTextsKeepTheProperties is the fuzz tests' little sister, the same
// in every run.
func TestMutatedTextsKeepTheProperties(t *testing.T) {
	e := builtin(t)
	r := rand.New(rand.NewPCG(1, 2))
	g := corpus.New(11)
	var pool [][]byte
	for _, c := range corpus.Classes {
		for i := 0; i < 4; i++ {
			s := g.Text(c)
			pool = append(pool, []byte(s[:min(len(s), 1500)]))
		}
	}
	for _, s := range []string{"password: Hunter2!x\nDB_URL=postgres://a:b@c/d\n-----BEGIN PRIVATE KEY-----\nabc", `{"password":"x","pan":4111111111111111,"a":["--token","abc12345"]}`,
		`{"name":"DB_PASSWORD","value":"Sommer2024!"} curl -u bob:hunter2xyz Cookie: session=Abc123Def456Ghi789`} {
		pool = append(pool, []byte(s), []byte(quote(s)), []byte(quote(quote(s))))
	}
	rounds := 20000
	if sampled() {
		rounds = 2000
	}
	for n := 0; n < rounds; n++ {
		s := mutate(r, pool[r.IntN(len(pool))], pool)
		var doc []byte
		switch r.IntN(4) {
		case 0:
			doc = s
		case 1:
			doc, _ = json.Marshal(map[string]any{"k": string(s), string(s[:min(len(s), 30)]): 1})
		case 2:
			i := r.IntN(len(s))
			doc, _ = json.Marshal([]any{string(s[:i]), string(s[i:])})
		case 3:
			doc, _ = json.Marshal([]any{map[string]any{"a": quote(string(s))}, map[string]any{"a": string(s), "password": 5}})
		}
		valid := json.Valid(doc)
		out, rep, err := e.JSON(nil, doc)
		if (err == nil) != valid {
			t.Fatalf("round %d: valid %v, error %v: %q", n, valid, err, doc)
		}
		if err != nil {
			if out, rep, err = e.Text(nil, string(doc)); err != nil {
				t.Fatalf("round %d: %v", n, err)
			}
		} else if !json.Valid(out) {
			t.Fatalf("round %d: the output is not JSON: %q\n%q", n, doc, out)
		}
		if len(rep.Counts) == 0 && !bytes.Equal(out, doc) {
			t.Fatalf("round %d: changed without a finding", n)
		}
		if !piecesInOrder(doc, out) {
			t.Fatalf("round %d: bytes outside of matches changed:\n%q\n%q", n, doc, out)
		}
		again := out
		if valid {
			again, _, err = e.JSON(nil, out)
		} else {
			again, _, err = e.Text(nil, string(out))
		}
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("round %d: redacting twice differs:\n%q\n%q\n%q", n, doc, out, again)
		}
	}
}
