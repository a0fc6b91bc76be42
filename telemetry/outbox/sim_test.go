package outbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"syscall"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// sim runs random operations against an outbox and a model of it. An operation that failed
// leaves alternatives in the model; a restart settles which one it is, or fails the test.
type sim struct {
	t   testing.TB
	rng *rand.Rand
	fs  *faultfs.FS
	o   outbox.Options
	b   *outbox.Outbox

	next    int
	may     map[int]states // what an entry may be
	cursor  map[string]string
	refused map[int]bool // have been in quarantine
	ghosts  []*ghost     // commits that failed: after a crash each may be there as a whole
	fullOK  bool         // ErrFull is no failure of the test
	faultOK bool         // other errors neither
	faults  bool         // there were some
}

type ghost struct {
	entries []int
	cursor  string
	n       string
}

// states is a set of outbox states; absent is one more.
type states uint

const absent states = 1 << 15

func only(s outbox.State) states { return 1 << s }

const settledStates = states(1<<outbox.Acked | 1<<outbox.Discarded)

const simDir = "/box"

func newSim(t testing.TB, seed uint64, fs *faultfs.FS) *sim {
	s := &sim{t: t, rng: rand.New(rand.NewPCG(seed, 7)), fs: fs, may: map[int]states{}, cursor: map[string]string{}, refused: map[int]bool{}}
	s.o = outbox.Options{FS: fs, SegmentSize: 16 << 10, Window: 40}
	return s
}

// open opens the outbox; false after a crash in it.
func (s *sim) open() bool {
	s.o.FS = s.fs
	b, err := outbox.Open(simDir, s.o)
	if err != nil {
		s.allow(err)
		return false
	}
	s.b = b
	return true
}

// allow fails the test unless the error is one that the faults explain.
func (s *sim) allow(err error) {
	s.t.Helper()
	switch {
	case errors.Is(err, faultfs.ErrCrashed):
	case s.fullOK && errors.Is(err, outbox.ErrFull):
	case s.faultOK && (errors.Is(err, errInjected) || errors.Is(err, syscall.ENOSPC)):
	default:
		s.t.Fatalf("unexpected error: %v", err)
	}
}

var errInjected = errors.New("injected fault")

func simEntry(n int) outbox.Entry {
	e := entry(n, 100+n%7*150)
	e.Held = n%11 == 5
	return e
}

func first(n int) states {
	if n%11 == 5 {
		return only(outbox.Held)
	}
	return only(outbox.Pending)
}

func simPayload(n int) []byte { return payload(n, 100+n%7*150) }

// step does one random operation; false when the file system has crashed.
func (s *sim) step() bool {
	switch k := s.rng.IntN(100); {
	case k < 40:
		return s.commit()
	case k < 75:
		return s.deliver()
	case k < 80:
		return s.operator("hold", only(outbox.Pending), outbox.Held)
	case k < 84:
		return s.operator("send", only(outbox.Held), outbox.Pending)
	case k < 87:
		return s.operator("discard", only(outbox.Held), outbox.Discarded)
	case k < 92:
		return s.operator("retry", only(outbox.Quarantined), outbox.Pending)
	case k < 95:
		return s.operator("drop", only(outbox.Quarantined), outbox.Discarded)
	default:
		return s.reopen()
	}
}

func (s *sim) commit() bool {
	var batch outbox.Batch
	g := &ghost{cursor: fmt.Sprint("c", s.rng.IntN(4)), n: strconv.Itoa(s.next)}
	for range s.rng.IntN(6) + 1 {
		batch.Entries = append(batch.Entries, simEntry(s.next))
		g.entries = append(g.entries, s.next)
		s.next++
	}
	batch.Cursors = []outbox.Cursor{{Key: g.cursor, Value: []byte(g.n)}}
	if s.rng.IntN(3) == 0 {
		// Enough cursors that the checkpoint has to grow.
		batch.Cursors = append(batch.Cursors, outbox.Cursor{Key: fmt.Sprint("wide", s.next), Value: make([]byte, 3000)})
	}
	for _, n := range g.entries {
		s.may[n] = absent
	}
	_, err := s.b.Commit(ctx, &batch)
	if err != nil {
		s.allow(err)
		s.ghosts = append(s.ghosts, g)
		return !errors.Is(err, faultfs.ErrCrashed)
	}
	s.ghosts = nil // what was rolled back before cannot come back behind this one
	for _, n := range g.entries {
		s.may[n] = first(n)
	}
	s.cursor[g.cursor] = g.n
	return true
}

