package config

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// Config is the whole configuration, with every default filled in and every
// path absolute or relative to the working directory.
type Config struct {
	Mode          telemetry.Mode
	FeedbackScope telemetry.FeedbackScope
	CatchUp       bool
	Sources       []Source
	Vocabulary    []EventType
	Redact        Redact
	// GenAI gives records the gen_ai.* attributes too.
	GenAI bool
	// MaxRecordBytes bounds a record's body, MaxLineBytes a ledger line.
	MaxRecordBytes, MaxLineBytes Size
	OnDivergence                 OnDivergence
	Outbox                       Outbox
	Exporter                     Exporter
	Resource                     map[string]string
	SessionIdle                  time.Duration
	ShutdownTimeout              time.Duration
	Admin                        Admin
	Log                          Log
	// Warnings is what is allowed and still has to be said at start.
	Warnings []string
}

// OnDivergence says what a ledger that no longer agrees with what was captured
// does: continue | hold.
type OnDivergence string

// Source is one place where sessions come from.
type Source struct {
	DSH DSHSource
}

// DSHSource is a DSH sessions root.
type DSHSource struct {
	Path string
	// StartAt is beginning or now, for sessions met the first time.
	StartAt string
}

// EventType is an event type that the built-in vocabulary does not have.
type EventType struct {
	Type    string
	Surface bool
}

// Outbox is the data directory.
type Outbox struct {
	Dir     string
	MaxSize Size
}

// Exporter is where records go. Under DISABLED it is left at its defaults:
// nothing of it has been read.
type Exporter struct {
	Endpoint       string
	Headers        map[string]Secret
	HeadersFile    string
	Compression    string // gzip | none
	Body           string // structured | json
	Timeout        time.Duration
	MaxBatch       MaxBatch
	Workers        int
	AllowPlaintext bool
	TLS            TLS
}

// MaxBatch bounds one request.
type MaxBatch struct {
	Records int
	Bytes   Size
}

// TLS names PEM files.
type TLS struct {
	CAFile, CertFile, KeyFile string
}

// Admin is the content-free listener; empty for none.
type Admin struct {
	Listen string
}

// Log is how the program logs to stderr.
type Log struct {
	Level  slog.Level
	Format string // text | json
}

// Secret is a value that formats as a placeholder. Reveal gives it away.
type Secret string

const notShown = "[not shown]"

// String hides the value.
func (Secret) String() string { return notShown }

// GoString hides the value.
func (Secret) GoString() string { return notShown }

// LogValue hides the value.
func (Secret) LogValue() slog.Value { return slog.StringValue(notShown) }

// MarshalText hides the value.
func (Secret) MarshalText() ([]byte, error) { return []byte(notShown), nil }

// Reveal returns the value itself.
func (s Secret) Reveal() string { return string(s) }

// Override is a value for one key that goes before the file: a flag that was
// given, or an OTEL_BRIDGE_* variable.
type Override struct {
	// Key is the dotted configuration key.
	Key string
	// Value is written as in the file; ${…} in it is not expanded.
	Value string
	// From names the flag or variable for messages.
	From string
}

// Options says what to load, and for whom.
type Options struct {
	// File is the path of the YAML file; empty for none.
	File string
	// Overrides go before everything else.
	Overrides []Override
	// LookupEnv is os.LookupEnv where it is nil.
	LookupEnv func(string) (string, bool)
	// NoEndpoint allows a configuration that names no receiver.
	NoEndpoint bool
	// NoTransport leaves the transport settings unread whatever the mode, for
	// commands that send nothing.
	NoTransport bool
	// NoRedaction leaves policies and keys unread, for commands that need none.
	NoRedaction bool
	// NoData leaves open where data is kept, for commands that keep nothing.
	NoData bool
	// AllSections has the transport settings checked under DISABLED too.
	AllSections bool
}

// Load reads and checks the configuration. What is wrong comes as one *Error
// with every problem.
func Load(o Options) (*Config, error) {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	l := &loader{opts: o, cfg: new(Config), base: "."}
	if err := l.load(); err != nil {
		return nil, err
	}
	return l.cfg, nil
}

type loader struct {
	opts     Options
	cfg      *Config
	base     string // directory that relative paths of the file start from
	problems []Problem
	// transport is false under DISABLED: those settings are not read.
	transport bool
	// where remembers which key was set by what, for messages about values
	// that only turn out wrong together.
	where map[string]Problem
	// endpointFromEnv is true when the endpoint came from OTEL_EXPORTER_OTLP_*.
	endpointFromEnv bool
	// credential is a header whose value the file itself holds, "" for none.
	credential string
}

