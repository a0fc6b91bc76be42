package secrets

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// assignmentRule finds in text what keyRule finds in JSON: a name that means
// a secret, an operator, a value. It knows the forms of shells, ini, YAML,
// properties, JSON, XML, HTTP headers, query strings, connection strings,
// command line flags, netrc, and name/value pairs.
func assignmentRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-assignment",
		Description: "The value that is assigned to a name for a secret in text: PASSWORD=…, \"password\": \"…\", --token …, <add key=… value=…/>, password=…; in a connection string.",
		Literals: []string{"pass", "pwd", "secret", "token", "apikey", "senha", "kennwort", "credential", "creds", "psk", "jwt",
			"_key", "-key", ".key", "api key", "accesskey", "privatekey", "accountkey", "licensekey", "sharedkey", "masterkey", "authkey", "signingkey", "encryptionkey", "appkey",
			"client-key-data", "connectionstring", "storagekey", "walletkey", "servicekey", "projectkey", "consumerkey", "adminkey", "userkey", "sshkey", "secretkey",
			"_auth", "session-id", "wif", "\"auth\"", "auth:", "auth=", "rivatekey", "pw:", "pw=", "pw\""},
		Find: findAssignment,
	}
}

const (
	maxName  = 80
	maxValue = 8192
)

// Classes of bytes that depend on what stands around them, for RunEnd. A bare
// value has one for each combination of query and shell.
const (
	runBare = 1 + iota
	runBareQuery
	runBareShell
	runBareBoth
	runCredential
	runPgpass
	runPair
	runWord
)

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' || c >= 0x80
}

func space(c byte) bool { return c == ' ' || c == '\t' }

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// name is a name in text and how it stands there.
type name struct {
	start, end int  // without leading dashes
	flag       bool // --name
	quoted     bool // "name"
	upper      bool // NAME
	class      int
}

func findAssignment(c *redact.Candidate) {
	text := c.Text()
	a, b := c.Start(), c.End()
	for a < b && !nameByte(text[a]) {
		a++
	}
	for n := 0; a > 0 && nameByte(text[a-1]) && n < maxName; n++ {
		a--
	}
	for b > a && !nameByte(text[b-1]) {
		b--
	}
	for n := 0; b < len(text) && nameByte(text[b]) && n < maxName; n++ {
		b++
	}
	c.Skip(b)
	a = afterEscape(text, a)
	// In strings that are put together, a name that begins one of them is not
	// the end of a name in the one before.
	if from := c.StringStart(); from > a && mayAssign(text, &name{start: a, end: b}) {
		var w words
		w.split(text[from:b])
		if w.classify(w.n) == excluded {
			return // first line, num_tokens=820
		}
	}
	// Characters beyond ASCII belong to a name only as letters of it; CJK
	// punctuation before or after does not.
	a, b = asciiCore(text, a, b, c.Start(), c.End())
	n := name{start: a, end: b}
	for n.start < b && text[n.start] == '-' {
		n.start++
	}
	n.flag = n.start-a >= 1
	if n.start-a == 1 && text[n.start] == 'D' { // java -Dname=
		n.start++
	}
	for n.end > n.start && (text[n.end-1] == '.' || text[n.end-1] == '-') {
		n.end--
	}
	if n.end-n.start < 2 || n.end-n.start > 64 || longWord(text[n.start:n.end]) {
		return
	}
	may := mayAssign(text, &n)
	border, column := cellBorder(text, &n)
	if !may && !column {
		return
	}
	// "API key", "access token" are written apart as well.
	label := n.start
	if text[n.start] == ' ' || n.start >= 4 && text[n.start-1] == ' ' && wordBefore(text, n.start-1) {
		label = n.start - 4
		for label > 0 && nameByte(text[label-1]) && n.start-label < 12 {
			label--
		}
	}
	n.class = classifyKey(text[label:n.end])
	if n.class == noSecret {
		n.class = classifyKey(text[n.start:n.end])
	}
	if n.class == noSecret || n.class == headerKey || n.class == cookieKey {
		return
	}
	n.upper = true
	for _, ch := range text[n.start:n.end] {
		if 'a' <= ch && ch <= 'z' {
			n.upper = false
			break
		}
	}
	s, e, ok := 0, 0, false
	if may {
		s, e, ok = assigned(c, &n)
	}
	if !ok {
		if column && (n.class == passwordKey || n.class == tokenKey) {
			if s, e, ok := rowValue(text, &n, border); ok {
				c.Emit(s, e)
				return
			}
			findColumn(c, &n, border)
		}
		return
	}
	if c.Joined() {
		// What one string assigns as a whole is judged there.
		if i := c.NextEdge(s); i < e && (shape.Placeholder(text[s:i]) || shape.Version(text[s:i])) {
			return
		}
	}
	c.Emit(s, e)
}

// afterEscape skips what an escape leaves before a name: \nname, %0Aname.
func afterEscape(text []byte, a int) int {
	if a == 0 || a+2 >= len(text) {
		return a
	}
	switch {
	case text[a-1] == '\\' && (text[a] == 'n' || text[a] == 'r' || text[a] == 't'):
		return a + 1
	case text[a-1] == '%' && hexByte(text[a]) && hexByte(text[a+1]):
		return a + 2
	}
	return a
}

// mayAssign decides by the bytes around a name whether a value can belong to
// it: most names in code and prose have none.
func mayAssign(text []byte, n *name) bool {
	if n.end == len(text) {
		return false
	}
	switch c := text[n.end]; c {
	case '=', ':', '>', '"', '\'', '`', ']', '?', '!', '|', '+', '\\', 0xef:
		return true
	case '(': // before a quoted value
		i := n.end + 1
		for k := 0; i < len(text) && space(text[i]) && k < 80; k++ {
			i++
		}
		if i+1 < len(text) && (text[i] == 'b' || text[i] == 'r' || text[i] == 'u' || text[i] == 'f' || text[i] == '@' || text[i] == 'L') {
			i++
		}
		return i < len(text) && (text[i] == '"' || text[i] == '\'' || text[i] == '`' || text[i] == '\\')
	case ',':
		return valueBefore(text, n.start)
	case '*': // **NAME**
		return n.start > 0 && text[n.start-1] == '*'
	case '<': // NAME</td>
		return n.end+1 < len(text) && text[n.end+1] == '/'
	case '.':
		return n.end+1 < len(text) && text[n.end+1] == '=' || typed(text, n.end) > 0
	case ' ', '\t':
		i := n.end
		for i < len(text) && space(text[i]) {
			i++
		}
		if i == len(text) {
			return false
		}
		switch text[i] {
		case '=', ':', '?', '|', '+', '-', ',', '>', '\'', '{', 0xef:
			return true
		case '\n', '\r', ';':
			return valueBefore(text, n.start)
		}
		if i-n.end > 1 || text[n.end] == '\t' || text[i] == '"' && n.start > 0 && text[n.start-1] == ':' {
			return true
		}
		first := text[n.start]
		return n.flag || 'A' <= first && first <= 'Z' || first|0x20 == 'p' && netrcBefore(text, n.start) || setBefore(text, n.start) ||
			typed(text, i) > 0
	case '\n', '\r', ';', '-':
		return valueBefore(text, n.start)
	}
	return false
}

