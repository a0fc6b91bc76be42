package telemetry

import (
	"context"
	"errors"

	"github.com/otel-bridge/otel-bridge/session"
)

// scout reads ahead of capture under FeedbackOnly and finds out how far consent
// goes. It keeps numbers and digests; what lies beyond the last feedback is
// never turned into a record.
type scout struct {
	led   Ledger
	adm   *admission
	chain *chain

	feedback int64 // seq of the last own feedback/record, -1 before the first
	mark     [32]byte
	lifetime int64 // first seq after the last session/end-seed
	held     *HeldError
}

func (s *scout) close() {
	if s != nil && s.led != nil {
		s.led.Close()
		s.led = nil
	}
}

// scan takes the scout to the end of what is there, and returns the watermark:
// the seq of the last event that consent covers, -1 for none.
func (s *Session) scan(ctx context.Context) (int64, error) {
	if s.scout != nil && s.scout.held != nil {
		s.scout.close()
		s.scout = nil
	}
	if s.scout == nil {
		if err := s.sendScout(); err != nil {
			return -1, err
		}
	}
	if err := s.scout.advance(ctx, s.seed); truncated(err) {
		return -1, errChanging
	} else if err != nil {
		return -1, err
	}
	if s.c.cfg.FeedbackScope == ScopeLifetime && s.scout.feedback < s.scout.lifetime {
		return -1, nil // that feedback was about an earlier lifetime
	}
	return s.scout.feedback, nil
}

// elsewhere is an error when the source has another file than the scout, whose end
// has been read: errChanging where it is the session's.
func (s *Session) elsewhere() error {
	switch {
	case s.scout == nil || s.now == "" || !replaced(s.scout.led):
		return nil
	case s.there():
		return errChanging
	}
	return ErrReplaced
}

// errChanging says that a ledger changed again and again while it was read.
var errChanging = errors.New("the ledger changes while it is read; it will be read again")

func (s *Session) sendScout() error {
	led, err := s.src.Open()
	if err != nil {
		return heldBy(err, 0)
	}
	adm, err := newAdmission(led.Header(), s.c.cfg.EventTypes)
	if err == nil && sessionKey(s.c.cfg.Installation.Key, led.Header()) != s.key {
		err = ErrReplaced
	}
	if err == nil {
		s.seed, err = s.src.Inherited()
	}
	if err != nil {
		led.Close()
		return heldBy(err, 0)
	}
	s.scout = &scout{led: led, adm: adm, chain: newChain(s.c.cfg.Installation.Key), feedback: -1}
	return nil
}

// advance reads what is there. A ledger that cannot be understood from some
// event on is no error here: consent before that point stands.
func (s *scout) advance(ctx context.Context, seed int64) error {
	for s.led.Next() {
		ev := s.led.Event()
		if ev.Seq&1023 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.adm.admit(ev); err != nil {
			return s.stop(err)
		}
		s.chain.add(ev)
		switch {
		case ev.Type == session.TypeEndSeed:
			s.lifetime = ev.Seq + 1
		case ev.Type == session.TypeFeedbackRecord && ev.Seq >= seed:
			s.feedback, s.mark = ev.Seq, s.chain.h
		}
	}
	if err := s.led.Err(); err != nil {
		return s.stop(heldBy(err, s.adm.next()))
	}
	return nil
}

func (s *scout) stop(err error) error {
	if errors.As(err, &s.held) {
		return nil
	}
	return err
}
