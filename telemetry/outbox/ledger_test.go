package outbox_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// owner captures sessions into an outbox as a bridge does: session i has size[i] events, and
// the cursor "session/i" is the number of the next one. What is lost it captures again.
type owner struct {
	t     testing.TB
	rng   *rand.Rand
	fs    *faultfs.FS
	o     outbox.Options
	b     *outbox.Outbox
	size  []int
	acked map[string]bool // told to the outbox, and it agreed

	delivered map[string]int // since the damage
	rewound   int            // sessions that went back
	blind     int            // times that all of them went back to the beginning
	keyless   int
	lost      int
}

func (w *owner) key(session, n int) string { return fmt.Sprintf("%d/%d", session, n) }

func (w *owner) payload(key string) []byte {
	a, b, _ := strings.Cut(key, "/")
	x, _ := strconv.Atoi(a)
	y, err := strconv.Atoi(b)
	if err != nil || x >= len(w.size) || y >= w.size[x] {
		w.t.Fatalf("key %q", key)
	}
	return payload(x*1000+y, 60+(x*31+y*17)%900)
}

func (w *owner) open() {
	w.t.Helper()
	w.o.FS = w.fs
	b, err := outbox.Open(simDir, w.o)
	if err != nil {
		w.t.Fatalf("no start: %v", err)
	}
	w.b = b
}

