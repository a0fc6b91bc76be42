package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/otel-bridge/otel-bridge/internal/corpus"
)

// report is everything that one call of the bench has found.
type report struct {
	Machine     string           `json:"machine"`
	Ratios      ratios           `json:"ratios"`
	Comparisons []comparison     `json:"comparisons,omitempty"`
	Faults      []faultRow       `json:"faults,omitempty"`
	InProcess   []inProcessRow   `json:"in_process,omitempty"`
	Redaction   []redactionRow   `json:"redaction,omitempty"`
	Classes     []redactionClass `json:"redaction_classes,omitempty"`
	Outbox      []outboxRow      `json:"outbox,omitempty"`
	Growth      []growthRow      `json:"growth,omitempty"`
}

// ratios are ours over the peer's in this very run; 0 was not measured.
type ratios struct {
	// Collector: MB/s of body delivered, version 2, gzip, all cores.
	Collector float64 `json:"collector_ratio"`
	// CollectorLedger: the same in MB/s of ledger, that is, in time: our bodies
	// leave out the streams that a message holds twice.
	CollectorLedger float64 `json:"collector_ledger_ratio,omitempty"`
	// CollectorCPU: the peer's CPU seconds per GB of ledger to ours, which a
	// busy machine disturbs least.
	CollectorCPU float64 `json:"collector_cpu_ratio,omitempty"`
	OneCore      float64 `json:"collector_one_core_ratio,omitempty"`
	// CollectorRules: as Collector, of a peer that looks for what gitleaks' rules find.
	CollectorRules float64 `json:"collector_all_rules_ratio,omitempty"`
	// Limit: how many times the Collector's MB/s of body a sender reaches that
	// checks, redacts and keeps nothing.
	Limit float64 `json:"bare_to_collector_ratio,omitempty"`
	// Gitleaks: MB/s of processor time on the generated corpus, mixed, decoding
	// on; ours with secrets and PII. Secrets: ours with secrets alone, as theirs.
	// Payloads: on the payloads of a ledger's events, ours with both.
	Gitleaks         float64 `json:"gitleaks_ratio"`
	GitleaksSecrets  float64 `json:"gitleaks_secrets_ratio,omitempty"`
	GitleaksPayloads float64 `json:"gitleaks_payload_ratio,omitempty"`
	// Outbox512: records/s committed against bbolt, batches of 512.
	Outbox512     float64 `json:"outbox_ratio_512"`
	OutboxBare512 float64 `json:"outbox_bare_ratio_512,omitempty"`
	// InProcess: delivered records/s against BatchProcessor, 256 goroutines.
	InProcess float64 `json:"in_process_ratio,omitempty"`
}

