package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// path is what all generations of a session have in common: a count and a hash
// chain over the events that a migration neither drops nor inserts, each by its
// type, time, turn and step. With it the successor of the last captured event is
// found in a newer file without the older one.
type path struct {
	n int64
	h [32]byte
}

// add takes an event of a ledger of dialect d into the path.
func (p *path) add(d *session.Dialect, ev *session.Event) {
	if d.StreamsAsChunks() && ev.Type == session.TypeAssistantChunk {
		return // from format 2 on streams stand within the messages
	}
	p.step(ev)
}

func (p *path) step(ev *session.Event) {
	var few [192]byte
	b := append(few[:0], p.h[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(ev.Time))
	turn, step, _ := session.TurnStep(ev)
	b = binary.BigEndian.AppendUint64(b, uint64(turn))
	b = binary.BigEndian.AppendUint64(b, uint64(step))
	b = append(b, stableType(ev)...)
	p.h = sha256.Sum256(b)
	p.n++
}

// stableType is the event's type as all formats may have it.
func stableType(ev *session.Event) string {
	t := ev.Type
	switch {
	case ev.Ignorable:
		return strings.TrimPrefix(t, "plugin:")
	case strings.HasPrefix(t, "tool/code-dispatch"):
		return "tool/ptc-dispatch" + strings.TrimPrefix(t, "tool/code-dispatch")
	case t == "steering/message":
		return session.TypeUserMessage
	case strings.HasPrefix(t, "compact/"):
		return "compaction/" + strings.TrimPrefix(t, "compact/")
	}
	return t
}

// inserted tells whether a migration between two formats may have put an event
// of this type among those of the older file. What migrations append behind the
// last event, or put where the older file was refused, is simply new.
func inserted(from, to *session.Dialect, typ string) bool {
	switch typ {
	case session.TypeAssistantAttempt:
		return from.StreamsAsChunks() && to.EmbedsStreams()
	case session.TypeSystemMessage:
		return !from.IsSurface(session.TypeSystemMessage) && to.IsSurface(session.TypeSystemMessage)
	}
	return false
}

func (p *path) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(p.n))
	if p.n == 0 {
		return b
	}
	return append(b, p.h[:]...)
}

func (in *reader) path() path {
	p := path{n: int64(in.uvarint())}
	if p.n > 0 {
		copy(p.h[:], in.take(len(p.h)))
	}
	return p
}

// older finds the cursor of the latest older generation of the session.
func (s *Session) older() (key string, cur cursor, ok bool, err error) {
	for h := (session.Header{ID: s.header.ID, CreatedAt: s.header.CreatedAt, Version: s.header.Version - 1}); h.Version >= 0; h.Version-- {
		key := sessionKey(s.c.cfg.Installation.Key, &h)
		if value, ok := s.c.cfg.Outbox.Cursor(cursorPrefix + key); ok {
			if cur, err = decodeCursor(value); err != nil {
				err = fmt.Errorf("cursor of session %s: %w", key, err)
			}
			return key, cur, err == nil, err
		}
	}
	return "", cursor{}, false, nil
}

// generations is the part of a session's key that all its generations have: one
// source has them all, so a newer one waits until the older one is let go.
func generations(key string) string {
	key, _, _ = strings.Cut(key, "/")
	return key
}

// superseded tells whether a newer generation of the session has been captured:
// an older file brings nothing then.
func (s *Session) superseded() bool {
	for v := s.header.Version + 1; ; v++ {
		if _, err := session.DialectOf(v); err != nil {
			return false // no capture knows such a version
		}
		if _, ok := s.c.cfg.Outbox.Cursor(fmt.Sprintf("%s%s/%d", cursorPrefix, generations(s.key), v)); ok {
			return true
		}
	}
}

