package secrets

import (
	"bytes"
	"crypto/sha256"
	"math/big"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// hashRule finds password hashes: who has one may try passwords against it.
func hashRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-password-hash",
		Description: "A password hash in crypt(3) form (bcrypt, SHA-crypt, apr1, yescrypt, argon2, scrypt, PBKDF2) or LDAP's {SSHA}.",
		Literals: []string{"$apr1$", "$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$7$", "$y$", "$gy$", "$argon2", "$scrypt$", "$pbkdf2", "$s2$", "{ssha", "{sha}", "pbkdf2_sha",
			"bcrypt_sha", "scram-sha-256$"},
		Find: func(c *redact.Candidate) {
			text, s := c.Text(), c.Start()
			class := hashClass
			if text[s] == '{' {
				class = ldapClass
			}
			e := hashEnd(text, s, c.Run(c.End(), class))
			for n := 0; n < deciding && (text[e-1] == '.' || text[e-1] == ',' || text[e-1] == ':') && e-s > 60; n++ {
				e--
			}
			if e-s >= 26 && (text[s] == '{' || bytes.Count(head(text[s:e]), []byte{'$'}) >= 2) {
				c.Skip(e)
				c.Emit(s, e)
			}
		},
	}
}

var (
	hashClass = redact.ClassOf(func(b byte) bool { return ldapClass[b] || b == ':' })
	ldapClass = redact.ClassOf(func(b byte) bool {
		return alnum(b) || b == '.' || b == '/' || b == '$' || b == '=' || b == '+' || b == ',' || b == '-' || b == '_' || b == '}'
	})
)

// hashEnd cuts at a colon: fields of passwd and htpasswd follow it. No hash has
// 1,024 characters before one.
func hashEnd(text []byte, s, e int) int {
	if i := bytes.IndexByte(text[s:min(e, s+1024)], ':'); i > 0 && !bytes.EqualFold(text[s:min(e, s+5)], []byte("SCRAM")) {
		return s + i
	}
	return e
}

// sqlRule reads INSERT statements with a column list, and takes the values of
// columns whose names mean a secret.
func sqlRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-sql-value",
		Description: "The value for a column named like a secret in INSERT INTO … (columns) VALUES (…), and IDENTIFIED BY '…', SET PASSWORD … = '…'.",
		Literals:    []string{"insert into", "replace into", "identified by", "set password", "identified with", "from stdin"},
		Find: func(c *redact.Candidate) {
			switch c.Text()[c.End()-1] | 0x20 {
			case 'o':
				findInsert(c)
			case 'n':
				findCopy(c)
			default:
				findAccount(c)
			}
		},
	}
}

// findAccount reads the password of CREATE USER … IDENTIFIED BY and of SET
// PASSWORD.
func findAccount(c *redact.Candidate) {
	text, i := c.Text(), c.End()
	if text[i-1]|0x20 == 'd' { // SET PASSWORD FOR x = PASSWORD('V')
		eq := bytes.IndexByte(text[i:min(len(text), i+160)], '=')
		if eq < 0 {
			return
		}
		i += eq + 1
	}
	if text[i-1]|0x20 == 'h' { // IDENTIFIED WITH plugin BY 'V'
		by := bytes.Index(bytes.ToLower(text[i:min(len(text), i+80)]), []byte(" by "))
		if by < 0 {
			return
		}
		i += by + len(" by ")
	}
	i = run(text, i, blankByte)
	if len(text)-i > 9 && bytes.EqualFold(text[i:i+8], []byte("password")) {
		i = run(text, i+8, func(b byte) bool { return blank(b) || b == '(' })
	}
	if i >= len(text) || text[i] != '\'' && text[i] != '"' {
		return
	}
	if s, e, ok := quotedValue(text, i); ok && !shape.Placeholder(text[s:e]) && !formatted(text[s:e]) {
		c.Emit(s, e)
	}
}

