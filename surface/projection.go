package surface

import (
	"encoding/json"

	"github.com/otel-bridge/otel-bridge/session"
)

// Projection lets events of one log-only type change what earlier messages
// show, without a new node. It must be pure: what it says may depend on its
// arguments only, and it must not keep them.
//
// A fold may be streaming: it sees each event once and keeps no bodies. A
// projection therefore judges its decisions by what it chose to remember of a
// node when that joined the surface, and changes the message only later, when
// somebody asks for it.
type Projection interface {
	// Type is the log-only event type that the projection reads.
	Type() string
	// Remember returns what later decisions need to know of ev, an event that
	// joins the surface: nil, the usual case, when that is nothing. It must not
	// share memory with ev.
	Remember(ev *session.Event) []byte
	// Plan judges the decision ev and appends the nodes that it changes to dst,
	// each with what is to be remembered of it from then on. The error is a
	// *session.InvariantError.
	Plan(ev *session.Event, h History, dst []Change) ([]Change, error)
	// Project returns message, that of the node with this seq as all earlier
	// decisions left it, as the decision ev changes it. Only nodes that Plan
	// named are asked for. It must not write to message.
	Project(ev *session.Event, seq int64, message json.RawMessage) (json.RawMessage, error)
}

// Change is a node whose message a decision changes.
type Change struct {
	Seq int64
	// State replaces what is remembered of the node.
	State []byte
}

// History is the surface just before a decision, as a projection sees it.
type History struct {
	s          *Surface
	projection int
}

// NodeType is the event type of the current node seq, "" when it is none.
func (h History) NodeType(seq int64) string { return h.s.NodeType(seq) }

// State is what the projection remembers of the current node seq. It must not
// be written to.
func (h History) State(seq int64) []byte {
	return h.s.states[stateKey{seq, h.projection}]
}

func (s *Surface) projection(typ string) (Projection, int) {
	for i, p := range s.projections {
		if p.Type() == typ {
			return p, i
		}
	}
	return nil, 0
}
