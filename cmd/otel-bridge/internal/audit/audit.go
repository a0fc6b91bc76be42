// Package audit tells from what a receiver has, OTLP JSON lines, whether
// everything arrived that bridges say they have delivered, unaltered, and once:
//
//	received lines ──▶ records: identity, leaf, policy ─┐
//	                   summaries: signature, chain ─────┼──▶ findings by session and seq
//	ledger (optional) ──▶ every seq ────────────────────┤
//	configuration (optional) ──▶ bodies, made again ────┘
//
// Memory: 48 bytes for each event that has a record, whatever its size, 150 more
// where ledgers are compared, and about 100 for each summary. The order of what is read does not matter.
package audit

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// Kind says what was found. Kinds are stable.
type Kind string

// What makes an audit incomplete.
const (
	Missing        Kind = "missing"         // there should be a record
	Altered        Kind = "altered"         // its body is another than was attested, or than redaction makes
	Doubled        Kind = "doubled"         // one identity, one policy, two bodies
	BadIdentity    Kind = "identity"        // its uid is not that of its identity
	Unexpected     Kind = "unexpected"      // attested as not sent, yet it is there
	BeyondLedger   Kind = "beyond-ledger"   // the ledger has no such event
	NotAttested    Kind = "not-attested"    // no summary speaks of it, though of what stands around it
	SummaryMissing Kind = "summary-missing" // the chain has a gap
	ChainBroken    Kind = "chain-broken"    // a summary does not link to the one before it
	TwinDiffers    Kind = "twin-differs"    // two ledgers of a session say different things
	BadSignature   Kind = "signature"       // a summary or a start was not made with its key
	UnknownKey     Kind = "unknown-key"     // there is no key to verify a signature with
	Unreadable     Kind = "unreadable"      // a line, or a summary, is not understood
	Quarantined    Kind = "quarantined"
	OnHold         Kind = "held"
	Discarded      Kind = "discarded"
	Damaged        Kind = "damaged"
)

// What is told, and does not make an audit incomplete.
const (
	Withheld      Kind = "withheld"       // a marker stands for it
	Tail          Kind = "not-yet"        // behind the last summary: not yet attested
	RedactedAgain Kind = "redacted-again" // under another policy than was attested: its body cannot be compared
	TwoBridges    Kind = "two-bridges"    // more than one service.instance.id has sent the session
	Ambiguous     Kind = "ambiguous"      // a token that stands for one of several ledgers
	UnpinnedKey   Kind = "unpinned-key"   // the key comes from the stream that it vouches for
	Unterminated  Kind = "unterminated"   // a last line without an end was ignored
	Foreign       Kind = "foreign"        // records that no bridge has made
	// Under FEEDBACK_ONLY: what the ledger has behind the last feedback, and before
	// the lifetime that it is about.
	BeyondWatermark Kind = "beyond-watermark"
	OutOfScope      Kind = "out-of-scope"
)

// Fatal tells the kinds that make an audit incomplete.
func (k Kind) Fatal() bool {
	switch k {
	case Withheld, Tail, RedactedAgain, TwoBridges, Ambiguous, UnpinnedKey, Unterminated, Foreign, BeyondWatermark, OutOfScope:
		return false
	}
	return true
}

// Finding is one thing that an audit has to say.
type Finding struct {
	Kind          Kind   `json:"kind"`
	Session       string `json:"session,omitempty"`
	CreatedAt     int64  `json:"created_at,omitempty"`
	FormatVersion *int   `json:"format_version,omitempty"`
	Incarnation   uint32 `json:"incarnation,omitempty"`
	// Seq and To are the events, To only where there are several in a row.
	Seq    *int64 `json:"seq,omitempty"`
	To     *int64 `json:"to,omitempty"`
	Detail string `json:"detail,omitempty"`
	Fatal  bool   `json:"fatal"`
}

// Totals counts what was looked at.
type Totals struct {
	Sessions  int   `json:"sessions"`
	Records   int64 `json:"records"`
	Repeated  int64 `json:"repeated"`
	Summaries int64 `json:"summaries"`
	Attested  int64 `json:"attested"`
	NotYet    int64 `json:"not_yet"`
	Findings  int64 `json:"findings"`
	Complete  bool  `json:"complete"`
}

// identity is a session as its records name it.
type identity struct {
	id      string
	created int64
	version int
}

