package outbox

import (
	"io"
	"os"
	"strings"
)

// osFS is the operating system's file system.
type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f osFile) Sync() error { return datasync(f.File) }

func (osFS) MkdirAll(dir string, perm os.FileMode) error { return os.MkdirAll(dir, perm) }

func (osFS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) ReadDir(dir string) ([]string, error) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(es))
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) SyncDir(dir string) error     { return syncDir(dir) }

func (osFS) Lock(name, text string) (func() error, string, bool, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, "", false, err
	}
	held, err := lockFile(f)
	if err != nil || held {
		b, _ := io.ReadAll(io.LimitReader(f, 1024))
		f.Close()
		return nil, strings.TrimSpace(string(b)), held, err
	}
	// The text only helps a human; a full disk must not keep the outbox shut.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(text+"\n"), 0)
	}
	return f.Close, "", false, nil
}
