package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

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
		cfg, err := flags.load(config.Options{NoEndpoint: true, NoRedaction: true})
		if err != nil {
			return err
		}
		if err := a.listSessions(cfg.Outbox.Dir); err != nil {
			return fmt.Errorf("sessions list: %w", err)
		}
		return nil
	})
	return group(&cobra.Command{Use: "sessions", Short: "Look at captured sessions"}, list)
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
