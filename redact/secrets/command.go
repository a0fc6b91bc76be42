package secrets

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

func decodeUserPassword(b []byte) ([]byte, bool) {
	b = bytes.TrimRight(b, "=")
	enc := base64.RawStdEncoding
	if bytes.ContainsAny(b, "-_") {
		enc = base64.RawURLEncoding
	}
	d, err := enc.DecodeString(string(b))
	if err != nil || !utf8.Valid(d) {
		return nil, false
	}
	for _, c := range d {
		if c < ' ' {
			return nil, false
		}
	}
	return d, true
}

// commandRule finds passwords in arguments of commands whose flags have no
// telling names.
func commandRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-command",
		Description: "The password argument of curl -u, mysql -p, sshpass -p, redis-cli -a, docker login -p, openssl pass:, keytool, ldap tools, any command's -u USER -p, and of echo … | docker login; of BasicAuth(user, password) and its like in programs.",
		Literals: []string{"curl ", "wget ", "mysql", "mariadb", "sshpass", "redis-cli", "docker login", "podman login", "helm registry login", "pass:", "-storepass", "-keypass", "ldap",
			"mongo", "smbclient", "htpasswd ", "unzip ", "zip ", "7z ", "gpg ", "net use", "--password-stdin", "xfreerdp", "sqlcmd", "mongodump", "rabbitmqctl", "http -a", "az login", "cqlsh", "--user ", "sudo -s", "openssl ",
			" -p ", "ssh-keygen", "usermod ", "useradd ", "cryptsetup ", "chpasswd", "passwd ", "codecov ", "doctl ", "nuget ", "gem push", "sonar.login=",
			"add_user ", "change_password ", "net user ", "alias set ", "requirepass ", "masterauth ", "auth ", "vault login ", "cargo login ", "snyk auth ", "authtoken ",
			"basicauth(", "networkcredential(", "auth=(", ".auth(", "getconnection(", "login(", "convertto-securestring", "@tcp(", "@unix(", "@"},
		Find: findCommand,
	}
}

// flags of a command, by its name: which take a password, and whether it may
// be glued to the flag or comes behind a colon.
type commandFlags struct {
	name  string
	flags []string
	glued bool // -pSECRET
	colon bool // user:SECRET
}

var commands = []commandFlags{
	{"curl", []string{"-u", "--user", "-U", "--proxy-user"}, true, true},
	{"wget", []string{"--http-password", "--password"}, false, false},
	{"mysqldump", []string{"-p"}, true, false},
	{"mysqladmin", []string{"-p"}, true, false},
	{"mysqlimport", []string{"-p"}, true, false},
	{"mysqlsh", []string{"-p"}, true, false},
	{"mysql", []string{"-p"}, true, false},
	{"mariadb-dump", []string{"-p"}, true, false},
	{"mariadb", []string{"-p"}, true, false},
	{"sshpass", []string{"-p"}, true, false},
	{"redis-cli", []string{"-a", "--pass"}, false, false},
	{"docker login", []string{"-p"}, false, false},
	{"podman login", []string{"-p"}, false, false},
	{"helm registry login", []string{"-p"}, false, false},
	{"ldap", []string{"-w"}, false, false},
	{"mongodump", []string{"-p"}, false, false},
	{"mongo", []string{"-p"}, false, false},
	{"smbclient", []string{"-U"}, false, false},
	{"unzip", []string{"-P"}, false, false},
	{"zip", []string{"-P"}, false, false},
	{"7z", []string{"-p"}, true, false},
	{"gpg", []string{"--passphrase"}, false, false},
	{"sqlcmd", []string{"-P"}, false, false},
	{"az login", []string{"-p"}, false, false},
	{"openssl", []string{"-k"}, false, false},
	{"cqlsh", []string{"-p"}, false, false},
	{"http", []string{"-a"}, false, true},
	{"ssh-keygen", []string{"-N", "-P"}, false, false},
	{"usermod", []string{"-p"}, false, false},
	{"useradd", []string{"-p"}, false, false},
	{"xfreerdp", []string{"/p:"}, true, false},
	{"codecov", []string{"-t"}, false, false},
	{"doctl", []string{"-t"}, false, false},
	{"nuget", []string{"-k", "-ApiKey", "-apikey"}, false, false},
	{"gem push", []string{"--key", "-k"}, false, false},
}

