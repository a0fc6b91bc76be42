package redact_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/zricethezav/gitleaks/v8/config"

	"github.com/otel-bridge/otel-bridge/redact"
)

// The windows in which expressions run are an optimisation: over gitleaks' own
// cases, alone and put together to long texts, nothing else may come out than
// when each expression runs over everything.
func TestWindowsFindWhatWholeTextsFind(t *testing.T) {
	f, err := os.Open(sharedFile(t, "data/redaction/secrets-cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := redact.ParsePolicy("gitleaks", []byte(config.DefaultConfig))
	if err != nil {
		t.Fatal(err)
	}
	o := redact.Options{Policies: []*redact.Policy{p}}
	fast, err := redact.New(o)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := redact.NewUnanchored(o)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for n := 0; sc.Scan(); n++ {
		var c struct{ Text string }
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, c.Text)
	}
	var long []string
	for i := 0; i+40 <= len(texts); i += 40 {
		long = append(long, strings.Join(texts[i:i+40], "\nfiller \u00e9 line between\n"))
	}
	step := 1
	if sampled() {
		step = 20
	}
	for i := 0; i < len(texts); i += 3 * step {
		compareEngines(t, fast, slow, texts[i])
	}
	for i := 0; i < len(long); i += 4 * step {
		compareEngines(t, fast, slow, long[i])
	}
}

func compareEngines(t *testing.T, fast, slow *redact.Engine, s string) {
	t.Helper()
	a, _, errA := fast.Text(nil, s)
	b, _, errB := slow.Text(nil, s)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("windows differ on %.200q:\n%.500q\n%.500q", s, a, b)
	}
}
