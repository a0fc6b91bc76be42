package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

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
	*capturer
	Outbox    *outbox.Outbox
	Deliverer *otlp.Deliverer
	// Sealer makes summaries of what was delivered.
	Sealer *telemetry.Sealer
	// Trail tells of the bridge itself and of its operator.
	Trail *telemetry.Trail

	source *sealing
	mender *telemetry.Mender
	untold atomic.Bool // that the bridge runs is still to be said
}

// OpsDelivered counts the ops records that were delivered since the pipeline was
// opened, but for attempts; Sealer counts entries that are never delivered.
func (p *Pipeline) OpsDelivered() int64 { return p.source.ops.Load() }

// PipelineOptions are what does not come from the configuration.
type PipelineOptions struct {
	Log *slog.Logger
	// Instance names the command in the lock file.
	Instance string
	// Tap is told of every record that was committed; it must not keep it.
	Tap func(*telemetry.Record)
	// Finished reads ledgers as files that nobody writes to any more.
	Finished bool

	attest bool // an outbox with a sealer stands behind the capture
}

// OpenPipeline opens the data directory, which it makes where there is none,
// and builds the pipeline. Nothing runs yet. It is refused under DISABLED.
func OpenPipeline(cfg *config.Config, o PipelineOptions) (*Pipeline, error) {
	if cfg.Mode == telemetry.Disabled {
		return nil, telemetry.ErrDisabled
	}
	// The receiver's settings are checked before anything is created.
	if _, err := otlp.New(nil, OTLPConfig(cfg, o.Log)); err != nil {
		return nil, err
	}
	ob, err := outbox.Open(cfg.Outbox.Dir, outbox.Options{
		MaxSize: int64(cfg.Outbox.MaxSize), Instance: o.Instance, Logger: o.Log,
	})
	if err != nil {
		return nil, err
	}
	p, err := newPipeline(cfg, ob, o)
	if err != nil {
		return nil, errors.Join(err, ob.Close())
	}
	return p, nil
}

func newPipeline(cfg *config.Config, ob *outbox.Outbox, o PipelineOptions) (*Pipeline, error) {
	in, err := telemetry.OpenInstallation(cfg.Outbox.Dir)
	if err != nil {
		return nil, err
	}
	p := &Pipeline{Outbox: ob}
	o.attest = true
	if cfg.Mode == telemetry.FeedbackOnly {
		o.Tap = p.tellFirst(o.Tap)
	}
	p.capturer, err = newCapturer(cfg, in, ob, o)
	if err != nil {
		return nil, err
	}
	p.mender, p.damaged = telemetry.NewMender(ob), p.recapture
	p.keeper.lost = func() int64 { return ob.Stats().Damaged }
	p.Sealer, p.Trail = p.Capture.NewSealer(ob), p.Capture.Trail()
	if err := p.consent(in); err != nil {
		return nil, err
	}
	c := OTLPConfig(cfg, o.Log)
	c.Redact = func(words string) string { return redactWords(cfg, words) }
	c.Refresh = func(r *telemetry.Record) error {
		if again := p.redaction.Again(r); again != r {
			*r = *again
		}
		return nil
	}
	p.source = &sealing{outbox: ob, sealer: p.Sealer, log: o.Log}
	p.Deliverer, err = otlp.New(p.source, c)
	return p, err
}

// redactWords makes a receiver's words, which may quote what was sent, safe.
func redactWords(cfg *config.Config, words string) string {
	if cfg.Redact.Engine == nil {
		return words
	}
	out, rep, err := cfg.Redact.Engine.Text(nil, words)
	if err != nil || rep.Withhold != "" {
		return ""
	}
	return string(out)
}

