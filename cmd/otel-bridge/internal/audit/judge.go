package audit

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// judge looks at one session.
func (a *Auditor) judge(id identity, s *session) {
	if len(s.instances) > 1 {
		a.find(TwoBridges, id, 0, -1, -1, "sent by "+strings.Join(slices.Sorted(maps.Keys(s.instances)), " and "))
	}
	for _, key := range slices.Sorted(maps.Keys(s.chains)) {
		a.judgeChain(id, s, key)
	}
	a.judgeOlder(id)
	first := a.begins(id)
	led := a.ledgers[a.matched[id]]
	last := uint32(0) // of a session of which only summaries came that do not count
	for inc := range s.by {
		last = max(last, inc)
	}
	for _, inc := range slices.Sorted(maps.Keys(s.by)) {
		a.judgeEvents(id, s, inc, led)
	}
	if led == nil {
		return
	}
	// Every event of the ledger, under whichever incarnation it was captured.
	var run absent
	scope := a.scopeOf(led, s.instances)
	led.each(func(seq int64, want *expected) {
		if !want.known || seq < first || want.elided && scope.has(seq) {
			return
		}
		if !s.accounts(seq, s.holds(seq)) {
			run.add(scope, seq)
		}
	})
	for _, r := range run.missing {
		a.find(Missing, id, last, r[0], r[1], "the ledger has it; it was neither received nor accounted for")
	}
	a.tellAbsent(id, last, &run)
}

// judgeOlder looks at what a session had when it went on in a newer format: all of
// it was captured in the older one.
func (a *Auditor) judgeOlder(id identity) {
	for _, key := range slices.Sorted(maps.Keys(a.moves[id])) {
		g := a.moves[id][key]
		older := identity{id.id, id.created, g.FromVersion}
		seq := max(0, a.begins(older))
		if s := a.sessions[older]; s != nil {
			seq = s.firstGap(seq, g.LastSeq)
		}
		if seq <= g.LastSeq && seq != math.MaxInt64 {
			a.find(Missing, older, 0, seq, g.LastSeq, fmt.Sprintf("captured before the session went on under version %d; from here on it was neither received nor accounted for", id.version))
			return
		}
	}
}

// firstGap is the first event from seq to last that nothing accounts for; behind last
// where there is none.
func (s *session) firstGap(seq, last int64) int64 {
	for seq <= last {
		to := s.quietTo(seq)
		switch {
		case to < seq && !s.accounts(seq, 0):
			return seq
		case max(seq, to) >= last:
			return math.MaxInt64
		}
		seq = max(seq, to) + 1
	}
	return seq
}

// quietTo is the last of the events in a row, from seq on, that are attested to have
// no record; -1 where seq is none.
func (s *session) quietTo(seq int64) int64 {
	to := int64(-1)
	for _, q := range s.quiet {
		if i, _ := slices.BinarySearchFunc(q, seq, func(r quietRun, seq int64) int { return cmp.Compare(r.to, seq) }); i < len(q) && q[i].from <= seq {
			to = max(to, q[i].to)
		}
	}
	return to
}

// accounts tells whether an event was received or attested, under an incarnation
// or a later one.
func (s *session) accounts(seq int64, incarnation uint32) bool {
	for inc, t := range s.by {
		if inc < incarnation {
			continue
		}
		if e := t.look(seq); e != nil && (e.flags&received != 0 || e.outcome != 0) || s.quiet[inc].at(seq) != "" {
			return true
		}
	}
	return false
}

// start is where an incarnation begins: it, or a later one, has events from seq on.
type start struct {
	incarnation uint32
	seq         int64
}

// begin notes where the incarnations begin, in their order.
func (s *session) begin() {
	s.starts = make([]start, 0, len(s.by))
	for _, inc := range slices.Sorted(maps.Keys(s.by)) {
		first := int64(math.MaxInt64)
		if q := s.quiet[inc]; len(q) > 0 {
			first = q[0].from
		}
		s.by[inc].each(func(seq int64, e *event) {
			if e.flags&received != 0 || e.outcome != 0 {
				first = min(first, seq)
			}
		})
		s.starts = append(s.starts, start{inc, first})
	}
	for i := len(s.starts) - 2; i >= 0; i-- {
		s.starts[i].seq = min(s.starts[i].seq, s.starts[i+1].seq)
	}
}

// holds is the incarnation from which on a ledger's event is to be accounted for:
// where a later one has begun, the earlier ones speak of another past.
func (s *session) holds(seq int64) uint32 {
	n, _ := slices.BinarySearchFunc(s.starts, seq+1, func(b start, seq int64) int { return cmp.Compare(b.seq, seq) })
	if n == 0 {
		return 0
	}
	return s.starts[n-1].incarnation
}

