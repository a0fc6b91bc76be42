package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	sess "github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// bridge writes what a bridge would send, by the pages docs/records.md and
// docs/mapping.md.
type bridge struct {
	t        *testing.T
	instance string
	key      ed25519.PrivateKey
	out      []*logs.LogRecord
	ops      uint64
	span     uint64
	previous string
	id       telemetry.Identity // of the session; Seq is not used
}

const policyA, policyB = "sha256:a", "sha256:b"

func newBridge(t *testing.T, seed byte) *bridge {
	b := &bridge{t: t, instance: fmt.Sprintf("bridge-%d", seed),
		key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)), id: telemetry.Identity{SessionID: "s", CreatedAt: 1000, FormatVersion: 2}}
	b.started(policyA)
	return b
}

func (b *bridge) public() ed25519.PublicKey { return b.key.Public().(ed25519.PublicKey) }

func str(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: s}}
}

func num(n int64) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}
}

func attr(key string, v *common.AnyValue) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: v}
}

// body is JSON as a value, as a structured body has it.
func body(t *testing.T, text string) *common.AnyValue {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return anyOf(v)
}

func anyOf(v any) *common.AnyValue {
	switch v := v.(type) {
	case string:
		return str(v)
	case bool:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v}}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return num(n)
		}
		f, _ := v.Float64()
		return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: f}}
	case []any:
		list := &common.ArrayValue{}
		for _, e := range v {
			list.Values = append(list.Values, anyOf(e))
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
	case map[string]any:
		kvs := &common.KeyValueList{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			kvs.Values = append(kvs.Values, attr(k, anyOf(v[k])))
		}
		return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: kvs}}
	}
	return &common.AnyValue{}
}

// leaf is what docs/records.md says of a body whose canonical form is text
// itself.
func leaf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// eventBody is the body that these tests give to the event with a seq.
func eventBody(seq int64) string { return fmt.Sprintf(`{"n":%d}`, seq) }

func (b *bridge) identity(seq int64) telemetry.Identity {
	id := b.id
	id.Seq = seq
	return id
}

func (b *bridge) attributes(seq int64) []*common.KeyValue {
	id := b.identity(seq)
	kvs := []*common.KeyValue{
		attr("session.id", str(id.SessionID)), attr("session.created_at", num(id.CreatedAt)), attr("session.format_version", num(int64(id.FormatVersion))),
		attr("event.type", str("user/message")), attr("event.seq", num(seq)), attr("log.record.uid", str(id.UID())),
	}
	if id.Incarnation > 0 {
		kvs = append(kvs, attr("otel_bridge.incarnation", num(int64(id.Incarnation))))
	}
	return kvs
}

// sent is the record of an event.
func (b *bridge) sent(policy, text string, seq int64) {
	b.out = append(b.out, &logs.LogRecord{Attributes: append(b.attributes(seq), attr("otel_bridge.policy", str(policy))), Body: body(b.t, text)})
}

// events are the records of events in a row.
func (b *bridge) events(from, to int64) {
	for seq := from; seq <= to; seq++ {
		b.sent(policyA, eventBody(seq), seq)
	}
}

// marker is that of an event which was withheld.
func (b *bridge) marker(seq int64) {
	b.out = append(b.out, &logs.LogRecord{Attributes: append(b.attributes(seq), attr("otel_bridge.withheld", str("policy")))})
}

func (b *bridge) op(kind, text string, attrs ...*common.KeyValue) {
	b.ops++
	b.opAs(telemetry.OpsUID(b.instance, b.ops), kind, text, attrs...)
}

func (b *bridge) opAs(uid, kind, text string, attrs ...*common.KeyValue) {
	kvs := append([]*common.KeyValue{attr("otel_bridge.op", str(kind)), attr("log.record.uid", str(uid))}, attrs...)
	b.out = append(b.out, &logs.LogRecord{Attributes: kvs, Body: body(b.t, text)})
}

