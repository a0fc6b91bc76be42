package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// checksPermissions is false where a file's mode does not say who may read it.
const checksPermissions = runtime.GOOS != "windows"

// check fills in what depends on the environment and looks at values together.
func (l *loader) check() {
	l.defaultSource()
	l.defaultDataDir()
	l.checkDataDir()
	l.checkSizes()
	l.checkAdmin()
	l.loadRedaction()
	if l.transport {
		l.checkTransport()
	}
}

func (l *loader) defaultSource() {
	if l.cfg.Sources != nil {
		return
	}
	home, _ := l.opts.LookupEnv("DSH_HOME")
	if home == "" {
		home = "~/.dsh"
	}
	p, err := resolvePath(home, "")
	if err != nil {
		// Nothing to read is a matter for run, not for commands without sources.
		l.warn("sources: no home directory, and DSH_HOME is not set; there is no sessions root")
		return
	}
	l.cfg.Sources = []Source{{DSH: DSHSource{Path: filepath.Join(p, "sessions"), StartAt: "beginning"}}}
}

func (l *loader) defaultDataDir() {
	if l.cfg.Outbox.Dir != "" || l.opts.NoData {
		return
	}
	dir, err := DefaultDataDir(l.opts.LookupEnv)
	if err != nil {
		l.failAt("outbox.dir", "%s", err)
		return
	}
	l.cfg.Outbox.Dir = dir
}

// checkDataDir warns of a data directory that was made by hand and let others
// in; validate refuses it. The path is not told: health pages repeat warnings.
func (l *loader) checkDataDir() {
	if !l.transport || l.opts.NoData || l.opts.AllSections || !checksPermissions {
		return
	}
	st, err := os.Stat(l.cfg.Outbox.Dir)
	if err == nil && st.IsDir() && st.Mode().Perm()&0o077 != 0 {
		l.warn("outbox.dir: the data directory has mode %#o, so others can look into it; chmod 700 it", st.Mode().Perm())
	}
}

// DefaultDataDir is the data directory where none is named: $STATE_DIRECTORY,
// else $XDG_STATE_HOME/otel-bridge, else ~/.local/state/otel-bridge.
func DefaultDataDir(lookup func(string) (string, bool)) (string, error) {
	if v, _ := lookup("STATE_DIRECTORY"); v != "" {
		// systemd separates several with colons; the first is ours.
		if list := filepath.SplitList(v); len(list) > 0 {
			return list[0], nil
		}
	}
	if v, _ := lookup("XDG_STATE_HOME"); filepath.IsAbs(v) {
		return filepath.Join(v, "otel-bridge"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("there is no home directory to keep data in; set outbox.dir or --data-dir")
	}
	return filepath.Join(home, ".local", "state", "otel-bridge"), nil
}

// checkSizes sees to it that a batch with the largest record fits into the outbox,
// which takes batches of up to half its size.
func (l *loader) checkSizes() {
	if l.cfg.Outbox.MaxSize < 4*l.cfg.MaxRecordBytes {
		l.failAt("outbox.max_size", "%s is too small for max_record_bytes %s: four such records have to fit",
			l.cfg.Outbox.MaxSize, l.cfg.MaxRecordBytes)
	}
}

func (l *loader) checkAdmin() {
	if l.cfg.Admin.Listen == "" {
		return
	}
	if _, _, err := net.SplitHostPort(l.cfg.Admin.Listen); err != nil {
		l.failAt("admin.listen", "is not host:port; write such as 127.0.0.1:8321, or \"\" for none")
	}
}

// privateFile says what is wrong with a file that only its owner may read.
func privateFile(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return errors.New("cannot be read: " + reason(err))
	}
	if st.IsDir() {
		return errors.New("is a directory")
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 && checksPermissions {
		return fmt.Errorf("has mode %#o, so others can read it; chmod 600 %s", perm, path)
	}
	return nil
}

// reason is an I/O error without the path, which the message names already.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
