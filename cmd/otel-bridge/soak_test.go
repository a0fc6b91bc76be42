//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// soakEnv makes TestSoak as large as docs/reliability.md tells: "full".
const soakEnv = "OTEL_BRIDGE_TEST_SOAK"

type soakSize struct {
	sessions, growing int
	rounds            int           // in which each growing session has a turn
	idle              time.Duration // for which processor time is measured
}

// grower writes one session as agents do: a batch, synced, now and then; it crashes
// in the middle of a line and is resumed, and it moves to the next format.
type grower struct {
	t          *testing.T
	rand       *rand.Rand
	dir        string
	id         string
	zstd       bool
	version    int
	seq, turn  int
	resumes    int
	migrations int
}

func (g *grower) path() string {
	return filepath.Join(g.dir, jsonl.Name{Generation: g.version, Zstd: g.zstd}.String())
}

func (g *grower) header(version int) string {
	return fmt.Sprintf(`{"type":"session","version":%d,"id":%q,"createdAt":1796031738741,"delegationDepth":0}`+"\n", version, g.id)
}

func (g *grower) encoded(text string) string {
	if g.zstd {
		return frame(g.t, text)
	}
	return text
}

func (g *grower) append(text string) (err error) {
	f, err := os.OpenFile(g.path(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Sync()
}

// publish puts a file in its place at once.
func (g *grower) publish(text string) error {
	tmp := g.path() + ".0123456789ab.tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, g.path())
}

func (g *grower) begin() error {
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	g.seq = 1
	return g.publish(g.encoded(g.header(0)) + g.encoded(row(0, g.id)))
}

// step is a turn, in one batch or in several, with or without an accident.
func (g *grower) step() error {
	g.turn++
	open := turnStart(g.seq, g.turn) + message(g.seq+1, g.turn, "please do step "+strconv.Itoa(g.turn)+strings.Repeat(" and more", g.rand.IntN(40)))
	switch chance := g.rand.IntN(12); {
	case chance == 0:
		return g.crash(open)
	case chance == 1 && g.version == 0:
		return g.migrate(open)
	case chance < 6:
		if err := g.append(g.encoded(open)); err != nil {
			return err
		}
		open = ""
	}
	g.seq += 2
	end := turnEnd(g.seq, g.turn)
	g.seq++
	return g.append(g.encoded(open + end))
}

// crash leaves a turn open and a line, or a frame, half written. The session is
// resumed by the rules of recovery.
func (g *grower) crash(open string) error {
	half := g.encoded(row(g.seq+2, strings.Repeat("lost ", 50)))
	if err := g.append(g.encoded(open) + half[:1+g.rand.IntN(len(half)-1)]); err != nil {
		return err
	}
	if _, err := jsonl.Recover(g.path()); err != nil {
		return err
	}
	led, err := jsonl.Open(g.path())
	if err != nil {
		return err
	}
	g.seq = 0
	for led.Next() {
		g.seq++
	}
	if err := errors.Join(led.Err(), led.Close()); err != nil {
		return err
	}
	g.resumes++
	g.seq++
	return g.append(g.encoded(fmt.Sprintf(`{"type":"session/end-seed","seq":%d,"time":1796031738750,"data":{}}`+"\n", g.seq-1)))
}

// migrate writes the session anew beside the older file: format 1 is format 0 under
// another version. The turn comes in the newer file only.
func (g *grower) migrate(turn string) error {
	text, err := decoded(g.path())
	if err != nil {
		return err
	}
	_, body, _ := strings.Cut(text, "\n")
	g.version, g.migrations = 1, g.migrations+1
	if err := g.publish(g.encoded(g.header(1)) + g.encoded(body)); err != nil {
		return err
	}
	g.seq += 3
	return g.append(g.encoded(turn + turnEnd(g.seq-1, g.turn)))
}

// decoded is the text of a session file.
func decoded(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(path, ".zstd") {
		return string(text), err
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		return "", err
	}
	defer dec.Close()
	text, err = dec.DecodeAll(text, nil)
	return string(text), err
}

// process is what is counted of the running program.
type footprint struct {
	memory, files, goroutines, cpu float64
}

func (r *rig) footprint() footprint {
	r.t.Helper()
	return footprint{r.metric("process_resident_memory_bytes"), r.metric("process_open_fds"), r.metric("go_goroutines"), r.metric("process_cpu_seconds_total")}
}

func (f footprint) String() string {
	return fmt.Sprintf("%.0f MiB resident, %.0f descriptors, %.0f goroutines", f.memory/(1<<20), f.files, f.goroutines)
}

// Sessions by the thousand, many of them growing at once, resumed and migrated, a
// receiver with all kinds of faults, two restarts and a kill: nothing is missing,
// and nothing grows but the sessions.
func TestSoak(t *testing.T) {
	size := soakSize{sessions: 60, growing: 10, rounds: 12, idle: time.Second}
	if os.Getenv(soakEnv) == "full" {
		size = soakSize{sessions: 2000, growing: 200, rounds: 80, idle: time.Minute}
	} else if testing.Short() {
		t.Skip("it takes a while")
	}
	r := newRig(t)
	r.patience *= 10
	packed := filepath.Join(r.dir, "packed") // a root holds one encoding
	r.configure(fmt.Sprintf("sources: [{ dsh: { path: %q } }, { dsh: { path: %q } }]", r.root, packed),
		fmt.Sprintf("exporter: { endpoint: %q, timeout: 500ms }\nshutdown_timeout: 2s", r.srv.URL()))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	begin := time.Now()

	want := r.finished(size.sessions - size.growing)
	var growers []*grower
	for i := range size.growing {
		id := fmt.Sprint("growing", i)
		g := &grower{t: t, rand: rand.New(rand.NewPCG(seed, uint64(i))), id: id, zstd: i%2 == 1, dir: filepath.Dir(r.path(id))}
		if g.zstd {
			g.dir = filepath.Join(packed, "p", id)
		}
		if err := g.begin(); err != nil {
			t.Fatal(err)
		}
		growers = append(growers, g)
	}
	pairs := r.migratingPairs(want)

	r.start()
	faults := startFaults(r, rnd.Uint64())
	grow := func(rounds int) {
		t.Helper()
		var wg sync.WaitGroup
		errs := make([]error, len(growers))
		for i, g := range growers {
			wg.Go(func() {
				for range rounds {
					if errs[i] = g.step(); errs[i] != nil {
						return
					}
					time.Sleep(pace) // as agents pause
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	quarter := size.rounds / 4
	for life := range 3 {
		grow(quarter)
		if life == 0 {
			pairs.migrate(r, want)
		}
		if life == 1 {
			r.kill()
		} else {
			r.stop()
		}
		r.start()
	}
	faults.stop()
	settled := func(what string) footprint {
		t.Helper()
		for _, g := range growers {
			want[g.id] = cursorPlace{g.version, int64(g.seq)}
		}
		r.awaitCursors(what, want)
		r.awaitMetric(`otel_bridge_records{state="pending"}`, 0)
		return r.footprint()
	}
	grow(1) // so that as many sessions are open before as after
	before := settled("before the last quarter")
	for range quarter {
		grow(1)
	}
	after := settled("the end")
	t.Logf("%d sessions, %d growing: %v; %v later", size.sessions, size.growing, before, after)
	if after.goroutines > before.goroutines+5 && after.goroutines > 60 { // connections and workers come as they are needed
		t.Errorf("goroutines: %v, then %v", before.goroutines, after.goroutines)
	}
	if after.files > before.files+5 && after.files > 200 { // 128 sessions stay open
		t.Errorf("descriptors: %v, then %v", before.files, after.files)
	}
	if after.memory > before.memory*1.3+(32<<20) {
		t.Errorf("memory: %v, then %v", before.memory, after.memory)
	}

	// Nothing happens any more.
	idle := r.footprint()
	time.Sleep(size.idle) // what is measured is time
	now := r.footprint()
	t.Logf("idle for %v: %.2f %% of a core; %v", size.idle, 100*(now.cpu-idle.cpu)/size.idle.Seconds(), now)

	r.stop()
	resumes, migrations, events := 0, pairs.n, 0
	for _, g := range growers {
		resumes, migrations, events = resumes+g.resumes, migrations+g.migrations, events+g.seq
	}
	t.Logf("%v: %d events in growing sessions, %d resumes, %d migrations, %d requests, %d faults; %d records received",
		time.Since(begin).Round(time.Second), events, resumes, migrations, r.srv.Totals().Requests, faults.n, r.srv.Totals().Kept)
	if resumes == 0 || migrations == 0 || faults.n == 0 {
		t.Errorf("%d resumes, %d migrations, %d faults: not everything was tried", resumes, migrations, faults.n)
	}
	if n := strings.Count(r.file(r.got), `"session.diverged"`); n > 0 {
		t.Errorf("%d divergences", n)
	}
	r.audit(r.root, packed)
}

// cursorPlace is where a session's capture stands.
type cursorPlace struct {
	version int
	next    int64
}

// finished writes sessions that do not grow: mostly short ones, some of them with
// everything that agents write. It returns how far each goes.
func (r *rig) finished(n int) map[string]cursorPlace {
	r.t.Helper()
	want := map[string]cursorPlace{}
	labs := []string{"lab-multiturn", "lab-compaction", "lab-openturn", "lab-unicode", "lab-secrets"}
	for i := range n {
		id := fmt.Sprint("finished", i)
		text := head(id) + row(0, id) + turnStart(1, 1) + message(2, 1, "hello") + turnEnd(3, 1)
		if i%20 == 0 {
			text = renamed(r.t, filepath.Join("..", "..", "examples", "sessions", labs[i/20%len(labs)]+".jsonl"), id)
		}
		r.write(r.path(id), text)
		want[id] = cursorPlace{0, int64(ledgerEvents(r.t, r.path(id)))}
	}
	return want
}

var sessionID = regexp.MustCompile(`"id":"[^"]*"`)

// renamed is a session file's text under another id.
func renamed(t *testing.T, path, id string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header, rest, _ := strings.Cut(string(text), "\n")
	return sessionID.ReplaceAllString(header, fmt.Sprintf(`"id":%q`, id)) + "\n" + rest
}

// migrating are sessions of format 0 which the reference's own code has migrated.
type migrating struct {
	n     int
	newer map[string]string // by path of the newer file
}

// migratingPairs writes the older files, two thirds of each.
func (r *rig) migratingPairs(want map[string]cursorPlace) *migrating {
	r.t.Helper()
	m := &migrating{newer: map[string]string{}}
	shared, ok := sharedDir()
	if !ok {
		r.t.Log("the migrated pairs stand beside the project: only format 0 to 1 is tried")
		return m
	}
	for _, lab := range []string{"lab-multiturn", "lab-compaction", "lab-secrets", "lab-unicode"} {
		file := func(v string) string { return filepath.Join(shared, "data", "dsh", v, lab+".jsonl") }
		id := "pair-" + lab
		older := renamed(r.t, file("v0"), id)
		cut := strings.LastIndexByte(older[:len(older)*2/3], '\n') + 1
		r.write(r.path(id), older[:cut])
		m.newer[filepath.Join(filepath.Dir(r.path(id)), "session.v2.jsonl")] = renamed(r.t, file("v2"), id)
		want[id] = cursorPlace{0, int64(ledgerEvents(r.t, r.path(id)))}
	}
	return m
}

// migrate puts the newer files beside the older ones.
func (m *migrating) migrate(r *rig, want map[string]cursorPlace) {
	r.t.Helper()
	for path, text := range m.newer {
		tmp := filepath.Join(r.dir, "migrated")
		r.write(tmp, text)
		r.rename(tmp, path)
		want[filepath.Base(filepath.Dir(path))] = cursorPlace{2, int64(ledgerEvents(r.t, path))}
		m.n++
	}
}

// awaitCursors waits until capture stands where it is expected for every session.
func (r *rig) awaitCursors(what string, want map[string]cursorPlace) {
	r.t.Helper()
	missing := ""
	next := time.Now()
	r.poll(what, func() bool {
		if time.Now().Before(next) {
			return false
		}
		next = time.Now().Add(200 * time.Millisecond)
		code, out, _ := command("sessions", "list", "--data-dir", r.data(), "--output", "json")
		if code != 0 {
			return false // it looks while the program writes
		}
		got := map[string]cursorPlace{}
		for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
			var line struct {
				ID      string `json:"session_id"`
				Version int    `json:"format_version"`
				Next    int64  `json:"next_seq"`
			}
			if err := dec.Decode(&line); err != nil {
				r.t.Fatal(err)
			}
			if old, ok := got[line.ID]; !ok || old.version < line.Version {
				got[line.ID] = cursorPlace{line.Version, line.Next}
			}
		}
		for id, w := range want {
			if got[id] != w {
				missing = fmt.Sprintf("%s stands at %v, want %v", id, got[id], w)
				return false
			}
		}
		return true
	}, func() string { return missing })
}

// faulty makes a receiver misbehave until it is stopped.
type faulty struct {
	r    *rig
	n    int
	quit chan struct{}
	done chan struct{}
}

func startFaults(r *rig, seed uint64) *faulty {
	f := &faulty{r: r, quit: make(chan struct{}), done: make(chan struct{})}
	rnd := rand.New(rand.NewPCG(seed, 2))
	go func() {
		defer close(f.done)
		for {
			spec := "ok"
			if f.n++; f.n%2 == 0 {
				spec = []string{"503", "429:retry-after=1", "hang", "reset", "lost", "500"}[rnd.IntN(6)]
			}
			b, err := receiver.ParseBehavior(spec)
			if err != nil {
				panic(err) // the list is wrong
			}
			r.srv.SetBehavior(b)
			select {
			case <-f.quit:
				return
			case <-time.After(time.Duration(20+rnd.IntN(200)) * time.Millisecond):
			}
		}
	}()
	return f
}

func (f *faulty) stop() {
	close(f.quit)
	<-f.done
	f.n /= 2
	f.r.srv.SetBehavior(accept)
}
