package otlp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Status is the short form of a [State].
type Status uint8

// What a receiver can be.
const (
	// Unknown: nothing has been sent yet.
	Unknown Status = iota
	// OK: the latest request was answered.
	OK
	// Retrying: the receiver can't now; it is tried again by itself.
	Retrying
	// Holding: somebody has to mend something; it is tried rarely.
	Holding
)

func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Retrying:
		return "retrying"
	case Holding:
		return "holding"
	}
	return "unknown"
}

// State is how a receiver is doing. It holds no content.
type State struct {
	Status Status
	// Reason says what is wrong and what to do, "" when nothing is.
	Reason string
	// Code is the HTTP status of the latest failure, 0 without one.
	Code int
	// Failures in a row.
	Failures int
	// Since is when it became so.
	Since time.Time
	// Next is when it is tried again, zero when it is not waiting.
	Next time.Time
	// LastAck is when a request was last acknowledged.
	LastAck time.Time
	// BatchRecords is the present bound: 1 after an answer that left open
	// which records were refused, growing again with each clean one.
	BatchRecords int
	// RequestBytes is the receiver's limit as far as it is known, 0: none met.
	RequestBytes int
	// Warnings say what is wrong though it hinders nothing yet: files that cannot
	// be used any more, while what was read from them before goes on.
	Warnings []string
}

// Ready says that records flow, or would if there were any.
func (s State) Ready() bool { return s.Status == OK || s.Status == Unknown }

// circuit is what all workers know of the receiver, and the gate before it:
//
//	closed ──failure──▶ open ──pause over──▶ one worker tries ──answer──▶ closed
//	                     ▲                        │
//	                     └────────failure─────────┘
//
// A request that began before the circuit opened changes nothing: its success
// says nothing about what came later, and several failures at once are one.
type circuit struct {
	cfg *Config

	mu       sync.Mutex
	status   Status
	reason   string
	code     int
	failures int
	epoch    uint64 // counts openings
	since    time.Time
	until    time.Time
	probing  bool
	lastAck  time.Time
	change   chan struct{} // closed at every change

	records  int // bound of a batch
	refusals int // single records refused in a row

	accepted   int // largest request that was taken
	refused    int // smallest request of several records that was too large
	byteLimit  int // 0: none
	limitSince time.Time
	ratio      float64 // request bytes for a stored byte
}

const (
	// lookEvery is how often files are looked at that requests rest on.
	lookEvery = 2 * time.Second
	// limitFor is how long a learned size limit counts.
	limitFor = time.Hour
)

func newCircuit(cfg *Config) *circuit {
	return &circuit{cfg: cfg, change: make(chan struct{}), records: cfg.MaxBatchRecords, ratio: 1, since: time.Now()}
}

// ticket is the permission for one request.
type ticket struct {
	epoch uint64
	probe bool
}

// enter waits until a request may be made. Every ticket is given back by
// answered, failed or cancelled.
func (c *circuit) enter(ctx context.Context) (ticket, error) {
	for {
		if err := ctx.Err(); err != nil {
			return ticket{}, err
		}
		t, wait, change := c.try()
		if change == nil {
			return t, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-change:
		case <-timer.C:
		}
		timer.Stop()
	}
}

var errPause = errors.New("the receiver is not to be tried now")

// enterNow is enter that does not wait.
func (c *circuit) enterNow(ctx context.Context) (ticket, error) {
	if err := ctx.Err(); err != nil {
		return ticket{}, err
	}
	t, _, change := c.try()
	if change != nil {
		return ticket{}, errPause
	}
	return t, nil
}

// try gives a ticket, or says how long to wait for one, unless change is closed before.
func (c *circuit) try() (t ticket, wait time.Duration, change <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.epoch = c.epoch
	if c.status == OK || c.status == Unknown {
		return t, 0, nil
	}
	if c.probing {
		return t, time.Hour, c.change // the probe's end is a change
	}
	if wait = time.Until(c.until); wait > 0 {
		return t, wait, c.change
	}
	c.probing, t.probe = true, true
	return t, 0, nil
}

// mended ends a hold's pause: something has changed that may help.
func (c *circuit) mended() {
	c.mu.Lock()
	holding := c.status == Holding
	c.mu.Unlock()
	if holding {
		c.kick()
	}
}

// kick ends the present pause.
func (c *circuit) kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Now()
	c.changed()
}

func (c *circuit) changed() {
	close(c.change)
	c.change = make(chan struct{})
}

// answered: the receiver is there and has judged a request.
func (c *circuit) answered(t ticket, clean bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if clean {
		c.lastAck = now
		c.refusals = 0
	}
	if c.status != OK && t.epoch == c.epoch {
		if c.failures > 0 {
			c.cfg.Logger.Info("receiver answers again", "after", now.Sub(c.since).Round(time.Millisecond), "failures", c.failures)
		}
		c.status, c.reason, c.code, c.failures = OK, "", 0, 0
		c.since, c.until = now, time.Time{}
		c.probing = false
		c.changed()
	}
}