func (b *bridge) sign(kind, text string) string {
	b.t.Helper()
	signed, err := telemetry.SignBody(b.key, kind, []byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(signed)
}

func (b *bridge) started(policy string) {
	key, _ := json.Marshal([]byte(b.public()))
	b.op("bridge.started", b.sign("bridge.started", fmt.Sprintf(`{"key":%q,"mode":"FULL","policy":%q,"public_key":%s}`, telemetry.KeyID(b.public()), policy, key)))
}

// changed says that the policy is another one, with the signature of by.
func (b *bridge) changed(by *bridge, policy string) {
	b.op("bridge.policy_changed", by.sign("bridge.policy_changed", fmt.Sprintf(`{"before":%q,"now":%q,"key":%q}`, policyA, policy, telemetry.KeyID(b.public()))))
}

// moved says how the session of newer goes on.
var moved = telemetry.Generation{FromVersion: 2, ToVersion: 3, LastSeq: 3, NextSeq: 2}

// newer makes the session go on in format 3.
func (b *bridge) newer() {
	b.id.FormatVersion, b.span, b.previous = 3, 0, ""
	b.op("session.generation", b.sign("session.generation", fmt.Sprintf(`{"from_version":2,"to_version":3,"last_seq":3,"next_seq":2,"first_uid":%q,"key":%q}`,
		b.identity(2).UID(), telemetry.KeyID(b.public()))), attr("session.id", str(b.id.SessionID)), attr("session.created_at", num(b.id.CreatedAt)))
}

// attempt is the record of one.
func (b *bridge) attempt(n, policy, text string) {
	b.opAs("00000000-0000-8000-8000-00000000000"+n, "attempt", text,
		attr("session.id", str(b.id.SessionID)), attr("session.created_at", num(b.id.CreatedAt)), attr("otel_bridge.policy", str(policy)))
}

// attempts attests attempts whose bodies are eventBody, and an event.
func (b *bridge) attempts(list ...string) {
	b.events(0, 0)
	b.summaryWith(func(s *telemetry.Summary) {
		for i, n := range list {
			s.Attempts = append(s.Attempts, telemetry.SummaryAttempt{UID: "00000000-0000-8000-8000-00000000000" + n, Outcome: telemetry.Delivered, Leaf: leaf(eventBody(int64(i + 1)))})
		}
	}, delivered(0, 0))
}

// delivered are events in a row whose bodies are eventBody.
func delivered(from, to int64) telemetry.SummaryRun {
	r := telemetry.SummaryRun{Outcome: telemetry.Delivered, From: from, To: to}
	for seq := from; seq <= to; seq++ {
		r.Leaves = append(r.Leaves, leaf(eventBody(seq)))
	}
	return r
}

func run(o telemetry.Outcome, from, to int64) telemetry.SummaryRun {
	return telemetry.SummaryRun{Outcome: o, From: from, To: to}
}

// summary attests runs, linked to the summary before it.
func (b *bridge) summary(runs ...telemetry.SummaryRun) { b.summaryWith(nil, runs...) }

func (b *bridge) summaryWith(change func(*telemetry.Summary), runs ...telemetry.SummaryRun) {
	b.t.Helper()
	b.span++
	from, to := runs[0].From, runs[len(runs)-1].To
	sum := telemetry.Summary{Version: 1, Span: b.span, FormatVersion: b.id.FormatVersion, Incarnation: b.id.Incarnation, From: from, To: to,
		FirstUID: b.identity(from).UID(), Policy: policyA, Runs: runs, Previous: b.previous, Key: telemetry.KeyID(b.public())}
	if change != nil {
		change(&sum)
	}
	text, err := json.Marshal(sum)
	if err != nil {
		b.t.Fatal(err)
	}
	signed := b.sign("session.summary", string(text))
	canonical, err := sess.Canonical(nil, []byte(signed))
	if err != nil {
		b.t.Fatal(err)
	}
	b.previous = leaf(string(canonical))
	b.op("session.summary", signed, attr("session.id", str(b.id.SessionID)), attr("session.created_at", num(b.id.CreatedAt)))
}

// drop takes the n-th summary out of what is sent.
func (b *bridge) drop(kind string, n int) {
	b.out = slices.DeleteFunc(b.out, func(r *logs.LogRecord) bool {
		if text(r.Attributes, "otel_bridge.op") == kind {
			n--
			return n == 0
		}
		return false
	})
}

// lines is what a receiver has of bridges: one request each.
func lines(bridges ...*bridge) []byte {
	var out []byte
	for _, b := range bridges {
		out = append(out, request(b.instance, b.out)...)
	}
	return out
}

func request(instance string, records []*logs.LogRecord) []byte {
	req := &collogs.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource:  &resource.Resource{Attributes: []*common.KeyValue{attr("service.instance.id", str(instance))}},
		ScopeLogs: []*logs.ScopeLogs{{LogRecords: records}},
	}}}
	return append(receiver.AppendJSON(nil, req), '\n')
}

