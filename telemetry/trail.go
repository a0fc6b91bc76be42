package telemetry

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// PublicKey is the key that the installation's signatures are verified with.
func (in *Installation) PublicKey() ed25519.PublicKey {
	return in.signer().Public().(ed25519.PublicKey)
}

// Trail commits the ops records in which a bridge speaks of itself and of what its
// operator does. It is safe for concurrent use.
type Trail struct {
	outbox       Outbox
	ops          *opsNumbers
	waterfall    *Waterfall
	installation *Installation
	mode         Mode
	resource     *Resource
	version      string
	now          func() time.Time
	tap          func(*Record)
}

// Trail returns the trail of a capture.
func (c *Capture) Trail() *Trail {
	return &Trail{c.cfg.Outbox, &c.ops, c.waterfall, c.cfg.Installation, c.cfg.Mode, c.cfg.Resource, c.cfg.Version, c.cfg.Now, c.cfg.Tap}
}

// NewTrail returns a trail for a data directory on which no capture runs. Its
// records are redacted when they are delivered.
func NewTrail(o Outbox, in *Installation, res *Resource, version string) *Trail {
	return &Trail{o, &opsNumbers{outbox: o}, NewWaterfall(nil, nil), in, in.Mode, res, version, time.Now, nil}
}

// PublicKey is the key that the bridge's summaries are verified with.
func (t *Trail) PublicKey() ed25519.PublicKey { return t.installation.PublicKey() }

// Started says that the bridge runs: with which key it signs, under which policy
// and mode, in which version and as which instance. The record is signed itself.
// It waits for room until ctx ends.
func (t *Trail) Started(ctx context.Context) error {
	r, err := t.record(ctx, OpBridgeStarted, SeverityInfo, []byte("{}"))
	if err != nil {
		return err
	}
	r = t.waterfall.ours(r)
	b := appendJSONString([]byte(`{"public_key":`), base64.StdEncoding.EncodeToString(t.installation.PublicKey()))
	b = appendJSONString(append(b, `,"policy":`...), t.waterfall.Policy())
	b = appendJSONString(append(b, `,"mode":`...), t.mode.String())
	b = appendJSONString(append(b, `,"version":`...), validUTF8(t.version))
	for _, kv := range r.Resource.Attributes() { // redacted
		if kv.Key == "service.instance.id" {
			b = appendJSONString(append(b, `,"instance":`...), kv.Value.AsString())
		}
	}
	if r.Body, err = t.installation.sign(OpBridgeStarted, append(b, '}')); err != nil {
		return err
	}
	return t.commit(ctx, r)
}

// sign adds the id of the installation's key, and its signature, to a body.
func (in *Installation) sign(op string, body []byte) ([]byte, error) {
	b := appendJSONString(append(openObject(body), `,"key":`...), KeyID(in.PublicKey()))
	return SignBody(in.signer(), op, append(b, '}'))
}

// Stopped says that the bridge ends, and why: "stop", "reload" or, where it had
// one thing to do, "done".
func (t *Trail) Stopped(ctx context.Context, why string) error {
	return t.emit(ctx, OpBridgeStopped, append(appendJSONString([]byte(`{"reason":`), why), '}'))
}

// Changed says that the mode or the policy is another than the last time. Of both
// only what differs is told. The records are signed: an audit takes a policy from
// them under which a body may be another than was attested.
func (t *Trail) Changed(ctx context.Context, lastMode Mode, lastPolicy string) error {
	change := func(op, before, now string) error {
		b := appendJSONString([]byte(`{"before":`), before)
		b = appendJSONString(append(b, `,"now":`...), now)
		r, err := t.record(ctx, op, SeverityInfo, append(b, '}'))
		if err != nil {
			return err
		}
		r = t.waterfall.ours(r)
		if r.Body, err = t.installation.sign(op, r.Body); err != nil {
			return err
		}
		return t.commit(ctx, r)
	}
	if lastMode != t.mode {
		if err := change(OpModeChanged, lastMode.String(), t.mode.String()); err != nil {
			return err
		}
	}
	if policy := t.waterfall.Policy(); lastPolicy != policy && lastPolicy != "" {
		return change(OpPolicyChanged, lastPolicy, policy)
	}
	return nil
}

// maxActionUIDs bounds what one record lists; there may be several.
const maxActionUIDs = 1000

// Action tells of an operator's action on entries of the outbox ("send",
// "discard", "retry", "drop") with the uids of their records. Under FeedbackOnly,
// where a uid may be one that consent does not cover, only with their number.
func (t *Trail) Action(ctx context.Context, action string, records int, uids []string) error {
	if t.mode != Full {
		uids = nil
	}
	for first := true; first || len(uids) > 0; first = false {
		b := strconv.AppendInt([]byte(`{"records":`), int64(records), 10)
		if len(uids) > 0 {
			n := min(len(uids), maxActionUIDs)
			b = append(b, `,"uids":[`...)
			for i, uid := range uids[:n] {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendJSONString(b, uid)
			}
			b, uids = append(b, ']'), uids[n:]
		}
		if err := t.emit(ctx, OpOperator+action, append(b, '}')); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trail) emit(ctx context.Context, op string, body []byte) error {
	r, err := t.record(ctx, op, SeverityInfo, body)
	if err != nil {
		return err
	}
	if r, err = t.waterfall.Run(ctx, r); err != nil {
		return err
	}
	return t.commit(ctx, r)
}

func (t *Trail) record(ctx context.Context, op string, severity Severity, body []byte) (*Record, error) {
	number, err := t.ops.take(ctx)
	if err != nil {
		return nil, err
	}
	now := t.now().UnixMilli()
	return &Record{
		Channel: ChannelOps, Op: op, EventName: op, UID: OpsUID(t.installation.ID, number),
		TimeMs: now, ObservedMs: now, Severity: severity, Body: body,
		Resource: t.resource, Scope: Scope{Name: ScopeOps, Version: t.version},
		consent: consent{mode: t.mode},
	}, nil
}

func (t *Trail) commit(ctx context.Context, r *Record) error {
	payload, err := r.AppendBinary(nil)
	if err != nil {
		return err
	}
	b := outbox.Batch{Entries: []outbox.Entry{{Key: opsKey(r.UID), Stream: "ops", Payload: payload}}}
	if err := commit(ctx, t.outbox, &b); err != nil {
		return err
	}
	if t.tap != nil {
		t.tap(r)
	}
	return nil
}