// failed opens the circuit, or keeps it open for longer.
func (c *circuit) failed(t ticket, v verdict, words string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	asked := min(v.retryAfter, c.cfg.MaxRetryAfter)
	if t.epoch != c.epoch {
		// Of several requests under way the first has opened it.
		if until := now.Add(asked); asked > 0 && c.status != OK && until.After(c.until) {
			c.until = until
		}
		return
	}
	status, least, most := Retrying, c.cfg.MinBackoff, c.cfg.MaxBackoff
	if v.outcome == holdAll {
		status, least, most = Holding, c.cfg.MinHold, c.cfg.MaxHold
	}
	if c.status != status {
		c.failures = 0
		c.since = now
	}
	if c.failures == 0 || c.reason != v.reason {
		attrs := []any{slog.String("reason", v.reason)}
		if words != "" {
			attrs = append(attrs, slog.String("receiver_words", words))
		}
		level := slog.LevelWarn
		if status == Holding {
			level = slog.LevelError // nothing moves until somebody acts
		}
		c.cfg.Logger.Log(context.Background(), level, "receiver "+status.String(), attrs...)
	}
	c.failures++
	c.status, c.reason, c.code = status, v.reason, v.status
	c.until = now.Add(max(backoff(least, most, c.failures, c.cfg.random), jitterAbove(asked, c.cfg.random)))
	c.epoch++
	c.probing = false
	c.changed()
}

// cancelled gives back a ticket without a verdict.
func (c *circuit) cancelled(t ticket) {
	if !t.probe {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.epoch == c.epoch {
		c.probing = false
		c.changed()
	}
}

// backoff doubles with each failure and is spread over its upper half, so that
// many senders do not come back at once.
func backoff(least, most time.Duration, failures int, random func() float64) time.Duration {
	d := least
	for i := 1; i < failures && d < most; i++ {
		d *= 2
	}
	d = min(d, most)
	return d/2 + time.Duration(random()*float64(d-d/2))
}

// jitterAbove spreads what a receiver asked for, never below it.
func jitterAbove(d time.Duration, random func() float64) time.Duration {
	return d + time.Duration(random()*float64(d)/10)
}

// refusedOne counts a refused single record and says whether there are now too
// many in a row for the record to be at fault.
func (c *circuit) refusedOne() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals++
	return c.refusals >= c.cfg.MaxRefusals
}

// suspicious says whether the receiver rather than a record is at fault.
func (c *circuit) suspicious() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusals >= c.cfg.MaxRefusals
}

// maxRecords is the present bound of a request: one when the receiver refuses
// everything, since only single records tell.
func (c *circuit) maxRecords() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusals >= c.cfg.MaxRefusals {
		return 1
	}
	return c.records
}

// limits are those for the next lease, in stored bytes.
func (c *circuit) limits() (records, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	records, bytes = c.records, c.cfg.MaxBatchBytes
	if limit := c.requestLimit(); limit > 0 {
		bytes = max(1, min(bytes, int(float64(limit)/c.ratio)))
	}
	return records, bytes
}

// requestLimit is the learned size limit, 0: none. The caller holds mu.
func (c *circuit) requestLimit() int {
	if c.byteLimit > 0 && time.Since(c.limitSince) > limitFor {
		c.byteLimit, c.refused = 0, 0
	}
	return c.byteLimit
}

func (c *circuit) sizeLimit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requestLimit()
}

// unknownOutcome makes the next requests hold one record each, so that the
// next verdicts are definite.
func (c *circuit) unknownOutcome() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = 1
}

// took notes a clean acknowledgement of a request of n records.
func (c *circuit) took(n, requestBytes, storedBytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n >= c.records {
		c.records = min(2*c.records, c.cfg.MaxBatchRecords)
	}
	c.accepted = max(c.accepted, requestBytes)
	if storedBytes > 0 {
		c.ratio += (max(float64(requestBytes)/float64(storedBytes), 0.01) - c.ratio) / 8
	}
}

// learnSize is told, when a batch is settled, the smallest request of several
// records that was too large and the largest that was taken. A limit of the
// receiver leaves a gap between them; where there is none, single records were
// too large, and requests are not to shrink.
func (c *circuit) learnSize(refused, accepted int) {
	if refused == 0 || accepted == 0 || accepted >= refused {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == 0 || refused < c.refused {
		c.refused = refused
	}
	if c.accepted >= c.refused { // the receiver takes less than it did
		c.accepted = accepted
	}
	c.byteLimit, c.limitSince = c.accepted, time.Now()
	c.cfg.Logger.Info("receiver's size limit met; requests are made smaller", "request_bytes", c.byteLimit)
}

func (c *circuit) state() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return State{
		Status: c.status, Reason: c.reason, Code: c.code, Failures: c.failures, Since: c.since,
		Next: c.until, LastAck: c.lastAck, BatchRecords: c.records, RequestBytes: c.requestLimit(),
	}
}
