package audit

import (
	"context"
	"errors"
	"strings"
	"sync"

	sess "github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Ledger takes in a ledger: each of its events has to be received or accounted
// for. The error is one of reading it; what stood before is taken in.
func (a *Auditor) Ledger(src telemetry.Source) error {
	led, err := src.Open()
	if err != nil {
		return err
	}
	defer led.Close()
	h := led.Header()
	d, err := sess.DialectOf(h.Version)
	if err != nil {
		return err
	}
	t := a.ledger(identity{strings.ToValidUTF8(h.ID, "\uFFFD"), h.CreatedAt, h.Version})
	started := false
	for led.Next() {
		ev := led.Event()
		e := t.at(ev.Seq)
		e.known = true
		switch {
		case ev.Type == sess.TypeStepStart:
			started = false
		case ev.Type == sess.TypeAssistantChunk && d.StreamsAsChunks():
			e.elided = started
			started = true
		}
	}
	return led.Err()
}

func (a *Auditor) ledger(id identity) *table[expected] {
	t := a.ledgers[id]
	if t == nil {
		t = &table[expected]{}
		a.ledgers[id] = t
	}
	return t
}

// Bodies makes the bodies of a ledger again, as the configuration of a capture
// has them, to compare those that were received under the same policy. The outbox,
// mode and tap of cfg are not used.
func (a *Auditor) Bodies(ctx context.Context, cfg telemetry.Config, src telemetry.Source) error {
	if cfg.Installation == nil {
		cfg.Installation = telemetry.NewInstallation()
	}
	cfg.Mode, cfg.Tap, cfg.Attest, cfg.Parent = telemetry.Full, nil, false, nil
	led, err := src.Open()
	if err != nil {
		return err
	}
	h := led.Header()
	id := identity{strings.ToValidUTF8(h.ID, "\uFFFD"), h.CreatedAt, h.Version}
	led.Close()
	cfg.Outbox = &comparing{a: a, id: id, cursors: map[string][]byte{}}
	in := *cfg.Installation
	in.Mode = telemetry.Full
	cfg.Installation = &in
	c, err := telemetry.NewCapture(cfg)
	if err != nil {
		return err
	}
	s := c.Session(src, telemetry.SessionOptions{})
	defer s.Close()
	_, err = s.Pull(ctx, 0)
	var held *telemetry.HeldError
	if errors.As(err, &held) {
		return nil // what stands before is compared; Ledger tells of the rest
	}
	return err
}

// comparing is an outbox that keeps leaves.
type comparing struct {
	a       *Auditor
	id      identity // of the ledger
	decoder telemetry.Decoder
	mu      sync.Mutex
	cursors map[string][]byte
}

func (c *comparing) Commit(_ context.Context, b *outbox.Batch) (outbox.ID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range b.Entries {
		r, err := c.decoder.Decode(e.Payload)
		if err != nil {
			return 0, err
		}
		if r.Channel != telemetry.ChannelLedger || r.Withheld != "" {
			continue
		}
		c.a.aliases[identity{r.Identity.SessionID, r.Identity.CreatedAt, r.Identity.FormatVersion}] = c.id
		want := c.a.ledger(c.id).at(r.Identity.Seq)
		want.leaf, want.policy = c.a.hash(telemetry.LeafOf(r.Body)), c.a.policy(r.Policy)
	}
	for _, cur := range b.Cursors {
		c.cursors[cur.Key] = append([]byte(nil), cur.Value...)
	}
	return 0, nil
}

func (c *comparing) WaitRoom(context.Context) error { return nil }

func (c *comparing) Cursor(key string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.cursors[key]
	return v, ok
}

func (c *comparing) Cursors(string, func(string, []byte) bool) {}
