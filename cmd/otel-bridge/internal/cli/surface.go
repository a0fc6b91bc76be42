package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/surface"
)

func (a *app) surface() *cobra.Command {
	var (
		point int64
		diff  string
	)
	c := &cobra.Command{
		Use:   "surface [--at SEQ] [--diff A..B] PATH",
		Short: "Show the messages that the model saw",
		Long: `Show the messages that the model saw when the event --at was the last one (default: the last event of the
file), in their order. --diff shows what it lost and gained between two events. What is shown is the ledger as it is,
not redacted.`,
		Args: cobra.ExactArgs(1),
	}
	flags := a.configFile(c)
	c.Flags().Int64Var(&point, "at", 0, "`seq` of the last event that counts")
	c.Flags().StringVar(&diff, "diff", "", "two seqs, `A..B`")
	c.MarkFlagsMutuallyExclusive("at", "diff")
	return command(c, func(_ context.Context, args []string) (err error) {
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: true, NoData: true})
		if err != nil {
			return err
		}
		paths, stdin, err := a.spool(args)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stdin.remove()) }()
		l, err := openLedger(paths[0], cfg)
		if err != nil {
			return fmt.Errorf("surface: %s", stdin.name(err.Error()))
		}
		l.name = args[0]
		if l.tail.Torn() {
			fmt.Fprintf(a.stderr, "surface: %s has a torn tail of %d bytes, which is not part of it\n", args[0], l.tail.Bytes)
		}
		out := bufio.NewWriter(a.stdout)
		if c.Flags().Changed("diff") {
			from, to, err := l.span(diff)
			if err == nil {
				err = l.understood(max(from, to))
			}
			if err != nil {
				return err
			}
			for d, err := range surface.Diff(l.events, l.dialect, from, to, surface.WithVocabulary(l.vocab)) {
				if err != nil {
					return fmt.Errorf("surface: %w", err)
				}
				if a.output == "json" {
					err = writeLine(out, d.AppendJSON(nil))
				} else {
					sign := "- "
					if d.Gained {
						sign = "+ "
					}
					err = writeMessage(out, sign, d.Message)
				}
				if err != nil {
					return err
				}
			}
			return out.Flush()
		}
		at := point
		if !c.Flags().Changed("at") {
			at = l.last
		} else if err := l.inside(at); err != nil {
			return err
		}
		if err := l.understood(at); err != nil {
			return err
		}
		for m, err := range surface.Messages(l.events, l.dialect, at, surface.WithVocabulary(l.vocab)) {
			if err != nil {
				return fmt.Errorf("surface: %w", err)
			}
			if a.output == "json" {
				err = writeLine(out, m.AppendJSON(nil))
			} else {
				err = writeMessage(out, "", m)
			}
			if err != nil {
				return err
			}
		}
		return out.Flush()
	})
}

func writeLine(w *bufio.Writer, line []byte) error {
	_, err := w.Write(append(line, '\n'))
	return err
}

// writeMessage writes a message for people: a line about it, then its texts;
// blocks that are no text as JSON.
func writeMessage(w io.Writer, sign string, m surface.Message) error {
	var msg struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	role := ""
	if json.Unmarshal(m.Message, &msg) == nil && msg.Role != "" {
		role = " (" + msg.Role + ")"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d %s%s\n", sign, m.Seq, m.Type, role)
	var text string
	var blocks []json.RawMessage
	switch {
	case json.Unmarshal(msg.Content, &text) == nil:
		indent(&b, text)
	case json.Unmarshal(msg.Content, &blocks) == nil:
		for _, raw := range blocks {
			var block struct {
				Type string  `json:"type"`
				Text *string `json:"text"`
			}
			if json.Unmarshal(raw, &block) == nil && block.Type == "text" && block.Text != nil {
				indent(&b, *block.Text)
			} else {
				indent(&b, string(raw))
			}
		}
	default:
		indent(&b, string(m.Message))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func indent(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		b.WriteString("    ")
		b.WriteString(strings.TrimRight(line, "\n"))
		b.WriteByte('\n')
	}
}

// ledger is a finished file that is read several times.
type ledger struct {
	path    string
	name    string // for messages
	dialect *session.Dialect
	vocab   *session.Vocabulary
	maxLine int
	last    int64 // seq of the last event, -1 for none
	tail    jsonl.Tail
	refused *finding // the first event that is not understood; nothing from there on is
}

// openLedger reads a file once, to know that it can be read and where it ends.
func openLedger(path string, cfg *config.Config) (*ledger, error) {
	d, vocab, err := openVocabulary(path, cfg)
	if err != nil {
		return nil, err
	}
	l := &ledger{path: path, dialect: d, vocab: vocab, maxLine: int(cfg.MaxLineBytes), last: -1}
	return l, l.check()
}

// check reads the file as far as it is understood.
func (l *ledger) check() error {
	r, err := l.open()
	if err != nil {
		return err
	}
	defer r.Close()
	trace := session.NewTrace(r.Header(), l.dialect, l.vocab)
	for r.Next() {
		ev := r.Event()
		l.last = ev.Seq
		if l.refused != nil {
			continue
		}
		if err := session.Admit(ev, trace); err != nil {
			f := eventRefusal(l.path, r.Row(), ev, err)
			l.refused = &f
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	l.tail = r.Tail()
	return nil
}

func (l *ledger) open() (*jsonl.Reader, error) {
	return jsonl.Open(l.path, jsonl.WithVocabulary(l.vocab), jsonl.WithMaxLine(l.maxLine))
}

// understood says why there is no telling what the model saw at seq.
func (l *ledger) understood(seq int64) error {
	f := l.refused
	if f == nil || f.Seq == nil || seq < *f.Seq {
		return nil
	}
	hint := ""
	if *f.Seq > 0 {
		hint = fmt.Sprintf("; --at %d shows what stood before it", *f.Seq-1)
	}
	return fmt.Errorf("surface: %s: row %d: seq %d: %s: %s%s", l.name, f.Row, *f.Seq, f.Code, f.Message, hint)
}

// events reads the file from its start.
func (l *ledger) events(yield func(*session.Event, error) bool) {
	r, err := l.open()
	if err != nil {
		yield(nil, err)
		return
	}
	defer r.Close()
	for r.Next() {
		if !yield(r.Event(), nil) {
			return
		}
	}
	if err := r.Err(); err != nil {
		yield(nil, err)
	}
}

func (l *ledger) inside(seq int64) error {
	if l.last < 0 {
		return usagef("surface: %s has no events", l.name)
	}
	if seq < 0 || seq > l.last {
		return usagef("surface: the events of %s go from 0 to %d; there is no %d", l.name, l.last, seq)
	}
	return nil
}

func (l *ledger) span(text string) (from, to int64, err error) {
	a, b, ok := strings.Cut(text, "..")
	from, errA := strconv.ParseInt(a, 10, 64)
	to, errB := strconv.ParseInt(b, 10, 64)
	if !ok || errA != nil || errB != nil {
		return 0, 0, usagef("surface: --diff is A..B, two seqs, such as 12..40")
	}
	if err := l.inside(from); err != nil {
		return 0, 0, err
	}
	return from, to, l.inside(to)
}
