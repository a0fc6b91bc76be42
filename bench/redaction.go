package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/otel-bridge/otel-bridge/bench/workload"
	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// redactionRow is one way to make the payloads of a ledger safe, on one core.
type redactionRow struct {
	Name    string         `json:"name"`
	MBs     float64        `json:"mb_per_second"`
	Planted int            `json:"planted"`
	Visible int            `json:"still_visible"` // planted values that are left in the output
	Left    map[string]int `json:"left,omitempty"`
}

// redactions runs our engine and gitleaks over the same payloads, one after the
// other, each in one goroutine. gitleaks finds; the values that it names are
// then replaced wherever they stand, as a program that uses it has to do.
func (b *bench) redactions(bytes int64) ([]redactionRow, error) {
	dir := filepath.Join(b.dir, "ledgers")
	defer os.RemoveAll(dir)
	w, err := workload.Generate(dir, workload.Spec{Version: 2, Bytes: bytes, Sessions: 1, Seed: 11})
	if err != nil {
		return nil, err
	}
	payloads, err := payloads(w.Files[0])
	if err != nil {
		return nil, err
	}
	ours := func(p ...*redact.Policy) (func(string) string, error) {
		e, err := redact.New(redact.Options{Policies: p})
		if err != nil {
			return nil, err
		}
		var dst []byte
		return func(s string) string {
			var err error
			if dst, _, err = e.JSON(dst[:0], []byte(s)); err != nil {
				panic(err) // the ledger is ours: it is JSON
			}
			return string(dst)
		}, nil
	}
	both, err := ours(secrets.Policy(), pii.Policy())
	if err != nil {
		return nil, err
	}
	alone, err := ours(secrets.Policy())
	if err != nil {
		return nil, err
	}
	detector, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		return nil, err
	}
	gitleaks := func(s string) string {
		for _, f := range detector.DetectString(s) {
			s = strings.ReplaceAll(s, f.Secret, "[REDACTED:"+f.RuleID+"]")
		}
		return s
	}
	ways := []struct {
		name string
		do   func(string) string
	}{{"otel-bridge, secrets and PII", both}, {"otel-bridge, secrets", alone}, {"gitleaks", gitleaks}}
	rates := make([][]float64, len(ways))
	rows := make([]redactionRow, len(ways))
	for run := range b.runs {
		for i, way := range ways {
			var size int64
			var out strings.Builder
			start := time.Now()
			for _, p := range payloads {
				size += int64(len(p))
				safe := way.do(p)
				if run == 0 {
					out.WriteString(safe)
				}
			}
			seconds := time.Since(start).Seconds()
			rates[i] = append(rates[i], float64(size)/mb/seconds)
			b.say("redaction, run %d of %d: %s: %.1f MB/s", run+1, b.runs, way.name, float64(size)/mb/seconds)
			if run == 0 {
				rows[i] = redactionRow{Name: way.name, Planted: len(w.Secrets)}
				rows[i].Visible, rows[i].Left = workload.Visible([]byte(out.String()), w.Secrets)
			}
		}
	}
	for i := range rows {
		rows[i].MBs = median(rates[i])
	}
	return rows, nil
}

// payloads are the data of a ledger's events.
func payloads(file string) ([]string, error) {
	r, err := jsonl.Open(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []string
	for r.Next() {
		out = append(out, string(r.Event().Data))
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}