func (s *sim) deliver() bool {
	l, err := s.b.TryLease(outbox.Limits{Records: s.rng.IntN(12) + 1, Bytes: 3000})
	if err != nil {
		s.allow(err)
		return !errors.Is(err, faultfs.ErrCrashed)
	}
	if l == nil {
		return true
	}
	defer l.Close()
	for _, e := range l.Entries() {
		n := keyNumber(s.t, e.Key)
		if !bytes.Equal(e.Payload, simPayload(n)) {
			s.t.Fatalf("entry %d: altered payload handed out", n)
		}
		if s.may[n]&only(outbox.Pending) == 0 {
			s.t.Fatalf("entry %d leased, it is %b", n, s.may[n])
		}
	}
	var acks []outbox.ID
	var ns []int
	var qs []outbox.Refused
	var qn []int
	for _, e := range l.Entries() {
		n := keyNumber(s.t, e.Key)
		switch s.rng.IntN(8) {
		case 0: // returned
		case 1:
			qs = append(qs, outbox.Refused{ID: e.ID, Reason: "r", Outcome: outbox.OutcomeRefused, ReceiverWords: "words"})
			qn = append(qn, n)
		default:
			acks = append(acks, e.ID)
			ns = append(ns, n)
		}
	}
	if len(acks) > 0 {
		if !s.settle(l.Ack(acks...), ns, only(outbox.Acked)) {
			return false
		}
	}
	if len(qs) > 0 {
		return s.settle(l.Quarantine(qs...), qn, only(outbox.Quarantined))
	}
	return true
}

// settle notes the outcome of an operation on entries. After an error either may be found
// after a restart.
func (s *sim) settle(err error, ns []int, to states) bool {
	for _, n := range ns {
		s.refused[n] = s.refused[n] || to == only(outbox.Quarantined)
		switch {
		case err == nil:
			s.may[n] = to
		default:
			s.may[n] |= to
		}
	}
	if err != nil {
		s.allow(err)
		return !errors.Is(err, faultfs.ErrCrashed)
	}
	return true
}

func (s *sim) operator(op string, from states, to outbox.State) bool {
	pick := s.rng.IntN(3)
	var ns []int
	match := func(i outbox.Info) bool {
		if int(i.ID)%3 != pick {
			return false
		}
		ns = append(ns, keyNumber(s.t, i.Key))
		return true
	}
	var err error
	var n int
	switch op {
	case "hold":
		n, err = s.b.Hold(match)
	case "send":
		n, err = s.b.SendHeld(match)
	case "discard":
		n, err = s.b.DiscardHeld(match)
	case "retry":
		n, err = s.b.RetryAll(match)
	case "drop":
		var ids []outbox.ID
		err = s.b.ScanStates(func(i outbox.Info) bool {
			if match(i) {
				ids = append(ids, i.ID)
			}
			return true
		}, outbox.Quarantined)
		if err == nil && len(ids) > 0 {
			err = s.b.Drop(ids...)
		}
		n = len(ids)
	}
	if err == nil && n != len(ns) {
		s.t.Fatalf("%s: %d of %d", op, n, len(ns))
	}
	for _, n := range ns {
		if s.may[n]&from == 0 {
			s.t.Fatalf("%s: entry %d is %b", op, n, s.may[n])
		}
	}
	return s.settle(err, ns, only(to))
}

