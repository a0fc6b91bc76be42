package receiver

import common "go.opentelemetry.io/proto/otlp/common/v1"

// Plain is an OTLP value as Go has it: string, bool, int64, float64, []any,
// map[string]any, or nil for an empty one and for bytes. Of duplicate keys the last
// wins.
func Plain(v *common.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_BoolValue:
		return v.BoolValue
	case *common.AnyValue_IntValue:
		return v.IntValue
	case *common.AnyValue_DoubleValue:
		return v.DoubleValue
	case *common.AnyValue_ArrayValue:
		list := make([]any, len(v.ArrayValue.GetValues()))
		for i, e := range v.ArrayValue.GetValues() {
			list[i] = Plain(e)
		}
		return list
	case *common.AnyValue_KvlistValue:
		return PlainMap(v.KvlistValue.GetValues())
	}
	return nil
}

// PlainMap is Plain for attributes.
func PlainMap(kvs []*common.KeyValue) map[string]any {
	m := make(map[string]any, len(kvs))
	for _, kv := range kvs {
		m[kv.GetKey()] = Plain(kv.GetValue())
	}
	return m
}
