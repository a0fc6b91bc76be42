package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/admin"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
)

// RunOptions are what does not come from the configuration.
type RunOptions struct {
	// Logger makes the log that a configuration asks for.
	Logger func(*config.Config) *slog.Logger
	// Load reads the configuration again.
	Load func() (*config.Config, error)
	// Reload asks for that from outside (SIGHUP).
	Reload <-chan os.Signal
	// DryRun, where it is not nil, gets the records; nothing is kept or sent.
	DryRun io.Writer
}

// Run is the sidecar: it lives from generation to generation, each with one
// configuration, until ctx ends. What is done stands in the data directory, so
// going from one generation to the next is a restart without a new process.
//
// A configuration that cannot be started with (its data directory cannot be
// opened, its address is taken) is given up for the last good one.
func Run(ctx context.Context, cfg *config.Config, o RunOptions) error {
	var good *config.Config // what ran before cfg
	counted := newTally()
	for {
		g := &generation{cfg: cfg, opts: o, log: o.Logger(cfg), reload: make(chan *config.Config, 1), tap: newTap(), tally: counted}
		next, err := g.run(ctx)
		if g.p != nil {
			counted.ended(g.p.Deliverer)
		}
		var start *startError
		switch {
		case errors.As(err, &start) && good != nil:
			g.log.Error("the configuration was not taken; the last one goes on", "error", start.err)
			cfg, good = good, nil
		case err != nil || next == nil:
			return err
		default:
			cfg, good = next, cfg
			g.log.Info("the configuration was read again and holds from now on")
		}
	}
}

// startError says why a generation could not begin. It has done nothing then.
type startError struct{ err error }

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// generation is the sidecar under one configuration.
type generation struct {
	cfg    *config.Config
	opts   RunOptions
	log    *slog.Logger
	reload chan *config.Config
	tap    *tap
	tally  *tally
	p      *Pipeline // nil under DISABLED
	dir    os.FileInfo
}

// committed is told of every record.
func (g *generation) committed(r *telemetry.Record) {
	g.tally.redacted(r)
	g.tap.publish(r)
}

// moved says that the data directory is not where it was opened. What is open goes
// on being written to, so it may come back; a new process would not find it.
func (g *generation) moved() error {
	if now, err := os.Stat(g.cfg.Outbox.Dir); err == nil && os.SameFile(now, g.dir) {
		return nil
	}
	return errors.New("the data directory was moved or removed while it is in use: put it back")
}

// guard says in the log when the data directory is moved, and when it is back.
func (g *generation) guard(was error) error {
	now := g.moved()
	switch {
	case now != nil && was == nil:
		g.log.Error(now.Error(), "data", g.cfg.Outbox.Dir)
	case now == nil && was != nil:
		g.log.Info("the data directory is back", "data", g.cfg.Outbox.Dir)
	}
	return now
}

// keyFile says why the key of the action "token", which was read at the start, could
// not be read again: the next start or reload would fail.
func (g *generation) keyFile() string {
	if g.cfg.Redact.KeyFile == "" {
		return ""
	}
	if err := config.CheckKeyFile(g.cfg.Redact.KeyFile); err != nil {
		return err.Error()
	}
	return ""
}

// keyFileLost is what is said of that.
const keyFileLost = "redact.key_file cannot be used any more; the key that was read before goes on until the next start or reload, which would fail"

// guardKey says in the log what is wrong with the key's file, and when nothing is again.
func (g *generation) guardKey(was string) string {
	now := g.keyFile()
	switch {
	case now != "" && now != was:
		g.log.Warn(keyFileLost, "why", now)
	case now == "" && was != "":
		g.log.Info("redact.key_file can be used again")
	}
	return now
}

// guardEvery is how often the data directory and the key's file are looked for.
const guardEvery = 2 * time.Second

