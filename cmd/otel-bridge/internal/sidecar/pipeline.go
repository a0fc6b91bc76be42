package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/version"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Pipeline is outbox, capture and delivery on one data directory.
type Pipeline struct {
	Outbox    *outbox.Outbox
	Capture   *telemetry.Capture
	Deliverer *otlp.Deliverer

	cfg       *config.Config
	log       *slog.Logger
	redaction *telemetry.Redaction
	keeper    *keeper
}

// PipelineOptions are what does not come from the configuration.
type PipelineOptions struct {
	Log *slog.Logger
	// Instance names the command in the lock file.
	Instance string
	// Tap is told of every record that was committed; it must not keep it.
	Tap func(*telemetry.Record)
	// Finished reads ledgers as files that nobody writes to any more.
	Finished bool
}

// OpenPipeline opens the data directory, which it makes where there is none,
// and builds the pipeline. Nothing runs yet. It is refused under DISABLED.
func OpenPipeline(cfg *config.Config, o PipelineOptions) (*Pipeline, error) {
	if cfg.Mode == telemetry.Disabled {
		return nil, telemetry.ErrDisabled
	}
	// The receiver's settings are checked before anything is created.
	p := &Pipeline{cfg: cfg, log: o.Log}
	if _, err := otlp.New(nil, p.otlpConfig()); err != nil {
		return nil, err
	}
	ob, err := outbox.Open(cfg.Outbox.Dir, outbox.Options{
		MaxSize: int64(cfg.Outbox.MaxSize), Instance: o.Instance, Logger: o.Log,
	})
	if err != nil {
		return nil, err
	}
	p.Outbox = ob
	if err := p.build(o); err != nil {
		return nil, errors.Join(err, ob.Close())
	}
	return p, nil
}

func (p *Pipeline) build(o PipelineOptions) error {
	cfg := p.cfg
	in, err := telemetry.OpenInstallation(cfg.Outbox.Dir)
	if err != nil {
		return err
	}
	policy := telemetry.PolicyNone
	if !cfg.Redact.None {
		p.redaction = telemetry.NewRedaction(telemetry.NewEngine(cfg.Redact.Engine), in.Key)
		policy = p.redaction.Policy()
	}
	if err := p.consent(in, policy); err != nil {
		return err
	}
	p.keeper = newKeeper(p.log, func(path string, fromNow bool) puller {
		return &capturing{p.Capture.Session(p.source(path, o.Finished), telemetry.SessionOptions{FromNow: fromNow}), p}
	})
	scope := telemetry.ScopeLifetime
	if cfg.FeedbackScope == "session" {
		scope = telemetry.ScopeSession
	}
	p.Capture, err = telemetry.NewCapture(telemetry.Config{
		Outbox: p.Outbox, Mode: cfg.Mode, Installation: in,
		FeedbackScope: scope, CatchUp: cfg.CatchUp,
		Redaction: p.redaction, EventTypes: p.eventTypes(),
		Resource: resourceOf(cfg, in), Version: version.Get().Version,
		MaxRecordBytes: int(cfg.MaxRecordBytes), HoldOnDivergence: cfg.OnDivergence == "hold",
		Parent: func(id string) (telemetry.Source, bool) {
			path, ok := p.keeper.source(id)
			if !ok {
				return nil, false
			}
			return p.source(path, o.Finished), true
		},
		Tap: o.Tap,
	})
	if err != nil {
		return err
	}
	p.Deliverer, err = otlp.New(otlp.FromOutbox(p.Outbox), p.otlpConfig())
	return err
}

// consent holds what the last mode let out and this one does not, before the
// new mode is noted: a crash between the two leaves too much held, not too
// little.
func (p *Pipeline) consent(in *telemetry.Installation, policy string) error {
	if !p.cfg.Mode.Covers(in.Mode) {
		n, err := p.Outbox.Hold(func(i outbox.Info) bool { return i.State == outbox.Pending })
		if err != nil {
			return err
		}
		if n > 0 {
			p.log.Warn("consent is narrower than before: what was pending is held; see `outbox send` and `outbox discard`",
				"records", n, "before", in.Mode.String(), "now", p.cfg.Mode.String())
		}
	}
	last, lastPolicy, err := in.Start(p.cfg.Mode, policy)
	if err != nil {
		return err
	}
	if last != p.cfg.Mode && last != telemetry.Disabled {
		p.log.Info("the mode is another than at the last start", "before", last.String(), "now", p.cfg.Mode.String())
	}
	if lastPolicy != "" && lastPolicy != policy {
		p.log.Info("the redaction policy is another than at the last start: what is pending is redacted again before it is sent")
	}
	return nil
}

func (p *Pipeline) source(path string, finished bool) telemetry.Source {
	if finished {
		return telemetry.FinishedFile(path, p.eventTypes(), jsonl.WithMaxLine(int(p.cfg.MaxLineBytes)))
	}
	return telemetry.LiveFile(path, p.eventTypes(), jsonl.WithMaxLine(int(p.cfg.MaxLineBytes)))
}

func (p *Pipeline) eventTypes() []session.EventType { return eventTypes(p.cfg) }

func eventTypes(cfg *config.Config) []session.EventType {
	types := make([]session.EventType, len(cfg.Vocabulary))
	for i, t := range cfg.Vocabulary {
		types[i] = session.EventType{Name: t.Type, Surface: t.Surface}
	}
	return types
}

// resourceOf says who speaks. What the configuration says goes before.
func resourceOf(cfg *config.Config, in *telemetry.Installation) *telemetry.Resource {
	attrs := []attribute.KeyValue{
		attribute.String("service.name", "otel-bridge"),
		attribute.String("service.version", version.Get().Version),
		attribute.String("service.instance.id", in.ID),
	}
	if host, err := os.Hostname(); err == nil {
		attrs = append(attrs, attribute.String("host.name", host))
	}
	for k, v := range cfg.Resource {
		attrs = append(attrs, attribute.String(k, v))
	}
	return telemetry.NewResource("", attrs...)
}

