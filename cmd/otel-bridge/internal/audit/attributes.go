package audit

import (
	"encoding/json"
	"hash/maphash"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	sess "github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// What of a record follows from the ledger, beside its body and what identifies
// it. The names are those of the attributes, or of OTLP's fields.
const (
	slotType = iota
	slotName
	slotTime
	slotSeverity
	slotSeverityText
	slotTimeMs // a marker has nothing from here on
	slotOp
	slotStart
	slotEnd
	slotSources
	slotNodes
	slotReplaceGeneration
	slotContentGeneration
	slotHash
	slotInherited
	slotCwd // what follows is another one under another policy
	slotParent
	slotSeedLength
	slotCut
	slotRedactions
	slots
)

var slotNames = [slots]string{
	telemetry.KeyEventType, "eventName", "timeUnixNano", "severityNumber", "severityText", telemetry.KeyTimeMs,
	telemetry.KeySurfaceOp, telemetry.KeySurfaceStart, telemetry.KeySurfaceEnd, telemetry.KeySurfaceSources, telemetry.KeySurfaceNodes,
	telemetry.KeySurfaceReplaceGeneration, telemetry.KeySurfaceContentGeneration, telemetry.KeySurfaceHash, telemetry.KeyInherited,
	telemetry.KeyCwd, telemetry.KeyParentID, telemetry.KeySeedLength, telemetry.KeyCut, telemetry.KeyRedactions,
}

// slotOf is the place of an attribute, or -1.
func slotOf(key string) int {
	switch key {
	case slotNames[slotName], slotNames[slotTime], slotNames[slotSeverity], slotNames[slotSeverityText]:
		return -1 // fields, not attributes
	}
	for i, name := range slotNames {
		if name == key {
			return i
		}
	}
	return -1
}

// facts is the slots of a record, as keyed hashes: 16 bits each, to tell which one
// differs, and 64 of all of them, to tell that one does. The zero value is none.
type facts struct {
	plain, redacted uint64 // before slotCwd, and from there on
	slot            [slots]uint16
	policy          uint16
	marker          bool
	token           bool // the parent is a token, made with another key than the bridge's
}

func (f *facts) none() bool { return f.plain == 0 }

// factValues are the values of the slots as JSON, nil for those that there are not.
type factValues [slots][]byte

func (v *factValues) put(slot int, value []byte) { v[slot] = append(v[slot], value...) } // a second value is one too many

func (v *factValues) putInt(slot int, n int64) { v.put(slot, strconv.AppendInt(nil, n, 10)) }

// fields are those that every record has.
func (v *factValues) fields(name string, ns uint64, severity int64, severityText string) {
	v.put(slotName, appendText(nil, name))
	v.put(slotTime, strconv.AppendUint(nil, ns, 10))
	v.putInt(slotSeverity, severity)
	v.put(slotSeverityText, appendText(nil, severityText))
}

func (a *Auditor) factsOf(v *factValues, marker bool, policy uint16) facts {
	f := facts{marker: marker, policy: policy}
	var plain, redacted maphash.Hash
	plain.SetSeed(a.seed)
	redacted.SetSeed(a.seed)
	for i, value := range v {
		if value == nil {
			continue
		}
		h := &plain
		if i >= slotCwd {
			h = &redacted
		}
		h.WriteByte(byte(i))
		h.Write(value)
		f.slot[i] = a.slotHash(value)
	}
	f.plain, f.redacted = plain.Sum64()|1, redacted.Sum64()
	return f
}

func (a *Auditor) slotHash(value []byte) uint16 { return uint16(maphash.Bytes(a.seed, value)) | 1 }

// receivedFacts are those of a record as it was received.
func (a *Auditor) receivedFacts(rec *logs.LogRecord, marker bool, policy string) facts {
	var v factValues
	v.fields(rec.GetEventName(), rec.GetTimeUnixNano(), int64(rec.GetSeverityNumber()), rec.GetSeverityText())
	for _, kv := range rec.GetAttributes() {
		slot := slotOf(kv.GetKey())
		if slot < 0 {
			continue
		}
		value := appendAny(nil, kv.GetValue())
		if slot == slotRedactions {
			if c, err := sess.Canonical(nil, value); err == nil {
				value = c
			}
		}
		v.put(slot, value)
	}
	return a.factsOf(&v, marker, a.policy(policy))
}

// madeFacts are those of a record that capture has made of a ledger. The policy is
// 0 where it was made without a configuration.
func (a *Auditor) madeFacts(r *telemetry.Record, policy uint16, keyless bool) facts {
	var v factValues
	token := false
	v.fields(r.EventName, uint64(r.Nanoseconds()), int64(r.Severity), r.Severity.String())
	for _, kv := range r.AllAttributes() {
		if slot := slotOf(string(kv.Key)); slot >= 0 {
			v.put(slot, attributeJSON(kv.Value))
			token = token || keyless && slot == slotParent && strings.HasPrefix(kv.Value.AsString(), tokenPrefix)
		}
	}
	f := a.factsOf(&v, r.Withheld != "", policy)
	f.token = token
	return f
}

// attributeJSON is a value of one of the slots as appendAny has it.
func attributeJSON(v attribute.Value) []byte {
	switch v.Type() {
	case attribute.STRING:
		return appendText(nil, v.AsString())
	case attribute.BOOL:
		return strconv.AppendBool(nil, v.AsBool())
	case attribute.INT64:
		return strconv.AppendInt(nil, v.AsInt64(), 10)
	}
	if v.Type() == attribute.INT64SLICE {
		raw, err := json.Marshal(v.AsInt64Slice())
		if err == nil {
			return raw
		}
	}
	b := []byte{'{'}
	for i, kv := range v.AsMap() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, string(kv.Key)), ':')
		b = append(b, attributeJSON(kv.Value)...)
	}
	b = append(b, '}')
	if c, err := sess.Canonical(nil, b); err == nil {
		return c
	}
	return b
}

// differ names the slots in which a received record is not what capture makes of
// the ledger. comparable tells whether what redaction may touch can be compared.
func (a *Auditor) differ(got, want *facts, comparable bool) string {
	marker := got.marker || want.marker
	if !marker && got.plain == want.plain && (!comparable || got.redacted == want.redacted) {
		return ""
	}
	end := slotCwd
	switch {
	case marker:
		end = slotTimeMs
	case comparable:
		end = slots
	}
	neutral := a.slotHash(appendText(nil, telemetry.RedactedType))
	var names []string
	for i := range end {
		if got.slot[i] == want.slot[i] || i == slotParent && want.token || marker && i <= slotName && (got.slot[i] == neutral || want.slot[i] == neutral) {
			continue
		}
		names = append(names, slotNames[i])
	}
	if len(names) == 0 && !marker && !(comparable && want.token) {
		return "an attribute" // two values with one short hash
	}
	return strings.Join(names, ", ")
}
