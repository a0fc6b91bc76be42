package redact_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

func resolve(_, name string) (*redact.Policy, error) {
	switch name {
	case secrets.Name:
		return secrets.Policy(), nil
	case pii.Name:
		return pii.Policy(), nil
	}
	return nil, fmt.Errorf("no policy %q", name)
}

func engineOf(t testing.TB, toml string) *redact.Engine {
	t.Helper()
	p, err := redact.ParsePolicy("test.toml", []byte(toml))
	if err != nil {
		t.Fatal(err)
	}
	key, err := redact.NewKey("k1", []byte(strings.Repeat("0123456789abcdef", 2)))
	if err != nil {
		t.Fatal(err)
	}
	e, err := redact.New(redact.Options{Policies: []*redact.Policy{p}, Resolve: resolve, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestActions(t *testing.T) {
	e := engineOf(t, `
[[rules]]
id = "ticket"
regex = 'TCK-[0-9]{6}'
keywords = ["tck-"]
action = "token"
[[rules]]
id = "codename"
regex = 'PROJECT [A-Z]{4,}'
action = "drop"
[[rules]]
id = "sealed"
regex = 'TOP SEALED'
action = "withhold"
[[rules]]
id = "salary"
keys = ["salary", "*bonus*"]
`)
	token := regexp.MustCompile(`\[TOKEN:ticket:k1:([0-9a-f]{24,})\]`)
	out := redactJSON(t, e, `{"a":"TCK-123456 and TCK-123456","b":"TCK-654321"}`)
	m := token.FindAllStringSubmatch(out, -1)
	if len(m) != 3 || m[0][1] != m[1][1] || m[0][1] == m[2][1] {
		t.Errorf("tokens: %s", out)
	}
	for _, c := range [][2]string{
		{`{"a":1,"b":"about PROJECT ZEBRA","c":2}`, `{"a":1,"c":2}`},
		{`{"a":"PROJECT ZEBRA","c":2}`, `{"c":2}`},
		{`{"c":2,"a":"PROJECT ZEBRA"}`, `{"c":2}`},
		{`{"a":"PROJECT ZEBRA","b":"PROJECT ZEBRA"}`, `{}`},
		{`{"a":1,"x":"PROJECT ZEBRA","b":"PROJECT ZEBRA"}`, `{"a":1}`},
		{`["x","PROJECT ZEBRA",1]`, `["x",null,1]`},
		{`{"o":{"p":"PROJECT ZEBRA","q":[{"r":"PROJECT OTTER"}]}}`, `{"o":{"q":[{}]}}`},
		{`"PROJECT ZEBRA"`, `null`},
		{`{"s":"{\"a\":\"PROJECT ZEBRA\",\"b\":1}"}`, `{"s":"{\"b\":1}"}`},
		{`{"salary":5000,"Yearly_Bonus":"lots","x":1}`, `{"salary":"[REDACTED:salary]","Yearly_Bonus":"[REDACTED:salary]","x":1}`},
	} {
		if out := redactJSON(t, e, c[0]); out != c[1] {
			t.Errorf("%s\n gives %s\n  want %s", c[0], out, c[1])
		}
	}
	_, rep, err := e.JSON(nil, []byte(`{"a":"this is TOP SEALED"}`))
	if err != nil || rep.Withhold != "sealed" {
		t.Errorf("withhold: %v %v", rep, err)
	}
	_, rep, err = e.JSON(nil, []byte(`{"a":"plain"}`))
	if err != nil || rep.Withhold != "" {
		t.Errorf("the next record is withheld too: %v %v", rep, err)
	}
}

func TestTokensDifferByRuleAndKey(t *testing.T) {
	a, _ := redact.NewKey("a", []byte(strings.Repeat("x", 32)))
	b, _ := redact.NewKey("b", []byte(strings.Repeat("y", 32)))
	v := []byte("value")
	if first, again := a.Pseudonym("r", v), a.Pseudonym("r", v); first != again {
		t.Error("not deterministic")
	}
	hex := func(s string) string { return s[strings.LastIndex(s, ":")+1:] }
	if hex(a.Pseudonym("r", v)) == hex(a.Pseudonym("s", v)) || hex(a.Pseudonym("r", v)) == hex(b.Pseudonym("r", v)) {
		t.Error("one value can be followed over rules or keys")
	}
	// HMAC-SHA-256 by another implementation: python3 -c "import hmac,hashlib;
	// print(hmac.new(b'x'*32, b'otel-bridge redact token v1\0r\0value', hashlib.sha256).hexdigest()[:32])"
	if got := a.Pseudonym("r", v); got != "[TOKEN:r:a:"+wantHMAC+"]" {
		t.Error(got)
	}
	for _, bad := range []struct {
		id string
		n  int
	}{{"a", 31}, {"", 32}, {"a b", 32}, {strings.Repeat("a", 33), 32}} {
		if _, err := redact.NewKey(bad.id, make([]byte, bad.n)); err == nil {
			t.Errorf("accepted %v", bad)
		}
	}
	p, _ := redact.ParsePolicy("p", []byte("[[rules]]\nid='a'\nregex='xyz'\naction='token'\n"))
	if _, err := redact.New(redact.Options{Policies: []*redact.Policy{p}}); !errors.Is(err, redact.ErrNoKey) {
		t.Error(err)
	}
}

func TestRulesApplyAtTheirPathsOnly(t *testing.T) {
	e := engineOf(t, `
[[rules]]
id = "internal-host"
regex = '[a-z]+\.corp\.internal'
paths = ["data.message.**", "data.*.host"]
[[rules]]
id = "whole"
paths = ["data.private", "list[1]"]
`)
	in := `{"t":"a.corp.internal","data":{"message":{"x":["b.corp.internal"]},"n":{"host":"c.corp.internal","other":"d.corp.internal"},"private":"anything","private2":1},"list":["x",5]}`
	want := `{"t":"a.corp.internal","data":{"message":{"x":["[REDACTED:internal-host]"]},"n":{"host":"[REDACTED:internal-host]","other":"d.corp.internal"},"private":"[REDACTED:whole]","private2":1},"list":["x","[REDACTED:whole]"]}`
	if out := redactJSON(t, e, in); out != want {
		t.Errorf("%s\n%s", out, want)
	}
}

func TestPoliciesComposeAsGitleaksExtends(t *testing.T) {
	e := engineOf(t, `
[extend]
useDefault = true
disabledRules = ["generic-api-key"]
enabledRules = []
[[rules]]
id = "github-pat"
action = "withhold"
[[rules]]
id = "acme"
regex = 'acme_[a-z0-9]{8}'
entropy = 2.0
keywords = ["acme_"]
[[rules.allowlists]]
stopwords = ["sample"]
regexes = ['^acme_0+']
[[allowlists]]
targetRules = ["acme"]
regexTarget = "line"
regexes = ['test line']
`)
	_, rep, err := e.JSON(nil, []byte(`{"t":"`+ghp+`"}`))
	if err != nil || rep.Withhold != "github-pat" {
		t.Errorf("%+v %v", rep, err)
	}
	for in, found := range map[string]bool{"acme_a1b2c3d4": true, "acme_sample12": false, "acme_00000000": false, "test line acme_a1b2c3d4": false, "test\nacme_a1b2c3d4": true} {
		if out, _, _ := e.Text(nil, in); strings.Contains(string(out), "REDACTED:acme") != found {
			t.Errorf("%q: %s", in, out)
		}
	}
	p, _ := redact.ParsePolicy("a", []byte("[extend]\nuse=['builtin:pii']\nenabledRules=['pii-ipv4','pii-mac','pii-passport','pii-birth-date','pii-ipv6','pii-cn-id-bare']\n"))
	pi, err := redact.New(redact.Options{Policies: []*redact.Policy{p}, Resolve: resolve})
	if err != nil {
		t.Fatal(err)
	}
	out := redactJSON(t, pi, `{"t":"ip 203.0.113.42 mac 02:51:75:b7:d7:a0 v6 2001:db8::dead:beef version 1.2.3.4-rc id 330106199412069751","passport_number":"K559MRZJ0","dob":"06.10.1957"}`)
	for _, s := range []string{"203.0", "02:51", "2001:db8", "K559", "1957", "3301"} {
		if strings.Contains(out, s) {
			t.Errorf("%s is left: %s", s, out)
		}
	}
	for _, bad := range []string{"[extend]\nuse=['nowhere']\n", "[extend]\nuse=['builtin:pii']\ndisabledRules=['x']\n", "[extend]\nuse=['builtin:pii']\nenabledRules=['x']\n", "[[rules]]\nid='lonely'\naction='drop'\n",
		"[[rules]]\nid='a'\nregex='abc'\n[[rules.required]]\nid='gone'\n"} {
		p, err := redact.ParsePolicy("bad", []byte(bad))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := redact.New(redact.Options{Policies: []*redact.Policy{p}, Resolve: resolve}); !errors.Is(err, redact.ErrPolicy) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestWithoutResolveAPolicyExtendsWhatStandsBeforeIt(t *testing.T) {
	own, err := redact.ParsePolicy("own", []byte("[extend]\nuseDefault = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), own}}); err != nil {
		t.Error(err)
	}
	if _, err := redact.New(redact.Options{Policies: []*redact.Policy{own}}); !errors.Is(err, redact.ErrPolicy) {
		t.Errorf("alone: %v", err)
	}
}

func TestRequiredRulesHaveToMatchNearby(t *testing.T) {
	e := engineOf(t, `
[[rules]]
id = "secret-part"
regex = 'S-[0-9]{6}'
[[rules.required]]
id = "id-part"
withinLines = 1
[[rules]]
id = "id-part"
regex = 'ID-[0-9]{3}'
skipReport = true
`)
	for in, want := range map[string]string{
		"S-123456":                "S-123456",
		"ID-123\nS-123456":        "ID-123\n[REDACTED:secret-part]",
		"ID-123\n\n\n\nS-123456":  "ID-123\n\n\n\nS-123456",
		"ID-123 alone stays here": "ID-123 alone stays here",
	} {
		if out, _, _ := e.Text(nil, in); string(out) != want {
			t.Errorf("%q: %q", in, out)
		}
	}
}

func TestThePolicyHashIsCanonical(t *testing.T) {
	a := "[[rules]]\nid='a'\nregex='abc'\nkeywords=['b','a']\n"
	b := "[[rules]]\nid='b'\nregex='xyz'\n"
	if engineOf(t, a+b).Hash() != engineOf(t, b+"# a comment\n"+strings.Replace(a, "'b','a'", "'a','b'", 1)).Hash() {
		t.Error("order and comments change the hash")
	}
	for _, other := range []string{a, a + strings.Replace(b, "xyz", "xyzz", 1), a + b + "action='drop'\n"} {
		if engineOf(t, other).Hash() == engineOf(t, a+b).Hash() {
			t.Errorf("not told apart: %s", other)
		}
	}
	if first, again := builtin(t).Hash(), builtin(t).Hash(); first != again || !strings.HasPrefix(first, "sha256:") {
		t.Error("the hash of the built-in policies")
	}
}

func TestTheReportNamesRulesAndPathsAndNoContent(t *testing.T) {
	e := builtin(t)
	in := `{"data":{"content":[{"text":"x ` + ghp + ` y"},{"args":"{\"password\":\"Hunter2!\"}"}],"` + ghp + `":{"password":"Hunter2!"}}}`
	_, rep, err := e.JSON(nil, []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"github-pat": 2, "bridge-key-name": 2}; !reflect.DeepEqual(rep.Counts, want) {
		t.Errorf("%v", rep.Counts)
	}
	want := []redact.Finding{
		{Rule: "github-pat", Path: "data", Count: 1},
		{Rule: "bridge-key-name", Path: "data.[REDACTED:github-pat].password", Count: 1},
		{Rule: "github-pat", Path: "data.content[0].text", Count: 1},
		{Rule: "bridge-key-name", Path: "data.content[1].args.(json).password", Count: 1},
	}
	if !reflect.DeepEqual(rep.Findings, want) {
		t.Errorf("%+v", rep.Findings)
	}
	if s := fmt.Sprintf("%+v", rep); strings.Contains(s, "Hunter2") || strings.Contains(s, ghp) {
		t.Error("the report holds content")
	}
}

func TestLimitsReplaceWhatIsBeyondThem(t *testing.T) {
	mk := func(l redact.Limits) *redact.Engine {
		e, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy()}, Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	deep := strings.Repeat(`{"a":`, 30) + `"` + ghp + `"` + strings.Repeat("}", 30)
	for name, c := range map[string]struct {
		e  *redact.Engine
		in string
	}{
		"depth":  {mk(redact.Limits{Depth: 10}), deep},
		"decode": {mk(redact.Limits{Decode: 2}), `{"a":` + quote(quote(quote(quote(`{"t":"`+ghp+`"}`)))) + `}`},
	} {
		out, rep, err := c.e.JSON(nil, []byte(c.in))
		if err != nil || rep.Exhausted == 0 || rep.Counts[redact.LimitRule] == 0 || strings.Contains(string(out), ghp) || !json.Valid(out) {
			t.Errorf("%s: %s %+v %v", name, out, rep, err)
		}
		again, _, err := c.e.JSON(nil, out)
		if err != nil || string(again) != string(out) {
			t.Errorf("%s twice: %s", name, again)
		}
	}
}

func TestAnEngineIsSafeForConcurrentUse(t *testing.T) {
	e := builtin(t)
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Go(func() {
			for j := 0; j < 50; j++ {
				in := fmt.Sprintf(`{"n":%d,"t":"%s","password":"p%d-%d!"}`, i, ghp, i, j)
				out, _, err := e.JSON(nil, []byte(in))
				want := fmt.Sprintf(`{"n":%d,"t":"[REDACTED:github-pat]","password":"[REDACTED:bridge-key-name]"}`, i)
				if err != nil || string(out) != want {
					t.Errorf("%s %v", out, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestMapsAndValues(t *testing.T) {
	e := builtin(t)
	in := map[string]any{"password": "Hunter2!", "n": 5, "list": []any{"x", ghp}, "html": "<a&b>"}
	out, rep, err := e.Map(in)
	if err != nil || rep.Counts["github-pat"] != 1 {
		t.Fatal(out, rep, err)
	}
	want := map[string]any{"password": "[REDACTED:bridge-key-name]", "n": json.Number("5"), "list": []any{"x", "[REDACTED:github-pat]"}, "html": "<a&b>"}
	if !reflect.DeepEqual(out, want) {
		t.Errorf("%v", out)
	}
	if in["password"] != "Hunter2!" {
		t.Error("the argument was changed")
	}
	if _, _, err := e.Value(func() {}); err == nil {
		t.Error("a function is no JSON value")
	}
}

func TestInvalidInputIsRefusedWithItsOffsetOnly(t *testing.T) {
	e := builtin(t)
	for _, in := range []string{``, `{`, `{"a":1,}`, `[1 2]`, `{"a":"` + "\n" + `"}`, `"\x"`, `{"secretkey":tru}`, `1 2`, `01`, `{"a" 1}`, `"\u12"`, "\xef\xbb\xbf{}"} {
		out, _, err := e.JSON(nil, []byte(in))
		if !errors.Is(err, redact.ErrInvalidJSON) || len(out) != 0 || strings.Contains(err.Error(), "secretkey") {
			t.Errorf("%q: %q %v", in, out, err)
		}
		if json.Valid([]byte(in)) {
			t.Errorf("%q is valid after all", in)
		}
	}
}

func TestThePoliciesToCopyPassTheirOwnExamples(t *testing.T) {
	files, _ := filepath.Glob("../examples/policies/*.toml")
	if len(files) < 3 {
		t.Fatalf("found %d policies", len(files))
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		p, err := redact.ParsePolicy(f, text)
		if err != nil {
			t.Fatal(err)
		}
		total, failed, err := redact.TestPolicy(redact.Options{Policies: []*redact.Policy{p}, Resolve: resolve})
		if err != nil || total == 0 {
			t.Errorf("%s: %d examples, %v", f, total, err)
		}
		for _, x := range failed {
			t.Error(x)
		}
	}
}

const wantHMAC = "f2c05bc2ed11effc8f51f6678eaf1ec4"

// An engine without rules would look like redaction and pass everything.
func TestPoliciesWithoutRulesAreRefused(t *testing.T) {
	empty, err := redact.ParsePolicy("empty.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, policies := range map[string][]*redact.Policy{"no policy": nil, "no rule": {empty}} {
		if _, err := redact.New(redact.Options{Policies: policies}); !errors.Is(err, redact.ErrNoRules) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
