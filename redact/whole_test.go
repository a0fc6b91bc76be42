package redact_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A rule that names a key or a path and nothing else takes the value there,
// whatever its type.
func TestRulesByKeyOrPathTakeValuesOfEveryType(t *testing.T) {
	values := []string{`{"amount":90000,"name":"Jane"}`, `{}`, `[]`, `[{"amount":1}]`, `["a1",["b2"]]`, `[null]`, `true`, `false`, `null`, `""`, `0`, `12.5`, `"x"`, `"long text of some words"`,
		`{"a":{"b":{"c":[1,{"d":"e"}]}}}`, `"{\"a\":\"b\"}"`, ` { "a" : [ 1 , 2 ] } `}
	engine := func(where, action string) func(in string) (string, string) {
		e := engineOf(t, "[[rules]]\nid = \"r\"\n"+where+"\naction = \""+action+"\"\n")
		return func(in string) (string, string) {
			t.Helper()
			_, rep, err := e.JSON(nil, []byte(in))
			if err != nil {
				t.Fatal(err, in)
			}
			return redactJSON(t, e, in), rep.Withhold
		}
	}
	for _, where := range []string{`keys = ["salary"]`, `paths = ["salary"]`, "keys = [\"salary\"]\npaths = [\"salary\"]"} {
		replace, drop, withhold, token := engine(where, "replace"), engine(where, "drop"), engine(where, "withhold"), engine(where, "token")
		for _, v := range values {
			in := `{"z":1,"salary":` + v + `,"y":[2]}`
			if out, _ := replace(in); strings.ReplaceAll(out, " ", "") != `{"z":1,"salary":"[REDACTED:r]","y":[2]}` {
				t.Errorf("%s: %s gives %s", where, in, out)
			}
			if out, _ := drop(in); out != `{"z":1,"y":[2]}` {
				t.Errorf("%s: %s gives %s", where, in, out)
			}
			if _, w := withhold(in); w != "r" {
				t.Errorf("%s: %s is not withheld", where, in)
			}
			if out, _ := token(in); !strings.Contains(out, `"salary":"[TOKEN:r:k1:`) && !strings.Contains(out, `"salary": "[TOKEN:r:k1:`) || !strings.HasSuffix(out, `,"y":[2]}`) {
				t.Errorf("%s: %s gives %s", where, in, out)
			}
		}
		a, _ := token(`{"salary":{"a":1,"b":[true,"ü"]}}`)
		b, _ := token(`{"salary": {"b" : [true, "\u00fc"], "a":1}}`)
		c, _ := token(`{"salary":{"a":2,"b":[true,"ü"]}}`)
		if strings.ReplaceAll(b, " ", "") != a || a == c {
			t.Errorf("tokens over other bytes than the canonical ones: %s %s %s", a, b, c)
		}
	}
	for _, c := range []struct{ where, action, in, want string }{
		{`paths = ["x.y"]`, "drop", `{"x":{"y":{"z":"1"}}}`, `{"x":{}}`},
		{`paths = ["x.y"]`, "drop", `{"x":{"y":["1"],"k":1}}`, `{"x":{"k":1}}`},
		{`paths = ["x.*"]`, "drop", `{"x":[{"a":1},null,"",[]]}`, `{"x":[null,null,null,null]}`},
		{`paths = ["x.1"]`, "replace", `{"x":[1,[2,3],4]}`, `{"x":[1,"[REDACTED:r]",4]}`},
		{`paths = ["x.(json).y"]`, "replace", `{"x":"{\"y\":{\"z\":true}}"}`, `{"x":"{\"y\":\"[REDACTED:r]\"}"}`},
		{`paths = ["x.(json)"]`, "replace", `{"x":"{\"y\":1}"}`, `{"x":"\"[REDACTED:r]\""}`},
		{`paths = ["x.**"]`, "replace", `{"x":{"y":[true,null,"",7]},"k":true}`, `{"x":{"y":["[REDACTED:r]","[REDACTED:r]","[REDACTED:r]","[REDACTED:r]"]},"k":true}`},
		{`paths = ["x.**"]`, "replace", `{"x":{"a long key of some 30 characters":{"k2":{}},"y9":1}}`, `{"x":{"a long key of some 30 characters":{"k2":{}},"y9":"[REDACTED:r]"}}`},
		{`keys = ["salary"]`, "replace", `{"a":"{\"salary\":{\"n\":null}}"}`, `{"a":"{\"salary\":\"[REDACTED:r]\"}"}`},
		{`keys = ["salary"]`, "replace", `[{"name":"salary","value":{"n":90000}},{"name":"salary","value":true}]`, `[{"name":"salary","value":"[REDACTED:r]"},{"name":"salary","value":"[REDACTED:r]"}]`},
		{`keys = ["salary"]`, "drop", `{"name":"salary","value":{"n":90000}}`, `{"name":"salary"}`},
		{`paths = ["data"]`, "replace", `{"data":` + strings.Repeat("[", 1200) + strings.Repeat("]", 1200) + `}`, `{"data":"[REDACTED:r]"}`},
	} {
		if out, _ := engine(c.where, c.action)(c.in); out != c.want {
			t.Errorf("%s %s: %.200s gives %.200s, want %s", c.where, c.action, c.in, out, c.want)
		}
	}
	if _, w := engine(`paths = ["data.message"]`, "withhold")(`{"data":{"message":{"text":"hello"}}}`); w != "r" {
		t.Error("an object at a path is not withheld")
	}
}

