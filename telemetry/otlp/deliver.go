package otlp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Deliverer sends what a [Source] holds to one receiver. It starts nothing
// until [Deliverer.Run] or [Deliverer.Drain].
type Deliverer struct {
	cfg     Config
	source  Source
	url     *url.URL
	headers *headers
	base    http.RoundTripper
	circuit *circuit
	budget  *budget
	counts  counters
	secrets []string // of the endpoint
	files   clientFiles

	mu       sync.Mutex
	running  bool
	settled  chan struct{} // closed when a lease has ended
	leases   int           // out at the moment
	leased   int           // records in these
	turn     time.Time     // of the next lease that is less than full
	warnings map[string]bool
}

type counters struct {
	requests, rawBytes, wireBytes             atomic.Int64
	acked, refused, unknown, unsendable       atomic.Int64
	retries, holds, splits, refreshed, leases atomic.Int64
}

// Stats count since the Deliverer was made.
type Stats struct {
	Requests   int64 // attempts that went to the network
	RawBytes   int64 // of requests before compression
	WireBytes  int64 // of requests as sent
	Acked      int64 // records
	Refused    int64 // records quarantined: refused, or too large
	Unknown    int64 // records quarantined: outcome unknown
	Unsendable int64 // records quarantined without having been sent
	Retries    int64 // requests that will be made again
	Holds      int64 // requests after which everything is held
	Splits     int64 // batches cut in two
	Refreshed  int64 // records changed before they were sent
	Leases     int64 // batches taken from the source
}

// Plus adds the counts of another Deliverer.
func (s Stats) Plus(o Stats) Stats {
	return Stats{
		Requests: s.Requests + o.Requests, RawBytes: s.RawBytes + o.RawBytes, WireBytes: s.WireBytes + o.WireBytes,
		Acked: s.Acked + o.Acked, Refused: s.Refused + o.Refused, Unknown: s.Unknown + o.Unknown, Unsendable: s.Unsendable + o.Unsendable,
		Retries: s.Retries + o.Retries, Holds: s.Holds + o.Holds, Splits: s.Splits + o.Splits, Refreshed: s.Refreshed + o.Refreshed,
		Leases: s.Leases + o.Leases,
	}
}

// ErrRunning is returned when a second Run is started.
var ErrRunning = errors.New("otlp: delivery is already running")

// UndeliveredError says that [Deliverer.Drain] ended before everything was
// settled. What is left is kept.
type UndeliveredError struct {
	Pending int64
	State   State
	Err     error // why Drain ended
}

func (e *UndeliveredError) Error() string {
	s := fmt.Sprintf("otlp: %d records are not delivered and stay in the outbox", e.Pending)
	if e.State.Reason != "" {
		s += ": " + e.State.Reason
	}
	for _, w := range e.State.Warnings {
		s += "; " + w
	}
	return s
}

// Unwrap returns the reason, mostly a context's error.
func (e *UndeliveredError) Unwrap() error { return e.Err }

// New checks cfg and returns a Deliverer. Errors are of type [*ConfigError].
func New(source Source, cfg Config) (*Deliverer, error) {
	cfg.setDefaults()
	if cfg.random == nil {
		cfg.random = rand.Float64
	}
	u, err := cfg.check()
	if err != nil {
		return nil, err
	}
	h, err := newHeaders(&cfg, u)
	if err != nil {
		return nil, err
	}
	d := &Deliverer{
		cfg: cfg, source: source, headers: h, base: cfg.base,
		budget:   newBudget(cfg.MaxInFlightBytes),
		settled:  make(chan struct{}),
		warnings: make(map[string]bool),
	}
	if pass, ok := u.User.Password(); ok {
		d.secrets = append(d.secrets, pass)
	}
	for _, values := range u.Query() {
		d.secrets = append(d.secrets, values...)
	}
	bare := *u
	bare.User = nil
	d.url = &bare
	if d.base == nil {
		c, err := newConnections(&d.cfg, u)
		if err != nil {
			return nil, err
		}
		d.base = c
	}
	d.circuit = newCircuit(&d.cfg)
	d.lookAtFiles()
	return d, nil
}

// State tells how the receiver is doing.
func (d *Deliverer) State() State {
	s := d.circuit.state()
	s.Warnings = d.files.warnings()
	return s
}

