package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

func defaultEngine(t testing.TB) *redact.Engine {
	t.Helper()
	e, err := config.NewEngine(config.DefaultPolicies(), "")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// small is a redactor whose windows are small, so that a test meets many.
func small(e *redact.Engine, out *bytes.Buffer) *redactor {
	r := newRedactor(e, bufio.NewWriter(out))
	r.window, r.glance, r.windowMax = 4<<10, 1<<10, 64<<10
	return r
}

const pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKE\nRkFLRUZBS0VGQUtFRkFLRUZBS0VGQUtFRkFLRUZBS0VGQUtFRkFLRUZBS0VGQUtF\n-----END RSA PRIVATE KEY-----\n"

func TestAnOverlongJSONLineIsWithheldAndTheNextOneRead(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x ", 2<<20) + `ghp_FAKEfake0123FAKEfake0123FAKEfake0123"}`
	const marker = `{"otel_bridge.withheld":"line-too-long"}` + "\n"
	for in, want := range map[string]string{
		"before\n" + long + "\n{\"b\":1}\n": "before\n" + marker + "{\"b\":1}\n",
		long:                                marker,
	} {
		var out bytes.Buffer
		r := small(defaultEngine(t), &out)
		r.jsonMax = 1 << 20
		if err := r.run(context.Background(), strings.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		if out.String() != want || r.over != 1 {
			t.Errorf("got %d bytes and %d lines over, want %q", out.Len(), r.over, want)
		}
	}
}

func TestWindowsGiveWhatTheWholeTextGives(t *testing.T) {
	e := defaultEngine(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	pieces := []string{
		"plain words of a log, nothing to see\n", "token ghp_FAKEfake0123FAKEfake0123FAKEfake0123 end\n", "你好 jane.doe@example.com 😀\n", pem,
		"no line end here ", "password = \"correct horse staple 99\"\n", strings.Repeat("x", 300) + "\n", "card 4242 4242 4242 4242\n",
	}
	for range 20 {
		var b strings.Builder
		for b.Len() < 60<<10 {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		text := b.String()
		want, _, err := e.Text(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := small(e, &got).run(context.Background(), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			at := 0
			for at < min(got.Len(), len(want)) && got.Bytes()[at] == want[at] {
				at++
			}
			t.Fatalf("differs at %d: got %q, want %q", at, clipText(got.Bytes()[at:]), clipText(want[at:]))
		}
	}
}

func clipText(b []byte) []byte { return b[:min(len(b), 80)] }

func TestTextThatCannotBeCutIsNotPassedOn(t *testing.T) {
	// A block that begins and does not end hides everything behind it.
	text := "before\n-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("MIIEpAIBAAKCAQEAFAKEFAKEFAKEFAKEFAKEFAKE\n", 4000)
	var got bytes.Buffer
	err := small(defaultEngine(t), &got).run(context.Background(), strings.NewReader(text))
	if strings.Contains(got.String(), "FAKEFAKE") {
		t.Error("a part of the key was written")
	}
	if err != nil && !errors.Is(err, errWindow) {
		t.Error(err)
	}
}

func TestLinesThatOnlyBeginLikeJSONAreText(t *testing.T) {
	const text = "{ not json\n  {\"a\":1}  \n[1,\n]\n{\"b\":\"jane.doe@example.com\"}\r\n[]"
	const want = "{ not json\n  {\"a\":1}  \n[1,\n]\n{\"b\":\"[REDACTED:pii-email]\"}\r\n[]"
	var got bytes.Buffer
	if err := newRedactor(defaultEngine(t), bufio.NewWriter(&got)).run(context.Background(), strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}

func TestRecordThatAPolicyWithholdsLeavesAMarkerOnly(t *testing.T) {
	p, err := redact.ParsePolicy("own", []byte("[[rules]]\nid = \"top-secret\"\nregex = '''TOPSECRET'''\naction = \"withhold\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{p}})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := newRedactor(e, bufio.NewWriter(&got)).run(context.Background(), strings.NewReader("{\"a\":\"TOPSECRET plan\"}\n{\"b\":1}\n")); err != nil {
		t.Fatal(err)
	}
	if want := "{\"otel_bridge.withheld\":\"top-secret\"}\n{\"b\":1}\n"; got.String() != want {
		t.Errorf("got %q", got.String())
	}
}

func TestALineThatTheEngineFailsOnIsWithheldAndTheNextGoOn(t *testing.T) {
	boom := redact.Rule{ID: "own-boom", Literals: []string{"boom"}, Find: func(*redact.Candidate) { panic("the content") }}
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy().With("own", boom)}})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	r := newRedactor(e, bufio.NewWriter(&got))
	if err := r.run(context.Background(), strings.NewReader("{\"a\":1}\n {\"b\":\"boom\"}\r\n{\"c\":2}\n")); err != nil {
		t.Fatal(err)
	}
	if want := "{\"a\":1}\n {\"otel_bridge.withheld\":\"redaction-error\"}\r\n{\"c\":2}\n"; got.String() != want || r.failed != 1 {
		t.Errorf("got %q, %d failed", got.String(), r.failed)
	}
}
