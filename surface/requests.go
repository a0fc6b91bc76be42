package surface

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/otel-bridge/otel-bridge/session"
)

// Requests reads back from a ledger what its requests were made with: the last
// request/header and request/context, and the tools that a model was told of.
// It follows the ledger lazily.
//
// As a session.Admitter it judges request/tool-update events, by which one
// implementation of version 3 tells a model of changed tools within its
// history. It has no say in other events.
type Requests struct {
	view  *View
	next  int64 // the event to follow the ledger from
	state requestState
}

type requestState struct {
	header, context json.RawMessage

	headerSeq int64 // -1 before the first header
	hasBefore bool  // a header stands before it
	used      bool  // a tool update has named it
	before    []tool
	active    []tool // what it declares

	baseline  int64 // the header that the history starts with
	declared  map[string]string
	available map[string]bool
	history   ToolHistory
}

type tool struct {
	name string
	raw  json.RawMessage
	text string // as the reference compares it
}

// ToolHistory is what a model was told about its tools: those that it started
// with, and what changed behind which message.
type ToolHistory struct {
	Tools   []json.RawMessage
	Updates []ToolUpdate
}

// ToolUpdate is one change of a model's tools.
type ToolUpdate struct {
	AfterMessageID string
	Additions      []json.RawMessage
	Removals       []string
}

// NewRequests returns the projection for the ledger of v.
func NewRequests(v *View) *Requests {
	first, _ := v.events.Bounds()
	return &Requests{view: v, next: first, state: requestState{headerSeq: -1, baseline: -1}}
}

func (r *Requests) follow() error {
	for _, next := r.view.events.Bounds(); r.next < next; r.next++ {
		ev, err := r.view.event(r.next)
		if err != nil {
			return err
		}
		switch ev.Type {
		case typeHeader:
			r.state.takeHeader(ev)
		case typeContext:
			r.state.context = appendJSText(nil, session.TrimSpace(ev.Data))
		case typeToolUpdate:
			r.state.takeUpdate(ev)
		}
	}
	return nil
}

// Header is the last request header in its canonical form: config, then
// adapterDefaults, system and tools unless they are empty, each as the
// reference prints it. It is nil when there is none.
func (r *Requests) Header() (json.RawMessage, error) { err := r.follow(); return r.state.header, err }

// Context is the last request context, as the reference prints it. It is nil
// when there is none.
func (r *Requests) Context() (json.RawMessage, error) {
	err := r.follow()
	return r.state.context, err
}

// ToolsChanged reports whether tools, a JSON array, differ from those of the
// last header. Order counts, that of members too; the spelling of numbers does
// not. Without a header nothing has changed.
func (r *Requests) ToolsChanged(tools json.RawMessage) (bool, error) {
	if err := r.follow(); err != nil || r.state.header == nil {
		return false, err
	}
	text := func(tools []byte) []byte {
		if isEmpty(tools) {
			return nil
		}
		return appendJSText(nil, tools)
	}
	return !bytes.Equal(text(session.Member(r.state.header, "tools")), text(session.TrimSpace(tools))), nil
}

// SeriesInput is what decides whether a request starts a new series.
type SeriesInput struct {
	// Declared says that somebody asked for a new series.
	Declared bool
	// GenerationAtLastRequest is the surface's ContentGeneration when the last
	// request was made.
	GenerationAtLastRequest int64
	// ToolUpdateRoute says that the route can be told of changed tools.
	ToolUpdateRoute bool
	// Tools are those of the request to be made, a JSON array.
	Tools json.RawMessage
}

// StartsSeries reports whether a request starts a new series of messages: when
// that is declared, when the surface has changed what stood there at the last
// request, or when the tools have changed and the route cannot be told.
func (r *Requests) StartsSeries(in SeriesInput) (bool, error) {
	s, err := r.view.Surface()
	if err != nil {
		return false, err
	}
	if in.Declared || s.ContentGeneration() != in.GenerationAtLastRequest {
		return true, nil
	}
	changed, err := r.ToolsChanged(in.Tools)
	return changed && !in.ToolUpdateRoute, err
}

