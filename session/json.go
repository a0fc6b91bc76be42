package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is the package's JSON scanner. ValidJSON and the decoders check a
// text once; every walker below (Object, Array, Member and so on) then takes
// the text for valid and only finds its way, so that no byte is judged twice.
// Walkers on text that was never checked end early, they do not panic.

// SyntaxError says where bytes stop being JSON. It quotes none of them.
type SyntaxError struct {
	// Offset is the 0-based offset of the first byte that does not fit.
	Offset int
	// What names what was expected there.
	What string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.What)
}

// ErrDepth says that a value nests deeper than MaxDepth.
var ErrDepth = errors.New("JSON value nests too deep")

// MaxDepth is the nesting that Canonical accepts. Reading has no such limit, as
// the reference has none.
const MaxDepth = 10_000

// Kind is the kind of a JSON value.
type Kind byte

// The kinds of JSON values. KindNone is that of no bytes at all.
const (
	KindNone Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

// KindOf tells the kind of a value by its first byte.
func KindOf(raw []byte) Kind {
	if len(raw) == 0 {
		return KindNone
	}
	switch raw[0] {
	case '{':
		return KindObject
	case '[':
		return KindArray
	case '"':
		return KindString
	case 't', 'f':
		return KindBool
	case 'n':
		return KindNull
	default:
		return KindNumber
	}
}

// ValidJSON reports whether raw is one JSON value with nothing but white space
// around it, by RFC 8259. Like the reference it takes any nesting and does not
// look into the UTF-8 of strings: invalid bytes mean U+FFFD to a decoder. The
// error is a *SyntaxError.
func ValidJSON(raw []byte) error {
	var v validator
	end, err := v.value(raw, skipSpace(raw, 0))
	if err != nil {
		return err
	}
	if end = skipSpace(raw, end); end != len(raw) {
		return &SyntaxError{end, "end of the text"}
	}
	return nil
}

// validator checks values with a bit per open bracket instead of recursion, so
// that nesting costs neither stack nor, up to 512 levels, allocation.
type validator struct {
	few [8]uint64 // bit set: object
	// loud is set by a string value that may be one of the names which version
	// 4 looks for in messages (see quiet): knowing so here costs less than
	// looking for it later.
	loud bool
	// jumps, if not nil, gathers the long values.
	jumps *jumps
}

func (v *validator) value(b []byte, i int) (int, error) {
	stack := v.few[:]
	depth := 0
	for {
		// A value starts at i.
		if i >= len(b) {
			return i, &SyntaxError{i, "a value"}
		}
		switch c := b[i]; {
		case c == '"':
			end, spelled, err := checkString(b, i)
			if err != nil {
				return end, err
			}
			if spelled || end-i <= len(`"tool-addition"`) && loudString(b[i:end]) {
				v.loud = true
			}
			if v.jumps != nil {
				v.jumps.text(i, end)
			}
			i = end
		case c == '{':
			start := i
			i = skipSpace(b, i+1)
			if i < len(b) && b[i] == '}' {
				i++
				break
			}
			if depth>>6 == len(stack) {
				stack = append(stack, 0)
			}
			stack[depth>>6] |= 1 << (depth & 63)
			if v.jumps != nil {
				v.jumps.begin(start, depth)
			}
			depth++
			var err error
			if _, i, err = keyAt(b, i); err != nil {
				return i, err
			}
			continue
		case c == '[':
			start := i
			i = skipSpace(b, i+1)
			if i < len(b) && b[i] == ']' {
				i++
				break
			}
			if depth>>6 == len(stack) {
				stack = append(stack, 0)
			}
			stack[depth>>6] &^= 1 << (depth & 63)
			if v.jumps != nil {
				v.jumps.begin(start, depth)
			}
			depth++
			continue
		case c == '-' || c-'0' < 10:
			var err error
			if i, err = checkNumber(b, i); err != nil {
				return i, err
			}
		case c == 't' && hasAt(b, i, "true"), c == 'n' && hasAt(b, i, "null"):
			i += 4
		case c == 'f' && hasAt(b, i, "false"):
			i += 5
		default:
			return i, &SyntaxError{i, "a value"}
		}
		// A value has ended before i: close what closes, or go to the next.
		for {
			if depth == 0 {
				return i, nil
			}
			i = skipSpace(b, i)
			if i >= len(b) {
				return i, &SyntaxError{i, "a comma or a closing bracket"}
			}
			inObject := stack[(depth-1)>>6]&(1<<((depth-1)&63)) != 0
			c := b[i]
			if c == ',' {
				i = skipSpace(b, i+1)
				if inObject {
					var err error
					if _, i, err = keyAt(b, i); err != nil {
						return i, err
					}
				}
				break
			}
			if (inObject && c != '}') || (!inObject && c != ']') {
				return i, &SyntaxError{i, "a comma or a closing bracket"}
			}
			depth--
			i++
			if v.jumps != nil {
				v.jumps.end(i, depth)
			}
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainRun returns the offset of the first byte from i on that ends a run of
// plain string bytes: a quote, a backslash or a control character.
func plainRun(b []byte, i int) int {
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		q := w ^ (ones * '"')
		s := w ^ (ones * '\\')
		// The lowest set bit is exact: borrows only disturb bytes above it.
		m := ((q - ones) &^ q) | ((s - ones) &^ s) | ((w - ones*0x20) &^ w)
		if m &= highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	return i
}

// checkString checks the string that starts at i. spelled says that it spells a
// character by its number.
func checkString(b []byte, i int) (end int, spelled bool, err error) {
	i++
	for {
		i = plainRun(b, i)
		if i >= len(b) {
			return i, spelled, &SyntaxError{i, "the end of a string"}
		}
		switch b[i] {
		case '"':
			return i + 1, spelled, nil
		case '\\':
			if i+1 >= len(b) {
				return i, spelled, &SyntaxError{i, "an escape"}
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if _, ok := hex4(b, i+2); !ok {
					return i, spelled, &SyntaxError{i, "four hex digits"}
				}
				spelled = true
				i += 6
			default:
				return i, spelled, &SyntaxError{i, "an escape"}
			}
		default:
			return i, spelled, &SyntaxError{i, "no raw control character in a string"}
		}
	}
}

func checkNumber(b []byte, i int) (int, error) {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i]-'1' < 9:
		i = digits(b, i)
	default:
		return i, &SyntaxError{i, "a digit"}
	}
	if i < len(b) && b[i] == '.' {
		j := digits(b, i+1)
		if j == i+1 {
			return j, &SyntaxError{j, "a digit"}
		}
		i = j
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := digits(b, i)
		if j == i {
			return j, &SyntaxError{j, "a digit"}
		}
		i = j
	}
	return i, nil
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	return i
}

func hasAt(b []byte, i int, word string) bool {
	return len(b)-i >= len(word) && string(b[i:i+len(word)]) == word
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c-'0' < 10:
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the offset behind the valid string that starts at i.
func skipString(b []byte, i int) int {
	i++
	for {
		n := bytes.IndexByte(b[min(i, len(b)):], '"')
		if n < 0 {
			return len(b)
		}
		end := i + n
		back := end
		for back > i && b[back-1] == '\\' {
			back--
		}
		i = end + 1
		if (end-back)&1 == 0 {
			return i
		}
	}
}

// skipValue returns the offset behind the valid value that starts at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	default:
		for i < len(b) {
			switch b[i] {
			case ',', '}', ']', ' ', '\n', '\r', '\t':
				return i
			}
			i++
		}
		return i
	}
}

// TrimSpace returns raw without JSON white space around it.
func TrimSpace(raw []byte) []byte {
	i, n := skipSpace(raw, 0), len(raw)
	for n > i && (raw[n-1] == ' ' || raw[n-1] == '\n' || raw[n-1] == '\r' || raw[n-1] == '\t') {
		n--
	}
	return raw[i:n]
}

// Object walks the members of a valid JSON object in the order in which they
// are written, duplicates included. The zero Object has no members.
type Object struct {
	b          []byte
	i          int
	key, value []byte
	ahead      ahead
}

// WalkObject starts at the first member of raw, which is valid JSON without
// white space in front. A value of another kind has no members.
func WalkObject(raw []byte) Object {
	if KindOf(raw) != KindObject {
		return Object{}
	}
	return Object{b: raw, i: 1}
}

// Next goes to the next member, if there is one.
func (o *Object) Next() bool {
	i := skipSpace(o.b, o.i)
	if i < len(o.b) && o.b[i] == ',' {
		i = skipSpace(o.b, i+1)
	}
	if i >= len(o.b) || o.b[i] != '"' {
		return false
	}
	end := skipString(o.b, i)
	o.key = o.b[i:end]
	i = skipSpace(o.b, end)
	if i >= len(o.b) || o.b[i] != ':' {
		return false
	}
	i = skipSpace(o.b, i+1)
	o.i = o.ahead.skip(o.b, i)
	o.value = o.b[min(i, o.i):o.i]
	return true
}

// RawKey is the key as it is written, quotes included.
func (o *Object) RawKey() []byte { return o.key }

// KeyIs reports whether the decoded key is name.
func (o *Object) KeyIs(name string) bool { return StringIs(o.key, name) }

// Value is the value as it is written, without white space around it. It
// shares memory with the text.
func (o *Object) Value() []byte { return o.value }

// Array walks the elements of a valid JSON array.
type Array struct {
	b     []byte
	i     int
	value []byte
	ahead ahead
}

// WalkArray starts at the first element of raw, which is valid JSON without
// white space in front. A value of another kind has no elements.
func WalkArray(raw []byte) Array {
	if KindOf(raw) != KindArray {
		return Array{}
	}
	return Array{b: raw, i: 1}
}

// Next goes to the next element, if there is one.
func (a *Array) Next() bool {
	i := skipSpace(a.b, a.i)
	if i < len(a.b) && a.b[i] == ',' {
		i = skipSpace(a.b, i+1)
	}
	if i >= len(a.b) || a.b[i] == ']' {
		return false
	}
	a.i = a.ahead.skip(a.b, i)
	a.value = a.b[i:a.i]
	return true
}

// Value is the element as it is written, without white space around it. It
// shares memory with the text.
func (a *Array) Value() []byte { return a.value }

// Member returns the value of the last member of the valid object raw whose
// decoded key is key: duplicates count as the reference counts them. It is nil
// where raw has no such member or is no object.
func Member(raw []byte, key string) []byte {
	o := WalkObject(raw)
	return o.last(key)
}

// last returns the value of the last member called key, of those that are left.
func (o *Object) last(key string) []byte {
	var found []byte
	for o.Next() {
		if o.KeyIs(key) {
			found = o.value
		}
	}
	return found
}

// Path follows Member through nested objects.
func Path(raw []byte, keys ...string) []byte {
	for _, k := range keys {
		raw = Member(raw, k)
	}
	return raw
}

// StringIs reports whether the valid JSON value raw is a string that means s.
func StringIs(raw []byte, s string) bool {
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	in := raw[1 : len(raw)-1]
	switch {
	case len(s) == 0 || len(in) == 0:
		return len(s) == len(in)
	case in[0] != s[0] && in[0] != '\\' && in[0] < utf8.RuneSelf:
		return false // most often: a key that begins with another letter
	case string(in) == s && strings.IndexByte(s, '\\') < 0:
		return true
	case len(in) <= len(s) && strings.IndexByte(s, replacement[0]) < 0:
		return false // escapes make a text longer than what it means
	case bytes.IndexByte(in, '\\') < 0 && strings.IndexByte(s, replacement[0]) < 0:
		return false
	}
	var few [128]byte
	return string(AppendString(few[:0], raw)) == s
}

// replacement is what invalid UTF-8 and lone surrogates become: only a text with
// it may be longer than the bytes that mean it.
const replacement = "\uFFFD"

// String decodes the valid JSON string raw; ok is false for another kind. Lone
// surrogates and invalid UTF-8 become U+FFFD.
func String(raw []byte) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	in := raw[1 : len(raw)-1]
	if bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return string(in), true
	}
	return string(AppendString(make([]byte, 0, len(in)), raw)), true
}

