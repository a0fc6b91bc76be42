package jsonl

import (
	"os"
	"path/filepath"
	"testing"
)

// shared finds a file of the folder that lies beside the module, and skips the
// test where that folder is absent.
func shared(t testing.TB, elem ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		path := filepath.Join(append([]string{dir, "shared"}, elem...)...)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if dir == filepath.Dir(dir) {
			t.Skipf("shared/%s is not beside the module", filepath.Join(elem...))
		}
		dir = filepath.Dir(dir)
	}
}
