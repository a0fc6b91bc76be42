package surface

import (
	"slices"
	"strconv"

	"github.com/otel-bridge/otel-bridge/session"
)

// appendJSText appends valid JSON as the reference prints what it parsed:
// JSON.stringify(JSON.parse(raw)). Of duplicate members the last value stands
// at the first place, members whose names are array indexes come first, in
// order, and numbers are doubles. The reference compares headers by this text.
// What nests deeper than maxTextDepth stays as it is written.
func appendJSText(dst, raw []byte) []byte { return appendTextAt(dst, raw, 0) }

// maxTextDepth bounds the work, since each level reads what is below it again.
const maxTextDepth = 256

func appendTextAt(dst, raw []byte, depth int) []byte {
	if depth == maxTextDepth {
		return append(dst, raw...)
	}
	switch session.KindOf(raw) {
	case session.KindNumber:
		n, _ := session.ParseNumber(raw)
		return session.AppendDouble(dst, n.Float)
	case session.KindString:
		s, _ := session.String(raw)
		return session.AppendQuoted(dst, s)
	case session.KindArray:
		dst = append(dst, '[')
		for a, n := session.WalkArray(raw), 0; a.Next(); n++ {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = appendTextAt(dst, a.Value(), depth+1)
		}
		return append(dst, ']')
	case session.KindObject:
		dst = append(dst, '{')
		for i, m := range jsMembers(raw) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = session.AppendQuoted(dst, m.name)
			dst = append(dst, ':')
			dst = appendTextAt(dst, m.value, depth+1)
		}
		return append(dst, '}')
	}
	return append(dst, raw...)
}

type jsMember struct {
	name  string
	value []byte
}

// jsMembers lists the members of an object as JavaScript enumerates them.
func jsMembers(raw []byte) []jsMember {
	var members []jsMember
	at := map[string]int{}
	for o := session.WalkObject(raw); o.Next(); {
		name, _ := session.String(o.RawKey())
		if i, dup := at[name]; dup {
			members[i].value = o.Value()
			continue
		}
		at[name] = len(members)
		members = append(members, jsMember{name, o.Value()})
	}
	slices.SortStableFunc(members, func(a, b jsMember) int {
		i, okA := arrayIndex(a.name)
		j, okB := arrayIndex(b.name)
		switch {
		case okA && okB:
			return int(i - j)
		case okA:
			return -1
		case okB:
			return 1
		}
		return 0
	})
	return members
}

// arrayIndex reads a canonical number from 0 to 2^32-2.
func arrayIndex(name string) (int64, bool) {
	i, err := strconv.ParseInt(name, 10, 64)
	if err != nil || i < 0 || i >= 1<<32-1 || strconv.FormatInt(i, 10) != name {
		return 0, false
	}
	return i, true
}
