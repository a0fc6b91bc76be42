package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// scripted answers pulls as the test says.
type scripted struct {
	mu       sync.Mutex
	log      []string // paths in the order of their pulls
	busy     map[string]bool
	answers  map[string][]answer // consumed one a pull; then nothing new
	gate     map[string]chan struct{}
	overlap  bool
	closed   []string
	released []string
	starts   chan string
	pulls    chan string
}

type answer struct {
	more bool
	err  error
}

func newScripted() *scripted {
	return &scripted{busy: map[string]bool{}, answers: map[string][]answer{}, gate: map[string]chan struct{}{}, starts: make(chan string, 10_000), pulls: make(chan string, 10_000)}
}

func (s *scripted) open(path string, _ bool) puller { return &scriptedPuller{s, path} }

type scriptedPuller struct {
	s    *scripted
	path string
}

func (p *scriptedPuller) Pull(ctx context.Context, _ int) (telemetry.Progress, error) {
	s := p.s
	s.mu.Lock()
	s.overlap = s.overlap || s.busy[p.path]
	s.busy[p.path] = true
	s.log = append(s.log, p.path)
	var a answer
	if list := s.answers[p.path]; len(list) > 0 {
		a, s.answers[p.path] = list[0], list[1:]
	}
	gate := s.gate[p.path]
	s.mu.Unlock()
	s.starts <- p.path
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			a = answer{err: ctx.Err()}
		}
	}
	s.mu.Lock()
	s.busy[p.path] = false
	s.mu.Unlock()
	s.pulls <- p.path
	return telemetry.Progress{More: a.more}, a.err
}

func (p *scriptedPuller) Release() { p.note(&p.s.released) }
func (p *scriptedPuller) Close()   { p.note(&p.s.closed) }
func (p *scriptedPuller) note(list *[]string) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	*list = append(*list, p.path)
}

func (s *scripted) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// startKeeper runs a keeper until the test ends.
func startKeeper(t *testing.T, s *scripted, workers int) *keeper {
	t.Helper()
	k := newKeeper(slog.New(slog.DiscardHandler), s.open)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx, workers)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

// ledgerFile makes a session file whose header names a parent.
func ledgerFile(t *testing.T, dir, id, parent string) jsonl.Ledger {
	t.Helper()
	path := filepath.Join(dir, "--p--", id, "session.jsonl")
	header := fmt.Sprintf(`{"type":"session","version":0,"id":%q,"createdAt":1,"delegationDepth":0}`, id)
	if parent != "" {
		header = fmt.Sprintf(`{"type":"session","version":0,"id":%q,"createdAt":1,"delegationDepth":0,"parentSession":%q,"seedLength":1}`, id, parent)
	}
	write(t, path, header+"\n")
	return jsonl.Ledger{Path: path, Project: "--p--", Session: id}
}

func TestOneLedgerIsPulledByOneWorkerAtATime(t *testing.T) {
	s := newScripted()
	k := startKeeper(t, s, 4)
	l := ledgerFile(t, t.TempDir(), "a", "")
	s.answers[l.Path] = slices.Repeat([]answer{{more: true}}, 50)
	for range 50 {
		k.offer([]jsonl.Ledger{l}, false)
	}
	k.settled(context.Background())
	if s.overlap {
		t.Error("two workers had the same ledger")
	}
	if n := len(s.order()); n < 51 {
		t.Errorf("%d pulls: one that has more is not pulled to its end", n)
	}
}

func TestBusyLedgersDoNotKeepQuietOnesOut(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	busy, quiet := ledgerFile(t, dir, "busy", ""), ledgerFile(t, dir, "quiet", "")
	s.answers[busy.Path] = slices.Repeat([]answer{{more: true}}, 100)
	k := startKeeper(t, s, 1)
	k.offer([]jsonl.Ledger{busy, quiet}, false)
	k.settled(context.Background())
	if at := slices.Index(s.order(), quiet.Path); at != 1 {
		t.Errorf("the quiet ledger had its turn after %d pulls of the busy one", at)
	}
}

func TestChangeDuringAPullIsNotMissed(t *testing.T) {
	s := newScripted()
	l := ledgerFile(t, t.TempDir(), "a", "")
	gate := make(chan struct{})
	s.gate[l.Path] = gate
	k := startKeeper(t, s, 2)
	k.offer([]jsonl.Ledger{l}, false)
	<-s.starts
	k.offer([]jsonl.Ledger{l}, false)
	close(gate)
	k.settled(context.Background())
	if n := len(s.order()); n != 2 {
		t.Errorf("%d pulls, want 2", n)
	}
}

// A file that is removed while it stands in line leaves the line: else one worker
// would end its session while another one pulls it.
func TestFileThatIsGoneLeavesTheLine(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	first, a := ledgerFile(t, dir, "first", ""), ledgerFile(t, dir, "a", "")
	gate := make(chan struct{})
	s.gate[first.Path] = gate
	k := startKeeper(t, s, 1)
	k.offer([]jsonl.Ledger{first}, false)
	<-s.starts // the only worker has it
	k.offer([]jsonl.Ledger{a}, false)
	k.forget(a.Path)
	close(gate)
	k.settled(context.Background())
	if got := s.order(); !slices.Equal(got, []string{first.Path}) || !slices.Equal(s.closed, []string{a.Path}) {
		t.Errorf("pulled %v, closed %v", got, s.closed)
	}
}

