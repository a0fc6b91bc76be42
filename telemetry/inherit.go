package telemetry

import (
	"bytes"
	"slices"

	"github.com/otel-bridge/otel-bridge/session"
)

// decideInherited decides, once, what becomes of the inherited events: they are
// skipped when the parent's capture has passed them and its events are the
// same; otherwise they go out, marked.
func (s *Session) decideInherited() {
	if s.cur.inherited != inheritUndecided {
		return
	}
	s.cur.inherited = inheritExport
	if s.c.cfg.Parent == nil || s.header.ParentSession == nil {
		return
	}
	src, ok := s.c.cfg.Parent(*s.header.ParentSession)
	if !ok {
		return
	}
	// A parent that cannot be read is one that nothing is known of.
	if same, err := s.parentHas(src); err == nil && same {
		s.cur.inherited = inheritSkip
	}
}

// parentHas tells whether the parent's first events are the inherited ones and
// have all been captured under it.
func (s *Session) parentHas(src Source) (bool, error) {
	parent, err := src.Open()
	if err != nil {
		return false, err
	}
	defer parent.Close()
	value, ok := s.c.cfg.Outbox.Cursor(cursorPrefix + sessionKey(s.c.cfg.Installation.Key, parent.Header()))
	if !ok {
		return false, nil
	}
	cur, err := decodeCursor(value)
	if err != nil || cur.next < s.seed || cur.from > 0 {
		return false, err
	}
	own, err := s.src.Open()
	if err != nil {
		return false, err
	}
	defer own.Close()
	for range s.seed {
		if !parent.Next() || !own.Next() || !sameEvent(parent.Event(), own.Event()) {
			return false, nil
		}
	}
	return true, nil
}

func sameEvent(a, b *session.Event) bool {
	if a.Seq != b.Seq || a.Time != b.Time || a.Type != b.Type || a.DataTruncated != b.DataTruncated ||
		!bytes.Equal(a.Data, b.Data) || !slices.Equal(a.SourceEventSeqs, b.SourceEventSeqs) {
		return false
	}
	if a.SurfaceOp == nil || b.SurfaceOp == nil {
		return a.SurfaceOp == b.SurfaceOp
	}
	return *a.SurfaceOp == *b.SurfaceOp
}
