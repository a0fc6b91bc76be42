package outbox_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func lease(t testing.TB, b *outbox.Outbox, n int) *outbox.Lease {
	t.Helper()
	l, err := b.TryLease(outbox.Limits{Records: n})
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	return l
}

func TestWhatAnOperatorHasDiscardedDoesNotComeBackByQuarantine(t *testing.T) {
	fs := faultfs.New()
	b := open(t, "/box", outbox.Options{FS: fs})
	commit(t, b, 0, 3, 100)
	l := lease(t, b, 0)
	gone, refusedOne := l.Entries()[0].ID, l.Entries()[1].ID
	if err := b.Discard(gone); err != nil {
		t.Fatal(err)
	}
	fs.Fault(func(faultfs.Op) error { return errInjected })
	if err := l.Quarantine(refused(gone), refused(refusedOne)); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	fs.Fault(nil)
	if err := l.Quarantine(refused(gone), refused(refusedOne)); err != nil { // may be repeated
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := b.Stats()
		checkSums(t, s)
		if s.Discarded != 1 || s.Quarantined != 1 || s.Pending != 1 || s.Leased != 0 {
			t.Errorf("%+v", s)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t, "/box", outbox.Options{FS: fs})
	}
}

// What is on its way into quarantine is not an operator's to change any more: it would come back
// from there.
func TestAnOperatorIsToldWhatIsOnItsWayIntoQuarantine(t *testing.T) {
	fs := &hookFS{FS: faultfs.New()}
	b := open(t, "/box", outbox.Options{FS: fs, SegmentSize: 16 << 10})
	commit(t, b, 0, 10, 1000)
	commit(t, b, 10, 10, 1000) // in another segment: the quarantine goes there
	l := lease(t, b, 0)
	id := l.Entries()[0].ID
	var discarded error
	fs.sync = func(name string) error { // of the quarantine's commit
		fs.sync = nil
		discarded = b.Discard(id)
		return nil
	}
	if err := l.Quarantine(refused(id)); err != nil {
		t.Fatal(err)
	}
	s := b.Stats()
	if discarded == nil || s.Discarded != 0 || s.Quarantined != 1 {
		t.Errorf("discard: %v, %+v", discarded, s)
	}
}

// The states of the segment that an entry leaves must be at hand before the entry is written anew.
func TestAQuarantineThatCannotReadItsSegmentDoesNothing(t *testing.T) {
	fs := &hookFS{FS: faultfs.New()}
	b := open(t, "/box", outbox.Options{FS: fs, SegmentSize: 16 << 10})
	for i := range 90 {
		commit(t, b, i*10, 10, 1200)
	}
	l := lease(t, b, 1)
	// Only so many segments are open at a time.
	if err := b.Scan(func(outbox.Info) bool { return true }); err != nil {
		t.Fatal(err)
	}
	fs.open = func(name string) error {
		return &os.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	if err := l.Quarantine(refused(l.Entries()[0].ID)); !errors.Is(err, syscall.EMFILE) {
		t.Fatal(err)
	}
	s := b.Stats()
	checkSums(t, s)
	if s.Quarantined != 0 {
		t.Errorf("%+v", s)
	}
	fs.open = nil
	if err := l.Quarantine(refused(l.Entries()[0].ID)); err != nil {
		t.Fatal(err)
	}
	s = b.Stats()
	checkSums(t, s)
	if s.Quarantined != 1 || s.Pending != 899 {
		t.Errorf("%+v", s)
	}
}

func TestIntakeThatFindsNoRoomLeavesTheReserve(t *testing.T) {
	fs := faultfs.New()
	b := open(t, "/box", outbox.Options{FS: fs, SegmentSize: 64 << 10})
	commit(t, b, 0, 30, 1000)
	l := lease(t, b, 0)
	fs.SetBudget(fs.Used())
	if err := l.Quarantine(refused(l.Entries()[0].ID)); err != nil { // takes a part of it
		t.Fatal(err)
	}
	if _, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(30, 1000)}}); !errors.Is(err, outbox.ErrFull) {
		t.Fatal(err)
	}
	fs.SetBudget(fs.Used()) // others have what was given back
	for _, e := range l.Entries()[1:4] {
		if err := l.Quarantine(refused(e.ID)); err != nil {
			t.Error(err)
		}
	}
	if got, want := b.Stats().DiskBytes, fs.Used(); got != want {
		t.Errorf("%d bytes on disk, said to be %d", want, got)
	}
}

