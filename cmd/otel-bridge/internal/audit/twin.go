package audit

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	sess "github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// identityOf is the session that a header names.
func identityOf(h *sess.Header) identity {
	return identity{strings.ToValidUTF8(h.ID, "\uFFFD"), h.CreatedAt, h.Version}
}

// Twin compares the events of a ledger with those of another file that is to hold
// the same session, such as its other encoding, and was not chosen: where they
// differ, and where the other one has more, the file is named. That it ends
// earlier is no finding. The error is one of reading the ledger.
func (a *Auditor) Twin(name string, ledger, other telemetry.Source) error {
	led, err := ledger.Open()
	if err != nil {
		return err
	}
	id := identityOf(led.Header())
	led.Close()
	d, err := compare(ledger, other)
	if err != nil {
		return err
	}
	a.tellTwin(name, id, d)
	return nil
}

func (a *Auditor) tellTwin(name string, id identity, d difference) {
	if d.what != "" {
		a.find(TwinDiffers, id, 0, d.seq, d.seq, name+" "+d.what+"; it is not what was compared")
	}
}

// difference is where another file begins to differ from a ledger: seq is -1 for
// the header, and what is empty where it does not.
type difference struct {
	seq  int64
	what string
	more bool // all it differs in is that it has more events
}

func compare(ledger, other telemetry.Source) (difference, error) {
	a, err := ledger.Open()
	if err != nil {
		return difference{}, err
	}
	defer a.Close()
	b, err := other.Open()
	if err != nil {
		return difference{seq: -1, what: "cannot be read"}, nil
	}
	defer b.Close()
	if !reflect.DeepEqual(a.Header(), b.Header()) {
		return difference{seq: -1, what: "has another header"}, nil
	}
	for seq := int64(0); ; seq++ {
		switch {
		case !b.Next():
			if b.Err() != nil {
				return difference{seq: seq, what: "cannot be read from here on"}, nil
			}
			return difference{}, nil
		case !a.Next():
			if err := a.Err(); err != nil {
				return difference{}, err
			}
			return difference{seq: seq, what: "goes on from here", more: true}, nil
		case !sameEvent(a.Event(), b.Event()):
			return difference{seq: seq, what: "has other events from here on"}, nil
		}
	}
}

// sameEvent tells whether two events are one, however their rows are written.
func sameEvent(a, b *sess.Event) bool {
	return a.Seq == b.Seq && a.Time == b.Time && a.Type == b.Type && a.Ignorable == b.Ignorable && a.DataTruncated == b.DataTruncated &&
		sameJSON(a.Data, b.Data) && sameJSON(a.RawSurfaceOp, b.RawSurfaceOp) && slices.Equal(a.SourceEventSeqs, b.SourceEventSeqs)
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, err := sess.Canonical(nil, a)
	if err != nil {
		return false
	}
	y, err := sess.Canonical(nil, b)
	return err == nil && bytes.Equal(x, y)
}
