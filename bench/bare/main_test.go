package main

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/otel-bridge/otel-bridge/bench/receiver"
	"github.com/otel-bridge/otel-bridge/bench/workload"
)

func TestEveryEventArrivesOnce(t *testing.T) {
	dir := t.TempDir()
	w, err := workload.Generate(dir, workload.Spec{Version: 2, Bytes: 2_000_000, Sessions: 3, Seed: 11})
	if err != nil {
		t.Fatal(err)
	}
	for _, compress := range []bool{false, true} {
		far := httptest.NewServer(receiver.New())
		defer far.Close()
		if err := carry(dir, far.URL+"/v1/logs", compress); err != nil {
			t.Fatal(err)
		}
		resp, err := far.Client().Get(far.URL + "/stats")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var s receiver.Stats
		if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
			t.Fatal(err)
		}
		if s.Distinct != w.Records || s.Duplicates != 0 || s.Malformed != 0 {
			t.Errorf("compress %v: %+v of %d events", compress, s, w.Records)
		}
		if compress == (s.WireBytes == s.PlainBytes) {
			t.Errorf("compress %v: %d bytes of %d went over the wire", compress, s.WireBytes, s.PlainBytes)
		}
	}
}

func TestARefusalIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := workload.Generate(dir, workload.Spec{Version: 2, Bytes: 100_000, Sessions: 3, Seed: 11}); err != nil {
		t.Fatal(err)
	}
	far := httptest.NewServer(nil) // answers 404
	defer far.Close()
	if err := carry(dir, far.URL+"/v1/logs", false); err == nil {
		t.Error("no error")
	}
}
