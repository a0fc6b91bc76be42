package secrets

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// headerRule finds credentials in HTTP headers as text, and the secret ones
// among cookies.
func headerRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-header",
		Description: "The credential of an Authorization header, and the values of session cookies.",
		Literals:    []string{"authorization", "bearer ", "basic ", "cookie", "sig=", "session", "sid=", "x-amz-signature=", "x-amz-security-token=", "x-goog-signature="},
		Find:        findHeader,
	}
}

// Numbers that headers and commands keep about a text.
const (
	noteDigest = iota
	noteCookies
)

var (
	cookieClass = redact.ClassOf(func(b byte) bool {
		return b > ' ' && b != ';' && b != '&' && b != '"' && b != '\'' && b != '\\' && b != '`' && b != ')' && b != '<' && b < 0x7f
	})
	signatureClass = redact.ClassOf(func(b byte) bool {
		return alnum(b) || b == '%' || b == '+' || b == '/' || b == '=' || b == '-' || b == '_'
	})
)

func findHeader(c *redact.Candidate) {
	text := c.Text()
	var low [32]byte
	switch string(lower(low[:0], text[c.Start():c.End()])) {
	case "authorization":
		findAuthorization(c)
	case "bearer ":
		findBearer(c)
	case "basic ":
		findBasic(c)
	case "cookie":
		findCookies(c)
	case "session", "sid=":
		findSessionPair(c)
	default:
		findSignature(c)
	}
}

// findAuthorization reads Authorization: scheme credential, in all the ways
// that headers are written.
func findAuthorization(c *redact.Candidate) {
	text := c.Text()
	i := c.End()
	if i < len(text) && nameByte(text[i]) {
		return
	}
	for n := 0; i < len(text) && n < 3 && (text[i] == '"' || text[i] == '\'' || text[i] == '`' || text[i] == '\\' || text[i] == ']'); n++ {
		i++
	}
	for i < len(text) && space(text[i]) {
		i++
	}
	if i >= len(text) || text[i] != ':' && text[i] != '=' && text[i] != ',' && text[i] != '>' {
		return
	}
	i++
	for n := 0; i < len(text) && n < 12 && (space(text[i]) || text[i] == '"' || text[i] == '\'' || text[i] == '`' || text[i] == '\\' || text[i] == '>' || text[i] == '=' || text[i] == '['); n++ {
		i++
	}
	w := i
	for w < len(text) && w-i < 32 && (alnum(text[w]) || text[w] == '-') {
		w++
	}
	known := scheme(text[i:w])
	if known && w < len(text) && (space(text[w]) || text[w] == '=') {
		i = w
		for i < len(text) && (space(text[i]) || text[i] == '=') {
			i++
		}
	}
	e := credentialEnd(c, i)
	if bytes.HasSuffix(text[i:e], []byte("=")) && e < len(text) && text[e] == '"' {
		findDigest(c, i)
		return
	}
	v := head(text[i:e])
	if len(v) < 6 && !(known && len(v) > 0) || encoded(v) || shape.Placeholder(v) || !known && !secretish(v) || known && word(v) && len(v) < 20 || call(v) || formatted(v) {
		return
	}
	if known && len(v) < 12 && codeWord(v) && !secretish(v) {
		return
	}
	c.Emit(i, e)
}

// findDigest takes the response of name="value" credentials.
func findDigest(c *redact.Candidate, i int) {
	text := c.Text()
	end := min(len(text), i+1024)
	read := c.Note(noteDigest)
	i = max(i, *read-32) // the names and their values' first characters
	*read = end
	if i >= end {
		return
	}
	for _, n := range [...]string{"response=\"", "signature=\"", "mac=\"", "oauth_token=\"", "oauth_signature=\""} {
		at := bytes.Index(text[i:end], []byte(n))
		if at < 0 {
			continue
		}
		s := i + at + len(n)
		if q := bytes.IndexByte(text[s:end], '"'); q > 0 {
			c.Emit(s, s+q)
		}
	}
}

func credentialEnd(c *redact.Candidate, i int) int {
	text := c.Text()
	e := c.RunEnd(i, maxValue, runCredential, tokenClass, func(text []byte, e int) bool {
		return text[e] > ' ' && text[e] != '"' && text[e] != '\'' && text[e] != '`' && text[e] != '\\' && text[e] != '<' && text[e] != '>' &&
			text[e] != ')' && text[e] != '&' && text[e] != '}' && text[e] != ']' && text[e] < 0x80 && !(text[e] == ',' && e+1 < len(text) && blank(text[e+1]))
	})
	for n := 0; n < deciding && e > i && (text[e-1] == ',' || text[e-1] == ';' || text[e-1] == '.'); n++ {
		e--
	}
	return e
}

func findBearer(c *redact.Candidate) {
	text := c.Text()
	if s := c.Start(); s > 0 && nameByte(text[s-1]) && text[s-1] < 0x80 {
		return
	}
	i := c.End()
	for i < len(text) && space(text[i]) {
		i++
	}
	e := credentialEnd(c, i)
	if v := head(text[i:e]); len(v) >= 16 && tokenBody(v) && !word(v) && !call(v) && !formatted(v) && bytes.IndexByte(v, ':') < 0 {
		c.Emit(i, e)
	}
}