func (w *owner) next(session int) int {
	v, ok := w.b.Cursor(cursorOf(session))
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(string(v))
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func cursorOf(session int) string { return fmt.Sprintf("session/%d", session) }

func (w *owner) batch(session, from, n int) *outbox.Batch {
	b := &outbox.Batch{}
	for i := from; i < from+n; i++ {
		key := w.key(session, i)
		b.Entries = append(b.Entries, outbox.Entry{Key: []byte(key), Stream: cursorOf(session), Payload: w.payload(key)})
	}
	return b
}

// capture takes up to n events of a session.
func (w *owner) capture(session, n int) int {
	from := w.next(session)
	n = min(n, w.size[session]-from)
	if n <= 0 {
		return 0
	}
	b := w.batch(session, from, n)
	b.Cursors = []outbox.Cursor{{Key: cursorOf(session), Value: strconv.AppendInt(nil, int64(from+n), 10)}}
	if _, err := w.b.Commit(ctx, b); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// deliver settles up to n entries; false when there is none.
func (w *owner) deliver(n int, all bool) bool {
	l, err := w.b.TryLease(outbox.Limits{Records: n})
	if err != nil {
		w.t.Fatal(err)
	}
	if l == nil {
		return false
	}
	defer l.Close()
	for _, e := range l.Entries() {
		key := string(e.Key)
		if !bytes.Equal(e.Payload, w.payload(key)) {
			w.t.Fatalf("%s: altered payload handed out", key)
		}
		switch k := w.rng.IntN(20); {
		case !all && k == 0: // returned
		case !all && k == 1:
			if err := l.Quarantine(refused(e.ID)); err != nil {
				w.t.Fatal(err)
			}
		default:
			if err := l.Ack(e.ID); err != nil {
				w.t.Fatal(err)
			}
			w.acked[key] = true
			if w.delivered != nil {
				w.delivered[key]++
			}
		}
	}
	return true
}

// live is an outbox with some segments of everything, as it is found when its process ends.
func live(t testing.TB, seed uint64) *owner {
	w := &owner{t: t, rng: rand.New(rand.NewPCG(seed, 5)), fs: faultfs.New(), o: outbox.Options{SegmentSize: 16 << 10}, acked: map[string]bool{}}
	for range 2 + w.rng.IntN(4) {
		w.size = append(w.size, 20+w.rng.IntN(100))
	}
	w.open()
	ack := w.rng.IntN(60)
	for range 60 + w.rng.IntN(60) {
		switch k := w.rng.IntN(100); {
		case k < ack:
			w.deliver(1+w.rng.IntN(12), false)
		case k < 97:
			w.capture(w.rng.IntN(len(w.size)), 1+w.rng.IntN(6))
		default:
			if err := w.b.Close(); err != nil {
				t.Fatal(err)
			}
			w.open()
		}
	}
	old := w.b
	if w.rng.IntN(2) == 0 {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.fs = w.fs.Clone()
	old.Close()
	return w
}

// harm does one random thing to the directory and says what.
func (w *owner) harm() string {
	names := w.fs.Names()
	name := names[w.rng.IntN(len(names))]
	b := w.fs.Bytes(name)
	if len(b) == 0 {
		return "nothing"
	}
	from := w.rng.IntN(len(b))
	to := min(from+1<<w.rng.IntN(16), len(b))
	what := fmt.Sprintf("of %s (%d bytes) %d to %d: ", filepath.Base(name), len(b), from, to)
	switch w.rng.IntN(7) {
	case 0:
		w.fs.FlipBit(name, int64(from)*8+w.rng.Int64N(8))
		return what + "a bit flipped"
	case 1:
		clear(b[from:to])
		w.fs.Put(name, b)
		return what + "zeros"
	case 2:
		for i := from; i < to; i++ {
			b[i] = byte(w.rng.Uint32())
		}
		w.fs.Put(name, b)
		return what + "noise"
	case 3:
		w.fs.Put(name, b[:from])
		return what + "cut there"
	case 4:
		clear(b)
		w.fs.Put(name, b)
		return what + "all zeros"
	case 5: // headers of some records in a row
		for n, at := 1+w.rng.IntN(6), from; n > 0; n-- {
			i := bytes.Index(b[at:], []byte("\xf5\x4f\x42\x9a"))
			if i < 0 {
				break
			}
			clear(b[at+i : min(at+i+40, len(b))])
			at += i
		}
		w.fs.Put(name, b)
		return what + "headers of records zeroed"
	}
	if err := w.fs.Remove(name); err != nil {
		w.t.Fatal(err)
	}
	return what + "file removed"
}

// mend lets the owner go on until everything that it has is captured, and delivered or kept.
func (w *owner) mend() {
	w.delivered = map[string]int{}
	for {
		for s := range w.size {
			for w.capture(s, 5) > 0 {
			}
		}
		for w.deliver(30, true) {
		}
		if err := w.b.Scan(func(outbox.Info) bool { return true }); err != nil {
			w.t.Fatal(err)
		}
		ds := w.b.Damaged()
		if len(ds) == 0 {
			return
		}
		for _, d := range ds {
			w.lost++
			if d.Key != nil {
				w.again(string(d.Key))
			} else {
				w.keyless++
				w.goBack(d)
			}
		}
		if err := w.b.Recovered(ds...); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *owner) again(key string) {
	a, b, _ := strings.Cut(key, "/")
	s, _ := strconv.Atoi(a)
	n, _ := strconv.Atoi(b)
	if _, err := w.b.Commit(ctx, w.batch(s, n, 1)); err != nil {
		w.t.Fatal(err)
	}
}

// goBack takes sessions to where they were before what is lost.
func (w *owner) goBack(d outbox.Damage) {
	cursors, ok := w.b.Before(d)
	if !ok {
		w.blind++
		for s := range w.size {
			cursors = append(cursors, outbox.Cursor{Key: cursorOf(s)})
		}
	}
	for _, c := range cursors {
		if !strings.HasPrefix(c.Key, "session/") {
			continue
		}
		s, err := strconv.Atoi(strings.TrimPrefix(c.Key, "session/"))
		if err != nil {
			w.t.Fatal(err)
		}
		n := 0
		if c.Value != nil {
			if n, err = strconv.Atoi(string(c.Value)); err != nil {
				w.t.Fatal(err)
			}
		}
		if n >= w.next(s) {
			continue
		}
		w.rewound++
		if _, err := w.b.Commit(ctx, &outbox.Batch{Cursors: []outbox.Cursor{{Key: c.Key, Value: strconv.AppendInt(nil, int64(n), 10)}}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// missing returns what was neither acknowledged before the damage, nor delivered since, nor is
// in quarantine.
func (w *owner) missing(before map[string]bool) (keys []string) {
	kept := map[string]bool{}
	if err := w.b.ScanStates(func(i outbox.Info) bool {
		kept[string(i.Key)] = true
		return true
	}, outbox.Quarantined); err != nil {
		w.t.Fatal(err)
	}
	for s, size := range w.size {
		for n := range size {
			if key := w.key(s, n); !before[key] && w.delivered[key] == 0 && !kept[key] {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// TestWithTheLedgerNothingIsLostWhateverIsDamaged damages arbitrary ranges of arbitrary files,
// headers of records, whole segments and checkpoints. OUTBOX_ROUNDS sets how often.
func TestWithTheLedgerNothingIsLostWhateverIsDamaged(t *testing.T) {
	harmed, keyless, rewound, blind, twice := 0, 0, 0, 0, 0
	for seed := range uint64(rounds(400)) {
		restore := outbox.SpillFormers([]int64{0, 100, 64 << 10}[seed%3])
		w := live(t, seed)
		before := map[string]bool{}
		for k := range w.acked {
			before[k] = true
		}
		var what []string
		for range 1 + w.rng.IntN(3) {
			what = append(what, w.harm())
		}
		w.open()
		w.mend()
		if m := w.missing(before); len(m) > 0 {
			t.Fatalf("seed %d: %d of %v lost: %v\n%s\n%+v", seed, len(m), w.size, m, strings.Join(what, "\n"), w.b.Recovery())
		}
		st := w.b.Stats()
		checkSums(t, st)
		if st.Pending != 0 {
			t.Fatalf("seed %d: %d are pending and not handed out\n%s", seed, st.Pending, strings.Join(what, "\n"))
		}
		if err := w.b.Close(); err != nil {
			t.Fatal(err)
		}
		w.open()
		if ds := w.b.Damaged(); len(ds) > 0 {
			t.Fatalf("seed %d: reported again: %+v\n%s", seed, ds, strings.Join(what, "\n"))
		}
		w.b.Close()
		restore()
		if w.lost > 0 {
			harmed++
		}
		if w.keyless > 0 {
			keyless++
		}
		if w.blind > 0 {
			blind++
		}
		rewound += w.rewound
		for k, n := range w.delivered {
			if before[k] {
				n++
			}
			twice += n - 1
		}
	}
	t.Logf("%d runs with loss, %d of these without keys, %d of those with no trace of where; %d sessions went back, %d entries came again", harmed, keyless, blind, rewound, twice)
}

// One lost segment takes the sessions that moved in it back to where they were, and no other.
func TestALostSegmentTellsWhereItsSessionsWere(t *testing.T) {
	for _, spilled := range []bool{false, true} {
		w := &owner{t: t, rng: rand.New(rand.NewPCG(1, 5)), fs: faultfs.New(), o: outbox.Options{SegmentSize: 16 << 10}, acked: map[string]bool{}, size: []int{300, 1500, 300}}
		w.open()
		for w.next(0) < 10 {
			w.capture(0, 5)
		}
		// Session 2 moves in the first segment only, 0 and 1 in later ones too.
		w.capture(2, 5)
		if n := w.b.Stats().Segments; n != 1 {
			t.Fatalf("%d segments", n)
		}
		var starts [3][3]int // of segments 2 to 4, by session
		for seg := range 3 {
			at := w.b.Stats().Segments
			for w.b.Stats().Segments == at {
				for s := range 2 {
					starts[seg][s] = w.next(s)
				}
				w.capture(0, 2)
				if w.b.Stats().Segments == at {
					for s := range 2 {
						starts[seg][s] = w.next(s)
					}
					w.capture(1, 3)
				}
			}
		}
		if spilled {
			// Wide cursors, which would make the checkpoint long.
			for i := 0; i < 1000 && w.files(".cursors") == 0; i++ {
				b := w.batch(1, w.next(1), 1)
				b.Cursors = []outbox.Cursor{{Key: cursorOf(1), Value: fmt.Append(nil, w.next(1)+1)}, {Key: fmt.Sprint("wide", i%2), Value: make([]byte, 3000)}}
				if _, err := w.b.Commit(ctx, b); err != nil {
					t.Fatal(err)
				}
			}
			if files := w.files(".cursors"); files == 0 {
				t.Fatal("no former cursors in files")
			}
		}
		if err := w.b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.fs.Remove(segmentOf(w.fs, 2)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // also after a restart
			w.open()
			ds := w.b.Damaged()
			if len(ds) != 1 || ds[0].Key != nil || ds[0].Segment != 3 {
				t.Fatalf("%+v", ds)
			}
			got, ok := w.b.Before(ds[0])
			if !ok || len(got) != 2 {
				t.Fatalf("spilled %v: %v %v", spilled, got, ok)
			}
			for s, c := range got {
				if n, _ := strconv.Atoi(string(c.Value)); c.Key != cursorOf(s) || n != starts[1][s] {
					t.Fatalf("spilled %v: %s was %s, it was %v", spilled, c.Key, c.Value, starts)
				}
			}
			if err := w.b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		w.open()
		w.mend()
		if m := w.missing(nil); len(m) > 0 || w.blind > 0 {
			t.Fatalf("%d lost", len(m))
		}
		if n := w.delivered[w.key(2, 0)]; n != 1 {
			t.Fatalf("an entry of a session that did not move in the lost segment came %d times", n)
		}
		w.b.Close()
		w.open()
		if n := w.files(".cursors"); n != 0 {
			t.Fatalf("%d files of former cursors are left: %v", n, w.fs.Names())
		}
		w.b.Close()
	}
}

func (w *owner) files(suffix string) (n int) {
	for _, name := range w.fs.Names() {
		if strings.HasSuffix(name, suffix) {
			n++
		}
	}
	return n
}

// An outbox that format version 1 has written goes on, and loses nothing to damage either.
func TestAnOutboxOfVersion1GoesOn(t *testing.T) {
	box := faultfs.New()
	f, err := os.Open("testdata/version1.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		box.Put(simDir+"/"+h.Name, b)
	}
	if v := outbox.VersionOf(box.Bytes(segmentOf(box, 0))); v != 1 {
		t.Fatalf("version %d", v)
	}
	_, states := smallBox(t, true) // what it was filled with, in the same order
	fs := box.Clone()
	look(t, fs)
	r := runDamaged(t, fs)
	r.complete(t, states)
	if r.lost > 0 || r.again > 0 || r.degraded {
		t.Fatalf("%+v", r)
	}
	for n, k := range r.delivered {
		if k != 1 || states[n] == outbox.Acked {
			t.Fatalf("entry %d (%s) delivered %d times", n, states[n], k)
		}
	}
	b := open(t, simDir, outbox.Options{FS: box.Clone(), SegmentSize: 16 << 10})
	commit(t, b, ledgerSize, 1, 100)
	if st := b.Stats(); st.Segments != 3 {
		t.Fatalf("a segment of version 1 was gone on with: %+v", st)
	}
	// Also on a full disk: what is there can be delivered.
	fs = box.Clone()
	fs.SetBudget(fs.Used())
	b = open(t, simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	if got := len(drainAll(t, b)); got != 30 {
		t.Fatalf("%d entries on a full disk", got)
	}
	// Nobody has written down what stood before these segments.
	fs = box.Clone()
	if err := fs.Remove(segmentOf(fs, 0)); err != nil {
		t.Fatal(err)
	}
	b = open(t, simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	ds := b.Damaged()
	if len(ds) != 1 {
		t.Fatalf("%+v", ds)
	}
	if c, ok := b.Before(ds[0]); ok {
		t.Fatalf("known: %v", c)
	}
}

// drainAll acks everything that is pending and returns its keys.
func drainAll(t testing.TB, b *outbox.Outbox) (keys []string) {
	t.Helper()
	for {
		l, err := b.TryLease(outbox.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if l == nil {
			return keys
		}
		for _, e := range l.Entries() {
			keys = append(keys, string(e.Key))
			if err := l.Ack(e.ID); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
	}
}
