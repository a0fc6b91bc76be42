//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/cli"
)

// operate runs a command of an operator on the rig's data directory.
func (r *rig) operate(args ...string) string {
	r.t.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(context.Background(), append(args, "--data-dir", r.data()), nil, &out, &errs, func(string) (string, bool) { return "", false })
	if code != 0 {
		r.t.Fatalf("%v: exit code %d\n%s%s", args, code, out.Bytes(), errs.Bytes())
	}
	return out.String()
}

func (r *rig) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// logs counts what stands in the log.
func (r *rig) logs(text string) int { return bytes.Count(r.log.bytes(), []byte(text)) }

func TestOperatorsHoldIsSaidToBeOne(t *testing.T) {
	r := newRig(t)
	r.write(r.path("s"), head("s"), rows(0, 2))
	r.start()
	r.awaitEvents("s", 2)
	r.operate("sessions", "hold", "s")
	r.awaitLog(`level=INFO msg="session is held: an operator has held it;.*seq=3 code=operator`)
	if code, _, errs := command("sessions", "rewind", "s", "--to", "99", "--data-dir", r.data()); code != 1 || !bytes.Contains(errs, []byte("only be rewound to an event that was captured")) {
		t.Errorf("rewind: %d %s", code, errs)
	}
	r.operate("sessions", "rewind", "s", "--to", "3")
	if page := r.page("/healthz"); !strings.Contains(page, "1 sessions are held: an operator") {
		t.Errorf("healthz: %s", page)
	}
	r.write(r.path("s"), rows(3, 4))
	r.operate("sessions", "accept", "s")
	r.awaitLog("session is held no longer")
	r.awaitEvents("s", 4)
	r.once("s", 4)
	if page := r.page("/healthz"); strings.Contains(page, "held") {
		t.Errorf("healthz: %s", page)
	}
	r.stop()
	if r.logs("not understood") > 0 || r.logs("cannot be read") > 0 || r.logs("held no longer") > 1 {
		t.Errorf("the log speaks of a ledger that is not understood, or not held\n%s", r.log.bytes())
	}
}

// Who asks the bridge itself for its key can pin it.
func TestStatusTellsTheKeyOfSummaries(t *testing.T) {
	r := newRig(t)
	r.write(r.path("s"), head("s"), rows(0, 2))
	r.start()
	r.awaitEvents("s", 2)
	var status struct {
		PublicKey string `json:"public_key"`
	}
	if err := json.Unmarshal([]byte(r.operate("status", "--output", "json")), &status); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if code, out, errs := command("audit", "--received", r.got, "--ledger", r.root, "--public-key", status.PublicKey); code != 0 || bytes.Contains(out, []byte("unpinned")) {
		t.Errorf("exit code %d with key %q\n%s%s", code, status.PublicKey, out, errs)
	}
	if code, out, _ := command("audit", "--received", r.got, "--public-key", strings.Repeat("A", 43)+"="); code != 1 {
		t.Errorf("exit code %d with another key\n%s", code, out)
	}
}

