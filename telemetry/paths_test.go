package telemetry

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/redact"
)

// What docs/policies.md says of the paths and keys of a record.
func TestPathsOfARecordStartAtItsBody(t *testing.T) {
	policy, err := redact.ParsePolicy("own", []byte(`
[[rules]]
id = "from-the-body"
paths = ["title"]
[[rules]]
id = "anywhere"
paths = ["**.note"]
[[rules]]
id = "as-in-a-file"
paths = ["data.other"]
[[rules]]
id = "attribute"
keys = ["session.cwd"]
`))
	if err != nil {
		t.Fatal(err)
	}
	engine, err := redact.New(redact.Options{Policies: []*redact.Policy{policy}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewWaterfall(nil, NewRedaction(NewEngine(engine), nil)).Run(t.Context(), &Record{
		Type: "session/title", EventName: "session/title", Body: []byte(`{"title":"a","note":"b","other":"c"}`),
		Attributes: []attribute.KeyValue{attribute.String(KeyCwd, "/srv/x")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Body); got != `{"title":"[REDACTED:from-the-body]","note":"[REDACTED:anywhere]","other":"c"}` {
		t.Errorf("body %s", got)
	}
	if got := r.Attributes[0].Value.AsString(); got != "[REDACTED:attribute]" {
		t.Errorf("attribute %s", got)
	}
	out, _, err := engine.JSON(nil, []byte(`{"data":{"title":"a","note":"b","other":"c"}}`)) // as redact sees a row
	if err != nil || string(out) != `{"data":{"title":"a","note":"[REDACTED:anywhere]","other":"[REDACTED:as-in-a-file]"}}` {
		t.Errorf("row %s %v", out, err)
	}
}
