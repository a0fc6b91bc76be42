// Command bench measures otel-bridge beside its peers, in one run, on one
// machine, with one receiver: see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/otel-bridge/otel-bridge/bench/workload"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends at once what does not look at ctx
	if err := dispatch(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		stop()
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "receive":
			return receive(ctx)
		case "emit":
			return emit(ctx, args[1:])
		case "generate":
			return generate(args[1:])
		}
	}
	return measure(ctx, args)
}

// generate writes a workload to keep.
func generate(args []string) error {
	fs := flag.NewFlagSet("generate", flag.ContinueOnError)
	version := fs.Int("version", 2, "format version: 0 or 2")
	zstd := fs.Bool("zstd", false, "compressed, one frame for each turn")
	size := fs.Int64("mb", 100, "megabytes of JSON lines in all")
	sessions := fs.Int("sessions", 1, "how many sessions")
	seed := fs.Uint64("seed", 1, "the same seed gives the same bytes")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return errors.New("generate: name one directory")
	}
	w, err := workload.Generate(fs.Arg(0), workload.Spec{Version: *version, Zstd: *zstd, Bytes: *size * mb, Sessions: *sessions, Seed: *seed})
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d events, %d records, %d bytes of lines, %d bytes in files, %d planted secrets\n", w.Spec, w.Events, w.Records, w.LedgerBytes, w.FileBytes, len(w.Secrets))
	return nil
}

// The parts of a measurement, as --only names them.
const (
	partCollector = "collector"
	partOneCore   = "one-core"
	partRules     = "all-rules"
	partPlain     = "no-gzip"
	partV0        = "v0"
	partZstd      = "zstd"
	partFaults    = "faults"
	partDSH       = "dsh"
	partInProcess = "in-process"
	partRedaction = "redaction"
	partOutbox    = "outbox"
	partGrowth    = "growth"
	partMemory    = "memory"
)

var (
	parts      = []string{partCollector, partOneCore, partRules, partPlain, partV0, partZstd, partFaults, partDSH, partInProcess, partRedaction, partOutbox, partGrowth, partMemory}
	quickParts = []string{partCollector, partRedaction, partOutbox}
)

// Titles that the ratios are taken from.
const (
	nameCollector = "End to end, gzip"
	nameOneCore   = "End to end, gzip, one core"
	nameRules     = "End to end, gzip, the peer with all of gitleaks' rules"
	nameDSH       = "End to end, gzip, beside DSH's own backend"
)

// Senders.
const (
	nameBridge        = "otel-bridge"
	nameCollectorPeer = "Collector"
	nameCollectorAll  = "Collector, all rules"
	nameDSHBackend    = "DSH backend"
	nameBare          = "bare sender"
)

