package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/audit"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/sidecar"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

func (a *app) audit() *cobra.Command {
	var ledgers, received, keys []string
	c := &cobra.Command{
		Use:   "audit [--ledger PATH]... --received F... [--config F] [--public-key K]",
		Short: "Check what a receiver has against what bridges have attested",
		Long: `Check OTLP JSON lines, one request a line, as the sink and the Collector's file exporter write them: signatures and
links of the summaries, and of each event whether its record is there, once, and as it was attested. With --ledger
every event of the session files that consent covers has to be received or accounted for, and the attributes that
follow from the ledger and that redaction cannot touch (type, times, severity, surface.*) are compared. With --config
the bodies and the other attributes of the session are made again too and compared, where the policy is the same; its
mode says what consent covers, or without it what bridge.started says. Directories are searched, for what was received
by the ends .json, .jsonl and .ndjson; what is compressed has to be unpacked. Of two files of one session one is
compared, and the other is named where it says something else. The key of a bridge is said in its record
bridge.started; one that is not named with --public-key vouches for nothing but itself. What can be told with what at
hand stands in docs/records.md.

What is found is told by session and seq. The exit code is 0 when everything is complete (withheld, elided, inherited,
out of scope and beyond the watermark are accounted for; a tail that no summary speaks of yet is told), and 1 when it is not.`,
		Args: cobra.ArbitraryArgs,
	}
	flags := a.configFile(c)
	f := c.Flags()
	f.StringArrayVar(&ledgers, "ledger", nil, "session `file` or directory")
	f.StringArrayVar(&received, "received", nil, "`file` or directory of OTLP JSON lines; - is stdin")
	f.StringArrayVar(&keys, "public-key", nil, "`key` that summaries have to be signed with: base64, hex, or a file that holds it")
	return command(c, func(ctx context.Context, args []string) error {
		// Further files of a list that a shell has made of --received *.
		if received = append(received, args...); len(received) == 0 {
			return usagef("audit: --received says what the receiver has")
		}
		var pinned []ed25519.PublicKey
		for _, k := range keys {
			key, err := publicKey(k)
			if err != nil {
				return usagef("audit: --public-key: %w", err)
			}
			pinned = append(pinned, key)
		}
		withConfig := f.Changed("config")
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: !withConfig})
		if err != nil {
			return err
		}
		run := auditing{app: a, cfg: cfg, auditor: audit.New(pinned...), expects: len(ledgers) > 0}
		if len(ledgers) > 0 {
			run.auditor.Attributes()
		}
		if err := run.received(received); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if err := run.ledgers(ctx, ledgers, withConfig); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		return run.tell()
	})
}

// publicKey reads a key, or the file that holds one.
func publicKey(text string) (ed25519.PublicKey, error) {
	key, err := audit.ParseKey(strings.TrimSpace(text))
	if err == nil {
		return key, nil
	}
	b, rerr := os.ReadFile(text)
	if rerr != nil {
		return nil, err
	}
	return audit.ParseKey(strings.TrimSpace(string(b)))
}

// auditing is one run of audit.
type auditing struct {
	app     *app
	cfg     *config.Config
	auditor *audit.Auditor
	expects bool // there are ledgers that tell what is to be there
	broken  bool // something could not be looked at
}

// received takes in files, and of directories those that hold JSON.
func (x *auditing) received(paths []string) error {
	for _, path := range paths {
		if path == "-" {
			if err := x.auditor.Received("stdin", x.app.stdin); err != nil {
				return err
			}
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			if err := x.file(path); err != nil {
				return err
			}
			continue
		}
		found := 0
		err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			if !slices.Contains([]string{".json", ".jsonl", ".ndjson"}, filepath.Ext(name)) {
				if base := filepath.Base(name); strings.Contains(base, ".json") || strings.Contains(base, ".ndjson") {
					fmt.Fprintf(x.app.stderr, "audit: %s is left out: its name ends otherwise; if it is one of these files, name it, and if it is compressed, unpack it first\n", name)
				}
				return nil
			}
			switch ok, err := holdsLogs(name); {
			case err != nil:
				return err
			case !ok:
				fmt.Fprintf(x.app.stderr, "audit: %s holds no OTLP logs and is left out\n", name)
				return nil
			}
			found++
			return x.file(name)
		})
		if err != nil {
			return err
		}
		if found == 0 {
			return fmt.Errorf("there are no .json, .jsonl or .ndjson files with OTLP logs in %s", path)
		}
	}
	return nil
}

