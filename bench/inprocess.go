package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/otel-bridge/otel-bridge/bench/workload"
	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// The ways in which a Go program hands its records over.
const (
	wayBatch      = "BatchProcessor"
	wayBatchLarge = "BatchProcessor, queue for everything"
	wayDurable    = "otel-bridge"
	wayEarly      = "otel-bridge, early return" // up to 512 records wait for their sync
	wayUnredacted = "otel-bridge, redaction off"
)

// emit is the hidden command: a Go program that logs a ledger's events through
// the OpenTelemetry SDK. It prints "emitted" when the last Emit has returned.
func emit(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("emit", flag.ContinueOnError)
	way := fs.String("way", wayBatch, "")
	endpoint := fs.String("endpoint", "", "")
	data := fs.String("data", "", "")
	emitters := fs.Int("emitters", 1, "")
	events := fs.Int("events", 0, "")
	hang := fs.Bool("hang", false, "wait to be killed after the last Emit")
	drain := fs.Bool("drain", false, "only deliver what an earlier run left")
	if err := fs.Parse(args); err != nil {
		return err
	}
	processor, finish, err := processorFor(ctx, *way, *endpoint, *data, *events)
	if err != nil {
		return err
	}
	if *drain {
		return finish(ctx)
	}
	provider := sdklog.NewLoggerProvider(sdklog.WithProcessor(processor),
		sdklog.WithAttributeValueLengthLimit(-1), sdklog.WithAttributeCountLimit(-1))
	if err := emitFiles(ctx, provider.Logger("bench"), *emitters, fs.Args()); err != nil {
		return err
	}
	fmt.Println("emitted")
	if *hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := provider.Shutdown(ctx); err != nil {
		return err
	}
	return finish(ctx)
}

// processorFor builds one way; finish delivers what Shutdown has left.
func processorFor(ctx context.Context, way, endpoint, data string, events int) (p sdklog.Processor, finish func(context.Context) error, err error) {
	none := func(context.Context) error { return nil }
	switch way {
	case wayBatch, wayBatchLarge:
		x, err := otlploghttp.New(ctx, otlploghttp.WithEndpointURL(endpoint), otlploghttp.WithCompression(otlploghttp.GzipCompression))
		if err != nil {
			return nil, nil, err
		}
		var opts []sdklog.BatchProcessorOption
		if way == wayBatchLarge {
			opts = append(opts, sdklog.WithMaxQueueSize(events+1))
		}
		return sdklog.NewBatchProcessor(x, opts...), none, nil
	case wayDurable, wayEarly, wayUnredacted:
	default:
		return nil, nil, errors.New("no such way: " + way)
	}
	o, err := outbox.Open(data, outbox.Options{Instance: "bench"})
	if err != nil {
		return nil, nil, err
	}
	in, err := telemetry.OpenInstallation(data)
	if err != nil {
		return nil, nil, err
	}
	var opts []telemetry.DurableOption
	if way == wayEarly {
		opts = append(opts, telemetry.WithEarlyReturn(512))
	}
	if way != wayUnredacted {
		e, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy()}})
		if err != nil {
			return nil, nil, err
		}
		opts = append(opts, telemetry.WithRedaction(telemetry.NewRedaction(telemetry.NewEngine(e), in.Key)))
	}
	d, err := otlp.New(otlp.FromOutbox(o), otlp.Config{Endpoint: endpoint})
	if err != nil {
		return nil, nil, err
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- d.Run(running) }()
	return telemetry.NewDurableProcessor(o, opts...), func(ctx context.Context) error {
		err := d.Drain(ctx)
		stop()
		<-done
		return errors.Join(err, o.Close())
	}, nil
}

// emitFiles reads the ledgers and emits one record an event.
func emitFiles(ctx context.Context, logger apilog.Logger, emitters int, files []string) error {
	records := make(chan apilog.Record, 64)
	var wg sync.WaitGroup
	for range emitters {
		wg.Go(func() {
			for r := range records {
				logger.Emit(ctx, r)
			}
		})
	}
	err := func() error {
		defer close(records)
		for _, file := range files {
			if err := readRecords(file, records); err != nil {
				return err
			}
		}
		return nil
	}()
	wg.Wait()
	return err
}

func readRecords(file string, out chan<- apilog.Record) error {
	l, err := jsonl.Open(file)
	if err != nil {
		return err
	}
	defer l.Close()
	for l.Next() {
		ev := l.Event()
		body, err := telemetry.BodyValue(ev.Data)
		if err != nil {
			return err
		}
		var r apilog.Record
		r.SetTimestamp(time.UnixMilli(ev.Time))
		r.SetSeverity(apilog.SeverityInfo)
		r.SetEventName(ev.Type)
		r.SetBody(body)
		r.AddAttributes(attribute.String("session.id", l.Header().ID), attribute.Int64("event.seq", ev.Seq))
		out <- r
	}
	return l.Err()
}

