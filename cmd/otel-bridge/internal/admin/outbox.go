package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// OutboxReader is what looking into an outbox needs; *outbox.Outbox and
// *outbox.View have it.
type OutboxReader interface {
	Stats() outbox.Stats
	Scan(fn func(outbox.Info) bool) error
	Get(id outbox.ID, fn func(outbox.Info)) error
	Damaged() []outbox.Damage
}

// OutboxWriter is what acting on an outbox needs.
type OutboxWriter interface {
	OutboxReader
	Send(ids ...outbox.ID) error
	SendHeld(match func(outbox.Info) bool) (int, error)
	Discard(ids ...outbox.ID) error
	DiscardHeld(match func(outbox.Info) bool) (int, error)
	Retry(ids ...outbox.ID) error
	RetryAll(match func(outbox.Info) bool) (int, error)
	Drop(ids ...outbox.ID) error
	ScanStates(fn func(outbox.Info) bool, states ...outbox.State) error
	Recovered(...outbox.Damage) error
}

var _ OutboxWriter = (*outbox.Outbox)(nil)

// OutboxRequest is one operator's wish.
type OutboxRequest struct {
	Op  OutboxOp    `json:"op"`
	IDs []outbox.ID `json:"ids,omitempty"`
	// All stands for every held entry (send, discard) or every quarantined one
	// whose outcome is known (retry).
	All bool `json:"all,omitempty"`
	// Damaged stands for everything that is damaged and was not captured again (discard).
	Damaged bool `json:"damaged,omitempty"`
}

// OutboxOp names what is to be done.
type OutboxOp string

// The operations. The first four only look.
const (
	OutboxStatus     OutboxOp = "status"
	OutboxList       OutboxOp = "list"
	OutboxQuarantine OutboxOp = "quarantine"
	OutboxShow       OutboxOp = "show"
	OutboxSend       OutboxOp = "send"
	OutboxDiscard    OutboxOp = "discard"
	OutboxRetry      OutboxOp = "retry"
	OutboxDrop       OutboxOp = "drop"
)

// Looks reports whether the operation changes nothing.
func (op OutboxOp) Looks() bool {
	switch op {
	case OutboxStatus, OutboxList, OutboxQuarantine, OutboxShow:
		return true
	}
	return false
}

// LookIntoOutbox does an operation that only looks, and gives each result to
// emit.
func LookIntoOutbox(ctx context.Context, o OutboxReader, req OutboxRequest, emit func(any) error) error {
	scan := func(want func(outbox.Info) bool) error {
		var failed error
		err := o.Scan(func(i outbox.Info) bool {
			if failed = ctx.Err(); failed == nil && want(i) {
				failed = emit(entryOf(i))
			}
			return failed == nil
		})
		return errors.Join(failed, err)
	}
	switch req.Op {
	case OutboxStatus:
		return emit(statsOf(o.Stats()))
	case OutboxList:
		err := scan(func(i outbox.Info) bool {
			return i.State == outbox.Pending || i.State == outbox.Held || i.State == outbox.Quarantined
		})
		for _, d := range o.Damaged() { // some is found by the scan
			if err == nil {
				err = emit(damagedEntry(d))
			}
		}
		return err
	case OutboxQuarantine:
		return scan(func(i outbox.Info) bool { return i.State == outbox.Quarantined })
	case OutboxShow:
		for _, id := range req.IDs {
			var failed error
			if err := o.Get(id, func(i outbox.Info) { failed = emit(entryOf(i)) }); err != nil {
				return fmt.Errorf("entry %d: %w", id, err)
			}
			if failed != nil {
				return failed
			}
		}
		return nil
	}
	return fmt.Errorf("unknown operation %q", req.Op)
}

// Count is the result of an operation that acts.
type Count struct {
	Count int `json:"count"`
}

