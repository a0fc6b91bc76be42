package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashChildEnv) != "" {
		crashChild()
		return
	}
	if os.Getenv(backlogChildEnv) != "" {
		backlogChild()
		return
	}
	goleak.VerifyTestMain(m)
}

var ctx = context.Background()

func open(t testing.TB, dir string, o outbox.Options) *outbox.Outbox {
	t.Helper()
	b, err := outbox.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// payload is determined by its number, so that any alteration shows.
func payload(n, size int) []byte {
	head := fmt.Sprintf("payload %d ", n)
	return append([]byte(head), bytes.Repeat([]byte{byte(n), byte(n >> 8)}, max(size-len(head), 0)/2)...)
}

func entry(n, size int) outbox.Entry {
	return outbox.Entry{Key: fmt.Appendf(nil, "key-%d", n), Stream: fmt.Sprintf("s%d", n%5), Payload: payload(n, size)}
}

func commit(t testing.TB, b *outbox.Outbox, from, n, size int) {
	t.Helper()
	var batch outbox.Batch
	for i := range n {
		batch.Entries = append(batch.Entries, entry(from+i, size))
	}
	batch.Cursors = []outbox.Cursor{{Key: "c", Value: fmt.Append(nil, from+n)}}
	if _, err := b.Commit(ctx, &batch); err != nil {
		t.Fatalf("commit %d: %v", from, err)
	}
}

// keyNumber is the number that entry was made with.
func keyNumber(t testing.TB, key []byte) int {
	t.Helper()
	var n int
	if _, err := fmt.Sscanf(string(key), "key-%d", &n); err != nil {
		t.Fatalf("key %q: %v", key, err)
	}
	return n
}

// drain acks everything that is pending and returns the numbers in the order they came,
// checking every payload and the order within streams.
func drain(t testing.TB, b *outbox.Outbox, size int, lim outbox.Limits) []int {
	t.Helper()
	var got []int
	last := map[string]outbox.ID{}
	for {
		l, err := b.TryLease(lim)
		if err != nil {
			t.Fatal(err)
		}
		if l == nil {
			return got
		}
		var ids []outbox.ID
		for _, e := range l.Entries() {
			n := keyNumber(t, e.Key)
			if !bytes.Equal(e.Payload, payload(n, size)) {
				t.Fatalf("entry %d: payload altered", n)
			}
			if e.ID <= last[e.Stream] {
				t.Fatalf("stream %s: %d after %d", e.Stream, e.ID, last[e.Stream])
			}
			last[e.Stream] = e.ID
			got = append(got, n)
			ids = append(ids, e.ID)
		}
		if err := l.Ack(ids...); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkSums(t testing.TB, s outbox.Stats) {
	t.Helper()
	if s.Committed != s.Acked+s.Quarantined+s.Held+s.Discarded+s.Pending {
		t.Fatalf("totals do not reconcile: %+v", s)
	}
}

func TestEntriesAndCursorsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, outbox.Options{})
	commit(t, b, 0, 10, 100)
	commit(t, b, 10, 10, 100)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir, outbox.Options{})
	if v, ok := b.Cursor("c"); !ok || string(v) != "20" {
		t.Fatalf("cursor %q %v", v, ok)
	}
	if got := drain(t, b, 100, outbox.Limits{Records: 7}); len(got) != 20 {
		t.Fatalf("drained %d of 20", len(got))
	}
	s := b.Stats()
	checkSums(t, s)
	if s.Acked != 20 || s.Committed != 20 || s.Pending != 0 {
		t.Fatalf("%+v", s)
	}
	b.Close()
	b = open(t, dir, outbox.Options{})
	if got := drain(t, b, 100, outbox.Limits{}); len(got) != 0 {
		t.Fatalf("%d came back", len(got))
	}
	if r := b.Recovery(); r.TornBytes != 0 || r.Unaccounted != 0 || b.Stats().Degraded {
		t.Fatalf("clean restart reports %+v", r)
	}
}

