package telemetry

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
)

// Config is what a Capture is made of. Outbox, Mode and Installation are
// needed; the zero value of everything else is a default.
type Config struct {
	Outbox       Outbox
	Mode         Mode
	Installation *Installation

	// FeedbackScope is how far back feedback reaches in FeedbackOnly.
	FeedbackScope FeedbackScope
	// CatchUp makes known sessions go on from their cursor after consent has
	// grown, instead of from now.
	CatchUp bool
	// Redaction is nil only where it was refused by name.
	Redaction *Redaction
	// Listeners are the caller's own, the outermost first.
	Listeners []Listener
	// EventTypes are allowed beyond the core's.
	EventTypes []session.EventType
	// Resource is stored with every record.
	Resource *Resource
	// Version is the version of the instrumentation scopes.
	Version string
	// MaxRecordBytes is the longest body; 0 is DefaultMaxRecordBytes.
	MaxRecordBytes int
	// HoldOnDivergence holds a session whose past has changed, instead of going
	// on under another incarnation.
	HoldOnDivergence bool
	// Parent finds the ledger of a session by its id, for forks. It may be nil.
	Parent func(id string) (Source, bool)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Attest has summaries, signed and linked, tell what became of each event, and
	// ops records tell when a session is opened and comes to rest. What delivers
	// from the outbox must then know drafts, see Sealer.
	Attest bool
	// GenAI gives records the gen_ai.* attributes of OpenTelemetry's semantic
	// conventions too, in the version that GenAISchemaURL names.
	GenAI bool
	// Tap, if not nil, is called with every record that was committed. It must
	// neither keep nor change it.
	Tap func(*Record)
}

// Capture turns ledgers into records. It is safe for concurrent use; each
// Session by itself is not.
type Capture struct {
	cfg       Config
	waterfall *Waterfall
	ops       opsNumbers
	policy    string
	profile   string // of what decides how a ledger is understood

	turns turns

	mu       sync.Mutex
	owners   map[string]*Session // by session key, without the version
	outcomes Outcomes
}

// ErrDisabled is returned where a Capture is asked for without consent.
var ErrDisabled = errors.New("the mode is DISABLED: nothing may be captured")

// NewCapture returns a Capture. It is refused under Disabled.
func NewCapture(cfg Config) (*Capture, error) {
	switch {
	case cfg.Mode == Disabled:
		return nil, ErrDisabled
	case cfg.Outbox == nil:
		return nil, errors.New("capture needs an outbox")
	case cfg.Installation == nil:
		return nil, errors.New("capture needs an installation: open one with OpenInstallation")
	}
	if cfg.MaxRecordBytes == 0 {
		cfg.MaxRecordBytes = DefaultMaxRecordBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Capture{
		cfg:       cfg,
		waterfall: NewWaterfall(covered, cfg.Redaction, cfg.Listeners...),
		ops:       opsNumbers{outbox: cfg.Outbox},
		owners:    make(map[string]*Session),
		turns:     make(turns, min(4, max(2, runtime.GOMAXPROCS(0)))),
	}
	c.policy = c.waterfall.Policy()
	c.profile = profile(&cfg)
	var broken error
	cfg.Outbox.Cursors(cursorPrefix, func(key string, value []byte) bool {
		cur, err := decodeCursor(value)
		if err != nil {
			broken = fmt.Errorf("%s: %w", key, err)
			return false
		}
		c.outcomes.Add(cur.outcomes)
		return true
	})
	if broken != nil {
		return nil, broken
	}
	return c, nil
}

// turns bounds how many sessions are read at the same time: enough to keep a
// machine busy, and not so many that delivery has to wait for its turn and falls
// behind. Who waits for the disk lets another one have the turn.
type turns chan struct{}

func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) give() { <-t }

