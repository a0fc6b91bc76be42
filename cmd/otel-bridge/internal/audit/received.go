package audit

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	sess "github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// maxLine bounds a line, which takes several times its length of memory: more than
// any receiver takes in one request, or a Collector puts together.
const maxLine = 256 << 20

// Received takes in OTLP JSON lines, one request a line, as the sink and the
// Collector's file exporter write them: 64-bit integers may be strings or
// numbers. A last line without an end is ignored, since its write was cut off; a
// line that is not understood, or longer than maxLine, is a finding. The error is one
// of reading.
func (a *Auditor) Received(name string, r io.Reader) error {
	br := bufio.NewReaderSize(r, 1<<20)
	var long []byte
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		tooLong := false
		for errors.Is(err, bufio.ErrBufferFull) {
			if tooLong = tooLong || len(long)+len(line) > a.maxLine; !tooLong {
				long = append(long, line...)
			}
			line, err = br.ReadSlice('\n')
		}
		if tooLong && err == nil {
			a.find(Unreadable, identity{}, 0, -1, -1, fmt.Sprintf("%s: line %d is longer than %d MiB", name, n, a.maxLine>>20))
			long = nil
			continue
		}
		if len(long) > 0 {
			line = append(long, line...)
			long = long[:0]
		}
		if errors.Is(err, io.EOF) {
			if len(bytes.TrimSpace(line)) > 0 {
				a.find(Unterminated, identity{}, 0, -1, -1, fmt.Sprintf("%s: line %d has no end and is ignored", name, n))
			}
			return nil
		}
		if err != nil {
			return err
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\uFEFF"))
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		req, err := receiver.ParseJSON(line)
		if err != nil {
			a.find(Unreadable, identity{}, 0, -1, -1, fmt.Sprintf("%s: line %d is no OTLP JSON", name, n))
			continue
		}
		for _, rl := range req.GetResourceLogs() {
			instance := text(rl.GetResource().GetAttributes(), "service.instance.id")
			for _, sl := range rl.GetScopeLogs() {
				for _, rec := range sl.GetLogRecords() {
					a.log(instance, rec)
				}
			}
		}
	}
}

func find(kvs []*common.KeyValue, key string) *common.AnyValue {
	for _, kv := range kvs {
		if kv.GetKey() == key {
			return kv.GetValue()
		}
	}
	return nil
}

// twice tells whether an attribute stands twice: which one counts is each reader's
// own matter then.
func twice(kvs []*common.KeyValue) bool {
	seen := make(map[string]bool, len(kvs))
	for _, kv := range kvs {
		if seen[kv.GetKey()] {
			return true
		}
		seen[kv.GetKey()] = true
	}
	return false
}

func text(kvs []*common.KeyValue, key string) string { return find(kvs, key).GetStringValue() }

func number(kvs []*common.KeyValue, key string) (int64, bool) {
	v, ok := find(kvs, key).GetValue().(*common.AnyValue_IntValue)
	if !ok {
		return 0, false
	}
	return v.IntValue, true
}

// maxSeq is the largest seq that a ledger can have: the largest integer that is
// exact in JavaScript.
const maxSeq = 1<<53 - 1

// log takes in one record.
func (a *Auditor) log(instance string, rec *logs.LogRecord) {
	attrs := rec.GetAttributes()
	uid := text(attrs, telemetry.KeyRecordUID)
	if op := text(attrs, telemetry.KeyOp); op != "" && uid != "" {
		if twice(attrs) {
			a.find(BadIdentity, identity{}, 0, -1, -1, fmt.Sprintf("ops record %s (%s) has an attribute twice", uid, op))
		}
		a.op(instance, op, uid, attrs, rec.GetBody())
		return
	}
	seq, isEvent := number(attrs, telemetry.KeyEventSeq)
	version, hasVersion := number(attrs, telemetry.KeyFormatVersion)
	created, _ := number(attrs, telemetry.KeyCreatedAt)
	if uid == "" || !isEvent || !hasVersion || seq < 0 || seq > maxSeq {
		a.foreign++
		return
	}
	incarnation, _ := number(attrs, telemetry.KeyIncarnation)
	id := telemetry.Identity{
		SessionID: text(attrs, telemetry.KeySessionID), CreatedAt: created, FormatVersion: int(version),
		Incarnation: uint32(incarnation), Seq: seq,
	}
	withheld := text(attrs, telemetry.KeyWithheld) != ""
	var leaf, asText telemetry.Leaf
	if !withheld {
		leaf, asText = leavesOf(rec.GetBody())
	}
	policy, bad := text(attrs, telemetry.KeyPolicy), uid != id.UID() || twice(attrs)
	if a.keep && !bad {
		a.session(identity{id.SessionID, id.CreatedAt, id.FormatVersion}).keepFacts(id, a.receivedFacts(rec, withheld, policy))
	}
	a.record(id, instance, policy, leaf, asText, withheld, bad)
}

