package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// growing is a session file that a test writes piece by piece.
type growing struct {
	t    *testing.T
	path string
	text []byte
	at   int
}

func newGrowing(t *testing.T, source string) *growing {
	text, err := os.ReadFile(shared(t, source))
	if err != nil {
		t.Fatal(err)
	}
	return &growing{t: t, path: filepath.Join(t.TempDir(), filepath.Base(source)), text: text}
}

func (g *growing) grow(n int) {
	g.t.Helper()
	f, err := os.OpenFile(g.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	n = min(n, len(g.text)-g.at)
	if _, err := f.Write(g.text[g.at : g.at+n]); err != nil {
		g.t.Fatal(err)
	}
	g.at += n
	if err := f.Close(); err != nil {
		g.t.Fatal(err)
	}
}

// Bytes arrive in pieces that respect neither lines nor characters nor frames;
// processes come and go. What is captured is what a single reading captures.
func TestGrowingFileIsCapturedAsIfReadAtOnce(t *testing.T) {
	for _, source := range []string{"dsh/v0/lab-multiturn.jsonl", "dsh/v0/lab-secrets.jsonl.zstd", "dsh/v0/orig-swap.jsonl",
		"dsh/v2/lab-unicode.jsonl", "dsh/v4/lab-compaction.jsonl.zstd"} {
		for _, mode := range []Mode{Full, FeedbackOnly} {
			t.Run(source+" "+mode.String(), func(t *testing.T) {
				change := func(c *Config) { c.Mode = mode; c.FeedbackScope = ScopeSession }
				want, wantP := captured(t, FinishedFile(shared(t, source), nil), change)
				rng := rand.New(rand.NewPCG(7, uint64(len(source))))
				g := newGrowing(t, source)
				o := newModelOutbox()
				s := testCapture(t, o, change).Session(LiveFile(g.path, nil), SessionOptions{})
				var p Progress
				for g.at < len(g.text) {
					g.grow(1 + rng.IntN(3000))
					if rng.IntN(4) == 0 {
						s.Close()
						s = testCapture(t, o, change).Session(LiveFile(g.path, nil), SessionOptions{})
					}
					var err error
					if p, err = s.Pull(t.Context(), rng.IntN(40)); err != nil && !errors.Is(err, jsonl.ErrHeaderIncomplete) {
						t.Fatal(err)
					}
				}
				for p.More = true; p.More; {
					var err error
					if p, err = s.Pull(t.Context(), 50); err != nil {
						t.Fatal(err)
					}
				}
				s.Close()
				if got := o.records(t); !slices.Equal(ledgerOf(got), ledgerOf(want)) || len(got) != len(want) || p.Outcomes != wantP.Outcomes {
					t.Errorf("got %d records, %+v; want %d, %+v", len(got), p.Outcomes, len(want), wantP.Outcomes)
				}
				for i, r := range o.records(t) {
					r.UID, want[i].UID = "", ""
					if !reflect.DeepEqual(r, want[i]) {
						t.Fatalf("record %d differs: %+v, want %+v", i, r, want[i])
					}
				}
			})
		}
	}
}

func TestRenamedFileIsReadToItsEnd(t *testing.T) {
	g := newGrowing(t, "dsh/v0/lab-multiturn.jsonl")
	g.grow(len(g.text) / 2)
	o := newModelOutbox()
	s := testCapture(t, o, nil).Session(LiveFile(g.path, nil), SessionOptions{})
	defer s.Close()
	pull(t, s)
	g.grow(len(g.text))
	if err := os.Rename(g.path, g.path+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	want, _ := captured(t, FinishedFile(g.path+".old", nil), nil)
	if got := o.records(t); !slices.Equal(ledgerOf(got), ledgerOf(want)) {
		t.Errorf("got %d records, want %d", len(got), len(want))
	}
}

func TestFileOfAnotherSessionUnderTheSameNameIsNotMixedIn(t *testing.T) {
	g := newGrowing(t, "dsh/v0/lab-multiturn.jsonl")
	g.grow(len(g.text))
	o := newModelOutbox()
	c := testCapture(t, o, nil)
	s := c.Session(LiveFile(g.path, nil), SessionOptions{})
	pull(t, s)
	before := len(o.entries)
	other := newGrowing(t, "dsh/v0/lab-unicode.jsonl")
	other.grow(len(other.text))
	if err := os.Rename(other.path, g.path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), 0); !errors.Is(err, ErrReplaced) {
		t.Fatal(err)
	}
	s.Close()
	s = c.Session(LiveFile(g.path, nil), SessionOptions{})
	defer s.Close()
	pull(t, s)
	want, _ := captured(t, FinishedFile(shared(t, "dsh/v0/lab-unicode.jsonl"), nil), nil)
	if got := o.records(t)[before:]; !slices.Equal(ledgerOf(got), ledgerOf(want)) {
		t.Errorf("got %q", ledgerOf(got))
	}
}

// The same session, first raw and later compressed under another name: nothing
// goes out twice.
func TestSessionThatChangesItsEncodingGoesOn(t *testing.T) {
	g := newGrowing(t, "dsh/v0/orig-swap.jsonl")
	g.grow(len(g.text) * 2 / 3)
	o := newModelOutbox()
	c := testCapture(t, o, nil)
	s := c.Session(LiveFile(g.path, nil), SessionOptions{})
	pull(t, s)
	s.Close()
	s = c.Session(FinishedFile(shared(t, "dsh/v0/orig-swap.jsonl.zstd"), nil), SessionOptions{})
	defer s.Close()
	pull(t, s)
	want, _ := captured(t, FinishedFile(shared(t, "dsh/v0/orig-swap.jsonl"), nil), nil)
	if got := o.records(t); !slices.Equal(ledgerOf(got), ledgerOf(want)) {
		t.Errorf("got %d records, want %d; ops %q", len(got), len(want), opsOf(got))
	}
}

// A failed append is rolled back by truncation, and its seqs are used again.
func TestRolledBackAppendIsNoticedInALiveFile(t *testing.T) {
	g := newGrowing(t, "dsh/v0/lab-multiturn.jsonl")
	g.grow(len(g.text))
	o := newModelOutbox()
	s := testCapture(t, o, nil).Session(LiveFile(g.path, nil), SessionOptions{})
	defer s.Close()
	p := pull(t, s)
	cut := len(g.text) - 1
	for g.text[cut-1] != '\n' {
		cut--
	}
	changed := bytes.Replace(g.text[cut:], []byte("RATE_LIMITED"), []byte("OTHER"), 1)
	if err := os.Truncate(g.path, int64(cut)); err != nil {
		t.Fatal(err)
	}
	g.text, g.at = append(g.text[:cut:cut], changed...), cut
	g.grow(len(g.text))
	before := len(o.entries)
	pull(t, s)
	got := o.records(t)[before:]
	want := fmt.Sprintf(`session.diverged {"last_common_seq":%d,"captured_seq":%d,"incarnation":1}`, p.Next-2, p.Next-1)
	if !slices.Equal(opsOf(got), []string{want}) || !slices.Equal(seqsOf(got), []int64{p.Next - 1}) {
		t.Errorf("ops %q, seqs %v", opsOf(got), seqsOf(got))
	}
}
