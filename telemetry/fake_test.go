package telemetry

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeEngine replaces the word SECRET. FAIL makes it fail, PANIC panic, and
// WITHHOLD says that the record must not go out.
type fakeEngine struct{ hash string }

func (e fakeEngine) Hash() string { return "fake:" + e.hash }

func (e fakeEngine) JSON(dst, src []byte, f *Findings) ([]byte, error) {
	out, err := e.Text(nil, string(src), f)
	return append(dst, out...), err
}

func (e fakeEngine) Text(dst []byte, src string, f *Findings) ([]byte, error) {
	switch {
	case strings.Contains(src, "FAIL"):
		return nil, errors.New("failed over " + src)
	case strings.Contains(src, "PANIC"):
		panic(src)
	case strings.Contains(src, "WITHHOLD"):
		f.Withhold = true
	}
	word := "SECRET" + e.hash
	if n := strings.Count(src, word); n > 0 {
		f.Add("fake-secret", int64(n))
	}
	return append(dst, strings.ReplaceAll(src, word, "[REDACTED:fake-secret]")...), nil
}

// shared returns a path in the folder of shared data beside the module, or
// skips the test where that is absent.
func shared(t testing.TB, path string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	full := filepath.Join(dir, "..", "shared", "data", path)
	if _, err := os.Stat(full); err != nil {
		t.Skip("the shared data is not beside the module: " + path)
	}
	return full
}

// holdsSecret reports whether anything that a receiver gets of r has the word.
func holdsSecret(r *Record) bool {
	stored, _ := r.AppendBinary(nil)
	return bytes.Contains(stored, []byte("SECRET"))
}
