package session

import "fmt"

// EventType describes one event type to a Vocabulary.
type EventType struct {
	// Name is the type as ledgers write it, such as "acme/bookmark".
	Name string
	// Surface is true for a type whose events are nodes of the surface and
	// carry surfaceOp; false for a type that is log only.
	Surface bool
	// Check judges the payload by itself, if it is not nil. Its error must not
	// quote content.
	Check func(ev *Event) error
	// Invariant makes the type's own relational check for one ledger, if it is
	// not nil. The trace asks it about every event of the ledger, of any type.
	Invariant func() Admitter
}

// Vocabulary is the set of event types that a reader understands. It is a value
// that never changes: With makes another one. An event of any other type
// refuses its ledger, unless it says that it is ignorable.
type Vocabulary struct {
	types map[string]*EventType
	extra []EventType // with an Invariant, in the order of registration
}

// Types that every version of DSH knows, but for the differences below.
var commonTypes = []string{
	"agent-preset/selected", "agent/inbox/spliced", "approval/asked", "approval/decided", "approval/policy",
	"command/done", "command/run", "compaction/end", "compaction/prune", "compaction/start", "compaction/summary",
	TypeFeedbackRecord, "goal/change", "hook/invoked", "hook/result", "llm/retry", "llm/retry-started",
	"model/selection", "permission/preset", "plan/mode", TypeRequestContext, TypeRequestHeader, "sandbox/mode",
	"schedule/change", "session-log-deepseek/delivery-accepted", TypeEndSeed, "session/title",
	"session/title-llm-request", TypeStepEnd, TypeStepStart, "subagent/descriptor", "subagent/model-selection-policy",
	"team/member", "team/message/delivered", "team/message/queued", "team/task", "todo/write",
	"tool-workflow/agent-end", "tool-workflow/agent-start", "tool-workflow/run-end", "tool-workflow/run-start",
	TypeToolCall, TypeTurnEnd, TypeTurnStart, "web/deepseek-search-llm-request",
}

// Types that came with the generations that embed streams, and those that came
// with the protected system head.
var (
	embeddedTypes = []string{TypeAssistantAttempt, "feedback/message-delete", "feedback/message-put"}
	headTypes     = []string{"deliverables/presented", TypeImageOffload, "subagent/catalog", "workspace/changes"}
)

// cores holds the vocabulary of each dialect; it is never changed.
var cores = func() (all [MaxVersion + 1]*Vocabulary) {
	for i := range dialects {
		d := &dialects[i]
		v := &Vocabulary{types: map[string]*EventType{}}
		add := func(surface bool, names ...string) {
			for _, n := range names {
				v.types[n] = &EventType{Name: n, Surface: surface}
			}
		}
		add(false, commonTypes...)
		add(false, d.ptcStart, d.ptcEnd)
		if d.chunks {
			add(false, TypeAssistantChunk)
		} else {
			add(false, embeddedTypes...)
		}
		if d.systemHead {
			add(false, headTypes...)
		}
		add(false, d.ownTypes...)
		add(true, d.surface...)
		all[i] = v
	}
	return all
}()

// Core is the vocabulary that the reference's own builds of d's version know.
func Core(d *Dialect) *Vocabulary { return cores[d.version] }

// With returns v with more types. It refuses a name that is empty, that v
// already has, or that stands twice.
func (v *Vocabulary) With(types ...EventType) (*Vocabulary, error) {
	w := &Vocabulary{types: make(map[string]*EventType, len(v.types)+len(types)), extra: v.extra[:len(v.extra):len(v.extra)]}
	for n, t := range v.types {
		w.types[n] = t
	}
	for _, t := range types {
		if t.Name == "" {
			return nil, fmt.Errorf("session: an event type needs a name")
		}
		if _, dup := w.types[t.Name]; dup {
			return nil, fmt.Errorf("session: event type %s is registered already", shortType(t.Name))
		}
		w.types[t.Name] = &t
		if t.Invariant != nil {
			w.extra = append(w.extra, t)
		}
	}
	return w, nil
}

// Lookup finds a type by name.
func (v *Vocabulary) Lookup(name string) (EventType, bool) {
	if t := v.types[name]; t != nil {
		return *t, true
	}
	return EventType{}, false
}
