package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// Looking at everything takes at most this share of one core, and happens at
// least and at most so often: quickly where nothing else tells of changes, as a
// safety net where the system's notifications do.
const (
	scanShare   = 200 // pause after a scan, in scans
	pollFastest = time.Second
	netFastest  = 15 * time.Second
	scanSlowest = 5 * time.Minute
	lookAgain   = time.Second // until notifications of a move have come
)

// stamp is what a look at a file without reading it tells.
type stamp struct {
	size int64
	mod  time.Time
}

func stampOf(path string) (stamp, error) {
	st, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{size: st.Size(), mod: st.ModTime()}, nil
}

// watcher finds the ledgers below a DSH sessions root and tells which of them
// may have changed.
//
//	fsnotify event ──▶ the session's directory is looked at ──┐
//	                                                          ├──▶ changed(ledger)
//	scan of the root, now and then ─────────────────────────────┘
//
// The system's notifications are used as long as they work. When a watch is
// refused (limits), or a scan finds a change that nothing told of (a shared
// volume that another machine writes to), scanning alone has to do, more often;
// the log says so.
type watcher struct {
	root string
	log  *slog.Logger
	// changed is told of ledgers that are new or not as they were; those of one
	// look come together, so that parents can go first.
	changed func([]jsonl.Ledger)
	// removed is told of files that are gone, moved of those that have another name
	// in their directory now.
	removed func(path string)
	moved   func(path, now string)

	notify *fsnotify.Watcher // nil while polling
	seen   map[string]stamp  // by path of the file
	// events counts what a ledger has; nil leaves the choice between two encodings of
	// a session to jsonl.
	events func(path string) int64
	longer map[string]contest // by session directory
	untold map[string]bool    // session directories in which a scan found what no notification had told of
	again  bool               // look at everything soon
	warned map[string]bool    // messages that are said once
	// scanned counts complete scans; tests wait for it.
	scanned func()
}

func newWatcher(root string, log *slog.Logger, changed func([]jsonl.Ledger)) *watcher {
	return &watcher{root: filepath.Clean(root), log: log, removed: func(string) {}, moved: func(string, string) {}, changed: changed, seen: map[string]stamp{}, longer: map[string]contest{}, untold: map[string]bool{}, warned: map[string]bool{}, scanned: func() {}}
}

// run looks and listens until ctx ends.
func (w *watcher) run(ctx context.Context) {
	w.startNotify()
	defer w.closeNotify()

	pause := w.scanAll(false)
	if len(w.seen) == 0 && Misplaced(w.root) {
		w.log.Warn("the sessions root has session files, but none at PROJECT/SESSION/session.jsonl; they are not read", "path", w.root)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		var events chan fsnotify.Event
		var errs chan error
		if w.notify != nil {
			events, errs = w.notify.Events, w.notify.Errors
		}
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errNoLook) {
				w.scanRoot(map[string]bool{}) // what was written in the last moment
			}
			return
		case e, ok := <-events:
			before := w.again
			if ok {
				w.event(e)
			}
			if w.again && !before {
				timer.Reset(lookAgain)
			}
			continue
		case err, ok := <-errs:
			if !ok {
				continue
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.poll("file notifications fail", err)
			}
			// Events were lost: look at everything now.
			pause = w.scanAll(false)
		case <-timer.C:
			pause = w.scanAll(!w.again)
			w.again = false
		}
		if !timer.Stop() {
			select {
			case <-timer.C:
			default:
			}
		}
		timer.Reset(pause)
	}
}

// Misplaced tells whether a root has ledgers, but only where DSH puts none: they
// can be exported by name, and are not watched.
func Misplaced(root string) bool {
	if placed, err := jsonl.DiscoverRoot(root); err != nil || len(placed) > 0 {
		return false
	}
	all, _ := jsonl.Discover(root) // what cannot be read is said elsewhere
	return len(all) > 0
}

func (w *watcher) startNotify() {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		w.poll("the system gives no file notifications", err)
		return
	}
	w.notify = n
}

func (w *watcher) closeNotify() {
	if w.notify == nil {
		return
	}
	if err := w.notify.Close(); err != nil {
		w.log.Warn("closing file notifications failed", "error", err)
	}
	w.notify = nil
}

