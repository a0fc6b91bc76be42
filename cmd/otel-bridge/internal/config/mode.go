package config

import (
	"fmt"
	"strings"
)

// Mode is how much may leave.
type Mode int

const (
	ModeDisabled Mode = iota
	ModeFeedbackOnly
	ModeFull
)

// ParseMode reads full, feedback-only or disabled in either spelling.
func ParseMode(s string) (Mode, error) {
	switch strings.ReplaceAll(strings.ToLower(s), "_", "-") {
	case "full":
		return ModeFull, nil
	case "feedback-only":
		return ModeFeedbackOnly, nil
	case "disabled":
		return ModeDisabled, nil
	}
	return ModeDisabled, fmt.Errorf("unknown mode")
}

func (m Mode) String() string { return [...]string{"DISABLED", "FEEDBACK_ONLY", "FULL"}[m] }
