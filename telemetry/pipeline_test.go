package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func appendTurn(t *testing.T, l *session.Ledger, n int) {
	t.Helper()
	for _, line := range turn(n) {
		typ, data, _ := strings.Cut(line, " ")
		c := session.Candidate{Type: typ, Data: json.RawMessage(data)}
		if l.Dialect().IsSurface(typ) {
			c.SurfaceOp = &session.SurfaceOp{}
		}
		if _, err := l.Append(c); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPipelineCapturesTheSessionsOfAProgramAsTheyAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := session.NewMemoryStore(nil, nil)
		early, err := store.Create(t.Context(), session.CreateOptions{Header: session.Header{ID: "early"}})
		if err != nil {
			t.Fatal(err)
		}
		appendTurn(t, early, 1)
		o := newModelOutbox()
		c := testCapture(t, o, func(c *Config) { c.Parent = Parents(store) })
		p := Attach(store, c, func(id string, err error) { t.Errorf("%s: %v", id, err) })
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })

		late, err := store.Create(ctx, session.CreateOptions{Header: session.Header{ID: "late"}})
		if err != nil {
			t.Fatal(err)
		}
		appendTurn(t, late, 1)
		synctest.Wait()
		appendTurn(t, early, 2)
		synctest.Wait()
		child, err := store.Fork(ctx, "early", session.ForkOptions{ID: "child"})
		if err != nil {
			t.Fatal(err)
		}
		appendTurn(t, child, 3)
		if err := store.Flush(ctx, "child"); err != nil {
			t.Fatal(err)
		}
		got := map[string][]int64{}
		for _, r := range o.records(t) {
			got[r.Identity.SessionID] = append(got[r.Identity.SessionID], r.Identity.Seq)
		}
		one := []int64{0, 1, 2, 3, 6, 7, 8}
		if want := append(slices.Clone(one), 9, 10, 11, 12, 15, 16, 17); !slices.Equal(got["early"], want) {
			t.Errorf("early %v", got["early"])
		}
		if !slices.Equal(got["late"], one) {
			t.Errorf("late %v", got["late"])
		}
		if want := []int64{18, 19, 20, 21, 22, 25, 26, 27}; !slices.Equal(got["child"], want) {
			t.Errorf("child %v", got["child"])
		}
		cancel()
		run.Wait()

		appendTurn(t, late, 2)
		if err := store.Dispose(context.Background(), "late"); err != nil {
			t.Fatal(err)
		}
		if len(o.records(t)) != 14+7+8+7 {
			t.Errorf("disposing did not wait for the cursor: %d records", len(o.records(t)))
		}
		appendTurn(t, early, 3)
		if err := p.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(o.records(t)) != 14+7+8+7+7 {
			t.Errorf("closing left something: %d records", len(o.records(t)))
		}
	})
}

func TestPipelineTriesAgainWhatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := session.NewMemoryStore(nil, nil)
		o := newModelOutbox()
		o.fail, o.failOn = errors.New("broken"), 1
		var errs []error
		p := Attach(store, testCapture(t, o, nil), func(_ string, err error) { errs = append(errs, err) })
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		l, err := store.Create(ctx, session.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		appendTurn(t, l, 1)
		synctest.Wait()
		<-afterRetry(ctx)
		synctest.Wait()
		cancel()
		run.Wait()
		if len(errs) != 1 || !slices.Equal(seqsOf(o.records(t)), []int64{0, 1, 2, 3, 6, 7, 8}) {
			t.Errorf("%v, %v", errs, seqsOf(o.records(t)))
		}
		if err := p.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

// An entry that turns out to be damaged when it is to be sent is captured again from
// the session in the store, though nothing is appended to it any more.
func TestPipelineCapturesDamagedEntriesAgain(t *testing.T) {
	fs := faultfs.New()
	o, err := outbox.Open("/box", outbox.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	synctest.Test(t, func(t *testing.T) {
		store := session.NewMemoryStore(nil, nil)
		p := Attach(store, testCapture(t, o, nil), func(id string, err error) { t.Errorf("%s: %v", id, err) })
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { p.Run(ctx) })
		l, err := store.Create(ctx, session.CreateOptions{Header: session.Header{ID: "s"}})
		if err != nil {
			t.Fatal(err)
		}
		appendTurn(t, l, 1)
		synctest.Wait()
		name := fs.Names()[slices.IndexFunc(fs.Names(), func(n string) bool { return strings.HasSuffix(n, ".seg") })]
		image := fs.Bytes(name)
		fs.FlipBit(name, int64(bytes.Index(image, []byte("question 1")))*8)
		got := map[int64]int{}
		drain := func() {
			for {
				lease, err := o.TryLease(outbox.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if lease == nil {
					return
				}
				for _, e := range lease.Entries() {
					r, err := DecodeRecord(e.Payload)
					if err != nil {
						t.Fatal(err)
					}
					got[r.Identity.Seq]++
					if err := lease.Ack(e.ID); err != nil {
						t.Fatal(err)
					}
				}
				lease.Close()
			}
		}
		drain()
		if len(got) != 6 || got[2] != 0 || o.Stats().Damaged != 1 {
			t.Errorf("got %v, %+v", got, o.Stats())
		}
		<-afterRetry(ctx)
		synctest.Wait()
		drain()
		if len(got) != 7 || got[2] != 1 || o.Stats().Damaged != 0 {
			t.Errorf("got %v, %+v", got, o.Stats())
		}
		cancel()
		run.Wait()
		if err := p.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDisposingFailsWhileCaptureCannotGoOn(t *testing.T) {
	store := session.NewMemoryStore(nil, nil)
	o := newModelOutbox()
	p := Attach(store, testCapture(t, o, nil), nil)
	l, err := store.Create(t.Context(), session.CreateOptions{Header: session.Header{ID: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	appendTurn(t, l, 1)
	o.fail, o.failOn = errors.New("broken"), o.commits+1
	if err := store.Dispose(t.Context(), "s"); !errors.Is(err, o.fail) {
		t.Fatal(err)
	}
	if _, ok := store.Get("s"); !ok {
		t.Error("the session is gone")
	}
	if err := store.Dispose(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(o.records(t)) != 7 {
		t.Error(fmt.Sprint(len(o.records(t)), " records"))
	}
}

// afterRetry ends a little after a failed session is due again.
func afterRetry(ctx context.Context) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, retryEvery*3/2)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}
