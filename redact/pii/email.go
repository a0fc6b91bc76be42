package pii

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/otel-bridge/otel-bridge/redact"
)

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func localByte(c byte) bool {
	return alnum(c) || c == '.' || c == '_' || c == '-' || c == '+' || c == '%' || c == '\''
}

// findEmail is called at each @.
func findEmail(c *redact.Candidate) {
	text, at := c.Text(), c.Start()
	a := localStart(text, at, false)
	if a == at { // 张三@: no letters of others before it
		a = localStart(text, at, true)
	}
	for a < at && (text[a] == '.' || text[a] == '\'' || text[a] == '-' || text[a] == '%') {
		a++
	}
	// What an escape leaves before a name: \nname, u003cname.
	if a > 0 && text[a-1] == '\\' && a < at && (text[a] == 'n' || text[a] == 't' || text[a] == 'r') {
		a++
	}
	for i := a; i+3 < at; i++ { // %0Aname
		if text[i] == '%' && hex(text[i+1]) && hex(text[i+2]) {
			a = i + 3
		}
	}
	if a == at || text[at-1] == '.' {
		return
	}
	b := at + 1
	labels, last := 0, b
	for n := 0; b < len(text) && n < 253; n++ {
		switch ch := text[b]; {
		case alnum(ch) || ch == '-':
			b++
			continue
		case ch >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(text[b:])
			// A sentence without spaces goes on behind a label of others: jane@example.com请.
			if unspaced(r) && b > last && text[b-1] < utf8.RuneSelf || !scriptLetter(r) {
				break
			}
			b += size
			continue
		case ch == '.' && b > last && b+1 < len(text) && (alnum(text[b+1]) || letterAt(text[b+1:])):
			labels++
			b++
			last = b
			continue
		}
		break
	}
	tld := text[last:b]
	if len(tld) > 24 && tld[0] >= utf8.RuneSelf { // the sentence goes on
		for b = last + 24; !utf8.RuneStart(text[b]); b-- {
		}
		tld = text[last:b]
	}
	if labels == 0 || len(tld) < 2 || len(tld) > 24 {
		return
	}
	for _, ch := range tld {
		if !letter(ch) && ch < utf8.RuneSelf && !bytes.HasPrefix(tld, []byte("xn--")) {
			return
		}
	}
	local, domain := text[a:at], text[at+1:b]
	// git@host:team/repo.git is an address of a machine, and so is the user
	// of an ssh URL.
	if b < len(text) && text[b] == ':' && b+1 < len(text) && !blank(text[b+1]) && !digit(text[b+1]) && isGit(local) ||
		isGit(local) && (b < len(text) && (text[b] == ':' || text[b] == '/') || before(text, a, "://")) {
		return
	}
	if c.Joined() {
		// The piece that holds the @ may begin with git@.
		for i := a + 1; i < at; i++ {
			if c.Edge(i) && isGit(text[i:at]) {
				return
			}
		}
	}
	if (string(domain) == "openssh.com" || string(domain) == "libssh.org") && bytes.IndexByte(local, '-') > 0 {
		return // names of algorithms: aes128-gcm@openssh.com
	}
	if fileName(tld) && !bytes.Contains(domain, []byte("mail")) {
		return
	}
	// user@host and user:password@host in a URL: the rule for URLs.
	if before(text, a, "://") || before(text, a, ":") && !before(text, a, "mailto:") && schemeBefore(text, a) {
		return
	}
	// logo@2x.png, package@1.2.3
	if digit(domain[0]) && !bytes.ContainsAny(domain[:bytes.IndexByte(domain, '.')], "abcdefghijklmnopqrstuvwyz") {
		return
	}
	c.Emit(a, b)
}

// localStart is where the part of an address before at begins: at letters of
// any script that puts spaces between words, or else of one that does not.
func localStart(text []byte, at int, others bool) int {
	a := at
	for n := 0; a > 0 && n < 64; n++ {
		if text[a-1] < utf8.RuneSelf {
			if !localByte(text[a-1]) {
				break
			}
			a--
			continue
		}
		r, size := utf8.DecodeLastRune(text[:a])
		if !scriptLetter(r) || unspaced(r) && (!others || n >= 16) {
			break
		}
		a -= size
	}
	return a
}

func scriptLetter(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r))
}

func letterAt(text []byte) bool {
	r, _ := utf8.DecodeRune(text)
	return scriptLetter(r)
}

// unspaced: letters of scripts that put no spaces between words, or attach to
// a word what is none of it.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) || r == 'ー'
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isGit(local []byte) bool {
	switch string(local) {
	case "git", "hg", "svn", "gitlab", "org-git", "ssh":
		return true
	}
	return false
}

func before(text []byte, i int, s string) bool {
	return i >= len(s) && string(text[i-len(s):i]) == s
}

