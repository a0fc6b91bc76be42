package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"otel-bridge": func() { os.Exit(cli.Main()) },
	})
}

// TestScripts runs every testdata/script file against the real program. What
// the extra commands do stands beside them below.
func TestScripts(t *testing.T) {
	shared, haveShared := sharedDir()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("SHARED", shared)
			examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
			if err != nil {
				return err
			}
			env.Setenv("EXAMPLES", examples)
			procs := &processes{m: map[string]*process{}}
			env.Values[processesKey{}] = procs
			env.Defer(procs.killAll)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "shared" {
				return haveShared, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":       cmdExits,
			"start":       cmdStart,
			"await":       cmdAwait,
			"capture":     cmdCapture,
			"signal":      cmdSignal,
			"reap":        cmdReap,
			"fetch":       cmdFetch,
			"nosecrets":   cmdNoSecrets,
			"lines":       cmdLines,
			"awaitmetric": cmdAwaitMetric,
			"samerecords": cmdSameRecords,
			"tamper":      cmdTamper,
		},
	})
}

// sharedDir is the folder of facts beside the module, where there is one.
func sharedDir() (string, bool) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "shared"))
	if err != nil {
		return "", false
	}
	_, err = os.Stat(filepath.Join(dir, "data", "dsh", "planted.jsonl"))
	return dir, err == nil
}

// scriptPatience bounds every wait of a script; a wait ends when what it waits
// for has happened.
const scriptPatience = 60 * time.Second

// exits CODE PROGRAM ARGS... runs a program and checks its exit code. Its
// output is in the files out and err afterwards.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	p := newProcess(ts, args[1:])
	ts.Check(p.start())
	code := p.wait(ts)
	ts.Check(os.WriteFile(ts.MkAbs("out"), p.out.bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), p.err.bytes(), 0o600))
	ts.Logf("[stdout]\n%s[stderr]\n%s", clip(p.out.bytes()), clip(p.err.bytes()))
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func clip(b []byte) []byte {
	const most = 4 << 10
	if len(b) > most {
		return append(b[:most:most], "...\n"...)
	}
	return b
}

// start NAME PROGRAM ARGS... starts a program in the background.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start name program args...")
	}
	p := newProcess(ts, args[1:])
	ts.Check(p.start())
	procs(ts).put(args[0], p)
}

// await NAME REGEXP waits until the program has written it to stdout or
// stderr. await FILE REGEXP does so for a file.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await name|file regexp")
	}
	match(ts, args[0], args[1])
}

// capture NAME REGEXP VARIABLE is await, and puts the first group in a variable.
func cmdCapture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: capture name|file regexp variable")
	}
	ts.Setenv(args[2], string(match(ts, args[0], args[1])[1]))
}

func match(ts *testscript.TestScript, name, expr string) [][]byte {
	re, err := regexp.Compile("(?m)" + expr)
	ts.Check(err)
	p := procs(ts).get(name)
	read := func() []byte {
		if p != nil {
			return append(p.err.bytes(), p.out.bytes()...)
		}
		b, err := os.ReadFile(ts.MkAbs(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		return b
	}
	for deadline := time.Now().Add(scriptPatience); ; {
		if m := re.FindSubmatch(read()); m != nil {
			return m
		}
		ended := false
		if p != nil {
			select {
			case <-p.done:
				ended = true
			case <-time.After(10 * time.Millisecond):
			}
		} else {
			time.Sleep(10 * time.Millisecond) // between two looks at a file
		}
		if m := re.FindSubmatch(read()); m != nil {
			return m
		}
		if ended || time.Now().After(deadline) {
			ts.Fatalf("%s never wrote %s; it wrote\n%s", name, expr, clip(read()))
		}
	}
}

// signal NAME SIGNAL sends KILL, TERM, INT or HUP.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	sig, ok := map[string]os.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}[args[len(args)-1]]
	if neg || len(args) != 2 || !ok {
		ts.Fatalf("usage: signal name KILL|TERM|INT|HUP")
	}
	ts.Check(procs(ts).must(ts, args[0]).cmd.Process.Signal(sig))
}

// reap NAME CODE waits for a started program's end; CODE -1 is a signal's. Its
// output is in the files NAME.stdout and NAME.stderr afterwards.
func cmdReap(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: reap name code")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	p := procs(ts).must(ts, args[0])
	code := p.wait(ts)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".stdout"), p.out.bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".stderr"), p.err.bytes(), 0o600))
	ts.Logf("[%s stdout]\n%s[%s stderr]\n%s", args[0], clip(p.out.bytes()), args[0], clip(p.err.bytes()))
	if code != want {
		ts.Fatalf("%s: exit code %d, want %d", args[0], code, want)
	}
}