func findCommand(c *redact.Candidate) {
	text, start := c.Text(), c.Start()
	var low [32]byte
	lit := lower(low[:0], text[start:c.End()])
	switch string(lit) {
	case "pass:":
		findPassColon(c)
		return
	case "-storepass", "-keypass":
		i := run(text, c.End(), func(b byte) bool { return space(b) || b == '=' })
		if i > c.End() {
			emitWord(c, text, i)
		}
		return
	case "--password-stdin", "sudo -s", "chpasswd", "passwd ", "cryptsetup ":
		findEcho(c)
		return
	case " -p ":
		findUserFlag(c)
		return
	case "add_user ", "change_password ", "net user ", "alias set ", "htpasswd ", "requirepass ", "masterauth ", "auth ", "vault login ", "cargo login ", "snyk auth ", "authtoken ", "sonar.login=":
		findOperand(c, string(lit))
		return
	case "basicauth(", "networkcredential(", "auth=(", ".auth(", "getconnection(", "login(":
		findArgument(c)
		return
	case "convertto-securestring":
		findSecureString(c)
		return
	case "@tcp(", "@unix(":
		findDataSource(c)
		return
	case "@":
		findUserAt(c)
		return
	case "--user ":
		if s, e, ok := shellWord(c, c.End()); ok {
			userPassword(c, text, s, e)
		}
		return
	}
	if start > 0 && (alnum(text[start-1]) || text[start-1] == '_') {
		return
	}
	for i := range commands {
		name := commands[i].name
		if len(text)-start < len(name) || !bytes.EqualFold(text[start:start+len(name)], []byte(name)) {
			continue
		}
		if string(lit) == "docker login" || string(lit) == "podman login" {
			findEcho(c)
		}
		findFlags(c, i, start+len(name))
		return
	}
}

// maxCommand is how far behind a command's name its flags may stand.
const maxCommand = 16 << 10

// What findFlags keeps about a text: which command's line it has read, from
// where to where, and where the first quote stands in it. A name of the same
// command in that part, before any quote, is a word of that line, and so is all
// that follows.
const (
	noteCommand = iota
	noteFrom
	noteTo
	noteQuote
)

// findFlags reads the words of a command line.
func findFlags(c *redact.Candidate, which, i int) {
	text, cmd := c.Text(), &commands[which]
	noted, from, to, quote := c.Note(noteCommand), c.Note(noteFrom), c.Note(noteTo), c.Note(noteQuote)
	stop := min(len(text), i+maxCommand)
	if start := i; *noted != which+1 || start > *to {
		*noted, *from, *to, *quote = which+1, start, start, len(text)
	}
	inQuote := i > *quote
	for n := 0; n < 100; n++ {
		if !inQuote && *from < i && i < *to {
			if i = *to; *quote < i {
				return
			}
		}
		for i < len(text) && (space(text[i]) || text[i] == '\\' && i+1 < len(text) && (text[i+1] == '\n' || text[i+1] == '\r') || (text[i] == '\n' || text[i] == '\r') && i > 0 && (text[i-1] == '\\' || text[i-1] == '\r')) {
			i++
		}
		if i >= stop {
			return
		}
		s, e, ok := shellWord(c, i)
		if !ok {
			return
		}
		w := text[s:e]
		quoted := s > i
		for _, f := range cmd.flags {
			if quoted {
				continue
			}
			if f == "-u" && cmd.name == "curl" && len(w) > 2 && len(w) < 10 && w[0] == '-' && w[len(w)-1] == 'u' && letters(w[1:]) {
				w = []byte(f) // -sSLu
			}
			if !bytes.HasPrefix(w, []byte(f)) {
				continue
			}
			vs, ve := s+len(f), e
			switch {
			case f[0] == '/':
			case len(w) == len(f):
				if ve < len(text) && (text[ve] == '\'' || text[ve] == '"') && cmd.glued { // -p'SECRET'
					vs, ve, ok = shellWord(c, ve)
				} else {
					if cmd.name == "mysql" || cmd.name == "mysqldump" || cmd.name == "mysqladmin" || cmd.name == "mariadb" {
						continue // -p alone asks
					}
					vs, ve, ok = shellWord(c, run(text, e, space))
				}
				if !ok {
					return
				}
			case f[1] == '-' && w[len(f)] != '=':
				continue
			case w[len(f)] == '=' && f[1] == '-':
				vs++
			case !cmd.glued:
				continue
			}
			if vs < ve && (text[vs] == '\'' || text[vs] == '"') {
				vs, ve, ok = shellWord(c, vs)
				if !ok {
					return
				}
			}
			v := text[vs:ve]
			if cmd.colon {
				userPassword(c, text, vs, ve)
			} else if len(v) >= 3 && !shape.Placeholder(head(v)) && v[0] != '-' {
				c.Emit(vs, ve)
			}
			e = max(e, ve)
		}
		if !inQuote && (quoted || e < len(text) && (text[e] == '\'' || text[e] == '"')) {
			*quote = min(*quote, i)
		}
		i = e
		if i < len(text) && (text[i] == '\'' || text[i] == '"') {
			i++
		}
		if !inQuote {
			*to = max(*to, i)
		}
	}
}

