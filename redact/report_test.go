package redact_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
)

// Findings have as many of each rule as Counts, however many paths there are.
func TestFindingsCountByRuleBeyondTheirBound(t *testing.T) {
	record := map[string]string{}
	for i := range 400 {
		record[fmt.Sprint("k", i)] = "jane@example.com"
		if i%4 == 0 {
			record[fmt.Sprint("k", i, "card")] = "4111 1111 1111 1111"
		}
	}
	src, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{pii.Policy()}})
	if err != nil {
		t.Fatal(err)
	}
	_, rep, err := e.JSON(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range rep.Findings {
		got[f.Rule] += f.Count
	}
	if got["pii-email"] != 400 || got["pii-card"] != 100 || len(rep.Findings) > 300 {
		t.Errorf("%v of %v, %d findings", got, rep.Counts, len(rep.Findings))
	}
}
