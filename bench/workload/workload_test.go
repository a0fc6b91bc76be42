package workload_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/otel-bridge/otel-bridge/bench/workload"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

var specs = []workload.Spec{
	{Version: 0, Bytes: 3_000_000, Sessions: 1, Seed: 1},
	{Version: 0, Zstd: true, Bytes: 3_000_000, Sessions: 3, Seed: 2},
	{Version: 2, Bytes: 3_000_000, Sessions: 1, Seed: 3},
	{Version: 2, Zstd: true, Bytes: 3_000_000, Sessions: 20, Seed: 4},
}

func TestLedgersPassTheStrictVerify(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "otel-bridge")
	build := exec.Command("go", "build", "-o", bin, "./cmd/otel-bridge")
	build.Dir = "../.." // the root module, with its own versions
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, s := range specs {
		t.Run(s.String(), func(t *testing.T) {
			dir := t.TempDir()
			if _, err := workload.Generate(dir, s); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(bin, "verify", "--strict", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%.2000s", err, out)
			}
		})
	}
}

func TestCountsAreThoseOfTheReader(t *testing.T) {
	for _, s := range specs {
		t.Run(s.String(), func(t *testing.T) {
			w, err := workload.Generate(t.TempDir(), s)
			if err != nil {
				t.Fatal(err)
			}
			if w.LedgerBytes < s.Bytes || len(w.Secrets) < 20 {
				t.Errorf("%d bytes, %d secrets", w.LedgerBytes, len(w.Secrets))
			}
			var events int64
			for _, f := range w.Files {
				r, err := jsonl.Open(f)
				if err != nil {
					t.Fatal(err)
				}
				for r.Next() {
					events++
				}
				if err := r.Err(); err != nil {
					t.Fatal(err)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if events != w.Events {
				t.Errorf("the reader sees %d events, %d were told", events, w.Events)
			}
		})
	}
}

func TestOneSpecGivesTheSameBytes(t *testing.T) {
	for _, s := range specs {
		var first []byte
		for range 2 {
			w, err := workload.Generate(t.TempDir(), s)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(w.Files[0])
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = data
			} else if !bytes.Equal(first, data) {
				t.Errorf("%s: two runs differ", s)
			}
		}
	}
}