// op takes in an ops record.
func (a *Auditor) op(instance, op, uid string, attrs []*common.KeyValue, any *common.AnyValue) {
	if op == telemetry.OpAttempt {
		a.attempt(uid, attrs, any)
		return
	}
	body := bodyJSON(any)
	h := a.hash(telemetry.LeafOf(body))
	if old, twice := a.ops[uid]; twice {
		if old != h {
			a.find(Doubled, identity{}, 0, -1, -1, fmt.Sprintf("ops record %s (%s) has two bodies", uid, op))
		}
		a.totals.Repeated++
		return
	}
	a.ops[uid] = h
	switch op {
	case telemetry.OpSummary:
		a.readSummary(attrs, body)
	case telemetry.OpBridgeStarted:
		a.readStarted(instance, body)
	case telemetry.OpPolicyChanged:
		a.wait(op, member(body, "key"), body, nil, func() { a.tell(member(body, "now")) })
	case telemetry.OpGeneration:
		a.readGeneration(attrs, body)
	case telemetry.OpOperator + "discard", telemetry.OpOperator + "drop":
		for list := sess.WalkArray(memberRaw(body, "uids")); list.Next(); {
			if uid, ok := sess.String(list.Value()); ok {
				a.given[uid] = telemetry.Discarded
			}
		}
	}
}

// attempt takes in the record of an attempt.
func (a *Auditor) attempt(uid string, attrs []*common.KeyValue, body *common.AnyValue) {
	created, _ := number(attrs, telemetry.KeyCreatedAt)
	leaf, _ := leavesOf(body)
	got := attempt{session: identity{id: text(attrs, telemetry.KeySessionID), created: created}, leaf: a.hash(leaf),
		policy: a.policy(text(attrs, telemetry.KeyPolicy)), marker: text(attrs, telemetry.KeyWithheld) != ""}
	if slices.Contains(a.tried[uid], got) {
		a.totals.Repeated++
	} else if len(a.tried[uid]) < maxVariants {
		a.tried[uid] = append(a.tried[uid], got)
	}
}

func (a *Auditor) tell(policy string) {
	if p := a.policy(policy); p != 0 {
		a.told[p] = true
	}
}

// wait keeps what is signed until its key is known; verified is called when it is
// that key's.
func (a *Auditor) wait(op, key string, body []byte, session *identity, verified func()) {
	a.waiting = append(a.waiting, signedBody{op: op, key: key, body: slices.Clone(body), session: session, verified: verified})
	a.settle()
}

// memberRaw is a member of an object; an empty array where there is none.
func memberRaw(body []byte, key string) []byte {
	if sess.KindOf(body) == sess.KindObject {
		if v := sess.Member(body, key); v != nil && sess.KindOf(v) == sess.KindArray {
			return v
		}
	}
	return []byte("[]")
}

func member(body []byte, key string) string {
	if sess.KindOf(body) != sess.KindObject {
		return ""
	}
	s, _ := sess.String(sess.Member(body, key))
	return s
}

func (a *Auditor) readStarted(instance string, body []byte) {
	key, err := ParseKey(member(body, "public_key"))
	if err != nil {
		a.find(Unreadable, identity{}, 0, -1, -1, "a record bridge.started has no key")
		return
	}
	id := telemetry.KeyID(key)
	a.streamed[id] = key
	a.wait(telemetry.OpBridgeStarted, id, body, nil, func() {
		a.tell(member(body, "policy"))
		if a.modes[instance] == nil {
			a.modes[instance] = map[string]bool{}
		}
		a.modes[instance][member(body, "mode")] = true
	})
}

// readGeneration takes in that a session goes on in a newer format, as one record
// says it: where nothing new stands in that format there is no summary yet.
func (a *Auditor) readGeneration(attrs []*common.KeyValue, body []byte) {
	var g struct {
		telemetry.Generation
		FirstUID string `json:"first_uid"`
		Key      string `json:"key"`
	}
	created, _ := number(attrs, telemetry.KeyCreatedAt)
	id := identity{id: text(attrs, telemetry.KeySessionID), created: created}
	if err := json.Unmarshal(body, &g); err != nil {
		a.find(Unreadable, id, 0, -1, -1, "a record session.generation is not understood")
		return
	}
	id.version = g.ToVersion
	incarnation, _ := number(attrs, telemetry.KeyIncarnation)
	bound := telemetry.Identity{SessionID: id.id, CreatedAt: created, FormatVersion: id.version, Incarnation: uint32(incarnation), Seq: g.NextSeq}
	if bound.UID() != g.FirstUID {
		a.find(BadIdentity, id, uint32(incarnation), -1, -1, "a record session.generation speaks of another session")
		return
	}
	a.wait(telemetry.OpGeneration, g.Key, body, &id, func() {
		a.session(id)
		a.moved(id, g.Key, g.Generation)
	})
}

