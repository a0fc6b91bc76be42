package redact

import (
	"bytes"
	"fmt"
	"math"
	"path"
	"regexp"
	"regexp/syntax"
	"sort"
	"strings"
	"unicode/utf8"
)

// rule is a Rule made ready to run.
type rule struct {
	Rule
	index      int32
	precedence Rank
	re         *regexp.Regexp
	anchor     anchor
	anchored   bool // every match contains a literal of anchor
	gated      bool // a keyword must stand somewhere in the text as well
	operator   bool // after the anchor only an assignment can follow
	allow      []allow
	keys       []string
	paths      [][]string
	required   []requiredRule
	marker     []byte
	native     bool
}

type requiredRule struct {
	rule           *rule
	lines, columns *int
}

type allow struct {
	and    bool
	target string
	res    []allowRegex
	stop   *automaton
	never  bool
	cost   int // length of the expressions
}

// allowRegex is an expression of an allow list, with the literals of which one
// stands in all that it matches.
type allowRegex struct {
	re  *regexp.Regexp
	pre *automaton
}

// assignment is the part that gitleaks' generator puts between a vendor's
// name and the value. A rule built from it cannot match unless an operator
// follows the name, which is decided without the expression.
const assignment = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)`

// groupedAssignment is the same where the vendor's name is in a group with it.
const groupedAssignment = `(?:[ \t\w.-]{0,20})[\s'"]{0,3})(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)`

func compile(r Rule, index int, precedence Rank) (*rule, error) {
	c := &rule{Rule: r, index: int32(index), precedence: precedence, marker: []byte("[REDACTED:" + r.ID + "]"), native: r.Find != nil}
	for i := range r.Allowlists {
		a, err := compileAllow(&r.Allowlists[i])
		if err != nil {
			return nil, err
		}
		c.allow = append(c.allow, a)
	}
	// Any list may allow; the cheap ones are asked first.
	sort.SliceStable(c.allow, func(i, j int) bool { return c.allow[i].cost < c.allow[j].cost })
	for _, k := range r.Keys {
		c.keys = append(c.keys, normalKey(k))
	}
	for _, p := range r.Paths {
		c.paths = append(c.paths, splitPath(p))
	}
	if r.Regex == "" || c.native {
		return c, nil
	}
	re, err := r.expression()
	if err != nil {
		return nil, err
	}
	c.re = re
	c.anchor, c.anchored = findAnchor(mustParse(r.Regex))
	for _, part := range [...]string{assignment, groupedAssignment} {
		if i := strings.Index(r.Regex, part); i >= 0 && strings.Count(r.Regex, part) == 1 {
			c.semiGeneric(r.Regex[:i])
			break
		}
	}
	if len(r.Keywords) > 0 && c.anchored {
		for _, l := range c.anchor.literals {
			implied := false
			for _, k := range r.Keywords {
				if strings.Contains(l, foldASCII(k)) {
					implied = true
					break
				}
			}
			if !implied {
				c.gated = true
			}
		}
	} else if len(r.Keywords) > 0 {
		c.gated = true
	}
	return c, nil
}

// semiGeneric takes the vendor names of the prefix as the anchor, when it has
// the generator's shape: at most 50 name characters, then the names.
func (c *rule) semiGeneric(prefix string) {
	// An alternative beside the template (a bare token form) needs the
	// analysis of the whole expression.
	if t, err := syntax.Parse(c.Regex, syntax.Perl); err != nil || topLevelAlternate(t) {
		return
	}
	open := strings.Count(prefix, "(") - strings.Count(prefix, ")")
	if open < 0 || open > 2 {
		return
	}
	t, err := syntax.Parse(prefix+strings.Repeat(")", open), syntax.Perl)
	if err != nil {
		return
	}
	a, ok := bestAnchor(t)
	if !ok || a.after != 0 || shortest(a.literals) < 3 {
		return
	}
	c.anchor = anchor{literals: a.literals, before: a.before, after: maxWidth(mustParse(c.Regex))}
	c.anchored, c.operator = true, true
}

// mustParse parses an expression that has compiled; Simplify would expand
// x{0,50}, which is no use for widths.
func mustParse(s string) *syntax.Regexp {
	t, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return &syntax.Regexp{Op: syntax.OpEmptyMatch}
	}
	return t
}

