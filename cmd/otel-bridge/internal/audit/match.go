package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tokenPrefix is that of a token that stands for a session id that a rule matches.
const tokenPrefix = "session-hmac-"

// match finds the ledger of each received session: by its id, or by the token that
// the configuration's key makes of it. Where that key is not at hand it is the one
// that fits best of those that were created at the same time.
func (a *Auditor) match() {
	ids := slices.SortedFunc(maps.Keys(a.sessions), compareIDs)
	taken := map[identity]bool{}
	fits := map[identity][]identity{} // the ledgers that fit a session equally well
	var open []identity
	for _, id := range ids {
		led, ok := a.aliases[id]
		if !ok {
			led = id
		}
		if _, ok := a.ledgers[led]; ok {
			a.matched[id], taken[led] = led, true
		} else if strings.HasPrefix(id.id, tokenPrefix) {
			if fits[id] = a.fitting(id); len(fits[id]) > 0 {
				open = append(open, id)
			}
		}
	}
	// Who has the fewest to choose from chooses first.
	slices.SortStableFunc(open, func(x, y identity) int { return cmp.Compare(len(fits[x]), len(fits[y])) })
	for _, id := range open {
		led := fits[id][0]
		if i := slices.IndexFunc(fits[id], func(l identity) bool { return !taken[l] }); i >= 0 {
			led = fits[id][i]
		}
		a.matched[id], taken[led] = led, true
		if n := len(fits[id]); n > 1 {
			a.find(Ambiguous, id, 0, -1, -1, fmt.Sprintf("the token may stand for each of %d ledgers, which fit equally well; it is compared with one of them", n))
		}
	}
}

// fitting are the ledgers that a session with a token may be of: of those that
// were created when it was the ones that fit best.
func (a *Auditor) fitting(id identity) []identity {
	var best []identity
	least := int64(0)
	for _, l := range slices.SortedFunc(maps.Keys(a.ledgers), compareIDs) {
		if l.created != id.created || l.version != id.version {
			continue
		}
		n := a.misfit(a.sessions[id], a.ledgers[l])
		if len(best) == 0 || n < least {
			best, least = best[:0], n
		}
		if n == least {
			best = append(best, l)
		}
	}
	return best
}

// misfit counts the events in which a session and a ledger do not agree.
func (a *Auditor) misfit(s *session, led *ledger) (n int64) {
	for inc, t := range s.by {
		t.each(func(seq int64, e *event) {
			if e.flags&received == 0 && e.outcome == 0 {
				return
			}
			want := led.look(seq)
			got, made := s.facts[inc].look(seq), led.facts.look(seq)
			switch {
			case want == nil || !want.known:
				n++
			case want.policy != 0 && want.leaf != 0 && a.otherBody(s, inc, seq, e, want):
				n++
			case got != nil && made != nil && !got.none() && !made.none() && a.differ(got, made, got.policy == made.policy && made.policy != 0) != "":
				n++
			}
		})
	}
	scope := a.scopeOf(led, s.instances)
	led.each(func(seq int64, want *expected) {
		if want.known && !want.elided && scope.has(seq) && !s.accounts(seq, s.holds(seq)) {
			n++
		}
	})
	return n
}
