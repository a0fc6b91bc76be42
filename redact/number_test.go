package redact_test

import (
	"strings"
	"testing"
)

// A number is what it means, however it is spelled: what leaves is its value.
func TestNumbersAreLookedAtByTheirValue(t *testing.T) {
	e := builtin(t)
	for _, n := range []string{"4111111111111111", "4111111111111111.0", "4111111111111111.000", "4.111111111111111e15", "4111111111111111e0", "4111111111111111E+0",
		"41111111111111110e-1", "0.4111111111111111e16", "4111111111111111.0001", "411111111111111.1e1", "4111111111111111000000e-6"} {
		for _, in := range []string{`{"pan":` + n + `}`, `[1,` + n + `]`, n} {
			if out := redactJSON(t, e, in); out != strings.Replace(in, n, `"[REDACTED:pii-card]"`, 1) {
				t.Errorf("%s gives %s", in, out)
			}
		}
		if out := redactJSON(t, e, `{"a":"{\"pan\":`+n+`}"}`); out != `{"a":"{\"pan\":\"[REDACTED:pii-card]\"}"}` {
			t.Error(out)
		}
	}
	for _, n := range []string{"90210448", "90210448.0", "9.0210448e7", "902104480E-1", "9e7"} {
		for _, key := range []string{"password", "secret", "api_token"} {
			if out := redactJSON(t, e, `{"`+key+`":`+n+`}`); out != `{"`+key+`":"[REDACTED:bridge-key-name]"}` {
				t.Errorf("%s: %s gives %s", key, n, out)
			}
		}
	}
	// A telephone number under a key that says so.
	for _, n := range []string{"14155552671", "1.4155552671e10", "14155552671.0"} {
		if out := redactJSON(t, e, `{"phone":`+n+`}`); strings.Contains(out, n) {
			t.Errorf("left: %s", out)
		}
	}
	for _, in := range []string{`[4111111111111112.0,4.1e15,1748503543012.0,1.748503543012e12,0.4111111111111111,4111111111111111.5,1e400,-0.0,4111111111111111e-400]`,
		`{"password":0.5,"token":1e3000,"max_tokens":4.096e3,"secret":12}`, `{"t":4.111111111111111e99999999999}`} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%s\nbecomes %s", in, out)
		}
	}
	r := engineOf(t, "[[rules]]\nid = \"r\"\nkeys = [\"salary\"]\naction = \"token\"\n")
	a := redactJSON(t, r, `{"salary":90000}`)
	for _, n := range []string{"90000.0", "9e4", "900000e-1"} {
		if out := redactJSON(t, r, `{"salary":`+n+`}`); out != a {
			t.Errorf("%s has another token than its value", n)
		}
	}
}