// userPassword emits what follows the colon of user:password.
func userPassword(c *redact.Candidate, text []byte, s, e int) {
	colon := bytes.IndexByte(text[s:e], ':')
	if colon < 0 || bytes.HasPrefix(text[s+colon:e], []byte("://")) {
		return
	}
	v := text[s+colon+1 : e]
	if len(v) == 0 || shape.Placeholder(v) || allDigits(v) && len(v) < 6 {
		return
	}
	c.Emit(s+colon+1, e)
}

// shellWord reads one word of a command line: the limits of its content. A
// separator, a comment or the end of the line is none.
func shellWord(c *redact.Candidate, i int) (start, end int, ok bool) {
	text := c.Text()
	if i >= len(text) {
		return 0, 0, false
	}
	switch text[i] {
	case '\n', '\r', '|', ';', '&', '#', ')', '`', '<', '>':
		return 0, 0, false
	case '\'', '"':
		q := text[i]
		for e := i + 1; e < len(text) && e-i < maxValue && text[e] != '\n'; e++ {
			if text[e] == '\\' && q == '"' {
				e++
				continue
			}
			if text[e] == q {
				c.Work(e - i)
				return i + 1, e, true
			}
		}
		return 0, 0, false
	}
	e := c.RunEnd(i, maxValue, runWord, tokenClass, func(text []byte, e int) bool {
		return !blank(text[e]) && text[e] != '\'' && text[e] != '"' && text[e] != '`' && text[e] != '|' && text[e] != ';' && text[e] < 0x80 && !escapeStop(text, e)
	})
	return i, e, e > i
}

func emitWord(c *redact.Candidate, text []byte, i int) {
	s, e, ok := shellWord(c, i)
	if ok && e-s >= 3 && !shape.Placeholder(text[s:e]) && text[s] != '-' {
		c.Emit(s, e)
	}
}

// findPassColon takes openssl's pass:SECRET after -passin, -passout, -pass, -k.
func findPassColon(c *redact.Candidate) {
	text, start := c.Text(), c.Start()
	lo := max(0, start-16)
	before := text[lo:start]
	if !bytes.Contains(before, []byte("-pass")) && !bytes.Contains(before, []byte("-k ")) {
		return
	}
	emitWord(c, text, c.End())
}

// findEcho takes the text that echo or printf gives to a login command.
func findEcho(c *redact.Candidate) {
	text := c.Text()
	if here := bytes.Index(text[c.End():min(len(text), c.End()+80)], []byte("<<<")); here >= 0 && bytes.IndexByte(text[c.End():c.End()+here], '\n') < 0 {
		if s, e, ok := shellWord(c, run(text, c.End()+here+3, space)); ok && e-s >= 4 && !shape.Placeholder(text[s:e]) {
			c.Emit(s, e)
		}
		return
	}
	line := bytes.LastIndexByte(text[max(0, c.Start()-512):c.Start()], '\n') + 1
	if c.Start() > 512 {
		line += c.Start() - 512
	}
	part := text[line:c.Start()]
	bar := bytes.LastIndexByte(part, '|')
	if bar < 0 || !c.Work(len(part)) {
		return
	}
	for _, w := range [...]string{"echo ", "printf ", "<<< "} {
		at := bytes.LastIndex(part[:bar], []byte(w))
		if at < 0 {
			continue
		}
		i := line + at + len(w)
		for i < len(text) && space(text[i]) {
			i++
		}
		s, e, ok := shellWord(c, i)
		for ok && e-s <= 3 && text[s] == '-' { // echo -n
			s, e, ok = shellWord(c, run(text, e, space))
		}
		if ok && e-s <= 4 && text[s] == '%' { // printf '%s'
			s, e, ok = shellWord(c, run(text, e+1, space))
		}
		if !ok || e-s < 4 || shape.Placeholder(text[s:e]) || s >= line+bar {
			return
		}
		if text[c.Start()]|0x20 == 'c' && text[c.Start()+1]|0x20 == 'h' { // chpasswd
			userPassword(c, text, s, e)
			return
		}
		c.Emit(s, e)
		return
	}
}

