package redact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Action says what happens to a match.
type Action string

// The actions. Replace is the default.
const (
	Replace  Action = "replace"  // the whole match becomes [REDACTED:rule-id]
	Token    Action = "token"    // the whole match becomes a keyed pseudonym, [TOKEN:rule-id:key-id:hex]
	Drop     Action = "drop"     // the member that holds the match is removed, an array element becomes null
	Withhold Action = "withhold" // the match is replaced, and the report says that the record must not leave
)

// Rule is one detection rule. It finds its matches by Regex, by Find, by the
// name of a key, or by path; any of them may be set.
//
// Literals are what the automaton looks for, without ASCII case: Find is called
// for each occurrence. A rule with Numbers is called for runs of digits and
// their separators instead.
type Rule struct {
	ID          string
	Description string
	Action      Action
	// Paths limits the rule to values at these paths ("message.**"), from the
	// root of what the engine is given; a rule with paths and nothing else takes
	// the whole value there.
	Paths []string
	// Keys are globs over key names ("*password*", compared without case,
	// '_', '-' and '.'); the value under such a key is a match.
	Keys []string
	// Validator names a function that has to accept a match (Validators).
	Validator string
	// OptIn rules only run when a policy enables them by id.
	OptIn bool
	// Examples are run by TestPolicy.
	Examples []Example

	// gitleaks' fields.
	Regex       string
	SecretGroup int
	Entropy     float64
	Keywords    []string
	Path        string // file path expression: such a rule needs a path and text has none
	Allowlists  []Allowlist
	Required    []Required
	SkipReport  bool
	Tags        []string

	// Native matching, for rules that are code.
	Literals []string
	Numbers  bool
	Digits   int  // a rule with Numbers is not called for fewer digits; at least 7
	Runs     bool // called for runs of 16 and more base64 characters
	Find     func(c *Candidate)
	// Key classifies a key name: 0 is no match; the class goes to Accept.
	Key func(name []byte) int
	// Member is the class of what stands in a member of an object under a key of
	// a class: {"password": {"value": …}}; 0: the member is about something else.
	Member func(class int, name []byte) int
	// Within matches what stands in some members of an object that another
	// member makes known: the data of a Kubernetes secret.
	Within *Within
	// Accept says which part of the value under a matched key is the match.
	Accept func(class int, value []byte, number bool) (start, end int, ok bool)
	// Version changes the policy hash when the code of a native rule changes.
	Version int
	// Rank decides which rule names a text that several match: the lower.
	Rank Rank

	compiled *regexp.Regexp // Regex, once it has been checked
}

// Within names objects by the value of one member, and the members of which
// every string is a match. Names and value are compared without ASCII case.
type Within struct {
	Member, Value string
	Under         []string
}

// Allowlist is gitleaks' allow list without commits and paths, which do not
// exist in telemetry.
type Allowlist struct {
	And         bool   // all criteria have to hold instead of any
	RegexTarget string // "", "match" or "line"
	Regexes     []string
	StopWords   []string
	pathOnly    bool // only commits or paths: never applies
	pathAnd     bool // a path or commit criterion stands in an AND list: never applies
}

// Required is gitleaks' proximity condition: another rule has to match nearby.
type Required struct {
	ID                         string
	WithinLines, WithinColumns *int
}

// Example is one line of a policy's own tests: Text and what redacting it has
// to give.
type Example struct {
	Text   string
	Expect string
}

// Policy is a set of rules with allow lists for all of them. Policies are
// immutable once made; later ones override earlier ones by rule id.
type Policy struct {
	name     string
	rules    []Rule
	allow    []Allowlist
	targeted map[string][]Allowlist
	extends  []string
	disabled []string
	enabled  []string
}

// Rank orders rules that match the same text.
type Rank int

// Rules of policy files, and gitleaks' own, come first; global allow lists
// apply to them only.
const (
	RankFile    Rank = iota // rules of a policy file
	RankGeneric             // such a rule that names no vendor
	RankSecret              // our own rules for secrets
	RankPII                 // rules for personal data
)

// NewPolicy makes a policy of rules that are code.
func NewPolicy(name string, rules ...Rule) *Policy {
	return &Policy{name: name, rules: rules}
}

// With is the policy with more rules, under another name.
func (p *Policy) With(name string, rules ...Rule) *Policy {
	q := *p
	q.name = name
	q.rules = append(append([]Rule(nil), p.rules...), rules...)
	return &q
}

