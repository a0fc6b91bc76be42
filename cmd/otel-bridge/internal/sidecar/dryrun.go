package sidecar

import (
	"bufio"
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// dryRun captures into memory and writes what would be sent.
func (g *generation) dryRun(ctx context.Context) error {
	store := &dryStore{out: bufio.NewWriter(g.opts.DryRun), json: g.cfg.Exporter.Body == "json", cursors: map[string][]byte{}}
	c, err := newCapturer(g.cfg, telemetry.NewInstallation(), store, PipelineOptions{Log: g.log})
	if err != nil {
		return err
	}
	g.log.Info("dry run: records go to stdout, nothing is kept and nothing is sent", "mode", g.cfg.Mode.String())
	c.watch(ctx)
	return nil
}

// dryStore is an outbox that only remembers cursors.
type dryStore struct {
	mu      sync.Mutex
	out     *bufio.Writer
	json    bool
	line    []byte
	decoder telemetry.Decoder
	cursors map[string][]byte
}

var _ telemetry.Outbox = (*dryStore)(nil)

// Commit writes the batch's records, one request a line.
func (s *dryStore) Commit(_ context.Context, b *outbox.Batch) (outbox.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range b.Entries {
		r, err := s.decoder.Decode(e.Payload)
		if err != nil {
			return 0, err
		}
		req, err := requestOf(&r, s.json)
		if err != nil {
			return 0, err
		}
		s.line = append(receiver.AppendJSON(s.line[:0], req), '\n')
		if _, err := s.out.Write(s.line); err != nil {
			return 0, err
		}
	}
	for _, c := range b.Cursors {
		if c.Value == nil {
			delete(s.cursors, c.Key)
			continue
		}
		s.cursors[c.Key] = append([]byte(nil), c.Value...)
	}
	return 0, s.out.Flush()
}

// WaitRoom never waits.
func (s *dryStore) WaitRoom(context.Context) error { return nil }

// Cursor returns a remembered cursor.
func (s *dryStore) Cursor(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.cursors[key]
	return v, ok
}

// Cursors calls fn with the remembered cursors.
func (s *dryStore) Cursors(prefix string, fn func(key string, value []byte) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range s.cursors {
		if strings.HasPrefix(k, prefix) && !fn(k, v) {
			return
		}
	}
}

// requestOf is a record as the request that would carry it alone.
func requestOf(r *telemetry.Record, bodyJSON bool) (*collogs.ExportLogsServiceRequest, error) {
	rec := &logs.LogRecord{
		TimeUnixNano:         uint64(r.Nanoseconds()),
		ObservedTimeUnixNano: uint64(r.ObservedNanoseconds()),
		SeverityNumber:       logs.SeverityNumber(r.Severity),
		SeverityText:         r.Severity.String(),
		EventName:            r.EventName,
		Attributes:           keyValues(r.AllAttributes()),
	}
	switch {
	case len(r.Body) == 0:
	case bodyJSON:
		rec.Body = anyValue(attribute.StringValue(string(r.Body)))
	default:
		v, err := telemetry.BodyValue(r.Body)
		if err != nil {
			return nil, err
		}
		rec.Body = anyValue(v)
	}
	return &collogs.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource:  &resource.Resource{Attributes: keyValues(r.Resource.Attributes())},
		SchemaUrl: r.Resource.SchemaURL(),
		ScopeLogs: []*logs.ScopeLogs{{
			Scope:      &common.InstrumentationScope{Name: r.Scope.Name, Version: r.Scope.Version},
			LogRecords: []*logs.LogRecord{rec},
		}},
	}}}, nil
}

func keyValues(kvs []attribute.KeyValue) []*common.KeyValue {
	out := make([]*common.KeyValue, len(kvs))
	for i, kv := range kvs {
		out[i] = &common.KeyValue{Key: string(kv.Key), Value: anyValue(kv.Value)}
	}
	return out
}

func anyValue(v attribute.Value) *common.AnyValue {
	list := func(n int, at func(i int) attribute.Value) *common.AnyValue {
		a := &common.ArrayValue{Values: make([]*common.AnyValue, n)}
		for i := range a.Values {
			a.Values[i] = anyValue(at(i))
		}
		return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: a}}
	}
	switch v.Type() {
	case attribute.BOOL:
		return &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: v.AsBool()}}
	case attribute.INT64:
		return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: v.AsInt64()}}
	case attribute.FLOAT64:
		return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: v.AsFloat64()}}
	case attribute.STRING:
		return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: v.AsString()}}
	case attribute.INT64SLICE:
		s := v.AsInt64Slice()
		return list(len(s), func(i int) attribute.Value { return attribute.Int64Value(s[i]) })
	case attribute.STRINGSLICE:
		s := v.AsStringSlice()
		return list(len(s), func(i int) attribute.Value { return attribute.StringValue(s[i]) })
	case attribute.BOOLSLICE:
		s := v.AsBoolSlice()
		return list(len(s), func(i int) attribute.Value { return attribute.BoolValue(s[i]) })
	case attribute.FLOAT64SLICE:
		s := v.AsFloat64Slice()
		return list(len(s), func(i int) attribute.Value { return attribute.Float64Value(s[i]) })
	case attribute.SLICE:
		s := v.AsSlice()
		return list(len(s), func(i int) attribute.Value { return s[i] })
	case attribute.MAP:
		return &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: &common.KeyValueList{Values: keyValues(v.AsMap())}}}
	}
	return &common.AnyValue{}
}
