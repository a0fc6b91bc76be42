package sidecar

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// memory is an outbox that keeps what was committed.
type memory struct {
	mu      sync.Mutex
	cursors map[string][]byte
	events  []int64  // seqs
	ops     []string // kinds, summaries aside
	text    strings.Builder
}

var _ telemetry.Outbox = (*memory)(nil)

func (m *memory) Commit(_ context.Context, b *outbox.Batch) (outbox.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var dec telemetry.Decoder
	for _, e := range b.Entries {
		m.text.Write(e.Payload)
		r, err := dec.Decode(e.Payload)
		switch {
		case err != nil: // the draft of a summary is no record yet
		case r.Channel == telemetry.ChannelOps:
			m.ops = append(m.ops, r.EventName)
		default:
			m.events = append(m.events, r.Identity.Seq)
		}
	}
	for _, c := range b.Cursors {
		if c.Value == nil {
			delete(m.cursors, c.Key)
			continue
		}
		m.cursors[c.Key] = slices.Clone(c.Value)
	}
	return 0, nil
}

func (m *memory) WaitRoom(context.Context) error { return nil }

func (m *memory) Cursor(key string) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.cursors[key]
	return v, ok
}

func (m *memory) Cursors(prefix string, fn func(key string, value []byte) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(m.cursors)) {
		if strings.HasPrefix(k, prefix) && !fn(k, m.cursors[k]) {
			return
		}
	}
}

func (m *memory) told(op string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.ops {
		if o == op {
			n++
		}
	}
	return n
}

func (m *memory) seqs() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