// ActOnOutbox does any operation. The trail, which may be nil, tells of those that
// act, and of which records.
func ActOnOutbox(ctx context.Context, o OutboxWriter, trail *telemetry.Trail, req OutboxRequest, emit func(any) error) error {
	if req.Op.Looks() {
		return LookIntoOutbox(ctx, o, req, emit)
	}
	if req.Op == OutboxDiscard && req.Damaged {
		return giveUp(ctx, o, trail, req, emit)
	}
	act, all, err := actionOf(o, req)
	if err != nil {
		return err
	}
	var acted affected
	givesUp := req.Op == OutboxDiscard || req.Op == OutboxDrop
	if trail != nil {
		if acted, err = affectedBy(o, req, all); err != nil {
			return err
		}
		if givesUp {
			if err := trail.Discarding(ctx, acted.keys); err != nil {
				return err
			}
		}
	}
	n, err := act()
	if err != nil {
		if trail != nil && givesUp {
			err = errors.Join(err, kept(ctx, o, trail, req, all))
		}
		return err
	}
	if trail != nil {
		if err := tellOf(ctx, trail, req, n, acted.uids); err != nil {
			return fmt.Errorf("it is done, but there is no record of it: %w", err)
		}
	}
	return emit(Count{n})
}

// actionOf is what does an operation and counts the entries that it changes, and
// which of those in the state that it is for are all.
func actionOf(o OutboxWriter, req OutboxRequest) (act func() (int, error), all func(outbox.Info) bool, err error) {
	all = func(outbox.Info) bool { return true }
	named := func(do func(...outbox.ID) error) (func() (int, error), func(outbox.Info) bool, error) {
		return func() (int, error) { return len(req.IDs), do(req.IDs...) }, all, nil
	}
	switch {
	case req.All == (len(req.IDs) > 0):
		return nil, nil, errors.New("either ids are named, or all")
	case req.Op == OutboxSend && req.All:
		return func() (int, error) { return o.SendHeld(all) }, all, nil
	case req.Op == OutboxSend:
		return named(o.Send)
	case req.Op == OutboxDiscard && req.All:
		return func() (int, error) { return o.DiscardHeld(all) }, all, nil
	case req.Op == OutboxDiscard:
		return named(o.Discard)
	case req.Op == OutboxRetry && req.All:
		// What the receiver may have taken is retried by name only.
		all = func(i outbox.Info) bool { return i.Quarantine != nil && i.Quarantine.Outcome != outbox.OutcomeUnknown }
		return func() (int, error) { return o.RetryAll(all) }, all, nil
	case req.Op == OutboxRetry:
		return named(o.Retry)
	case req.Op == OutboxDrop && !req.All:
		return named(o.Drop)
	}
	return nil, nil, fmt.Errorf("unknown operation %q", req.Op)
}

// kept says which entries are still there that were to be given up.
func kept(ctx context.Context, o OutboxWriter, trail *telemetry.Trail, req OutboxRequest, all func(outbox.Info) bool) error {
	left, err := affectedBy(o, req, all)
	if err != nil {
		return err
	}
	return trail.Kept(ctx, left.keys)
}

// giveUp ends the reports of what is damaged and was not captured again.
func giveUp(ctx context.Context, o OutboxWriter, trail *telemetry.Trail, req OutboxRequest, emit func(any) error) error {
	if req.All || len(req.IDs) > 0 {
		return errors.New("either ids are named, or all, or what is damaged")
	}
	lost := o.Damaged()
	if err := o.Recovered(lost...); err != nil {
		return err
	}
	if trail != nil {
		if err := tellOf(ctx, trail, req, len(lost), nil); err != nil {
			return fmt.Errorf("it is done, but there is no record of it: %w", err)
		}
	}
	return emit(Count{len(lost)})
}

// tellTime is how long the record of an action waits for room.
const tellTime = 5 * time.Second

func tellOf(ctx context.Context, trail *telemetry.Trail, req OutboxRequest, n int, uids []string) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return trail.Action(ctx, string(req.Op), n, uids)
}

// affected is which records an action is about.
type affected struct {
	uids []string
	keys []telemetry.EntryKey
}

