package telemetry

import (
	"strconv"

	"github.com/otel-bridge/otel-bridge/session"
)

// projector decides, event by event and by dialect, what of a ledger becomes a
// record. It sees every event, also those that are not exported, and holds
// nothing but the stream of the open step.
//
// Three rules, one reason: a fragment of text can be a fragment of a secret,
// which no rule recognises.
//
//   - Chunk events (formats 0 and 1): the first of each step goes out as a
//     signal that the answer has started, with the chunk's type, index and block
//     type and nothing else. The others are elided; the whole text follows in
//     the assembled message.
//   - Embedded streams (from format 2): assistant/message goes out without its
//     stream, which repeats the message in pieces.
//   - Streams that never became a message go out joined, see joiner: in the
//     assistant/attempt of the ledger, or in formats 0 and 1 as an ops record
//     "attempt" when the attempt is over (llm/retry, step/end).
type projector struct {
	dialect *session.Dialect
	started bool // a chunk of the open step was seen
	stream  stream
	body    []byte
}

// stream holds the chunks of the open attempt, as the ledger has them.
type stream struct {
	chunks   []byte // the payloads, one after the other
	ends     []int
	lastMs   int64
	tooLarge bool
}

// maxStreamBytes bounds what is kept of one attempt. What is larger is withheld.
const maxStreamBytes = DefaultMaxLineBytes

// DefaultMaxLineBytes is the default limit of a ledger's line.
const DefaultMaxLineBytes = 16 << 20

func (s *stream) reset() {
	*s = stream{chunks: s.chunks[:0], ends: s.ends[:0]}
	if cap(s.chunks) > 1<<20 {
		s.chunks = nil // an idle session keeps no large buffer
	}
}

func (s *stream) empty() bool { return len(s.ends) == 0 && !s.tooLarge }

func (s *stream) add(ev *session.Event) {
	s.lastMs = ev.Time
	if ev.DataTruncated || len(s.chunks)+len(ev.Data) > maxStreamBytes {
		s.tooLarge = true
		s.chunks, s.ends = s.chunks[:0], s.ends[:0]
		return
	}
	if !s.tooLarge {
		s.chunks = append(s.chunks, ev.Data...)
		s.ends = append(s.ends, len(s.chunks))
	}
}

// projection is what becomes of one event.
type projection struct {
	elided bool
	body   []byte // valid until the next event
	// attempt says that the stream that this event ends became no message and
	// goes out before the event. It is taken with takeAttempt.
	attempt bool
}

// observe takes the next event of the ledger. With export false only the state
// moves.
func (p *projector) observe(ev *session.Event, export bool) projection {
	if p.dialect.StreamsAsChunks() {
		switch ev.Type {
		case session.TypeAssistantChunk:
			return p.chunk(ev, export)
		case session.TypeStepStart:
			p.started = false
			p.stream.reset()
		case session.TypeAssistantMessage:
			p.stream.reset()
		}
		return projection{body: ev.Data, attempt: p.endsAttempt(ev)}
	}
	if !export || ev.DataTruncated {
		return projection{body: ev.Data}
	}
	switch ev.Type {
	case session.TypeAssistantMessage:
		return projection{body: p.withoutStream(ev)}
	case session.TypeAssistantAttempt:
		return projection{body: p.joinedStream(ev.Data)}
	}
	return projection{body: ev.Data}
}

// endsAttempt tells whether ev ends a stream that became no message.
func (p *projector) endsAttempt(ev *session.Event) bool {
	if p.stream.empty() {
		return false
	}
	return ev.Type == "llm/retry" || ev.Type == session.TypeStepEnd || ev.Type == session.TypeTurnEnd
}

// forget drops what is held of the open attempt: those events are not in scope.
func (p *projector) forget() { p.stream.reset() }

func (p *projector) chunk(ev *session.Event, export bool) projection {
	p.stream.add(ev)
	if p.started {
		return projection{elided: true}
	}
	p.started = true
	if !export {
		return projection{elided: true}
	}
	turn, step, chunk := chunkOf(ev.Data)
	b := append(p.body[:0], `{"turn":`...)
	b = strconv.AppendInt(b, turn, 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, step, 10)
	b = append(b, `,"chunk":{`...)
	n := len(b)
	for o := session.WalkObject(chunk); o.Next(); {
		kind := session.KindOf(o.Value())
		switch {
		case o.KeyIs("type") && kind == session.KindString,
			o.KeyIs("blockType") && kind == session.KindString,
			o.KeyIs("index") && kind == session.KindNumber:
			b = appendMember(b, n, o.RawKey(), o.Value())
		}
	}
	p.body = append(b, "}}"...)
	return projection{body: p.body}
}

// chunkOf takes the payload of a chunk event apart.
func chunkOf(data []byte) (turn, step int64, chunk []byte) {
	for o := session.WalkObject(data); o.Next(); {
		switch {
		case o.KeyIs("turn"):
			turn = integer(o.Value())
		case o.KeyIs("step"):
			step = integer(o.Value())
		case o.KeyIs("chunk"):
			chunk = o.Value()
		}
	}
	return turn, step, chunk
}

// appendMember appends a member to the object whose first member is to stand at
// n.
func appendMember(b []byte, n int, key, value []byte) []byte {
	if len(b) > n {
		b = append(b, ',')
	}
	b = append(b, key...)
	b = append(b, ':')
	return append(b, value...)
}

func integer(raw []byte) int64 {
	n, _ := session.ParseNumber(raw)
	return n.Int
}

// withoutStream is ev's payload without its member "stream"; the payload itself
// when it has none.
func (p *projector) withoutStream(ev *session.Event) []byte {
	if ev.Member(ev.Data, "stream") == nil {
		return ev.Data
	}
	b := append(p.body[:0], '{')
	for o := ev.WalkObject(ev.Data); o.Next(); {
		if !o.KeyIs("stream") {
			b = appendMember(b, 1, o.RawKey(), o.Value())
		}
	}
	p.body = append(b, '}')
	return p.body
}

// joinedStream is data with its stream joined.
func (p *projector) joinedStream(data []byte) []byte {
	var j joiner
	for entries := session.WalkArray(session.Member(data, "stream")); entries.Next(); {
		j.entry(entries.Value())
	}
	b := append(p.body[:0], '{')
	for o := session.WalkObject(data); o.Next(); {
		if !o.KeyIs("stream") {
			b = appendMember(b, 1, o.RawKey(), o.Value())
		}
	}
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `"stream":`...)
	b = j.appendTo(b)
	p.body = append(b, '}')
	return p.body
}

// takeAttempt returns the body of the attempt that the last observed event
// ended, or false when it was too large to be kept, and forgets it.
func (p *projector) takeAttempt() (body []byte, lastMs int64, ok bool) {
	s := &p.stream
	defer s.reset()
	if s.tooLarge {
		return nil, s.lastMs, false
	}
	var j joiner
	var turn, step int64
	at := 0
	for _, end := range s.ends {
		var chunk []byte
		turn, step, chunk = chunkOf(s.chunks[at:end])
		j.chunk(chunk)
		at = end
	}
	b := append([]byte(nil), `{"turn":`...)
	b = strconv.AppendInt(b, turn, 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, step, 10)
	b = append(b, `,"stream":`...)
	return append(j.appendTo(b), '}'), s.lastMs, true
}