// until is the first event that a later incarnation has in place of this one's: what
// stands before is still what the ledger has.
func (s *session) until(incarnation uint32) int64 {
	n, found := slices.BinarySearchFunc(s.starts, incarnation, func(b start, inc uint32) int { return cmp.Compare(b.incarnation, inc) })
	if found {
		n++
	}
	if n == len(s.starts) {
		return math.MaxInt64
	}
	return s.starts[n].seq
}

// judgeUnseen looks at a ledger of which nothing was received.
func (a *Auditor) judgeUnseen(id identity, led *ledger) {
	if newer := a.newerThan(id); newer > id.version {
		a.find(OutOfScope, id, 0, -1, -1, fmt.Sprintf("an older file: the session was captured under version %d from its beginning", newer))
		return
	}
	var run absent
	scope := a.scopeOf(led, nil)
	led.each(func(seq int64, want *expected) {
		if want.known && !(want.elided && scope.has(seq)) {
			run.add(scope, seq)
		}
	})
	if len(run.missing) > 0 {
		a.find(Missing, id, 0, -1, -1, "nothing of this ledger was received")
	}
	a.tellAbsent(id, 0, &run)
}

// newerThan is the newer format version in which a session was captured from its
// beginning, or its own. An older file brings nothing then.
func (a *Auditor) newerThan(id identity) int {
	newest := id.version
	for other, s := range a.sessions {
		if other.id == id.id && other.created == id.created && a.begins(other) < 0 && len(s.chains) > 0 {
			newest = max(newest, other.version)
		}
	}
	return newest
}

// absent is events of a ledger of which nothing speaks.
type absent struct{ missing, before, beyond ranges }

func (r *absent) add(s scope, seq int64) {
	switch {
	case seq >= s.end:
		r.beyond.add(seq)
	case seq < s.from:
		r.before.add(seq)
	default:
		r.missing.add(seq)
	}
}

// tellAbsent tells what consent does not cover.
func (a *Auditor) tellAbsent(id identity, incarnation uint32, run *absent) {
	for _, r := range run.before {
		a.find(OutOfScope, id, incarnation, r[0], r[1], "before the lifetime that the last feedback is about")
	}
	for _, r := range run.beyond {
		a.find(BeyondWatermark, id, incarnation, r[0], r[1], "no feedback covers it")
	}
}

// ranges gathers seqs in a row.
type ranges [][2]int64

func (r *ranges) add(seq int64) {
	if n := len(*r); n > 0 && (*r)[n-1][1] == seq-1 {
		(*r)[n-1][1] = seq
		return
	}
	*r = append(*r, [2]int64{seq, seq})
}

func (a *Auditor) judgeChain(id identity, s *session, key string) {
	chain := s.chains[key]
	prev, next := link{}, int64(0)
	want := uint64(1)
	for _, n := range slices.Sorted(maps.Keys(chain)) {
		l := chain[n]
		a.totals.Attested += l.to - l.from + 1
		switch {
		case n != want && l.prev == prev.hash && (l.generation || covers(chain, prev.incarnation, next, l.from)):
			// The bridge itself has lost what lies between before it was a summary, and
			// links over it: what it spoke of is attested again, here or later.
		case n != want:
			what := fmt.Sprintf("summary %d is missing", want)
			if n-1 > want {
				what = fmt.Sprintf("summaries %d to %d are missing", want, n-1)
			}
			a.find(SummaryMissing, id, l.incarnation, next, max(next, l.from-1), what)
		case l.prev != prev.hash:
			a.find(ChainBroken, id, l.incarnation, l.from, l.to, fmt.Sprintf("summary %d does not link to the one before it", n))
		case l.from > next && !l.generation:
			a.find(NotAttested, id, l.incarnation, next, l.from-1, "no summary speaks of it")
		}
		prev, next, want = l, l.to+1, n+1
	}
}

// covers tells whether summaries of a chain, of an incarnation or later ones, speak
// of each seq from up to before end.
func covers(chain map[uint64]link, incarnation uint32, from, end int64) bool {
	spans := slices.SortedFunc(maps.Values(chain), func(a, b link) int { return cmp.Compare(a.from, b.from) })
	for _, l := range spans {
		if l.incarnation >= incarnation && l.from <= from {
			from = max(from, l.to+1)
		}
	}
	return from >= end
}