func letters(b []byte) bool {
	for _, c := range b {
		if !(alnum(c) && c > '9') {
			return false
		}
	}
	return true
}

// guarded accepts a value that stands where a password may stand, and other
// things as well.
func guarded(v []byte) bool {
	if len(v) < 4 || v[0] == '-' || shape.Placeholder(head(v)) || word(head(v)) || call(v) || formatted(head(v)) || pathLike(v) || shape.Version(v) || bytes.ContainsAny(v, " /:\\()[]{}<>,") {
		return false
	}
	digits, letters, others := 0, 0, 0
	for _, c := range v {
		switch {
		case decimal(c):
			digits++
		case alnum(c):
			letters++
		default:
			others++
		}
	}
	return letters > 0 && (digits > 0 || others > 0)
}

// findUserFlag takes V of -u USER -p V, which many commands have.
func findUserFlag(c *redact.Candidate) {
	text, start := c.Text(), c.Start()
	user := runBack(text, start, 64, func(b byte) bool { return b > ' ' })
	if user == start || user < 4 || text[user-1] != ' ' || text[user] == '-' {
		return
	}
	f := user - 1
	for f > 0 && text[f-1] == ' ' && user-f < 8 {
		f--
	}
	flag := text[max(0, f-9):f]
	known := false
	for _, w := range [...]string{" -u", " -U", " -l", "-username", "--login"} {
		known = known || bytes.HasSuffix(flag, []byte(w))
	}
	if !known {
		return
	}
	s, e, ok := shellWord(c, run(text, c.End(), space))
	if !ok {
		return
	}
	if i := bytes.Index(head(text[s:e]), []byte("</")); i > 0 { // </code>
		e = s + i
	}
	if digits, _, other := makeup(text[s:e]); !guarded(text[s:e]) || e-s < 8 || digits < 2 && other == 0 {
		return
	}
	line := text[max(0, f-120):f]
	if nl := bytes.LastIndexByte(line, '\n'); nl >= 0 {
		line = line[nl:]
	}
	for _, w := range [...]string{"mysql", "mariadb", "psql", "pg_", "rsync", "sudo -u", "ssh ", "docker run", "podman run"} {
		if bytes.Contains(line, []byte(w)) {
			return // -p is something else
		}
	}
	c.Emit(s, e)
}

// findOperand takes the operand of a command that is a password or token by
// its place.
func findOperand(c *redact.Candidate, lit string) {
	text, start := c.Text(), c.Start()
	if start > 0 && (alnum(text[start-1]) || text[start-1] == '_' || text[start-1] == '.' && lit != "sonar.login=") {
		return
	}
	skip, token, line := 0, false, false
	switch lit {
	case "add_user ", "change_password ", "net user ":
		skip = 1
	case "alias set ":
		skip = 3
	case "htpasswd ":
		findHtpasswd(c)
		return
	case "requirepass ", "masterauth ":
		line = true
	case "auth ": // of Redis
		if string(text[start:start+4]) != "AUTH" || start > 0 && text[start-1] != '\n' && text[start-1] != '"' && text[start-1] != '\'' && !bytes.HasSuffix(text[:start], []byte("> ")) {
			return
		}
		line = true
	default:
		token = true
	}
	i := run(text, c.End(), space)
	for n := 0; ; n++ {
		s, e, ok := shellWord(c, i)
		if !ok {
			return
		}
		v := text[s:e]
		if n < skip {
			i = run(text, max(e, i)+min(s-i, 1), space)
			continue
		}
		if line { // AUTH user V
			next := run(text, e, space)
			if s2, e2, ok := shellWord(c, next); ok && lit == "auth " {
				s, e, v = s2, e2, text[s2:e2]
			} else if ok {
				return
			}
		}
		switch {
		case token && !(len(v) >= 16 && v[0] != '-' && secretish(head(v))):
		case !token && !guarded(v):
		default:
			c.Emit(s, e)
		}
		return
	}
}

// findHtpasswd takes the last operand of htpasswd -b.
func findHtpasswd(c *redact.Candidate) {
	text := c.Text()
	i := run(text, c.End(), space)
	batch := false
	words := 0
	for n := 0; n < 8; n++ {
		s, e, ok := shellWord(c, i)
		if !ok {
			return
		}
		w := text[s:e]
		switch {
		case len(w) > 0 && w[0] == '-' && s == i && words == 0:
			if bytes.IndexByte(w, 'b') > 0 {
				batch = true
			}
			if bytes.IndexByte(w, 'n') > 0 {
				words++ // no file
			}
		default:
			words++
		}
		if words == 3 {
			if batch && e-s >= 3 && !shape.Placeholder(w) {
				c.Emit(s, e)
			}
			return
		}
		i = run(text, e+min(s-i, 1), space)
	}
}

