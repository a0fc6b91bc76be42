package redact_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

// sharedFile finds a file of the data that lies beside the module, or skips.
func sharedFile(t testing.TB, path string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Skip("not in a module")
		}
		dir = up
	}
	p := filepath.Join(dir, "..", "shared", path)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("the shared data is not beside the module: %s", path)
	}
	return p
}

// bothSets are the built-in policies.
func bothSets() []*redact.Policy { return []*redact.Policy{secrets.Policy(), pii.Policy()} }

func builtin(t testing.TB) *redact.Engine {
	t.Helper()
	e, err := redact.New(redact.Options{Policies: bothSets()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sampled says that a test takes a sample of its corpus.
func sampled() bool { return testing.Short() || raceDetector }
