package pii

import (
	"bytes"
	"net/netip"

	"github.com/otel-bridge/otel-bridge/redact"
)

func hex(c byte) bool {
	return digit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func findIPv4(c *redact.Candidate) {
	text := c.Text()
	a := c.Start()
	for n := 0; a > 0 && n < 3 && digit(text[a-1]); n++ {
		a--
	}
	if a == c.Start() || a > 0 && (alnum(text[a-1]) || text[a-1] == '.' || text[a-1] == '-' || text[a-1] == '_') {
		return
	}
	b := c.Start()
	for b < len(text) && b-a < 16 && (digit(text[b]) || text[b] == '.' && b+1 < len(text) && digit(text[b+1])) {
		b++
	}
	if b < len(text) && (alnum(text[b]) || text[b] == '_' || text[b] == '-' && b+1 < len(text) && alnum(text[b+1])) {
		return
	}
	ip, err := netip.ParseAddr(string(text[a:b]))
	if err != nil || !ip.Is4() || ip.IsLoopback() || ip.IsUnspecified() {
		return
	}
	c.Emit(a, b)
}

func findIPv6(c *redact.Candidate) {
	text := c.Text()
	in := func(b byte) bool { return hex(b) || b == ':' || b == '.' }
	a := c.Start()
	for n := 0; a > 0 && n < 45 && in(text[a-1]); n++ {
		a--
	}
	b := c.End()
	for n := 0; b < len(text) && n < 45 && in(text[b]); n++ {
		b++
	}
	c.Skip(b)
	for b > a && (text[b-1] == '.' || text[b-1] == ':' && !(b-a > 2 && text[b-2] == ':')) {
		b--
	}
	if a > 0 && (alnum(text[a-1]) || text[a-1] == '_') || b < len(text) && (alnum(text[b]) || text[b] == '_') || bytes.Count(text[a:b], []byte{':'}) < 2 {
		return
	}
	ip, err := netip.ParseAddr(string(text[a:b]))
	if err != nil || ip.IsLoopback() || ip.IsUnspecified() {
		return
	}
	c.Emit(a, b)
}

func findMAC(c *redact.Candidate) {
	text := c.Text()
	a := c.Start() - 2
	b := a + 17
	if a < 0 || b > len(text) || a > 0 && (hex(text[a-1]) || text[a-1] == ':' || text[a-1] == '-') || b < len(text) && (alnum(text[b]) || text[b] == ':' || text[b] == '-') {
		return
	}
	sep := text[a+2]
	for i, ch := range text[a:b] {
		if i%3 == 2 && ch != sep || i%3 != 2 && !hex(ch) {
			return
		}
	}
	c.Emit(a, b)
}

// after skips to the value that follows a name: quotes, operators, spaces and
// the rest of the name.
func after(text []byte, i int) int {
	for n := 0; i < len(text) && n < 24 && (letter(text[i]) || text[i] == '_' || text[i] == '-' || text[i] >= 0x80 && n < 12); n++ {
		i++
	}
	for n := 0; i < len(text) && n < 12 && (blank(text[i]) || bytes.IndexByte([]byte(`"'=:.,#\`), text[i]) >= 0 || text[i] >= 0x80); n++ {
		i++
	}
	return i
}

func passportKey(name []byte) int {
	if bytes.Contains(bytes.ToLower(name), []byte("passport")) {
		return 1
	}
	return 0
}

func findPassport(c *redact.Candidate) {
	text := c.Text()
	a := after(text, c.End())
	b := a
	for b < len(text) && b-a <= 12 && alnum(text[b]) {
		b++
	}
	n := 0
	for _, ch := range text[a:b] {
		if digit(ch) {
			n++
		}
	}
	if b-a >= 6 && b-a <= 12 && n >= 3 {
		c.Emit(a, b)
	}
}

func birthKey(name []byte) int {
	l := bytes.ToLower(name)
	for _, w := range [...]string{"birth", "dob"} {
		if i := bytes.Index(l, []byte(w)); i >= 0 && (w != "dob" || (i == 0 || !letter(l[i-1])) && (i+3 == len(l) || !letter(l[i+3]))) {
			return 1
		}
	}
	return 0
}

func findBirthDate(c *redact.Candidate) {
	text := c.Text()
	a := after(text, c.End())
	b := a
	n := 0
	for b < len(text) && b-a < 12 && (digit(text[b]) || text[b] == '-' || text[b] == '.' || text[b] == '/') {
		if digit(text[b]) {
			n++
		}
		b++
	}
	for b > a && !digit(text[b-1]) {
		b--
	}
	if n >= 6 && n <= 8 {
		c.Emit(a, b)
	}
}
