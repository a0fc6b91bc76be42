package session

import (
	"errors"
	"strings"
	"testing"
)

// A version that is refused is called what the header calls it, and what is wrong
// with it: a fraction is not "newer", and what is no number has no version.
func TestRefusedVersionsAreNamedAsTheyStand(t *testing.T) {
	for version, c := range map[string]struct {
		newer bool
		want  string // "" where the header is taken
	}{
		"4.5":                  {true, "session format version 4.5 is not an integer"},
		"2.5":                  {false, "session format version 2.5 is not an integer"},
		"-0.5":                 {false, "session format version -0.5 is not an integer"},
		"5":                    {true, "session format version 5 is newer than this program reads; use a newer one"},
		"-1":                   {false, "session format version -1 is not one that this program reads"},
		"99999999999999999999": {true, "session format version 99999999999999999999 is newer than this program reads; use a newer one"},
		"1e400":                {true, "session format version 1e400 is newer than this program reads; use a newer one"},
		"-1e400":               {false, "session format version -1e400 is not one that this program reads"},
		"4.0":                  {},
		"4e0":                  {},
		`"4"`:                  {false, "session header: header-shape: version: want a number"},
		"null":                 {false, "session header: header-shape: version: want a number"},
		"true":                 {false, "session header: header-shape: version: want a number"},
		"[4]":                  {false, "session header: header-shape: version: want a number"},
	} {
		_, _, err := ParseHeader([]byte(`{"type":"session","version":` + version + `,"id":"s","createdAt":1,"isSeeded":false,"delegationDepth":0}`))
		var unsupported *UnsupportedVersionError
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%s: %v, want %q", version, err, c.want)
		case errors.As(err, &unsupported) && unsupported.Newer != c.newer:
			t.Errorf("%s: newer %v", version, unsupported.Newer)
		}
	}
	if _, _, err := ParseHeader([]byte(`{"type":"session","id":"s"}`)); err == nil || err.Error() != "session header: header-shape: version: missing" {
		t.Errorf("no version: %v", err)
	}
	// A literal may be as long as the line; the error is not.
	_, _, err := ParseHeader([]byte(`{"version":1.` + strings.Repeat("7", 1000) + `}`))
	if err == nil || len(err.Error()) > 120 {
		t.Errorf("%v", err)
	}
}
