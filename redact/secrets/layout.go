package secrets

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// What stands between a name and its value where they are not on one line, or
// where a program or a page has put something around them.

// content returns where the content of the line that begins at i begins:
// behind indentation and what listings, quotes and diffs put before a line, as
// in "  12\t", "12→", "> ", "+", "src/a.py:12:".
func content(text []byte, i int) int {
	i = run(text, margin(text, i), space)
	for n := 0; n < 2 && i+1 < len(text) && text[i] == '-' && space(text[i+1]); n++ {
		i = run(text, i+1, space)
	}
	return i
}

// margin returns where what listings, quotes and diffs put before a line ends,
// with the indentation still to come.
func margin(text []byte, i int) int {
	end := i
	for n := 0; n < 3; n++ {
		i = run(text, i, space)
		if i >= len(text) {
			return end
		}
		switch ch := text[i]; {
		case ch == '-' && (n > 0 || i != end || i+2 < len(text) && text[i+1] == ' ' && text[i+2] != ' '):
			return end // an item of a list, which content skips as well
		case ch == '+', ch == '-':
			i++
			end = i
			continue
		case ch == '>', ch == '|' && i+1 < len(text) && space(text[i+1]):
			i++
			if i < len(text) && text[i] == ' ' {
				i++
			}
			end = i
			continue
		case '0' <= ch && ch <= '9':
			e := run(text, i, decimal)
			if e < len(text) && text[e] == '\t' {
				i = e + 1
				end = i
				continue
			}
			e = run(text, e, space)
			if e < len(text) && (text[e] == '|' || text[e] == ':') {
				i = e + 1
				if i < len(text) && text[i] == ' ' {
					i++
				}
				end = i
				continue
			}
			if bytes.HasPrefix(text[e:], arrow) {
				i = e + len(arrow)
				end = i
				continue
			}
		}
		e := labelEnd(text, i)
		if e == 0 {
			break
		}
		i = e
		end = i
	}
	return end
}

// labelEnd returns where a label before a line ends: a file's name and a line
// number, a time, a container's name and a bar; 0 for none.
func labelEnd(text []byte, i int) int {
	e := i
	for e < len(text) && e-i < 120 && (alnum(text[e]) || text[e] == '.' || text[e] == '/' || text[e] == '_' || text[e] == '-' || text[e] == ':') {
		e++
	}
	w := text[i:e]
	if len(w) >= 19 && decimal(w[0]) && w[4] == '-' && w[10] == 'T' && w[13] == ':' && e < len(text) && text[e] == ' ' {
		return e + 1
	}
	if k := run(text, e, space); k > e && k+1 < len(text) && text[k] == '|' && text[k+1] == ' ' && len(w) > 0 {
		return k + 2
	}
	for _, sep := range [...]byte{':', '-'} { // src/a.py:12:text, src/a.py-13-text
		at := bytes.IndexByte(w, sep)
		if at <= 0 {
			continue
		}
		if d := run(text, i+at+1, decimal); d > i+at+1 && d < len(text) && text[d] == sep {
			return d + 1
		}
	}
	return 0
}

var arrow = []byte("→")

func decimal(b byte) bool { return '0' <= b && b <= '9' }

// lineBreak returns where the content of the next line begins when the line
// ends at j, perhaps with a backslash or an opening bracket; 0 otherwise.
func lineBreak(text []byte, j int) int {
	if j < len(text) && (text[j] == '\\' || text[j] == '(') {
		j = run(text, j+1, space)
	}
	if j < len(text) && text[j] == '\r' {
		j++
	}
	if j >= len(text) || text[j] != '\n' {
		return 0
	}
	return content(text, j+1)
}

// nextLineValue takes a quoted value that stands alone on the line behind its
// name, as formatters put long ones.
func nextLineValue(text []byte, j int, n *name, o op) (int, int, bool) {
	if o == opTuple && !firstArgument(text, n.start-1) {
		return 0, 0, false // a list
	}
	k := lineBreak(text, j)
	if k == 0 || k >= len(text) || text[k] != '"' && text[k] != '\'' && text[k] != '`' {
		return 0, 0, false
	}
	if k > 1 && text[k-1] == ' ' && text[k-2] == '-' {
		return 0, 0, false // an item of a list
	}
	s, e, ok := quotedValue(text, k)
	if !ok {
		return 0, 0, false
	}
	if k = run(text, e+1, space); k < len(text) && text[k] == ':' {
		return 0, 0, false // the next name
	}
	return s, e, plausibleQuoted(text[s:e], n, o)
}

