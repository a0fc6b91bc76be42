package sidecar

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// seen records what a watcher tells.
type seen struct {
	mu      sync.Mutex
	changes []string
	gone    []string
	news    chan struct{}
}

func newSeen() *seen { return &seen{news: make(chan struct{}, 1000)} }

func (s *seen) changed(ls []jsonl.Ledger) {
	s.mu.Lock()
	for _, l := range ls {
		s.changes = append(s.changes, l.Path)
	}
	s.mu.Unlock()
	s.news <- struct{}{}
}

func (s *seen) removed(path string) {
	s.mu.Lock()
	s.gone = append(s.gone, path)
	s.mu.Unlock()
	s.news <- struct{}{}
}

// await waits until the condition holds of what was told.
func (s *seen) await(t *testing.T, what string, cond func(changes, gone []string) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		ok := cond(s.changes, s.gone)
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.news:
		case <-deadline:
			t.Fatalf("never told: %s; told %v, gone %v", what, s.changes, s.gone)
		}
	}
}

func (s *seen) awaitChange(t *testing.T, path string, times int) {
	t.Helper()
	s.await(t, path, func(changes, _ []string) bool {
		n := 0
		for _, c := range changes {
			if c == path {
				n++
			}
		}
		return n >= times
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// startWatcher runs a watcher until the test ends, and returns when it has
// looked once.
func startWatcher(t *testing.T, root string, s *seen, log *slog.Logger, prepare func(*watcher)) {
	t.Helper()
	w := newWatcher(root, log, s.changed)
	w.removed = s.removed
	first := make(chan struct{})
	var once sync.Once
	w.scanned = func() { once.Do(func() { close(first) }) }
	if prepare != nil {
		prepare(w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-first
}

func TestNewAndGrowingSessionsAreTold(t *testing.T) {
	root := filepath.Join(t.TempDir(), "home", "sessions")
	s := newSeen()
	startWatcher(t, root, s, slog.New(slog.DiscardHandler), nil)

	// The root itself appears after the start.
	a := filepath.Join(root, "--p--", "a", "session.jsonl")
	write(t, a, "x\n")
	s.awaitChange(t, a, 1)
	write(t, a, "y\n")
	s.awaitChange(t, a, 2)
	// A project, a session directory and a file, one after the other.
	b := filepath.Join(root, "--q--", "b", "session.v1.jsonl")
	if err := os.MkdirAll(filepath.Dir(b), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, b+".0123456789ab.tmp", "not yet")
	if err := os.Rename(b+".0123456789ab.tmp", b); err != nil {
		t.Fatal(err)
	}
	s.awaitChange(t, b, 1)
	// A newer generation takes the place of the older one.
	b2 := filepath.Join(root, "--q--", "b", "session.v2.jsonl")
	write(t, b2, "z\n")
	s.awaitChange(t, b2, 1)
}

func TestPollingFindsWhatNotificationsDoNotTell(t *testing.T) {
	root := t.TempDir()
	s := newSeen()
	var log strings.Builder
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	a := filepath.Join(root, "--p--", "a", "session.jsonl")
	write(t, a, "x\n")
	w := newWatcher(root, logger, s.changed)
	w.removed = s.removed
	w.scanAll(false)
	s.awaitChange(t, a, 1)

	// Nothing is told twice while size and time stand.
	w.scanAll(true)
	if len(s.changes) != 1 {
		t.Errorf("told %v", s.changes)
	}
	write(t, a, "y\n")
	if pause := w.scanAll(true); pause < pollFastest || pause > scanSlowest {
		t.Errorf("pause %v", pause)
	}
	s.awaitChange(t, a, 2)
	if err := os.RemoveAll(filepath.Dir(a)); err != nil {
		t.Fatal(err)
	}
	w.scanAll(true)
	s.await(t, "removal", func(_, gone []string) bool { return len(gone) == 1 && gone[0] == a })
}

func TestChangeThatNobodyToldOfMakesItPoll(t *testing.T) {
	root := t.TempDir()
	s := newSeen()
	var log strings.Builder
	var mu sync.Mutex
	a := filepath.Join(root, "--p--", "a", "session.jsonl")
	write(t, a, "x\n")
	w := newWatcher(root, slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)), s.changed)
	w.startNotify()
	defer w.closeNotify()
	w.scanAll(false)
	// No event is taken from the channel, as on a volume that sends none.
	write(t, a, "y\n")
	w.scanAll(true)
	if w.notify == nil {
		t.Error("a notification that may be on its way is not waited for")
	}
	w.scanAll(true)
	if w.notify != nil || !strings.Contains(log.String(), "polling") {
		t.Errorf("it goes on trusting notifications: %s", log.String())
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *strings.Builder
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// After a start those that were written last go first.
func TestNewestLedgersAreToldFirst(t *testing.T) {
	root := t.TempDir()
	s := newSeen()
	now := time.Now()
	var want []string
	for i := range 5 {
		path := filepath.Join(root, "--p--", string(rune('a'+i)), "session.jsonl")
		write(t, path, "x\n")
		if err := os.Chtimes(path, now, now.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
		want = append([]string{path}, want...)
	}
	newWatcher(root, slog.New(slog.DiscardHandler), s.changed).scanAll(false)
	if !slices.Equal(s.changes, want) {
		t.Errorf("told %v, want %v", s.changes, want)
	}
}

// Notifications that were lost are made good by looking at everything.
func TestLostNotificationsAreMadeGood(t *testing.T) {
	root := t.TempDir()
	s := newSeen()
	var w *watcher
	startWatcher(t, root, s, slog.New(slog.DiscardHandler), func(made *watcher) { w = made })
	a := filepath.Join(root, "--p--", "a", "session.jsonl")
	if err := w.notify.Remove(root); err != nil { // so that none comes
		t.Fatal(err)
	}
	write(t, a, "x\n")
	w.notify.Errors <- fsnotify.ErrEventOverflow
	s.awaitChange(t, a, 1)
}
