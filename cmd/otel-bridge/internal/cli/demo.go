package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/sidecar"
	"github.com/otel-bridge/otel-bridge/examples"
	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func (a *app) demo() *cobra.Command {
	return a.lasting(&cobra.Command{
		Use:   "demo",
		Short: "Show the whole pipeline on bundled sessions",
		Long: `Carry the bundled example sessions through the whole pipeline in a temporary directory, to a receiver of its own on
loopback. Delivery is killed half-way, in the middle of a request, and started again. What was read, elided, withheld,
redacted and received is told, and one record before and after. The exit code is 0 only if the sums agree.`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error {
		dir, err := os.MkdirTemp("", "otel-bridge-demo-")
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		d := &demonstration{app: a, dir: dir}
		err = d.run(ctx)
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		return nil
	})
}

// demoRecord is the one that is shown before and after.
const (
	demoSession = "lab-secrets"
	demoType    = "user/message"
)

// demonstration is one run of the demo.
type demonstration struct {
	app *app
	dir string
	cfg *config.Config
	rcv *receiver.Server

	mu  sync.Mutex
	sum demoSummary
}

// demoSummary is what the demo tells.
type demoSummary struct {
	Sessions   int   `json:"sessions"`
	Read       int64 `json:"read"`
	Exported   int64 `json:"exported"`
	Withheld   int64 `json:"withheld"`
	Elided     int64 `json:"elided"`
	Inherited  int64 `json:"inherited"`
	OutOfScope int64 `json:"out_of_scope"`
	Attempts   int64 `json:"attempts"`
	// Redacted counts by rule.
	Redacted map[string]int64 `json:"redacted"`
	// BeforeKill and AfterRestart count records that the receiver took.
	BeforeKill   int64 `json:"received_before_kill"`
	AfterRestart int64 `json:"received_after_restart"`
	// Received counts different records of events and attempts, Ops those in which
	// the bridge speaks of itself and attests what it delivered, Repeated all that
	// came twice.
	Received int64           `json:"received"`
	Ops      int64           `json:"ops"`
	Repeated int64           `json:"repeated"`
	Left     int64           `json:"left"`
	Before   json.RawMessage `json:"before"`
	After    json.RawMessage `json:"after"`
	Agree    bool            `json:"agree"`
}

func (d *demonstration) run(ctx context.Context) error {
	root := filepath.Join(d.dir, "sessions")
	ledgers, err := d.unpack(root)
	if err != nil {
		return err
	}
	d.sum.Sessions = len(ledgers)
	d.sum.Redacted = map[string]int64{}

	// The receiver takes two requests and hangs at the third.
	d.rcv, err = receiver.Start(receiver.Options{
		Script: []receiver.Behavior{{Kind: receiver.OK}, {Kind: receiver.OK}}, Behavior: receiver.Behavior{Kind: receiver.Hang}, Keep: 1000,
	})
	if err != nil {
		return err
	}
	defer d.rcv.Close()
	if d.cfg, err = d.config(root); err != nil {
		return err
	}
	if err := d.untilKilled(ctx, ledgers); err != nil {
		return err
	}
	d.sum.BeforeKill = d.rcv.Totals().Kept
	d.rcv.SetBehavior(receiver.Behavior{Kind: receiver.OK})
	if err := d.toTheEnd(ctx, ledgers); err != nil {
		return err
	}
	d.sum.AfterRestart = d.rcv.Totals().Kept - d.sum.BeforeKill
	d.count()
	if err := d.tell(); err != nil {
		return err
	}
	if !d.sum.Agree {
		return errors.New("the sums do not agree")
	}
	return nil
}

// unpack writes the bundled sessions as DSH lays them out.
func (d *demonstration) unpack(root string) ([]sidecar.Verified, error) {
	files, err := fs.Glob(examples.Sessions, "sessions/*.jsonl")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := examples.Sessions.ReadFile(name)
		if err != nil {
			return nil, err
		}
		line, _, _ := strings.Cut(string(text), "\n")
		h, dialect, err := session.ParseHeader([]byte(line))
		if err != nil {
			return nil, err
		}
		n := jsonl.Name{Generation: dialect.Version()}
		path := filepath.Join(root, jsonl.ProjectDir(h.Cwd), jsonl.SessionDir(h.ID), n.String())
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		if h.ID == demoSession {
			if d.sum.Before, err = firstOf(path, demoType); err != nil {
				return nil, err
			}
		}
	}
	ledgers, err := jsonl.DiscoverRoot(root)
	if err != nil {
		return nil, err
	}
	all := make([]sidecar.Verified, len(ledgers))
	for i, l := range ledgers {
		all[i].Ledger = l
	}
	return all, nil
}

// firstOf returns the payload of a ledger's first event of a type.
func firstOf(path, typ string) (json.RawMessage, error) {
	r, err := jsonl.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for r.Next() {
		if ev := r.Event(); ev.Type == typ {
			return slices.Clone(ev.Data), nil
		}
	}
	return nil, r.Err()
}

// config is the defaults, with small requests so that there are several. The
// environment has no say.
func (d *demonstration) config(root string) (*config.Config, error) {
	from := func(key, value string) config.Override { return config.Override{Key: key, Value: value, From: "demo"} }
	nothing := func(string) (string, bool) { return "", false }
	cfg, err := config.Load(config.Options{LookupEnv: nothing, Overrides: []config.Override{
		from("mode", "FULL"),
		from("outbox.dir", filepath.Join(d.dir, "data")),
		from("exporter.endpoint", d.rcv.URL()),
		from("exporter.max_batch.records", "40"),
		from("exporter.workers", "1"),
	}})
	if err != nil {
		return nil, err
	}
	cfg.Sources = []config.Source{{DSH: config.DSHSource{Path: root, StartAt: "beginning"}}}
	return cfg, nil
}

