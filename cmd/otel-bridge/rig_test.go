//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/cli"
	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// rig is the real program, as `run`, over a sessions root and a data directory of
// the test's own, with a receiver that stays when the program is started again.
type rig struct {
	t    *testing.T
	dir  string
	root string
	cfg  string
	got  string // what the receiver has, as lines
	srv  *receiver.Server

	patience time.Duration // of every wait: a hang ends it, no slow machine

	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}

	read int // requests that are in list
	list []received
}

// newRig starts nothing but the receiver. settings are lines of configuration.
func newRig(t *testing.T, settings ...string) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, patience: scriptPatience, dir: dir, root: filepath.Join(dir, "root"), cfg: filepath.Join(dir, "config.yaml"), got: filepath.Join(dir, "got.jsonl")}
	if err := os.MkdirAll(filepath.Join(r.root, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := receiver.OpenFile(r.got)
	if err != nil {
		t.Fatal(err)
	}
	if r.srv, err = receiver.Start(receiver.Options{File: file, Keep: keepRequests}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.kill()
		if err := errors.Join(r.srv.Close(), file.Close()); err != nil {
			t.Error(err)
		}
	})
	r.configure(settings...)
	return r
}

// keepRequests is how many requests a test can look at.
const keepRequests = 1 << 20

func (r *rig) configure(settings ...string) {
	r.t.Helper()
	text := strings.Join(settings, "\n") + "\n"
	for key, value := range map[string]string{
		"mode": "FULL", "sources": fmt.Sprintf("[{ dsh: { path: %q } }]", r.root), "outbox": fmt.Sprintf("{ dir: %q }", r.data()),
		"admin": `{ listen: "127.0.0.1:0" }`, "exporter": fmt.Sprintf("{ endpoint: %q }", r.srv.URL()),
	} {
		if !strings.Contains("\n"+text, "\n"+key+":") {
			text += key + ": " + value + "\n"
		}
	}
	if err := os.WriteFile(r.cfg, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) data() string { return filepath.Join(r.dir, "data") }

// start starts the program and waits until it captures.
func (r *rig) start(wrap ...string) {
	r.t.Helper()
	args := append(wrap, program(r.t), "run", "--config", r.cfg)
	r.cmd = exec.Command(args[0], args[1:]...)
	r.cmd.Env = append(os.Environ(), "HOME="+r.dir)
	r.log = &lockedBuffer{}
	r.cmd.Stderr = r.log
	r.launch()
}

func (r *rig) launch() {
	r.t.Helper()
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	r.done = done
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait() // the exit code is in ProcessState
		close(done)
	}(r.cmd)
	r.awaitLog("msg=started")
}

// program is the path of the real program, which the tests' own binary is.
func program(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("otel-bridge")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// stop ends the program as an operator does.
func (r *rig) stop() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.done:
	case <-time.After(r.patience):
		r.t.Fatalf("the program does not end\n%s", r.log.bytes())
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Fatalf("exit code %d\n%s", code, r.log.bytes())
	}
}

// kill ends it at once, if it runs.
func (r *rig) kill() {
	if r.cmd == nil || r.cmd.Process == nil {
		return
	}
	select {
	case <-r.done:
	default:
		_ = r.cmd.Process.Kill() // it may have ended just now
		<-r.done
	}
}

// poll looks again and again until ok, and says what it waits for otherwise.
func (r *rig) poll(what string, ok func() bool, where ...func() string) {
	r.t.Helper()
	for _, w := range where {
		defer func() {
			if r.t.Failed() {
				r.t.Log(w())
			}
		}()
	}
	for deadline := time.Now().Add(r.patience); !ok(); time.Sleep(10 * time.Millisecond) { // between two looks
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s\nreceived %s\n%s", what, r.summary(), clip(r.log.bytes()))
		}
		select {
		case <-r.done:
			if ok() {
				return
			}
			r.t.Fatalf("the program has ended before: %s\n%s", what, r.log.bytes())
		default:
		}
	}
}

func (r *rig) summary() string {
	var b strings.Builder
	for _, rec := range r.received() {
		if b.Len() > 3000 {
			b.WriteString(" ...")
			break
		}
		if op := rec.Attrs["otel_bridge.op"]; op != nil {
			fmt.Fprintf(&b, " %v(%v)", op, rec.Attrs["session.id"])
		} else {
			fmt.Fprintf(&b, " %v/%v", rec.Attrs["session.id"], rec.Attrs["event.seq"])
		}
	}
	return b.String()
}

func (r *rig) awaitLog(expr string) {
	r.t.Helper()
	re := regexp.MustCompile(expr)
	r.poll("logged "+expr, func() bool { return re.Match(r.log.bytes()) })
}

// page gets a page of the health listener.
func (r *rig) page(path string) string {
	r.t.Helper()
	all := regexp.MustCompile(`msg="health and metrics" address=(\S+)`).FindAllSubmatch(r.log.bytes(), -1)
	if len(all) == 0 {
		r.t.Fatalf("no address\n%s", r.log.bytes())
	}
	m := all[len(all)-1]
	ctx, cancel := context.WithTimeout(r.t.Context(), scriptPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(m[1])+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "" // between two configurations
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(body)
}

// metric is the value of one line of /metrics, name and labels as they stand there.
func (r *rig) metric(name string) (value float64) {
	r.t.Helper()
	for line := range strings.Lines(r.page("/metrics")) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				r.t.Fatal(err)
			}
			return value
		}
	}
	return -1
}