func (a *Auditor) readSummary(attrs []*common.KeyValue, body []byte) {
	created, _ := number(attrs, telemetry.KeyCreatedAt)
	id := identity{id: text(attrs, telemetry.KeySessionID), created: created}
	sum, err := telemetry.ParseSummary(body)
	if err != nil {
		a.find(Unreadable, id, 0, -1, -1, err.Error())
		return
	}
	id.version = sum.FormatVersion
	bound := telemetry.Identity{SessionID: id.id, CreatedAt: created, FormatVersion: sum.FormatVersion, Incarnation: sum.Incarnation, Seq: sum.From}
	if bound.UID() != sum.FirstUID {
		a.find(BadIdentity, id, sum.Incarnation, sum.From, sum.To, fmt.Sprintf("summary %d speaks of another session", sum.Span))
		return
	}
	s := a.session(id)
	known := a.pinned[sum.Key]
	if known != nil {
		if !telemetry.VerifyBody(known, telemetry.OpSummary, body) {
			a.find(BadSignature, id, sum.Incarnation, sum.From, sum.To, fmt.Sprintf("summary %d was not made with its key", sum.Span))
			return
		}
	} else {
		a.waiting = append(a.waiting, signedBody{op: telemetry.OpSummary, key: sum.Key, body: slices.Clone(body), session: &id, span: sum.Span})
		a.settle()
	}
	a.summary(id, s, sum, telemetry.BodyHash(body))
}

// settle checks what waits for a key that has come meanwhile, so that not every
// summary is kept to the end.
func (a *Auditor) settle() {
	if len(a.waiting) < 64 || len(a.pinned) > 0 {
		return
	}
	left := a.waiting[:0]
	for _, w := range a.waiting {
		key := a.streamed[w.key]
		if key == nil || !telemetry.VerifyBody(key, w.op, w.body) {
			left = append(left, w)
			continue
		}
		a.used[w.key] = true
		if w.verified != nil {
			w.verified()
		}
	}
	clear(a.waiting[len(left):])
	a.waiting = left
}

// leavesOf are the leaves that a body may have: its own, and where it is a text
// that is JSON, which may be a body that was sent as its JSON text or a string, that
// of the string.
func leavesOf(v *common.AnyValue) (leaf, text telemetry.Leaf) {
	if s, ok := v.GetValue().(*common.AnyValue_StringValue); ok {
		text = telemetry.LeafOf(appendText(nil, s.StringValue))
		if raw := sess.TrimSpace([]byte(s.StringValue)); sess.ValidJSON(raw) == nil {
			return telemetry.LeafOf(raw), text
		}
		return text, telemetry.Leaf{}
	}
	if odd(v) {
		return telemetry.Leaf{1}, text
	}
	return telemetry.LeafOf(bodyJSON(v)), text
}

// odd tells values that have no JSON, and so are of no bridge: bytes, numbers that
// are none, and two members of one name.
func odd(v *common.AnyValue) bool {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_BytesValue:
		return true
	case *common.AnyValue_DoubleValue:
		return math.IsInf(v.DoubleValue, 0) || math.IsNaN(v.DoubleValue)
	case *common.AnyValue_ArrayValue:
		return slices.ContainsFunc(v.ArrayValue.GetValues(), odd)
	case *common.AnyValue_KvlistValue:
		kvs := v.KvlistValue.GetValues()
		names := make(map[string]bool, len(kvs))
		for _, kv := range kvs {
			if names[kv.GetKey()] || odd(kv.GetValue()) {
				return true
			}
			names[kv.GetKey()] = true
		}
	}
	return false
}

// bodyJSON is a body as JSON. A body that was sent as JSON text is that JSON.
func bodyJSON(v *common.AnyValue) []byte {
	if v == nil || v.Value == nil {
		return []byte("null")
	}
	if s, ok := v.Value.(*common.AnyValue_StringValue); ok {
		raw := sess.TrimSpace([]byte(s.StringValue))
		if k := sess.KindOf(raw); (k == sess.KindObject || k == sess.KindArray) && sess.ValidJSON(raw) == nil {
			return raw
		}
	}
	return appendAny(nil, v)
}

func appendAny(b []byte, v *common.AnyValue) []byte {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return appendText(b, v.StringValue)
	case *common.AnyValue_BoolValue:
		return strconv.AppendBool(b, v.BoolValue)
	case *common.AnyValue_IntValue:
		return strconv.AppendInt(b, v.IntValue, 10)
	case *common.AnyValue_DoubleValue:
		if math.IsInf(v.DoubleValue, 0) || math.IsNaN(v.DoubleValue) {
			return append(b, "null"...)
		}
		return sess.AppendDouble(b, v.DoubleValue)
	case *common.AnyValue_BytesValue:
		return appendText(b, base64.StdEncoding.EncodeToString(v.BytesValue))
	case *common.AnyValue_ArrayValue:
		b = append(b, '[')
		for i, e := range v.ArrayValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendAny(b, e)
		}
		return append(b, ']')
	case *common.AnyValue_KvlistValue:
		b = append(b, '{')
		for i, kv := range v.KvlistValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(b, kv.GetKey()), ':')
			b = appendAny(b, kv.GetValue())
		}
		return append(b, '}')
	}
	return append(b, "null"...)
}

func appendText(b []byte, s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		return append(b, `""`...) // a string never fails
	}
	return append(b, raw...)
}
