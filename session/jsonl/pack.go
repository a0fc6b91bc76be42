package jsonl

import (
	"bytes"
	"strconv"

	"github.com/otel-bridge/otel-bridge/session"
)

// minRun is the shortest run of chunk events that is worth one packed row.
const minRun = 3

// packedRow describes the rows that hold chunk events of one kind.
type packedRow struct {
	delta, tag, list, member string
}

var packedRows = [...]packedRow{
	{"text-delta", "text-chunks", "texts", "text"},
	{"reasoning-delta", "reasoning-chunks", "texts", "text"},
	{"tool-call-delta", "tool-call-chunks", "args", "argumentsDelta"},
}

// chunkRun is a run of chunk events that go into one packed row.
type chunkRun struct {
	kind                        *packedRow
	turn, step, index, id, name []byte
	prefix                      []byte // of the data of every event, as expansion writes it
}

// appendRows appends events as rows with their line ends. Where pack is set,
// runs of chunk events become packed rows, if unpacking gives every byte of
// their data back.
func appendRows(dst []byte, d *session.Dialect, evs []session.Event, pack bool) []byte {
	for i := 0; i < len(evs); {
		if pack {
			var run chunkRun
			if run.start(&evs[i]) {
				n := 1
				for i+n < len(evs) && run.holds(&evs[i+n]) {
					n++
				}
				if n >= minRun {
					dst = run.append(dst, evs[i:i+n])
					i += n
					continue
				}
			}
		}
		dst = session.AppendEvent(dst, d, &evs[i])
		dst = append(dst, '\n')
		i++
	}
	return dst
}

// start makes the run that ev would be the first of; false when ev is not a
// chunk event that can be packed.
func (r *chunkRun) start(ev *session.Event) bool {
	if !packable(ev) {
		return false
	}
	var chunk []byte
	for o := session.WalkObject(ev.Data); o.Next(); {
		switch {
		case o.KeyIs("turn"):
			r.turn = o.Value()
		case o.KeyIs("step"):
			r.step = o.Value()
		case o.KeyIs("chunk"):
			chunk = o.Value()
		}
	}
	typ := session.Member(chunk, "type")
	for i := range packedRows {
		if session.StringIs(typ, packedRows[i].delta) {
			r.kind = &packedRows[i]
		}
	}
	if r.kind == nil {
		return false
	}
	r.index = session.Member(chunk, "index")
	for _, n := range [][]byte{r.turn, r.step, r.index} {
		v, ok := session.Count(n)
		if !ok || string(n) != strconv.FormatInt(v, 10) {
			return false
		}
	}
	p := append([]byte(nil), `{"turn":`...)
	p = append(p, r.turn...)
	p = append(p, `,"step":`...)
	p = append(p, r.step...)
	p = append(p, `,"chunk":{"type":"`...)
	p = append(p, r.kind.delta...)
	p = append(p, `","index":`...)
	p = append(p, r.index...)
	if r.kind.list == "args" {
		r.id, r.name = session.Member(chunk, "id"), session.Member(chunk, "name")
		if session.KindOf(r.id) != session.KindString || len(r.id) == len(`""`) {
			return false
		}
		p = append(append(p, `,"id":`...), r.id...)
		if r.name != nil {
			if session.KindOf(r.name) != session.KindString {
				return false
			}
			p = append(append(p, `,"name":`...), r.name...)
		}
	}
	p = append(append(append(p, `,"`...), r.kind.member...), `":`...)
	r.prefix = p
	return r.holds(ev)
}

// holds tells whether ev belongs to the run by the exact bytes of its data.
func (r *chunkRun) holds(ev *session.Event) bool {
	if !packable(ev) {
		return false
	}
	_, ok := r.text(ev)
	return ok
}

// text is the JSON string that ev adds to the run.
func (r *chunkRun) text(ev *session.Event) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(ev.Data, r.prefix)
	if !ok {
		return nil, false
	}
	rest, ok = bytes.CutSuffix(rest, []byte("}}"))
	return rest, ok && session.KindOf(rest) == session.KindString && rest[len(rest)-1] == '"' && session.ValidJSON(rest) == nil
}

func packable(ev *session.Event) bool {
	return ev.Type == session.TypeAssistantChunk && ev.SurfaceOp == nil && ev.RawSurfaceOp == nil && ev.SourceEventSeqs == nil && !ev.Ignorable
}

func (r *chunkRun) append(dst []byte, evs []session.Event) []byte {
	dst = append(append(append(dst, `{"type":"`...), r.kind.tag...), `","seq0":`...)
	dst = strconv.AppendInt(dst, evs[0].Seq, 10)
	dst = append(dst, `,"time0":`...)
	dst = strconv.AppendInt(dst, evs[0].Time, 10)
	dst = append(append(dst, `,"data":{"turn":`...), r.turn...)
	dst = append(append(dst, `,"step":`...), r.step...)
	dst = append(append(dst, `,"index":`...), r.index...)
	dst = append(dst, `,"dt":[`...)
	for i := 1; i < len(evs); i++ {
		if i > 1 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, evs[i].Time-evs[i-1].Time, 10)
	}
	dst = append(dst, ']')
	if r.id != nil {
		dst = append(append(dst, `,"id":`...), r.id...)
	}
	if r.name != nil {
		dst = append(append(dst, `,"name":`...), r.name...)
	}
	dst = append(append(append(dst, `,"`...), r.kind.list...), `":[`...)
	for i := range evs {
		if i > 0 {
			dst = append(dst, ',')
		}
		text, _ := r.text(&evs[i])
		dst = append(dst, text...)
	}
	return append(dst, "]}}\n"...)
}
