package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
)

// received is one record of a sink's file, flattened.
type received struct {
	Resource map[string]any
	Scope    string
	Record   *logs.LogRecord
	Attrs    map[string]any
	Body     any
}

func (r received) uid() string { s, _ := r.Attrs["log.record.uid"].(string); return s }

// readReceived reads a sink's file.
func readReceived(path string) ([]received, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []received
	for line := range bytes.Lines(text) {
		req, err := receiver.ParseJSON(bytes.TrimSpace(line))
		if err != nil {
			return nil, err
		}
		for _, rl := range req.ResourceLogs {
			for _, sl := range rl.ScopeLogs {
				for _, rec := range sl.LogRecords {
					out = append(out, received{
						Resource: receiver.PlainMap(rl.Resource.GetAttributes()), Scope: sl.Scope.GetName(),
						Record: rec, Attrs: receiver.PlainMap(rec.Attributes), Body: receiver.Plain(rec.Body),
					})
				}
			}
		}
	}
	return out, nil
}

// samerecords A B checks that two sinks have the same records, by uid, with the
// same content but for when they were observed and by whom. B may have records
// twice.
func cmdSameRecords(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: samerecords file file")
	}
	var sets [2]map[string]string
	for i, name := range args {
		list, err := readReceived(ts.MkAbs(name))
		ts.Check(err)
		sets[i] = map[string]string{}
		for _, r := range list {
			if r.Attrs["otel_bridge.op"] != nil {
				continue // numbered by installation
			}
			content, err := json.Marshal([]any{r.Scope, r.Record.TimeUnixNano, r.Record.SeverityNumber, r.Record.EventName, r.Attrs, r.Body})
			ts.Check(err)
			if old, twice := sets[i][r.uid()]; twice && old != string(content) {
				ts.Fatalf("%s has %s twice, with different content", name, r.uid())
			}
			sets[i][r.uid()] = string(content)
		}
	}
	if len(sets[0]) == 0 || !maps.Equal(sets[0], sets[1]) {
		ts.Fatalf("%s and %s differ: %s", args[0], args[1], difference(sets[0], sets[1]))
	}
}

func difference(a, b map[string]string) string {
	for _, uid := range slices.Sorted(maps.Keys(a)) {
		if a[uid] != b[uid] {
			return fmt.Sprintf("%s is\n%s\nand\n%s", uid, a[uid], b[uid])
		}
	}
	return fmt.Sprintf("%d and %d records", len(a), len(b))
}
