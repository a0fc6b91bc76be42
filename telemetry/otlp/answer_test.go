package otlp

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// The answer table, each line against a real receiver on loopback. Each case
// sends five records of one session in one request to a receiver that gives
// the answer for the first request and accepts after that.
//
// CASES 21, 22, 23 and 27.
func TestWhatEachAnswerMeans(t *testing.T) {
	const sent = 5
	type want struct {
		acked, refused int    // in the end
		outcome        string // of the refused
		kept           int    // records that the receiver has kept, duplicates counted
		status         Status // after the first answer; Unknown: not looked at
		reason         string // part of State().Reason then
		requests       int64  // in all
	}
	held := func(reason string) want {
		return want{acked: sent, kept: sent, status: Holding, reason: reason, requests: 2}
	}
	later := func(reason string) want {
		return want{acked: sent, kept: sent, status: Retrying, reason: reason, requests: 2}
	}
	for spec, w := range map[string]want{
		"ok":                {acked: sent, kept: sent, requests: 1},
		"204":               {acked: sent, kept: sent, requests: 1},
		"202":               {acked: sent, kept: sent, requests: 1},
		"warn=deprecated":   {acked: sent, kept: sent, requests: 1},
		"partial=3":         {refused: sent, outcome: outbox.OutcomeUnknown, kept: 2, requests: 1},
		"partial=3:charset": {refused: sent, outcome: outbox.OutcomeUnknown, kept: 2, requests: 1},
		"partial=3:json":    {refused: sent, outcome: outbox.OutcomeUnknown, kept: 2, requests: 1},
		"partial=1":         {refused: sent, outcome: outbox.OutcomeUnknown, kept: 4, requests: 1},
		"partial=5":         {acked: sent, kept: sent, requests: 3}, // all refused: split, then accepted
		"partial=9:json":    {acked: sent, kept: sent, requests: 3},
		"html":              held("200 from receiver with text/html"),
		"301":               held("redirect"),
		"302:location=https://user:pw@login.example.com/x?t=s": held("redirect to https://login.example.com,"),
		"303": held("redirect"),
		"304": held("redirect"),
		"307": held("redirect"),
		"308": held("redirect"),
		"400": {acked: sent, kept: sent, requests: 3},
		"422": {acked: sent, kept: sent, requests: 3},
		"413": {acked: sent, kept: sent, requests: 3},
		"400:message=http: request body too large": {acked: sent, kept: sent, requests: 3},
		"401":               held("credentials refused"),
		"402":               held("quota"),
		"403":               held("not permitted"),
		"404":               held("/v1/logs"),
		"405":               held("POST"),
		"406":               held("406"),
		"407":               held("proxy"),
		"408":               later("408"),
		"409":               held("409"),
		"411":               held("411"),
		"415":               held("media type"),
		"418":               held("418"),
		"429":               later("too many requests"),
		"429:retry-after=0": later("429"),
		"431":               held("431"),
		"451":               held("451"),
		"500":               later("500"),
		"501":               held("not implemented"),
		"502":               later("502"),
		"503":               later("503"),
		"504":               later("504"),
		"505":               held("505"),
		"599":               held("599"),
		"reset":             later("connection reset"),
		"lost":              {acked: sent, kept: 2 * sent, status: Retrying, reason: "connection reset", requests: 2},
		"hang":              later("time-out"),
		"drip":              later("time-out"),
		"endless":           held("more than 1048576 bytes"),
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			fill(t, m, "s", sent)
			s := startReceiver(t, receiver.Options{Script: []receiver.Behavior{behavior(t, spec)}})
			cfg := quick(s.URL())
			if strings.Contains(w.reason, "time-out") {
				cfg.Timeout = 300 * time.Millisecond
			}
			// The first pause is long: what is seen in it cannot have changed.
			cfg.MinHold, cfg.MaxHold, cfg.MinBackoff, cfg.MaxBackoff = time.Hour, time.Hour, time.Hour, time.Hour
			d := newDeliverer(t, m, cfg)
			if w.status != Unknown {
				until(t, d, "the circuit opens", func() bool { return d.State().Status == w.status })
				state := d.State()
				if !strings.Contains(state.Reason, w.reason) || state.Ready() || state.Next.IsZero() || state.Failures != 1 {
					t.Errorf("state %+v, want reason with %q", state, w.reason)
				}
				for _, leak := range []string{"user:pw", "?t=s", "record 0"} {
					if strings.Contains(state.Reason, leak) {
						t.Errorf("state tells %q: %s", leak, state.Reason)
					}
				}
				if acked, refused, pending := m.counts(); acked != 0 || refused != 0 || pending != sent {
					t.Errorf("after the answer %d acked, %d refused, %d pending; want all kept", acked, refused, pending)
				}
				d.TryNow()
			}
			drain(t, d)
			acked, refused, _ := m.counts()
			if acked != w.acked || refused != w.refused {
				t.Errorf("%d acked, %d refused, want %d, %d", acked, refused, w.acked, w.refused)
			}
			for _, q := range m.quarantined() {
				if q.Outcome != w.outcome || q.ReceiverWords == "" {
					t.Errorf("quarantined %+v, want outcome %s", q, w.outcome)
				}
			}
			if kept := len(uids(s)); kept != w.kept {
				t.Errorf("receiver kept %d, want %d", kept, w.kept)
			}
			if got := d.Stats(); got.Requests != w.requests || got.Acked != int64(w.acked) {
				t.Errorf("stats %+v, want %d requests", got, w.requests)
			}
			if state := d.State(); state.Status != OK || state.Reason != "" {
				t.Errorf("in the end %+v", state)
			}
		})
	}
}

