package surface

import (
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/otel-bridge/otel-bridge/session"
)

// Surface is the fold of one ledger: the seqs of the events whose messages the
// model sees, in the order in which it sees them.
//
// It is a session.Admitter. Plan judges an event against the ledger so far;
// Apply of the plan folds it. Every event of the ledger has to be folded, the
// log-only ones too. Of bodies it keeps digests only: one of each tool/result
// for the check of a rewrite, what projections remember (for image/offload the
// number of images), and the names of the tools that headers declare where the
// dialect has developer messages.
//
// A Surface must not be used by several goroutines at a time, reading included.
type Surface struct {
	rules       rules
	known       func(typ string) bool
	custom      func(typ string) bool // surface types beyond the dialect's, or nil
	projections []Projection

	base, next int64
	nodes      nodeList
	replaced   int64 // replacements so far
	changed    int64 // replacements and projections so far
	kinds      []string
	headers    headers
	// states holds what projections remember of live nodes, decisions the
	// log-only events that changed a live node's message. Both are sparse.
	states    map[stateKey][]byte
	decisions map[int64][]int64

	plan   Plan
	sorted []int64 // scratch: the sources of the candidate in order
	seed   maphash.Seed
}

// rules are a dialect's answers to what the fold asks for every event.
type rules struct {
	d                *session.Dialect
	assistantSources bool // assistant/message may carry sourceEventSeqs
	protectedHead    bool
	toolRole         bool
}

func rulesOf(d *session.Dialect) rules {
	return rules{
		d:                d,
		assistantSources: d.AssistantSources(),
		protectedHead:    d.ProtectsSystemHead(),
		toolRole:         d.ToolRoleResults(),
	}
}

// Option changes how a Surface folds.
type Option func(*Surface)

// WithBase makes the fold start in the middle of a ledger, with an empty
// surface and base as the first seq. Nodes before base cannot be replaced.
func WithBase(base int64) Option {
	return func(s *Surface) { s.base, s.next = base, base }
}

// WithProjections sets the installed message projections; without this option
// they are ImageOffload alone. Of two for one event type the first counts.
func WithProjections(p ...Projection) Option {
	return func(s *Surface) { s.projections = slices.Clone(p) }
}

// WithVocabulary makes the fold know event types beyond the core's: the surface
// types among them join the surface, and an ignorable event counts as unknown
// only when v does not have its type.
func WithVocabulary(v *session.Vocabulary) Option {
	return func(s *Surface) {
		s.known = func(typ string) bool { _, ok := v.Lookup(typ); return ok }
		if v != session.Core(s.rules.d) { // which has no surface types beyond the dialect's
			s.custom = func(typ string) bool { t, ok := v.Lookup(typ); return ok && t.Surface }
		}
	}
}

// New returns the empty surface of a ledger in dialect d.
func New(d *session.Dialect, opts ...Option) *Surface {
	s := &Surface{
		rules:       rulesOf(d),
		projections: []Projection{ImageOffload{}},
		seed:        maphash.MakeSeed(),
		kinds:       coreKinds[:len(coreKinds):len(coreKinds)],
	}
	WithVocabulary(session.Core(d))(s)
	s.headers.on = d.IsSurface(typeDeveloper)
	for _, o := range opts {
		o(s)
	}
	s.plan.s = s
	return s
}

// Next is the seq that the next event must have.
func (s *Surface) Next() int64 { return s.next }

// Len is the number of nodes.
func (s *Surface) Len() int { return s.nodes.live }

// Nodes returns the seqs of the nodes in surface order, as a copy.
func (s *Surface) Nodes() []int64 { return s.nodes.appendSeqs([]int64{}) }

// AppendNodes appends the seqs of the nodes in surface order to dst.
func (s *Surface) AppendNodes(dst []int64) []int64 { return s.nodes.appendSeqs(dst) }

// IsNode reports whether the event with this seq is a current node.
func (s *Surface) IsNode(seq int64) bool { _, ok := s.nodes.find(seq); return ok }

// NodeType is the event type of a current node, "" for another seq.
func (s *Surface) NodeType(seq int64) string {
	at, ok := s.nodes.find(seq)
	if !ok {
		return ""
	}
	return s.kinds[s.nodes.slots[at].kind]
}