func (d *demonstration) open() (*sidecar.Pipeline, error) {
	return sidecar.OpenPipeline(d.cfg, sidecar.PipelineOptions{
		Log: slog.New(slog.DiscardHandler), Instance: "otel-bridge demo", Finished: true,
		Tap: func(r *telemetry.Record) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, c := range r.Redactions {
				d.sum.Redacted[c.Rule] += c.Count
			}
		},
	})
}

// untilKilled captures everything and delivers until a request hangs; there it
// is cut off.
func (d *demonstration) untilKilled(ctx context.Context, ledgers []sidecar.Verified) error {
	p, err := d.open()
	if err != nil {
		return err
	}
	if refused := p.CaptureFiles(ctx, ledgers); len(refused) > 0 {
		return errors.Join(fmt.Errorf("%s is refused: %w", refused[0].Path, refused[0].Err), p.Close())
	}
	if err := p.Ran(outbox.Stats{}); err != nil {
		return errors.Join(err, p.Close())
	}
	delivering, kill := context.WithCancel(ctx)
	defer kill()
	ended := make(chan error, 1)
	go func() { ended <- p.Deliverer.Run(delivering) }()
	err = d.awaitHanging(ctx)
	kill()
	return errors.Join(err, <-ended, p.Close())
}

// awaitHanging waits for a request that the receiver does not answer.
func (d *demonstration) awaitHanging(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for d.rcv.Totals().Requests < 3 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the receiver was not reached: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// toTheEnd starts again on the same data directory.
func (d *demonstration) toTheEnd(ctx context.Context, ledgers []sidecar.Verified) error {
	p, err := d.open()
	if err != nil {
		return err
	}
	p.CaptureFiles(ctx, ledgers) // everything has been captured: nothing comes twice
	draining, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = p.Deliverer.Drain(draining)
	e, s := p.Capture.Outcomes(), &d.sum
	s.Read, s.Exported, s.Withheld, s.Elided = e.Read, e.Exported, e.Withheld, e.Elided
	s.Inherited, s.OutOfScope, s.Attempts = e.Inherited, e.OutOfScope, e.Attempts
	s.Left = p.Outbox.Stats().Pending
	return errors.Join(err, p.Close())
}

// count looks at what the receiver has.
func (d *demonstration) count() {
	s := &d.sum
	uids := map[string]int{}
	ledger := map[string]bool{}
	for _, r := range d.rcv.Records() {
		attrs := map[string]string{}
		for _, kv := range r.Log.GetAttributes() {
			attrs[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
		uid := attrs[telemetry.KeyRecordUID]
		if uids[uid]++; uids[uid] > 1 {
			s.Repeated++
			continue
		}
		switch op := attrs[telemetry.KeyOp]; {
		case attrs[telemetry.KeyEventType] != "":
			ledger[uid] = true
		case op != telemetry.OpAttempt:
			s.Ops++
		}
		if s.After == nil && attrs[telemetry.KeySessionID] == demoSession && attrs[telemetry.KeyEventType] == demoType {
			if raw, err := json.Marshal(receiver.Plain(r.Log.GetBody())); err == nil {
				s.After = raw
			}
		}
	}
	s.Received = int64(len(uids)) - s.Ops
	s.Agree = s.Read == s.Exported+s.Withheld+s.Elided+s.Inherited+s.OutOfScope &&
		int64(len(ledger)) == s.Exported+s.Withheld &&
		s.Received == s.Exported+s.Withheld+s.Attempts &&
		s.BeforeKill > 0 && s.AfterRestart > 0 &&
		s.Received+s.Ops+s.Repeated == s.BeforeKill+s.AfterRestart &&
		s.Left == 0 && s.Withheld == 0 && s.After != nil
}

func (d *demonstration) tell() error {
	s := d.sum
	if d.app.output == "json" {
		return json.NewEncoder(d.app.stdout).Encode(s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `%d sessions, %d events read
  %5d exported
  %5d elided      (stream fragments; their text is in the whole message)
  %5d inherited   (a fork's copy of its parent's events)
  %5d withheld
`, s.Sessions, s.Read, s.Exported, s.Elided, s.Inherited, s.Withheld)
	if s.Attempts > 0 {
		fmt.Fprintf(&b, "and %d attempts that never became a message, as records of their own\n", s.Attempts)
	}
	b.WriteString("\nredacted, by rule\n")
	for _, rule := range slices.Sorted(maps.Keys(s.Redacted)) {
		fmt.Fprintf(&b, "  %5d %s\n", s.Redacted[rule], rule)
	}
	fmt.Fprintf(&b, `
received
  %5d records before delivery was killed in the middle of a request
  %5d records after it was started again
  %5d different records of events, %d ops records, %d twice, %d left behind

%s of %s, before
%s
and after
%s

`, s.BeforeKill, s.AfterRestart, s.Received, s.Ops, s.Repeated, s.Left, demoType, demoSession, textOf(s.Before), textOf(s.After))
	if s.Agree {
		b.WriteString("The sums agree: everything that was read is accounted for, and everything exported was received.\n")
	}
	_, err := d.app.stdout.Write([]byte(b.String()))
	return err
}

// textOf is the text of a message, indented.
func textOf(body json.RawMessage) string {
	var msg struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	var b strings.Builder
	if json.Unmarshal(body, &msg) != nil || len(msg.Content) == 0 {
		indent(&b, string(body))
	}
	for _, c := range msg.Content {
		indent(&b, c.Text)
	}
	return strings.TrimRight(b.String(), "\n")
}
