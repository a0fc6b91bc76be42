package receiver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/otel-bridge/otel-bridge/bench/receiver"
)

func serve(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(receiver.New())
	t.Cleanup(s.Close)
	return s
}

func stats(t *testing.T, s *httptest.Server) (st receiver.Stats) {
	t.Helper()
	resp, err := http.Get(s.URL + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	return st
}

func control(t *testing.T, s *httptest.Server, c receiver.Control) {
	t.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(s.URL+"/control", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// send exports events through the Go SDK's exporter, as both otel-bridge and a
// plain Go program do.
func send(t *testing.T, s *httptest.Server, seqs ...int64) error {
	t.Helper()
	x, err := otlploghttp.New(context.Background(), otlploghttp.WithEndpointURL(s.URL+"/v1/logs"),
		otlploghttp.WithCompression(otlploghttp.GzipCompression), otlploghttp.WithRetry(otlploghttp.RetryConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	var records kept
	l := sdklog.NewLoggerProvider(sdklog.WithProcessor(&records)).Logger("test")
	for _, seq := range seqs {
		var r apilog.Record
		r.SetTimestamp(time.Unix(1, 0))
		r.SetBody(attribute.MapValue(attribute.String("text", "hello")))
		r.AddAttributes(attribute.String("session.id", "s"), attribute.Int64("event.seq", seq))
		l.Emit(context.Background(), r)
	}
	return x.Export(context.Background(), records.all)
}

type kept struct{ all []sdklog.Record }

func (k *kept) OnEmit(_ context.Context, r *sdklog.Record) error {
	k.all = append(k.all, r.Clone())
	return nil
}
func (k *kept) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (k *kept) Shutdown(context.Context) error                         { return nil }
func (k *kept) ForceFlush(context.Context) error                       { return nil }

func TestEventsAreToldApartByTheirIdentity(t *testing.T) {
	s := serve(t)
	if err := send(t, s, 0, 1, 2, 900, 2); err != nil {
		t.Fatal(err)
	}
	if err := send(t, s, 900, 5); err != nil {
		t.Fatal(err)
	}
	got := stats(t, s)
	if got.Records != 7 || got.Distinct != 5 || got.Duplicates != 2 || got.Requests != 2 || got.Malformed != 0 || got.LastNano == 0 {
		t.Errorf("%+v", got)
	}
	control(t, s, receiver.Control{Reset: true})
	if got := stats(t, s); got != (receiver.Stats{}) {
		t.Errorf("after a reset: %+v", got)
	}
}

func TestLinesOfATailerAreToldApartByFileAndSeq(t *testing.T) {
	s := serve(t)
	logs := plog.NewLogs()
	records := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for _, line := range []string{
		`{"type":"session","version":2,"id":"s"}`,
		`{"type":"turn/start","seq":0,"time":1,"data":{}}`,
		`{"type":"text-chunks","seq0":1,"time0":1,"data":{}}`,
		`{"type":"turn/end","seq":12,"time":1,"data":{"seq":4}}`,
		`{"type":"turn/end","seq":12,"time":1,"data":{"seq":5}}`,
	} {
		r := records.AppendEmpty()
		r.Body().SetStr(line)
		r.Attributes().PutStr("log.file.path", "/ledgers/project/s/session.v2.jsonl")
	}
	body, err := plogotlp.NewExportRequestFromLogs(logs).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(s.URL+"/v1/logs", "application/x-protobuf", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	got := stats(t, s)
	if got.Records != 5 || got.Others != 1 || got.Distinct != 3 || got.Duplicates != 1 || got.WireBytes != int64(len(body)) {
		t.Errorf("%+v", got)
	}
}

func TestAFaultIsWhatWasAskedFor(t *testing.T) {
	s := serve(t)
	down, up, every := http.StatusServiceUnavailable, http.StatusOK, 1
	control(t, s, receiver.Control{Status: &down})
	if err := send(t, s, 1); err == nil {
		t.Error("503 was taken for an acceptance")
	}
	if got := stats(t, s); got.Refused != 1 || got.Records != 0 {
		t.Errorf("%+v", got)
	}
	control(t, s, receiver.Control{Status: &up, LoseAnswer: &every})
	if err := send(t, s, 1); err == nil {
		t.Error("a lost answer was taken for an acceptance")
	}
	if got := stats(t, s); got.Distinct != 1 {
		t.Errorf("a request whose answer is lost has arrived: %+v", got)
	}
}

func TestWhatIsNoRequestIsCounted(t *testing.T) {
	s := serve(t)
	resp, err := http.Post(s.URL+"/v1/logs", "application/x-protobuf", bytes.NewReader([]byte{0x0a, 0xff}))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := stats(t, s); resp.StatusCode != http.StatusBadRequest || got.Malformed != 1 {
		t.Errorf("%d, %+v", resp.StatusCode, got)
	}
}

// OTLP's JSON, with seqs as strings and, as the JavaScript exporter writes them,
// as numbers; one record has no session and one no seq: they are no events.
func TestRequestsInJSONAreCounted(t *testing.T) {
	s := serve(t)
	record := func(session, seq string) string {
		return `{"body":{"stringValue":"x"},"attributes":[{"key":"session.id","value":{"stringValue":"` + session + `"}},{"key":"event.seq","value":{"intValue":` + seq + `}}]}`
	}
	body := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + record("a", "1") + `,` + record("a", `"2"`) + `,` + record("a", "1") + `]},` +
		`{"logRecords":[` + record("", "3") + `,{"body":{},"attributes":[{"key":"session.id","value":{"stringValue":"a"}}]}]}]}]}`
	for _, text := range []string{body, `{"resourceLogs":`} {
		resp, err := http.Post(s.URL+"/v1/logs", "application/json", bytes.NewReader([]byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	st := stats(t, s)
	if st.Records != 5 || st.Distinct != 2 || st.Duplicates != 1 || st.Others != 2 || st.Malformed != 1 || st.BodyBytes != 2*int64(len(`{"stringValue":"x"}`)) {
		t.Errorf("%+v", st)
	}
}
