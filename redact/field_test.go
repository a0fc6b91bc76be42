package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/corpus"
	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

// The cases of CASES.md, part C and D, by their numbers. All values are fakes.

func redactJSON(t testing.TB, e *redact.Engine, in string) string {
	t.Helper()
	out, rep, err := e.JSON(nil, []byte(in))
	if err != nil {
		t.Fatalf("%v: %s", err, in)
	}
	if rep == nil {
		t.Fatal("no report")
	}
	if !json.Valid(out) {
		t.Fatalf("the output is not JSON: %s", out)
	}
	again, _, err := e.JSON(nil, out)
	if err != nil || string(again) != string(out) {
		t.Fatalf("redacting twice differs:\n%s\n%s", out, again)
	}
	return string(out)
}

const ghp = "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"

func TestFieldCasesThatMustBeFound(t *testing.T) {
	e := builtin(t)
	pem := "-----BEGIN RSA PRIVATE KEY-----\\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\\nKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\\n"
	for _, c := range []struct {
		name, in string
		gone     []string
		stays    []string
	}{
		{"38 nested value by key", `{"output":"{\"api_key\": \"8f14e45fceea167a5a36dedd4bea2543\"}"}`, []string{"8f14e45f"}, []string{`{\"api_key\": \"[REDACTED:`, `]\"}`}},
		{"39 short nested value", `{"body":"{\"api_key\":\"sk-1\"}"}`, []string{"sk-1"}, []string{`\"api_key\":\"[REDACTED:`}},
		{"39 escaped quote", `{"password":"foo\"bar_secret_value"}`, []string{"foo", "bar_secret"}, []string{`{"password":"[REDACTED:bridge-key-name]"}`}},
		{"40 PEM", `{"k":"before ` + pem + `-----END RSA PRIVATE KEY-----\\nafter"}`, []string{"MIIB", "KUpR", "BEGIN", "END"}, []string{`"before [REDACTED:private-key]\\nafter"`}},
		{"40 PEM with real newlines", `{"k":"before ` + strings.ReplaceAll(pem, `\\n`, `\n`) + `-----END RSA PRIVATE KEY-----\nafter"}`, []string{"MIIB", "KUpR", "BEGIN"}, []string{`"before [REDACTED:private-key]\nafter"`}},
		{"40 PEM without end", `{"k":"before ` + pem + `","l":1}`, []string{"MIIB", "KUpR"}, []string{`"before [REDACTED:`, `]","l":1}`}},
		{"40 PEM without beginning", `{"k":"KUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END RSA PRIVATE KEY-----\nafter"}`, []string{"KUpR"}, []string{`after`}},
		{"41 sibling", `{"key":"password","value":"9tmBg2HxPRNz7kQw4fLs"}`, []string{"9tmB"}, []string{`{"key":"password","value":"[REDACTED:`}},
		{"41 sibling the other way round", `{"value":"9tmBg2HxPRNz7kQw4fLs","name":"DB_PASSWORD"}`, []string{"9tmB"}, []string{`"name":"DB_PASSWORD"}`}},
		{"41 capital key", `{"Password":"czsdsdfaereSDFC$FFSD"}`, []string{"czsd"}, nil},
		{"42 only the password", `{"u":"postgres://admin:SuperSecret123@db.example.com:5432/x"}`, []string{"SuperSecret123"}, []string{`"postgres://admin:[REDACTED:`, `]@db.example.com:5432/x"`}},
		{"43 literal newline", `{"t":"` + ghp + `\\nnext"}`, []string{ghp[:20]}, []string{`[REDACTED:github-pat]\\nnext"`}},
		{"44 card as a number", `{"pan":4111111111111111,"n":1}`, []string{"41111"}, []string{`{"pan":"[REDACTED:pii-card]","n":1}`}},
		{"44 card as a number inside JSON in a string", `{"a":"{\"pan\":4111111111111111}"}`, []string{"41111"}, []string{`{"a":"{\"pan\":\"[REDACTED:pii-card]\"}"}`}},
		{"44 array", `["a","4111111111111111"]`, []string{"41111"}, []string{`["a","[REDACTED:pii-card]"]`}},
		{"46 key spellings", `{"apiKey":"S1xx","db.password":"S2xx","Api_Token":"S3xx"}`, []string{"S1xx", "S2xx", "S3xx"}, []string{`"db.password":"[REDACTED:`}},
		{"50 invisible characters", "{\"t\":\"g\u200ch\u200ep\u034f_n38iq0A7umyTZ7AcjR3WaQK5etdC0801HDrV end\"}", []string{"n38iq", "n38iq0A7"}, []string{" end"}},
		{"51 NUL", `{"t":"id42\u0000sk-ant-api03-ZZZqLp7Hn2Vb8Tc4Wy1Xk9"}`, []string{"ZZZqLp"}, []string{`id42`}},
		{"52 array under a key", `{"Authorization":["Bearer x","Bearer y"],"z":1}`, []string{"Bearer x", "Bearer y"}, []string{`"z":1`, `["Bearer [REDACTED:`}},
		{"53 no bypass", `{"t":"` + ghp + ` # gitleaks:allow"}`, []string{ghp[:12]}, []string{"# gitleaks:allow"}},
		{"54 CJK before", `{"t":"我的密钥是` + ghp + `，请不要"}`, []string{ghp[:12]}, []string{"我的密钥是[REDACTED:", "]，请不要"}},
		{"54 emoji before", `{"t":"🔑` + ghp + `🔑"}`, []string{ghp[:12]}, []string{"🔑[REDACTED:", "]🔑"}},
		{"55 URL encoded", `{"t":"https://x.example/?q=` + url.QueryEscape("password=Hunter2!x9&a=1") + `&page=2"}`, []string{"Hunter2", url.QueryEscape("Hunter2!x9")}, []string{"page=2"}},
		{"55 base64", `{"t":"run ` + base64.StdEncoding.EncodeToString([]byte("export TOKEN="+ghp+" && go")) + ` now"}`, []string{base64.StdEncoding.EncodeToString([]byte("export TOKEN=" + ghp))[20:40]}, []string{"run [REDACTED:", "] now"}},
		{"55 triple JSON", `{"a":` + quote(quote(quote(`{"token":"`+ghp+`"}`))) + `}`, []string{ghp[:12]}, []string{"token"}},
		{"47 command", `{"tool_input":{"full_command":"mysql -uroot -pS3cr3t+pw db"},"arguments":"{\"c\":\"sshpass -p 'S3cr3t+pw' ssh x\"}"}`, []string{"S3cr3t+pw"}, []string{"mysql -uroot -p[REDACTED:", " db"}},
		{"secret as a key", `{"auth:` + ghp + `":1,"b":2}`, []string{ghp[:12]}, []string{`"auth:[REDACTED:github-pat]":1,"b":2`}},
		{"ANSI inside", `{"t":"` + ghp[:10] + `\u001b[31m` + ghp[10:] + `\u001b[0m tail"}`, []string{ghp[10:30], ghp[:10]}, []string{" tail"}},
		{"aws pair", `{"t":"AKIAM3ISVNWS2EXTD4BR wvIZdxoeBC0NWXfrQb5pd99M2myLOYaEXJjW7RYB"}`, []string{"AKIAM3", "wvIZdx"}, nil},
		{"curl", `{"t":"curl -u bob:hunter2xyz https://x.example/"}`, []string{"hunter2xyz"}, []string{"curl -u [REDACTED:curl-auth-user] ", "https://x.example/"}},
		{"windows home", `{"t":"C:\\Users\\jane.doe\\src\\x.go and /home/jane.doe/x"}`, []string{"jane.doe"}, []string{`C:\\Users\\[REDACTED:pii-home]\\src\\x.go and /home/[REDACTED:pii-home]/x`}},
		{"kubernetes secret", `{"kind":"Secret","metadata":{"name":"db"},"data":{"extra":"YWRtaW4="}}`, []string{"YWRtaW4="}, []string{`"metadata":{"name":"db"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := redactJSON(t, e, c.in)
			for _, s := range c.gone {
				if strings.Contains(out, s) {
					t.Errorf("%q is still there: %s", s, out)
				}
			}
			for _, s := range c.stays {
				if !strings.Contains(out, s) {
					t.Errorf("%q is not there: %s", s, out)
				}
			}
		})
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

const jwt = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIwZDZiYWZjNC0xYzBiLTQ4YTMtYTkxNC1iMzUzMzJiOTVkYzciLCJpYXQiOjE3NjUwODA5NTJ9.GWTj1fV-1gAWfYzWg9XsB2nV8l8sSGkDxzldlhhziO8"

// Case 45.
func TestATokenIsFoundWhereverItStands(t *testing.T) {
	e := builtin(t)
	for _, in := range []string{
		`{"stack":"Error: bad token ` + jwt + `)\n    at x (y.js:1:2)"}`,
		`{"attributes":{"http.request.header.x":"` + jwt + `"}}`,
		`{"` + jwt + `":{}}`, `"` + jwt + `"`, `["` + jwt + `"]`, `{"scope":{"name":"` + jwt + `"}}`,
	} {
		if out := redactJSON(t, e, in); strings.Contains(out, jwt[40:80]) {
			t.Errorf("left: %s", out)
		}
	}
	out, _, err := e.Text(nil, jwt)
	if err != nil || string(out) != "[REDACTED:jwt]" {
		t.Errorf("as an event name: %s %v", out, err)
	}
}

// Case 48: consecutive deltas, at every split point, and in three pieces.
func TestASplitTokenLeaksNothingAtAnySplitPoint(t *testing.T) {
	e := builtin(t)
	values := []string{ghp, jwt, "sk-ant-api03-m8LcIvzSi1-qLGK2MNUpjuREtbr6oEZOq4ZgoliUaZySZQEF0vRd9isHb3tRfLLuZKg9J38f69WGwD6-0atz94TAqyYbMAA", "xoxb-745550887470-9457988007315-77pjSxRGDzUnOfrBbPY52jwR"}
	for _, v := range values {
		full := "use " + v + " now"
		for i := 4; i <= 4+len(v); i++ {
			for _, j := range []int{i, min(i+7, len(full))} {
				parts := []string{full[:i], full[i:j], full[j:]}
				flat, _ := json.Marshal(map[string]any{"texts": parts})
				var objs []map[string]string
				for _, p := range parts {
					objs = append(objs, map[string]string{"type": "text-delta", "text": p})
				}
				deep, _ := json.Marshal(map[string]any{"stream": objs})
				for _, in := range [][]byte{flat, deep} {
					out := redactJSON(t, e, string(in))
					var doc any
					if err := json.Unmarshal([]byte(out), &doc); err != nil {
						t.Fatal(err)
					}
					var texts []string
					leaves(doc, &texts)
					for _, s := range texts {
						for at := 0; at+12 <= len(v); at++ {
							if strings.Contains(s, v[at:at+12]) {
								t.Fatalf("split at %d and %d leaves a piece: %s", i, j, out)
							}
						}
					}
					if joined := strings.Join(texts, "\n"); !strings.Contains(joined, "use ") || !strings.Contains(joined, "now") {
						t.Fatalf("split at %d: the surroundings are gone: %s", i, out)
					}
				}
			}
		}
	}
}

func TestAPEMBlockIsFoundOverSeveralStrings(t *testing.T) {
	e := builtin(t)
	out := redactJSON(t, e, `{"lines":["# key","-----BEGIN EC PRIVATE KEY-----","MHcCAQEEIFGFdGmj7EnYgS0xX9y29PxNafH6t1TNpg0p4aozWyJGoAoGCCqGSM49","AwEHoUQDQgAECcHHQRn6bIT9vZQLZ/ZILfT8WCFB78KCtX0G78iMyzDVob2MIXza","-----END EC PRIVATE KEY-----","# end"]}`)
	for _, s := range []string{"MHcC", "AwEH"} {
		if strings.Contains(out, s) {
			t.Errorf("%s is left: %s", s, out)
		}
	}
	if !strings.Contains(out, `["# key","`) || !strings.Contains(out, `,"# end"]`) {
		t.Errorf("the strings around are gone: %s", out)
	}
}

func TestMaskedKeysDoNotCollide(t *testing.T) {
	e := builtin(t)
	other := "ghp_" + strings.ToLower(ghp[4:30]) + "Q1W2E3R4T5"
	out := redactJSON(t, e, `{"`+ghp+`":1,"`+other+`":2,"x":3}`)
	var m map[string]int
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatal(err)
	}
	if len(m) != 3 || m["x"] != 3 {
		t.Fatalf("members were lost: %s", out)
	}
}

func TestFieldCasesThatMustStay(t *testing.T) {
	e := builtin(t)
	for _, in := range []string{
		`{"id":"6388d6b3-a9e2-4167-bc9a-5e57c1ea7ab7","t":"session_key=6388d6b3-a9e2-4167-bc9a-5e57c1ea7ab7 commit: d5cccbfca287c14736f54f5b32d108201e2539b8"}`,
		`{"t":"session_key: 6388d6b3-a9e2-4167-bc9a-5e57c1ea7ab7","session_key":"6388d6b3-a9e2-4167-bc9a-5e57c1ea7ab7","commit":"d5cccbfca287c14736f54f5b32d108201e2539b8"}`,
		`{"integrity":"sha512-FWcM7h585iN+kWEo1RieYjKK5Nlz/EziUYRTtOOZVd+/fmkMoaQ3jdQKKmJiV9RBMwWHlUElZOOcG4zgkOdCXw=="}`,
		`{"t":"example.com/boru/bebufo v0.3.27 h1:slFmxFaCva6DVYbVXZ8n9nNJhUQm7eBUfmtKtxLZ7ds="}`,
		`{"time":1748503543012,"t":"at 1748503543012, build 555-0100-2231, runtime v8.11.22174.341"}`,
		`{"max_tokens":4096,"input_tokens":"18234","usage":{"inputTokens":1,"output_tokens":77777},"t":"max_tokens: 4096 input_tokens=18234"}`,
		`{"id":"call_00Y1vQ5ssp0Losv2AbDAcBe9","m":"msg_01NqXrWvT7WQ8p9h3uVtXb4Z","u":"toolu_01HQyp0XvNauratJtcPW1SPB","signature":"EqQBCgIYAhIkYjQ4ZDU4","encrypted_content":"yLvLFLOyR1G3155zRZ5PT9aODAgLgCpjJYdhnYdRNtglrdz"}`,
		`{"t":"AUTH_TOKEN=[REDACTED:github-pat] x [REDACTED:private-key] password: [REDACTED:bridge-assignment]","password":"[REDACTED:bridge-key-name]"}`,
		`{"properties":{"password":{"type":"string","description":"The password"},"token":{"type":["string","null"]}},"required":["username","password"]}`,
		`{"t":"password: ${DB_PASSWORD}\ntoken = os.environ[\"GH_TOKEN\"]\nAuthorization: Bearer <your-token-here>\napi_key = None\nPASSWORD=$(cat /run/secrets/pw)"}`,
		`{"token":null,"password":"","secret":false,"passwordless":true}`,
	} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("changed:\n%s\n%s", in, out)
		}
	}
}

