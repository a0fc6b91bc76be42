package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written as 512, 64KiB, 1MiB, 10GiB, 1TiB, or with
// the decimal units kB, MB, GB, TB.
type Size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1}, {"", 1},
}

// ParseSize reads a size such as 1MiB.
func ParseSize(s string) (Size, error) {
	digits := strings.TrimRight(s, "KMGTkiB")
	digits = strings.TrimSpace(digits)
	unit := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(s), digits))
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("is not a size; write a whole number with a unit, such as 512KiB, 1MiB or 10GiB")
	}
	for _, u := range sizeUnits {
		if u.suffix != unit {
			continue
		}
		if n > math.MaxInt64/u.factor {
			return 0, errors.New("is larger than a size can be")
		}
		return Size(n * u.factor), nil
	}
	return 0, fmt.Errorf("has an unknown unit %q; write KiB, MiB, GiB or TiB", unit)
}

// String writes the size with the largest unit that keeps it whole.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		u := sizeUnits[i]
		if s > 0 && int64(s)%u.factor == 0 {
			return strconv.FormatInt(int64(s)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("is not a duration; write it with a unit, such as 500ms, 10s or 30m")
	}
	if d <= 0 {
		return 0, errors.New("must be more than zero")
	}
	return d, nil
}

// expand replaces ${env:NAME} and ${env:NAME:-default} in a scalar. What comes
// in is not looked at again, so a variable cannot bring in another one. $${ is
// a literal ${. tainted is true when something came from the environment: such
// a value must not be shown.
func expand(s string, lookup func(string) (string, bool)) (out string, tainted bool, err error) {
	if !strings.Contains(s, "${") {
		return s, false, nil
	}
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), tainted, nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1])
			b.WriteString("${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		s = s[i+2:]
		end := strings.IndexByte(s, '}')
		if end < 0 {
			return "", tainted, errors.New("has a ${ without its }; write ${env:NAME}, ${env:NAME:-default}, or $${ for the characters themselves")
		}
		ref := s[:end]
		s = s[end+1:]
		name, isEnv := strings.CutPrefix(ref, "env:")
		name, def, hasDefault := strings.Cut(name, ":-")
		if !isEnv || !validEnvName(name) {
			return "", tainted, errors.New("has a ${…} that is not understood; write ${env:NAME}, ${env:NAME:-default}, or $${ for the characters themselves")
		}
		v, ok := lookup(name)
		if (!ok || v == "") && hasDefault {
			b.WriteString(def)
			continue
		}
		if !ok {
			return "", tainted, fmt.Errorf("needs the environment variable %s, which is not set; set it, or give a default with ${env:%s:-…}", name, name)
		}
		b.WriteString(v)
		tainted = true
	}
}

func validEnvName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// resolvePath expands a leading ~ and makes a relative path one below base.
func resolvePath(p, base string) (string, error) {
	if p == "" {
		return "", nil
	}
	if p == "~" || strings.HasPrefix(p, "~/") || strings.HasPrefix(p, `~\`) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("starts with ~, and there is no home directory (HOME is not set)")
		}
		return filepath.Join(home, p[1:]), nil
	}
	if !filepath.IsAbs(p) && base != "" {
		return filepath.Join(base, p), nil
	}
	return filepath.Clean(p), nil
}
