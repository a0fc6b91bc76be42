package receiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request(bodies ...string) []byte {
	sl := &logs.ScopeLogs{}
	for _, b := range bodies {
		sl.LogRecords = append(sl.LogRecords, &logs.LogRecord{Body: text(b)})
	}
	raw, err := proto.Marshal(&collogs.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{ScopeLogs: []*logs.ScopeLogs{sl}}}})
	if err != nil {
		panic(err)
	}
	return raw
}

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	s, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

type reply struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// client keeps no connections, so that goleak sees none.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func post(t *testing.T, s *Server, raw []byte, header ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return postContext(ctx, t, s, raw, header...)
}

func postContext(ctx context.Context, t *testing.T, s *Server, raw []byte, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL(), bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return reply{resp.StatusCode, resp.Header, body, err}
}

func TestAcceptedRequestsStandInTheFileBeforeTheAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{File: f, Keep: 10})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			id := fmt.Sprintf("record-%02d", i)
			if r := post(t, s, request(id)); r.status != 200 || len(r.body) != 0 || r.header.Get("Content-Type") != "application/x-protobuf" {
				t.Errorf("answer %+v", r)
			}
			if raw, err := os.ReadFile(path); err != nil || !bytes.Contains(raw, []byte(id)) {
				t.Errorf("%s was answered but does not stand in the file (%v)", id, err)
			}
		})
	}
	wg.Wait()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	if len(lines) != 40 {
		t.Fatalf("%d lines, want one for each of 40 requests", len(lines))
	}
	for _, l := range lines {
		if req, err := ParseJSON([]byte(l)); err != nil || count(req) != 1 {
			t.Fatalf("line %q: %v", l, err)
		}
	}
	if got := s.Totals(); got.Requests != 40 || got.Kept != 40 || got.Records != 40 {
		t.Errorf("totals %+v", got)
	}
	if n := len(s.Requests()); n != 10 {
		t.Errorf("%d requests remembered, want the latest 10", n)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
}

