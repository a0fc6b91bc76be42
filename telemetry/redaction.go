package telemetry

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
)

// Engine is what redaction needs of a redaction engine. NewEngine makes one of
// a redact.Engine. It must be deterministic, safe for concurrent use, and must
// not keep src.
type Engine interface {
	// Hash names the policy and the versions of its rule sets.
	Hash() string
	// JSON appends to dst the redacted form of the JSON value src, itself valid
	// JSON, and counts in f.
	JSON(dst, src []byte, f *Findings) ([]byte, error)
	// Text appends to dst the redacted form of src and counts in f.
	Text(dst []byte, src string, f *Findings) ([]byte, error)
}

// Findings collects what an engine found in the parts of one record.
type Findings struct {
	// Counts by rule, in any order, each rule once.
	Counts []RuleCount
	// Withhold is true when a rule says that the record must not go out.
	Withhold bool
}

// Add counts n findings of a rule.
func (f *Findings) Add(rule string, n int64) {
	for i := range f.Counts {
		if f.Counts[i].Rule == rule {
			f.Counts[i].Count += n
			return
		}
	}
	f.Counts = append(f.Counts, RuleCount{rule, n})
}

func (f *Findings) merge(g *Findings) {
	for _, c := range g.Counts {
		f.Add(c.Rule, c.Count)
	}
	f.Withhold = f.Withhold || g.Withhold
}

// Redaction applies an engine to whole records: body, attributes, event name,
// scope and resource. It is safe for concurrent use.
type Redaction struct {
	engine Engine
	policy string
	key    []byte

	mu        sync.RWMutex
	texts     map[string]cachedText
	sets      map[string]cachedSet
	resources map[*Resource]cachedResource

	buffers sync.Pool // of *[]byte
}

// What is alike from record to record (the type, the working directory, the
// resource) is redacted once and remembered, within these bounds.
const (
	maxCached    = 1024
	maxCachedLen = 1024
)

type cachedText struct {
	text  string
	found Findings
}

type cachedSet struct {
	attrs []attribute.KeyValue
	found Findings
}

type cachedResource struct {
	res   *Resource
	found Findings
}

// NewRedaction returns redaction by engine. The key, secret to this
// installation, makes the tokens that stand for session ids.
func NewRedaction(engine Engine, key []byte) *Redaction {
	d := &Redaction{
		engine: engine, policy: engine.Hash(), key: slices.Clone(key),
		texts:     make(map[string]cachedText),
		sets:      make(map[string]cachedSet),
		resources: make(map[*Resource]cachedResource),
	}
	d.buffers.New = func() any { return new([]byte) }
	return d
}

// Policy returns the policy's hash.
func (d *Redaction) Policy() string { return d.policy }

const tokenPrefix = "session-hmac-"

// SessionID returns id, or the keyed token that stands for it everywhere when
// a rule matches it: "session-hmac-" and 32 hex digits. A token stays as it is.
// It fails when the engine does.
func (d *Redaction) SessionID(id string) (string, error) {
	if isToken(id) {
		return id, nil
	}
	var f Findings
	text, err := d.text(id, &f)
	if err != nil {
		return "", err
	}
	if text == id && !f.Withhold {
		return id, nil
	}
	return d.token(id), nil
}

// sessionID is SessionID, with a token for an id that cannot be judged.
func (d *Redaction) sessionID(id string) (judged string) {
	defer func() {
		if recover() != nil {
			judged = d.token(id)
		}
	}()
	judged, err := d.SessionID(id)
	if err != nil {
		return d.token(id)
	}
	return judged
}

func (d *Redaction) token(id string) string {
	mac := hmac.New(sha256.New, d.key)
	mac.Write([]byte("otel-bridge/session-token/1\x00"))
	mac.Write([]byte(id))
	return tokenPrefix + hex.EncodeToString(mac.Sum(nil)[:16])
}

