//go:build unix

package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// freePort is an address on loopback that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// docs/first-run.md does what it says: its commands are run as they stand, but
// for clone and build, and for the ports, which may be taken here.
func TestFirstRunPageDoesWhatItSays(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "first-run.md"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -e\ntrap 'kill $sink $bridge 2>/dev/null || :' EXIT\n")
	for line := range strings.Lines(string(page)) {
		command, ok := strings.CutPrefix(line, "    ")
		if ok && !strings.HasPrefix(command, "git clone ") && !strings.HasPrefix(command, "go build ") {
			script.WriteString(command)
		}
	}
	text := strings.NewReplacer("127.0.0.1:4318", freePort(t), "127.0.0.1:8321", freePort(t)).Replace(script.String())

	dir := t.TempDir()
	examples, err := filepath.Abs(inExamples())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program(t), filepath.Join(dir, "otel-bridge")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scriptPatience)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-c", text)
	sh.Dir, sh.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	sh.Cancel = func() error { return sh.Process.Signal(os.Interrupt) }
	sh.WaitDelay = 10 * time.Second
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		// What status tells is of that moment; in the end it is all there.
		`(?m)^ok$`, `(?m)^mode FULL`, `(?m)^\d+ events read: \d+ exported`, `msg=stopped remaining=0`,
		`(?m)^complete: 7 sessions, 215 records .* 602 events attested`, `unpinned`, `"resourceLogs"`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
