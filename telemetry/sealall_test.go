package telemetry

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Drafts that are sealed together become what they become one by one, in one
// commit: several of a stream, of two sessions, one with discarded events in it,
// and behind them one that cannot be read.
func TestDraftsSealedTogetherAreWhatTheyAreOneByOne(t *testing.T) {
	in := NewInstallation()
	made := func() (*sealing, *Capture, []outbox.Leased) {
		o := &sealing{modelOutbox: newModelOutbox(), states: map[outbox.ID]outbox.State{}}
		c := testCapture(t, o, func(c *Config) { c.Attest, c.Installation = true, in })
		for _, id := range []string{"a", "b"} {
			src := ledger(id, turn(1)...)
			s := c.Session(src, SessionOptions{})
			for n := 2; n < 5; n++ {
				pull(t, s)
				src.append(turn(n)...)
			}
			pull(t, s)
			s.Close()
		}
		_, drafts := o.drafts(t)
		var gone []EntryKey
		for _, e := range o.entries {
			if k, ok := ParseEventKey(e.Key); ok && (k.Seq == 2 || k.Seq == 11) {
				gone = append(gone, EntryKey{e.Stream, e.Key})
			}
		}
		if err := c.Trail().Discarding(context.Background(), gone); err != nil {
			t.Fatal(err)
		}
		return o, c, drafts
	}
	o, c, drafts := made()
	if len(drafts) != 8 {
		t.Fatalf("%d drafts", len(drafts))
	}
	for _, d := range drafts {
		if err := c.NewSealer(o).Seal(context.Background(), d); err != nil {
			t.Fatal(err)
		}
	}

	together, c, drafts := made()
	before := together.commits
	sealer := c.NewSealer(together)
	broken := outbox.Leased{ID: 1, Key: drafts[0].Key, Stream: drafts[0].Stream, Payload: []byte("?")}
	n, err := sealer.SealAll(context.Background(), append(drafts[:len(drafts):len(drafts)], broken, drafts[0]))
	if n != len(drafts) || !errors.Is(err, ErrRecordForm) || sealer.Sealed() != int64(len(drafts)) {
		t.Errorf("%d sealed, %v; the sealer counts %d", n, err, sealer.Sealed())
	}
	if together.commits != before+1 {
		t.Errorf("%d commits, want one", together.commits-before)
	}
	if !reflect.DeepEqual(together.entries, o.entries) || !reflect.DeepEqual(together.cursors, o.cursors) {
		t.Error("sealed together they are others")
	}
	// Again, after a crash before the acknowledgement: nothing more.
	if n, err := sealer.SealAll(context.Background(), drafts); n != len(drafts) || err != nil || together.commits != before+1 {
		t.Errorf("again: %d, %v, %d commits", n, err, together.commits-before)
	}
	// Without room for all there is room for one.
	tight, c, drafts := made()
	tight.full = 1
	if n, err := c.NewSealer(tight).SealAll(context.Background(), drafts); n != len(drafts) || err != nil {
		t.Errorf("with little room: %d, %v", n, err)
	}
	if !reflect.DeepEqual(tight.cursors, o.cursors) {
		t.Error("with little room they are others")
	}
}