// What the checkpoint would grow by, former cursors, is worth less than the quarantine.
func TestAQuarantineNeedsNoRoomInTheCheckpoint(t *testing.T) {
	const cursors, value, segment = 40, 1500, 128 << 10
	fs := faultfs.New()
	b := open(t, "/box", outbox.Options{FS: fs, SegmentSize: segment})
	for k := range 4 { // fills a segment, in which all cursors move
		batches := []outbox.Batch{{Entries: []outbox.Entry{entry(k, segment-cursors*(value+82)-300)}}}
		for i := range cursors {
			batches = append(batches, outbox.Batch{Cursors: []outbox.Cursor{{Key: fmt.Sprint("c", i), Value: make([]byte, value)}}})
		}
		for i := range batches {
			if _, err := b.Commit(ctx, &batches[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := lease(t, b, 0)
	// Room for the entries, not for larger checkpoints beside them.
	fs.SetBudget(fs.Used() + 480<<10)
	for _, e := range l.Entries() {
		q := refused(e.ID)
		q.Payload = make([]byte, 100<<10) // so that each has a segment for itself
		if err := l.Quarantine(q); err != nil {
			t.Fatalf("entry %d: %v", e.ID, err)
		}
	}
	fs.SetBudget(-1)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, "/box", outbox.Options{FS: fs, SegmentSize: segment})
	s := b.Stats()
	checkSums(t, s)
	if s.Quarantined != 4 || s.Cursors != cursors {
		t.Errorf("%+v", s)
	}
}

// A segment is rewritten while the disk fails: its states are written later, and not read again
// from where they are not.
func TestAnAcknowledgedEntryStaysItWhenRewritingFails(t *testing.T) {
	fs := &hookFS{FS: faultfs.New()}
	b := open(t, "/box", outbox.Options{FS: fs, SegmentSize: 64 << 10})
	for i := range 200 {
		commit(t, b, i*10, 10, 100)
	}
	if _, err := b.Hold(func(i outbox.Info) bool { return i.ID%200 == 0 }); err != nil {
		t.Fatal(err)
	}
	l := lease(t, b, 0)
	const last = outbox.ID(303)
	var ids []outbox.ID
	for _, e := range l.Entries() {
		if e.ID != last {
			ids = append(ids, e.ID)
		}
	}
	checkpoints := 0
	fs.sync = func(name string) error {
		if strings.Contains(name, "checkpoint") {
			checkpoints++
		}
		if checkpoints == 2 { // of both slots; rewriting comes next
			fs.sync = nil
			fs.Fault(func(op faultfs.Op) error {
				if op.Kind == "write" && strings.HasSuffix(op.Name, ".seg") {
					return errInjected
				}
				return nil
			})
			if err := l.Ack(last); !errors.Is(err, errInjected) {
				t.Errorf("ack: %v", err)
			}
			fs.Fault(nil)
		}
		return nil
	}
	renamed := false
	fs.rename = func(from string) error {
		if strings.HasSuffix(from, ".seg.tmp") {
			renamed = true
			return errInjected
		}
		return nil
	}
	if err := l.Ack(ids...); err != nil {
		t.Fatal(err)
	}
	fs.rename = nil
	if !renamed || fs.sync != nil {
		t.Fatal("nothing was rewritten")
	}
	if _, err := b.SendHeld(nil); err != nil {
		t.Fatal(err)
	}
	again := lease(t, b, 0).Entries()
	if slices.ContainsFunc(again, func(e outbox.Leased) bool { return e.ID == last }) || len(again) != 10 {
		t.Errorf("%d entries, the one that was acknowledged among them", len(again))
	}
}
