package surface

import "maps"

// Op is what an event does to a surface.
type Op uint8

// What an event can do.
const (
	// OpNone: the event is log-only.
	OpNone Op = iota
	// OpAppend: it becomes the last node.
	OpAppend
	// OpReplace: it takes the place of a span of nodes.
	OpReplace
	// OpProject: it changes what messages of current nodes show.
	OpProject
)

func (o Op) String() string {
	return [...]string{"none", "append", "replace", "project"}[o]
}

// Plan is what one event will do to a Surface. It is valid until the next call
// of Plan or Fold of that Surface.
type Plan struct {
	s       *Surface
	pending bool
	op      Op
	seq     int64
	typ     string
	kind    kind
	digest  digest

	start, end         int64
	startSlot, endSlot int
	shadowed           int

	projection int
	changes    []Change
	remembered []remembered
	tools      *toolSet
}

type remembered struct {
	projection int
	state      []byte
}

func (p *Plan) reset() {
	clear(p.changes)
	clear(p.remembered)
	*p = Plan{s: p.s, changes: p.changes[:0], remembered: p.remembered[:0]}
}

// Op is what the event does.
func (p *Plan) Op() Op { return p.op }

// Span returns the seqs of the first and the last node that a replace shadows,
// as its surfaceOp names them. Start may be larger than end.
func (p *Plan) Span() (start, end int64) { return p.start, p.end }

// Shadowed is the number of nodes that a replace shadows.
func (p *Plan) Shadowed() int { return p.shadowed }

// Apply folds the event. Calling it again does nothing.
func (p *Plan) Apply() {
	if !p.pending {
		return
	}
	p.pending = false
	s := p.s
	s.next = p.seq + 1
	switch p.op {
	case OpNone:
		if p.tools != nil {
			s.headers.add(p.seq, p.tools)
		}
		return
	case OpProject:
		s.changed++
		for _, c := range p.changes {
			s.setState(p.projection, c.Seq, c.State)
			if s.decisions == nil {
				s.decisions = map[int64][]int64{}
			}
			// Never in place: a clone may share the array.
			old := s.decisions[c.Seq]
			s.decisions[c.Seq] = append(old[:len(old):len(old)], p.seq)
		}
		return
	case OpReplace:
		s.replaced++
		s.changed++
		if len(s.states) > 0 || len(s.decisions) > 0 {
			for i := p.startSlot; i <= p.endSlot; i = s.nodes.next(i) {
				s.forget(s.nodes.slots[i].seq)
			}
		}
	}
	if p.kind == kindOther {
		p.kind = s.internKind(p.typ)
	}
	if p.op == OpReplace {
		s.nodes.replace(p.startSlot, p.endSlot, p.shadowed, p.seq, p.kind, p.digest)
	} else {
		s.nodes.append(p.seq, p.kind, p.digest)
	}
	for _, r := range p.remembered {
		s.setState(r.projection, p.seq, r.state)
	}
}

type stateKey struct {
	seq        int64
	projection int
}

func (s *Surface) setState(projection int, seq int64, state []byte) {
	if s.states == nil {
		s.states = map[stateKey][]byte{}
	}
	s.states[stateKey{seq, projection}] = state
}

func (s *Surface) forget(seq int64) {
	for i := range s.projections {
		delete(s.states, stateKey{seq, i})
	}
	delete(s.decisions, seq)
}

func cloneMap[M ~map[K]V, K comparable, V any](m M) M {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

// kind is the event type of a node, as an index into Surface.kinds.
type kind uint16

const (
	kindUser kind = iota
	kindAssistant
	kindTool
	kindSystem
	kindDeveloper
	kindOther // not yet interned
)

const (
	typeUser      = "user/message"
	typeAssistant = "assistant/message"
	typeTool      = "tool/result"
	typeSystem    = "system/message"
	typeDeveloper = "developer/message"
	typeHeader    = "request/header"
	typeContext   = "request/context"
	typeOffload   = "image/offload"
	// typeToolUpdate is of the second implementation of version 3.
	typeToolUpdate = "request/tool-update"
)

// coreKinds is the start of every Surface.kinds; kindOther has no name.
var coreKinds = [...]string{typeUser, typeAssistant, typeTool, typeSystem, typeDeveloper, ""}

func (s *Surface) kindOf(typ string) kind {
	switch typ {
	case typeUser:
		return kindUser
	case typeAssistant:
		return kindAssistant
	case typeTool:
		return kindTool
	case typeSystem:
		return kindSystem
	case typeDeveloper:
		return kindDeveloper
	}
	return kindOther
}

// internKind gives a surface type beyond the core's a kind of its own.
func (s *Surface) internKind(typ string) kind {
	for i := int(kindOther) + 1; i < len(s.kinds); i++ {
		if s.kinds[i] == typ {
			return kind(i)
		}
	}
	s.kinds = append(s.kinds, typ)
	return kind(len(s.kinds) - 1)
}
