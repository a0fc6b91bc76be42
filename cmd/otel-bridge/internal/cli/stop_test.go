package cli

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// timeout(1) signals a process and then its group, which is one stop.
func TestASignalThatComesAgainAtOnceIsOneStop(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name   string
		second os.Signal
		after  time.Duration
		again  bool
	}{
		{"the same at once", syscall.SIGTERM, 0, false},
		{"the same in a moment", syscall.SIGTERM, sameSignal, false},
		{"the same later", syscall.SIGTERM, sameSignal + 1, true},
		{"another at once", os.Interrupt, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stop stopping
			if stop.again(syscall.SIGTERM, at) {
				t.Error("the first signal is a second one")
			}
			if got := stop.again(c.second, at.Add(c.after)); got != c.again {
				t.Errorf("again = %v, want %v", got, c.again)
			}
		})
	}
}
