package shape

import "bytes"

// Placeholder reports whether a value only stands where a secret would: a
// reference to a variable or a secret store, a template, a mask, "your key
// here", or a word for nothing.
func Placeholder(v []byte) bool {
	v = bytes.TrimSpace(v)
	if len(v) == 0 {
		return true
	}
	switch v[0] {
	case '$':
		// $NAME, ${NAME}, $(command), $1, ${{ secrets.X }}; a password may begin with $.
		if len(v) == 1 || v[1] == '{' || v[1] == '(' {
			return true
		}
		return identifier(v[1:]) && !(len(v) > 12 && mixed(v[1:]))
	case '<':
		return v[len(v)-1] == '>'
	case '%':
		return len(v) > 2 && v[len(v)-1] == '%' && identifier(v[1:len(v)-1]) || len(v) == 2
	case '{':
		return v[len(v)-1] == '}' || bytes.HasPrefix(v, []byte("{{"))
	case '[':
		return v[len(v)-1] == ']' && identifier(bytes.Trim(v, "[] ")) || bytes.HasPrefix(v, []byte("[REDACTED")) || bytes.HasPrefix(v, []byte("[TOKEN:"))
	case '@':
		return len(v) > 2 && v[len(v)-1] == '@'
	case '#':
		return bytes.HasPrefix(v, []byte("#{"))
	}
	if masked(v) {
		return true
	}
	var buf [32]byte
	l := buf[:min(len(v), len(buf))]
	for i := range l {
		c := v[i]
		if 'A' <= c && c <= 'Z' {
			c += 32
		}
		l[i] = c
	}
	if len(v) < len(buf) && nothing[string(l)] {
		return true
	}
	for _, p := range prefixes[l[0]] {
		if bytes.HasPrefix(l, p.text) && (p.reference || !randomTail(v[len(p.text):])) {
			return true
		}
	}
	return bytes.HasSuffix(v, []byte("...")) && len(v) < 16 || bytes.HasSuffix(v, []byte("…")) && len(v) < 16
}

var nothing = words("null", "none", "nil", "undefined", "true", "false", "yes", "no", "n/a", "na", "unknown", "missing", "empty",
	"default", "optional", "required", "redacted", "hidden", "masked", "omitted", "removed", "xxx", "todo", "tbd", "unset", "not set",
	"string", "str", "number", "int", "integer", "boolean", "bool", "object", "array", "any", "bytes", "char", "text", "uuid", "float",
	"enabled", "disabled", "off", "on", "prompt", "ask", "basic", "bearer", "<nil>", "(null)", "\"\"", "''", "nan")

var references = list("process.env", "os.environ", "os.getenv", "system.getenv", "getenv(", "env(", "env[", "env.", "import.meta.env",
	"vault:", "secret://", "secrets.", "op://", "arn:aws:", "ref+", "keyring:", "ssm:", "projects/", "file:", "config.", "settings.",
	"self.", "this.", "ctx.", "cfg.", "args.", "opts.", "options.", "params.", "props.", "req.", "request.", "@microsoft.keyvault")

var instructions = list("your", "<your", "my-", "my_", "insert", "enter", "change", "replace", "put_", "put-", "example", "sample", "dummy",
	"some-", "some_", "the-", "the_", "placeholder", "fixme", "xxxx")

// prefixes holds both by their first byte.
var prefixes = func() (t [256][]struct {
	text      []byte
	reference bool
}) {
	for i, l := range [][][]byte{references, instructions} {
		for _, p := range l {
			t[p[0]] = append(t[p[0]], struct {
				text      []byte
				reference bool
			}{p, i == 0})
		}
	}
	return t
}()

func list(ss ...string) (out [][]byte) {
	for _, s := range ss {
		out = append(out, []byte(s))
	}
	return out
}

func words(ss ...string) map[string]bool {
	m := map[string]bool{}
	for _, s := range ss {
		m[s] = true
	}
	return m
}

