package session

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Cause says why a turn is closed by made-up events.
type Cause string

const (
	// CauseInterrupted: the process ended inside the turn.
	CauseInterrupted Cause = "interrupted"
	// CauseForked: the session was forked inside the turn (from version 4).
	CauseForked Cause = "forked"
)

// Texts of results that repair makes up; textNotStarted stands with the
// relation that compares it.
const (
	textOutcomeUnknown = "The tool call was interrupted after it was recorded, but no result was durably recorded. Its outcome is unknown. " + textDecide
	textForkStarted    = "The history inherited by this branch records this tool call starting but does not include its result. The parent session may have completed it after the fork point. " + textDecide
	textForkUnstarted  = "The history inherited by this branch has no record of this tool call starting. The parent session may have executed it after the fork point. " + textDecide
	textDecide         = "Decide whether to retry from the tool semantics: retry only if the operation is read-only or idempotent; if it may have side effects, first verify external state or ask the user. Do not retry blindly."
)

// Recovery follows a ledger and knows at any event how to close the turn that
// is open there: deterministic closers, byte for byte those of the reference.
// It copies payloads as they are and expects no more of the ledger than the
// reference does; ledgers that a Trace refuses may be followed too. Its memory
// is that of the calls which are pending.
type Recovery struct {
	d    *Dialect
	seen bool
	last struct{ seq, time int64 }

	turn, step         json.RawMessage // absent members are the empty slice
	turnOpen, stepOpen bool

	calls []pendingCall
	index map[string]int // position in calls
	most  int            // entries that index has held since it was made
	live  int
}

type pendingCall struct {
	id         json.RawMessage
	key        string
	turn, step json.RawMessage
	callSeq    int64 // -1 before the call started
	gone       bool
}

// PendingCall is a call that a closer would answer.
type PendingCall struct {
	// RawCallID is the call's id, a JSON string in any sound ledger.
	RawCallID json.RawMessage
	// RawStep is the step of the message that advertised the call.
	RawStep json.RawMessage
	// CallSeq is the seq of the tool/call, or -1 where none was recorded.
	CallSeq int64
}

// NewRecovery returns a recovery for a ledger of dialect d.
func NewRecovery(d *Dialect) *Recovery {
	return &Recovery{d: d, index: map[string]int{}}
}

// Observe takes the next event in. The error is an *InvariantError with
// CodePayload: the payload is not what the reference could have followed.
func (r *Recovery) Observe(ev *Event) error {
	r.seen = true
	r.last.seq, r.last.time = ev.Seq, ev.Time
	if ev.DataTruncated && ev.Type != TypeTurnStart && ev.Type != TypeStepStart {
		return r.truncated(ev)
	}
	null := KindOf(ev.Data) == KindNull
	switch ev.Type {
	case TypeTurnStart:
		if null {
			return fail(ev, CodePayload, "data is null")
		}
		raw := Member(ev.Data, "turn")
		r.turnOpen, r.turn = KindOf(raw) != KindNull, stringified(raw)
		r.stepOpen = false
		r.clear()
	case TypeTurnEnd:
		r.turnOpen, r.stepOpen = false, false
		r.clear()
	case TypeStepStart:
		if null {
			return fail(ev, CodePayload, "data is null")
		}
		raw := Member(ev.Data, "step")
		r.stepOpen, r.step = KindOf(raw) != KindNull, stringified(raw)
	case TypeStepEnd:
		r.stepOpen = false
		r.clear()
	case TypeAssistantMessage:
		return r.advertise(ev)
	case TypeToolCall:
		if null {
			return fail(ev, CodePayload, "data is null")
		}
		if i, ok := r.index[callKeyOf(Member(ev.Data, "callId"))]; ok {
			r.calls[i].callSeq = ev.Seq
		}
	case TypeToolResult:
		source := Path(ev.Data, "message", "source")
		if KindOf(source) == KindNone || KindOf(source) == KindNull {
			return fail(ev, CodePayload, "message.source is missing")
		}
		r.settle(ev, Member(source, "callId"))
	}
	return nil
}