func response(status int, header ...string) *http.Response {
	h := make(http.Header)
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h}
}

// What no scripted receiver sends: odd bodies and media types of a 200.
//
// CASES 22.
func TestOnlyAnOTLPAnswerAcknowledges(t *testing.T) {
	for name, c := range map[string]struct {
		media, body string
		want        outcome
	}{
		"empty":                       {"text/html", "", acked},
		"white space":                 {"text/plain", " \n", acked},
		"protobuf, other name":        {"application/protobuf", "", acked},
		"JSON object":                 {"application/json", "{}", acked},
		"JSON in capitals":            {"Application/JSON; Charset=UTF-8", "{}", acked},
		"JSON null partial":           {"application/json", `{"partialSuccess":null}`, acked},
		"JSON empty partial":          {"application/json", `{"partialSuccess":{}}`, acked},
		"JSON newer field":            {"application/json", `{"partialSuccess":{"new":1},"also":2}`, acked},
		"JSON count as string":        {"application/json", `{"partialSuccess":{"rejectedLogRecords":"2"}}`, refusedSome},
		"JSON count as number":        {"application/json", `{"partialSuccess":{"rejectedLogRecords":2}}`, refusedSome},
		"JSON snake case":             {"application/json", `{"partial_success":{"rejected_log_records":2}}`, refusedSome},
		"JSON all":                    {"application/json", `{"partialSuccess":{"rejectedLogRecords":5}}`, refusedAll},
		"JSON negative":               {"application/json", `{"partialSuccess":{"rejectedLogRecords":-1}}`, holdAll},
		"JSON of another server":      {"application/json", `{"error":"not logged in"}`, holdAll},
		"JSON array":                  {"application/json", `[]`, holdAll},
		"JSON broken":                 {"application/json", `{"partialSuccess":`, holdAll},
		"JSON string":                 {"application/json", `"ok"`, holdAll},
		"protobuf partial":            {"application/x-protobuf", "\x0a\x02\x08\x02", refusedSome},
		"protobuf empty partial":      {"application/x-protobuf", "\x0a\x00", acked},
		"protobuf unknown field only": {"application/x-protobuf", "\x7a\x01x", holdAll},
		"protobuf broken":             {"application/x-protobuf", "\x0a\x05\x08", holdAll},
		"html said to be protobuf":    {"application/x-protobuf", "<html>login</html>", holdAll},
		"protobuf said to be text":    {"text/plain", "\x0a\x02\x08\x02", holdAll},
		"no media type":               {"", "ok", holdAll},
		"broken media type":           {"a/b; c=\"", "ok", holdAll},
		"octet stream":                {"application/octet-stream", "ok", holdAll},
	} {
		v := judge(response(200, "Content-Type", c.media), []byte(c.body), 5)
		if v.outcome != c.want {
			t.Errorf("%s: outcome %d (%s), want %d", name, v.outcome, v.reason, c.want)
		}
	}
}

// A receiver may quote what it was sent. Then no record may look like a port that speaks TLS,
// for that holds all others.
func TestARecordThatSpeaksOfTLSIsNoTLS(t *testing.T) {
	for words, want := range map[string]outcome{
		"Client sent an HTTP request to an HTTPS server.\n":                                           holdAll,
		"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>\r\n": holdAll,
		`invalid record 3: {"text":"Client sent an HTTP request to an HTTPS server."}`:                refusedAll,
		`cannot store "400 The plain HTTP request was sent to HTTPS port"`:                            refusedAll,
	} {
		resp := &http.Response{StatusCode: 400, Header: http.Header{"Content-Type": {"text/plain"}}}
		if v := judge(resp, []byte(words), 5); v.outcome != want {
			t.Errorf("%q: outcome %d, want %d (%s)", words, v.outcome, want, v.reason)
		}
	}
}

