package outbox_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// rounds is how often a random test repeats: OUTBOX_ROUNDS, or def.
func rounds(def int) int {
	if n, err := strconv.Atoi(os.Getenv("OUTBOX_ROUNDS")); err == nil {
		return n
	}
	if testing.Short() {
		return max(def/4, 1)
	}
	return def
}

func TestRandomOperationsFaultsAndCrashesMatchTheModel(t *testing.T) {
	for seed := range uint64(rounds(100)) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { simulate(t, seed) })
		if t.Failed() {
			return
		}
	}
}

func simulate(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 99))
	s := newSim(t, seed, faultfs.New())
	s.faults = true
	defer outbox.SpillFormers([]int64{0, 100, 64 << 10}[rng.IntN(3)])()
	if !s.open() {
		t.Fatal("no start")
	}
	for range 6 {
		s.faultOK, s.fullOK = true, true
		rate := rng.IntN(60) + 3
		full := rng.IntN(3) == 0
		s.fs.Fault(func(op faultfs.Op) error {
			switch {
			case rng.IntN(rate) != 0 || s.b == nil:
				return nil // a start on a failing disk may fail; that is another test
			case full && (op.Kind == "write" || op.Kind == "create"):
				return syscall.ENOSPC
			}
			return errInjected
		})
		if rng.IntN(2) == 0 {
			s.fs.CrashAt(s.fs.Ops() + rng.IntN(200) + 1)
		}
		ok := true
		for i := 0; ok && i < 40; i++ {
			ok = s.step()
		}
		s.fs.Fault(nil)
		if s.b != nil && ok && !s.fs.Down() && rng.IntN(2) == 0 {
			// It goes on when the faults end, on the same handle.
			s.fs.CrashAt(0)
			s.faultOK, s.fullOK = false, false
			if !s.commitAfterFaults() {
				t.Fatal("no commit after the faults ended")
			}
		}
		s.faultOK, s.fullOK = false, false
		s.fs.CrashAt(0)
		s.recover([]faultfs.Kept{faultfs.KeepNothing, faultfs.KeepAll, faultfs.KeepSome}[rng.IntN(3)], rng)
	}
	s.finish()
}

// commitAfterFaults commits once more; what had failed before must not come back then.
func (s *sim) commitAfterFaults() bool {
	before := s.ghosts
	if !s.commit() {
		return false
	}
	for _, g := range before {
		for _, n := range g.entries {
			s.may[n] = absent
		}
	}
	return len(s.ghosts) == 0
}

// CASES 29.
func TestAFullDiskStopsIntakeOnlyAndTheSameHandleGoesOn(t *testing.T) {
	for seed := range uint64(rounds(40)) {
		fs := faultfs.New()
		s := newSim(t, seed, fs)
		if !s.open() {
			t.Fatal("no start")
		}
		for range 30 {
			s.commit()
		}
		for round := range 6 {
			// A little room: so the disk runs full in the middle of a record, a new segment or a checkpoint.
			fs.SetBudget(fs.Used() + s.rng.Int64N(40<<10))
			s.fullOK = true
			refused := false
			for i := 0; i < 60 && !refused; i++ {
				s.commit()
				refused = len(s.ghosts) > 0
			}
			if !refused {
				t.Fatal("the disk never ran full")
			}
			if !s.b.Stats().Full {
				t.Fatal("not reported as full")
			}
			// Acks and operators' words need no room at all.
			fs.SetBudget(0)
			s.fullOK = false
			l, err := s.b.TryLease(limits(5))
			if err != nil {
				t.Fatal(err)
			}
			if l != nil {
				for i, e := range l.Entries() {
					n := keyNumber(t, e.Key)
					if i == 0 {
						continue
					}
					if err := l.Ack(e.ID); err != nil {
						t.Fatalf("seed %d round %d: ack on a full disk: %v", seed, round, err)
					}
					s.may[n] = only(1)
				}
				l.Close()
			}
			for _, op := range []func() bool{
				func() bool { return s.operator("hold", only(0), 3) },
				func() bool { return s.operator("send", only(3), 0) },
				func() bool { return s.operator("discard", only(3), 4) },
			} {
				if !op() {
					t.Fatal("refused on a full disk")
				}
			}
			if s.rng.IntN(2) == 0 {
				// A restart on the full disk works too, and finds nothing half done.
				if !s.reopen() {
					t.Fatal("no restart on a full disk")
				}
			} else {
				checkSums(t, s.b.Stats())
			}
			fs.SetBudget(-1)
			if err := s.b.WaitRoom(ctx); err != nil {
				t.Fatal(err)
			}
			if !s.commitAfterFaults() {
				t.Fatal("no commit with room again")
			}
		}
		s.verify()
		s.finish()
	}
}

func TestQuarantineOnAFullDiskUsesTheReserve(t *testing.T) {
	fs := faultfs.New()
	s := newSim(t, 1, fs)
	s.open()
	for range 20 {
		s.commit()
	}
	fs.SetBudget(fs.Used())
	l, err := s.b.TryLease(limits(2))
	if err != nil || l == nil {
		t.Fatal(err)
	}
	var ns []int
	for _, e := range l.Entries() {
		if err := l.Quarantine(refused(e.ID)); err != nil {
			t.Fatalf("quarantine on a full disk: %v", err)
		}
		ns = append(ns, keyNumber(t, e.Key))
	}
	s.settle(nil, ns, only(2))
	s.reopen()
	// With the reserve spent it says so and the entries stay leased.
	var full error
	for range 100 {
		l, err := s.b.TryLease(limits(1))
		if err != nil {
			t.Fatal(err)
		}
		e := l.Entries()[0]
		if full = l.Quarantine(refused(e.ID)); full != nil {
			if err := l.Return(e.ID); err != nil {
				t.Fatal(err)
			}
			break
		}
		s.settle(nil, []int{keyNumber(t, e.Key)}, only(2))
	}
	if !errors.Is(full, errFull) {
		t.Fatalf("spent reserve: %v", full)
	}
	fs.SetBudget(-1)
	s.verify()
	s.commit()
	s.finish()
}