// Auditor takes in what was received, and what is known beside it, in any order;
// Report tells what was found. It is not safe for concurrent use.
type Auditor struct {
	seed     maphash.Seed
	pinned   map[string]ed25519.PublicKey // by key id
	streamed map[string]ed25519.PublicKey
	used     map[string]bool // keys from the stream that vouch for something
	policies map[string]uint16
	told     map[uint16]bool // policies that a bridge has said it uses
	sessions map[identity]*session
	ledgers  map[identity]*ledger
	consent  consent
	modes    map[string]map[string]bool // by service.instance.id: what bridge.started says
	aliases  map[identity]identity      // ids as records have them -> ids of ledgers
	matched  map[identity]identity      // received sessions -> their ledgers, by match
	ops      map[string]uint64          // uid -> body
	attempts map[string]attested
	tried    map[string][]attempt                         // records of attempts by uid, each body once
	moves    map[identity]map[string]telemetry.Generation // by the newer session, by key id
	given    map[string]telemetry.Outcome                 // uids that an operator has given up
	waiting  []signedBody
	foreign  int64 // records that no bridge has made
	keep     bool  // attributes too
	maxLine  int
	findings []Finding
	totals   Totals
}

type attested struct {
	session identity
	leaf    uint64
	policy  uint16
	outcome telemetry.Outcome
}

// attempt is a record of an attempt as it was received. Its session has no format
// version.
type attempt struct {
	session identity
	leaf    uint64
	policy  uint16
	marker  bool
}

// signedBody is what waits for its key. What it says counts when it is verified.
type signedBody struct {
	op, key  string
	body     []byte
	session  *identity
	span     uint64
	verified func()
}

// session is what is known of a session from what was received.
type session struct {
	by        map[uint32]*table[event] // by incarnation
	quiet     map[uint32]quietRuns     // attested to have no record, by incarnation
	instances map[string]bool
	chains    map[string]map[uint64]link // by key id, by span
	variants  map[place][]variant        // more than one body, or more than one attestation
	facts     map[uint32]*table[facts]   // by incarnation, with Auditor.Attributes
	more      map[place][]facts          // of what came again with other attributes
	starts    []start                    // for the report
}

type place struct {
	incarnation uint32
	seq         int64
	attested    bool
}

type variant struct {
	leaf   uint64
	policy uint16
	text   uint64 // of what was received, see event
}

type link struct {
	hash, prev  string
	from, to    int64
	incarnation uint32
	generation  bool
}

// event is what is known of one event. Leaves are kept as keyed 64-bit hashes,
// with a key that nobody knows. A text may be a body that is a string, or one that
// was sent as JSON text: gotText is its leaf as the string.
type event struct {
	got, gotText, attested    uint64
	gotPolicy, attestedPolicy uint16
	flags                     uint8
	outcome                   uint8 // index in outcomes, 0 for none
}

const (
	received = 1 << iota
	marker
	doubled
	badUID
)

var outcomes = [...]telemetry.Outcome{
	"", telemetry.Delivered, telemetry.Withheld, telemetry.Quarantined, telemetry.OnHold, telemetry.Discarded, telemetry.Damaged,
	telemetry.Elided, telemetry.Inherited, telemetry.OutOfScope,
}

// quietRun is events in a row that are attested to have no record. There may be
// any number of them.
type quietRun struct {
	from, to int64
	outcome  telemetry.Outcome
}

// quietRuns are the quietRuns of one incarnation.
type quietRuns []quietRun

// disjoint sorts them, and takes from each what an earlier one has.
func (q quietRuns) disjoint() quietRuns {
	slices.SortStableFunc(q, func(a, b quietRun) int { return cmp.Compare(a.from, b.from) })
	out := q[:0]
	for _, r := range q {
		if n := len(out); n > 0 && r.from <= out[n-1].to {
			if r.to <= out[n-1].to {
				continue
			}
			r.from = out[n-1].to + 1
		}
		out = append(out, r)
	}
	return out
}

// at is the outcome of an event, "" when they do not speak of it. They have to be
// disjoint.
func (q quietRuns) at(seq int64) telemetry.Outcome {
	i, found := slices.BinarySearchFunc(q, seq, func(r quietRun, seq int64) int { return cmp.Compare(r.from, seq) })
	if !found {
		i--
	}
	if i < 0 || q[i].to < seq {
		return ""
	}
	return q[i].outcome
}

// expected is what the ledger, and the configuration, say of an event.
type expected struct {
	leaf   uint64 // with a policy only
	policy uint16 // 0: the body was not made again
	known  bool
	elided bool
}

// page is how many values a page has: few, since there may be many short sessions.
const (
	pageBits = 5
	page     = 1 << pageBits
)

