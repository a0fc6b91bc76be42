package otlp

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// resourceMark is the attribute that [resourceKeys] adds and takes away.
const resourceMark = "otel_bridge.internal.resource"

// resourceKeys takes out of a finished request what the environment of this
// process added to stored resources: the SDK offers no way to a record
// without it. Resources that need it carry a mark; without any, requests are
// left as they are.
type resourceKeys struct {
	wanted []map[string]bool
	known  map[string]int // index in wanted by the keys in order
}

// marked returns res with a mark under which its own keys are remembered.
func (k *resourceKeys) marked(res *telemetry.Resource) *resource.Resource {
	keys := make(map[string]bool)
	var name []byte
	for _, kv := range res.Attributes() {
		keys[string(kv.Key)] = true
		name = protowire.AppendString(name, string(kv.Key))
	}
	i, ok := k.known[string(name)]
	if !ok {
		if k.known == nil {
			k.known = make(map[string]int)
		}
		i = len(k.wanted)
		k.known[string(name)] = i
		k.wanted = append(k.wanted, keys)
	}
	attrs := append([]attribute.KeyValue{attribute.String(resourceMark, strconv.Itoa(i))}, res.Attributes()...)
	return resource.NewWithAttributes(res.SchemaURL(), attrs...)
}

// restore returns the request with only the wanted attributes in marked
// resources. Field numbers are those of the OTLP protobufs.
func (k *resourceKeys) restore(req []byte) []byte {
	if len(k.wanted) == 0 {
		return req
	}
	return mapFields(req, 1, func(resourceLogs []byte) []byte { // ExportLogsServiceRequest.resource_logs
		return mapFields(resourceLogs, 1, k.restoreResource) // ResourceLogs.resource
	})
}

func (k *resourceKeys) restoreResource(res []byte) []byte {
	var keys map[string]bool
	mapFields(res, 1, func(kv []byte) []byte { // Resource.attributes
		if key, value := pair(kv); key == resourceMark {
			if i, err := strconv.Atoi(value); err == nil && i >= 0 && i < len(k.wanted) {
				keys = k.wanted[i]
			}
		}
		return kv
	})
	if keys == nil {
		return res
	}
	return mapFields(res, 1, func(kv []byte) []byte {
		if key, _ := pair(kv); !keys[key] {
			return nil
		}
		return kv
	})
}

// pair returns key and string value of a KeyValue.
func pair(kv []byte) (key, value string) {
	mapFields(kv, 1, func(b []byte) []byte { key = string(b); return b })
	mapFields(kv, 2, func(any []byte) []byte {
		mapFields(any, 1, func(b []byte) []byte { value = string(b); return b })
		return any
	})
	return key, value
}

// mapFields replaces each length-delimited field num of msg by what fn makes
// of it; nil removes the field. A message that breaks off is returned as it is.
func mapFields(msg []byte, num protowire.Number, fn func([]byte) []byte) []byte {
	out := make([]byte, 0, len(msg))
	for rest := msg; len(rest) > 0; {
		n, typ, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return msg
		}
		size := protowire.ConsumeFieldValue(n, typ, rest[tag:])
		if size < 0 {
			return msg
		}
		field := rest[:tag+size]
		rest = rest[tag+size:]
		if n != num || typ != protowire.BytesType {
			out = append(out, field...)
			continue
		}
		content, _ := protowire.ConsumeBytes(field[tag:])
		if content = fn(content); content != nil {
			out = protowire.AppendTag(out, num, typ)
			out = protowire.AppendBytes(out, content)
		}
	}
	return out
}