// Decisions returns the seqs of the log-only events that changed the message of
// a current node, in the order in which they did. It is empty for most nodes.
func (s *Surface) Decisions(seq int64) []int64 { return slices.Clone(s.decisions[seq]) }

// ReplaceGeneration counts the replacements so far.
func (s *Surface) ReplaceGeneration() int64 { return s.replaced }

// ContentGeneration counts the replacements and the projected changes so far.
func (s *Surface) ContentGeneration() int64 { return s.changed }

// Hash is the hash chain over the node seqs in surface order: h = SHA-256(h ‖
// seq as 8 bytes, big endian), starting from 32 zero bytes. See the package
// comment for what it costs.
func (s *Surface) Hash() [32]byte { return s.nodes.hash() }

// Clone returns an independent copy, which costs the surface.
func (s *Surface) Clone() *Surface {
	c := *s
	c.nodes = s.nodes.clone()
	c.kinds = slices.Clone(s.kinds)
	c.headers = s.headers.clone()
	c.states = cloneMap(s.states)
	c.decisions = cloneMap(s.decisions)
	c.plan = Plan{s: &c}
	c.sorted = nil
	return &c
}

// Fold plans and applies one event.
func (s *Surface) Fold(ev *session.Event) error {
	if err := s.judge(ev); err != nil {
		return err
	}
	s.plan.Apply()
	return nil
}

// Plan judges ev. The plan it returns is a *Plan; an error is a
// *session.InvariantError.
// Nothing is allocated for an append.
func (s *Surface) Plan(ev *session.Event) (session.Plan, error) {
	if err := s.judge(ev); err != nil {
		return nil, err
	}
	return &s.plan, nil
}

func (s *Surface) isSurface(typ string) bool {
	return s.rules.d.IsSurface(typ) || s.custom != nil && s.custom(typ)
}

// judge fills s.plan with what ev would do.
func (s *Surface) judge(ev *session.Event) error {
	p := &s.plan
	p.reset()
	fail := func(c session.Code, detail string) error {
		p.reset()
		return refuse(ev, c, detail)
	}
	if ev.Seq != s.next {
		return fail(session.CodeSeqGap, "expected seq "+strconv.FormatInt(s.next, 10))
	}
	op := ev.SurfaceOp
	isSurface := s.isSurface(ev.Type)
	proj, projAt := s.projection(ev.Type)
	if !isSurface {
		// A projection makes its type known, but for the built-in one: image/offload
		// means nothing to the versions that came before it.
		if ev.Ignorable && !s.known(ev.Type) && (proj == nil || ev.Type == typeOffload) {
			p.seq, p.pending = ev.Seq, true
			return nil
		}
		if op != nil || ev.RawSurfaceOp != nil {
			return fail(session.CodeSurfaceOpForbidden, "not a surface type, but it has a surfaceOp")
		}
		if ev.SourceEventSeqs != nil {
			return fail(session.CodeSourcesForbidden, "not a surface type, but it has sourceEventSeqs")
		}
	} else {
		if op == nil && ev.RawSurfaceOp != nil {
			return fail(session.CodeSurfaceOpMalformed, "surfaceOp is neither append nor an exact replace")
		}
		if op == nil {
			return fail(session.CodeSurfaceOpMissing, "a surface type without surfaceOp")
		}
		if op.Replace && (outside(op.Start, ev.Seq) || outside(op.End, ev.Seq)) {
			return fail(session.CodeReplaceNotEarlier, spanDetail(op, "must name earlier events"))
		}
		if c, detail := s.checkSources(ev); c != "" {
			return fail(c, detail)
		}
		if ev.Type == typeDeveloper {
			if c, detail := s.headers.check(ev); c != "" {
				return fail(c, detail)
			}
		}
	}
	p.seq = ev.Seq
	if proj != nil {
		if !ev.DataTruncated { // otherwise nobody has seen what it changes
			changes, err := proj.Plan(ev, History{s, projAt}, p.changes)
			if err != nil {
				p.reset()
				return err
			}
			p.changes = changes
		}
		p.op, p.projection, p.pending = OpProject, projAt, true
		return nil
	}
	if ev.Type == typeOffload && s.known(typeOffload) {
		return fail(CodeProjectionMissing, "its message projection is not installed")
	}
	if !isSurface {
		if s.headers.on && ev.Type == typeHeader {
			p.tools = s.headers.read(ev)
		}
		p.pending = true
		return nil
	}

	p.kind = s.kindOf(ev.Type)
	if p.kind == kindTool {
		p.digest = s.rewriteDigest(ev)
	}
	if op.Replace {
		if c, detail := s.planReplace(ev); c != "" {
			return fail(c, detail)
		}
	} else {
		p.op = OpAppend
	}
	for i, proj := range s.projections {
		if state := proj.Remember(ev); state != nil {
			p.remembered = append(p.remembered, remembered{i, state})
		}
	}
	p.typ, p.pending = ev.Type, true
	return nil
}

