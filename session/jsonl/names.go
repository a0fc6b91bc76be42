package jsonl

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Name is what the name of a session file says. The format version that counts
// is the one in the header.
type Name struct {
	// Generation is N of session.vN.jsonl, and 0 for session.jsonl.
	Generation int
	// Zstd says that the name ends in .zstd.
	Zstd bool
}

const (
	extRaw  = ".jsonl"
	extZstd = ".jsonl.zstd"

	// LockName is the lock file that some builds keep in a session directory.
	LockName = "session.lock"
	// NoCwdProject is the project directory of sessions without a working
	// directory.
	NoCwdProject = "_no-cwd"

	maxProjectName = 251 // without the dashes around it
)

// String gives the file name.
func (n Name) String() string {
	name := "session"
	if n.Generation > 0 {
		name += ".v" + strconv.Itoa(n.Generation)
	}
	if n.Zstd {
		return name + extZstd
	}
	return name + extRaw
}

// ParseName reads the name of a session file as DSH gives it; ok is false for
// every other name, temporary files and locks included.
func ParseName(name string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(name, "session")
	if !ok {
		return Name{}, false
	}
	rest, ok = cutExt(rest)
	if !ok {
		return Name{}, false
	}
	n.Zstd = strings.HasSuffix(name, extZstd)
	if rest == "" {
		return n, true
	}
	digits, ok := strings.CutPrefix(rest, ".v")
	if !ok || digits == "" || digits[0] < '1' || digits[0] > '9' {
		return Name{}, false
	}
	if n.Generation, ok = atoi(digits); !ok {
		return Name{}, false
	}
	return n, true
}

func atoi(digits string) (int, bool) {
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	v, err := strconv.Atoi(digits)
	return v, err == nil
}

// cutExt cuts the extension of a session file; ok is false without one.
func cutExt(name string) (string, bool) {
	if rest, ok := strings.CutSuffix(name, extZstd); ok {
		return rest, true
	}
	return strings.CutSuffix(name, extRaw)
}

// IsTemporary tells the names of files that a writer has not published yet, and
// of lock files. Nobody but their writer may read them.
func IsTemporary(name string) bool {
	return strings.HasSuffix(name, ".tmp") || name == LockName
}

// ProjectDir gives the directory name of the project at the working directory
// cwd; nil for a session without one. Different directories may share a name.
func ProjectDir(cwd *string) string {
	if cwd == nil {
		return NoCwdProject
	}
	var b strings.Builder
	separator := false
	for _, u := range utf16.Encode([]rune(*cwd)) {
		if u == '/' || u == '\\' || u == ':' {
			separator = true
			continue
		}
		if separator && b.Len() > 0 {
			b.WriteByte('-')
		}
		separator = false
		writeUnit(&b, u, plainUnit(u))
	}
	if separator && b.Len() > 0 {
		b.WriteByte('-')
	}
	name := strings.TrimLeft(b.String(), "-")
	if name == "" {
		name = "root"
	}
	if len(name) > maxProjectName {
		name = name[:maxProjectName]
	}
	return "--" + name + "--"
}

// SessionDir gives the directory name of a session. It is one to one: IDOfDir
// gives the id back.
func SessionDir(id string) string {
	switch id {
	case ".":
		return "~002E"
	case "..":
		return "~002E~002E"
	}
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(id)) {
		writeUnit(&b, u, plainUnit(u))
	}
	return b.String()
}

// IDOfDir gives the session id that a session directory is named for; ok is
// false for a name that SessionDir never gives.
func IDOfDir(name string) (id string, ok bool) {
	units := make([]uint16, 0, len(name))
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c != '~' {
			units = append(units, uint16(c))
			continue
		}
		if i+4 >= len(name) {
			return "", false
		}
		v, err := strconv.ParseUint(name[i+1:i+5], 16, 16)
		if err != nil {
			return "", false
		}
		units = append(units, uint16(v))
		i += 4
	}
	id = string(utf16.Decode(units))
	return id, SessionDir(id) == name && utf8.ValidString(id)
}

func plainUnit(u uint16) bool {
	return u-'a' < 26 || u-'A' < 26 || u-'0' < 10 || u == '.' || u == '_' || u == '-'
}

func writeUnit(b *strings.Builder, u uint16, plain bool) {
	if plain {
		b.WriteByte(byte(u))
		return
	}
	const hex = "0123456789ABCDEF"
	b.Write([]byte{'~', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15]})
}
