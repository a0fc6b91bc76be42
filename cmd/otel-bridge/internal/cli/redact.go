package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

func (a *app) redact() *cobra.Command {
	var (
		policies []string
		keyFile  string
		report   bool
	)
	c := &cobra.Command{
		Use:   "redact [--policy P]... [--report] [PATH]",
		Short: "Put a file or stdin through the redaction engine",
		Long: `Put a file or stdin (no PATH, or -) through the redaction engine, to stdout. Lines that are JSON objects or
arrays are treated as JSON, one output line each. Everything else is text that may span lines: it is read in windows of
4 MiB, and a window is closed only at a place where looking further changes nothing. A JSON line of more than 64 MiB
is replaced by a marker, and so is one that the engine fails on.

Default policies are those of the configuration: builtin:secrets and builtin:pii.`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := a.configFile(c)
	c.Flags().StringArrayVar(&policies, "policy", nil, "`policy`, built-in by name or a TOML file; may be given again")
	c.Flags().StringVar(&keyFile, "key-file", "", "key `file` for the action token")
	c.Flags().BoolVar(&report, "report", false, "tell rule, path and count on stderr")
	command(c, func(ctx context.Context, args []string) error {
		engine, err := a.engine(flags, policies, keyFile)
		if err != nil {
			return err
		}
		in := a.stdin
		if len(args) == 1 && args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("redact: %w", err)
			}
			defer f.Close()
			in = f
		}
		r := newRedactor(engine, bufio.NewWriterSize(a.stdout, 64<<10))
		if err := r.run(ctx, in); err != nil {
			return fmt.Errorf("redact: %w", err)
		}
		if r.over > 0 {
			fmt.Fprintf(a.stderr, "redact: %d lines that begin like JSON are longer than %s and were withheld\n", r.over, config.Size(jsonLineMax))
		}
		if r.failed > 0 {
			fmt.Fprintf(a.stderr, "redact: the engine failed on %d lines, which were withheld; please report it\n", r.failed)
		}
		if report {
			return a.printFindings(r.findings())
		}
		return nil
	})
	c.AddCommand(a.redactTest())
	return c
}

// engine makes the engine of --policy and --key-file, else of the
// configuration.
func (a *app) engine(flags *configFlags, policies []string, keyFile string) (*redact.Engine, error) {
	if len(policies) == 0 && keyFile == "" {
		cfg, err := flags.load(config.Options{NoTransport: true, NoData: true})
		if err != nil {
			return nil, err
		}
		if cfg.Redact.Engine != nil {
			return cfg.Redact.Engine, nil
		}
		return nil, &exit{exitConfig, errors.New("redact: the configuration says redact: none; name a --policy")}
	}
	if len(policies) == 0 {
		policies = config.DefaultPolicies()
	}
	e, err := config.NewEngine(policies, keyFile)
	if err != nil {
		return nil, &exit{exitConfig, fmt.Errorf("redact: %w", err)}
	}
	return e, nil
}