// succeed makes the session go on where an older generation of it stands. A
// session that has none is left alone; one whose place is not to be found exactly
// is held; and one that has a newer generation is ErrTaken.
func (s *Session) succeed(ctx context.Context, p *Progress) error {
	if s.durable == nil && s.superseded() {
		return ErrTaken
	}
	oldKey, old, ok, err := s.older()
	if err != nil || !ok {
		return err
	}
	s.sleep()
	from, err := session.DialectOf(old.version)
	if err != nil {
		return err
	}
	r, err := s.open()
	if err != nil {
		return s.hold(ctx, err, p)
	}
	place := s.cur
	if err := s.findPlace(ctx, r, from, &old, &place); err != nil {
		r.led.Close()
		var held *HeldError
		if errors.As(err, &held) {
			s.cur.unplaced = true
		}
		return s.hold(ctx, err, p)
	}
	gen := &Generation{FromVersion: old.version, ToVersion: s.ident.FormatVersion, LastSeq: old.next - 1, NextSeq: place.next}
	place.epoch, place.inherited, place.skipping, place.opened = old.epoch, old.inherited, old.skipping, old.opened
	place.held, place.unplaced, place.path = nil, false, r.path
	place.span = openSpan{gen: gen}
	if old.held != nil && old.held.Code == CodeOperator {
		place.held = &HeldError{Code: CodeOperator, Seq: place.next}
	}
	s.cur, s.awake = place, r
	// The older generation's last span ends with it.
	if !old.span.empty() {
		id := Identity{SessionID: old.id, CreatedAt: old.createdAt, FormatVersion: old.version, Incarnation: old.incarnation}
		draft, err := s.draft(ctx, id, cursorPrefix+oldKey, &old.span)
		if err != nil {
			return err
		}
		s.batch.add(draft)
		old.span = old.span.next()
	}
	if old.next > 0 && (s.c.cfg.Mode == Full || old.opened || old.outcomes.Exported > 0) {
		if err := s.tellGeneration(ctx, gen); err != nil {
			return err
		}
	}
	if err := s.flush(ctx, p, outbox.Cursor{Key: cursorPrefix + oldKey, Value: old.encode()}); err != nil {
		return err
	}
	return s.held()
}

// tellGeneration puts the record of a new generation into the batch. It is signed:
// where nothing new stands in the newer file no summary says it.
func (s *Session) tellGeneration(ctx context.Context, gen *Generation) error {
	first := s.ident
	first.Seq = gen.NextSeq
	body := fmt.Appendf(nil, `{"from_version":%d,"to_version":%d,"last_seq":%d,"next_seq":%d,"first_uid":"%s"}`,
		gen.FromVersion, gen.ToVersion, gen.LastSeq, gen.NextSeq, first.UID())
	rec, err := s.opsRecord(ctx, OpGeneration, SeverityInfo, body, gen.NextSeq-1, gen.NextSeq-1)
	if err != nil {
		return err
	}
	rec = s.c.waterfall.ours(rec)
	if rec.Body, err = s.c.cfg.Installation.sign(OpGeneration, body); err != nil {
		return err
	}
	return s.batch.putOwn(rec)
}

// findPlace takes r, the newer ledger, behind the last event that was captured
// in the older one, and notes in place what stands there.
func (s *Session) findPlace(ctx context.Context, r *reading, from *session.Dialect, old *cursor, place *cursor) error {
	unplaced := &HeldError{Code: CodeGeneration}
	if old.path.n == 0 && old.next > 0 {
		return unplaced // a cursor from before paths were kept
	}
	var common path
	for common.n < old.path.n {
		ev, err := s.nextPlaced(ctx, r)
		if err != nil {
			return err
		}
		if ev == nil {
			return unplaced // it is shorter
		}
		if !inserted(from, r.adm.dialect, ev.Type) {
			common.add(r.adm.dialect, ev)
		}
		s.placed(r, ev, place)
	}
	if common != old.path {
		return unplaced
	}
	if !r.adm.dialect.StreamsAsChunks() {
		if old.from > 0 {
			place.from = place.next // how much of it is out of scope cannot be told
		}
		return nil
	}
	// Formats 0 and 1 number alike, the chunks of an open stream included.
	for place.from = old.from; place.next < old.next; {
		ev, err := s.nextPlaced(ctx, r)
		if err != nil {
			return err
		}
		if ev == nil || ev.Type != session.TypeAssistantChunk {
			return unplaced
		}
		s.placed(r, ev, place)
	}
	if place.next != old.next {
		return unplaced
	}
	return nil
}

// nextPlaced reads and admits the next event; nil where there is none.
func (s *Session) nextPlaced(ctx context.Context, r *reading) (*session.Event, error) {
	if r.adm.next()&1023 == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !r.led.Next() {
		if err := r.led.Err(); err != nil {
			return nil, heldBy(err, r.adm.next())
		}
		return nil, nil
	}
	ev := r.led.Event()
	return ev, r.adm.admit(ev)
}

// placed notes what capture would have noted of an event.
func (s *Session) placed(r *reading, ev *session.Event, place *cursor) {
	if r.proj.observe(ev, false).attempt {
		r.proj.forget()
	}
	r.digest(ev)
	if ev.DataTruncated {
		place.truncated = append(place.truncated, ev.Seq)
	}
	switch {
	case ev.Type == session.TypeTurnEnd:
		place.points = thin(append(place.points, r.chain.here()))
	case ev.Type == session.TypeEndSeed:
		place.lifetime = ev.Seq + 1
	case ev.Type == session.TypeFeedbackRecord && ev.Seq >= s.seed:
		place.feedback = ev.Seq + 1
	}
	place.next = ev.Seq + 1
}