// judgeEvents looks at the events of one incarnation.
func (a *Auditor) judgeEvents(id identity, s *session, inc uint32, led *ledger) {
	t := s.by[inc]
	quiet := s.quiet[inc]
	end := int64(-1) // the last one that is attested
	if n := len(quiet); n > 0 {
		end = quiet[n-1].to
	}
	t.each(func(seq int64, e *event) {
		if e.outcome != 0 {
			end = max(end, seq)
		}
	})
	until := s.until(inc)
	var tail ranges
	t.each(func(seq int64, e *event) {
		say := func(k Kind, detail string) { a.find(k, id, inc, seq, seq, detail) }
		if e.flags&badUID != 0 {
			say(BadIdentity, "its log.record.uid is not that of its identity, or it has an attribute twice")
		}
		if e.flags&doubled != 0 && !s.oneBody(inc, seq, e) {
			say(Doubled, "it is there with two bodies under one policy")
		}
		outcome := outcomes[e.outcome]
		if e.outcome == 0 {
			outcome = quiet.at(seq)
		}
		switch {
		case outcome == "" && e.flags&received == 0: // nobody speaks of it
		case outcome == "":
			want := led.look(seq)
			switch {
			case seq > end:
				tail.add(seq)
			case want == nil || !want.known:
				say(NotAttested, "no summary speaks of it")
			}
		case e.flags&received == 0:
			a.judgeAbsent(outcome, say, telemetry.Identity{SessionID: id.id, CreatedAt: id.created, FormatVersion: id.version, Incarnation: inc, Seq: seq})
		case !outcome.Records():
			say(Unexpected, "attested as "+string(outcome))
		case e.flags&marker != 0 && e.got == 0:
			switch {
			case outcome != telemetry.Delivered:
				say(Withheld, "a marker stands for it")
			case len(a.told) > 1:
				say(Withheld, "a later policy has withheld it; a marker stands for it")
			default:
				say(Altered, "a marker stands for it, and it was attested as delivered")
			}
		default:
			a.judgeBody(s, inc, seq, e, say)
		}
		if want := led.look(seq); seq < until && led != nil && e.flags&received != 0 {
			switch {
			case want == nil || !want.known:
				say(BeyondLedger, "the ledger has no such event")
			case want.policy != 0 && want.leaf != 0 && a.otherBody(s, inc, seq, e, want):
				say(Altered, "its body is not what redaction makes of the ledger")
			}
			a.judgeFacts(s, inc, seq, e, led, say)
		}
	})
	for _, r := range tail {
		a.totals.NotYet += r[1] - r[0] + 1
		switch {
		case end >= 0:
			a.find(Tail, id, inc, r[0], r[1], "received; no summary speaks of it yet")
		case led != nil:
			a.find(Tail, id, inc, r[0], r[1], "received, and in the ledger; no summary speaks of the session")
		default:
			a.find(NotAttested, id, inc, r[0], r[1], "received; no summary speaks of the session, so nothing tells whether this is all")
		}
	}
}

// judgeAbsent looks at an attested event that was not received.
func (a *Auditor) judgeAbsent(outcome telemetry.Outcome, say func(Kind, string), id telemetry.Identity) {
	if given, ok := a.given[id.UID()]; ok {
		outcome = given
	}
	switch outcome {
	case telemetry.Delivered:
		say(Missing, "attested as delivered")
	case telemetry.Withheld:
		say(Missing, "attested as withheld, and there is no marker")
	case telemetry.Quarantined:
		say(Quarantined, "the receiver refused it, or may have; an operator decides")
	case telemetry.OnHold:
		say(OnHold, "an operator decides")
	case telemetry.Discarded:
		say(Discarded, "given up by an operator")
	case telemetry.Damaged:
		say(Damaged, "the bridge's disk has lost it")
	}
}

// judgeBody compares what was received with what was attested. A body under
// another policy cannot be compared; a policy that no bridge has told of is no
// excuse.
func (a *Auditor) judgeBody(s *session, inc uint32, seq int64, e *event, say func(Kind, string)) {
	vouched := s.vouched(inc, seq, e)
	withheld := outcomes[e.outcome] == telemetry.Withheld
	if e.attested == 0 && !withheld {
		return // a body without a leaf: that it is there is all that can be told
	}
	for got := range s.got(inc, seq, e) {
		same := slices.ContainsFunc(vouched, func(v variant) bool { return v.policy == got.policy })
		switch {
		case slices.ContainsFunc(vouched, got.vouchedBy):
		case same && withheld:
			say(Altered, "attested as withheld, and it has a body")
		case same:
			say(Altered, "its body is not the one that was attested")
		case !a.told[got.policy]:
			say(Altered, "its body is not the one that was attested, and no bridge has told of its policy")
		default:
			say(RedactedAgain, "under another policy than was attested; its body cannot be compared")
		}
	}
}

// vouched are the bodies of an event that were attested.
func (s *session) vouched(inc uint32, seq int64, e *event) []variant {
	return append([]variant{{leaf: e.attested, policy: e.attestedPolicy}}, s.variants[place{inc, seq, true}]...)
}

