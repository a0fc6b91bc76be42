package pii

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
)

// loose reports whether the digits at [a,b) stand by themselves: no letters,
// digits or decimal points touch them.
func loose(text []byte, a, b int) bool {
	if a > 0 {
		switch p := text[a-1]; {
		case p == 'B' && a > 1 && text[a-2] == '%' && b < len(text) && text[b] == '^': // the first track of a card
		case alnum(p), p == '_', p == '$' || p == '#' && b-a < 12:
			return false
		case p == '.' || p == '-' || p == '/':
			if a > 1 && alnum(text[a-2]) {
				return false
			}
		}
	}
	if b < len(text) {
		switch n := text[b]; {
		case alnum(n), n == '_':
			return false
		case n == '.' || n == '-' || n == ':' || n == '/':
			if b+1 < len(text) && alnum(text[b+1]) {
				return false
			}
		}
	}
	return true
}

// findCard looks for a card number in a run of digits and separators: groups
// of one style whose digits together pass.
func findCard(c *redact.Candidate) {
	text, start, end := c.Text(), c.Start(), c.End()
	if end-start > 400 {
		end = start + 400 // longer runs are tables; their groups come again below
	}
	for a := start; a < end; {
		if !digit(text[a]) || a > 0 && digit(text[a-1]) && a > start {
			a++
			continue
		}
		if e := cardAt(text, a, c.End()); e > 0 && !c.WholeStrings(a, e) {
			c.Emit(a, e)
			a = e
			continue
		}
		for a < end && digit(text[a]) {
			a++
		}
	}
}

// cardAt returns the end of the longest card number that begins at a.
func cardAt(text []byte, a, limit int) int {
	var sep byte
	n, best := 0, 0
	group := 0
	for i := a; i < limit && n <= 19; i++ {
		ch := text[i]
		if digit(ch) {
			n++
			group++
			if n >= 12 && n <= 19 && (i+1 == limit || !digit(text[i+1])) && loose(text, a, i+1) && redact.Card(text[a:i+1]) && cardGroups(text[a:i+1], sep) {
				if sep != 0 || n <= 16 || !listed(text, a, i+1) {
					best = i + 1
				}
			}
			continue
		}
		if ch != ' ' && ch != '-' || sep != 0 && ch != sep || group == 0 || i+1 >= limit || !digit(text[i+1]) {
			break
		}
		sep = ch
		group = 0
	}
	return best
}

// listed reports whether a long number is one of a list of long numbers, or
// has a sign: tables of constants.
func listed(text []byte, a, b int) bool {
	if a > 0 && text[a-1] == '-' {
		return true
	}
	for b < len(text) && (text[b] == ',' || text[b] == ' ' || text[b] == '\n' || text[b] == '\t' || text[b] == '-') {
		if text[b] == ',' {
			b++
			for b < len(text) && (blank(text[b]) || text[b] == '-') {
				b++
			}
			return longNumber(text, b, 1)
		}
		b++
	}
	for a > 0 && blank(text[a-1]) {
		a--
	}
	return a > 1 && text[a-1] == ',' && longNumber(text, a-2, -1)
}

// longNumber reports whether eight digits stand from i on in a direction.
func longNumber(text []byte, i, step int) bool {
	for n := 0; n < 8; n++ {
		if i < 0 || i >= len(text) || !digit(text[i]) {
			return false
		}
		i += step
	}
	return true
}

// cardGroups accepts the groups in which cards are written: fours (with a
// shorter rest), 4-6-5, 4-6-4, 6-13 and the like, not arbitrary ones.
func cardGroups(b []byte, sep byte) bool {
	if sep == 0 {
		return true
	}
	g := bytes.Split(b, []byte{sep})
	if len(g[0]) != 4 && len(g[0]) != 6 {
		return false
	}
	for i, x := range g[1:] {
		last := i == len(g)-2
		switch {
		case len(x) == 4, len(x) == 6 && len(g) == 3, last && len(x) >= 1 && len(x) <= 5, len(g) == 2 && len(x) >= 6:
		default:
			return false
		}
	}
	return true
}

