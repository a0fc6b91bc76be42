package config

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/pii"
	"github.com/otel-bridge/otel-bridge/redact/secrets"
)

// Redact says what is made unreadable.
type Redact struct {
	// None is true where the file says `redact: none`.
	None bool
	// PolicyNames are built-in names (builtin:…) and resolved file paths.
	PolicyNames []string
	// KeyFile is the key of the action "token"; empty for none.
	KeyFile string
	// Engine is made of them; nil when None is true, or where Options said so.
	Engine *redact.Engine
}

const (
	builtinPrefix = "builtin:"
	maxPolicyFile = 4 << 20
	maxKeyFile    = 64 << 10
)

var builtins = []struct {
	name   string
	policy func() *redact.Policy
}{
	{"builtin:secrets", secrets.Policy},
	{"builtin:pii", pii.Policy},
}

// DefaultPolicies are those of a configuration that names none.
func DefaultPolicies() []string { return []string{"builtin:secrets", "builtin:pii"} }

// policyName checks a built-in name, or resolves the path of a policy file.
func policyName(text, base string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("an empty policy name")
	}
	if !strings.HasPrefix(text, builtinPrefix) {
		return resolvePath(text, base)
	}
	var names []string
	for _, b := range builtins {
		if b.name == text {
			return text, nil
		}
		names = append(names, b.name)
	}
	return "", fmt.Errorf("%q is not a built-in policy; there are %s", text, strings.Join(names, ", "))
}

// LoadPolicy returns a built-in policy by name, or reads a policy file.
func LoadPolicy(name string) (*redact.Policy, error) {
	for _, b := range builtins {
		if b.name == name {
			return b.policy(), nil
		}
	}
	name, err := policyName(name, "")
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %s", name, reason(err))
	}
	if st.Size() > maxPolicyFile {
		return nil, fmt.Errorf("%s is larger than %s", name, Size(maxPolicyFile))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %s", name, reason(err))
	}
	return redact.ParsePolicy(name, text)
}

// defaultEngine is made once: its rules take a while to compile, and an engine
// is immutable.
var defaultEngine = sync.OnceValues(func() (*redact.Engine, error) {
	return newEngine(DefaultPolicies(), "")
})

// NewEngine makes an engine of policies by name and, for the action "token", a
// key file.
func NewEngine(names []string, keyFile string) (*redact.Engine, error) {
	if keyFile == "" && slices.Equal(names, DefaultPolicies()) {
		return defaultEngine()
	}
	return newEngine(names, keyFile)
}

func newEngine(names []string, keyFile string) (*redact.Engine, error) {
	o, err := engineOptions(names, keyFile)
	if err != nil {
		return nil, err
	}
	return redact.New(o)
}

// TestPolicy runs the examples of one policy and of those that it extends.
// Without a key file, the action "token" works with a key for tests.
func TestPolicy(name, keyFile string) (total int, failed []redact.Failure, err error) {
	o, err := engineOptions([]string{name}, keyFile)
	if err != nil {
		return 0, nil, err
	}
	return redact.TestPolicy(o)
}

func engineOptions(names []string, keyFile string) (redact.Options, error) {
	o := redact.Options{}
	for _, name := range names {
		p, err := LoadPolicy(name)
		if err != nil {
			return o, err
		}
		o.Policies = append(o.Policies, p)
	}
	if keyFile != "" {
		key, err := loadKey(keyFile)
		if err != nil {
			return o, fmt.Errorf("key file %s %w", keyFile, err)
		}
		o.Key = key
	}
	o.Resolve = func(by, name string) (*redact.Policy, error) {
		if !strings.HasPrefix(name, builtinPrefix) {
			resolved, err := resolvePath(name, filepath.Dir(by)) // beside the one that extends it
			if err != nil {
				return nil, err
			}
			name = resolved
		}
		return LoadPolicy(name)
	}
	return o, nil
}

// loadKey reads the key of the action "token". Its id, which stands in every
// pseudonym, is made from the key, so that a new key has a new one.
func loadKey(path string) (*redact.Key, error) {
	if err := privateFile(path); err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil && st.Size() > maxKeyFile {
		return nil, fmt.Errorf("is larger than %s", Size(maxKeyFile))
	}
	secret, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %s", reason(err))
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("otel-bridge key id"))
	return redact.NewKey(hex.EncodeToString(mac.Sum(nil)[:4]), secret)
}

// CheckKeyFile says what is wrong with the file of the key for the action "token",
// nil where nothing is. The text names neither the file nor what is in it.
func CheckKeyFile(path string) error {
	if _, err := loadKey(path); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), path, "it"))
	}
	return nil
}

// loadRedaction reads the policy files and the key, one problem for each.
func (l *loader) loadRedaction() {
	r := &l.cfg.Redact
	if r.None {
		l.warn("redact: none: records leave as they were written, secrets and personal data included")
		return
	}
	if l.opts.NoRedaction {
		return
	}
	before := len(l.problems)
	for _, name := range r.PolicyNames {
		if _, err := LoadPolicy(name); err != nil {
			p := l.where["redact.policies:"+name]
			p.Key, p.Message = "redact.policies", err.Error()
			l.add(p)
		}
	}
	if r.KeyFile != "" {
		if _, err := loadKey(r.KeyFile); err != nil {
			l.failAt("redact.key_file", "%s", err)
		}
	}
	if len(l.problems) > before {
		return
	}
	e, err := NewEngine(r.PolicyNames, r.KeyFile)
	if errors.Is(err, redact.ErrNoRules) {
		l.failAt("redact.policies", "have no rule, so that nothing would be redacted; name a policy, or write `redact: none`")
		return
	}
	if err != nil {
		l.failAt("redact.policies", "%s", err)
		return
	}
	r.Engine = e
	paths := e.Paths()
	for _, id := range slices.Sorted(maps.Keys(paths)) {
		for _, path := range paths[id] {
			if path == "data" || strings.HasPrefix(path, "data.") {
				l.warn("rule %s: its path %s starts like a row of a session file; paths in records start at what stands in data, or with **. for both", id, path)
			}
		}
	}
}
