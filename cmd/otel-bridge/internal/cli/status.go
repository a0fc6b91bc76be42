package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/admin"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/sidecar"
)

// watchEvery is how often status --watch tells.
const watchEvery = 2 * time.Second

func (a *app) status() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:   "status [--watch]",
		Short: "Tell how a running sidecar is doing",
		Long:  "Tell of a running sidecar: mode, policy, the key that its summaries are signed with, sessions, backlog, receiver.",
		Args:  cobra.NoArgs,
	}
	flags := a.configFile(c).dataDirFlag()
	c.Flags().BoolVar(&watch, "watch", false, "again every two seconds")
	return a.lasting(c, func(ctx context.Context, _ []string) error {
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: true})
		if err != nil {
			return err
		}
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			if err := admin.Call(ctx, cfg.Outbox.Dir, "/v1/status", struct{}{}, func() {}, a.printStatus); err != nil {
				return fmt.Errorf("status: %w", err)
			}
			if !watch {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
}

func (a *app) printStatus(raw json.RawMessage) error {
	if a.output == "json" {
		_, err := fmt.Fprintf(a.stdout, "%s\n", raw)
		return err
	}
	var s sidecar.Status
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	receiver := s.Receiver.Status
	if s.Receiver.Reason != "" {
		receiver += ": " + s.Receiver.Reason
	}
	for _, w := range s.Receiver.Warnings {
		receiver += "\n" + w
	}
	_, err := fmt.Fprintf(a.stdout, `mode %s, policy %s
public key %s
%d sessions, %d held
%d events read: %d exported, %d withheld, %d elided, %d inherited, %d out of scope
%d records committed: %d acked, %d pending, %d held, %d in quarantine, %d discarded
receiver %s
`, s.Mode, s.Policy, s.PublicKey, s.Sessions, s.Held, s.Events.Read, s.Events.Exported, s.Events.Withheld, s.Events.Elided, s.Events.Inherited, s.Events.OutOfScope,
		s.Outbox.Committed, s.Outbox.Acked, s.Outbox.Pending, s.Outbox.Held, s.Outbox.Quarantined, s.Outbox.Discarded, receiver)
	return err
}

func (a *app) tap() *cobra.Command {
	c := &cobra.Command{
		Use:   "tap",
		Short: "Show what a running sidecar exports now, redacted, as JSON lines",
		Args:  cobra.NoArgs,
	}
	flags := a.configFile(c).dataDirFlag()
	return a.lasting(c, func(ctx context.Context, _ []string) error {
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: true})
		if err != nil {
			return err
		}
		err = admin.Call(ctx, cfg.Outbox.Dir, "/v1/tap", struct{}{}, func() { fmt.Fprintln(a.stderr, "tap: listening") }, func(raw json.RawMessage) error {
			_, err := fmt.Fprintf(a.stdout, "%s\n", raw)
			return err
		})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("tap: %w", err)
		}
		return nil
	})
}