// AppendString appends to dst what the valid JSON string raw means, as UTF-8.
// Lone surrogates become U+FFFD, and so does each maximal part of an invalid
// UTF-8 sequence, as the Encoding Standard has it.
func AppendString(dst, raw []byte) []byte {
	if len(raw) < 2 {
		return dst
	}
	in := raw[1 : len(raw)-1]
	if utf8.Valid(in) {
		return appendUnescaped(dst, in)
	}
	for len(in) > 0 {
		n := bytes.IndexByte(in, '\\')
		if n < 0 {
			return appendValidUTF8(dst, in)
		}
		dst = appendValidUTF8(dst, in[:n])
		if dst, in = appendEscape(dst, in[n:]); in == nil {
			return dst
		}
	}
	return dst
}

// appendUnescaped is AppendString for the inside of a string that is valid UTF-8.
// It copies eight bytes at a time until an escape is among them: the text of
// ledgers, mostly code, has one in each line.
func appendUnescaped(dst, in []byte) []byte {
	dst = slices.Grow(dst, len(in)+8) // what is meant is never longer than how it is written
	for len(in) >= 8 {
		w := binary.LittleEndian.Uint64(in)
		at := len(dst)
		dst = dst[:at+8]
		binary.LittleEndian.PutUint64(dst[at:], w)
		s := w ^ (ones * '\\')
		// The lowest set bit is exact: borrows only disturb bytes above it.
		m := (s - ones) &^ s & highs
		if m == 0 {
			in = in[8:]
			continue
		}
		n := bits.TrailingZeros64(m) >> 3
		if dst, in = appendEscape(dst[:at+n], in[n:]); in == nil {
			return dst
		}
	}
	for len(in) > 0 {
		if in[0] == '\\' {
			if dst, in = appendEscape(dst, in); in == nil {
				return dst
			}
			continue
		}
		dst = append(dst, in[0])
		in = in[1:]
	}
	return dst
}

