package telemetry

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
)

// Cases of CASES.md, part C, that are about records and streams, with the default
// policies. All values are fakes.

const (
	caseToken = "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"
	caseJWT   = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)

// holdsPiece tells whether eight characters of secret in a row, beyond its public
// prefix, stand in s.
func holdsPiece(s, secret, prefix string) bool {
	rest := strings.TrimPrefix(secret, prefix)
	for i := 0; i+8 <= len(rest); i++ {
		if strings.Contains(s, rest[i:i+8]) {
			return true
		}
	}
	return false
}

func TestC45JWTAnywhereInARecord(t *testing.T) {
	w := NewWaterfall(nil, defaultRedaction(), ListenerFunc(func(_ context.Context, r *Record, _ Next) (*Record, error) {
		r.EventName = "call " + caseJWT
		r.Scope = Scope{Name: "scope " + caseJWT, Version: caseJWT}
		r.Attributes = append(r.Attributes, attribute.String("trace", "at f("+caseJWT+")\n\tmain.go:3"), attribute.StringSlice("list", []string{"a", caseJWT}))
		r.Resource = NewResource("", attribute.String("note", caseJWT))
		return r, nil
	}))
	in := plain("tool/result", `{"stack":"Error: bad token `+caseJWT+`\n    at verify (auth.js:3:1)"}`)
	out, err := w.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if out.Withheld != "" {
		t.Fatalf("withheld: %s", out.Withheld)
	}
	all := fmt.Sprint(out.EventName, out.Scope, out.Attributes, out.Resource.Attributes(), string(out.Body))
	if holdsPiece(all, caseJWT, "eyJhbGciOiJ") {
		t.Errorf("left: %s", all)
	}
	if !strings.Contains(string(out.Body), "at verify (auth.js:3:1)") {
		t.Errorf("the rest is gone: %s", out.Body)
	}
}

func TestC48TokenOverConsecutiveDeltas(t *testing.T) {
	redaction := defaultRedaction()
	safe := func(where string, body []byte) {
		t.Helper()
		r := plain("assistant/attempt", string(body))
		if why := redaction.apply(r); why != "" {
			t.Fatalf("%s: %s", where, why)
		}
		if holdsPiece(string(r.Body), caseToken, "ghp_") {
			t.Fatalf("%s: %s", where, r.Body)
		}
	}
	kinds := []struct{ format0, format2, format2Alone string }{
		{`{"type":"text-delta","index":0,"text":%q}`, `{"type":"text-chunks","time0":1,"index":0,"dt":[1,1],"texts":[%q,%q,%q]}`,
			`{"type":"chunk","time":1,"chunk":{"type":"text-delta","index":0,"text":%q}}`},
		{`{"type":"reasoning-delta","index":0,"text":%q}`, `{"type":"reasoning-chunks","time0":1,"index":0,"dt":[1,1],"texts":[%q,%q,%q]}`,
			`{"type":"chunk","time":1,"chunk":{"type":"reasoning-delta","index":0,"text":%q}}`},
		{`{"type":"tool-call-delta","index":0,"id":"c","name":"bash","argumentsDelta":%q}`,
			`{"type":"tool-call-chunks","time0":1,"index":0,"dt":[1,1],"id":"c","name":"bash","args":[%q,%q,%q]}`,
			`{"type":"chunk","time":1,"chunk":{"type":"tool-call-delta","index":0,"id":"c","name":"bash","argumentsDelta":%q}}`},
	}
	text := "use " + caseToken + " now"
	for cut := 1; cut < len(text); cut++ {
		pieces := []string{text[:cut], text[cut:min(cut+7, len(text))], text[min(cut+7, len(text)):]}
		for i, kind := range kinds {
			where := fmt.Sprintf("kind %d cut at %d", i, cut)

			p := projector{dialect: dialect(t, 1)}
			p.observe(&session.Event{Type: session.TypeStepStart, Data: []byte(`{"turn":1,"step":1}`)}, true)
			for _, piece := range pieces {
				data := fmt.Sprintf(`{"turn":1,"step":1,"chunk":`+kind.format0+`}`, piece)
				if got := p.observe(&session.Event{Type: session.TypeAssistantChunk, Data: []byte(data)}, true); !got.elided {
					safe(where+", signal", got.body)
				}
			}
			p.observe(&session.Event{Type: session.TypeStepEnd, Data: []byte(`{}`)}, true)
			body, _, ok := p.takeAttempt()
			if !ok || !strings.Contains(string(body), caseToken) {
				t.Fatalf("%s: not joined: %s", where, body)
			}
			safe(where+", attempt of format 1", body)

			packed := fmt.Sprintf(kind.format2, pieces[0], pieces[1], pieces[2])
			alone := fmt.Sprintf(kind.format2Alone+","+kind.format2Alone+","+kind.format2Alone, pieces[0], pieces[1], pieces[2])
			for _, stream := range []string{packed, alone} {
				p := projector{dialect: dialect(t, 2)}
				got := p.observe(&session.Event{Type: session.TypeAssistantAttempt, Data: []byte(`{"turn":1,"step":1,"stream":[` + stream + `]}`)}, true)
				if !strings.Contains(string(got.body), caseToken) {
					t.Fatalf("%s: not joined: %s", where, got.body)
				}
				safe(where+", attempt of format 2", got.body)
			}
		}
	}
}

func TestC49CutInsideAToken(t *testing.T) {
	for at := 3800; at < 4060; at += 3 {
		src := ledger("s", `session/title {"title":"`+strings.Repeat("x ", at/2)+caseToken+strings.Repeat(" y", 2000)+`"}`)
		records, _ := captured(t, src, func(c *Config) { c.MaxRecordBytes, c.Redaction = 4096, defaultRedaction() })
		if r := records[0]; r.Cut == 0 || holdsPiece(string(r.Body), caseToken, "ghp_") {
			t.Fatalf("token at %d, cut from %d: %s", at, r.Cut, r.Body[len(r.Body)-80:])
		}
	}
}
