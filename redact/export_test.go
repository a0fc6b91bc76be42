package redact

// BareAutomaton runs only the engine's automaton over b, one byte after the
// other: the yardstick for everything that comes on top.
func BareAutomaton(e *Engine, b []byte) {
	s := e.states.Get().(*scan)
	s.hits = e.machine.scanPlain(b, 0, len(b), s.hits[:0])
	e.states.Put(s)
}

// NewUnanchored is New with every expression run over the whole text, as
// gitleaks does.
func NewUnanchored(o Options) (*Engine, error) {
	e, err := New(o)
	if err != nil {
		return nil, err
	}
	for _, r := range e.rules {
		if r.re == nil {
			continue
		}
		r.anchored, r.operator = false, false
		r.gated = len(r.Keywords) > 0
	}
	e.users, e.always, e.numbers, e.runs, e.keyed, e.byPath, e.within = nil, nil, nil, nil, nil, nil, nil
	e.index()
	return e, nil
}

// Literals lists what the automaton looks for.
func Literals(e *Engine) []string { return e.literals }

// Work redacts src and returns the fuel that this took: the bytes that the
// automaton, the expressions and the matchers have looked at, over all passes
// and decoded forms.
func Work(e *Engine, src []byte) (int, error) {
	s := newScan(e)
	_, _, err := s.redact(nil, src, true)
	return s.burnt, err
}

// State is what an engine keeps between calls.
type State struct{ s *scan }

// NewState is a state that has seen no record.
func NewState(e *Engine) *State { return &State{newScan(e)} }

// JSON is Engine.JSON with this state. A state that has panicked is not used again.
func (s *State) JSON(src []byte) (out []byte, rep *Report, err error) {
	defer func() {
		if recover() != nil {
			s.s = newScan(s.s.e)
			out, rep, err = nil, nil, ErrInternal
		}
	}()
	out, rep, err = s.s.redact(nil, src, true)
	s.s.reset()
	return out, rep, err
}

// AddValidator adds a validator for a test.
func AddValidator(name string, f func([]byte) bool) func() {
	validators[name] = f
	return func() { delete(validators, name) }
}