// Ranked is the policy with another rank for one of its rules.
func (p *Policy) Ranked(id string, rank Rank) *Policy {
	q := *p
	q.rules = append([]Rule(nil), p.rules...)
	for i := range q.rules {
		if q.rules[i].ID == id {
			q.rules[i].Rank = rank
		}
	}
	return &q
}

// Native is the policy with a hand-written matcher in place of a rule's
// expression, if the rule is there and has precisely this expression: another
// one keeps running as it is written. find reports through EmitSecret.
func (p *Policy) Native(id, expression string, literals []string, find func(c *Candidate)) *Policy {
	q := *p
	q.rules = append([]Rule(nil), p.rules...)
	for i := range q.rules {
		if r := &q.rules[i]; r.ID == id && r.Regex == expression {
			r.Literals, r.Find = literals, find
		}
	}
	return &q
}

// Name is the policy's name: "builtin:secrets", or the file it came from.
func (p *Policy) Name() string { return p.name }

// Rules lists the ids of the policy's own rules.
func (p *Policy) Rules() []string {
	ids := make([]string, len(p.rules))
	for i := range p.rules {
		ids[i] = p.rules[i].ID
	}
	return ids
}

// ErrPolicy is wrapped by every error about a policy's text.
var ErrPolicy = errors.New("redact: policy")

type tomlAllow struct {
	Description string
	Condition   string
	Commits     []string
	Paths       []string
	RegexTarget string
	Regexes     []string
	StopWords   []string
	TargetRules []string
}

type tomlRule struct {
	ID          string
	Description string
	Path        string
	Regex       string
	SecretGroup int
	Entropy     float64
	Keywords    []string
	Tags        []string
	AllowList   *tomlAllow
	Allowlists  []tomlAllow
	Required    []struct {
		ID            string
		WithinLines   *int
		WithinColumns *int
	}
	SkipReport bool
	// Ours.
	Action    string
	Paths     []string
	Keys      []string
	Validator string
	Examples  []struct{ Text, Expect string }
}

type tomlPolicy struct {
	Title       string
	Description string
	MinVersion  string
	Extend      struct {
		Path          string
		URL           string
		UseDefault    bool
		DisabledRules []string
		EnabledRules  []string
		Use           []string
	}
	AllowList  *tomlAllow
	Allowlists []tomlAllow
	Rules      []tomlRule
}