// findIBAN looks from a run of digits back to the country's letters.
func findIBAN(c *redact.Candidate) {
	text, s := c.Text(), c.Start()
	if letter(text[s]) { // called for a run of letters and digits
		if e := ibanAt(text, s); e > 0 {
			c.Emit(s, e)
		}
		return
	}
	// The run begins with the check digits, or lies within the account part:
	// the letters may be at most 34 characters and some spaces before.
	lo := max(0, s-48)
	for a := s - 1; a >= lo && ibanByte[text[a]]; a-- {
		if !letter(text[a]) || a+3 >= len(text) || !digit(text[a+2]) || !digit(text[a+3]) || a+1 >= s || !letter(text[a+1]) || a > 0 && alnum(text[a-1]) {
			continue
		}
		if e := ibanAt(text, a); e > s {
			c.Emit(a, e)
			return
		}
	}
}

// ibanByte: letters, digits and what stands between groups.
var ibanByte = func() (t [256]bool) {
	for c := range t {
		t[c] = alnum(byte(c)) || c == ' ' || c == '-'
	}
	return t
}()

func ibanAt(text []byte, a int) int {
	if len(text)-a < 15 || !letter(text[a+1]) || !digit(text[a+2]) || !digit(text[a+3]) {
		return 0
	}
	want := redact.IBANLength(string([]byte{text[a] &^ 0x20, text[a+1] &^ 0x20}))
	if want == 0 {
		return 0
	}
	var buf [34]byte
	n := 0
	for i := a; i < len(text); i++ {
		ch := text[i]
		switch {
		case alnum(ch):
			buf[n] = ch
			n++
			if n == want {
				if (i+1 == len(text) || !alnum(text[i+1])) && redact.IBAN(buf[:n]) {
					return i + 1
				}
				return 0
			}
		case (ch == ' ' || ch == '-') && i+1 < len(text) && alnum(text[i+1]) && i > a+3:
		default:
			return 0
		}
	}
	return 0
}

func findSSN(c *redact.Candidate) {
	text, s, e := c.Text(), c.Start(), c.End()
	for a := s; a+9 <= e; a++ {
		if !digit(text[a]) || a > 0 && (digit(text[a-1]) || (text[a-1] == '-' || text[a-1] == '.') && a > 1 && digit(text[a-2])) {
			continue
		}
		// 123-45-6789, 123 45 6789
		if b := a + 11; b <= e && (text[a+3] == '-' || text[a+3] == ' ') && text[a+3] == text[a+6] && digits(text[a:a+3]) && digits(text[a+4:a+6]) && digits(text[a+7:b]) {
			if loose(text, a, b) && redact.SSN(text[a:b]) && (text[a+3] == '-' || word(text, a, ssnWords)) && !phoneLike(text, a, b) {
				c.Emit(a, b)
				return
			}
		}
		if b := a + 9; digits(text[a:b]) && (b == len(text) || !digit(text[b])) && loose(text, a, b) && redact.SSN(text[a:b]) && word(text, a, ssnWords) {
			c.Emit(a, b)
			return
		}
	}
}

func ssnKey(name []byte) int {
	if word(name, len(name), ssnWords) {
		return 1
	}
	return 0
}

func ssnValue(_ int, v []byte, _ bool) (int, int, bool) {
	return 0, len(v), len(v) == 9 && digits(v) && redact.SSN(v)
}

func phoneLike(text []byte, a, b int) bool { return a > 0 && text[a-1] == '+' }

func digits(b []byte) bool {
	for _, c := range b {
		if !digit(c) {
			return false
		}
	}
	return len(b) > 0
}

var ssnWords = wordSet([]byte("ssn"), []byte("social security"), []byte("social_security"), []byte("socialsecurity"))

// words is a set of words by their first byte.
type words struct {
	by [256][][]byte
	// second has a bit for the last five bits of each second byte.
	second [256]uint32
}

func wordSet(ws ...[]byte) *words {
	var t words
	for _, w := range ws {
		t.by[w[0]] = append(t.by[w[0]], w)
		t.second[w[0]] |= 1 << (w[1] & 31)
	}
	return &t
}

// word reports whether one of the words stands within 40 bytes before a, on
// the same line.
func word(text []byte, a int, ws *words) bool {
	near := text[max(0, a-40):a]
	if i := bytes.LastIndexByte(near, '\n'); i >= 0 {
		near = near[i:]
	}
	if i := bytes.LastIndex(near, []byte(`\n`)); i >= 0 { // text that is still escaped
		near = near[i:]
	}
	for i, c := range near {
		first := c
		if 'A' <= c && c <= 'Z' {
			c += 32
		}
		if i+1 == len(near) || ws.second[c]&(1<<(near[i+1]&31)) == 0 {
			continue
		}
		for _, w := range ws.by[c] {
			inside := i > 0 && 'a' <= first && first <= 'z' && letter(near[i-1])
			// A short word is none inside of another: automatically, excellent.
			if len(near)-i >= len(w) && bytes.EqualFold(near[i:i+len(w)], w) && !(inside && len(w) < 5) {
				return true
			}
		}
	}
	return false
}