// valueBefore: the name is itself a value, as in name: TOKEN.
func valueBefore(text []byte, i int) bool {
	for i > 0 && (space(text[i-1]) || text[i-1] == '"' || text[i-1] == '\'') {
		i--
	}
	return i > 0 && (text[i-1] == ':' || text[i-1] == '=' || text[i-1] == '>')
}

// longWord: a part of the name is too long for a word, and has digits.
func longWord(b []byte) bool {
	n, digits := 0, 0
	for _, c := range b {
		if c == '_' || c == '-' || c == '.' {
			n, digits = 0, 0
			continue
		}
		n++
		if '0' <= c && c <= '9' {
			digits++
		}
		if n >= 20 && digits > 1 {
			return true
		}
	}
	return false
}

func wordBefore(text []byte, end int) bool {
	for _, w := range [...]string{"api", "access", "secret", "private", "account", "auth", "license"} {
		if end >= len(w) && bytes.EqualFold(text[end-len(w):end], []byte(w)) {
			return true
		}
	}
	return false
}

func asciiCore(text []byte, a, b, hitStart, hitEnd int) (int, int) {
	for i := hitStart; i > a; i-- {
		if text[i-1] >= 0x80 {
			a = i
			break
		}
	}
	for i := hitEnd; i < b; i++ {
		if text[i] >= 0x80 {
			b = i
			break
		}
	}
	return a, b
}

// assigned finds the value that belongs to the name.
func assigned(c *redact.Candidate, n *name) (start, end int, ok bool) {
	text := c.Text()
	i := n.end
	if i < len(text) && (text[i] == '?' || text[i] == '!') { // optional members
		i++
	}
	bold := n.start > 0 && text[n.start-1] == '*'
	for bold && i < len(text) && text[i] == '*' {
		i++
	}
	var quote byte
	if i < len(text) && (text[i] == '"' || text[i] == '\'' || text[i] == '`') {
		quote = text[i]
		n.quoted = n.start > 0 && text[n.start-1] == quote
		i++
	}
	if quote != 0 {
		if n.quoted {
			if s, e, ok := attributeValue(text, i, n); ok {
				return s, e, true
			}
		}
		if s, e, ok := called(text, i, n); ok {
			return s, e, true
		}
		if s, e, ok := declared(text, i, n); ok {
			return s, e, true
		}
	}
	if i < len(text) && text[i] == ']' { // config["password"] = …
		i++
		if quote == 0 && i < len(text) && (text[i] == '"' || text[i] == '\'') && text[max(n.start-1, 0)] == '=' { // 'input[name=password]', …
			quote = text[i]
			i++
		}
	}
	if i < len(text) && text[i] == '<' {
		return tagged(text, i, n)
	}
	// <name>value</name>
	if i < len(text) && text[i] == '>' && n.start > 0 && (text[n.start-1] == '<' || text[n.start-1] == ':') {
		j := bytes.IndexByte(text[i:min(len(text), i+maxValue)], '<')
		if j < 0 || i+j+1 >= len(text) || text[i+j+1] != '/' {
			return 0, 0, false
		}
		return trimmed(text, i+1, i+j, n)
	}
	if s, e, ok := pairValue(c, i, n, quote); ok {
		return s, e, true
	}
	j := i
	for j < len(text) && space(text[j]) && j-i < 40 {
		j++
	}
	if j >= len(text) {
		return 0, 0, false
	}
	if s, e, ok := cellValue(text, j, n); ok {
		return s, e, true
	}
	op, j := operator(text, j)
	switch op {
	case opNone:
		if k := alternative(text, j); k > 0 { // process.env.TOKEN || "…"
			s, e, ok := quotedValue(text, k)
			return s, e, ok && plausibleQuoted(text[s:e], n, opTuple)
		}
		if j > i && text[j] == '"' && n.start > 0 && text[n.start-1] == ':' { // :password "…"
			s, e, ok := quotedValue(text, j)
			return s, e, ok && plausibleQuoted(text[s:e], n, opTuple)
		}
		if quote == 0 {
			if s, e, ok := columnValue(text, n); ok {
				return s, e, true
			}
		}
		if k := typed(text, j); k > 0 { // var token string = "…", Token { get; set; } = "…"
			s, e, ok := quotedValue(text, k)
			return s, e, ok && plausibleQuoted(text[s:e], n, opEqual)
		}
		return wordValue(text, i, n)
	case opColon: // token: string = "…"
		k := run(text, j, space)
		if k = typed(text, k); k > 0 {
			s, e, ok := quotedValue(text, k)
			return s, e, ok && plausibleQuoted(text[s:e], n, opEqual)
		}
	case opTuple:
		if quote == 0 && !(text[n.end] == '(') || quote == '`' {
			return 0, 0, false
		}
	}
	spaced := j < len(text) && space(text[j]) || n.end < len(text) && space(text[n.end])
	for k := 0; j < len(text) && (space(text[j]) || bold && text[j] == '*') && k < 80; k++ {
		j++
	}
	if op == opColon && j+1 < len(text) && text[j] == '!' && text[j+1] == '!' { // !!str
		j = run(text, run(text, j+2, alnum), space)
	}
	if op == opCode { // string(9) "…", of var_dump
		if k := run(text, j, blankByte); bytes.HasPrefix(text[k:], []byte("string(")) {
			if k = run(text, k+len("string("), decimal); k+2 < len(text) && text[k] == ')' && text[k+1] == ' ' && text[k+2] == '"' {
				s, e, ok := quotedValue(text, k+2)
				return s, e, ok && plausibleQuoted(text[s:e], n, opTuple)
			}
		}
	}
	if op == opColon {
		if s, e, ok := yamlItems(c, j, n); ok {
			return s, e, true
		}
	}
	if s, e, ok := nextLineValue(text, j, n, op); ok {
		return s, e, true
	}
	if j < len(text) && text[j] == '<' && op == opColon {
		return tagged(text, j, n)
	}
	if j < len(text) && (text[j] == '|' || text[j] == '>') && op == opColon { // a YAML block follows
		return yamlBlock(text, j, n)
	}
	if j >= len(text) {
		return 0, 0, false
	}
	// Prefixes of string literals.
	if k := j; k+1 < len(text) && (text[k] == 'b' || text[k] == 'r' || text[k] == 'u' || text[k] == 'f' || text[k] == '@' || text[k] == 'L') && (text[k+1] == '"' || text[k+1] == '\'') {
		j++
	}
	switch q := text[j]; q {
	case '"', '\'', '`':
		s, e, ok := quotedValue(text, j)
		if !ok || !plausibleQuoted(text[s:e], n, op) {
			if ok && bytes.Contains(head(text[s:e]), []byte("default(")) { // "{{ x | default('…') }}"
				return fallback(text, s, n)
			}
			return 0, 0, false
		}
		return s, e, true
	case '\\':
		if j+1 < len(text) && (text[j+1] == '"' || text[j+1] == '\'') {
			// Escaped text: the decoded form has the whole value, what is here
			// ends at the next escaped quote.
			s := j + 2
			e := s
			for e < len(text) && text[e] != '\\' && text[e] != '\n' && e-s < maxValue {
				e++
			}
			if e > s && bytes.IndexByte([]byte("),;]}"), text[s]) < 0 && plausibleQuoted(text[s:e], n, op) {
				return s, e, true
			}
		}
		return 0, 0, false
	}
	if op == opTuple || op == opCompare {
		return 0, 0, false
	}
	if s, e, ok := fallback(text, j, n); ok && c.Work(e-j) {
		return s, e, true
	}
	return bareValue(c, j, n, op, spaced)
}