// findBasic takes base64 of user:password.
func findBasic(c *redact.Candidate) {
	text := c.Text()
	if s := c.Start(); s > 0 && nameByte(text[s-1]) && text[s-1] < 0x80 {
		return
	}
	i := c.End()
	e := run(text, i, func(b byte) bool { return alnum(b) || b == '+' || b == '/' || b == '-' || b == '_' })
	for n := 0; n < 2 && e < len(text) && text[e] == '='; n++ {
		e++
	}
	if e-i < 8 {
		return
	}
	if d, ok := decodeUserPassword(text[i:e]); ok && bytes.IndexByte(d, ':') > 0 {
		c.Emit(i, e)
	}
}

// cookieWords name cookies that stand for a login.
var cookieWords = []string{"sess", "sid", "auth", "token", "jwt", "login", "remember", "credential", "secret", "passw", "csrf", "xsrf", "sso", "saml", "identity", "access", "refresh", "ticket", ".asp"}

// findCookies reads a Cookie or Set-Cookie header.
func findCookies(c *redact.Candidate) {
	text := c.Text()
	i := c.End()
	for n := 0; i < len(text) && n < 3 && (text[i] == '"' || text[i] == '\'' || text[i] == '\\'); n++ {
		i++
	}
	for i < len(text) && space(text[i]) {
		i++
	}
	if i >= len(text) || text[i] != ':' && text[i] != '=' {
		return
	}
	i++
	for n := 0; i < len(text) && n < 6 && (space(text[i]) || text[i] == '"' || text[i] == '\'' || text[i] == '\\'); n++ {
		i++
	}
	cookiePairs(c, text, i)
}

// cookiePairs reads name=value; … from i on to the end of the line.
func cookiePairs(c *redact.Candidate, text []byte, i int) {
	read := c.Note(noteCookies)
	if i <= *read {
		return
	}
	for n := 0; n < 64 && i < len(text); n++ {
		*read = i
		eq := run(text, i, func(b byte) bool { return alnum(b) || b == '_' || b == '-' || b == '.' || b == '%' })
		if eq == i || eq >= len(text) || text[eq] != '=' {
			// An attribute without a value (Secure): on to the next.
			if eq > i && eq < len(text) && text[eq] == ';' {
				i = run(text, eq+1, space)
				continue
			}
			return
		}
		e := run(text, eq+1, func(b byte) bool {
			return b > ' ' && b != ';' && b != '"' && b != '\'' && b != '\\' && b != '`' && b < 0x7f
		})
		name, v := bytes.ToLower(text[i:eq]), text[eq+1:e]
		if !attribute(name) && cookieSecret(name, v) {
			c.Emit(eq+1, e)
		}
		if e >= len(text) || text[e] != ';' {
			return
		}
		i = run(text, e+1, space)
	}
}

func attribute(name []byte) bool {
	switch string(name) {
	case "path", "domain", "expires", "max-age", "samesite", "priority", "_ga", "_gid", "theme", "lang", "locale":
		return true
	}
	return false
}

func cookieSecret(name, v []byte) bool {
	if len(v) < 6 || shape.Placeholder(v) || word(v) && len(v) < 20 {
		return false
	}
	for _, w := range cookieWords {
		if bytes.Contains(name, []byte(w)) {
			return true
		}
	}
	return len(v) >= 20 && shape.RandomLooking(v)
}

// findSessionPair takes connect.sid=…, PHPSESSID=…, session=… where the
// header's name is not there.
func findSessionPair(c *redact.Candidate) {
	text := c.Text()
	a := runBack(text, c.Start(), 40, func(b byte) bool { return alnum(b) || b == '_' || b == '.' })
	eq := c.End()
	if text[eq-1] == '=' {
		eq--
	} else {
		for eq < len(text) && eq-a < 64 && (alnum(text[eq]) || text[eq] == '_') {
			eq++
		}
	}
	if eq >= len(text) || text[eq] != '=' {
		return
	}
	name := string(bytes.ToLower(text[a:eq]))
	switch name {
	case "connect.sid", "phpsessid", "jsessionid", "asp.net_sessionid", "sessionid", "session", "sid", "laravel_session", "_session", "session_token", "sessiontoken":
	default:
		return
	}
	e := c.Run(eq+1, cookieClass)
	v := head(text[eq+1 : e])
	if len(v) >= 16 && !shape.UUID(v) && shape.RandomLooking(v) && !call(v) && !shape.Placeholder(v) {
		c.Emit(eq+1, e)
	}
}

// findSignature takes the signature of presigned URLs: whoever has it may use
// the URL.
func findSignature(c *redact.Candidate) {
	text := c.Text()
	s := c.Start()
	if s == 0 || text[s-1] != '?' && text[s-1] != '&' && text[s-1] != ';' && text[s-1] != '\n' {
		return
	}
	e := c.Run(c.End(), signatureClass)
	if e-c.End() >= 20 {
		c.Emit(c.End(), e)
	}
}