// oneBody tells whether each body of an event is one that was attested: what came
// twice is then one body in two forms, structured and as JSON text.
func (s *session) oneBody(inc uint32, seq int64, e *event) bool {
	vouched := s.vouched(inc, seq, e)
	for got := range s.got(inc, seq, e) {
		if !slices.ContainsFunc(vouched, got.vouchedBy) {
			return false
		}
	}
	return true
}

// got is the bodies of an event that was received.
func (s *session) got(inc uint32, seq int64, e *event) iter.Seq[variant] {
	return func(yield func(variant) bool) {
		if e.flags&marker != 0 && e.got == 0 || !yield(variant{e.got, e.gotPolicy, e.gotText}) {
			return
		}
		for _, v := range s.variants[place{inc, seq, false}] {
			if !yield(v) {
				return
			}
		}
	}
}

// is tells whether what was received has this leaf.
func (v variant) is(leaf uint64) bool { return leaf != 0 && (v.leaf == leaf || v.text == leaf) }

// vouchedBy tells whether what was received is what v attests.
func (v variant) vouchedBy(by variant) bool { return v.policy == by.policy && v.is(by.leaf) }

// otherBody tells whether an event was received, under the policy of the
// configuration, with another body than that makes of the ledger.
func (a *Auditor) otherBody(s *session, inc uint32, seq int64, e *event, want *expected) bool {
	for got := range s.got(inc, seq, e) {
		if got.policy == want.policy && !got.is(want.leaf) {
			return true
		}
	}
	return false
}

// judgeFacts compares the attributes of a received record with those that capture
// makes of the ledger.
func (a *Auditor) judgeFacts(s *session, inc uint32, seq int64, e *event, led *ledger, say func(Kind, string)) {
	got, want := s.facts[inc].look(seq), led.facts.look(seq)
	if got == nil || got.none() || want == nil || want.none() {
		return
	}
	for _, got := range append([]facts{*got}, s.more[place{inc, seq, false}]...) {
		same := want.policy != 0 && got.policy == want.policy
		if same && want.marker && !got.marker {
			say(Altered, "redaction withholds it, and it is there")
			continue
		}
		// What was redacted twice has been under two policies.
		once := e.attestedPolicy == got.policy || e.attestedPolicy == 0 && len(a.told) < 2
		if names := a.differ(&got, want, same && once); names != "" {
			say(Altered, "not what the ledger says: "+names)
		}
	}
}

func (a *Auditor) judgeAttempts() {
	for _, uid := range slices.Sorted(maps.Keys(a.attempts)) {
		at, got := a.attempts[uid], a.tried[uid]
		what := "the record of an attempt, " + uid
		say := func(k Kind, how string) { a.find(k, at.session, 0, -1, -1, what+how) }
		switch {
		case len(got) > 0:
			for _, g := range got {
				a.judgeAttempt(&at, &g, say)
			}
		case at.outcome != telemetry.Delivered && at.outcome != telemetry.Withheld:
			say(Kind(at.outcome), "")
		case a.given[uid] != "":
			say(Discarded, ", was given up by an operator")
		default:
			say(Missing, ", was attested as "+string(at.outcome))
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(a.tried)) {
		if _, ok := a.attempts[uid]; ok {
			continue
		}
		got := a.tried[uid]
		a.find(Tail, got[0].session, 0, -1, -1, "the record of an attempt, "+uid+", was received; no summary speaks of it yet")
		for i, g := range got[1:] {
			if slices.ContainsFunc(got[:i+1], func(o attempt) bool { return o.policy == g.policy }) {
				a.find(Doubled, g.session, 0, -1, -1, "the record of an attempt, "+uid+", is there twice, and not the same, under one policy")
			}
		}
	}
}

// judgeAttempt compares a record of an attempt with what was attested of it.
func (a *Auditor) judgeAttempt(at *attested, got *attempt, say func(Kind, string)) {
	switch {
	case got.session.id != at.session.id || got.session.created != at.session.created:
		say(Altered, ", names another session than the summary that attests it")
	case got.marker && at.outcome == telemetry.Withheld:
		say(Withheld, ", is a marker")
	case got.marker && len(a.told) > 1:
		say(Withheld, ", is a marker; a later policy has withheld it")
	case !got.marker && at.leaf != 0 && got.leaf == at.leaf && (got.policy == at.policy || a.told[got.policy]):
	case !got.marker && at.leaf == 0 && at.outcome != telemetry.Withheld: // a body without a leaf
	case got.policy != at.policy && a.told[got.policy]:
		say(RedactedAgain, ", is under another policy than was attested; its body cannot be compared")
	default:
		say(Altered, ", has another body, or policy, than was attested")
	}
}