// typed reads the type, an equals sign and returns where the quote of a
// value stands: string = "…", &str = "…", { get; set; } = "…"; 0 for none.
func typed(text []byte, i int) int {
	e := i
	if bytes.HasPrefix(text[i:], []byte("{ get;")) {
		e = i + bytes.IndexByte(text[i:min(len(text), i+64)], '}') + 1
		if e == i {
			return 0
		}
	} else {
		for e < len(text) && e-i <= 40 && typeByte(text[e]) {
			e++
		}
		if e == i || e-i > 40 {
			return 0
		}
	}
	e = run(text, e, space)
	if e+1 >= len(text) || text[e] != '=' || text[e+1] == '=' {
		return 0
	}
	e = run(text, e+1, space)
	if e < len(text) && (text[e] == '"' || text[e] == '\'' || text[e] == '`') {
		return e
	}
	return 0
}

func typeByte(b byte) bool {
	return alnum(b) || b == '_' || b == '.' || b == '?' || b == '&' || b == '*' || b == '<' || b == '>'
}

// attributeValue finds V behind a name that is quoted: name="NAME">V</string>,
// and variable "NAME" { … default = "V" } of Terraform. i stands behind the
// quote.
func attributeValue(text []byte, i int, n *name) (int, int, bool) {
	before := text[max(0, n.start-16) : n.start-1]
	if bytes.HasSuffix(before, []byte("name=")) { // a part of a form
		if k := run(text, i, func(b byte) bool { return b == '\r' || b == '\n' }); k-i >= 2 && bytes.Count(text[i:k], []byte{'\n'}) == 2 {
			e := lineEnd(text, k)
			return k, e, e > k && plausibleQuoted(text[k:e], n, opEqual)
		}
	}
	if i < len(text) && text[i] == '>' && bytes.HasSuffix(before, []byte{'='}) {
		j := bytes.IndexByte(text[i:min(len(text), i+maxValue)], '<')
		if j < 0 || i+j+1 >= len(text) || text[i+j+1] != '/' {
			return 0, 0, false
		}
		return trimmed(text, i+1, i+j, n)
	}
	if !bytes.HasSuffix(before, []byte("variable ")) {
		return 0, 0, false
	}
	block := text[i:min(len(text), i+1024)]
	if end := bytes.IndexByte(block, '}'); end >= 0 {
		block = block[:end]
	}
	d := bytes.Index(block, []byte("default"))
	if d < 0 {
		return 0, 0, false
	}
	j := run(text, i+d+len("default"), space)
	if j >= len(text) || text[j] != '=' {
		return 0, 0, false
	}
	if j = run(text, j+1, space); j >= len(text) || text[j] != '"' {
		return 0, 0, false
	}
	s, e, ok := quotedValue(text, j)
	return s, e, ok && plausibleQuoted(text[s:e], n, opEqual)
}

// cellValue finds V in a row of a table: | NAME | V |. j stands where the
// cell's border may be.
func cellValue(text []byte, j int, n *name) (int, int, bool) {
	if text[j] != '|' || j+1 >= len(text) || text[j+1] == '|' || text[j+1] == '=' {
		return 0, 0, false
	}
	k := n.start
	for k > 0 && (space(text[k-1]) || text[k-1] == '`' || text[k-1] == '*') {
		k--
	}
	if k == 0 || text[k-1] != '|' {
		return 0, 0, false
	}
	s := run(text, j+1, func(b byte) bool { return space(b) || b == '`' || b == '*' })
	e := run(text, s, func(b byte) bool { return b > ' ' && b != '|' && b != '`' })
	if r := run(text, e, func(b byte) bool { return space(b) || b == '`' }); e == s || r >= len(text) || text[r] != '|' {
		return 0, 0, false
	}
	return s, e, plausibleQuoted(text[s:e], n, opTuple)
}

type op int

const (
	opNone    op = iota
	opEqual      // =
	opColon      // :
	opCode       // := => ->
	opTuple      // , or ( before a quoted value
	opCompare    // == or === before one
)

