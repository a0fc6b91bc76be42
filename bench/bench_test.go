package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/bench/workload"
)

func TestMediansAreTakenFigureByFigureAndLossesAtTheirWorst(t *testing.T) {
	m := medians([]figures{
		{LedgerMBs: 10, CPUPerGB: 3, Lost: 0, Events: 7},
		{LedgerMBs: 30, CPUPerGB: 1, Lost: 5, Events: 2, Duplicates: 1},
		{LedgerMBs: 20, CPUPerGB: 2, Lost: 0, Events: 7},
	})
	if m.LedgerMBs != 20 || m.CPUPerGB != 2 || m.Lost != 5 || m.Events != 2 || m.Duplicates != 1 {
		t.Errorf("%+v", m)
	}
}

func TestQuickOutputHoldsTheThreeRatios(t *testing.T) {
	r := report{
		Comparisons: []comparison{{Name: nameCollector, Results: map[string]figures{
			"otel-bridge": {BodyMBs: 30, LedgerMBs: 40, CPUPerGB: 2}, "Collector": {BodyMBs: 10, LedgerMBs: 10, CPUPerGB: 3}, "bare sender": {BodyMBs: 105}}}},
		Redaction: []redactionRow{{MBs: 50}, {MBs: 60}, {MBs: 10}},
		Classes:   []redactionClass{{Class: "code", Both: 1, SecretsOnly: 1, Gitleaks: 1}, {Class: "mixed", Both: 90, SecretsOnly: 120, Gitleaks: 1.2}},
		Outbox:    []outboxRow{{Batch: 64, Commit: 9}, {Batch: 512, Commit: 40}, {Batch: 512, Commit: 10}, {Batch: 512, Commit: 80}},
	}
	r.sum()
	var out bytes.Buffer
	if err := r.json(&out, true); err != nil {
		t.Fatal(err)
	}
	var got map[string]float64
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"collector_ratio": 3, "collector_ledger_ratio": 4, "collector_cpu_ratio": 1.5, "bare_to_collector_ratio": 10.5, "gitleaks_ratio": 75, "gitleaks_secrets_ratio": 100, "gitleaks_payload_ratio": 5, "outbox_ratio_512": 4, "outbox_bare_ratio_512": 0.5}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %v, want %v", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}

func TestPlantedSecretsAreFoundWhereTheyStand(t *testing.T) {
	w, err := workload.Generate(t.TempDir(), workload.Spec{Version: 2, Bytes: 1_000_000, Sessions: 1, Seed: 9, SecretEvery: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for i, s := range w.Secrets {
		if i%2 == 0 {
			text.WriteString("x" + s.Value + s.Value + " ")
		} else {
			text.WriteString(s.Value[:len(s.Value)-1] + "\n")
		}
	}
	if n, _ := workload.Visible([]byte(text.String()), w.Secrets); n != (len(w.Secrets)+1)/2 {
		t.Errorf("%d found of %d that are there", n, (len(w.Secrets)+1)/2)
	}
}

func TestPartsThatDoNotExistAreRefused(t *testing.T) {
	if err := measure(t.Context(), []string{"--only", "collector,bogus"}); err == nil || !strings.Contains(err.Error(), "bogus") {
		t.Errorf("%v", err)
	}
}
