package session

// Header is the first line of a session ledger. It never changes once it is
// written. Optional members are nil when the header does not have them.
type Header struct {
	// Version is the format generation, 0 to 4.
	Version int
	// ID is the session's id; it may be any string, the empty one included.
	ID string
	// CreatedAt is in Unix milliseconds and not negative.
	CreatedAt int64
	// Cwd is the agent's working directory. Version 0 takes any string, later
	// versions only absolute paths.
	Cwd *string
	// ParentSession is the id of the session that this one was forked from, or
	// that started this subagent.
	ParentSession *string
	// SeedLength is the number of inherited events (versions 0 and 1 only).
	SeedLength *int64
	// IsSeeded says that the ledger starts with inherited events (from version
	// 2, where the last session/end-seed{inherited:true} marks the cut).
	IsSeeded bool
	// Origin is "subagent" or empty.
	Origin string
	// DelegationDepth is 0 for a session that no other agent started.
	DelegationDepth int64
	// AgentPreset names the preset that the session was started with.
	AgentPreset *string
}
