package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// MendOutbox is what a Mender needs of an outbox.Outbox.
type MendOutbox interface {
	Outbox
	Stats() outbox.Stats
	Damaged() []outbox.Damage
	Before(outbox.Damage) (cursors []outbox.Cursor, ok bool)
	Recovered(...outbox.Damage) error
}

// Mender captures again from ledgers what an outbox has lost to damage.
//
// Of an entry whose key can be read the one event is captured again. Where keys are
// lost, or whole segments, each session whose cursor moved there goes back to where
// it was before: it captures again what is lost, and a second time, under the same
// uids, what is not. It never goes back behind what was out of scope. What cannot be
// had again (the ledger does not have it any more, it is an ops record, its session
// is not there) stays reported as lost.
//
// It is safe for concurrent use, for different sessions.
type Mender struct {
	outbox MendOutbox

	mu       sync.Mutex
	segments map[uint64]map[string][]byte // keyless losses: session -> its cursor before
	gone     map[lossPlace]bool           // cannot be had again
}

type lossPlace struct {
	segment uint64
	offset  int64
	id      outbox.ID
}

// Mended is what a Mender has done for a session.
type Mended struct {
	// Again counts records that were captured again one by one.
	Again int
	// Gone counts lost records that the ledger does not have any more. They are
	// counted once in the life of a Mender.
	Gone int
	// Back is true when the session's cursor went back, to Seq: it is to be pulled.
	Back bool
	Seq  int64
}

// NewMender returns a Mender for the sessions of captures into o.
func NewMender(o MendOutbox) *Mender {
	return &Mender{outbox: o, segments: map[uint64]map[string][]byte{}, gone: map[lossPlace]bool{}}
}

