package telemetry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
)

// Next calls the rest of a waterfall, and at its end returns r.
type Next func(ctx context.Context, r *Record) (*Record, error)

// Listener is one step of a waterfall. It transforms what next returns, or
// returns without calling next.
//
// A listener gets a copy of its own of the raw record, before redaction, and
// must keep it in the process. Returning nil drops the record: a marker goes
// out in its place. So it is with an error or a panic. What a listener does to
// a record's identity, type, surface facts and treatment has no effect.
type Listener interface {
	Listen(ctx context.Context, r *Record, next Next) (*Record, error)
}

// ListenerFunc makes a Listener of a function.
type ListenerFunc func(ctx context.Context, r *Record, next Next) (*Record, error)

// Listen calls f.
func (f ListenerFunc) Listen(ctx context.Context, r *Record, next Next) (*Record, error) {
	return f(ctx, r, next)
}

// ErrNotCovered is returned by Waterfall.Run for a record that consent does not
// cover. Nothing goes out for it, not even a marker.
var ErrNotCovered = errors.New("consent does not cover the record")

// Gate decides whether consent covers a record. It must be safe for concurrent
// use.
type Gate func(r *Record) bool

// Waterfall is the way of each record before it may be stored:
//
//	gate ▸ redaction ▸ your listeners, the first one outermost
//
// so that redaction has the last word on everything that comes back. It is
// safe for concurrent use if the listeners are.
type Waterfall struct {
	gate      Gate
	redaction *Redaction
	own       []Listener
}

// NewWaterfall returns a waterfall. A nil gate covers everything, a nil
// redaction changes nothing ("redact: none").
func NewWaterfall(gate Gate, redaction *Redaction, own ...Listener) *Waterfall {
	return &Waterfall{gate: gate, redaction: redaction, own: slices.Clone(own)}
}

// Policy returns the hash of the redaction policy that records go through, or
// PolicyNone.
func (w *Waterfall) Policy() string {
	if w.redaction == nil {
		return PolicyNone
	}
	return w.redaction.Policy()
}

// PolicyNone stands for a policy hash where redaction is refused by name.
const PolicyNone = "none"

// Run takes r down the waterfall and returns what may be stored: the record, or
// the marker that stands for it when it was withheld. The result may share
// memory with r. The error is ErrNotCovered, or the context's when it ended
// before the record was through: then nothing has been decided about it.
func (w *Waterfall) Run(ctx context.Context, r *Record) (*Record, error) {
	if w.gate != nil && !w.gate(r) {
		return nil, ErrNotCovered
	}
	if r.Withheld != "" {
		return w.finish(r, r.Withheld), nil
	}
	out := r
	if len(w.own) > 0 {
		var why Reason
		if out, why = w.listen(ctx, r); why != "" {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return w.finish(r, why), nil
		}
	}
	clean(out)
	if w.redaction == nil {
		out.Policy = PolicyNone
		return out, nil
	}
	if why := w.redaction.apply(out); why != "" {
		return w.finish(out, why), nil
	}
	return out, nil
}

// ours makes ready a record of the bridge whose body is signed, or will be: no
// listener sees it, and redaction leaves the body as it is.
func (w *Waterfall) ours(r *Record) *Record {
	clean(r)
	if w.redaction == nil {
		r.Policy = PolicyNone
		return r
	}
	if why := w.redaction.apply(r); why != "" {
		// What cannot be judged is left out: the body is numbers and digests.
		r.Resource, r.Scope, r.Attributes, r.Policy = nil, Scope{Name: ScopeOps}, nil, w.redaction.policy
	}
	return r
}

// finish makes the marker for r. The type and the resource go through redaction
// also then.
func (w *Waterfall) finish(r *Record, why Reason) *Record {
	m := r.withhold(why, r.Resource, r.Scope)
	m.Policy = PolicyNone
	if w.redaction == nil {
		return m
	}
	return w.redaction.marker(m)
}