func (a *app) printFindings(list []redact.Finding) error {
	enc := json.NewEncoder(a.stderr)
	for _, f := range list {
		var err error
		if a.output == "json" {
			err = enc.Encode(f)
		} else {
			_, err = fmt.Fprintf(a.stderr, "%s %s %d\n", f.Rule, cmp.Or(f.Path, "-"), f.Count)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Text is redacted in windows. A window may end only where redacting both
// sides apart gives what redacting them together gives; the glance is how far the
// other side is looked into, and the largest window where looking for a place
// ends.
const (
	windowSize    = 4 << 20
	glanceSize    = 64 << 10
	windowLargest = 64 << 20
	jsonLineMax   = 64 << 20
	readSize      = 256 << 10
	maxFindings   = 10_000
)

var errWindow = fmt.Errorf("a stretch of %s of text cannot be cut anywhere; nothing of it has been written", config.Size(windowLargest))

// redactor carries a stream through an engine.
type redactor struct {
	engine                    *redact.Engine
	window, glance, windowMax int
	jsonMax                   int // longest line that is looked at as JSON
	out                       *bufio.Writer
	text                      []byte // text that has not been redacted yet
	tried                     int    // length of text when no place to cut it was found
	buf                       []byte
	counts                    map[[2]string]int
	over                      int // lines too long to be looked at as JSON
	failed                    int // lines that the engine failed on
}

func newRedactor(e *redact.Engine, out *bufio.Writer) *redactor {
	return &redactor{engine: e, window: windowSize, glance: glanceSize, windowMax: windowLargest, jsonMax: jsonLineMax, out: out, counts: map[[2]string]int{}}
}

func (r *redactor) run(ctx context.Context, in io.Reader) error {
	br := bufio.NewReaderSize(in, readSize)
	var line []byte
	var whole bool
	var rest bool // this is a further piece of a long text line
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		line, whole, err = readPiece(br, line[:0], rest, r.jsonMax)
		if errors.Is(err, errLongJSON) {
			line = line[:0]
			if err := r.withholdLine(br); err != nil {
				return err
			}
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) == 0 {
			break
		}
		if !rest && isJSON(line) {
			if err := r.flushText(); err != nil {
				return err
			}
			if err := r.json(line); err != nil {
				return err
			}
			continue
		}
		rest = !whole
		r.text = append(r.text, line...)
		if err := r.cut(); err != nil {
			return err
		}
	}
	if err := r.flushText(); err != nil {
		return err
	}
	return r.out.Flush()
}

// readPiece reads a line with its end. A line that cannot be JSON comes in
// pieces; of one that may be JSON and is longer than most, nothing does.
func readPiece(br *bufio.Reader, dst []byte, rest bool, most int) (line []byte, whole bool, err error) {
	for {
		b, err := br.ReadSlice('\n')
		dst = append(dst, b...)
		if err == nil {
			return dst, true, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return dst, true, err
		}
		if rest || !opensJSON(dst) {
			return dst, false, nil
		}
		if len(dst) > most {
			return nil, false, errLongJSON
		}
	}
}

// errLongJSON says that a line begins like JSON and goes on beyond the limit.
var errLongJSON = errors.New("a line that begins like JSON is too long")

// withholdLine puts a marker in the place of a line whose beginning has been
// read already.
func (r *redactor) withholdLine(br *bufio.Reader) error {
	if err := r.flushText(); err != nil {
		return err
	}
	r.over++
	for {
		switch _, err := br.ReadSlice('\n'); {
		case err == nil, errors.Is(err, io.EOF):
			return r.write(withheld(string(telemetry.ReasonLineTooLong)), []byte("\n"))
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// withheld is what stands in the place of a line.
func withheld(why string) []byte {
	return []byte(`{"` + telemetry.KeyWithheld + `":"` + why + `"}`)
}

func opensJSON(line []byte) bool {
	t := bytes.TrimLeft(line, " \t")
	return len(t) > 0 && (t[0] == '{' || t[0] == '[')
}

func isJSON(line []byte) bool {
	return opensJSON(line) && session.ValidJSON(bytes.TrimSpace(line)) == nil
}

// json writes one line that is JSON; what stands around the value stays.
func (r *redactor) json(line []byte) error {
	value := bytes.TrimSpace(line)
	start := bytes.Index(line, value[:1])
	out, rep, err := r.engine.JSON(r.buf[:0], value)
	if errors.Is(err, redact.ErrInternal) { // as in run: this record stays, the next ones go on
		r.failed++
		return r.write(line[:start], withheld(string(telemetry.ReasonRedaction)), line[start+len(value):])
	}
	if err != nil {
		return err
	}
	r.buf = out
	if rep.Withhold != "" {
		out = withheld(rep.Withhold)
	}
	r.note(rep)
	return r.write(line[:start], out, line[start+len(value):])
}

func (r *redactor) write(parts ...[]byte) error {
	for _, p := range parts {
		if _, err := r.out.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *redactor) flushText() error {
	if len(r.text) == 0 {
		return nil
	}
	out, rep, err := r.redactText(r.text)
	if err != nil {
		return err
	}
	r.text, r.tried = r.text[:0], 0
	r.note(rep)
	return r.write(out)
}

func (r *redactor) redactText(text []byte) ([]byte, *redact.Report, error) {
	out, rep, err := r.engine.Text(nil, string(text))
	if err != nil {
		return nil, nil, err
	}
	if rep.Withhold != "" {
		out = []byte("[REDACTED:" + rep.Withhold + "]\n")
	}
	return out, rep, nil
}

// cut writes the first part of the text when there is enough of it and a
// place to cut.
func (r *redactor) cut() error {
	if len(r.text) < r.window+r.glance || len(r.text) < r.tried+r.window/2 {
		return nil
	}
	for at := len(r.text) - r.glance; at >= r.window/2; at = at * 7 / 8 {
		cut := goodCut(r.text[:at], r.glance)
		head, rep, err := r.redactText(r.text[:cut])
		if err != nil {
			return err
		}
		tail, _, err := r.redactText(r.text[cut : cut+r.glance])
		if err != nil {
			return err
		}
		both, _, err := r.redactText(r.text[:cut+r.glance])
		if err != nil {
			return err
		}
		if rep.Withhold == "" && len(both) == len(head)+len(tail) && bytes.HasPrefix(both, head) && bytes.HasSuffix(both, tail) {
			r.note(rep)
			r.text = append(r.text[:0], r.text[cut:]...)
			r.tried = 0
			return r.write(head)
		}
	}
	if len(r.text) > r.windowMax {
		return errWindow
	}
	r.tried = len(r.text)
	return nil
}

// goodCut is the end of text, moved back behind a line end, else a blank, else
// a whole character, none of them far.
func goodCut(text []byte, far int) int {
	near := max(0, len(text)-far)
	for _, sep := range []byte("\n ") {
		if i := bytes.LastIndexByte(text[near:], sep); i >= 0 {
			return near + i + 1
		}
	}
	cut := len(text)
	for cut > near && !utf8.RuneStart(text[cut-1]) {
		cut--
	}
	return max(cut-1, 1)
}

func (r *redactor) note(rep *redact.Report) {
	for _, f := range rep.Findings {
		key := [2]string{f.Rule, f.Path}
		if _, known := r.counts[key]; !known && len(r.counts) >= maxFindings {
			key[1] = "" // paths beyond the bound share one line a rule
		}
		r.counts[key] += f.Count
	}
}

func (r *redactor) findings() []redact.Finding {
	list := make([]redact.Finding, 0, len(r.counts))
	for k, n := range r.counts {
		list = append(list, redact.Finding{Rule: k[0], Path: k[1], Count: n})
	}
	slices.SortFunc(list, func(a, b redact.Finding) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Path, b.Path))
	})
	return list
}
