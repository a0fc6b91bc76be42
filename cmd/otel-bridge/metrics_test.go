//go:build unix

package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const metricsHead = `# Metrics

<!-- Made by ` + "`go test ./cmd/otel-bridge -run TestMetricsPageIsCurrent -update`" + ` from what a running sidecar serves; do not edit. -->

` + "`/metrics`" + ` of ` + "`admin.listen`" + `, in Prometheus' text format. No label and no value is content. The
names follow Prometheus' conventions (` + "`promlint`" + ` has nothing to say of them), units are bytes and seconds.

- Counters of events and records are of the data directory's life: they go on after a
  restart. The others begin with the process, and go on over a reload.
- At every moment
  ` + "`events_total{read} = exported + withheld + elided + inherited + out_of_scope`" + ` and
  ` + "`records_total{committed} = records_total{acked} + {discarded} + records{pending} + {held} + {quarantined}`" + `.
  Records are those of events and those of the bridge itself. Committed and acked count the drafts of
  summaries too, one for each summary, which are settled and never sent ([records.md](records.md)).
- Under FEEDBACK_ONLY the bridge looks ahead for feedback. Events behind the last one are not
  counted as read before there is feedback behind them, and are then; until then they are in
  ` + "`otel_bridge_events_beyond_watermark`" + `.
- Beside these there are Go's and the process's own (` + "`go_*`, `process_*`" + `).
- Alerts that make sense: ` + "`otel_bridge_receiver_ready == 0`" + ` for long, ` + "`otel_bridge_outbox_full == 1`" + `,
  ` + "`otel_bridge_records{state=\"quarantined\"}`" + ` or ` + "`otel_bridge_sessions{state=\"held\"}`" + ` above 0. A dashboard:
  [examples/grafana](../examples/grafana/dashboard.json).

| metric | type | labels | |
|---|---|---|---|
`

// Every metric that a sidecar serves stands on the page, with its words, and no
// other; and Prometheus' own linter has nothing to say.
func TestMetricsPageIsCurrent(t *testing.T) {
	r := newRig(t)
	// A secret, so that redaction counts too.
	r.write(r.path("s"), head("s"), row(0, "password=hunter2-hunter2-hunter2"))
	r.start()
	r.awaitEvents("s", 0)
	text := r.page("/metrics")
	r.stop()

	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "otel_bridge_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}

	type metric struct{ help, kind string }
	metrics := map[string]metric{}
	labels := map[string]map[string][]string{} // by metric, by label: the values seen
	sample := regexp.MustCompile(`^(otel_bridge_\w+)(?:\{(.*)\})? `)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP otel_bridge_"); ok {
			name, help, _ := strings.Cut(rest, " ")
			metrics["otel_bridge_"+name] = metric{help: help}
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE otel_bridge_"); ok {
			name, kind, _ := strings.Cut(rest, " ")
			m := metrics["otel_bridge_"+name]
			m.kind = kind
			metrics["otel_bridge_"+name] = m
		}
		if m := sample.FindStringSubmatch(line); m != nil {
			if labels[m[1]] == nil {
				labels[m[1]] = map[string][]string{}
			}
			for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels[m[1]][l[1]], l[2]) {
					labels[m[1]][l[1]] = append(labels[m[1]][l[1]], l[2])
				}
			}
		}
	}
	page := bytes.NewBufferString(metricsHead)
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		var of []string
		for _, label := range slices.Sorted(maps.Keys(labels[name])) {
			switch label {
			case "rule", "version", "go_version", "mode": // not the same everywhere
				of = append(of, "`"+label+"`")
			default:
				of = append(of, "`"+label+"`: `"+strings.Join(slices.Sorted(slices.Values(labels[name][label])), "`, `")+"`")
			}
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", name, metrics[name].kind, strings.Join(of, "; "), metrics[name].help)
	}
	if len(metrics) < 15 {
		t.Fatalf("%d metrics", len(metrics))
	}
	path := filepath.Join("..", "..", "docs", "metrics.md")
	if *update {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, page.Bytes()) {
		t.Errorf("docs/metrics.md is not what is served; run this test with -update. It would be\n%s", page)
	}
}

// Events behind the last feedback are counted, as what they are, and not as read;
// feedback behind them makes them read. So it is after a reload and a restart too.
func TestEventsBeyondTheWatermarkAreCountedAsThat(t *testing.T) {
	r := newRig(t, "mode: FEEDBACK_ONLY")
	feedback := func(seq int) string {
		return fmt.Sprintf(`{"type":"feedback/record","seq":%d,"time":1,"data":{}}`+"\n", seq)
	}
	r.write(r.path("s"), head("s"), rows(0, 1), feedback(2), rows(3, 6))
	r.write(r.path("none"), head("none"), rows(0, 2))
	r.start()
	r.awaitEvents("s", 2)
	r.awaitMetric("otel_bridge_events_beyond_watermark", 4+3)
	r.awaitMetric(`otel_bridge_events_total{outcome="read"}`, 3)
	r.write(r.path("s"), feedback(7), row(8, "behind it"))
	r.awaitEvents("s", 7)
	r.awaitMetric("otel_bridge_events_beyond_watermark", 1+3)
	r.awaitMetric(`otel_bridge_events_total{outcome="read"}`, 8)
	r.reconfigure(r.file(r.cfg) + "log: { level: debug }\n")
	r.awaitMetric("otel_bridge_events_beyond_watermark", 1+3)
	r.stop()
	r.start()
	r.awaitMetric("otel_bridge_events_beyond_watermark", 1+3)
	r.awaitMetric(`otel_bridge_events_total{outcome="read"}`, 8)
	r.stop()
}