func TestASecondOpenFailsAtOnceNamingTheHolder(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, outbox.Options{Instance: "first one"})
	_, err := outbox.Open(dir, outbox.Options{})
	var le *outbox.LockedError
	if !errors.As(err, &le) || le.PID != os.Getpid() || le.Instance != "first one" || le.Host == "" {
		t.Fatalf("%v", err)
	}
}

func TestFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no mode bits")
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	b := open(t, dir, outbox.Options{})
	commit(t, b, 0, 1, 10)
	err := filepath.WalkDir(filepath.Dir(dir), func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s: mode %v", p, st.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// CASES 34.
func TestDiskFallsToOneSegmentAfterDraining(t *testing.T) {
	dir := t.TempDir()
	const seg = 64 << 10
	b := open(t, dir, outbox.Options{SegmentSize: seg})
	for i := range 200 {
		commit(t, b, 10*i, 10, 1000)
	}
	if s := b.Stats(); s.Segments < 20 {
		t.Fatalf("%d segments", s.Segments)
	}
	if got := drain(t, b, 1000, outbox.Limits{Records: 100}); len(got) != 2000 {
		t.Fatalf("drained %d", len(got))
	}
	s := b.Stats()
	checkSums(t, s)
	files, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	if s.Segments != 1 || len(files) != 1 {
		t.Fatalf("%d segments, files %v", s.Segments, files)
	}
}

func TestStreamsAreLeasedInOrderByOneLeaseAtATime(t *testing.T) {
	b := open(t, t.TempDir(), outbox.Options{})
	commit(t, b, 0, 50, 50) // 5 streams
	l1, _ := b.TryLease(outbox.Limits{Records: 4})
	l2, _ := b.TryLease(outbox.Limits{Records: 100})
	if l3, _ := b.TryLease(outbox.Limits{}); l3 != nil {
		t.Fatalf("a third lease got %d entries although every stream is leased", len(l3.Entries()))
	}
	streams := map[string]int{}
	for i, l := range []*outbox.Lease{l1, l2} {
		for _, e := range l.Entries() {
			if w, ok := streams[e.Stream]; ok && w != i {
				t.Fatalf("stream %s in two leases", e.Stream)
			}
			streams[e.Stream] = i
		}
	}
	if len(l1.Entries()) != 4 || len(streams) != 5 {
		t.Fatalf("%d entries, %d streams", len(l1.Entries()), len(streams))
	}
	// The first goes back, its successors follow it.
	first := l1.Entries()[0]
	if err := l1.Ack(l1.Entries()[1].ID); err != nil {
		t.Fatal(err)
	}
	l1.Close()
	l2.Close()
	l, _ := b.TryLease(outbox.Limits{Records: 3})
	if l.Entries()[0].ID != first.ID || l.Entries()[1].ID != first.ID+10 {
		t.Fatalf("after a return: %d, %d", l.Entries()[0].ID, l.Entries()[1].ID)
	}
	l.Close()
	checkSums(t, b.Stats())
}

func TestTheEmptyStreamHasNoOrderAndNeverBlocks(t *testing.T) {
	b := open(t, t.TempDir(), outbox.Options{})
	var batch outbox.Batch
	for i := range 10 {
		batch.Entries = append(batch.Entries, outbox.Entry{Payload: payload(i, 20)})
	}
	if _, err := b.Commit(ctx, &batch); err != nil {
		t.Fatal(err)
	}
	l1, _ := b.TryLease(outbox.Limits{Records: 3})
	l2, _ := b.TryLease(outbox.Limits{Records: 100})
	if len(l1.Entries()) != 3 || len(l2.Entries()) != 7 {
		t.Fatalf("%d and %d", len(l1.Entries()), len(l2.Entries()))
	}
	l1.Close()
	l2.Close()
}

func TestALargeEntryIsLeasedAlone(t *testing.T) {
	b := open(t, t.TempDir(), outbox.Options{})
	commit(t, b, 0, 1, 1<<20)
	commit(t, b, 5, 1, 1<<20)
	l, err := b.TryLease(outbox.Limits{Records: 10, Bytes: 1000})
	if err != nil || len(l.Entries()) != 1 || len(l.Entries()[0].Payload) < 1<<20-50 {
		t.Fatalf("%v %v", l, err)
	}
	l.Close()
}

func TestQuarantineKeepsWhyAndComesBackByHand(t *testing.T) {
	dir := t.TempDir()
	began := time.Now().Round(0) // by the wall clock, as what is stored
	b := open(t, dir, outbox.Options{})
	commit(t, b, 0, 5, 100)
	l, _ := b.TryLease(outbox.Limits{})
	ids := make([]outbox.ID, 5)
	for i, e := range l.Entries() {
		ids[i] = e.ID
	}
	if err := l.Quarantine(outbox.Refused{ID: ids[1], Reason: "status-400", Outcome: outbox.OutcomeRefused, ReceiverWords: "no thanks"},
		outbox.Refused{ID: ids[2], Reason: "partial", Outcome: outbox.OutcomeUnknown, ReceiverWords: strings.Repeat("ü", 5000), Payload: []byte("as sent")}); err != nil {
		t.Fatal(err)
	}
	if err := l.Ack(ids[1]); !errors.Is(err, outbox.ErrNotLeased) {
		t.Fatalf("ack of a quarantined entry: %v", err)
	}
	if err := l.Ack(ids[0], ids[3], ids[4]); err != nil {
		t.Fatal(err)
	}
	check := func(b interface {
		ScanStates(func(outbox.Info) bool, ...outbox.State) error
		Stats() outbox.Stats
	}) {
		t.Helper()
		s := b.Stats()
		checkSums(t, s)
		if s.Quarantined != 2 || s.Acked != 3 || s.Committed != 5 {
			t.Fatalf("%+v", s)
		}
		var got []outbox.Info
		if err := b.ScanStates(func(i outbox.Info) bool {
			i.Payload, i.Key = bytes.Clone(i.Payload), bytes.Clone(i.Key)
			got = append(got, i)
			return true
		}, outbox.Quarantined); err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].ID != ids[1] || got[0].Quarantine.ReceiverWords != "no thanks" || got[0].Quarantine.Reason != "status-400" ||
			got[0].Quarantine.Outcome != outbox.OutcomeRefused || got[0].Quarantine.Time.Before(began) {
			t.Fatalf("%+v", got)
		}
		if q := got[1]; string(q.Payload) != "as sent" || q.Quarantine.Outcome != outbox.OutcomeUnknown || len(q.Quarantine.ReceiverWords) != 4096 {
			t.Fatalf("%+v", q)
		}
	}
	check(b)
	v, err := outbox.OpenReadOnly(dir, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check(v)
	v.Close()
	b.Close()
	b = open(t, dir, outbox.Options{})
	check(b)
	if err := b.Retry(ids[0]); err == nil {
		t.Fatal("retried an acked entry")
	}
	if err := b.Retry(ids[2]); err != nil {
		t.Fatal(err)
	}
	if l, _ = b.TryLease(outbox.Limits{}); l == nil || l.Entries()[0].ID != ids[2] || string(l.Entries()[0].Payload) != "as sent" {
		t.Fatalf("retry gives %v", l)
	}
	if err := l.Ack(ids[2]); err != nil {
		t.Fatal(err)
	}
	if err := b.Drop(ids[1]); err != nil {
		t.Fatal(err)
	}
	s := b.Stats()
	checkSums(t, s)
	if s.Acked != 4 || s.Discarded != 1 || s.Quarantined != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestHeldEntriesWaitForAnOperator(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, outbox.Options{})
	e := entry(100, 50)
	e.Held = true
	if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{e}}); err != nil {
		t.Fatal(err)
	}
	commit(t, b, 0, 10, 50)
	l, _ := b.TryLease(outbox.Limits{Records: 1}) // number 0
	n, err := b.Hold(func(i outbox.Info) bool { return i.Stream == "s0" })
	if err != nil || n != 2 {
		t.Fatalf("held %d: %v", n, err)
	}
	l.Close() // stays held
	b.Close()
	b = open(t, dir, outbox.Options{})
	if s := b.Stats(); s.Held != 3 || s.Pending != 8 {
		t.Fatalf("%+v", s)
	}
	if got := drain(t, b, 50, outbox.Limits{}); len(got) != 8 {
		t.Fatalf("drained %v", got)
	}
	if err := b.Send(1, 2); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, b, 50, outbox.Limits{}); len(got) != 2 || got[0] != 100 {
		t.Fatalf("sent %v", got)
	}
	if n, err := b.DiscardHeld(nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := b.Send(1); err == nil {
		t.Fatal("sent an acked entry")
	}
	if err := b.Send(4711); !errors.Is(err, outbox.ErrNotFound) {
		t.Fatal(err)
	}
	s := b.Stats()
	checkSums(t, s)
	if s.Discarded != 1 || s.Acked != 10 || s.Held != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestSegmentsPinnedByFewEntriesAreRewritten(t *testing.T) {
	const dir, seg = simDir, 128 << 10
	fs := faultfs.New()
	b := open(t, dir, outbox.Options{FS: fs, SegmentSize: seg})
	pinned := map[outbox.ID]bool{}
	for i := range 3000 {
		e := entry(i, 1000)
		e.Stream = fmt.Sprint("s", i)
		id, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{e}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := b.TryLease(outbox.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 7 {
			pinned[id] = true
			if i%200 == 7 {
				err = l.Quarantine(outbox.Refused{ID: id, Reason: "x", Outcome: outbox.OutcomeRefused})
			} else {
				l.Close()
				_, err = b.Hold(func(i outbox.Info) bool { return i.ID == id })
			}
		} else {
			err = l.Ack(id)
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	s := b.Stats()
	checkSums(t, s)
	// 30 pinned entries of about 1,100 bytes.
	if limit := int64(4*30*1200 + 3*(seg+40<<10) + seg/8 + 2*(64<<10)); s.DiskBytes > limit {
		t.Fatalf("%d bytes on disk for 30 entries in %d segments, the bound is %d", s.DiskBytes, s.Segments, limit)
	}
	b.Close()
	b = open(t, dir, outbox.Options{FS: fs, SegmentSize: seg})
	if s2 := b.Stats(); s2.Committed != 3000 || s2.Acked != 2970 || s2.Quarantined != 15 || s2.Held != 15 || b.Recovery().Unaccounted != 0 {
		t.Fatalf("%+v %+v", s2, b.Recovery())
	}
	if n, err := b.SendHeld(nil); n != 15 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := b.RetryAll(func(outbox.Info) bool { return true }); n != 15 || err != nil {
		t.Fatal(n, err)
	}
	for _, n := range drain(t, b, 1000, outbox.Limits{}) {
		delete(pinned, outbox.ID(n+1))
	}
	if len(pinned) != 0 {
		t.Fatalf("lost %v", pinned)
	}
	checkSums(t, b.Stats())
}

func TestConcurrentCommitsShareSyncs(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, outbox.Options{GroupDelay: time.Millisecond})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 20 {
				n := g*1000 + i
				if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(n, 100)}, Cursors: []outbox.Cursor{{Key: fmt.Sprint("g", g), Value: fmt.Append(nil, i)}}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.Close()
	b = open(t, dir, outbox.Options{})
	for g := range 16 {
		if v, _ := b.Cursor(fmt.Sprint("g", g)); string(v) != "19" {
			t.Fatalf("cursor %d: %q", g, v)
		}
	}
	if got := drain(t, b, 100, outbox.Limits{}); len(got) != 320 {
		t.Fatalf("%d", len(got))
	}
}

func TestLeaseWaitsForACommitAndForItsContext(t *testing.T) {
	b := open(t, t.TempDir(), outbox.Options{})
	c, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := b.Lease(c, outbox.Limits{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	got := make(chan int)
	go func() {
		l, err := b.Lease(ctx, outbox.Limits{})
		if err != nil {
			t.Error(err)
		}
		got <- len(l.Entries())
	}()
	commit(t, b, 0, 3, 10)
	if n := <-got; n != 3 {
		t.Fatal(n)
	}
	done := make(chan error)
	go func() {
		_, err := b.Lease(ctx, outbox.Limits{})
		done <- err
	}()
	b.Close()
	if err := <-done; !errors.Is(err, outbox.ErrClosed) {
		t.Fatal(err)
	}
}

func TestABatchThatThe32BitsOfItsPlacesCannotHoldIsRefused(t *testing.T) {
	b := open(t, "/box", outbox.Options{FS: faultfs.New()})
	shared := make([]byte, 64<<20)
	entries := outbox.Batch{Entries: slices.Repeat([]outbox.Entry{{Payload: shared}}, 70)}
	cursors := outbox.Batch{Cursors: slices.Repeat([]outbox.Cursor{{Key: "c", Value: shared}}, 70)}
	for _, batch := range []*outbox.Batch{&entries, &cursors} {
		if _, err := b.Commit(ctx, batch); !errors.Is(err, outbox.ErrTooLarge) {
			t.Error(err)
		}
	}
}

func TestTheSizeLimitStopsIntakeUntilSomethingIsAcked(t *testing.T) {
	b := open(t, t.TempDir(), outbox.Options{MaxSize: 1 << 20, SegmentSize: 64 << 10})
	n := 0
	for ; ; n++ {
		_, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(n, 5000)}})
		if errors.Is(err, outbox.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := b.Stats()
	if !s.Full || s.DiskBytes > 1<<20 || n < 100 {
		t.Fatalf("%d committed, %+v", n, s)
	}
	c, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := b.WaitRoom(c); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	room := make(chan error)
	go func() { room <- b.WaitRoom(ctx) }()
	if got := drain(t, b, 5000, outbox.Limits{Records: 10}); len(got) != n {
		t.Fatal(len(got), n)
	}
	if err := <-room; err != nil {
		t.Fatal(err)
	}
	commit(t, b, n, 1, 5000)
	if s := b.Stats(); s.Full || s.Committed != int64(n+1) {
		t.Fatalf("%+v", s)
	}
	if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{{Payload: make([]byte, 1<<20)}}}); !errors.Is(err, outbox.ErrTooLarge) {
		t.Fatal(err)
	}
}

// What is in quarantine counts, over a restart too, until an operator drops it.
func TestQuarantineCountsAgainstTheSizeLimit(t *testing.T) {
	dir := t.TempDir()
	options := outbox.Options{MaxSize: 1 << 20, SegmentSize: 64 << 10}
	b := open(t, dir, options)
	put := func(n int) error {
		_, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(n, 5000)}})
		return err
	}
	n := 0
	for ; ; n++ {
		err := put(n)
		if errors.Is(err, outbox.ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := b.TryLease(outbox.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Quarantine(refused(l.Entries()[0].ID)); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	if s := b.Stats(); n < 50 || s.Quarantined != int64(n) || s.Pending != 0 {
		t.Fatalf("full with %d: %+v", n, s)
	}
	b.Close()
	b = open(t, dir, options)
	if s := b.Stats(); s.Quarantined != int64(n) {
		t.Fatalf("after a restart %+v", s)
	}
	if err := put(n); !errors.Is(err, outbox.ErrFull) {
		t.Fatalf("after a restart: %v", err)
	}
	var ids []outbox.ID
	if err := b.ScanStates(func(i outbox.Info) bool {
		ids = append(ids, i.ID)
		return true
	}, outbox.Quarantined); err != nil {
		t.Fatal(err)
	}
	if err := b.Drop(ids[:n/2]...); err != nil {
		t.Fatal(err)
	}
	if err := b.WaitRoom(ctx); err != nil {
		t.Fatal(err)
	}
	if err := put(n); err != nil {
		t.Fatal(err)
	}
}

// A limit below what the last segment takes, of which hardly anything is needed: it is
// rewritten, not waited for.
func TestALowerLimitIsReachedAlthoughAHeldEntryPinsTheLastSegment(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, outbox.Options{})
	held := entry(0, 100)
	held.Held = true
	if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{held}}); err != nil {
		t.Fatal(err)
	}
	commit(t, b, 1, 600, 10_000)
	if got := drain(t, b, 10_000, outbox.Limits{}); len(got) != 600 {
		t.Fatal(len(got))
	}
	b.Close()
	b = open(t, dir, outbox.Options{MaxSize: 4 << 20})
	if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(601, 100)}}); !errors.Is(err, outbox.ErrFull) {
		t.Fatalf("%v: %+v", err, b.Stats())
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.WaitRoom(wait); err != nil {
		t.Fatalf("%v: %+v", err, b.Stats())
	}
	commit(t, b, 601, 1, 100)
	if s := b.Stats(); s.Held != 1 || s.Pending != 1 || s.DiskBytes > 2<<20 {
		t.Fatalf("%+v", s)
	}
	checkSums(t, b.Stats())
}