// memory is a ledger of so many events, all of one type.
type memory struct {
	header sess.Header
	events []sess.Event
	next   int
}

func ledgerOf(id telemetry.Identity, n int64) *memory {
	m := &memory{header: sess.Header{ID: id.SessionID, CreatedAt: id.CreatedAt, Version: id.FormatVersion}}
	for seq := range n {
		m.events = append(m.events, sess.Event{Seq: seq, Type: "session/title", Data: []byte(eventBody(seq))})
	}
	return m
}

func (m *memory) Open() (telemetry.Ledger, error) { c := *m; c.next = 0; return &c, nil }
func (m *memory) Fingerprint() (string, error)    { return "", nil }
func (m *memory) Inherited() (int64, error)       { return 0, nil }
func (m *memory) Header() *sess.Header            { return &m.header }
func (m *memory) Event() *sess.Event              { return &m.events[m.next-1] }
func (m *memory) Err() error                      { return nil }
func (m *memory) Close() error                    { return nil }
func (m *memory) Next() bool                      { m.next++; return m.next <= len(m.events) }

// told is findings without words: kind, and seqs where there are any.
func told(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		s := string(f.Kind)
		if f.Incarnation > 0 {
			s += fmt.Sprintf(" incarnation %d", f.Incarnation)
		}
		if f.Seq != nil {
			s += fmt.Sprintf(" %d", *f.Seq)
		}
		if f.To != nil {
			s += fmt.Sprintf("-%d", *f.To)
		}
		out = append(out, s)
	}
	return out
}

