package telemetry

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/trace"
)

// LogRecord returns r as the log API has it, and the context to emit it in: the
// span of a record of ChannelLog travels there. Bodies of ledgers are JSON text
// when jsonBody is set, and values otherwise.
func (r *Record) LogRecord(ctx context.Context, jsonBody bool) (context.Context, apilog.Record, error) {
	var out apilog.Record
	// Never the zero time: an SDK would put its own in place of it.
	out.SetTimestamp(time.Unix(0, r.Nanoseconds()))
	out.SetObservedTimestamp(time.Unix(0, r.ObservedNanoseconds()))
	out.SetSeverity(apilog.Severity(r.Severity))
	out.SetSeverityText(r.Severity.String())
	out.SetEventName(r.EventName)
	switch {
	case r.Log != nil:
		out.SetSeverityText(r.Log.SeverityText)
		out.SetBody(r.Log.Body)
		if r.Log.TraceID != [16]byte{} {
			ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: r.Log.TraceID, SpanID: r.Log.SpanID, TraceFlags: trace.TraceFlags(r.Log.TraceFlags),
			}))
		}
	case len(r.Body) > 0 && jsonBody:
		out.SetBody(attribute.StringValue(string(r.Body)))
	case len(r.Body) > 0:
		body, err := BodyValue(r.Body)
		if err != nil {
			return ctx, apilog.Record{}, err
		}
		out.SetBody(body)
	}
	out.AddAttributes(r.AllAttributes()...)
	return ctx, out, nil
}

// ErrWithheld is returned by a RedactingProcessor for a record that it did not
// pass on.
var ErrWithheld = errors.New("the log record is withheld: it could not be redacted")

// RedactingProcessor redacts records of the OpenTelemetry log SDK, in place,
// before the processors that are registered behind it see them: body,
// attributes, event name and severity text.
//
// The SDK lets nobody change a record's scope and resource. Where a rule
// matches there, or where redaction fails, the body and all attributes are
// taken out, so that nothing is passed on that could not be judged, and OnEmit
// returns ErrWithheld. DurableProcessor redacts scope and resource as well.
type RedactingProcessor struct{ redaction *Redaction }

var _ sdklog.Processor = RedactingProcessor{}

// NewRedactingProcessor returns a processor to be registered first.
func NewRedactingProcessor(d *Redaction) RedactingProcessor { return RedactingProcessor{d} }

// Enabled is always true.
func (p RedactingProcessor) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// OnEmit redacts r in place.
func (p RedactingProcessor) OnEmit(_ context.Context, r *sdklog.Record) error {
	if !p.redact(r) {
		r.SetBody(attribute.Value{})
		r.SetAttributes(attribute.String(KeyWithheld, string(ReasonRedaction)))
		r.SetEventName("")
		r.SetSeverityText("")
		return ErrWithheld
	}
	return nil
}

func (p RedactingProcessor) redact(r *sdklog.Record) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	d := p.redaction
	var found Findings
	name, err := d.text(r.EventName(), &found)
	if err != nil {
		return false
	}
	severity, err := d.text(r.SeverityText(), &found)
	if err != nil {
		return false
	}
	body, err := d.Value(r.Body(), &found)
	if err != nil {
		return false
	}
	attrs := make([]attribute.KeyValue, 0, r.AttributesLen())
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		attrs = append(attrs, kv)
		return true
	})
	if attrs, err = d.attributes(attrs, &found); err != nil || found.Withhold {
		return false
	}
	scope := r.InstrumentationScope()
	for _, s := range []string{scope.Name, scope.Version, scope.SchemaURL, r.Resource().SchemaURL()} {
		if out, err := d.text(s, &found); err != nil || out != s {
			return false
		}
	}
	for _, kvs := range [][]attribute.KeyValue{scope.Attributes.ToSlice(), r.Resource().Attributes()} {
		if out, err := d.attributes(kvs, &found); err != nil || !slices.Equal(out, kvs) {
			return false
		}
	}
	r.SetEventName(name)
	r.SetSeverityText(severity)
	r.SetBody(body)
	r.SetAttributes(attrs...)
	return true
}

// Shutdown does nothing.
func (p RedactingProcessor) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing.
func (p RedactingProcessor) ForceFlush(context.Context) error { return nil }
