package secrets

import (
	"sync"

	"github.com/zricethezav/gitleaks/v8/config"

	"github.com/otel-bridge/otel-bridge/redact"
)

// Name is the name under which policies extend the set.
const Name = "builtin:secrets"

// version goes up when our own rules change: it is part of the policy hash.
const version = 5

var build = sync.OnceValue(func() *redact.Policy {
	p, err := redact.ParsePolicy(Name, []byte(config.DefaultConfig))
	if err != nil {
		// The text is compiled in and tested; a module whose rules do not
		// parse must not run without them.
		panic("redact/secrets: gitleaks' default rules: " + err.Error())
	}
	p = p.Ranked("generic-api-key", redact.RankGeneric)
	for _, n := range natives {
		p = p.Native(n.id, n.expression, n.literals, n.find)
	}
	return p.With(Name, rules()...)
})

// Policy is "builtin:secrets". It is built once and shared.
func Policy() *redact.Policy { return build() }

func rules() []redact.Rule {
	rs := []redact.Rule{
		{
			// A UUID is a name: session_key=<uuid>. Where the key says password or
			// token, our own rules take it. And go.sum's and lock files' hashes
			// stand behind names of modules, which say "token" and "auth" too.
			ID: "generic-api-key",
			Allowlists: []redact.Allowlist{
				{Regexes: []string{`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`}},
				// The key of an entry, with a hash behind it, is no key to anything.
				{RegexTarget: "match", Regexes: []string{`(?i)(?:cache|dedupe?|deduplication|idempotency|partition|sort|row|session)[_. -]?keys?\b[\\\s\x60'"]*(?:=>|:{1,3}=|[=:])[\\\s\x60'"]*(?:[0-9a-f]{40}|[0-9a-f]{64})(?:[^0-9a-z]|$)`}},
				{RegexTarget: "match", Regexes: []string{`\bh1:[ +]?[A-Za-z0-9+/]{8}|\bsha(?:1|256|384|512)[-:]`}},
				// An operator at the end of a line has its value there or, in YAML, is
				// a mapping; what stands first on the next line is something else.
				{RegexTarget: "match", Regexes: []string{`(?:[=>:,]|\|\|)[\x60'"\s=]*\n[\x60'"\s=]*[\w.+/=-]+[\x60'"\s;\\nr]*$`}},
			},
		},
		keyRule(),
		assignmentRule(),
		headerRule(),
		commandRule(),
		vendorRule(),
		pemRule(),
		puttyRule(),
		userInfoRule(),
		awsRule(),
		kubernetesRule(),
		hashRule(),
		sqlRule(),
		pgpassRule(),
		oracleRule(),
		chatRule(),
		walletRule(),
	}
	for i := range rs[1:] {
		i++
		rs[i].Rank = redact.RankSecret
		rs[i].Version = version
	}
	return rs
}
