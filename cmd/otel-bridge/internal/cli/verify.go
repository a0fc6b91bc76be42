package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/surface"
)

// Codes of findings that are no error of a ledger's own.
const (
	codeTornTail  session.Code = "torn-tail"
	codeLineOver  session.Code = "line-withheld"
	codeIO        session.Code = "unreadable"
	codeNoHeader  session.Code = "header-incomplete"
	codeVersion   session.Code = "unsupported-version"
	codeMixedRoot session.Code = "mixed-encodings"
)

// finding is one thing that verify has to say about a file.
type finding struct {
	File    string       `json:"file"`
	Row     int64        `json:"row,omitempty"`
	Seq     *int64       `json:"seq,omitempty"`
	Type    string       `json:"type,omitempty"`
	Code    session.Code `json:"code"`
	Message string       `json:"message"`
	// Refused says that the ledger is not exported because of it.
	Refused bool `json:"refused"`
}

func (a *app) verify() *cobra.Command {
	var strict bool
	c := &cobra.Command{
		Use:   "verify [--strict] PATH...",
		Short: "Check ledgers and list every finding",
		Long: `Check session files, and those in directories, against every rule of their format. Each finding is one
line: file, row, seq, code, message. The exit code is 1 when a ledger is refused. A torn tail is a finding, and a
refusal only with --strict, which also checks relations that real ledgers may break. After a finding the check goes
on; what only follows from an earlier finding in the same turn is not listed again. A row that cannot be read ends
the check of its file.`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := a.configFile(c)
	c.Flags().BoolVar(&strict, "strict", false, "refuse torn tails and broken relations too")
	return command(c, func(ctx context.Context, args []string) (err error) {
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: true, NoData: true})
		if err != nil {
			return err
		}
		paths, stdin, err := a.spool(args)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stdin.remove()) }()
		ledgers, problems := discover(paths)
		v := verifier{cfg: cfg, strict: strict, emit: func(f finding) error {
			f.File, f.Message = stdin.name(f.File), stdin.name(f.Message)
			return a.printFinding(f)
		}}
		for _, p := range problems {
			if err := v.report(p); err != nil {
				return err
			}
		}
		for _, l := range ledgers {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := v.ledger(l.Path); err != nil {
				return err
			}
		}
		if len(ledgers) == 0 && len(problems) == 0 {
			return fmt.Errorf("verify: there is no session file in %s", strings.Join(args, ", "))
		}
		fmt.Fprintf(a.stderr, "verify: %d ledgers, %d events, %d findings, %d ledgers refused\n", len(ledgers), v.events, v.findings, v.refused)
		if v.refused > 0 {
			return &exit{exitFailed, nil}
		}
		return nil
	})
}

func (a *app) printFinding(f finding) error {
	if a.output == "json" {
		return json.NewEncoder(a.stdout).Encode(f)
	}
	var b strings.Builder
	b.WriteString(f.File)
	if f.Row > 0 {
		fmt.Fprintf(&b, ": row %d", f.Row)
	}
	if f.Seq != nil {
		fmt.Fprintf(&b, ": seq %d", *f.Seq)
	}
	fmt.Fprintf(&b, ": %s: %s\n", f.Code, f.Message)
	_, err := a.stdout.Write([]byte(b.String()))
	return err
}

// discover finds ledgers; what could not be looked at comes as findings.
func discover(paths []string) ([]jsonl.Ledger, []finding) {
	ledgers, err := jsonl.Discover(paths...)
	var problems []finding
	for _, e := range flatten(err) {
		var mixed *jsonl.MixedRootError
		if errors.As(e, &mixed) {
			problems = append(problems, finding{File: mixed.Root, Code: codeMixedRoot, Message: e.Error()})
			continue
		}
		problems = append(problems, unreadable(e))
	}
	return ledgers, problems
}

// unreadable is a path that could not be looked at.
func unreadable(err error) finding {
	f := finding{Code: codeIO, Message: err.Error(), Refused: true}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		f.File, f.Message = pe.Path, pe.Op+": "+pe.Err.Error()
	}
	return f
}

