package telemetry

import "github.com/otel-bridge/otel-bridge/session"

// joiner puts the pieces of a model's stream together, so that redaction sees
// whole texts. The joined form is an array with, in the order in which they
// began:
//
//	{"index":0,"block":{"type":"text","text":"…"}}                              also "reasoning"
//	{"index":1,"block":{"type":"tool-call","id":"…","name":"…","arguments":"…"}}
//	{"type":"usage","usage":{…}}   {"type":"finish","reason":{…}}               as in the ledger
//	{"type":"…"}                                                                of any other chunk
//
// A block that the stream ended is the ledger's own block; one that it did not
// end has "ended":false beside it.
type joiner struct {
	parts []part
	open  map[string]int // by index, the latest block that has not ended; see part.outer
}

type part struct {
	index    []byte // JSON; nil when the part is no block
	outer    int    // the open block of the same index before this one, -1 for none
	kind     string
	id, name []byte // JSON strings
	text     []byte // inside of a JSON string
	whole    []byte // JSON: the ended block, or what is no block
}

// entry takes one member of data.stream (from format 2).
func (j *joiner) entry(entry []byte) {
	typ := session.Member(entry, "type")
	switch {
	case session.StringIs(typ, "chunk"):
		j.chunk(session.Member(entry, "chunk"))
	case session.StringIs(typ, "text-chunks"):
		j.run("text", entry, "texts")
	case session.StringIs(typ, "reasoning-chunks"):
		j.run("reasoning", entry, "texts")
	case session.StringIs(typ, "tool-call-chunks"):
		j.run("tool-call", entry, "args")
	default:
		j.other(entry)
	}
}

func (j *joiner) run(kind string, entry []byte, pieces string) {
	p := j.block(session.Member(entry, "index"), kind)
	p.named(entry)
	for a := session.WalkArray(session.Member(entry, pieces)); a.Next(); {
		p.add(a.Value())
	}
}

// chunk takes one chunk, as an assistant/chunk event has it.
func (j *joiner) chunk(chunk []byte) {
	typ := session.Member(chunk, "type")
	index := session.Member(chunk, "index")
	switch {
	case session.StringIs(typ, "block-start"):
		kind, _ := session.String(session.Member(chunk, "blockType"))
		j.start(orZero(index), kind)
	case session.StringIs(typ, "text-delta"):
		j.block(index, "text").delta(chunk)
	case session.StringIs(typ, "reasoning-delta"):
		j.block(index, "reasoning").delta(chunk)
	case session.StringIs(typ, "tool-call-delta"):
		j.block(index, "tool-call").delta(chunk)
	case session.StringIs(typ, "block-end"):
		j.end(j.block(index, ""), session.Member(chunk, "block"))
	case session.StringIs(typ, "usage"), session.StringIs(typ, "finish"):
		j.parts = append(j.parts, part{whole: chunk})
	default:
		j.other(chunk)
	}
}

// other keeps no more than the type of what is not understood.
func (j *joiner) other(v []byte) {
	typ := session.Member(v, "type")
	if session.KindOf(typ) != session.KindString {
		typ = []byte(`"unknown"`)
	}
	whole := append([]byte(`{"type":`), typ...)
	j.parts = append(j.parts, part{whole: append(whole, '}')})
}

// block finds the open block with an index, the latest first, or starts one.
func (j *joiner) block(index []byte, kind string) *part {
	index = orZero(index)
	at, ok := j.open[string(index)]
	if !ok {
		return j.start(index, kind)
	}
	p := &j.parts[at]
	if p.kind == "" {
		p.kind = kind
	}
	return p
}

// start begins a block.
func (j *joiner) start(index []byte, kind string) *part {
	outer, ok := j.open[string(index)]
	if !ok {
		outer = -1
	}
	if j.open == nil {
		j.open = make(map[string]int)
	}
	j.open[string(index)] = len(j.parts)
	j.parts = append(j.parts, part{index: index, kind: kind, outer: outer})
	return &j.parts[len(j.parts)-1]
}

// end ends the latest open block with p's index, which p is. Without the whole
// block it stays open.
func (j *joiner) end(p *part, whole []byte) {
	switch p.whole = whole; {
	case whole == nil:
	case p.outer < 0:
		delete(j.open, string(p.index))
	default:
		j.open[string(p.index)] = p.outer
	}
}

func orZero(index []byte) []byte {
	if session.KindOf(index) != session.KindNumber {
		return []byte("0")
	}
	return index
}

// delta takes the piece of a delta chunk.
func (p *part) delta(chunk []byte) {
	p.named(chunk)
	for o := session.WalkObject(chunk); o.Next(); {
		if o.KeyIs("text") || o.KeyIs("argumentsDelta") {
			p.add(o.Value())
		}
	}
}

func (p *part) named(v []byte) {
	if id := session.Member(v, "id"); session.KindOf(id) == session.KindString {
		p.id = id
	}
	if name := session.Member(v, "name"); session.KindOf(name) == session.KindString {
		p.name = name
	}
}

func (p *part) add(raw []byte) {
	if session.KindOf(raw) == session.KindString {
		p.text = append(p.text, raw[1:len(raw)-1]...)
	}
}

func (j *joiner) appendTo(b []byte) []byte {
	b = append(b, '[')
	for i := range j.parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = j.parts[i].appendTo(b)
	}
	return append(b, ']')
}

func (p *part) appendTo(b []byte) []byte {
	if p.index == nil {
		return append(b, p.whole...)
	}
	b = append(b, `{"index":`...)
	b = append(b, p.index...)
	b = append(b, `,"block":`...)
	if p.whole != nil {
		b = append(b, p.whole...)
		return append(b, '}')
	}
	b = append(b, `{"type":`...)
	b = appendJSONString(b, p.kind)
	text := `,"text":"`
	if p.kind == "tool-call" {
		text = `,"arguments":"`
		if p.id != nil {
			b = append(append(b, `,"id":`...), p.id...)
		}
		if p.name != nil {
			b = append(append(b, `,"name":`...), p.name...)
		}
	}
	b = append(b, text...)
	b = append(b, p.text...)
	return append(b, `"},"ended":false}`...)
}
