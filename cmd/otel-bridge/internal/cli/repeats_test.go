package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEqualWarningsAreCountedNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(limitRepeats(slog.NewTextHandler(&out, nil)))
		for range 10 {
			log.Warn("no room", "error", errors.New("full"))
		}
		log.Warn("no room", "error", errors.New("another"))
		if got := strings.Count(out.String(), "error=full"); got != repeatBurst {
			t.Errorf("%d lines at once, want %d", got, repeatBurst)
		}
		if !strings.Contains(out.String(), "error=another") {
			t.Error("another error was taken for the same")
		}
		time.Sleep(repeatWindow)
		out.Reset()
		log.Warn("no room", "error", errors.New("full"))
		if !strings.Contains(out.String(), "repeated=7") {
			t.Errorf("what was not shown is not told: %s", out.String())
		}
	})
}

func TestInformationIsNeverLeftOut(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(limitRepeats(slog.NewTextHandler(&out, nil)))
	for range 10 {
		log.Info("operator acts")
	}
	if got := strings.Count(out.String(), "operator acts"); got != 10 {
		t.Errorf("%d lines of 10", got)
	}
}

func TestManyKindsOfWarningsTakeBoundedMemory(t *testing.T) {
	h := limitRepeats(slog.NewTextHandler(&bytes.Buffer{}, nil)).(repeatLimiter)
	log := slog.New(h)
	for i := range 3 * repeatKinds {
		log.Warn(fmt.Sprint("kind ", i))
	}
	if len(h.seen.m) > repeatKinds {
		t.Errorf("%d kinds are remembered", len(h.seen.m))
	}
}
