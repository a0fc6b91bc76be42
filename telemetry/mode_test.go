package telemetry

import (
	"errors"
	"testing"
)

func TestParseModeTakesTwoSpellingsAndNothingElse(t *testing.T) {
	for s, want := range map[string]Mode{"FULL": Full, "full": Full, "FEEDBACK_ONLY": FeedbackOnly,
		"feedback-only": FeedbackOnly, "DISABLED": Disabled, "disabled": Disabled} {
		if got, err := ParseMode(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "Full", "feedback_only", "FEEDBACK-ONLY", "on", "full ", "0"} {
		if got, err := ParseMode(s); !errors.Is(err, ErrUnknownMode) || got != Disabled {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}
