package audit

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"testing"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// audited is what is found in text, with the ledger of b's session.
func audited(t *testing.T, b *bridge, text []byte, keys ...ed25519.PublicKey) ([]string, Totals) {
	a := New(keys...)
	a.Attributes()
	if err := a.Received("fuzz", bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ledger("ledger", ledgerOf(b.id, 3)); err != nil {
		t.Fatal(err)
	}
	if err := a.Records(t.Context(), telemetry.Config{}, ledgerOf(b.id, 3), false); err != nil {
		t.Fatal(err)
	}
	findings, totals := a.Report()
	if totals.Complete == slices.ContainsFunc(findings, func(f Finding) bool { return f.Fatal }) {
		t.Fatalf("%+v with %+v", totals, findings)
	}
	return told(findings), totals
}

// Whatever a receiver's file holds, an audit of it ends and says the same each time.
func FuzzReceived(f *testing.F) {
	t := new(testing.T)
	b := newBridge(t, 1)
	b.events(0, 2)
	b.summary(delivered(0, 1))
	b.marker(3)
	b.summary(delivered(2, 2), run(telemetry.Withheld, 3, 3), run(telemetry.OutOfScope, 4, 9))
	b.op("operator.discard", `{"records":1,"uids":["x"]}`)
	whole := lines(b)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(bytes.ReplaceAll(whole, []byte(`"intValue":"2"`), []byte(`"intValue":"9007199254740991"`)))
	f.Add(bytes.ReplaceAll(whole, []byte(`session.summary`), []byte(`bridge.started`)))
	f.Add([]byte("{}\n[]\nnull\n{\"resourceLogs\":[{}]}\n{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{}]}]}]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, totals := audited(t, b, text)
		again, totals2 := audited(t, b, text)
		if !slices.Equal(found, again) || totals != totals2 {
			t.Errorf("%q and %q", found, again)
		}
		audited(t, b, text, b.public())
	})
}

// A body that says anything, of any kind, signed with a trusted key or not.
func FuzzOpsRecord(f *testing.F) {
	t := new(testing.T)
	b := newBridge(t, 1)
	b.events(0, 2)
	b.summary(delivered(0, 2))
	base := lines(b)
	f.Add("session.summary", string(bodyJSON(b.out[len(b.out)-1].Body)), int64(1000), true)
	f.Add("session.summary", `{"version":1,"span":3,"format_version":2,"from":1,"to":9223372036854775807,"runs":[{"outcome":"delivered","from":1,"to":9223372036854775807}]}`, int64(1000), true)
	f.Add("session.summary", `{"version":1,"span":18446744073709551615,"from":0,"to":0,"runs":[{"outcome":"","from":0,"to":0,"leaves":["zz"]}],"attempts":[{"uid":"","outcome":"x","leaf":"1"}],"generation":{"next_seq":-9}}`, int64(-1), true)
	f.Add("bridge.started", `{"public_key":"AAAA","policy":7}`, int64(0), false)
	f.Add("session.generation", `{"from_version":0,"to_version":2,"last_seq":9223372036854775807,"next_seq":-1,"first_uid":"x","key":"k"}`, int64(1000), true)
	f.Add("bridge.policy_changed", `{"before":1,"now":"sha256:b","key":"k"}`, int64(0), true)
	f.Add("operator.drop", `{"uids":[1,"a",null]}`, int64(0), false)
	f.Add("attempt", `[1e999]`, int64(0), false)
	f.Fuzz(func(t *testing.T, op, text string, created int64, sign bool) {
		if sign {
			// The uid binds a summary to its session; with one that does not no
			// more of it is looked at.
			if sum, err := telemetry.ParseSummary([]byte(text)); err == nil {
				id := telemetry.Identity{SessionID: "s", CreatedAt: created, FormatVersion: sum.FormatVersion, Incarnation: sum.Incarnation, Seq: sum.From}
				sum.FirstUID, sum.Key, sum.Signature = id.UID(), telemetry.KeyID(b.public()), ""
				text = remade(sum)
			}
			if telemetry.CheckBody([]byte(text)) == nil && bytes.HasPrefix([]byte(text), []byte("{")) {
				if signed, err := telemetry.SignBody(b.key, op, []byte(text)); err == nil {
					text = string(signed)
				}
			}
		}
		rec := &logs.LogRecord{Body: str(text), Attributes: []*common.KeyValue{
			attr("otel_bridge.op", str(op)), attr("log.record.uid", str("u")), attr("session.id", str("s")), attr("session.created_at", num(created)),
		}}
		all := append(slices.Clone(base), request("fuzz", []*logs.LogRecord{rec})...)
		audited(t, b, all)
		audited(t, b, all, b.public())
	})
}