// ToolHistory is what the model was told about its tools. Where the updates do
// not lead to the tools of the last header, as in older ledgers and in a crash
// tail, it is those tools without updates.
func (r *Requests) ToolHistory() (ToolHistory, error) {
	if err := r.follow(); err != nil {
		return ToolHistory{}, err
	}
	if r.state.incomplete() {
		return ToolHistory{Tools: raws(r.state.active)}, nil
	}
	h := r.state.history
	return ToolHistory{slices.Clone(h.Tools), slices.Clone(h.Updates)}, nil
}

func (st *requestState) takeHeader(ev *session.Event) {
	data := session.TrimSpace(ev.Data)
	header := session.Member(data, "header")
	st.header = canonicalHeader(header)

	var tools []tool
	redeclared := false
	for a := session.WalkArray(session.Member(header, "tools")); a.Next(); {
		name, _ := session.String(session.Member(a.Value(), "name"))
		raw := bytes.Clone(a.Value())
		t := tool{name, raw, string(appendJSText(nil, raw))}
		if before, ok := st.declared[name]; ok && before != t.text {
			redeclared = true
		}
		tools = append(tools, t)
	}
	if st.baseline < 0 || session.StringIs(session.Member(data, "reason"), "series") ||
		string(session.Member(data, "startsSeries")) == "true" || redeclared || st.incomplete() {
		st.baseline = ev.Seq
		st.declared, st.available = map[string]string{}, map[string]bool{}
		for _, t := range tools {
			st.declared[t.name], st.available[t.name] = t.text, true
		}
		st.history = ToolHistory{Tools: raws(tools)}
	}
	st.before, st.hasBefore = st.active, st.headerSeq >= 0
	st.active, st.headerSeq, st.used = tools, ev.Seq, false
}

// incomplete reports whether the updates so far do not lead to the tools of the
// last header.
func (st *requestState) incomplete() bool {
	return len(st.active) != len(st.available) ||
		slices.ContainsFunc(st.active, func(t tool) bool { return !st.available[t.name] })
}

func (st *requestState) takeUpdate(ev *session.Event) {
	u, ok := readToolUpdate(ev)
	if !ok || u.headerSeq != st.headerSeq {
		return
	}
	st.used = true
	if u.headerSeq == st.baseline {
		return
	}
	update := ToolUpdate{AfterMessageID: u.after, Removals: u.removals}
	byName := make(map[string]tool, len(st.active))
	for _, t := range slices.Backward(st.active) { // of two the first counts
		byName[t.name] = t
	}
	for _, name := range u.additions {
		if t, ok := byName[name]; ok {
			st.declared[name], st.available[name] = t.text, true
			update.Additions = append(update.Additions, t.raw)
		}
	}
	for _, name := range u.removals {
		delete(st.available, name)
	}
	st.history.Updates = append(st.history.Updates, update)
}

func raws(tools []tool) []json.RawMessage {
	out := make([]json.RawMessage, len(tools))
	for i, t := range tools {
		out[i] = t.raw
	}
	return out
}

func canonicalHeader(header []byte) json.RawMessage {
	out := []byte{'{'}
	for _, name := range []string{"config", "adapterDefaults", "system", "tools"} {
		value := session.Member(header, name)
		if value == nil || name != "config" && isEmpty(value) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = session.AppendQuoted(out, name)
		out = append(out, ':')
		out = appendJSText(out, value)
	}
	return append(out, '}')
}

// isEmpty reports whether raw is absent, [], {} or "".
func isEmpty(raw []byte) bool {
	switch session.KindOf(raw) {
	case session.KindArray:
		a := session.WalkArray(raw)
		return !a.Next()
	case session.KindObject:
		o := session.WalkObject(raw)
		return !o.Next()
	case session.KindString:
		return session.StringIs(raw, "")
	case session.KindNone:
		return true
	}
	return false
}