// outside reports whether seq names no event before that with seq end.
func outside(seq, end int64) bool { return seq < 0 || seq >= end }

// checkSources applies the rules for sourceEventSeqs that need no surface, and
// leaves the sources in s.sorted, in order.
func (s *Surface) checkSources(ev *session.Event) (session.Code, string) {
	sources := ev.SourceEventSeqs
	s.sorted = s.sorted[:0]
	if sources == nil {
		return "", ""
	}
	if ev.Type == typeAssistant && !s.rules.assistantSources {
		return session.CodeSourcesForbidden, "an assistant/message embeds its stream and has no sourceEventSeqs"
	}
	if len(sources) == 0 {
		if ev.Type == typeAssistant { // of an answer without a stream
			return "", ""
		}
		return session.CodeSourcesEmpty, "sourceEventSeqs is empty"
	}
	s.sorted = append(s.sorted, sources...)
	if !slices.IsSorted(s.sorted) {
		slices.Sort(s.sorted)
	}
	for i := 1; i < len(s.sorted); i++ {
		if s.sorted[i] == s.sorted[i-1] {
			return session.CodeSourcesDuplicate, sourceDetail(s.sorted[i], "stands there twice")
		}
	}
	if first, last := s.sorted[0], s.sorted[len(s.sorted)-1]; last >= ev.Seq {
		return session.CodeSourcesNotEarlier, sourceDetail(last, "is not earlier")
	} else if first < 0 {
		return session.CodeSourcesNotEarlier, sourceDetail(first, "is no seq")
	}
	return "", ""
}

// planReplace finds the span of a replace and applies the rules about it.
func (s *Surface) planReplace(ev *session.Event) (session.Code, string) {
	p, op := &s.plan, ev.SurfaceOp
	start, ok := s.nodes.find(op.Start)
	if !ok {
		return CodeReplaceNotCurrent, spanDetail(op, "start is not a current node")
	}
	end, ok := s.nodes.find(op.End)
	if !ok {
		return CodeReplaceNotCurrent, spanDetail(op, "end is not a current node")
	}
	if start > end {
		return CodeReplaceOrder, spanDetail(op, "start stands behind end")
	}
	shadowed := 0
	for i := start; i <= end; i = s.nodes.next(i) {
		seq := s.nodes.slots[i].seq
		if _, ok := slices.BinarySearch(s.sorted, seq); !ok {
			return CodeReplaceUncited, sourceDetail(seq, "is shadowed but not cited")
		}
		shadowed++
	}
	if p.kind == kindTool {
		old := &s.nodes.slots[start]
		if shadowed != 1 || old.kind != kindTool {
			return CodeRewriteSpan, spanDetail(op, "a tool/result must rewrite exactly one current tool/result")
		}
		if old.digest != p.digest && old.digest != unread && p.digest != unread {
			return CodeRewriteContent, spanDetail(op, "a tool/result rewrite may change nothing but the content")
		}
	}
	if s.rules.protectedHead && start == 0 && s.nodes.slots[0].kind == kindSystem &&
		(p.kind != kindSystem || shadowed != 1) {
		return CodeHeadProtected, spanDetail(op, "the system prompt at the head yields only to a system/message over exactly it")
	}
	p.op, p.start, p.end = OpReplace, op.Start, op.End
	p.startSlot, p.endSlot, p.shadowed = start, end, shadowed
	return "", ""
}