func findInsert(c *redact.Candidate) {
	text := c.Text()
	i := c.End()
	limit := min(len(text), i+256)
	open := bytes.IndexByte(text[i:limit], '(')
	if open < 0 {
		return
	}
	i += open + 1
	stop := bytes.IndexAny(text[i:min(len(text), i+4096)], "()")
	if stop < 0 || text[i+stop] == '(' {
		return
	}
	want := secretColumns(text[i : i+stop])
	i = run(text, i+stop+1, blankByte)
	if len(want) == 0 || len(text)-i < 7 || !bytes.EqualFold(text[i:i+6], []byte("values")) {
		return
	}
	i = run(text, i+6, blankByte)
	for i < len(text) && text[i] == '(' {
		i = insertRow(c, text, i+1, want)
		i = run(text, i, blankByte)
		if i >= len(text) || text[i] != ',' {
			break
		}
		i = run(text, i+1, blankByte)
	}
	c.Skip(i)
}

// secretColumns are the places of the columns whose names mean a secret.
func secretColumns(list []byte) (want []int) {
	for n, col := range bytes.Split(list, []byte{','}) {
		col = bytes.Trim(col, " \t\r\n\"'`[]")
		k := classifyKey(col)
		if k == passwordKey || k == tokenKey || bytes.Contains(bytes.ToLower(col), []byte("password_hash")) || bytes.Contains(bytes.ToLower(col), []byte("passwordhash")) {
			want = append(want, n)
		}
	}
	return want
}

// findCopy reads the rows behind COPY … (columns) FROM stdin;, tabs between
// them, up to a line of \.
func findCopy(c *redact.Candidate) {
	text := c.Text()
	lo := max(0, c.Start()-4096)
	open := bytes.LastIndexByte(text[lo:c.Start()], '(')
	if open < 0 || !c.Work(c.Start()-lo-open) || !bytes.Contains(bytes.ToLower(text[max(lo, lo+open-200):lo+open]), []byte("copy ")) {
		return
	}
	list := text[lo+open+1 : c.Start()]
	end := bytes.IndexByte(list, ')')
	nl := bytes.IndexByte(text[c.End():min(len(text), c.End()+80)], '\n')
	if end < 0 || nl < 0 {
		return
	}
	want := secretColumns(list[:end])
	for i := c.End() + nl + 1; len(want) > 0 && i < len(text) && !bytes.HasPrefix(text[i:], []byte(`\.`)); {
		stop := lineEnd(text, i)
		if stop == i || !c.Work(stop-i) {
			break
		}
		at := i
		for n := 0; at < stop; n++ {
			e := bytes.IndexByte(text[at:stop], '\t')
			if e < 0 {
				e = stop - at
			}
			for _, w := range want {
				if v := text[at : at+e]; w == n && len(v) > 2 && string(v) != `\N` && !shape.Placeholder(v) {
					c.Emit(at, at+e)
				}
			}
			at += e + 1
		}
		c.Skip(stop)
		i = run(text, stop, func(b byte) bool { return blank(b) && b != '\n' })
		if i >= len(text) || text[i] != '\n' {
			break
		}
		i++
	}
}

// insertRow reads one row of values and returns the position behind it.
func insertRow(c *redact.Candidate, text []byte, i int, want []int) int {
	for n := 0; i < len(text); n++ {
		i = run(text, i, blankByte)
		s, e := i, i
		if i < len(text) && (text[i] == '\'' || text[i] == '"') {
			q := text[i]
			s = i + 1
			for e = s; e < len(text); e++ {
				if text[e] == '\\' {
					e++
				} else if text[e] == q {
					if e+1 < len(text) && text[e+1] == q {
						e++
						continue
					}
					break
				}
			}
			e = min(e, len(text))
			i = min(e+1, len(text))
		} else {
			for depth := 0; e < len(text) && text[e] != '\n' && (depth > 0 || text[e] != ',' && text[e] != ')'); e++ {
				switch text[e] { // now()
				case '(':
					depth++
				case ')':
					depth--
				}
			}
			i = e
		}
		for _, w := range want {
			if w == n && e > s && !shape.Placeholder(text[s:e]) && text[s] != '?' && text[s] != ':' && !call(text[s:e]) {
				c.Emit(s, e)
			}
		}
		for i < len(text) && text[i] != ',' && text[i] != ')' && text[i] != '\n' {
			i++
		}
		if i >= len(text) || text[i] != ',' {
			if i < len(text) && text[i] == ')' {
				i++
			}
			return i
		}
		i++
	}
	return i
}

