package telemetry

// The kinds of ops records.
const (
	// OpAttempt carries the stream of an attempt at an answer that never
	// became a message (formats 0 and 1).
	OpAttempt = "attempt"
	// OpSessionHeld says that a ledger cannot be understood from some event
	// on, and that capture waits there.
	OpSessionHeld = "session.held"
	// OpSessionDiverged says that a ledger no longer has the past that was
	// captured.
	OpSessionDiverged = "session.diverged"
	// OpOutOfScope says how many events stay out when capture starts late by
	// configuration or consent.
	OpOutOfScope = "session.out_of_scope"
	// OpSessionOpened says from which event on a session is captured.
	OpSessionOpened = "session.opened"
	// OpSessionIdle and OpSessionEnded say that a session has come to rest, and
	// that its ledger is gone or closed.
	OpSessionIdle  = "session.idle"
	OpSessionEnded = "session.ended"
	// OpSessionBack says that the data directory has lost records and nobody knows
	// which: the session goes out again from an event on.
	OpSessionBack = "session.back"
	// OpSessionLost says how many events' records the data directory has lost and the
	// ledger does not have any more.
	OpSessionLost = "session.lost"
	// OpGeneration says how a session goes on in a newer format.
	OpGeneration = "session.generation"
	// OpSummary lists what became of each event of a settled span.
	OpSummary = "session.summary"
	// OpBridgeStarted and OpBridgeStopped mark the life of a bridge.
	OpBridgeStarted = "bridge.started"
	OpBridgeStopped = "bridge.stopped"
	// OpModeChanged and OpPolicyChanged say that the bridge was started with
	// another mode or redaction policy than the last time.
	OpModeChanged   = "bridge.mode_changed"
	OpPolicyChanged = "bridge.policy_changed"
	// OpOperator starts the kinds that tell of an operator's actions.
	OpOperator = "operator."
)

// signed tells the kinds whose body is signed. It holds numbers, digests and
// words of this program, and nothing of a ledger; redaction leaves it as it is.
func (r *Record) signed() bool {
	if r.Channel != ChannelOps {
		return false
	}
	switch r.Op {
	case OpSummary, OpGeneration, OpBridgeStarted, OpModeChanged, OpPolicyChanged:
		return true
	}
	return false
}
