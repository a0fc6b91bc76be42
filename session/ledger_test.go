package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func clockAt(ms int64) func() time.Time { return func() time.Time { return time.UnixMilli(ms) } }

func newLedger(t testing.TB, version int, opts ...LedgerOption) *Ledger {
	t.Helper()
	l, err := NewLedger(Header{Version: version, ID: "s", CreatedAt: 1}, append([]LedgerOption{WithClock(clockAt(5))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAppendGivesSeqAndTime(t *testing.T) {
	l := newLedger(t, 4)
	own := int64(-7)
	for i, c := range []Candidate{
		{Type: TypeTurnStart, Data: json.RawMessage(`{"turn":1}`)},
		{Type: TypeFeedbackRecord, Data: json.RawMessage(`{"text":"x"}`), Time: &own},
	} {
		ev, err := l.Append(c)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(5)
		if c.Time != nil {
			want = own
		}
		if ev.Seq != int64(i) || ev.Time != want || ev != l.At(int64(i)) {
			t.Errorf("event %d is %+v", i, ev)
		}
	}
	if l.Len() != 2 || l.At(2) != nil || l.At(-1) != nil || len(l.Events(1)) != 1 || l.Events(2) != nil || len(l.Events(-3)) != 2 {
		t.Error("the ledger does not hold what joined it")
	}
}

func TestAppendRefusesWhatNoReaderWouldTake(t *testing.T) {
	seq := func(c Code) func(error) bool {
		return func(err error) bool {
			var i *InvariantError
			var d *DecodeError
			return errors.As(err, &i) && i.Code == c || errors.As(err, &d) && d.Code == c
		}
	}
	never := int64(1) << 60
	for name, c := range map[string]struct {
		c    Candidate
		want func(error) bool
	}{
		"no JSON":                         {Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{`)}, seq(CodePayload)},
		"nothing":                         {Candidate{Type: TypeFeedbackRecord}, seq(CodePayload)},
		"negative zero":                   {Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{"n":-0}`)}, func(err error) bool { return errors.Is(err, ErrNegativeZero) }},
		"an infinite number":              {Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`1e999`)}, func(err error) bool { return errors.Is(err, ErrNotFinite) }},
		"an unknown type":                 {Candidate{Type: "x/y", Data: json.RawMessage(`{}`)}, seq(CodeUnknownType)},
		"a surface type without op":       {Candidate{Type: TypeUserMessage, Data: json.RawMessage(`{}`)}, seq(CodeSurfaceOpMissing)},
		"a log type with op":              {Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`), SurfaceOp: &SurfaceOp{}}, seq(CodeSurfaceOpForbidden)},
		"an ignorable surface type":       {Candidate{Type: TypeUserMessage, Data: json.RawMessage(`{}`), SurfaceOp: &SurfaceOp{}, Ignorable: true}, seq(CodeIgnorable)},
		"a source that does not exist":    {Candidate{Type: TypeUserMessage, Data: json.RawMessage(`{}`), SurfaceOp: &SurfaceOp{}, SourceEventSeqs: []int64{4}}, seq(CodeSourcesNotEarlier)},
		"an end without a turn":           {Candidate{Type: TypeTurnEnd, Data: json.RawMessage(`{"turn":1}`)}, seq(CodeTurnNotOpen)},
		"a retired header":                {Candidate{Type: TypeRequestHeader, Data: json.RawMessage(`{"header":{"system":"x"}}`)}, seq(CodeRetired)},
		"a plugin's source":               {Candidate{Type: TypeUserMessage, Data: json.RawMessage(`{"source":{"kind":"plugin"}}`), SurfaceOp: &SurfaceOp{}}, seq(CodeRetired)},
		"an end of a seed that is a list": {Candidate{Type: TypeEndSeed, Data: json.RawMessage(`[]`)}, seq(CodeEndSeed)},
		"an inherited end of a seed":      {Candidate{Type: TypeEndSeed, Data: json.RawMessage(`{"inherited":true}`)}, seq(CodeMarkerUnexpected)},
		"a time beyond safe integers":     {Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`), Time: &never}, seq(CodeTime)},
	} {
		t.Run(name, func(t *testing.T) {
			told := 0
			l := newLedger(t, 4)
			l.Observe(func(*Event) { told++ })
			if _, err := l.Append(c.c); !c.want(err) {
				t.Errorf("got %v", err)
			}
			if l.Len() != 0 || told != 0 {
				t.Error("a refused event joined or was told of")
			}
			if _, err := l.Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)}); err != nil {
				t.Errorf("the ledger does not go on: %v", err)
			}
		})
	}
}

