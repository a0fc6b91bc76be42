package sidecar

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

const (
	// retryAfter is how long a ledger rests that could not be read for a reason
	// outside of it, or that another file of the same session stands for.
	retryAfter = 5 * time.Second
	// restAfter is how long a session stays open without a new event; opening
	// it again means reading it from its start.
	restAfter = 2 * time.Minute
	// followFor is how long a file without a session's name is looked at that a
	// session's file was renamed to.
	followFor = time.Hour
	// lingerEvery is how often an open file is looked at that has no name any more
	// which changes could be told of.
	lingerEvery = time.Second
	// maxAwake bounds how many sessions are open, and with it memory and file
	// descriptors; the one that was quiet for longest goes first.
	maxAwake = 128
	// leastAwake is what is left of that where file descriptors are few.
	leastAwake = 8
	// pullEvents is how many events are read of one ledger before the next one
	// in line has its turn.
	pullEvents = 8192
)

// puller captures one session; *telemetry.Session is one.
type puller interface {
	Pull(ctx context.Context, limit int) (telemetry.Progress, error)
	Release()
	Close()
}

// resting is what a session does when it has come to rest; *telemetry.Session
// has it.
type resting interface {
	Settle(ctx context.Context) error
	Idle(ctx context.Context) error
	Ended(ctx context.Context) error
}

// reader is a puller that tells whether it has a file open, which its writer may
// still write to when the name is gone; *telemetry.Session is one.
type reader interface{ Reading() bool }

// keeper has one puller for each ledger and pulls those that changed, with a
// bounded number of workers. A ledger waits in line behind those that changed
// before it, and is pulled by one worker at a time, so a busy one cannot keep
// the others out.
//
//	offer ──▶ queue ──▶ worker: Pull ──▶ at rest ──(quiet for long)──▶ released
//	  │         ▲            │ changed meanwhile, or to be tried again later
//	  ▼         └────────────┘
//	waits for its parent's first pull, where that is known
type keeper struct {
	log  *slog.Logger
	open func(path string, fromNow bool) puller
	// once closes a session when it has been read to its end: files that do not
	// grow, of which two may be of one session.
	once bool
	// lineage reads which session a file has, and that session's parent.
	lineage func(path string) (lineage, bool)
	// pulled is told how every pull ended.
	pulled func(path string, p telemetry.Progress, err error)
	// idleAfter is how long a session does not grow before it counts as idle; 0 is
	// for ever.
	idleAfter time.Duration
	// settleTime is what the end of all open spans may take at a shutdown.
	settleTime time.Duration
	// lost counts what the data directory has lost to damage. A pull makes it good,
	// and damage shows late, when an entry is read to be sent.
	lost func() int64

	mu      sync.Mutex
	targets map[string]*target   // by path
	slots   map[string]string    // session directory -> path of the file that counts
	byID    map[string]*target   // by session id
	waiting map[string][]*target // by id of the parent that is waited for
	queue   []*target
	leaving []*target // their ledger is gone: to be read to its end, ended and closed
	// lingering are those of them that are open: who renamed or removed the file
	// need not be who writes it.
	lingering []*target
	running   int
	awake     map[*target]time.Time // open at rest, and since when
	mostAwake int                   // how many of them there may be
	taken     []*target             // with once: wait for another file of their session
	signal    *sync.Cond            // something of the above has changed
}

// target is one ledger file.
type target struct {
	path, id, parent string
	fromNow          bool
	name             string // the session's id as records have it, once pulled
	met              bool   // its header has been read
	puller           puller
	queued, running  bool
	again            bool   // changed while running
	gone             bool   // another file has taken its place, or it was removed
	done             bool   // a pull has ended
	ended            bool   // gone for good: no other file has taken its place
	final            bool   // not to linger any more
	moved            string // what its file is called now
	follows          bool   // it is read under that name
	next, beyond     int64
	grown            time.Time // when next changed
	idle             bool      // Idle is due or was done since
	held             string
	retry            time.Time // zero: only when it changes
}

func newKeeper(log *slog.Logger, open func(path string, fromNow bool) puller) *keeper {
	k := &keeper{
		log: log, open: open, lineage: readLineage,
		pulled: func(string, telemetry.Progress, error) {}, settleTime: stopPart,
		targets: map[string]*target{}, slots: map[string]string{}, byID: map[string]*target{},
		waiting: map[string][]*target{}, awake: map[*target]time.Time{}, mostAwake: maxAwake,
	}
	k.signal = sync.NewCond(&k.mu)
	return k
}

