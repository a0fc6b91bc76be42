package session

// Admitter has a say in whether a candidate event may join a ledger.
//
// Admission takes two steps. Plan looks at the candidate and either refuses it
// or returns what it would change, without changing anything. Only when every
// admitter has agreed does the ledger take the event and apply the plans, so a
// veto of the last one leaves the first one untouched.
type Admitter interface {
	// Plan returns the change that ev would make, or why ev is refused. It is
	// pure: calling it any number of times changes nothing that can be seen.
	// The plan is valid until the next call of Plan.
	Plan(ev *Event) (Plan, error)
}

// Plan is an agreed change, not yet made.
type Plan interface {
	// Apply makes the change. It cannot fail.
	Apply()
}

// Admit asks every admitter about ev and applies their plans when all agree.
// The first refusal is returned as it is, and nothing has changed then.
func Admit(ev *Event, admitters ...Admitter) error {
	var few [4]Plan
	plans := few[:0]
	for _, a := range admitters {
		p, err := a.Plan(ev)
		if err != nil {
			return err
		}
		plans = append(plans, p)
	}
	for _, p := range plans {
		p.Apply()
	}
	return nil
}
