package config

import (
	"fmt"
	"os"
	"strings"
)

// Redact says what is made unreadable.
type Redact struct {
	// None is true where the file says `redact: none`.
	None bool
	// PolicyNames are built-in names (builtin:…) and resolved file paths.
	PolicyNames []string
	// KeyFile is the key of the action "token"; empty for none.
	KeyFile string
}

const (
	builtinPrefix = "builtin:"
	maxPolicyFile = 4 << 20
	minKeyBytes   = 32
)

var builtinPolicies = []string{"builtin:secrets", "builtin:pii"}

// policyName checks a built-in name, or resolves the path of a policy file.
func policyName(text, base string) (string, error) {
	if strings.HasPrefix(text, builtinPrefix) {
		if !contains(builtinPolicies, text) {
			return "", fmt.Errorf("%q is not a built-in policy; there are %s", text, strings.Join(builtinPolicies, ", "))
		}
		return text, nil
	}
	if text == "" {
		return "", fmt.Errorf("an empty policy name")
	}
	return resolvePath(text, base)
}

// loadRedaction reads the policy files and the key.
func (l *loader) loadRedaction() {
	r := &l.cfg.Redact
	if r.None {
		l.warn("redact: none: records leave as they were written, secrets and personal data included")
		return
	}
	for _, name := range r.PolicyNames {
		if strings.HasPrefix(name, builtinPrefix) {
			continue
		}
		p := l.where["redact.policies:"+name]
		p.Key = "redact.policies"
		st, err := os.Stat(name)
		switch {
		case err != nil:
			p.Message = name + " cannot be read: " + reason(err)
			l.add(p)
		case st.Size() > maxPolicyFile:
			p.Message = fmt.Sprintf("%s is larger than %s", name, Size(maxPolicyFile))
			l.add(p)
		}
	}
	if r.KeyFile != "" {
		if err := privateFile(r.KeyFile); err != nil {
			l.failAt("redact.key_file", "%s", err)
		}
	}
}