// offer says that ledgers are new or have changed. fromNow is for those that no
// cursor is known of.
func (k *keeper) offer(ledgers []jsonl.Ledger, fromNow bool) {
	heads := make(map[string]lineage)
	for _, l := range ledgers {
		k.mu.Lock()
		t := k.targets[l.Path]
		known := t != nil && t.met
		k.mu.Unlock()
		if known {
			continue
		}
		if h, ok := k.lineage(l.Path); ok {
			heads[l.Path] = h
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	batch := make([]*target, 0, len(ledgers))
	for _, l := range ledgers {
		t := k.targets[l.Path]
		if t == nil {
			t = &target{path: l.Path, fromNow: fromNow, puller: k.open(l.Path, fromNow)}
			k.targets[l.Path] = t
		}
		if h, ok := heads[l.Path]; ok && !t.met {
			t.met, t.id, t.parent = true, h.id, h.parent
			k.byID[h.id] = t
		}
		if l.Session != "" {
			dir := filepath.Dir(l.Path)
			if old := k.slots[dir]; old != "" && old != l.Path {
				k.remove(k.targets[old], false)
			}
			k.slots[dir] = l.Path
		}
		batch = append(batch, t)
	}
	for _, t := range batch {
		k.enqueue(t)
	}
}

// lineage is a session's id and the id of the session that it has inherited
// events from, "" for none.
type lineage struct{ id, parent string }

func lineageOf(h *session.Header) lineage {
	l := lineage{id: h.ID}
	if h.IsSeeded && h.ParentSession != nil {
		l.parent = *h.ParentSession
	}
	return l
}

// readLineage is false while there is no header to be understood.
func readLineage(path string) (lineage, bool) {
	r, err := jsonl.Open(path)
	if err != nil {
		return lineage{}, false
	}
	defer r.Close()
	return lineageOf(r.Header()), true
}

// remove forgets a target; ended says that no other file has its session. The
// caller holds mu.
func (k *keeper) remove(t *target, ended bool) {
	if t == nil {
		return
	}
	if other := k.byID[t.id]; other != nil && other != t {
		ended = false // it has moved
	}
	t.gone, t.ended = true, ended
	k.unqueue(t)
	delete(k.targets, t.path)
	if dir := filepath.Dir(t.path); k.slots[dir] == t.path {
		delete(k.slots, dir)
	}
	delete(k.awake, t)
	if k.byID[t.id] == t {
		delete(k.byID, t.id)
	}
	if !t.running {
		k.close(t)
	}
	k.releaseChildren(t.id)
}

// close lets go of a target that is gone. The caller holds mu.
func (k *keeper) close(t *target) {
	if t.ended {
		t.grown = time.Now()
		k.leaving = append(k.leaving, t)
		k.signal.Broadcast()
		return
	}
	k.free(t)
}

// releaseChildren lets those go on that wait for a parent. The caller holds mu.
func (k *keeper) releaseChildren(parent string) {
	children := k.waiting[parent]
	delete(k.waiting, parent)
	for _, c := range children {
		c.queued = false
		k.enqueue(c)
	}
}

// forget is told of a file that is gone. What it had is in the data directory.
func (k *keeper) forget(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(k.targets[path], true)
}

// follow is told of a file that has another name now, which is no session's.
func (k *keeper) follow(path, now string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.targets[path]; t != nil {
		t.moved = now
		k.remove(t, true)
	}
}

// enqueue puts a target in line. The caller holds mu.
func (k *keeper) enqueue(t *target) {
	switch {
	case t.queued || t.gone:
	case t.running:
		t.again = true
	default:
		t.queued, t.retry = true, time.Time{}
		if t.parent != "" && !t.done && k.waits(t) {
			k.waiting[t.parent] = append(k.waiting[t.parent], t)
			return
		}
		k.queue = append(k.queue, t)
		k.signal.Broadcast()
	}
}

// unqueue takes a target out of the line and tells whether it stood there. The
// caller holds mu.
func (k *keeper) unqueue(t *target) bool {
	i := slices.Index(k.queue, t)
	if i >= 0 {
		k.queue = slices.Delete(k.queue, i, i+1)
		t.queued = false
	}
	return i >= 0
}

// waits tells whether a target's parent is on its way to its first pull. Headers
// may lie: sessions that are each other's parents do not wait. The caller holds
// mu.
func (k *keeper) waits(t *target) bool {
	p := k.byID[t.parent]
	if p == nil || p.done {
		return false
	}
	for range len(k.byID) {
		if p == nil || p.done {
			return true
		}
		if p == t {
			return false
		}
		p = k.byID[p.parent]
	}
	return false
}

// wakeAtEnd wakes who waits when ctx ends, until stop is called.
func (k *keeper) wakeAtEnd(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.signal.Broadcast()
	})
}

