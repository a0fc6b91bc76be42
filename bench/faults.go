package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/otel-bridge/otel-bridge/bench/receiver"
	"github.com/otel-bridge/otel-bridge/bench/workload"
)

// fault is something that happens to a sender once; afterwards everything works
// again, the sender is started again if it was ended, and has time to finish.
type fault struct {
	name string
	do   func(ctx context.Context, b *bench, p *process, want int64) error
	// before is done before the sender starts.
	before func(b *bench) error
}

// halfway waits until a quarter has arrived: early enough that the rest is not
// all on its way.
func halfway(ctx context.Context, b *bench, p *process, want int64) error {
	_, err := b.far.wait(ctx, p, want/4, 2*time.Millisecond, b.limit)
	return err
}

func faults() []fault {
	down := func(b *bench) error { return b.far.status(http.StatusServiceUnavailable) }
	return []fault{
		{name: "SIGTERM halfway", do: func(ctx context.Context, b *bench, p *process, want int64) error {
			err := halfway(ctx, b, p, want)
			p.stop(time.Minute)
			return err
		}},
		{name: "SIGKILL halfway", do: func(ctx context.Context, b *bench, p *process, want int64) error {
			err := halfway(ctx, b, p, want)
			p.kill()
			return err
		}},
		{name: "receiver answers 503 for 5 s", before: down, do: func(ctx context.Context, b *bench, _ *process, _ int64) error {
			return pause(ctx, 5*time.Second)
		}},
		{name: "SIGTERM while it answers 503", before: down, do: func(ctx context.Context, b *bench, p *process, _ int64) error {
			err := pause(ctx, 3*time.Second)
			p.stop(time.Minute)
			return err
		}},
		{name: "SIGKILL while it answers 503", before: down, do: func(ctx context.Context, b *bench, p *process, _ int64) error {
			err := pause(ctx, 3*time.Second)
			p.kill()
			return err
		}},
		{name: "every 10th answer is lost", before: func(b *bench) error {
			n := 10
			return b.far.control(receiver.Control{LoseAnswer: &n})
		}},
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// faultRow is what a fault did to one sender.
type faultRow struct {
	Fault      string `json:"fault"`
	Load       string `json:"workload"`
	Sender     string `json:"sender"`
	Events     int64  `json:"events"`
	Lost       int64  `json:"lost"`
	Duplicates int64  `json:"duplicates"`
}

func (b *bench) suffer(ctx context.Context, spec workload.Spec, senders ...*sender) ([]faultRow, error) {
	dir := filepath.Join(b.dir, "ledgers")
	defer os.RemoveAll(dir)
	w, err := workload.Generate(dir, spec)
	if err != nil {
		return nil, err
	}
	var rows []faultRow
	for _, f := range faults() {
		for _, s := range senders {
			row, err := b.once(ctx, f, s, w)
			if err != nil {
				return rows, fmt.Errorf("%s, %s: %w", f.name, s.name, err)
			}
			b.say("%s: %s: %d lost, %d doubled", f.name, s.name, row.Lost, row.Duplicates)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (b *bench) once(ctx context.Context, f fault, s *sender, w *workload.Workload) (row faultRow, err error) {
	data, err := os.MkdirTemp(b.dir, "data-")
	if err != nil {
		return row, err
	}
	defer os.RemoveAll(data)
	if err := b.far.reset(); err != nil {
		return row, err
	}
	if f.before != nil {
		if err := f.before(b); err != nil {
			return row, err
		}
	}
	start := func() (*process, error) {
		cmd, err := s.command(job{load: w, data: data, endpoint: b.far.logs(), compression: "gzip"})
		if err != nil {
			return nil, err
		}
		return startProcess(ctx, cmd, filepath.Join(data, "log"))
	}
	p, err := start()
	if err != nil {
		return row, err
	}
	defer func() { p.kill() }()
	want := s.expected(w)
	if f.do != nil {
		if err := f.do(ctx, b, p, want); err != nil {
			return row, err
		}
		if err := b.far.status(http.StatusOK); err != nil {
			return row, err
		}
	}
	select {
	case <-p.exited:
		if p, err = start(); err != nil {
			return row, err
		}
		if s.resumed != nil {
			want += s.resumed(w)
		}
	default:
	}
	stats, err := b.far.wait(ctx, p, want, 20*time.Millisecond, b.limit)
	if err != nil {
		return row, err
	}
	// What is sent twice may come after what was missing: the peer's first
	// pause before another attempt is 5 s, more or less a half.
	if !s.ends {
		if err := pause(ctx, 9*time.Second); err != nil {
			return row, err
		}
		p.stop(time.Minute)
	} else {
		select {
		case <-p.exited:
			if p.usage().Exit != 0 {
				return row, p.failure()
			}
		case <-time.After(b.limit):
		}
	}
	if stats, err = b.far.stats(); err != nil {
		return row, err
	}
	return faultRow{f.name, w.Spec.String(), s.name, want, want - stats.Distinct, stats.Duplicates}, nil
}
