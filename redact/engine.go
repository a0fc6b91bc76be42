package redact

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Limits bound the work of one call, in units that are the same on every
// machine. The zero value means the defaults.
type Limits struct {
	ScanBytes int // bytes looked at over all decoded forms; default 64 MiB + 32 bytes for each byte of input
	Depth     int // nesting of JSON values that is walked; default 1,000
	Decode    int // decode steps on top of one another: JSON in a string, escapes, URL, base64; default 8
	Steps     int // decode steps in all; default 100,000 + one for each 16 bytes of input
}

// Options configure an Engine.
type Options struct {
	// Policies apply together; a later one overrides an earlier one's rules by id.
	Policies []*Policy
	// Resolve finds the policies that others name in [extend]: name is what the
	// policy called by says. Without it such a policy is an error, unless one of
	// that name stands before it in Policies.
	Resolve func(by, name string) (*Policy, error)
	// Key is needed when a rule has action "token".
	Key    *Key
	Limits Limits
}

// Engine redacts. It is immutable and safe for concurrent use.
type Engine struct {
	rules    []*rule
	allow    []allow
	machine  *automaton
	literals []string
	users    [][]literalUse // literal id -> who looks for it
	always   []*rule        // regex rules without an anchor
	numbers  []numberRule   // by digits
	runs     []*rule
	keyed    []*rule
	byPath   []*rule
	within   []*rule
	markers  int32 // first literal id that begins a marker
	hasDrop  bool
	key      *Key
	limits   Limits
	hash     string
	limit    *rule
	clean    *Report
	states   sync.Pool
	examples []policyExample
}

// literalUse says what an occurrence of a literal means for a rule.
type literalUse struct {
	rule *rule
	gate bool // the keyword only has to be there
	cond *condition
}

// numberRule is a rule for numbers of so many digits or more.
type numberRule struct {
	digits int
	rule   *rule
}

// LimitRule is the id under which values beyond a limit are replaced.
const LimitRule = "bridge-limit"

// ErrNoKey is returned by New when a rule has action "token" and there is no key.
var ErrNoKey = errors.New("redact: a rule has action \"token\", which needs a key")

// ErrNoRules is returned by New when the policies together have no rule that is
// on: such an engine would pass everything. Who wants that asks no engine.
var ErrNoRules = errors.New("redact: the policies have no rule, so that nothing would be redacted")

// New compiles the policies. Errors wrap ErrPolicy or are ErrNoKey or ErrNoRules.
func New(o Options) (*Engine, error) {
	e := &Engine{key: o.Key, limits: o.Limits, clean: &Report{}}
	e.limits.defaults()
	c := &composer{resolve: o.Resolve, index: map[string]int{}, seen: map[string]bool{}, enabled: map[string]bool{}, off: map[string]bool{}}
	for _, p := range o.Policies {
		if err := c.add(p, 0); err != nil {
			return nil, err
		}
	}
	if err := c.finish(e); err != nil {
		return nil, err
	}
	e.states.New = func() any { return newScan(e) }
	return e, nil
}

func (l *Limits) defaults() {
	if l.ScanBytes <= 0 {
		l.ScanBytes = 64 << 20
	}
	if l.Depth <= 0 {
		l.Depth = 1000
	}
	if l.Decode <= 0 {
		l.Decode = 8
	}
	if l.Steps <= 0 {
		l.Steps = 100_000
	}
}

// composer lays policies over one another.
type composer struct {
	resolve  func(by, name string) (*Policy, error)
	rules    []composed
	index    map[string]int
	seen     map[string]bool
	enabled  map[string]bool
	off      map[string]bool
	allow    []Allowlist
	targeted []targetedAllow
}

type composed struct {
	Rule
	policy string
}

type targetedAllow struct {
	policy, rule string
	list         []Allowlist
}

const maxExtendDepth = 8

