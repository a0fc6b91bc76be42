package outbox_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// The crash child is this test binary, run again with the directory in the environment. It
// commits, delivers and acks under load and says on stdout what it has been promised:
// "C writer n" after a commit, "D n" when it delivers, "A n" after an ack, "Q n" after a
// quarantine. It never ends by itself.
const crashChildEnv = "OUTBOX_CRASH_CHILD"

const (
	childWriters = 4
	childStep    = 1_000_000 // numbers of one writer
)

func childSize(n int) int { return 50 + n%13*100 }

func crashChild() {
	var mu sync.Mutex
	say := func(f string, a ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, f+"\n", a...)
	}
	b, err := outbox.Open(os.Getenv(crashChildEnv), outbox.Options{SegmentSize: 64 << 10, MaxSize: 8 << 20})
	if err != nil {
		say("X open: %v", err)
		return
	}
	var wg sync.WaitGroup
	for w := range childWriters {
		wg.Go(func() {
			key := fmt.Sprint("w", w)
			next := 0
			if v, ok := b.Cursor(key); ok {
				next, _ = strconv.Atoi(string(v))
			}
			for {
				var batch outbox.Batch
				for range next%5 + 1 {
					n := w*childStep + next
					batch.Entries = append(batch.Entries, outbox.Entry{Key: fmt.Appendf(nil, "key-%d", n), Stream: key, Payload: payload(n, childSize(n))})
					next++
				}
				batch.Cursors = []outbox.Cursor{{Key: key, Value: fmt.Append(nil, next)}}
				if _, err := b.Commit(context.Background(), &batch); err != nil {
					if err := b.WaitRoom(context.Background()); err != nil {
						say("X commit: %v", err)
						return
					}
					next -= len(batch.Entries)
					continue
				}
				say("C %d %d", w, next)
			}
		})
	}
	for w := range 3 {
		rng := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(w)))
		wg.Go(func() {
			for {
				l, err := b.Lease(context.Background(), outbox.Limits{Records: 30})
				if err != nil {
					say("X lease: %v", err)
					return
				}
				for _, e := range l.Entries() {
					var n int
					fmt.Sscanf(string(e.Key), "key-%d", &n)
					if string(e.Payload) != string(payload(n, childSize(n))) {
						say("X altered %d", n)
					}
					if rng.IntN(50) == 0 {
						if err := l.Quarantine(outbox.Refused{ID: e.ID, Reason: "r", Outcome: outbox.OutcomeRefused}); err != nil {
							say("X quarantine: %v", err)
						}
						say("Q %d", n)
						continue
					}
					say("D %d", n)
					if err := l.Ack(e.ID); err != nil {
						say("X ack: %v", err)
					}
					say("A %d", n)
				}
				l.Close()
			}
		})
	}
	wg.Wait()
}

// CASES 16 and 19.
func TestAKilledProcessLosesNothingAndRepeatsOnlyWhatWasInFlight(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGKILL on Windows")
	}
	kills := rounds(12)
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	promised := [childWriters]int{}
	delivered, acked, quarantined := map[int]int{}, map[int]bool{}, map[int]bool{}
	twice := 0
	for kill := range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), crashChildEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Killed after a random number of promises, so that it is always at work.
		after := rng.IntN(400) + 1
		sc := bufio.NewScanner(out)
		for lines := 0; sc.Scan(); lines++ {
			if lines == after {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			f := strings.Fields(sc.Text())
			if len(f) < 2 || f[0] == "X" {
				t.Fatalf("child: %s", sc.Text())
			}
			n, _ := strconv.Atoi(f[1])
			switch f[0] {
			case "C":
				to, _ := strconv.Atoi(f[2])
				promised[n] = to
			case "D":
				if acked[n] || quarantined[n] {
					t.Fatalf("kill %d: entry %d delivered after it was settled", kill, n)
				}
				if delivered[n]++; delivered[n] > 1 {
					twice++
				}
			case "A":
				acked[n] = true
			case "Q":
				quarantined[n] = true
			}
		}
		_ = cmd.Wait()
	}
	b := open(t, dir, outbox.Options{SegmentSize: 64 << 10})
	if r := b.Recovery(); r.Unaccounted != 0 || len(b.Damaged()) > 0 || b.Stats().Degraded {
		t.Fatalf("a kill is not damage: %+v", r)
	}
	there := map[int]bool{}
	if err := b.ScanStates(func(i outbox.Info) bool {
		n := keyNumber(t, i.Key)
		if acked[n] || there[n] || i.State == outbox.Pending && quarantined[n] {
			t.Fatalf("entry %d is %s", n, i.State)
		}
		there[n] = true
		return true
	}, outbox.Pending, outbox.Quarantined); err != nil {
		t.Fatal(err)
	}
	total := 0
	for w := range childWriters {
		v, _ := b.Cursor(fmt.Sprint("w", w))
		cursor, _ := strconv.Atoi(string(v))
		if cursor < promised[w] {
			t.Fatalf("writer %d was promised %d, the cursor is %d", w, promised[w], cursor)
		}
		total += cursor
		for n := w * childStep; n < w*childStep+cursor; n++ {
			if !there[n] && delivered[n] == 0 {
				t.Fatalf("entry %d is lost", n)
			}
		}
		if there[w*childStep+cursor] {
			t.Fatalf("writer %d: an entry beyond the cursor", w)
		}
	}
	s := b.Stats()
	checkSums(t, s)
	if s.Committed != int64(total) {
		t.Fatalf("%d committed, the cursors say %d", s.Committed, total)
	}
	// Each of 3 workers had one entry on its way when a kill came.
	if twice > 3*kills {
		t.Fatalf("%d delivered twice in %d kills", twice, kills)
	}
	t.Logf("%d kills, %d committed, %d delivered twice, 0 lost", kills, total, twice)
}
