package outbox_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// gateFS tells of each sync of a segment before it happens, and waits for leave.
type gateFS struct {
	*faultfs.FS
	begun, leave chan struct{} // nil: no gate
	wrote        chan int64    // sizes of writes to segments
}

func (g *gateFS) OpenFile(name string, flag int, perm os.FileMode) (outbox.File, error) {
	f, err := g.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, ".seg") {
		return f, err
	}
	return gateFile{f, g}, nil
}

type gateFile struct {
	outbox.File
	g *gateFS
}

func (f gateFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	if f.g.wrote != nil {
		f.g.wrote <- int64(len(b))
	}
	return n, err
}

func (f gateFile) Sync() error {
	if f.g.begun != nil {
		f.g.begun <- struct{}{}
		<-f.g.leave
	}
	return f.File.Sync()
}

// An acknowledgement that comes while commits are on their way needs no sync of its own, and
// has not returned before theirs.
func TestAnAcknowledgementSharesTheSyncOfACommit(t *testing.T) {
	g := &gateFS{FS: faultfs.New()}
	b := open(t, simDir, outbox.Options{FS: g})
	commit(t, b, 0, 3, 100)
	l, err := b.TryLease(outbox.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	g.begun, g.leave, g.wrote = make(chan struct{}, 100), make(chan struct{}), make(chan int64, 100)
	defer close(g.leave) // before the outbox is closed
	errs := make(chan error, 3)
	put := func(n int) {
		_, err := b.Commit(ctx, &outbox.Batch{Entries: []outbox.Entry{entry(n, 100)}})
		errs <- err
	}
	go put(3)
	<-g.begun // the first sync
	go put(4)
	for b.Queued() == 0 { // for the next one
		runtime.Gosched()
	}
	for len(g.wrote) > 0 {
		<-g.wrote
	}
	acked := make(chan error, 1)
	go func() { acked <- l.Ack(l.Entries()[0].ID) }()
	if n := <-g.wrote; n != 512 {
		t.Fatalf("a write of %d bytes", n)
	}
	g.leave <- struct{}{}
	<-g.begun // the second one
	select {
	case err := <-acked:
		t.Fatalf("acknowledged before the sync: %v", err)
	default:
	}
	g.leave <- struct{}{}
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-acked:
		if err != nil {
			t.Fatal(err)
		}
	case <-g.begun:
		t.Fatal("a third sync")
	}
	l.Close()
}
