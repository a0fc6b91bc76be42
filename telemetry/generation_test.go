package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// recorded is a session file as a source that may be shortened.
func recorded(t testing.TB, path string) *memSource {
	t.Helper()
	r, err := jsonl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m := &memSource{header: *r.Header()}
	for r.Next() {
		m.events = append(m.events, r.Event().Clone())
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if m.seed, err = jsonl.InheritedCount(path); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *memSource) first(n int) *memSource {
	c := *m
	c.events = m.events[:n]
	return &c
}

// lasting names an event by what a migration keeps; "" for those that it drops,
// makes or moves into others.
func lasting(typ string, timeMs int64) string {
	switch typ {
	case session.TypeAssistantChunk, session.TypeAssistantAttempt, session.TypeSystemMessage:
		return ""
	}
	typ = strings.TrimPrefix(strings.Replace(typ, "code-dispatch", "ptc-dispatch", 1), "plugin:")
	return fmt.Sprintf("%s at %d", typ, timeMs)
}

func lastingOf(events []session.Event) []string {
	var out []string
	for _, ev := range events {
		if s := lasting(ev.Type, ev.Time); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// Wherever capture of a session stands when a newer generation appears, every
// event goes out once.
func TestGenerationsGoOnWithTheSuccessorWhereverTheOlderStood(t *testing.T) {
	dir := shared(t, "dsh")
	names := map[string]bool{}
	for v := range 5 {
		files, _ := filepath.Glob(fmt.Sprintf("%s/v%d/*.jsonl", dir, v))
		for _, f := range files {
			if base := filepath.Base(f); strings.HasPrefix(base, "lab-") || strings.HasPrefix(base, "orig-") || base == "native-v3.jsonl" {
				names[base] = true
			}
		}
	}
	pairs := 0
	for name := range names {
		for from := range 5 {
			for to := from + 1; to < 5; to++ {
				a, b := fmt.Sprintf("%s/v%d/%s", dir, from, name), fmt.Sprintf("%s/v%d/%s", dir, to, name)
				if !exists(a) || !exists(b) {
					continue
				}
				pairs++
				t.Run(fmt.Sprintf("%s v%d to v%d", strings.TrimSuffix(name, ".jsonl"), from, to), func(t *testing.T) {
					testGenerations(t, recorded(t, a), recorded(t, b))
				})
			}
		}
	}
	if pairs < 30 {
		t.Errorf("only %d pairs", pairs)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func testGenerations(t *testing.T, older, newer *memSource) {
	if older.header.ID != newer.header.ID || older.header.CreatedAt != newer.header.CreatedAt {
		t.Skip("two runs, not one session")
	}
	want := lastingOf(newer.events)
	step := 1 + len(older.events)/24
	for n := 1; n <= len(older.events); n += step {
		o := newModelOutbox()
		c := testCapture(t, o, func(c *Config) { c.Attest = true })
		s := c.Session(older.first(n), SessionOptions{})
		pull(t, s)
		s.Close()
		s = c.Session(newer, SessionOptions{})
		p := pull(t, s)
		if p.Next != int64(len(newer.events)) {
			t.Fatalf("after %d: next %d", n, p.Next)
		}
		s.Close()
		var got []string
		last := map[int]int64{0: -1, 1: -1, 2: -1, 3: -1, 4: -1}
		gens := 0
		for _, r := range o.records(t) {
			switch {
			case r.Channel == ChannelLedger:
				if v := r.Identity.FormatVersion; r.Identity.Seq <= last[v] {
					t.Fatalf("after %d: version %d seq %d after %d", n, v, r.Identity.Seq, last[v])
				}
				last[r.Identity.FormatVersion] = r.Identity.Seq
				if s := lasting(r.Type, r.TimeMs); s != "" {
					got = append(got, s)
				}
			case r.Op == OpGeneration:
				gens++
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("after %d of %d: %d records of lasting events, want %d\n%s", n, len(older.events), len(got), len(want), firstDifference(got, want))
		}
		if gens != 1 {
			t.Fatalf("after %d: %d records session.generation", n, gens)
		}
		checkSpans(t, o)
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%d: %s, want %s", i, a[i], b[i])
		}
	}
	return "the shorter one is the beginning of the other"
}

// Each move is told of, also under FeedbackOnly, and also where nothing went out in
// the format that is left: something of the session has.
func TestEachGenerationIsToldOf(t *testing.T) {
	lines := slices.DeleteFunc(turn(1), func(line string) bool { return strings.HasPrefix(line, "assistant/chunk") })
	for _, mode := range []Mode{Full, FeedbackOnly} {
		for _, feedback := range []bool{true, false} {
			o := newModelOutbox()
			c := testCapture(t, o, func(c *Config) { c.Attest, c.Mode = true, mode })
			all := lines
			if feedback {
				all = append(slices.Clone(lines), "feedback/record {}")
			}
			for version := range 3 {
				src := ledger("s", all...)
				src.header.Version = version
				s := c.Session(src, SessionOptions{})
				if p := pull(t, s); p.Next != int64(len(all)) && (feedback || mode == Full) {
					t.Fatalf("version %d: next %d", version, p.Next)
				}
				s.Close()
			}
			want := 2
			if mode == FeedbackOnly && !feedback {
				want = 0
			}
			got := 0
			for _, r := range o.records(t) {
				if r.Op == OpGeneration {
					got++
				}
			}
			if got != want {
				t.Errorf("%v, feedback %v: %d records session.generation, want %d", mode, feedback, got, want)
			}
		}
	}
}

func TestGenerationThatDoesNotFollowIsHeldUntilItIsAccepted(t *testing.T) {
	o := newModelOutbox()
	c := testCapture(t, o, nil)
	s := c.Session(ledger("s", turn(1)...), SessionOptions{})
	pull(t, s)
	s.Close()
	newer := ledger("s", turn(1)...)
	newer.header.Version = 1
	newer.events[2].Time++ // another past
	s = c.Session(newer, SessionOptions{})
	defer s.Close()
	for range 2 {
		_, err := s.Pull(context.Background(), 0)
		var held *HeldError
		if !errors.As(err, &held) || held.Code != CodeGeneration {
			t.Fatalf("%v", err)
		}
	}
	before := len(o.records(t))
	if err := s.Accept(context.Background()); err != nil {
		t.Fatal(err)
	}
	pull(t, s)
	if seqs := seqsOf(o.records(t)[before:]); len(seqs) == 0 || seqs[0] != 0 {
		t.Errorf("after acceptance %v", seqs)
	}
}

func TestGenerationWaitsUntilTheOlderOneIsLetGo(t *testing.T) {
	o := newModelOutbox()
	c := testCapture(t, o, nil)
	older := c.Session(ledger("s", turn(1)...), SessionOptions{})
	pull(t, older)
	newer := ledger("s", turn(1)...)
	newer.header.Version = 1
	newer.append(turn(2)...)
	s := c.Session(newer, SessionOptions{})
	defer s.Close()
	if _, err := s.Pull(context.Background(), 0); !errors.Is(err, ErrTaken) {
		t.Fatalf("%v", err)
	}
	older.Close()
	before := len(o.records(t))
	pull(t, s)
	if seqs := seqsOf(o.records(t)[before:]); len(seqs) == 0 || seqs[0] != 9 {
		t.Errorf("went on with %v", seqs)
	}
}

func TestGenerationSurvivesACrashAtEveryCommit(t *testing.T) {
	dir := shared(t, "dsh")
	older, newer := recorded(t, dir+"/v0/orig-swap.jsonl"), recorded(t, dir+"/v2/orig-swap.jsonl")
	want := lastingOf(newer.events)
	for _, after := range []bool{false, true} {
		for failOn := 1; ; failOn++ {
			o := newModelOutbox()
			o.fail, o.failOn, o.after = errors.New("crash"), failOn, after
			crashed := false
			for _, src := range []*memSource{older.first(100), newer} {
				for {
					c := testCapture(t, o, func(c *Config) { c.Attest = true })
					s := c.Session(src, SessionOptions{})
					_, err := s.Pull(context.Background(), 0)
					s.Close()
					if err == nil {
						break
					}
					crashed = true
				}
			}
			var got []string
			for _, r := range o.records(t) {
				if r.Channel == ChannelLedger {
					if s := lasting(r.Type, r.TimeMs); s != "" {
						got = append(got, s)
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("crash at %d: %s", failOn, firstDifference(got, want))
			}
			checkSpans(t, o)
			if !crashed {
				break
			}
		}
	}
}