func (r *report) sum() {
	of := func(ours, peer float64) float64 {
		if peer == 0 {
			return 0
		}
		return float64(int(ours/peer*100+0.5)) / 100
	}
	for _, c := range r.Comparisons {
		ours, peer := c.Results[nameBridge], c.Results[nameCollectorPeer]
		switch c.Name {
		case nameCollector:
			r.Ratios.Collector, r.Ratios.CollectorLedger = of(ours.BodyMBs, peer.BodyMBs), of(ours.LedgerMBs, peer.LedgerMBs)
			r.Ratios.CollectorCPU = of(peer.CPUPerGB, ours.CPUPerGB)
			r.Ratios.Limit = of(c.Results[nameBare].BodyMBs, peer.BodyMBs)
		case nameRules:
			r.Ratios.CollectorRules = of(ours.BodyMBs, c.Results[nameCollectorAll].BodyMBs)
		case nameOneCore:
			r.Ratios.OneCore = of(ours.BodyMBs, peer.BodyMBs)
		}
	}
	if len(r.Redaction) == 3 {
		r.Ratios.GitleaksPayloads = of(r.Redaction[0].MBs, r.Redaction[2].MBs)
	}
	for _, c := range r.Classes {
		if c.Class == string(corpus.Mixed) {
			r.Ratios.Gitleaks, r.Ratios.GitleaksSecrets = of(c.Both, c.Gitleaks), of(c.SecretsOnly, c.Gitleaks)
		}
	}
	var outbox [3]float64
	at := 0
	for _, row := range r.Outbox {
		if row.Batch == 512 {
			outbox[at] = row.Commit
			at++
		}
	}
	r.Ratios.Outbox512, r.Ratios.OutboxBare512 = of(outbox[0], outbox[1]), of(outbox[0], outbox[2])
	ways := map[string]float64{}
	for _, row := range r.InProcess {
		if row.Situation == steady && row.Emitters == 256 {
			ways[row.Way] = row.PerSecond
		}
	}
	r.Ratios.InProcess = of(ways[wayDurable], ways[wayBatch])
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

func (r *report) json(w io.Writer, quick bool) error {
	if quick {
		return json.NewEncoder(w).Encode(r.Ratios)
	}
	return json.NewEncoder(w).Encode(r)
}

// text prints Markdown tables, so that they can be taken over as they are.
func (r *report) text(out io.Writer) error {
	fmt.Fprintf(out, "%s\n", r.Machine)
	t := &table{out: out}
	for _, c := range r.Comparisons {
		t.begin(fmt.Sprintf("%s (%s; medians of %d interleaved runs)", c.Name, c.Load, c.Runs),
			"", "ledger MB/s", "body MB/s", "records/s", "CPU s/GB", "peak RSS MB", "wire MB", "fsyncs", "lost", "doubled", "secrets seen")
		names := []string{nameBridge, nameCollectorPeer, nameCollectorAll, nameDSHBackend, nameBare}
		for _, name := range names {
			f, ok := c.Results[name]
			if !ok {
				continue
			}
			syncs := fmt.Sprint(f.Fsyncs)
			if f.Fsyncs < 0 {
				syncs = "not counted"
			}
			seen := "not looked for"
			if f.Visible >= 0 {
				seen = fmt.Sprintf("%d of %d", f.Visible, f.Planted)
			}
			t.row(name, num(f.LedgerMBs), num(f.BodyMBs), num(f.RecordsPerSecond), num(f.CPUPerGB), num(f.PeakRSSMB), num(f.WireMB), syncs, fmt.Sprint(f.Lost), fmt.Sprint(f.Duplicates), seen)
		}
		for _, name := range names[1:] {
			ours, peer := c.Results[names[0]], c.Results[name]
			if peer.Seconds == 0 {
				continue
			}
			t.row("ratio to "+name, num(ours.LedgerMBs/peer.LedgerMBs), num(ours.BodyMBs/peer.BodyMBs), num(ours.RecordsPerSecond/peer.RecordsPerSecond),
				num(ours.CPUPerGB/peer.CPUPerGB), num(ours.PeakRSSMB/peer.PeakRSSMB), num(ours.WireMB/peer.WireMB), "", "", "", "")
		}
		t.end()
	}
	if len(r.Faults) > 0 {
		t.begin("What a fault does", "", "workload", "sender", "events", "lost", "doubled")
		for _, f := range r.Faults {
			t.row(f.Fault, f.Load, f.Sender, fmt.Sprint(f.Events), fmt.Sprint(f.Lost), fmt.Sprint(f.Duplicates))
		}
		t.end()
	}
	if len(r.InProcess) > 0 {
		t.begin("In a Go program", "", "goroutines", "way", "delivered records/s", "lost", "of", "doubled", "peak RSS MB")
		for _, p := range r.InProcess {
			t.row(p.Situation, fmt.Sprint(p.Emitters), p.Way, num(p.PerSecond), fmt.Sprint(p.Lost), fmt.Sprint(p.Events), fmt.Sprint(p.Duplicates), num(p.PeakRSSMB))
		}
		t.end()
	}
	if len(r.Redaction) > 0 {
		t.begin("Redaction of a ledger's payloads, one core", "", "MB/s", "planted", "left visible", "of these")
		for _, p := range r.Redaction {
			var left []string
			for kind, n := range p.Left {
				left = append(left, fmt.Sprintf("%s %d", kind, n))
			}
			slices.Sort(left)
			t.row(p.Name, num(p.MBs), fmt.Sprint(p.Planted), fmt.Sprint(p.Visible), strings.Join(left, ", "))
		}
		t.end()
	}
	if len(r.Classes) > 0 {
		t.begin("Redaction of generated records, MB per second of processor time", "", "gitleaks", "both sets", "times", "secrets only", "times")
		for _, c := range r.Classes {
			t.row(c.Class, num(c.Gitleaks), num(c.Both), num(c.Both/c.Gitleaks), num(c.SecretsOnly), num(c.SecretsOnly/c.Gitleaks))
		}
		t.end()
	}
	if len(r.Outbox) > 0 {
		t.begin("Outbox, records of 1 KiB, durable", "", "batch", "committed records/s", "through records/s")
		for _, o := range r.Outbox {
			through := "–"
			if o.Through > 0 {
				through = num(o.Through)
			}
			t.row(o.Store, fmt.Sprint(o.Batch), num(o.Commit), through)
		}
		t.end()
	}
	if len(r.Growth) > 0 {
		t.begin("Growth, otel-bridge alone", "", "ledger MB/s", "records/s", "CPU s/GB", "CPU µs/record", "peak RSS MB", "lost", "doubled")
		for _, g := range r.Growth {
			f := g.Figures
			t.row(g.Load, num(f.LedgerMBs), num(f.RecordsPerSecond), num(f.CPUPerGB), num(f.CPUPerRecord), num(f.PeakRSSMB), fmt.Sprint(f.Lost), fmt.Sprint(f.Duplicates))
		}
		t.end()
	}
	x := r.Ratios
	t.begin("Ratios, ours to the peer's", "", "")
	for _, line := range []struct {
		name  string
		value float64
	}{
		{"Collector, MB/s of body", x.Collector}, {"Collector, MB/s of ledger", x.CollectorLedger}, {"Collector, CPU seconds per GB, its to ours", x.CollectorCPU}, {"Collector, one core, MB/s of body", x.OneCore},
		{"Collector with all of gitleaks' rules, MB/s of body", x.CollectorRules}, {"a bare sender's to the Collector's, MB/s of body", x.Limit},
		{"gitleaks, mixed records, MB/s", x.Gitleaks}, {"gitleaks, mixed records, secrets only", x.GitleaksSecrets}, {"gitleaks, payloads, MB/s", x.GitleaksPayloads}, {"bbolt, batches of 512", x.Outbox512}, {"bare append + fdatasync, batches of 512", x.OutboxBare512},
		{"BatchProcessor, delivered records/s", x.InProcess},
	} {
		if line.value > 0 {
			t.row(line.name, fmt.Sprintf("%.2f", line.value))
		}
	}
	t.end()
	return t.err
}

func num(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v != 0 && v < 0.1:
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// table writes one Markdown table after another.
type table struct {
	out io.Writer
	w   *tabwriter.Writer
	err error
}

func (t *table) begin(title string, columns ...string) {
	fmt.Fprintf(t.out, "\n### %s\n\n", title)
	t.w = tabwriter.NewWriter(t.out, 0, 0, 1, ' ', 0)
	t.row(columns...)
	for i := range columns {
		columns[i] = "---"
	}
	t.row(columns...)
}

func (t *table) row(cells ...string) {
	if _, err := fmt.Fprintf(t.w, "| %s\t|\n", strings.Join(cells, "\t| ")); err != nil {
		t.err = err
	}
}

func (t *table) end() {
	if err := t.w.Flush(); err != nil {
		t.err = err
	}
}