func (c *composer) add(p *Policy, depth int) error {
	if p == nil {
		return fmt.Errorf("%w: nil", ErrPolicy)
	}
	if depth > maxExtendDepth {
		return fmt.Errorf("%w %s: extends too deeply (or itself)", ErrPolicy, p.name)
	}
	if c.seen[p.name] {
		return nil
	}
	for _, name := range p.extends {
		if c.resolve == nil {
			if c.seen[name] {
				continue
			}
			return fmt.Errorf("%w %s: extends %q, which nothing here can find", ErrPolicy, p.name, name)
		}
		b, err := c.resolve(p.name, name)
		if err != nil {
			return fmt.Errorf("%w %s: extends %q: %w", ErrPolicy, p.name, name, err)
		}
		if err := c.add(b, depth+1); err != nil {
			return err
		}
	}
	c.seen[p.name] = true
	for _, id := range p.disabled {
		if _, ok := c.index[id]; !ok {
			return fmt.Errorf("%w %s: disabledRules names %q, which no extended policy has", ErrPolicy, p.name, id)
		}
		c.off[id] = true
	}
	for _, r := range p.rules {
		if i, ok := c.index[r.ID]; ok {
			if c.off[r.ID] && r.finds() { // as gitleaks: in place of the one that is disabled
				c.rules[i] = composed{r, p.name}
				delete(c.off, r.ID)
				continue
			}
			c.rules[i].Rule = c.rules[i].merge(r)
			continue
		}
		if !r.finds() {
			return ruleError(p.name, r.ID, errors.New("it has no regex, keys or paths, and changes no rule of an extended policy"))
		}
		c.index[r.ID] = len(c.rules)
		c.rules = append(c.rules, composed{r, p.name})
	}
	for _, id := range p.enabled {
		if _, ok := c.index[id]; !ok {
			return fmt.Errorf("%w %s: enabledRules names %q, which no extended policy has", ErrPolicy, p.name, id)
		}
		c.enabled[id] = true
	}
	c.allow = append(c.allow, p.allow...)
	var ids []string
	for id := range p.targeted {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	for _, id := range ids {
		c.targeted = append(c.targeted, targetedAllow{p.name, id, p.targeted[id]})
	}
	return nil
}

// inParallel does something for each of n rules, on all cores: their expressions
// are most of a program's start.
func inParallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

func (c *composer) finish(e *Engine) error {
	for _, t := range c.targeted {
		i, ok := c.index[t.rule]
		if !ok {
			return fmt.Errorf("%w %s: allowlists: targetRules names %q, which is no rule", ErrPolicy, t.policy, t.rule)
		}
		c.rules[i].Allowlists = append(append([]Allowlist(nil), c.rules[i].Allowlists...), t.list...)
	}
	var digests []string
	for i := range c.allow {
		a, err := compileAllow(&c.allow[i])
		if err != nil {
			return err
		}
		e.allow = append(e.allow, a)
		r := Rule{Allowlists: c.allow[i : i+1]}
		digests = append(digests, r.digest())
	}
	byID := map[string]*rule{}
	var on []*composed
	for i := range c.rules {
		if r := &c.rules[i]; !c.off[r.ID] && (!r.OptIn || c.enabled[r.ID]) {
			on = append(on, r)
		}
	}
	if len(on) == 0 {
		return ErrNoRules
	}
	compiled, errs := make([]*rule, len(on)), make([]error, len(on))
	inParallel(len(on), func(i int) {
		if errs[i] = on[i].check(); errs[i] == nil {
			compiled[i], errs[i] = compile(on[i].Rule, i, on[i].Rank)
		}
	})
	for i, r := range on {
		if errs[i] != nil {
			return ruleError(r.policy, r.ID, errs[i])
		}
		k := compiled[i]
		for _, x := range r.Examples {
			e.examples = append(e.examples, policyExample{r.policy, r.ID, x})
		}
		digests = append(digests, r.digest())
		byID[r.ID] = k
		e.rules = append(e.rules, k)
		switch r.Action {
		case Token:
			if e.key == nil {
				return ruleError(r.policy, r.ID, ErrNoKey)
			}
		case Drop:
			e.hasDrop = true
		}
	}
	for _, k := range e.rules {
		for _, q := range k.Required {
			t, ok := byID[q.ID]
			if !ok || t.re == nil {
				return fmt.Errorf("%w: rule %q requires %q, which is no rule with an expression", ErrPolicy, k.ID, q.ID)
			}
			k.required = append(k.required, requiredRule{t, q.WithinLines, q.WithinColumns})
		}
	}
	sort.Strings(digests)
	if e.key != nil {
		digests = append(digests, "key:"+e.key.id)
	}
	digests = append(digests, fmt.Sprintf("engine:%d limits:%v", engineVersion, e.limits))
	e.hash = hashLines(digests)
	e.limit = &rule{Rule: Rule{ID: LimitRule, Action: Replace}, index: int32(len(e.rules)), precedence: RankPII + 1,
		marker: []byte("[REDACTED:" + LimitRule + "]")}
	e.rules = append(e.rules, e.limit)
	e.index()
	return nil
}

// engineVersion stands in the policy hash: it goes up when the same rules
// would give other output.
const engineVersion = 5

// index builds the automaton over what the rules look for.
func (e *Engine) index() {
	ids := map[string]int{}
	var literals []string
	look := func(l string, u literalUse) {
		l = foldASCII(l)
		id, ok := ids[l]
		if !ok {
			id = len(literals)
			ids[l] = id
			literals = append(literals, l)
			e.users = append(e.users, nil)
		}
		for _, have := range e.users[id] {
			if have == u || have.rule == u.rule && have.gate == u.gate && have.cond != nil && u.cond != nil && *have.cond == *u.cond {
				return
			}
		}
		e.users[id] = append(e.users[id], u)
	}
	for _, k := range e.rules {
		if k.Key != nil || len(k.keys) > 0 {
			e.keyed = append(e.keyed, k)
		}
		if len(k.paths) > 0 && k.re == nil && !k.native && k.Key == nil && len(k.keys) == 0 && k.Within == nil {
			e.byPath = append(e.byPath, k)
		}
		if k.Within != nil {
			e.within = append(e.within, k)
		}
		if k.Runs {
			e.runs = append(e.runs, k)
		}
		if k.Numbers {
			e.numbers = append(e.numbers, numberRule{k.Digits, k})
		}
		if k.native {
			for _, l := range k.Literals {
				look(l, literalUse{rule: k})
			}
			continue
		}
		if k.re == nil || k.Path != "" {
			continue // a rule for file paths: text has none
		}
		if !k.anchored {
			e.always = append(e.always, k)
		} else {
			k.anchor.each(func(l string, c *condition) { look(l, literalUse{rule: k, cond: c}) })
		}
		if k.gated {
			for _, w := range k.Keywords {
				look(w, literalUse{rule: k, gate: true})
			}
		}
	}
	sort.SliceStable(e.numbers, func(i, j int) bool { return e.numbers[i].digits < e.numbers[j].digits })
	e.markers = int32(len(literals))
	literals = append(literals, "[redacted:", "[token:")
	e.users = append(e.users, nil, nil)
	e.literals = literals
	e.machine = newAutomaton(literals)
}

// Hash identifies the policy in canonical form: what rules there are, what
// they do, the versions of the built-in sets, the key's id and the limits.
// Equal hashes give equal output for equal input.
func (e *Engine) Hash() string { return e.hash }

// Rules lists the ids of the rules in force.
func (e *Engine) Rules() []string {
	var ids []string
	for _, r := range e.rules {
		if r != e.limit {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Paths are those that rules in force name, by the id of the rule.
func (e *Engine) Paths() map[string][]string {
	paths := map[string][]string{}
	for _, r := range e.rules {
		if len(r.Paths) > 0 {
			paths[r.ID] = slices.Clone(r.Paths)
		}
	}
	return paths
}

// ErrInvalidJSON says that the input of Engine.JSON is not one JSON value.
var ErrInvalidJSON = errors.New("redact: the input is not one JSON value")

// ErrInternal says that the engine failed; nothing is said about the input.
// The caller must not pass the input on.
var ErrInternal = errors.New("redact: internal failure")

// JSON redacts one JSON value and appends the result to dst. The output is
// valid JSON, and every byte outside of a match is the input's: where the
// report's Counts are empty, it is src, byte for byte, and a caller that has
// checked src need not check it. On an error
// the returned slice is dst as it was, and the input must not be passed on:
// ErrInvalidJSON (wrapped, with the offset) or ErrInternal. dst and src must
// not overlap.
func (e *Engine) JSON(dst, src []byte) (out []byte, rep *Report, err error) {
	return e.run(dst, src, true)
}

// Text redacts plain text. Text that is a JSON object or array as a whole is
// treated as JSON.
func (e *Engine) Text(dst []byte, src string) ([]byte, *Report, error) {
	// The engine only reads.
	return e.run(dst, unsafe.Slice(unsafe.StringData(src), len(src)), false)
}

func (e *Engine) run(dst, src []byte, json bool) (out []byte, rep *Report, err error) {
	s := e.states.Get().(*scan)
	keep := len(dst)
	defer func() {
		if p := recover(); p != nil {
			// The state is dropped: it may be inconsistent. p may hold
			// content and is not looked at.
			out, rep, err = dst[:keep], nil, ErrInternal
		}
	}()
	out, rep, err = s.redact(dst, src, json)
	s.reset()
	e.states.Put(s)
	return out, rep, err
}