func TestObserversAreToldInOrderAndTheirPanicsContained(t *testing.T) {
	var recovered []any
	l := newLedger(t, 4, WithPanicHandler(func(r any) { recovered = append(recovered, r) }))
	var told []string
	l.Observe(func(ev *Event) { told = append(told, fmt.Sprint("a", ev.Seq)) })
	cancel := l.Observe(func(ev *Event) {
		told = append(told, fmt.Sprint("b", ev.Seq))
		panic("b")
	})
	l.Observe(func(ev *Event) { told = append(told, fmt.Sprint("c", ev.Seq)) })
	add := func() {
		if _, err := l.Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	add()
	cancel()
	cancel()
	add()
	if want := []string{"a0", "b0", "c0", "a1", "c1"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if len(recovered) != 1 || recovered[0] != "b" {
		t.Errorf("recovered %v", recovered)
	}
}

func TestAppendFromAnObserverIsRefused(t *testing.T) {
	l := newLedger(t, 4)
	var inner error
	l.Observe(func(*Event) {
		_, inner = l.Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)})
	})
	if _, err := l.Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(inner, ErrReentrant) || l.Len() != 1 {
		t.Errorf("the inner append gave %v, and %d events", inner, l.Len())
	}
}

func TestAnAdmittersVetoLeavesTheOthersUntouched(t *testing.T) {
	limit := &bookmarkLimit{}
	refuse := false
	l := newLedger(t, 4, WithAdmitter(limit), WithAdmitter(admitterFunc(func(*Event) error {
		if refuse {
			return errors.New("no")
		}
		return nil
	})))
	bookmark := Candidate{Type: "acme/bookmark", Data: json.RawMessage(`{}`), Ignorable: true}
	refuse = true
	if _, err := l.Append(bookmark); err == nil || limit.seen || l.Len() != 0 {
		t.Fatalf("%v; the first admitter changed: %v", err, limit.seen)
	}
	refuse = false
	if _, err := l.Append(bookmark); err != nil || !limit.seen {
		t.Fatalf("%v; the first admitter was not applied", err)
	}
	if _, err := l.Append(bookmark); err == nil {
		t.Error("the second bookmark joined")
	}
}

type admitterFunc func(*Event) error

func (f admitterFunc) Plan(ev *Event) (Plan, error) { return planFunc(nil), f(ev) }

func TestReplayRefusesSeedsThatDoNotFitTheirHeader(t *testing.T) {
	cut := int64(1)
	marker := Event{Type: TypeEndSeed, Data: json.RawMessage(`{"inherited":true}`)}
	for name, c := range map[string]struct {
		h      Header
		events []Event
		code   Code
	}{
		"seeded, and no marker":     {Header{Version: 4, IsSeeded: true}, nil, CodeMarkerMissing},
		"a marker, and not seeded":  {Header{Version: 4}, []Event{marker}, CodeMarkerUnexpected},
		"more inherited than there": {Header{Version: 0, SeedLength: &cut}, nil, CodeMarkerMissing},
		"a gap":                     {Header{Version: 4}, []Event{{Seq: 1, Type: TypeEndSeed, Data: json.RawMessage(`{}`)}}, CodeSeqGap},
	} {
		_, err := Replay(c.h, c.events)
		var broken *InvariantError
		if !errors.As(err, &broken) || broken.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if _, err := NewLedger(Header{Version: 5}); !errors.As(err, new(*UnsupportedVersionError)) {
		t.Errorf("version 5: %v", err)
	}
	relative := "tmp"
	if _, err := NewLedger(Header{Version: 4, Cwd: &relative}); !errors.As(err, new(*HeaderError)) {
		t.Errorf("a relative cwd: %v", err)
	}
}

// replayed is a real ledger with its events.
func replayed(t *testing.T, path string) (*Ledger, []Event) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, _, events := readLedger(t, raw)
	l, err := Replay(*h, events)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return l, events
}

