package telemetry

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// summaries decodes the drafts of an outbox.
func (o *modelOutbox) drafts(t testing.TB) (list []*Summary, keys []outbox.Leased) {
	t.Helper()
	for i, e := range o.entries {
		if !IsDraft(e.Key) {
			continue
		}
		r, err := DecodeRecord(e.Payload)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseSummary(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
		keys = append(keys, outbox.Leased{ID: outbox.ID(i + 1), Key: e.Key, Stream: e.Stream, Payload: e.Payload})
	}
	return list, keys
}

// checkSpans checks drafts against the records: numbered without a gap, spans
// that join, each record before its draft with its leaf.
func checkSpans(t testing.TB, o *modelOutbox) {
	t.Helper()
	type at struct {
		version     int
		incarnation uint32
		seq         int64
	}
	leaves := map[at]string{}
	spans := map[int]uint64{}
	next := map[int]int64{}
	for i, r := range o.records(t) {
		if r.Channel == ChannelLedger {
			l := LeafOf(r.Body)
			leaves[at{r.Identity.FormatVersion, r.Identity.Incarnation, r.Identity.Seq}] = leafText(l)
			continue
		}
		if !IsDraft(o.entries[i].Key) {
			continue
		}
		s, err := ParseSummary(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		v := s.FormatVersion
		if spans[v]++; s.Span != spans[v] {
			t.Fatalf("span %d, want %d", s.Span, spans[v])
		}
		if s.Generation != nil {
			next[v] = s.Generation.NextSeq
		}
		if s.From != next[v] || s.To-s.From >= spanEvents {
			t.Fatalf("span %d is %d to %d, want from %d", s.Span, s.From, s.To, next[v])
		}
		next[v] = s.To + 1
		for _, run := range s.Runs {
			for k, leaf := range run.Leaves {
				if got := leaves[at{v, s.Incarnation, run.From + int64(k)}]; got != leaf {
					t.Fatalf("seq %d: leaf %s, want %s", run.From+int64(k), leaf, got)
				}
			}
		}
	}
}

func attesting(c *Config) { c.Attest = true }

func TestSpanEndsWithTheTurnAndListsEveryEvent(t *testing.T) {
	o := newModelOutbox()
	src := ledger("s", turn(1)...)
	s := testCapture(t, o, attesting).Session(src, SessionOptions{})
	defer s.Close()
	pull(t, s)
	list, _ := o.drafts(t)
	if len(list) != 1 {
		t.Fatalf("%d drafts", len(list))
	}
	d := list[0]
	var got []string
	for _, r := range d.Runs {
		got = append(got, fmt.Sprintf("%s %d-%d (%d)", r.Outcome, r.From, r.To, len(r.Leaves)))
	}
	want := []string{"delivered 0-3 (4)", "elided 4-5 (0)", "delivered 6-8 (3)"}
	if !slices.Equal(got, want) || d.Span != 1 || d.Policy != PolicyNone {
		t.Errorf("%v, want %v; %+v", got, want, d)
	}
	checkSpans(t, o)

	// An open turn has no summary yet; a shutdown makes one, once.
	src.append(turn(2)[:4]...)
	pull(t, s)
	if list, _ := o.drafts(t); len(list) != 1 {
		t.Errorf("%d drafts within a turn", len(list))
	}
	for range 2 {
		if err := s.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if list, _ := o.drafts(t); len(list) != 2 || list[1].From != 9 || list[1].To != 12 {
		t.Errorf("after settling: %+v", list)
	}
	checkSpans(t, o)
}

func TestSpansAreBoundedAndLongOnesWithoutRecordsAreOne(t *testing.T) {
	o := newModelOutbox()
	lines := []string{}
	for i := range 1500 {
		lines = append(lines, fmt.Sprintf(`session/title {"title":"%d","messageSeqs":[],"source":{"kind":"fallback"}}`, i))
	}
	s := testCapture(t, o, attesting).Session(ledger("s", lines...), SessionOptions{})
	defer s.Close()
	pull(t, s)
	list, _ := o.drafts(t)
	if len(list) != 1500/spanLeaves {
		t.Errorf("%d drafts", len(list))
	}
	if v, _ := o.Cursor("session/" + s.Key()); len(v) > spanLeaves*32+400 {
		t.Errorf("cursor of %d bytes", len(v))
	}
	checkSpans(t, o)

	o = newModelOutbox()
	s2 := testCapture(t, o, attesting).Session(ledger("s", lines...), SessionOptions{FromNow: true})
	defer s2.Close()
	pull(t, s2)
	if err := s2.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	if list, _ := o.drafts(t); len(list) != 1 || len(list[0].Runs) != 1 || list[0].Runs[0].Outcome != OutOfScope {
		t.Errorf("%+v", list)
	}
}

// sealing is an outbox with states, as far as a Sealer asks.
type sealing struct {
	*modelOutbox
	states  map[outbox.ID]outbox.State
	damaged []outbox.Damage
}

func (o *sealing) Stats() outbox.Stats {
	var s outbox.Stats
	for _, st := range o.states {
		switch st {
		case outbox.Quarantined:
			s.Quarantined++
		case outbox.Held:
			s.Held++
		}
	}
	s.Damaged = int64(len(o.damaged))
	return s
}

func (o *sealing) ScanStates(fn func(outbox.Info) bool, states ...outbox.State) error {
	for _, id := range slices.Sorted(maps.Keys(o.states)) {
		e := o.entries[id-1]
		if slices.Contains(states, o.states[id]) && !fn(outbox.Info{ID: id, State: o.states[id], Key: e.Key, Stream: e.Stream}) {
			break
		}
	}
	return nil
}

func (o *sealing) Damaged() []outbox.Damage { return o.damaged }

// sealed returns the summaries that are no drafts, verified against the key.
func (o *sealing) sealed(t testing.TB, key ed25519.PublicKey) []*Summary {
	t.Helper()
	var out []*Summary
	prev := ""
	for i, r := range o.records(t) {
		if r.Op != OpSummary || IsDraft(o.entries[i].Key) {
			continue
		}
		if !VerifyBody(key, OpSummary, r.Body) {
			t.Fatalf("summary %d is not signed", i)
		}
		s, err := ParseSummary(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if s.Previous != prev {
			t.Fatalf("summary %d is not linked", s.Span)
		}
		prev = BodyHash(r.Body)
		out = append(out, s)
	}
	return out
}

func TestSealingTellsOutcomesApartSignsAndLinksOncePerSpan(t *testing.T) {
	in := NewInstallation()
	o := &sealing{modelOutbox: newModelOutbox(), states: map[outbox.ID]outbox.State{}}
	c := testCapture(t, o, func(c *Config) { c.Attest, c.Installation = true, in })
	src := ledger("s", turn(1)...)
	s := c.Session(src, SessionOptions{})
	defer s.Close()
	pull(t, s)
	src.append(turn(2)...)
	pull(t, s)
	_, drafts := o.drafts(t)
	if len(drafts) != 2 {
		t.Fatalf("%d drafts", len(drafts))
	}
	// Of the first span: seq 2 was refused, seq 6 is held, seq 8 was given up.
	var gone []byte
	for i, e := range o.entries {
		k, ok := ParseEventKey(e.Key)
		switch {
		case ok && k.Seq == 2:
			o.states[outbox.ID(i+1)] = outbox.Quarantined
		case ok && k.Seq == 6:
			o.states[outbox.ID(i+1)] = outbox.Held
		case ok && k.Seq == 8:
			gone = e.Key
		case ok && k.Seq == 10:
			o.damaged = append(o.damaged, outbox.Damage{Key: e.Key, Stream: e.Stream})
		}
	}
	err := c.Trail().Discarding(context.Background(), []EntryKey{{drafts[0].Stream, gone}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a crash between the commit and the acknowledgement
		for _, d := range drafts {
			if err := c.NewSealer(o).Seal(context.Background(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := o.sealed(t, in.Signer.Public().(ed25519.PublicKey))
	if len(list) != 2 {
		t.Fatalf("%d summaries", len(list))
	}
	var got []string
	for _, l := range list {
		for _, r := range l.Runs {
			got = append(got, fmt.Sprintf("%s %d-%d (%d)", r.Outcome, r.From, r.To, len(r.Leaves)))
		}
	}
	want := []string{
		"delivered 0-1 (2)", "quarantined 2-2 (1)", "delivered 3-3 (1)", "elided 4-5 (0)", "held 6-6 (1)", "delivered 7-7 (1)", "discarded 8-8 (1)",
		"delivered 9-9 (1)", "damaged 10-10 (1)", "delivered 11-12 (2)", "elided 13-14 (0)", "delivered 15-17 (3)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if _, ok := o.cursors[discardPrefix+drafts[0].Stream]; ok && o.cursors[discardPrefix+drafts[0].Stream] != nil {
		t.Error("what was given up is noted for good")
	}
}

func TestWhatIsKeptIsNotNotedAsDiscarded(t *testing.T) {
	o := newModelOutbox()
	trail := testCapture(t, o, nil).Trail()
	stream := cursorPrefix + "s"
	entries := func(incarnation uint32, seqs ...int64) (out []EntryKey) {
		for _, seq := range seqs {
			out = append(out, EntryKey{stream, EventKey{"s", incarnation, seq}.append(nil)})
		}
		return out
	}
	for _, step := range []struct {
		do      func(context.Context, []EntryKey) error
		entries []EntryKey
		want    []seqRange
	}{
		{trail.Discarding, entries(0, 1, 2, 3, 4, 7), []seqRange{{0, 1, 4}, {0, 7, 7}}},
		{trail.Discarding, entries(1, 3), []seqRange{{0, 1, 4}, {0, 7, 7}, {1, 3, 3}}},
		{trail.Kept, entries(0, 3, 5), []seqRange{{0, 1, 2}, {0, 4, 4}, {0, 7, 7}, {1, 3, 3}}},
		{trail.Kept, entries(0, 1, 2, 4), []seqRange{{0, 7, 7}, {1, 3, 3}}},
		{trail.Kept, entries(1, 3), []seqRange{{0, 7, 7}}},
		{trail.Kept, entries(0, 7), nil},
	} {
		if err := step.do(t.Context(), step.entries); err != nil {
			t.Fatal(err)
		}
		v, _ := o.Cursor(discardPrefix + stream)
		if got, err := decodeRanges(v); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%v %v, want %v", got, err, step.want)
		}
	}
}

func TestSummaryIsMadeOnceWhateverCrashes(t *testing.T) {
	in := NewInstallation()
	for _, after := range []bool{false, true} {
		for failOn := 1; ; failOn++ {
			o := &sealing{modelOutbox: newModelOutbox(), states: map[outbox.ID]outbox.State{}}
			o.fail, o.failOn, o.after = errors.New("crash"), failOn, after
			src := ledger("s", append(turn(1), turn(2)[:3]...)...)
			crashed := false
			again := func(do func(c *Capture) error) {
				for {
					err := do(testCapture(t, o, func(c *Config) { c.Attest, c.Installation = true, in }))
					if err == nil {
						return
					}
					crashed = true
				}
			}
			capture := func(c *Capture) error {
				s := c.Session(src, SessionOptions{})
				defer s.Close()
				if _, err := s.Pull(context.Background(), 0); err != nil {
					return err
				}
				return s.Settle(context.Background())
			}
			seal := func(c *Capture) error {
				_, drafts := o.drafts(t)
				for _, d := range drafts {
					if err := c.NewSealer(o).Seal(context.Background(), d); err != nil {
						return err
					}
				}
				return nil
			}
			again(capture)
			again(seal)
			src.append(turn(2)[3:]...)
			again(capture)
			again(seal)
			checkSpans(t, o.modelOutbox)
			uids := map[string]bool{}
			for i, r := range o.records(t) {
				if !IsDraft(o.entries[i].Key) {
					if uids[r.UID] {
						t.Fatalf("crash at %d: uid twice", failOn)
					}
					uids[r.UID] = true
				}
			}
			list := o.sealed(t, in.Signer.Public().(ed25519.PublicKey))
			next := int64(0)
			for _, s := range list {
				if s.From != next {
					t.Fatalf("crash at %d: summary from %d, want %d", failOn, s.From, next)
				}
				next = s.To + 1
			}
			if next != 18 {
				t.Fatalf("crash at %d: summaries to %d", failOn, next)
			}
			if !crashed {
				break
			}
		}
	}
}

func TestIdleAndEndedAreSaidOnceAndNeverUnderFeedbackOnly(t *testing.T) {
	for _, mode := range []Mode{Full, FeedbackOnly} {
		o := newModelOutbox()
		src := ledger("s", append(turn(1), `feedback/record {"rating":"up"}`, "turn/start {\"turn\":2}")...)
		open := func() *Session {
			s := testCapture(t, o, func(c *Config) { c.Attest, c.Mode = true, mode }).Session(src, SessionOptions{})
			pull(t, s)
			return s
		}
		for range 2 {
			s := open()
			for range 2 {
				if err := errors.Join(s.Idle(context.Background()), s.Ended(context.Background()), s.Idle(context.Background())); err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
		}
		var kinds []string
		for i, r := range o.records(t) {
			if r.Channel == ChannelOps && !IsDraft(o.entries[i].Key) {
				kinds = append(kinds, r.Op)
			}
		}
		want := []string{OpSessionOpened, OpSessionIdle, OpSessionEnded}
		if mode == FeedbackOnly {
			want = want[:1]
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("%v: %v, want %v", mode, kinds, want)
		}
		list, _ := o.drafts(t)
		last := int64(10)
		if mode == FeedbackOnly {
			last = 9
		}
		if list[len(list)-1].To != last {
			t.Errorf("%v: attested to %d, want %d", mode, list[len(list)-1].To, last)
		}
	}
}

func TestNothingIsSaidOfASessionThatConsentDoesNotCover(t *testing.T) {
	o := newModelOutbox()
	s := testCapture(t, o, func(c *Config) { c.Attest, c.Mode = true, FeedbackOnly }).Session(ledger("s", turn(1)...), SessionOptions{})
	defer s.Close()
	pull(t, s)
	if err := errors.Join(s.Settle(context.Background()), s.Idle(context.Background()), s.Ended(context.Background())); err != nil {
		t.Fatal(err)
	}
	if len(o.entries) > 0 {
		t.Errorf("%d entries", len(o.entries))
	}
}

func TestCursorOfVersionOneIsRead(t *testing.T) {
	c := cursor{id: "s", next: 7, points: []point{{3, 4}}, fingerprint: "f"}
	b := c.encode()
	tail := len(c.span.appendTo(nil)) + len(c.path.appendTo(nil)) + 1
	old := slices.Clone(b[:len(b)-tail])
	old[0] = 1
	got, err := decodeCursor(old)
	if err != nil || got.next != 7 || got.fingerprint != "f" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSpanInACursorIsReadBack(t *testing.T) {
	var s openSpan
	for i := range int64(300) {
		s.add(40+i, "p", spanOutcomes[i*i%5], Leaf{byte(i), 1})
	}
	s.attempts = []spanAttempt{{"u", Leaf{9}, true}, {"v", Leaf{}, false}}
	s.turnEnd, s.gen = true, &Generation{1, 3, 7, 9}
	c := cursor{span: s, path: path{n: 3, h: [32]byte{7}}, opened: true, rested: 2}
	got, err := decodeCursor(c.encode())
	if err != nil || !reflect.DeepEqual(got.span, s) || got.path != c.path || got.rested != 2 || !got.opened {
		t.Errorf("%v", err)
	}
	whole := c.encode()
	for n := range len(whole) {
		if _, err := decodeCursor(whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes are read", n, len(whole))
		}
	}
}

func TestSignaturesHoldForTheBodyAndNothingElse(t *testing.T) {
	pub, key, _ := ed25519.GenerateKey(nil)
	body, err := SignBody(key, "x", []byte(` {"b":1,"a":[2.50,"é"]} `))
	if err != nil {
		t.Fatal(err)
	}
	// As a receiver has it: another order, other spellings.
	_, signature, _ := strings.Cut(string(body), `"signature":`)
	for _, same := range []string{string(body), `{"signature":` + strings.TrimSuffix(signature, "}") + `, "a":[2.5,"\u00e9"],"b":1.0}`} {
		if !VerifyBody(pub, "x", []byte(same)) {
			t.Errorf("not verified: %s", same)
		}
	}
	for _, other := range []string{
		string(body[:len(body)-1]) + `,"c":1}`, `{}`, `[]`, `{"signature":1}`, `{"signature":"!"}`, ``,
	} {
		if VerifyBody(pub, "x", []byte(other)) {
			t.Errorf("verified %s", other)
		}
	}
	if VerifyBody(pub, "y", body) {
		t.Error("verified as another kind")
	}
	if b, err := SignBody(key, "x", []byte(`{}`)); err != nil || !VerifyBody(pub, "x", b) {
		t.Error("an empty body", err)
	}
}

func TestLeavesAreThoseOfTheRedactedBody(t *testing.T) {
	o := newModelOutbox()
	s := testCapture(t, o, func(c *Config) {
		c.Attest, c.Redaction = true, NewRedaction(fakeEngine{}, testInstallation.Key)
		c.Now = func() time.Time { return time.UnixMilli(1) }
	}).Session(ledger("s", `session/title {"title":"a SECRET","messageSeqs":[]}`, `session/title {"title":"FAIL","messageSeqs":[]}`), SessionOptions{})
	defer s.Close()
	pull(t, s)
	if err := s.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	list, _ := o.drafts(t)
	want := LeafOf([]byte(`{"title":"a [REDACTED:fake-secret]","messageSeqs":[]}`))
	if r := list[0].Runs; len(r) != 2 || r[0].Leaves[0] != leafText(want) || r[1].Outcome != Withheld || r[1].Leaves != nil || list[0].Policy != "fake:" {
		t.Errorf("%+v", r)
	}
}
