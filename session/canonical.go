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
	out, err := canonicalForm{}.of(dst, TrimSpace(raw))
	if err != nil {
		return dst, err
	}
	return out, nil
}

// canonicalForm says what counts as the same value.
type canonicalForm struct {
	// javaScript keeps lone surrogates apart and sees every number as a double.
	javaScript bool
}

// of appends the form of one valid value.
func (c canonicalForm) of(dst, raw []byte) ([]byte, error) {
	w := canonicalWriter{form: c, raw: raw}
	if k := KindOf(raw); k == KindObject || k == KindArray {
		var err error
		if w.spans, err = brackets(raw); err != nil {
			return dst, err
		}
	}
	return w.value(dst, 0, 0)
}

// span is one object or array of a value, in the order in which they open:
// where it ends, and which one opens first behind it. With it nobody scans a
// value again to find its end, so that depth costs no more than size.
type span struct{ end, next int }

// brackets lists the spans of a valid value.
func brackets(raw []byte) ([]span, error) {
	var spans []span
	var open []int
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
			continue
		case '{', '[':
			if len(open) > MaxDepth {
				return nil, ErrDepth
			}
			open = append(open, len(spans))
			spans = append(spans, span{})
		case '}', ']':
			at := open[len(open)-1]
			open = open[:len(open)-1]
			spans[at] = span{i + 1, len(spans)}
		}
		i++
	}
	return spans, nil
}

type canonicalWriter struct {
	form  canonicalForm
	raw   []byte
	spans []span
}

// value appends the value at i, whose spans begin with the atth.
func (w *canonicalWriter) value(dst []byte, i, at int) ([]byte, error) {
	switch w.raw[i] {
	case '{':
		return w.object(dst, i, at)
	case '[':
		return w.array(dst, i, at)
	case '"':
		raw := w.raw[i:skipString(w.raw, i)]
		if w.form.javaScript {
			return appendStringified(dst, raw), nil
		}
		return appendCanonicalString(dst, raw), nil
	case 't', 'f', 'n':
		return append(dst, w.raw[i:skipValue(w.raw, i)]...), nil
	}
	raw := w.raw[i:skipValue(w.raw, i)]
	if w.form.javaScript {
		n, _ := ParseNumber(raw)
		return AppendDouble(dst, n.Float), nil
	}
	return appendNumber(dst, raw)
}

// skip returns where the value at i ends and which span opens first behind it.
func (w *canonicalWriter) skip(i, at int) (end, next int) {
	if c := w.raw[i]; c == '{' || c == '[' {
		return w.spans[at].end, w.spans[at].next
	}
	return skipValue(w.raw, i), at
}

func (w *canonicalWriter) array(dst []byte, i, at int) ([]byte, error) {
	end := w.spans[at].end - 1
	dst = append(dst, '[')
	at++
	for i = skipSpace(w.raw, i+1); i < end; {
		var err error
		if dst, err = w.value(dst, i, at); err != nil {
			return dst, err
		}
		i, at = w.skip(i, at)
		if i = skipSpace(w.raw, i); i < end {
			i = skipSpace(w.raw, i+1)
			dst = append(dst, ',')
		}
	}
	return append(dst, ']'), nil
}

// canonicalMember is a member of an object: its decoded key, and its value.
type canonicalMember struct {
	key   []byte
	value int
	at    int
}

func (w *canonicalWriter) object(dst []byte, i, at int) ([]byte, error) {
	var few [16]canonicalMember
	dst = append(dst, '{')
	for n, m := range w.sorted(few[:0], i, at) {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		start := len(dst)
		dst = append(dst, m.key...)
		dst = append(quoteTail(dst, start), '"', ':')
		var err error
		if dst, err = w.value(dst, m.value, m.at); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// sorted lists the members that count, sorted as RFC 8785 wants them.
func (w *canonicalWriter) sorted(list []canonicalMember, i, at int) []canonicalMember {
	end := w.spans[at].end - 1
	at++
	for i = skipSpace(w.raw, i+1); i < end; {
		keyEnd := skipString(w.raw, i)
		key := w.raw[i+1 : keyEnd-1]
		if bytes.IndexByte(key, '\\') >= 0 || !utf8.Valid(key) {
			key = AppendString(nil, w.raw[i:keyEnd])
		}
		i = skipSpace(w.raw, skipSpace(w.raw, keyEnd)+1)
		list = append(list, canonicalMember{key, i, at})
		i, at = w.skip(i, at)
		if i = skipSpace(w.raw, i); i < end {
			i = skipSpace(w.raw, i+1)
		}
	}
	slices.SortStableFunc(list, func(a, b canonicalMember) int { return compareUTF16(a.key, b.key) })
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
