package session

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrNotFinite says that a number is beyond the range of doubles: JSON can
// write it, but no value has it.
var ErrNotFinite = errors.New("JSON number is beyond the range of a double")

// ErrNegativeZero says that a number is negative zero, which the reference
// does not count as lossless JSON.
var ErrNegativeZero = errors.New("JSON number is negative zero")

// Canonical appends to dst the canonical form of the JSON value raw: RFC 8785
// over the values that telemetry exports. That is: no white space, members
// sorted by UTF-16 code units, the last of duplicate keys, strings with the
// fewest escapes and U+FFFD for lone surrogates, integers within int64 exactly,
// every other number as ECMAScript prints the double.
//
// The errors are a *SyntaxError, ErrNotFinite and ErrDepth; dst comes back as
// it was then.
func Canonical(dst, raw []byte) ([]byte, error) {
	if err := ValidJSON(raw); err != nil {
		return dst, err
	}
	start := len(dst)
	out, err := canonicalForm{}.append(dst, TrimSpace(raw), 0)
	if err != nil {
		return dst[:start], err
	}
	return out, nil
}

type member struct {
	key   []byte // decoded
	value []byte
}

// canonicalForm says what counts as the same value.
type canonicalForm struct {
	// javaScript keeps lone surrogates apart and sees every number as a double.
	javaScript bool
}

func (c canonicalForm) append(dst, raw []byte, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return dst, ErrDepth
	}
	var err error
	switch KindOf(raw) {
	case KindString:
		if c.javaScript {
			return appendStringified(dst, raw), nil
		}
		return appendCanonicalString(dst, raw), nil
	case KindNumber:
		if c.javaScript {
			n, _ := ParseNumber(raw)
			return AppendDouble(dst, n.Float), nil
		}
		return appendNumber(dst, raw)
	case KindArray:
		dst = append(dst, '[')
		first := true
		for a := WalkArray(raw); a.Next(); {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			if dst, err = c.append(dst, a.Value(), depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case KindObject:
		var few [16]member
		dst = append(dst, '{')
		for i, m := range sortedMembers(few[:0], raw) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '"')
			start := len(dst)
			dst = append(dst, m.key...)
			dst = append(quoteTail(dst, start), '"', ':')
			if dst, err = c.append(dst, m.value, depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	default:
		return append(dst, raw...), nil
	}
}

// sortedMembers lists the members that count, sorted as RFC 8785 wants them.
func sortedMembers(list []member, raw []byte) []member {
	for o := WalkObject(raw); o.Next(); {
		k := o.RawKey()
		key := k[1 : len(k)-1]
		if bytes.IndexByte(key, '\\') >= 0 || !utf8.Valid(key) {
			key = AppendString(nil, k)
		}
		list = append(list, member{key, o.Value()})
	}
	slices.SortStableFunc(list, func(a, b member) int { return compareUTF16(a.key, b.key) })
	n := 0
	for i, m := range list {
		if i+1 < len(list) && bytes.Equal(m.key, list[i+1].key) {
			continue // a later duplicate follows
		}
		list[n] = m
		n++
	}
	return list[:n]
}

// compareUTF16 compares valid UTF-8 by UTF-16 code units. It differs from byte
// order only where a character beyond the BMP meets one from U+E000 on.
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) {
		return cmp.Compare(len(a), len(b))
	}
	for i > 0 && !utf8.RuneStart(a[i]) {
		i--
	}
	for i > 0 && !utf8.RuneStart(b[i]) {
		i--
	}
	ra, _ := utf8.DecodeRune(a[i:])
	rb, _ := utf8.DecodeRune(b[i:])
	return cmp.Compare(firstUnit(ra), firstUnit(rb))*2 + cmp.Compare(ra, rb)
}

func firstUnit(r rune) rune {
	if hi, _ := utf16.EncodeRune(r); hi != utf8.RuneError {
		return hi
	}
	return r
}

func appendNumber(dst, raw []byte) ([]byte, error) {
	n, ok := ParseNumber(raw)
	switch {
	case !ok:
		return dst, &SyntaxError{0, "a number"}
	case n.IsInt:
		return strconv.AppendInt(dst, n.Int, 10), nil
	case n.Float-n.Float != 0:
		return dst, ErrNotFinite
	}
	return AppendDouble(dst, n.Float), nil
}

func appendCanonicalString(dst, raw []byte) []byte {
	if in := raw[1 : len(raw)-1]; bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return append(dst, raw...)
	}
	dst = append(dst, '"')
	start := len(dst)
	dst = AppendString(dst, raw)
	return append(quoteTail(dst, start), '"')
}

const hexDigits = "0123456789abcdef"

// quoteTail escapes dst[start:], which holds decoded text, in place.
func quoteTail(dst []byte, start int) []byte {
	tail := dst[start:]
	if plainRun(tail, 0) == len(tail) && utf8.Valid(tail) {
		return dst
	}
	text := bytes.ToValidUTF8(append([]byte(nil), tail...), []byte("\uFFFD"))
	dst = dst[:start]
	for len(text) > 0 {
		n := plainRun(text, 0)
		dst = append(dst, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		switch c := text[0]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		text = text[1:]
	}
	return dst
}

// CheckLossless reports whether the valid JSON value raw is what the reference
// calls lossless: no number in it is negative zero (ErrNegativeZero) or beyond
// the range of a double (ErrNotFinite).
func CheckLossless(raw []byte) error {
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			i = skipString(raw, i)
		case c == '-' || c-'0' < 10:
			end := skipValue(raw, i)
			if err := checkLosslessNumber(raw[i:end]); err != nil {
				return err
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

func checkLosslessNumber(lexeme []byte) error {
	if lexeme[0] != '-' && len(lexeme) < 300 && !bytes.ContainsAny(lexeme, "eE") {
		return nil
	}
	n, ok := ParseNumber(lexeme)
	switch {
	case !ok || n.Float-n.Float != 0:
		return ErrNotFinite
	case n.Float == 0 && lexeme[0] == '-':
		return ErrNegativeZero
	}
	return nil
}