func (s *sim) reopen() bool {
	err := s.b.Close()
	s.b = nil
	s.o.SegmentSize = 8 << 10 << s.rng.IntN(4) // the next program may be configured otherwise
	if err != nil {
		s.allow(err)
		if errors.Is(err, faultfs.ErrCrashed) {
			return false
		}
	}
	if !s.open() {
		return false
	}
	return s.check(false)
}

// recover restarts after a crash and checks everything.
func (s *sim) recover(kept faultfs.Kept, rng *rand.Rand) {
	s.t.Helper()
	s.fs = s.fs.Crash(kept, rng)
	if !s.open() {
		s.t.Fatal("no start after a crash")
	}
	s.verify()
	if r := s.b.Recovery(); r.Unaccounted != 0 || r.HeadersRebuilt != 0 || r.StateBlocksLost != 0 || r.SegmentsMissing != 0 || len(r.SegmentsAside) != 0 || r.CheckpointLost {
		s.t.Fatalf("a crash is not damage: %+v", r)
	}
	if !s.faults && !s.b.FormersKnown() {
		s.t.Fatal("former cursors are lost in a crash")
	}
}

func (s *sim) verify() bool { return s.check(true) }

// check compares what is there with what may be there. After a crash that becomes the model;
// after a restart without one, what an error left open stays open, for it may be in the page
// cache only. It returns false when the file system crashed meanwhile.
func (s *sim) check(crashed bool) bool {
	s.t.Helper()
	found := map[int]outbox.State{}
	if err := s.b.Scan(func(i outbox.Info) bool {
		n := keyNumber(s.t, i.Key)
		if i.State == outbox.Lost {
			s.t.Fatalf("entry %d is damaged", n)
		}
		if old, ok := found[n]; ok && (settledStates&only(old) == 0 || settledStates&only(i.State) == 0) {
			s.t.Fatalf("entry %d twice: %s and %s", n, old, i.State)
		}
		found[n] = i.State
		if settledStates&only(i.State) == 0 && !bytes.Equal(i.Payload, simPayload(n)) {
			s.t.Fatalf("entry %d altered", n)
		}
		return true
	}); err != nil {
		s.allow(err)
		return false
	}
	if d := s.b.Damaged(); len(d) > 0 {
		s.t.Fatalf("damage: %+v, %+v, trace %v", d, s.b.Recovery(), s.fs.Trace())
	}
	for _, g := range s.ghosts {
		_, there := found[g.entries[0]]
		for _, n := range g.entries {
			if _, ok := found[n]; ok != there {
				s.t.Fatalf("half a batch: entry %d there %v, others %v", n, ok, there)
			}
			if there {
				s.may[n] = first(n)
			}
		}
		if there {
			s.cursor[g.cursor] = g.n // checked with all cursors below
		}
	}
	s.ghosts = nil
	for k, want := range s.cursor {
		if v, _ := s.b.Cursor(k); string(v) != want {
			s.t.Fatalf("cursor %s: %q, want %q", k, v, want)
		}
	}
	var keys []int
	for n := range s.may {
		keys = append(keys, n)
	}
	sort.Ints(keys)
	var sum [6]int64
	committed := int64(0)
	for _, n := range keys {
		st, ok := found[n]
		is := only(st)
		if !ok {
			// Settled and its segment gone, or never there.
			is = s.may[n] & (settledStates | absent)
			if is == 0 {
				s.t.Fatalf("entry %d is gone, it should be %b", n, s.may[n])
			}
			if is&(is-1) != 0 {
				s.t.Fatalf("entry %d: ambiguous", n)
			}
		}
		if is&s.may[n] == 0 {
			s.t.Fatalf("entry %d is %s, it should be %b", n, st, s.may[n])
		}
		if crashed {
			s.may[n] = is
		}
		for st := range sum {
			if is == only(outbox.State(st)) {
				sum[st]++
				committed++
			}
		}
		if is == absent && crashed {
			delete(s.may, n)
		}
	}
	st := s.b.Stats()
	checkSums(s.t, st)
	if st.Committed != committed || st.Pending != sum[outbox.Pending] || st.Acked != sum[outbox.Acked] || st.Held != sum[outbox.Held] ||
		st.Quarantined != sum[outbox.Quarantined] || st.Discarded != sum[outbox.Discarded] || st.Lost != 0 {
		s.t.Fatalf("stats %+v, counted %v of %d", st, sum, committed)
	}
	return true
}

