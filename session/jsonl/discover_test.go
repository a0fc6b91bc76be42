package jsonl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDirectoryNamesAreThoseOfTheReference(t *testing.T) {
	str := func(s string) *string { return &s }
	for _, c := range []struct {
		cwd  *string
		want string
	}{
		{nil, "_no-cwd"},
		{str("/home/jane.doe/projects/demo app"), "--home-jane.doe-projects-demo~0020app--"},
		{str(`C:\Users\x`), "--C-Users-x--"},
		{str("/"), "--root--"},
		{str("/a//b/"), "--a-b---"},
		{str("/会~"), "--~4F1A~007E--"},
		{str("/" + strings.Repeat("a", 300)), "--" + strings.Repeat("a", 251) + "--"},
	} {
		if got := ProjectDir(c.cwd); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	for id, want := range map[string]string{
		"lab-unicode-会话/😀:..": "lab-unicode-~4F1A~8BDD~002F~D83D~DE00~003A..",
		"a~b":                 "a~007Eb", ".": "~002E", "..": "~002E~002E", "": "", "x.y_z-1": "x.y_z-1",
	} {
		if got := SessionDir(id); got != want {
			t.Errorf("%q gives %s, want %s", id, got, want)
		}
		if back, ok := IDOfDir(want); !ok || back != id {
			t.Errorf("%s gives %q, %v", want, back, ok)
		}
	}
	for _, name := range []string{"a b", "~12", "~00e9", "~zzzz", "~0041", "é", "~D83D", "."} {
		if id, ok := IDOfDir(name); ok {
			t.Errorf("%q gave %q", name, id)
		}
	}
}

func FuzzSessionDirIsOneToOne(f *testing.F) {
	f.Add("lab/😀")
	f.Fuzz(func(t *testing.T, id string) {
		id = strings.ToValidUTF8(id, "\uFFFD")
		dir := SessionDir(id)
		if back, ok := IDOfDir(dir); !ok || back != id || strings.ContainsAny(dir, "/\\:\x00") {
			t.Fatalf("%q -> %q -> %q, %v", id, dir, back, ok)
		}
	})
}

func TestFileNames(t *testing.T) {
	for name, want := range map[string]Name{
		"session.jsonl": {}, "session.jsonl.zstd": {Zstd: true}, "session.v1.jsonl": {Generation: 1}, "session.v12.jsonl.zstd": {Generation: 12, Zstd: true},
	} {
		if got, ok := ParseName(name); !ok || got != want || got.String() != name {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	for _, name := range []string{
		"session.lock", "session.jsonl.0123456789ab.tmp", "session.jsonl.zstd.0123456789ab.tmp", "session.migration.0123456789abcdef.jsonl.tmp",
		"session.migration.0123456789abcdef.jsonl", "session.v0.jsonl", "session.v01.jsonl", "session.v.jsonl", "session.v+1.jsonl", "session.v1.zstd", "xsession.jsonl", "session.jsonl.gz",
		"session.v99999999999999999999.jsonl", "session",
	} {
		if n, ok := ParseName(name); ok {
			t.Errorf("%s was taken as %+v", name, n)
		}
	}
	if !IsTemporary("session.lock") || !IsTemporary("session.migration.0123456789abcdef.jsonl.zstd.tmp") || IsTemporary("session.jsonl") {
		t.Error("temporary names")
	}
}

func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for i, name := range names {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1_700_000_000+int64(i), 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func names(t *testing.T, root string, ledgers []Ledger) string {
	t.Helper()
	var out []string
	for _, l := range ledgers {
		rel, err := filepath.Rel(root, l.Path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, filepath.ToSlash(rel))
	}
	return strings.Join(out, " ")
}

func TestDiscoverRootTakesTheHighestGenerationOfEachSession(t *testing.T) {
	root := tree(t,
		"--p--/a/session.jsonl.zstd", "--p--/a/session.v2.jsonl.zstd", "--p--/a/session.v10.jsonl.zstd", "--p--/a/session.lock",
		"--p--/b~002F/session.jsonl.zstd", "--p--/b~002F/session.jsonl.zstd.0123456789ab.tmp",
		"--p--/tmp-only/session.jsonl.0123456789ab.tmp", "--p--/empty/x.jsonl", "_no-cwd/c/session.v1.jsonl.zstd",
		"stray.jsonl", "--p--/stray.jsonl",
	)
	got, err := DiscoverRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	if want := "--p--/a/session.v10.jsonl.zstd --p--/b~002F/session.jsonl.zstd _no-cwd/c/session.v1.jsonl.zstd"; names(t, root, got) != want {
		t.Errorf("%s\nwant %s", names(t, root, got), want)
	}
	if len(got[0].Passed) != 2 || got[0].Project != "--p--" || got[1].ID != "b/" || got[0].Name.Generation != 10 {
		t.Errorf("%+v", got)
	}
}

func TestOneSessionInBothEncodingsIsOneSession(t *testing.T) {
	// The rest of the root decides.
	root := tree(t, "p/a/session.jsonl.zstd", "p/a/session.jsonl", "p/b/session.jsonl.zstd")
	got, err := DiscoverRoot(root)
	if err != nil || names(t, root, got) != "p/a/session.jsonl.zstd p/b/session.jsonl.zstd" || len(got[0].Passed) != 1 {
		t.Errorf("%s, %v", names(t, root, got), err)
	}
	// Nothing else is there: the one written last.
	root = tree(t, "p/a/session.jsonl.zstd", "p/a/session.jsonl")
	if got, err = DiscoverRoot(root); err != nil || names(t, root, got) != "p/a/session.jsonl" {
		t.Errorf("%s, %v", names(t, root, got), err)
	}
}

func TestMixedRootIsToldByName(t *testing.T) {
	root := tree(t, "p/a/session.jsonl.zstd", "p/b/session.jsonl")
	got, err := DiscoverRoot(root)
	var mixed *MixedRootError
	if !errors.As(err, &mixed) || mixed.Root != root || len(got) != 2 {
		t.Errorf("%v, %d ledgers", err, len(got))
	}
}

func TestDiscoverTakesFilesAsTheyAreAndTreesWhole(t *testing.T) {
	root := tree(t, "a.jsonl", "deep/er/b.jsonl.zstd", "deep/er/b.jsonl", "notes.txt", "c.jsonl.tmp",
		"p/s/session.jsonl", "p/s/session.v1.jsonl", "odd.name")
	got, err := Discover(root, filepath.Join(root, "odd.name"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "a.jsonl deep/er/b.jsonl deep/er/b.jsonl.zstd p/s/session.v1.jsonl odd.name"; names(t, root, got) != want {
		t.Errorf("%s\nwant %s", names(t, root, got), want)
	}
	if got, err := Discover(filepath.Join(root, "absent"), filepath.Join(root, "a.jsonl")); err == nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