// bench is one measurement.
type bench struct {
	dir     string // everything that is written, removed at the end
	far     *far
	runs    int
	limit   time.Duration // of one run
	closely bool          // one more run of each comparison, for what cannot be counted at full speed
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

func measure(ctx context.Context, args []string) (err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := fs.Bool("quick", false, "a small workload, three ratios, about a minute once built")
	output := fs.String("output", "text", "text (Markdown tables) or json")
	only := fs.String("only", "", "parts to measure, by comma: "+strings.Join(parts, ","))
	size := fs.Int64("mb", 100, "megabytes of ledger in each comparison (--quick: 20)")
	runs := fs.Int("runs", 5, "interleaved runs of each comparison (--quick: 3)")
	dir := fs.String("dir", "", "where ledgers, queues and outboxes are written, on a real disk; default: the directory for temporary files")
	profile := fs.String("profile", "", "write CPU and allocation profiles of our side into this directory, print the top costs, measure nothing else")
	keep := fs.Bool("keep", false, "leave the directory")
	if err := fs.Parse(args); err != nil {
		return err
	}
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	wanted := parts
	if *quick {
		wanted = quickParts
		if !set["mb"] {
			*size = 20
		}
		if !set["runs"] {
			*runs = 3
		}
	}
	if *only != "" {
		wanted = strings.Split(*only, ",")
	}
	for _, p := range wanted {
		if !slices.Contains(parts, p) {
			return fmt.Errorf("--only %s: there are %s", p, strings.Join(parts, ", "))
		}
	}
	if *runs < 1 || *size < 1 || *output != "text" && *output != "json" {
		return errors.New("--runs and --mb are at least 1, --output is text or json")
	}
	if _, err := os.Stat("profile/main.go.txt"); err != nil {
		return errors.New("run it in its own folder: cd bench && go run .")
	}
	b := &bench{runs: *runs, limit: 15 * time.Minute, closely: !*quick}
	if b.dir, err = os.MkdirTemp(*dir, "otel-bridge-bench-"); err != nil {
		return err
	}
	if !*keep {
		defer os.RemoveAll(b.dir)
	}
	m := machine()
	if b.far, err = startFar(ctx, filepath.Join(b.dir, "receiver.log")); err != nil {
		return err
	}
	defer b.far.close()
	if *profile != "" {
		return b.profile(ctx, *profile, workload.Spec{Version: 2, Bytes: *size * mb, Sessions: 4, Seed: 1})
	}
	r := report{Machine: m}
	if err := b.parts(ctx, &r, wanted, *size*mb, *quick); err != nil {
		return err
	}
	r.sum()
	if *output == "json" {
		return r.json(os.Stdout, *quick)
	}
	return r.text(os.Stdout)
}

// besideDSH compares with DSH's own backend, which writes version 0, and lets it
// meet the faults.
func (b *bench) besideDSH(ctx context.Context, r *report, size int64, ours *sender) error {
	folder := dshFolder()
	if folder == "" {
		b.say("DSH's own backend is left out: BENCH_DSH names no folder with its packages, see README.md")
		return nil
	}
	spec := workload.Spec{Version: 0, Bytes: min(size, 30*mb), Sessions: 8, Seed: 5}
	row, err := b.compare(ctx, nameDSH, spec, "gzip", false, ours, dsh(folder, 0, dshQueue))
	if err != nil {
		return err
	}
	r.Comparisons = append(r.Comparisons, row)
	rows, err := b.suffer(ctx, spec, ours, dsh(folder, dshPace, 0))
	r.Faults = append(r.Faults, rows...)
	return err
}

func (b *bench) parts(ctx context.Context, r *report, wanted []string, size int64, quick bool) (err error) {
	has := func(p string) bool { return slices.Contains(wanted, p) }
	var ours, peer, strict, limit *sender
	if slices.ContainsFunc(wanted, func(p string) bool { return p != partRedaction && p != partOutbox && p != partInProcess }) {
		b.say("building")
		for from, folder := range map[string]string{"./cmd/otel-bridge": "..", "./collector": ".", "./bare": "."} {
			if err := run(ctx, folder, "go", "build", "-o", b.dir+string(filepath.Separator), from); err != nil {
				return err
			}
		}
		all, err := allPatterns()
		if err != nil {
			return err
		}
		ours, limit = bridge(filepath.Join(b.dir, "otel-bridge")), bare(filepath.Join(b.dir, "bare"))
		peer = collector(nameCollectorPeer, filepath.Join(b.dir, "collector"), fourPatterns)
		strict = collector(nameCollectorAll, filepath.Join(b.dir, "collector"), all)
	}
	v2 := workload.Spec{Version: 2, Bytes: size, Sessions: 4, Seed: 1}
	v0, packed, packed0, little := v2, v2, v2, v2
	little.Bytes = size / 20 // the peer needs minutes for more
	v0.Version, packed.Zstd, packed0.Version, packed0.Zstd = 0, true, 0, true
	for _, c := range []struct {
		part, name, compression string
		spec                    workload.Spec
		oneCore                 bool
		senders                 []*sender
	}{
		{partCollector, nameCollector, "gzip", v2, false, []*sender{ours, peer, limit}},
		{partOneCore, nameOneCore, "gzip", v2, true, []*sender{ours, peer, limit}},
		{partRules, nameRules, "gzip", little, false, []*sender{ours, strict}},
		{partPlain, "End to end, no compression", "none", v2, false, []*sender{ours, peer}},
		{partV0, "End to end, gzip, version 0", "gzip", v0, false, []*sender{ours, peer}},
		// The peer cannot read zstd.
		{partZstd, "End to end, gzip, zstd files", "gzip", packed, false, []*sender{ours}},
		{partZstd, "End to end, gzip, version 0, zstd files", "gzip", packed0, false, []*sender{ours}},
	} {
		if !has(c.part) {
			continue
		}
		row, err := b.compare(ctx, c.name, c.spec, c.compression, c.oneCore, c.senders...)
		if err != nil {
			return err
		}
		r.Comparisons = append(r.Comparisons, row)
	}
	if has(partFaults) {
		rows, err := b.suffer(ctx, workload.Spec{Version: 2, Bytes: min(size, 30*mb), Sessions: 8, Seed: 5}, ours, peer)
		if r.Faults = append(r.Faults, rows...); err != nil {
			return err
		}
	}
	if has(partDSH) {
		if err := b.besideDSH(ctx, r, size, ours); err != nil {
			return err
		}
	}
	if has(partInProcess) {
		if r.InProcess, err = b.inProcess(ctx, workload.Spec{Version: 2, Bytes: min(size, 50*mb), Sessions: 4, Seed: 7}); err != nil {
			return err
		}
	}
	if has(partRedaction) {
		if r.Redaction, r.Classes, err = b.redactions(min(size/10, 10*mb)); err != nil { // gitleaks is slow
			return err
		}
	}
	if has(partOutbox) {
		span := 2 * time.Second
		if quick {
			span = 300 * time.Millisecond
		}
		if r.Outbox, err = b.outboxes(ctx, span); err != nil {
			return err
		}
	}
	if has(partGrowth) {
		var specs []workload.Spec
		for _, n := range []int64{10, 100, 1000} {
			specs = append(specs, workload.Spec{Version: 2, Bytes: n * mb, Sessions: 4, Seed: 1})
		}
		for _, n := range []int{1, 100, 10_000} {
			specs = append(specs, workload.Spec{Version: 2, Bytes: 100 * mb, Sessions: n, Seed: 1})
		}
		if r.Growth, err = b.growth(ctx, ours, specs); err != nil {
			return err
		}
	}
	if has(partMemory) {
		rows, err := b.growth(ctx, ours, []workload.Spec{{Version: 2, Bytes: 2000 * mb, Sessions: 4, Seed: 1}})
		r.Growth = append(r.Growth, rows...)
		if err != nil {
			return err
		}
	}
	return nil
}