// truncated follows an event whose payload was cut, as far as it says.
func (r *Recovery) truncated(ev *Event) error {
	switch ev.Type {
	case TypeTurnEnd:
		r.turnOpen, r.stepOpen = false, false
		r.clear()
	case TypeStepEnd:
		r.stepOpen = false
		r.clear()
	case TypeAssistantMessage:
		return r.advertise(ev)
	case TypeToolCall:
		if i, ok := r.index[callKeyOf(Member(ev.Data, "callId"))]; ok {
			r.calls[i].callSeq = ev.Seq
		}
	case TypeToolResult:
		if res := r.d.ToolResultOf(ev); res.RawCallID != nil {
			r.settle(ev, res.RawCallID)
		}
	}
	return nil
}

func (r *Recovery) advertise(ev *Event) error {
	content := Path(ev.Data, "message", "content")
	if k := KindOf(content); k == KindString {
		return nil // JavaScript walks its characters, which are no calls
	} else if k != KindArray && !ev.DataTruncated {
		return fail(ev, CodePayload, "message.content is no array")
	}
	turn, step := turnStep(ev.Data)
	for a := WalkArray(content); a.Next(); {
		block := a.Value()
		if KindOf(block) == KindNull && !ev.DataTruncated {
			return fail(ev, CodePayload, "a block of message.content is null")
		}
		if !StringIs(Member(block, "type"), "tool-call") {
			continue
		}
		id := Member(block, "id")
		key := callKeyOf(id)
		call := pendingCall{id: stringified(id), key: key, turn: stringified(turn), step: stringified(step), callSeq: -1}
		if k := KindOf(id); k == KindObject || k == KindArray {
			// Two objects are never the same call.
			key = "object " + strconv.FormatInt(ev.Seq, 10) + " " + strconv.Itoa(len(r.calls))
			call.key = key
		}
		if i, ok := r.index[key]; ok {
			r.calls[i] = call
			continue
		}
		r.index[key] = len(r.calls)
		r.most = max(r.most, len(r.index))
		r.calls = append(r.calls, call)
		r.live++
	}
	return nil
}

// settle removes the call that a result answers. From version 4 only an
// appended result of the same turn and step does.
func (r *Recovery) settle(ev *Event, id []byte) {
	key := callKeyOf(id)
	i, ok := r.index[key]
	if !ok {
		return
	}
	if r.d.sealsForks {
		turn, step := turnStep(ev.Data)
		if ev.SurfaceOp == nil || ev.SurfaceOp.Replace || !sameScalar(turn, r.calls[i].turn) || !sameScalar(step, r.calls[i].step) {
			return
		}
	}
	delete(r.index, key)
	r.calls[i] = pendingCall{gone: true}
	if r.live--; r.live == 0 {
		r.calls = r.calls[:0]
	}
}

func sameScalar(a, b []byte) bool { return scalarKey(a) == scalarKey(b) }

func (r *Recovery) clear() {
	r.calls = r.calls[:0]
	r.live = 0
	r.index = emptied(r.index, &r.most)
}

// callKeyOf is the key of a call's id. Ids that are objects have none that any
// other event could name.
func callKeyOf(raw []byte) string {
	if k := KindOf(raw); k == KindObject || k == KindArray {
		return "no call"
	}
	return scalarKey(raw)
}

// OpenTurn returns the open turn as the ledger has it, absent being empty.
func (r *Recovery) OpenTurn() (raw json.RawMessage, open bool) {
	return r.turn, r.seen && r.turnOpen
}

// OpenStep returns the open step of the open turn.
func (r *Recovery) OpenStep() (raw json.RawMessage, open bool) {
	return r.step, r.turnOpen && r.stepOpen
}

// Pending lists the calls that closers would answer, in their order.
func (r *Recovery) Pending() []PendingCall {
	if !r.turnOpen {
		return nil
	}
	var out []PendingCall
	for _, c := range r.calls {
		if !c.gone {
			out = append(out, PendingCall{c.id, c.step, c.callSeq})
		}
	}
	return out
}