// fetch URL FILE [STATUS] gets a page of the program's and checks the status.
func cmdFetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: fetch url file [status]")
	}
	want := "200"
	if len(args) == 3 {
		want = args[2]
	}
	c := http.Client{Timeout: scriptPatience}
	resp, err := c.Get(args[0])
	ts.Check(err)
	body, err := io.ReadAll(resp.Body)
	ts.Check(errors.Join(err, resp.Body.Close()))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), body, 0o600))
	if got := strconv.Itoa(resp.StatusCode); got != want {
		ts.Fatalf("%s answered %s, want %s: %s", args[0], got, want, clip(body))
	}
}

// awaitmetric URL REGEXP gets a page again and again until a line of it matches.
func cmdAwaitMetric(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: awaitmetric url regexp")
	}
	re, err := regexp.Compile("(?m)^" + args[1] + "$")
	ts.Check(err)
	c := http.Client{Timeout: scriptPatience}
	for deadline := time.Now().Add(scriptPatience); ; time.Sleep(20 * time.Millisecond) { // between two looks
		resp, err := c.Get(args[0])
		ts.Check(err)
		body, err := io.ReadAll(resp.Body)
		ts.Check(errors.Join(err, resp.Body.Close()))
		if re.Match(body) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("never matched %s:\n%s", args[1], clip(body))
		}
	}
}

// lines FILE N checks how many lines a file has.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines file n")
	}
	text, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := strconv.Itoa(bytes.Count(text, []byte("\n"))); got != args[1] {
		ts.Fatalf("%s has %s lines, want %s", args[0], got, args[1])
	}
}

type processesKey struct{}

type processes struct {
	mu sync.Mutex
	m  map[string]*process
}

func procs(ts *testscript.TestScript) *processes {
	return ts.Value(processesKey{}).(*processes)
}

func (ps *processes) put(name string, p *process) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.m[name] = p
}

func (ps *processes) get(name string) *process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.m[name]
}

func (ps *processes) must(ts *testscript.TestScript, name string) *process {
	p := ps.get(name)
	if p == nil {
		ts.Fatalf("nothing called %s was started", name)
	}
	return p
}

func (ps *processes) killAll() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.m {
		select {
		case <-p.done:
		default:
			_ = p.cmd.Process.Kill() // it may have ended just now
			<-p.done
		}
	}
}

type process struct {
	cmd      *exec.Cmd
	out, err lockedBuffer
	done     chan struct{}
}

func newProcess(ts *testscript.TestScript, args []string) *process {
	program := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, program); isExecutable(path) {
			program = path
			break
		}
	}
	p := &process{cmd: exec.Command(program, args[1:]...), done: make(chan struct{})}
	p.cmd.Dir = ts.MkAbs(".")
	p.cmd.Env = scriptEnv(ts)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	return p
}

// scriptEnv is the script's environment: testscript gives it variable by
// variable only.
func scriptEnv(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "WORK", "GOCOVERDIR", "TESTSCRIPT_COMMAND", "DSH_HOME", "XDG_STATE_HOME", "STATE_DIRECTORY"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	for _, name := range strings.Fields(ts.Getenv("EXPORT")) {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

func isExecutable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && !st.IsDir() && st.Mode()&0o111 != 0
}

func (p *process) start() error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is in ProcessState
		close(p.done)
	}()
	return nil
}

func (p *process) wait(ts *testscript.TestScript) int {
	select {
	case <-p.done:
	case <-time.After(scriptPatience):
		_ = p.cmd.Process.Kill()
		<-p.done
		ts.Fatalf("%v did not end in %v; stderr:\n%s", p.cmd.Args, scriptPatience, clip(p.err.bytes()))
	}
	return p.cmd.ProcessState.ExitCode()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b.Bytes())
}
