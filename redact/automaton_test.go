package redact

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTheQuartersOfATextGiveWhatTheWholeGives compares the two ways of running
// the machine, and both with looking for each literal at each place.
func TestTheQuartersOfATextGiveWhatTheWholeGives(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		var literals []string
		for range 1 + r.IntN(8) {
			var b []byte
			for range 1 + r.IntN(9) {
				b = append(b, [...]string{"a", "b", "X", "a", "b", "为", "為", "é"}[r.IntN(8)]...)
			}
			literals = append(literals, foldASCII(string(b)))
		}
		a := newAutomaton(literals)
		var text []byte
		for range 200 + r.IntN(200) {
			text = append(text, [...]string{"a", "b", "x", "A", "B", "X", " ", "a", "b", "x", "为", "為", "é", "è"}[r.IntN(14)]...)
		}
		from := r.IntN(20)
		to := len(text) - r.IntN(20)
		plain := a.scanPlain(text, from, to, nil)
		if got := a.scanLanes(text, from, to, nil); !slices.Equal(got, plain) {
			t.Fatalf("round %d: %v, %v", round, got, plain)
		}
		n := 0
		for end := from + 1; end <= to; end++ {
			for _, l := range literals {
				if start := end - len(l); start >= from && foldASCII(string(text[start:end])) == l {
					n++
				}
			}
		}
		if n != len(plain) {
			t.Fatalf("round %d: %d hits, %d expected", round, len(plain), n)
		}
	}
}
