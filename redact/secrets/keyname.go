package secrets

import (
	"bytes"
	"strings"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// Classes of key names. They say what of the value is secret.
const (
	excluded = iota - 1 // a secret's name that is about something else: max_tokens
	noSecret
	passwordKey   // a person chose it: any value
	tokenKey      // a machine made it: any value that stands in JSON, a plausible one in text
	authKey       // "auth", "pass": the value decides
	headerKey     // Authorization: a scheme, then the credential
	cookieKey     // cookies, some of which are secret
	pluralKey     // tokens: secret as text, a quantity as a number
	innerPassword // a member that is the value of an object under such a key
	innerToken
	innerText   // a member that may be a label as well
	innerPlural // any other member of an object of tokens
)

// keyRule takes values under keys that name a secret.
func keyRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-key-name",
		Description: "The value of a member whose key names a secret: password, apiKey, db.password, refreshTokens, Authorization, client-key-data.",
		Key:         classifyKey,
		Member:      classifyMember,
		Accept:      acceptValue,
	}
}

func acceptValue(class int, v []byte, number bool) (int, int, bool) {
	if number {
		return 0, len(v), (class == passwordKey || class == tokenKey || class == innerPassword || class == innerToken) && len(v) >= 4 && !bytes.ContainsAny(v, ".eE")
	}
	if shape.Placeholder(v) || shape.Version(v) {
		return 0, 0, false
	}
	switch class {
	case headerKey:
		return headerCredential(v)
	case cookieKey:
		return 0, 0, false // the rule for headers looks into it
	case authKey:
		if len(v) < 6 || !secretish(v) {
			return 0, 0, false
		}
	case innerPassword, innerToken, innerText:
		return 0, len(v), innerSecret(class, v)
	case innerPlural:
		return 0, len(v), len(v) >= 16 && shape.Dense(v) || len(v) >= 32 && shape.Hex(v) || unlikeWords(v)
	case pluralKey:
		for _, c := range v {
			if c < '0' || c > '9' {
				return 0, len(v), true
			}
		}
		return 0, 0, false
	case tokenKey:
		if quantity(v) {
			return 0, 0, len(v) >= 4
		}
	}
	return 0, len(v), true
}

// classifyMember knows the members in which an object under a secret's name
// holds the secret. Others describe it, as a schema does.
func classifyMember(class int, name []byte) int {
	if len(name) > 24 {
		return noSecret
	}
	var buf [24]byte
	n := buf[:0]
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 32
		}
		if c != '_' && c != '-' {
			n = append(n, c)
		}
	}
	switch string(n) {
	case "value", "val", "stringvalue", "secretvalue", "rawvalue", "plain", "plaintext", "cleartext", "raw", "current", "previous", "old", "new",
		"currentvalue", "previousvalue", "oldvalue", "newvalue", "b64", "base64", "encoded", "primary", "secondary":
		switch class {
		case passwordKey, innerPassword:
			return innerPassword
		case tokenKey, innerToken:
			return innerToken
		}
	case "text", "data", "content", "contents", "string", "body", "default", "defaultvalue", "example":
	default:
		if class == pluralKey {
			return innerPlural
		}
		return noSecret
	}
	switch class {
	case passwordKey, tokenKey, authKey, pluralKey, innerPassword, innerToken, innerText:
		return innerText
	}
	return noSecret
}

// innerSecret decides about a value in an object under a secret's name.
func innerSecret(class int, v []byte) bool {
	if len(v) < 4 || bytes.ContainsAny(v, " \n") {
		return false
	}
	if secretish(v) {
		return true
	}
	letters, digits, others := 0, 0, 0
	for _, c := range v {
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			letters++
		case '0' <= c && c <= '9':
			digits++
		default:
			others++
		}
	}
	if others == 0 && digits == 0 || letters == 0 && others == 0 && class != innerPassword {
		// Words; a password may be one that is not its own name.
		return class == innerPassword && classifyKey(v) == noSecret
	}
	return class == innerPassword || len(v) >= 8 && letters > 0 && digits >= 2 && !bytes.ContainsAny(v, "./(")
}