// appendEscape appends what the escape at the start of in means, and returns what
// follows it: nil where in ends within the escape.
func appendEscape(dst, in []byte) ([]byte, []byte) {
	if len(in) < 2 {
		return dst, nil
	}
	c := in[1]
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, _ := hex4(in, 2)
		in = in[min(6, len(in)):]
		if utf16.IsSurrogate(r) {
			low, ok := rune(0), false
			if len(in) >= 6 && in[0] == '\\' && in[1] == 'u' {
				low, ok = hex4(in, 2)
			}
			if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
				r = pair
				in = in[6:]
			} else {
				r = utf8.RuneError
			}
		}
		return utf8.AppendRune(dst, r), in
	}
	return append(dst, c), in[2:]
}

func appendValidUTF8(dst, s []byte) []byte {
	if utf8.Valid(s) {
		return append(dst, s...)
	}
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		if r == utf8.RuneError && n <= 1 {
			n = invalidPart(s)
		}
		dst = utf8.AppendRune(dst, r)
		s = s[n:]
	}
	return dst
}

// invalidPart is the length of the maximal part of an invalid sequence.
func invalidPart(s []byte) int {
	lo, hi, want := byte(0x80), byte(0xBF), 0
	switch c := s[0]; {
	case c >= 0xC2 && c <= 0xDF:
		want = 1
	case c >= 0xE0 && c <= 0xEF:
		want = 2
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		want = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	}
	n := 1
	for n <= want && n < len(s) && s[n] >= lo && s[n] <= hi {
		lo, hi = 0x80, 0xBF
		n++
	}
	return n
}

