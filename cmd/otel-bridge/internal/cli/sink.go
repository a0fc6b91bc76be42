package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

func (a *app) sink() *cobra.Command {
	var (
		listen, out, respond string
		misbehave            time.Duration
	)
	c := a.lasting(&cobra.Command{
		Use:   "sink",
		Short: "Receive OTLP logs over HTTP and write them as JSON lines",
		Long: `Receive OTLP logs over HTTP. What is accepted is written, durably before the answer, as OTLP JSON:
one request a line, as the Collector's file exporter writes it. The address is said on stderr.

--respond makes it misbehave on purpose, for as long as --for says (default: always):
  503, 429:retry-after=2, 400:message=TEXT, 302, 302:location=URL
  400-if=TEXT, 413-over=BYTES, partial=3, warn=TEXT
  hang, reset, lost, html, drip, endless`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, _ []string) error {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return usagef("sink: --listen is host:port, such as 127.0.0.1:4318")
		}
		if host == "" {
			// What arrives is content: other machines are let in by name only.
			listen = net.JoinHostPort("127.0.0.1", port)
		}
		o := receiver.Options{Addr: listen, For: misbehave, Logger: slog.New(slog.NewTextHandler(a.stderr, nil))}
		if respond != "" {
			b, err := receiver.ParseBehavior(respond)
			if err != nil {
				return usagef("sink: --respond: %w", err)
			}
			o.Behavior = b
		}
		if misbehave < 0 || misbehave > 0 && respond == "" {
			return usagef("sink: --for says how long --respond holds, so it needs one and is not negative")
		}
		if out == "-" {
			o.File = receiver.NewFile(a.stdout)
		} else {
			f, err := receiver.OpenFile(out)
			if err != nil {
				return fmt.Errorf("sink: %w", err)
			}
			o.File = f
		}
		srv, err := receiver.Start(o)
		if err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		fmt.Fprintf(a.stderr, "sink: listening on %s\n", srv.URL())
		<-ctx.Done()
		err = srv.Close()
		if cerr := o.File.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		t := srv.Totals()
		fmt.Fprintf(a.stderr, "sink: %d requests, %d records, %d kept\n", t.Requests, t.Records, t.Kept)
		return nil
	})
	f := c.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:4318", "`address`; port 0 takes a free one, no host is loopback")
	f.StringVar(&out, "out", "-", "`file` to append to; - is stdout")
	f.StringVar(&respond, "respond", "", "`behaviour` other than accepting")
	f.DurationVar(&misbehave, "for", 0, "how long --respond holds; then requests are accepted")
	return c
}
