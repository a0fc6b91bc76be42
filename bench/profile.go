package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/otel-bridge/otel-bridge/bench/workload"
)

// profile carries a workload with a build of our program that writes a CPU and
// an allocation profile at its end, and prints what costs most. The program's
// main.go is overlaid for that build; nothing in the product knows of it.
func (b *bench) profile(ctx context.Context, into string, spec workload.Spec) error {
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "cmd", "otel-bridge", "main.go"): filepath.Join(root, "bench", "profile", "main.go.txt"),
	}})
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	binary := filepath.Join(into, "otel-bridge.profiled")
	if err := run(ctx, root, "go", "build", "-overlay", file, "-o", binary, "./cmd/otel-bridge"); err != nil {
		return err
	}
	if err := os.Setenv("BENCH_PROFILE_DIR", into); err != nil {
		return err
	}
	b.runs = 1
	c, err := b.growth(ctx, bridge(binary), []workload.Spec{spec})
	if err != nil {
		return err
	}
	fmt.Printf("%s: %.1f MB/s of ledger, %.1f CPU seconds per GB, %.0f MB peak\n", c[0].Load, c[0].Figures.LedgerMBs, c[0].Figures.CPUPerGB, c[0].Figures.PeakRSSMB)
	for _, view := range [][]string{
		{"-top", "-nodecount=15", filepath.Join(into, "cpu.pprof")},
		{"-top", "-cum", "-nodecount=60", filepath.Join(into, "cpu.pprof")},
		{"-top", "-sample_index=alloc_space", "-nodecount=15", filepath.Join(into, "allocs.pprof")},
		{"-top", "-sample_index=alloc_objects", "-nodecount=15", filepath.Join(into, "allocs.pprof")},
	} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "pprof"}, view...)...)
		cmd.Stdout = os.Stdout
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go tool pprof: %w", err)
		}
		fmt.Println()
	}
	return nil
}

// run runs a tool in dir and shows what it says when it fails.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, args[0], err, out)
	}
	return nil
}
