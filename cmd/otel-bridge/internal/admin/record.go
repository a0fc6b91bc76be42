package admin

import (
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

// Record is a stored record for an operator: what a receiver gets, as JSON.
type Record struct {
	Channel    string          `json:"channel"`
	Time       string          `json:"time"`
	Observed   string          `json:"observed"`
	Severity   string          `json:"severity"`
	EventName  string          `json:"event_name"`
	Attributes map[string]any  `json:"attributes"`
	Body       json.RawMessage `json:"body,omitempty"`
	Resource   map[string]any  `json:"resource"`
	Scope      string          `json:"scope"`
}

// DecodeRecord decodes a stored record.
func DecodeRecord(payload []byte) (*Record, error) {
	r, err := telemetry.DecodeRecord(payload)
	if err != nil {
		return nil, err
	}
	return RecordOf(&r), nil
}

// RecordOf is r for an operator.
func RecordOf(r *telemetry.Record) *Record {
	out := &Record{
		Channel:    "ledger",
		Time:       time.UnixMilli(r.TimeMs).UTC().Format(timeFormat),
		Observed:   time.UnixMilli(r.ObservedMs).UTC().Format(timeFormat),
		Severity:   r.Severity.String(),
		EventName:  r.EventName,
		Attributes: toMap(r.AllAttributes()),
		Body:       append(json.RawMessage(nil), r.Body...),
		Resource:   toMap(r.Resource.Attributes()),
		Scope:      r.Scope.Name,
	}
	if r.Channel == telemetry.ChannelOps {
		out.Channel = "ops"
	}
	return out
}

func toMap(kvs []attribute.KeyValue) map[string]any {
	m := make(map[string]any, len(kvs))
	for _, kv := range kvs {
		m[string(kv.Key)] = toAny(kv.Value)
	}
	return m
}

func toAny(v attribute.Value) any {
	switch v.Type() {
	case attribute.MAP:
		return toMap(v.AsMap())
	case attribute.SLICE:
		list := make([]any, 0, len(v.AsSlice()))
		for _, e := range v.AsSlice() {
			list = append(list, toAny(e))
		}
		return list
	}
	return v.AsInterface()
}