// quantity reports whether v is a short number in words of a configuration.
func quantity(v []byte) bool {
	for _, c := range v {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(v) < 4
}

// headerCredential finds the credential behind a scheme: Bearer x.
func headerCredential(v []byte) (int, int, bool) {
	start := 0
	if sp := bytes.IndexByte(v, ' '); sp > 0 && scheme(v[:sp]) {
		start = sp
		for start < len(v) && v[start] == ' ' {
			start++
		}
	}
	if start == len(v) || shape.Placeholder(v[start:]) {
		return 0, 0, false
	}
	return start, len(v), true
}

func scheme(b []byte) bool {
	switch strings.ToLower(string(b)) {
	case "bearer", "basic", "token", "digest", "negotiate", "ntlm", "apikey", "api-key", "key", "hmac", "jwt", "oauth", "mac", "hawk", "sso-key",
		"splunk", "genie", "genietoken", "bot", "aws4-hmac-sha256", "sharedaccesssignature", "sharedkey", "dpop", "gateway", "discord":
		return true
	}
	return false
}

// secretish accepts a value that reads like a secret wherever it stands.
func secretish(v []byte) bool {
	if bytes.IndexByte(v, ' ') >= 0 {
		return false
	}
	if shape.RandomLooking(v) {
		return true
	}
	return len(v) >= 16 && redact.Entropy(v) > 3.5 && bytes.ContainsAny(v, "0123456789=+/")
}

// classifyKey reads a key name word by word: camelCase, snake_case,
// kebab-case, dotted. In such a name the last word is what it is about:
// a "token type" is a type, a "max token" a quantity.
func classifyKey(key []byte) int {
	if len(key) < 2 || len(key) > maxWords {
		return noSecret
	}
	var w words
	w.split(key)
	return max(w.classify(w.n), noSecret)
}

// classify decides by the first n words.
func (w *words) classify(n int) int {
	if n == 3 && string(w.at(0)) == "x" && string(w.at(1)) == "session" && string(w.at(2)) == "id" {
		return authKey
	}
	for n > 1 && (suffix[string(w.at(n-1))] || '0' <= w.at(n - 1)[0] && w.at(n - 1)[0] <= '9') {
		n--
	}
	for i := n - 1; i >= 0; i-- {
		class := w.class(i, n)
		if class == noSecret {
			continue
		}
		for j := i + 1; j < n; j++ {
			if about[string(w.at(j))] {
				return excluded
			}
		}
		if class == tokenKey || class == pluralKey {
			for j := 0; j < i; j++ {
				if measure[string(w.at(j))] {
					return excluded
				}
			}
		}
		if i < n-1 && (class == authKey || class == cookieKey) {
			return excluded
		}
		return class
	}
	return noSecret
}

// class is what word i of n says by itself and with the one before.
func (w *words) class(i, n int) int {
	word := w.at(i)
	var prev []byte
	if i > 0 {
		prev = w.at(i - 1)
	}
	switch string(word) {
	case "password", "passwd", "pwd", "passphrase", "passcode", "passwort", "kennwort", "contraseña", "contrasena", "senha", "userpass",
		"dbpass", "dbpassword", "mypassword", "userpassword", "passwords", "pw", "pgpassword", "rootpassword", "adminpassword", "storepass", "keypass",
		"sshpass", "requirepass", "smtppass", "mailpass", "ftppass", "mysqlpass", "dbpwd", "userpwd", "adminpwd", "rootpwd":
		return passwordKey
	case "pass":
		if i == n-1 && i > 0 {
			return passwordKey
		}
		return authKey
	case "secret", "token", "apikey", "apitoken", "accesskey", "secretkey", "privatekey", "authtoken", "accesstoken", "refreshtoken", "idtoken",
		"clientsecret", "appsecret", "authkey", "apisecret", "sharedsecret", "bearertoken", "sessiontoken", "credential", "credentials", "creds",
		"encryptionkey", "signingkey", "masterkey", "accountkey", "sharedaccesskey", "licensekey", "servicekey", "bottoken", "jwt", "bearer",
		"secretaccesskey", "connectionstring", "psk", "webhooksecret", "presharedkey", "storagekey", "deploykey", "sshkey", "hmackey", "otpsecret":
		return tokenKey
	case "secrets":
		return pluralKey
	case "tokens", "apikeys":
		return pluralKey
	case "authorization":
		return headerKey
	case "cookie", "cookies":
		return cookieKey
	case "auth":
		return authKey
	case "key", "keys":
		switch string(prev) {
		case "api", "access", "secret", "private", "encryption", "signing", "auth", "account", "storage", "shared", "master", "license", "licence", "service",
			"app", "application", "consumer", "webhook", "ssh", "deploy", "admin", "subscription", "hmac", "jwt", "cipher", "decryption", "crypto", "project",
			"server", "integration", "ingest", "write", "user", "restricted", "recovery", "preshared", "root", "sas", "wallet", "age", "registration", "live", "openai":
			if string(word) == "keys" {
				return pluralKey
			}
			switch string(prev) {
			case "server", "user", "project", "write", "service", "live", "root":
				return authKey
			case "account":
				if i == 1 {
					return authKey
				}
			}
			return tokenKey
		case "client":
			return authKey
		}
	case "data":
		if string(prev) == "key" && i > 1 && string(w.at(i-2)) == "client" {
			return tokenKey // kubeconfig: client-key-data
		}
	}
	switch string(word) {
	case "jsessionid", "phpsessid":
		return authKey
	case "sid":
		if string(prev) == "connect" {
			return authKey
		}
	}
	if string(word) == "wif" {
		return tokenKey
	}
	if len(word) > 8 {
		for _, s := range [...]string{"password", "passwd", "passphrase"} {
			if hasSuffix(word, s) {
				return passwordKey
			}
		}
		for _, s := range [...]string{"apikey", "secretkey", "accesskey", "privatekey", "token", "secret"} {
			if hasSuffix(word, s) {
				return tokenKey
			}
		}
	}
	return noSecret
}

// suffix words do not change what a name is about.
var suffix = set("value", "plain", "plaintext", "raw", "text", "string", "str", "b64", "base64", "encoded", "prod", "production", "dev", "staging",
	"test", "live", "old", "new", "current", "previous", "backup", "primary", "secondary", "default", "override", "1", "2", "3", "4", "5", "0", "a", "b")

// about words after a secret's name make it a name for something else.
var about = set("count", "counts", "max", "min", "limit", "limits", "length", "len", "size", "num", "number", "total", "usage", "used", "type", "types",
	"name", "names", "id", "ids", "url", "uri", "urls", "endpoint", "path", "paths", "file", "files", "filename", "dir", "env", "var", "variable", "ref", "refs",
	"reference", "expires", "expiry", "expire", "expired", "expiration", "ttl", "age", "lifetime", "policy", "strength", "required", "enabled",
	"disabled", "valid", "invalid", "present", "missing", "status", "state", "hint", "label", "field", "fields", "placeholder", "regex", "pattern", "format",
	"algorithm", "alg", "algo", "version", "provider", "method", "mode", "scheme", "schema", "reset", "changed", "updated", "created", "at", "on", "in", "seconds", "sec", "ms",
	"time", "date", "index", "offset", "position", "kind", "class", "list", "map", "set", "store", "manager", "validator", "validation", "parser",
	"counter", "bucket", "budget", "window", "rate", "cost", "price", "source", "issuer", "audience", "scope", "scopes", "prefix", "suffix", "header",
	"headers", "column", "table", "arn", "vault", "generator", "rotation", "rotate", "less", "handler", "func", "function", "callback", "error", "errors",
	"message", "rules", "rule", "check", "checks", "match", "change", "manager", "input", "output", "prompt", "form", "page", "link", "button", "dialog", "help",
	"description", "title", "example", "sample", "template", "stream", "estimate", "per", "mask", "masked", "optional", "exists", "found", "ok",
	"s", "ed", "ing", "attempts", "attempt", "retries", "history", "owner", "user", "username", "host", "port", "db", "service", "client", "server", "region",
	"stdin", "lower", "upper", "words", "grammar", "kinds", "iv", "salt", "alias", "fingerprint", "thumbprint", "pair", "ring", "board", "code", "frame", "selector", "word")

// measure words before "token" make it a quantity or a place in a list.
var measure = set("max", "min", "input", "output", "total", "prompt", "completion", "reasoning", "cached", "cache", "thinking", "num", "n", "nr",
	"remaining", "available", "context", "budget", "generated", "sampled", "per", "stop", "eos", "bos", "pad", "unk", "mask", "sep", "cls", "page", "next",
	"continuation", "cursor", "sync", "used", "estimated", "maximum", "minimum", "count", "limit", "average", "avg", "mean", "first", "last",
	"previous", "prev", "public", "special", "image", "audio", "visible", "hidden", "accepted", "rejected", "prediction", "billed",
	"creation", "window", "overlap", "chunk", "idempotency", "cancellation", "pagination", "more", "lexer", "end", "start")

func set(ss ...string) map[string]bool {
	m := make(map[string]bool, len(ss))
	for _, s := range ss {
		m[s] = true
	}
	return m
}

func hasSuffix(b []byte, s string) bool { return len(b) >= len(s) && string(b[len(b)-len(s):]) == s }

// maxWords is the length of the longest name that is cut into words.
const maxWords = 128

// words are the lower-case words of a name.
type words struct {
	low  [maxWords]byte
	ends [maxWords][2]uint8
	n    int
}

func (w *words) at(i int) []byte { return w.low[w.ends[i][0]:w.ends[i][1]] }

// split cuts a name into words. Digits at a
// word's end stay apart from it: password2 is "password", "2".
func (w *words) split(key []byte) {
	key = key[:min(len(key), maxWords)]
	for i, c := range key {
		if 'A' <= c && c <= 'Z' {
			c += 32
		}
		w.low[i] = c
	}
	start := -1
	flush := func(end int) {
		if start >= 0 && end > start {
			w.ends[w.n] = [2]uint8{uint8(start), uint8(end)}
			w.n++
		}
		start = -1
	}
	for i := 0; i < len(key); i++ {
		c := key[i]
		upper := 'A' <= c && c <= 'Z'
		lower := 'a' <= c && c <= 'z' || c >= 0x80
		dig := '0' <= c && c <= '9'
		switch {
		case !upper && !lower && !dig:
			flush(i)
			continue
		case start < 0:
			start = i
			continue
		}
		p := key[i-1]
		pUpper := 'A' <= p && p <= 'Z'
		pDigit := '0' <= p && p <= '9'
		switch {
		case upper && !pUpper,
			dig != pDigit && !(pDigit && i-start == 1 && start > 0):
			flush(i)
			start = i
		case lower && pUpper && i-1 > start:
			flush(i - 1)
			start = i - 1
		}
	}
	flush(len(key))
}
