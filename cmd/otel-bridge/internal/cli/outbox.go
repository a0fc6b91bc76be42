package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/admin"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/sidecar"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func (a *app) outbox() *cobra.Command {
	oc := func(use, short string, op admin.OutboxOp, ids idRule) *cobra.Command {
		return a.outboxCommand(use, short, op, ids)
	}
	return group(&cobra.Command{
		Use:   "outbox",
		Short: "Look into a data directory and act on it",
		Long: `Look into a data directory and act on what it keeps; through the control socket while a sidecar runs on it.
list and show print records as they are stored, which is redacted.`,
	},
		oc("status", "Tell how many records there are in which state", admin.OutboxStatus, noIDs),
		oc("list", "List what is pending, held, in quarantine or damaged", admin.OutboxList, noIDs),
		oc("send ID...|--held", "Let held records go", admin.OutboxSend, idsOr("held", "every held record")),
		oc("discard ID...|--held|--damaged", "Give held records up, or what is lost", admin.OutboxDiscard, idsOr("held", "every held record")),
		group(&cobra.Command{Use: "quarantine", Short: "Look at refused records and decide about them"},
			oc("list", "List what is in quarantine", admin.OutboxQuarantine, noIDs),
			oc("show ID...", "Show records with the receiver's words", admin.OutboxShow, someIDs),
			oc("retry ID...|--all", "Send records again; --all leaves out those with outcome unknown", admin.OutboxRetry,
				idsOr("all", "every record whose outcome is not unknown")),
			oc("drop ID...", "Give records up", admin.OutboxDrop, someIDs),
		),
	)
}

// idRule says which ids a command takes.
type idRule struct {
	ids       bool
	all, what string // flag that stands for all of them
}

var (
	noIDs   = idRule{}
	someIDs = idRule{ids: true}
)

func idsOr(flag, what string) idRule { return idRule{ids: true, all: flag, what: what} }

func (a *app) outboxCommand(use, short string, op admin.OutboxOp, rule idRule) *cobra.Command {
	var all, damaged bool
	c := &cobra.Command{Use: use, Short: short}
	flags := a.configFile(c).dataDirFlag()
	if rule.all != "" {
		c.Flags().BoolVar(&all, rule.all, false, rule.what)
	}
	if op == admin.OutboxDiscard {
		c.Flags().BoolVar(&damaged, "damaged", false, "what is damaged and was not captured again")
	}
	return command(c, func(ctx context.Context, args []string) error {
		req := admin.OutboxRequest{Op: op, All: all, Damaged: damaged}
		for _, arg := range args {
			id, err := strconv.ParseUint(arg, 10, 64)
			if err != nil || !rule.ids {
				return usagef("outbox %s: %q is not an id", op, arg)
			}
			req.IDs = append(req.IDs, outbox.ID(id))
		}
		if damaged && (all || len(args) > 0) {
			return usagef("outbox %s: --damaged stands alone", op)
		}
		if rule.ids && !damaged && (len(args) > 0) == all {
			if rule.all == "" {
				return usagef("outbox %s: which ids?", op)
			}
			return usagef("outbox %s: name ids, or --%s", op, rule.all)
		}
		cfg, err := flags.load(config.Options{NoTransport: true, NoRedaction: true})
		if err != nil {
			return err
		}
		if err := a.doOutbox(ctx, cfg, req); err != nil {
			return fmt.Errorf("outbox %s: %w", op, err)
		}
		return nil
	})
}

// doOutbox asks the sidecar that runs on the directory, or opens it itself.
func (a *app) doOutbox(ctx context.Context, cfg *config.Config, req admin.OutboxRequest) error {
	dir := cfg.Outbox.Dir
	show := func(raw json.RawMessage) error { return a.printOutbox(req.Op, raw) }
	err := admin.Call(ctx, dir, "/v1/outbox", req, func() {}, show)
	if !errors.Is(err, admin.ErrNotRunning) {
		return err
	}
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("there is no data directory %s; name it with --data-dir", dir)
	}
	emit := func(v any) error {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return show(raw)
	}
	if req.Op.Looks() {
		v, err := outbox.OpenReadOnly(dir, outbox.Options{})
		if err != nil {
			return err
		}
		return errors.Join(admin.LookIntoOutbox(ctx, v, req, emit), v.Close())
	}
	o, err := outbox.Open(dir, outbox.Options{Instance: "otel-bridge outbox"})
	if err != nil {
		return err
	}
	trail, err := sidecar.OpenTrail(cfg, o)
	if err != nil {
		return errors.Join(err, o.Close())
	}
	return errors.Join(admin.ActOnOutbox(ctx, o, trail, req, emit), o.Close())
}

// printOutbox prints a result: as JSON the line as it is.
func (a *app) printOutbox(op admin.OutboxOp, raw json.RawMessage) error {
	if a.output == "json" {
		_, err := fmt.Fprintf(a.stdout, "%s\n", raw)
		return err
	}
	switch op {
	case admin.OutboxStatus:
		var s admin.Stats
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.stdout, "committed %d = acked %d + pending %d + held %d + quarantined %d + discarded %d\nlost %d, of these not captured again %d\ndisk %d bytes in %d segments, %d bytes not settled, %d cursors%s\n",
			s.Committed, s.Acked, s.Pending, s.Held, s.Quarantined, s.Discarded, s.Lost, s.Damaged, s.DiskBytes, s.Segments, s.UnackedBytes, s.Cursors, trouble(s))
		return err
	case admin.OutboxList, admin.OutboxQuarantine, admin.OutboxShow:
		var e admin.Entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		return a.printEntry(op, e, raw)
	}
	var n admin.Count
	if err := json.Unmarshal(raw, &n); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "%d records\n", n.Count)
	return err
}

func trouble(s admin.Stats) string {
	var b strings.Builder
	if s.Full {
		b.WriteString("\nfull: intake has stopped until there is room")
	}
	if s.Degraded {
		b.WriteString("\ndegraded: something was damaged, set aside or rebuilt")
	}
	if s.LastError != "" {
		b.WriteString("\nlast error: " + s.LastError)
	}
	return b.String()
}

func (a *app) printEntry(op admin.OutboxOp, e admin.Entry, raw json.RawMessage) error {
	if op == admin.OutboxShow {
		var pretty []byte
		var v any
		err := json.Unmarshal(raw, &v)
		if err == nil {
			pretty, err = json.MarshalIndent(v, "", "  ")
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s\n", pretty)
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", e.ID, e.State)
	if r := e.Record; r != nil {
		fmt.Fprintf(&b, " %s %s %s", r.Time, r.Severity, r.EventName)
		if id, ok := r.Attributes["session.id"]; ok {
			fmt.Fprintf(&b, " session=%q", id)
		}
		if seq, ok := r.Attributes["event.seq"]; ok {
			fmt.Fprintf(&b, " seq=%v", seq)
		}
	} else {
		fmt.Fprintf(&b, " (%s)", e.Undecodable)
	}
	fmt.Fprintf(&b, " %d bytes", e.Bytes)
	if q := e.Quarantine; q != nil {
		fmt.Fprintf(&b, " %s outcome=%s", q.Reason, q.Outcome)
		if q.ReceiverWords != "" {
			fmt.Fprintf(&b, " receiver=%q", q.ReceiverWords)
		}
	}
	_, err := fmt.Fprintln(a.stdout, b.String())
	return err
}
