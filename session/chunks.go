package session

import (
	"encoding/json"
	"strconv"
)

// ChunkRun is a packed row of versions 0 and 1: a run of assistant/chunk events
// of one kind, turn, step and block, which the writer put into one row.
type ChunkRun struct {
	// Seq0 is the seq of the first event, Time0 its time in Unix milliseconds.
	Seq0, Time0 int64
	// Turn and Step are those of all events of the run.
	Turn, Step int64

	gaps   []int64
	texts  [][]byte
	at     int
	time   int64
	buf    []byte // the data of the current event
	prefix int    // how much of buf all events share
}

// packedKinds maps the tags of packed rows to the chunks that they hold.
var packedKinds = [...]struct{ tag, delta, payload, member string }{
	{"text-chunks", "text-delta", "texts", "text"},
	{"reasoning-chunks", "reasoning-delta", "texts", "text"},
	{"tool-call-chunks", "tool-call-delta", "args", "argumentsDelta"},
}

func isPacked(typ []byte) bool {
	for _, k := range packedKinds {
		if StringIs(typ, k.tag) {
			return true
		}
	}
	return false
}

func (r *ChunkRun) decode(e *envelope) error {
	fail := func(detail string) error { return e.fail(CodeRowRun, detail) }
	var ok bool
	switch {
	case e.seq0 == nil || e.time0 == nil || e.data == nil:
		return fail("want type, seq0, time0 and data")
	case e.seq != nil || e.time != nil || e.op != nil || e.sources != nil || e.ignorable != nil || e.unexpected != nil:
		return fail("want nothing but type, seq0, time0 and data")
	}
	*r = ChunkRun{buf: r.buf[:0], gaps: r.gaps[:0], texts: r.texts[:0]}
	if r.Seq0, ok = Count(e.seq0); !ok {
		return fail("seq0 is no count")
	}
	if r.Time0, ok = SafeInteger(e.time0); !ok {
		return fail("time0 is no safe integer")
	}
	kind := packedKinds[0]
	for _, kind = range packedKinds {
		if StringIs(e.typ, kind.tag) {
			break
		}
	}
	var turn, step, index, id, name, dt, payload []byte
	must := []slot{{"turn", &turn}, {"step", &step}, {"index", &index}, {"dt", &dt}, {kind.payload, &payload}}
	var may []slot
	tool := kind.payload == "args"
	if tool {
		must = append(must, slot{"id", &id})
		may = []slot{{"name", &name}}
	}
	if wrong := e.exactMembers(must, may); wrong != "" {
		return fail("data " + wrong)
	}
	blockIndex, okIndex := Count(index)
	var okTurn, okStep bool
	r.Turn, okTurn = Count(turn)
	r.Step, okStep = Count(step)
	switch {
	case !okTurn || !okStep || !okIndex:
		return fail("turn, step and index have to be counts")
	case tool && (!nonEmpty(id) || name != nil && KindOf(name) != KindString):
		return fail("id and name have to be strings")
	case KindOf(payload) != KindArray || KindOf(dt) != KindArray:
		return fail("dt and its payload have to be arrays")
	}
	for a := WalkArray(payload); a.Next(); {
		if KindOf(a.Value()) != KindString {
			return fail("a member is no string")
		}
		r.texts = append(r.texts, a.Value())
	}
	t := r.Time0
	for a := WalkArray(dt); a.Next(); {
		gap, ok := SafeInteger(a.Value())
		if t += gap; !ok || t > MaxSafeInteger || t < -MaxSafeInteger {
			return fail("a gap of time is no safe integer")
		}
		r.gaps = append(r.gaps, gap)
	}
	if len(r.texts) == 0 || len(r.gaps) != len(r.texts)-1 {
		return fail("want one gap less than members, and at least one member")
	}
	if r.Seq0 > MaxSafeInteger-int64(len(r.gaps)) {
		return fail("the last seq is no safe integer")
	}

	b := append(r.buf, `{"turn":`...)
	b = strconv.AppendInt(b, r.Turn, 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, r.Step, 10)
	b = append(b, `,"chunk":{"type":"`...)
	b = append(b, kind.delta...)
	b = append(b, `","index":`...)
	b = strconv.AppendInt(b, blockIndex, 10)
	if tool {
		b = append(append(b, `,"id":`...), id...)
		if name != nil {
			b = append(append(b, `,"name":`...), name...)
		}
	}
	b = append(append(append(b, `,"`...), kind.member...), `":`...)
	r.buf, r.prefix = b, len(b)
	return nil
}

// Len is the number of events in the run.
func (r *ChunkRun) Len() int { return len(r.texts) }

// Next fills ev with the next event of the run and reports whether there was
// one. The event shares memory with the run and is valid until the next call.
func (r *ChunkRun) Next(ev *Event) bool {
	if r.at == len(r.texts) {
		return false
	}
	if r.at == 0 {
		r.time = r.Time0
	} else {
		r.time += r.gaps[r.at-1]
	}
	r.buf = append(append(r.buf[:r.prefix], r.texts[r.at]...), '}', '}')
	*ev = Event{
		Seq: r.Seq0 + int64(r.at), Time: r.time, Type: TypeAssistantChunk, Data: json.RawMessage(r.buf),
		facts: facts{of: &r.buf[0], counted: true, turn: r.Turn, step: r.Step},
	}
	r.at++
	return true
}
