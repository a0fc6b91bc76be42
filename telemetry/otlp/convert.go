package otlp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// converter turns stored records into the SDK's. The SDK has no constructor
// for them: one is emitted into a processor that keeps it, for each resource
// and scope, and copies of that are filled in. It is not safe for concurrent
// use.
type converter struct {
	json      bool // bodies as JSON text
	decoder   telemetry.Decoder
	resources *resourceKeys
	providers map[*telemetry.Resource]*provider
	attrs     []attribute.KeyValue
}

type provider struct {
	keep   keeper
	sdk    *sdklog.LoggerProvider
	blanks map[telemetry.Scope]sdklog.Record // records with nothing but resource and scope
}

// keeper is the processor that keeps the one record just emitted.
type keeper struct{ record sdklog.Record }

func (k *keeper) OnEmit(_ context.Context, r *sdklog.Record) error       { k.record = *r; return nil }
func (k *keeper) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (k *keeper) Shutdown(context.Context) error                         { return nil }
func (k *keeper) ForceFlush(context.Context) error                       { return nil }

// maxProviders bounds the resources that are remembered, and the scopes of
// each; a backlog has few.
const maxProviders = 64

// record fills in out, r as the SDK has it.
func (c *converter) record(out *sdklog.Record, r *telemetry.Record) error {
	*out = c.provider(r.Resource).blank(r.Scope)
	out.SetTimestamp(time.Unix(0, r.Nanoseconds()))
	out.SetObservedTimestamp(time.Unix(0, r.ObservedNanoseconds()))
	out.SetSeverity(apilog.Severity(r.Severity))
	out.SetSeverityText(r.Severity.String())
	out.SetEventName(r.EventName)
	if len(r.Body) > 0 {
		body, err := c.body(r.Body)
		if err != nil {
			return err
		}
		out.SetBody(body)
	}
	c.attrs = r.AppendAttributes(c.attrs[:0])
	out.SetAttributes(c.attrs...) // copies
	clear(c.attrs)
	return nil
}

func (c *converter) body(raw []byte) (attribute.Value, error) {
	if c.json {
		return attribute.StringValue(string(raw)), nil
	}
	return telemetry.BodyValue(raw)
}

func (c *converter) provider(res *telemetry.Resource) *provider {
	if p, ok := c.providers[res]; ok && len(p.blanks) < maxProviders {
		return p
	}
	if len(c.providers) >= maxProviders || c.providers == nil {
		c.providers = make(map[*telemetry.Resource]*provider)
	}
	p := newProvider(resource.NewWithAttributes(res.SchemaURL(), res.Attributes()...))
	if !p.exact(res) {
		p = newProvider(c.resources.marked(res))
	}
	c.providers[res] = p
	return p
}

// newProvider sets every limit, since those left open come from the
// environment and cut silently.
func newProvider(res *resource.Resource) *provider {
	p := &provider{blanks: make(map[telemetry.Scope]sdklog.Record)}
	p.sdk = sdklog.NewLoggerProvider(
		sdklog.WithResource(res),
		sdklog.WithProcessor(&p.keep),
		sdklog.WithAttributeCountLimit(-1),
		sdklog.WithAttributeValueLengthLimit(-1),
		sdklog.WithAttributeValueDepthLimit(-1),
		sdklog.WithAllowKeyDuplication(), // telemetry has removed duplicates
	)
	return p
}

func (p *provider) blank(scope telemetry.Scope) sdklog.Record {
	if r, ok := p.blanks[scope]; ok {
		return r
	}
	p.sdk.Logger(scope.Name, apilog.WithInstrumentationVersion(scope.Version)).Emit(context.Background(), apilog.Record{})
	p.blanks[scope] = p.keep.record
	return p.keep.record
}

// exact says whether records of p have just the resource that was stored:
// WithResource adds OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME of this
// very process, which would relabel a backlog.
func (p *provider) exact(want *telemetry.Resource) bool {
	blank := p.blank(telemetry.Scope{Name: telemetry.ScopeLedger})
	got := blank.Resource()
	if got.SchemaURL() != want.SchemaURL() || got.Len() != len(want.Attributes()) {
		return false
	}
	for _, kv := range want.Attributes() {
		if v, ok := got.Set().Value(kv.Key); !ok || v != kv.Value {
			return false
		}
	}
	return true
}

// validText replaces invalid UTF-8, which protobuf refuses, by U+FFFD in all
// strings of r. Telemetry has done so already; this is for what slipped
// through, so that one string does not stop a batch.
func validText(r *sdklog.Record) {
	r.SetEventName(valid(r.EventName()))
	r.SetSeverityText(valid(r.SeverityText()))
	r.SetBody(validValue(r.Body()))
	attrs := make([]attribute.KeyValue, 0, r.AttributesLen())
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		attrs = append(attrs, attribute.KeyValue{Key: attribute.Key(valid(string(kv.Key))), Value: validValue(kv.Value)})
		return true
	})
	r.SetAttributes(attrs...)
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func validValue(v attribute.Value) attribute.Value {
	switch v.Type() {
	case attribute.STRING:
		return attribute.StringValue(valid(v.AsString()))
	case attribute.STRINGSLICE:
		list := v.AsStringSlice()
		for i, s := range list {
			list[i] = valid(s)
		}
		return attribute.StringSliceValue(list)
	case attribute.SLICE:
		list := v.AsSlice()
		for i, m := range list {
			list[i] = validValue(m)
		}
		return attribute.SliceValue(list...)
	case attribute.MAP:
		kvs := v.AsMap()
		for i, kv := range kvs {
			kvs[i] = attribute.KeyValue{Key: attribute.Key(valid(string(kv.Key))), Value: validValue(kv.Value)}
		}
		return attribute.MapValue(kvs...)
	}
	return v
}

// refresh calls fn, and takes a panic for a failure. The error's text is not
// used: it may hold content.
func refresh(fn func(*telemetry.Record) error, r *telemetry.Record) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("refresh panicked")
		}
	}()
	return fn(r)
}