// flatten takes joined errors apart.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}

// verifier checks ledgers one after another.
type verifier struct {
	cfg    *config.Config
	strict bool
	emit   func(finding) error

	events   int64
	findings int
	refused  int // ledgers
}

func (v *verifier) report(f finding) error {
	v.findings++
	if f.Refused {
		v.refused++
	}
	return v.emit(f)
}

// ledger checks one file; the error is one of telling, not of the file.
func (v *verifier) ledger(path string) error {
	before := v.refused
	err := v.check(path)
	if v.refused > before {
		v.refused = before + 1 // ledgers are counted, not findings
	}
	return err
}

func (v *verifier) check(path string) error {
	d, vocab, err := openVocabulary(path, v.cfg)
	if err != nil {
		return v.report(refusal(path, err))
	}
	r, err := jsonl.Open(path, jsonl.WithVocabulary(vocab), jsonl.WithMaxLine(int(v.cfg.MaxLineBytes)))
	if err != nil {
		return v.report(refusal(path, err))
	}
	defer r.Close()

	trace := session.NewTrace(r.Header(), d, vocab)
	relations := session.NewRelations(r.Header(), d, -1)
	fold := surface.New(d, surface.WithVocabulary(vocab))
	// unsettled is true from an event that the trace refused to the next turn
	// that it takes: what it refuses meanwhile may only follow from the first.
	unsettled := false
	for r.Next() {
		ev := r.Event()
		v.events++
		if ev.DataTruncated {
			f := at(path, r.Row(), ev, codeLineOver, fmt.Sprintf("the line is longer than max_line_bytes (%s); its body is withheld", v.cfg.MaxLineBytes))
			if err := v.report(f); err != nil {
				return err
			}
		}
		tErr := session.Admit(ev, trace)
		if tErr != nil {
			if f := eventRefusal(path, r.Row(), ev, tErr); !unsettled || !f.followsTurns() {
				if err := v.report(f); err != nil {
					return err
				}
				unsettled = unsettled || f.followsTurns()
			}
			// The trace goes on as if something without meaning stood here.
			if err := session.Admit(blank(ev), trace); err != nil {
				return v.report(eventRefusal(path, r.Row(), ev, err))
			}
		} else if ev.Type == session.TypeTurnStart {
			unsettled = false
		}
		if v.strict && tErr == nil {
			if err := relations.Observe(ev); err != nil {
				if err := v.report(eventRefusal(path, r.Row(), ev, err)); err != nil {
					return err
				}
			}
		}
		if sErr := session.Admit(ev, fold); sErr != nil {
			if f := eventRefusal(path, r.Row(), ev, sErr); tErr == nil {
				if err := v.report(f); err != nil {
					return err
				}
			}
			if err := session.Admit(blank(ev), fold); err != nil {
				return v.report(eventRefusal(path, r.Row(), ev, err))
			}
		}
	}
	if err := r.Err(); err != nil {
		return v.report(refusal(path, err))
	}
	if v.strict {
		for _, err := range relations.Finish() {
			f := refusal(path, err)
			if err := v.report(f); err != nil {
				return err
			}
		}
	}
	if t := r.Tail(); t.Torn() {
		f := finding{File: path, Row: t.Row, Code: codeTornTail, Refused: v.strict,
			Message: fmt.Sprintf("%d bytes from offset %d on do not belong to the ledger: a write was cut off", t.Bytes, t.Offset)}
		if t.Cause != nil {
			f.Message += "; " + t.Cause.Error()
		}
		return v.report(f)
	}
	return nil
}

// blank is an event that means nothing and stands at the place of ev.
func blank(ev *session.Event) *session.Event {
	return &session.Event{Seq: ev.Seq, Time: ev.Time, Type: "otel-bridge/refused", Data: json.RawMessage("{}"), Ignorable: true}
}