// findArgument takes the last argument of a call that logs in: BasicAuth("u",
// "V").
func findArgument(c *redact.Candidate) {
	text, i := c.Text(), c.End()
	from, to, args := 0, 0, 0
	for n := 0; n < 4 && i < len(text); n++ {
		for i < len(text) && blank(text[i]) && i-c.End() < 200 {
			i++
		}
		if i >= len(text) {
			return
		}
		if text[i] == '"' || text[i] == '\'' {
			s, e, ok := quotedValue(text, i)
			if !ok {
				return
			}
			from, to, i = s, e, e+1
		} else {
			s := i
			for i < len(text) && i-s < 64 && (nameByte(text[i]) || text[i] == '=' || text[i] == '(' && i+1 < len(text) && text[i+1] == ')') {
				if text[i] == '(' {
					i++
				}
				i++
				if text[i-1] == '=' && i < len(text) && (text[i] == '"' || text[i] == '\'') { // password="V"
					break
				}
			}
			if i == s || i >= len(text) {
				return
			}
			from = 0
			if text[i] == '"' || text[i] == '\'' {
				continue
			}
		}
		args++
		i = run(text, i, space)
		if i >= len(text) {
			return
		}
		if text[i] == ')' {
			break
		}
		if text[i] != ',' {
			return
		}
		i++
	}
	if args < 2 || from == 0 {
		return
	}
	v := text[from:to]
	if text[c.Start()] == '.' || text[c.Start()]|0x20 == 'l' { // .auth( and login( may be about other things
		if !guarded(v) && (!secretish(head(v)) || v[0] == '$' || bytes.ContainsAny(v, "{}()")) {
			return
		}
	} else if len(v) < 4 || word(head(v)) || shape.Placeholder(head(v)) || formatted(head(v)) || bytes.IndexByte(v, ' ') >= 0 {
		return
	}
	c.Emit(from, to)
}

// findSecureString takes the plain text that PowerShell makes a SecureString of.
func findSecureString(c *redact.Candidate) {
	text := c.Text()
	i := run(text, c.End(), space)
	if bytes.HasPrefix(bytes.ToLower(text[i:min(len(text), i+8)]), []byte("-string ")) {
		i = run(text, i+len("-string "), space)
	}
	if s, e, ok := shellWord(c, i); ok && e-s >= 4 && !shape.Placeholder(text[s:e]) && (s > i || guarded(text[s:e])) {
		c.Emit(s, e)
	}
}

// findDataSource takes the password of user:V@tcp(host)/db.
func findDataSource(c *redact.Candidate) {
	text, end := c.Text(), c.Start()
	start := runBack(text, end, 256, func(b byte) bool { return b > ' ' && b != '"' && b != '\'' && b != '`' && b != '=' && b < 0x7f })
	colon := bytes.IndexByte(text[start:end], ':')
	if colon <= 0 || start+colon+1 == end || shape.Placeholder(text[start+colon+1:end]) || formatted(text[start+colon+1:end]) {
		return
	}
	c.Emit(start+colon+1, end)
}

// findUserAt takes the password of user:V@host without a scheme, when it reads
// like one.
func findUserAt(c *redact.Candidate) {
	text, at := c.Text(), c.Start()
	if at+1 >= len(text) || !alnum(text[at+1]) {
		return
	}
	s := runBack(text, at, 64, func(b byte) bool {
		return b > ' ' && b != ':' && b != '/' && b != '"' && b != '\'' && b != '`' && b != '<' && b < 0x7f
	})
	if s < 3 || text[s-1] != ':' || !alnum(text[s-2]) || !unlikeWords(text[s:at]) {
		return
	}
	for i := s; i+2 < at; i++ {
		if text[i] == '%' && hexByte(text[i+1]) && hexByte(text[i+2]) {
			return // the decoded text has the value
		}
	}
	if user := runBack(text, s-1, 64, func(b byte) bool { return alnum(b) || b == '_' || b == '.' || b == '-' || b == '\\' }); bytes.HasSuffix(text[:user], []byte("//")) || user > 0 && text[user-1] == ':' {
		return // the rule for URLs
	}
	c.Emit(s, at)
}
