package secrets

import (
	"bytes"
	"unicode/utf8"

	"github.com/otel-bridge/otel-bridge/redact"
)

// The matchers here replace the expressions of gitleaks rules whose keywords
// stand in nearly every text. Each finds what Go's regexp finds with the
// expression beside it (for text in which no letter outside of ASCII folds to
// one inside: U+017F and U+212A), and is held to that by a fuzz test. When the
// gitleaks module changes an expression, that rule runs by its expression.

type native struct {
	id, expression string
	literals       []string
	find           func(c *redact.Candidate)
}

var natives = []native{
	{"generic-api-key",
		`(?i)[\w.-]{0,50}?(?:access|auth|(?-i:[Aa]pi|API)|credential|creds|key|passw(?:or)?d|secret|token)(?:[ \t\w.-]{0,20})[\s'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}([\w.=-]{10,150}|[a-z0-9][a-z0-9+/]{11,}={0,3})(?:[\x60'"\s;]|\\[nr]|$)`,
		[]string{"access", "auth", "api", "credential", "creds", "key", "passwd", "password", "secret", "token"}, findGeneric},
	{"private-key",
		`(?i)-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----[\s\S-]{64,}?KEY(?: BLOCK)?-----`,
		[]string{"-----begin"}, findPrivateKey},
	{"jwt",
		`\b(ey[a-zA-Z0-9]{17,}\.ey[a-zA-Z0-9\/\\_-]{17,}\.(?:[a-zA-Z0-9\/\\_-]{10,}={0,2})?)(?:[\x60'"\s;]|\\[nr]|$)`,
		[]string{"ey"}, findGitleaksJWT},
	{"vault-service-token",
		`\b((?:hvs\.[\w-]{90,120}|s\.(?i:[a-z0-9]{24})))(?:[\x60'"\s;]|\\[nr]|$)`,
		[]string{"hvs.", "s."}, findVault},
	{"flyio-access-token",
		`\b((?:fo1_[\w-]{43}|fm1[ar]_[a-zA-Z0-9+\/]{100,}={0,3}|fm2_[a-zA-Z0-9+\/]{100,}={0,3}))(?:[\x60'"\s;]|\\[nr]|$)`,
		[]string{"fo1_", "fm1a_", "fm1r_", "fm2_"}, findFlyio},
}

// whitespace is \s of Go's regexp.
func whitespace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' }

func wordByte(c byte) bool { return alnum(c) || c == '_' }

// terminator reads (?:[\x60'"\s;]|\\[nr]|$) and returns its length, -1 when it
// does not stand at i.
func terminator(text []byte, i int) int {
	if i == len(text) {
		return 0
	}
	switch c := text[i]; c {
	case '`', '\'', '"', ';', ' ', '\t', '\n', '\f', '\r':
		return 1
	case '\\':
		if i+1 < len(text) && (text[i+1] == 'n' || text[i+1] == 'r') {
			return 2
		}
	}
	return -1
}

// terminatorFold is the same under (?i).
func terminatorFold(text []byte, i int) int {
	if i+1 < len(text) && text[i] == '\\' && (text[i+1] == 'N' || text[i+1] == 'R') {
		return 2
	}
	return terminator(text, i)
}

// generic is a match of generic-api-key's expression.
type generic struct {
	end                  int // of the match
	secret, secretLength int
}

// keywordAt reads a keyword of the expression at i: its length, 0 for none.
func keywordAt(text []byte, i int) int {
	rest := text[i:]
	fold := func(w string) bool { return len(rest) >= len(w) && bytes.EqualFold(rest[:len(w)], []byte(w)) }
	if len(rest) < 3 {
		return 0
	}
	switch rest[0] | 0x20 {
	case 'a':
		switch {
		case fold("access"):
			return 6
		case fold("auth"):
			return 4
		case string(rest[:3]) == "api", string(rest[:3]) == "Api", string(rest[:3]) == "API":
			return 3
		}
	case 'c':
		if fold("credential") {
			return 10
		}
		if fold("creds") {
			return 5
		}
	case 'k':
		if fold("key") {
			return 3
		}
	case 'p':
		if fold("password") {
			return 8
		}
		if fold("passwd") {
			return 6
		}
	case 's':
		if fold("secret") {
			return 6
		}
	case 't':
		if fold("token") {
			return 5
		}
	}
	return 0
}

// gapByte tells what may stand between a keyword and the operator.
var gapByte = func() (t [256]uint8) {
	for c := range t {
		switch b := byte(c); {
		case b == ' ' || b == '\t':
			t[c] = inBlanks
		case wordByte(b) || b == '.' || b == '-':
			t[c] = inName
		case b == '\'' || b == '"' || b == '\n' || b == '\r' || b == '\f':
			t[c] = inQuotes
		}
	}
	return t
}()

const (
	inBlanks = 1 + iota
	inName
	inQuotes
)

// operatorByte is set for the bytes that an operator begins with.
var operatorByte = [256]bool{'=': true, '>': true, ',': true, ':': true, '|': true, '?': true}

