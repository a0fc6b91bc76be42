package telemetry

import (
	"context"
	"errors"
	"slices"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Key names the session in the outbox, as in EventKey; "" before the first Pull.
func (s *Session) Key() string { return s.key }

// Hold keeps a session from being captured any further, over restarts too,
// until it is accepted.
func (s *Session) Hold(ctx context.Context) error {
	return s.change(ctx, func() ([]outbox.Cursor, error) {
		s.cur.held = &HeldError{Code: CodeOperator, Seq: s.cur.next}
		return nil, s.action(ctx, "hold", s.cur.next)
	})
}

// Accept lets a held session go on: one that an operator has held as if nothing
// had been, one whose past has changed from the last common point under another
// incarnation, one that does not follow its older generation from its beginning.
// A session that cannot be understood stays held.
func (s *Session) Accept(ctx context.Context) error {
	return s.change(ctx, func() ([]outbox.Cursor, error) {
		s.cur.accepted = s.cur.held != nil && s.cur.held.Code == CodeDiverged
		s.cur.held, s.cur.unplaced = nil, false
		s.cur.fingerprint, s.quiet = "", ""
		return nil, s.action(ctx, "accept", s.cur.next)
	})
}

// Rewind takes the session's cursor back to seq, so that what follows goes out
// again under the same identity: for what a receiver has lost. A session that an
// operator holds goes on from there when it is accepted.
func (s *Session) Rewind(ctx context.Context, seq int64) error {
	return s.change(ctx, func() ([]outbox.Cursor, error) {
		if seq < 0 || seq > s.cur.next {
			return nil, errors.New("a session can only be rewound to an event that was captured")
		}
		// What was captured so far has its own summary.
		if err := s.endSpan(ctx); err != nil {
			return nil, err
		}
		if err := s.action(ctx, "rewind", seq); err != nil {
			return nil, err
		}
		s.rewind(seq)
		if held := s.cur.held; held != nil && held.Code == CodeOperator {
			s.cur.held = &HeldError{Code: CodeOperator, Seq: seq}
		} else {
			s.cur.held = nil
		}
		return nil, nil
	})
}

// action puts the ops record of an operator's action on the session into the
// batch. Under FeedbackOnly it does not say on which.
func (s *Session) action(ctx context.Context, action string, seq int64) error {
	if s.c.cfg.Mode != Full {
		return s.c.Trail().emit(ctx, OpOperator+action, []byte("{}"))
	}
	body := append(binaryInt([]byte(`{"seq":`), seq), '}')
	return s.ops(ctx, OpOperator+action, SeverityInfo, body, s.cur.next-1)
}

// change changes and commits the cursor of a session that is asleep, and others with it.
func (s *Session) change(ctx context.Context, do func() (others []outbox.Cursor, err error)) error {
	if s.key == "" {
		if err := s.meet(); err != nil {
			return err
		}
	}
	s.sleep()
	var p Progress
	others, err := do()
	if err == nil {
		err = s.flush(ctx, &p, others...)
	}
	if err != nil {
		s.sleep()
	}
	return err
}

// Recapture makes the records of events anew that an outbox has lost to damage,
// and commits them. The cursor stays. It returns the keys that cannot be had
// again: of another incarnation, or not in the ledger any more.
func (s *Session) Recapture(ctx context.Context, keys []EventKey) (missing []EventKey, err error) {
	if s.key == "" {
		if err := s.meet(); err != nil {
			return nil, err
		}
	}
	s.sleep()
	want := make(map[int64]EventKey, len(keys))
	for _, k := range keys {
		if k.Session == s.key && k.Incarnation == s.cur.incarnation && k.Seq < s.cur.next {
			want[k.Seq] = k
		} else {
			missing = append(missing, k)
		}
	}
	if len(want) == 0 {
		return missing, nil
	}
	r, err := s.open()
	if err != nil {
		return nil, err
	}
	defer r.led.Close()
	for len(want) > 0 && r.led.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ev := r.led.Event()
		_, wanted := want[ev.Seq]
		var seen SurfaceFacts
		if wanted && (ev.Type == session.TypeAssistantMessage || ev.Type == session.TypeAssistantAttempt) {
			seen = r.seen()
		}
		if r.adm.admit(ev) != nil {
			break
		}
		pr := r.proj.observe(ev, wanted)
		if pr.attempt {
			r.proj.forget()
		}
		attrs := s.attrs
		if wanted {
			attrs = r.genai.attributes(attrs, s.ident.SessionID, ev, pr.body)
		}
		r.genai.observe(ev, s.cur.from)
		if !wanted || pr.elided {
			continue
		}
		_, _, err := s.batch.putEvent(ctx, &event{
			Event: ev, dialect: r.adm.dialect, isSurface: r.adm.isSurface(ev.Type),
			body: pr.body, seen: seen, inherited: ev.Seq < s.seed,
			ident: s.ident, attrs: attrs, session: s.key,
			consent: consent{s.c.cfg.Mode, s.cur.next - 1},
		})
		if err != nil {
			return nil, err
		}
		delete(want, ev.Seq)
		if s.batch.full() {
			if err := s.batch.commit(ctx); err != nil {
				return nil, err
			}
		}
	}
	if err := r.led.Err(); err != nil && !truncated(err) {
		return nil, heldBy(err, r.adm.next())
	}
	if s.batch.len() > 0 {
		if err := s.batch.commit(ctx); err != nil {
			return nil, err
		}
	}
	for _, k := range want {
		missing = append(missing, k)
	}
	slices.SortFunc(missing, func(a, b EventKey) int { return int(a.Seq - b.Seq) })
	return missing, nil
}
