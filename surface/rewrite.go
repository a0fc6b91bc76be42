package surface

import (
	"bytes"
	"hash/maphash"
	"math"

	"github.com/otel-bridge/otel-bridge/session"
)

// digest stands for what a rewrite of a tool/result must not change: the values
// in its payload, but for the content. It is a hash under a seed that nobody
// outside of the process knows, never stored and never shown.
type digest uint64

// unread stands for a payload that could not be read, because its line is
// longer than the reader's limit. It agrees with every other: a ledger must not
// be held for what nobody has seen.
const unread digest = 0

// rewriteDigest digests the payload of a tool/result but for its content.
func (s *Surface) rewriteDigest(ev *session.Event) digest {
	if ev.DataTruncated {
		return unread
	}
	v := values{s.seed, ev}
	d := digest(v.result(session.TrimSpace(ev.Data), s.rules.toolRole))
	if d == unread {
		return unread + 1
	}
	return d
}

// values hashes JSON by what it means, as the reference compares it: the order
// of members and the spelling of numbers and strings do not count, and of
// duplicate members the last one does.
type values struct {
	seed maphash.Seed
	ev   *session.Event // whose payload is read
}

// Tags keep values of different kinds apart.
const (
	tagString uint64 = iota + 1
	tagNumber
	tagArray
	tagObject
	tagOther
)

// maxHashDepth is the nesting from which on a value counts as its bytes: each
// level reads what is below it again.
const maxHashDepth = 64

func (v values) mix(a, b uint64) uint64 { return maphash.Comparable(v.seed, [2]uint64{a, b}) }

// result hashes the payload of a tool/result without its content. That is the
// content of the message where tool results are messages of their own role, and
// before that of the message's first block, the other blocks being dropped with
// it: so the reference has it.
func (v values) result(data []byte, toolRole bool) uint64 {
	sum, message := v.members(data, "message", 0)
	inner, content := v.members(message, "content", 0)
	sum += v.mix(sum, inner)
	if toolRole {
		return sum
	}
	blocks := v.ev.WalkArray(content)
	if blocks.Next() {
		first, _ := v.members(blocks.Value(), "content", 0)
		return v.mix(sum, first)
	}
	return v.mix(sum, 0)
}

// members hashes the members of an object but for the one called without, the
// last value of which it returns. The sum does not depend on their order. A
// value that is no object counts as a whole.
func (v values) members(object []byte, without string, depth int) (sum uint64, left []byte) {
	if session.KindOf(object) != session.KindObject {
		return v.value(object, depth), nil
	}
	type member struct{ key, part uint64 }
	var few [24]member
	seen := few[:0]
	var many map[uint64]uint64 // part by key, for objects beyond few
	for o := v.ev.WalkObject(object); o.Next(); {
		if without != "" && o.KeyIs(without) {
			left = o.Value()
			continue
		}
		key := v.text(o.RawKey())
		part := v.mix(key, v.value(o.Value(), depth+1))
		sum += part
		switch {
		case many != nil:
			sum -= many[key]
			many[key] = part
		case len(seen) < len(few):
			for i := range seen {
				if seen[i].key == key {
					sum -= seen[i].part
					seen[i].part = 0
				}
			}
			seen = append(seen, member{key, part})
		default:
			many = map[uint64]uint64{}
			for _, m := range seen {
				many[m.key] += m.part
			}
			sum -= many[key]
			many[key] = part
		}
	}
	return sum, left
}

func (v values) value(raw []byte, depth int) uint64 {
	if depth > maxHashDepth {
		return v.mix(tagOther, maphash.Bytes(v.seed, raw))
	}
	switch session.KindOf(raw) {
	case session.KindString:
		return v.mix(tagString, v.text(raw))
	case session.KindNumber:
		n, _ := session.ParseNumber(raw)
		return v.mix(tagNumber, math.Float64bits(n.Float+0)) // +0 for -0
	case session.KindArray:
		sum := tagArray
		for a := v.ev.WalkArray(raw); a.Next(); {
			sum = v.mix(sum, v.value(a.Value(), depth+1))
		}
		return sum
	case session.KindObject:
		sum, _ := v.members(raw, "", depth)
		return v.mix(tagObject, sum)
	}
	return v.mix(tagOther, maphash.Bytes(v.seed, raw))
}

// text hashes what a JSON string means.
func (v values) text(raw []byte) uint64 {
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw = session.AppendString(nil, raw)
	} else if len(raw) >= 2 {
		raw = raw[1 : len(raw)-1]
	}
	return maphash.Bytes(v.seed, raw)
}
