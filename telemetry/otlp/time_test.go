package otlp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a receiver without a network, for tests in a bubble of fake time.
type scripted struct {
	mu     sync.Mutex
	answer func(n int, req *http.Request) (*http.Response, error) // n counts from 1
	at     []time.Time
	auth   []string
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	s.auth = append(s.auth, req.Header.Get("Authorization"))
	n := len(s.at)
	s.mu.Unlock()
	resp, err := s.answer(n, req)
	if resp != nil && resp.Body == nil {
		resp.Body = http.NoBody
	}
	return resp, err
}

// pauses are the times between requests.
func (s *scripted) pauses() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []time.Duration
	for i := 1; i < len(s.at); i++ {
		out = append(out, s.at[i].Sub(s.at[i-1]))
	}
	return out
}

func status(code int, header ...string) (*http.Response, error) {
	return response(code, header...), nil
}

// slow is a configuration with the default pauses and no jitter below them.
func slow(s *scripted) Config {
	return Config{Endpoint: "http://127.0.0.1:1/v1/logs", Workers: 1, base: s, random: func() float64 { return 1 }}
}

func TestBackoffDoublesToItsBoundAndHasNoBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 72 * time.Hour
		start := time.Now()
		s := &scripted{answer: func(int, *http.Request) (*http.Response, error) {
			if time.Since(start) < outage {
				return status(503)
			}
			return status(200)
		}}
		m := newMemory()
		fill(t, m, "s", 10)
		d := newDeliverer(t, m, slow(s))
		if err := d.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := s.pauses()
		want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}
		for i, w := range want {
			if p[i] != w*time.Second {
				t.Errorf("pause %d is %v, want %v", i, p[i], w*time.Second)
			}
		}
		if n := len(p); n < 8000 || p[n-1] != 30*time.Second {
			t.Errorf("%d pauses, the last %v", n, p[n-1])
		}
		if acked, _, _ := m.counts(); acked != 10 {
			t.Errorf("%d acked after three days", acked)
		}
	})
}

func TestJitterSpreadsTheUpperHalf(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 4 * time.Second, 0.5: 6 * time.Second, 1: 8 * time.Second} {
		if got := backoff(time.Second, 30*time.Second, 4, func() float64 { return random }); got != want {
			t.Errorf("jitter %v: %v, want %v", random, got, want)
		}
	}
	if got := backoff(time.Second, 30*time.Second, 1<<30, func() float64 { return 1 }); got != 30*time.Second {
		t.Errorf("after many failures %v", got)
	}
}

func TestRetryAfterIsObeyedCappedAndInterruptible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in90 := func() string { return time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat) }
		s := &scripted{answer: func(n int, _ *http.Request) (*http.Response, error) {
			switch n {
			case 1:
				return status(429, "Retry-After", "7")
			case 2:
				return status(503, "Retry-After", in90(), "Date", time.Now().UTC().Format(http.TimeFormat))
			case 3:
				return status(503, "Retry-After", "99999999")
			case 4:
				return status(429, "Retry-After", "1") // less than the back-off
			}
			return status(200)
		}}
		m := newMemory()
		fill(t, m, "s", 1)
		cfg := slow(s)
		cfg.random = func() float64 { return 0 } // the least that jitter allows
		d := newDeliverer(t, m, cfg)
		if err := d.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{7 * time.Second, 90 * time.Second, 10 * time.Minute, 4 * time.Second}
		for i, p := range s.pauses() {
			if p != want[i] {
				t.Errorf("pause %d is %v, want %v", i, p, want[i])
			}
		}

		s.answer = func(int, *http.Request) (*http.Response, error) { return status(429, "Retry-After", "600") }
		fill(t, m, "s", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		began := time.Now()
		err := d.Drain(ctx)
		var left *UndeliveredError
		if !errors.As(err, &left) || left.Pending != 1 || time.Since(began) != 25*time.Second {
			t.Errorf("shutdown in a long pause: %v after %v", err, time.Since(began))
		}
	})
}