// yamlItems takes the items of a list under a name, each on a line, and returns
// the first.
func yamlItems(c *redact.Candidate, j int, n *name) (start, end int, ok bool) {
	text := c.Text()
	i := lineBreak(text, j)
	if i == 0 || text[j] == '\\' || text[j] == '(' {
		return 0, 0, false
	}
	i = nextLine(text, j)
	for k := 0; k < 256 && i < len(text); k++ {
		item := run(text, margin(text, i), space)
		if item+2 >= len(text) || text[item] != '-' || text[item+1] != ' ' {
			break
		}
		s := run(text, item+1, space)
		e := lineEnd(text, s)
		if e > s+1 && (text[s] == '"' || text[s] == '\'') {
			if qs, qe, quoted := quotedValue(text, s); quoted && qe < e {
				s, e = qs, qe
			}
		}
		if !c.Work(e - i) {
			break
		}
		if v := text[s:e]; len(v) > 3 && len(v) < maxValue && bytes.IndexByte(v, ' ') < 0 && v[len(v)-1] != ':' && !call(v) && !word(v) && plausibleQuoted(v, n, opColon) && (n.class == passwordKey || unlikeWords(v) || len(v) >= 16 && secretish(v)) {
			if ok {
				c.Emit(s, e)
			} else {
				start, end, ok = s, e, true
			}
		}
		i = nextLine(text, e)
	}
	return start, end, ok
}

// firstArgument reports whether the first argument of a call begins at i.
func firstArgument(text []byte, i int) bool {
	for n := 0; i > 0 && n < 80 && blank(text[i-1]); n++ {
		i--
	}
	return i > 1 && text[i-1] == '(' && (alnum(text[i-2]) || text[i-2] == '_')
}

// tagged takes the value of the next cell of a table, or behind the tags that
// close a label: NAME</td><td>V</td>. j stands at the first tag.
func tagged(text []byte, j int, n *name) (int, int, bool) {
	cell := false
	s := j
	for m := 0; m < 8 && s < len(text) && text[s] == '<'; m++ {
		e := bytes.IndexByte(text[s:min(len(text), s+128)], '>')
		if e < 0 {
			return 0, 0, false
		}
		if t := text[s+1 : s+e]; len(t) >= 2 && (t[0] == 't' || t[0] == 'd') {
			cell = true
		}
		s += e + 1
		if k := lineBreak(text, s); k > 0 {
			s = k
		}
		s = run(text, s, space)
	}
	e := s
	for e < len(text) && e-s < 512 && text[e] != '<' && text[e] != '\n' {
		e++
	}
	if e == s || e == len(text) || text[e] != '<' && cell {
		return 0, 0, false
	}
	if !cell && (j == 0 || text[j-1] != ':') {
		return 0, 0, false
	}
	for e > s && blank(text[e-1]) {
		e--
	}
	return s, e, e > s && plausibleQuoted(text[s:e], n, opTuple)
}

// columnValue takes V of a line that is NAME and V with a tab or more than one
// space between, as tools print them.
func columnValue(text []byte, n *name) (int, int, bool) {
	s := run(text, n.end, space)
	if s == n.end || s-n.end == 1 && text[n.end] == ' ' || s >= len(text) || !beginsLine(text, n.start) {
		return 0, 0, false
	}
	e := s
	digit, letter := false, false
	for ; e < len(text) && text[e] > ' ' && e-s < maxValue; e++ {
		switch ch := text[e]; {
		case bytes.IndexByte([]byte("()[]{}<>,;\"'`"), ch) >= 0, escapeStop(text, e):
			return 0, 0, false
		case decimal(ch):
			digit = true
		case alnum(ch):
			letter = true
		}
	}
	if k := run(text, e, space); k < len(text) && text[k] != '\n' && text[k] != '\r' && k-e == 1 && text[e] == ' ' {
		return 0, 0, false // a sentence
	}
	return s, e, digit && letter && e-s >= 6 && alnum(text[s]) && !pathLike(text[s:e]) && (!codeWord(text[s:e]) || shape.Dense(text[s:e]) || e-s >= 12 && shape.RandomLooking(text[s:e]) && bytes.IndexByte(text[s:e], '.') < 0) && plausibleQuoted(text[s:e], n, opTuple)
}

// beginsLine reports whether nothing but what content skips stands before i on
// its line.
func beginsLine(text []byte, i int) bool {
	lo := max(0, i-160)
	line := bytes.LastIndexByte(text[lo:i], '\n')
	if line < 0 && lo > 0 {
		return false
	}
	return content(text, lo+line+1) == i
}

// alternative returns where the quote stands of what a program takes when
// there is no value: || "V", ?? "V", ?: "V", or "V"; 0 for none.
func alternative(text []byte, j int) int {
	if j+3 >= len(text) {
		return 0
	}
	switch string(text[j : j+2]) {
	case "||", "??", "?:":
	case "or":
		if text[j+2] != ' ' {
			return 0
		}
	default:
		return 0
	}
	if k := run(text, j+2, space); k < len(text) && (text[k] == '"' || text[k] == '\'' || text[k] == '`') {
		return k
	}
	return 0
}

// defaults are calls whose argument is a value in place of one that is missing.
var defaults = list("|| ", "?? ", "?: ", " or ", "default(", "OrElse(", "orElse(", "or_else(", "unwrap_or(")

var orWord = []byte(" or ")