// pgpassRule reads lines of .pgpass: host:port:database:user:password.
func pgpassRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-pgpass",
		Description: "The password in a line of a .pgpass file.",
		Literals:    []string{":5432:", ":5433:", ":5434:", ":6432:", ":6543:", ":26257:", ":5439:", ":*:"},
		Find: func(c *redact.Candidate) {
			text := c.Text()
			host := runBack(text, c.Start(), 255, func(b byte) bool { return alnum(b) || b == '.' || b == '-' || b == '*' || b == '_' })
			if host == c.Start() {
				return
			}
			i := c.End()
			for n := 0; n < 2; n++ {
				e := run(text, i, func(b byte) bool { return alnum(b) || b == '*' || b == '_' || b == '-' || b == '.' })
				if e == i || e >= len(text) || text[e] != ':' {
					return
				}
				i = e + 1
			}
			e := c.RunEnd(i, len(text), runPgpass, tokenClass, func(text []byte, e int) bool {
				return !blank(text[e]) && text[e] != '"' && text[e] != '\'' && !escapeStop(text, e)
			})
			if e > i && !shape.Placeholder(text[i:e]) {
				c.Emit(i, e)
			}
		},
	}
}

// chatRule finds passwords that people write to one another.
func chatRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-password-said",
		Description: "What follows \"the password is\" and its like in several languages, when it does not read like a word.",
		Literals: []string{"password", "passwort", "kennwort", "passphrase", "passcode", "mot de passe", "contraseña", "contrasena", "senha", "密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호",
			"пароль", "كلمة المرور", "كلمة السر", "पासवर्ड", "wachtwoord", "hasło", "pw", "parola", "şifre", "lösenord", "adgangskode", "salasana", "mật khẩu", "รหัสผ่าน", "pwd", "credentials", "login with", "api key", "密钥", "令牌",
			"mdp", "clave", "heslo", "jelszó", "kata sandi", "κωδικός", "סיסמה", "psw", "secret is ", "token is ", "key is ", "login:", "login as", "log in with", "log in as"},
		Find: func(c *redact.Candidate) {
			switch text := c.Text(); {
			case text[c.End()-1] == ' ':
				findSaidToken(c)
			case text[c.Start()]|0x20 == 'l' || text[c.Start()]|0x20 == 'c' && text[c.Start()+1]|0x20 == 'r':
				if !findSaidPair(c) {
					findSaid(c)
				}
			default:
				findSaid(c)
				findSaidBefore(c)
			}
		},
	}
}

var copulas = list(":", "：", "=", "is", "was", "ist", "lautet", "est", "es", "é", "è", "är", "er", "jest", "to", "是", "为", "為", "は", "이", "가", "는", "은", "в", "это", "هو", "هي", "है", "now", "set to", "changed to", "-", "–", "—", "→", "->", "=>", "into", "are", "should be", "will be", "je", "改成", "改为", "改為", "设为", "設為", "είναι")

func list(ss ...string) (out [][]byte) {
	for _, s := range ss {
		out = append(out, []byte(s))
	}
	return out
}

// copulasAt are those that may begin with a byte, in either case.
var copulasAt = func() (t [256][][]byte) {
	for _, w := range copulas {
		t[w[0]] = append(t[w[0]], w)
		if 'a' <= w[0] && w[0] <= 'z' {
			t[w[0]-32] = append(t[w[0]-32], w)
		}
	}
	return t
}()