// Of the rules that a key's name matches none hides another.
func TestAllRulesOfAKeyHold(t *testing.T) {
	e := engineOf(t, `
[extend]
use = ["builtin:secrets"]
[[rules]]
id = "there"
keys = ["password"]
paths = ["there.*"]
[[rules]]
id = "mark"
keys = ["salary"]
[[rules]]
id = "seal"
keys = ["sal*"]
action = "withhold"
`)
	if out := redactJSON(t, e, `{"here":{"password":"zzTopp11"},"there":{"password":"zzTopp11"}}`); out != `{"here":{"password":"[REDACTED:bridge-key-name]"},"there":{"password":"[REDACTED:there]"}}` {
		t.Error(out)
	}
	if _, rep, err := e.JSON(nil, []byte(`{"salary":1}`)); err != nil || rep.Withhold != "seal" {
		t.Error(rep, err)
	}
}

// What stands in members like "value" of an object under a secret's name is its
// value; a schema of such a value is none.
func TestSecretsInObjectsUnderASecretsName(t *testing.T) {
	e := builtin(t)
	for in, gone := range map[string]string{
		`{"password":{"value":"zzTopp11"}}`:                              "zzTopp11",
		`{"secret":{"value":"zzTopp11xx"}}`:                              "zzTopp11xx",
		`{"password":["a1b2c3d4e5"]}`:                                    "a1b2c3d4e5",
		`{"password":[{"value":"zzTopp11"}]}`:                            "zzTopp11",
		`{"password":{"current":{"value":"zzTopp11"}}}`:                  "zzTopp11",
		`{"db_password":{"data":["zzTopp11!"]}}`:                         "zzTopp11",
		`{"apiKey":{"plain":"9tmBg2HxPRNz7kQw4fLs","id":7}}`:             "9tmBg2",
		`{"token":{"raw":"9tmBg2HxPRNz7kQw4fLs"}}`:                       "9tmBg2",
		`{"credentials":{"secret":{"text":"9tmBg2HxPRNz7kQw4fLs"}}}`:     "9tmBg2",
		`{"a":"{\"password\":{\"Value\":\"zzTopp11\"}}"}`:                "zzTopp11",
		`{"password":{"type":"plain","value":"zzTopp11"}}`:               "zzTopp11",
		`{"name":"password","value":{"value":"zzTopp11","id":1}}`:        "zzTopp11",
		`{"value":{"current":["zzTopp11"]},"key":"db_password"}`:         "zzTopp11",
		`{"DB_PASSWORD":{"default":"zzTopp11"}}`:                         "zzTopp11",
		`{"pin_password":{"value":90210448}}`:                            "90210448",
		`{"password":{"content":"zzTopp11","encoding":"utf-8"}}`:         "zzTopp11",
		`{"refreshTokens":[{"value":"9tmBg2HxPRNz7kQw4fLsAa01"}]}`:       "9tmBg2",
		`{"passphrase":{"old_value":"zzTopp11","new_value":"zzTopp12"}}`: "zzTopp1",
	} {
		if out := redactJSON(t, e, in); strings.Contains(out, gone) {
			t.Errorf("left: %s", out)
		}
	}
	for _, in := range []string{
		`{"password":{"type":"string","description":"The user's password","default":null}}`,
		`{"properties":{"password":{"type":"string","default":"changeme","example":"secret"},"secret":{"default":"string"},"token":{"default":"0"}}}`,
		`{"properties":{"password":{"type":"string","minLength":8,"format":"password"},"token":{"type":"string","content":"text"},"api_key":{"enum":["a","b"]}}}`,
		`{"tokens":[{"type":"Identifier","value":"fooBar1"},{"type":"Keyword","value":"const"}],"token":{"type":"Identifier","value":"fooBar"}}`,
		`{"token":{"id":264,"text":" hello","logprob":-0.1,"special":false}}`,
		`{"tokens":[{"text":"Hello","id":12345},{"text":"utf8"}]}`,
		`{"password":{"text":"Password","placeholder":"Enter password"}}`,
		`{"password":{"value":"","error":null,"touched":false}}`,
		`{"password":{"text":"Enter your password","data":"form.password"}}`,
		`{"secret":{"name":"db-credentials","key":"password"}}`,
		`{"password":{"value":"${DB_PASSWORD}"}}`,
	} {
		if out := redactJSON(t, e, in); out != in {
			t.Errorf("%s\nbecomes %s", in, out)
		}
	}
}