// run lasts until ctx ends or another configuration is there, which it returns.
func (g *generation) run(ctx context.Context) (next *config.Config, err error) {
	for _, w := range g.cfg.Warnings {
		g.log.Warn(w)
	}
	if g.opts.DryRun != nil && g.cfg.Mode != telemetry.Disabled {
		return nil, g.dryRun(ctx)
	}
	// The address comes first: what the data directory is told of stays told.
	health, err := g.bind()
	if err != nil {
		return nil, &startError{err}
	}
	closeDoors := func() error { return closeListener(health) }
	defer func() { err = errors.Join(err, closeDoors()) }()
	if g.cfg.Mode != telemetry.Disabled {
		g.p, err = OpenPipeline(g.cfg, PipelineOptions{Log: g.log, Instance: "otel-bridge run", Tap: g.committed})
		if err != nil {
			return nil, &startError{Explain(err)}
		}
		g.dir, err = os.Stat(g.cfg.Outbox.Dir)
		if err != nil {
			return nil, errors.Join(&startError{err}, g.p.Close())
		}
		defer func() { err = errors.Join(err, g.p.Close()) }()
	} else if g.opts.DryRun == nil {
		g.withdraw()
	}
	doors, err := g.openDoors(health)
	if err != nil {
		return nil, &startError{err}
	}
	closeDoors = func() error { return nil }
	defer func() { err = errors.Join(err, doors()) }()

	if g.p == nil {
		g.log.Info("the mode is DISABLED: nothing is read, kept or sent; waiting")
		return g.wait(ctx), nil
	}
	return g.work(ctx)
}

// wait returns another configuration, or nil when ctx has ended.
func (g *generation) wait(ctx context.Context) *config.Config {
	var tick <-chan time.Time
	if g.p != nil {
		t := time.NewTicker(guardEvery)
		defer t.Stop()
		tick = t.C
	}
	var (
		moved error
		key   string
	)
	for {
		select {
		case <-tick:
			moved, key = g.guard(moved), g.guardKey(key)
		case <-ctx.Done():
			return nil
		case next := <-g.reload:
			return next
		case <-g.opts.Reload:
			if err := g.Reload(ctx); err != nil {
				g.log.Error("the configuration was not taken; the last one goes on", "error", err)
			}
		}
	}
}

// Reload reads the configuration again. A bad one changes nothing.
func (g *generation) Reload(context.Context) error {
	cfg, err := g.opts.Load()
	if err != nil {
		return err
	}
	for {
		select {
		case g.reload <- cfg:
			return nil
		default:
		}
		select {
		case <-g.reload: // one that is older
		default:
		}
	}
}

// work captures and delivers until ctx ends or another configuration is there,
// then stops capture, delivers what it can in the time that shutdown has, and
// says what remains.
func (g *generation) work(ctx context.Context) (*config.Config, error) {
	p := g.p
	g.log.Info("started", "mode", g.cfg.Mode.String(), "data", g.cfg.Outbox.Dir, "pending", p.Outbox.Stats().Pending)

	if err := p.Started(); err != nil {
		return nil, err
	}
	delivering, stopDelivery := context.WithCancel(context.WithoutCancel(ctx))
	defer stopDelivery()
	delivered := make(chan error, 1)
	go func() { delivered <- p.Deliverer.Run(delivering) }()

	capturing, stopCapture := context.WithCancelCause(ctx)
	defer stopCapture(nil)
	captured := make(chan struct{})
	go func() {
		defer close(captured)
		g.p.watch(capturing)
	}()

	stopped := make(chan *config.Config, 1)
	go func() { stopped <- g.wait(capturing) }()
	var next *config.Config
	select {
	case next = <-stopped:
	case err := <-delivered:
		// Delivery ends by itself only when the data directory fails.
		stopCapture(errNoLook)
		<-captured
		<-stopped
		return nil, fmt.Errorf("delivery has ended: %w", err)
	}
	stopping := time.Now()
	why := "stop"
	if next != nil {
		why = "reload"
		stopCapture(errNoLook) // what has come meanwhile is the next configuration's
	}
	<-captured
	if ctx.Err() != nil {
		next, why = nil, "stop" // told to end meanwhile: no other configuration begins
	}
	err := p.Stopped(why)
	err = errors.Join(err, g.flush(context.WithoutCancel(ctx), stopping, next != nil))
	stopDelivery()
	return next, errors.Join(err, <-delivered)
}

