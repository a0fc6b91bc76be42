package redact

import (
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unbounded stands for "no limit" in widths counted in bytes.
const unbounded = 1 << 30

func addWidth(a, b int) int {
	if a >= unbounded || b >= unbounded {
		return unbounded
	}
	return a + b
}

// anchor is what analysing a regular expression yields: every match contains
// one of the literals (compared without ASCII case), at most before bytes
// after its start and at most after bytes before its end.
type anchor struct {
	literals      []string
	before, after int
	conds         []condition // of the literals, in their order
}

// condition is what an occurrence of an anchor's literal has to meet before
// the expression runs: a word boundary before it, and so many bytes of a class
// after it.
type condition struct {
	boundary bool
	follow   *[256]bool
	n        int
	// What follows is as many bytes of a class as there are, and then at most
	// rest bytes: the match ends where the text says, not the expression.
	open *[256]bool
	rest int
}

func (a *anchor) each(fn func(literal string, c *condition)) {
	for len(a.conds) < len(a.literals) {
		a.conds = append(a.conds, condition{})
	}
	for i := range a.literals {
		fn(a.literals[i], &a.conds[i])
	}
}

const maxAnchorLiterals = 256

// findAnchor picks the best anchor of an expression, or reports that there is
// none (then the expression has to run over the whole text).
func findAnchor(re *syntax.Regexp) (anchor, bool) {
	a, ok := bestAnchor(re)
	if !ok || shortest(a.literals) < 2 && len(a.literals) > 4 {
		return anchor{}, false
	}
	return a, true
}

func shortest(ls []string) int {
	n := unbounded
	for _, l := range ls {
		n = min(n, len(l))
	}
	return n
}

func better(a, b anchor) bool { // is a better than b?
	la, lb := shortest(a.literals), shortest(b.literals)
	if min(la, 4) != min(lb, 4) {
		return la > lb
	}
	if (a.before+a.after >= unbounded) != (b.before+b.after >= unbounded) {
		return a.before+a.after < unbounded
	}
	if la != lb {
		return la > lb
	}
	if len(a.literals) != len(b.literals) {
		return len(a.literals) < len(b.literals)
	}
	return a.strict() && !b.strict()
}

// strict: what follows a literal is known.
func (a *anchor) strict() bool {
	for i := range a.conds {
		if a.conds[i].follow == nil && a.conds[i].open == nil {
			return false
		}
	}
	return len(a.conds) > 0
}

func bestAnchor(re *syntax.Regexp) (anchor, bool) {
	switch re.Op {
	case syntax.OpLiteral, syntax.OpCharClass:
		set, exact := prefixSet(re)
		if exact && len(set) > 0 && set[0] != "" {
			return anchor{literals: set, after: 0}, true
		}
	case syntax.OpCapture:
		return bestAnchor(re.Sub[0])
	case syntax.OpPlus:
		return repeated(re)
	case syntax.OpRepeat:
		if re.Min > 0 {
			return repeated(re)
		}
	case syntax.OpAlternate:
		var u anchor
		for _, s := range re.Sub {
			a, ok := bestAnchor(s)
			if !ok {
				return anchor{}, false
			}
			a.each(func(l string, c *condition) {
				u.literals = append(u.literals, l)
				u.conds = append(u.conds, *c)
			})
			u.before = max(u.before, a.before)
			u.after = max(u.after, a.after)
		}
		if len(u.literals) > maxAnchorLiterals {
			return anchor{}, false
		}
		return u, true
	case syntax.OpConcat:
		return concatAnchor(re.Sub)
	}
	return anchor{}, false
}

func repeated(re *syntax.Regexp) (anchor, bool) {
	a, ok := bestAnchor(re.Sub[0])
	if !ok {
		return anchor{}, false
	}
	a.after = maxWidth(re)
	a.each(func(_ string, c *condition) { c.open = nil })
	return a, true
}

func concatAnchor(parts []*syntax.Regexp) (anchor, bool) {
	var best anchor
	found := false
	consider := func(a anchor) {
		if len(a.literals) == 0 || shortest(a.literals) == 0 || len(a.literals) > maxAnchorLiterals {
			return
		}
		if !found || better(a, best) {
			best, found = a, true
		}
	}
	before := make([]int, len(parts)+1)
	for i, p := range parts {
		before[i+1] = addWidth(before[i], maxWidth(p))
	}
	after := make([]int, len(parts)+1)
	for i := len(parts) - 1; i >= 0; i-- {
		after[i] = addWidth(after[i+1], maxWidth(parts[i]))
	}
	for i, p := range parts {
		// What is inside of the part knows more of what follows there, so that
		// it comes first.
		if a, ok := bestAnchor(p); ok {
			if i > 0 && a.before == 0 && parts[i-1].Op == syntax.OpWordBoundary {
				a.each(func(l string, c *condition) { c.boundary = wordStart(l) })
			}
			a.before = addWidth(a.before, before[i])
			a.after = addWidth(a.after, after[i+1])
			a.each(func(_ string, c *condition) { c.rest = addWidth(c.rest, after[i+1]) })
			consider(a)
		}
		// A run of parts that starts here and is known literally.
		set := []string{""}
		stop := len(parts)
		for j := i; j < len(parts); j++ {
			ps, exact := prefixSet(parts[j])
			if len(ps) == 0 || len(set)*len(ps) > 64 || !exact && len(ps) == 1 && ps[0] == "" {
				stop = j
				break
			}
			var x []string
			for _, a := range set {
				for _, b := range ps {
					x = append(x, a+b)
				}
			}
			set = x
			if !exact {
				stop = len(parts)
				break
			}
		}
		a := anchor{literals: set, before: before[i], after: after[i]}
		var c condition
		if stop < len(parts) {
			c.follow, c.n = followClass(parts[stop])
			if c.open = openClass(parts[stop]); c.open != nil {
				c.rest = after[stop+1]
			}
		}
		a.each(func(l string, have *condition) {
			*have = c
			have.boundary = i > 0 && parts[i-1].Op == syntax.OpWordBoundary && wordStart(l)
		})
		consider(a)
	}
	return best, found
}

// followClass is the class of bytes that has to follow, and how many of them.
func followClass(re *syntax.Regexp) (*[256]bool, int) {
	for re.Op == syntax.OpCapture || re.Op == syntax.OpConcat && len(re.Sub) > 0 {
		re = re.Sub[0]
	}
	n := 1
	switch re.Op {
	case syntax.OpRepeat:
		n = min(re.Min, 128)
		re = re.Sub[0]
	case syntax.OpPlus:
		re = re.Sub[0]
	}
	t := classBytes(re)
	if n == 0 || t == nil {
		return nil, 0
	}
	return t, n
}

// openClass is the class of an unlimited repetition of a class.
func openClass(re *syntax.Regexp) *[256]bool {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpStar && re.Op != syntax.OpPlus && (re.Op != syntax.OpRepeat || re.Max >= 0) {
		return nil
	}
	return classBytes(re.Sub[0])
}

// classBytes is the set of bytes of a class's characters, nil for anything else.
func classBytes(re *syntax.Regexp) *[256]bool {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpCharClass {
		return nil
	}
	var t [256]bool
	for i := 0; i < len(re.Rune); i += 2 {
		if re.Rune[i] >= utf8.RuneSelf || re.Rune[i+1] >= utf8.RuneSelf {
			for c := utf8.RuneSelf; c < 256; c++ {
				t[c] = true
			}
		}
		for r := re.Rune[i]; r <= re.Rune[i+1] && r < utf8.RuneSelf; r++ {
			t[r] = true
		}
	}
	return &t
}

func wordStart(l string) bool { return l != "" && wordByte(l[0]) }

func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// holds checks the condition at an occurrence of its literal.
func (a *condition) holds(text []byte, start, end int) bool {
	if a.boundary && start > 0 && wordByte(text[start-1]) {
		return false
	}
	if a.follow != nil {
		if len(text)-end < a.n {
			return false
		}
		for _, c := range text[end : end+a.n] {
			if !a.follow[c] {
				return false
			}
		}
	}
	return true
}

// prefixSet lists strings of which every match of re starts with one; exact
// says that re matches precisely these strings. Case-folded.
func prefixSet(re *syntax.Regexp) (set []string, exact bool) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}, true
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if re.Flags&syntax.FoldCase != 0 && r > unicode.MaxASCII {
				return []string{""}, false
			}
		}
		return []string{foldASCII(string(re.Rune))}, true
	case syntax.OpCharClass:
		seen := map[rune]bool{}
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i+1]-re.Rune[i] > 16 {
				return []string{""}, false
			}
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				switch {
				case r == 0x212a || r == 0x17f: // folded k and s: gitleaks' keyword filter misses them too
				case 'A' <= r && r <= 'Z':
					seen[r+32] = true
				default:
					seen[r] = true
				}
			}
		}
		if len(seen) > 12 {
			return []string{""}, false
		}
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				f := r
				if 'A' <= r && r <= 'Z' {
					f = r + 32
				}
				if seen[f] {
					set = append(set, string(f))
					delete(seen, f)
				}
			}
		}
		return set, true
	case syntax.OpCapture:
		return prefixSet(re.Sub[0])
	case syntax.OpQuest:
		set, exact = prefixSet(re.Sub[0])
		return append(append([]string(nil), set...), ""), exact
	case syntax.OpRepeat:
		if re.Min == 0 {
			return []string{""}, false
		}
		set, exact = prefixSet(re.Sub[0])
		return set, exact && re.Min == 1 && re.Max == 1
	case syntax.OpPlus:
		set, _ = prefixSet(re.Sub[0])
		return set, false
	case syntax.OpAlternate:
		exact = true
		for _, s := range re.Sub {
			ss, e := prefixSet(s)
			exact = exact && e
			set = append(set, ss...)
			if len(set) > 64 {
				return []string{""}, false
			}
		}
		return set, exact
	case syntax.OpConcat:
		set, exact = []string{""}, true
		for _, s := range re.Sub {
			ss, e := prefixSet(s)
			if len(ss) == 0 || len(set)*len(ss) > 64 {
				return set, false
			}
			var x []string
			for _, a := range set {
				for _, b := range ss {
					x = append(x, a+b)
				}
			}
			set = x
			if !e {
				return set, false
			}
		}
		return set, exact
	}
	return []string{""}, false
}

