package cli

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestStdinIsKeptForSeveralReadingsAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	names := func() []os.DirEntry {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	a := newApp(strings.NewReader("a ledger"), nil, nil, nil)
	paths, s, err := a.spool([]string{"x", "-"})
	if err != nil || paths[0] != "x" || s.name("in "+paths[1]+" here") != "in - here" {
		t.Fatalf("%v %v", paths, err)
	}
	for range 2 {
		if text, err := os.ReadFile(paths[1]); err != nil || string(text) != "a ledger" {
			t.Errorf("%q %v", text, err)
		}
	}
	if left := names(); runtime.GOOS == "linux" && len(left) > 0 {
		t.Errorf("killed now, the program would leave %v", left)
	}
	if err := s.remove(); err != nil {
		t.Error(err)
	}
	if left := names(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, _, err := newApp(strings.NewReader(""), nil, nil, nil).spool([]string{"-", "-"}); err == nil || len(names()) > 0 {
		t.Errorf("%v, left %v", err, names())
	}
}