// openVocabulary reads the header for the dialect, and with it the vocabulary.
func openVocabulary(path string, cfg *config.Config) (*session.Dialect, *session.Vocabulary, error) {
	r, err := jsonl.Open(path)
	if err != nil {
		return nil, nil, err
	}
	d := r.Dialect()
	if err := r.Close(); err != nil {
		return nil, nil, err
	}
	v, err := vocabulary(cfg, d)
	return d, v, err
}

func at(path string, row int64, ev *session.Event, code session.Code, message string) finding {
	seq := ev.Seq
	return finding{File: path, Row: row, Seq: &seq, Type: shownName(ev.Type), Code: code, Message: message}
}

func eventRefusal(path string, row int64, ev *session.Event, err error) finding {
	f := at(path, row, ev, codeIO, err.Error())
	f.Refused = true
	var inv *session.InvariantError
	if errors.As(err, &inv) {
		f.tellInvariant(inv)
		if inv.Seq != ev.Seq {
			f.Row = 0 // an earlier event: its row has gone by
		}
	}
	return f
}

// tellInvariant says what a broken invariant says, each thing once.
func (f *finding) tellInvariant(inv *session.InvariantError) {
	f.Code, f.Type, f.Seq = inv.Code, shownName(inv.Type), &inv.Seq
	if f.Row == 0 {
		f.Row = inv.Row
	}
	f.Message = strings.TrimSuffix(plainly(f.Type)+": "+inv.Detail, ": ")
	if inv.Err != nil {
		f.Message += ": " + inv.Err.Error()
	}
}

// shownName is a name from a ledger or a record, an event's type or a session's id,
// as it is told: it may be needed to act on what is told of it, so it is shown, but
// for what the built-in policies take out. Whole, before it is cut anywhere: a part
// of a secret matches no rule.
func shownName(name string) string {
	if name == "" {
		return ""
	}
	engine, err := config.NewEngine(config.DefaultPolicies(), "")
	if err != nil {
		return "[not shown: there is no engine]"
	}
	return redactingHandler{engine: engine}.text(name)
}

// plainly is a type's name as it is, or quoted where it could pass for more than
// a name: line ends, control characters, great length.
func plainly(name string) string {
	const most = 100
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	if quoted := strconv.QuoteToGraphic(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// followsTurns tells findings that an earlier refused event of the same turn
// can be the only reason of.
func (f finding) followsTurns() bool {
	switch f.Code {
	case session.CodeTurnOpen, session.CodeTurnNumber, session.CodeTurnNotOpen, session.CodeTurnMismatch,
		session.CodeStepOpen, session.CodeStepNumber, session.CodeStepNotOpen, session.CodeStepMismatch, session.CodeCallNotPending:
		return true
	}
	return false
}

// refusal tells why a file as a whole, or from some row on, is refused.
func refusal(path string, err error) finding {
	f := finding{File: path, Code: codeIO, Message: err.Error(), Refused: true}
	var (
		corrupt *jsonl.CorruptError
		version *session.UnsupportedVersionError
		header  *session.HeaderError
		decode  *session.DecodeError
		inv     *session.InvariantError
	)
	if errors.As(err, &corrupt) {
		f.Row, f.Code = corrupt.Row, corrupt.Code
		if corrupt.Err != nil {
			f.Message = strings.TrimPrefix(corrupt.Err.Error(), string(corrupt.Code)+": ")
		}
	}
	switch {
	case errors.As(err, &version):
		f.Code, f.Row = codeVersion, 1
		f.Message = version.Error()
	case errors.As(err, &header):
		f.Code, f.Row = header.Code, 1
	case errors.As(err, &decode):
		f.Code, f.Type = decode.Code, shownName(decode.Type)
		if f.Type != decode.Type {
			shown := *decode
			shown.Type = f.Type
			f.Message = shown.Error()
		}
		if decode.Seq >= 0 {
			f.Seq = &decode.Seq
		}
	case errors.As(err, &inv):
		f.tellInvariant(inv)
	case errors.Is(err, jsonl.ErrHeaderIncomplete):
		f.Code = codeNoHeader
	}
	return f
}
