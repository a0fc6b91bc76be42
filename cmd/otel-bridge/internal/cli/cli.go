// Package cli is the command line: one file a command.
//
// Results go to stdout, everything else to stderr with the prefix
// "otel-bridge: ". The exit codes are the constants below.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
)

// The exit codes; scripts rely on them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitIncomplete  = 3  // done, but something was withheld, refused, held, quarantined or left
	exitUnavailable = 75 // receiver unavailable until the time-out; everything is kept
	exitConfig      = 78 // configuration, an unknown mode included
)

// exit is an error with an exit code. A nil err says nothing on stderr.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, args...)}
}

// app is what every command shares.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer // prefixed
	// rawStderr is for logs in a form of their own.
	rawStderr io.Writer
	lookup    func(string) (string, bool)
	output    string // text | json
	// untilSignal is for commands that last: see the function of that name.
	untilSignal func(context.Context) (context.Context, func())
	// fromEnv names the variable that a flag's value came from.
	fromEnv map[string]string
}

// Main runs the program on the process's arguments and streams and returns its
// exit code.
func Main() int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	a.untilSignal = untilSignal
	return a.run(context.Background(), os.Args[1:])
}

// stopping tells a second stop from the first one told twice.
type stopping struct {
	first os.Signal
	at    time.Time
}

// sameSignal is how soon a signal that comes again is the same stop: who signals
// a process and its group, as timeout(1) does, means one.
const sameSignal = 50 * time.Millisecond

// again takes a signal and reports whether it asks for a second time.
func (p *stopping) again(s os.Signal, now time.Time) bool {
	if p.first == nil {
		p.first, p.at = s, now
		return false
	}
	return s != p.first || now.Sub(p.at) > sameSignal
}

// untilSignal ends ctx at the first SIGINT or SIGTERM, so that a command that
// lasts can stop well; a second one ends the program at once.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	go func() {
		var stop stopping
		for {
			select {
			case <-stopped:
				return
			case s := <-signals:
				if stop.again(s, time.Now()) {
					fmt.Fprintln(os.Stderr, prefix+"a second signal: stopping at once; what was committed is kept")
					os.Exit(exitFailed)
				}
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		cancel()
	}
}

// Run runs one command line until it is done or ctx ends. Signals are the
// caller's.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, lookup func(string) (string, bool)) int {
	return newApp(stdin, stdout, stderr, lookup).run(ctx, args)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, lookup func(string) (string, bool)) *app {
	return &app{
		stdin: stdin, stdout: stdout, stderr: &prefixWriter{w: stderr}, rawStderr: stderr,
		lookup: lookup, fromEnv: map[string]string{},
		untilSignal: func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
	}
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	return a.report(root.ExecuteContext(ctx))
}

// report tells what went wrong and turns it into an exit code. An error that
// no command returned is cobra's own, about the command line.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	var ce *config.Error
	if errors.As(err, &ce) {
		fmt.Fprintln(a.stderr, ce)
		return exitConfig
	}
	var transport *otlp.ConfigError
	if errors.As(err, &transport) {
		fmt.Fprintln(a.stderr, err)
		return exitConfig
	}
	var e *exit
	if !errors.As(err, &e) {
		e = &exit{exitUsage, err}
	}
	if e.err != nil {
		fmt.Fprintln(a.stderr, e.err)
	}
	return e.code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "otel-bridge",
		Short:         "Carry an agent's session ledgers, checked and redacted, to an OpenTelemetry receiver",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("which command? `otel-bridge help` lists them")
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.flagsFromEnv(cmd) },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	root.PersistentFlags().StringVar(&a.output, "output", "text", "`form` of results: text, or json with one object a line")
	root.AddCommand(a.commands()...)
	return root
}

// command wraps a command's work so that its errors can be told from cobra's.
func command(c *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd.Context(), args)
		var e *exit
		var ce *config.Error
		if err == nil || errors.As(err, &e) || errors.As(err, &ce) {
			return err
		}
		return &exit{exitFailed, err}
	}
	return c
}

// lasting is command for work that runs until it is told to stop.
func (a *app) lasting(c *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	return command(c, func(ctx context.Context, args []string) error {
		ctx, stop := a.untilSignal(ctx)
		defer stop()
		return run(ctx, args)
	})
}

// group makes a command that only has commands below it.
func group(c *cobra.Command, below ...*cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("%s: unknown command %q; `otel-bridge help %s` lists them", c.Name(), args[0], c.Name())
		}
		return usagef("%s: which command? `otel-bridge help %s` lists them", c.Name(), c.Name())
	}
	c.AddCommand(below...)
	return c
}

// flagsFromEnv gives flags that were not given the value of OTEL_BRIDGE_<FLAG>.
func (a *app) flagsFromEnv(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err != nil || f.Changed || f.Name == "help" {
			return
		}
		name := envName(f.Name)
		v, ok := a.lookup(name)
		if !ok || v == "" {
			return
		}
		if e := cmd.Flags().Set(f.Name, v); e != nil {
			err = usagef("%s is not a value for --%s", name, f.Name)
			return
		}
		a.fromEnv[f.Name] = name
	})
	if err != nil {
		return err
	}
	if a.output != "text" && a.output != "json" {
		return usagef("--output is text or json")
	}
	return nil
}

func envName(flag string) string {
	return "OTEL_BRIDGE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const prefix = "otel-bridge: "

// prefixWriter puts the program's name before every line.
type prefixWriter struct {
	mu      sync.Mutex
	w       io.Writer
	midLine bool
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]byte, 0, len(b)+len(prefix))
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !p.midLine {
			out = append(out, prefix...)
		}
		out = append(out, line...)
		p.midLine = !whole
		if whole {
			out = append(out, '\n')
		}
		rest = after
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}