func masked(v []byte) bool {
	if len(v) < 3 && (v[0] == 'x' || v[0] == 'X') {
		return false
	}
	for _, c := range v {
		switch c {
		case '*', 'x', 'X', '.', '-', '_', '#', '?', ' ':
		case 0xe2, 0x80, 0xa2, 0xa6, 0xc2, 0xb7, 0x97, 0x8f: // •, …, ·, ●
		default:
			return false
		}
	}
	return true
}

func identifier(v []byte) bool {
	for i, c := range v {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '.' && i > 0, c == '-' && i > 0, c == ' ' && i > 0:
		case '0' <= c && c <= '9':
		default:
			return false
		}
	}
	return len(v) > 0
}

// mixed reports upper case, lower case and digits together.
func mixed(v []byte) bool {
	var lo, up, di bool
	for _, c := range v {
		lo = lo || 'a' <= c && c <= 'z'
		up = up || 'A' <= c && c <= 'Z'
		di = di || '0' <= c && c <= '9'
	}
	return lo && up && di
}

// randomTail says that what follows a word such as "your" or "my_" does not
// read like more words.
func randomTail(v []byte) bool {
	digits, changes := 0, 0
	var last byte
	for _, c := range v {
		k := kind(c)
		if k == 'd' {
			digits++
		}
		if last != 0 && k != last && k != '_' && last != '_' {
			changes++
		}
		last = k
	}
	return digits >= 2 && changes >= 3
}

func kind(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z':
		return 'l'
	case 'A' <= c && c <= 'Z':
		return 'u'
	case '0' <= c && c <= '9':
		return 'd'
	}
	return '_'
}

// RandomLooking reports whether a value reads like generated rather than
// written: digits mixed with letters, changes of case, no words.
func RandomLooking(v []byte) bool {
	if len(v) < 8 {
		return false
	}
	var digits, letters, changes, runs int
	longest, run := 0, 0
	var last byte
	for _, c := range v {
		k := kind(c)
		switch k {
		case 'd':
			digits++
		case 'l', 'u':
			letters++
		}
		if k == 'l' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
		if last != 0 && k != last {
			changes++
		}
		if k == '_' {
			runs++
		}
		last = k
	}
	if digits == 0 {
		// Letters only: many changes of case.
		return letters >= 16 && (changes >= 6 && longest <= 5 || runs == 0 && Dense(v))
	}
	if letters == 0 {
		return false
	}
	return changes >= len(v)/6+1 && (digits >= 2 || changes >= 4)
}

// Version reports whether v is a version or a range of versions, as stands in
// lists of packages whose names may say "password" or "token": ^9.0.2.
func Version(v []byte) bool {
	v = bytes.TrimLeft(v, "~^>=<v ")
	for n := 0; ; n++ {
		d := 0
		for d < len(v) && '0' <= v[d] && v[d] <= '9' {
			d++
		}
		if d == 0 || d > 8 {
			return false
		}
		v = v[d:]
		if n > 0 && (len(v) == 0 || v[0] == '-' || v[0] == '+' || v[0] == ' ') {
			return len(v) < 24
		}
		if len(v) == 0 || v[0] != '.' {
			return false
		}
		v = v[1:]
	}
}

// Dense reports whether a long value changes between lower case, upper case and
// digits more often than names in camel case do.
func Dense(v []byte) bool {
	if len(v) < 16 {
		return false
	}
	changes := 0
	for i := 1; i < len(v); i++ {
		if a, b := kind(v[i-1]), kind(v[i]); a != b && a != '_' && b != '_' {
			changes++
		}
	}
	return changes*5 >= 2*len(v)
}

// Hex reports whether v is hexadecimal throughout.
func Hex(v []byte) bool {
	for _, c := range v {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return len(v) > 0
}

// UUID reports whether v has the form of a UUID.
func UUID(v []byte) bool {
	if len(v) != 36 {
		return false
	}
	for i, c := range v {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if !Hex([]byte{c}) {
			return false
		}
	}
	return true
}