// run pulls with so many workers until ctx ends, and lets go of all sessions.
func (k *keeper) run(ctx context.Context, workers int) {
	defer k.wakeAtEnd(ctx)()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { k.work(ctx) })
	}
	wg.Go(func() { k.tend(ctx) })
	wg.Wait()

	k.mu.Lock()
	defer k.mu.Unlock()
	k.settleAll(context.WithoutCancel(ctx))
	for _, t := range k.everyone() {
		t.puller.Close()
	}
	k.leaving, k.lingering = nil, nil
	clear(k.awake)
}

// settleWorkers is how many sessions share a sync at a shutdown.
const settleWorkers = 32

// settleAll ends all open spans, so that what was captured has its summaries.
// What there is no time for stays in the cursors. Nothing else runs any more.
func (k *keeper) settleAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, k.settleTime)
	defer cancel()
	todo := make(chan *target)
	var wg sync.WaitGroup
	for range settleWorkers {
		wg.Go(func() {
			for t := range todo {
				if r, ok := t.puller.(resting); ok && ctx.Err() == nil {
					if err := r.Settle(ctx); err != nil {
						k.log.Warn("a session's last events have no summary yet", "file", shown(t.path), "error", told(err, t.path))
					}
				}
			}
		})
	}
	for _, t := range k.everyone() {
		todo <- t
	}
	close(todo)
	wg.Wait()
}

// everyone is all targets that are not closed. The caller holds mu.
func (k *keeper) everyone() []*target {
	return slices.Concat(slices.Collect(maps.Values(k.targets)), k.leaving, k.lingering)
}

