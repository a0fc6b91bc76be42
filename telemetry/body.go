package telemetry

import "github.com/otel-bridge/otel-bridge/session"

// What writes bodies in another form than BodyValue's reads them by the same
// rules, without knowing of sessions: these are the ledger's rules of JSON.

// CheckBody returns why body is not one JSON value, a *session.SyntaxError.
func CheckBody(body []byte) error { return session.ValidJSON(body) }

// AppendText appends to dst what the valid JSON string raw means, as UTF-8:
// lone surrogates and invalid UTF-8 become U+FFFD.
func AppendText(dst, raw []byte) []byte { return session.AppendString(dst, raw) }

// BodyNumber reads the valid JSON number raw: an integer that int64 holds, or
// else the double that JavaScript reads.
func BodyNumber(raw []byte) (i int64, f float64, isInt bool) {
	n, _ := session.ParseNumber(raw)
	return n.Int, n.Float, n.IsInt
}