// errNoLook ends capture where it stands: ledgers are not looked at once more.
var errNoLook = errors.New("capture ends where it stands")

// flush delivers what is pending within the shutdown's deadline. A receiver
// that has to be mended first, or that is not to be asked before the deadline,
// is not waited for, and neither is any when only the configuration changes.
func (g *generation) flush(ctx context.Context, stopping time.Time, reloading bool) error {
	p := g.p
	deadline := stopping.Add(g.cfg.ShutdownTimeout - shutdownMargin(g.cfg.ShutdownTimeout))
	if far := p.Deliverer.State(); !reloading && far.Status != otlp.Holding && !far.Next.After(deadline) {
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		var left *otlp.UndeliveredError
		if err := p.Deliverer.Drain(ctx); err != nil && !errors.As(err, &left) {
			return err
		}
	}
	if reloading {
		return nil
	}
	s := p.Outbox.Stats()
	g.log.Info("stopped", "remaining", s.Pending, "held", s.Held, "quarantined", s.Quarantined)
	return nil
}

// shutdownMargin is what closing needs of the deadline.
func shutdownMargin(d time.Duration) time.Duration { return min(d/5, 2*time.Second) }

// bind takes the address of the health listener; nil where there is none.
func (g *generation) bind() (net.Listener, error) {
	if g.cfg.Admin.Listen == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", g.cfg.Admin.Listen)
	if err != nil {
		return nil, fmt.Errorf("health listener: %w; set admin.listen to another address, or to \"\" for none", err)
	}
	return ln, nil
}

func closeListener(ln net.Listener) error {
	if ln == nil {
		return nil
	}
	return ln.Close()
}

// openDoors opens health, where it has a listener, and control, and returns what
// closes them.
func (g *generation) openDoors(health net.Listener) (closeAll func() error, err error) {
	var doors []*admin.Server
	closeAll = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var err error
		g.tap.close()
		for _, d := range doors {
			if cerr := d.Close(ctx); cerr != nil && !errors.Is(cerr, context.DeadlineExceeded) {
				err = errors.Join(err, cerr)
			}
		}
		return err
	}
	if g.p != nil {
		d, err := admin.ListenControl(g.cfg.Outbox.Dir, admin.ControlHandler(g))
		if err != nil {
			return nil, fmt.Errorf("control socket: %w", err)
		}
		doors = append(doors, d)
	}
	if health != nil {
		doors = append(doors, admin.Serve(health, admin.Handler(g.health, g.metrics())))
		g.log.Info("health and metrics", "address", health.Addr().String())
	}
	return closeAll, nil
}

// health holds no content: states, counts and reasons in words.
func (g *generation) health() admin.Health {
	h := admin.Health{Mode: g.cfg.Mode.String(), Warnings: append([]string(nil), g.cfg.Warnings...)}
	if g.p == nil {
		return h
	}
	s := g.p.Outbox.Stats()
	if err := g.moved(); err != nil {
		h.Reasons = append(h.Reasons, err.Error())
	}
	if s.Full {
		h.Reasons = append(h.Reasons, "the data directory is full: intake has stopped until there is room")
	}
	if s.LastError != nil {
		h.Warnings = append(h.Warnings, "the data directory's housekeeping fails; see the log")
	}
	if s.Degraded {
		h.Warnings = append(h.Warnings, "something in the data directory was damaged, set aside or rebuilt")
	}
	state := g.p.Deliverer.State()
	if !state.Ready() {
		h.Warnings = append(h.Warnings, "receiver "+state.Status.String()+": "+state.Reason)
	}
	h.Warnings = append(h.Warnings, state.Warnings...)
	if why := g.keyFile(); why != "" {
		h.Warnings = append(h.Warnings, keyFileLost+": "+why)
	}
	_, held := g.p.keeper.counts()
	operator := g.p.keeper.waitForOperator()
	if n := held - operator; n > 0 {
		h.Warnings = append(h.Warnings, fmt.Sprintf("%d sessions are held: their ledgers are not understood", n))
	}
	if operator > 0 {
		h.Warnings = append(h.Warnings, fmt.Sprintf("%d sessions are held: an operator has held them, or has to look at them", operator))
	}
	return h
}