// operator reads an assignment operator at j.
func operator(text []byte, j int) (op, int) {
	at := func(i int) byte {
		if i < len(text) {
			return text[i]
		}
		return 0
	}
	switch text[j] {
	case '=':
		switch at(j + 1) {
		case '=':
			if at(j+2) == '=' {
				return opCompare, j + 3
			}
			return opCompare, j + 2
		case '~':
			return opNone, j
		case '>':
			return opCode, j + 2
		}
		return opEqual, j + 1
	case ':':
		switch {
		case at(j+1) == '=':
			return opCode, j + 2
		case at(j+1) == ':' && at(j+2) == '=':
			return opCode, j + 3
		case at(j+1) == ':' && at(j+2) == ':' && at(j+3) == '=':
			return opCode, j + 4
		case at(j+1) == ':':
			return opNone, j
		}
		return opColon, j + 1
	case '?', '+', '.', '|':
		if at(j+1) == '=' {
			return opEqual, j + 2
		}
		if at(j+1) == '|' && at(j+2) == '=' {
			return opEqual, j + 3
		}
	case '-':
		if at(j+1) == '>' {
			return opCode, j + 2
		}
	case ',', '(':
		return opTuple, j + 1
	case 0xef: // ： the full width colon
		if at(j+1) == 0xbc && at(j+2) == 0x9a {
			return opColon, j + 3
		}
	}
	return opNone, j
}

// pairValue finds V in key="NAME" value="V", {"name": "NAME", "value": "V"},
// and the two lines of YAML.
func pairValue(c *redact.Candidate, i int, n *name, quote byte) (int, int, bool) {
	text := c.Text()
	// NAME itself has to be a value: after a quote or a colon or an equals sign.
	k := n.start - 1
	if quote != 0 && k >= 0 && text[k] == quote {
		k--
	}
	for k >= 0 && space(text[k]) {
		k--
	}
	if k < 0 || text[k] != ':' && text[k] != '=' && text[k] != '>' {
		return 0, 0, false
	}
	if quote == 0 && i < len(text) && text[i] == ',' && bytes.IndexByte(text[n.start:n.end], '.') > 0 {
		return 0, 0, false // Type: token.Word, Value: "…"
	}
	j := i
	for m := 0; j < len(text) && m < 60 && (blank(text[j]) || text[j] == ',' || text[j] == ';' || text[j] == '-'); m++ {
		if text[j] == '\n' {
			j = content(text, j+1)
			continue
		}
		j++
	}
	if quote != 0 {
		if s, e, ok := pairBefore(text, k, n); ok {
			return s, e, true
		}
	}
	if j == i || j >= len(text) {
		return 0, 0, false
	}
	if quote == '"' {
		j = pastMembers(text, j)
	}
	if text[j] == '"' || text[j] == '\'' {
		j++
	}
	const value = "value"
	if len(text)-j < len(value)+2 || !bytes.EqualFold(text[j:j+len(value)], []byte(value)) {
		return 0, 0, false
	}
	j += len(value)
	if text[j] == '"' || text[j] == '\'' {
		j++
	}
	for j < len(text) && space(text[j]) {
		j++
	}
	if j >= len(text) || text[j] != ':' && text[j] != '=' {
		return 0, 0, false
	}
	j++
	for j < len(text) && space(text[j]) {
		j++
	}
	if j >= len(text) {
		return 0, 0, false
	}
	if text[j] == '"' || text[j] == '\'' {
		s, e, ok := quotedValue(text, j)
		return s, e, ok && (plausibleQuoted(text[s:e], n, opEqual) || n.class == passwordKey && e-s >= 4 && word(text[s:e]) && !shape.Placeholder(text[s:e]) && !known(text[s:e]))
	}
	e := c.RunEnd(j, maxValue, runPair, tokenClass, func(text []byte, e int) bool {
		return text[e] != '\n' && text[e] != '\r' && text[e] != '"' && text[e] != ',' && text[e] != '}'
	})
	for n := 0; n < deciding && e > j && space(text[e-1]); n++ {
		e--
	}
	v := head(text[j:e])
	return j, e, len(v) >= 4 && !shape.Placeholder(v) && !call(v) && !word(v) && v[0] != '{' && v[0] != '[' && v[0] != '`' && !pathLike(v) && !(bytes.IndexByte(v, ' ') > 0 && (sentence(v) || bytes.Contains(v, []byte(" | "))))
}

// pastMembers goes over members that stand between a name and its value, as in
// {"name": "X", "type": "text", "value": "V"}.
func pastMembers(text []byte, i int) int {
	j := i
	for n := 0; n < 4 && j < len(text) && text[j] == '"'; n++ {
		s, e, ok := quotedValue(text, j)
		if !ok || e-s > 40 {
			return i
		}
		if bytes.EqualFold(text[s:e], []byte("value")) {
			return j
		}
		j = run(text, e+1, blankByte)
		if j >= len(text) || text[j] != ':' {
			return i
		}
		if j = run(text, j+1, blankByte); j < len(text) && text[j] == '"' {
			if s, e, ok = quotedValue(text, j); !ok && j+1 < len(text) && text[j+1] != '"' {
				return i
			}
			if j = e + 1; !ok {
				j = s + 1
			}
		} else {
			j = run(text, j, func(b byte) bool { return alnum(b) || b == '.' || b == '-' || b == '+' })
		}
		if j = run(text, j, blankByte); j >= len(text) || text[j] != ',' {
			return i
		}
		j = run(text, j+1, blankByte)
	}
	return i
}

// quotedValue finds the end of the quoted text at j, on its line, or where the
// text was cut.
func quotedValue(text []byte, j int) (start, end int, ok bool) {
	q := text[j]
	start = j + 1
	for i := start; i < len(text) && i-start < maxValue; i++ {
		switch text[i] {
		case '\\':
			i++
		case '\n':
			return start, i, i > start && cutMark(text[i:]) && opens(text, j)
		case q:
			return start, i, i > start
		}
	}
	return start, len(text), start < len(text) && len(text)-start < maxValue && opens(text, j)
}

// opens reports whether the quote at j begins a text rather than ending one, as
// in prompt("Password: ").
func opens(text []byte, j int) bool {
	if j+1 < len(text) && bytes.IndexByte([]byte(")]};,"), text[j+1]) >= 0 {
		return false
	}
	odd := false
	for i := j - 1; i >= 0 && i > j-256 && text[i] != '\n'; i-- {
		if text[i] == text[j] && (i == 0 || text[i-1] != '\\') {
			odd = !odd
		}
	}
	return !odd
}

// cutMark reports whether all that is left says that more was there.
func cutMark(rest []byte) bool {
	if len(rest) > 120 {
		return false
	}
	rest = bytes.ToLower(bytes.TrimSpace(rest))
	if len(rest) == 0 {
		return false
	}
	if bytes.HasPrefix(rest, []byte("...")) || bytes.HasPrefix(rest, []byte("…")) {
		return true
	}
	switch rest[0] {
	case '[', '(', '<', '{', '-', '*', '#':
		for _, w := range [...]string{"truncat", "omitted", "elided", "clipped", "cut off", "snip", "more "} {
			if bytes.Contains(rest, []byte(w)) {
				return true
			}
		}
	}
	return false
}

