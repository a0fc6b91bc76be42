package receiver

import (
	"errors"
	"testing"
)

func TestParseBehaviorReadsEveryForm(t *testing.T) {
	for spec, want := range map[string]Behavior{
		"ok":                        {},
		"200":                       {Status: 200},
		"204":                       {Status: 204},
		"503":                       {Kind: Refuse, Status: 503},
		"302":                       {Kind: Refuse, Status: 302},
		"302:location=http://a:1/b": {Kind: Refuse, Status: 302, Location: "http://a:1/b"},
		"429:retry-after=2":         {Kind: Refuse, Status: 429, RetryAfter: "2"},
		"429:retry-after=Wed, 21 Oct 2015 07:28:00 GMT":             {Kind: Refuse, Status: 429, RetryAfter: "Wed, 21 Oct 2015 07:28:00 GMT"},
		"503:retry-after=Wed, 21 Oct 2015 07:28:00 GMT:message=a:b": {Kind: Refuse, Status: 503, RetryAfter: "Wed, 21 Oct 2015 07:28:00 GMT", Message: "a:b"},
		"429:retry-after=0:message=slow: down":                      {Kind: Refuse, Status: 429, RetryAfter: "0", Message: "slow: down"},
		"400-if=POISON":                                             {Kind: Refuse, Status: 400, If: "POISON"},
		"400-if=a:b=c":                                              {Kind: Refuse, Status: 400, If: "a:b=c"},
		"413-over=4096":                                             {Kind: Refuse, Status: 413, Over: 4096},
		"400-over=2MiB":                                             {Kind: Refuse, Status: 400, Over: 2 << 20},
		"413-over=3KiB":                                             {Kind: Refuse, Status: 413, Over: 3 << 10},
		"partial=3":                                                 {Kind: Partial, Rejected: 3},
		"partial=3:json":                                            {Kind: Partial, Rejected: 3, Encoding: JSON},
		"partial=3:charset:message=no: room":                        {Kind: Partial, Rejected: 3, Encoding: Charset, Message: "no: room"},
		"warn=old schema":                                           {Kind: Partial, Message: "old schema"},
		"hang":                                                      {Kind: Hang},
		"reset":                                                     {Kind: Reset},
		"lost":                                                      {Kind: Lost},
		"html":                                                      {Kind: HTML},
		"drip":                                                      {Kind: Drip},
		"endless":                                                   {Kind: Endless},
	} {
		got, err := ParseBehavior(spec)
		if err != nil || got != want {
			t.Errorf("ParseBehavior(%q) = %+v, %v, want %+v", spec, got, err, want)
		}
	}
}

func TestParseBehaviorRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, spec := range []string{
		"", "5", "50", "999", "100", "hangs", "OK", "503 ", "503x", "429:retry-after=", "429:retry-after=-1",
		"429:retry-after=soon", "429:retry=2", "partial=", "partial=0", "partial=-1", "partial=x", "partial=3:xml",
		"503:json", "warn=", "400-if=", "413-over=", "413-over=0", "413-over=2GiB", "413-over=99999999999999999MiB", "200-if=x", "204-over=1", "400-unless=x",
	} {
		if b, err := ParseBehavior(spec); !errors.Is(err, ErrBehavior) {
			t.Errorf("ParseBehavior(%q) = %+v, %v, want an error that wraps ErrBehavior", spec, b, err)
		}
	}
}

func FuzzParseBehaviorNeverPanics(f *testing.F) {
	for _, s := range []string{"429:retry-after=2", "partial=3:json", "413-over=1MiB", "400-if=x", "302:location=y", "503:retry-after=Wed, 21 Oct 2015 07:28:00 GMT:message=z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		b, err := ParseBehavior(spec)
		if err == nil && b.Kind == Refuse && (b.Status < 300 || b.Status > 599) {
			t.Fatalf("%q refuses with status %d", spec, b.Status)
		}
	})
}