func topLevelAlternate(t *syntax.Regexp) bool {
	for t.Op == syntax.OpCapture {
		t = t.Sub[0]
	}
	return t.Op == syntax.OpAlternate
}

// operatorFollows decides for a rule of the generator's shape whether an
// assignment can begin after the name that ends at pos.
func operatorFollows(text []byte, pos int) bool {
	for n := 0; pos < len(text) && n < 72; pos, n = pos+1, n+1 {
		switch c := text[pos]; {
		case c == '=', c == '>', c == ':', c == '|', c == '?', c == ',':
			return true
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-',
			c == ' ', c == '\t', c == '\n', c == '\r', c == '\f', c == '\'', c == '"', c >= utf8.RuneSelf:
		default:
			return false
		}
	}
	return false
}

func compileAllow(a *Allowlist) (allow, error) {
	c := allow{and: a.And, target: a.RegexTarget, never: a.pathOnly || a.pathAnd}
	for _, s := range a.Regexes {
		re, err := regexp.Compile(s)
		if err != nil {
			return c, err
		}
		c.cost += len(s)
		x := allowRegex{re: re}
		if a, ok := bestAnchor(mustParse(s)); ok {
			x.pre = newAutomaton(a.literals)
		}
		c.res = append(c.res, x)
	}
	if len(a.StopWords) > 0 {
		c.stop = newAutomaton(a.StopWords)
	}
	return c, nil
}

// matches reports whether one of the list's expressions matches.
func (a *allow) matches(target []byte) bool {
	for i := range a.res {
		if x := &a.res[i]; (x.pre == nil || x.pre.contains(target)) && x.re.Match(target) {
			return true
		}
	}
	return false
}

// allowed decides as gitleaks does: expressions against the secret, the match
// or the line, stop words against the secret.
func (s *scan) allowed(list []allow, text []byte, ss, se, ms, me int) bool {
	secret := text[ss:se]
	for i := range list {
		a := &list[i]
		if a.never {
			continue
		}
		stop := a.stop != nil && a.stop.contains(secret)
		if stop && !a.and {
			return true
		}
		if a.and && a.stop != nil && !stop {
			continue
		}
		hit := a.and && len(a.res) == 0
		switch {
		case hit || len(a.res) == 0:
		case a.target == "line":
			hit = s.lineMatches(a, text, ms, me)
		case a.target == "match":
			hit = a.matches(text[ms:me])
		default:
			hit = a.matches(secret)
		}
		if hit {
			return true
		}
	}
	return false
}

// lineMemo remembers what allow lists say about a line, which may hold many
// matches.
type lineMemo struct {
	text    *byte
	lo, hi  int
	asked   []*allow
	answers []bool
}

func (s *scan) lineMatches(a *allow, text []byte, ms, me int) bool {
	m := &s.line
	if m.text != &text[0] || ms < m.lo || me > m.hi {
		m.text, m.asked, m.answers = &text[0], m.asked[:0], m.answers[:0]
		m.lo = bytes.LastIndexByte(text[:ms], '\n') + 1
		m.hi = bytes.IndexByte(text[me:], '\n') + me
		if m.hi < me {
			m.hi = len(text)
		}
		s.fuel -= m.hi - m.lo
	}
	for i, x := range m.asked {
		if x == a {
			return m.answers[i]
		}
	}
	s.fuel -= m.hi - m.lo
	answer := a.matches(text[m.lo:m.hi])
	if bytes.IndexByte(text[ms:me], '\n') >= 0 { // a match of several lines: not the lines of the next
		m.text = nil
		return answer
	}
	m.asked, m.answers = append(m.asked, a), append(m.answers, answer)
	return answer
}

// xLogX holds n*log2(n).
var xLogX = func() (t [256]float64) {
	for n := 2; n < len(t); n++ {
		t[n] = float64(n) * math.Log2(float64(n))
	}
	return t
}()