// consent holds what the last mode let out and this one does not, before the
// new mode is noted: a crash between the two leaves too much held, not too
// little.
func (p *Pipeline) consent(in *telemetry.Installation) error {
	policy := p.Capture.Policy()
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
	// Told before it is noted: a crash between the two tells it twice, not never.
	if last, lastPolicy := in.Mode, in.Policy; lastPolicy != "" && (last != p.cfg.Mode || lastPolicy != policy) {
		if err := p.tell(func(ctx context.Context) error { return p.Trail.Changed(ctx, last, lastPolicy) }); err != nil {
			return err
		}
	}
	last, lastPolicy, err := in.Start(p.cfg.Mode, policy)
	if err != nil && last != p.cfg.Mode {
		return err
	}
	if err != nil {
		// Only that the policy has changed is told by this note, and what waits on a
		// full disk has to go out for there to be room.
		p.log.Warn("the redaction policy could not be noted; that it has changed is told again at the next start", "error", err)
	}
	if last != p.cfg.Mode && last != telemetry.Disabled {
		p.log.Info("the mode is another than at the last start", "before", last.String(), "now", p.cfg.Mode.String())
	}
	if lastPolicy != "" && lastPolicy != policy {
		p.log.Info("the redaction policy is another than at the last start: what is pending is redacted again before it is sent")
	}
	return nil
}

// OpenTrail returns the trail of a data directory on which nothing runs, nil where
// no capture has ever run on it: there is nobody then who has records.
func OpenTrail(cfg *config.Config, o *outbox.Outbox) (*telemetry.Trail, error) {
	if _, err := os.Stat(filepath.Join(cfg.Outbox.Dir, telemetry.InstallationFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	in, err := telemetry.OpenInstallation(cfg.Outbox.Dir)
	if err != nil {
		return nil, err
	}
	return telemetry.NewTrail(o, in, resourceOf(cfg, in), version.Get().Version), nil
}

// trailTime is how long a record of the bridge itself waits for room. It does not
// keep the bridge from what it is for.
const trailTime = 2 * time.Second

// tell commits a record of the bridge itself; where there is no room for it that
// is in the log.
func (p *Pipeline) tell(emit func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), trailTime)
	defer cancel()
	err := emit(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		p.log.Warn("the data directory has no room for a record of the bridge itself; it is not sent")
		return nil
	}
	return err
}

// Started says that the bridge runs. Under FEEDBACK_ONLY nothing at all leaves
// before feedback: it is said behind the first records then.
func (p *Pipeline) Started() error {
	if p.cfg.Mode == telemetry.FeedbackOnly {
		p.untold.Store(true)
		return nil
	}
	return p.tell(p.Trail.Started)
}

// tellFirst makes a tap that says that the bridge runs when the first record of a
// ledger was committed.
func (p *Pipeline) tellFirst(tap func(*telemetry.Record)) func(*telemetry.Record) {
	return func(r *telemetry.Record) {
		if tap != nil {
			tap(r)
		}
		if r.Channel == telemetry.ChannelLedger && p.untold.CompareAndSwap(true, false) {
			if err := p.tell(p.Trail.Started); err != nil {
				p.log.Warn("the start of the bridge could not be told", "error", err)
			}
		}
	}
}

// Ran says so of a bridge that has captured once, if it has captured anything:
// what it sent can be verified then.
func (p *Pipeline) Ran(before outbox.Stats) error {
	if p.Outbox.Stats().Committed == before.Committed {
		return nil
	}
	if err := p.tell(p.Trail.Started); err != nil {
		return err
	}
	return p.Stopped("done")
}

// Stopped says that the bridge ends, and why, if it was said that it runs.
func (p *Pipeline) Stopped(why string) error {
	if p.untold.Load() {
		return nil
	}
	return p.tell(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, partOfStop(p.cfg))
		defer cancel()
		return p.Trail.Stopped(ctx, why)
	})
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
		StopGrace:      shutdownMargin(cfg.ShutdownTimeout) / 2,
		UserAgent:      "otel-bridge/" + version.Get().Version,
		Logger:         log,
	}
}

// Close closes the data directory.
func (p *Pipeline) Close() error { return p.Outbox.Close() }