func TestForkThenReplayEqualsThePrefix(t *testing.T) {
	for _, path := range ledgers(t) {
		if filepath.Base(path) == "native-v3-restart.jsonl" {
			continue
		}
		l, events := replayed(t, path)
		d := l.Dialect()
		trace := NewTrace(l.Header(), d, nil)
		for i := range events {
			if err := Admit(&events[i], trace); err != nil {
				t.Fatal(err)
			}
			turn, open := trace.OpenTurn()
			if len(events) > 60 && i%7 != 0 && !(open && d.SealsForks()) {
				continue // every seventh will do
			}
			now := time.UnixMilli(1)
			seed, inherited, err := ForkSeed(d, events, int64(i), now)
			var refused *ForkError
			if open && !d.SealsForks() {
				if !errors.As(err, &refused) || refused.Code != CodeForkOpenTurn {
					t.Fatalf("%s: behind %d, inside turn %d: %v", path, i, turn, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: behind %d: %v", path, i, err)
			}
			child, err := Replay(ForkHeader(l.Header(), "child", inherited, now), seed)
			if err != nil {
				t.Fatalf("%s: behind %d: %v", path, i, err)
			}
			if child.InheritedCount() != int64(i)+1 || !reflect.DeepEqual(child.Events(0)[:i+1], events[:i+1]) {
				t.Fatalf("%s: behind %d: the child does not begin with the prefix", path, i)
			}
			if _, open := child.OpenTurn(); open {
				t.Fatalf("%s: behind %d: the child begins inside a turn", path, i)
			}
		}
	}
}

func TestForkInsideATurnIsSealedByteForByte(t *testing.T) {
	for child, boundary := range map[string]int64{"native-v4-fork-open": 63, "orig-open-fork": 18} {
		raw, err := os.ReadFile(shared(t, "dsh", "v4", child+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		rows := lines(raw)[1:]
		_, d, events := readLedger(t, raw)
		seed, _, err := ForkSeed(d, events[:boundary+1], LastSeq, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range seed {
			if got := string(AppendEvent(nil, d, &seed[i])); got != string(rows[i]) {
				t.Errorf("%s: row %d is\n%s\nwant\n%s", child, i, got, rows[i])
			}
		}
		if len(seed) <= int(boundary)+2 {
			t.Errorf("%s: nothing was sealed", child)
		}
	}
}

func TestRepairOfAnOpenTurnIsByteForByte(t *testing.T) {
	// What the real recovery wrote behind the last event of a crashed turn.
	for name, want := range map[string]int{"repaired-openturn.v0.jsonl": 3, "repaired-subagent-child.v0.jsonl": 1} {
		raw, err := os.ReadFile(shared(t, "dsh", "torn", name))
		if err != nil {
			t.Fatal(err)
		}
		_, d, events := readLedger(t, raw)
		first := slices.IndexFunc(events, func(ev Event) bool {
			return strings.Contains(string(ev.Data), `"interrupted-tool-result-`) || ev.Type == TypeTurnEnd && strings.Contains(string(ev.Data), `"interrupted"`)
		})
		if first < 0 {
			first = len(events)
		}
		closers, err := Closers(d, events[:first])
		if err != nil {
			t.Fatal(err)
		}
		if len(closers) != want {
			t.Errorf("%s: %d closers, want %d", name, len(closers), want)
		}
		for i := range closers {
			got, want := AppendEvent(nil, d, &closers[i]), AppendEvent(nil, d, &events[first+i])
			if string(got) != string(want) {
				t.Errorf("%s: closer %d is\n%s\nwant\n%s", name, i, got, want)
			}
			if !strings.Contains(string(raw), string(got)+"\n") {
				t.Errorf("%s: closer %d is not in the file byte for byte", name, i)
			}
		}
	}
}

func TestResumeMarksANewLifetimeOnce(t *testing.T) {
	d := dialect(t, 4)
	now := time.UnixMilli(9)
	for name, c := range map[string]struct {
		text []string
		want []string
	}{
		"nothing stored":         {nil, []string{TypeEndSeed}},
		"a closed turn":          {[]string{start1, end1}, []string{TypeEndSeed}},
		"marked already":         {[]string{start1, end1, `session/end-seed {}`}, nil},
		"an open turn":           {[]string{start1}, []string{TypeTurnEnd, TypeEndSeed}},
		"an open step":           {[]string{start1, "step/start " + step(1, 1)}, []string{TypeStepEnd, TypeTurnEnd, TypeEndSeed}},
		"a mark inside the turn": {[]string{start1, `session/end-seed {}`}, []string{TypeTurnEnd, TypeEndSeed}},
	} {
		got, err := Resume(d, script(t, d, c.text...), now)
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for i, ev := range got {
			types = append(types, ev.Type)
			if ev.Seq != int64(len(c.text)+i) {
				t.Errorf("%s: event %d has seq %d", name, i, ev.Seq)
			}
		}
		if !slices.Equal(types, c.want) {
			t.Errorf("%s: %v, want %v", name, types, c.want)
		}
	}
}

func TestStoreKeepsSessionsInOrder(t *testing.T) {
	ctx := context.Background()
	s := NewMemoryStore(clockAt(77), nil)
	a, err := s.Create(ctx, CreateOptions{Header: Header{Version: 4}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Create(ctx, CreateOptions{Header: Header{Version: 4, ID: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if a.ID() != "session-1" || a.Header().CreatedAt != 77 {
		t.Errorf("the store's own header is %+v", a.Header())
	}
	if got := s.List(); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("lists %v", got)
	}
	if got, ok := s.Get("b"); !ok || got != b {
		t.Error("b is not found")
	}
	if _, err := s.Create(ctx, CreateOptions{Header: Header{Version: 4, ID: "b"}}); !errors.Is(err, ErrExists) {
		t.Errorf("a second b: %v", err)
	}
	if err := s.Dispose(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)}); !errors.Is(err, ErrDisposed) {
		t.Errorf("an append to what is disposed of: %v", err)
	}
	if err := s.Dispose(ctx, "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a second dispose: %v", err)
	}
	if err := s.Flush(ctx, "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a flush of what is disposed of: %v", err)
	}
	if _, ok := s.Get("b"); ok || len(s.List()) != 1 {
		t.Error("b is still there")
	}
}

func TestPreparedSessionsAreNotFoundUntilTheyArePublished(t *testing.T) {
	ctx := context.Background()
	s := NewMemoryStore(nil, nil)
	first, err := s.Prepare(CreateOptions{Header: Header{Version: 4, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Prepare(CreateOptions{Header: Header{Version: 4, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Ledger().Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)}); err != nil {
		t.Errorf("events may join before the publication: %v", err)
	}
	if _, ok := s.Get("x"); ok || len(s.List()) != 0 {
		t.Error("a prepared session is found")
	}
	if err := first.Publish(ctx); err != nil {
		t.Fatal(err)
	}
	if err := second.Publish(ctx); !errors.Is(err, ErrExists) {
		t.Errorf("the second one: %v", err)
	}
	if got, _ := s.Get("x"); got != first.Ledger() {
		t.Error("the second one took the first one's place")
	}
}

func TestAListenersVetoRollsThePublicationBack(t *testing.T) {
	ctx := context.Background()
	var panics []any
	s := NewMemoryStore(nil, func(r any) { panics = append(panics, r) })
	var told []string
	s.OnCreated(func(l *Ledger) error { told = append(told, "created "+l.ID()); return nil })
	s.OnCreated(func(l *Ledger) error {
		switch l.ID() {
		case "vetoed":
			return errors.New("no room")
		case "panicked":
			panic("oh")
		case "leaving":
			return s.Dispose(ctx, l.ID())
		}
		return nil
	})
	s.OnDisposed(func(l *Ledger) { panic("contained") })
	s.OnDisposed(func(l *Ledger) { told = append(told, "disposed "+l.ID()) })
	for _, id := range []string{"vetoed", "panicked"} {
		if _, err := s.Create(ctx, CreateOptions{Header: Header{Version: 4, ID: id}}); err == nil {
			t.Errorf("%s was published", id)
		}
	}
	if _, err := s.Create(ctx, CreateOptions{Header: Header{Version: 4, ID: "leaving"}}); err != nil {
		t.Error(err)
	}
	if len(s.List()) != 0 {
		t.Errorf("still there: %v", s.List())
	}
	want := []string{"created vetoed", "disposed vetoed", "created panicked", "disposed panicked", "created leaving", "disposed leaving"}
	if !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if len(panics) != 4 {
		t.Errorf("recovered %v, want one listener's and three ends", panics)
	}
}

func TestDisposeInsideAnAppendWaitsForIt(t *testing.T) {
	ctx := context.Background()
	s := NewMemoryStore(nil, nil)
	l, err := s.Create(ctx, CreateOptions{Header: Header{Version: 4, ID: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	var during, after bool
	s.OnDisposed(func(*Ledger) { after = true })
	l.Observe(func(*Event) {
		if err := s.Dispose(ctx, "x"); err != nil {
			t.Error(err)
		}
		_, during = s.Get("x")
	})
	if _, err := l.Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get("x"); !during || ok || !after {
		t.Errorf("there during the append: %v, after it: %v, told: %v", during, ok, after)
	}
}

func TestFlushWaitsForEveryListenerAndJoinsTheirErrors(t *testing.T) {
	ctx := context.Background()
	s := NewMemoryStore(nil, nil)
	if _, err := s.Create(ctx, CreateOptions{Header: Header{Version: 4, ID: "x"}}); err != nil {
		t.Fatal(err)
	}
	first, second := errors.New("first"), errors.New("second")
	var mu sync.Mutex
	calls := 0
	fail := true
	for _, e := range []error{first, nil, second} {
		s.OnFlush(func(context.Context, *Ledger) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			if fail {
				return e
			}
			return nil
		})
	}
	s.OnFlush(func(context.Context, *Ledger) error {
		if fail {
			panic("oh")
		}
		return nil
	})
	err := s.Flush(ctx, "x")
	if !errors.Is(err, first) || !errors.Is(err, second) || !strings.Contains(err.Error(), "panicked") || calls != 3 {
		t.Errorf("%v after %d calls", err, calls)
	}
	if err := s.Dispose(ctx, "x"); err == nil {
		t.Error("disposed of what could not be flushed")
	}
	if _, ok := s.Get("x"); !ok {
		t.Error("what could not be flushed is gone")
	}
	fail = false
	if err := s.Dispose(ctx, "x"); err != nil {
		t.Error(err)
	}
}

func TestStoreForksByDialect(t *testing.T) {
	ctx := context.Background()
	for version := MinVersion; version <= MaxVersion; version++ {
		s := NewMemoryStore(clockAt(3), nil)
		cwd := "/w"
		l, err := s.Create(ctx, CreateOptions{Header: Header{Version: version, ID: "parent", Cwd: &cwd}})
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range script(t, l.Dialect(), start1, end1, `turn/start {"turn":2}`) {
			if _, err := l.Append(Candidate{Type: ev.Type, Data: ev.Data}); err != nil {
				t.Fatal(err)
			}
		}
		one := int64(1)
		child, err := s.Fork(ctx, "parent", ForkOptions{Boundary: &one, ID: "child"})
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		h := child.Header()
		if *h.Cwd != cwd || *h.ParentSession != "parent" || !h.IsSeeded || child.InheritedCount() != 2 || child.Len() != 3 || child.FirstLiveSeq() != 3 ||
			(h.SeedLength != nil) != l.Dialect().HasSeedLength() {
			t.Errorf("version %d: the child is %+v with %d of %d events", version, h, child.InheritedCount(), child.Len())
		}
		_, err = s.Fork(ctx, "parent", ForkOptions{})
		var refused *ForkError
		if sealed := version == 4; sealed != (err == nil) || err != nil && (!errors.As(err, &refused) || refused.Code != CodeForkOpenTurn) {
			t.Errorf("version %d, inside a turn: %v", version, err)
		}
		for _, c := range []struct {
			source, id string
			boundary   int64
			code       Code
		}{
			{"parent", "child", 1, CodeForkExists}, {"nobody", "", 1, CodeForkNotFound}, {"parent", "", -1, CodeForkBoundary},
			{"parent", "", 3, CodeForkBoundary}, {"parent", "", 1 << 53, CodeForkBoundary},
		} {
			if _, err := s.Fork(ctx, c.source, ForkOptions{Boundary: &c.boundary, ID: c.id}); !errors.As(err, &refused) || refused.Code != c.code {
				t.Errorf("version %d, %+v: %v", version, c, err)
			}
		}
		stranger := newLedger(t, version)
		stranger.header.ID = "parent"
		if _, err := s.ForkLedger(ctx, stranger, ForkOptions{}); !errors.As(err, &refused) || refused.Code != CodeForkNotLive {
			t.Errorf("version %d, a stranger: %v", version, err)
		}
	}
}

func TestReadersAndTheWriterDoNotGetInEachOthersWay(t *testing.T) {
	l := newLedger(t, 4)
	var wait sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		wait.Go(func() {
			for {
				events := l.Events(0)
				for i := range events {
					if events[i].Seq != int64(i) {
						t.Errorf("event %d has seq %d", i, events[i].Seq)
						return
					}
				}
				l.At(l.Len() - 1)
				l.OpenTurn()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 500 {
		if _, err := l.Append(Candidate{Type: TypeFeedbackRecord, Data: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wait.Wait()
}
