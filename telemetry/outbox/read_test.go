package outbox_test

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// A disk that cannot be read for a while, a network's for example, has lost nothing: no entry,
// and no operator's word.
func TestADiskThatIsAwayForAMinuteIsNoDamage(t *testing.T) {
	for name, warm := range map[string]bool{"found before": true, "to be found": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := &hookFS{FS: faultfs.New()}
				o := outbox.Options{FS: fs, SegmentSize: 16 << 10}
				b := open(t, "/box", o)
				for i := range 8 {
					commit(t, b, 10*i, 10, 1000)
				}
				if _, err := b.Hold(func(i outbox.Info) bool { return i.ID == 5 }); err != nil {
					t.Fatal(err)
				}
				if err := b.Discard(6); err != nil {
					t.Fatal(err)
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				b = open(t, "/box", o)
				if warm { // the window knows all places
					if err := lease(t, b, 0).Close(); err != nil {
						t.Fatal(err)
					}
				}
				fs.read = func(int64, int) error { return syscall.EIO }
				for range 60 {
					if l, err := b.TryLease(outbox.Limits{}); l != nil || !errors.Is(err, syscall.EIO) {
						t.Fatal(l, err)
					}
					if err := b.Scan(func(outbox.Info) bool { return true }); err != nil && !errors.Is(err, syscall.EIO) {
						t.Fatal(err) // what can be read may be shown
					}
					time.Sleep(time.Second)
				}
				fs.read = nil
				s := b.Stats()
				if s.Damaged != 0 || s.Lost != 0 || s.Held != 1 || s.Discarded != 1 || s.Pending != 78 || s.Degraded {
					t.Errorf("%+v", s)
				}
				if got := drain(t, b, 1000, outbox.Limits{}); len(got) != 78 || slices.Contains(got, 4) || slices.Contains(got, 5) {
					t.Errorf("came: %v", got)
				}
			})
		})
	}
}

func TestAStartWaitsForADiskThatIsAway(t *testing.T) {
	for name, away := range map[string]time.Duration{"for a moment": 10 * time.Second, "for good": time.Hour} {
		t.Run(name, func(t *testing.T) {
			for n := range 40 { // reads before it is
				synctest.Test(t, func(t *testing.T) {
					fs := &hookFS{FS: faultfs.New()}
					o := outbox.Options{FS: fs, SegmentSize: 16 << 10}
					b := open(t, "/box", o)
					for i := range 8 {
						commit(t, b, 10*i, 10, 1000)
					}
					fs.FS = fs.FS.Crash(faultfs.KeepNothing, nil)
					began, reads := time.Now(), 0
					fs.read = func(int64, int) error {
						if reads++; reads > n && time.Since(began) < away {
							return syscall.EIO
						}
						return nil
					}
					b, err := outbox.Open("/box", o)
					if took := time.Since(began); took > time.Minute {
						t.Errorf("%d: it took %v", n, took)
					}
					if err == nil {
						defer b.Close()
					}
					if away > time.Minute {
						return // started or not, it did not hang
					}
					if err != nil {
						t.Fatalf("%d: %v", n, err)
					}
					if s := b.Stats(); s.Pending != 80 || s.Lost != 0 || b.Recovery().TornBytes != 0 {
						t.Errorf("%d: %+v, %+v", n, s, b.Recovery())
					}
				})
			}
		})
	}
}

func TestASectorThatStaysUnreadableIsDamage(t *testing.T) {
	for name, at := range map[string]int64{"payload": 0, "header": -30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := &hookFS{FS: faultfs.New()}
				b := open(t, "/box", outbox.Options{FS: fs})
				commit(t, b, 0, 10, 1000)
				bad := at + int64(bytes.Index(fs.Bytes("/box/0000000000000001.seg"), []byte("payload 3 ")))
				fs.read = func(off int64, n int) error {
					if off <= bad && bad < off+int64(n) {
						return syscall.EIO
					}
					return nil
				}
				began := time.Now()
				var got []int
				for len(got) < 9 && time.Since(began) < time.Hour {
					l, err := b.TryLease(outbox.Limits{})
					if l == nil {
						if !errors.Is(err, syscall.EIO) {
							t.Fatal(err)
						}
						time.Sleep(time.Second)
						continue
					}
					for _, e := range l.Entries() {
						got = append(got, keyNumber(t, e.Key))
						if err := l.Ack(e.ID); err != nil {
							t.Fatal(err)
						}
					}
				}
				if s := b.Stats(); len(got) != 9 || slices.Contains(got, 3) || s.Damaged != 1 || time.Since(began) > 5*time.Minute {
					t.Errorf("%v after %v, %+v", got, time.Since(began), s)
				}
			})
		})
	}
}

// Who holds entries back has to know of those that could not be looked at.
func TestAHoldTellsOfWhatItCouldNotRead(t *testing.T) {
	for name, at := range map[string]int64{"payload": 0, "header": -30} {
		t.Run(name, func(t *testing.T) {
			fs := &hookFS{FS: faultfs.New()}
			b := open(t, "/box", outbox.Options{FS: fs})
			commit(t, b, 0, 10, 1000)
			bad := at + int64(bytes.Index(fs.Bytes("/box/0000000000000001.seg"), []byte("payload 3 ")))
			fs.read = func(off int64, n int) error {
				if off <= bad && bad < off+int64(n) {
					return syscall.EIO
				}
				return nil
			}
			all := func(i outbox.Info) bool { return i.State == outbox.Pending }
			if n, err := b.Hold(all); n != 9 || !errors.Is(err, syscall.EIO) {
				t.Errorf("%d held, error %v", n, err)
			}
			if err := b.Discard(4); at < 0 && !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
			fs.read = nil
			if at < 0 {
				if n, err := b.Hold(all); n != 1 || err != nil {
					t.Errorf("%d held, error %v", n, err)
				}
			}
			if s := b.Stats(); s.Pending != 0 || s.Damaged != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