// end reads what is still open of a ledger that is gone, says that its session
// has ended, and closes it when nothing has come for as long as sessions stay
// open, or when another file has the session.
func (k *keeper) end(ctx context.Context, t *target) {
	reading := func() bool { r, ok := t.puller.(reader); return ok && r.Reading() }
	if t.moved != "" && !t.follows && !reading() {
		k.mu.Lock()
		t.puller.Close()
		t.path, t.follows, t.puller = t.moved, true, k.open(t.moved, t.fromNow)
		k.mu.Unlock()
	}
	for (reading() || t.follows) && ctx.Err() == nil {
		p, err := t.puller.Pull(ctx, pullEvents)
		k.pulled(t.path, p, err)
		if p.Next != t.next {
			t.next, t.grown = p.Next, time.Now()
		}
		if !p.More {
			break
		}
	}
	quiet := time.Since(t.grown)
	if t.follows && quiet >= restAfter {
		t.puller.Release()
	}
	if r, ok := t.puller.(resting); ok {
		if err := r.Ended(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("the end of a session is not told", "file", shown(t.path), "error", told(err, t.path))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		k.leaving = append(k.leaving, t)
	case !t.final && (reading() && quiet < restAfter || t.follows && quiet < followFor):
		k.lingering = append(k.lingering, t)
		if len(k.lingering) > maxAwake {
			k.leave(0)
		}
	default:
		k.free(t)
	}
}

// free closes a target, and lets another file of its session that has waited for
// that go on. The caller holds mu.
func (k *keeper) free(t *target) {
	t.puller.Close()
	for _, next := range []*target{k.byID[t.id], k.targets[k.slots[filepath.Dir(t.path)]]} {
		if next != nil && next != t && !next.retry.IsZero() {
			k.enqueue(next)
		}
	}
}

// leave lets the lingering target i go. The caller holds mu.
func (k *keeper) leave(i int) {
	t := k.lingering[i]
	t.final = true
	k.lingering = slices.Delete(k.lingering, i, i+1)
	k.leaving = append(k.leaving, t)
	k.signal.Broadcast()
}

func (k *keeper) work(ctx context.Context) {
	for {
		k.mu.Lock()
		for len(k.queue) == 0 && len(k.leaving) == 0 && ctx.Err() == nil {
			k.signal.Wait()
		}
		if ctx.Err() != nil {
			k.mu.Unlock()
			return
		}
		if n := len(k.leaving); n > 0 {
			t := k.leaving[n-1]
			k.leaving = k.leaving[:n-1]
			k.running++
			k.mu.Unlock()
			k.end(ctx, t)
			k.mu.Lock()
			k.running--
			k.signal.Broadcast()
			k.mu.Unlock()
			continue
		}
		t := k.queue[0]
		k.queue = k.queue[1:]
		t.queued, t.running, t.again = false, true, false
		delete(k.awake, t)
		k.running++
		idle := t.idle && k.idles(t)
		k.mu.Unlock()

		p, err := t.puller.Pull(ctx, pullEvents)
		if r, ok := t.puller.(resting); ok && idle && err == nil && !p.More && p.Next == t.next {
			err = r.Idle(ctx)
		}
		k.pulled(t.path, p, err)

		k.mu.Lock()
		t.name, t.beyond = p.SessionID, p.Beyond
		if p.Next != t.next || t.grown.IsZero() {
			t.next, t.grown, t.idle = p.Next, time.Now(), false
		}
		k.settle(t, p.More, err)
		k.mu.Unlock()
		if errors.Is(err, telemetry.ErrReplaced) {
			k.offer([]jsonl.Ledger{{Path: t.path}}, t.fromNow)
		}
	}
}

// settle decides what comes after a pull. The caller holds mu.
func (k *keeper) settle(t *target, more bool, err error) {
	defer k.signal.Broadcast()
	t.running = false
	k.running--
	t.again = t.again || more && err == nil
	if t.gone {
		k.close(t) // it was removed meanwhile
	} else {
		k.judge(t, err)
	}
	if k.once {
		k.finish(t, err)
	}
	if t.again {
		k.enqueue(t)
	}
	if t.done = t.done || !more || err != nil; !t.done {
		return
	}
	k.releaseChildren(t.id)
}

// finish closes a session that has been read to its end, which lets another
// file of it have its turn. The caller holds mu.
func (k *keeper) finish(t *target, err error) {
	if errors.Is(err, telemetry.ErrTaken) {
		k.taken = append(k.taken, t)
		return
	}
	if t.again || t.gone {
		return
	}
	delete(k.awake, t)
	t.puller.Close()
	for _, other := range k.taken {
		k.enqueue(other)
	}
	k.taken = k.taken[:0]
}

func (k *keeper) judge(t *target, err error) {
	var held *telemetry.HeldError
	wasHeld := t.held
	t.held = ""
	switch {
	case err == nil:
		k.awake[t] = time.Now()
		if len(k.awake) > k.mostAwake {
			k.releaseOldest()
		}
		if wasHeld != "" {
			k.log.Info("session is held no longer and goes on", "file", shown(t.path))
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.As(err, &held):
		// Tried again when the file changes; the message comes once.
		t.held = held.Code
		if wasHeld != held.Code {
			level, why := whyHeld(held.Code)
			k.log.Log(context.Background(), level, "session is held: "+why,
				"file", shown(t.path), "seq", held.Seq, "code", held.Code, "error", told(held.Err, t.path))
		}
		var corrupt *jsonl.CorruptError
		if errors.As(held.Err, &corrupt) && corrupt.Row == 1 {
			k.free(t) // without its header it is no session's; a copy may be
		}
	case errors.Is(err, jsonl.ErrHeaderIncomplete):
		// Its writer has only begun; the rest will be a change.
		k.free(t)
	case errors.Is(err, telemetry.ErrShorter):
		t.retry = time.Now().Add(retryAfter)
	case errors.Is(err, telemetry.ErrTaken):
		t.retry = time.Now().Add(retryAfter)
		if i := slices.IndexFunc(k.lingering, func(l *target) bool { return l.id == t.id }); i >= 0 {
			k.leave(i)
		}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, telemetry.ErrReplaced):
		k.remove(t, true)
	case len(k.awake) > 0 && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)):
		k.makeWay()
		t.again = true
	default:
		t.retry = time.Now().Add(retryAfter)
		k.log.Warn("session cannot be read now; it is tried again", "file", shown(t.path), "error", told(err, t.path))
	}
}

// whyHeld says what a hold is, and what ends it.
func whyHeld(code string) (slog.Level, string) {
	switch code {
	case telemetry.CodeOperator:
		return slog.LevelInfo, "an operator has held it; `sessions accept` lets it go on"
	case telemetry.CodeDiverged:
		return slog.LevelWarn, "its past is not what was captured; `sessions accept` lets it go on from the last common point"
	case telemetry.CodeGeneration:
		return slog.LevelWarn, "its newer format does not follow what was captured; `sessions accept` captures it from its beginning"
	}
	return slog.LevelWarn, "its ledger is not understood from here on; it is tried again when it changes"
}

// shown names a ledger in the log: without the directories above the session's
// own, since those of projects are made of people's paths.
func shown(path string) string {
	return "…/" + filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
}

// told is an error's text, which may name the file, for the log.
func told(err error, path string) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), path, shown(path))
}

