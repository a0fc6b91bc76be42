package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

const benchPayload = 1024

// batchOf makes a batch as the capture makes it: n records of about 1 KB and a cursor.
func batchOf(n int) *outbox.Batch {
	b := &outbox.Batch{}
	for i := range n {
		b.Entries = append(b.Entries, outbox.Entry{Key: fmt.Appendf(nil, "0b6b1a5e-1d2c-4b9c-a7de-%012d", i), Stream: "0b6b1a5e-1d2c-4b9c", Payload: payload(i, benchPayload)})
	}
	b.Cursors = []outbox.Cursor{{Key: "0b6b1a5e-1d2c-4b9c", Value: make([]byte, 100)}}
	return b
}

// bareAppend writes the same payload bytes with nothing around them, one fdatasync a batch,
// and begins a new file as often as the outbox begins a segment.
type bareAppend struct {
	b    testing.TB
	f    *os.File
	off  int64
	n    int
	dir  string
	sync func(*os.File) error
}

func (a *bareAppend) write(p []byte) {
	if a.f == nil || a.off+int64(len(p)) > 8<<20 {
		if a.f != nil {
			a.f.Close()
			os.Remove(a.f.Name())
		}
		f, err := os.Create(filepath.Join(a.dir, fmt.Sprint("bare", a.n)))
		if err != nil {
			a.b.Fatal(err)
		}
		a.f, a.off, a.n = f, 0, a.n+1
	}
	if _, err := a.f.WriteAt(p, a.off); err != nil {
		a.b.Fatal(err)
	}
	a.off += int64(len(p))
	if err := a.sync(a.f); err != nil {
		a.b.Fatal(err)
	}
}

// drainTo keeps the backlog of an append benchmark small without measuring it.
func drainQuietly(b *testing.B, o *outbox.Outbox) {
	b.StopTimer()
	defer b.StartTimer()
	for {
		l, err := o.TryLease(outbox.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		if l == nil {
			return
		}
		var ids []outbox.ID
		for _, e := range l.Entries() {
			ids = append(ids, e.ID)
		}
		if err := l.Ack(ids...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend alternates between the outbox and bare append, so that both meet the same
// disk; the ratio (bare time / outbox time, 1 is as fast) is reported.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 64, 512} {
		b.Run(fmt.Sprint("batch=", n), func(b *testing.B) {
			o := open(b, b.TempDir(), outbox.Options{})
			batch := batchOf(n)
			var raw []byte
			for _, e := range batch.Entries {
				raw = append(raw, e.Payload...)
			}
			bare := &bareAppend{b: b, dir: b.TempDir(), sync: outbox.Datasync}
			var ours, theirs time.Duration
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			rounds := 0
			for b.Loop() {
				t := time.Now()
				if _, err := o.Commit(ctx, batch); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(t)
				b.StopTimer()
				t = time.Now()
				bare.write(raw)
				theirs += time.Since(t)
				b.StartTimer()
				if rounds++; rounds%(64<<20/len(raw)+1) == 0 {
					drainQuietly(b, o)
				}
			}
			b.ReportMetric(float64(n*rounds)/ours.Seconds(), "records/s")
			b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-bare")
		})
	}
}

// BenchmarkGroupCommit has 16 goroutines commit one record each.
func BenchmarkGroupCommit(b *testing.B) {
	o := open(b, b.TempDir(), outbox.Options{})
	b.SetParallelism(8) // times GOMAXPROCS
	b.SetBytes(benchPayload)
	b.ReportAllocs()
	var n atomic.Int64
	start := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		batch := batchOf(1)
		for pb.Next() {
			if _, err := o.Commit(context.Background(), batch); err != nil {
				b.Error(err)
				return
			}
			n.Add(1)
		}
	})
	b.ReportMetric(float64(n.Load())/time.Since(start).Seconds(), "records/s")
}

// BenchmarkLeaseAck hands out and acks batches of 512 from a backlog.
func BenchmarkLeaseAck(b *testing.B) {
	o := open(b, b.TempDir(), outbox.Options{})
	batch := batchOf(512)
	b.SetBytes(512 * benchPayload)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		b.StopTimer()
		if _, err := o.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		l, err := o.TryLease(outbox.Limits{Records: 512})
		if err != nil || len(l.Entries()) != 512 {
			b.Fatal(err)
		}
		ids := make([]outbox.ID, 0, 512)
		for _, e := range l.Entries() {
			ids = append(ids, e.ID)
		}
		if err := l.Ack(ids...); err != nil {
			b.Fatal(err)
		}
		n += 512
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkOpen starts on a backlog of 256 MiB and 100,000 cursors.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	o := open(b, dir, outbox.Options{})
	cursors := &outbox.Batch{}
	for i := range 100_000 {
		cursors.Cursors = append(cursors.Cursors, outbox.Cursor{Key: fmt.Sprintf("session-%08d", i), Value: make([]byte, 100)})
	}
	if _, err := o.Commit(ctx, cursors); err != nil {
		b.Fatal(err)
	}
	batch := batchOf(512)
	for range 512 {
		if _, err := o.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	o.Close()
	b.ReportAllocs()
	for b.Loop() {
		o, err := outbox.Open(dir, outbox.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if s := o.Stats(); s.Pending != 512*512 || s.Cursors != 100_001 {
			b.Fatalf("%+v", s)
		}
		o.Close()
	}
}