func TestRetryAfterIsReadInAllItsSpellings(t *testing.T) {
	const date = "Wed, 21 Oct 2015 07:28:00 GMT"
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"2", "", 2 * time.Second},
		{" 2 ", "", 2 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{"0", "", 0},
		{"-3", "", 0},
		{"NaN", "", 0},
		{"1e300", "", 1e6 * time.Second},
		{"+Inf", "", 1e6 * time.Second},
		{"soon", "", 0},
		{"Wed, 21 Oct 2015 07:28:30 GMT", date, 30 * time.Second},
		{"Wednesday, 21-Oct-15 07:28:30 GMT", date, 30 * time.Second},
		{"Wed Oct 21 07:28:30 2015", date, 30 * time.Second},
		{"Wed, 21 Oct 2015 07:27:00 GMT", date, 0},
		{"Wed, 21 Oct 2015 07:28:30 GMT", "", 0}, // long ago by our own clock
	} {
		h := make(http.Header)
		h.Set("Retry-After", c.value)
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := retryAfter(h); got != c.want {
			t.Errorf("Retry-After %q with Date %q is %v, want %v", c.value, c.date, got, c.want)
		}
	}
	h := make(http.Header)
	at := time.Now().Add(time.Minute).UTC()
	h.Set("Retry-After", at.Format(http.TimeFormat)) // to the second
	if got := retryAfter(h); got > time.Minute || time.Now().Add(got).Before(at.Add(-2*time.Second)) {
		t.Errorf("a date in a minute is %v", got)
	}
}

func TestReceiversWordsAreFoundAndBounded(t *testing.T) {
	for name, c := range map[string]struct{ media, body, want string }{
		"text":            {"text/plain", "no\n  room\x00\x1b[31m", "no room [31m"},
		"status protobuf": {"application/x-protobuf", "\x08\x03\x12\x06broken", "broken"},
		"status JSON":     {"application/json; charset=utf-8", `{"code":3,"message":"broken"}`, "broken"},
		"other JSON":      {"application/json", `{"error":"x"}`, `{"error":"x"}`},
		"broken protobuf": {"application/x-protobuf", "\x12\x7f", ""},
		"invalid UTF-8":   {"text/plain", "a\xffb", "a\uFFFDb"},
		"direction marks": {"text/plain", "a\u202eb", "a b"},
	} {
		if got := errorWords(c.media, []byte(c.body)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	long := errorWords("text/plain", []byte(strings.Repeat("é", 1<<20)))
	if len(long) > maxWords+len("…") || !strings.HasSuffix(long, "é…") {
		t.Errorf("long words: %d bytes, end %q", len(long), long[len(long)-8:])
	}
}

// An answer is an acknowledgement only when it is empty or reads as OTLP with
// nothing rejected, whatever the bytes.
func FuzzJudgeNeverTakesANoForAYes(f *testing.F) {
	f.Add(200, "application/json", []byte(`{"partialSuccess":{"rejectedLogRecords":"2"}}`))
	f.Add(200, "application/x-protobuf", []byte("\x0a\x02\x08\x02"))
	f.Add(200, "text/html", []byte("<html>"))
	f.Add(503, "", []byte(""))
	f.Fuzz(func(t *testing.T, status int, media string, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		v := judge(response(status, "Content-Type", media), body, 5)
		if v.outcome == acked {
			if status > 299 {
				t.Fatalf("status %d acknowledges", status)
			}
			p, ok := partialSuccess(strings.ToLower(strings.TrimSpace(strings.SplitN(media, ";", 2)[0])), body)
			if len(strings.TrimSpace(string(body))) > 0 && (!ok || p.GetRejectedLogRecords() != 0) {
				t.Fatalf("%q %q acknowledges", media, body)
			}
		} else if v.reason == "" {
			t.Fatalf("no reason for outcome %d of %d", v.outcome, status)
		}
		if len(v.words) > maxWords+8 {
			t.Fatalf("%d bytes of words", len(v.words))
		}
	})
}

// CASES 27, before the start.
func TestCheckTellsWhetherTheEndpointTakesLogs(t *testing.T) {
	for spec, want := range map[string]string{
		"ok": "", "204": "", "400": "", "422": "",
		"401": "credentials", "404": "/v1/logs", "503": "503", "html": "text/html", "302": "redirect", "reset": "connection reset",
	} {
		s := startReceiver(t, receiver.Options{Behavior: behavior(t, spec)})
		err := Check(context.Background(), Config{Endpoint: s.URL()})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
		if n := s.Totals(); n.Records != 0 || n.Requests != 1 {
			t.Errorf("%s: the check sent %+v", spec, n)
		}
	}
}
