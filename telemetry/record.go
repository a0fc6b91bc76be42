package telemetry

import (
	"encoding/hex"
	"encoding/json"
	"math"

	"go.opentelemetry.io/otel/attribute"
)

// Channel says what a record speaks of.
type Channel uint8

const (
	// ChannelLedger is for records that are an event of a ledger.
	ChannelLedger Channel = iota
	// ChannelOps is for records in which the bridge speaks of itself and of
	// what became of a session.
	ChannelOps
	// ChannelLog is for records of a program that logs by OpenTelemetry, see
	// DurableProcessor. They are no events of a ledger: Log holds what only
	// they have.
	ChannelLog
)

// Record is one log record on its way out: what the outbox stores and a
// receiver gets. It is self-contained, so that a restart, another program or
// another configuration cannot relabel what was captured.
type Record struct {
	// Channel decides which of the other fields have a meaning.
	Channel Channel
	// Identity is the event's. An ops record that speaks of a session has its
	// SessionID, CreatedAt, FormatVersion and Incarnation; Seq is not used.
	Identity Identity
	// SessionScoped is true for ledger records and for ops records that speak
	// of one session.
	SessionScoped bool
	// Type is the event type, or the neutral name that stands for one that a
	// redaction rule matches. Part of the identity: listeners can't change it.
	Type string
	// Op is the kind of an ops record, such as "session.held".
	Op string
	// UID is the log.record.uid.
	UID string

	// TimeMs is the event's time in Unix milliseconds, as the ledger has it.
	TimeMs int64
	// ObservedMs is when the record was captured, in Unix milliseconds.
	ObservedMs int64
	// Severity is the record's severity number.
	Severity Severity
	// EventName is the event's name: Type unless a listener says otherwise.
	EventName string
	// Surface is what the event did to the surface and what the model had seen.
	// Listeners can't change it.
	Surface SurfaceFacts
	// Attributes are all attributes but those that AllAttributes makes from
	// the other fields. Reserved names among them have no effect.
	Attributes []attribute.KeyValue
	// Body is the payload, one JSON value. Empty for none.
	Body json.RawMessage
	// Log is set for records of ChannelLog only.
	Log *LogFields

	// Resource and Scope are stored with the record.
	Resource *Resource
	Scope    Scope

	// Policy is the hash of the redaction policy that the record went through.
	// A record of another policy is redacted again before it is sent.
	Policy string
	// Redactions counts by rule what redaction took out, sorted by rule.
	Redactions []RuleCount
	// Withheld is the reason why only a marker is left of the record, or "".
	Withheld Reason
	// Inherited marks an event that the ledger has from its parent.
	Inherited bool
	// Cut is the length of the body in bytes before it was cut to size, or 0.
	Cut int64

	scratch []byte // where redaction may write the body
	about   int64  // the last event that the record speaks of
	consent consent
}

// LogFields is what records of ChannelLog have beside, or instead of, the other
// fields of a Record.
type LogFields struct {
	// TimeNs and ObservedNs are in Unix nanoseconds, 0 where unknown.
	TimeNs, ObservedNs int64
	// SeverityText is the program's own.
	SeverityText string
	// Body is the body, as the program made it.
	Body attribute.Value
	// TraceID, SpanID and TraceFlags tie the record to a span.
	TraceID    [16]byte
	SpanID     [8]byte
	TraceFlags byte
	// Dropped counts attributes that the program's own limits have cut.
	Dropped int64
}

// SurfaceOp is what an event did to the surface.
type SurfaceOp uint8

// What events do to the surface. Events of other than surface types do nothing.
const (
	SurfaceNone SurfaceOp = iota
	SurfaceAppend
	SurfaceReplace
)

// SurfaceFacts says what an event did to the surface, and on model answers what
// the surface was just before them.
type SurfaceFacts struct {
	Op SurfaceOp
	// Start and End are the ends of a replaced span.
	Start, End int64
	// Sources are the events that this one was made from.
	Sources []int64
	// Seen is true when the following fields tell what the model had seen.
	Seen              bool
	Nodes             int64
	ReplaceGeneration int64
	ContentGeneration int64
	// Hash is the chain over the node seqs, as surface.Surface has it.
	Hash [32]byte
}

// RuleCount says how often a redaction rule took something out.
type RuleCount struct {
	Rule  string
	Count int64
}

// Reason is why a record was withheld. Reasons are stable and free of content.
type Reason string

// The reasons for withholding.
const (
	// ReasonListenerError: a listener returned an error.
	ReasonListenerError Reason = "listener-error"
	// ReasonListenerPanic: a listener panicked.
	ReasonListenerPanic Reason = "listener-panic"
	// ReasonDropped: a listener returned no record.
	ReasonDropped Reason = "dropped"
	// ReasonPolicy: a redaction rule with the action "withhold" matched.
	ReasonPolicy Reason = "policy"
	// ReasonEventType: a redaction rule matched the event type.
	ReasonEventType Reason = "event-type"
	// ReasonRedaction: the redaction engine could not treat the record.
	ReasonRedaction Reason = "redaction-error"
	// ReasonLineTooLong: the ledger line is longer than the reader's limit.
	ReasonLineTooLong Reason = "line-too-long"
	// ReasonTooLarge: the record cannot be cut to the size limit.
	ReasonTooLarge Reason = "record-too-large"
	// ReasonInvalidBody: what a listener returned as body is not JSON.
	ReasonInvalidBody Reason = "invalid-body"
)

// RedactedType stands for an event type that a redaction rule matches.
const RedactedType = "otel_bridge.redacted"

