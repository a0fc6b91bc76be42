package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a policy extends by path stands beside it, wherever other policies are.
func TestPoliciesExtendWhatStandsBesideThem(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	rule := func(id, word string) string {
		return "[[rules]]\nid = \"" + id + "\"\nregex = '''" + word + `-\d+'''` + "\n"
	}
	for name, text := range map[string]string{
		"a/one.toml":       "[extend]\npath = \"base.toml\"\n",
		"a/base.toml":      "[extend]\npath = \"deep/base.toml\"\n" + rule("a-base", "ALPHA"),
		"a/deep/base.toml": "[extend]\nuse = [\"next.toml\"]\n",
		"a/deep/next.toml": rule("a-next", "DELTA"),
		"b/two.toml":       "[extend]\npath = \"base.toml\"\n" + rule("b-two", "BETA"),
		"b/base.toml":      rule("b-base", "GAMMA"),
		"base.toml":        rule("base", "OMEGA"),
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "[REDACTED:a-base] [REDACTED:b-two] [REDACTED:b-base] [REDACTED:a-next] [REDACTED:base]"
	for _, names := range [][]string{
		{"a/one.toml", "b/two.toml", "base.toml"}, {"base.toml", "b/two.toml", "a/one.toml"},
		{filepath.Join(dir, "a/one.toml"), filepath.Join(dir, "base.toml"), "b/two.toml"},
	} {
		e, err := NewEngine(names, "")
		if err != nil {
			t.Errorf("%v: %v", names, err)
			continue
		}
		if out, _, err := e.Text(nil, "ALPHA-1 BETA-2 GAMMA-3 DELTA-4 OMEGA-5"); err != nil || string(out) != want {
			t.Errorf("%v: %s %v", names, out, err)
		}
	}
}

// What redacts a row of a session file would redact nothing of a record.
func TestPathsOfRowsAreWarnedOf(t *testing.T) {
	dir := t.TempDir()
	rule := func(id, path string) string {
		return "[[rules]]\nid = \"" + id + "\"\ndescription = \"x\"\npaths = [\"" + path + "\"]\n"
	}
	text := rule("acme-rows", "data.message.**") + rule("acme-both", "**.message.**") + rule("acme-records", "message.data")
	if err := os.WriteFile(filepath.Join(dir, "acme.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte("mode: FULL\nexporter: { endpoint: 'http://localhost:1' }\nredact: { policies: [builtin:secrets, ./acme.toml] }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{File: file, LookupEnv: testEnv()})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "acme-rows") || !strings.Contains(c.Warnings[0], "data.message.**") {
		t.Errorf("warnings %q", c.Warnings)
	}
}
