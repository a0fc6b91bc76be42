package surface

import (
	"slices"

	"github.com/otel-bridge/otel-bridge/session"
)

// ContextCleared is what a model is told when runtime context has gone.
const ContextCleared = "Current runtime context: none. Earlier runtime-context snapshots no longer apply."

// RuntimeContext decides when a model is told its runtime context again: a
// snapshot in a user/message that the dialect's runtime-context source owns. It
// commits nothing.
//
// The last snapshot counts as long as it stands on the surface. After a
// compaction has shadowed it, the same text is sent again.
type RuntimeContext struct {
	view *View
	next int64 // the event to follow the ledger from
	// state of the last snapshot: never any, none on the surface, or seq and
	// text of the one that is.
	ever, retained bool
	seq            int64
	text           string
	plain          bool
}

// ContextSection is a named contribution to a snapshot.
type ContextSection struct {
	Name string
	Text string
}

// NewRuntimeContext finds the last snapshot in the ledger of v and follows the
// ledger from then on.
func NewRuntimeContext(v *View) (*RuntimeContext, error) {
	s, err := v.Surface()
	if err != nil {
		return nil, err
	}
	r := &RuntimeContext{view: v}
	first, next := v.events.Bounds()
	r.next = next
	for seq := next - 1; seq >= first && !r.retained; seq-- {
		ev, err := v.event(seq)
		if err != nil {
			return nil, err
		}
		if !r.owns(ev) {
			continue
		}
		r.ever = true
		if s.IsNode(seq) {
			r.retain(ev)
		}
	}
	return r, nil
}

func (r *RuntimeContext) owns(ev *session.Event) bool {
	return ev.Type == typeUser &&
		r.view.d.RuntimeContextSource().Matches(session.Member(session.TrimSpace(ev.Data), "source"))
}

func (r *RuntimeContext) retain(ev *session.Event) {
	r.ever, r.retained, r.seq = true, true, ev.Seq
	r.text, r.plain = text(session.TrimSpace(ev.Data))
}

// follow reads what the ledger has gained.
func (r *RuntimeContext) follow() error {
	for _, next := r.view.events.Bounds(); r.next < next; r.next++ {
		ev, err := r.view.event(r.next)
		if err != nil {
			return err
		}
		switch {
		case r.owns(ev):
			r.retain(ev)
		case r.retained && ev.SurfaceOp != nil && ev.SurfaceOp.Replace &&
			r.view.s.isSurface(ev.Type) && slices.Contains(ev.SourceEventSeqs, r.seq):
			r.retained = false
		}
	}
	return nil
}

// Project returns the user/message to append so that the model knows current,
// the whole runtime context, "" for none: without seq and time, its message
// with this id. ok is false when the model knows already, or has never been
// told any and there is none.
func (r *RuntimeContext) Project(current string, sections []ContextSection, id string) (ev session.Event, ok bool, err error) {
	if err := r.follow(); err != nil {
		return session.Event{}, false, err
	}
	if !r.ever && current == "" {
		return session.Event{}, false, nil
	}
	snapshot := current
	if snapshot == "" {
		snapshot = ContextCleared
	}
	if r.retained && r.plain && r.text == snapshot {
		return session.Event{}, false, nil
	}
	data := append([]byte(nil), `{"content":[`...)
	data = appendTextBlock(data, snapshot)
	data = append(data, `],"source":{`...)
	data = appendSource(data, r.view.d.RuntimeContextSource())
	if len(sections) > 0 {
		data = append(data, `,"form":"snapshot","sections":[`...)
		for i, s := range sections {
			if i > 0 {
				data = append(data, ',')
			}
			data = append(data, `{"name":`...)
			data = session.AppendQuoted(data, s.Name)
			data = append(data, `,"text":`...)
			data = session.AppendQuoted(data, s.Text)
			data = append(data, '}')
		}
		data = append(data, ']')
	}
	data = append(data, `},"role":"user","id":`...)
	data = session.AppendQuoted(data, id)
	data = append(data, '}')
	return session.Event{Type: typeUser, Data: data, SurfaceOp: &session.SurfaceOp{}}, true, nil
}