// What an operator's mistyped command did not give up is not attested as discarded.
func TestSummariesSayDiscardedOfWhatWasDiscarded(t *testing.T) {
	r := newRig(t)
	unavailable, err := receiverBehavior("503")
	if err != nil {
		t.Fatal(err)
	}
	r.srv.SetBehavior(unavailable)
	r.write(r.path("s"), head("s"), rows(0, 5))
	r.start()
	ids := map[float64]string{} // by seq
	r.poll("the records", func() bool {
		for line := range strings.Lines(r.operate("outbox", "list", "--output", "json")) {
			var e struct {
				ID     json.Number
				Record struct{ Attributes map[string]any }
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if seq, ok := e.Record.Attributes["event.seq"].(float64); ok {
				ids[seq] = e.ID.String()
			}
		}
		return len(ids) == 6
	})
	if code, _, errs := command("outbox", "discard", ids[2], ids[3], "999999", "--data-dir", r.data()); code != 1 || !bytes.Contains(errs, []byte("no such entry")) {
		t.Fatalf("exit code %d\n%s", code, errs)
	}
	r.operate("outbox", "discard", ids[3])
	r.srv.SetBehavior(accept)
	r.operate("outbox", "status")
	r.awaitEvents("s", 5)
	r.stop()
	if got := r.seqs("s"); !slices.Equal(got, []int64{0, 1, 2, 4, 5}) {
		t.Errorf("events %v", got)
	}
	outcome := map[int64]any{}
	for _, rec := range r.received() {
		if rec.Attrs["otel_bridge.op"] != "session.summary" {
			continue
		}
		for _, run := range rec.Body.(map[string]any)["runs"].([]any) {
			run := run.(map[string]any)
			for seq := run["from"].(int64); seq <= run["to"].(int64); seq++ {
				outcome[seq] = run["outcome"]
			}
		}
	}
	want := map[int64]any{0: "delivered", 1: "delivered", 2: "delivered", 3: "discarded", 4: "delivered", 5: "delivered"}
	if !maps.Equal(outcome, want) {
		t.Errorf("outcomes %v", outcome)
	}
}

// Directories that come and go below the root are none of the root's business.
func TestVanishingDirectoriesAreNotTheRoot(t *testing.T) {
	r := newRig(t)
	r.start()
	for i := range 400 {
		project := filepath.Join(r.root, fmt.Sprint("q", i%3))
		session := filepath.Join(project, "s")
		if err := os.MkdirAll(session, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(project); err != nil {
			t.Fatal(err)
		}
	}
	r.write(r.path("last"), head("last"), rows(0, 0))
	r.awaitEvents("last", 0)
	r.stop()
	for _, wrong := range []string{"root is not there", "cannot be read"} {
		if r.logs(wrong) > 0 {
			t.Errorf("logged %q\n%s", wrong, r.log.bytes())
		}
	}
}

func TestMovedDataDirectoryIsSaidAndMayComeBack(t *testing.T) {
	r := newRig(t)
	r.write(r.path("s"), head("s"), rows(0, 2))
	r.start()
	r.awaitEvents("s", 2)
	away := r.data() + ".away"
	r.rename(r.data(), away)
	r.awaitLog(`level=ERROR msg="the data directory was moved or removed`)
	if page := r.page("/readyz"); !strings.Contains(page, `"status":"not ready"`) || !strings.Contains(page, "moved or removed") {
		t.Errorf("readyz: %s", page)
	}
	r.write(r.path("s"), rows(3, 5))
	r.awaitEvents("s", 5)
	r.rename(away, r.data())
	r.awaitLog("the data directory is back")
	if page := r.page("/readyz"); !strings.Contains(page, `"status":"ok"`) {
		t.Errorf("readyz: %s", page)
	}
	r.stop()
	r.once("s", 5)
	r.audit(r.root)
}

// A configuration that is well-formed and cannot be started with leaves the last
// good one in place, as one that is not understood does.
func TestReloadThatCannotStartKeepsTheLastGood(t *testing.T) {
	r := newRig(t)
	r.write(r.path("s"), head("s"), rows(0, 0))
	r.start()
	r.awaitEvents("s", 0)
	good := r.file(r.cfg)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(r.dir, "a-file")
	r.write(file, "not a directory\n")
	noDir := strings.NewReplacer(fmt.Sprintf("dir: %q", r.data()), fmt.Sprintf("dir: %q", filepath.Join(file, "data")))
	noAddress := strings.NewReplacer("127.0.0.1:0", taken.Addr().String())
	// The last of them has narrower consent too: the data directory must not be told
	// of a mode that never ran.
	narrower := strings.NewReplacer("127.0.0.1:0", taken.Addr().String(), "mode: FULL", "mode: FEEDBACK_ONLY")
	for i, change := range []*strings.Replacer{noDir, noAddress, narrower} {
		bad := change.Replace(good)
		if bad == good {
			t.Fatal("nothing is bad in it")
		}
		if err := os.WriteFile(r.cfg, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		r.signal(syscall.SIGHUP)
		r.poll(fmt.Sprint("configuration ", i, " not taken, and the last one started again"), func() bool {
			return r.logs("the configuration was not taken; the last one goes on") == i+1 && r.logs("msg=started") == i+2
		})
		r.write(r.path("s"), row(i+1, "goes on"))
		r.awaitEvents("s", int64(i+1))
	}
	r.reconfigure(good)
	r.write(r.path("s"), row(4, "and on"))
	r.awaitEvents("s", 4)
	r.stop()
	r.once("s", 4)
	r.audit(r.root)
	if n := r.ops("bridge.mode_changed", ""); n != 0 {
		t.Errorf("%d changes of mode were told", n)
	}
}

// What is in the ledger before SIGTERM comes is captured, also when there was no
// time to be told of it.
func TestLedgersAreLookedAtOnceMoreAtTheEnd(t *testing.T) {
	r := newRig(t)
	r.write(r.path("s"), head("s"), rows(0, 0))
	const lives = 8
	for life := range lives {
		r.start()
		r.awaitEvents("s", int64(life))
		// Stopped, it learns of the file and of its own end at the same moment.
		r.signal(syscall.SIGSTOP)
		r.write(r.path("s"), row(life+1, "in the last moment"))
		r.write(r.path(fmt.Sprint("new", life)), head(fmt.Sprint("new", life)), rows(0, 1))
		r.signal(syscall.SIGTERM)
		r.signal(syscall.SIGCONT)
		select {
		case <-r.done:
		case <-time.After(scriptPatience):
			t.Fatalf("the program does not end\n%s", r.log.bytes())
		}
		if code := r.cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("exit code %d\n%s", code, r.log.bytes())
		}
		r.once("s", int64(life+1))
		r.once(fmt.Sprint("new", life), 1)
	}
	r.audit(r.root)
}

// After a reload the new policy and the new consent reach what waits already.
func TestReloadedPolicyAndConsentReachTheBacklog(t *testing.T) {
	r := newRig(t)
	refuse, err := receiverBehavior("503")
	if err != nil {
		t.Fatal(err)
	}
	r.srv.SetBehavior(refuse)
	r.write(r.path("s"), head("s"), row(0, "an acorn falls"), row(1, "a leaf falls"))
	r.start()
	r.awaitMetric(`otel_bridge_events_total{outcome="exported"}`, 2)
	good := r.file(r.cfg)

	r.write(filepath.Join(r.dir, "word.toml"), "[[rules]]\nid = \"word\"\nregex = '''acorn'''\nkeywords = [\"acorn\"]\n")
	r.reconfigure(good + "redact: { policies: [builtin:secrets, builtin:pii, ./word.toml] }\n")
	r.srv.SetBehavior(accept)
	r.awaitEvents("s", 1)
	if body := fmt.Sprint(r.events("s")[0].Body); !strings.Contains(body, "an [REDACTED:word] falls") {
		t.Errorf("the policy has not reached the backlog: %s", body)
	}
	if n := r.ops("bridge.policy_changed", ""); n != 1 {
		t.Errorf("%d changes of policy were told", n)
	}

	r.srv.SetBehavior(refuse)
	r.write(r.path("s"), row(2, "under FULL"))
	r.poll("an event that is captured under FULL", func() bool {
		return strings.Contains(r.operate("outbox", "list", "--output", "json"), "under FULL")
	})
	r.reconfigure(strings.Replace(r.file(r.cfg), "mode: FULL", "mode: FEEDBACK_ONLY", 1))
	r.srv.SetBehavior(accept)
	r.write(r.path("s"), row(3, "under FEEDBACK_ONLY"))
	r.poll("what was pending is held", func() bool {
		return strings.Contains(r.operate("outbox", "status", "--output", "json"), `"pending":0,"held":`)
	})
	if got := r.seqs("s"); len(got) != 2 {
		t.Errorf("events %v left without consent", got)
	}
	r.operate("outbox", "send", "--held")
	r.awaitEvents("s", 2)
	r.stop()
	r.once("s", 2)
	if strings.Contains(r.file(r.got), "acorn") {
		t.Error("the word has left")
	}
}

// What counts from the start of the process goes on over a reload, also over one that
// could not be taken and one to DISABLED and back.
func TestCountersOfTheProcessGoOnOverAReload(t *testing.T) {
	r := newRig(t)
	r.write(r.path("s"), head("s"), row(0, "password=hunter2-hunter2-hunter2"))
	r.start()
	r.awaitEvents("s", 0)
	counters := regexp.MustCompile(`(?m)^(otel_bridge_(?:request\w*|batch_splits|records_redacted_again|redactions)_total(?:\{[^}]*\})?|otel_bridge_receiver_last_ack_timestamp_seconds) (\S+)$`)
	read := func() map[string]float64 {
		out := map[string]float64{}
		for _, m := range counters.FindAllStringSubmatch(r.page("/metrics"), -1) {
			v, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			out[m[1]] = v
		}
		return out
	}
	var before map[string]float64
	r.poll("an acknowledgement that is counted", func() bool {
		before = read()
		return before["otel_bridge_receiver_last_ack_timestamp_seconds"] > 0
	})
	if len(before) < 9 || before["otel_bridge_requests_total"] < 1 || before[`otel_bridge_request_bytes_total{stage="wire"}`] < 1 {
		t.Fatalf("counters %v", before)
	}
	further := func(what string) {
		t.Helper()
		for name, was := range before {
			if now, ok := read()[name]; !ok || now < was {
				t.Errorf("%s: %s was %v and is %v", what, name, was, now)
			}
		}
	}
	good := r.file(r.cfg)
	r.reconfigure(good + "log: { level: debug }\n")
	further("after a reload")
	r.write(r.path("s"), row(1, "password=hunter3-hunter3-hunter3"))
	r.awaitEvents("s", 1)
	r.awaitMetric(`otel_bridge_redactions_total{rule="bridge-assignment"}`, 2)
	r.poll("another request is counted", func() bool {
		return read()["otel_bridge_requests_total"] > before["otel_bridge_requests_total"]
	})
	before = read()

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := os.WriteFile(r.cfg, []byte(strings.ReplaceAll(good, "127.0.0.1:0", taken.Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	n := r.logs("msg=started")
	r.signal(syscall.SIGHUP)
	r.poll("the last configuration is taken again", func() bool { return r.logs("msg=started") == n+1 })
	further("after a reload that could not be taken")

	if err := os.WriteFile(r.cfg, []byte(strings.Replace(good, "mode: FULL", "mode: DISABLED", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGHUP)
	r.awaitLog("the mode is DISABLED")
	r.reconfigure(good)
	further("after DISABLED")
	r.stop()
}

// reconfigure has the program take another configuration.
func (r *rig) reconfigure(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.cfg, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	n := r.logs("msg=started")
	r.signal(syscall.SIGHUP)
	r.poll("started under another configuration", func() bool { return r.logs("msg=started") == n+1 })
}
