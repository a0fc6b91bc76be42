package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// repeatWindow is how long equal warnings and errors share a count.
	repeatWindow = 10 * time.Second
	// repeatBurst is how many of them are shown in that time.
	repeatBurst = 3
	// repeatKinds bounds how many different ones are remembered.
	repeatKinds = 1024
)

// repeatLimiter keeps what fails again and again from filling the log: of
// warnings and errors that are equal in message and attributes, a few are shown
// in a while; the next one that is shown says how many were not. Below warnings
// everything is shown: an operator's actions are told there.
type repeatLimiter struct {
	slog.Handler
	attrs string
	seen  *repeats
}

type repeats struct {
	mu sync.Mutex
	m  map[string]*repeat
}

type repeat struct {
	since  time.Time
	shown  int
	hidden int
}

func limitRepeats(h slog.Handler) slog.Handler {
	return repeatLimiter{Handler: h, seen: &repeats{m: map[string]*repeat{}}}
}

// Handle passes a record on, or counts it.
func (h repeatLimiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	var key strings.Builder
	key.WriteString(h.attrs)
	key.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		key.WriteByte(0)
		key.WriteString(a.String())
		return true
	})
	show, hidden := h.seen.note(key.String(), r.Time)
	if !show {
		return nil
	}
	if hidden > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", hidden))
	}
	return h.Handler.Handle(ctx, r)
}

// note says whether to show what happens at now, and how many like it were not
// shown since the last.
func (s *repeats) note(key string, now time.Time) (show bool, hidden int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.m[key]
	switch {
	case e == nil:
		if len(s.m) >= repeatKinds {
			s.forget(now)
		}
		s.m[key] = &repeat{since: now, shown: 1}
		return true, 0
	case now.Sub(e.since) >= repeatWindow:
		hidden = e.hidden
		*e = repeat{since: now, shown: 1}
		return true, hidden
	case e.shown < repeatBurst:
		e.shown++
		return true, 0
	}
	e.hidden++
	return false, 0
}

// forget makes room: what is past goes, or everything.
func (s *repeats) forget(now time.Time) {
	for k, e := range s.m {
		if now.Sub(e.since) >= repeatWindow {
			delete(s.m, k)
		}
	}
	if len(s.m) >= repeatKinds {
		clear(s.m)
	}
}

// WithAttrs keeps limiting; the attributes tell records apart too.
func (h repeatLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	key := h.attrs
	for _, a := range attrs {
		key += a.String() + "\x00"
	}
	return repeatLimiter{h.Handler.WithAttrs(attrs), key, h.seen}
}

// WithGroup keeps limiting below a group.
func (h repeatLimiter) WithGroup(name string) slog.Handler {
	return repeatLimiter{h.Handler.WithGroup(name), h.attrs + name + ".", h.seen}
}
