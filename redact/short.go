package redact

import "hash/maphash"

// Most strings of a record are short and come again: types, roles, names,
// pieces of a stream. What has been looked at once and is clean in every
// respect need not be looked at again.

const (
	maxShort   = 32
	shortSlots = 4096
)

// shortCache remembers clean strings and the fuel that looking at them takes.
// A slot holds the last of the strings that fall to it.
type shortCache struct {
	slots [shortSlots]shortSlot
}

type shortSlot struct {
	length uint8
	fuel   uint16
	text   [maxShort]byte
}

var shortSeed = maphash.MakeSeed()

func (c *shortCache) slot(text []byte) *shortSlot {
	return &c.slots[maphash.Bytes(shortSeed, text)%shortSlots]
}

func (t *shortSlot) holds(text []byte) bool {
	return int(t.length) == len(text) && string(t.text[:t.length]) == string(text)
}

// shortText looks at a short string that stands in the input as it is. It
// takes the fuel that looking takes also when the answer is remembered, so that
// results do not depend on what came before.
func (s *scan) shortText(v *view) {
	slot := s.short.slot(v.text)
	if slot.holds(v.text) && int(slot.fuel) <= s.fuel {
		s.fuel -= int(slot.fuel)
		return
	}
	spans, fuel, steps, spent, passed := len(s.spans), s.fuel, s.steps, s.spent, s.passed
	if !looksLikeJSON(v.text) || !s.nestedJSON(v) {
		s.text(v)
	}
	if used := fuel - s.fuel; len(s.spans) == spans && s.steps == steps && s.spent == spent && s.passed == passed && used < 1<<16 {
		slot.length, slot.fuel = uint8(len(v.text)), uint16(used)
		copy(slot.text[:], v.text)
	}
}
