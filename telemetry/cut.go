package telemetry

import (
	"math"
	"slices"
	"unicode/utf8"
)

// DefaultMaxRecordBytes is the default limit of a record's body.
const DefaultMaxRecordBytes = 1 << 20

// cut shortens the largest strings of a redacted JSON value until it has at
// most limit bytes, and writes the result to dst. It never splits a character
// or an escape, and a redaction marker stays whole or goes. False means that
// the strings do not account for what is too much.
func cut(dst, body []byte, limit int) ([]byte, bool) {
	spans := stringValues(body)
	lengths := make([]int, len(spans))
	total := 0
	for i, s := range spans {
		lengths[i] = s.end - s.start
		total += lengths[i]
	}
	budget := limit - (len(body) - total)
	if budget < 0 {
		return dst, false
	}
	most := level(lengths, budget)
	at := 0
	for _, s := range spans {
		if s.end-s.start <= most {
			continue
		}
		dst = append(dst, body[at:s.start]...)
		dst = append(dst, body[s.start:cutPoint(body, s.start, s.start+most)]...)
		at = s.end
	}
	return append(dst, body[at:]...), true
}

// span is the inside of a string value, without its quotes.
type span struct{ start, end int }

// stringValues finds the strings of valid JSON that are not keys.
func stringValues(b []byte) []span {
	var spans []span
	for i := 0; i < len(b); i++ {
		if b[i] != '"' {
			continue
		}
		start := i + 1
		for i = start; b[i] != '"'; i++ {
			if b[i] == '\\' {
				i++
			}
		}
		if next := skipBlank(b, i+1); next == len(b) || b[next] != ':' {
			spans = append(spans, span{start, i})
		}
	}
	return spans
}

// level returns the largest length such that the lengths, each cut to it, sum
// up to budget at most.
func level(lengths []int, budget int) int {
	sorted := slices.Clone(lengths)
	slices.Sort(sorted)
	for i, n := range sorted {
		rest := len(sorted) - i
		if n*rest > budget {
			return budget / rest
		}
		budget -= n
	}
	return math.MaxInt // nothing has to be cut
}

// cutPoint is the last place at or before at where the inside of a JSON string
// that begins at start may end.
func cutPoint(b []byte, start, at int) int {
	i, safe := start, start
	marker := 0 // end of the marker that i is in
	for i < at {
		n := 1
		switch c := b[i]; {
		case c == '\\' && b[i+1] == 'u':
			n = 6
			if b[i+2]|0x20 == 'd' && b[i+3] >= '8' && b[i+3]|0x20 <= 'b' && b[i+6] == '\\' && b[i+7] == 'u' {
				n = 12 // a surrogate pair
			}
		case c == '\\':
			n = 2
		case c >= utf8.RuneSelf:
			_, n = utf8.DecodeRune(b[i:])
		case c == '[' && i >= marker:
			marker = max(marker, markerEnd(b, i))
		}
		if i += n; i <= at && i >= marker {
			safe = i
		}
	}
	return safe
}

// markerEnd returns the end of the redaction marker at i, or i. Markers are
// "[", capital letters, ":", up to 200 bytes, "]".
func markerEnd(b []byte, i int) int {
	j := i + 1
	for j < len(b) && (b[j] >= 'A' && b[j] <= 'Z' || b[j] == '_') {
		j++
	}
	if j == i+1 || j >= len(b) || b[j] != ':' {
		return i
	}
	for end := min(j+200, len(b)); j < end; j++ {
		switch b[j] {
		case ']':
			return j + 1
		case '"', '\\', '[':
			return i
		}
	}
	return i
}