// fallback takes the quoted alternative in an expression that stands for a
// value: process.env.X || "V", {{ x | default('V') }}.
func fallback(text []byte, j int, n *name) (int, int, bool) {
	line := text[j:min(len(text), j+200)]
	if e := bytes.IndexByte(line, '\n'); e >= 0 {
		line = line[:e]
	}
	// Each of defaults has one of these, and most lines have none.
	if bytes.IndexByte(line, '(') < 0 && bytes.IndexByte(line, '|') < 0 && bytes.IndexByte(line, '?') < 0 && !bytes.Contains(line, orWord) {
		return 0, 0, false
	}
	for k := 1; ; k++ {
		q := bytes.IndexAny(line[min(k, len(line)):], "\"'`")
		if q < 0 {
			return 0, 0, false
		}
		k += q
		if !afterDefault(line[:k]) {
			continue
		}
		if s, e, ok := quotedValue(text, j+k); ok && e <= j+len(line) && plausibleQuoted(text[s:e], n, opTuple) {
			return s, e, true
		}
	}
}

// afterDefault reports whether b ends with one of defaults and blanks, and does
// not begin with it.
func afterDefault(b []byte) bool {
	end := len(b)
	for end > 0 && space(b[end-1]) {
		end--
	}
	if end == 0 {
		return false
	}
	switch b[end-1] { // what defaults end with
	case '|', '?', ':', 'r', '(':
	default:
		return false
	}
	for _, d := range defaults {
		if n := len(bytes.TrimRight(d, " ")); end > n && (n == len(d) || end < len(b)) && bytes.HasSuffix(b[:end], d[:n]) {
			return true
		}
	}
	return false
}

// called takes what a program does with the thing that is named: the rest of
// getByLabel("Password").fill("V"), env("PASSWORD") || "V". i stands behind the
// name's quote.
func called(text []byte, i int, n *name) (int, int, bool) {
	if i+4 >= len(text) || text[i] != ')' && text[i] != ']' {
		return 0, 0, false
	}
	i++
	k := alternative(text, run(text, i, space))
	if k == 0 {
		if text[i] != '.' {
			return 0, 0, false
		}
		e := i + 1
		for e < len(text) && e-i < 24 && (alnum(text[e]) || text[e] == '_') {
			e++
		}
		if e+1 >= len(text) || text[e] != '(' {
			return 0, 0, false
		}
		switch string(text[i+1 : e]) {
		case "fill", "type", "send_keys", "sendKeys", "setValue", "set_value", "clearAndType", "pressSequentially", "set", "set_text", "setText", "enterText", "typeText", "val", "unwrap_or", "orElse", "default":
		default:
			return 0, 0, false
		}
		if k = e + 1; text[k] != '"' && text[k] != '\'' && text[k] != '`' {
			return 0, 0, false
		}
	}
	s, e, ok := quotedValue(text, k)
	return s, e, ok && plausibleQuoted(text[s:e], n, opTuple)
}

// declared takes the default of an option: add_argument("--password",
// default="V"), option('password', { default: 'V' }). i stands behind the
// name's quote.
func declared(text []byte, i int, n *name) (int, int, bool) {
	if i >= len(text) || text[i] != ',' {
		return 0, 0, false
	}
	part := text[i:min(len(text), i+200)]
	if e := bytes.IndexByte(part, ')'); e >= 0 {
		part = part[:e]
	}
	d := bytes.Index(part, []byte("default"))
	if d < 0 {
		return 0, 0, false
	}
	k := i + d + len("default")
	if k < len(text) && (text[k] == '"' || text[k] == '\'') {
		k++
	}
	k = run(text, k, space)
	if k >= len(text) || text[k] != '=' && text[k] != ':' {
		return 0, 0, false
	}
	k = run(text, k+1, space)
	if k >= len(text) || text[k] != '"' && text[k] != '\'' && text[k] != '`' {
		return 0, 0, false
	}
	s, e, ok := quotedValue(text, k)
	return s, e, ok && plausibleQuoted(text[s:e], n, opTuple)
}

// pairBefore finds V in value="V" name="NAME" and value = 'V' WHERE name =
// 'NAME'. k stands at the sign before the name's quote.
func pairBefore(text []byte, k int, n *name) (int, int, bool) {
	lo := max(0, k-160)
	part := text[lo:k]
	if i := bytes.LastIndexAny(part, "\n<{;"); i >= 0 {
		part = part[i+1:]
	}
	at := bytes.LastIndex(part, []byte("value"))
	if at < 0 {
		return 0, 0, false
	}
	j := k - len(part) + at + len("value")
	if text[j] == '"' || text[j] == '\'' {
		j++
	}
	j = run(text, j, space)
	if j >= k || text[j] != '=' && text[j] != ':' {
		return 0, 0, false
	}
	j = run(text, j+1, space)
	if j >= k || text[j] != '"' && text[j] != '\'' {
		return 0, 0, false
	}
	s, e, ok := quotedValue(text, j)
	return s, e, ok && e < k && !shape.Placeholder(text[s:e]) && plausibleQuoted(text[s:e], n, opTuple)
}