// Entropy is Shannon's entropy over the characters of b, in bits.
func Entropy(b []byte) float64 {
	var counts [256]int
	n := 0
	ascii := true
	for _, c := range b {
		if c >= utf8.RuneSelf {
			ascii = false
			break
		}
		counts[c]++
		n++
	}
	if len(b) == 0 {
		return 0
	}
	e := 0.0
	if ascii {
		sum := 0.0
		for _, c := range b { // each count once: it is cleared when it was added
			if k := counts[c]; k > 1 {
				if k < len(xLogX) {
					sum += xLogX[k]
				} else {
					sum += float64(k) * math.Log2(float64(k))
				}
			}
			counts[c] = 0
		}
		return math.Log2(float64(n)) - sum/float64(n)
	}
	runes := map[rune]int{}
	for _, r := range string(b) {
		runes[r]++
	}
	// gitleaks divides by the number of bytes.
	inv := 1 / float64(len(b))
	var keys []int
	for _, c := range runes {
		keys = append(keys, c)
	}
	sortInts(keys)
	for _, c := range keys {
		f := float64(c) * inv
		e -= f * math.Log2(f)
	}
	return e
}

func sortInts(a []int) { // a handful of counts; the order makes the sum the same everywhere
	for i := 1; i < len(a); i++ {
		for j := i; j > 0 && a[j] < a[j-1]; j-- {
			a[j], a[j-1] = a[j-1], a[j]
		}
	}
}

// normalKey is the form in which key globs are compared.
func normalKey(k string) string {
	var b strings.Builder
	for i := 0; i < len(k); i++ {
		switch c := k[i]; c {
		case '_', '-', '.', ' ':
		default:
			b.WriteByte(foldByte(c))
		}
	}
	return b.String()
}

func (c *rule) keyMatches(name []byte) bool {
	if len(c.keys) == 0 || len(name) > 256 {
		return false
	}
	n := normalKey(string(name))
	for _, k := range c.keys {
		if ok, err := path.Match(k, n); ok && err == nil {
			return true
		}
	}
	return false
}

func splitPath(p string) []string {
	p = strings.TrimPrefix(strings.TrimPrefix(p, "$"), ".")
	p = strings.ReplaceAll(p, "[", ".")
	p = strings.ReplaceAll(p, "]", "")
	return strings.Split(p, ".")
}

// pathMatches compares path elements with a pattern: * is one element, ** any
// number of them.
func pathMatches(pattern []string, elems []pathElem) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for i := 0; i <= len(elems); i++ {
				if pathMatches(pattern[1:], elems[i:]) {
					return true
				}
			}
			return false
		}
		if len(elems) == 0 || !elems[0].matches(pattern[0]) {
			return false
		}
		pattern, elems = pattern[1:], elems[1:]
	}
	return len(elems) == 0
}

// findRegex runs a regex rule over the text between lo and hi and calls found
// for each secret that passes entropy, validator and allow lists.
func (s *scan) findRegex(c *rule, text []byte, lo, hi int, found func(start, end, matchStart int)) {
	for _, loc := range c.re.FindAllIndex(text[lo:hi], -1) {
		ms, me := lo+loc[0], lo+loc[1]
		for ms < me && text[ms] == '\n' {
			ms++
		}
		for me > ms && text[me-1] == '\n' {
			me--
		}
		ss, se := ms, me
		match := text[ms:me]
		if groups := c.re.FindSubmatchIndex(match); len(groups) > 2 {
			if g := c.SecretGroup; g > 0 {
				if groups[2*g] < 0 {
					ss, se = ms, ms
				} else {
					ss, se = ms+groups[2*g], ms+groups[2*g+1]
				}
			} else {
				for g := 1; g < len(groups)/2; g++ {
					if groups[2*g] >= 0 && groups[2*g+1] > groups[2*g] {
						ss, se = ms+groups[2*g], ms+groups[2*g+1]
						break
					}
				}
			}
		}
		if s.acceptSecret(c, text, ss, se, ms, me) {
			found(ss, se, ms)
		}
	}
}

// acceptSecret applies what gitleaks applies to a match of an expression.
func (s *scan) acceptSecret(c *rule, text []byte, ss, se, ms, me int) bool {
	secret := text[ss:se]
	if len(secret) == 0 {
		return false
	}
	if c.Entropy != 0 && Entropy(secret) <= c.Entropy {
		return false
	}
	if c.Validator != "" && !validators[c.Validator](secret) {
		return false
	}
	s.fuel -= me - ms
	if s.allowed(c.allow, text, ss, se, ms, me) {
		return false
	}
	return c.precedence > RankGeneric || !s.allowed(s.e.allow, text, ss, se, ms, me)
}

func ruleError(policy, id string, err error) error {
	return fmt.Errorf("%w %s: rule %q: %w", ErrPolicy, policy, id, err)
}
