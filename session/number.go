package session

import (
	"bytes"
	"math"
	"strconv"
)

// MaxSafeInteger is the largest integer that the reference counts with, 2^53-1.
const MaxSafeInteger = 1<<53 - 1

// Number is the value of a JSON number, as records have it (docs/mapping.md): an
// integer that int64 holds is exact, everything else is the double that
// JavaScript reads.
type Number struct {
	// Int is the value when IsInt is true.
	Int int64
	// Float is the double that JavaScript reads; it is infinite for a literal
	// beyond the range of doubles.
	Float float64
	// IsInt says that the value is an integer within int64. Literals such as
	// 1.0 and 1e3 are integers: the value counts, not the spelling. Negative
	// zero is the integer 0.
	IsInt bool
}

// ParseNumber reads the valid JSON number raw; ok is false for another kind.
func ParseNumber(raw []byte) (n Number, ok bool) {
	if KindOf(raw) != KindNumber {
		return Number{}, false
	}
	if i, ok := plainInt(raw); ok {
		f := float64(i)
		if i == 0 && raw[0] == '-' {
			f = math.Copysign(0, -1)
		}
		return Number{Int: i, Float: f, IsInt: true}, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !math.IsInf(f, 0) {
		return Number{}, false
	}
	n = Number{Float: f}
	// -2^63 is a double, 2^63 is the first one beyond int64.
	if f == math.Trunc(f) && f >= math.MinInt64 && f < math.MaxInt64 && bytes.ContainsAny(raw, ".eE") {
		n.Int, n.IsInt = int64(f), true
	}
	return n, true
}

// plainInt reads a literal of nothing but digits that int64 holds.
func plainInt(raw []byte) (int64, bool) {
	if len(raw) > 20 {
		return 0, false
	}
	i, neg := 0, false
	if raw[0] == '-' {
		i, neg = 1, true
	}
	if i == len(raw) {
		return 0, false
	}
	var u uint64
	for ; i < len(raw); i++ {
		d := uint64(raw[i] - '0')
		if d > 9 || u > (1<<63)/10 {
			return 0, false
		}
		u = u*10 + d
	}
	switch {
	case neg && u <= 1<<63:
		return -int64(u), true
	case !neg && u < 1<<63:
		return int64(u), true
	}
	return 0, false
}

// SafeInteger reads raw as JavaScript's Number.isSafeInteger would take it,
// except that negative zero is refused, as the reference refuses it wherever a
// number is stored: 1.0 and 1e3 are integers, 1.5, "1" and 2^53 are not.
func SafeInteger(raw []byte) (int64, bool) {
	n, ok := ParseNumber(raw)
	if !ok || !n.IsInt || n.Int > MaxSafeInteger || n.Int < -MaxSafeInteger {
		return 0, false
	}
	if n.Int == 0 && math.Signbit(n.Float) {
		return 0, false
	}
	return n.Int, true
}

// Count reads raw as a safe integer that is not negative.
func Count(raw []byte) (int64, bool) {
	n, ok := SafeInteger(raw)
	return n, ok && n >= 0
}

// AppendDouble appends f as ECMAScript prints numbers (Number::toString). Not a
// number and the infinities become null, as JSON.stringify has them.
func AppendDouble(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	if f == 0 {
		return append(dst, '0')
	}
	abs := math.Abs(f)
	if abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads the exponent to two digits, ECMAScript does not.
	if n := len(dst); n-start >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
