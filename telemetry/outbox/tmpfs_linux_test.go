package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// smallDisk mounts a tmpfs of that size for the test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0700"); err != nil {
		t.Skipf("needs root to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestAFullTmpfsStopsIntakeAndTheOutboxRecoversByItself fills a real file system while the
// outbox appends, drains, seals and quarantines.
//
// CASES 29 on a real file system.
func TestAFullTmpfsStopsIntakeAndTheOutboxRecoversByItself(t *testing.T) {
	dir := smallDisk(t, "4m")
	ballast := filepath.Join(dir, "ballast")
	b := open(t, filepath.Join(dir, "box"), outbox.Options{SegmentSize: 256 << 10})
	t.Cleanup(func() { b.Close() })
	next, quarantined := 0, 0
	got := map[int]bool{}
	for round := range 6 {
		for {
			_, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(next, 3000)}})
			if errors.Is(err, outbox.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			next++
		}
		if !b.Stats().Full {
			t.Fatal("not reported as full")
		}
		// Not a byte left, not for a rewrite either.
		if f, err := os.Create(ballast); err == nil {
			for n := 4096; ; {
				if _, err := f.Write(make([]byte, n)); err != nil {
					break
				}
			}
			f.Close()
		}
		for range 10 + 30*round {
			l, err := b.TryLease(outbox.Limits{Records: 5})
			if err != nil {
				t.Fatal(err)
			}
			if l == nil {
				break
			}
			for i, e := range l.Entries() {
				n := keyNumber(t, e.Key)
				if !bytes.Equal(e.Payload, payload(n, 3000)) || got[n] {
					t.Fatalf("entry %d altered or twice", n)
				}
				if i == 2 && quarantined < 4*(round+1) {
					if err := l.Quarantine(refused(e.ID)); err != nil {
						t.Fatalf("round %d: quarantine on a full disk: %v", round, err)
					}
					quarantined++
					got[n] = true
					continue
				}
				if err := l.Ack(e.ID); err != nil {
					t.Fatalf("round %d: ack on a full disk: %v", round, err)
				}
				got[n] = true
			}
			l.Close()
		}
		if err := os.Remove(ballast); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		// Room comes when whole segments are settled, and then without a word from anybody.
		for room := false; !room; {
			c, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			room = b.WaitRoom(c) == nil
			cancel()
			l, err := b.TryLease(outbox.Limits{Records: 20})
			if err != nil || l == nil {
				t.Fatal("nothing to settle and still no room", err)
			}
			for _, e := range l.Entries() {
				got[keyNumber(t, e.Key)] = true
				if err := l.Ack(e.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		checkSums(t, b.Stats())
	}
	for _, n := range drain(t, b, 3000, outbox.Limits{}) {
		got[n] = true
	}
	if len(got) != next {
		t.Fatalf("%d of %d came", len(got), next)
	}
	s := b.Stats()
	if s.Quarantined != int64(quarantined) || s.Acked != int64(next-quarantined) {
		t.Fatalf("%+v", s)
	}
}

// On a disk that one segment fills, that segment is all there is to give back.
func TestADiskOfOneSegmentHasRoomAgainOnceItIsDrained(t *testing.T) {
	dir := smallDisk(t, "8m")
	b := open(t, filepath.Join(dir, "box"), outbox.Options{})
	t.Cleanup(func() { b.Close() })
	next := 0
	for range 3 {
		before := next
		for ; ; next++ {
			_, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(next, 400_000)}})
			if errors.Is(err, outbox.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if next-before < 10 {
			t.Fatalf("only %d records of 400 KB fit into 8 MiB", next-before)
		}
		for drained := 0; drained < next-before; {
			l, err := b.TryLease(outbox.Limits{Records: 100})
			if err != nil {
				t.Fatal(err)
			}
			if l == nil {
				t.Fatalf("%d of %d records handed out", drained, next-before)
			}
			var ids []outbox.ID
			for _, e := range l.Entries() {
				ids = append(ids, e.ID)
			}
			if err := l.Ack(ids...); err != nil {
				t.Fatal(err)
			}
			l.Close()
			drained += len(ids)
		}
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		if err := b.WaitRoom(wait); err != nil {
			t.Fatalf("no room in a drained outbox: %v", err)
		}
		cancel()
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, filepath.Join(dir, "box"), outbox.Options{})
	s := b.Stats()
	if s.Committed != int64(next) || s.Acked != int64(next) {
		t.Fatalf("committed %d, acked %d after a restart, want %d of both", s.Committed, s.Acked, next)
	}
	b.Close()
}

// Entries that wait for room themselves, as the drafts of summaries do, must not keep
// the room that all others have given back.
func TestAFewEntriesOfEachSegmentDoNotKeepAFullDisk(t *testing.T) {
	dir := smallDisk(t, "4m")
	b := open(t, filepath.Join(dir, "box"), outbox.Options{SegmentSize: 256 << 10})
	t.Cleanup(func() { b.Close() })
	next := 0
	for ; ; next++ {
		if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(next, 3000)}}); errors.Is(err, outbox.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(dir, "ballast")) // not a byte left
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()

	var leases []*outbox.Lease
	for {
		l, err := b.TryLease(outbox.Limits{Records: 100})
		if err != nil {
			t.Fatal(err)
		}
		if l == nil {
			break
		}
		leases = append(leases, l)
		for _, e := range l.Entries() {
			if keyNumber(t, e.Key)%40 == 0 {
				continue
			}
			if err := l.Ack(e.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, l := range leases {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	kept := int(b.Stats().Pending)
	if kept < 10 || kept > next/5 {
		t.Fatalf("%d of %d entries are kept", kept, next)
	}
	c, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := b.WaitRoom(c); err != nil {
		t.Fatalf("%d entries of %d keep the whole disk: %v\n%+v", kept, next, err, b.Stats())
	}
	if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(next, 3000)}}); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, b, 3000, outbox.Limits{}); len(got) != kept+1 {
		t.Fatalf("%d entries came, want %d", len(got), kept+1)
	}
	checkSums(t, b.Stats())
}

func TestAnUrgentBatchHasTheReserve(t *testing.T) {
	dir := smallDisk(t, "4m")
	b := open(t, filepath.Join(dir, "box"), outbox.Options{SegmentSize: 256 << 10})
	t.Cleanup(func() { b.Close() })
	next := 0
	commit := func(urgent bool) error {
		_, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(next, 3000)}, Urgent: urgent})
		if err == nil {
			next++
		}
		return err
	}
	var err error
	for err == nil {
		err = commit(false)
	}
	if !errors.Is(err, outbox.ErrFull) {
		t.Fatal(err)
	}
	urgent := 0
	for ; commit(true) == nil; urgent++ {
	}
	// An eighth of a segment is 32 KiB, and some of it goes for whole pages.
	if urgent < 4 || urgent > 20 {
		t.Errorf("%d entries went into the reserve", urgent)
	}
	if err := commit(true); !errors.Is(err, outbox.ErrFull) {
		t.Error(err)
	}
	if got := drain(t, b, 3000, outbox.Limits{}); len(got) != next {
		t.Errorf("%d entries of %d came", len(got), next)
	}
	if err := b.WaitRoom(ctx); err != nil {
		t.Fatal(err)
	}
	if err := commit(false); err != nil {
		t.Error(err)
	}
}