// affectedBy looks for them, in one pass over what is not delivered.
func affectedBy(o OutboxWriter, req OutboxRequest, all func(outbox.Info) bool) (affected, error) {
	states := []outbox.State{outbox.Held}
	switch {
	case req.Op == OutboxRetry || req.Op == OutboxDrop:
		states = []outbox.State{outbox.Quarantined}
	case req.Op == OutboxDiscard && !req.All:
		states = append(states, outbox.Pending)
	}
	ids := make(map[outbox.ID]bool, len(req.IDs))
	for _, id := range req.IDs {
		ids[id] = true
	}
	var a affected
	err := o.ScanStates(func(i outbox.Info) bool {
		if !ids[i.ID] && !(req.All && all(i)) {
			return true
		}
		a.keys = append(a.keys, telemetry.EntryKey{Stream: i.Stream, Key: append([]byte(nil), i.Key...)})
		if r, err := telemetry.DecodeRecord(i.Payload); err == nil {
			a.uids = append(a.uids, r.UID)
		}
		return true
	}, states...)
	return a, err
}

// Stats is what `outbox status` tells.
type Stats struct {
	Committed    int64  `json:"committed"`
	Acked        int64  `json:"acked"`
	Pending      int64  `json:"pending"`
	Held         int64  `json:"held"`
	Quarantined  int64  `json:"quarantined"`
	Discarded    int64  `json:"discarded"`
	Lost         int64  `json:"lost"`
	Damaged      int64  `json:"damaged"`
	Leased       int64  `json:"leased"`
	Cursors      int    `json:"cursors"`
	Segments     int    `json:"segments"`
	DiskBytes    int64  `json:"disk_bytes"`
	UnackedBytes int64  `json:"unacked_bytes"`
	Full         bool   `json:"full"`
	Degraded     bool   `json:"degraded"`
	LastError    string `json:"last_error,omitempty"`
}

func statsOf(s outbox.Stats) Stats {
	out := Stats{
		Committed: s.Committed, Acked: s.Acked, Pending: s.Pending, Held: s.Held, Quarantined: s.Quarantined,
		Discarded: s.Discarded, Lost: s.Lost, Damaged: s.Damaged, Leased: s.Leased, Cursors: s.Cursors,
		Segments: s.Segments, DiskBytes: s.DiskBytes, UnackedBytes: s.UnackedBytes, Full: s.Full, Degraded: s.Degraded,
	}
	if s.LastError != nil {
		out.LastError = s.LastError.Error()
	}
	return out
}

// Entry is one entry of an outbox, its record decoded.
type Entry struct {
	ID         outbox.ID   `json:"id"`
	State      string      `json:"state"`
	Bytes      int         `json:"bytes"`
	Quarantine *Quarantine `json:"quarantine,omitempty"`
	Record     *Record     `json:"record,omitempty"`
	// Undecodable says why there is no record.
	Undecodable string `json:"undecodable,omitempty"`
}

// Quarantine is why an entry is there.
type Quarantine struct {
	Reason        string `json:"reason"`
	Outcome       string `json:"outcome"`
	ReceiverWords string `json:"receiver_words,omitempty"`
	Time          string `json:"time"`
}

// damagedEntry tells of an entry that is lost, as far as it is known.
func damagedEntry(d outbox.Damage) Entry {
	e := Entry{ID: d.ID, State: outbox.Lost.String(), Undecodable: fmt.Sprintf("damaged in segment %d at offset %d", d.Segment, d.Offset)}
	if k, ok := telemetry.ParseEventKey(d.Key); ok {
		e.Undecodable += fmt.Sprintf(", event %d", k.Seq)
	} else if d.Key == nil {
		e.Undecodable += ", not known which"
	}
	return e
}

func entryOf(i outbox.Info) Entry {
	e := Entry{ID: i.ID, State: i.State.String(), Bytes: len(i.Payload)}
	if q := i.Quarantine; q != nil {
		e.Quarantine = &Quarantine{q.Reason, q.Outcome, q.ReceiverWords, q.Time.UTC().Format(timeFormat)}
	}
	r, err := DecodeRecord(i.Payload)
	if err != nil {
		e.Undecodable = err.Error()
		return e
	}
	e.Record = r
	return e
}
