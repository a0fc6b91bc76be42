package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// sealed is a data directory with one captured session of n titles.
func sealed(t *testing.T, n int) (*outbox.Outbox, *sealing, telemetry.Source, *telemetry.Capture) {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString(`{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}` + "\n")
	for i := range n {
		fmt.Fprintf(&b, `{"type":"session/title","seq":%d,"time":1,"data":{"title":"t%d","messageSeqs":[],"source":{"kind":"fallback"}}}`+"\n", i, i)
	}
	path := filepath.Join(dir, "s.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ob, err := outbox.Open(filepath.Join(dir, "data"), outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ob.Close() })
	c, err := telemetry.NewCapture(telemetry.Config{Outbox: ob, Mode: telemetry.Full, Installation: telemetry.NewInstallation(), Attest: true})
	if err != nil {
		t.Fatal(err)
	}
	return ob, &sealing{outbox: ob, sealer: c.NewSealer(ob), log: slog.New(slog.DiscardHandler)}, telemetry.FinishedFile(path, nil), c
}

func captureAll(t *testing.T, c *telemetry.Capture, src telemetry.Source) {
	t.Helper()
	s := c.Session(src, telemetry.SessionOptions{})
	defer s.Close()
	if _, err := s.Pull(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func opOf(t *testing.T, e outbox.Leased) (string, telemetry.Record) {
	t.Helper()
	r, err := telemetry.DecodeRecord(e.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return r.Op, r
}

func TestDraftsAreNeverHandedOutAndSealedWhenWhatTheySpeakOfIsSettled(t *testing.T) {
	ob, src, ledger, c := sealed(t, 5)
	captureAll(t, c, ledger)
	lease, err := src.TryLease(outbox.Limits{})
	if err != nil || len(lease.Entries()) != 6 { // session.opened and five events
		t.Fatalf("%v, %v", lease, err)
	}
	for _, e := range lease.Entries() {
		if telemetry.IsDraft(e.Key) {
			t.Error("a draft was handed out")
		}
	}
	// All but one are settled: the draft stays.
	entries := lease.Entries()
	for _, e := range entries[:5] {
		if err := lease.Ack(e.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := lease.Close(); err != nil {
		t.Fatal(err)
	}
	lease, err = src.TryLease(outbox.Limits{})
	if err != nil || len(lease.Entries()) != 1 || lease.Entries()[0].ID != entries[5].ID {
		t.Fatalf("%v, %v", lease, err)
	}
	// The last one is refused. The summary says so, and is what comes next.
	if err := lease.Quarantine(outbox.Refused{ID: entries[5].ID, Reason: "refused", Outcome: outbox.OutcomeRefused}); err != nil {
		t.Fatal(err)
	}
	if err := lease.Close(); err != nil {
		t.Fatal(err)
	}
	lease, err = src.TryLease(outbox.Limits{})
	if err != nil || lease == nil || len(lease.Entries()) != 1 {
		t.Fatalf("%v, %v", lease, err)
	}
	op, r := opOf(t, lease.Entries()[0])
	var sum telemetry.Summary
	if err := json.Unmarshal(r.Body, &sum); err != nil || op != telemetry.OpSummary || sum.Signature == "" {
		t.Fatalf("%s %s %v", op, r.Body, err)
	}
	if got := fmt.Sprintf("%s %d %s %d %d", sum.Runs[0].Outcome, sum.Runs[0].To, sum.Runs[1].Outcome, sum.Runs[1].From, len(sum.Runs)); got != "delivered 3 quarantined 4 2" {
		t.Errorf("%s", got)
	}
	if err := lease.Ack(lease.Entries()[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := lease.Close(); err != nil {
		t.Fatal(err)
	}
	if s := ob.Stats(); s.Pending != 0 || s.Acked != 7 || s.Quarantined != 1 || src.sealer.Sealed() != 1 || src.ops.Load() != 2 {
		t.Errorf("%+v, %d sealed, %d ops", s, src.sealer.Sealed(), src.ops.Load())
	}
}

func TestLeaseOfNothingButDraftsBecomesTheirSummaries(t *testing.T) {
	_, src, ledger, c := sealed(t, 700)
	captureAll(t, c, ledger)
	summaries := 0
	for range 2000 {
		lease, err := src.TryLease(outbox.Limits{Records: 1})
		if err != nil {
			t.Fatal(err)
		}
		if lease == nil {
			break
		}
		for _, e := range lease.Entries() {
			if op, _ := opOf(t, e); op == telemetry.OpSummary {
				summaries++
			}
			if err := lease.Ack(e.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := lease.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if summaries != 3 || src.Pending() != 0 {
		t.Errorf("%d summaries, %d pending", summaries, src.Pending())
	}
}