// Each case starts from a bridge that has said it runs. The key is pinned, unless
// the case says otherwise.
func TestFindings(t *testing.T) {
	const wide = int64(math.MaxInt64)
	for _, tc := range []struct {
		name     string
		build    func(b *bridge) [][]byte // nil: what b has sent
		unpinned bool
		ledger   int64 // events of the session's ledger, where there is one
		want     []string
		complete bool
	}{
		{name: "complete", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 4)
			b.summary(delivered(0, 2))
			b.summary(delivered(3, 4))
			return nil
		}},
		{name: "complete with the ledger", complete: true, ledger: 5, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.events(4, 4)
			b.summary(delivered(0, 1), run(telemetry.Elided, 2, 3), delivered(4, 4))
			return nil
		}},
		{name: "complete, the summaries before what they speak of", complete: true, build: func(b *bridge) [][]byte {
			b.summary(delivered(0, 2))
			b.events(0, 2)
			return nil
		}},
		{name: "what came twice is no finding", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 2)
			b.summary(delivered(0, 2))
			return [][]byte{lines(b), lines(b)}
		}},
		{name: "a key of the stream vouches for itself only", complete: true, unpinned: true, want: []string{"unpinned-key"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0))
			return nil
		}},

		{name: "missing", want: []string{"missing 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.events(2, 2)
			b.summary(delivered(0, 2))
			return nil
		}},
		{name: "missing from the ledger's middle and end", ledger: 6, want: []string{"missing 1", "not-yet 2", "missing 3-5"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.events(2, 2)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "a whole ledger", ledger: 2, want: []string{"missing"}, build: func(b *bridge) [][]byte { return nil }},
		{name: "altered", want: []string{"altered 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.sent(policyA, `{"n":7}`, 1)
			b.summary(delivered(0, 1))
			return nil
		}},
		{name: "altered under a policy that no bridge has told of", want: []string{"altered 0"}, build: func(b *bridge) [][]byte {
			b.sent(policyB, `{"n":7}`, 0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "redacted again under a policy that was told of", complete: true, want: []string{"redacted-again 0"}, build: func(b *bridge) [][]byte {
			b.changed(b, policyB)
			b.sent(policyB, `{"n":7}`, 0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "under a policy that somebody else has told of", want: []string{"signature", "altered 0"}, build: func(b *bridge) [][]byte {
			forger := &bridge{t: b.t, key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))}
			b.changed(forger, policyB)
			b.sent(policyB, `{"n":7}`, 0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "under a policy of which nobody has signed that there is one", want: []string{"signature", "altered 0"}, build: func(b *bridge) [][]byte {
			b.op("bridge.policy_changed", fmt.Sprintf(`{"before":%q,"now":%q}`, policyA, policyB))
			b.sent(policyB, `{"n":7}`, 0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "a marker for what was delivered, under a policy of which nobody has signed that there is one", want: []string{"signature", "altered 0"}, build: func(b *bridge) [][]byte {
			b.op("bridge.policy_changed", fmt.Sprintf(`{"before":%q,"now":%q}`, policyA, policyB))
			b.marker(0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "under a policy, where no start is told of", want: []string{"altered 0"}, build: func(b *bridge) [][]byte {
			b.sent(policyB, `{"n":7}`, 0)
			b.summary(delivered(0, 0))
			b.drop("bridge.started", 1)
			return nil
		}},
		{name: "a body of two members of one name", want: []string{"altered 0"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			kvs := b.out[len(b.out)-1].Body.GetKvlistValue()
			kvs.Values = append([]*common.KeyValue{attr("n", num(7))}, kvs.Values...)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "a number that is none, for nothing", want: []string{"altered 0"}, build: func(b *bridge) [][]byte {
			b.sent(policyA, `{"n":null}`, 0)
			b.out[len(b.out)-1].Body.GetKvlistValue().Values[0].Value = &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: math.NaN()}}
			b.summary(telemetry.SummaryRun{Outcome: telemetry.Delivered, From: 0, To: 0, Leaves: []string{leaf(`{"n":null}`)}})
			return nil
		}},
		// A string is one, in a structured body; or JSON text, in the other form.
		{name: "bodies that are no objects", complete: true, build: func(b *bridge) [][]byte {
			texts := []string{`"[1,2]"`, `[1,2]`, `"text"`, `"5"`, `5`, `true`, `null`, `"{\"a\":1}"`}
			leaves := make([]string, 0, 2*len(texts))
			for range 2 {
				for _, text := range texts {
					leaves = append(leaves, leaf(text))
				}
			}
			for i, text := range texts {
				b.sent(policyA, text, int64(i))
			}
			for i, text := range texts {
				b.sent(policyA, `""`, int64(len(texts)+i))
				b.out[len(b.out)-1].Body = str(text)
			}
			b.summary(telemetry.SummaryRun{Outcome: telemetry.Delivered, From: 0, To: int64(len(leaves) - 1), Leaves: leaves})
			return nil
		}},
		{name: "doubled", want: []string{"doubled 0", "altered 0"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.sent(policyA, `{"n":7}`, 0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "two bodies under two policies are legal", complete: true, want: []string{"redacted-again 0"}, build: func(b *bridge) [][]byte {
			b.started(policyB)
			b.events(0, 0)
			b.sent(policyB, `{"n":7}`, 0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "under a uid of another identity", want: []string{"identity 1", "missing 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			for _, kv := range b.out[len(b.out)-1].Attributes {
				if kv.Key == "log.record.uid" {
					kv.Value = str(b.identity(0).UID())
				}
			}
			b.summary(delivered(0, 1))
			return nil
		}},
		{name: "with an attribute twice", want: []string{"identity", "identity 1", "missing 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			last := b.out[len(b.out)-1]
			last.Attributes = append(last.Attributes, attr("session.id", str("t")))
			b.summary(delivered(0, 1))
			last = b.out[len(b.out)-1]
			last.Attributes = append(last.Attributes, attr("session.id", str("t")))
			return nil
		}},
		{name: "attested as not sent", want: []string{"unexpected 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(delivered(0, 0), run(telemetry.OutOfScope, 1, 9))
			return nil
		}},
		{name: "beyond the ledger", ledger: 1, want: []string{"beyond-ledger 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(delivered(0, 1))
			return nil
		}},

		{name: "withheld", complete: true, want: []string{"withheld 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.marker(1)
			b.summary(delivered(0, 0), run(telemetry.Withheld, 1, 1))
			return nil
		}},
		{name: "a string that came twice, and once as JSON text", complete: true, build: func(b *bridge) [][]byte {
			b.sent(policyA, `"[1,2]"`, 0)
			b.sent(policyA, `""`, 0)
			b.out[len(b.out)-1].Body = str(`"[1,2]"`)
			b.summary(telemetry.SummaryRun{Outcome: telemetry.Delivered, From: 0, To: 0, Leaves: []string{leaf(`"[1,2]"`)}})
			return nil
		}},
		{name: "withheld, and it has a body", want: []string{"altered 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(delivered(0, 0), run(telemetry.Withheld, 1, 1))
			return nil
		}},
		{name: "withheld, and beside the marker it has a body", want: []string{"altered 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.marker(1)
			b.summary(delivered(0, 0), run(telemetry.Withheld, 1, 1))
			return nil
		}},
		{name: "withheld, and sent after a rewind under another policy", complete: true, want: []string{"redacted-again 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.marker(1)
			b.summary(delivered(0, 0), run(telemetry.Withheld, 1, 1))
			b.started(policyB)
			b.sent(policyB, `{"n":7}`, 1)
			return nil
		}},
		{name: "withheld, and no marker", want: []string{"missing 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0), run(telemetry.Withheld, 1, 1))
			return nil
		}},
		{name: "a marker for what was delivered", want: []string{"altered 0"}, build: func(b *bridge) [][]byte {
			b.marker(0)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "an operator decides, or has", want: []string{"quarantined 0", "held 1", "discarded 2", "damaged 3", "discarded 4"}, build: func(b *bridge) [][]byte {
			b.op("operator.discard", fmt.Sprintf(`{"records":1,"uids":[%q]}`, b.identity(4).UID()))
			b.summary(run(telemetry.Quarantined, 0, 0), run(telemetry.OnHold, 1, 1), run(telemetry.Discarded, 2, 2), run(telemetry.Damaged, 3, 3), delivered(4, 4))
			return nil
		}},

		{name: "two bridges", complete: true, want: []string{"two-bridges"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(delivered(0, 1))
			c := newBridge(b.t, 2)
			c.key = b.key // one installation that was copied
			c.events(0, 0)
			return [][]byte{lines(b), request(c.instance, c.out[1:])}
		}},
		{name: "two chains of two bridges", complete: true, unpinned: true, want: []string{"unpinned-key", "unpinned-key", "two-bridges"}, build: func(b *bridge) [][]byte {
			c := newBridge(b.t, 2)
			for _, b := range []*bridge{b, c} {
				b.events(0, 1)
				b.summary(delivered(0, 1))
			}
			return [][]byte{lines(b, c)}
		}},
		{name: "another incarnation", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 2)
			b.summary(delivered(0, 2))
			b.id.Incarnation = 1
			b.events(1, 2)
			b.summary(delivered(1, 2))
			return nil
		}},
		{name: "missing in another incarnation", want: []string{"missing incarnation 1 2"}, build: func(b *bridge) [][]byte {
			b.events(0, 2)
			b.summary(delivered(0, 2))
			b.id.Incarnation = 1
			b.events(1, 1)
			b.summary(delivered(1, 2))
			return nil
		}},

		{name: "a later incarnation that nobody attests does not hide what is missing", ledger: 5, want: []string{"not-yet incarnation 1 0", "missing incarnation 1 1-4"}, build: func(b *bridge) [][]byte {
			b.events(0, 4)
			b.summary(delivered(0, 4))
			b.id.Incarnation = 1
			b.events(0, 0)
			return nil
		}},

		// A session that goes on in a newer format, from its event 2 as that counts.
		{name: "a newer format", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 3)
			b.summary(delivered(0, 3))
			b.newer()
			b.events(2, 4)
			b.summaryWith(func(s *telemetry.Summary) { s.Generation = &moved }, delivered(2, 4))
			return nil
		}},
		{name: "a newer format in which nothing new stands", complete: true, ledger: 2, build: func(b *bridge) [][]byte {
			b.events(0, 3)
			b.summary(delivered(0, 3))
			b.newer()
			return nil
		}},
		{name: "what stands in a newer format is missing", ledger: 4, want: []string{"missing 2-3"}, build: func(b *bridge) [][]byte {
			b.events(0, 3)
			b.summary(delivered(0, 3))
			b.newer()
			return nil
		}},
		{name: "a newer format, and what was captured in the older one is gone", want: []string{"missing 0-3"}, build: func(b *bridge) [][]byte {
			b.newer()
			b.events(2, 4)
			b.summaryWith(func(s *telemetry.Summary) { s.Generation = &moved }, delivered(2, 4))
			return nil
		}},
		{name: "a newer format, and the end of what was captured in the older one is gone", want: []string{"missing 2-3"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(delivered(0, 1))
			b.newer()
			return nil
		}},
		{name: "the ledger of an older format, where all was captured in the newer one", complete: true, ledger: 3, want: []string{"out-of-scope"}, build: func(b *bridge) [][]byte {
			b.id.FormatVersion = 3
			b.events(0, 3)
			b.summary(delivered(0, 3))
			b.id.FormatVersion = 2 // of the ledger
			return nil
		}},
		{name: "a newer format, and a last event that nobody can count to", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0), run(telemetry.OutOfScope, 1, wide))
			b.id.FormatVersion, b.span, b.previous = 3, 0, ""
			b.events(2, 2)
			b.summaryWith(func(s *telemetry.Summary) {
				s.Generation = &telemetry.Generation{FromVersion: 2, ToVersion: 3, LastSeq: wide, NextSeq: 2}
			}, delivered(2, 2))
			return nil
		}},
		{name: "a newer format that another session has gone on in", ledger: 2, want: []string{"identity", "missing"}, build: func(b *bridge) [][]byte {
			b.id.SessionID = "t"
			b.newer()
			b.id.SessionID = "s"
			for _, kv := range b.out[len(b.out)-1].Attributes {
				if kv.Key == "session.id" {
					kv.Value = str("s")
				}
			}
			return nil
		}},

		{name: "a summary is gone", want: []string{"summary-missing 2-3", "not-attested 2", "not-attested 3"}, build: func(b *bridge) [][]byte {
			b.events(0, 4)
			b.summary(delivered(0, 1))
			b.summary(delivered(2, 3))
			b.summary(delivered(4, 4))
			b.drop("session.summary", 2)
			return nil
		}},
		{name: "a summary that the bridge lost before it was signed, attested again", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 4)
			b.summary(delivered(0, 1))
			b.span++
			b.summary(delivered(2, 4))
			return nil
		}},
		{name: "the same, attested only after the next one", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 6)
			b.span++
			b.summary(delivered(2, 3))
			b.span++
			b.summary(delivered(6, 6))
			b.summary(delivered(0, 1))
			b.summary(delivered(2, 5))
			return nil
		}},
		{name: "the same, but of one event nothing does", want: []string{"summary-missing 0-1", "not-attested 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 3)
			b.span++
			b.summary(delivered(2, 3))
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "the same, but nothing attests what it spoke of", want: []string{"summary-missing 2-3", "not-attested 2", "not-attested 3"}, build: func(b *bridge) [][]byte {
			b.events(0, 4)
			b.summary(delivered(0, 1))
			b.span++
			b.summary(delivered(4, 4))
			return nil
		}},
		{name: "a broken chain", want: []string{"chain-broken 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(delivered(0, 0))
			b.previous = leaf("another")
			b.summary(delivered(1, 1))
			return nil
		}},
		{name: "a span that nobody attests", want: []string{"not-attested 1", "not-attested 1"}, build: func(b *bridge) [][]byte {
			b.events(0, 2)
			b.summary(delivered(0, 0))
			b.summary(delivered(2, 2))
			return nil
		}},
		{name: "one span, two summaries", want: []string{"doubled 0"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(delivered(0, 1))
			b.span, b.previous = 0, ""
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "the wrong signature", want: []string{"signature 0-1", "not-attested 0-1"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			own := b.key
			b.key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
			b.summaryWith(func(s *telemetry.Summary) { s.Key = telemetry.KeyID(own.Public().(ed25519.PublicKey)) }, delivered(0, 1))
			return nil
		}},
		{name: "the wrong signature, of a session of which nothing else came", ledger: 2, want: []string{"signature 0-1", "missing 0-1"}, build: func(b *bridge) [][]byte {
			own := b.key
			b.key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
			b.summaryWith(func(s *telemetry.Summary) { s.Key = telemetry.KeyID(own.Public().(ed25519.PublicKey)) }, delivered(0, 1))
			return nil
		}},
		{name: "the wrong signature under a key of the stream", unpinned: true, want: []string{"unpinned-key", "signature"}, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			own := b.key
			b.key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
			b.summaryWith(func(s *telemetry.Summary) { s.Key = telemetry.KeyID(own.Public().(ed25519.PublicKey)) }, delivered(0, 1))
			return nil
		}},
		{name: "an unknown key", want: []string{"unknown-key", "unknown-key"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, ed25519.SeedSize))
			b.started(policyA)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "no key at all", unpinned: true, want: []string{"unknown-key"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0))
			b.drop("bridge.started", 1)
			return nil
		}},
		{name: "a summary of another session", want: []string{"identity 0", "not-attested 0"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summaryWith(func(s *telemetry.Summary) { s.FirstUID = b.identity(5).UID() }, delivered(0, 0))
			return nil
		}},

		{name: "foreign lines", complete: true, want: []string{"foreign"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0))
			theirs := &logs.LogRecord{Body: str("hello"), Attributes: []*common.KeyValue{attr("event.seq", num(3)), attr("session.id", str("s"))}}
			return [][]byte{lines(b), request("other", []*logs.LogRecord{theirs}), []byte("{\"resourceLogs\":[]}\n"), []byte("\n")}
		}},
		{name: "a byte order mark, and line ends of two characters", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0))
			return [][]byte{[]byte("\uFEFF"), bytes.ReplaceAll(lines(b), []byte("\n"), []byte("\r\n"))}
		}},
		{name: "a line that is no OTLP", want: []string{"unreadable"}, build: func(b *bridge) [][]byte {
			return [][]byte{lines(b), []byte("plain text\n")}
		}},
		{name: "an unterminated last line", complete: true, want: []string{"unterminated"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0))
			return [][]byte{lines(b), []byte(`{"resourceLogs":`)}
		}},
		{name: "a summary that is none", want: []string{"unreadable"}, build: func(b *bridge) [][]byte {
			b.op("session.summary", `{"version":1}`, attr("session.id", str("s")))
			return nil
		}},
		{name: "a summary of another version", want: []string{"unreadable"}, build: func(b *bridge) [][]byte {
			b.summaryWith(func(s *telemetry.Summary) { s.Version = 2 }, delivered(0, 0))
			return nil
		}},

		// What an audit cannot know, it says.
		{name: "a tail without a summary", complete: true, want: []string{"not-yet 1-2"}, build: func(b *bridge) [][]byte {
			b.events(0, 2)
			b.summary(delivered(0, 0))
			return nil
		}},
		{name: "a session without a summary", want: []string{"not-attested 0-2"}, build: func(b *bridge) [][]byte {
			b.events(0, 2)
			return nil
		}},
		{name: "a session without a summary, but with its ledger", complete: true, ledger: 3, want: []string{"not-yet 0-2"}, build: func(b *bridge) [][]byte {
			b.events(0, 2)
			return nil
		}},
		{name: "what came after the last summary and is lost cannot be known", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0))
			b.summary(delivered(1, 1))
			b.drop("session.summary", 2)
			return nil
		}},
		{name: "a body without a leaf is compared with nothing", complete: true, build: func(b *bridge) [][]byte {
			b.sent(policyA, `{"n":7}`, 0)
			b.summary(telemetry.SummaryRun{Outcome: telemetry.Delivered, From: 0, To: 0, Leaves: []string{""}})
			return nil
		}},
		{name: "after a rewind the better of two attestations counts", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 1)
			b.summary(run(telemetry.OutOfScope, 0, 1))
			b.summary(delivered(0, 1))
			return nil
		}},

		// Attempts, which are ops records.
		{name: "attempts", want: []string{"altered", "missing"}, build: func(b *bridge) [][]byte {
			b.attempt("1", policyA, `{"n":1}`)
			b.attempt("2", policyA, `{"n":9}`)
			b.attempts("1", "2", "3")
			return nil
		}},
		{name: "an attempt that was redacted again", complete: true, want: []string{"redacted-again"}, build: func(b *bridge) [][]byte {
			b.started(policyB)
			b.attempt("1", policyB, `{"n":9}`)
			b.attempts("1")
			return nil
		}},
		{name: "an altered attempt is one whatever policies there are", want: []string{"altered"}, build: func(b *bridge) [][]byte {
			b.started(policyB)
			b.attempt("1", policyA, `{"n":9}`)
			b.attempts("1")
			return nil
		}},
		{name: "an attempt under a policy that nobody has told of", want: []string{"altered"}, build: func(b *bridge) [][]byte {
			b.attempt("1", policyB, `{"n":1}`)
			b.attempts("1")
			return nil
		}},
		{name: "an attempt with two bodies", want: []string{"altered"}, build: func(b *bridge) [][]byte {
			b.attempt("1", policyA, `{"n":1}`)
			b.attempt("1", policyA, `{"n":9}`)
			b.attempts("1")
			return nil
		}},
		{name: "an attempt of another session", want: []string{"altered"}, build: func(b *bridge) [][]byte {
			b.id.SessionID = "t"
			b.attempt("1", policyA, `{"n":1}`)
			b.id.SessionID = "s"
			b.attempts("1")
			return nil
		}},
		{name: "an attempt that nobody attests", complete: true, want: []string{"not-yet"}, build: func(b *bridge) [][]byte {
			b.attempt("1", policyA, `{"n":1}`)
			b.attempts()
			return nil
		}},
		{name: "an attempt that nobody attests, and another in its place", want: []string{"not-yet", "doubled"}, build: func(b *bridge) [][]byte {
			b.attempt("1", policyA, `{"n":1}`)
			b.attempt("1", policyA, `{"n":2}`)
			b.attempts()
			return nil
		}},

		// Numbers that nobody can count to.
		{name: "a run without an end", complete: true, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0), run(telemetry.OutOfScope, 1, wide))
			return nil
		}},
		{name: "records without an end", want: []string{"unreadable 1-9223372036854775807"}, build: func(b *bridge) [][]byte {
			b.events(0, 0)
			b.summary(delivered(0, 0), run(telemetry.Quarantined, 1, wide))
			return nil
		}},
		{name: "more records without leaves than a span has, in two runs", want: []string{"quarantined 0", "unreadable 2-1001"}, build: func(b *bridge) [][]byte {
			b.summary(run(telemetry.Quarantined, 0, 0), run(telemetry.OutOfScope, 1, 1), run(telemetry.Quarantined, 2, 1001))
			return nil
		}},
		{name: "the last seq that there can be, and one beyond", want: []string{"foreign", "not-attested 9007199254740991"}, build: func(b *bridge) [][]byte {
			b.events(1<<53-1, 1<<53)
			b.sent(policyA, `{}`, wide)
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBridge(t, 1)
			parts := tc.build(b)
			if parts == nil {
				parts = [][]byte{lines(b)}
			}
			var keys []ed25519.PublicKey
			if !tc.unpinned {
				keys = append(keys, newBridge(t, 1).public())
			}
			a := New(keys...)
			if err := a.Received("got.jsonl", bytes.NewReader(bytes.Join(parts, nil))); err != nil {
				t.Fatal(err)
			}
			if tc.ledger > 0 {
				if _, err := a.Ledger("ledger", ledgerOf(b.id, tc.ledger)); err != nil {
					t.Fatal(err)
				}
			}
			findings, totals := a.Report()
			if got := told(findings); !slices.Equal(got, tc.want) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
			if totals.Complete != tc.complete || totals.Findings != int64(len(findings)) {
				t.Errorf("%+v, want complete %v", totals, tc.complete)
			}
		})
	}
}