// A session that stands in line is not pulled while an operator has it.
func TestOperationHasASessionThatWaitsInLineForItself(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	first, a, b := ledgerFile(t, dir, "first", ""), ledgerFile(t, dir, "a", ""), ledgerFile(t, dir, "b", "")
	gate := make(chan struct{})
	s.gate[first.Path] = gate
	k := startKeeper(t, s, 1)
	k.offer([]jsonl.Ledger{first}, false)
	<-s.starts // the only worker has it
	k.offer([]jsonl.Ledger{a, b}, false)
	err := k.do(t.Context(), "a", func(puller) error {
		close(gate)
		for path := range s.starts {
			if path == a.Path {
				t.Error("pulled meanwhile")
			}
			if path == b.Path {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	k.settled(context.Background())
	if got := s.order(); !slices.Equal(got, []string{first.Path, b.Path, a.Path}) {
		t.Errorf("order %v", got)
	}
}

func TestParentsGoFirst(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	parent, child, grandchild := ledgerFile(t, dir, "parent", ""), ledgerFile(t, dir, "child", "parent"), ledgerFile(t, dir, "grandchild", "child")
	orphan := ledgerFile(t, dir, "orphan", "nowhere")
	s.answers[parent.Path] = []answer{{more: true}, {more: true}}
	k := startKeeper(t, s, 4)
	k.offer([]jsonl.Ledger{grandchild, child, orphan, parent}, false)
	k.settled(context.Background())
	order := s.order()
	last := func(path string) int { return len(order) - 1 - slices.Index(reversed(order), path) }
	if last(parent.Path) > slices.Index(order, child.Path) || last(child.Path) > slices.Index(order, grandchild.Path) {
		t.Errorf("order %v", order)
	}
	if !slices.Contains(order, orphan.Path) {
		t.Error("a session whose parent is not there waits for it")
	}
}

func reversed(s []string) []string {
	r := slices.Clone(s)
	slices.Reverse(r)
	return r
}

func TestSessionsThatAreEachOthersParentDoNotWaitForEver(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	a, b, self := ledgerFile(t, dir, "a", "b"), ledgerFile(t, dir, "b", "a"), ledgerFile(t, dir, "self", "self")
	c, d, e := ledgerFile(t, dir, "c", "d"), ledgerFile(t, dir, "d", "e"), ledgerFile(t, dir, "e", "c")
	k := startKeeper(t, s, 2)
	all := []jsonl.Ledger{a, b, self, c, d, e}
	k.offer(all, false)
	k.settled(context.Background())
	for _, l := range all {
		if !slices.Contains(s.order(), l.Path) {
			t.Errorf("%s was never pulled", l.Session)
		}
	}
}

func TestHeldLedgerDoesNotStopOthersAndIsTriedWhenItChanges(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	bad, good := ledgerFile(t, dir, "bad", ""), ledgerFile(t, dir, "good", "")
	s.answers[bad.Path] = []answer{{err: &telemetry.HeldError{Code: "unknown-type", Seq: 3}}}
	k := startKeeper(t, s, 1)
	k.offer([]jsonl.Ledger{bad, good}, false)
	k.settled(context.Background())
	if all, held := k.counts(); all != 2 || held != 1 {
		t.Errorf("%d ledgers, %d held", all, held)
	}
	if got := s.order(); !slices.Equal(got, []string{bad.Path, good.Path}) {
		t.Errorf("order %v", got)
	}
	k.offer([]jsonl.Ledger{bad}, false)
	k.settled(context.Background())
	if _, held := k.counts(); held != 0 {
		t.Error("still held after a pull that went well")
	}
}

func TestAnotherFileOfTheSessionTakesThePlaceOfTheFirst(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	l := ledgerFile(t, dir, "a", "")
	k := startKeeper(t, s, 1)
	k.offer([]jsonl.Ledger{l}, false)
	k.settled(context.Background())
	compressed := l
	compressed.Path += ".zstd"
	write(t, compressed.Path, "")
	k.offer([]jsonl.Ledger{compressed}, false)
	k.settled(context.Background())
	if !slices.Equal(s.closed, []string{l.Path}) {
		t.Errorf("closed %v, want the first file", s.closed)
	}
	if all, _ := k.counts(); all != 1 {
		t.Errorf("%d ledgers", all)
	}
	k.forget(compressed.Path)
	if all, _ := k.counts(); all != 0 || len(k.slots) != 0 {
		t.Errorf("%d ledgers and %v after the last one was removed", all, k.slots)
	}
}

func TestFileThatIsGoneIsForgotten(t *testing.T) {
	s := newScripted()
	l := ledgerFile(t, t.TempDir(), "a", "")
	s.answers[l.Path] = []answer{{err: &fs.PathError{Op: "open", Path: l.Path, Err: fs.ErrNotExist}}}
	k := startKeeper(t, s, 1)
	k.offer([]jsonl.Ledger{l}, false)
	k.settled(context.Background())
	if all, _ := k.counts(); all != 0 || len(s.closed) != 1 {
		t.Errorf("%d ledgers, closed %v", all, s.closed)
	}
}

func TestWhatCannotBeReadNowIsTriedAgain(t *testing.T) {
	s := newScripted()
	l := ledgerFile(t, t.TempDir(), "a", "")
	s.answers[l.Path] = []answer{{err: errors.New("input/output error")}}
	k := startKeeper(t, s, 1)
	k.offer([]jsonl.Ledger{l}, false)
	for range 2 { // the second one comes by itself, after retryAfter
		<-s.pulls
	}
}

func TestOnlySoManySessionsStayOpen(t *testing.T) {
	s := newScripted()
	dir := t.TempDir()
	var all []jsonl.Ledger
	for i := range maxAwake + 10 {
		all = append(all, ledgerFile(t, dir, fmt.Sprint("s", i), ""))
	}
	k := startKeeper(t, s, 2)
	k.offer(all, false)
	k.settled(context.Background())
	if len(s.released) != 10 {
		t.Errorf("%d released, want 10", len(s.released))
	}
}
