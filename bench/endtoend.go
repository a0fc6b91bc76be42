package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/otel-bridge/otel-bridge/bench/receiver"
	"github.com/otel-bridge/otel-bridge/bench/workload"
)

// figures of one run from files to receiver.
type figures struct {
	Seconds    float64 `json:"seconds"` // from the start of the program to the last event's arrival
	Events     int64   `json:"events"`  // different ones that arrived
	Lost       int64   `json:"lost"`
	Duplicates int64   `json:"duplicates"`

	RecordsPerSecond float64 `json:"records_per_second"`
	LedgerMBs        float64 `json:"ledger_mb_per_second"` // bytes of JSON lines read
	BodyMBs          float64 `json:"body_mb_per_second"`   // bytes of the bodies that arrived, as encoded values
	CPUPerGB         float64 `json:"cpu_seconds_per_gb"`   // of ledger, user and system, the sender's only
	CPUPerRecord     float64 `json:"cpu_microseconds_per_record"`
	PeakRSSMB        float64 `json:"peak_rss_mb"`
	WireMB           float64 `json:"wire_mb"`
	Fsyncs           int64   `json:"fsyncs"` // -1: not counted
	Planted          int     `json:"planted"`
	Visible          int     `json:"visible"` // planted secrets that have arrived; -1: not looked for
}

const mb = 1e6

// carry runs a sender once over a workload; closely: the speed of that run does
// not count, syncs and planted secrets do.
func (b *bench) carry(ctx context.Context, s *sender, w *workload.Workload, compression string, oneCore, closely bool) (figures, error) {
	f := figures{Fsyncs: -1, Planted: len(w.Secrets), Visible: -1}
	data, err := os.MkdirTemp(b.dir, "data-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(data)
	if err := b.far.reset(); err != nil {
		return f, err
	}
	if err := b.far.control(receiver.Control{Keep: &closely}); err != nil {
		return f, err
	}
	cmd, err := s.command(job{load: w, data: data, endpoint: b.far.logs(), compression: compression, oneCore: oneCore})
	if err != nil {
		return f, err
	}
	p, err := startProcess(ctx, cmd, filepath.Join(data, "log"))
	if err != nil {
		return f, err
	}
	defer p.kill()
	var counting *syncs
	counted := false
	if closely {
		counting, counted = countSyncs(p, filepath.Join(data, "perf"))
	}
	want := s.expected(w)
	stats, err := b.far.wait(ctx, p, want, 20*time.Millisecond, b.limit)
	if err != nil {
		return f, err
	}
	if s.ends && stats.Distinct >= want {
		select { // the program's own end is part of what it costs
		case <-p.exited:
		case <-time.After(30 * time.Second):
		}
	}
	p.stop(30 * time.Second)
	u := p.usage()
	if stats.Distinct == 0 || s.ends && u.Exit != 0 {
		return f, p.failure()
	}
	if counted {
		if n, ok := counting.count(); ok {
			f.Fsyncs = n
		}
	}
	if closely {
		all, err := b.far.kept()
		if err != nil {
			return f, err
		}
		f.Visible, _ = workload.Visible(all, w.Secrets)
	}
	if stats, err = b.far.stats(); err != nil {
		return f, err
	}
	seconds := time.Unix(0, stats.LastNano).Sub(p.started).Seconds()
	f.Seconds, f.Events, f.Lost, f.Duplicates = seconds, stats.Distinct, want-stats.Distinct, stats.Duplicates
	share := float64(stats.Distinct) / float64(want)
	f.RecordsPerSecond = float64(stats.Distinct) / seconds
	f.LedgerMBs = float64(w.LedgerBytes) * share / mb / seconds
	f.BodyMBs = float64(stats.BodyBytes) / mb / seconds
	f.CPUPerGB = u.CPU.Seconds() / (float64(w.LedgerBytes) * share / 1e9)
	f.CPUPerRecord = u.CPU.Seconds() * 1e6 / float64(stats.Distinct)
	f.PeakRSSMB = float64(u.PeakRSS) / mb
	f.WireMB = float64(stats.WireBytes) / mb
	return f, nil
}

// comparison is one workload through several senders, interleaved.
type comparison struct {
	Name    string             `json:"name"`
	Load    string             `json:"workload"`
	Runs    int                `json:"runs"`
	Results map[string]figures `json:"results"` // medians, by sender
}

// compare runs all senders in turn, so that a slow minute of the machine meets
// them all, and takes medians.
func (b *bench) compare(ctx context.Context, name string, spec workload.Spec, compression string, oneCore bool, senders ...*sender) (comparison, error) {
	c := comparison{Name: name, Load: spec.String(), Runs: b.runs, Results: map[string]figures{}}
	dir := filepath.Join(b.dir, "ledgers")
	defer os.RemoveAll(dir)
	w, err := workload.Generate(dir, spec)
	if err != nil {
		return c, err
	}
	all := map[string][]figures{}
	for run := range b.runs {
		for _, s := range senders {
			f, err := b.carry(ctx, s, w, compression, oneCore, false)
			if err != nil {
				return c, fmt.Errorf("%s, %s: %w", name, s.name, err)
			}
			b.say("%s, run %d of %d: %s: %.1f MB/s of ledger, %.1f MB/s of body, %d lost, %d doubled", name, run+1, b.runs, s.name, f.LedgerMBs, f.BodyMBs, f.Lost, f.Duplicates)
			all[s.name] = append(all[s.name], f)
		}
	}
	for _, s := range senders {
		m := medians(all[s.name])
		if b.closely {
			f, err := b.carry(ctx, s, w, compression, oneCore, true)
			if err != nil {
				return c, fmt.Errorf("%s, %s: %w", name, s.name, err)
			}
			m.Fsyncs, m.Visible = f.Fsyncs, f.Visible
		}
		c.Results[s.name] = m
	}
	return c, nil
}

// medians takes the median of each figure by itself, and the worst of losses
// and doubles.
func medians(all []figures) figures {
	m := all[0]
	take := func(get func(*figures) *float64) {
		values := make([]float64, len(all))
		for i := range all {
			values[i] = *get(&all[i])
		}
		*get(&m) = median(values)
	}
	take(func(f *figures) *float64 { return &f.Seconds })
	take(func(f *figures) *float64 { return &f.RecordsPerSecond })
	take(func(f *figures) *float64 { return &f.LedgerMBs })
	take(func(f *figures) *float64 { return &f.BodyMBs })
	take(func(f *figures) *float64 { return &f.CPUPerGB })
	take(func(f *figures) *float64 { return &f.CPUPerRecord })
	take(func(f *figures) *float64 { return &f.PeakRSSMB })
	take(func(f *figures) *float64 { return &f.WireMB })
	for _, f := range all {
		m.Lost, m.Duplicates, m.Events = max(m.Lost, f.Lost), max(m.Duplicates, f.Duplicates), min(m.Events, f.Events)
	}
	return m
}