// poll goes over to scanning alone, for good.
func (w *watcher) poll(why string, err error) {
	args := []any{"reason", why}
	if err != nil {
		args = append(args, "error", err)
	}
	w.log.Warn("sessions are found by polling from now on", args...)
	w.closeNotify()
}

func (w *watcher) once(msg string, args ...any) {
	if !w.warned[msg] {
		w.warned[msg] = true
		w.log.Warn(msg, args...)
	}
}

// scanAll looks at the whole root and returns how long to wait until the next time.
// late is true for a scan in whose absence notifications should have told of
// every change.
func (w *watcher) scanAll(late bool) time.Duration {
	begin := time.Now()
	if late && len(w.untold) > 0 && w.notify != nil {
		w.poll("a change was found that file notifications did not tell of", nil)
	}
	present := make(map[string]bool, len(w.seen))
	changed := w.scanRoot(present)
	if late && w.notify != nil {
		// The notification may be on its way: the next scan judges.
		for _, l := range changed {
			w.untold[filepath.Dir(l.Path)] = true
		}
	}
	for path := range w.seen {
		if !present[path] {
			w.gone(path)
		}
	}
	w.scanned()
	fastest := netFastest
	if w.notify == nil {
		fastest = pollFastest
	}
	return min(max(time.Since(begin)*scanShare, fastest), scanSlowest)
}

// scanRoot returns what was new or changed.
func (w *watcher) scanRoot(present map[string]bool) []jsonl.Ledger {
	w.watchTree(w.root, 2)
	ledgers, err := jsonl.DiscoverRoot(w.root)
	if err != nil {
		w.discoverError(err)
	}
	for i := range ledgers {
		w.choose(&ledgers[i])
		present[ledgers[i].Path] = true
	}
	return w.look(ledgers)
}

// contest is what a choice between two files rests on.
type contest struct {
	files  [2]string
	stamps [2]stamp
	winner string
}

// choose takes of the two encodings of a session the one that has more: one of
// them may still be written, by whoever compresses or unpacks it.
func (w *watcher) choose(l *jsonl.Ledger) {
	if w.events == nil || len(l.Passed) == 0 {
		return
	}
	other := l.Passed[0]
	if n, ok := jsonl.ParseName(filepath.Base(other)); !ok || n.Generation != l.Name.Generation {
		return
	}
	c := contest{files: [2]string{l.Path, other}, winner: l.Path}
	for i, path := range c.files {
		var err error
		if c.stamps[i], err = stampOf(path); err != nil {
			return // the next look knows
		}
	}
	dir := filepath.Dir(l.Path)
	if old := w.longer[dir]; old.files == c.files && old.stamps == c.stamps {
		c.winner = old.winner
	} else if w.events(other) > w.events(l.Path) {
		c.winner = other
	}
	w.longer[dir] = c
	if c.winner == other {
		n, _ := jsonl.ParseName(filepath.Base(other))
		l.Path, l.Name, l.Passed[0] = other, n, l.Path
	}
}

func (w *watcher) discoverError(err error) {
	var mixed *jsonl.MixedRootError
	switch {
	case errors.Is(err, os.ErrNotExist):
		w.once("the sessions root is not there; it is waited for", "path", w.root)
	case errors.As(err, &mixed):
		w.once("the sessions root holds sessions in both encodings", "path", w.root)
	default:
		w.log.Warn("a part of the sessions root cannot be read", "path", w.root, "error", err)
	}
}

// look tells of the ledgers that are new or not as they were, and returns them.
func (w *watcher) look(ledgers []jsonl.Ledger) []jsonl.Ledger {
	var changed []jsonl.Ledger
	for _, l := range ledgers {
		s, err := stampOf(l.Path)
		if err != nil {
			continue // gone in this moment; the next scan knows
		}
		if old, known := w.seen[l.Path]; known && old == s {
			continue
		}
		w.seen[l.Path] = s
		changed = append(changed, l)
	}
	if len(changed) > 0 {
		// Many have come at a start: those that are being written go first.
		slices.SortStableFunc(changed, func(a, b jsonl.Ledger) int {
			return w.seen[b.Path].mod.Compare(w.seen[a.Path].mod)
		})
		w.changed(changed)
	}
	return changed
}