// genericAfter reads what follows a keyword that ends at i: the gap, the
// operator, the value and its end. The operator's place is certain: it is the
// first byte that can belong neither to the gap nor to the blanks and quotes.
func genericAfter(text []byte, i int) (g generic, ok bool) {
	o := i
	gap := -1 // where the gap must have ended
loop:
	for o < len(text) {
		switch gapByte[text[o]] {
		case 0:
			break loop
		case inName:
			if gap >= 0 {
				return g, false // a name after a quote or a line end
			}
		case inQuotes:
			if gap < 0 {
				gap = o
			}
		}
		o++
		if o-i > 23 {
			return g, false
		}
	}
	if o == len(text) || !operatorByte[text[o]] {
		return g, false
	}
	if gap < 0 {
		gap = o
	}
	// The last bytes before the operator, up to three, are [\s'"]; the gap
	// takes up to 20 before them.
	tail := o
	for tail > i && o-tail < 3 && (whitespace(text[tail-1]) || text[tail-1] == '\'' || text[tail-1] == '"') {
		tail--
	}
	if tail > gap || tail-i > 20 {
		return g, false
	}
	at := func(k int) byte {
		if k < len(text) {
			return text[k]
		}
		return 0
	}
	var ends [4]int
	n := 0
	switch text[o] {
	case '=':
		ends[0], n = o+1, 1
		if at(o+1) == '>' {
			ends[1], n = o+2, 2
		}
	case '>', ',':
		ends[0], n = o+1, 1
	case ':':
		k := o
		for k < len(text) && k-o < 3 && text[k] == ':' {
			k++
		}
		if at(k) == '=' {
			ends[0], n = k+1, 1
		}
		ends[n] = o + 1
		n++
	case '|':
		if at(o+1) == '|' {
			ends[0], n = o+2, 1
		}
	case '?':
		if at(o+1) == '=' {
			ends[0], n = o+2, 1
		}
	}
	for _, e := range ends[:n] {
		p := e
		for p < len(text) && p-e < 5 && (whitespace(text[p]) || text[p] == '`' || text[p] == '\'' || text[p] == '"' || text[p] == '=') {
			p++
		}
		for ; p >= e; p-- {
			if l, t, ok := genericValue(text, p); ok {
				return generic{end: p + l + t, secret: p, secretLength: l}, true
			}
		}
	}
	return g, false
}

func genericValue(text []byte, v int) (length, term int, ok bool) {
	e := v
	for e < len(text) && e-v <= 150 && (wordByte(text[e]) || text[e] == '.' || text[e] == '=' || text[e] == '-') {
		e++
	}
	if n := e - v; n >= 10 && n <= 150 {
		if t := terminatorFold(text, e); t >= 0 {
			return n, t, true
		}
	}
	if v >= len(text) || !alnum(text[v]) {
		return 0, 0, false
	}
	e = v + 1
	for e < len(text) && (alnum(text[e]) || text[e] == '+' || text[e] == '/') {
		e++
	}
	if e-v < 12 {
		return 0, 0, false
	}
	for n := 0; n < 3 && e < len(text) && text[e] == '='; n++ {
		e++
	}
	if t := terminatorFold(text, e); t >= 0 {
		return e - v, t, true
	}
	return 0, 0, false
}

func genericPrefix(c byte) bool { return wordByte(c) || c == '.' || c == '-' }

func findGeneric(c *redact.Candidate) {
	text, k := c.Text(), c.Start()
	after := c.End()
	if after < len(text) && gapByte[text[after]] == 0 && !operatorByte[text[after]] || k < c.Skipped() {
		return
	}
	n := keywordAt(text, k)
	if n == 0 {
		return
	}
	g, ok := genericAfter(text, k+n)
	if !ok {
		return
	}
	start := k
	for n := 0; n < 50 && start > c.Skipped() && genericPrefix(text[start-1]); n++ {
		start--
	}
	c.Skip(g.end)
	// gitleaks takes the newlines off the match and looks for the group in
	// what is left.
	ms, me := start, g.end
	for ms < me && text[ms] == '\n' {
		ms++
	}
	for me > ms && text[me-1] == '\n' {
		me--
	}
	match := text[ms:me]
	for i := range match {
		if n := keywordAt(match, i); n > 0 {
			if g, ok := genericAfter(match, i+n); ok {
				c.EmitSecret(ms+g.secret, ms+g.secret+g.secretLength, ms, me)
				return
			}
		}
	}
	c.EmitSecret(ms, me, ms, me)
}

// keyDashes reads KEY(?: BLOCK)?----- without case and returns its end.
func keyDashes(text []byte, i int) (int, bool) {
	if len(text)-i < 8 || !bytes.EqualFold(text[i:i+3], []byte("KEY")) {
		return 0, false
	}
	i += 3
	if len(text)-i >= 6 && bytes.EqualFold(text[i:i+6], []byte(" BLOCK")) && bytes.HasPrefix(text[i+6:], []byte("-----")) {
		return i + 11, true
	}
	if bytes.HasPrefix(text[i:], []byte("-----")) {
		return i + 5, true
	}
	return 0, false
}