// Case 60.
func TestSmallTokensAreSecretAndQuantitiesAreNot(t *testing.T) {
	e := builtin(t)
	out := redactJSON(t, e, `{"token":12345,"refreshTokens":"abc","max_tokens":4096,"total_tokens":"77"}`)
	if out != `{"token":"[REDACTED:bridge-key-name]","refreshTokens":"[REDACTED:bridge-key-name]","max_tokens":4096,"total_tokens":"77"}` {
		t.Error(out)
	}
}

// Case 61: a picture that spells AIza by accident.
func TestAPictureStaysAndIsCheap(t *testing.T) {
	e := builtin(t)
	img := corpus.New(3).Image(1 << 20)
	key := "AIzaSyEWmjq7yh0fOIPJweBsqFq6ip6tAs8xReU"
	img = img[:5000] + "+" + key + "/" + img[5041:]
	in := `{"data":"data:image/png;base64,` + img + `"}`
	out, _, err := e.JSON(nil, []byte(in))
	if err != nil || string(out) != in {
		t.Errorf("the picture changed: %v", err)
	}
	if w, err := redact.Work(e, []byte(in)); err != nil || w > 3*len(in) {
		t.Errorf("%d bytes take %d: %v", len(in), w, err)
	}
}

// Case 64.
func TestALongLineIsScannedWhole(t *testing.T) {
	e := builtin(t)
	in := `{"t":"` + strings.Repeat("lorem ipsum dolor key value ", 131000/28) + ghp + `"}`
	if out := redactJSON(t, e, in); strings.Contains(out, ghp[:12]) {
		t.Error("the end of a long line was not looked at")
	}
}

