package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/otel-bridge/otel-bridge/bench/workload"
)

// growthRow is our side alone at one size.
type growthRow struct {
	Load    string  `json:"workload"`
	Figures figures `json:"figures"`
}

// growth tells whether cost grows with the work and with nothing else.
func (b *bench) growth(ctx context.Context, ours *sender, specs []workload.Spec) ([]growthRow, error) {
	var rows []growthRow
	for _, spec := range specs {
		row, err := b.grow(ctx, ours, spec)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", spec, err)
		}
		b.say("growth: %s: %.1f MB/s of ledger, %.1f CPU s/GB, %.0f MB peak", row.Load, row.Figures.LedgerMBs, row.Figures.CPUPerGB, row.Figures.PeakRSSMB)
		rows = append(rows, row)
	}
	return rows, nil
}

func (b *bench) grow(ctx context.Context, ours *sender, spec workload.Spec) (growthRow, error) {
	dir := filepath.Join(b.dir, "ledgers")
	defer os.RemoveAll(dir)
	w, err := workload.Generate(dir, spec)
	if err != nil {
		return growthRow{}, err
	}
	var all []figures
	for range b.runs {
		f, err := b.carry(ctx, ours, w, "gzip", false, false)
		if err != nil {
			return growthRow{}, err
		}
		all = append(all, f)
		if spec.Bytes > 1500*mb {
			break // one is enough to see its peak
		}
	}
	spec.Bytes = w.LedgerBytes // many short sessions are longer than asked for
	return growthRow{spec.String(), medians(all)}, nil
}
