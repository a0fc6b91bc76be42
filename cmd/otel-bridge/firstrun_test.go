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
// for clone and build, and for the ports, which may be taken here. Once with the
// examples, once as one who has sessions and leaves step 2 out.
func TestFirstRunPageDoesWhatItSays(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "first-run.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("examples", func(t *testing.T) {
		firstRun(t, string(page), t.TempDir(), `(?m)^complete: 7 sessions, 215 records .* 602 events attested`)
	})
	t.Run("own sessions", func(t *testing.T) {
		before, rest, ok := strings.Cut(string(page), "**2. ")
		_, after, ok2 := strings.Cut(rest, "**3. ")
		if !ok || !ok2 {
			t.Fatal("the page has no steps 2 and 3")
		}
		home := t.TempDir()
		text, err := os.ReadFile(filepath.Join(inExamples(), "sessions", "lab-multiturn.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		session := filepath.Join(home, ".dsh", "sessions", "--p--", "s")
		if err := os.MkdirAll(session, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(session, "session.jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		firstRun(t, before+after, home, `(?m)^complete: 1 sessions, \d+ records`)
	})
}

// firstRun runs the commands of a page in a directory that is also the home.
func firstRun(t *testing.T, page, dir, complete string) {
	var script strings.Builder
	script.WriteString("set -e\ntrap 'kill $sink $bridge 2>/dev/null || :' EXIT\n")
	for line := range strings.Lines(page) {
		command, ok := strings.CutPrefix(line, "    ")
		if ok && !strings.HasPrefix(command, "git clone ") && !strings.HasPrefix(command, "go build ") {
			script.WriteString(command)
		}
	}
	text := strings.NewReplacer("127.0.0.1:4318", freePort(t), "127.0.0.1:8321", freePort(t)).Replace(script.String())

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
		complete, `unpinned`, `"resourceLogs"`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
