package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// mendRig is a data directory that sessions are captured into, in small segments.
type mendRig struct {
	t       *testing.T
	fs      *faultfs.FS
	o       *outbox.Outbox
	c       *Capture
	m       *Mender
	sources map[string]*memSource
	s       map[string]*Session
	got     map[string]int // delivered, by uid
	ops     []string       // delivered
}

func newMendRig(t *testing.T, ids ...string) *mendRig {
	r := &mendRig{t: t, fs: faultfs.New(), sources: map[string]*memSource{}, got: map[string]int{}}
	for _, id := range ids {
		r.sources[id] = ledger(id)
	}
	r.start(ids...)
	return r
}

// start opens the directory; of the sessions these are there.
func (r *mendRig) start(ids ...string) {
	r.t.Helper()
	var err error
	if r.o, err = outbox.Open("/box", outbox.Options{FS: r.fs, SegmentSize: 16 << 10}); err != nil {
		r.t.Fatal(err)
	}
	r.c, r.m, r.s = testCapture(r.t, r.o, func(c *Config) { c.Attest = true }), NewMender(r.o), map[string]*Session{}
	for _, id := range ids {
		r.s[id] = r.c.Session(r.sources[id], SessionOptions{})
	}
}

func (r *mendRig) stop() {
	r.t.Helper()
	for _, s := range r.s {
		s.Close()
	}
	if err := r.o.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// write appends turns to a session's ledger and captures them.
func (r *mendRig) write(id string, from, n int) {
	for i := range n {
		r.sources[id].append(turn(from + i)...)
		pull(r.t, r.s[id])
	}
}

// mend mends all sessions, and pulls those that went back.
func (r *mendRig) mend() (sum Mended) {
	r.t.Helper()
	ids := []string{}
	for id := range r.s {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		done, err := r.m.Mend(r.t.Context(), r.s[id])
		if err != nil {
			r.t.Fatal(err)
		}
		sum.Again += done.Again
		sum.Gone += done.Gone
		sum.Back = sum.Back || done.Back
		pull(r.t, r.s[id])
	}
	return sum
}

// drain delivers what is pending.
func (r *mendRig) drain() {
	r.t.Helper()
	for {
		l, err := r.o.TryLease(outbox.Limits{Records: 100})
		if err != nil {
			r.t.Fatal(err)
		}
		if l == nil {
			return
		}
		for _, e := range l.Entries() {
			rec, err := DecodeRecord(e.Payload)
			if err != nil {
				r.t.Fatal(err)
			}
			if rec.Channel == ChannelOps && rec.Op != OpSummary {
				r.ops = append(r.ops, fmt.Sprintf("%s %s %s", rec.Identity.SessionID, rec.Op, rec.Body))
			} else {
				r.got[rec.UID]++
			}
			if err := l.Ack(e.ID); err != nil {
				r.t.Fatal(err)
			}
		}
		l.Close()
	}
}

// missing counts the records of events of a session that did not come.
func (r *mendRig) missing(id string) (n int) {
	r.t.Helper()
	whole, _ := captured(r.t, r.sources[id], nil)
	for _, rec := range whole {
		if rec.Channel == ChannelLedger && r.got[rec.UID] == 0 {
			n++
		}
	}
	return n
}

func (r *mendRig) back() (n int) {
	for _, op := range r.ops {
		if strings.Contains(op, " "+OpSessionBack+" ") {
			n++
		}
	}
	return n
}

func (r *mendRig) segments() (names []string) {
	for _, n := range r.fs.Names() {
		if strings.HasSuffix(n, ".seg") {
			names = append(names, n)
		}
	}
	return names
}

// threeSessions are captured in turns into many segments; c only at the beginning.
func threeSessions(t *testing.T) *mendRig {
	r := newMendRig(t, "a", "b", "c")
	r.write("c", 1, 2)
	for i := range 40 {
		r.write("a", i+1, 1)
		r.write("b", i+1, 1)
	}
	if n := len(r.segments()); n < 5 {
		t.Fatalf("%d segments", n)
	}
	r.stop()
	return r
}

func TestSessionsGoBackToBeforeALostSegment(t *testing.T) {
	r := threeSessions(t)
	if err := r.fs.Remove(r.segments()[2]); err != nil {
		t.Fatal(err)
	}
	r.start("a", "b", "c")
	if done := r.mend(); !done.Back {
		t.Fatal("no session went back")
	}
	r.drain()
	for id := range r.s {
		if n := r.missing(id); n > 0 {
			t.Errorf("%d records of %s are lost", n, id)
		}
	}
	if st := r.o.Stats(); st.Damaged != 0 || st.Lost == 0 {
		t.Errorf("%+v", st)
	}
	if r.back() != 2 {
		t.Errorf("ops records %q", r.ops)
	}
	for _, op := range r.ops {
		if strings.HasPrefix(op, "c "+OpSessionBack) || strings.Contains(op, `"seq":0,`) {
			t.Errorf("went back too far: %s", op)
		}
	}
	r.stop()
	r.start("a", "b", "c")
	if done := r.mend(); done != (Mended{}) {
		t.Errorf("%+v after a restart", done)
	}
	r.o.Cursors(backPrefix, func(key string, _ []byte) bool {
		t.Errorf("left behind: %s", key)
		return true
	})
	r.stop()
}

// Headers of records are gone, the checkpoint covers them, and one of the sessions is not
// there: the loss stays reported, who went back does not do it again.
func TestALossStaysReportedUntilAllItsSessionsAreThere(t *testing.T) {
	r := threeSessions(t)
	name := r.segments()[2]
	image := r.fs.Bytes(name)
	for n, at := 0, 16384; n < 4; n++ {
		i := bytes.Index(image[at:], []byte("\xf5\x4f\x42\x9a"))
		clear(image[at+i : at+i+40])
		at += i + 40
	}
	r.fs.Put(name, image)
	r.start("a", "c")
	r.drain() // it shows when it is read
	r.mend()
	r.drain()
	if r.back() != 1 || r.o.Stats().Damaged == 0 {
		t.Errorf("%+v, %q", r.o.Stats(), r.ops)
	}
	r.stop()
	r.start("a", "c")
	r.mend()
	if r.drain(); r.back() != 1 || r.o.Stats().Damaged == 0 {
		t.Errorf("after a restart %+v, %q", r.o.Stats(), r.ops)
	}
	r.stop()
	r.start("a", "b", "c")
	r.mend()
	if r.drain(); r.back() != 2 || r.o.Stats().Damaged != 0 {
		t.Errorf("with all sessions %+v, %q", r.o.Stats(), r.ops)
	}
	for id := range r.s {
		if n := r.missing(id); n > 0 {
			t.Errorf("%d records of %s are lost", n, id)
		}
	}
	r.stop()
}

// What was out of scope does not go out because something else is lost.
func TestNoSessionGoesBackBehindWhatWasOutOfScope(t *testing.T) {
	r := newMendRig(t)
	r.sources["a"] = ledger("a", append(turn(1), turn(2)...)...)
	r.s["a"] = r.c.Session(r.sources["a"], SessionOptions{FromNow: true})
	pull(t, r.s["a"])
	r.write("a", 3, 60)
	r.stop()
	if err := r.fs.Remove(r.segments()[0]); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.s["a"] = r.c.Session(r.sources["a"], SessionOptions{FromNow: true})
	if done := r.mend(); !done.Back || done.Seq != 0 {
		t.Errorf("%+v", done)
	}
	r.drain()
	out, _ := captured(t, ledger("a", append(turn(1), turn(2)...)...), nil)
	for _, rec := range out {
		if rec.Channel == ChannelLedger && r.got[rec.UID] > 0 {
			t.Errorf("seq %d was out of scope", rec.Identity.Seq)
		}
	}
	if n := r.missing("a"); n != 14 || r.o.Stats().Damaged != 0 {
		t.Errorf("%d records did not come, 14 were out of scope: %+v", n, r.o.Stats())
	}
	r.stop()
}

// A damaged record whose event the ledger does not have any more stays reported as lost.
func TestWhatTheLedgerDoesNotHaveAnyMoreStaysLost(t *testing.T) {
	r := newMendRig(t, "a", "b")
	r.write("a", 1, 2)
	r.write("b", 1, 1)
	r.stop()
	name := r.segments()[0]
	image := r.fs.Bytes(name)
	for _, text := range []string{"question 2", "question 1"} {
		image[bytes.Index(image, []byte(text))] ^= 4
	}
	r.fs.Put(name, image)
	r.sources["a"].events = r.sources["a"].events[:9] // the first turn
	for i := range 3 {
		r.start("a", "b")
		r.drain()
		done := r.mend()
		if want := []Mended{{Again: 1, Gone: 1}, {Gone: 1}, {Gone: 1}}[i]; done.Again != want.Again || done.Gone != want.Gone {
			t.Errorf("start %d: %+v, want %+v", i, done, want)
		}
		if done := r.mend(); done.Gone != 0 {
			t.Errorf("start %d: counted twice: %+v", i, done)
		}
		r.drain()
		if st := r.o.Stats(); st.Damaged != 1 || !st.Degraded {
			t.Errorf("start %d: %+v", i, st)
		}
		lost := 0
		if err := r.o.Scan(func(i outbox.Info) bool {
			if i.State == outbox.Lost && len(i.Key) > 0 {
				lost++
			}
			return true
		}); err != nil && !errors.Is(err, outbox.ErrClosed) {
			t.Fatal(err)
		}
		if lost == 0 {
			t.Errorf("start %d: not listed", i)
		}
		r.stop()
	}
	told := 0
	for _, op := range r.ops {
		if op == `a `+OpSessionLost+` {"records":1,"first_seq":11,"last_seq":11}` {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times: %q", told, r.ops)
	}
}
