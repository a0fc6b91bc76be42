package redact

// BareAutomaton runs only the engine's automaton over b: the yardstick for
// everything that comes on top.
func BareAutomaton(e *Engine, b []byte) {
	s := e.states.Get().(*scan)
	s.hits = e.machine.scan(b, s.hits[:0])
	e.states.Put(s)
}
