package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/cli"
)

// inExamples is a file below examples/.
func inExamples(name ...string) string {
	return filepath.Join(append([]string{"..", "..", "examples"}, name...)...)
}

// runQuietly runs the program in this process with an environment of its own.
func runQuietly(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	code = cli.Run(context.Background(), args, bytes.NewReader(nil), &out, &errs, lookup)
	return code, out.String(), errs.String()
}

func TestPackagedConfigurationsAreValid(t *testing.T) {
	for _, tc := range []struct {
		file string
		env  map[string]string
	}{
		// systemd and the image set STATE_DIRECTORY.
		{inExamples("sidecar.yaml"), map[string]string{"STATE_DIRECTORY": filepath.Join(t.TempDir(), "state"), "DSH_HOME": t.TempDir()}},
		{inExamples("kubernetes", "base", "otel-bridge.yaml"), map[string]string{
			"OTLP_ENDPOINT": "https://collector.example.com/v1/logs", "OTLP_TOKEN": "not-a-token",
		}},
	} {
		t.Run(filepath.Base(filepath.Dir(tc.file))+"/"+filepath.Base(tc.file), func(t *testing.T) {
			code, out, errs := runQuietly(t, tc.env, "validate", "--offline", "--config", tc.file)
			if code != 0 || out != "ok\n" {
				t.Errorf("exit code %d: %s%s", code, out, errs)
			}
		})
	}
}

func TestPodWithoutItsSecretIsRefusedByName(t *testing.T) {
	code, _, errs := runQuietly(t, nil, "validate", "--offline", "--config", inExamples("kubernetes", "base", "otel-bridge.yaml"))
	if code != 78 {
		t.Errorf("exit code %d, want 78", code)
	}
	for _, name := range []string{"OTLP_ENDPOINT", "OTLP_TOKEN"} {
		if !strings.Contains(errs, name) {
			t.Errorf("%s is not named: %s", name, errs)
		}
	}
}

func TestCompletionsAreScriptsOfTheirShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			code, out, errs := runQuietly(t, nil, "completion", shell)
			if code != 0 || !strings.Contains(out, "otel-bridge") {
				t.Fatalf("exit code %d, %d bytes: %s", code, len(out), errs)
			}
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(shell + " is not installed to read it")
			}
			script := filepath.Join(t.TempDir(), "completion")
			if err := os.WriteFile(script, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
			if text, err := exec.Command(path, "-n", script).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}