// withhold returns the marker that goes out in place of r: identity, type and
// reason, and nothing that a listener or the ledger could have put content in.
func (r *Record) withhold(why Reason, resource *Resource, scope Scope) *Record {
	name := r.Type
	if r.Channel == ChannelOps {
		name = r.Op
	}
	var log *LogFields
	if r.Log != nil {
		log = &LogFields{TimeNs: r.Log.TimeNs, ObservedNs: r.Log.ObservedNs}
	}
	return &Record{
		Channel: r.Channel, Identity: r.Identity, SessionScoped: r.SessionScoped,
		Type: r.Type, Op: r.Op, UID: r.UID,
		TimeMs: r.TimeMs, ObservedMs: r.ObservedMs, Severity: r.Severity,
		EventName: name, Resource: resource, Scope: scope,
		Policy: r.Policy, Withheld: why, Log: log,
	}
}

// Nanoseconds returns the record's time as OTLP has it, in Unix nanoseconds.
// Times that OTLP can't hold (before 1970, or later than int64 nanoseconds
// reach) become 0, and AllAttributes has them in milliseconds.
func (r *Record) Nanoseconds() int64 {
	if r.Log != nil {
		return max(r.Log.TimeNs, 0)
	}
	if !otlpTime(r.TimeMs) {
		return 0
	}
	return r.TimeMs * 1_000_000
}

func otlpTime(ms int64) bool { return ms >= 0 && ms <= math.MaxInt64/1_000_000 }

// ObservedNanoseconds returns the time of capture in Unix nanoseconds.
func (r *Record) ObservedNanoseconds() int64 {
	if r.Log != nil {
		return max(r.Log.ObservedNs, 0)
	}
	if !otlpTime(r.ObservedMs) {
		return 0
	}
	return r.ObservedMs * 1_000_000
}

// AllAttributes returns the attributes that the record goes out with: those of
// its identity and treatment, then its own. A marker has only the former.
func (r *Record) AllAttributes() []attribute.KeyValue {
	return r.AppendAttributes(make([]attribute.KeyValue, 0, len(r.Attributes)+12))
}

// AppendAttributes appends to dst what AllAttributes returns.
func (r *Record) AppendAttributes(dst []attribute.KeyValue) []attribute.KeyValue {
	switch r.Channel {
	case ChannelLog:
		return r.appendLogAttributes(dst)
	case ChannelLedger:
		dst = append(dst,
			attribute.String(KeySessionID, r.Identity.SessionID),
			attribute.Int64(KeyCreatedAt, r.Identity.CreatedAt),
			attribute.Int(KeyFormatVersion, r.Identity.FormatVersion),
			attribute.String(KeyEventType, r.Type),
			attribute.Int64(KeyEventSeq, r.Identity.Seq))
	case ChannelOps:
		dst = append(dst, attribute.String(KeyOp, r.Op))
		if r.SessionScoped {
			dst = append(dst,
				attribute.String(KeySessionID, r.Identity.SessionID),
				attribute.Int64(KeyCreatedAt, r.Identity.CreatedAt))
		}
	}
	dst = append(dst, attribute.String(KeyRecordUID, r.UID))
	if r.SessionScoped && r.Identity.Incarnation > 0 {
		dst = append(dst, attribute.Int64(KeyIncarnation, int64(r.Identity.Incarnation)))
	}
	if r.Withheld != "" {
		return append(dst, attribute.String(KeyWithheld, string(r.Withheld)))
	}
	if r.Channel == ChannelLedger || r.Op == OpAttempt {
		counts := make([]attribute.KeyValue, len(r.Redactions))
		for i, c := range r.Redactions {
			counts[i] = attribute.Int64(c.Rule, c.Count)
		}
		dst = append(dst,
			attribute.String(KeyPolicy, r.Policy),
			attribute.Map(KeyRedactions, counts...))
	}
	if r.Inherited {
		dst = append(dst, attribute.Bool(KeyInherited, true))
	}
	if r.Cut > 0 {
		dst = append(dst, attribute.Int64(KeyCut, r.Cut))
	}
	if !otlpTime(r.TimeMs) {
		dst = append(dst, attribute.Int64(KeyTimeMs, r.TimeMs))
	}
	dst = r.Surface.appendAttributes(dst)
	for _, kv := range r.Attributes {
		if !reserved(string(kv.Key)) {
			dst = append(dst, kv)
		}
	}
	return dst
}

// appendLogAttributes gives the attributes of a program's record as they are,
// and a uid by which a receiver knows a record that came twice.
func (r *Record) appendLogAttributes(dst []attribute.KeyValue) []attribute.KeyValue {
	dst = append(dst, attribute.String(KeyRecordUID, r.UID))
	if r.Withheld != "" {
		return append(dst, attribute.String(KeyWithheld, string(r.Withheld)))
	}
	for _, kv := range r.Attributes {
		if kv.Key != KeyRecordUID {
			dst = append(dst, kv)
		}
	}
	return dst
}

func (f *SurfaceFacts) appendAttributes(dst []attribute.KeyValue) []attribute.KeyValue {
	switch f.Op {
	case SurfaceAppend:
		dst = append(dst, attribute.String(KeySurfaceOp, "append"))
	case SurfaceReplace:
		dst = append(dst, attribute.String(KeySurfaceOp, "replace"),
			attribute.Int64(KeySurfaceStart, f.Start),
			attribute.Int64(KeySurfaceEnd, f.End))
	}
	if f.Sources != nil {
		dst = append(dst, attribute.Int64Slice(KeySurfaceSources, f.Sources))
	}
	if f.Seen {
		dst = append(dst, attribute.Int64(KeySurfaceNodes, f.Nodes),
			attribute.Int64(KeySurfaceReplaceGeneration, f.ReplaceGeneration),
			attribute.Int64(KeySurfaceContentGeneration, f.ContentGeneration),
			attribute.String(KeySurfaceHash, hex.EncodeToString(f.Hash[:])))
	}
	return dst
}
