package telemetry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// captured takes src from its beginning into a fresh outbox.
func captured(t testing.TB, src Source, change func(*Config)) ([]Record, Progress) {
	t.Helper()
	o := newModelOutbox()
	p := pull(t, testCapture(t, o, change).Session(src, SessionOptions{}))
	return o.records(t), p
}

func reconciles(t testing.TB, o Outcomes) {
	t.Helper()
	if o.Read != o.Exported+o.Withheld+o.Elided+o.Inherited+o.OutOfScope {
		t.Errorf("does not add up: %+v", o)
	}
}

func TestFullCapturesEverythingOnce(t *testing.T) {
	src := ledger("s", append(turn(1), turn(2)...)...)
	records, p := captured(t, src, nil)
	want := []string{"0 turn/start", "1 step/start", "2 user/message", "3 assistant/chunk", "6 assistant/message", "7 step/end", "8 turn/end",
		"9 turn/start", "10 step/start", "11 user/message", "12 assistant/chunk", "15 assistant/message", "16 step/end", "17 turn/end"}
	if got := ledgerOf(records); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if want := (Outcomes{Read: 18, Exported: 14, Elided: 4}); p.Outcomes != want || p.Next != 18 || p.Records != 14 {
		t.Errorf("progress %+v", p)
	}
	if got := records[4].Surface; !got.Seen || got.Nodes != 1 || got.Op != SurfaceAppend {
		t.Errorf("the first answer has seen %+v", got)
	}
	if got := records[11].Surface; got.Nodes != 3 {
		t.Errorf("the second answer has seen %+v", got)
	}
}

func TestDisabledBuildsNothing(t *testing.T) {
	if c, err := NewCapture(Config{Outbox: newModelOutbox(), Installation: testInstallation}); c != nil || !errors.Is(err, ErrDisabled) {
		t.Fatalf("%v, %v", c, err)
	}
}

