package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
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

// watcher finds the ledgers below DSH sessions roots and tells which of them
// may have changed.
//
//	fsnotify event ──▶ the session's directory is looked at ──┐
//	                                                          ├──▶ changed(ledger)
//	scan of a root, now and then ─────────────────────────────┘
//
// The system's notifications are used as long as they work. When a watch is
// refused (limits), or a scan finds a change that nothing told of (a shared
// volume that another machine writes to), scanning alone has to do, more often;
// the log says so.
type watcher struct {
	roots []string
	log   *slog.Logger
	// changed is told of ledgers that are new or not as they were; those of one
	// look come together, so that parents can go first.
	changed func([]jsonl.Ledger)

	notify *fsnotify.Watcher // nil while polling
	seen   map[string]stamp  // by path of the file
	warned map[string]bool   // messages that are said once
	// scanned counts complete scans; tests wait for it.
	scanned func()
}

func newWatcher(roots []string, log *slog.Logger, changed func([]jsonl.Ledger)) *watcher {
	return &watcher{roots: roots, log: log, changed: changed, seen: map[string]stamp{}, warned: map[string]bool{}, scanned: func() {}}
}

// run looks and listens until ctx ends.
func (w *watcher) run(ctx context.Context) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		w.poll("the system gives no file notifications", err)
	}
	w.notify = n
	defer w.closeNotify()

	pause := w.scanAll(false)
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
			return
		case e, ok := <-events:
			if ok {
				w.event(e)
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
			pause = w.scanAll(true)
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

// scanAll looks at every root and returns how long to wait until the next time.
// late is true for a scan in whose absence notifications should have told of
// every change.
func (w *watcher) scanAll(late bool) time.Duration {
	begin := time.Now()
	missed := false
	present := make(map[string]bool, len(w.seen))
	for _, root := range w.roots {
		if w.scanRoot(root, present) {
			missed = true
		}
	}
	for path := range w.seen {
		if !present[path] {
			delete(w.seen, path)
		}
	}
	if missed && late && w.notify != nil {
		w.poll("a change was found that file notifications did not tell of", nil)
	}
	w.scanned()
	fastest := netFastest
	if w.notify == nil {
		fastest = pollFastest
	}
	return min(max(time.Since(begin)*scanShare, fastest), scanSlowest)
}

// scanRoot reports whether something was new or changed.
func (w *watcher) scanRoot(root string, present map[string]bool) bool {
	w.watch(root)
	ledgers, err := jsonl.DiscoverRoot(root)
	if err != nil {
		w.discoverError(root, err)
	}
	for _, l := range ledgers {
		dir := filepath.Dir(l.Path)
		w.watch(filepath.Dir(dir))
		w.watch(dir)
		present[l.Path] = true
	}
	return w.look(ledgers)
}

func (w *watcher) discoverError(root string, err error) {
	var mixed *jsonl.MixedRootError
	switch {
	case errors.Is(err, os.ErrNotExist):
		w.once("sessions root "+root+" is not there yet", "path", root)
	case errors.As(err, &mixed):
		w.once("sessions root "+root+" holds both encodings", "path", root)
	default:
		w.log.Warn("a part of a sessions root cannot be read", "path", root, "error", err)
	}
}

// look tells of ledgers that are new or not as they were, and whether there
// were any.
func (w *watcher) look(ledgers []jsonl.Ledger) bool {
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
		w.changed(changed)
	}
	return len(changed) > 0
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

// event looks where something happened.
func (w *watcher) event(e fsnotify.Event) {
	for _, root := range w.roots {
		rel, err := filepath.Rel(root, e.Name)
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			if strings.HasPrefix(root, e.Name+string(filepath.Separator)) {
				w.scanRoot(root, map[string]bool{}) // a parent of the root has appeared
			}
			continue
		}
		parts := strings.Split(rel, string(filepath.Separator))
		if rel == "." || len(parts) < 2 || e.Has(fsnotify.Create) && len(parts) == 2 {
			w.scanDir(root, filepath.Join(root, parts[0]))
			continue
		}
		if len(parts) == 3 && jsonl.IsTemporary(parts[2]) {
			continue
		}
		w.scanDir(root, filepath.Join(root, parts[0], parts[1]))
	}
}

// scanDir looks at one project or session. What stands there in two encodings
// is judged by the whole root.
func (w *watcher) scanDir(root, dir string) {
	ledgers, err := jsonl.Discover(dir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return // removed; the next scan forgets it
		}
		w.discoverError(root, err)
	}
	for _, l := range ledgers {
		for _, passed := range l.Passed {
			if n, ok := jsonl.ParseName(filepath.Base(passed)); ok && n.Generation == l.Name.Generation {
				w.scanRoot(root, map[string]bool{})
				return
			}
		}
	}
	w.watch(dir)
	ours := ledgers[:0]
	for _, l := range ledgers {
		if _, ok := jsonl.ParseName(filepath.Base(l.Path)); ok {
			w.watch(filepath.Dir(l.Path))
			ours = append(ours, l)
		}
	}
	w.look(ours)
}