func findSaid(c *redact.Candidate) {
	text, i := c.Text(), c.End()
	part := false // the end of a name: DB_PASSWORD
	if s := c.Start(); s > 0 {
		if alnum(text[s-1]) {
			return
		}
		part = text[s-1] == '_' || text[s-1] == '-' || text[s-1] == '.'
	}
	found := false
	if !part {
		if k := saidOf(text, i); k > 0 {
			i, found = k, true
		}
	}
	for n := 0; n < 3; n++ {
		for i < len(text) && (space(text[i]) || text[i] == '"' || text[i] == '*' || text[i] == '`' || text[i] == '\'') && i-c.End() < 24 {
			i++
		}
		step := 0
		if i >= len(text) || copulasAt[text[i]] == nil {
			break
		}
		for _, w := range copulasAt[text[i]] {
			if len(w) > step && len(text)-i >= len(w) && bytes.EqualFold(text[i:i+len(w)], w) && (w[0] >= 0x80 || !alnum(w[0]) || i+len(w) < len(text) && !alnum(text[i+len(w)]) && text[i+len(w)] != '_') {
				step = len(w)
			}
		}
		if step == 1 && text[i] == '-' && i == c.End() && i+1 < len(text) && !blank(text[i+1]) {
			return // Passwort-Feld
		}
		if step == 0 {
			break
		}
		if step == 1 && text[i] == '=' && i+1 < len(text) && text[i+1] == '=' {
			return // a comparison
		}
		if part && !alnum(text[i]) {
			return // an assignment
		}
		found = true
		i += step
	}
	if part && !found {
		return
	}
	// Without a verb ("the password X") at least a space has to follow, and X
	// has to look like one.
	open := 0
	switch {
	case found:
	case i > c.End() && (text[i-1] == '"' || text[i-1] == '\'' || text[i-1] == '`') && space(text[c.End()]): // password "V"
		open = i
	default:
		if open = opening(text, run(text, i, space)); open > 0 { // password (V)
			i = open
		}
	}
	if !found && open == 0 && (c.End() == i || !space(text[i-1])) {
		return
	}
	for i < len(text) && (space(text[i]) || text[i] == '"' || text[i] == '*' || text[i] == '`' || text[i] == '\'' || text[i] == '<' || text[i] == '+') && i-c.End() < 48 {
		i++
	}
	e := i
	for e < len(text) && e-i < 128 && text[e] > ' ' && text[e] != '"' && text[e] != '\'' && text[e] != '`' && text[e] < 0x80 && (open == 0 || text[e] != ')' && text[e] != ']') && !escapeStop(text, e) && !(text[e] == '&' && parameterFollows(text, e)) {
		e++
	}
	for e > i && (text[e-1] == ',' || text[e-1] == ';' || text[e-1] == ')' || text[e-1] == ':' || text[e-1] == '.' || text[e-1] == '>' || text[e-1] == '*' && e-i > 1 && text[e-2] == '*') {
		e--
	}
	v := text[i:e]
	if len(v) < 6 || encoded(v) || plusWords(v) || shape.Placeholder(v) || call(v) || formatted(v) || pathLike(v) || bytes.ContainsAny(v, "(){}[]<>|,;") {
		return
	}
	digits, letters, other := makeup(v)
	if i := bytes.IndexByte(v, '-'); i > 0 && other == 0 && bytes.Equal(v[:i], bytes.ToUpper(v[:i])) && lettersOnly(v[:i]) {
		return // UTF-16LE, SHA-256
	}
	if !found && (digits < 2 || other == 0 || letters < 3 || len(v) < 8) {
		return // nothing but its look says that it is the password
	}
	if letters == 0 || digits == 0 && other == 0 || digits > 0 && other == 0 && !secretish(v) && (codeWord(v) || digits < 2) {
		return
	}
	c.Emit(i, e)
}