// Stats returns the counts since New.
func (d *Deliverer) Stats() Stats {
	c := &d.counts
	return Stats{
		Requests: c.requests.Load(), RawBytes: c.rawBytes.Load(), WireBytes: c.wireBytes.Load(),
		Acked: c.acked.Load(), Refused: c.refused.Load(), Unknown: c.unknown.Load(), Unsendable: c.unsendable.Load(),
		Retries: c.retries.Load(), Holds: c.holds.Load(), Splits: c.splits.Load(), Refreshed: c.refreshed.Load(),
		Leases: c.leases.Load(),
	}
}

// TryNow ends the present pause, because somebody has mended something.
func (d *Deliverer) TryNow() { d.circuit.kick() }

// Run delivers until ctx ends, then waits StopGrace for what is under way,
// gives the leases back and returns nil. Another error comes from the source.
func (d *Deliverer) Run(ctx context.Context) error { return d.run(ctx, false) }

// Drain delivers until nothing is pending or ctx ends; the error is then an
// [*UndeliveredError]. While Run runs, Drain only waits.
func (d *Deliverer) Drain(ctx context.Context) error {
	for {
		if err := d.run(ctx, true); err != nil && !errors.Is(err, ErrRunning) {
			return err
		}
		left := d.source.Pending()
		switch {
		case left == 0:
			return nil
		case ctx.Err() != nil:
			return &UndeliveredError{Pending: left, State: d.State(), Err: context.Cause(ctx)}
		}
		// Run has it in hand, or somebody else holds a lease.
		sleep(ctx, drainLook)
	}
}

// drainLook is how often a drain that has nothing to do itself looks again.
const drainLook = 20 * time.Millisecond