// makeWay closes half of the sessions that are open at rest, which have the file
// descriptors that others need, and keeps fewer open from now on. The caller holds mu.
func (k *keeper) makeWay() {
	n := len(k.awake)
	if most := max(leastAwake, n/2); most < k.mostAwake {
		k.mostAwake = most
		k.log.Warn("too few file descriptors: fewer sessions stay open, and reading them takes longer", "sessions", most)
	}
	for range (n + 1) / 2 {
		k.releaseOldest()
	}
}

func (k *keeper) releaseOldest() {
	var oldest *target
	for t, since := range k.awake {
		if oldest == nil || since.Before(k.awake[oldest]) {
			oldest = t
		}
	}
	delete(k.awake, oldest)
	oldest.puller.Release()
}

// tend lets go of sessions that are quiet and tries again what is due.
func (k *keeper) tend(ctx context.Context) {
	tick, gone := time.NewTicker(retryAfter), time.NewTicker(lingerEvery)
	defer tick.Stop()
	defer gone.Stop()
	var lost int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone.C:
			k.mu.Lock()
			if len(k.lingering) > 0 {
				k.leaving, k.lingering = append(k.leaving, k.lingering...), nil
				k.signal.Broadcast()
			}
			k.mu.Unlock()
			continue
		case <-tick.C:
		}
		before := lost
		if k.lost != nil {
			lost = k.lost()
		}
		k.mu.Lock()
		now := time.Now()
		if lost > before {
			for _, t := range k.targets {
				k.enqueue(t)
			}
		}
		for t, since := range k.awake {
			if now.Sub(since) >= restAfter {
				delete(k.awake, t)
				t.puller.Release()
			}
		}
		for _, t := range k.targets {
			switch {
			case !t.retry.IsZero() && now.After(t.retry):
				k.enqueue(t)
			case !t.idle && k.idles(t):
				t.idle = true
				k.enqueue(t)
			}
		}
		k.mu.Unlock()
	}
}

// idles tells whether a session has not grown for long.
func (k *keeper) idles(t *target) bool {
	return k.idleAfter > 0 && !t.grown.IsZero() && time.Since(t.grown) >= k.idleAfter
}

// errNoSession says that no ledger of a session is known here.
var errNoSession = errors.New("no ledger of that session is below the sources")

// do lets an operation have a session between two pulls, and has it pulled
// afterwards.
func (k *keeper) do(ctx context.Context, session string, op func(p puller) error) error {
	defer k.wakeAtEnd(ctx)()
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.named(session)
	for t != nil && !t.gone && t.running && ctx.Err() == nil {
		k.signal.Wait()
	}
	switch {
	case t == nil || t.gone:
		return errNoSession
	case ctx.Err() != nil:
		return ctx.Err()
	}
	t.again = k.unqueue(t)
	t.running = true
	k.running++
	delete(k.awake, t)
	k.mu.Unlock()
	err := op(t.puller)
	k.mu.Lock()
	t.running = false
	k.running--
	// What became of the ledger the pull tells; an error is the operation's alone.
	switch {
	case t.gone:
		k.close(t)
	case err == nil || t.again:
		k.enqueue(t)
	}
	k.signal.Broadcast()
	return err
}

// named finds a session by its id, as records have it or as the ledger has it.
// The caller holds mu.
func (k *keeper) named(session string) *target {
	for _, t := range k.targets {
		if t.name == session && session != "" {
			return t
		}
	}
	return k.byID[session]
}

// settled waits until nothing is in line or being pulled.
func (k *keeper) settled(ctx context.Context) {
	defer k.wakeAtEnd(ctx)()
	k.mu.Lock()
	defer k.mu.Unlock()
	for (len(k.queue) > 0 || len(k.leaving) > 0 || k.running > 0) && ctx.Err() == nil {
		k.signal.Wait()
	}
}

// source finds the ledger of a session by its id.
func (k *keeper) source(id string) (path string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.byID[id]
	if t == nil || t.gone {
		return "", false
	}
	return t.path, true
}

// counts tells how many ledgers there are, and how many are held.
func (k *keeper) counts() (all, held int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.targets {
		if t.held != "" {
			held++
		}
	}
	return len(k.targets), held
}

// beyond counts the events that wait for feedback.
func (k *keeper) beyond() (n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.targets {
		n += t.beyond
	}
	return n
}

// waitForOperator counts the ledgers that are held until an operator says so.
func (k *keeper) waitForOperator() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, t := range k.targets {
		switch t.held {
		case telemetry.CodeOperator, telemetry.CodeDiverged, telemetry.CodeGeneration:
			n++
		}
	}
	return n
}