var idWords = wordSet([]byte("身份证"), []byte("身份證"), []byte("公民身份"), []byte("居民身份"), []byte("id card"), []byte("id_card"), []byte("idcard"), []byte("id-card"), []byte("identity"),
	[]byte("resident"), []byte("national id"), []byte("national_id"), []byte("cn_id"), []byte("cnid"), []byte("id number"), []byte("id_number"), []byte("idnumber"), []byte("id-number"), []byte("id no"), []byte("id_no"), []byte("idno"), []byte("证件"))

func findNamedChineseID(c *redact.Candidate) {
	if a := chineseIDAt(c); a >= 0 && word(c.Text(), a, idWords) {
		c.Emit(a, a+18)
	}
}

func chineseIDKey(name []byte) int {
	if word(name, len(name), idWords) {
		return 1
	}
	return 0
}

func chineseIDValue(_ int, v []byte, _ bool) (int, int, bool) {
	return 0, len(v), redact.ChineseID(v)
}

func phoneKey(name []byte) int {
	l := bytes.ToLower(name)
	for _, w := range [...]string{"phone", "mobile", "telefon", "telephone", "cellphone", "msisdn", "whatsapp", "fax", "电话", "手机", "電話", "телефон"} {
		if bytes.Contains(l, []byte(w)) && !bytes.Contains(l, []byte("type")) && !bytes.Contains(l, []byte("model")) {
			return 1
		}
	}
	switch string(l) {
	case "tel", "cell", "handy", "tel_no", "telno":
		return 1
	}
	return 0
}

func phoneValue(_ int, v []byte, _ bool) (int, int, bool) {
	n := 0
	for _, c := range v {
		switch {
		case digit(c):
			n++
		case c == ' ' || c == '-' || c == '(' || c == ')' || c == '+' || c == '.' || c == '/':
		default:
			return 0, 0, false
		}
	}
	return 0, len(v), n >= 7 && n <= 15
}

func findChineseID(c *redact.Candidate) {
	if a := chineseIDAt(c); a >= 0 {
		c.Emit(a, a+18)
	}
}

// chineseIDAt finds a valid number in a run of digits, -1 for none.
func chineseIDAt(c *redact.Candidate) int {
	text := c.Text()
	for a := c.Start(); a+17 <= c.End(); a++ {
		if !digit(text[a]) {
			continue
		}
		n := a
		for n < c.End() && digit(text[n]) {
			n++
		}
		if b := a + 18; n-a >= 17 && n-a <= 18 && b <= len(text) && (b == len(text) || !alnum(text[b])) && (a == 0 || !alnum(text[a-1])) && redact.ChineseID(text[a:b]) {
			return a
		}
		a = n
	}
	return -1
}

var phoneWords = wordSet([]byte("phone"), []byte("tel"), []byte("mobile"), []byte("cell"), []byte("fax"), []byte("call"), []byte("sms"), []byte("whatsapp"), []byte("contact"), []byte("dial"),
	[]byte("handy"), []byte("rufnummer"), []byte("nummer"), []byte("anruf"), []byte("mobil"), []byte("portable"), []byte("móvil"), []byte("teléfono"), []byte("téléphone"), []byte("tél"), []byte("tlf"),
	[]byte("电话"), []byte("電話"), []byte("手机"), []byte("手機"), []byte("联系"), []byte("聯繫"), []byte("携帯"), []byte("전화"), []byte("телефон"), []byte("тел"), []byte("الهاتف"), []byte("هاتف"), []byte("☎"), []byte("📞"), []byte("📱"), []byte("फ़ोन"), []byte("फोन"), []byte("msisdn"), []byte("reach me"), []byte("ring me"), []byte("text me"))

