// Package shape holds matchers that both built-in sets use.
package shape

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
)

// UserInfo finds the credential in a URL's authority, called at "://": the
// password of user:password@host, or a user name that is a token. The user
// name and the host stay.
func UserInfo(c *redact.Candidate) {
	text := c.Text()
	start := c.End()
	at := -1
	i := start
	for ; i < len(text) && i-start < 1024; i++ {
		b := text[i]
		if b == '@' {
			// A password may hold an @ that nobody encoded: the last one before
			// the host counts, as long as a host follows.
			if hostFollows(text, i+1) {
				at = i
			}
			continue
		}
		if b == ':' && i+2 < len(text) && text[i+1] == '/' && text[i+2] == '/' {
			break // the next URL
		}
		if b <= ' ' || b == '"' || b == '\'' || b == '`' || b == '<' || b == '>' || b == '\\' || b == '|' || b >= 0x7f && at >= 0 {
			break
		}
		if (b == '/' || b == '?' || b == '#' || b == ',') && at >= 0 {
			break
		}
		if b == '/' && at < 0 && !passwordHere(text[start:i]) {
			break
		}
	}
	if at < 0 {
		return
	}
	info := text[start:at]
	colon := bytes.IndexByte(info, ':')
	if colon < 0 {
		if tokenLike(info) {
			c.Emit(start, at)
		}
		return
	}
	password := info[colon+1:]
	if len(password) == 0 {
		if tokenLike(info[:colon]) {
			c.Emit(start, start+colon)
		}
		return
	}
	if Placeholder(password) {
		return
	}
	if (string(password) == "x-oauth-basic" || string(password) == "x-access-token" || string(password) == "x") && tokenLike(info[:colon]) {
		c.Emit(start, start+colon)
		return
	}
	c.Emit(start+colon+1, at)
}

// passwordHere says that a slash may still belong to a password: a user and a
// colon stand before it, and no port number.
func passwordHere(b []byte) bool {
	colon := bytes.IndexByte(b, ':')
	if colon <= 0 && !(colon == 0 && len(b) > 1) {
		return false
	}
	rest := b[colon+1:]
	for _, c := range rest {
		if c < '0' || c > '9' {
			return len(rest) > 0
		}
	}
	return false
}

func hostFollows(text []byte, i int) bool {
	if i >= len(text) {
		return false
	}
	c := text[i]
	return c == '[' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '$' || c == '{' || c == '_' || c == '<'
}

// tokenLike accepts what cannot be a person's or a service's name.
func tokenLike(b []byte) bool {
	if len(b) < 16 || Placeholder(b) {
		return false
	}
	digits := 0
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '-', c == '.', c == '%', c == '~', c == '+', c == '=':
		default:
			return false
		}
	}
	return (digits > 0 || Dense(b)) && redact.Entropy(b) > 3
}
