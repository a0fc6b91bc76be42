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