// ParsePolicy reads a policy in gitleaks' TOML with our optional fields.
// Unknown fields are refused, so are expressions that do not compile and
// literals that are empty. Errors name the policy and, where there is one, the
// line or the rule; they wrap ErrPolicy.
func ParsePolicy(name string, text []byte) (*Policy, error) {
	var t tomlPolicy
	md, err := toml.Decode(string(text), &t)
	if err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("%w %s: line %d: %s", ErrPolicy, name, pe.Position.Line, pe.Message)
		}
		return nil, fmt.Errorf("%w %s: %v", ErrPolicy, name, err)
	}
	if un := md.Undecoded(); len(un) > 0 {
		return nil, fmt.Errorf("%w %s: unknown field %s", ErrPolicy, name, un[0])
	}
	fail := func(rule, format string, args ...any) error {
		return fmt.Errorf("%w %s: rule %q: %s", ErrPolicy, name, rule, fmt.Sprintf(format, args...))
	}
	p := &Policy{name: name, disabled: t.Extend.DisabledRules, enabled: t.Extend.EnabledRules,
		targeted: map[string][]Allowlist{}}
	if t.Extend.UseDefault && t.Extend.Path != "" {
		return nil, fmt.Errorf("%w %s: extend.useDefault and extend.path exclude one another", ErrPolicy, name)
	}
	if t.Extend.URL != "" {
		return nil, fmt.Errorf("%w %s: extend.url is not supported: keep a copy beside the policy and name it in extend.path", ErrPolicy, name)
	}
	if t.Extend.UseDefault {
		p.extends = append(p.extends, "builtin:secrets")
	}
	if t.Extend.Path != "" {
		p.extends = append(p.extends, t.Extend.Path)
	}
	p.extends = append(p.extends, t.Extend.Use...)

	if t.AllowList != nil && len(t.Allowlists) > 0 {
		return nil, fmt.Errorf("%w %s: use [[allowlists]] only, not [allowlist] beside it", ErrPolicy, name)
	}
	if t.AllowList != nil {
		t.Allowlists = append(t.Allowlists, *t.AllowList)
	}
	for _, a := range t.Allowlists {
		al, err := a.allowlist()
		if err != nil {
			return nil, fmt.Errorf("%w %s: allowlists: %w", ErrPolicy, name, err)
		}
		if len(a.TargetRules) == 0 {
			p.allow = append(p.allow, al)
			continue
		}
		for _, id := range a.TargetRules {
			p.targeted[id] = append(p.targeted[id], al)
		}
	}
	seen := map[string]bool{}
	for _, r := range t.Rules {
		if !validID(r.ID) {
			return nil, fail(r.ID, "an id has 1 to 100 of the characters a-z A-Z 0-9 . _ -")
		}
		if seen[r.ID] {
			return nil, fail(r.ID, "defined twice")
		}
		seen[r.ID] = true
		out := Rule{ID: r.ID, Description: r.Description, Action: Action(r.Action), Paths: r.Paths, Keys: r.Keys,
			Validator: r.Validator, Regex: r.Regex, SecretGroup: r.SecretGroup, Entropy: r.Entropy, Keywords: r.Keywords,
			Path: r.Path, SkipReport: r.SkipReport, Tags: r.Tags}
		switch out.Action {
		case "", Replace, Token, Drop, Withhold:
		default:
			return nil, fail(r.ID, "unknown action %q (replace, token, drop, withhold)", r.Action)
		}
		if r.AllowList != nil && len(r.Allowlists) > 0 {
			return nil, fail(r.ID, "use [[rules.allowlists]] only, not [rules.allowlist] beside it")
		}
		if r.AllowList != nil {
			r.Allowlists = append(r.Allowlists, *r.AllowList)
		}
		for _, a := range r.Allowlists {
			al, err := a.allowlist()
			if err != nil {
				return nil, fail(r.ID, "allowlists: %v", err)
			}
			out.Allowlists = append(out.Allowlists, al)
		}
		for _, q := range r.Required {
			if q.ID == "" {
				return nil, fail(r.ID, "required: id is empty")
			}
			out.Required = append(out.Required, Required{q.ID, q.WithinLines, q.WithinColumns})
		}
		for _, e := range r.Examples {
			out.Examples = append(out.Examples, Example{e.Text, e.Expect})
		}
		p.rules = append(p.rules, out)
	}
	errs := make([]error, len(p.rules))
	inParallel(len(p.rules), func(i int) { errs[i] = p.rules[i].check() })
	for i, err := range errs {
		if err != nil {
			return nil, fail(p.rules[i].ID, "%v", err)
		}
	}
	return p, nil
}