// Mend makes good what is lost of a session, which nobody else uses meanwhile. It
// costs next to nothing when nothing is.
func (m *Mender) Mend(ctx context.Context, s *Session) (done Mended, err error) {
	if m.outbox.Stats().Damaged == 0 {
		return done, nil
	}
	if s.key == "" {
		if err := s.meet(); err != nil {
			return done, err
		}
	}
	keyless := map[uint64][]outbox.Damage{}
	lost := map[EventKey]outbox.Damage{}
	m.mu.Lock()
	for _, d := range m.outbox.Damaged() {
		k, event := ParseEventKey(d.Key)
		switch {
		case d.Key == nil:
			keyless[d.Segment] = append(keyless[d.Segment], d)
		case event && k.Session == s.key && !m.gone[placeOf(d)]:
			lost[k] = d
		}
	}
	m.mu.Unlock()
	if len(lost) > 0 {
		if done.Again, done.Gone, err = m.again(ctx, s, lost); err != nil {
			return done, err
		}
	}
	for segment, ds := range keyless {
		if err := m.goBack(ctx, s, segment, ds, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

func placeOf(d outbox.Damage) lossPlace { return lossPlace{d.Segment, d.Offset, d.ID} }

// again captures single events again.
func (m *Mender) again(ctx context.Context, s *Session, lost map[EventKey]outbox.Damage) (again, gone int, err error) {
	keys := make([]EventKey, 0, len(lost))
	for k := range lost {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b EventKey) int {
		return cmp.Or(cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Seq, b.Seq))
	})
	missing, err := s.Recapture(ctx, keys)
	if err != nil {
		return 0, 0, err
	}
	var back []outbox.Damage
	for _, k := range keys {
		if !slices.Contains(missing, k) {
			back = append(back, lost[k])
		}
	}
	if len(back) > 0 {
		if err := m.outbox.Recovered(back...); err != nil {
			return 0, 0, err
		}
	}
	if len(missing) > 0 {
		if err := s.lost(ctx, missing); err != nil {
			return 0, 0, err
		}
		m.mu.Lock()
		for _, k := range missing {
			m.gone[placeOf(lost[k])] = true
		}
		m.mu.Unlock()
	}
	return len(back), len(missing), nil
}

// backPrefix starts the keys of cursors that note which session went back for which
// lost segment, so that none does it twice while others are awaited.
const backPrefix = "back/"

func backKey(segment uint64, session string) string {
	return fmt.Sprintf("%s%016x/%s", backPrefix, segment, session)
}

// Values of such a note.
var (
	backWhole  = []byte{1}
	backPartly = []byte{0} // only to the end of what was out of scope
)

// goBack takes the session to where it was before a segment of which entries are lost
// whose keys nobody knows, if it moved there.
func (m *Mender) goBack(ctx context.Context, s *Session, segment uint64, ds []outbox.Damage, done *Mended) error {
	m.mu.Lock()
	sessions, known := m.segments[segment]
	if !known {
		sessions = m.movedIn(ds[0])
		m.segments[segment] = sessions
	}
	m.mu.Unlock()
	before, concerned := sessions[s.key]
	if !concerned {
		return nil
	}
	note := backKey(segment, s.key)
	if _, done := m.outbox.Cursor(note); done {
		return nil
	}
	back, err := s.goBack(ctx, before, note)
	if err != nil {
		return err
	}
	if back && (!done.Back || s.cur.next < done.Seq) {
		done.Back, done.Seq = true, s.cur.next
	}
	return m.finish(ctx, segment, sessions, ds)
}

// movedIn are the sessions whose cursors moved in the segment of a loss, all where
// that is not known.
func (m *Mender) movedIn(d outbox.Damage) map[string][]byte {
	sessions := map[string][]byte{}
	cursors, ok := m.outbox.Before(d)
	for _, c := range cursors {
		if key, ok := strings.CutPrefix(c.Key, cursorPrefix); ok {
			sessions[key] = c.Value
		}
	}
	if !ok {
		m.outbox.Cursors(cursorPrefix, func(key string, _ []byte) bool {
			sessions[strings.TrimPrefix(key, cursorPrefix)] = nil
			return true
		})
	}
	return sessions
}

// finish says so when all sessions went back.
func (m *Mender) finish(ctx context.Context, segment uint64, sessions map[string][]byte, ds []outbox.Damage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b outbox.Batch
	for key := range sessions {
		note := backKey(segment, key)
		v, ok := m.outbox.Cursor(note)
		if !ok || string(v) != string(backWhole) {
			return nil
		}
		b.Cursors = append(b.Cursors, outbox.Cursor{Key: note})
	}
	if err := m.outbox.Recovered(ds...); err != nil {
		return err
	}
	delete(m.segments, segment)
	return commit(ctx, m.outbox, &b)
}

// goBack takes the cursor back to where it was in an earlier value, to the beginning
// for nil, and commits a note of it.
func (s *Session) goBack(ctx context.Context, before []byte, note string) (back bool, err error) {
	n := outbox.Cursor{Key: note, Value: backWhole}
	err = s.change(ctx, func() ([]outbox.Cursor, error) {
		seq := int64(0)
		if before != nil {
			// Under another incarnation there may be another past.
			if was, err := decodeCursor(before); err == nil && was.incarnation == s.cur.incarnation {
				seq = was.next
			}
		}
		if seq < s.cur.from {
			// What was out of scope stays it, and what stood before is not reached either.
			seq = s.cur.from
			if before != nil || s.cur.outcomes.OutOfScope < s.cur.from {
				n.Value = backPartly
			}
		}
		if seq >= s.cur.next {
			return []outbox.Cursor{n}, nil
		}
		back = true
		if err := s.endSpan(ctx); err != nil {
			return nil, err
		}
		if s.c.cfg.Mode == Full {
			body := fmt.Appendf(nil, `{"seq":%d,"captured_seq":%d}`, seq, s.cur.next-1)
			if err := s.ops(ctx, OpSessionBack, SeverityWarn, body, s.cur.next-1); err != nil {
				return nil, err
			}
		}
		s.rewind(seq)
		return []outbox.Cursor{n}, nil
	})
	return back && err == nil, err
}

// lostPrefix starts the keys of cursors that have the events of a session that were
// told to be lost, so that each is told once.
const lostPrefix = "lost/"

// lost tells of events that an outbox has lost and that the ledger does not have.
func (s *Session) lost(ctx context.Context, keys []EventKey) error {
	return s.change(ctx, func() ([]outbox.Cursor, error) {
		v, _ := s.c.cfg.Outbox.Cursor(lostPrefix + s.key)
		told, err := decodeRanges(v)
		if err != nil {
			return nil, err
		}
		n, first, last := 0, int64(0), int64(0)
		for _, k := range keys {
			if slices.ContainsFunc(told, func(r seqRange) bool {
				return r.incarnation == k.Incarnation && r.from <= k.Seq && k.Seq <= r.to
			}) {
				continue
			}
			if told = addRange(told, seqRange{k.Incarnation, k.Seq, k.Seq}); n == 0 {
				first = k.Seq
			}
			first, last = min(first, k.Seq), max(last, k.Seq)
			n++
		}
		if n == 0 {
			return nil, nil
		}
		if s.c.cfg.Mode == Full {
			body := fmt.Appendf(nil, `{"records":%d,"first_seq":%d,"last_seq":%d}`, n, first, last)
			if err := s.ops(ctx, OpSessionLost, SeverityError, body, last); err != nil {
				return nil, err
			}
		}
		return []outbox.Cursor{{Key: lostPrefix + s.key, Value: encodeRanges(told)}}, nil
	})
}
