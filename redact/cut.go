package redact

import "bytes"

// completion is what a JSON text that was cut lacks: the text up to keep with
// tail behind it is JSON. ok is false where the text is not the beginning of an
// object or array that has a member, or is nested deeper than depth.
func completion(text []byte, depth int) (keep int, tail []byte, ok bool) {
	if len(text) < 8 || bytes.IndexByte(text, ':') < 0 {
		return 0, nil, false
	}
	var open []byte // closing brackets
	const (
		wantsValue = iota
		wantsFirst // a value or the end of the array
		wantsKey
		wantsFirstKey
		wantsColon
		wantsComma
	)
	close := func(keep int, tail []byte) (int, []byte, bool) {
		for k := len(open) - 1; k >= 0; k-- {
			tail = append(tail, open[k])
		}
		return keep, tail, len(open) > 0
	}
	wants := wantsValue
	for i := 0; ; {
		for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
			i++
		}
		if i == len(text) {
			switch wants {
			case wantsValue:
				tail = append(tail, "null"...)
			case wantsKey:
				tail = append(tail, `"":null`...)
			case wantsColon:
				tail = append(tail, ":null"...)
			}
			return close(i, tail)
		}
		c := text[i]
		switch {
		case c == '"' && wants != wantsColon && wants != wantsComma:
			key := wants == wantsKey || wants == wantsFirstKey
			end, _, whole := stringEnd(text, i)
			if !whole {
				end = min(end, len(text))
				if end < len(text) && (text[end] != '\\' || len(text)-end >= len(`\u0000`)) && !(text[end] < 0x20) {
					return 0, nil, false
				}
				tail = append(tail, '"')
				if key {
					tail = append(tail, ":null"...)
				}
				return close(end, tail)
			}
			i, wants = end, wantsComma
			if key {
				wants = wantsColon
			}
		case c == ':' && wants == wantsColon:
			i, wants = i+1, wantsValue
		case (c == '{' || c == '[') && wants <= wantsFirst:
			if len(open) == depth {
				return 0, nil, false
			}
			i++
			if c == '{' {
				open, wants = append(open, '}'), wantsFirstKey
			} else {
				open, wants = append(open, ']'), wantsFirst
			}
		case len(open) > 0 && c == open[len(open)-1] && (wants == wantsComma || wants == wantsFirst || wants == wantsFirstKey):
			open = open[:len(open)-1]
			i, wants = i+1, wantsComma
		case c == ',' && wants == wantsComma && len(open) > 0:
			i++
			wants = wantsValue
			if open[len(open)-1] == '}' {
				wants = wantsKey
			}
		case (c == '-' || digit(c)) && wants <= wantsFirst:
			end, whole := numberEnd(text, i)
			if !whole {
				if end < len(text) {
					return 0, nil, false
				}
				return close(end, append(tail, '0'))
			}
			i, wants = end, wantsComma
		case wants <= wantsFirst:
			end, whole := literalEnd(text, i)
			if !whole {
				for _, l := range [...]string{"true", "false", "null"} {
					if rest := string(text[i:]); len(rest) < len(l) && l[:len(rest)] == rest {
						return close(len(text), append(tail, l[len(rest):]...))
					}
				}
				return 0, nil, false
			}
			i, wants = end, wantsComma
		default:
			return 0, nil, false
		}
	}
}

// cutJSON walks a text that begins as JSON and is cut as if it were whole. It is
// looked at as text all the same, unless the answer is true: there was no fuel.
func (s *scan) cutJSON(v *view) bool {
	keep, tail, ok := completion(v.text, s.e.limits.Depth)
	if !ok {
		return false
	}
	if v.depth >= s.e.limits.Decode {
		s.exhaust(v)
		return true
	}
	if !s.spend(v, 2*len(v.text)) {
		return true
	}
	b := s.newBuilder()
	b.literal(v.text[:keep], 0)
	b.dead(tail)
	d := s.newView()
	*d = view{text: b.text, segs: b.segs, parent: v, nested: v.nested, depth: v.depth + 1}
	s.walkNested(d)
	return false
}
