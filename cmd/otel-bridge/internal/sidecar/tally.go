package sidecar

import (
	"maps"
	"sync"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
)

// tally is what is counted from the start of the process on. Generations share it,
// so that a reload begins nothing anew.
type tally struct {
	mu         sync.Mutex
	redactions map[string]int64 // by rule
	delivered  otlp.Stats       // of generations that have ended
	lastAck    time.Time
}

func newTally() *tally { return &tally{redactions: map[string]int64{}} }

// redacted counts what redaction took out of a committed record.
func (t *tally) redacted(r *telemetry.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range r.Redactions {
		t.redactions[c.Rule] += c.Count
	}
}

// ended keeps the counts of a deliverer that sends nothing any more.
func (t *tally) ended(d *otlp.Deliverer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delivered = t.delivered.Plus(d.Stats())
	if ack := d.State().LastAck; !ack.IsZero() {
		t.lastAck = ack
	}
}

// counts returns the redactions by rule.
func (t *tally) counts() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.redactions)
}

// delivery returns what was delivered until now, with d at work, and when a request
// was last acknowledged.
func (t *tally) delivery(d *otlp.Deliverer) (otlp.Stats, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ack := d.State().LastAck
	if ack.IsZero() {
		ack = t.lastAck
	}
	return t.delivered.Plus(d.Stats()), ack
}
