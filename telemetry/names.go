package telemetry

// The attribute keys of records. Receivers and audits rely on them.
const (
	KeySessionID     = "session.id"
	KeyFormatVersion = "session.format_version"
	KeyCreatedAt     = "session.created_at"
	KeyEventType     = "event.type"
	KeyEventSeq      = "event.seq"
	KeyCwd           = "session.cwd"
	KeyParentID      = "session.parent_id"
	KeySeedLength    = "session.seed_length"

	KeySurfaceOp                = "surface.op"
	KeySurfaceStart             = "surface.start_seq"
	KeySurfaceEnd               = "surface.end_seq"
	KeySurfaceSources           = "surface.source_seqs"
	KeySurfaceNodes             = "surface.nodes"
	KeySurfaceReplaceGeneration = "surface.replace_generation"
	KeySurfaceContentGeneration = "surface.content_generation"
	KeySurfaceHash              = "surface.hash"

	KeyRecordUID   = "log.record.uid"
	KeyIncarnation = "otel_bridge.incarnation"
	KeyPolicy      = "otel_bridge.policy"
	KeyRedactions  = "otel_bridge.redactions"
	KeyWithheld    = "otel_bridge.withheld"
	KeyInherited   = "otel_bridge.inherited"
	KeyCut         = "otel_bridge.cut"
	KeyTimeMs      = "otel_bridge.time_ms"
	KeyOp          = "otel_bridge.op"
)

// The instrumentation scopes of the two channels.
const (
	ScopeLedger = "github.com/otel-bridge/otel-bridge/telemetry"
	ScopeOps    = "github.com/otel-bridge/otel-bridge/telemetry/ops"
)

// reserved reports whether an attribute key is written by Record itself, so
// that an attribute of that name in Record.Attributes has no effect.
func reserved(key string) bool {
	switch key {
	case KeySessionID, KeyFormatVersion, KeyCreatedAt, KeyEventType, KeyEventSeq,
		KeyRecordUID, KeyIncarnation, KeyPolicy, KeyRedactions, KeyWithheld,
		KeyInherited, KeyCut, KeyTimeMs, KeyOp,
		KeySurfaceOp, KeySurfaceStart, KeySurfaceEnd, KeySurfaceSources, KeySurfaceNodes,
		KeySurfaceReplaceGeneration, KeySurfaceContentGeneration, KeySurfaceHash:
		return true
	}
	return false
}
