package telemetry

// Severity is the OpenTelemetry severity number of a record.
type Severity uint8

// The severities that records of a ledger have. A listener may set others.
const (
	SeverityInfo  Severity = 9
	SeverityWarn  Severity = 13
	SeverityError Severity = 17
)

// String returns the severity text of the OpenTelemetry log data model, such
// as "INFO", or "" outside 1 to 24.
func (s Severity) String() string {
	const names = "TRACEDEBUGINFO WARN ERRORFATAL"
	if s < 1 || s > 24 {
		return ""
	}
	i := int(s-1) / 4
	name := names[i*5 : i*5+5]
	if name[4] == ' ' {
		name = name[:4]
	}
	if n := int(s-1) % 4; n > 0 {
		return name + string(rune('1'+n))
	}
	return name
}