// watch asks for notifications about a directory. The root may not be there
// yet: then its nearest parent is watched for it.
func (w *watcher) watch(dir string) {
	if w.notify == nil {
		return
	}
	err := w.notify.Add(dir)
	for errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		err = w.notify.Add(dir)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.poll("a directory cannot be watched (limits of the system, perhaps)", err)
	}
}

// watchTree watches a directory and those below it down to the sessions. It
// comes before looking at files: what appears later is then told of.
func (w *watcher) watchTree(dir string, below int) {
	w.watch(dir)
	if w.notify == nil || below == 0 {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // what cannot be read is said when it is looked at
	}
	for _, e := range entries {
		if e.IsDir() {
			w.watchTree(filepath.Join(dir, e.Name()), below-1)
		}
	}
}

// event looks where something happened.
func (w *watcher) event(e fsnotify.Event) {
	rel, err := filepath.Rel(w.root, e.Name)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		if strings.HasPrefix(w.root, e.Name+string(filepath.Separator)) {
			w.scanRoot(map[string]bool{}) // a parent of the root has appeared
		}
		return
	}
	parts := strings.Split(rel, string(filepath.Separator))
	if len(parts) > 1 {
		delete(w.untold, filepath.Join(w.root, parts[0], parts[1]))
	}
	defer w.lookFor(e) // when the file that has taken its place, if any, is known
	switch {
	case rel == ".":
		w.scanRoot(map[string]bool{})
	case len(parts) == 1:
		w.scanDir(e.Name, 1)
	default:
		// Whatever the name: a writer that has opened the file under its temporary
		// one goes on writing under that, as far as notifications tell.
		w.scanDir(filepath.Join(w.root, parts[0], parts[1]), 0)
	}
}

// lookFor tells of files that were removed or renamed, by themselves or with a
// directory above. It is not left to the next scan: their writers may have them open.
func (w *watcher) lookFor(e fsnotify.Event) {
	if !e.Has(fsnotify.Remove | fsnotify.Rename) {
		return
	}
	if _, known := w.seen[e.Name]; known {
		w.lookAt(e.Name)
		return
	}
	// A watch of a directory that moves goes with its old name, even one that was
	// asked for under the new one.
	w.again = w.again || e.Has(fsnotify.Rename)
	below := e.Name + string(filepath.Separator)
	for path := range w.seen {
		if strings.HasPrefix(path, below) {
			w.lookAt(path)
		}
	}
}

func (w *watcher) lookAt(path string) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		w.gone(path)
	}
}

// gone tells of a file that is no session's any more.
func (w *watcher) gone(path string) {
	was := w.seen[path]
	delete(w.seen, path)
	if now := w.renamed(path, was); now != "" {
		w.moved(path, now)
		return
	}
	w.removed(path)
}

// renamed finds the file that was at path under another name in its directory, one
// that is no session's.
func (w *watcher) renamed(path string, was stamp) string {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if _, ours := jsonl.ParseName(e.Name()); ours || !e.Type().IsRegular() {
			continue
		}
		now := filepath.Join(dir, e.Name())
		if s, err := stampOf(now); err == nil && s == was {
			return now
		}
	}
	return ""
}

// scanDir looks at one project or session. What stands there in two encodings
// is judged by the whole root.
func (w *watcher) scanDir(dir string, below int) {
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return // removed, or nothing of ours; the next scan forgets what is gone
	}
	w.watchTree(dir, below)
	ledgers, err := jsonl.Discover(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // removed meanwhile
		w.discoverError(err)
	}
	for _, l := range ledgers {
		for _, passed := range l.Passed {
			if n, ok := jsonl.ParseName(filepath.Base(passed)); ok && n.Generation == l.Name.Generation {
				w.scanRoot(map[string]bool{})
				return
			}
		}
	}
	ours := ledgers[:0]
	for _, l := range ledgers {
		if _, ok := jsonl.ParseName(filepath.Base(l.Path)); ok {
			ours = append(ours, l)
		}
	}
	w.look(ours)
}
