package audit

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"

	sess "github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// ledger is what is known of a session from its ledger.
type ledger struct {
	table[expected]
	source   telemetry.Source
	facts    table[facts]
	feedback int64 // seq of the last own feedback/record, -1 for none
	lifetime int64 // first seq after the last session/end-seed
}

// look is table.look of a ledger that there may not be.
func (l *ledger) look(seq int64) *expected {
	if l == nil {
		return nil
	}
	return l.table.look(seq)
}

// consent is what a configuration says of how far records may go.
type consent struct {
	mode  telemetry.Mode
	scope telemetry.FeedbackScope
}

// Consent says under which mode and feedback scope the bridges were to run. Where
// nobody has said it, or mode is Disabled, what their records bridge.started tell
// counts.
func (a *Auditor) Consent(mode telemetry.Mode, scope telemetry.FeedbackScope) {
	a.consent = consent{mode, scope}
}

// scope is the events of a ledger that have to be sent, from up to before end.
type scope struct{ from, end int64 }

func (s scope) has(seq int64) bool { return s.from <= seq && seq < s.end }

// scopeOf is what consent covers of a ledger that these instances have sent, by the
// rule of capture. With no instances it is all that were heard of.
func (a *Auditor) scopeOf(led *ledger, instances map[string]bool) scope {
	mode := a.consent.mode
	if mode == telemetry.Disabled {
		mode = a.toldMode(instances)
	}
	s := scope{0, math.MaxInt64}
	if mode != telemetry.FeedbackOnly {
		return s
	}
	s.end = led.feedback + 1
	if a.consent.scope == telemetry.ScopeLifetime {
		s.from = led.lifetime
		if led.feedback < led.lifetime {
			s = scope{0, 0} // that feedback was about an earlier lifetime
		}
	}
	return s
}

// toldMode is FeedbackOnly where no record bridge.started of the instances, or of
// any when they have sent none, says another mode.
func (a *Auditor) toldMode(instances map[string]bool) telemetry.Mode {
	told := map[string]bool{}
	for i := range instances {
		maps.Copy(told, a.modes[i])
	}
	if len(told) == 0 {
		for _, modes := range a.modes {
			maps.Copy(told, modes)
		}
	}
	if len(told) == 1 && told[telemetry.FeedbackOnly.String()] {
		return telemetry.FeedbackOnly
	}
	return telemetry.Full
}

// Ledger takes in a ledger: each of its events has to be received or accounted
// for. name is what a finding calls it. Of two ledgers of one session the first one
// counts, or the second one where that goes on from its end or the first one cannot
// be read; where they differ that is told, and counts is false. The error is one of reading it; what stood before
// is taken in.
func (a *Auditor) Ledger(name string, src telemetry.Source) (counts bool, err error) {
	led, err := src.Open()
	if err != nil {
		return true, err
	}
	defer led.Close()
	h := led.Header()
	d, err := sess.DialectOf(h.Version)
	if err != nil {
		return true, err
	}
	id := identityOf(h)
	if first := a.ledgers[id]; first != nil {
		if diff, err := compare(first.source, src); err == nil && !diff.more {
			a.tellTwin(name, id, diff)
			return false, nil
		}
	}
	t := a.ledger(id)
	t.source = src
	seed, err := src.Inherited()
	if err != nil {
		return true, err
	}
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
		case ev.Type == sess.TypeEndSeed:
			t.lifetime = ev.Seq + 1
		case ev.Type == sess.TypeFeedbackRecord && ev.Seq >= seed:
			t.feedback = ev.Seq
		}
	}
	return true, led.Err()
}

func (a *Auditor) ledger(id identity) *ledger {
	t := a.ledgers[id]
	if t == nil {
		t = &ledger{feedback: -1}
		a.ledgers[id] = t
	}
	return t
}

// Attributes makes the attributes of what is received be kept, for Records. It is
// to be said before anything is taken in.
func (a *Auditor) Attributes() { a.keep = true }

// Records makes the records of a ledger again, as the configuration of a capture
// has them, to compare those that were received: their attributes, and under the
// same policy their bodies and what else redaction may touch. With configured
// false cfg decides only which event types there are, and nothing is compared that
// redaction or a limit may touch. Outbox, mode and tap of cfg are not used; without
// an installation tokens are not compared.
func (a *Auditor) Records(ctx context.Context, cfg telemetry.Config, src telemetry.Source, configured bool) error {
	keyless := cfg.Installation == nil
	if keyless {
		cfg.Installation = telemetry.NewInstallation()
	}
	if !configured {
		cfg.Redaction = nil
	}
	cfg.Mode, cfg.Tap, cfg.Attest, cfg.Parent = telemetry.Full, nil, false, nil
	led, err := src.Open()
	if err != nil {
		return err
	}
	id := identityOf(led.Header())
	led.Close()
	cfg.Outbox = &comparing{a: a, id: id, configured: configured, keyless: keyless, cursors: map[string][]byte{}}
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

// comparing is an outbox that keeps leaves and facts.
type comparing struct {
	a          *Auditor
	id         identity // of the ledger
	configured bool
	keyless    bool // tokens are not those of the bridge
	decoder    telemetry.Decoder
	mu         sync.Mutex
	cursors    map[string][]byte
}

func (c *comparing) Commit(_ context.Context, b *outbox.Batch) (outbox.ID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range b.Entries {
		r, err := c.decoder.Decode(e.Payload)
		if err != nil {
			return 0, err
		}
		if r.Channel != telemetry.ChannelLedger {
			continue
		}
		policy := uint16(0)
		if c.configured {
			policy = c.a.policy(r.Policy)
		}
		led := c.a.ledger(c.id)
		*led.facts.at(r.Identity.Seq) = c.a.madeFacts(&r, policy, c.keyless)
		if !c.configured || r.Withheld != "" {
			continue
		}
		c.a.aliases[identity{r.Identity.SessionID, r.Identity.CreatedAt, r.Identity.FormatVersion}] = c.id
		want := led.at(r.Identity.Seq)
		want.leaf, want.policy = c.a.hash(telemetry.LeafOf(r.Body)), policy
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