// table holds values by seq, in pages.
type table[T any] struct {
	pages map[int64]*[page]T
	end   int64
}

func (t *table[T]) at(seq int64) *T {
	if t.pages == nil {
		t.pages = make(map[int64]*[page]T)
	}
	p := t.pages[seq>>pageBits]
	if p == nil {
		p = new([page]T)
		t.pages[seq>>pageBits] = p
	}
	t.end = max(t.end, seq+1)
	return &p[seq&(page-1)]
}

// look is at, but nil for what was never written.
func (t *table[T]) look(seq int64) *T {
	if t == nil || t.pages[seq>>pageBits] == nil {
		return nil
	}
	return &t.pages[seq>>pageBits][seq&(page-1)]
}

// each calls fn with the seqs of the pages that were written, in order.
func (t *table[T]) each(fn func(seq int64, v *T)) {
	for _, n := range slices.Sorted(maps.Keys(t.pages)) {
		for i := range t.pages[n] {
			if seq := n<<pageBits + int64(i); seq < t.end {
				fn(seq, &t.pages[n][i])
			}
		}
	}
}

// New returns an auditor that trusts these keys. With none, a key that the
// stream itself brings is used, and reported.
func New(keys ...ed25519.PublicKey) *Auditor {
	a := &Auditor{
		seed: maphash.MakeSeed(), pinned: map[string]ed25519.PublicKey{}, streamed: map[string]ed25519.PublicKey{}, used: map[string]bool{},
		policies: map[string]uint16{}, told: map[uint16]bool{}, sessions: map[identity]*session{}, ledgers: map[identity]*ledger{}, modes: map[string]map[string]bool{},
		aliases: map[identity]identity{}, matched: map[identity]identity{}, ops: map[string]uint64{}, attempts: map[string]attested{}, given: map[string]telemetry.Outcome{},
		maxLine: maxLine, tried: map[string][]attempt{}, moves: map[identity]map[string]telemetry.Generation{},
	}
	for _, k := range keys {
		a.pinned[telemetry.KeyID(k)] = k
	}
	return a
}

// ParseKey reads a public key: base64 or hex, as bridge.started has it.
func ParseKey(text string) (ed25519.PublicKey, error) {
	for _, decode := range []func(string) ([]byte, error){base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString, hex.DecodeString} {
		if b, err := decode(text); err == nil && len(b) == ed25519.PublicKeySize {
			return b, nil
		}
	}
	return nil, fmt.Errorf("a public key is 32 bytes in base64 or hex, as bridge.started has it")
}

func (a *Auditor) hash(leaf telemetry.Leaf) uint64 {
	if leaf == (telemetry.Leaf{}) {
		return 0
	}
	return maphash.Bytes(a.seed, leaf[:]) | 1
}

// hashText is hash of a leaf in hexadecimal digits; ok is false for what is none.
func (a *Auditor) hashText(leaf string) (h uint64, ok bool) {
	var l telemetry.Leaf
	if len(leaf) != hex.EncodedLen(len(l)) {
		return 0, leaf == ""
	}
	if _, err := hex.Decode(l[:], []byte(leaf)); err != nil {
		return 0, false
	}
	return a.hash(l), true
}

func (a *Auditor) policy(name string) uint16 {
	if name == "" {
		return 0
	}
	n, ok := a.policies[name]
	if !ok {
		if n = uint16(min(len(a.policies)+1, math.MaxUint16)); n == math.MaxUint16 {
			return n // all that are too many to be true; no bridge has told of them
		}
		a.policies[name] = n
	}
	return n
}

func (a *Auditor) session(id identity) *session {
	s := a.sessions[id]
	if s == nil {
		s = &session{
			by: map[uint32]*table[event]{}, quiet: map[uint32]quietRuns{}, instances: map[string]bool{}, chains: map[string]map[uint64]link{},
			variants: map[place][]variant{}, facts: map[uint32]*table[facts]{}, more: map[place][]facts{},
		}
		a.sessions[id] = s
	}
	return s
}

func (s *session) events(incarnation uint32) *table[event] {
	t := s.by[incarnation]
	if t == nil {
		t = &table[event]{}
		s.by[incarnation] = t
	}
	return t
}

// maxVariants is how many bodies, or sets of attributes, of one event are told
// apart: more than there are policies in its life.
const maxVariants = 64