// Rules by key and path over random documents: the output is JSON, twice is
// once, and nothing but a marker stands under the key.
func TestRulesByKeyOverRandomDocuments(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	keys := []string{"salary", "Sal_ary", "x", "y", "password", "name", "value", "rawHeaders", "(json)", ""}
	texts := []string{"", "salary", "zzTopp11", "a b c", "ü\n\"q\"", "X-Auth-Token", `{"salary":[1,{"x":`, `[REDACTED:r]`, "4111111111111111"}
	var doc func(depth int) any
	doc = func(depth int) any {
		switch n := r.IntN(10); {
		case depth > 0 && n < 3:
			m := map[string]any{}
			for range r.IntN(4) {
				m[keys[r.IntN(len(keys))]] = doc(depth - 1)
			}
			return m
		case depth > 0 && n < 5:
			a := []any{}
			for range r.IntN(4) {
				a = append(a, doc(depth-1))
			}
			return a
		case depth > 0 && n < 6:
			b, _ := json.Marshal(doc(depth - 1))
			if r.IntN(3) == 0 {
				b = b[:r.IntN(len(b)+1)]
			}
			return string(b)
		case n < 7:
			return texts[r.IntN(len(texts))]
		case n < 8:
			return r.IntN(1 << 30)
		}
		return []any{true, false, nil, 1.5}[r.IntN(4)]
	}
	var bad func(v any) bool
	bad = func(v any) bool {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				s, _ := x.(string)
				if (k == "salary" || k == "Sal_ary") && !strings.HasPrefix(s, "[REDACTED:") && !strings.HasPrefix(s, "[TOKEN:") {
					return true
				}
				if bad(x) {
					return true
				}
			}
		case []any:
			return slices.ContainsFunc(v, bad)
		case string:
			var in any
			return json.Unmarshal([]byte(v), &in) == nil && bad(in)
		}
		return false
	}
	for _, action := range []string{"replace", "token", "drop", "withhold"} {
		e := engineOf(t, "[extend]\nuse = [\"builtin:secrets\", \"builtin:pii\"]\n[[rules]]\nid = \"r\"\nkeys = [\"salary\"]\naction = \""+action+
			"\"\n[[rules]]\nid = \"p\"\npaths = [\"x.y\", \"x.1\", \"**.value.x\"]\naction = \"drop\"\n[[rules]]\nid = \"q\"\npaths = [\"y.x.**\"]\naction = \""+action+"\"\n")
		for range 3000 {
			b, err := json.Marshal(doc(5))
			if err != nil {
				t.Fatal(err)
			}
			out := redactJSON(t, e, string(b))
			var v any
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				t.Fatal(err)
			}
			if bad(v) {
				t.Fatalf("%s: %s\ngives %s", action, b, out)
			}
		}
	}
}
