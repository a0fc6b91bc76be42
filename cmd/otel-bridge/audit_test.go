package main

import (
	"bytes"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/rogpeppe/go-internal/testscript"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// tamper KIND IN OUT [ARG] writes a sink's file anew:
//
//	drop     without the record of the event with seq ARG of each session
//	alter    with a string in that record's body changed
//	double   with an altered copy behind that record
//	repeat   with every request twice
//	reverse  requests and records in the opposite order
//	cut      without the last byte
//	forge    every summary says that nothing was withheld or refused
//	unlink   without the summary numbered ARG
//	unkey    without bridge.started
//	shift    that record under another seq
//	zstd     IN is a ledger: in zstd, the header line in a frame of its own
//	field    with ARG, as SEQ:NAME:VALUE, in that record: an OTLP field or an
//	         attribute, which is added where there is none; empty: taken away
func cmdTamper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: tamper kind in out [arg]")
	}
	kind, arg := args[0], ""
	if len(args) > 3 {
		arg = args[3]
	}
	text, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	if kind == "zstd" {
		enc, err := zstd.NewWriter(nil)
		ts.Check(err)
		head := bytes.IndexByte(text, '\n') + 1
		b := enc.EncodeAll(text[head:], enc.EncodeAll(text[:head], nil))
		ts.Check(os.WriteFile(ts.MkAbs(args[2]), b, 0o600))
		return
	}
	var requests []*collogs.ExportLogsServiceRequest
	for line := range bytes.Lines(text) {
		req, err := receiver.ParseJSON(bytes.TrimSpace(line))
		ts.Check(err)
		requests = append(requests, req)
	}
	hits := 0
	for _, req := range requests {
		for _, rl := range req.ResourceLogs {
			for _, sl := range rl.ScopeLogs {
				var out []*logs.LogRecord
				for _, rec := range sl.LogRecords {
					n := len(out)
					out = append(out, tampered(kind, arg, rec)...)
					if len(out) != n+1 || !proto.Equal(out[n], rec) {
						hits++
					}
				}
				if kind == "reverse" {
					slices.Reverse(out)
				}
				sl.LogRecords = out
			}
		}
	}
	switch kind {
	case "reverse":
		slices.Reverse(requests)
	case "repeat":
		requests = append(requests, requests...)
	case "cut":
	default:
		if hits == 0 {
			ts.Fatalf("nothing to %s", kind)
		}
	}
	var b []byte
	for _, req := range requests {
		b = append(receiver.AppendJSON(b, req), '\n')
	}
	if kind == "cut" {
		b = b[:len(b)-1]
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b, 0o600))
}

func tampered(kind, arg string, rec *logs.LogRecord) []*logs.LogRecord {
	attrs := receiver.PlainMap(rec.Attributes)
	op, _ := attrs["otel_bridge.op"].(string)
	seq, isEvent := attrs["event.seq"].(int64)
	mine := isEvent && op == "" && arg != "" && seq == int64(atoi(arg))
	changed := func() *logs.LogRecord {
		c := proto.Clone(rec).(*logs.LogRecord)
		if !changeString(c.Body) {
			c.Body = &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: "{}"}}
		}
		return c
	}
	switch {
	case kind == "field":
		part := strings.SplitN(arg, ":", 3)
		if !isEvent || op != "" || seq != int64(atoi(part[0])) {
			break
		}
		c := proto.Clone(rec).(*logs.LogRecord)
		setField(c, part[1], part[2])
		return []*logs.LogRecord{c}
	case kind == "drop" && mine:
		return nil
	case kind == "alter" && mine:
		return []*logs.LogRecord{changed()}
	case kind == "double" && mine:
		return []*logs.LogRecord{rec, changed()}
	case kind == "shift" && mine:
		c := proto.Clone(rec).(*logs.LogRecord)
		for _, kv := range c.Attributes {
			if kv.Key == "event.seq" {
				kv.Value = &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: seq + 1}}
			}
		}
		return []*logs.LogRecord{c}
	case kind == "unlink" && op == "session.summary" && receiver.Plain(rec.Body).(map[string]any)["span"] == int64(atoi(arg)):
		return nil
	case kind == "unkey" && op == "bridge.started":
		return nil
	case kind == "forge" && op == "session.summary":
		return []*logs.LogRecord{changed()}
	}
	return []*logs.LogRecord{rec}
}

// setField gives a field or an attribute another value, of the kind that it has.
func setField(rec *logs.LogRecord, name, value string) {
	switch name {
	case "eventName":
		rec.EventName = value
		return
	case "timeUnixNano":
		rec.TimeUnixNano += uint64(atoi(value))
		return
	case "severityNumber":
		rec.SeverityNumber = logs.SeverityNumber(atoi(value))
		return
	case "severityText":
		rec.SeverityText = value
		return
	}
	v := &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}
	if value == "true" {
		v.Value = &common.AnyValue_BoolValue{BoolValue: true}
	}
	for i, kv := range rec.Attributes {
		if kv.Key != name {
			continue
		}
		switch kv.Value.Value.(type) {
		case *common.AnyValue_IntValue:
			v.Value = &common.AnyValue_IntValue{IntValue: int64(atoi(value))}
		case *common.AnyValue_ArrayValue:
			one := &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(atoi(value))}}
			v.Value = &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{Values: []*common.AnyValue{one}}}
		}
		if value == "" {
			rec.Attributes = slices.Delete(rec.Attributes, i, i+1)
			return
		}
		kv.Value = v
		return
	}
	rec.Attributes = append(rec.Attributes, &common.KeyValue{Key: name, Value: v})
}

func atoi(s string) int {
	n := 0
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

// changeString changes the first string in a value, but for one that summaries
// are bound by.
func changeString(v *common.AnyValue) bool {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		v.StringValue += "!"
		return true
	case *common.AnyValue_KvlistValue:
		for _, kv := range v.KvlistValue.Values {
			if kv.Key != "first_uid" && kv.Key != "key" && kv.Key != "previous" && changeString(kv.Value) {
				return true
			}
		}
	case *common.AnyValue_ArrayValue:
		for _, e := range v.ArrayValue.Values {
			if changeString(e) {
				return true
			}
		}
	}
	return false
}
