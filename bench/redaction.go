package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/zricethezav/gitleaks/v8/detect"
	"golang.org/x/sys/unix"

	"github.com/otel-bridge/otel-bridge/bench/workload"
	"github.com/otel-bridge/otel-bridge/internal/corpus"
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

// redactionClass is what the ways do on one class of generated records, in MB
// per second of processor time.
type redactionClass struct {
	Class       string  `json:"class"`
	Both        float64 `json:"both_sets"`
	SecretsOnly float64 `json:"secrets_only"`
	Gitleaks    float64 `json:"gitleaks"`
}

// way is one way to make a text safe.
type way struct {
	name string
	do   func(record) []byte
}

// record is a text in the form that each way takes.
type record struct {
	bytes []byte
	text  string
}

// ways are our engine with both sets, with secrets alone, and gitleaks, which
// finds; the values that it names are then replaced wherever they stand, as a
// program that uses it has to do. It decodes as deep as its own command does,
// since ours decodes too.
func ways() ([]way, error) {
	ours := func(p ...*redact.Policy) (func(record) []byte, error) {
		e, err := redact.New(redact.Options{Policies: p})
		if err != nil {
			return nil, err
		}
		var dst []byte
		return func(r record) []byte {
			var err error
			if dst, _, err = e.JSON(dst[:0], r.bytes); err != nil {
				panic(err) // the records are ours: they are JSON
			}
			return dst
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
	detector.MaxDecodeDepth = 5
	gitleaks := func(r record) []byte {
		out := r.bytes
		for _, f := range detector.DetectString(r.text) {
			out = bytes.ReplaceAll(out, []byte(f.Secret), []byte("[REDACTED:"+f.RuleID+"]"))
		}
		return out
	}
	return []way{{"otel-bridge, secrets and PII", both}, {"otel-bridge, secrets", alone}, {"gitleaks", gitleaks}}, nil
}

// redactions runs the ways over the same records one after the other, on one
// core: over the payloads of a ledger, and over each class of the generated
// corpus.
func (b *bench) redactions(size int64) ([]redactionRow, []redactionClass, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	dir := filepath.Join(b.dir, "ledgers")
	defer os.RemoveAll(dir)
	w, err := workload.Generate(dir, workload.Spec{Version: 2, Bytes: size, Sessions: 1, Seed: 11})
	if err != nil {
		return nil, nil, err
	}
	payloads, err := payloads(w.Files[0])
	if err != nil {
		return nil, nil, err
	}
	ways, err := ways()
	if err != nil {
		return nil, nil, err
	}
	rows := make([]redactionRow, len(ways))
	for i, way := range ways {
		var out []byte
		for _, p := range payloads {
			out = append(out, way.do(p)...)
		}
		rows[i] = redactionRow{Name: way.name, Planted: len(w.Secrets)}
		rows[i].Visible, rows[i].Left = workload.Visible(out, w.Secrets)
	}
	rates, err := b.rates("payloads", ways, payloads)
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		rows[i].MBs = rates[i]
	}
	var classes []redactionClass
	for _, c := range corpus.Classes {
		share := int(size / 20)
		if c == corpus.Mixed {
			share *= 6
		}
		var records []record
		for _, r := range corpus.New(1).Records(c, share) {
			records = append(records, record{r, string(r)})
		}
		rates, err := b.rates(string(c), ways, records)
		if err != nil {
			return nil, nil, err
		}
		classes = append(classes, redactionClass{string(c), rates[0], rates[1], rates[2]})
	}
	return rows, classes, nil
}

// rates gives the ways' MB per second of processor time in the best of the
// interleaved runs, which other work on the machine has disturbed least. A fast
// way reads the records so often that the clock's steps do not matter.
func (b *bench) rates(what string, ways []way, records []record) ([]float64, error) {
	size := 0
	for _, r := range records {
		size += len(r.bytes)
	}
	best := make([]float64, len(ways))
	for run := range b.runs {
		for i, way := range ways {
			const least = 0.1 // seconds
			start, err := cpu()
			if err != nil {
				return nil, err
			}
			used, n := 0.0, 0
			for used < least {
				for _, r := range records {
					way.do(r)
				}
				n++
				now, err := cpu()
				if err != nil {
					return nil, err
				}
				used = now - start
			}
			rate := float64(size*n) / mb / used
			best[i] = max(best[i], rate)
			b.say("redaction, %s, run %d of %d: %s: %.1f MB/s", what, run+1, b.runs, way.name, rate)
		}
	}
	return best, nil
}

// cpu is the processor time that this process has used, in seconds.
func cpu() (float64, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, nil
}

// payloads are the data of a ledger's events.
func payloads(file string) ([]record, error) {
	r, err := jsonl.Open(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []record
	for r.Next() {
		data := bytes.Clone(r.Event().Data)
		out = append(out, record{data, string(data)})
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}