// listen runs the caller's listeners over a copy of r. What they return gets
// back what they cannot change.
func (w *Waterfall) listen(ctx context.Context, r *Record) (out *Record, why Reason) {
	defer func() {
		if recover() != nil {
			out, why = nil, ReasonListenerPanic
		}
	}()
	got, err := w.next(0)(ctx, r.private())
	switch {
	case err != nil:
		return nil, ReasonListenerError
	case got == nil:
		return nil, ReasonDropped
	}
	// A copy again: a listener may have kept what it returned.
	out = got.private()
	if len(out.Body) > 0 && session.ValidJSON(out.Body) != nil {
		return nil, ReasonInvalidBody
	}
	out.Channel, out.Identity, out.SessionScoped = r.Channel, r.Identity, r.SessionScoped
	out.Type, out.Op, out.UID, out.ObservedMs = r.Type, r.Op, r.UID, r.ObservedMs
	out.Surface, out.Inherited = r.Surface, r.Inherited
	out.about, out.consent = r.about, r.consent
	if (out.Log == nil) != (r.Log == nil) {
		return nil, ReasonInvalidBody
	}
	out.Attributes = lastWins(out.Attributes)
	out.Policy, out.Redactions, out.Withheld, out.Cut = r.Policy, r.Redactions, r.Withheld, r.Cut
	return out, ""
}

func (w *Waterfall) next(i int) Next {
	if i == len(w.own) {
		return func(_ context.Context, r *Record) (*Record, error) { return r, nil }
	}
	return func(ctx context.Context, r *Record) (*Record, error) {
		if r == nil {
			return nil, nil
		}
		return w.own[i].Listen(ctx, r, w.next(i+1))
	}
}

// private returns a copy of r that shares nothing that can be changed.
func (r *Record) private() *Record {
	c := *r
	c.Body = slices.Clone(r.Body)
	c.Attributes = slices.Clone(r.Attributes)
	c.Surface.Sources = slices.Clone(r.Surface.Sources)
	c.Redactions = slices.Clone(r.Redactions)
	if r.Log != nil {
		log := *r.Log
		c.Log = &log
	}
	c.scratch = nil
	return &c
}

// clean makes every string of r valid UTF-8, since one that is not would make
// an exporter refuse a whole batch.
func clean(r *Record) {
	r.EventName = validUTF8(r.EventName)
	r.Scope.Name = validUTF8(r.Scope.Name)
	r.Scope.Version = validUTF8(r.Scope.Version)
	if r.Log != nil {
		r.Log.SeverityText = validUTF8(r.Log.SeverityText)
		r.Log.Body = cleanValue(r.Log.Body)
	}
	for i, kv := range r.Attributes {
		if !validKeyValue(kv) {
			r.Attributes = slices.Clone(r.Attributes)
			for ; i < len(r.Attributes); i++ {
				r.Attributes[i] = cleanKeyValue(r.Attributes[i])
			}
			return
		}
	}
}

func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func validKeyValue(kv attribute.KeyValue) bool {
	return utf8.ValidString(string(kv.Key)) && validValue(kv.Value)
}

func validValue(v attribute.Value) bool {
	switch v.Type() {
	case attribute.STRING:
		return utf8.ValidString(v.AsString())
	case attribute.STRINGSLICE:
		return !slices.ContainsFunc(v.AsStringSlice(), func(s string) bool { return !utf8.ValidString(s) })
	case attribute.SLICE:
		return !slices.ContainsFunc(v.AsSlice(), func(v attribute.Value) bool { return !validValue(v) })
	case attribute.MAP:
		return !slices.ContainsFunc(v.AsMap(), func(kv attribute.KeyValue) bool { return !validKeyValue(kv) })
	}
	return true
}

func cleanKeyValue(kv attribute.KeyValue) attribute.KeyValue {
	return attribute.KeyValue{Key: attribute.Key(validUTF8(string(kv.Key))), Value: cleanValue(kv.Value)}
}

func cleanValue(v attribute.Value) attribute.Value {
	if validValue(v) {
		return v
	}
	switch v.Type() {
	case attribute.STRING:
		return attribute.StringValue(validUTF8(v.AsString()))
	case attribute.STRINGSLICE:
		list := v.AsStringSlice()
		for i := range list {
			list[i] = validUTF8(list[i])
		}
		return attribute.StringSliceValue(list)
	case attribute.SLICE:
		list := v.AsSlice()
		for i := range list {
			list[i] = cleanValue(list[i])
		}
		return attribute.SliceValue(list...)
	case attribute.MAP:
		kvs := v.AsMap()
		for i := range kvs {
			kvs[i] = cleanKeyValue(kvs[i])
		}
		return attribute.MapValue(kvs...)
	}
	return v
}
