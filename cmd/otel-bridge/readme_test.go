package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/cli"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runReadme runs a command line without an environment of the machine's.
func runReadme(t *testing.T, env map[string]string, args ...string) (code int, out string) {
	t.Helper()
	var both bytes.Buffer
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	code = cli.Run(context.Background(), args, strings.NewReader(""), &both, &both, lookup)
	return code, both.String()
}

func TestReadmeCommandsAndFlagsExist(t *testing.T) {
	// Commands to copy are indented and start with the binary that the page builds.
	text := strings.ReplaceAll(readme(t), "\\\n", " ")
	commands := regexp.MustCompile(`(?m)^ {4}(\S*otel-bridge) (.*)$`).FindAllStringSubmatch(text, -1)
	seen := 0
	for _, c := range commands {
		program, words := c[1], strings.Fields(c[2])
		if program != "./otel-bridge" {
			t.Errorf("%q is not what the page has built", program)
		}
		code, help := runReadme(t, nil, words[0], "--help")
		if code != 0 {
			t.Errorf("%s: %s", words[0], help)
		}
		for _, w := range words {
			if strings.HasPrefix(w, "--") && !strings.Contains(help, w+" ") {
				t.Errorf("%s has no %s", words[0], w)
			}
		}
		seen++
	}
	if seen < 4 {
		t.Errorf("%d commands found", seen)
	}
}

func TestReadmeConfigurationIsOne(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	if len(blocks) == 0 {
		t.Fatal("no configuration found")
	}
	for _, b := range blocks {
		file := filepath.Join(t.TempDir(), "otel-bridge.yaml")
		if err := os.WriteFile(file, []byte(b[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		env := map[string]string{"OTLP_TOKEN": "x", "STATE_DIRECTORY": filepath.Join(t.TempDir(), "data")}
		if code, out := runReadme(t, env, "validate", "--offline", "--config", file); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
}
