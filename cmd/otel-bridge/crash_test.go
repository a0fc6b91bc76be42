//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// killsEnv sets how often TestKillsLoseNothing kills the program: 1000 for the
// figures in docs/reliability.md.
const killsEnv = "OTEL_BRIDGE_TEST_KILLS"

const (
	crashWorkers  = 2
	crashBatch    = 16
	exportWorkers = 4 // its default
)

// crashRig is one data directory and the sessions that flow through it, over
// many lives of the program. Each life has a receiver of its own, so that it is
// known what was in flight when it ended.
type crashRig struct {
	t    *testing.T
	dir  string
	bin  string
	cfg  string
	rand *rand.Rand

	ledgers []*os.File // those that grow
	rows    map[string]int
	poison  int

	exports []string

	life    int
	workers map[int]int        // by life: requests at the same time
	got     map[string]arrival // by session and seq
	again   int                // records that came more than once
	// repeated counts by life the acknowledged requests some record of which
	// came again.
	repeated map[int]map[int]bool
}

// arrival is where a record came first.
type arrival struct {
	life, request int
	lost          bool // the answer was
}

func newCrashRig(t *testing.T, tags string) *crashRig {
	t.Helper()
	r := &crashRig{
		t: t, dir: t.TempDir(), bin: buildProgram(t, tags), rand: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)),
		rows: map[string]int{}, workers: map[int]int{}, got: map[string]arrival{}, repeated: map[int]map[int]bool{},
	}
	r.cfg = filepath.Join(r.dir, "config.yaml")
	text := fmt.Sprintf(`mode: FULL
sources: [{ dsh: { path: ./root } }]
outbox: { dir: ./data, max_size: 4MiB }
admin: { listen: "" }
exporter: { endpoint: "${env:CRASH_ENDPOINT}", workers: %d, max_batch: { records: %d } }
`, crashWorkers, crashBatch)
	if err := os.WriteFile(r.cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.closeLedgers)
	r.newSessions()
	return r
}