func validID(id string) bool {
	if id == "" || len(id) > 100 {
		return false
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

func (a *tomlAllow) allowlist() (Allowlist, error) {
	out := Allowlist{RegexTarget: a.RegexTarget, Regexes: a.Regexes, StopWords: a.StopWords}
	switch strings.ToUpper(a.Condition) {
	case "AND", "&&":
		out.And = true
	case "", "OR", "||":
	default:
		return out, fmt.Errorf("unknown condition %q (and, or)", a.Condition)
	}
	switch a.RegexTarget {
	case "secret":
		out.RegexTarget = ""
	case "", "match", "line":
	default:
		return out, fmt.Errorf("unknown regexTarget %q (secret, match, line)", a.RegexTarget)
	}
	if len(a.Regexes) == 0 && len(a.StopWords) == 0 {
		if len(a.Commits) == 0 && len(a.Paths) == 0 {
			return out, errors.New("needs at least one of regexes, stopwords, paths, commits")
		}
		out.pathOnly = true
	}
	out.pathAnd = out.And && (len(a.Commits) > 0 || len(a.Paths) > 0)
	for _, s := range a.StopWords {
		if s == "" {
			return out, errors.New("an empty stop word would allow everything")
		}
	}
	for _, s := range a.Regexes {
		if s == "" {
			return out, errors.New("an empty expression would allow everything")
		}
		if _, err := regexp.Compile(s); err != nil {
			return out, err
		}
	}
	return out, nil
}

// expression compiles Regex, once: a policy is checked when it is read and again
// when an engine is made of it, and compiling takes most of a program's start.
func (r *Rule) expression() (*regexp.Regexp, error) {
	if r.compiled == nil || r.compiled.String() != r.Regex {
		re, err := regexp.Compile(r.Regex)
		if err != nil {
			return nil, err
		}
		r.compiled = re
	}
	return r.compiled, nil
}

// check finds what is wrong with a rule on its own.
func (r *Rule) check() error {
	if r.Regex != "" {
		re, err := r.expression()
		if err != nil {
			return err
		}
		if r.SecretGroup > re.NumSubexp() || r.SecretGroup < 0 {
			return fmt.Errorf("secretGroup %d, but the expression has %d groups", r.SecretGroup, re.NumSubexp())
		}
		if re.MatchString("") {
			return errors.New("the expression matches the empty text")
		}
	}
	if r.Path != "" {
		if _, err := regexp.Compile(r.Path); err != nil {
			return err
		}
	}
	for _, l := range [][]string{r.Keywords, r.Keys, r.Paths, r.Literals} {
		for _, s := range l {
			if s == "" {
				return errors.New("an empty literal matches everything: remove it or write it out")
			}
		}
	}
	if r.Validator != "" && validators[r.Validator] == nil {
		return fmt.Errorf("unknown validator %q (%s)", r.Validator, strings.Join(Validators(), ", "))
	}
	return nil
}

// finds tells whether a rule says by itself what a match is.
func (r *Rule) finds() bool {
	return r.Regex != "" || r.Find != nil || r.Key != nil || len(r.Keys) > 0 || len(r.Paths) > 0 || r.Path != "" || r.Within != nil
}

// merge lays a later definition of the same rule over r, as gitleaks' extend
// does: what the later one sets wins, lists are added.
func (r Rule) merge(o Rule) Rule {
	if o.Description != "" {
		r.Description = o.Description
	}
	if o.Action != "" {
		r.Action = o.Action
	}
	if o.Entropy != 0 {
		r.Entropy = o.Entropy
	}
	if o.SecretGroup != 0 {
		r.SecretGroup = o.SecretGroup
	}
	if o.Regex != "" {
		r.Regex = o.Regex
		r.Find, r.Literals, r.Numbers, r.Runs = nil, nil, false, false
	}
	if o.Path != "" {
		r.Path = o.Path
	}
	if o.Validator != "" {
		r.Validator = o.Validator
	}
	if o.Find != nil || o.Key != nil { // code replaces code
		keep := r
		r = o
		if r.Action == "" {
			r.Action = keep.Action
		}
		return r
	}
	join := func(a, b []string) []string { return append(append([]string(nil), a...), b...) }
	r.Tags = join(r.Tags, o.Tags)
	r.Keywords = join(r.Keywords, o.Keywords)
	r.Keys = join(r.Keys, o.Keys)
	r.Paths = join(r.Paths, o.Paths)
	r.Allowlists = append(append([]Allowlist(nil), r.Allowlists...), o.Allowlists...)
	r.Required = append(append([]Required(nil), r.Required...), o.Required...)
	r.Examples = append(append([]Example(nil), r.Examples...), o.Examples...)
	return r
}

// digest writes what of a rule decides about output, in a canonical form.
func (r *Rule) digest() string {
	type canonical struct {
		ID, Action, Regex, Path, Validator string
		SecretGroup                        int
		Entropy                            string
		Keywords, Keys, Paths, Literals    []string
		Allow                              []Allowlist
		AllowExtra                         []bool
		Required                           []Required
		SkipReport, Numbers, Native, Runs  bool
		Version                            int
	}
	c := canonical{ID: r.ID, Action: string(r.Action), Regex: r.Regex, Path: r.Path, Validator: r.Validator, SecretGroup: r.SecretGroup,
		Entropy: strconv.FormatFloat(r.Entropy, 'g', -1, 64), Keywords: sorted(r.Keywords), Keys: sorted(r.Keys),
		Paths: sorted(r.Paths), Literals: sorted(r.Literals), Allow: r.Allowlists, Required: r.Required,
		SkipReport: r.SkipReport, Numbers: r.Numbers, Runs: r.Runs, Native: r.Find != nil || r.Key != nil, Version: r.Version}
	for _, a := range r.Allowlists {
		c.AllowExtra = append(c.AllowExtra, a.pathOnly, a.pathAnd)
	}
	b, err := json.Marshal(c)
	if err != nil {
		return r.ID
	}
	return string(b)
}

func sorted(s []string) []string {
	s = append([]string(nil), s...)
	sort.Strings(s)
	return s
}

func hashLines(lines []string) string {
	h := sha256.New()
	for _, l := range lines {
		h.Write([]byte(strconv.Itoa(len(l))))
		h.Write([]byte{':'})
		h.Write([]byte(l))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