// A line that is too long is one finding, whether it has an end or not, and what
// follows is read.
func TestLinesThatAreTooLong(t *testing.T) {
	b := newBridge(t, 1)
	b.events(0, 0)
	b.summary(delivered(0, 0))
	huge := bytes.Repeat([]byte("x"), 5<<20)
	for _, tc := range []struct {
		text []byte
		want string
	}{
		{slices.Concat(lines(b), huge, []byte("\n")), "unreadable"},
		{slices.Concat(huge, []byte("\n"), lines(b)), "unreadable"},
		{slices.Concat(lines(b), huge), "unterminated"},
	} {
		a := New(b.public())
		a.maxLine = 3 << 20
		if err := a.Received("got.jsonl", bytes.NewReader(tc.text)); err != nil {
			t.Fatal(err)
		}
		findings, totals := a.Report()
		if got := told(findings); !slices.Equal(got, []string{tc.want}) || totals.Records != 1 {
			t.Errorf("found %q, %+v", got, totals)
		}
	}
}

// Incarnations that nobody has seen, one for each record: an audit is done in
// seconds, not in the square of their number.
func TestManyIncarnations(t *testing.T) {
	b := newBridge(t, 1)
	b.events(0, 2)
	b.summary(delivered(0, 2))
	own := b.id
	for n := range int64(20_000) {
		b.id.Incarnation = uint32(n + 1)
		b.sent(policyA, `{}`, 1_000_000+n)
	}
	a := New(b.public())
	a.Attributes()
	if err := a.Received("got.jsonl", bytes.NewReader(lines(b))); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ledger("ledger", ledgerOf(own, 3)); err != nil {
		t.Fatal(err)
	}
	findings, totals := a.Report()
	if n := int64(len(findings)); totals.Complete || totals.NotYet != 20_000 || n != 2*20_000 { // each beyond the ledger, and not attested
		t.Errorf("%d findings, %+v", n, totals)
	}
}

// remade is a summary as JSON.
func remade(sum *telemetry.Summary) string {
	text, err := json.Marshal(sum)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return string(text)
}
