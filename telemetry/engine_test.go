package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

var defaultEngine = sync.OnceValue(func() *redact.Engine {
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy()}})
	if err != nil {
		panic(err)
	}
	return e
})

func defaultRedaction() *Redaction {
	return NewRedaction(NewEngine(defaultEngine()), testInstallation.Key)
}

// planted are the secrets that the default policies must remove.
func planted(t testing.TB) []string {
	t.Helper()
	f, err := os.Open(shared(t, "dsh/planted.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var p struct {
			Value   string
			Default bool
		}
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if p.Default {
			out = append(out, p.Value)
		}
	}
	return out
}

// texts are the strings of a value, the texts of each array joined included.
func texts(v attribute.Value, add func(string)) {
	switch v.Type() {
	case attribute.STRING:
		add(v.AsString())
	case attribute.MAP:
		for _, kv := range v.AsMap() {
			add(string(kv.Key))
			texts(kv.Value, add)
		}
	case attribute.SLICE:
		var joined strings.Builder
		for _, m := range v.AsSlice() {
			texts(m, func(s string) { joined.WriteString(s); add(s) })
		}
		add(joined.String())
	}
}

func TestNoPlantedSecretLeavesAnyRecordedSession(t *testing.T) {
	secrets := planted(t)
	for _, path := range []string{"dsh/v0/lab-secrets.jsonl", "dsh/v0/lab-secrets.jsonl.zstd", "dsh/v1/lab-secrets.jsonl",
		"dsh/v2/lab-secrets.jsonl", "dsh/v3/lab-secrets.jsonl", "dsh/v4/lab-secrets.jsonl", "dsh/v0/lab-multiturn.jsonl"} {
		t.Run(path, func(t *testing.T) {
			o := newModelOutbox()
			c := testCapture(t, o, func(c *Config) {
				c.Redaction = defaultRedaction()
				c.Resource = NewResource("", attribute.String("host.name", "demo"))
			})
			p := pull(t, c.Session(FinishedFile(shared(t, path), nil), SessionOptions{}))
			reconciles(t, p.Outcomes)
			if p.Outcomes.Withheld != 0 {
				t.Errorf("%d withheld", p.Outcomes.Withheld)
			}
			var all []string
			for _, r := range o.records(t) {
				body, err := BodyValue(r.Body)
				if err != nil {
					t.Fatal(err)
				}
				texts(body, func(s string) { all = append(all, s) })
				for _, kv := range r.AllAttributes() {
					texts(kv.Value, func(s string) { all = append(all, s) })
				}
			}
			stored := func() []byte {
				var b bytes.Buffer
				for _, e := range o.entries {
					b.Write(e.Payload)
					b.Write(e.Key)
				}
				for k, v := range o.cursors {
					b.WriteString(k)
					b.Write(v)
				}
				return b.Bytes()
			}()
			for _, secret := range secrets {
				for _, form := range []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))} {
					if bytes.Contains(stored, []byte(form)) {
						t.Errorf("the outbox holds a planted secret")
					}
					for _, s := range all {
						if strings.Contains(s, form) {
							t.Errorf("a record holds a planted secret")
							break
						}
					}
				}
			}
			if !strings.Contains(strings.Join(all, "\n"), "[REDACTED:") {
				t.Error("nothing was redacted")
			}
		})
	}
}

func TestWhatRedactionGivesStaysUnderASecondPass(t *testing.T) {
	o := newModelOutbox()
	c := testCapture(t, o, func(c *Config) { c.Redaction = defaultRedaction() })
	pull(t, c.Session(FinishedFile(shared(t, "dsh/v0/lab-secrets.jsonl"), nil), SessionOptions{}))
	again := defaultRedaction()
	for _, r := range o.records(t) {
		r.Policy = "an older one"
		out := again.Again(&r)
		if !bytes.Equal(out.Body, r.Body) || out.Identity != r.Identity || out.Withheld != r.Withheld {
			t.Errorf("seq %d %s changed under the same rules", r.Identity.Seq, r.Type)
		}
	}
}

func benchmarkCapture(b *testing.B, path string, change func(*Config)) {
	full := shared(b, path)
	info, err := os.Stat(full)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	records := 0
	for b.Loop() {
		o := newModelOutbox()
		cfg := Config{Outbox: o, Mode: Full, Installation: testInstallation, Now: func() time.Time { return time.UnixMilli(5000) }}
		if change != nil {
			change(&cfg)
		}
		c, err := NewCapture(cfg)
		if err != nil {
			b.Fatal(err)
		}
		p, err := c.Session(FinishedFile(full, nil), SessionOptions{}).Pull(context.Background(), 0)
		if err != nil {
			b.Fatal(err)
		}
		records += p.Records
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkCapture reads, judges, folds, projects, encodes and commits to
// memory; with "default" redaction by the built-in rules comes on top.
func BenchmarkCapture(b *testing.B) {
	for _, path := range []string{"dsh/v0/read-multi-step.jsonl", "dsh/v0/lab-bigoutput.jsonl", "dsh/v2/lab-secrets.jsonl", "dsh/v4/lab-multiturn.jsonl"} {
		b.Run(path+"/none", func(b *testing.B) { benchmarkCapture(b, path, nil) })
		b.Run(path+"/default", func(b *testing.B) {
			red := defaultRedaction()
			benchmarkCapture(b, path, func(c *Config) { c.Redaction = red })
		})
		b.Run(path+"/attested", func(b *testing.B) { benchmarkCapture(b, path, func(c *Config) { c.Attest = true }) })
	}
}