// makeup counts digits, letters and what words and numbers do not have.
func makeup(v []byte) (digits, letters, other int) {
	for _, ch := range v {
		switch {
		case '0' <= ch && ch <= '9':
			digits++
		case alnum(ch):
			letters++
		case ch != '-' && ch != '_' && ch != '.' && ch != '/' && ch != ':':
			other++
		}
	}
	return digits, letters, other
}

// unlikeWords accepts what reads like a password by its look alone.
func unlikeWords(v []byte) bool {
	digits, letters, other := makeup(v)
	return len(v) >= 8 && digits >= 2 && other > 0 && letters >= 3 && !shape.Placeholder(v) && !call(v) && !formatted(v) && !pathLike(v) && !bytes.ContainsAny(v, "(){}[]<>|,;")
}

// saidOf returns what stands behind " is " in "password for the server is V",
// 0 when that is not what i begins.
func saidOf(text []byte, i int) int {
	line := text[i:min(len(text), i+72)]
	if !bytes.HasPrefix(line, []byte(" for ")) && !bytes.HasPrefix(line, []byte(" of ")) {
		return 0
	}
	if e := bytes.IndexByte(line, '\n'); e >= 0 {
		line = line[:e]
	}
	is := bytes.Index(line, []byte(" is "))
	if is < 0 {
		return 0
	}
	return i + is + len(" is ")
}

// opening returns what stands behind a bracket or quote at i, 0 for none.
func opening(text []byte, i int) int {
	if i >= len(text) {
		return 0
	}
	switch text[i] {
	case '(', '[', '"', '\'', '`':
		return i + 1
	}
	for _, q := range [...]string{"「", "『", "“", "„", "«"} {
		if bytes.HasPrefix(text[i:], []byte(q)) {
			return i + len(q)
		}
	}
	return 0
}

// findSaidBefore takes V of "V is the root password", "V as the password".
func findSaidBefore(c *redact.Candidate) {
	text, end := c.Text(), c.Start()
	if end < 12 || text[end-1] != ' ' || text[c.Start()]|0x20 != 'p' {
		return
	}
	before := text[max(0, end-48):end]
	at := -1
	for _, w := range [...]string{" is the ", " is my ", " is our ", " as the ", " as ", " is a "} {
		// At most one word in between.
		if k := bytes.LastIndex(before, []byte(w)); k >= 0 && bytes.Count(before[k+len(w):], []byte{' '}) <= 1 {
			at = end - len(before) + k
			break
		}
	}
	if at < 0 {
		return
	}
	e := at
	for e > 0 && (text[e-1] == '"' || text[e-1] == '\'' || text[e-1] == '`' || text[e-1] == '*') {
		e--
	}
	s := runBack(text, e, 128, func(b byte) bool { return b > ' ' && b != '"' && b != '\'' && b != '`' && b < 0x7f })
	if unlikeWords(text[s:e]) {
		c.Emit(s, e)
	}
}

// findSaidToken takes what follows "the token is", when a machine made it.
func findSaidToken(c *redact.Candidate) {
	text := c.Text()
	if s := c.Start(); s > 0 && (alnum(text[s-1]) || text[s-1] == '-') {
		return
	}
	i := run(text, c.End(), func(b byte) bool { return space(b) || b == '"' || b == '\'' || b == '`' || b == '*' || b == ':' })
	e := c.RunEnd(i, 512, runCredential, tokenClass, func(text []byte, e int) bool {
		return text[e] > ' ' && text[e] != '"' && text[e] != '\'' && text[e] != '`' && text[e] != '*' && text[e] != ')' && text[e] < 0x7f && !escapeStop(text, e)
	})
	for n := 0; n < deciding && e > i && (text[e-1] == '.' || text[e-1] == ',' || text[e-1] == ';' || text[e-1] == '!'); n++ {
		e--
	}
	v := head(text[i:e])
	if bytes.ContainsAny(v, "<>[](){}:") {
		return
	}
	if unlikeWords(v) || len(v) >= 16 && shape.RandomLooking(v) && tokenish(v) && !codeWord(v) && !pathLike(v) || len(v) >= 20 && shape.Dense(v) {
		c.Emit(i, e)
	}
}