// holdsLogs looks at the beginning of a file that was not named itself.
func holdsLogs(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	head := make([]byte, 4096)
	n, err := io.ReadFull(f, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return bytes.Contains(head[:n], []byte(`"resourceLogs"`)), errors.Join(err, f.Close())
}

func (x *auditing) file(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = x.auditor.Received(path, io.Reader(f))
	return errors.Join(err, f.Close())
}

// ledgers takes in ledgers and makes their records again, bodies too when the
// configuration of the bridges is at hand.
func (x *auditing) ledgers(ctx context.Context, paths []string, configured bool) error {
	if len(paths) == 0 {
		return nil
	}
	list, problems := discover(paths)
	for _, p := range problems {
		if p.Refused {
			return errors.New(p.Message)
		}
		fmt.Fprintf(x.app.stderr, "audit: %s\n", p.Message)
	}
	if len(list) == 0 {
		return errors.New("there is no session file in what --ledger names")
	}
	again, err := sidecar.BodiesOf(x.cfg)
	if err != nil {
		return err
	}
	if configured {
		x.auditor.Consent(again.Mode, again.FeedbackScope)
	}
	for _, l := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		src := sidecar.FinishedSource(x.cfg, l.Path)
		counts, err := x.auditor.Ledger(l.Path, src)
		if err != nil {
			x.broken = true
			fmt.Fprintf(x.app.stderr, "audit: %s: from here on it is not understood: %v\n", l.Path, err)
		}
		x.twins(l, src)
		if !counts {
			continue
		}
		if err := x.auditor.Records(ctx, again, src, configured); err != nil && ctx.Err() == nil {
			x.broken = true
			fmt.Fprintf(x.app.stderr, "audit: %s: its records cannot be made again: %v\n", l.Path, err)
		}
	}
	return ctx.Err()
}

// twins compares a ledger with its other encoding, which was passed over for it.
func (x *auditing) twins(l jsonl.Ledger, src telemetry.Source) {
	for _, path := range l.Passed {
		name, _ := jsonl.ParseName(filepath.Base(path))
		if name.Generation != l.Name.Generation {
			continue
		}
		if err := x.auditor.Twin(path, src, sidecar.FinishedSource(x.cfg, path)); err != nil {
			x.broken = true
			fmt.Fprintf(x.app.stderr, "audit: %s cannot be compared with %s: %v\n", path, l.Path, err)
		}
	}
}

func (x *auditing) tell() error {
	findings, totals := x.auditor.Report()
	totals.Complete = totals.Complete && !x.broken
	if totals.Records == 0 && totals.Summaries == 0 && !x.expects {
		totals.Complete = false
		fmt.Fprintln(x.app.stderr, "audit: there is no record of a bridge in what --received names")
	}
	enc := json.NewEncoder(x.app.stdout)
	for _, f := range findings {
		// A detail may hold an ops record's kind and uid, as the stream has them.
		f.Session, f.Detail = shownName(f.Session), shownName(f.Detail)
		var err error
		if x.app.output == "json" {
			err = enc.Encode(f)
		} else {
			_, err = fmt.Fprintln(x.app.stdout, findingText(f))
		}
		if err != nil {
			return err
		}
	}
	if x.app.output == "json" {
		if err := enc.Encode(totals); err != nil {
			return err
		}
	} else {
		verdict := "not complete"
		if totals.Complete {
			verdict = "complete"
		}
		_, err := fmt.Fprintf(x.app.stdout, "%s: %d sessions, %d records (%d came again), %d events attested by %d summaries, %d not yet attested\n",
			verdict, totals.Sessions, totals.Records, totals.Repeated, totals.Attested, totals.Summaries, totals.NotYet)
		if err != nil {
			return err
		}
	}
	if !totals.Complete {
		return &exit{exitFailed, nil}
	}
	return nil
}

// findingText is a finding as one line.
func findingText(f audit.Finding) string {
	var b strings.Builder
	if f.FormatVersion != nil {
		fmt.Fprintf(&b, "session %q version %d", f.Session, *f.FormatVersion)
		if f.Incarnation > 0 {
			fmt.Fprintf(&b, " incarnation %d", f.Incarnation)
		}
		b.WriteString(": ")
	}
	if f.Seq != nil {
		fmt.Fprintf(&b, "seq %d", *f.Seq)
		if f.To != nil {
			fmt.Fprintf(&b, " to %d", *f.To)
		}
		b.WriteString(": ")
	}
	word := string(f.Kind)
	if f.Kind == audit.Tail {
		word = "not yet attested"
	}
	if f.Kind == audit.UnpinnedKey {
		word = "unpinned"
	}
	fmt.Fprintf(&b, "%s: %s", word, graphic(f.Detail))
	return b.String()
}

// graphic is a text with what does not show spelled out: line ends, control
// characters, changes of direction. What a receiver has may have been put there for
// that.
func graphic(s string) string {
	const most = 1000
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= most {
			return b.String() + "…"
		}
		if strconv.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToGraphic(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}