func (r *rig) awaitMetric(name string, value float64) {
	r.t.Helper()
	r.poll(fmt.Sprint(name, " ", value), func() bool { return r.metric(name) == value })
}

// received is everything that the receiver has accepted since the rig began.
func (r *rig) received() []received {
	requests := r.srv.Requests()
	for _, req := range requests[r.read:] {
		for _, rl := range req.Logs.GetResourceLogs() {
			for _, sl := range rl.GetScopeLogs() {
				for _, rec := range sl.GetLogRecords() {
					r.list = append(r.list, received{
						Resource: receiver.PlainMap(rl.Resource.GetAttributes()), Scope: sl.Scope.GetName(),
						Record: rec, Attrs: receiver.PlainMap(rec.Attributes), Body: receiver.Plain(rec.Body),
					})
				}
			}
		}
	}
	r.read = len(requests)
	return r.list
}

// events are the records of a session's events, in the order of their arrival.
func (r *rig) events(session string) (out []received) {
	for _, rec := range r.received() {
		if _, ok := rec.Attrs["event.seq"].(int64); ok && rec.Attrs["session.id"] == session {
			out = append(out, rec)
		}
	}
	return out
}

// seqs are those of the session's records, in order.
func (r *rig) seqs(session string) []int64 {
	out := []int64{}
	for _, rec := range r.events(session) {
		out = append(out, rec.Attrs["event.seq"].(int64))
	}
	slices.Sort(out)
	return out
}

// ops counts the ops records of a kind about a session.
func (r *rig) ops(kind, session string) (n int) {
	for _, rec := range r.received() {
		if rec.Attrs["otel_bridge.op"] == kind && (session == "" || rec.Attrs["session.id"] == session) {
			n++
		}
	}
	return n
}

// awaitEvents waits until the session's events up to seq last are there.
func (r *rig) awaitEvents(session string, last int64) {
	r.t.Helper()
	r.poll(fmt.Sprint("events up to ", last, " of ", session), func() bool {
		return slices.Contains(r.seqs(session), last)
	})
}

// once checks that the session's events 0 to last came, each once.
func (r *rig) once(session string, last int64) {
	r.t.Helper()
	want := []int64{}
	for seq := range last + 1 {
		want = append(want, seq)
	}
	if got := r.seqs(session); !slices.Equal(got, want) {
		r.t.Errorf("session %s: events %v, want 0 to %d, each once", session, got, last)
	}
}

// audit says whether what was received is complete, as `audit` sees it, and checks
// that every record has an identity.
func (r *rig) audit(ledgers ...string) {
	r.t.Helper()
	for _, rec := range r.received() {
		_, event := rec.Attrs["event.seq"]
		if op := rec.Attrs["otel_bridge.op"]; rec.uid() == "" || event == (op != nil) {
			r.t.Fatalf("a record without uid, or with both or none of event.seq and otel_bridge.op: %v", rec.Attrs)
		}
	}
	args := []string{"audit", "--received", r.got, "--config", r.cfg}
	for _, l := range ledgers {
		args = append(args, "--ledger", l)
	}
	if code, out, errs := command(args...); code != 0 {
		r.t.Errorf("audit: exit code %d\n%s%s", code, clip(out), clip(errs))
	} else {
		r.t.Logf("audit: %s", bytes.TrimSpace(out))
	}
}

// command runs a command of the program here.
func command(args ...string) (code int, out, errs []byte) {
	var o, e bytes.Buffer
	code = cli.Run(context.Background(), args, nil, &o, &e, func(string) (string, bool) { return "", false })
	return code, o.Bytes(), e.Bytes()
}

// path is the file of a session in the root.
func (r *rig) path(session string) string {
	return filepath.Join(r.root, "p", session, "session.jsonl")
}

// write appends to a file, which it makes where there is none.
func (r *rig) write(path string, parts ...string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	f := r.open(path)
	for _, p := range parts {
		if _, err := f.WriteString(p); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// open opens a file as its writer has it.
func (r *rig) open(path string) *os.File {
	r.t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (r *rig) truncate(path string, size int) {
	r.t.Helper()
	if err := os.Truncate(path, int64(size)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) rename(from, to string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(from, to); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) file(path string) string {
	r.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// head is a version 0 header line.
func head(session string) string {
	return fmt.Sprintf(`{"type":"session","version":0,"id":%q,"createdAt":1796031738741,"delegationDepth":0}`+"\n", session)
}

// row is an event that any version knows.
func row(seq int, text string) string {
	return fmt.Sprintf(`{"type":"session/title","seq":%d,"time":1796031738742,"data":{"title":%q,"messageSeqs":[],"source":{"kind":"fallback"}}}`+"\n", seq, text)
}

// rows are the events from up to to.
func rows(from, to int) string {
	var b strings.Builder
	for seq := from; seq <= to; seq++ {
		b.WriteString(row(seq, fmt.Sprint("title ", seq)))
	}
	return b.String()
}

// accept is a receiver that behaves.
var accept receiver.Behavior

func receiverBehavior(spec string) (receiver.Behavior, error) { return receiver.ParseBehavior(spec) }