// A crash at any commit, made or not, followed by a start from what is durable:
// nothing is missed and nothing goes out twice, whatever the batches are.
func TestRestartAtEveryEventLosesAndDoublesNothing(t *testing.T) {
	lines := append(turn(1), turn(2)...)
	lines = append(lines, "turn/start {\"turn\":3}", "step/start {\"turn\":3,\"step\":1}",
		`assistant/chunk {"turn":3,"step":1,"chunk":{"type":"text-delta","index":0,"text":"lost "}}`,
		`assistant/chunk {"turn":3,"step":1,"chunk":{"type":"text-delta","index":0,"text":"answer"}}`,
		"step/end {\"turn\":3,\"step\":1}")
	whole := ledger("s", lines...)
	want, wantP := captured(t, whole, nil)
	for stop := 1; stop <= len(lines); stop++ {
		for _, made := range []bool{false, true} {
			for limit := 1; limit <= 4; limit++ {
				o := newModelOutbox()
				crash := errors.New("crash")
				o.fail, o.failOn, o.after = crash, stop, made
				var p Progress
				for done := false; !done; {
					// Each Pull is a process of its own.
					s := testCapture(t, o, nil).Session(whole, SessionOptions{})
					var err error
					p, err = s.Pull(context.Background(), limit)
					if err != nil && !errors.Is(err, crash) {
						t.Fatal(err)
					}
					done = err == nil && !p.More
				}
				got := o.records(t)
				for i := range got {
					if got[i].Channel == ChannelOps {
						got[i].UID = want[i].UID // numbers have gaps where a process ended
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("stop %d made %v limit %d: got %q, want %q", stop, made, limit, ledgerOf(got), ledgerOf(want))
				}
				if p.Outcomes != wantP.Outcomes {
					t.Fatalf("outcomes %+v, want %+v", p.Outcomes, wantP.Outcomes)
				}
			}
		}
	}
	if ops := opsOf(want); len(ops) != 1 || !strings.Contains(ops[0], `"text":"lost answer"`) {
		t.Fatalf("ops %q", ops)
	}
}

// The same over a session that goes on after an error without a new process.
func TestPullAfterAFailedCommitGoesOnWhereTheOutboxStands(t *testing.T) {
	for _, made := range []bool{false, true} {
		src := ledger("s", turn(1)...)
		o := newModelOutbox()
		c := testCapture(t, o, nil)
		s := c.Session(src, SessionOptions{})
		o.fail, o.failOn, o.after = errors.New("broken"), 1, made
		if _, err := s.Pull(context.Background(), 0); !errors.Is(err, o.fail) {
			t.Fatal(err)
		}
		pull(t, s)
		src.append(turn(2)...)
		p := pull(t, s)
		want, wantP := captured(t, src, nil)
		if !reflect.DeepEqual(o.records(t), want) || p.Outcomes != wantP.Outcomes || c.Outcomes() != wantP.Outcomes {
			t.Errorf("made %v: %q, %+v, %+v", made, ledgerOf(o.records(t)), p.Outcomes, c.Outcomes())
		}
	}
}

func TestFullOutboxStopsTheCursorAndDropsNothing(t *testing.T) {
	src := ledger("s", turn(1)...)
	o := newModelOutbox()
	o.full = 3
	p := pull(t, testCapture(t, o, nil).Session(src, SessionOptions{}))
	want, _ := captured(t, src, nil)
	if o.waited != 3 || !reflect.DeepEqual(o.records(t), want) || p.Next != 9 {
		t.Errorf("waited %d, %q", o.waited, ledgerOf(o.records(t)))
	}
}

func TestUnchangedSourceIsNotReadAgain(t *testing.T) {
	src := ledger("s", turn(1)...)
	src.print = true
	o := newModelOutbox()
	pull(t, testCapture(t, o, nil).Session(src, SessionOptions{}))
	opened := src.opened
	s := testCapture(t, o, nil).Session(src, SessionOptions{})
	pull(t, s)
	if src.opened != opened+1 {
		t.Errorf("opened %d times for its header", src.opened-opened)
	}
	pull(t, s)
	pull(t, s)
	if src.opened != opened+1 {
		t.Errorf("opened %d times although nothing has changed", src.opened-opened)
	}
	src.append(turn(2)...)
	if p := pull(t, s); p.Next != 18 || p.Records != 7 {
		t.Errorf("%+v", p)
	}
}

func TestOneSessionInTwoFilesGoesOutOnce(t *testing.T) {
	src, twin := ledger("s", turn(1)...), ledger("s", turn(1)...)
	o := newModelOutbox()
	c := testCapture(t, o, nil)
	a, b := c.Session(src, SessionOptions{}), c.Session(twin, SessionOptions{})
	pull(t, a)
	if _, err := b.Pull(context.Background(), 0); !errors.Is(err, ErrTaken) {
		t.Fatal(err)
	}
	if err := b.Hold(context.Background()); !errors.Is(err, ErrTaken) || twin.opened != twin.closed {
		t.Errorf("%v; %d opened, %d closed", err, twin.opened, twin.closed)
	}
	a.Close()
	twin.append(turn(2)...)
	pull(t, b)
	want, _ := captured(t, twin, nil)
	if !reflect.DeepEqual(o.records(t), want) {
		t.Errorf("got %q", ledgerOf(o.records(t)))
	}
}

func feedbackOnly(c *Config) { c.Mode = FeedbackOnly }

func TestFeedbackOnlyLetsOutExactlyTheLifetimeUpToTheFeedback(t *testing.T) {
	src := ledger("s", turn(1)...)
	o := newModelOutbox()
	s := testCapture(t, o, feedbackOnly).Session(src, SessionOptions{})
	expect := func(what string, want ...int64) {
		t.Helper()
		p := pull(t, s)
		if got := seqsOf(o.records(t)); !slices.Equal(got, want) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
		reconciles(t, p.Outcomes)
		if p.Next+p.Beyond != int64(len(src.events)) {
			t.Fatalf("%s: next %d and %d beyond, of %d", what, p.Next, p.Beyond, len(src.events))
		}
	}
	expect("no feedback")
	src.append("feedback/record {}")
	first := []int64{0, 1, 2, 3, 6, 7, 8, 9}
	expect("feedback", first...)
	src.append(turn(2)...)
	expect("work after feedback", first...)
	src.append("session/end-seed {}")
	src.append(turn(3)...)
	expect("another lifetime", first...)
	src.append("feedback/record {}", "session/title {}")
	expect("feedback of the second lifetime", append(first, 20, 21, 22, 23, 26, 27, 28, 29)...)
	if opsOf(o.records(t)) != nil {
		t.Errorf("ops %q", opsOf(o.records(t)))
	}
}

func TestFeedbackScopeSessionReachesBackToTheBeginning(t *testing.T) {
	src := ledger("s", turn(1)...)
	src.append("session/end-seed {}", "feedback/record {}", "session/title {}")
	records, p := captured(t, src, func(c *Config) { c.Mode, c.FeedbackScope = FeedbackOnly, ScopeSession })
	if got := seqsOf(records); !slices.Equal(got, []int64{0, 1, 2, 3, 6, 7, 8, 9, 10}) {
		t.Errorf("got %v", got)
	}
	if p.Outcomes != (Outcomes{Read: 11, Exported: 9, Elided: 2}) || p.Beyond != 1 {
		t.Errorf("%+v", p)
	}
}

func TestNarrowerConsentCoversWhatFeedbackOnlyWouldHaveLetOut(t *testing.T) {
	lines := append(turn(1), "feedback/record {}", "session/end-seed {}")
	lines = append(lines, turn(2)...)
	lines = append(lines, "feedback/record {}", "session/title {}")
	for scope, first := range map[FeedbackScope]int64{ScopeLifetime: 11, ScopeSession: 0} {
		src := ledger("s", lines...)
		o := newModelOutbox()
		pull(t, testCapture(t, o, nil).Session(src, SessionOptions{}))
		narrow := testCapture(t, o, func(c *Config) { c.Mode, c.FeedbackScope = FeedbackOnly, scope })
		for i, r := range o.records(t) {
			want := r.Identity.Seq >= first && r.Identity.Seq <= 20
			if got := narrow.Covers(o.entries[i].Stream, &r); got != want {
				t.Errorf("scope %d seq %d: covered %v", scope, r.Identity.Seq, got)
			}
		}
		if narrow.Covers("session/unknown", &o.records(t)[0]) {
			t.Error("a session without a cursor is covered")
		}
	}
}

// Consent that grows later is no consent for what was written before it, also
// in sessions that never had feedback.
func TestSessionSeenUnderFeedbackOnlyIsKnownWhenConsentGrows(t *testing.T) {
	src := ledger("s", turn(1)...)
	o := newModelOutbox()
	pull(t, testCapture(t, o, feedbackOnly).Session(src, SessionOptions{}))
	s := testCapture(t, o, func(c *Config) {
		in := *testInstallation
		in.Epoch++
		c.Installation = &in
	}).Session(src, SessionOptions{})
	pull(t, s)
	src.append(turn(2)...)
	pull(t, s)
	if got := seqsOf(o.records(t)); len(got) != 7 || got[0] != 9 {
		t.Errorf("got %v", got)
	}
}

func TestFeedbackOfAnEarlierLifetimeOpensNothing(t *testing.T) {
	src := ledger("s", append(turn(1), "feedback/record {}", "session/end-seed {}")...)
	if records, _ := captured(t, src, feedbackOnly); len(records) > 0 {
		t.Errorf("got %q", ledgerOf(records))
	}
}

func TestInheritedFeedbackIsNoConsent(t *testing.T) {
	src := ledger("child", append(turn(1), "feedback/record {}", "session/end-seed {}")...)
	src.seed = 10
	n := int64(10)
	parent := "parent"
	src.header.SeedLength, src.header.ParentSession = &n, &parent
	change := func(c *Config) { c.Mode, c.FeedbackScope = FeedbackOnly, ScopeSession }
	if records, _ := captured(t, src, change); len(records) > 0 {
		t.Errorf("got %q", ledgerOf(records))
	}
}

func TestFeedbackOnlyNeverTurnsWhatLiesBeyondIntoARecord(t *testing.T) {
	src := ledger("s", append(turn(1), "feedback/record {}")...)
	src.append(turn(2)...)
	seen := map[int64]bool{}
	change := func(c *Config) {
		c.Mode = FeedbackOnly
		c.Listeners = []Listener{ListenerFunc(func(ctx context.Context, r *Record, next Next) (*Record, error) {
			seen[r.Identity.Seq] = true
			return next(ctx, r)
		})}
	}
	captured(t, src, change)
	for seq := range seen {
		if seq > 9 {
			t.Errorf("a listener has seen event %d, beyond the feedback at 9", seq)
		}
	}
}

func TestFeedbackThatWasRolledBackIsNoConsent(t *testing.T) {
	src := ledger("s", turn(1)...)
	o := newModelOutbox()
	s := testCapture(t, o, feedbackOnly).Session(src, SessionOptions{})
	pull(t, s)
	src.append("feedback/record {}")
	pull(t, s)
	if got := seqsOf(o.records(t)); len(got) != 8 {
		t.Fatalf("got %v", got)
	}
	src.append(turn(2)...)
	src.append("feedback/record {}")
	// Before the next look at it, the last append is rolled back.
	src.events = src.events[:len(src.events)-1]
	src.cut++
	src.append("session/title {}")
	p := pull(t, s)
	if got := seqsOf(o.records(t)); len(got) != 8 || opsOf(o.records(t)) != nil || p.Beyond != 10 {
		t.Errorf("got %v, %q, %+v", got, opsOf(o.records(t)), p)
	}
	s.Release()
	if p := pull(t, s); p.Beyond != 10 {
		t.Errorf("at rest %d are beyond", p.Beyond)
	}
}

func TestLedgerThatChangesUnderTheScoutLetsNothingOut(t *testing.T) {
	src := ledger("s", append(turn(1), "feedback/record {}")...)
	o := newModelOutbox()
	s := testCapture(t, o, feedbackOnly).Session(&swapped{memSource: src, other: ledger("s", append(turn(1), "session/title {}")...)}, SessionOptions{})
	if _, err := s.Pull(context.Background(), 0); !errors.Is(err, errChanging) {
		t.Fatal(err)
	}
	if len(o.entries) > 0 {
		t.Errorf("got %q", ledgerOf(o.records(t)))
	}
}

// swapped gives capture another ledger than the scout: the first opening is for
// the header, then they take turns.
type swapped struct {
	*memSource
	other *memSource
	n     int
}

func (s *swapped) Open() (Ledger, error) {
	if s.n++; s.n > 1 && s.n%2 == 1 {
		return s.other.Open()
	}
	return s.memSource.Open()
}

func TestHeldLedgerSendsWhatStoodBeforeAndSaysSoOnce(t *testing.T) {
	src := ledger("s", turn(1)...)
	src.print = true
	src.append("acme/unknown {}", "session/title {}")
	o := newModelOutbox()
	var held *HeldError
	for range 3 {
		_, err := testCapture(t, o, nil).Session(src, SessionOptions{}).Pull(context.Background(), 0)
		if !errors.As(err, &held) || held.Code != string(session.CodeUnknownType) || held.Seq != 9 {
			t.Fatalf("%v", err)
		}
	}
	records := o.records(t)
	if got := seqsOf(records); !slices.Equal(got, []int64{0, 1, 2, 3, 6, 7, 8}) {
		t.Errorf("got %v", got)
	}
	if got := opsOf(records); !slices.Equal(got, []string{`session.held {"code":"unknown-type","seq":9}`}) {
		t.Errorf("ops %q", got)
	}
	// The vocabulary learns the type: it goes on.
	allow := func(c *Config) { c.EventTypes = []session.EventType{{Name: "acme/unknown"}} }
	p := pull(t, testCapture(t, o, allow).Session(src, SessionOptions{}))
	if got := seqsOf(o.records(t)); !slices.Equal(got, []int64{0, 1, 2, 3, 6, 7, 8, 9, 10}) || p.Next != 11 {
		t.Errorf("got %v", got)
	}
	err := KnownSessions(o, func(k KnownSession) bool {
		if k.Held != nil || k.Next != 11 || k.SessionID != "s" {
			t.Errorf("%+v", k)
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHeldLedgerBeyondTheWatermarkIsNotSpokenOf(t *testing.T) {
	src := ledger("s", append(turn(1), "feedback/record {}", "acme/unknown {}")...)
	o := newModelOutbox()
	s := testCapture(t, o, feedbackOnly).Session(src, SessionOptions{})
	var held *HeldError
	if _, err := s.Pull(context.Background(), 0); !errors.As(err, &held) || held.Seq != 10 {
		t.Fatal(err)
	}
	if got := o.records(t); opsOf(got) != nil || len(got) != 8 {
		t.Errorf("%q %q", ledgerOf(got), opsOf(got))
	}
}

func TestLedgerWithAnotherPastGoesOnUnderAnotherIncarnation(t *testing.T) {
	for name, c := range map[string]struct {
		change func(src *memSource)
		common int64
	}{
		"a failed append rolled back, its seqs used again": {func(m *memSource) {
			m.events = m.events[:14]
			m.append(`assistant/chunk {"turn":2,"step":1,"chunk":{"type":"text-delta","index":0,"text":"other"}}`,
				`assistant/message {"turn":2,"step":1,"message":{"id":"x","role":"assistant","content":[{"type":"text","text":"other"}]}}`,
				`step/end {"turn":2,"step":1}`)
		}, 14},
		"shorter":                    {func(m *memSource) { m.events = m.events[:12] }, 12},
		"shorter than its last turn": {func(m *memSource) { m.events = m.events[:5] }, 0},
		"tampered with, deep":        {func(m *memSource) { m.events[2].Data = []byte(`{"role":"user","content":[]}`) }, 0},
		"tampered with, in the last turn": {func(m *memSource) {
			m.events[11].Data = []byte(`{"role":"user","content":[]}`)
		}, 11},
	} {
		t.Run(name, func(t *testing.T) {
			src := ledger("s", append(turn(1), turn(2)[:7]...)...)
			o := newModelOutbox()
			pull(t, testCapture(t, o, nil).Session(src, SessionOptions{}))
			before := len(o.entries)
			c.change(src)
			src.cut++
			holding := newModelOutbox()
			holding.entries, holding.cursors = slices.Clone(o.entries), cloneCursors(o.cursors)

			p := pull(t, testCapture(t, o, nil).Session(src, SessionOptions{}))
			records := o.records(t)[before:]
			wantOps := fmt.Sprintf(`session.diverged {"last_common_seq":%d,"captured_seq":15,"incarnation":1}`, c.common-1)
			if got := opsOf(records); !slices.Equal(got, []string{wantOps}) {
				t.Errorf("ops %q, want %q", got, wantOps)
			}
			fresh, _ := captured(t, src, nil)
			var want []int64
			for _, seq := range seqsOf(fresh) {
				if seq >= c.common {
					want = append(want, seq)
				}
			}
			if got := seqsOf(records); !slices.Equal(got, want) {
				t.Errorf("again %v, want %v", got, want)
			}
			for _, r := range records {
				if r.Identity.Incarnation != 1 {
					t.Errorf("seq %d has incarnation %d", r.Identity.Seq, r.Identity.Incarnation)
				}
			}
			if p.Next != int64(len(src.events)) {
				t.Errorf("next %d", p.Next)
			}
			// And once more there is nothing to say.
			after := len(o.entries)
			pull(t, testCapture(t, o, nil).Session(src, SessionOptions{}))
			if len(o.entries) != after {
				t.Error("said twice")
			}

			hold := func(c *Config) { c.HoldOnDivergence = true }
			s := testCapture(t, holding, hold).Session(src, SessionOptions{})
			var held *HeldError
			if _, err := s.Pull(context.Background(), 0); !errors.As(err, &held) || held.Code != CodeDiverged || held.Seq != c.common {
				t.Fatalf("with hold: %v", err)
			}
			if err := s.Accept(context.Background()); err != nil {
				t.Fatal(err)
			}
			pull(t, s)
			if got := seqsOf(holding.records(t)[before:]); !slices.Equal(got, want) {
				t.Errorf("accepted: %v, want %v", got, want)
			}
		})
	}
}

func cloneCursors(m map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	for k, v := range m {
		out[k] = slices.Clone(v)
	}
	return out
}

func TestLedgerThatIsCutAndGrowsAgainTheSameIsNotDiverged(t *testing.T) {
	src := ledger("s", append(turn(1), turn(2)[:7]...)...)
	o := newModelOutbox()
	s := testCapture(t, o, nil).Session(src, SessionOptions{})
	pull(t, s)
	src.cut++ // the reader says that the file was cut; its rows are the same
	src.append(turn(2)[7:]...)
	pull(t, s)
	want, _ := captured(t, src, nil)
	if !reflect.DeepEqual(o.records(t), want) {
		t.Errorf("got %q and %q", ledgerOf(o.records(t)), opsOf(o.records(t)))
	}
}

func TestWiderConsentGoesOnFromNow(t *testing.T) {
	src := ledger("s", turn(1)...)
	o := newModelOutbox()
	pull(t, testCapture(t, o, nil).Session(src, SessionOptions{}))
	first := len(o.entries)
	src.append(turn(2)[:5]...)
	wider := func(c *Config) {
		in := *testInstallation
		in.Epoch++
		c.Installation = &in
	}
	s := testCapture(t, o, wider).Session(src, SessionOptions{})
	p := pull(t, s)
	if got := opsOf(o.records(t)[first:]); !slices.Equal(got, []string{`session.out_of_scope {"events":5,"next":14}`}) || p.Outcomes.OutOfScope != 5 {
		t.Errorf("%q, %+v", got, p)
	}
	src.append(turn(2)[5:]...)
	src.append(turn(3)...)
	p = pull(t, s)
	reconciles(t, p.Outcomes)
	if got := seqsOf(o.records(t)[first:]); got[0] != 15 || len(got) != 10 {
		t.Errorf("got %v", got)
	}

	catchUp := newModelOutbox()
	src = ledger("s", turn(1)...)
	pull(t, testCapture(t, catchUp, nil).Session(src, SessionOptions{}))
	src.append(turn(2)...)
	pull(t, testCapture(t, catchUp, func(c *Config) { wider(c); c.CatchUp = true }).Session(src, SessionOptions{}))
	want, _ := captured(t, src, nil)
	if !reflect.DeepEqual(catchUp.records(t), want) {
		t.Errorf("with catch_up: %q", ledgerOf(catchUp.records(t)))
	}
}

// A hold on the way to "now" does not make what stands behind it in scope.
func TestSkippingSurvivesAHoldAndARestart(t *testing.T) {
	src := ledger("s", append(turn(1), "acme/unknown {}", "session/title {}")...)
	o := newModelOutbox()
	var held *HeldError
	if _, err := testCapture(t, o, nil).Session(src, SessionOptions{FromNow: true}).Pull(context.Background(), 0); !errors.As(err, &held) {
		t.Fatal(err)
	}
	allow := func(c *Config) { c.EventTypes = []session.EventType{{Name: "acme/unknown"}} }
	s := testCapture(t, o, allow).Session(src, SessionOptions{FromNow: true})
	pull(t, s)
	src.append(turn(2)...)
	p := pull(t, s)
	if got := seqsOf(o.records(t)); len(got) != 7 || got[0] != 11 || p.Outcomes.OutOfScope != 11 {
		t.Errorf("got %v, %+v", got, p.Outcomes)
	}
}

func TestOperatorHoldsASessionUntilItIsAccepted(t *testing.T) {
	src := ledger("s", turn(1)...)
	o := newModelOutbox()
	s := testCapture(t, o, nil).Session(src, SessionOptions{})
	pull(t, s)
	if err := s.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	src.append(turn(2)...)
	for _, s := range []*Session{s, testCapture(t, o, nil).Session(src, SessionOptions{})} {
		var held *HeldError
		if _, err := s.Pull(context.Background(), 0); !errors.As(err, &held) || held.Code != CodeOperator || held.Seq != 9 {
			t.Fatal(err)
		}
	}
	if err := s.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	pull(t, s)
	want, _ := captured(t, src, nil)
	if got := o.records(t); !slices.Equal(ledgerOf(got), ledgerOf(want)) || !slices.Equal(opsOf(got), []string{`operator.hold {"seq":9}`, `operator.accept {"seq":9}`}) {
		t.Errorf("got %q and %q", ledgerOf(got), opsOf(got))
	}
}

func TestRewoundSessionSendsTheSameRecordsAgain(t *testing.T) {
	src := ledger("s", append(turn(1), turn(2)...)...)
	o := newModelOutbox()
	s := testCapture(t, o, nil).Session(src, SessionOptions{})
	pull(t, s)
	before := o.records(t)
	if err := s.Rewind(t.Context(), 99); err == nil {
		t.Error("rewound to what was never captured")
	}
	if err := s.Rewind(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	p := pull(t, s)
	reconciles(t, p.Outcomes)
	again := o.records(t)[len(before):]
	if again[0].Op != OpOperator+"rewind" {
		t.Errorf("the rewind is not told of: %q", opsOf(again))
	}
	if again = again[1:]; !reflect.DeepEqual(again, before[7:]) {
		t.Errorf("got %q, want %q", ledgerOf(again), ledgerOf(before[7:]))
	}
}

func TestRewindLeavesAnOperatorsHoldAlone(t *testing.T) {
	src := ledger("s", append(turn(1), turn(2)...)...)
	o := newModelOutbox()
	s := testCapture(t, o, nil).Session(src, SessionOptions{})
	pull(t, s)
	before := len(o.records(t))
	for _, do := range []func() error{func() error { return s.Hold(t.Context()) }, func() error { return s.Rewind(t.Context(), 9) }} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	var held *HeldError
	if _, err := s.Pull(t.Context(), 0); !errors.As(err, &held) || held.Code != CodeOperator || held.Seq != 9 {
		t.Errorf("%v", err)
	}
	if got := ledgerOf(o.records(t)[before:]); len(got) != 0 {
		t.Errorf("went out in spite of the hold: %q", got)
	}
	if err := s.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	pull(t, s)
	if got := ledgerOf(o.records(t)[before:]); len(got) == 0 {
		t.Error("nothing goes out after it was accepted")
	}
}

func TestLedgerOfAnUnknownVersionIsHeldByName(t *testing.T) {
	src := ledger("s", turn(1)...)
	o := newModelOutbox()
	s := testCapture(t, o, nil).Session(&refused{src, &session.UnsupportedVersionError{Version: 9, Newer: true}}, SessionOptions{})
	for range 2 {
		var held *HeldError
		if _, err := s.Pull(context.Background(), 0); !errors.As(err, &held) || held.Code != "version" {
			t.Fatal(err)
		}
	}
	if got := opsOf(o.records(t)); !slices.Equal(got, []string{`session.held {"code":"version","seq":0}`}) {
		t.Errorf("%q", got)
	}
}

type refused struct {
	*memSource
	err error
}

func (r *refused) Open() (Ledger, error) { return nil, r.err }

// What stood in the stream of an attempt before capture began stays out, after
// a restart too.
func TestAttemptHoldsNothingFromBeforeItsScope(t *testing.T) {
	src := ledger("s", turn(1)[:5]...)
	o := newModelOutbox()
	pull(t, testCapture(t, o, nil).Session(src, SessionOptions{FromNow: true}))
	src.append(`assistant/chunk {"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"in scope"}}`)
	pull(t, testCapture(t, o, nil).Session(src, SessionOptions{FromNow: true}))
	src.append(`step/end {"turn":1,"step":1}`)
	pull(t, testCapture(t, o, nil).Session(src, SessionOptions{FromNow: true}))
	ops := opsOf(o.records(t))
	want := `attempt {"turn":1,"step":1,"stream":[{"index":0,"block":{"type":"text","text":"in scope"},"ended":false}]}`
	if len(ops) != 2 || ops[1] != want {
		t.Errorf("ops %q", ops)
	}
}

func fork(t testing.TB) (parent, child *memSource) {
	parent = ledger("parent", append(turn(1), turn(2)...)...)
	child = ledger("child", turn(1)...)
	child.append("session/end-seed {}")
	child.append(turn(2)...)
	n, id := int64(9), "parent"
	child.seed, child.header.SeedLength, child.header.ParentSession = 9, &n, &id
	return parent, child
}

func TestInheritedEventsAreSkippedWhenTheParentHasThem(t *testing.T) {
	parent, child := fork(t)
	o := newModelOutbox()
	c := testCapture(t, o, func(c *Config) {
		c.Parent = func(id string) (Source, bool) { return parent, id == "parent" }
	})
	pull(t, c.Session(parent, SessionOptions{}))
	before := len(o.entries)
	p := pull(t, c.Session(child, SessionOptions{}))
	records := o.records(t)[before:]
	if got := seqsOf(records); got[0] != 9 || len(got) != 8 || p.Outcomes.Inherited != 9 {
		t.Errorf("got %v, %+v", got, p.Outcomes)
	}
	if kv := attributeMap(records[0].AllAttributes()); kv[KeyParentID] != "parent" || kv[KeySeedLength] != int64(9) || kv[KeyInherited] != nil {
		t.Errorf("%v", kv)
	}
	reconciles(t, p.Outcomes)
}

func TestInheritedEventsGoOutMarkedWhenTheParentDoesNotHaveThem(t *testing.T) {
	for name, change := range map[string]func(c *Capture, parent *memSource) Source{
		"unknown":      func(*Capture, *memSource) Source { return nil },
		"not captured": func(_ *Capture, p *memSource) Source { return p },
		"captured in part": func(c *Capture, p *memSource) Source {
			if _, err := c.Session(p, SessionOptions{}).Pull(context.Background(), 3); err != nil {
				t.Fatal(err)
			}
			return p
		},
		"other events": func(c *Capture, p *memSource) Source {
			p.events[4].Time++
			pull(t, c.Session(p, SessionOptions{}))
			return p
		},
		"out of scope": func(c *Capture, p *memSource) Source {
			pull(t, c.Session(p, SessionOptions{FromNow: true}))
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent, child := fork(t)
			o := newModelOutbox()
			var src Source
			c := testCapture(t, o, func(c *Config) {
				c.Parent = func(string) (Source, bool) { return src, src != nil }
			})
			src = change(c, parent)
			before := len(o.entries)
			p := pull(t, c.Session(child, SessionOptions{}))
			records := o.records(t)[before:]
			if got := seqsOf(records); got[0] != 0 || len(got) != 15 || p.Outcomes.Inherited != 0 {
				t.Errorf("got %v, %+v", got, p.Outcomes)
			}
			for _, r := range records {
				if r.Inherited != (r.Identity.Seq < 9) {
					t.Errorf("seq %d inherited %v", r.Identity.Seq, r.Inherited)
				}
			}
		})
	}
}

func TestLineBeyondTheLimitIsWithheld(t *testing.T) {
	src := ledger("s", turn(1)...)
	src.events[2].DataTruncated = true
	src.events[2].Data = []byte(`{"role":"user"}`)
	records, p := captured(t, src, nil)
	if records[2].Withheld != ReasonLineTooLong || len(records[2].Body) > 0 || p.Outcomes.Withheld != 1 {
		t.Errorf("%+v", records[2])
	}
}

func TestBodyOverTheLimitIsCutAfterRedaction(t *testing.T) {
	long := strings.Repeat("x", 5000)
	src := ledger("s", `session/title {"title":"`+long+`SECRET"}`, `session/title {"n":[`+strings.Repeat("1,", 3000)+`1]}`)
	o := newModelOutbox()
	c := testCapture(t, o, func(c *Config) {
		c.MaxRecordBytes, c.Redaction = 4000, NewRedaction(fakeEngine{}, nil)
	})
	pull(t, c.Session(src, SessionOptions{}))
	records := o.records(t)
	if r := records[0]; len(r.Body) != 4000 || r.Cut != int64(len(`{"title":"`+long+`[REDACTED:fake-secret]"}`)) || r.Redactions[0].Count != 1 {
		t.Errorf("%d bytes, cut from %d", len(r.Body), r.Cut)
	}
	if r := records[1]; r.Withheld != ReasonTooLarge || len(r.Body) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestEverythingAboutASecretSessionIDIsTokens(t *testing.T) {
	src := ledger("SECRET id", append(turn(1), "acme/unknown {}")...)
	o := newModelOutbox()
	c := testCapture(t, o, func(c *Config) { c.Redaction = NewRedaction(fakeEngine{}, []byte("k")) })
	p, err := c.Session(src, SessionOptions{}).Pull(context.Background(), 0)
	if err == nil || strings.Contains(err.Error(), "SECRET") || !isToken(p.SessionID) {
		t.Errorf("%v, %+v", err, p)
	}
	for _, r := range o.records(t) {
		if holdsSecret(&r) || r.Identity.SessionID != p.SessionID {
			t.Errorf("%+v", r)
		}
	}
	for _, e := range o.entries {
		if strings.Contains(string(e.Key)+e.Stream, "SECRET") {
			t.Error("an entry's key has the id")
		}
	}
	for k, v := range o.cursors {
		if strings.Contains(k+string(v), "SECRET") {
			t.Error("a cursor has the id")
		}
	}
}

func TestDamagedEntriesAreCapturedAgain(t *testing.T) {
	src := ledger("s", append(turn(1), turn(2)...)...)
	o := newModelOutbox()
	c := testCapture(t, o, nil)
	s := c.Session(src, SessionOptions{})
	pull(t, s)
	var lost []EventKey
	want := map[string]Record{}
	for i, e := range o.entries {
		if i%3 == 0 {
			k, ok := ParseEventKey(e.Key)
			if !ok {
				t.Fatal("no key")
			}
			lost = append(lost, k)
			want[string(e.Key)] = o.records(t)[i]
		}
	}
	before := len(o.entries)
	missing, err := s.Recapture(context.Background(), append(lost, EventKey{s.Key(), 7, 1}, EventKey{s.Key(), 0, 99}))
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) != 2 {
		t.Errorf("missing %v", missing)
	}
	if len(o.entries)-before != len(lost) {
		t.Errorf("%d records for %d lost ones", len(o.entries)-before, len(lost))
	}
	for i, r := range o.records(t)[before:] {
		if w := want[string(o.entries[before+i].Key)]; !reflect.DeepEqual(r, w) {
			t.Errorf("got %+v, want %+v", r, w)
		}
	}
}

func TestOpsNumbersAreNeverUsedTwice(t *testing.T) {
	o := newModelOutbox()
	seen := map[string]bool{}
	for range 3 {
		c := testCapture(t, o, nil)
		for range 300 {
			if err := c.EmitOps(context.Background(), OpBridgeStarted, SeverityInfo, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range o.records(t) {
		if seen[r.UID] {
			t.Fatal("a uid twice")
		}
		seen[r.UID] = true
	}
	if len(seen) != 900 {
		t.Errorf("%d records", len(seen))
	}
}

func TestInstallationSurvivesAndCountsGrowingConsent(t *testing.T) {
	dir := t.TempDir() + "/data"
	in, err := OpenInstallation(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode  Mode
		epoch uint32
	}{{FeedbackOnly, 1}, {FeedbackOnly, 1}, {Full, 2}, {FeedbackOnly, 2}, {Disabled, 2}, {Full, 3}} {
		if _, _, err := in.Start(c.mode, "p"); err != nil {
			t.Fatal(err)
		}
		again, err := OpenInstallation(dir)
		if err != nil || !reflect.DeepEqual(again, in) || again.Epoch != c.epoch || again.Mode != c.mode {
			t.Fatalf("%+v, %+v, %v", again, in, err)
		}
	}
}

func FuzzDecodeCursor(f *testing.F) {
	c := cursor{id: "s", next: 9, feedback: 7, lifetime: 3, skipping: true, points: []point{{3, 7}, {9, 8}}, truncated: []int64{4}, held: &HeldError{Code: "x", Seq: 9}, fingerprint: "1 2"}
	f.Add(c.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCursor(b)
		if err != nil {
			return
		}
		again, err := decodeCursor(c.encode())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v, %+v, %v", again, c, err)
		}
	})
}