// finish drains everything and checks that all of it came.
func (s *sim) finish() {
	s.t.Helper()
	if _, err := s.b.SendHeld(nil); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.b.RetryAll(nil); err != nil {
		s.t.Fatal(err)
	}
	last := map[string]outbox.ID{}
	for {
		l, err := s.b.TryLease(outbox.Limits{Records: 20})
		if err != nil {
			s.t.Fatal(err)
		}
		if l == nil {
			break
		}
		var ids []outbox.ID
		for _, e := range l.Entries() {
			n := keyNumber(s.t, e.Key)
			if s.may[n]&settledStates != 0 || s.may[n] == 0 {
				s.t.Fatalf("entry %d delivered, it was %b", n, s.may[n])
			}
			// What has been in quarantine comes where its new record stands.
			if !s.refused[n] {
				if e.ID <= last[e.Stream] {
					s.t.Fatalf("stream %s: %d after %d", e.Stream, e.ID, last[e.Stream])
				}
				last[e.Stream] = e.ID
			}
			s.may[n] = only(outbox.Acked)
			ids = append(ids, e.ID)
		}
		if err := l.Ack(ids...); err != nil {
			s.t.Fatal(err)
		}
		l.Close()
	}
	for n, m := range s.may {
		if m&settledStates == 0 {
			s.t.Fatalf("entry %d never came, it was %b", n, m)
		}
	}
	st := s.b.Stats()
	checkSums(s.t, st)
	if st.Segments > 1 {
		s.t.Fatalf("%d segments after draining: %+v", st.Segments, st)
	}
	if err := s.b.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func TestACrashAtAnyOperationLosesNothingThatWasCommitted(t *testing.T) {
	defer outbox.SpillFormers(100)() // so that they go into files at all
	steps, seeds := 60, uint64(1)
	if testing.Short() {
		steps, seeds = 40, 1
	}
	if os.Getenv("OUTBOX_LONG") != "" {
		steps, seeds = 200, 10
	}
	for seed := range seeds {
		run := func(crash int, kept faultfs.Kept, try int) (ops int) {
			fs := faultfs.New()
			fs.CrashAt(crash)
			s := newSim(t, seed, fs)
			ok := s.open()
			for i := 0; ok && i < steps; i++ {
				ok = s.step()
			}
			if ok {
				return fs.Ops()
			}
			s.recover(kept, rand.New(rand.NewPCG(uint64(crash), uint64(try))))
			// It must go on from there, and stay right over another restart.
			for range 5 {
				s.step()
			}
			s.reopen()
			s.finish()
			return 0
		}
		total := run(0, faultfs.KeepAll, 0)
		t.Logf("seed %d: %d operations", seed, total)
		for n := 1; n <= total; n++ {
			for try, k := range []faultfs.Kept{faultfs.KeepNothing, faultfs.KeepAll, faultfs.KeepSome, faultfs.KeepSome} {
				run(n, k, try)
				if t.Failed() {
					t.Fatalf("crash at operation %d of seed %d, kept %d", n, seed, k)
				}
			}
		}
	}
}

func limits(n int) outbox.Limits { return outbox.Limits{Records: n} }

func refused(id outbox.ID) outbox.Refused {
	return outbox.Refused{ID: id, Reason: "r", Outcome: outbox.OutcomeRefused, ReceiverWords: "words"}
}

var errFull = outbox.ErrFull