func trimmed(text []byte, s, e int, n *name) (int, int, bool) {
	for s < e && blank(text[s]) {
		s++
	}
	for e > s && blank(text[e-1]) {
		e--
	}
	return s, e, s < e && plausibleQuoted(text[s:e], n, opEqual)
}

// yamlBlock takes the first line of a block: key: |\n  value.
func yamlBlock(text []byte, j int, n *name) (int, int, bool) {
	nl := bytes.IndexByte(text[j:min(len(text), j+8)], '\n')
	if nl < 0 {
		return 0, 0, false
	}
	s := content(text, j+nl+1)
	e := s
	for e < len(text) && text[e] != '\n' && text[e] != '\r' && e-s < maxValue {
		e++
	}
	if e == s || !secretish(text[s:e]) {
		return 0, 0, false
	}
	return s, e, true
}

// wordValue finds a value that only a space separates from its name:
// --password V, netrc's password V, ENV NAME V.
func wordValue(text []byte, i int, n *name) (int, int, bool) {
	j := i
	for j < len(text) && space(text[j]) && j-i < 10 {
		j++
	}
	if j < len(text) && text[j] == '\\' && n.flag {
		if k := lineBreak(text, j); k > 0 {
			j = k
		}
	}
	if j == i || j >= len(text) {
		return 0, 0, false
	}
	netrc := n.class == passwordKey && !n.flag && netrcBefore(text, n.start)
	env := n.upper && envBefore(text, n.start) || setBefore(text, n.start)
	for _, f := range [...]string{"-Value ", "--value ", "--body ", "-b"} { // Set-Item Env:NAME -Value V, gh secret set NAME --body V
		if bytes.HasPrefix(text[j:], []byte(f)) {
			env = true
			j = run(text, j+len(f), space)
			break
		}
	}
	if j >= len(text) {
		return 0, 0, false
	}
	if q := text[j]; q == '\'' && n.class == passwordKey && roleBefore(text, n.start) || q == '"' && bytes.HasSuffix(text[:n.start], []byte("#define ")) {
		s, e, ok := quotedValue(text, j)
		return s, e, ok && plausibleQuoted(text[s:e], n, opEqual)
	}
	if !n.flag && !netrc && !env {
		return 0, 0, false
	}
	if n.flag && !(n.start >= 2 && text[n.start-1] == '-') {
		return 0, 0, false
	}
	if q := text[j]; q == '"' || q == '\'' {
		s, e, ok := quotedValue(text, j)
		return s, e, ok && !shape.Placeholder(text[s:e])
	}
	e := j
	for e < len(text) && !blank(text[e]) && text[e] != '"' && text[e] != '\'' && text[e] != '`' && e-j < maxValue && !escapeStop(text, e) {
		e++
	}
	v := text[j:e]
	if len(v) == 0 || v[0] == '-' && n.flag || shape.Placeholder(v) {
		return 0, 0, false
	}
	if netrc {
		// A plain word is a password in a netrc, and goes on with a sentence elsewhere.
		return j, e, !comparison(v) && (!word(v) || bytes.Contains(text[max(0, n.start-200):n.start], []byte("machine ")))
	}
	if len(v) < 4 || word(v) || v[0] == '[' || v[0] == '<' || v[0] == '|' || v[0] == '>' || v[0] == '/' || pathLike(v) {
		return 0, 0, false
	}
	return j, e, true
}

func comparison(v []byte) bool {
	switch string(v) {
	case "!=", "==", "=", "&&", "||", "===", "!==", ":", "=>", ">", "<":
		return true
	}
	return false
}

func netrcBefore(text []byte, at int) bool {
	lo := max(0, at-200)
	return bytes.Contains(text[lo:at], []byte("login ")) || bytes.Contains(text[lo:at], []byte("machine "))
}

// roleBefore: CREATE USER x WITH PASSWORD 'V', ALTER ROLE x PASSWORD 'V'.
func roleBefore(text []byte, at int) bool {
	before := bytes.ToLower(text[max(0, at-160):at])
	if i := bytes.LastIndexByte(before, ';'); i >= 0 {
		before = before[i:]
	}
	for _, w := range [...]string{"user ", "role ", "group ", "login ", "server ", "set "} {
		if bytes.Contains(before, []byte(w)) {
			return true
		}
	}
	return false
}

// setBefore: aws configure set NAME V, npm config set //host/:NAME V.
func setBefore(text []byte, at int) bool {
	if at > 0 && text[at-1] == ':' {
		at = runBack(text, at, 120, func(b byte) bool { return b > ' ' && b != '"' && b != '\'' && b < 0x80 })
	}
	for _, w := range [...]string{"configure set ", "config set ", "secrets set ", "secret set ", "env set ", "git config ", "config --global ", "config --local ", "config --system "} {
		if at >= len(w) && string(text[at-len(w):at]) == w {
			return true
		}
	}
	return false
}

func envBefore(text []byte, at int) bool {
	for _, w := range [...]string{"ENV ", "ARG ", "setenv ", "setx ", "set -gx ", "set -x "} {
		if at >= len(w) && string(text[at-len(w):at]) == w {
			return true
		}
	}
	return false
}

// word reports whether v is letters, as words and identifiers are, and does
// not change its case as often as a generated value.
func word(v []byte) bool {
	for _, c := range v {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '-', c == '_', c == '.', c >= 0x80:
		default:
			return false
		}
	}
	return !shape.Dense(v)
}

func pathLike(v []byte) bool {
	if v[0] == '/' {
		first := v[1:]
		if i := bytes.IndexByte(first, '/'); i >= 0 {
			first = first[:i]
		}
		return len(first) > 0 && len(first) <= 16 && lowerWord(first) || bytes.HasSuffix(v, []byte(".key")) || bytes.HasSuffix(v, []byte(".pem"))
	}
	return bytes.HasPrefix(v, []byte("./")) || bytes.HasPrefix(v, []byte("../")) ||
		bytes.HasPrefix(v, []byte("~/")) || bytes.Contains(v, []byte("://"))
}

