package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// spooled is where stdin went that was named - among paths: ledgers are read
// several times, so it is copied to a private file first. Where the system lets an
// open file be opened again without its name, it has none: nothing of it stays
// behind, however the program ends.
type spooled struct {
	path string // "" where stdin was not named
	file *os.File
}

// spool replaces - by the file that stdin is copied to.
func (a *app) spool(args []string) ([]string, *spooled, error) {
	s := &spooled{}
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = arg
		if arg != "-" {
			continue
		}
		if s.path != "" {
			return nil, s, errors.Join(usagef("- is named twice, and there is one stdin"), s.remove())
		}
		if err := s.make(); err != nil {
			return nil, s, err
		}
		out[i] = s.path
		if _, err := io.Copy(s.file, a.stdin); err != nil {
			return nil, s, errors.Join(fmt.Errorf("stdin: %w", err), s.remove())
		}
	}
	return out, s, nil
}

// make makes the file.
func (s *spooled) make() (err error) {
	if s.file, err = os.CreateTemp("", "otel-bridge-stdin-"); err != nil { // mode 0600
		return err
	}
	s.path = s.file.Name()
	// Linux. Elsewhere there is no such path, or it does not open anew.
	open := fmt.Sprintf("/proc/self/fd/%d", s.file.Fd())
	if to, err := os.Readlink(open); err != nil || to != s.path || os.Remove(s.path) != nil {
		return nil
	}
	s.path = open
	return nil
}

// name is how a path is called in front of people.
func (s *spooled) name(path string) string {
	if s.path != "" {
		return strings.ReplaceAll(path, s.path, "-")
	}
	return path
}

func (s *spooled) remove() error {
	if s.path == "" {
		return nil
	}
	err := s.file.Close()
	if s.path == s.file.Name() {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