// Case 65.
func TestAnEmptyLiteralInAPolicyIsRefused(t *testing.T) {
	for _, p := range []string{
		"[[rules]]\nid='a'\nregex='x'\nkeywords=['']\n",
		"[[rules]]\nid='a'\nkeys=['']\n",
		"[[rules]]\nid='a'\nregex='x*'\n",
		"[[rules]]\nid='a'\nregex='x'\n[[rules.allowlists]]\nstopwords=['']\n",
		"[allowlist]\nregexes=['']\n",
		"[[rules]]\nid='a b'\nregex='x'\n",
		"[[rules]]\nid='a'\nregex='('\n",
		"[[rules]]\nid='a'\nregex='x'\nsurprise=1\n",
		"[[rules]]\nid='a'\nregex='x'\naction='shred'\n",
		"[[rules]]\nid='a'\nregex='x'\nvalidator='magic'\n",
	} {
		if _, err := redact.ParsePolicy("p.toml", []byte(p)); err == nil {
			t.Errorf("accepted: %s", p)
		}
	}
}

// Case 57.
func TestAPanicInARuleBecomesAnErrorWithoutContent(t *testing.T) {
	bad := redact.NewPolicy("bad", redact.Rule{ID: "bad", Literals: []string{"boom"}, Find: func(c *redact.Candidate) { panic(string(c.Text())) }})
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), bad}})
	if err != nil {
		t.Fatal(err)
	}
	out, rep, err := e.JSON([]byte("kept"), []byte(`{"t":"boom secretvalue"}`))
	if err == nil || rep != nil || string(out) != "kept" || strings.Contains(fmt.Sprint(err), "secretvalue") {
		t.Errorf("%s %v %v", out, rep, err)
	}
	if _, _, err := e.JSON(nil, []byte(`{"t":"fine"}`)); err != nil {
		t.Errorf("the engine does not go on: %v", err)
	}
}