func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 32
		}
		return r
	}, s)
}

// maxWidth is the length in bytes of the longest match, or unbounded.
func maxWidth(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpLiteral:
		n := 0
		for _, r := range re.Rune {
			if re.Flags&syntax.FoldCase != 0 {
				w := 0
				for f, first := r, true; first || f != r; f = unicode.SimpleFold(f) {
					first = false
					w = max(w, utf8.RuneLen(f))
				}
				n += w
				continue
			}
			n += utf8.RuneLen(r)
		}
		return n
	case syntax.OpCharClass:
		if len(re.Rune) == 0 {
			return 0
		}
		n := utf8.RuneLen(re.Rune[len(re.Rune)-1])
		if n < 0 {
			n = utf8.UTFMax
		}
		return n
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return utf8.UTFMax
	case syntax.OpCapture, syntax.OpQuest:
		return maxWidth(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		if maxWidth(re.Sub[0]) == 0 {
			return 0
		}
		return unbounded
	case syntax.OpRepeat:
		w := maxWidth(re.Sub[0])
		if re.Max < 0 || w >= unbounded {
			if w == 0 {
				return 0
			}
			return unbounded
		}
		return min(w*re.Max, unbounded)
	case syntax.OpConcat:
		n := 0
		for _, s := range re.Sub {
			n = addWidth(n, maxWidth(s))
		}
		return n
	case syntax.OpAlternate:
		n := 0
		for _, s := range re.Sub {
			n = max(n, maxWidth(s))
		}
		return n
	}
	return 0
}
