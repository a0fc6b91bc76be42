package sidecar

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"time"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/admin"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

var _ admin.Controller = (*generation)(nil)

// Outbox does an operator's wish on the running outbox.
func (g *generation) Outbox(ctx context.Context, req admin.OutboxRequest, emit func(any) error) error {
	if !req.Op.Looks() {
		g.log.Info("operator acts on the outbox", "operation", string(req.Op), "ids", len(req.IDs), "all", req.All)
		defer g.p.Deliverer.TryNow()
	}
	return admin.ActOnOutbox(ctx, g.p.Outbox, g.p.Trail, req, emit)
}

// steered is what an operator may do to a session; *telemetry.Session has it.
type steered interface {
	Hold(ctx context.Context) error
	Accept(ctx context.Context) error
	Rewind(ctx context.Context, seq int64) error
}

// Session does an operation on one session, between two pulls of it.
func (g *generation) Session(ctx context.Context, req admin.SessionRequest) error {
	g.log.Info("operator acts on a session", "operation", string(req.Op), "session", req.Session, "to", req.To)
	return g.p.keeper.do(ctx, req.Session, func(p puller) error {
		s, ok := p.(steered)
		switch {
		case !ok:
			return errNoSession
		case req.Op == admin.SessionHold:
			return s.Hold(ctx)
		case req.Op == admin.SessionAccept:
			return s.Accept(ctx)
		case req.Op == admin.SessionRewind:
			return s.Rewind(ctx, req.To)
		}
		return fmt.Errorf("unknown operation %q", req.Op)
	})
}

// Status is what `status` tells.
type Status struct {
	Mode   string `json:"mode"`
	Policy string `json:"policy"`
	// PublicKey is what summaries are verified with, in base64, as bridge.started has it.
	PublicKey string             `json:"public_key"`
	Sessions  int                `json:"sessions"`
	Held      int                `json:"held_sessions"`
	Events    telemetry.Outcomes `json:"events"`
	Outbox    admin.Stats        `json:"outbox"`
	Receiver  Receiver           `json:"receiver"`
}

// Receiver is how the receiver is doing.
type Receiver struct {
	Status   string     `json:"status"`
	Reason   string     `json:"reason,omitempty"`
	Warnings []string   `json:"warnings,omitempty"`
	Failures int        `json:"failures,omitempty"`
	Next     *time.Time `json:"next_try,omitempty"`
	LastAck  *time.Time `json:"last_ack,omitempty"`
}

// Status tells of sessions, backlog and receiver.
func (g *generation) Status(ctx context.Context) (any, error) {
	s := Status{
		Mode: g.cfg.Mode.String(), Policy: g.p.Capture.Policy(), Events: g.p.Capture.Outcomes(),
		PublicKey: base64.StdEncoding.EncodeToString(g.p.Trail.PublicKey()),
	}
	s.Sessions, s.Held = g.p.keeper.counts()
	err := admin.LookIntoOutbox(ctx, g.p.Outbox, admin.OutboxRequest{Op: admin.OutboxStatus}, func(v any) error {
		s.Outbox = v.(admin.Stats)
		return nil
	})
	state := g.p.Deliverer.State()
	s.Receiver = Receiver{Status: state.Status.String(), Reason: state.Reason, Warnings: state.Warnings, Failures: state.Failures}
	if !state.Next.IsZero() {
		s.Receiver.Next = &state.Next
	}
	if !state.LastAck.IsZero() {
		s.Receiver.LastAck = &state.LastAck
	}
	return s, err
}

// Tap gives every record from now on, until ctx or the generation ends.
func (g *generation) Tap(ctx context.Context, ready func(), emit func(any) error) error {
	sub := g.tap.subscribe()
	ready()
	defer g.tap.unsubscribe(sub)
	for {
		select {
		case <-ctx.Done():
			return nil
		case r, open := <-sub.records:
			if !open {
				return nil
			}
			if err := emit(r); err != nil {
				return err
			}
			if missed := sub.takeMissed(); missed > 0 {
				if err := emit(map[string]int64{"missed": missed}); err != nil {
					return err
				}
			}
		}
	}
}

// tap lets operators look at committed records. A reader that is too slow misses records; capture never waits.
type tap struct {
	mu     sync.Mutex
	subs   map[*subscriber]bool
	closed bool
}

type subscriber struct {
	records chan *admin.Record
	mu      sync.Mutex
	missed  int64
}

func (s *subscriber) takeMissed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.missed
	s.missed = 0
	return n
}

const tapBuffer = 256

func newTap() *tap {
	return &tap{subs: map[*subscriber]bool{}}
}

func (t *tap) publish(r *telemetry.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.subs) == 0 {
		return
	}
	// The record is shared with nobody once it is turned into the operator's
	// form; its body is copied there.
	out := admin.RecordOf(r)
	for s := range t.subs {
		select {
		case s.records <- out:
		default:
			s.mu.Lock()
			s.missed++
			s.mu.Unlock()
		}
	}
}

func (t *tap) subscribe() *subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &subscriber{records: make(chan *admin.Record, tapBuffer)}
	if t.closed {
		close(s.records)
	} else {
		t.subs[s] = true
	}
	return s
}

func (t *tap) unsubscribe(s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subs, s)
}

// close ends all readers.
func (t *tap) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for s := range t.subs {
		close(s.records)
		delete(t.subs, s)
	}
}
