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
	// OpSummary lists what became of each event of a settled span.
	OpSummary = "session.summary"
	// OpBridgeStarted and OpBridgeStopped mark the life of a bridge.
	OpBridgeStarted = "bridge.started"
	OpBridgeStopped = "bridge.stopped"
)