// buildProgram builds the program as it is shipped, or with failpoints.
func buildProgram(t *testing.T, tags string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "otel-bridge")
	if out, err := exec.Command("go", "build", "-tags", tags, "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

func (r *crashRig) closeLedgers() {
	for _, f := range r.ledgers {
		_ = f.Close()
	}
	r.ledgers = nil
}

// newSessions begins three sessions in place of those that grew so far.
func (r *crashRig) newSessions() {
	r.closeLedgers()
	for range 3 {
		r.ledgers = append(r.ledgers, r.newLedger("root"))
	}
}

func (r *crashRig) newLedger(under string) *os.File {
	r.t.Helper()
	id := "s" + strconv.Itoa(len(r.rows))
	path := filepath.Join(r.dir, under, "--p--", id, "session.jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.rows[id] = 0
	if _, err := fmt.Fprintf(f, `{"type":"session","version":0,"id":%q,"createdAt":1,"delegationDepth":0}`+"\n", id); err != nil {
		r.t.Fatal(err)
	}
	return f
}

// title is the content of a row. One in 97 is what the receiver refuses.
func title(session string, seq int) string {
	text := "row " + strconv.Itoa(seq) + " of " + session
	if seq%97 == 50 {
		text += " POISON"
	}
	return text + strings.Repeat(" and more", seq%13*20)
}

// grow appends n rows to each of the files.
func (r *crashRig) grow(n int, files ...*os.File) {
	r.t.Helper()
	for _, f := range files {
		id := filepath.Base(filepath.Dir(f.Name()))
		var b bytes.Buffer
		for range n {
			seq := r.rows[id]
			fmt.Fprintf(&b, `{"type":"session/title","seq":%d,"time":1,"data":{"title":%q,"messageSeqs":[],"source":{"kind":"fallback"}}}`+"\n", seq, title(id, seq))
			r.rows[id]++
			if strings.Contains(title(id, seq), "POISON") {
				r.poison++
			}
		}
		if _, err := f.Write(b.Bytes()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// faults is what a receiver may do to one request.
var faults = []string{"503", "429:retry-after=1", "hang", "reset", "lost", "500", "html"}

// script accepts some requests and then does something else.
func (r *crashRig) script() []receiver.Behavior {
	var script []receiver.Behavior
	for range r.rand.IntN(3) {
		for range r.rand.IntN(12) {
			script = append(script, r.behavior("400-if=POISON"))
		}
		script = append(script, r.behavior(faults[r.rand.IntN(len(faults))]))
	}
	return script
}

func (r *crashRig) behavior(spec string) receiver.Behavior {
	r.t.Helper()
	b, err := receiver.ParseBehavior(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// run lets the program live until it ends by itself or done says so, and then
// kills it. Sessions grow meanwhile. It says whether it was killed here.
func (r *crashRig) run(script []receiver.Behavior, always receiver.Behavior, env, args []string, done func(*receiver.Server) bool) (killed bool, errs []byte) {
	r.t.Helper()
	r.life++
	if r.workers[r.life] = crashWorkers; args[0] == "export" {
		r.workers[r.life] = exportWorkers
	}
	srv, err := receiver.Start(receiver.Options{Script: script, Behavior: always, Keep: 1 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(r.bin, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "CRASH_ENDPOINT="+srv.URL(), "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT="+srv.URL())
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var end error
	for waiting := true; waiting; {
		select {
		case end = <-ended:
			waiting = false
		case <-time.After(time.Millisecond): // between two looks
			if !done(srv) {
				r.load(int(srv.Totals().Kept))
				break
			}
			killed, waiting = true, false
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				r.t.Fatal(err)
			}
			end = <-ended
		}
	}
	var exit *exec.ExitError
	if end != nil && !errors.As(end, &exit) {
		r.t.Fatal(end)
	}
	if state := cmd.ProcessState; state.Exited() && state.ExitCode() != 0 && state.ExitCode() != 75 && state.ExitCode() != 3 {
		r.t.Fatalf("%v: exit code %d\n%s", args, state.ExitCode(), stderr.Bytes())
	}
	if err := srv.Close(); err != nil {
		r.t.Error(err)
	}
	r.collect(srv.Requests())
	if damage := reportsDamage.Find(stderr.Bytes()); damage != nil {
		r.t.Errorf("life %d %v: a kill is no damage: %s\n%s", r.life, env, damage, stderr.Bytes())
	}
	return killed, stderr.Bytes()
}

// reportsDamage finds in a log what only broken bits or files make an outbox tell.
var reportsDamage = regexp.MustCompile(`(segments_missing|segments_aside|unaccounted|damaged)=[1-9]\d*`)

// load lets the sessions grow, but not much faster than they flow. So many
// records have arrived in this life.
func (r *crashRig) load(arrived int) {
	written := 0
	for _, n := range r.rows {
		written += n
	}
	if written-len(r.got)-arrived < 3000 {
		r.grow(1, r.ledgers...)
	}
}

// eachRow calls fn for every row of a ledger that was received.
func eachRow(requests []receiver.Request, fn func(request int, session string, seq int64, body any)) {
	for i, req := range requests {
		for _, rl := range req.Logs.GetResourceLogs() {
			for _, sl := range rl.GetScopeLogs() {
				for _, rec := range sl.GetLogRecords() {
					attrs := receiver.PlainMap(rec.Attributes)
					session, _ := attrs["session.id"].(string)
					if seq, ok := attrs["event.seq"].(int64); ok { // else the program's own
						fn(i, session, seq, receiver.Plain(rec.Body))
					}
				}
			}
		}
	}
}

func rowKey(session string, seq int64) string { return fmt.Sprint(session, "/", seq) }

// collect notes what came in one life.
func (r *crashRig) collect(requests []receiver.Request) {
	r.t.Helper()
	eachRow(requests, func(i int, session string, seq int64, body any) {
		if m, ok := body.(map[string]any); !ok || m["title"] != title(session, int(seq)) {
			r.t.Fatalf("life %d: session %s, seq %d is altered", r.life, session, seq)
		}
		r.arrived(rowKey(session, seq), arrival{r.life, i, requests[i].Answer.Kind == receiver.Lost})
	})
}

func (r *crashRig) arrived(key string, a arrival) {
	r.t.Helper()
	first, twice := r.got[key]
	r.got[key] = a
	if !twice {
		return
	}
	r.again++
	if first.lost {
		return
	}
	if first.life == a.life {
		r.t.Fatalf("life %d: %s was acknowledged in request %d and came again in %d", a.life, key, first.request, a.request)
	}
	if r.repeated[first.life] == nil {
		r.repeated[first.life] = map[int]bool{}
	}
	r.repeated[first.life][first.request] = true
}

// finish takes what is in quarantine out of it, delivers everything and checks
// the whole.
func (r *crashRig) finish() {
	t := r.t
	t.Helper()
	r.retry()
	r.closeLedgers()
	late := func() func(*receiver.Server) bool {
		deadline := time.Now().Add(scriptPatience + time.Duration(r.life)*100*time.Millisecond)
		return func(*receiver.Server) bool { return time.Now().After(deadline) }
	}
	if len(r.exports) > 0 {
		if killed, errs := r.run(nil, receiver.Behavior{}, nil, r.export(r.exports...), late()); killed {
			t.Fatalf("export does not end\n%s", errs)
		}
	}
	all := 0
	for _, n := range r.rows {
		all += n
	}
	next, tooLate := time.Now(), late()
	_, errs := r.run(nil, receiver.Behavior{}, nil, r.sidecar(), func(srv *receiver.Server) bool {
		if time.Now().Before(next) {
			return false
		}
		fresh := map[string]bool{}
		eachRow(srv.Requests(), func(_ int, session string, seq int64, _ any) {
			if key := rowKey(session, seq); r.got[key].life == 0 {
				fresh[key] = true
			}
		})
		next = time.Now().Add(100 * time.Millisecond)
		return len(r.got)+len(fresh) == all || tooLate(srv)
	})
	if len(r.got) != all {
		t.Fatalf("%d of %d records arrived\n%s", len(r.got), all, errs)
	}
	for life, requests := range r.repeated {
		if most := r.workers[life]; len(requests) > most {
			t.Errorf("life %d: %d acknowledged requests came again, at most %d were under way", life, len(requests), most)
		}
	}
	t.Logf("%d lives, %d records: 0 lost, 0 altered, %d received again, %d put aside by the receiver and retried", r.life, all, r.again, r.poison)
}

// retry makes pending again what is in quarantine.
func (r *crashRig) retry() {
	r.t.Helper()
	data := filepath.Join(r.dir, "data")
	if out, err := exec.Command(r.bin, "outbox", "quarantine", "retry", "--all", "--data-dir", data).CombinedOutput(); err != nil {
		r.t.Fatalf("quarantine retry: %v\n%s", err, out)
	}
}

func (r *crashRig) sidecar() []string { return []string{"run", "--config", r.cfg} }

func (r *crashRig) export(files ...string) []string {
	return append([]string{"export", "--mode", "FULL", "--data-dir", filepath.Join(r.dir, "data")}, files...)
}

// finished writes a session that does not grow, to be exported.
func (r *crashRig) finished(rows int) string {
	r.t.Helper()
	f := r.newLedger("exports")
	r.grow(rows, f)
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.exports = append(r.exports, f.Name())
	return f.Name()
}

// moment chooses when to kill: at a random time, or about when the answer to a
// request, or its acknowledgement in the data directory, is on its way.
func (r *crashRig) moment() func(*receiver.Server) bool {
	at := time.Now().Add(time.Duration(r.rand.IntN(500)) * time.Millisecond)
	if r.rand.IntN(2) == 0 {
		return func(*receiver.Server) bool { return time.Now().After(at) }
	}
	requests, pause := int64(r.rand.IntN(30)+1), time.Duration(r.rand.IntN(6))*time.Millisecond
	var reached time.Time
	return func(srv *receiver.Server) bool {
		if reached.IsZero() && srv.Totals().Requests >= requests {
			reached = time.Now()
		}
		return !reached.IsZero() && time.Since(reached) >= pause || time.Since(at) > time.Second
	}
}

// Killed again and again, while sessions grow, are exported, and the receiver
// refuses, hangs, resets and loses its answers, the program loses nothing and
// alters nothing. What comes twice was in a request in flight.
//
// CASES 19.
func TestKillsLoseNothing(t *testing.T) {
	kills := 50
	if v := os.Getenv(killsEnv); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("%s: %v", killsEnv, err)
		}
		kills = n
	} else if testing.Short() {
		kills = 5
	}
	r := newCrashRig(t, "")
	for n, lives := 0, 0; n < kills; lives++ {
		if lives%20 == 19 {
			r.newSessions()
			r.retry() // or quarantine fills the outbox
		}
		always := r.behavior("400-if=POISON")
		if lives > 20 && lives%20 < 5 {
			always = receiver.Behavior{}
		}
		args := r.sidecar()
		if lives%4 == 3 {
			args = r.export(r.finished(200 + r.rand.IntN(400)))
		}
		if killed, _ := r.run(r.script(), always, nil, args, r.moment()); killed {
			n++
		}
	}
	r.finish()
}

// Each failpoint in the outbox, reached for the first and for a later time.
func TestKillsAtNamedStepsLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program anew")
	}
	r := newCrashRig(t, "failpoints")
	for _, name := range failpoints(t) {
		// Refused records pin segments, which are then rewritten and not removed.
		var always receiver.Behavior
		if strings.HasPrefix(name, "quarantine") || strings.HasPrefix(name, "rewrite") {
			always = r.behavior("400-if=POISON")
		}
		for _, n := range []int{1, 3} {
			lives, patience := 1, scriptPatience
			switch {
			case n > 1:
				patience = 2 * time.Second // some come but once in a while
			case strings.HasPrefix(name, "start"):
				// Reached at once, or not in this life: when the last one left nothing
				// to mend. A full outbox takes nothing that could be left.
				lives, patience = 20, 2*time.Second
				r.retry()
			}
			reached, errs := false, []byte(nil)
			for ; lives > 0 && !reached; lives-- {
				deadline := time.Now().Add(patience)
				var killed bool
				killed, errs = r.run(nil, always, []string{fmt.Sprintf("OUTBOX_FAILPOINT=%s:%d", name, n)}, r.sidecar(),
					func(*receiver.Server) bool { return time.Now().After(deadline) })
				reached = !killed
			}
			if !reached && n == 1 {
				t.Errorf("%q is never reached\n%s", name, errs)
			}
		}
	}
	r.finish()
}

// failpoints finds the names in the source, so that none is forgotten here.
func failpoints(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "telemetry", "outbox", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`\tfailpoint\("([^"]+)"\)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	if len(names) == 0 {
		t.Fatal("no failpoints found")
	}
	return names
}