type toolUpdate struct {
	headerSeq           int64
	after               string
	additions, removals []string
}

// readToolUpdate reads the payload of a request/tool-update.
func readToolUpdate(ev *session.Event) (u toolUpdate, ok bool) {
	data := session.TrimSpace(ev.Data)
	var okSeq, okAdd, okRemove bool
	u.headerSeq, okSeq = session.Count(session.Member(data, "headerSeq"))
	u.after, _ = session.String(session.Member(data, "afterMessageId"))
	u.additions, okAdd = names(session.Member(data, "additions"))
	u.removals, okRemove = names(session.Member(data, "removals"))
	both := slices.Concat(u.additions, u.removals)
	return u, okSeq && okAdd && okRemove && distinct(both) && u.after != "" && len(u.additions)+len(u.removals) > 0
}

// names reads an array of distinct strings, none of them empty.
func names(raw []byte) (list []string, ok bool) {
	if session.KindOf(raw) != session.KindArray {
		return nil, false
	}
	for a := session.WalkArray(raw); a.Next(); {
		s, ok := session.String(a.Value())
		if !ok || s == "" {
			return nil, false
		}
		list = append(list, s)
	}
	return list, distinct(list)
}

func distinct(list []string) bool {
	seen := make(map[string]bool, len(list))
	for _, s := range list {
		seen[s] = true
	}
	return len(seen) == len(list)
}

// noChange is the plan of an admitter that has judged and follows later.
type noChange struct{}

func (noChange) Apply() {}

// Plan judges ev, the next event of the ledger, if it is a request/tool-update:
// it is required on read, names the last header, which no other update has
// named, lists what that header changed, and follows the last message but for
// system messages, which is the user's or a tool's.
func (r *Requests) Plan(ev *session.Event) (session.Plan, error) {
	if ev.Type != typeToolUpdate {
		return noChange{}, nil
	}
	if err := r.follow(); err != nil {
		return nil, err
	}
	u, ok := readToolUpdate(ev)
	st := &r.state
	switch {
	case !ok:
		return nil, refuse(ev, CodeToolUpdate, "the payload is not that of a tool update")
	case ev.Ignorable:
		return nil, refuse(ev, CodeToolUpdate, "it must be required on read")
	case st.headerSeq < 0 || u.headerSeq != st.headerSeq || st.used:
		return nil, refuse(ev, CodeToolUpdate, "headerSeq must name the latest, unused request/header")
	case !st.hasBefore:
		return nil, refuse(ev, CodeToolUpdate, "there is no header before the one that it names")
	case !slices.Equal(u.additions, missing(st.active, st.before)) || !slices.Equal(u.removals, missing(st.before, st.active)):
		return nil, refuse(ev, CodeToolUpdate, "additions and removals must be what the header changed")
	}
	last, ok, err := r.lastMessage()
	if err != nil {
		return nil, err
	}
	if !ok || !session.StringIs(session.Member(last, "id"), u.after) || !session.StringIs(session.Member(last, "role"), "user") {
		return nil, refuse(ev, CodeToolUpdate, "it must follow the current user or tool-result message")
	}
	return noChange{}, nil
}

// missing lists the names in list that other lacks.
func missing(list, other []tool) (out []string) {
	has := make(map[string]bool, len(other))
	for _, o := range other {
		has[o.name] = true
	}
	for _, t := range list {
		if !has[t.name] {
			out = append(out, t.name)
		}
	}
	return out
}

// lastMessage is the last message that is not the system's.
func (r *Requests) lastMessage() (json.RawMessage, bool, error) {
	s, err := r.view.Surface()
	if err != nil {
		return nil, false, err
	}
	for seq := range s.nodes.backward {
		m, ok, err := r.view.message(s, seq)
		if err != nil {
			return nil, false, err
		}
		if ok && !session.StringIs(session.Member(m.Message, "role"), "system") {
			return m.Message, true, nil
		}
	}
	return nil, false, nil
}
