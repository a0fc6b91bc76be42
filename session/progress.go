package session

import (
	"bytes"
	"encoding/json"
	"slices"
)

// TurnBoundary is where a ledger stands between turns and steps, as the
// reference's agent loop folds it from the events alone.
type TurnBoundary struct {
	// OpenTurnStartSeq is the seq of the open turn's start, or -1.
	OpenTurnStartSeq int64
	// LastStepStartSeq is the seq of the last step/start, or -1.
	LastStepStartSeq int64
	// LastStepSeq is the seq of the last step/start or step/end, or -1;
	// LastStepEnded tells which of them.
	LastStepSeq   int64
	LastStepEnded bool
	// LastTurn is the turn that the last turn/start names, copied as it is: 0
	// before the first, nil where it names none.
	LastTurn json.RawMessage
}

// NewTurnBoundary is the boundary of an empty ledger.
func NewTurnBoundary() TurnBoundary {
	return TurnBoundary{OpenTurnStartSeq: -1, LastStepStartSeq: -1, LastStepSeq: -1, LastTurn: json.RawMessage("0")}
}

// Observe takes the next event in. The error is an *InvariantError with
// CodePayload where the payload of a turn/start is null.
func (b *TurnBoundary) Observe(ev *Event) error {
	switch ev.Type {
	case TypeTurnStart:
		if KindOf(ev.Data) == KindNull {
			return fail(ev, CodePayload, "data is null")
		}
		b.OpenTurnStartSeq = ev.Seq
		b.LastTurn = clone(Member(ev.Data, "turn"))
	case TypeTurnEnd:
		b.OpenTurnStartSeq = -1
	case TypeStepStart:
		b.LastStepStartSeq = ev.Seq
		b.LastStepSeq, b.LastStepEnded = ev.Seq, false
	case TypeStepEnd:
		b.LastStepSeq, b.LastStepEnded = ev.Seq, true
	}
	return nil
}

// Title is the session's title as its last session/title gives it.
type Title struct {
	// Raw is the title, copied as it is: null before the first, nil where the
	// last event has none.
	Raw json.RawMessage
}

// NewTitle is the title of an empty ledger.
func NewTitle() Title { return Title{Raw: json.RawMessage("null")} }

// Observe takes the next event in. The error is an *InvariantError with
// CodePayload where the payload of a session/title is null.
func (t *Title) Observe(ev *Event) error {
	if ev.Type != "session/title" {
		return nil
	}
	if KindOf(ev.Data) == KindNull {
		return fail(ev, CodePayload, "data is null")
	}
	t.Raw = clone(Member(ev.Data, "title"))
	return nil
}

func clone(raw []byte) json.RawMessage {
	if raw == nil {
		return nil
	}
	return append(json.RawMessage{}, raw...)
}

// Child is one subagent that a session has started, as its own catalog says.
type Child struct {
	// Seq is that of the catalog's event.
	Seq int64
	// ID is the child's session id.
	ID string
	// RawCreatedAt is the child's creation time as the ledger has it.
	RawCreatedAt json.RawMessage
	// Mode is "one-shot", "continuable" or, in what migration wrote, "unknown".
	Mode string
	// Label is nil where the child has none.
	Label *string
}

// Unfinished follows a ledger and knows what it leaves unfinished: the open
// turn and its calls (Recovery), an open compaction, the children that are
// catalogued, and the input that waits in the agent's inbox.
type Unfinished struct {
	// Recovery knows the open turn, the open step and the pending calls.
	Recovery *Recovery
	// CompactionSeq is the seq of the compaction/start that is neither ended
	// nor orphaned by a session/end-seed, or -1.
	CompactionSeq int64
	// Children lists the session's own children in the order of the catalog.
	Children []Child
	// ChildrenErr is the first own fact of the catalog that is malformed; the
	// catalog is not to be trusted then.
	ChildrenErr error
	// NextTurn and NextStep are the messages that wait for the next turn and
	// for the next step, as the ledger has them.
	NextTurn, NextStep []json.RawMessage
	// InboxErr is the first splice of the inbox that does not fit.
	InboxErr error

	inherited int64
}

// NewUnfinished returns what an empty ledger leaves unfinished. inherited is the
// number of events that the session inherited: their children are the parent's.
func NewUnfinished(d *Dialect, inherited int64) *Unfinished {
	return &Unfinished{Recovery: NewRecovery(d), CompactionSeq: -1, inherited: inherited}
}