// schemeBefore reports whether a URL's scheme stands in the word before i.
func schemeBefore(text []byte, i int) bool {
	for n := 0; i > 0 && n < 200 && !blank(text[i-1]) && text[i-1] != '"' && text[i-1] != '\''; n++ {
		i--
		if text[i] == '?' || text[i] == '=' {
			return false // behind the authority
		}
		if text[i] == '/' && i >= 2 && text[i-1] == '/' && text[i-2] == ':' {
			return true
		}
	}
	return false
}

// fileName: endings of files that stand after an @ in names of assets and
// source files, and are no top-level domains.
func fileName(tld []byte) bool {
	switch string(bytes.ToLower(tld)) {
	case "png", "jpg", "jpeg", "gif", "svg", "webp", "js", "ts", "jsx", "tsx", "mjs", "cjs", "css", "scss", "json", "html", "htm", "go", "java", "class", "rb",
		"php", "txt", "md", "yaml", "yml", "toml", "lock", "tgz", "tar", "gz", "zip", "xml", "log", "service", "timer", "socket", "target", "git":
		return true
	}
	return false
}

// findHome takes the segment after /home/, /Users/, C:\Users\.
func findHome(c *redact.Candidate) {
	text, end := c.Text(), c.End()
	start := c.Start()
	if text[end-1] == '-' { // .claude/projects/-home-jane-src: a path made a name
		b := end
		for b < len(text) && b-end < 64 && (alnum(text[b]) || text[b] == '.' || text[b] == '_') {
			b++
		}
		if name := text[end:b]; len(name) > 1 && text[start+2] != 'u' && text[start+2] != 'H' && !generic[string(bytes.ToLower(name))] {
			c.Emit(end, b)
		}
		return
	}
	if text[start] == '/' && start > 0 && (alnum(text[start-1]) || text[start-1] == '_' || text[start-1] == '-' || text[start-1] == '.' || text[start-1] == ')' || text[start-1] == '}' || text[start-1] == ']') {
		// The path goes on before: /var/home/jane, /mnt/c/Users/jane and file URLs
		// count, https://host/users/jane and api/users/1 do not.
		if !homeRoot(text, start) {
			return
		}
	}
	if text[start] == '/' && text[start+1] == 'u' { // /users/ in lower case is a route more often than a directory
		return
	}
	sep := text[end-1]
	b := end
	for n := 0; b < len(text) && n < 64; n++ {
		ch := text[b]
		if alnum(ch) || ch == '.' || ch == '_' || ch == '-' || ch >= 0x80 && !wide(text[b:]) || ch == '~' || ch == '+' {
			b++
			continue
		}
		if sep == '\\' && ch == ' ' && b+1 < len(text) && alnum(text[b+1]) && bytes.IndexByte(text[b:min(len(text), b+32)], '\\') > 0 && b-end < 24 {
			b++
			continue
		}
		break
	}
	for b > end && (text[b-1] == '.' || text[b-1] == '-') {
		b--
	}
	name := text[end:b]
	if len(name) < 2 || generic[string(bytes.ToLower(name))] {
		return
	}
	if b < len(text) && (text[b] == '{' || text[b] == '$' || text[b] == '<' || text[b] == '*' || text[b] == '(') {
		return
	}
	c.Emit(end, b)
}

// wide: CJK punctuation and full width forms end a segment.
func wide(b []byte) bool {
	return len(b) >= 3 && (b[0] == 0xe3 && b[1] == 0x80 || b[0] == 0xef && (b[1] == 0xbc || b[1] == 0xbd) || b[0] == 0xe2 && b[1] == 0x80)
}

func homeRoot(text []byte, i int) bool {
	a := i
	for n := 0; a > 0 && n < 64 && (alnum(text[a-1]) || text[a-1] == '/' || text[a-1] == '_' || text[a-1] == '-' || text[a-1] == '.' || text[a-1] == ':'); n++ {
		a--
	}
	prefix := text[a:i]
	for _, p := range [...]string{"/var", "/mnt/c", "/mnt/d", "/c", "/d", "/export", "/nfs", "/usr", "/mnt", "/data", "/System/Volumes/Data", "/net", "/private", "/opt", "C:", "c:", "D:", "d:"} {
		if string(prefix) == p || bytes.HasSuffix(prefix, []byte(":"+p)) {
			return true
		}
	}
	return bytes.HasPrefix(prefix, []byte("file:")) || bytes.HasSuffix(prefix, []byte("://file")) // vscode://file/home/…
}

// generic names of accounts say nothing about a person.
var generic = map[string]bool{"user": true, "username": true, "users": true, "you": true, "yourname": true, "me": true, "root": true, "runner": true, "ubuntu": true,
	"node": true, "app": true, "admin": true, "vscode": true, "shared": true, "public": true, "default": true, "linuxbrew": true, "circleci": true, "travis": true, "git": true,
	"jenkins": true, "gitpod": true, "codespace": true, "ec2-user": true, "vagrant": true, "pi": true, "nonroot": true, "appuser": true, "administrator": true, "nobody": true, "guest": true,
	"runneradmin": true, "all": true, "deploy": true, "www-data": true, "sandbox": true, "name": true, "someone": true, "foo": true, "bar": true, "test": true, "xxx": true, "builder": true, "work": true}