func isToken(id string) bool {
	digits, ok := strings.CutPrefix(id, tokenPrefix)
	if !ok || len(digits) != 32 {
		return false
	}
	for _, c := range []byte(digits) {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

// Again redacts a stored record under the present policy and returns it, or a
// marker where it has to be withheld now. A record of this very policy comes
// back untouched. The receiver may be nil: then nothing is redacted.
func (d *Redaction) Again(r *Record) *Record {
	if d == nil || r.Policy == d.policy {
		return r
	}
	out := r.private()
	if out.SessionScoped {
		if id := d.sessionID(out.Identity.SessionID); id != out.Identity.SessionID {
			out.Identity.SessionID = id
			if out.Channel == ChannelLedger {
				out.UID = out.Identity.UID()
			}
		}
	}
	if out.Withheld != "" {
		return d.marker(out.withhold(out.Withheld, out.Resource, out.Scope))
	}
	if why := d.apply(out); why != "" {
		return d.marker(out.withhold(why, out.Resource, out.Scope))
	}
	return out
}

// apply redacts r in place, or says why it has to be withheld.
func (d *Redaction) apply(r *Record) (why Reason) {
	defer func() {
		if recover() != nil {
			why = ReasonRedaction
		}
	}()
	found := Findings{Counts: slices.Clone(r.Redactions)}
	var ofType Findings
	typ, err := d.text(r.Type, &ofType)
	switch {
	case err != nil:
		return ReasonRedaction
	case typ != r.Type || ofType.Withhold:
		return ReasonEventType
	}
	if r.EventName != r.Type {
		if r.EventName, err = d.text(r.EventName, &found); err != nil {
			return ReasonRedaction
		}
	}
	if r.Channel != ChannelLog && slices.ContainsFunc(r.Attributes, isReserved) {
		r.Attributes = slices.DeleteFunc(slices.Clone(r.Attributes), isReserved)
	}
	if r.Attributes, err = d.attributes(r.Attributes, &found); err != nil {
		return ReasonRedaction
	}
	if r.Scope.Name, err = d.text(r.Scope.Name, &found); err != nil {
		return ReasonRedaction
	}
	if r.Scope.Version, err = d.text(r.Scope.Version, &found); err != nil {
		return ReasonRedaction
	}
	if r.Resource, err = d.resource(r.Resource, &found); err != nil {
		return ReasonRedaction
	}
	if r.Channel == ChannelLog {
		if why := d.applyLog(r, &found); why != "" {
			return why
		}
	}
	if len(r.Body) > 0 && !r.signed() {
		dst := r.scratch[:0]
		if cap(dst) > 0 && &dst[:1][0] == &r.Body[0] {
			dst = nil // the body is what an earlier pass wrote there
		}
		body, err := d.engine.JSON(dst, r.Body, &found)
		// Where nothing was found the body comes back as it was, and that is JSON:
		// comparing is ten times as fast as reading it again.
		if err != nil || !bytes.Equal(body, r.Body) && session.ValidJSON(body) != nil {
			return ReasonRedaction
		}
		r.Body, r.scratch = body, body
	}
	if found.Withhold {
		return ReasonPolicy
	}
	slices.SortFunc(found.Counts, func(a, b RuleCount) int { return strings.Compare(a.Rule, b.Rule) })
	r.Redactions, r.Policy = found.Counts, d.policy
	return ""
}

func isReserved(kv attribute.KeyValue) bool { return reserved(string(kv.Key)) }

// uid returns a uid that a program has given its record, or where a rule matches
// it or it cannot be judged, the keyed one that stands for it.
func (d *Redaction) uid(uid string) (judged string) {
	if isUUID(uid) {
		return uid
	}
	mac := hmac.New(sha256.New, d.key)
	mac.Write([]byte("otel-bridge/log-uid/1\x00"))
	mac.Write([]byte(uid))
	token := uuid8(mac.Sum(nil))
	defer func() {
		if recover() != nil {
			judged = token
		}
	}()
	var f Findings
	if text, err := d.engine.Text(nil, uid, &f); err != nil || f.Withhold || string(text) != uid {
		return token
	}
	return uid
}

// applyLog redacts what only the records of programs have.
func (d *Redaction) applyLog(r *Record, f *Findings) Reason {
	r.UID = d.uid(r.UID)
	log := *r.Log
	var err error
	if log.SeverityText, err = d.text(log.SeverityText, f); err != nil {
		return ReasonRedaction
	}
	if log.Body, err = d.Value(log.Body, f); err != nil {
		return ReasonRedaction
	}
	if r.Scope.SchemaURL, err = d.text(r.Scope.SchemaURL, f); err != nil {
		return ReasonRedaction
	}
	if r.Scope.Attributes.Len() > 0 {
		kvs, err := d.attributes(r.Scope.Attributes.ToSlice(), f)
		if err != nil {
			return ReasonRedaction
		}
		r.Scope.Attributes = attribute.NewSet(kvs...)
	}
	r.Log = &log
	return ""
}

// marker redacts the little that a marker has: its type, resource and scope.
func (d *Redaction) marker(m *Record) (out *Record) {
	out = m
	defer func() {
		if recover() != nil {
			m.neutral(true)
		}
	}()
	m.Policy = d.policy
	if m.Channel == ChannelLog {
		m.UID = d.uid(m.UID)
	}
	var f Findings
	typ, err := d.text(m.Type, &f)
	if err != nil || typ != m.Type || f.Withhold {
		m.neutral(false)
	}
	if m.Scope.Name, err = d.text(m.Scope.Name, &f); err != nil {
		m.Scope.Name = ""
	}
	if m.Scope.Version, err = d.text(m.Scope.Version, &f); err != nil {
		m.Scope.Version = ""
	}
	m.Scope.SchemaURL, m.Scope.Attributes = "", attribute.Set{}
	if m.Resource, err = d.resource(m.Resource, &f); err != nil {
		m.Resource = nil
	}
	return out
}

// neutral takes the event type out of a marker, and all else that could be
// content when nothing can be judged.
func (r *Record) neutral(all bool) {
	if r.Channel == ChannelLedger {
		r.Type, r.EventName = RedactedType, RedactedType
	}
	if all {
		r.Resource, r.Scope = nil, Scope{}
	}
}

func (d *Redaction) text(s string, f *Findings) (string, error) {
	if s == "" {
		return "", nil
	}
	d.mu.RLock()
	c, ok := d.texts[s]
	d.mu.RUnlock()
	if ok {
		f.merge(&c.found)
		return c.text, nil
	}
	return d.newText(s, f)
}

func (d *Redaction) newText(s string, f *Findings) (string, error) {
	var c cachedText
	out, err := d.engine.Text(nil, s, &c.found)
	if err != nil {
		return "", err
	}
	c.text = s
	if string(out) != s {
		c.text = validUTF8(string(out))
	}
	if len(s) <= maxCachedLen {
		d.mu.Lock()
		if len(d.texts) >= maxCached {
			clear(d.texts)
		}
		d.texts[s] = c
		d.mu.Unlock()
	}
	f.merge(&c.found)
	return c.text, nil
}

func (d *Redaction) resource(r *Resource, f *Findings) (*Resource, error) {
	if r == nil {
		return nil, nil
	}
	d.mu.RLock()
	c, ok := d.resources[r]
	d.mu.RUnlock()
	if !ok {
		attrs, err := d.attributes(slices.Clone(r.attrs), &c.found)
		if err != nil {
			return nil, err
		}
		schema, err := d.text(r.schemaURL, &c.found)
		if err != nil {
			return nil, err
		}
		c.res = NewResource(schema, attrs...)
		d.mu.Lock()
		if len(d.resources) >= maxInterned {
			clear(d.resources)
		}
		d.resources[r] = c
		d.mu.Unlock()
	}
	f.merge(&c.found)
	return c.res, nil
}

// attributes redacts attributes as the members of one JSON object, so that
// rules see their keys, and nested JSON in them. What no rule touched keeps its
// type and value. The result is not to be changed.
func (d *Redaction) attributes(kvs []attribute.KeyValue, f *Findings) ([]attribute.KeyValue, error) {
	if len(kvs) == 0 {
		return nil, nil
	}
	for i, kv := range kvs {
		if (kv.Key == KeyParentID || kv.Key == keyConversationID) && kv.Value.Type() == attribute.STRING {
			id, err := d.SessionID(kv.Value.AsString())
			if err != nil {
				return nil, err
			}
			if id != kv.Value.AsString() {
				kvs = slices.Clone(kvs)
				kvs[i].Value = attribute.StringValue(id)
			}
		}
	}
	simple := true
	buf := d.buffers.Get().(*[]byte)
	defer d.buffers.Put(buf)
	src := append((*buf)[:0], '{')
	for i, kv := range kvs {
		if i > 0 {
			src = append(src, ',')
		}
		src = appendJSONString(src, string(kv.Key))
		src = append(src, ':')
		switch kv.Value.Type() {
		case attribute.STRING, attribute.INT64, attribute.BOOL:
		default:
			simple = false
		}
		src = appendJSONValue(src, kv.Value)
	}
	src = append(src, '}')
	*buf = src
	// Only strings, whole numbers and booleans have one JSON form each.
	if simple = simple && len(src) <= maxCachedLen; simple {
		d.mu.RLock()
		c, ok := d.sets[string(src)]
		d.mu.RUnlock()
		if ok {
			f.merge(&c.found)
			return c.attrs, nil
		}
	}
	var found Findings
	out, err := d.engine.JSON(nil, src, &found)
	if err != nil {
		return nil, err
	}
	f.merge(&found)
	attrs, err := mergeRedacted(slices.Clone(kvs), src, out)
	if err != nil {
		return nil, err
	}
	if simple {
		d.mu.Lock()
		if len(d.sets) >= maxCached {
			clear(d.sets)
		}
		d.sets[string(src)] = cachedSet{attrs, found}
		d.mu.Unlock()
	}
	return attrs, nil
}

// mergeRedacted reads redacted attributes back from out, the redacted form of
// src. What is as it was keeps its type.
func mergeRedacted(kvs []attribute.KeyValue, src, out []byte) ([]attribute.KeyValue, error) {
	if string(src) == string(out) {
		return kvs, nil
	}
	if err := session.ValidJSON(out); err != nil {
		return nil, err
	}
	was, now := session.WalkObject(src), session.WalkObject(session.TrimSpace(out))
	merged := make([]attribute.KeyValue, 0, len(kvs))
	i := -1
	for now.Next() {
		key, _ := session.String(now.RawKey())
		// Dropped members are missing from out; masked keys are not found again.
		w, at := was, i
		found := false
		for !found && w.Next() {
			at++
			found = string(w.RawKey()) == string(now.RawKey())
		}
		if found {
			was, i = w, at
			v, err := mergeValue(kvs[i].Value, was.Value(), now.Value())
			if err != nil {
				return nil, err
			}
			merged = append(merged, attribute.KeyValue{Key: kvs[i].Key, Value: v})
			continue
		}
		v, err := BodyValue(now.Value())
		if err != nil {
			return nil, err
		}
		merged = append(merged, attribute.KeyValue{Key: attribute.Key(key), Value: v})
	}
	return merged, nil
}

// mergeValue is mergeRedacted for a value.
func mergeValue(v attribute.Value, src, out []byte) (attribute.Value, error) {
	if string(src) == string(out) {
		return v, nil
	}
	switch {
	case v.Type() == attribute.MAP && session.KindOf(out) == session.KindObject:
		kvs, err := mergeRedacted(v.AsMap(), src, out)
		return attribute.MapValue(kvs...), err
	case v.Type() == attribute.SLICE && session.KindOf(out) == session.KindArray:
		list := v.AsSlice()
		was, now := session.WalkArray(src), session.WalkArray(out)
		i := 0
		for ; now.Next() && was.Next() && i < len(list); i++ {
			m, err := mergeValue(list[i], was.Value(), now.Value())
			if err != nil {
				return attribute.Value{}, err
			}
			list[i] = m
		}
		if i == len(list) && !now.Next() {
			return attribute.SliceValue(list...), nil
		}
	}
	return BodyValue(out)
}

// Value redacts a value of OpenTelemetry, with the keys and the JSON in it, and
// counts in f. What no rule touched keeps its type.
func (d *Redaction) Value(v attribute.Value, f *Findings) (attribute.Value, error) {
	switch v.Type() {
	case attribute.EMPTY, attribute.BOOL:
		return v, nil
	case attribute.STRING:
		out, err := d.engine.Text(nil, v.AsString(), f)
		if err != nil || string(out) == v.AsString() {
			return v, err
		}
		return attribute.StringValue(validUTF8(string(out))), nil
	}
	src := appendJSONValue(nil, v)
	out, err := d.engine.JSON(nil, src, f)
	if err != nil {
		return attribute.Value{}, err
	}
	if err := session.ValidJSON(out); err != nil {
		return attribute.Value{}, err
	}
	return mergeValue(v, src, session.TrimSpace(out))
}

func appendJSONString(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}

func appendJSONValue(dst []byte, v attribute.Value) []byte {
	switch v.Type() {
	case attribute.BOOL:
		return strconv.AppendBool(dst, v.AsBool())
	case attribute.INT64:
		return strconv.AppendInt(dst, v.AsInt64(), 10)
	case attribute.FLOAT64:
		f := v.AsFloat64()
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return append(dst, "null"...)
		}
		return strconv.AppendFloat(dst, f, 'g', -1, 64)
	case attribute.STRING:
		return appendJSONString(dst, v.AsString())
	case attribute.BYTESLICE:
		b := v.AsByteSlice()
		if utf8.Valid(b) {
			return appendJSONString(dst, string(b))
		}
		return appendJSONString(dst, base64.StdEncoding.EncodeToString(b))
	case attribute.BOOLSLICE:
		return appendJSONList(dst, v.AsBoolSlice(), attribute.BoolValue)
	case attribute.INT64SLICE:
		return appendJSONList(dst, v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		return appendJSONList(dst, v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.STRINGSLICE:
		return appendJSONList(dst, v.AsStringSlice(), attribute.StringValue)
	case attribute.SLICE:
		return appendJSONList(dst, v.AsSlice(), func(v attribute.Value) attribute.Value { return v })
	case attribute.MAP:
		dst = append(dst, '{')
		for i, kv := range v.AsMap() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSONString(dst, string(kv.Key))
			dst = append(dst, ':')
			dst = appendJSONValue(dst, kv.Value)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

func appendJSONList[T any](dst []byte, list []T, value func(T) attribute.Value) []byte {
	dst = append(dst, '[')
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONValue(dst, value(m))
	}
	return append(dst, ']')
}