func findPrivateKey(c *redact.Candidate) {
	text, start := c.Text(), c.Start()
	if start < c.Skipped() {
		return
	}
	// Where the class of the header's words ends.
	h := c.End()
	for n := 0; n < 100 && h < len(text) && (wordByte(text[h]) || text[h] == ' ' || text[h] == '-'); n++ {
		h++
	}
	const private = "PRIVATE "
	for i := h; i >= c.End(); i-- {
		if len(text)-i < len(private) || !bytes.EqualFold(text[i:i+len(private)], []byte(private)) {
			continue
		}
		body, ok := keyDashes(text, i+len(private))
		if !ok {
			continue
		}
		from := skipRunes(text, body, 64)
		if from < 0 {
			continue
		}
		for at := from; at < len(text); {
			n := bytes.Index(text[at:], []byte("-----"))
			if n < 0 {
				break
			}
			at += n
			// "KEY" or "KEY BLOCK" right before the dashes.
			for _, w := range [...]string{"KEY", "KEY BLOCK"} {
				k := at - len(w)
				if k >= from && bytes.EqualFold(text[k:at], []byte(w)) {
					end := at + 5
					c.Skip(end)
					c.EmitSecret(start, end, start, end)
					return
				}
			}
			at++
		}
	}
}

// skipRunes moves n characters on, -1 when there are not so many.
func skipRunes(text []byte, i, n int) int {
	for ; n > 0; n-- {
		if i >= len(text) {
			return -1
		}
		_, size := utf8.DecodeRune(text[i:])
		i += size
	}
	return i
}

// findGitleaksJWT differs from gitleaks in one point: an escaped line end after
// the token (a backslash and an n) stays, where gitleaks, looking for the group
// in the match alone, would take it into the secret.
func findGitleaksJWT(c *redact.Candidate) {
	text, start := c.Text(), c.Start()
	if start < c.Skipped() || string(text[start:start+2]) != "ey" || start > 0 && wordByte(text[start-1]) {
		return
	}
	a := run(text, start+2, alnum)
	if a-start-2 < 17 || len(text)-a < 3 || string(text[a:a+3]) != ".ey" {
		return
	}
	part := func(b byte) bool { return alnum(b) || b == '/' || b == '\\' || b == '_' || b == '-' }
	b := run(text, a+3, part)
	if b-a-3 < 17 || b >= len(text) || text[b] != '.' {
		return
	}
	e := run(text, b+1, part)
	if e-b-1 >= 10 {
		// The longest signature that an end follows; a backslash may belong to
		// either.
		for x := e; x-b-1 >= 10; x-- {
			eq := x
			if x == e {
				for n := 0; n < 2 && eq < len(text) && text[eq] == '='; n++ {
					eq++
				}
			}
			for ; eq >= x; eq-- {
				if t := terminator(text, eq); t >= 0 {
					emitTrimmed(c, start, eq, eq+t)
					return
				}
			}
		}
	}
	if t := terminator(text, b+1); t >= 0 {
		emitTrimmed(c, start, b+1, b+1+t)
	}
}

// emitTrimmed reports a secret [start,end) whose match goes on to matchEnd.
func emitTrimmed(c *redact.Candidate, start, end, matchEnd int) {
	c.Skip(matchEnd)
	text := c.Text()
	for matchEnd > end && text[matchEnd-1] == '\n' {
		matchEnd--
	}
	c.EmitSecret(start, end, start, matchEnd)
}

func findVault(c *redact.Candidate) {
	text, start := c.Text(), c.Start()
	if start < c.Skipped() {
		return
	}
	if text[start] == 's' && c.End()-start == 2 && !(start > 0 && wordByte(text[start-1])) {
		if e := run(text, c.End(), alnum); e-c.End() == 24 {
			if t := terminator(text, e); t >= 0 {
				emitTrimmed(c, start, e, e+t)
			}
		}
		return
	}
	if string(text[start:c.End()]) != "hvs." || start > 0 && wordByte(text[start-1]) {
		return
	}
	if e := c.Run(c.End(), tokenClass); e-c.End() >= 90 && e-c.End() <= 120 {
		if t := terminator(text, e); t >= 0 {
			emitTrimmed(c, start, e, e+t)
		}
	}
}

func findFlyio(c *redact.Candidate) {
	text, start, i := c.Text(), c.Start(), c.End()
	if start < c.Skipped() || start > 0 && wordByte(text[start-1]) {
		return
	}
	switch string(text[start:i]) {
	case "fo1_":
		if e := c.Run(i, tokenClass); e-i == 43 {
			if t := terminator(text, e); t >= 0 {
				emitTrimmed(c, start, e, e+t)
			}
		}
	case "fm1a_", "fm1r_", "fm2_":
		e := c.Run(i, secretClass)
		if e-i < 100 {
			return
		}
		for n := 0; n < 3 && e < len(text) && text[e] == '='; n++ {
			e++
		}
		if t := terminator(text, e); t >= 0 {
			emitTrimmed(c, start, e, e+t)
		}
	}
}