// A segment that was full for one program is not for one with larger segments; what the
// checkpoint has left behind is not gone on with all the same.
func TestLargerSegmentsDoNotGoOnBelowTheCheckpoint(t *testing.T) {
	fs := faultfs.New()
	b := open(t, simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	commit(t, b, 0, 4, 10_000) // more than a segment
	commit(t, b, 4, 4, 10_000) // another one
	b.Close()
	b = open(t, simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	l, err := b.TryLease(outbox.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l.Entries() {
		if keyNumber(t, e.Key) < 4 {
			if err := l.Ack(e.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.Close()
	if s := b.Stats(); s.Segments != 1 {
		t.Fatalf("%+v", s)
	}
	b.Close() // the first segment is gone, the checkpoint is past the second
	b = open(t, simDir, outbox.Options{FS: fs, SegmentSize: 1 << 20})
	commit(t, b, 8, 1, 10_000)
	b = open(t, simDir, outbox.Options{FS: fs.Clone(), SegmentSize: 1 << 20}) // after a crash
	if v, _ := b.Cursor("c"); string(v) != "9" || b.Stats().Pending != 5 {
		t.Fatalf("cursor %q, %+v", v, b.Stats())
	}
}

func TestManyWorkersAgainstManyWriters(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, outbox.Options{SegmentSize: 64 << 10, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	const writers, each = 4, 150
	var mu sync.Mutex
	seen := map[int]int{}
	last := map[string]outbox.ID{}
	var wg, workers sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				e := entry(w*10000+i, 700)
				e.Stream = fmt.Sprintf("w%d-%d", w, i%3)
				if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{e}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	c, cancel := context.WithCancel(ctx)
	defer cancel()
	for w := range 4 {
		rng := rand.New(rand.NewPCG(uint64(w), 1))
		workers.Go(func() {
			for {
				l, err := b.Lease(c, outbox.Limits{Records: 20})
				if err != nil {
					return
				}
				for _, e := range l.Entries() {
					switch rng.IntN(20) {
					case 0: // and everything after it
						l.Close()
					case 1:
						if err := l.Quarantine(outbox.Refused{ID: e.ID, Reason: "r", Outcome: outbox.OutcomeRefused}); err != nil && !errors.Is(err, outbox.ErrNotLeased) {
							t.Error(err)
						}
						continue
					}
					mu.Lock()
					if err := l.Ack(e.ID); err == nil {
						n := keyNumber(t, e.Key)
						seen[n]++
						if e.ID <= last[e.Stream] {
							t.Errorf("stream %s: %d acked after %d", e.Stream, e.ID, last[e.Stream])
						}
						last[e.Stream] = e.ID
					}
					mu.Unlock()
				}
				l.Close()
				if s := b.Stats(); s.Acked+s.Quarantined == writers*each {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	workers.Wait()
	s := b.Stats()
	checkSums(t, s)
	if int(s.Acked) != len(seen) || s.Acked+s.Quarantined != writers*each {
		t.Fatalf("%+v, seen %d", s, len(seen))
	}
	for n, k := range seen {
		if k != 1 {
			t.Fatalf("entry %d acked %d times", n, k)
		}
	}
}
