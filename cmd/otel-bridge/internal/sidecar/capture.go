package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/version"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// captureWorkers is how many sessions are under way at the same time. With short
// ones most of them wait for the disk, and share its syncs.
const captureWorkers = 8

// capturer is the half of the pipeline that reads ledgers.
type capturer struct {
	Capture *telemetry.Capture

	cfg       *config.Config
	log       *slog.Logger
	redaction *telemetry.Redaction // nil where it was refused by name
	keeper    *keeper
	finished  bool
	// damaged makes good what the store has lost of a session. It reports that the
	// session is to be pulled again.
	damaged func(context.Context, *telemetry.Session) (again bool, err error)
}

func newCapturer(cfg *config.Config, in *telemetry.Installation, store telemetry.Outbox, o PipelineOptions) (*capturer, error) {
	c := &capturer{
		cfg: cfg, log: o.Log, finished: o.Finished,
		damaged: func(context.Context, *telemetry.Session) (bool, error) { return false, nil },
	}
	if !cfg.Redact.None {
		c.redaction = telemetry.NewRedaction(telemetry.NewEngine(cfg.Redact.Engine), in.Key)
	}
	c.keeper = newKeeper(o.Log, func(path string, fromNow bool) puller {
		opts := telemetry.SessionOptions{FromNow: fromNow, Patient: !c.finished}
		return &capturing{c.Capture.Session(c.source(path), opts), c}
	})
	c.keeper.idleAfter, c.keeper.settleTime = cfg.SessionIdle, partOfStop(cfg)
	var err error
	c.Capture, err = telemetry.NewCapture(telemetry.Config{
		Outbox: store, Mode: cfg.Mode, Installation: in,
		FeedbackScope: cfg.FeedbackScope, CatchUp: cfg.CatchUp,
		Redaction: c.redaction, EventTypes: eventTypes(cfg),
		Resource: resourceOf(cfg, in), Version: version.Get().Version,
		MaxRecordBytes: int(cfg.MaxRecordBytes), HoldOnDivergence: cfg.OnDivergence == "hold",
		Parent: func(id string) (telemetry.Source, bool) {
			path, ok := c.keeper.source(id)
			if !ok {
				return nil, false
			}
			return c.source(path), true
		},
		Attest: o.attest, GenAI: cfg.GenAI,
		Tap: o.Tap,
	})
	return c, err
}

func (c *capturer) source(path string) telemetry.Source {
	maxLine := jsonl.WithMaxLine(int(c.cfg.MaxLineBytes))
	if c.finished {
		return telemetry.FinishedFile(path, eventTypes(c.cfg), maxLine)
	}
	return telemetry.LiveFile(path, eventTypes(c.cfg), maxLine)
}

// events counts what can be read of a ledger now.
func (c *capturer) events(path string) (n int64) {
	led, err := c.source(path).Open()
	if err != nil {
		return 0
	}
	defer led.Close()
	for led.Next() {
		n++
	}
	return n
}

func eventTypes(cfg *config.Config) []session.EventType {
	types := make([]session.EventType, len(cfg.Vocabulary))
	for i, t := range cfg.Vocabulary {
		types[i] = session.EventType{Name: t.Type, Surface: t.Surface}
	}
	return types
}

// capturing is a session whose losses are made good when it has been read.
type capturing struct {
	*telemetry.Session
	c *capturer
}

// Pull captures, and makes good what was lost.
func (s *capturing) Pull(ctx context.Context, limit int) (telemetry.Progress, error) {
	p, err := s.Session.Pull(ctx, limit)
	if err != nil || p.More {
		return p, err
	}
	if s.c.finished {
		// It does not grow any more: nothing waits for the end of a turn.
		if err := s.Session.Settle(ctx); err != nil {
			return p, err
		}
	}
	p.More, err = s.c.damaged(ctx, s.Session)
	return p, err
}

// stopPart is the most that one part of a stop may take before delivery has what is
// left of shutdown_timeout: the last look at the ledgers, the end of all open spans, and
// the record of the stop itself.
const stopPart = 3 * time.Second

func partOfStop(cfg *config.Config) time.Duration { return min(cfg.ShutdownTimeout/4, stopPart) }

// watch finds, watches and reads sessions until ctx ends, and then, unless that
// has the cause errNoLook, what had been written by then.
func (c *capturer) watch(ctx context.Context) {
	pulling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	pulled, done := make(chan struct{}), make(chan struct{})
	go func() {
		c.keeper.run(pulling, captureWorkers)
		close(pulled)
	}()
	for _, src := range c.cfg.Sources {
		w := newWatcher(src.DSH.Path, c.log, func(ledgers []jsonl.Ledger) {
			c.keeper.offer(ledgers, src.DSH.StartAt == "now")
		})
		w.removed, w.moved, w.events = c.keeper.forget, c.keeper.follow, c.events
		go func() {
			w.run(ctx)
			done <- struct{}{}
		}()
	}
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), errNoLook) {
		stop()
	}
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), partOfStop(c.cfg))
	defer cancel()
	for range c.cfg.Sources {
		<-done
	}
	if pulling.Err() == nil {
		c.keeper.settled(looking)
	}
	stop()
	<-pulled
}

// CaptureFiles captures finished ledgers that have been verified, parents
// first, and returns those that were refused all the same.
func (c *capturer) CaptureFiles(ctx context.Context, ledgers []Verified) []Refusal {
	refusals := make(chan Refusal, len(ledgers))
	c.keeper.pulled = func(path string, _ telemetry.Progress, err error) {
		if err != nil && ctx.Err() == nil && !errors.Is(err, telemetry.ErrTaken) {
			select {
			case refusals <- Refusal{path, err}:
			default: // each ledger is told of once
			}
		}
	}
	c.keeper.once = true
	// Files are named one by one: none takes another's place.
	plain := make([]jsonl.Ledger, len(ledgers))
	known := make(map[string]lineage, len(ledgers))
	for i, l := range ledgers {
		plain[i] = jsonl.Ledger{Path: filepath.Clean(l.Ledger.Path)}
		known[plain[i].Path] = l.lineage
	}
	c.keeper.lineage = func(path string) (lineage, bool) {
		if l := known[path]; l.id != "" {
			return l, true
		}
		return readLineage(path)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		c.keeper.run(running, captureWorkers)
		close(done)
	}()
	c.keeper.offer(plain, false)
	c.keeper.settled(ctx)
	stop()
	<-done
	close(refusals)
	var out []Refusal
	for r := range refusals {
		out = append(out, r)
	}
	return out
}
