package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// outboxRow is one store at one batch size: records of 1 KiB made durable, batch by batch.
type outboxRow struct {
	Store   string  `json:"store"`
	Batch   int     `json:"batch"`
	Commit  float64 `json:"commits_records_per_second"`
	Through float64 `json:"through_records_per_second"` // committed, read and settled; 0: not measured
}

const outboxPayload = 1 << 10

// outboxes measures ours, bbolt with the options of the Collector's
// file_storage, and the floor: an append with a checksum and fdatasync.
func (b *bench) outboxes(ctx context.Context, span time.Duration) ([]outboxRow, error) {
	stores := []struct {
		name string
		run  func(ctx context.Context, dir string, batch int, span time.Duration) (commit, through float64, err error)
	}{{"otel-bridge outbox", oursOutbox}, {"bbolt", boltOutbox}, {"bare append + fdatasync", bareOutbox}}
	var rows []outboxRow
	for _, batch := range []int{1, 64, 512} {
		commits, throughs := make([][]float64, len(stores)), make([][]float64, len(stores))
		for range b.runs {
			for i, s := range stores {
				dir, err := os.MkdirTemp(b.dir, "outbox-")
				if err != nil {
					return nil, err
				}
				commit, through, err := s.run(ctx, dir, batch, span)
				os.RemoveAll(dir)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.name, err)
				}
				commits[i], throughs[i] = append(commits[i], commit), append(throughs[i], through)
			}
		}
		for i, s := range stores {
			row := outboxRow{s.name, batch, median(commits[i]), median(throughs[i])}
			b.say("outbox: %s, batches of %d: %.0f records/s committed, %.0f through", row.Store, batch, row.Commit, row.Through)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// maxOutbox bounds what a run writes.
const maxOutbox = 300_000

func payload(i int) []byte {
	p := make([]byte, outboxPayload)
	for k := 0; k+8 <= len(p); k += 8 {
		binary.LittleEndian.PutUint64(p[k:], uint64(i)*0x9e3779b97f4a7c15+uint64(k)*0xbf58476d1ce4e5b9)
	}
	return p
}

func oursOutbox(ctx context.Context, dir string, size int, span time.Duration) (commit, through float64, err error) {
	o, err := outbox.Open(dir, outbox.Options{Instance: "bench"})
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if cerr := o.Close(); err == nil {
			err = cerr
		}
	}()
	batch := &outbox.Batch{}
	for i := range size {
		batch.Entries = append(batch.Entries, outbox.Entry{Key: []byte("key"), Stream: "s", Payload: payload(i)})
	}
	batch.Cursors = []outbox.Cursor{{Key: "session", Value: make([]byte, 100)}}
	n := 0
	start := time.Now()
	for ; time.Since(start) < span && n < maxOutbox; n += size {
		if _, err := o.Commit(ctx, batch); err != nil {
			return 0, 0, err
		}
	}
	committed := time.Since(start)
	for left := n; left > 0; {
		l, err := o.TryLease(outbox.Limits{Records: size})
		if err != nil {
			return 0, 0, err
		}
		var ids []outbox.ID
		for _, e := range l.Entries() {
			ids = append(ids, e.ID)
		}
		if err := l.Ack(ids...); err != nil {
			return 0, 0, err
		}
		l.Close()
		left -= len(ids)
	}
	return float64(n) / committed.Seconds(), float64(n) / time.Since(start).Seconds(), nil
}

func boltOutbox(_ context.Context, dir string, size int, span time.Duration) (commit, through float64, err error) {
	// As file_storage opens it with fsync: true.
	db, err := bbolt.Open(filepath.Join(dir, "bolt"), 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	name := []byte("default")
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(name); return err }); err != nil {
		return 0, 0, err
	}
	var values [][]byte
	for i := range size {
		values = append(values, payload(i))
	}
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	n := 0
	start := time.Now()
	for ; time.Since(start) < span && n < maxOutbox; n += size {
		if err := db.Update(func(tx *bbolt.Tx) error {
			bucket := tx.Bucket(name)
			for i, v := range values {
				if err := bucket.Put(key(n+i), v); err != nil {
					return err
				}
			}
			return bucket.Put([]byte("cursor"), make([]byte, 100))
		}); err != nil {
			return 0, 0, err
		}
	}
	committed := time.Since(start)
	for at := 0; at < n; at += size {
		if err := db.View(func(tx *bbolt.Tx) error {
			for i := range size {
				if len(tx.Bucket(name).Get(key(at+i))) != outboxPayload {
					return fmt.Errorf("record %d is not there", at+i)
				}
			}
			return nil
		}); err != nil {
			return 0, 0, err
		}
		if err := db.Update(func(tx *bbolt.Tx) error {
			for i := range size {
				if err := tx.Bucket(name).Delete(key(at + i)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return 0, 0, err
		}
	}
	return float64(n) / committed.Seconds(), float64(n) / time.Since(start).Seconds(), nil
}

func bareOutbox(_ context.Context, dir string, size int, span time.Duration) (commit, through float64, err error) {
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	table := crc32.MakeTable(crc32.Castagnoli)
	var values [][]byte
	for i := range size {
		values = append(values, payload(i))
	}
	var buf []byte
	n := 0
	start := time.Now()
	for ; time.Since(start) < span && n < maxOutbox; n += size {
		buf = buf[:0]
		for _, v := range values {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(len(v)))
			buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(v, table))
			buf = append(buf, v...)
		}
		if _, err := f.Write(buf); err != nil {
			return 0, 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), 0, nil
}
