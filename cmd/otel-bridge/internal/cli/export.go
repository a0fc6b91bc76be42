package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/sidecar"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
)

func (a *app) export() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "export [--config F] [--mode M] [--endpoint URL] [--data-dir D] PATH...",
		Short: "Send session files once",
		Long: `Send session files, or those in directories, from the beginning or from where the data directory says that they
were left. Each ledger is checked whole before its first record; a refused one sends nothing, the others go on (exit
code 3). Then what the data directory holds is delivered, for at most --timeout; what is left then is kept (75 when the
receiver was not available).`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := a.configFile(c).pipeline()
	c.Flags().DurationVar(&timeout, "timeout", 60*time.Second, "for delivery")
	return a.lasting(c, func(ctx context.Context, args []string) (err error) {
		a.limitMemory()
		started := startQuietly()
		cfg, err := flags.load(config.Options{})
		started()
		if err != nil {
			return err
		}
		if cfg.Mode == telemetry.Disabled {
			return usagef("export: the mode is DISABLED, so nothing may leave; say --mode FULL or --mode FEEDBACK_ONLY")
		}
		if timeout <= 0 {
			return usagef("export: --timeout must be more than zero")
		}
		log := a.logger(cfg)
		a.warn(cfg)
		paths, stdin, err := a.spool(args)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stdin.remove()) }()
		ledgers, problems := discover(paths)
		x := exporting{app: a, cfg: cfg, log: log, timeout: timeout, name: stdin.name}
		for _, p := range problems {
			x.say("%s: %s", cmp.Or(p.File, string(p.Code)), p.Message)
			if p.Refused {
				x.sum.Refused++
			}
		}
		if len(ledgers) == 0 {
			return errors.New("export: there is no session file in what was named")
		}
		if err := x.run(ctx, ledgers); err != nil {
			var e *exit
			if errors.As(err, &e) {
				return err
			}
			return fmt.Errorf("export: %w", err)
		}
		return nil
	})
}

// exporting is one run of export.
type exporting struct {
	app     *app
	cfg     *config.Config
	log     *slog.Logger
	timeout time.Duration
	name    func(path string) string // for messages
	sum     exportSummary
}

// exportSummary is what export tells at its end.
type exportSummary struct {
	Ledgers     int   `json:"ledgers"`
	Refused     int   `json:"refused"`
	TornTails   int   `json:"torn_tails"`
	Read        int64 `json:"read"`
	Exported    int64 `json:"exported"`
	Withheld    int64 `json:"withheld"`
	Elided      int64 `json:"elided"`
	Inherited   int64 `json:"inherited"`
	OutOfScope  int64 `json:"out_of_scope"`
	Attempts    int64 `json:"attempts"`
	Delivered   int64 `json:"delivered"`
	Ops         int64 `json:"ops_delivered"`
	Quarantined int64 `json:"quarantined"`
	Held        int64 `json:"held"`
	Left        int64 `json:"left"`
}

func (x *exporting) run(ctx context.Context, ledgers []jsonl.Ledger) error {
	verifying, giveUp := context.WithCancel(ctx)
	defer giveUp()
	verified := make(chan []checked, 1)
	go func() { verified <- x.verify(verifying, ledgers) }()
	// Opening waits for the disk; it sends nothing.
	p, err := sidecar.OpenPipeline(x.cfg, sidecar.PipelineOptions{Log: x.log, Instance: "otel-bridge export", Finished: true})
	if err != nil {
		giveUp()
		<-verified
		return sidecar.Explain(err)
	}
	err = x.carry(ctx, p, x.good(ledgers, <-verified))
	if cerr := p.Close(); err == nil {
		err = cerr
	}
	return err
}

// verifyWorkers is how many ledgers are verified at the same time. Each may hold
// a line of the longest length.
const verifyWorkers = 4

// checked is a ledger that was read, and why it cannot be understood.
type checked struct {
	sidecar.Verified
	err  error
	done bool // false where ctx has ended before
}

// verify reads every ledger whole.
func (x *exporting) verify(ctx context.Context, ledgers []jsonl.Ledger) []checked {
	all := make([]checked, len(ledgers))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(verifyWorkers, len(ledgers)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(ledgers) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				all[i].Verified, all[i].err = sidecar.Verify(x.cfg, ledgers[i])
				all[i].done = true
			}
		})
	}
	wg.Wait()
	return all
}

// good leaves out ledgers that cannot be understood, and says why.
func (x *exporting) good(ledgers []jsonl.Ledger, all []checked) []sidecar.Verified {
	var good []sidecar.Verified
	for i, v := range all {
		switch {
		case !v.done:
			continue
		case v.err != nil:
			x.refuse(ledgers[i].Path, v.err)
			continue
		case v.Tail.Torn():
			x.sum.TornTails++
			x.say("%s: %d bytes at its end are a write that was cut off; what is whole before them is taken", x.name(v.Ledger.Path), v.Tail.Bytes)
		}
		good = append(good, v.Verified)
	}
	x.sum.Ledgers = len(ledgers)
	return good
}

func (x *exporting) refuse(path string, err error) {
	x.sum.Refused++
	f := refusal(path, err)
	where := x.name(f.File)
	if f.Row > 0 {
		where = fmt.Sprintf("%s: row %d", where, f.Row)
	}
	if f.Seq != nil {
		where = fmt.Sprintf("%s: seq %d", where, *f.Seq)
	}
	x.say("%s: refused, nothing of it is sent: %s: %s", where, f.Code, x.name(f.Message))
}