// plausibleQuoted decides about a quoted value.
func plausibleQuoted(v []byte, n *name, o op) bool {
	if len(v) < 3 || shape.Placeholder(v) || shape.Version(v) || bytes.Contains(v, []byte(`\u`)) && encoded(v) || v[0] < ' ' || v[0] == '\\' && bytes.IndexByte([]byte("x0e"), v[min(1, len(v)-1)]) >= 0 {
		return false
	}
	if w := bytes.TrimRight(v, "=:"); len(w) < len(v) && len(w) > 0 && word(w) {
		return false // the beginning of something that a program writes: "Credential="
	}
	if o == opTuple || o == opCompare {
		return secretish(v) || n.class == passwordKey && len(v) >= 6 && !word(v) && bytes.IndexByte(v, ' ') < 0 && !formatted(v)
	}
	if bytes.IndexByte(v, ' ') >= 0 {
		// A sentence is a description, unless it is assigned as in a shell.
		return n.upper && o == opEqual && n.class == passwordKey && bytes.Count(v, []byte{' '}) < 8 || !sentence(v) && secretWords(v)
	}
	if formatted(v) {
		return false
	}
	switch n.class {
	case passwordKey:
		if word(v) {
			return len(v) >= 6 && !known(v) && (o != opCode || !n.quoted) && !similar(v, n) && lowerWord(v) && configLike(n, o)
		}
		return !similar(v, n) && !pathLike(v)
	case authKey:
		return secretish(v)
	}
	if word(v) || pathLike(v) || similar(v, n) {
		return len(v) >= 20 && shape.RandomLooking(v)
	}
	return len(v) >= 6 && tokenish(v) && !snakeName(v)
}

// snakeName: words of lower case with underscores, one of which has a digit.
func snakeName(v []byte) bool {
	digits, joints := 0, 0
	for _, c := range v {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case c == '_':
			joints++
		case c < 'a' || c > 'z':
			return false
		}
	}
	return joints > 0 && digits <= 1
}

// configLike says that the assignment is one of a configuration rather than
// of a program.
func configLike(n *name, o op) bool { return o == opEqual || o == opColon && n.quoted }