// keepFacts takes in the attributes of a ledger record.
func (s *session) keepFacts(id telemetry.Identity, f facts) {
	t := s.facts[id.Incarnation]
	if t == nil {
		t = &table[facts]{}
		s.facts[id.Incarnation] = t
	}
	at := place{id.Incarnation, id.Seq, false}
	switch kept := t.at(id.Seq); {
	case kept.none():
		*kept = f
	case *kept != f && len(s.more[at]) < maxVariants && !slices.Contains(s.more[at], f):
		s.more[at] = append(s.more[at], f)
	}
}

// record takes in a ledger record. text is the other leaf that its body may have,
// see event.
func (a *Auditor) record(id telemetry.Identity, instance, policy string, leaf, text telemetry.Leaf, withheld, badIdentity bool) {
	a.totals.Records++
	s := a.session(identity{id.SessionID, id.CreatedAt, id.FormatVersion})
	s.instances[instance] = true
	e := s.events(id.Incarnation).at(id.Seq)
	got := variant{a.hash(leaf), a.policy(policy), a.hash(text)}
	switch {
	case badIdentity:
		e.flags |= badUID
	case withheld:
		if e.flags&marker != 0 {
			a.totals.Repeated++
		}
		e.flags |= marker | received
	case e.flags&received == 0 || e.flags&marker != 0 && e.got == 0:
		e.flags |= received
		e.got, e.gotText, e.gotPolicy = got.leaf, got.text, got.policy
	case e.got == got.leaf && e.gotPolicy == got.policy:
		a.totals.Repeated++
	default:
		at := place{id.Incarnation, id.Seq, false}
		if e.gotPolicy == got.policy {
			e.flags |= doubled
		}
		for _, v := range s.variants[at] {
			switch {
			case v.leaf == got.leaf && v.policy == got.policy:
				a.totals.Repeated++
				return
			case v.policy == got.policy:
				e.flags |= doubled
			}
		}
		if len(s.variants[at]) >= maxVariants {
			e.flags |= doubled // more than there can be policies
			return
		}
		s.variants[at] = append(s.variants[at], got)
	}
}

// maxBare bounds the records without leaves in a summary: a span has at most 1,000
// events that have any.
const maxBare = 1000

// summary takes in a summary whose signature was checked, or will be.
func (a *Auditor) summary(id identity, s *session, sum *telemetry.Summary, hash string) {
	l := link{hash, sum.Previous, sum.From, sum.To, sum.Incarnation, sum.Generation != nil}
	chain := s.chains[sum.Key]
	if chain == nil {
		chain = map[uint64]link{}
		s.chains[sum.Key] = chain
	}
	if old, twice := chain[sum.Span]; twice {
		if old.hash != hash {
			a.find(Doubled, id, sum.Incarnation, sum.From, sum.To, fmt.Sprintf("summary %d has two bodies", sum.Span))
		}
		return
	}
	chain[sum.Span] = l
	a.totals.Summaries++
	if sum.Generation != nil {
		a.moved(id, sum.Key, *sum.Generation)
	}
	p := a.policy(sum.Policy)
	t := s.events(sum.Incarnation)
	bare := int64(0)
	for _, r := range sum.Runs {
		if slices.Contains(outcomes[:], r.Outcome) && r.Outcome != "" && !r.Outcome.Records() {
			s.quiet[sum.Incarnation] = append(s.quiet[sum.Incarnation], quietRun{r.From, r.To, r.Outcome})
			continue
		}
		code := uint8(slices.Index(outcomes[:], r.Outcome))
		if r.Outcome == "" || int(code) >= len(outcomes) {
			a.find(Unreadable, id, sum.Incarnation, r.From, r.To, "a summary has an outcome that is not known")
			continue
		}
		if n := r.To - r.From; len(r.Leaves) == 0 {
			if n >= maxBare-bare {
				a.find(Unreadable, id, sum.Incarnation, r.From, r.To, "a summary has more records than any span has")
				continue
			}
			bare += n + 1
		}
		for seq := r.From; seq <= r.To; seq++ {
			e := t.at(seq)
			h := uint64(0)
			if len(r.Leaves) > 0 {
				ok := false
				if h, ok = a.hashText(r.Leaves[seq-r.From]); !ok {
					a.find(Unreadable, id, sum.Incarnation, seq, seq, "a summary has a leaf that is no SHA-256")
				}
			}
			// Of two attestations, after a rewind, the better one counts; each body
			// that was attested is.
			better := e.outcome == 0 || code < e.outcome
			if better {
				e.outcome = code
			}
			switch {
			case e.attested == 0 && (better || h != 0):
				e.attested, e.attestedPolicy = h, p
			case h != 0 && (e.attested != h || e.attestedPolicy != p):
				at := place{sum.Incarnation, seq, true}
				if v := (variant{leaf: h, policy: p}); len(s.variants[at]) < maxVariants && !slices.Contains(s.variants[at], v) {
					s.variants[at] = append(s.variants[at], v)
				}
			}
		}
	}
	for _, at := range sum.Attempts {
		leaf, ok := a.hashText(at.Leaf)
		if !ok {
			a.find(Unreadable, id, sum.Incarnation, sum.From, sum.To, "a summary has a leaf of an attempt that is no SHA-256")
		}
		a.attempts[at.UID] = attested{session: id, leaf: leaf, policy: p, outcome: at.Outcome}
	}
}

