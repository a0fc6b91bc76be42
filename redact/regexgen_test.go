package redact_test

import (
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/zricethezav/gitleaks/v8/config"

	"github.com/otel-bridge/otel-bridge/redact"
)

// draw writes a random text that an expression matches (but for assertions,
// which the caller checks).
func draw(r *rand.Rand, b *strings.Builder, re *syntax.Regexp) {
	repeat := func(lo, hi int) {
		if hi < 0 || hi > lo+8 {
			hi = lo + 8
		}
		for n := lo + r.IntN(hi-lo+1); n > 0; n-- {
			draw(r, b, re.Sub[0])
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		for _, c := range re.Rune {
			if re.Flags&syntax.FoldCase != 0 && r.IntN(2) == 0 {
				b.WriteString(strings.ToLower(string(c)))
			} else {
				b.WriteRune(c)
			}
		}
	case syntax.OpCharClass:
		var set []rune
		for i := 0; i < len(re.Rune); i += 2 {
			for c := max(re.Rune[i], ' '); c <= min(re.Rune[i+1], '~'); c++ {
				set = append(set, c)
			}
		}
		if len(set) == 0 {
			set = []rune{re.Rune[0]}
		}
		b.WriteRune(set[r.IntN(len(set))])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte(gAlnum[r.IntN(len(gAlnum))])
	case syntax.OpCapture, syntax.OpConcat:
		for _, s := range re.Sub {
			draw(r, b, s)
		}
	case syntax.OpAlternate:
		draw(r, b, re.Sub[r.IntN(len(re.Sub))])
	case syntax.OpQuest:
		repeat(0, 1)
	case syntax.OpStar:
		repeat(0, -1)
	case syntax.OpPlus:
		repeat(1, -1)
	case syntax.OpRepeat:
		repeat(re.Min, re.Max)
	}
}

// TestWhatGitleaksExpressionsMatchIsFound draws texts from the expressions of
// gitleaks' rules, keeps those that its rule accepts, and looks for them as
// text, as a JSON string, and as JSON in JSON in a string.
func TestWhatGitleaksExpressionsMatchIsFound(t *testing.T) {
	var conf struct {
		Rules []struct {
			ID, Regex, Path string
			Entropy         float64
			SecretGroup     int
			Keywords        []string
		}
	}
	if _, err := toml.Decode(config.DefaultConfig, &conf); err != nil {
		t.Fatal(err)
	}
	e := builtin(t)
	found, total := [3]int{}, 0
	for i, rule := range conf.Rules {
		if raceDetector && i%5 != 0 {
			continue
		}
		if rule.Regex == "" || rule.Path != "" {
			continue
		}
		re := regexp.MustCompile(rule.Regex)
		tree, err := syntax.Parse(rule.Regex, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		p, err := redact.ParsePolicy("one", []byte("[extend]\nuse=['builtin:secrets']\n"))
		if err != nil || p == nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(7, uint64(len(rule.ID))))
		kept := 0
		for n := 0; n < 400 && kept < 20; n++ {
			var b strings.Builder
			draw(r, &b, tree)
			text := "x\n" + b.String() + "\ny"
			m := re.FindStringSubmatch(text)
			if m == nil || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' && c != '\r' }) {
				continue
			}
			secret := m[0]
			for _, g := range m[1:] {
				if g != "" {
					secret = g
					break
				}
			}
			if rule.SecretGroup > 0 {
				secret = m[rule.SecretGroup]
			}
			keyword := len(rule.Keywords) == 0
			for _, k := range rule.Keywords {
				keyword = keyword || strings.Contains(strings.ToLower(text), k)
			}
			if !keyword || rule.Entropy > 0 && redact.Entropy([]byte(secret)) <= rule.Entropy {
				continue
			}
			kept++
			total++
			for form, depth := range []int{0, 1, 3} {
				in := wrap(t, text, depth)
				out, _, err := e.Text(nil, in)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(out), "[REDACTED:") {
					found[form]++
				} else {
					t.Logf("%s form %d: %q", rule.ID, form, text)
				}
			}
		}
		if kept == 0 {
			t.Logf("no case for %s", rule.ID)
		}
	}
	t.Logf("found %v of %d", found, total)
	for _, f := range found {
		if float64(f) < 0.995*float64(total) {
			t.Errorf("found %v of %d", found, total)
			break
		}
	}
}
