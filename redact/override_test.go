package redact_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

// An expression takes the place of a built-in rule's code, and nothing of that
// code is called any more.
func TestExpressionTakesThePlaceOfABuiltInRulesCode(t *testing.T) {
	const text = "FOO-12 5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ DE89370400440532013000 4111111111111111 +15550100199 aGVsbG8gd29ybGQgaGVsbG8="
	for _, set := range []*redact.Policy{secrets.Policy(), pii.Policy()} {
		for _, id := range set.Rules() {
			if !strings.HasPrefix(id, "bridge-") && !strings.HasPrefix(id, "pii-") {
				continue // an expression anyway
			}
			own, err := redact.ParsePolicy("own", fmt.Appendf(nil, `
[extend]
use = [%q]
enabledRules = [%q]
[[rules]]
id = %q
regex = 'FOO-\d+'
keywords = ["foo-"]
`, set.Name(), id, id))
			if err != nil {
				t.Fatal(err)
			}
			e, err := redact.New(redact.Options{Policies: []*redact.Policy{own}, Resolve: resolve})
			if err != nil {
				t.Errorf("%s: %v", id, err)
				continue
			}
			if out, _, err := e.Text(nil, text); err != nil || !strings.HasPrefix(string(out), "[REDACTED:"+id+"] ") {
				t.Errorf("%s: %q %v", id, out, err)
			}
		}
	}
}

// As with gitleaks a rule of one's own may have the id of one that is disabled.
func TestOwnRuleStandsInThePlaceOfADisabledOne(t *testing.T) {
	const pat = "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"
	for own, want := range map[string]string{
		"regex = 'MYPAT-\\d{6}'\nkeywords = ['mypat']": "[REDACTED:github-pat] token [REDACTED:bridge-vendor-token]",
		"action = 'drop'": "MYPAT-123456 token [REDACTED:bridge-vendor-token]", // changes what is not there
	} {
		p, err := redact.ParsePolicy("own", []byte("[extend]\nuseDefault = true\ndisabledRules = ['github-pat']\n[[rules]]\nid = 'github-pat'\n"+own))
		if err != nil {
			t.Fatal(err)
		}
		e, err := redact.New(redact.Options{Policies: []*redact.Policy{p}, Resolve: resolve})
		if err != nil {
			t.Fatal(err)
		}
		if out, _, err := e.Text(nil, "MYPAT-123456 token "+pat); err != nil || string(out) != want {
			t.Errorf("%q: %s %v", own, out, err)
		}
	}
}
