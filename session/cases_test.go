package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// edit is one change to the rows of a table's log.
type edit struct {
	Truncate             *int
	Header, Append, Tail *string
	Row                  *int
	Text, Find, Replace  *string
}

// edited applies edits to the header and rows of a log file.
func edited(t *testing.T, raw []byte, edits []edit) (header string, rows []string) {
	t.Helper()
	for i, l := range lines(raw) {
		if i == 0 {
			header = string(l)
		} else {
			rows = append(rows, string(l))
		}
	}
	for _, e := range edits {
		switch {
		case e.Truncate != nil:
			rows = rows[:*e.Truncate]
		case e.Header != nil:
			header = *e.Header
		case e.Tail != nil:
			// Bytes without a line feed are no row.
		case e.Append != nil:
			rows = append(rows, *e.Append)
		case e.Row != nil && e.Text != nil:
			rows[*e.Row] = *e.Text
		case e.Row != nil:
			if strings.Count(rows[*e.Row], *e.Find) != 1 {
				t.Fatalf("edit of row %d does not find its text exactly once", *e.Row)
			}
			rows[*e.Row] = strings.Replace(rows[*e.Row], *e.Find, *e.Replace, 1)
		default:
			t.Fatalf("the table has a new kind of edit: %+v", e)
		}
	}
	return header, rows
}

// decodeRows decodes rows as they are, without any relation between them.
func decodeRows(t *testing.T, d *Dialect, rows []string) []Event {
	t.Helper()
	events := make([]Event, len(rows))
	for i, row := range rows {
		if err := DecodeEvent(d, nil, []byte(row), &events[i]); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	return events
}

// resolve replaces {"$log":"/seq/ptr"} by the value in the log's rows.
func resolve(t *testing.T, want any, rows []string) any {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		if ptr, ok := w["$log"].(string); ok && len(w) == 1 {
			parts := strings.Split(ptr, "/")[1:]
			var i int
			if _, err := fmt.Sscan(parts[0], &i); err != nil {
				t.Fatal(err)
			}
			var v any
			decode(t, []byte(rows[i]), &v)
			for _, p := range parts[1:] {
				switch at := v.(type) {
				case map[string]any:
					v = at[p]
				case []any:
					if _, err := fmt.Sscan(p, &i); err != nil {
						t.Fatal(err)
					}
					v = at[i]
				default:
					t.Fatalf("pointer %s leads nowhere", ptr)
				}
			}
			return v
		}
		out := map[string]any{}
		for k, v := range w {
			out[k] = resolve(t, v, rows)
		}
		return out
	case []any:
		out := make([]any, len(w))
		for i, v := range w {
			out[i] = resolve(t, v, rows)
		}
		return out
	}
	return want
}

func decode(t *testing.T, raw []byte, v any) {
	t.Helper()
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// value decodes raw JSON, nil for nil.
func value(t *testing.T, raw []byte) any {
	t.Helper()
	if raw == nil {
		return nil
	}
	var v any
	decode(t, raw, &v)
	return v
}