func (p *Pipeline) otlpConfig() otlp.Config {
	c := OTLPConfig(p.cfg, p.log)
	c.Redact = func(words string) string {
		if p.cfg.Redact.Engine == nil {
			return words
		}
		out, rep, err := p.cfg.Redact.Engine.Text(nil, words)
		if err != nil || rep.Withhold != "" {
			return ""
		}
		return string(out)
	}
	c.Refresh = func(r *telemetry.Record) error {
		if again := p.redaction.Again(r); again != r {
			*r = *again
		}
		return nil
	}
	return c
}

// OTLPConfig is the exporter section for package otlp.
func OTLPConfig(cfg *config.Config, log *slog.Logger) otlp.Config {
	x := cfg.Exporter
	headers := make(map[string]string, len(x.Headers))
	for name, v := range x.Headers {
		headers[name] = v.Reveal()
	}
	return otlp.Config{
		Endpoint: x.Endpoint, Headers: headers, HeadersFile: x.HeadersFile,
		Compression: x.Compression, Body: x.Body, Timeout: x.Timeout,
		MaxBatchRecords: x.MaxBatch.Records, MaxBatchBytes: int(x.MaxBatch.Bytes), Workers: x.Workers,
		AllowPlaintext: x.AllowPlaintext,
		TLS:            otlp.TLS{CAFile: x.TLS.CAFile, CertFile: x.TLS.CertFile, KeyFile: x.TLS.KeyFile},
		Proxy:          http.ProxyFromEnvironment,
		UserAgent:      "otel-bridge/" + version.Get().Version,
		Logger:         log,
	}
}

// Close closes the data directory.
func (p *Pipeline) Close() error { return p.Outbox.Close() }

// capturing is a session whose records are captured again when the data
// directory has lost some of them to damage.
type capturing struct {
	*telemetry.Session
	p *Pipeline
}

// Pull captures, and makes good what was lost of this session.
func (c *capturing) Pull(ctx context.Context, limit int) (telemetry.Progress, error) {
	p, err := c.Session.Pull(ctx, limit)
	if err != nil || p.More || c.p.Outbox.Stats().Damaged == 0 {
		return p, err
	}
	var keys []telemetry.EventKey
	var lost []outbox.Damage
	for _, d := range c.p.Outbox.Damaged() {
		if k, ok := telemetry.ParseEventKey(d.Key); ok && k.Session == c.Key() {
			keys, lost = append(keys, k), append(lost, d)
		}
	}
	if len(keys) == 0 {
		return p, nil
	}
	missing, err := c.Recapture(ctx, keys)
	if err != nil {
		return p, err
	}
	if len(missing) > 0 {
		c.p.log.Error("damaged records cannot be captured again: the ledger does not have them any more", "records", len(missing))
	}
	if n := len(keys) - len(missing); n > 0 {
		c.p.log.Warn("damaged records were captured again from the ledger", "records", n)
	}
	return p, c.p.Outbox.Recovered(lost...)
}

// captureWorkers is how many ledgers are read at the same time.
const captureWorkers = 4

// Refusal is a ledger that sends nothing, and why.
type Refusal struct {
	Path string
	Err  error
}

// Verify reads a finished ledger whole and says whether it can be understood.
// The tail is what was not written to its end.
func Verify(cfg *config.Config, path string) (jsonl.Tail, error) {
	src := &tailSource{File: telemetry.FinishedFile(path, eventTypes(cfg), jsonl.WithMaxLine(int(cfg.MaxLineBytes)))}
	err := telemetry.Verify(src, eventTypes(cfg))
	return src.tail, err
}

// tailSource remembers the tail of the file that was read.
type tailSource struct {
	*telemetry.File
	tail jsonl.Tail
}

func (s *tailSource) Open() (telemetry.Ledger, error) {
	led, err := s.File.Open()
	if r, ok := led.(*jsonl.Reader); ok {
		return &tailLedger{r, &s.tail}, err
	}
	return led, err
}

type tailLedger struct {
	*jsonl.Reader
	tail *jsonl.Tail
}

func (l *tailLedger) Close() error {
	*l.tail = l.Tail()
	return l.Reader.Close()
}

// CaptureFiles captures finished ledgers that have been verified, parents
// first, and returns those that were refused all the same.
func (p *Pipeline) CaptureFiles(ctx context.Context, ledgers []jsonl.Ledger) []Refusal {
	refusals := make(chan Refusal, len(ledgers))
	p.keeper.pulled = func(path string, _ telemetry.Progress, err error) {
		if err != nil && ctx.Err() == nil {
			select {
			case refusals <- Refusal{path, err}:
			default: // each ledger is told of once
			}
		}
	}
	// Files are named one by one: none takes another's place.
	plain := make([]jsonl.Ledger, len(ledgers))
	for i, l := range ledgers {
		plain[i] = jsonl.Ledger{Path: filepath.Clean(l.Path)}
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		p.keeper.run(running, captureWorkers)
		close(done)
	}()
	p.keeper.offer(plain, false)
	p.keeper.settled(ctx)
	stop()
	<-done
	close(refusals)
	var out []Refusal
	for r := range refusals {
		out = append(out, r)
	}
	return out
}

// ErrLeft says that a time-out ended delivery before it was done.
var ErrLeft = errors.New("records are left in the data directory")

// Explain puts an operator's words around what opening a data directory says.
func Explain(err error) error {
	var locked *outbox.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%w; one data directory serves one process", err)
	}
	return err
}