func lowerWord(v []byte) bool {
	for _, c := range v {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

func known(v []byte) bool { return knownWords[string(bytes.ToLower(v))] }

var knownWords = set("password", "passwd", "secret", "token", "username", "string", "required", "optional", "invalid", "incorrect", "field", "input",
	"hidden", "text", "value", "credentials", "keyring", "plaintext", "encrypted", "hashed", "prompt", "stdin", "default", "disabled", "enabled", "bcrypt", "scrypt", "argon")

// similar: password = "password", token: "access_token".
func similar(v []byte, n *name) bool {
	if len(v) > 64 {
		return false
	}
	for _, c := range v {
		if '0' <= c && c <= '9' {
			return false
		}
	}
	var w words
	w.split(v)
	for _, c := range v {
		if !nameByte(c) {
			return false
		}
	}
	if n.class == passwordKey && w.n == 1 {
		return known(v) || bytes.EqualFold(v, []byte("pwd")) || bytes.EqualFold(v, []byte("passphrase"))
	}
	return w.classify(w.n) > noSecret || w.n > 1 && w.classify(w.n-1) > noSecret
}

// formatted: format strings, expressions, addresses.
func formatted(v []byte) bool {
	return bytes.Contains(v, []byte("${")) || bytes.Contains(v, []byte("{{")) || bytes.HasPrefix(v, []byte("%")) && len(v) <= 4 ||
		v[0] == '{' && v[len(v)-1] == '}' || v[0] == '<' && v[len(v)-1] == '>' || (verb(v, 's') || verb(v, 'v')) && !shape.RandomLooking(v) ||
		bytes.Contains(v, []byte("://")) && bytes.IndexByte(v, '@') < 0 && len(v) > 20
}

// verb: a format verb, and not the two characters inside a password.
func verb(v []byte, c byte) bool {
	for i := 0; i+1 < len(v); i++ {
		if v[i] == '%' && v[i+1] == c && (i+2 == len(v) || !alnum(v[i+2])) {
			return true
		}
	}
	return false
}

// sentence: several words of letters.
func sentence(v []byte) bool {
	words, plain := 0, 0
	for _, w := range bytes.Fields(v) {
		words++
		if word(bytes.Trim(w, ".,:;!?()'\"")) {
			plain++
		}
	}
	return words >= 2 && plain*3 >= words*2
}

func secretWords(v []byte) bool {
	f := bytes.Fields(v)
	return len(f) <= 4 && secretish(bytes.Join(f, nil))
}

// tokenish accepts a machine's value in text: digits among letters, or a long
// mixture of cases, but no version, date, number with a unit.
func tokenish(v []byte) bool {
	digits, letters, other := 0, 0, 0
	for _, c := range v {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			letters++
		case c >= 0x80 || c <= ' ':
			return false
		default:
			other++
		}
	}
	if digits == 0 {
		return shape.RandomLooking(v) || other > 0 && letters > 0 && len(v) >= 8 && bytes.ContainsAny(v, "=+/!@#$^&*~") && !bytes.ContainsAny(v, "()[]{}<>,;:\\")
	}
	if letters == 0 {
		return digits >= 4 && other == 0
	}
	return !bytes.ContainsAny(v, "()[]{}<>,;\\\"") || shape.RandomLooking(v) && len(v) >= 16
}

// bareValue reads a value without quotes at j and decides about it.
func bareValue(c *redact.Candidate, j int, n *name, o op, spaced bool) (int, int, bool) {
	text := c.Text()
	prev := byte(0)
	if n.start > 0 {
		prev = text[n.start-1]
	}
	query := o == opEqual && !spaced && (prev == '?' || prev == '&' || prev == ';' || pairsBefore(text, n.start))
	shell := o == opEqual && !spaced && (n.upper || n.flag)
	e := j
	if n.start == 0 && o == opEqual && n.class == passwordKey && len(text) < 256 && !bytes.ContainsAny(text, " \n\r;&") {
		// The string is NAME=value as a whole, as in a list of environment
		// variables: quotes belong to the value.
		return j, len(text), len(text)-j >= 4 && !shape.Placeholder(text[j:]) && !call(text[j:]) && (!word(text[j:]) || lowerWord(text[j+1:]) && !known(text[j:]) && !similar(text[j:], n))
	}
	class := runBare
	if query {
		class++
	}
	if shell {
		class += 2
	}
	e = c.RunEnd(j, maxValue, class, tokenClass, func(text []byte, e int) bool { return bareByte(text, e, query, shell) })
	v := text[j:e]
	for len(v) > 0 {
		last := v[len(v)-1]
		if near := v[max(0, len(v)-deciding):]; last == ')' && bytes.IndexByte(near, '(') < 0 || last == ']' && bytes.IndexByte(near, '[') < 0 || last == '}' && bytes.IndexByte(near, '{') < 0 {
			v = v[:len(v)-1]
			if e-j-len(v) < deciding {
				continue
			}
		}
		break
	}
	if len(v) > 1 && v[len(v)-1] == '\\' {
		v = v[:len(v)-1]
	}
	e = j + len(v)
	// What decides about a long value stands at its beginning.
	v = head(v)
	if n.class == passwordKey && !query && o != opCode && plainPassword(text, j, e, n, o, spaced) {
		return j, e, true
	}
	if !query && encoded(v) {
		return 0, 0, false
	}
	if !query && len(v) > 0 && v[0] == '+' && plusWords(v) {
		return 0, 0, false
	}
	if len(v) < 3 || !query && !shell && (word(v) || call(v)) || shape.Placeholder(v) || pathLike(v) || formatted(v) {
		return 0, 0, false
	}
	if len(v) < 20 && hexNumber(v) {
		return 0, 0, false
	}
	if n.class == pluralKey || n.class == tokenKey {
		if allDigits(v) {
			return j, e, n.class == tokenKey && len(v) >= 4 && !(o == opCode)
		}
	}
	switch {
	case query || shell:
		if n.class == authKey {
			return j, e, secretish(v)
		}
		if call(v) {
			return 0, 0, false
		}
		if word(v) {
			return j, e, n.class == passwordKey && len(v) >= 5 && !known(v) && !similar(v, n) && (query && prev != ' ' || lowerWord(v) || changes(v) >= 3)
		}
		if n.class == passwordKey {
			return j, e, len(v) >= 4
		}
		return j, e, len(v) >= 6 && tokenish(v)
	}
	if call(v) || word(v) || n.class == authKey && !secretish(v) || allDigits(v) && n.class != tokenKey && len(v) < 4 {
		return 0, 0, false
	}
	if dot := bytes.IndexByte(v, '.'); shape.Version(v) || dot > 0 && dot+1 < len(v) && v[dot+1] > '9' && codeWord(v) && !shape.Dense(v) {
		return 0, 0, false
	}
	if n.start > 1 && text[n.start-1] == '{' && text[n.start-2] == '$' && n.class == passwordKey && e < len(text) && text[e] == '}' { // ${NAME:V}
		return j, e, len(v) >= 5 && tokenish(v)
	}
	if o == opCode && n.start > 0 && text[n.start-1] == '[' && n.class == passwordKey && lineEnd(text, e) == e { // [NAME] => V, of print_r
		return j, e, len(v) >= 5 && tokenish(v)
	}
	if codeWord(v) && !shape.Dense(v) && !(o == opColon && lineValue(text, n.start, e)) && !(o == opEqual && (!spaced || lineValue(text, n.start, e)) && shape.RandomLooking(v)) {
		return 0, 0, false
	}
	if o == opCode {
		return j, e, len(v) >= 12 && shape.RandomLooking(v)
	}
	if n.class == passwordKey {
		return j, e, len(v) >= 5 && (tokenish(v) || symbols(v))
	}
	return j, e, len(v) >= 6 && tokenish(v) && (!spaced || len(v) >= 8 || lineValue(text, n.start, e))
}

// plainPassword accepts a plain word as a password where name and value are a
// line of a configuration: YAML, .env, ini below a [section]. In a program the
// same line stands among others that end in a comma or a bracket, or assigns
// with spaces around the sign.
func plainPassword(text []byte, j, e int, n *name, o op, spaced bool) bool {
	v := text[j:e]
	if len(v) < 4 || len(v) > 64 || !word(v) || known(v) || shape.Placeholder(v) || similar(v, n) || nameOnly[string(bytes.ToLower(text[n.start:n.end]))] {
		return false
	}
	upper, joints := 0, 0
	for i, c := range v {
		switch {
		case 'A' <= c && c <= 'Z' && i > 0:
			upper++
		case c == '-':
			joints++
		case c == '_' || c == '.' || c >= 0x80:
			return false
		}
	}
	if upper > 0 || joints == 1 || joints == 2 || !lineValue(text, n.start, e) {
		return false
	}
	line := bytes.LastIndexByte(text[:n.start], '\n')
	prev := bytes.TrimRight(text[max(0, line-256):max(0, line)], " \t\r\n")
	if len(prev) > 0 && bytes.IndexByte([]byte(",({[&|\\"), prev[len(prev)-1]) >= 0 {
		return false
	}
	if o == opColon {
		return spaced && (n.quoted || lowerOrUpper(text[n.start:n.end]))
	}
	if !spaced {
		return o == opEqual
	}
	return o == opEqual && sectionBefore(prev)
}

// nameOnly are names that mean something else as often when a word follows.
var nameOnly = set("pwd", "pass")

// lowerOrUpper: keys of configurations have one case; a label in prose is
// capitalised.
func lowerOrUpper(b []byte) bool {
	return 'a' <= b[0] && b[0] <= 'z' || bytes.Equal(b, bytes.ToUpper(b))
}

// sectionBefore reports whether a line before is [name] of an ini file.
func sectionBefore(b []byte) bool {
	for len(b) > 0 {
		i := bytes.LastIndexByte(b, '\n')
		l := bytes.TrimSpace(b[content(b, i+1):])
		if len(l) > 2 && l[0] == '[' && l[len(l)-1] == ']' && bytes.IndexByte(l, ',') < 0 && bytes.IndexByte(l, '"') < 0 {
			return true
		}
		b = b[:max(i, 0)]
	}
	return false
}

// plusWords: what stands between plus signs are words or an expression: form
// encoding, of which only the percent signs are decoded here.
func plusWords(v []byte) bool {
	w := bytes.TrimLeft(v, "+")
	if len(w) == 0 || call(w) || shape.Placeholder(w) {
		return true
	}
	for len(w) > 0 {
		i := bytes.IndexByte(w, '+')
		if i < 0 {
			i = len(w)
		}
		if p := bytes.Trim(w[:i], ".,:;!?"); len(p) > 0 && !word(p) {
			return false
		}
		w = w[min(i+1, len(w)):]
	}
	return true
}

// encoded: the value holds blanks, quotes or letters beyond ASCII in an
// encoded form: this is not the text yet, and the decoded one is looked at too.
func encoded(v []byte) bool {
	for i := 0; i+2 < len(v); i++ {
		switch v[i] {
		case '%':
			switch v[i+1] {
			case '2':
				if c := v[i+2]; c == '0' || c == '2' || c == '7' || c == '8' || c == '9' || c|0x20 == 'a' {
					return true
				}
			case '0':
				if c := v[i+2] | 0x20; c == 'a' || c == 'd' || v[i+2] == '9' {
					return true
				}
			case 'c', 'C', 'd', 'D', 'e', 'E': // the first byte of a letter, and the next
				if hexByte(v[i+2]) && i+4 < len(v) && v[i+3] == '%' && (v[i+4] == '8' || v[i+4] == '9' || v[i+4]|0x20 == 'a' || v[i+4]|0x20 == 'b') {
					return true
				}
			}
		case '\\':
			if v[i+1] == 'u' && i+5 < len(v) && shape.Hex(v[i+2:i+6]) {
				return true
			}
		}
	}
	return false
}

// escapeStop: a line end or quote in text that is still escaped, perhaps more
// than once.
func escapeStop(text []byte, i int) bool {
	if text[i] != '\\' {
		return false
	}
	for n := 0; n < 8 && i < len(text) && text[i] == '\\'; n++ {
		i++
	}
	return i < len(text) && (text[i] == 'n' || text[i] == 'r' || text[i] == '"' || text[i] == '\'')
}

// hexNumber: 0x2a, -0x2A.
func hexNumber(v []byte) bool {
	if len(v) > 1 && v[0] == '-' {
		v = v[1:]
	}
	return len(v) > 2 && v[0] == '0' && (v[1] == 'x' || v[1] == 'X') && shape.Hex(v[2:])
}

// changes counts how often the case changes.
func changes(v []byte) int {
	n := 0
	for i := 1; i < len(v); i++ {
		if ('a' <= v[i] && v[i] <= 'z') != ('a' <= v[i-1] && v[i-1] <= 'z') {
			n++
		}
	}
	return n
}

// pairsBefore reports whether a name=value pair stands right before, as in
// libpq's connection strings.
func pairsBefore(text []byte, at int) bool {
	if at < 2 || text[at-1] != ' ' {
		return false
	}
	i := at - 1
	for n := 0; i > 0 && n < 128 && !blank(text[i-1]) && text[i-1] != '"' && text[i-1] != '\''; n++ {
		i--
	}
	eq := bytes.IndexByte(text[i:at-1], '=')
	if eq < 2 {
		return false
	}
	switch string(text[i : i+eq]) {
	case "host", "port", "dbname", "user", "hostaddr", "sslmode", "server", "uid", "username", "database", "User", "Id", "login":
		return true
	}
	return false
}

// bareByte reports whether a value without quotes goes on at e.
func bareByte(text []byte, e int, query, shell bool) bool {
	switch ch := text[e]; {
	case ch <= ' ', ch == '"', ch == '\'', ch == '`', ch == ';', ch == '<', ch == '>', ch == '|', ch == 0x7f:
		return false
	case ch == '\\':
		return !escapeStop(text, e)
	case ch == '&':
		return !query && !reference(text[e:]) && !(e+1 < len(text) && (text[e+1] == '&' || nameByte(text[e+1]) && bytes.IndexByte(text[e:min(len(text), e+40)], '=') > 0))
	case ch == ',':
		return shell && e+1 < len(text) && !blank(text[e+1])
	case ch >= 0x80:
		return !cjkPunctuation(text[e:])
	}
	return true
}

// reference: a character reference of markup, which is one of a quote or
// bracket here; the decoded text has the value.
func reference(b []byte) bool {
	for _, r := range [...]string{"&quot;", "&apos;", "&lt;", "&gt;"} {
		if len(b) >= len(r) && string(b[:len(r)]) == r {
			return true
		}
	}
	if len(b) < 4 || b[1] != '#' {
		return false
	}
	i := 2
	for i < len(b) && i < 9 && (hexByte(b[i]) || b[i]|0x20 == 'x') {
		i++
	}
	return i > 2 && i < len(b) && b[i] == ';'
}

func symbols(v []byte) bool {
	return bytes.ContainsAny(v, "!@#$%^&*+=~/?") && len(v) >= 6 && !bytes.ContainsAny(v, "()[]{}")
}

func allDigits(v []byte) bool {
	for _, c := range v {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(v) > 0
}

// call: an expression of a program rather than a value.
func call(v []byte) bool {
	i := 0
	for i < len(v) && (nameByte(v[i]) && v[i] < 0x80 && v[i] != '-' || v[i] == ':' || v[i] == '>') {
		i++
	}
	if i > 0 && i < len(v) && (v[i] == '(' || v[i] == '[' || v[i] == '{') && '9' < v[0] {
		return true
	}
	return v[0] == '(' || v[0] == '[' || v[0] == '{' || v[0] == '&' && len(v) > 1 && ('a' <= v[1]|0x20 && v[1]|0x20 <= 'z') || (v[0] == '*' || v[0] == '!' || v[0] == ':') && word(v[1:])
}

// codeWord: an identifier, perhaps with a digit in it, or a dotted path of
// identifiers.
func codeWord(v []byte) bool {
	digits := 0
	for i, c := range v {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
		case c == '.' && i > 0:
		case '0' <= c && c <= '9' && i > 0:
			digits++
		default:
			return false
		}
	}
	return digits <= 3 || len(v) < 12
}

// lineValue says that name and value are a line of their own, as in YAML or
// ini: nothing but indentation, a list dash, a diff sign or curl's > before,
// nothing after.
func lineValue(text []byte, nameStart, end int) bool {
	if q := nameStart - 1; q >= 0 && end < len(text) && text[q] == text[end] && (text[end] == '"' || text[end] == '\'') {
		return true // a string of its own
	}
	for end < len(text) && text[end] != '\n' && text[end] != '\r' {
		if !space(text[end]) {
			return text[end] == '#' && space(text[end-1])
		}
		end++
	}
	i := nameStart - 1
	if i >= 0 && (text[i] == '"' || text[i] == '\'') {
		i--
	}
	for i >= 0 && (space(text[i]) || text[i] == '-' || text[i] == '+' || text[i] == '>' || text[i] == '<') {
		i--
	}
	return i < 0 || text[i] == '\n' || text[i] == '\r' || beginsLine(text, i+1) || beginsLine(text, nameStart)
}

func cjkPunctuation(b []byte) bool {
	if len(b) < 3 {
		return false
	}
	// U+3000..U+303F and the full width forms.
	return b[0] == 0xe3 && b[1] == 0x80 || b[0] == 0xef && (b[1] == 0xbc || b[1] == 0xbd)
}