// startCapture runs a keeper over real sessions. It stands in a bubble: time goes
// on when everything waits.
func startCapture(t *testing.T, settings ...config.Override) (*capturer, *memory) {
	t.Helper()
	cfg, err := config.Load(config.Options{
		Overrides: append(settings, config.Override{Key: "mode", Value: "FULL"}, config.Override{Key: "exporter.endpoint", Value: "http://127.0.0.1:9"}),
		LookupEnv: func(string) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{cursors: map[string][]byte{}}
	c, err := newCapturer(cfg, telemetry.NewInstallation(), m, PipelineOptions{Log: slog.New(slog.DiscardHandler), attest: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.keeper.run(ctx, captureWorkers)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c, m
}

const clockHeader = `{"type":"session","version":0,"id":"a","createdAt":1,"delegationDepth":0}` + "\n"

func clockRow(seq int) string {
	return `{"type":"session/title","seq":` + string(rune('0'+seq)) + `,"time":1,"data":{"title":"some words","messageSeqs":[],"source":{"kind":"fallback"}}}` + "\n"
}

// A session that has not grown for session_idle is told as idle, once, until
// something comes; a half line lies for as long as it likes and is never part of
// anything.
func TestIdleIsToldByTheClockAndAHalfLineNeverGoesOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.jsonl")
	synctest.Test(t, func(t *testing.T) {
		c, m := startCapture(t, config.Override{Key: "session_idle", Value: "30m"})
		l := []jsonl.Ledger{{Path: path}}
		half := strings.Index(clockRow(1), "words")
		write(t, path, clockHeader+clockRow(0)+clockRow(1)[:half])
		c.keeper.offer(l, false)
		synctest.Wait()
		for _, step := range []struct {
			wait time.Duration
			idle int
		}{{29 * time.Minute, 0}, {2 * time.Minute, 1}, {48 * time.Hour, 1}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if n := m.told(telemetry.OpSessionIdle); n != step.idle {
				t.Fatalf("%v later: idle told %d times, want %d", step.wait, n, step.idle)
			}
		}
		if got := m.seqs(); !slices.Equal(got, []int64{0}) {
			t.Fatalf("events %v", got)
		}
		write(t, path, clockRow(1)[half:])
		c.keeper.offer(l, false)
		time.Sleep(29 * time.Minute)
		synctest.Wait()
		if got := m.seqs(); !slices.Equal(got, []int64{0, 1}) || m.told(telemetry.OpSessionIdle) != 1 {
			t.Fatalf("events %v, idle told %d times", got, m.told(telemetry.OpSessionIdle))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := m.told(telemetry.OpSessionIdle); n != 2 {
			t.Errorf("idle told %d times, want 2", n)
		}
	})
}

// A file that is gone and still open is read on until nothing has come for as long
// as sessions stay open; its end is told each time, and then it is let go.
func TestGoneFileIsReadOnAndThenLetGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.jsonl")
	synctest.Test(t, func(t *testing.T) {
		c, m := startCapture(t)
		write(t, path, clockHeader+clockRow(0))
		writer, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		c.keeper.offer([]jsonl.Ledger{{Path: path}}, false)
		synctest.Wait()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		c.keeper.forget(path)
		synctest.Wait()
		if all, _ := c.keeper.counts(); all != 0 || m.told(telemetry.OpSessionEnded) != 1 {
			t.Fatalf("%d ledgers, end told %d times", all, m.told(telemetry.OpSessionEnded))
		}
		for seq := 1; seq <= 3; seq++ {
			if _, err := writer.WriteString(clockRow(seq)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(restAfter * 3 / 4)
			synctest.Wait()
			if got := m.seqs(); len(got) != seq+1 || m.told(telemetry.OpSessionEnded) != seq+1 {
				t.Fatalf("events %v, end told %d times", got, m.told(telemetry.OpSessionEnded))
			}
		}
		time.Sleep(restAfter)
		synctest.Wait()
		c.keeper.mu.Lock()
		n := len(c.keeper.everyone())
		c.keeper.mu.Unlock()
		if n != 0 {
			t.Errorf("%d sessions are still open", n)
		}
	})
}

// A file that is renamed after its session was closed for being quiet is followed
// under the name that it has then.
func TestRenamedFileOfAClosedSessionIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p", "a", "session.jsonl")
	synctest.Test(t, func(t *testing.T) {
		c, m := startCapture(t, config.Override{Key: "session_idle", Value: "1000h"})
		w := newWatcher(filepath.Dir(filepath.Dir(filepath.Dir(path))), slog.New(slog.DiscardHandler), func(l []jsonl.Ledger) { c.keeper.offer(l, false) })
		w.removed, w.moved = c.keeper.forget, c.keeper.follow
		write(t, path, clockHeader+clockRow(0))
		w.scanAll(false)
		time.Sleep(2 * restAfter)
		synctest.Wait()
		c.keeper.mu.Lock()
		open := len(c.keeper.awake)
		c.keeper.mu.Unlock()
		if open != 0 || len(m.seqs()) != 1 {
			t.Fatalf("%d open, events %v", open, m.seqs())
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		w.event(fsnotify.Event{Name: path, Op: fsnotify.Rename})
		for seq := 1; seq <= 3; seq++ {
			time.Sleep(10 * time.Minute)
			write(t, path+".1", clockRow(seq))
			time.Sleep(2 * lingerEvery)
			synctest.Wait()
			if got := m.seqs(); len(got) != seq+1 || m.told(telemetry.OpSessionDiverged) != 0 {
				t.Fatalf("events %v", got)
			}
		}
		time.Sleep(followFor + restAfter)
		synctest.Wait()
		c.keeper.mu.Lock()
		defer c.keeper.mu.Unlock()
		if n := len(c.keeper.everyone()); n != 0 {
			t.Errorf("%d sessions are still known", n)
		}
	})
}

// A session that is quiet is closed, which costs a reading to open again, and not
// looked at any more: no pull, no stat, while nobody says that it has changed.
func TestQuietSessionIsReleasedAndNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session.jsonl")
	synctest.Test(t, func(t *testing.T) {
		c, m := startCapture(t, config.Override{Key: "session_idle", Value: "1000h"})
		var mu sync.Mutex
		pulls := 0
		c.keeper.pulled = func(string, telemetry.Progress, error) { mu.Lock(); pulls++; mu.Unlock() }
		write(t, path, clockHeader+clockRow(0))
		c.keeper.offer([]jsonl.Ledger{{Path: path}}, false)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		c.keeper.mu.Lock()
		defer c.keeper.mu.Unlock()
		if pulls != 1 || len(c.keeper.awake) != 0 || len(m.seqs()) != 1 {
			t.Errorf("%d pulls, %d open, events %v", pulls, len(c.keeper.awake), m.seqs())
		}
	})
}