// utf16Units decodes the valid JSON string raw to UTF-16, as JavaScript holds
// it: lone surrogates stay what they are.
func utf16Units(raw []byte) []uint16 {
	in := raw[1 : len(raw)-1]
	units := make([]uint16, 0, len(in))
	for len(in) > 0 {
		if in[0] == '\\' && len(in) >= 6 && in[1] == 'u' {
			r, _ := hex4(in, 2)
			units = append(units, uint16(r))
			in = in[6:]
			continue
		}
		n := 1
		if in[0] == '\\' {
			n = min(2, len(in))
		} else if next := bytes.IndexByte(in, '\\'); next >= 0 {
			n = next
		} else {
			n = len(in)
		}
		var few [64]byte
		quoted := append(append(append(few[:0], '"'), in[:n]...), '"')
		for _, r := range string(AppendString(nil, quoted)) {
			units = utf16.AppendRune(units, r)
		}
		in = in[n:]
	}
	return units
}

func hasLoneSurrogate(raw []byte) bool {
	units := utf16Units(raw)
	for i := 0; i < len(units); i++ {
		switch r := rune(units[i]); {
		case !utf16.IsSurrogate(r):
		case i+1 < len(units) && utf16.DecodeRune(r, rune(units[i+1])) != utf8.RuneError:
			i++
		default:
			return true
		}
	}
	return false
}

// appendUnits appends a JavaScript string as JSON.stringify writes it: lone
// surrogates as escapes, everything else as RFC 8785 has it.
func appendUnits(dst []byte, units []uint16) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(units); i++ {
		r := rune(units[i])
		if utf16.IsSurrogate(r) {
			var pair rune = utf8.RuneError
			if i+1 < len(units) {
				pair = utf16.DecodeRune(r, rune(units[i+1]))
			}
			if pair == utf8.RuneError {
				dst = append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
				continue
			}
			i++
			r = pair
		}
		start := len(dst)
		dst = quoteTail(utf8.AppendRune(dst, r), start)
	}
	return append(dst, '"')
}

// appendStringified appends the valid JSON string raw as JSON.stringify would
// write it again.
func appendStringified(dst, raw []byte) []byte {
	if in := raw[1 : len(raw)-1]; bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return append(dst, raw...)
	}
	return appendUnits(dst, utf16Units(raw))
}

// absent is the key of a member that is not there: JavaScript's undefined.
const absent = "undefined"

// scalarKey tells scalars apart as JavaScript's === does: strings by their code
// units, numbers by their double. An object or array gets a key of its value.
func scalarKey(raw []byte) string {
	switch KindOf(raw) {
	case KindNone:
		return absent
	case KindString:
		return string(appendStringified(nil, raw))
	case KindNumber:
		n, _ := ParseNumber(raw)
		return string(AppendDouble(nil, n.Float))
	case KindObject, KindArray:
		return valueKey(raw)
	}
	return string(raw)
}

// valueKey tells values apart as a deep comparison in JavaScript does.
func valueKey(raw []byte) string {
	if raw == nil {
		return absent
	}
	out, err := canonicalForm{javaScript: true}.of(nil, raw)
	if err != nil {
		// Too deep to compare: then only the same bytes are the same.
		return string(raw)
	}
	return string(out)
}
