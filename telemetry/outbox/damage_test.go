package outbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// ledger is an owner that can capture every entry again: entry n is the n-th of its source,
// and the cursor "c" is the number of the next one.
const ledgerSize = 40

func ledgerBatch(from, n int) *outbox.Batch {
	b := &outbox.Batch{Cursors: []outbox.Cursor{{Key: "c", Value: fmt.Append(nil, from+n)}}}
	for i := range n {
		e := simEntry(from + i)
		e.Held = from+i == 5
		b.Entries = append(b.Entries, e)
	}
	return b
}

// smallBox is an outbox with pending, acked, held and quarantined entries in two segments.
// With closed it was closed cleanly, without the process was killed.
func smallBox(t testing.TB, closed bool) (*faultfs.FS, map[int]outbox.State) {
	t.Helper()
	fs := faultfs.New()
	b := open(t, simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	put := func(from, to int) {
		for n := from; n < to; n += 4 {
			if _, err := b.Commit(ctx, ledgerBatch(n, 4)); err != nil {
				t.Fatal(err)
			}
		}
	}
	states := map[int]outbox.State{}
	for n := range ledgerSize {
		states[n] = outbox.Pending
	}
	states[5] = outbox.Held
	put(0, 32)
	l, err := b.TryLease(outbox.Limits{Records: 12})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range l.Entries() {
		n := keyNumber(t, e.Key)
		switch i % 4 {
		case 0, 1:
			err, states[n] = l.Ack(e.ID), outbox.Acked
		case 2:
			err, states[n] = l.Quarantine(refused(e.ID)), outbox.Quarantined
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	put(32, ledgerSize)
	if s := b.Stats(); s.Segments != 2 {
		t.Fatalf("%d segments", s.Segments)
	}
	if closed {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fs.Clone(), states
}

// damaged is what an outbox with damage did.
type damagedRun struct {
	fs        *faultfs.FS
	recovery  outbox.Recovery
	delivered map[int]int
	kept      map[int]outbox.State // held or quarantined
	keyless   int
	lost      int
	again     int // captured again
	degraded  bool
}

// runDamaged opens a damaged outbox, lets the owner capture again what is lost, and drains it.
func runDamaged(t testing.TB, fs *faultfs.FS) *damagedRun {
	t.Helper()
	r := &damagedRun{fs: fs, delivered: map[int]int{}, kept: map[int]outbox.State{}}
	b, err := outbox.Open(simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	if err != nil {
		t.Fatalf("no start: %v", err)
	}
	r.recovery = b.Recovery()
	capture := func(from, n int) {
		if _, err := b.Commit(ctx, ledgerBatch(from, n)); err != nil {
			t.Fatal(err)
		}
		r.again += n
	}
	next := 0
	if v, ok := b.Cursor("c"); ok {
		fmt.Sscan(string(v), &next)
	}
	for ; next < ledgerSize; next += 4 {
		capture(next, 4)
	}
	seen := map[outbox.ID]bool{}
	for {
		l, err := b.TryLease(outbox.Limits{Records: 10})
		if err != nil {
			t.Fatal(err)
		}
		if l != nil {
			for _, e := range l.Entries() {
				n := keyNumber(t, e.Key)
				if !bytes.Equal(e.Payload, simPayload(n)) {
					t.Fatalf("entry %d: altered payload handed out", n)
				}
				if seen[e.ID] {
					t.Fatalf("id %d twice", e.ID)
				}
				seen[e.ID] = true
				r.delivered[n]++
				if err := l.Ack(e.ID); err != nil {
					t.Fatal(err)
				}
			}
			l.Close()
			continue
		}
		kept := map[int]outbox.State{}
		if err := b.ScanStates(func(i outbox.Info) bool {
			n := keyNumber(t, i.Key)
			if i.State != outbox.Lost && !bytes.Equal(i.Payload, simPayload(n)) {
				t.Fatalf("entry %d: altered payload shown", n)
			}
			kept[n] = i.State
			return true
		}, outbox.Held, outbox.Quarantined); err != nil {
			t.Fatal(err)
		}
		ds := b.Damaged()
		if len(ds) == 0 {
			r.kept = kept
			break
		}
		from := next
		for _, d := range ds {
			r.lost++
			if d.Key == nil {
				r.keyless++
				if before, ok := b.Before(d); !ok {
					from = 0
				} else {
					for _, c := range before {
						n := 0
						fmt.Sscan("0"+string(c.Value), &n)
						from = min(from, n)
					}
				}
				continue
			}
			n := keyNumber(t, d.Key)
			if _, err := b.Commit(ctx, &outbox.Batch{Entries: ledgerBatch(n, 1).Entries}); err != nil {
				t.Fatal(err)
			}
			r.again++
		}
		for ; from < next; from += 4 {
			capture(from, 4) // everything since: what was lost is among it
		}
		if err := b.Recovered(ds...); err != nil {
			t.Fatal(err)
		}
	}
	st := b.Stats()
	checkSums(t, st)
	r.degraded = st.Degraded
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b, err = outbox.Open(simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	if err != nil {
		t.Fatalf("no second start: %v", err)
	}
	if again := b.Stats(); again.Committed != st.Committed || again.Acked != st.Acked || again.Held != st.Held || again.Quarantined != st.Quarantined || again.Pending != 0 {
		t.Fatalf("after another restart %+v, before %+v", again, st)
	}
	if l, _ := b.TryLease(outbox.Limits{}); l != nil {
		t.Fatal("something came back after another restart")
	}
	if len(b.Damaged()) > 0 {
		t.Fatalf("damage that was dealt with is reported again: %+v", b.Damaged())
	}
	b.Close()
	return r
}

// complete checks that with the ledger nothing is lost in the end.
func (r *damagedRun) complete(t testing.TB, states map[int]outbox.State) {
	t.Helper()
	for n, st := range states {
		_, kept := r.kept[n]
		switch {
		case st == outbox.Pending && r.delivered[n] == 0:
			t.Fatalf("entry %d never came: %+v", n, r)
		case (st == outbox.Held || st == outbox.Quarantined) && !kept && r.delivered[n] == 0:
			t.Fatalf("entry %d (%s) is gone: %+v", n, st, r)
		}
	}
}

// look opens the damaged directory read-only and checks that nothing is changed by it.
func look(t testing.TB, fs *faultfs.FS) {
	t.Helper()
	before := map[string][]byte{}
	for _, n := range fs.Names() {
		before[n] = fs.Bytes(n)
	}
	v, err := outbox.OpenReadOnly(simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	if err != nil {
		t.Fatalf("no view: %v", err)
	}
	if err := v.Scan(func(i outbox.Info) bool {
		if i.State != outbox.Lost {
			if n := keyNumber(t, i.Key); !bytes.Equal(i.Payload, simPayload(n)) {
				t.Fatalf("entry %d: altered payload shown", n)
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	checkSums(t, v.Stats())
	v.Close()
	after := map[string][]byte{}
	for _, n := range fs.Names() {
		after[n] = fs.Bytes(n)
	}
	if !maps.EqualFunc(before, after, bytes.Equal) {
		t.Fatal("a view changed the directory")
	}
}

// TestNoSingleBitFlipAltersOrLosesAnEntry takes every 29th bit, and of 64 bytes of nothing
// but zeros one; with OUTBOX_LONG=1 it takes every bit of every file.
//
// CASES 30.
func TestNoSingleBitFlipAltersOrLosesAnEntry(t *testing.T) {
	const shards = 8
	for _, closed := range []bool{true, false} {
		box, states := smallBox(t, closed)
		for shard := range int64(shards) {
			t.Run(fmt.Sprintf("closed=%v/%d", closed, shard), func(t *testing.T) {
				t.Parallel()
				flips, caught, again := 0, 0, 0
				for _, name := range box.Names() {
					image := box.Bytes(name)
					for bit := shard; bit < int64(len(image))*8; bit += shards {
						if !flipped(image, bit) {
							continue
						}
						flips++
						r := flip(t, box, states, name, bit)
						if r.again > 0 {
							again++
						}
						if r.lost > 0 {
							caught++
						}
					}
				}
				t.Logf("%d flips, %d cost an entry here, %d made the owner capture again; nothing lost, nothing altered", flips, caught, again)
			})
		}
	}
}

// flipped says whether a run takes this bit.
func flipped(image []byte, bit int64) bool {
	if os.Getenv("OUTBOX_LONG") != "" {
		return true
	}
	at := bit / 8
	if blank := len(bytes.Trim(image[at&^63:min(at&^63+64, int64(len(image)))], "\x00")) == 0; blank {
		return bit%512 == 0
	}
	return bit%29 == 0 && (!testing.Short() || bit%5 == 0)
}

// flip inverts one bit of the box and checks what becomes of it.
func flip(t *testing.T, box *faultfs.FS, states map[int]outbox.State, name string, bit int64) *damagedRun {
	t.Helper()
	fs := box.Clone()
	fs.FlipBit(name, bit)
	if bit%61 == 0 {
		look(t, fs)
	}
	r := runDamaged(t, fs)
	r.complete(t, states)
	if r.keyless > 0 || r.lost > 1 || len(r.recovery.SegmentsAside)+r.recovery.SegmentsMissing > 0 || r.recovery.Unaccounted != 0 {
		t.Fatalf("%s bit %d: more than one entry: %+v", name, bit, r)
	}
	// Duplicates: of the damaged entry, or of the last batch.
	twice := 0
	for n, k := range r.delivered {
		if k > 1 || states[n] == outbox.Acked {
			twice++
		}
	}
	if twice > r.again {
		t.Fatalf("%s bit %d: %d delivered twice, %d captured again", name, bit, twice, r.again)
	}
	if r.again > 4 {
		t.Fatalf("%s bit %d: %d captured again", name, bit, r.again)
	}
	if r.again > 0 && r.lost == 0 && r.recovery.TornBatches == 0 {
		t.Fatalf("%s bit %d: captured again, not reported: %+v", name, bit, r)
	}
	return r
}

// TestEveryTruncationPointOpensAndKeepsWhatIsWhole takes every 7th point outside of what is
// blank; with OUTBOX_LONG=1 it takes every point of every file.
func TestEveryTruncationPointOpensAndKeepsWhatIsWhole(t *testing.T) {
	cuts := 0
	defer func() { t.Logf("%d cuts", cuts) }()
	for _, closed := range []bool{true, false} {
		box, states := smallBox(t, closed)
		last := ""
		for _, name := range box.Names() {
			if strings.HasSuffix(name, ".seg") {
				last = name
			}
		}
		for _, name := range box.Names() {
			image := box.Bytes(name)
			for n := 0; n < len(image); n++ {
				blank := len(bytes.Trim(image[n&^63:min(n&^63+64, len(image))], "\x00")) == 0
				if os.Getenv("OUTBOX_LONG") == "" && (blank && n%64 != 0 || n%7 != 0 || testing.Short() && n%11 != 0) {
					continue
				}
				cuts++
				fs := box.Clone()
				fs.Put(name, image[:n])
				if n%41 == 0 {
					look(t, fs)
				}
				r := runDamaged(t, fs)
				r.complete(t, states)
				if r.again > 0 && r.lost == 0 && r.recovery.TornBatches == 0 && !r.degraded && (name != last || closed) {
					t.Fatalf("%s cut at %d: captured again without a word: %+v", name, n, r)
				}
			}
		}
	}
}

// CASES 32.
func TestRandomBytesOverASegmentHeaderAreMended(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	box, states := smallBox(t, true)
	for _, name := range box.Names() {
		if !strings.HasSuffix(name, ".seg") {
			continue
		}
		image := box.Bytes(name)
		for _, n := range []int{64, 112, 4096} {
			fs := box.Clone()
			fs.Put(name, append(noise(n), image[n:]...))
			look(t, fs)
			r := runDamaged(t, fs)
			r.complete(t, states)
			if r.recovery.HeadersRebuilt != 1 || r.lost > 0 || r.again > 0 || len(r.recovery.SegmentsAside) > 0 || !r.degraded {
				t.Fatalf("%d bytes over the header of %s: %+v", n, name, r)
			}
		}
		// Over both headers and all states: entries go out again, none is lost.
		fs := box.Clone()
		fs.Put(name, append(noise(16384), image[16384:]...))
		look(t, fs)
		r := runDamaged(t, fs)
		r.complete(t, states)
		if r.recovery.HeadersRebuilt != 1 || r.recovery.StateBlocksLost == 0 || r.lost > 0 {
			t.Fatalf("everything before the data of %s: %+v", name, r)
		}
		// Over the whole file: set aside, reported, the rest works.
		fs = box.Clone()
		fs.Put(name, noise(len(image)))
		look(t, fs)
		r = runDamaged(t, fs)
		r.complete(t, states)
		if len(r.recovery.SegmentsAside) != 1 || r.keyless == 0 || !r.degraded {
			t.Fatalf("all of %s: %+v", name, r)
		}
	}
}

// CASES 30: with its identity.
func TestDamageIsReportedUntilItIsDealtWith(t *testing.T) {
	box, _ := smallBox(t, true)
	name := segmentOf(box, 0)
	image := box.Bytes(name)
	at := bytes.LastIndex(image, []byte("payload 18 "))
	image[at+20] ^= 0x40
	box.Put(name, image)
	for range 2 {
		b := open(t, simDir, outbox.Options{FS: box, SegmentSize: 16 << 10})
		l, err := b.TryLease(outbox.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range l.Entries() {
			if string(e.Key) == "key-18" {
				t.Fatal("handed out a damaged entry")
			}
		}
		l.Close()
		ds := b.Damaged()
		if len(ds) != 1 || string(ds[0].Key) != "key-18" || ds[0].Stream != "s3" || ds[0].ID != 19 {
			t.Fatalf("%+v", ds)
		}
		if s := b.Stats(); s.Lost != 1 || s.Damaged != 1 || !s.Degraded {
			t.Fatalf("%+v", s)
		}
		b.Close()
	}
	b := open(t, simDir, outbox.Options{FS: box, SegmentSize: 16 << 10})
	if err := b.Recovered(b.Damaged()...); err != nil {
		t.Fatal(err)
	}
	b.Close()
	b = open(t, simDir, outbox.Options{FS: box, SegmentSize: 16 << 10})
	if s := b.Stats(); s.Lost != 1 || s.Damaged != 0 || len(b.Damaged()) != 0 {
		t.Fatalf("%+v", s)
	}
	checkSums(t, b.Stats())
}

func segmentOf(fs *faultfs.FS, i int) string {
	for _, n := range fs.Names() {
		if strings.HasSuffix(n, ".seg") {
			if i == 0 {
				return n
			}
			i--
		}
	}
	return ""
}

func TestANewerFormatIsRefusedByName(t *testing.T) {
	box, _ := smallBox(t, true)
	for _, name := range []string{segmentOf(box, 0), simDir + "/checkpoint.a"} {
		fs := box.Clone()
		fs.Put(name, outbox.WithVersion(fs.Bytes(name), 3))
		before := fs.Bytes(name)
		_, err := outbox.Open(simDir, outbox.Options{FS: fs})
		var ve *outbox.VersionError
		if !errors.As(err, &ve) || ve.Version != 3 {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(fs.Bytes(name), before) {
			t.Fatalf("%s: touched before it was refused", name)
		}
	}
}

// CASES 31.
func TestAHalfZeroedLastRecordLosesNothingThatWasAcknowledged(t *testing.T) {
	fs := faultfs.New()
	b := open(t, simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	states := map[int]outbox.State{}
	for n := 0; n < 20; n += 4 {
		if _, err := b.Commit(ctx, ledgerBatch(n, 4)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range ledgerSize {
		states[n] = outbox.Pending
	}
	states[5] = outbox.Held
	// The last batch holds the entries 16 to 19; its last record is torn in the middle.
	box := fs.Clone()
	name := segmentOf(box, 0)
	image := box.Bytes(name)
	at := bytes.LastIndex(image, []byte("payload 19 "))
	clear(image[at+50:])
	box.Put(name, image)
	r := runDamaged(t, box)
	r.complete(t, states)
	if r.recovery.TornBatches != 1 || r.recovery.TornBytes == 0 || r.again != ledgerSize-16 || r.lost != 0 {
		t.Fatalf("%+v", r)
	}
}