// recapture makes good what the data directory has lost of a session. It reports that
// the session is to be pulled again.
func (p *Pipeline) recapture(ctx context.Context, s *telemetry.Session) (again bool, err error) {
	done, err := p.mender.Mend(ctx, s)
	if done.Gone > 0 {
		p.log.Error("damaged records are lost: the ledger does not have them any more; they stay counted as damaged", "records", done.Gone)
	}
	if done.Again > 0 {
		p.log.Warn("damaged records were captured again from the ledger", "records", done.Again)
	}
	if done.Back {
		p.log.Warn("records of the session are lost and nobody knows which: it goes out again from there, what had arrived comes twice under the same uid", "seq", done.Seq)
	}
	return done.Back, err
}

// Refusal is a ledger that sends nothing, and why.
type Refusal struct {
	Path string
	Err  error
}

// Verified is a finished ledger that was read whole.
type Verified struct {
	Ledger jsonl.Ledger
	// Tail is what was not written to its end.
	Tail jsonl.Tail

	session sessionName
	lineage lineage
	events  int64
}

type sessionName struct {
	id        string
	createdAt int64
	version   int
}

// Verify reads a finished ledger whole and says whether it can be understood.
func Verify(cfg *config.Config, ledger jsonl.Ledger) (Verified, error) {
	path := ledger.Path
	src := &tailSource{File: telemetry.FinishedFile(path, eventTypes(cfg), jsonl.WithMaxLine(int(cfg.MaxLineBytes)))}
	err := telemetry.Verify(src, eventTypes(cfg))
	var inv *session.InvariantError
	if errors.As(err, &inv) && inv.Row == 0 && inv.Seq == src.lastSeq {
		inv.Row = src.lastRow
	}
	return Verified{ledger, src.tail, src.session, src.lineage, src.events}, err
}

// Rounds puts ledgers into rounds to be captured one after the other. Of several
// files of one session the one with the fewest events comes first: what it has in
// common with the next one is then not captured twice.
func Rounds(ledgers []Verified) [][]Verified {
	files := map[sessionName][]Verified{}
	most := 0
	for _, l := range ledgers {
		files[l.session] = append(files[l.session], l)
		most = max(most, len(files[l.session]))
	}
	for _, same := range files {
		slices.SortStableFunc(same, func(a, b Verified) int { return cmp.Compare(a.events, b.events) })
	}
	// The last round has the longest file of each, so that forks find their parents.
	rounds := make([][]Verified, most)
	for _, l := range ledgers {
		same := files[l.session]
		delete(files, l.session)
		for i, f := range same {
			at := most - len(same) + i
			rounds[at] = append(rounds[at], f)
		}
	}
	return rounds
}

// tailSource remembers the tail of the file that was read, and where reading
// ended.
type tailSource struct {
	*telemetry.File
	tail             jsonl.Tail
	session          sessionName
	lineage          lineage
	events           int64
	lastRow, lastSeq int64
}

func (s *tailSource) Open() (telemetry.Ledger, error) {
	led, err := s.File.Open()
	if r, ok := led.(*jsonl.Reader); ok {
		h := r.Header()
		s.session, s.lineage = sessionName{h.ID, h.CreatedAt, h.Version}, lineageOf(h)
		return &tailLedger{r, s}, err
	}
	return led, err
}

type tailLedger struct {
	*jsonl.Reader
	src *tailSource
}

func (l *tailLedger) Next() bool {
	ok := l.Reader.Next()
	if ok {
		l.src.lastRow, l.src.lastSeq = l.Row(), l.Event().Seq
		l.src.events++
	}
	return ok
}

func (l *tailLedger) Close() error {
	l.src.tail = l.Tail()
	return l.Reader.Close()
}

// Explain puts an operator's words around what opening a data directory says.
func Explain(err error) error {
	var locked *outbox.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("%w; one data directory serves one process", err)
	}
	return err
}