// findSaidPair takes V of "log in with USER / V". It reports whether a user and
// a slash stood there.
func findSaidPair(c *redact.Candidate) bool {
	text := c.Text()
	if s := c.Start(); s > 0 && (alnum(text[s-1]) || text[s-1] == '_' || text[s-1] == '-' || text[s-1] == '.') {
		return false
	}
	quote := func(b byte) bool { return space(b) || b == ':' || b == '"' || b == '\'' || b == '`' || b == '*' }
	i := run(text, c.End(), quote)
	e := run(text, i, func(b byte) bool { return alnum(b) || b == '_' || b == '.' || b == '-' || b == '@' })
	k := run(text, e, quote)
	if e == i || e-i > 64 || k >= len(text) || text[k] != '/' {
		return false
	}
	s := run(text, k+1, quote)
	e = s
	for e < len(text) && e-s < 128 && text[e] > ' ' && text[e] != '"' && text[e] != '\'' && text[e] != '`' && text[e] < 0x7f && !escapeStop(text, e) {
		e++
	}
	for e > s && (text[e-1] == '.' || text[e-1] == ',' || text[e-1] == ')' || text[e-1] == '*') {
		e--
	}
	if unlikeWords(text[s:e]) {
		c.Emit(s, e)
	}
	return true
}

func lettersOnly(b []byte) bool { return len(bytes.TrimLeft(b, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")) == 0 }

// parameterFollows: &name= of a query.
func parameterFollows(text []byte, i int) bool {
	j := run(text, i+1, func(b byte) bool { return alnum(b) || b == '_' || b == '-' || b == '.' })
	return j < len(text) && text[j] == '='
}

// oracleRule reads user/password@ of Oracle's connect strings.
func oracleRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-oracle-connect",
		Description: "The password in jdbc:oracle:thin:user/password@ and sqlplus user/password@.",
		Literals:    []string{"jdbc:oracle:thin:", "jdbc:oracle:oci:", "sqlplus "},
		Find: func(c *redact.Candidate) {
			text := c.Text()
			slash := run(text, c.End(), func(b byte) bool { return alnum(b) || b == '_' || b == '$' || b == '.' || b == '-' })
			if slash == c.End() || slash >= len(text) || text[slash] != '/' {
				return
			}
			e := run(text, slash+1, func(b byte) bool { return b > ' ' && b != '@' && b != '"' && b != '\'' && b != '/' })
			if e < len(text) && text[e] == '@' && e > slash+1 && !shape.Placeholder(text[slash+1:e]) {
				c.Emit(slash+1, e)
			}
		},
	}
}

// walletRule finds Bitcoin private keys in wallet import format by their
// checksum.
func walletRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-bitcoin-key",
		Description: "A Bitcoin private key in wallet import format with its checksum.",
		Runs:        true,
		Find: func(c *redact.Candidate) {
			start := max(c.Start(), c.End()-53) // one more than the longest
			start += bytes.LastIndexByte(c.Text()[start:c.End()], '/') + 1
			v := c.Text()[start:c.End()]
			if n := len(v); n != 51 && n != 52 || v[0] != '5' && v[0] != 'K' && v[0] != 'L' && v[0] != '9' && v[0] != 'c' {
				return
			}
			if walletKey(v) {
				c.Emit(start, c.End())
			}
		},
	}
}

const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

func walletKey(v []byte) bool {
	n := new(big.Int)
	for _, c := range v {
		d := bytes.IndexByte([]byte(base58), c)
		if d < 0 {
			return false
		}
		n.Mul(n, big.NewInt(58)).Add(n, big.NewInt(int64(d)))
	}
	b := n.Bytes()
	if len(b) != 37 && len(b) != 38 {
		return false
	}
	h := sha256.Sum256(b[:len(b)-4])
	h = sha256.Sum256(h[:])
	return bytes.Equal(h[:4], b[len(b)-4:])
}
