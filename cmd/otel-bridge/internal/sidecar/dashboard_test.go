package sidecar

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
)

// root is the module's root as seen from this package.
const root = "../../../.."

// series are the metrics of a running sidecar: name → label → values.
func series(t *testing.T) map[string]map[string][]string {
	t.Helper()
	cfg, err := config.Load(config.Options{
		Overrides: []config.Override{
			{Key: "mode", Value: "FULL"},
			{Key: "exporter.endpoint", Value: "http://127.0.0.1:9/v1/logs"},
			{Key: "outbox.dir", Value: t.TempDir()},
		},
		LookupEnv: func(string) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &generation{cfg: cfg, log: slog.New(slog.DiscardHandler), tap: newTap(), tally: newTally()}
	g.tally.redactions["some-rule"] = 1 // a rule has a series once it has matched
	g.p, err = OpenPipeline(cfg, PipelineOptions{Log: g.log, Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer g.p.Close()
	families, err := g.metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string][]string{}
	for _, f := range families {
		labels := map[string][]string{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
		all[f.GetName()] = labels
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b((?:otel_bridge|go|process)_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	legend   = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// fromScrape are the labels that Prometheus adds.
var fromScrape = []string{"job", "instance"}

func TestDashboardAsksOnlyForMetricsAndLabelsThatExist(t *testing.T) {
	known := series(t)
	text, err := os.ReadFile(filepath.Join(root, "examples/grafana/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	check := func(where, expr, legends string) {
		found := selector.FindAllStringSubmatch(expr, -1)
		if len(found) == 0 {
			t.Errorf("%s: %q asks for no metric of ours", where, expr)
		}
		var labels []string
		for _, m := range found {
			have, ok := known[m[1]]
			if !ok {
				t.Errorf("%s: there is no metric %s", where, m[1])
				continue
			}
			for l := range have {
				labels = append(labels, l)
			}
			for _, s := range matcher.FindAllStringSubmatch(m[2], -1) {
				if slices.Contains(fromScrape, s[1]) {
					continue
				}
				for _, v := range strings.Split(s[3], "|") {
					if !slices.Contains(have[s[1]], v) {
						t.Errorf("%s: %s has no %s=%q", where, m[1], s[1], v)
					}
				}
			}
		}
		labels = append(labels, fromScrape...)
		var wanted []string
		for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
			wanted = append(wanted, strings.Split(m[1], ", ")...)
		}
		for _, m := range legend.FindAllStringSubmatch(legends, -1) {
			wanted = append(wanted, m[1])
		}
		for _, l := range wanted {
			if !slices.Contains(labels, l) {
				t.Errorf("%s: no metric in %q has the label %s", where, expr, l)
			}
		}
	}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has an id twice", p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, q := range p.Targets {
			check("panel "+p.Title, q.Expr, q.LegendFormat)
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Definition != "" {
			check("variable "+v.Name, v.Definition, "")
		}
	}
	if len(dashboard.Panels) < 10 {
		t.Errorf("%d panels were read", len(dashboard.Panels))
	}
}

func TestDocumentsNameOnlyMetricsThatExist(t *testing.T) {
	known := series(t)
	files, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	metric := regexp.MustCompile(`\botel_bridge_[a-z_]+[a-z](\{[^}]*\})?`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
			name, _, _ := strings.Cut(m[0], "{")
			have, ok := known[name]
			if !ok {
				t.Errorf("%s: there is no metric %s", filepath.Base(f), name)
			}
			for _, s := range matcher.FindAllStringSubmatch(m[1], -1) {
				if ok && !slices.Contains(have[s[1]], s[3]) {
					t.Errorf("%s: %s has no %s=%q", filepath.Base(f), name, s[1], s[3])
				}
			}
		}
	}
}