// CASES 27: no hammering, one message.
func TestHoldingIsRareAndMendedByNewCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	write := func(token string) {
		if err := os.WriteFile(file, []byte("# rotated\nAuthorization: Bearer "+token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answer: func(_ int, req *http.Request) (*http.Response, error) {
			if req.Header.Get("Authorization") == "Bearer newer" {
				return status(200)
			}
			return status(401)
		}}
		m := newMemory()
		fill(t, m, "s", 1)
		cfg := slow(s)
		cfg.HeadersFile = file
		var l logs
		cfg.Logger = l.logger()
		d := newDeliverer(t, m, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		p := s.pauses()
		if n := len(p); n < 250 || n > 300 || p[0] != 15*time.Second || p[n-1] != 5*time.Minute {
			t.Errorf("%d requests in a day, pauses %v … %v", n, p[0], p[n-1])
		}
		if n := l.count("level=ERROR"); n != 1 {
			t.Errorf("said %d times in a day", n)
		}
		write("newer")
		changed := time.Now()
		for d.State().Status != OK && time.Since(changed) < time.Hour {
			time.Sleep(time.Second)
		}
		if took := time.Since(changed); took > 2*lookEvery {
			t.Errorf("new credentials were found after %v", took)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(l.String(), "newer") || strings.Contains(l.String(), "Bearer") {
			t.Errorf("a header is logged: %s", l.String())
		}
	})
}

func TestOneWorkerTriesForAllWhileTheCircuitIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		healthy := false
		var mu sync.Mutex
		s := &scripted{answer: func(int, *http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if healthy {
				return status(200)
			}
			return status(503)
		}}
		m := newMemory()
		for _, session := range []string{"a", "b", "c", "d"} {
			fill(t, m, session, 4)
		}
		cfg := slow(s)
		cfg.Workers, cfg.MaxBatchRecords = 4, 4
		d := newDeliverer(t, m, cfg)
		done := make(chan error, 1)
		go func() { done <- d.Drain(t.Context()) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		// Four at first, then one at a time: 1+2+4+8+16 s and every 30 s.
		if n := len(s.pauses()) + 1; n < 20 || n > 30 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if st := d.State(); st.Failures > 26 || st.Status != Retrying {
			t.Errorf("%+v", st)
		}
		mu.Lock()
		healthy = true
		mu.Unlock()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if acked, _, _ := m.counts(); acked != 16 {
			t.Errorf("%d acked", acked)
		}
	})
}

func TestAnAnswerToAnOlderRequestDoesNotEndAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Logger: nil}
		cfg.setDefaults()
		cfg.random = func() float64 { return 1 }
		c := newCircuit(&cfg)
		first, _ := c.enter(t.Context())
		second, _ := c.enter(t.Context())
		c.failed(first, verdict{outcome: retryLater, reason: "503", retryAfter: 20 * time.Second}, "")
		c.answered(second, true)
		if s := c.state(); s.Status != Retrying || time.Until(s.Next) < 20*time.Second || s.LastAck.IsZero() {
			t.Errorf("%+v", s)
		}
		began := time.Now()
		probe, err := c.enter(t.Context())
		if err != nil || !probe.probe || time.Since(began) < 20*time.Second {
			t.Errorf("entered after %v: %+v, %v", time.Since(began), probe, err)
		}
		// Only one probes; the next gets in when the first is through.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := c.enter(ctx); err == nil {
			t.Error("two probes at the same time")
		}
		cancel()
		c.cancelled(probe)
		probe, err = c.enter(t.Context())
		if err != nil || !probe.probe {
			t.Error("a cancelled probe blocks the gate")
		}
		c.answered(probe, true)
		if s := c.state(); s.Status != OK || s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestALearnedLimitIsForgottenAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}
		cfg.setDefaults()
		c := newCircuit(&cfg)
		c.took(10, 1000, 500)
		c.learnSize(2000, 1000)
		if n := c.sizeLimit(); n != 1000 {
			t.Errorf("limit %d", n)
		}
		if _, bytes := c.limits(); bytes >= 1000 || bytes < 500 {
			t.Errorf("lease of %d stored bytes for requests of 1000", bytes)
		}
		c.learnSize(1000, 1500) // no gap: single records were too large
		if n := c.sizeLimit(); n != 1000 {
			t.Errorf("limit %d", n)
		}
		c.took(10, 1000, 500)
		c.learnSize(900, 700) // the receiver takes less than it did
		if n := c.sizeLimit(); n != 700 {
			t.Errorf("limit %d", n)
		}
		time.Sleep(limitFor + time.Second)
		if n := c.sizeLimit(); n != 0 {
			t.Errorf("limit %d after its time", n)
		}
	})
}

func TestAFailingOutboxIsTriedAgainWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answer: func(int, *http.Request) (*http.Response, error) { return status(200) }}
		m := newMemory()
		fill(t, m, "s", 1)
		for range 10 {
			m.ackErrors = append(m.ackErrors, errors.New("input/output error"))
		}
		d := newDeliverer(t, m, slow(s))
		began := time.Now()
		if err := d.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != (1+2+4+8+16+30*5)*time.Second || len(s.at) != 1 {
			t.Errorf("took %v, %d requests", took, len(s.at))
		}
	})
}
