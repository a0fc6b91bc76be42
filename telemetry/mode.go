package telemetry

import (
	"errors"
	"fmt"
	"strings"
)

// Mode is how far consent goes. The zero value lets nothing out.
type Mode uint8

// The modes.
const (
	// Disabled captures nothing; nothing of capture, outbox or delivery is built.
	Disabled Mode = iota
	// FeedbackOnly captures what stands before a feedback/record of the
	// session's own, once that is committed.
	FeedbackOnly
	// Full captures everything.
	Full
)

// ErrUnknownMode is wrapped by the error of ParseMode.
var ErrUnknownMode = errors.New("unknown mode")

// ParseMode reads a mode in either spelling: FULL, FEEDBACK_ONLY, DISABLED, or
// full, feedback-only, disabled. Everything else is an error that lists these:
// consent is never guessed.
func ParseMode(s string) (Mode, error) {
	for _, m := range [...]Mode{Disabled, FeedbackOnly, Full} {
		if upper := m.String(); s == upper || s == strings.ToLower(strings.ReplaceAll(upper, "_", "-")) {
			return m, nil
		}
	}
	return Disabled, fmt.Errorf("%w %q: write FULL, FEEDBACK_ONLY or DISABLED", ErrUnknownMode, s)
}

// String returns the configuration's spelling.
func (m Mode) String() string {
	switch m {
	case Full:
		return "FULL"
	case FeedbackOnly:
		return "FEEDBACK_ONLY"
	}
	return "DISABLED"
}

// Covers reports whether m lets out everything that other lets out.
func (m Mode) Covers(other Mode) bool { return m >= other }

// FeedbackScope is how far back a feedback/record reaches in FeedbackOnly.
type FeedbackScope uint8

// The feedback scopes.
const (
	// ScopeLifetime reaches back to the last session/end-seed before it: the
	// current lifetime of the session.
	ScopeLifetime FeedbackScope = iota
	// ScopeSession reaches back to the session's first own event.
	ScopeSession
)

// String returns the configuration's spelling.
func (s FeedbackScope) String() string {
	if s == ScopeSession {
		return "session"
	}
	return "lifetime"
}

// ParseFeedbackScope reads lifetime or session.
func ParseFeedbackScope(s string) (FeedbackScope, error) {
	switch s {
	case "lifetime":
		return ScopeLifetime, nil
	case "session":
		return ScopeSession, nil
	}
	return 0, fmt.Errorf("unknown feedback scope %q: write lifetime or session", s)
}
