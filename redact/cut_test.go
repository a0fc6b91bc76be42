package redact_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// JSON, YAML or settings in a string that is cut leak nothing of a value that
// had a secret's name, wherever the cut is.
func TestACutTextLeaksNothing(t *testing.T) {
	e := builtin(t)
	const v = "foobar_secret9val"
	in := func(s string) string {
		b, err := json.Marshal(map[string]string{"body": s})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	check := func(s string) {
		t.Helper()
		if out := redactJSON(t, e, in(s)); strings.Contains(out, "foobar") || strings.Contains(out, "9tmBg2") || strings.Contains(out, "Zx81kd") {
			t.Errorf("%s\nleaves %s", s, out)
		}
	}
	for _, s := range []string{
		`{"a":1,"api_key":"9tmBg2HxPRNz7kQw4fLs...[truncated]`, `{"password":"foobar_secret_val`, `{"client_secret": "Zx81kd02mMqPl5…`,
		`{'password': '` + v, `{"x":"{\"password\":\"foobar_secret_val`, `{"x":"{\"password\":\"foobar_secret_val\`,
		`{"x":"{\"y\":\"{\\\"password\\\":\\\"foobar_secret_val`, `{"password":["foobar_secret_val`, `{"password":{"value":"` + v,
		`{"name":"password","value":"` + v, `[{"value":"` + v + `","name":"password`, `{"password":"foobar_secret_val [truncated 120 chars]`,
		"{\"password\":\"foobar_secret_val\n... (output truncated)\n", `{"Authorization":"Bearer foobar12345`,
		`answer: {"a": 1, "password": "` + v, `answer: {"a": 1, 'password': '` + v, `password: "` + v, "a: b\npassword: '" + v,
		`export API_KEY="9tmBg2HxPRNz7kQ`, `API_KEY='9tmBg2HxPRNz7kQ`, `API_KEY=9tmBg2HxPRNz7kQ`, "api_key: 9tmBg2HxPRNz7kQ",
		"got {\"password\": \"" + v + "\n[output truncated]", "got {\"password\": \"" + v + "...[truncated]",
		`got {\"password\": \"` + v, `got {\\\"password\\\": \\\"` + v, `x = {"api_key": "9tmBg2HxPRNz7kQw\`, `<add key="password" value="` + v,
	} {
		check(s)
	}
	// At each place behind the name.
	doc := `{"user":"ann","password":"foobar\u00e9secret9val\"x\\y","n":{"apiKey":"9tmBg2HxPRNz7kQw4fLs","list":[1,true,{"client_secret":"Zx81kd02mMqPl5"}]}}`
	for _, d := range []string{doc, in(doc), in(in(doc)), "[" + doc} {
		for i := strings.Index(d, "foobar") + 6; i <= len(d); i++ {
			check(d[:i])
		}
	}
	for _, s := range []string{`{"password":"`, `{"passw`, `{"password"`, `{"password":`, `{"max_tokens":40`, `[12:30:05] INFO "password": `, `{"a":"b","password":tr`, `{"password":{"type":"str`,
		`{"user":"ann","path":"/src/token.go`, strings.Repeat("[", 5000), `{"token":"`, `{a`, `{"a":1,`, `[1,`, `{"a":-`, `{"a":1e`, `"password": "$PASS`} {
		if out := redactJSON(t, e, in(s)); out != in(s) {
			t.Errorf("%s\nbecomes %s", in(s), out)
		}
	}
}
