package jsonl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Ledger is a session file that was found.
type Ledger struct {
	// Path is the file.
	Path string
	// Project and Session are the directory names in a root; both are empty
	// for a file that does not stand in a session directory.
	Project, Session string
	// ID is the session id that the directory name says, where it says one.
	// The id that counts is the one in the header.
	ID string
	// Name is what the file's name says, where it is one that DSH gives.
	Name Name
	// Passed lists files of the same session that Path takes the place of:
	// older generations, and the same generation in the other encoding.
	Passed []string
}

// MixedRootError says that sessions of one root are stored in both encodings,
// which the reference refuses to work with.
type MixedRootError struct {
	Root      string
	Raw, Zstd string // one file of each
}

func (e *MixedRootError) Error() string {
	return fmt.Sprintf("%s: a sessions root holds one encoding only, and this one has %s and %s: move the sessions of one encoding to a root of their own",
		e.Root, e.Raw, e.Zstd)
}

// DiscoverRoot finds the sessions of a DSH sessions root,
// <root>/<project>/<session>/session[.vN].jsonl[.zstd]: one ledger a session,
// in the order of their paths. Of a session's files the highest generation
// counts; of two encodings of one generation, the one that the rest of the root
// uses, or else the one written last.
//
// Directories that cannot be read, and a *MixedRootError, are told in the error
// beside what was found; errors.As finds them. Only when the root itself cannot
// be read is there nothing else.
func DiscoverRoot(root string) ([]Ledger, error) {
	projects, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var found []group
	var errs []error
	for _, p := range projects {
		if !p.IsDir() {
			continue
		}
		sessions, err := os.ReadDir(filepath.Join(root, p.Name()))
		if err != nil {
			errs = append(errs, ignoreGone(err))
		}
		for _, s := range sessions {
			if !s.IsDir() {
				continue
			}
			dir := filepath.Join(root, p.Name(), s.Name())
			files, err := os.ReadDir(dir)
			if err != nil {
				errs = append(errs, ignoreGone(err))
			}
			if g := newGroup(dir, files); len(g.files) > 0 {
				g.project, g.session = p.Name(), s.Name()
				found = append(found, g)
			}
		}
	}
	ledgers, mixed := pick(root, found)
	if mixed != nil {
		errs = append(errs, mixed)
	}
	return ledgers, errors.Join(errs...)
}

// Discover finds the ledgers that paths name, in the order of paths. A path
// that is a file is taken as it is. In a directory tree every session directory
// counts as in DiscoverRoot, and every other file that ends in .jsonl or
// .jsonl.zstd is a ledger by itself; temporary names and symbolic links to
// directories are passed over. The error tells paths that cannot be read,
// beside what was found.
func Discover(paths ...string) ([]Ledger, error) {
	var out []Ledger
	var errs []error
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			errs = append(errs, err)
		case info.IsDir():
			found, err := discoverTree(path)
			out = append(out, found...)
			errs = append(errs, err)
		default:
			name, _ := ParseName(filepath.Base(path))
			out = append(out, Ledger{Path: path, Name: name})
		}
	}
	return out, errors.Join(errs...)
}

func discoverTree(root string) ([]Ledger, error) {
	var plain []Ledger
	var groups []group
	var errs []error
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			errs = append(errs, ignoreGone(err))
		}
		if g := newGroup(dir, entries); len(g.files) > 0 {
			g.session = filepath.Base(dir)
			g.project = filepath.Base(filepath.Dir(dir))
			groups = append(groups, g)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.IsDir() {
				walk(path)
				continue
			}
			_, ours := ParseName(e.Name())
			if _, ledger := cutExt(e.Name()); ledger && !ours && isFile(path, e) {
				plain = append(plain, Ledger{Path: path})
			}
		}
	}
	walk(root)
	ledgers, mixed := pick(root, groups)
	if mixed != nil {
		errs = append(errs, mixed)
	}
	ledgers = append(ledgers, plain...)
	slices.SortFunc(ledgers, func(a, b Ledger) int { return strings.Compare(a.Path, b.Path) })
	return ledgers, errors.Join(errs...)
}

// group is one session directory with its session files.
type group struct {
	dir, project, session string
	files                 []Name // highest generation first
}

func newGroup(dir string, entries []fs.DirEntry) group {
	g := group{dir: dir}
	for _, e := range entries {
		if n, ok := ParseName(e.Name()); ok && !e.IsDir() && isFile(filepath.Join(dir, e.Name()), e) {
			g.files = append(g.files, n)
		}
	}
	slices.SortFunc(g.files, func(a, b Name) int { return b.Generation - a.Generation })
	return g
}

func isFile(path string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Type().IsRegular()
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// both tells whether the highest generation is there in both encodings.
func (g *group) both() bool {
	return len(g.files) > 1 && g.files[0].Generation == g.files[1].Generation
}

func (g *group) path(n Name) string { return filepath.Join(g.dir, n.String()) }

// pick chooses one file of each group.
func pick(root string, groups []group) ([]Ledger, *MixedRootError) {
	var raw, zstd string
	var raws, zstds int
	for i := range groups {
		g := &groups[i]
		if g.both() {
			continue
		}
		if g.files[0].Zstd {
			zstd, zstds = g.path(g.files[0]), zstds+1
		} else {
			raw, raws = g.path(g.files[0]), raws+1
		}
	}
	out := make([]Ledger, 0, len(groups))
	for i := range groups {
		g := &groups[i]
		if g.both() && !preferFirst(g, raws, zstds) {
			g.files[0], g.files[1] = g.files[1], g.files[0]
		}
		l := Ledger{Path: g.path(g.files[0]), Project: g.project, Session: g.session, Name: g.files[0]}
		l.ID, _ = IDOfDir(g.session)
		for _, n := range g.files[1:] {
			l.Passed = append(l.Passed, g.path(n))
		}
		out = append(out, l)
	}
	if raws > 0 && zstds > 0 {
		return out, &MixedRootError{Root: root, Raw: raw, Zstd: zstd}
	}
	return out, nil
}

func preferFirst(g *group, raws, zstds int) bool {
	if raws != zstds {
		return g.files[0].Zstd == (zstds > raws)
	}
	a, errA := os.Stat(g.path(g.files[0]))
	b, errB := os.Stat(g.path(g.files[1]))
	if errA != nil || errB != nil {
		return errA == nil
	}
	if !a.ModTime().Equal(b.ModTime()) {
		return a.ModTime().After(b.ModTime())
	}
	return g.files[0].Zstd
}

// ignoreGone drops the error of a directory that was removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