// findPhone accepts +<country> forms anywhere, and national forms near a word
// for telephones or where their punctuation says enough: (555) 010-0199.
func findPhone(c *redact.Candidate) {
	text, s, e := c.Text(), c.Start(), c.End()
	if e-s > 64 || e-s >= 16 && digits(text[s:e]) || e-s == 10 && isDate(text[s:e]) {
		return
	}
	if !phoneEnds(text, e) {
		return
	}
	// A run may hold more than one number, or end in something else: read the
	// longest telephone number from each possible start.
	for a := s; a < e; a++ {
		ch := text[a]
		if !(ch == '+' || ch == '(' || digit(ch)) || a > s && digit(text[a-1]) {
			continue
		}
		if b := phoneAt(text, a, e); b > 0 && (!c.WholeStrings(a, b) || word(text, a, phoneWords)) {
			c.Emit(a, b)
			a = b
		}
	}
}

// phoneEnds reports whether a number may end at b.
func phoneEnds(text []byte, b int) bool {
	if b < len(text) && (alnum(text[b]) || text[b] == '_') {
		return false
	}
	return !(b+1 < len(text) && (text[b] == '.' || text[b] == ':' || text[b] == '/' || text[b] == '-' || text[b] == '%') && alnum(text[b+1]))
}

func phoneAt(text []byte, a, e int) int {
	if a > 0 {
		p := text[a-1]
		if alnum(p) || p == '_' || p == '.' && a > 1 && alnum(text[a-2]) || (p == '-' || p == '/' || p == '+' || p == '$' || p == '%' || p == '=' && text[a] == '+' && false) {
			return 0
		}
	}
	b := e
	run := text[a:b]
	n, groups, paren, dots, slashes, doubles := 0, 0, 0, 0, 0, 0
	for i, ch := range run {
		switch {
		case digit(ch):
			if i == 0 || !digit(run[i-1]) {
				groups++
			}
			n++
		case ch == '(' || ch == ')':
			paren++
		case ch == '.':
			dots++
		case ch == '/':
			slashes++
		case ch == '+' && i > 0:
			return 0
		default:
			if i > 0 && (run[i-1] == ' ' || run[i-1] == '-') {
				doubles++
			}
		}
	}
	if doubles > 0 || groups > 6 || paren != 0 && paren != 2 {
		return 0
	}
	if run[0] == '+' {
		if n < 8 || n > 15 || run[1] == '0' || run[1] == ' ' || dots > 0 && groups < 3 || slashes > 1 || offset(run) {
			return 0
		}
		return b
	}
	if n < 7 || n > 15 || slashes > 1 {
		return 0
	}
	if isDate(run) {
		return 0
	}
	switch {
	case run[0] == '(' && paren == 2 && n >= 10 && n <= 12 && groups >= 3: // (555) 010-0199
		return b
	case groups == 3 && n == 10 && dots == 0 && slashes == 0 && paren == 0 && usShape(run): // 555-010-0199
		return b
	case run[0] == '0' && groups >= 2 && groups <= 4 && n >= 10 && n <= 11 && dots == 0 && slashes == 0 && bytes.IndexByte(run, '-') > 0 && japanShape(run): // 080-0000-7012
		return b
	case (run[0] == '0' || run[0] == '(' || run[0] == '1' || groups >= 2 || n >= 10) && n <= 13 && dots <= 4 && word(text, a, phoneWords):
		return b
	}
	return 0
}

// offset: +0200 and the like are times.
func offset(run []byte) bool { return len(run) == 5 }

func usShape(run []byte) bool {
	return len(run) == 12 && run[3] == run[7] && run[3] == '-' && digits(run[:3]) && digits(run[4:7]) && digits(run[8:]) && run[0] >= '2' && run[4] >= '0'
}

func japanShape(run []byte) bool {
	g := bytes.Split(run, []byte{'-'})
	return len(g) == 3 && len(g[0]) >= 2 && len(g[0]) <= 4 && len(g[1]) >= 2 && len(g[1]) <= 4 && len(g[2]) == 4 && digits(g[0]) && digits(g[1]) && digits(g[2])
}

// isDate: 2026-06-18, 18.06.2026, and dates with a time's beginning.
func isDate(run []byte) bool {
	if len(run) >= 10 && digits(run[:4]) && !digit(run[4]) && digits(run[5:7]) && !digit(run[7]) && digits(run[8:10]) && (run[0] == '1' || run[0] == '2') {
		return true
	}
	return len(run) >= 10 && digits(run[:2]) && !digit(run[2]) && digits(run[3:5]) && !digit(run[5]) && digits(run[6:10]) && (run[6] == '1' || run[6] == '2')
}
