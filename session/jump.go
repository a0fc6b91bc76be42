package session

import "sort"

// A ledger's bulk is in few values: the output of a tool, a file, a long answer.
// Who looks for a short member beside one would pass over it again at each level
// that it is nested in. So the decoder, which has to read every byte to check it,
// notes where long values end, and the walkers of an Event jump over them.

// jump is a long value of a row: where it begins and ends.
type jump struct{ from, to int }

const (
	// longValue is the length from which on a value is noted: shorter ones are
	// passed over as fast as they are looked up.
	longValue = 64
	// maxJumps bounds what is noted of one row, jumpDepth how deep. What is
	// beyond is walked.
	maxJumps  = 256
	jumpDepth = 16
)

// jumps gathers the long values of a row, in the order in which they begin.
type jumps struct {
	list []jump
	open [jumpDepth]int // for each open bracket its place in list, -1 for none
}

func (j *jumps) reset() { j.list = j.list[:0] }

// begin notes that a bracket opens at i, below so many others.
func (j *jumps) begin(i, depth int) {
	if depth >= jumpDepth {
		return
	}
	j.open[depth] = -1
	if len(j.list) < maxJumps {
		j.open[depth] = len(j.list)
		j.list = append(j.list, jump{i, i})
	}
}

// end notes that the bracket which opened below so many others has closed
// before i.
func (j *jumps) end(i, depth int) {
	if depth >= jumpDepth || j.open[depth] < 0 {
		return
	}
	at := j.open[depth]
	if i-j.list[at].from < longValue {
		j.list = j.list[:at] // and with it what it holds, which is no longer
		return
	}
	j.list[at].to = i
}

// text notes the string from i to end.
func (j *jumps) text(i, end int) {
	if end-i >= longValue && len(j.list) < maxJumps {
		j.list = append(j.list, jump{i, end})
	}
}

// ahead are the jumps that a walker has still before it.
type ahead struct {
	list  []jump
	shift int // where the walker's text begins in the row
}

// skip returns the offset behind the value that starts at i.
func (a *ahead) skip(b []byte, i int) int {
	at := i + a.shift
	for len(a.list) > 0 && a.list[0].from < at {
		a.list = a.list[1:]
	}
	if len(a.list) > 0 && a.list[0].from == at {
		if to := a.list[0].to - a.shift; to > i && to <= len(b) {
			return to
		}
	}
	return skipValue(b, i)
}

// ahead returns the jumps within raw, if that is a part of Data as the decoder
// left it. Of two slices of one text the one that begins later has less capacity
// left, which tells where it lies.
func (e *Event) ahead(raw []byte) ahead {
	f := &e.facts
	if len(f.jumps) == 0 || len(raw) < longValue || len(e.Data) == 0 || f.of != &e.Data[0] {
		return ahead{}
	}
	off := cap(e.Data) - cap(raw)
	if off < 0 || off >= len(e.Data) || &e.Data[off] != &raw[0] {
		return ahead{}
	}
	shift := f.start + off
	first := sort.Search(len(f.jumps), func(i int) bool { return f.jumps[i].from > shift })
	return ahead{f.jumps[first:], shift}
}

// WalkObject is the function WalkObject for a value of e.Data. Where e comes from
// a Decoder it does not read long values again.
func (e *Event) WalkObject(raw []byte) Object {
	o := WalkObject(raw)
	o.ahead = e.ahead(o.b)
	return o
}

// WalkArray is the function WalkArray for a value of e.Data. Where e comes from a
// Decoder it does not read long values again.
func (e *Event) WalkArray(raw []byte) Array {
	a := WalkArray(raw)
	a.ahead = e.ahead(a.b)
	return a
}

// Member is the function Member for a value of e.Data. Where e comes from a
// Decoder it does not read long values again.
func (e *Event) Member(raw []byte, key string) []byte {
	o := e.WalkObject(raw)
	return o.last(key)
}

// Path follows Member through nested objects, from e.Data on.
func (e *Event) Path(keys ...string) []byte {
	raw := []byte(e.Data)
	for _, k := range keys {
		raw = e.Member(raw, k)
	}
	return raw
}
