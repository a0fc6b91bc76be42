package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// spooled is where stdin went that was named - among paths: ledgers are read
// several times, so it is copied to a private file first.
type spooled struct {
	path string // "" where stdin was not named
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
		f, err := os.CreateTemp("", "otel-bridge-stdin-") // mode 0600
		if err != nil {
			return nil, s, err
		}
		s.path, out[i] = f.Name(), f.Name()
		_, err = io.Copy(f, a.stdin)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, s, errors.Join(fmt.Errorf("stdin: %w", err), s.remove())
		}
	}
	return out, s, nil
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
	return os.Remove(s.path)
}
