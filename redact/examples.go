package redact

import (
	"fmt"
)

type policyExample struct {
	policy, rule string
	Example
}

// Failure is an example that did not give what it has to.
type Failure struct {
	Policy, Rule string
	Index        int // of the example within its rule, from 1
	Expect, Got  string
	Err          error
}

func (f Failure) String() string {
	if f.Err != nil {
		return fmt.Sprintf("%s: rule %s: example %d: %v", f.Policy, f.Rule, f.Index, f.Err)
	}
	return fmt.Sprintf("%s: rule %s: example %d: expected %q, got %q", f.Policy, f.Rule, f.Index, f.Expect, f.Got)
}

// TestExamples runs the examples of all the engine's policies, each under all
// of its rules, and returns how many there were and which failed. An example's
// text is treated as text, and as JSON when it is an object or array.
func (e *Engine) TestExamples() (total int, failed []Failure) {
	count := map[string]int{}
	for _, x := range e.examples {
		id := x.policy + "\x00" + x.rule
		count[id]++
		total++
		out, _, err := e.Text(nil, x.Text)
		if err != nil || string(out) != x.Expect {
			failed = append(failed, Failure{Policy: x.policy, Rule: x.rule, Index: count[id], Expect: x.Expect, Got: string(out), Err: err})
		}
	}
	return total, failed
}

// TestPolicy compiles the policies of o and runs their examples. An error
// means that they do not compile. Without a key, action "token" gets one that
// everybody knows: for trying a policy, not for use.
func TestPolicy(o Options) (total int, failed []Failure, err error) {
	if o.Key == nil {
		if o.Key, err = NewKey("test", make([]byte, 32)); err != nil {
			return 0, nil, err
		}
	}
	e, err := New(o)
	if err != nil {
		return 0, nil, err
	}
	total, failed = e.TestExamples()
	return total, failed, nil
}