func (d *Deliverer) run(ctx context.Context, drain bool) error {
	d.mu.Lock()
	if d.running {
		d.mu.Unlock()
		return ErrRunning
	}
	d.running = true
	d.mu.Unlock()
	defer func() {
		d.closeIdle()
		d.mu.Lock()
		d.running = false
		d.mu.Unlock()
	}()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	requests, cut := lasting(ctx, d.cfg.StopGrace)
	defer cut()
	workers := make([]*worker, d.cfg.Workers)
	for i := range workers {
		w, err := d.newWorker(ctx)
		if err != nil {
			return err
		}
		w.requests = requests
		workers[i] = w
	}
	d.lookAtFiles()
	watching, unwatch := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		d.watchFiles(watching)
	}()
	defer func() {
		unwatch()
		<-watched
	}()
	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	for i, w := range workers {
		wg.Go(func() {
			if errs[i] = w.run(ctx, drain); errs[i] != nil {
				cancel(errs[i]) // one source: if it fails for one it fails for all
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lasting is ctx, but ends grace later, or when cut is called.
func lasting(ctx context.Context, grace time.Duration) (longer context.Context, cut func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		sleep(longer, grace)
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

func (d *Deliverer) closeIdle() {
	if t, ok := d.base.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

func (d *Deliverer) newWorker(ctx context.Context) (*worker, error) {
	t := &transport{
		next: d.base, url: d.url, host: d.url.Host, headers: d.headers, timeout: d.cfg.Timeout,
		counts: &d.counts,
	}
	if d.cfg.UserAgent != "" {
		t.userAgent = d.cfg.UserAgent + " "
	}
	if d.cfg.Compression == "gzip" {
		z, err := gzip.NewWriterLevel(nil, gzipLevel)
		if err != nil {
			return nil, err
		}
		t.gzip = z
	}
	// The transport knows the whole endpoint; the exporter gets what may stand
	// in an error. Each option that it could read from the environment is set.
	shown := url.URL{Scheme: d.url.Scheme, Host: d.url.Host, Path: "/v1/logs"}
	exporter, err := otlploghttp.New(ctx,
		otlploghttp.WithHTTPClient(&http.Client{Transport: t, CheckRedirect: noRedirect}),
		otlploghttp.WithEndpointURL(shown.String()),
		otlploghttp.WithHeaders(map[string]string{}),
		otlploghttp.WithCompression(otlploghttp.NoCompression), // the transport does
		otlploghttp.WithTLSClientConfig(nil),
		otlploghttp.WithTimeout(d.cfg.Timeout),
		otlploghttp.WithRetry(otlploghttp.RetryConfig{Enabled: false}),
		otlploghttp.WithMaxRequestSize(0), // the worker has the limit
	)
	if err != nil {
		return nil, &ConfigError{Field: "Endpoint", Err: errors.New("the exporter does not accept it")}
	}
	return &worker{
		d: d, transport: t, exporter: exporter,
		encode: encoder{json: d.cfg.Body == "json"},
	}, nil
}

// gzipLevel: level 1 packs ledger text nearly as well as the default level (8.2
// to 8.7 times, BenchmarkGzip) and costs less.
const gzipLevel = gzip.BestSpeed

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (d *Deliverer) leaseEnd(records int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leases--
	d.leased -= records
	close(d.settled)
	d.settled = make(chan struct{})
}

// gatherFor is the least time between two leases that are less than a full request. The
// first record after a rest goes out at once; those that come in a stream are not sent, and
// their acknowledgement is not synced, a few at a time.
const gatherFor = 20 * time.Millisecond

// gather waits for the turn of a lease that is less than full; false when ctx ends.
func (d *Deliverer) gather(ctx context.Context, full int) bool {
	d.mu.Lock()
	now := time.Now()
	wait := d.turn.Sub(now)
	if d.source.Pending()-int64(d.leased) < int64(full) {
		d.turn = now.Add(max(wait, 0) + gatherFor)
	} else {
		wait = 0
	}
	d.mu.Unlock()
	return wait <= 0 || sleep(ctx, wait)
}

// next leases a batch. In a drain nil means that nothing is left: what other
// workers hold may come back and is waited for.
func (d *Deliverer) next(ctx context.Context, drain bool, lim outbox.Limits) (Lease, error) {
	for {
		if !drain {
			if !d.gather(ctx, lim.Records) {
				return nil, ctx.Err()
			}
			l, err := d.source.Lease(ctx, lim)
			if l != nil {
				d.mu.Lock()
				d.leases++
				d.leased += len(l.Entries())
				d.mu.Unlock()
				d.counts.leases.Add(1)
			}
			return l, err
		}
		d.mu.Lock()
		settled := d.settled
		l, err := d.source.TryLease(lim)
		if l != nil {
			d.leases++
			d.leased += len(l.Entries())
			d.counts.leases.Add(1)
		}
		others := d.leases > 0
		d.mu.Unlock()
		if l != nil || err != nil || !others {
			return l, err
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// safeWords makes a receiver's words fit to keep: no secret of ours that it
// may have echoed, and nothing that the caller's redaction takes out.
func (d *Deliverer) safeWords(words string) string {
	if words == "" || d.cfg.Redact == nil {
		return ""
	}
	hide := func(secret string) {
		if len(secret) >= 4 {
			words = strings.ReplaceAll(words, secret, "[REDACTED]")
		}
	}
	d.headers.secrets(hide)
	for _, s := range d.secrets {
		hide(s)
	}
	return redactWords(d.cfg.Redact, words)
}

// redactWords takes a panic of the redactor for a refusal to keep the words.
func redactWords(redact func(string) string, words string) (out string) {
	defer func() {
		if recover() != nil {
			out = ""
		}
	}()
	return redact(words)
}

// maxWarnings bounds how many different warnings are remembered as said.
const maxWarnings = 64

// warn says a receiver's warning once.
func (d *Deliverer) warn(words string) {
	words = d.safeWords(words)
	d.mu.Lock()
	said := d.warnings[words] || len(d.warnings) >= maxWarnings
	if !said {
		d.warnings[words] = true
	}
	d.mu.Unlock()
	if !said {
		d.cfg.Logger.Warn("receiver accepted records with a warning", "receiver_words", words)
	}
}

// ErrUnreachable is wrapped by the errors of [Check].
var ErrUnreachable = errors.New("receiver does not take logs")

// Check sends one empty request, as a check of the configuration before the
// start. A receiver that refuses it as empty (400, 422) is there.
func Check(ctx context.Context, cfg Config) error {
	cfg.Workers = 1
	d, err := New(nil, cfg)
	if err != nil {
		return err
	}
	defer d.closeIdle()
	w, err := d.newWorker(ctx)
	if err != nil {
		return err
	}
	v := w.transport.send(ctx, http.Header{})
	switch v.outcome {
	case acked, refusedAll:
		return nil
	case stopped:
		return fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	}
	return fmt.Errorf("%w: %s", ErrUnreachable, strings.TrimSuffix(v.reason, keptAndTried))
}