// moved takes in that a session has gone on in a newer format.
func (a *Auditor) moved(id identity, key string, g telemetry.Generation) {
	if a.moves[id] == nil {
		a.moves[id] = map[string]telemetry.Generation{}
	}
	a.moves[id][key] = g
}

// begins is the first event of a session that was captured in its format: what
// stands before it was in an older one. -1 where nothing tells of one.
func (a *Auditor) begins(id identity) int64 {
	first := int64(-1)
	for _, g := range a.moves[id] {
		if first < 0 || g.NextSeq < first {
			first = g.NextSeq
		}
	}
	return first
}

func (a *Auditor) find(kind Kind, id identity, incarnation uint32, from, to int64, detail string) {
	f := Finding{Kind: kind, Session: id.id, CreatedAt: id.created, Incarnation: incarnation, Detail: detail, Fatal: kind.Fatal()}
	if id != (identity{}) {
		f.FormatVersion = &id.version
	}
	if from >= 0 {
		f.Seq = &from
		if to > from {
			f.To = &to
		}
	}
	a.findings = append(a.findings, f)
}

// Report settles what was taken in and returns everything that was found, by
// session and seq, and the totals.
func (a *Auditor) Report() ([]Finding, Totals) {
	a.checkSignatures()
	for _, s := range a.sessions {
		for inc, q := range s.quiet {
			s.quiet[inc] = q.disjoint()
		}
		s.begin()
	}
	a.match()
	ids := slices.SortedFunc(maps.Keys(a.sessions), compareIDs)
	for _, id := range ids {
		a.judge(id, a.sessions[id])
	}
	a.judgeAttempts()
	if a.foreign > 0 {
		a.find(Foreign, identity{}, 0, -1, -1, fmt.Sprintf("records that no bridge has made are left out: %d", a.foreign))
	}
	seen := map[identity]bool{}
	for _, led := range a.matched {
		seen[led] = true
	}
	for _, id := range slices.SortedFunc(maps.Keys(a.ledgers), compareIDs) {
		if !seen[id] {
			a.judgeUnseen(id, a.ledgers[id])
		}
	}
	slices.SortStableFunc(a.findings, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(x.Session, y.Session), cmp.Compare(x.CreatedAt, y.CreatedAt),
			cmp.Compare(x.Incarnation, y.Incarnation), cmp.Compare(deref(x.Seq), deref(y.Seq)))
	})
	a.totals.Sessions = len(a.sessions)
	a.totals.Complete = true
	for _, f := range a.findings {
		a.totals.Findings++
		a.totals.Complete = a.totals.Complete && !f.Fatal
	}
	return a.findings, a.totals
}

func deref(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func compareIDs(a, b identity) int {
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.created, b.created), cmp.Compare(a.version, b.version))
}

func (a *Auditor) checkSignatures() {
	for _, w := range a.waiting {
		key, pinned := a.pinned[w.key]
		if !pinned && len(a.pinned) == 0 {
			if key = a.streamed[w.key]; key != nil {
				a.used[w.key] = true
			}
		}
		id, what := identity{}, w.op
		if w.session != nil {
			id = *w.session
		}
		if w.span > 0 {
			what = fmt.Sprintf("summary %d", w.span)
		}
		switch {
		case w.key == "":
			a.find(BadSignature, id, 0, -1, -1, what+" is not signed")
		case key == nil:
			a.find(UnknownKey, id, 0, -1, -1, what+" is signed with key "+w.key+", which is not known; name it with --public-key")
		case !telemetry.VerifyBody(key, w.op, w.body):
			a.find(BadSignature, id, 0, -1, -1, what+" was not made with its key")
		case w.verified != nil:
			w.verified()
		}
	}
	a.waiting = nil
	for _, key := range slices.Sorted(maps.Keys(a.used)) {
		a.find(UnpinnedKey, identity{}, 0, -1, -1, "key "+key+" is taken from the stream itself: whoever could alter the stream could have put it there")
	}
}