// Callers that have checked their input rely on it.
func TestWithoutACountTheOutputIsTheInput(t *testing.T) {
	policies := bothSets()
	rest, err := redact.ParsePolicy("rest.toml", []byte("[[rules]]\nid='gone'\nkeys=['nanos']\naction='drop'\n[[rules]]\nid='held'\nregex='''retry 7'''\nkeywords=['retry']\naction='withhold'\n"+
		"[[rules]]\nid='there'\nregex='''open'''\nkeywords=['open']\npaths=['data.nowhere']\n"))
	if err != nil {
		t.Fatal(err)
	}
	tight := redact.Limits{ScanBytes: 1, Steps: 1, Depth: 3, Decode: 1}
	same, changed := 0, 0
	for _, o := range []redact.Options{{Policies: policies}, {Policies: append(policies, rest)}, {Policies: policies, Limits: tight}} {
		e, err := redact.New(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range corpus.Classes {
			g := corpus.New(41)
			for range 60 {
				in := " " + strings.Replace(string(g.Record(c)), `,"`, ` , "`, 3) + "\n"
				in = strings.Replace(in, "AUTH_TOKEN", "[REDACTED:x]", 1)
				out, rep, err := e.JSON([]byte("before"), []byte(in))
				if err != nil {
					t.Fatal(err)
				}
				if len(rep.Counts) > 0 {
					changed++
					continue
				}
				same++
				if string(out) != "before"+in || len(rep.Findings) > 0 || rep.Withhold != "" || rep.Exhausted > 0 {
					t.Fatalf("no count, but %+v: %s", rep, out)
				}
			}
		}
	}
	if same < 500 || changed < 100 {
		t.Errorf("%d without a count, %d with one: the test says little", same, changed)
	}
}