// Closers returns the events that close the open turn behind the last event
// that was observed: an error for each pending call, the end of the open step,
// the end of the turn. None are needed where no turn is open. Their time is that
// of the last event. They are not observed.
func (r *Recovery) Closers(cause Cause) []Event {
	if !r.seen || !r.turnOpen {
		return nil
	}
	var out []Event
	next := func(typ string, data []byte) *Event {
		out = append(out, Event{Seq: r.last.seq + 1 + int64(len(out)), Time: r.last.time, Type: typ, Data: data})
		return &out[len(out)-1]
	}
	for _, c := range r.calls {
		if c.gone {
			continue
		}
		ev := next(TypeToolResult, r.result(cause, c, r.last.seq+1+int64(len(out))))
		ev.SurfaceOp = &SurfaceOp{}
		if c.callSeq >= 0 {
			ev.SourceEventSeqs = []int64{c.callSeq}
			ev.opFirst = true
		}
	}
	if r.stepOpen {
		var o objectWriter
		o.raw("turn", r.turn)
		o.raw("step", r.step)
		next(TypeStepEnd, o.done())
	}
	var o objectWriter
	o.raw("turn", r.turn)
	o.raw("reason", []byte(`{"kind":"`+string(cause)+`"}`))
	next(TypeTurnEnd, o.done())
	return out
}

// result is the payload of a closer for one call.
func (r *Recovery) result(cause Cause, c pendingCall, seq int64) []byte {
	text, name, code := textNotStarted, nameNotStarted, codeNotStarted
	if c.callSeq >= 0 {
		text, name, code = textOutcomeUnknown, nameOutcomeUnknown, codeOutcomeUnknown
	}
	if cause == CauseForked {
		text = textForkUnstarted
		if c.callSeq >= 0 {
			text = textForkStarted
		}
	}
	block := []byte(`[{"type":"text","text":"` + text + `"}]`)
	source := objectWriter{}
	source.raw("kind", []byte(`"tool"`))
	source.raw("callId", c.id)
	id := resultID(string(cause)+"-tool-result-", c.id, seq)

	var message objectWriter
	message.raw("id", id)
	if r.d.toolRole {
		message.raw("role", []byte(`"tool"`))
		message.raw("toolCallId", c.id)
		message.raw("isError", []byte("true"))
		message.raw("source", source.done())
		message.raw("content", block)
	} else {
		var wrapper objectWriter
		wrapper.raw("type", []byte(`"tool-result"`))
		wrapper.raw("toolCallId", c.id)
		wrapper.raw("isError", []byte("true"))
		wrapper.raw("content", block)
		message.raw("role", []byte(`"user"`))
		message.raw("source", source.done())
		message.raw("content", slices.Concat([]byte("["), wrapper.done(), []byte("]")))
	}
	turn := r.turn
	if r.d.sealsForks {
		turn = c.turn
	}
	var data objectWriter
	data.raw("turn", turn)
	data.raw("step", c.step)
	data.raw("message", message.done())
	data.raw("error", []byte(`{"name":"`+name+`","code":"`+code+`"}`))
	return data.done()
}

// resultID puts prefix, call id and seq into one JSON string.
func resultID(prefix string, id []byte, seq int64) []byte {
	out := append([]byte{'"'}, prefix...)
	switch KindOf(id) {
	case KindString:
		out = append(out, id[1:len(id)-1]...)
	case KindNone:
		out = append(out, absent...)
	case KindObject, KindArray:
		out = append(out, "[object Object]"...)
	default:
		out = append(out, id...)
	}
	out = append(out, '-')
	out = strconv.AppendInt(out, seq, 10)
	return append(out, '"')
}

// stringified copies a value as JSON.stringify would write it; absent stays
// empty. Objects and arrays keep their own bytes.
func stringified(raw []byte) json.RawMessage {
	switch KindOf(raw) {
	case KindNone:
		return nil
	case KindString:
		return appendStringified(nil, raw)
	case KindNumber:
		n, _ := ParseNumber(raw)
		return AppendDouble(nil, n.Float)
	}
	return append(json.RawMessage(nil), raw...)
}

// objectWriter writes an object as JSON.stringify does: members that are absent
// are left out.
type objectWriter struct{ b []byte }

func (o *objectWriter) raw(name string, value []byte) {
	if len(value) == 0 {
		return
	}
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
	o.b = append(o.b, value...)
}

func (o *objectWriter) done() []byte {
	if len(o.b) == 0 {
		return []byte("{}")
	}
	return append(o.b, '}')
}

// Closers is Recovery over a whole ledger in memory, for an interrupted turn.
func Closers(d *Dialect, events []Event) ([]Event, error) {
	r := NewRecovery(d)
	for i := range events {
		if err := r.Observe(&events[i]); err != nil {
			return nil, err
		}
	}
	return r.Closers(CauseInterrupted), nil
}