// Observe takes the next event in. The error is that of Recovery.Observe; what
// is wrong with the catalog or the inbox is kept in its own field.
func (u *Unfinished) Observe(ev *Event) error {
	switch ev.Type {
	case "compaction/start":
		u.CompactionSeq = ev.Seq
	case "compaction/end", TypeEndSeed:
		u.CompactionSeq = -1
	case "subagent/catalog":
		if u.ChildrenErr == nil && ev.Seq >= u.inherited {
			u.child(ev)
		}
	case "agent/inbox/spliced":
		if u.InboxErr == nil && !u.splice(ev) {
			u.InboxErr = fail(ev, CodeInbox, "the splice does not fit the inbox")
		}
	}
	return u.Recovery.Observe(ev)
}

func (u *Unfinished) child(ev *Event) {
	var version, id, createdAt, mode, label []byte
	wrong := exactMembers(ev.Data,
		[]slot{{"version", &version}, {"childId", &id}, {"childCreatedAt", &createdAt}, {"mode", &mode}},
		[]slot{{"label", &label}})
	n, number := ParseNumber(createdAt)
	v, _ := ParseNumber(version)
	c := Child{Seq: ev.Seq, RawCreatedAt: clone(createdAt)}
	c.Mode, _ = String(mode)
	var ok bool
	c.ID, ok = String(id)
	if label != nil {
		s, isString := String(label)
		c.Label, ok = &s, ok && isString
	}
	ok = ok && wrong == "" && number && n.IsInt && n.Int >= 0 && n.Int <= MaxSafeInteger && KindOf(version) == KindNumber
	switch {
	case ok && v.Float == 0 && (c.Mode == "one-shot" || c.Mode == "continuable" && c.Label != nil):
	case ok && v.Float == 1 && c.Mode == "unknown" && c.Label == nil:
	default:
		u.ChildrenErr = fail(ev, CodePayload, "no fact of a catalog")
		return
	}
	u.Children = append(u.Children, c)
}

// splice applies a splice of the inbox and reports whether it fits.
func (u *Unfinished) splice(ev *Event) bool {
	target := Member(ev.Data, "target")
	var from []json.RawMessage
	switch propertyKey(target) {
	case "next-turn":
		from = u.NextTurn
	case "next-step":
		from = u.NextStep
	default:
		return false
	}
	// The reference looks the queue up by property and stores it by comparison:
	// a target of ["next-turn"] reads the one and writes the other.
	into, other := &u.NextStep, u.NextTurn
	if StringIs(target, "next-turn") {
		into, other = &u.NextTurn, u.NextStep
	}
	start, okStart := index(Member(ev.Data, "start"))
	removed, okRemoved := int64(0), true
	if raw := Member(ev.Data, "removedCount"); raw != nil && KindOf(raw) != KindNull {
		removed, okRemoved = index(raw)
	}
	size := int64(len(from))
	if !okStart || !okRemoved || start > size || start+removed > size {
		return false
	}
	inserted, ok := spread(Member(ev.Data, "inserted"))
	if !ok {
		return false
	}
	next := slices.Concat(from[:start], inserted, from[start+removed:])
	ids := map[string]struct{}{}
	for _, list := range [2][]json.RawMessage{next, other} {
		for _, message := range list {
			if KindOf(message) == KindNull {
				return false
			}
			id := Member(message, "id")
			if k := KindOf(id); k == KindObject || k == KindArray {
				continue // no two objects are the same id
			}
			if _, dup := ids[scalarKey(id)]; dup {
				return false
			}
			ids[scalarKey(id)] = struct{}{}
		}
	}
	*into = next
	return true
}

// index reads a safe integer that is not negative; negative zero counts as 0.
func index(raw []byte) (int64, bool) {
	n, ok := ParseNumber(raw)
	return n.Int, ok && n.IsInt && n.Int >= 0 && n.Int <= MaxSafeInteger
}

// propertyKey is the name that a value means as a key in JavaScript, for the
// values that can mean one of the inbox's: a string, or an array of one.
func propertyKey(raw []byte) string {
	i := 0
	for i < len(raw) && raw[i] == '[' {
		i = skipSpace(raw, i+1)
	}
	if i == len(raw) || raw[i] != '"' {
		return ""
	}
	end := skipString(raw, i)
	if len(bytes.Trim(raw[end:], "] \t\r\n")) > 0 {
		return ""
	}
	s, _ := String(raw[i:end])
	return s
}

// spread lists what a value spreads to: the elements of an array, the
// characters of a string.
func spread(raw []byte) ([]json.RawMessage, bool) {
	var out []json.RawMessage
	switch KindOf(raw) {
	case KindArray:
		for a := WalkArray(raw); a.Next(); {
			out = append(out, clone(a.Value()))
		}
	case KindString:
		units := utf16Units(raw)
		for i := 0; i < len(units); i++ {
			n := 1
			if i+1 < len(units) && units[i]&0xFC00 == 0xD800 && units[i+1]&0xFC00 == 0xDC00 {
				n = 2
			}
			out = append(out, appendUnits(nil, units[i:i+n]))
			i += n - 1
		}
	default:
		return nil, false
	}
	return out, true
}
