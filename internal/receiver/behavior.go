package receiver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// ErrBehavior is what every error of [ParseBehavior] wraps.
var ErrBehavior = errors.New("unknown receiver behaviour")

// Kind is the shape of an answer.
type Kind uint8

// The shapes. Only OK, Partial and Lost keep records.
const (
	OK      Kind = iota // keep, then 200 (or another 2xx) with an OTLP answer
	Refuse              // answer Status, keep nothing
	Partial             // keep all but the last Rejected records and say so
	Hang                // read the request, never answer
	Reset               // reset the connection without an answer
	Lost                // keep, then reset the connection: the answer is lost
	HTML                // 200 with a login page
	Drip                // 200 whose body comes a byte at a time and never ends
	Endless             // 200 whose body never ends
)

// Encoding is the form of an OTLP answer.
type Encoding uint8

// The forms. ByRequest answers a JSON request in JSON, another in protobuf.
const (
	ByRequest Encoding = iota
	JSON
	Charset // protobuf, with a charset parameter on its media type
)

// Behavior is one answer. The zero value accepts.
type Behavior struct {
	Kind       Kind
	Status     int      // of Refuse; a 2xx of OK (0: 200)
	RetryAfter string   // value of the Retry-After header, empty: none
	Message    string   // receiver's words; empty: a default for the kind
	Rejected   int64    // of Partial: how many of the request's records are refused
	Encoding   Encoding // of an OTLP answer
	Location   string   // of a redirect
	If         string   // applies only to requests whose decoded bytes hold it
	Over       int64    // applies only to requests with more decoded bytes
}

// ParseBehavior reads the forms of `sink --respond`:
//
//	ok | 204                      accept
//	503 | 429:retry-after=2       refuse with that status
//	400:message=TEXT              refuse with these words
//	302 | 302:location=URL        redirect
//	400-if=TEXT                   refuse requests that hold TEXT
//	413-over=BYTES                refuse larger requests (decoded bytes; KiB, MiB)
//	partial=3                     partial success; :json, :charset, :message=TEXT
//	warn=TEXT                     accept with a warning (partial success, none rejected)
//	hang | reset | lost | html | drip | endless
//
// Options after the first colon may be combined; message and location take
// the rest of the text.
func ParseBehavior(spec string) (Behavior, error) {
	var b Behavior
	switch spec {
	case "ok":
		return b, nil
	case "hang":
		b.Kind = Hang
		return b, nil
	case "reset":
		b.Kind = Reset
		return b, nil
	case "lost":
		b.Kind = Lost
		return b, nil
	case "html":
		b.Kind = HTML
		return b, nil
	case "drip":
		b.Kind = Drip
		return b, nil
	case "endless":
		b.Kind = Endless
		return b, nil
	}
	if text, ok := strings.CutPrefix(spec, "warn="); ok {
		if text == "" {
			return b, badBehavior(spec, "warn needs a text")
		}
		b.Kind, b.Message = Partial, text
		return b, nil
	}
	if rest, ok := strings.CutPrefix(spec, "partial="); ok {
		num, opts, _ := strings.Cut(rest, ":")
		n, err := strconv.ParseInt(num, 10, 64)
		if err != nil || n < 1 {
			return b, badBehavior(spec, "partial needs a number of records, at least 1")
		}
		b.Kind, b.Rejected = Partial, n
		return b, b.options(spec, opts)
	}
	return parseStatus(spec)
}

func parseStatus(spec string) (Behavior, error) {
	var b Behavior
	if len(spec) < 3 {
		return b, badBehavior(spec, "want a status or a word")
	}
	status, err := strconv.Atoi(spec[:3])
	if err != nil || status < 200 || status > 599 {
		return b, badBehavior(spec, "want a status between 200 and 599 or a word")
	}
	b.Kind, b.Status = Refuse, status
	if status < 300 {
		b.Kind = OK
	}
	rest := spec[3:]
	switch {
	case rest == "":
		return b, nil
	case strings.HasPrefix(rest, ":"):
		return b, b.options(spec, rest[1:])
	case b.Kind == OK:
		return b, badBehavior(spec, "a condition needs a refusing status")
	}
	if text, ok := strings.CutPrefix(rest, "-if="); ok {
		if text == "" {
			return b, badBehavior(spec, "if needs a text")
		}
		b.If = text
		return b, nil
	}
	if size, ok := strings.CutPrefix(rest, "-over="); ok {
		if b.Over, err = parseSize(size); err != nil {
			return b, badBehavior(spec, "over needs a size in bytes, KiB or MiB, at least 1")
		}
		return b, nil
	}
	return b, badBehavior(spec, "after a status come :options, -if=TEXT or -over=BYTES")
}

// options reads what stands after the first colon of spec.
func (b *Behavior) options(spec, opts string) error {
	for opts != "" {
		if v, ok := strings.CutPrefix(opts, "message="); ok {
			b.Message = v
			return nil
		}
		if v, ok := strings.CutPrefix(opts, "location="); ok {
			b.Location = v
			return nil
		}
		if v, ok := strings.CutPrefix(opts, "retry-after="); ok {
			// An HTTP date holds colons: it is taken to its end, "GMT".
			if i := strings.Index(v, "GMT"); i >= 0 {
				b.RetryAfter, opts = v[:i+3], strings.TrimPrefix(v[i+3:], ":")
			} else {
				b.RetryAfter, opts, _ = strings.Cut(v, ":")
			}
			if !validRetryAfter(b.RetryAfter) {
				return badBehavior(spec, "retry-after needs whole seconds or an HTTP date")
			}
			continue
		}
		var word string
		word, opts, _ = strings.Cut(opts, ":")
		switch {
		case word == "json" && b.Kind == Partial:
			b.Encoding = JSON
		case word == "charset" && b.Kind == Partial:
			b.Encoding = Charset
		default:
			return badBehavior(spec, fmt.Sprintf("option %q is not one of retry-after=, message=, location=, json, charset", word))
		}
	}
	return nil
}

func validRetryAfter(v string) bool {
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return n >= 0
	}
	_, err := http.ParseTime(v)
	return err == nil
}

func parseSize(s string) (int64, error) {
	unit := int64(1)
	if v, ok := strings.CutSuffix(s, "MiB"); ok {
		s, unit = v, 1<<20
	} else if v, ok := strings.CutSuffix(s, "KiB"); ok {
		s, unit = v, 1<<10
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > (1<<40)/unit {
		return 0, ErrBehavior
	}
	return n * unit, nil
}

func badBehavior(spec, why string) error {
	return fmt.Errorf("%w %q: %s", ErrBehavior, spec, why)
}