// profile is a short name for what, beside the source, decides how far a ledger
// can be read.
func profile(cfg *Config) string {
	h := fnv.New64a()
	fmt.Fprint(h, cfg.Version, cfg.Mode, cfg.FeedbackScope, cfg.HoldOnDivergence)
	for _, t := range cfg.EventTypes {
		fmt.Fprintf(h, " %q %v", t.Name, t.Surface)
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// consent is what the gate asks: how far a session's records may go.
type consent struct {
	mode      Mode
	watermark int64 // seq of the last event that may go out
}

// covered is the gate: it looks again at what capture has decided. A record
// that no consent was given for does not pass.
func covered(r *Record) bool {
	if r.Channel == ChannelOps && !r.SessionScoped {
		return r.consent.mode != Disabled
	}
	switch r.consent.mode {
	case Full:
		return true
	case FeedbackOnly:
		return r.about <= r.consent.watermark
	}
	return false
}

// Covers tells whether consent, as it is now, covers a record that is stored in
// an outbox stream. When the mode has become narrower, what it does not cover is
// to be held for an operator. It does not know what an ops record about a
// session speaks of, and covers none of them under FeedbackOnly.
func (c *Capture) Covers(stream string, r *Record) bool {
	switch {
	case c.cfg.Mode == Full, !r.SessionScoped:
		return c.cfg.Mode != Disabled
	case r.Channel != ChannelLedger:
		return false
	}
	value, ok := c.cfg.Outbox.Cursor(stream)
	if !ok {
		return false
	}
	cur, err := decodeCursor(value)
	if err != nil || cur.incarnation != r.Identity.Incarnation || r.Inherited {
		return false
	}
	first := int64(0)
	if c.cfg.FeedbackScope == ScopeLifetime {
		first = cur.lifetime
	}
	return first <= r.Identity.Seq && r.Identity.Seq < cur.feedback
}

// Policy returns the hash of the redaction policy, or PolicyNone.
func (c *Capture) Policy() string { return c.policy }

// Outcomes returns what became of all events that were read, in this
// installation's life.
func (c *Capture) Outcomes() Outcomes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes
}

// EmitOps commits an ops record that speaks of the bridge and not of a session.
// The body is one JSON value.
func (c *Capture) EmitOps(ctx context.Context, op string, severity Severity, body []byte) error {
	t := c.Trail()
	r, err := t.record(ctx, op, severity, body)
	if err != nil {
		return err
	}
	if r, err = t.waterfall.Run(ctx, r); err != nil {
		return err
	}
	return t.commit(ctx, r)
}

// unbounded is the watermark of Full.
const unbounded = math.MaxInt64

// ErrTaken says that another source captures the same session now: a copy of a
// file, or its other encoding. Nothing goes out twice.
var ErrTaken = errors.New("the session is captured from another source")

func (c *Capture) own(key string, s *Session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner := c.owners[key]; owner != nil && owner != s {
		return ErrTaken
	}
	c.owners[key] = s
	return nil
}

func (c *Capture) disown(key string, s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners[key] == s {
		delete(c.owners, key)
	}
}

// account takes a session's outcomes from what they were to what they are.
func (c *Capture) account(was *Outcomes, are Outcomes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, b, t := are.fields(), was.fields(), c.outcomes.fields()
	for i := range t {
		*t[i] += *a[i] - *b[i]
	}
	*was = are
}

// KnownSession is what a data directory knows of a session.
type KnownSession struct {
	// SessionID is as records have it.
	SessionID     string
	CreatedAt     int64
	FormatVersion int
	Incarnation   uint32
	// Next is the seq of the first event that nothing is decided about.
	Next     int64
	Outcomes Outcomes
	Held     *HeldError
}

// KnownSessions calls fn with every session that an outbox has a cursor of,
// until fn returns false.
func KnownSessions(o Outbox, fn func(KnownSession) bool) error {
	var broken error
	o.Cursors(cursorPrefix, func(key string, value []byte) bool {
		c, err := decodeCursor(value)
		if err != nil {
			broken = fmt.Errorf("%s: %w", key, err)
			return false
		}
		return fn(KnownSession{c.id, c.createdAt, c.version, c.incarnation, c.next, c.outcomes, c.held})
	})
	return broken
}