// say tells something that names of files and event types may stand in.
func (x *exporting) say(format string, args ...any) {
	fmt.Fprintf(x.app.stderr, "export: %s\n", safe(x.cfg, fmt.Sprintf(format, args...)))
}

// carry captures and delivers at the same time, and waits for the rest.
func (x *exporting) carry(ctx context.Context, p *sidecar.Pipeline, ledgers []sidecar.Verified) error {
	before := p.Capture.Outcomes()
	statsBefore := p.Outbox.Stats()

	running, stop := context.WithCancel(ctx)
	delivered := make(chan error, 1)
	go func() { delivered <- p.Deliverer.Run(running) }()

	capturing, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		x.giveUpWhenStuck(capturing, cancel, p)
	}()
	x.capture(capturing, p, ledgers)
	stuck := capturing.Err() != nil && ctx.Err() == nil
	cancel()
	<-watched
	if err := p.Ran(statsBefore); err != nil {
		stop()
		return errors.Join(err, <-delivered)
	}

	draining, cancelDrain := context.WithTimeout(ctx, x.timeout)
	var drainErr error
	if !stuck {
		drainErr = p.Deliverer.Drain(draining)
		// What is damaged on disk shows when it is read to be sent.
		for tries := 0; tries < 3 && drainErr == nil && p.Outbox.Stats().Damaged > 0; tries++ {
			x.capture(draining, p, ledgers)
			drainErr = p.Deliverer.Drain(draining)
		}
	}
	cancelDrain()
	stop()
	// With nothing to capture Drain may have begun before Run, which it then was.
	if err := <-delivered; err != nil && !errors.Is(err, otlp.ErrRunning) {
		return err
	}
	var left *otlp.UndeliveredError
	if drainErr != nil && !errors.As(drainErr, &left) {
		return drainErr
	}

	after := p.Capture.Outcomes()
	stats := p.Outbox.Stats()
	s := &x.sum
	s.Read, s.Exported, s.Withheld = after.Read-before.Read, after.Exported-before.Exported, after.Withheld-before.Withheld
	s.Elided, s.Inherited, s.OutOfScope = after.Elided-before.Elided, after.Inherited-before.Inherited, after.OutOfScope-before.OutOfScope
	s.Attempts = after.Attempts - before.Attempts
	s.Delivered = stats.Acked - statsBefore.Acked - p.Sealer.Sealed() - p.OpsDelivered()
	s.Ops = p.OpsDelivered()
	s.Quarantined, s.Held, s.Left = stats.Quarantined, stats.Held, stats.Pending
	if err := x.tell(); err != nil {
		return err
	}
	return x.verdict(ctx, p, stuck)
}

// capture takes what the ledgers have, and again what the data directory lost of it.
func (x *exporting) capture(ctx context.Context, p *sidecar.Pipeline, ledgers []sidecar.Verified) {
	for _, round := range sidecar.Rounds(ledgers) {
		for _, r := range p.CaptureFiles(ctx, round) {
			x.refuse(r.Path, r.Err)
		}
	}
}

// giveUpWhenStuck ends capture when the outbox has been full for the whole
// time-out while nothing was delivered: what is captured is kept.
func (x *exporting) giveUpWhenStuck(ctx context.Context, giveUp func(), p *sidecar.Pipeline) {
	tick := time.NewTicker(min(x.timeout, time.Second))
	defer tick.Stop()
	acked, since := int64(-1), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s := p.Outbox.Stats()
		if !s.Full || s.Acked != acked {
			acked, since = s.Acked, time.Now()
		}
		if time.Since(since) > x.timeout {
			giveUp()
			return
		}
	}
}

func (x *exporting) tell() error {
	if x.app.output == "json" {
		return json.NewEncoder(x.app.stdout).Encode(x.sum)
	}
	s := x.sum
	_, err := fmt.Fprintf(x.app.stdout, `%d ledgers, %d refused
%d events read: %d exported, %d withheld, %d elided, %d inherited, %d out of scope
%d records delivered and %d ops records, %d in quarantine, %d held, %d left
`, s.Ledgers, s.Refused, s.Read, s.Exported, s.Withheld, s.Elided, s.Inherited, s.OutOfScope, s.Delivered, s.Ops, s.Quarantined, s.Held, s.Left)
	return err
}

// verdict is the exit code and what an operator has to know.
func (x *exporting) verdict(ctx context.Context, p *sidecar.Pipeline, stuck bool) error {
	s := x.sum
	if s.Left > 0 || stuck {
		state := p.Deliverer.State()
		why := state.Reason
		if why == "" {
			why = "the time was not enough"
		}
		if ctx.Err() != nil {
			why = "stopped"
		}
		fmt.Fprintf(x.app.stderr, "export: %d records are kept in %s: %s; the next export or run on this data directory sends them\n", s.Left, x.cfg.Outbox.Dir, why)
		if state.Status == otlp.OK && !stuck {
			return &exit{exitIncomplete, nil}
		}
		return &exit{exitUnavailable, nil}
	}
	if s.Refused > 0 || s.Withheld > 0 || s.Quarantined > 0 || s.Held > 0 {
		return &exit{exitIncomplete, nil}
	}
	return nil
}