func TestGzipZstdAndJSONRequestsAreRead(t *testing.T) {
	s := start(t, Options{Keep: 10})
	raw := request("hello")
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write(raw)
	_ = w.Close()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = enc.Close() }()
	for name, r := range map[string]reply{
		"gzip": post(t, s, gz.Bytes(), "Content-Encoding", "gzip"),
		"zstd": post(t, s, enc.EncodeAll(raw, nil), "Content-Encoding", "zstd"),
	} {
		if r.status != 200 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	r := post(t, s, []byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"hello"},"new":1}]}]}]}`), "Content-Type", "application/json; charset=utf-8")
	if r.status != 200 || string(r.body) != "{}" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("JSON request answered %+v", r)
	}
	for _, rec := range s.Records() {
		if rec.Log.GetBody().GetStringValue() != "hello" {
			t.Errorf("record %v", rec.Log)
		}
	}
	if n := len(s.Records()); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

func TestBadRequestsAreRefusedAndKeepNothing(t *testing.T) {
	s := start(t, Options{Keep: 20, MaxRequest: 4096})
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = w.Write(make([]byte, 1<<20))
	_ = w.Close()
	for name, c := range map[string]struct {
		raw    []byte
		header []string
		status int
	}{
		"not protobuf":       {[]byte("\xff\xff"), nil, 400},
		"not JSON":           {[]byte("{"), []string{"Content-Type", "application/json"}, 400},
		"not gzip":           {[]byte("plain"), []string{"Content-Encoding", "gzip"}, 400},
		"not zstd":           {[]byte("plain"), []string{"Content-Encoding", "zstd"}, 400},
		"too large":          {request(strings.Repeat("x", 5000)), nil, 413},
		"gzip bomb":          {bomb.Bytes(), []string{"Content-Encoding", "gzip"}, 413},
		"unknown encoding":   {request("x"), []string{"Content-Encoding", "br"}, 415},
		"unknown media type": {request("x"), []string{"Content-Type", "text/plain"}, 415},
	} {
		if r := post(t, s, c.raw, c.header...); r.status != c.status {
			t.Errorf("%s: status %d (%v), want %d", name, r.status, r.err, c.status)
		}
	}
	if got := s.Totals().Kept; got != 0 {
		t.Errorf("%d records kept", got)
	}
	resp, err := client.Get(strings.TrimSuffix(s.URL(), Path) + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Errorf("another path answered %d", resp.StatusCode)
	}
	resp, err = client.Get(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 405 {
		t.Errorf("GET answered %d", resp.StatusCode)
	}
}

func TestAnEmptyRequestAnswers200AndWritesNoLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s := start(t, Options{File: f})
	if r := post(t, s, nil); r.status != 200 {
		t.Errorf("answer %+v", r)
	}
	if raw, err := os.ReadFile(path); err != nil || len(raw) != 0 {
		t.Errorf("file holds %q, %v", raw, err)
	}
}

func partial(t *testing.T, r reply) (int64, string) {
	t.Helper()
	var resp collogs.ExportLogsServiceResponse
	var err error
	if r.header.Get("Content-Type") == "application/json" {
		err = protojson.Unmarshal(r.body, &resp)
	} else {
		err = proto.Unmarshal(r.body, &resp)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetPartialSuccess().GetRejectedLogRecords(), resp.GetPartialSuccess().GetErrorMessage()
}

func TestEachBehaviourAnswersAsItSays(t *testing.T) {
	five := []string{"a", "b", "c", "d", "POISON"}
	for spec, check := range map[string]func(t *testing.T, r reply) (kept int64){
		"204": func(t *testing.T, r reply) int64 {
			if r.status != 204 || len(r.body) != 0 {
				t.Errorf("%+v", r)
			}
			return 5
		},
		"429:retry-after=2": func(t *testing.T, r reply) int64 {
			if r.status != 429 || r.header.Get("Retry-After") != "2" {
				t.Errorf("%+v", r)
			}
			return 0
		},
		"302": func(t *testing.T, r reply) int64 {
			if r.status != 302 || r.header.Get("Location") == "" {
				t.Errorf("%+v", r)
			}
			return 0
		},
		"html": func(t *testing.T, r reply) int64 {
			if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/html") || !bytes.Contains(r.body, []byte("Sign in")) {
				t.Errorf("%+v", r)
			}
			return 0
		},
		"400-if=POISON": func(t *testing.T, r reply) int64 {
			if r.status != 400 || !bytes.Contains(r.body, []byte("POISON")) {
				t.Errorf("%+v", r)
			}
			return 0
		},
		"400-if=absent": func(t *testing.T, r reply) int64 {
			if r.status != 200 {
				t.Errorf("%+v", r)
			}
			return 5
		},
		"400-over=10": func(t *testing.T, r reply) int64 {
			if r.status != 400 || string(r.body) != "http: request body too large" {
				t.Errorf("%+v", r)
			}
			return 0
		},
		"413-over=1MiB": func(t *testing.T, r reply) int64 {
			if r.status != 200 {
				t.Errorf("%+v", r)
			}
			return 5
		},
		"partial=3": func(t *testing.T, r reply) int64 {
			if n, msg := partial(t, r); r.status != 200 || n != 3 || msg == "" || r.header.Get("Content-Type") != "application/x-protobuf" {
				t.Errorf("%+v", r)
			}
			return 2
		},
		"partial=9": func(t *testing.T, r reply) int64 {
			if n, _ := partial(t, r); n != 5 {
				t.Errorf("%+v", r)
			}
			return 0
		},
		"partial=1:json:message=why": func(t *testing.T, r reply) int64 {
			if n, msg := partial(t, r); n != 1 || msg != "why" || r.header.Get("Content-Type") != "application/json" {
				t.Errorf("%+v", r)
			}
			return 4
		},
		"partial=1:charset": func(t *testing.T, r reply) int64 {
			if n, _ := partial(t, r); n != 1 || r.header.Get("Content-Type") != "application/x-protobuf; charset=utf-8" {
				t.Errorf("%+v", r)
			}
			return 4
		},
		"warn=old schema": func(t *testing.T, r reply) int64 {
			if n, msg := partial(t, r); n != 0 || msg != "old schema" {
				t.Errorf("%+v", r)
			}
			return 5
		},
		"reset": func(t *testing.T, r reply) int64 {
			if r.err == nil {
				t.Errorf("%+v", r)
			}
			return 0
		},
		"lost": func(t *testing.T, r reply) int64 {
			if r.err == nil {
				t.Errorf("%+v", r)
			}
			return 5
		},
		"endless": func(t *testing.T, r reply) int64 {
			if r.status != 200 || len(r.body) != 1<<20 {
				t.Errorf("status %d, %d bytes, %v", r.status, len(r.body), r.err)
			}
			return 0
		},
	} {
		t.Run(spec, func(t *testing.T) {
			b, err := ParseBehavior(spec)
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, Options{Behavior: b, Keep: 1})
			kept := check(t, post(t, s, request(five...)))
			if got := s.Totals().Kept; got != kept || int64(len(s.Records())) != kept {
				t.Errorf("kept %d (%d remembered), want %d", got, len(s.Records()), kept)
			}
		})
	}
}

func TestHangAndDripLastUntilTheClientOrTheServerGoes(t *testing.T) {
	for _, kind := range []Kind{Hang, Drip} {
		s := start(t, Options{Behavior: Behavior{Kind: kind}})
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		if r := postContext(ctx, t, s, request("x")); !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("kind %d: %+v", kind, r)
		}
		cancel()
		ended := make(chan reply)
		go func() { ended <- postContext(context.Background(), t, s, request("x")) }()
		for deadline := time.Now().Add(10 * time.Second); s.Totals().Requests < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the second request never arrived")
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if r := <-ended; r.err == nil {
			t.Errorf("kind %d: closing the server ended a hanging request with an answer: %+v", kind, r)
		}
	}
}

func TestAScriptIsAnsweredInOrderThenTheBehaviour(t *testing.T) {
	s := start(t, Options{
		Script:   []Behavior{{Kind: Refuse, Status: 503}, {}, {Kind: Refuse, Status: 401}},
		Behavior: Behavior{Status: 204},
	})
	for i, want := range []int{503, 200, 401, 204, 204} {
		if r := post(t, s, request("x")); r.status != want {
			t.Errorf("answer %d is %d, want %d", i, r.status, want)
		}
	}
	s.SetBehavior(Behavior{Kind: Refuse, Status: 500})
	if r := post(t, s, request("x")); r.status != 500 {
		t.Errorf("after SetBehavior %d", r.status)
	}
}

func TestMisbehaviourEndsAfterItsTime(t *testing.T) {
	s := start(t, Options{Behavior: Behavior{Kind: Refuse, Status: 503}, For: 50 * time.Millisecond})
	deadline := time.Now().Add(10 * time.Second)
	if r := post(t, s, request("x")); r.status != 503 && time.Since(s.start) < 50*time.Millisecond {
		t.Errorf("first answer %d", r.status)
	}
	for post(t, s, request("x")).status != 200 {
		if time.Now().After(deadline) {
			t.Fatal("still misbehaving")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAFailingFileIsAnsweredWith503(t *testing.T) {
	s := start(t, Options{File: func() *File {
		f := NewFile(failingWriter{})
		t.Cleanup(func() { _ = f.Close() })
		return f
	}(), Keep: 1})
	if r := post(t, s, request("x")); r.status != 503 {
		t.Errorf("%+v", r)
	}
	if n := s.Totals().Kept; n != 0 {
		t.Errorf("%d kept", n)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestATornLastLineIsCutAndAForeignOneIsNotTouched(t *testing.T) {
	dir := t.TempDir()
	whole := `{"resourceLogs":[]}` + "\n"
	for _, torn := range []string{"", `{"reso`, `{"resourceLogs":[{"resource":` + strings.Repeat("x", 200<<10)} {
		path := filepath.Join(dir, "ours")
		if err := os.WriteFile(path, []byte(whole+torn), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Append([]byte(`{"resourceLogs":[{}]}`)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Append([]byte("x")); err == nil {
			t.Error("a closed file takes lines")
		}
		if got, _ := os.ReadFile(path); string(got) != whole+`{"resourceLogs":[{}]}`+"\n" {
			t.Errorf("file is %.80q", got)
		}
	}
	path := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(path, []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFile(path); err == nil {
		t.Error("a foreign file was opened")
	}
	if got, _ := os.ReadFile(path); string(got) != "my notes" {
		t.Errorf("foreign file is now %q", got)
	}
}
