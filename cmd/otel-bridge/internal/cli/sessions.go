package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/admin"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func (a *app) sessions() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List the sessions that a data directory knows, and how far each was captured",
		Args:  cobra.NoArgs,
	}
	flags := a.configFile(list).dataDirFlag()
	command(list, func(context.Context, []string) error {
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: true})
		if err != nil {
			return err
		}
		if err := a.listSessions(cfg.Outbox.Dir); err != nil {
			return fmt.Errorf("sessions list: %w", err)
		}
		return nil
	})
	return group(&cobra.Command{Use: "sessions", Short: "Look at captured sessions and steer them"},
		list,
		a.steer("hold SESSION", "Keep a session from being captured any further, until it is accepted", admin.SessionHold),
		a.steer("accept SESSION", "Let a session go on that is on hold, or held because its past has changed", admin.SessionAccept),
		a.steer("rewind SESSION --to SEQ", "Have a session's events go out again from a seq on", admin.SessionRewind),
	)
}

// steer makes a command that acts on one session of a running sidecar.
func (a *app) steer(use, short string, op admin.SessionOp) *cobra.Command {
	var to int64
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	flags := a.configFile(c).dataDirFlag()
	if op == admin.SessionRewind {
		c.Flags().Int64Var(&to, "to", -1, "`seq` of the first event to go out again")
	}
	return command(c, func(ctx context.Context, args []string) error {
		if op == admin.SessionRewind && to < 0 {
			return usagef("sessions rewind: --to SEQ says where to go back to")
		}
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: true})
		if err != nil {
			return err
		}
		req := admin.SessionRequest{Op: op, Session: args[0], To: to}
		err = admin.Call(ctx, cfg.Outbox.Dir, "/v1/session", req, func() {}, func(json.RawMessage) error { return nil })
		if errors.Is(err, admin.ErrNotRunning) {
			err = fmt.Errorf("%w; it has to run, since it knows where the session's ledger is", err)
		}
		if err != nil {
			return fmt.Errorf("sessions %s: %w", op, err)
		}
		return nil
	})
}

// sessionLine is one session as `sessions list` tells of it.
type sessionLine struct {
	SessionID     string             `json:"session_id"`
	CreatedAt     int64              `json:"created_at"`
	FormatVersion int                `json:"format_version"`
	Incarnation   uint32             `json:"incarnation"`
	Next          int64              `json:"next_seq"`
	Events        telemetry.Outcomes `json:"events"`
	Held          string             `json:"held,omitempty"`
	HeldSeq       int64              `json:"held_seq,omitempty"`
}

// listSessions reads the cursors; a running sidecar is not disturbed by it.
func (a *app) listSessions(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("there is no data directory %s; name it with --data-dir", dir)
	}
	v, err := outbox.OpenReadOnly(dir, outbox.Options{})
	if err != nil {
		return err
	}
	var failed error
	enc := json.NewEncoder(a.stdout)
	err = telemetry.KnownSessions(cursors{v}, func(s telemetry.KnownSession) bool {
		line := sessionLine{s.SessionID, s.CreatedAt, s.FormatVersion, s.Incarnation, s.Next, s.Outcomes, "", 0}
		held := ""
		if s.Held != nil {
			line.Held, line.HeldSeq = s.Held.Code, s.Held.Seq
			held = fmt.Sprintf(", held at seq %d: %s", s.Held.Seq, s.Held.Code)
		}
		if a.output == "json" {
			failed = enc.Encode(line)
		} else {
			_, failed = fmt.Fprintf(a.stdout, "%q version %d: next seq %d, %d exported, %d withheld%s\n",
				s.SessionID, s.FormatVersion, s.Next, s.Outcomes.Exported, s.Outcomes.Withheld, held)
		}
		return failed == nil
	})
	return errors.Join(failed, err, v.Close())
}

// cursors is the part of an outbox that only looks.
type cursors struct{ *outbox.View }

// Commit is refused: this only looks.
func (cursors) Commit(context.Context, *outbox.Batch) (outbox.ID, error) {
	return 0, errors.ErrUnsupported
}

// WaitRoom has nothing to wait for.
func (cursors) WaitRoom(context.Context) error { return nil }