func (l *loader) load() error {
	l.where = make(map[string]Problem)
	setDefaults(l.cfg)

	root, readable := l.readFile()
	modeKnown := l.decideMode(root)
	if !readable {
		return &Error{Problems: l.problems}
	}
	l.transport = !l.opts.NoTransport && (modeKnown && l.cfg.Mode != telemetry.Disabled || l.opts.AllSections)

	if root != nil {
		l.decodeRoot(root)
	}
	l.applyStandardEnv()
	for _, ov := range l.opts.Overrides {
		l.applyOverride(ov)
	}
	l.check()
	if len(l.problems) == 0 {
		return nil
	}
	// The mode stays first, then the file from top to bottom, then the rest.
	rest := l.problems
	if !modeKnown {
		rest = rest[1:]
	}
	slices.SortStableFunc(rest, func(a, b Problem) int {
		return cmp.Compare(l.rank(a), l.rank(b))
	})
	return &Error{Problems: l.problems}
}

func (l *loader) rank(p Problem) int {
	if p.File == l.opts.File && p.Line > 0 {
		return p.Line
	}
	return math.MaxInt
}

// readFile returns the document's root mapping, or nil where there is none;
// ok is false for a file that cannot be understood at all.
func (l *loader) readFile() (root *node, ok bool) {
	if l.opts.File == "" {
		return nil, true
	}
	text, err := os.ReadFile(l.opts.File)
	if err != nil {
		l.add(Problem{File: l.opts.File, Message: "cannot be read: " + reason(err)})
		return nil, false
	}
	l.base = filepath.Dir(l.opts.File)
	text = bytes.TrimPrefix(text, []byte("\uFEFF")) // some editors begin a file with it
	root, problems := parseDocument(l.opts.File, text)
	l.problems = append(l.problems, problems...)
	if root == nil || root.kind == nullNode {
		return nil, len(problems) == 0
	}
	if root.kind != mappingNode {
		l.fail(root, "", "the configuration is a mapping of keys, this is "+root.kind.String())
		return nil, false
	}
	return root, true
}

// decideMode sets the mode from flag, environment or file before any other
// setting is looked at. It returns false for a mode that is not known.
func (l *loader) decideMode(root *node) bool {
	at := Problem{Key: "mode"}
	text, given := "", false
	if root != nil {
		for _, e := range root.entries {
			if e.key == "mode" && e.value.kind == scalarNode {
				at.File, at.Line, at.Column = l.opts.File, e.value.line, e.value.col
				v, _, err := expand(e.value.text, l.opts.LookupEnv)
				if err != nil {
					at.Message = err.Error()
					l.addFirst(at)
					return false
				}
				text, given = v, true
			}
		}
	}
	for _, ov := range l.opts.Overrides {
		if ov.Key == "mode" {
			text, given = ov.Value, true
			at = Problem{File: ov.From}
			break
		}
	}
	if !given {
		return true
	}
	m, err := telemetry.ParseMode(text)
	if err != nil {
		at.Message = "is not a mode; write FULL, FEEDBACK_ONLY or DISABLED"
		l.addFirst(at)
		return false
	}
	l.cfg.Mode = m
	return true
}

func (l *loader) applyOverride(ov Override) {
	if ov.Key == "mode" {
		return // decided already
	}
	f, ok := fieldByKey(ov.Key)
	if !ok || f.at == nil {
		panic("config: no single-valued key " + ov.Key)
	}
	if f.transport() && !l.transport {
		return
	}
	l.where[ov.Key] = Problem{File: ov.From}
	if ov.Key == "exporter.endpoint" {
		l.endpointFromEnv = false
	}
	if err := f.set(l.cfg, ov.Value, ""); err != nil {
		l.add(Problem{File: ov.From, Message: err.Error()})
	}
}

func (l *loader) add(p Problem)      { l.problems = append(l.problems, p) }
func (l *loader) addFirst(p Problem) { l.problems = append([]Problem{p}, l.problems...) }

func (l *loader) fail(n *node, key, msg string) {
	l.add(Problem{File: l.opts.File, Line: n.line, Column: n.col, Key: key, Message: msg})
}

// failAt reports a problem of a key where the key was set, in the file or not.
func (l *loader) failAt(key, format string, args ...any) {
	p := l.where[key]
	p.Key = key
	p.Message = fmt.Sprintf(format, args...)
	l.add(p)
}

func (l *loader) warn(format string, args ...any) {
	l.cfg.Warnings = append(l.cfg.Warnings, fmt.Sprintf(format, args...))
}

// HeaderNames lists the header names, sorted; values are for the wire only.
func (e Exporter) HeaderNames() []string {
	names := make([]string, 0, len(e.Headers))
	for k := range e.Headers {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}