// inProcessRow is one way in one situation.
type inProcessRow struct {
	Situation  string  `json:"situation"`
	Way        string  `json:"way"`
	Emitters   int     `json:"emitters"`
	Events     int64   `json:"events"`
	PerSecond  float64 `json:"delivered_records_per_second"`
	Lost       int64   `json:"lost"`
	Duplicates int64   `json:"duplicates"`
	PeakRSSMB  float64 `json:"peak_rss_mb"`
}

// Situations of a program that logs.
const (
	steady = "steady"
	killed = "killed after the last Emit"
	outage = "receiver answers 503 for 3 s"
)

// inProcess compares the ways on one workload of version 2.
func (b *bench) inProcess(ctx context.Context, spec workload.Spec) ([]inProcessRow, error) {
	dir := filepath.Join(b.dir, "ledgers")
	defer os.RemoveAll(dir)
	w, err := workload.Generate(dir, spec)
	if err != nil {
		return nil, err
	}
	var rows []inProcessRow
	plan := []struct {
		situation string
		emitters  int
		ways      []string
	}{
		{steady, 1, []string{wayBatch, wayBatchLarge, wayDurable, wayEarly, wayUnredacted}},
		{steady, 16, []string{wayBatch, wayBatchLarge, wayDurable, wayEarly, wayUnredacted}},
		{steady, 256, []string{wayBatch, wayBatchLarge, wayDurable, wayEarly, wayUnredacted}},
		{killed, 16, []string{wayBatch, wayDurable, wayEarly}},
		{outage, 16, []string{wayBatch, wayDurable}},
	}
	for _, step := range plan {
		runs := 1
		if step.situation == steady {
			runs = b.runs
		}
		all := make([][]inProcessRow, len(step.ways))
		for range runs {
			for i, way := range step.ways {
				row, err := b.program(ctx, w, step.situation, way, step.emitters)
				if err != nil {
					return rows, fmt.Errorf("%s, %s: %w", step.situation, way, err)
				}
				b.say("in process, %s, %d goroutines: %s: %.0f records/s, %d of %d lost, %d doubled", row.Situation, row.Emitters, row.Way, row.PerSecond, row.Lost, row.Events, row.Duplicates)
				all[i] = append(all[i], row)
			}
		}
		for _, of := range all {
			m := of[0]
			var rates []float64
			for _, r := range of {
				rates = append(rates, r.PerSecond)
				m.Lost, m.Duplicates, m.PeakRSSMB = max(m.Lost, r.Lost), max(m.Duplicates, r.Duplicates), max(m.PeakRSSMB, r.PeakRSSMB)
			}
			m.PerSecond = median(rates)
			rows = append(rows, m)
		}
	}
	return rows, nil
}

func (b *bench) program(ctx context.Context, w *workload.Workload, situation, way string, emitters int) (row inProcessRow, err error) {
	row = inProcessRow{Situation: situation, Way: way, Emitters: emitters, Events: w.Events}
	data, err := os.MkdirTemp(b.dir, "data-")
	if err != nil {
		return row, err
	}
	defer os.RemoveAll(data)
	if err := b.far.reset(); err != nil {
		return row, err
	}
	self, err := os.Executable()
	if err != nil {
		return row, err
	}
	args := []string{"emit", "--way", way, "--endpoint", b.far.logs(), "--data", filepath.Join(data, "outbox"),
		"--emitters", strconv.Itoa(emitters), "--events", strconv.FormatInt(w.Events, 10)}
	log := filepath.Join(data, "log")
	if situation == outage {
		if err := b.far.status(http.StatusServiceUnavailable); err != nil {
			return row, err
		}
		time.AfterFunc(3*time.Second, func() { _ = b.far.status(http.StatusOK) })
	}
	cmd := exec.Command(self, args...)
	r, out, err := os.Pipe()
	if err != nil {
		return row, err
	}
	defer r.Close()
	cmd.Stdout = out
	if situation == killed {
		cmd.Args = append(cmd.Args, "--hang")
	}
	cmd.Args = append(cmd.Args, w.Files...)
	p, err := startProcess(ctx, cmd, log)
	out.Close()
	if err != nil {
		return row, err
	}
	defer func() { p.kill() }()
	line, _ := bufio.NewReader(r).ReadString('\n')
	if strings.TrimSpace(line) != "emitted" {
		<-p.exited
		return row, p.failure()
	}
	first := p
	if situation == killed {
		p.kill()
		if way != wayBatch { // a queue in memory has nothing to start again with
			if p, err = startProcess(ctx, exec.Command(self, append(args, "--drain")...), log); err != nil {
				return row, err
			}
		}
	}
	select {
	case <-p.exited:
	case <-time.After(b.limit):
		p.kill()
	}
	if p.err != nil && situation != killed {
		b.say("in process, %s: %s: %v", situation, way, p.failure())
	}
	stats, err := b.far.stats()
	if err != nil {
		return row, err
	}
	row.Lost, row.Duplicates = w.Events-stats.Distinct, stats.Duplicates
	row.PeakRSSMB = float64(first.usage().PeakRSS) / mb
	if stats.Distinct > 0 {
		row.PerSecond = float64(stats.Distinct) / time.Unix(0, stats.LastNano).Sub(first.started).Seconds()
	}
	return row, nil
}
