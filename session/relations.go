package session

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Codes of relations between events (Relations, and a Trace with WithStrict).
const (
	// CodeData: the payload of a type that relations look into is no object.
	CodeData Code = "data-not-object"
	// CodeCallAdvertised: a message advertises a call that is pending already.
	CodeCallAdvertised Code = "call-advertised-twice"
	// CodeCallNotAdvertised: a tool/call differs from any advertised call.
	CodeCallNotAdvertised Code = "call-not-advertised"
	// CodeCallUnresolved: a step or turn ends with calls that have no result.
	CodeCallUnresolved Code = "call-unresolved"
	// CodeResultNotAdvertised: a tool/result answers no advertised call.
	CodeResultNotAdvertised Code = "result-not-advertised"
	// CodeRepairInexact: a result for a call that never started is not the one
	// that repair makes.
	CodeRepairInexact Code = "repair-inexact"
	// CodeSurfaceSpan: a replace names no span of the current surface.
	CodeSurfaceSpan Code = "surface-span"
	// CodeSurfaceSources: a replace does not cite every node that it shadows.
	CodeSurfaceSources Code = "surface-sources"
	// CodeSystemHead: the protected system head is missing or shadowed.
	CodeSystemHead Code = "system-head"
	// CodeRetry: an llm/retry does not fit the open turn, step or provider.
	CodeRetry Code = "retry-coordinates"
	// CodeRetryChain: an llm/retry breaks the numbering or id of its chain.
	CodeRetryChain Code = "retry-chain"
	// CodeRetryStarted: an llm/retry-started pairs with no scheduled retry.
	CodeRetryStarted Code = "retry-started"
	// CodeDispatch: a dispatch of a call in code breaks its tree.
	CodeDispatch Code = "dispatch-tree"
	// CodeTitle: a title does not cite what it was made from.
	CodeTitle Code = "title-sources"
	// CodeCommand: command/run and command/done do not pair.
	CodeCommand Code = "command-pair"
	// CodeDelivery: a delivery marker names another session.
	CodeDelivery Code = "delivery-owner"
	// CodeCompaction: the bracket of a compaction is broken.
	CodeCompaction Code = "compaction-bracket"
	// CodeCompactionSpan: a compaction shadows no exact span of the surface.
	CodeCompactionSpan Code = "compaction-span"
	// CodeCatalog: a session's own catalog lists a child twice.
	CodeCatalog Code = "catalog-duplicate"
	// CodeDeveloperHeader: a developer/message adds a tool that the header it
	// cites does not define.
	CodeDeveloperHeader Code = "developer-header"
)

// Texts of the results that repair makes up (see Recovery).
const (
	textNotStarted = "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed."
	titleFraming   = "Generate the session title from this JSON array of human messages:\n"
)

// Relations checks what the reference checks over a whole ledger when it moves
// one to a newer format, beyond the invariants of a Trace: the life of tool
// calls, chains of retries, trees of dispatched calls, sources of titles, pairs
// of commands, brackets and spans of compactions, owners of delivery markers.
// Real ledgers may break these and still be read, so that they are findings
// rather than refusals; WithStrict makes refusals of them.
//
// Some verdicts need what comes later: a compaction that a session/end-seed
// orphans may be crossed by turns. Finish gives those that are left at the end.
// Memory grows with the ledger: a few dozen bytes per message, title source,
// command and retry.
type Relations struct {
	d      *Dialect
	header Header
	// inherited is the number of inherited events where it is known in advance.
	inherited int64

	turn, step         int64
	nextTurn, nextStep int64
	provider           string // of the last request/header; empty where nobody has seen it
	surface            []int64
	head               int64 // seq of the protected system head, or -1
	compaction         *compactionState
	tools              map[string]*toolLifecycle
	mostTools          int // entries that tools has held since it was made
	chains             map[string]retryChain
	retryIDs           map[string]struct{}
	scheduled          map[string]retryPlace
	started            map[string]struct{}
	dispatches         map[string]*dispatchState
	commands           map[string]struct{}
	commandSeqs        map[int64]struct{}
	humans             map[int64][sha256.Size]byte
	headers            map[int64]*headerTools
	lastTools          *headerTools // of the last header, which the next one often repeats
	children           map[string]struct{}
	pending            []*InvariantError // findings that an inherited marker takes back
	restart            bool              // the last event filled the inbox for a next turn
	cited              []int64           // sources of the event at hand, in order
	lost               map[Code]bool     // relations that are not judged any more, see byTypeCut
}

type compactionState struct {
	id, command string
	turn        int64 // 0: between turns
	summarized  bool
	crossed     *InvariantError
}

type toolLifecycle struct {
	name, arguments string
	unread          bool // name and arguments: the line was too long to read
	started         bool
}

// headerTools are the tools that a request/header defines: by name, whether it is
// done once and in full.
type headerTools struct {
	digest  [sha256.Size]byte // of the list as it is written
	defined map[string]bool
	unread  bool // the line was too long to read
}

type retryChain struct {
	number int64
	id     string
}

type retryPlace struct{ turn, step string }

type dispatchState struct {
	root, parent, name, arguments string
	settled                       bool
}

// NewRelations returns the checks for a ledger that begins with h. inherited is
// the number of inherited events, or negative where only the ledger's markers
// will tell; versions that count them in the header need not be told.
func NewRelations(h *Header, d *Dialect, inherited int64) *Relations {
	r := newRelations(d)
	r.begin(h)
	if inherited >= 0 {
		r.inherited = inherited
	}
	return r
}

func newRelations(d *Dialect) *Relations {
	return &Relations{
		d: d, inherited: -1, nextTurn: 1, nextStep: 1, provider: absent, head: -1,
		tools: map[string]*toolLifecycle{}, chains: map[string]retryChain{}, retryIDs: map[string]struct{}{},
		scheduled: map[string]retryPlace{}, started: map[string]struct{}{}, dispatches: map[string]*dispatchState{},
		commands: map[string]struct{}{}, commandSeqs: map[int64]struct{}{}, humans: map[int64][sha256.Size]byte{},
		headers: map[int64]*headerTools{}, children: map[string]struct{}{}, lost: map[Code]bool{},
	}
}

func (r *Relations) begin(h *Header) {
	if h == nil {
		return
	}
	r.header = *h
	if r.d.seedLength {
		r.inherited = 0
		if h.SeedLength != nil {
			r.inherited = *h.SeedLength
		}
	}
}

// Observe judges ev and takes it in, finding or not. The error is an
// *InvariantError; its Seq may be that of an earlier event.
func (r *Relations) Observe(ev *Event) error {
	apply, err := r.judge(ev)
	if apply != nil {
		apply()
	}
	return err
}

// Plan judges ev and changes nothing; a finding is a refusal.
func (r *Relations) Plan(ev *Event) (Plan, error) {
	apply, err := r.judge(ev)
	if err != nil {
		return nil, err
	}
	return planFunc(apply), nil
}

type planFunc func()

func (f planFunc) Apply() {
	if f != nil {
		f()
	}
}

// Finish returns what is still found when the ledger ends here: turns that
// cross an open compaction, and what only an inherited marker would excuse.
func (r *Relations) Finish() []error {
	var out []error
	for _, e := range r.pending {
		out = append(out, e)
	}
	if c := r.compaction; c != nil && c.crossed != nil {
		out = append(out, c.crossed)
	}
	return out
}

// judge returns what taking ev in would change, and what is wrong with it. Both
// may be there: a finding need not stop a report.
func (r *Relations) judge(ev *Event) (apply func(), err error) {
	if !r.d.related(ev.Type) {
		return func() { r.restart = false }, nil
	}
	j := judgement{r: r, ev: ev, cut: ev.DataTruncated}
	if KindOf(ev.Data) != KindObject {
		return nil, fail(ev, CodeData, "want an object")
	}
	j.surface()
	if ev.Type == TypeTurnStart || ev.Type == TypeTurnEnd {
		j.crossCompaction()
	}
	switch {
	case j.stop:
	case r.d.inStep(ev.Type):
		j.requireStep()
	case j.cut:
		j.byTypeCut()
	default:
		j.byType()
	}
	isRestart := ev.Type == "agent/inbox/spliced" && StringIs(Member(ev.Data, "target"), "next-turn") &&
		KindOf(Member(ev.Data, "inserted")) == KindArray && !isEmpty(Member(ev.Data, "inserted"))
	j.then(func() { r.restart = isRestart })
	return func() {
		for _, f := range j.changes {
			f()
		}
	}, j.err
}

// related reports whether relations look into typ at all.
func (d *Dialect) related(typ string) bool {
	return cores[d.version].types[typ] != nil || d.inStep(typ)
}

// inStep reports whether typ has no other relation than to stand in its step.
func (d *Dialect) inStep(typ string) bool {
	for _, t := range d.stepTypes {
		if t == typ {
			return true
		}
	}
	return false
}

// judgement collects what one event changes. The first finding counts.
type judgement struct {
	r       *Relations
	ev      *Event
	changes []func()
	err     error
	stop    bool // the rest cannot be judged
	cut     bool // of the payload only what Event.DataTruncated says is left
}

func (j *judgement) then(f func()) { j.changes = append(j.changes, f) }

func (j *judgement) found(code Code, format string, args ...any) {
	if j.err == nil && !j.r.lost[code] {
		j.err = fail(j.ev, code, format, args...)
	}
}

func (j *judgement) member(name string) []byte { return j.ev.Member(j.ev.Data, name) }

// requireStep checks that the event names the open turn and step.
func (j *judgement) requireStep() bool {
	turn, step, ok := TurnStep(j.ev)
	if ok && j.r.turn != 0 && j.r.step != 0 && turn == j.r.turn && step == j.r.step {
		return true
	}
	j.found(CodeStepNotOpen, "turn %d step %d is open (0: none)", j.r.turn, j.r.step)
	return false
}

func (j *judgement) requireTurn() bool {
	if j.r.turn == 0 {
		j.found(CodeTurnNotOpen, "no turn is open")
		return false
	}
	return true
}

func (j *judgement) byType() {
	r, ev := j.r, j.ev
	switch ev.Type {
	case TypeTurnStart:
		j.turnStart()
	case TypeTurnEnd:
		turn, ok := Turn(ev)
		if r.turn == 0 || !ok || turn != r.turn {
			j.found(CodeTurnMismatch, "turn %d is open (0: none)", r.turn)
			return
		}
		j.unresolved()
		if r.step != 0 {
			j.found(CodeStepOpen, "step %d is open", r.step)
		}
		j.then(func() { r.turn, r.step = 0, 0; r.nextTurn++; r.tools = emptied(r.tools, &r.mostTools) })
	case TypeStepStart:
		turn, step, ok := TurnStep(ev)
		if r.turn == 0 || r.step != 0 || !ok || turn != r.turn || step != r.nextStep {
			j.found(CodeStepNumber, "want step %d of turn %d, with none open", r.nextStep, r.turn)
			return
		}
		j.then(func() { r.step = step })
	case TypeStepEnd:
		if !j.requireStep() {
			return
		}
		j.unresolved()
		j.then(func() { r.step = 0; r.nextStep++; r.tools = emptied(r.tools, &r.mostTools) })
	case TypeAssistantChunk:
		j.requireStep()
	case TypeAssistantMessage:
		j.advertise()
	case TypeToolCall:
		j.call()
	case TypeToolResult:
		j.result()
	case TypeSystemMessage:
		j.requireStep()
	case TypeDeveloperMessage:
		j.developer()
	case TypeRequestHeader:
		j.requestHeader()
	case TypeRequestContext:
		j.requireTurn()
	case r.d.ptcStart, r.d.ptcEnd:
		j.dispatch()
	case "llm/retry":
		j.retry()
	case "llm/retry-started":
		j.retryStarted()
	case "session/title", "session/title-llm-request":
		j.title()
	case "command/run", "command/done":
		j.command()
	case "session-log-deepseek/delivery-accepted":
		j.delivery()
	case "subagent/catalog":
		j.catalog()
	case "compaction/start", "compaction/summary", "compaction/end", "compaction/prune":
		j.compact()
	case TypeUserMessage:
		j.userMessage()
	case TypeEndSeed:
		inherited, _ := IsEndSeed(ev)
		j.then(func() {
			r.compaction = nil
			if inherited {
				// Everything before belongs to the parent.
				r.pending = nil
				r.children = map[string]struct{}{}
			}
		})
	}
}

// byTypeCut judges an event whose line was too long to read by what is left of it,
// so that what follows is not blamed for what nobody has seen.
func (j *judgement) byTypeCut() {
	r, seq := j.r, j.ev.Seq
	switch j.ev.Type {
	case TypeTurnStart, TypeTurnEnd, TypeStepStart, TypeStepEnd, TypeAssistantChunk, TypeAssistantMessage, TypeToolCall,
		TypeToolResult, TypeSystemMessage, TypeRequestContext, TypeEndSeed:
		j.byType()
	case TypeDeveloperMessage:
		j.requireStep()
	case TypeRequestHeader:
		j.requireTurn()
		j.then(func() {
			r.provider = ""
			r.headers[seq] = &headerTools{unread: true}
		})
	case TypeUserMessage:
		if StringIs(Path(j.ev.Data, "source", "kind"), "user") {
			j.then(func() { r.humans[seq] = unreadText })
		}
	case "compaction/summary":
		if c := r.compaction; c != nil {
			j.then(func() { c.summarized = true })
		}
	case "compaction/end":
		j.then(func() { r.compaction = nil })
	case "compaction/start":
		j.lose(CodeCompaction)
	case "llm/retry":
		j.lose(CodeRetryChain, CodeRetryStarted)
	case "command/run":
		j.lose(CodeCommand)
	case r.d.ptcStart:
		j.lose(CodeDispatch)
	}
}

// lose gives relations up whose one end nobody has seen.
func (j *judgement) lose(codes ...Code) {
	j.then(func() {
		for _, c := range codes {
			j.r.lost[c] = true
		}
	})
}

func (j *judgement) turnStart() {
	r := j.r
	turn, ok := Turn(j.ev)
	if r.d.restartTurns && r.restart && r.turn != 0 && r.step == 0 && ok && turn == r.turn+1 {
		j.then(func() { r.turn = 0; r.nextTurn++ })
	} else if r.turn != 0 || !ok || turn != r.nextTurn {
		j.found(CodeTurnNumber, "want turn %d, with none open", r.nextTurn)
		return
	}
	j.then(func() { r.turn, r.step, r.nextStep = turn, 0, 1; r.tools = emptied(r.tools, &r.mostTools) })
}

func (j *judgement) unresolved() {
	if n := len(j.r.tools); n > 0 {
		j.found(CodeCallUnresolved, "%d calls have no result", n)
	}
}

func (j *judgement) advertise() {
	if !j.requireStep() {
		return
	}
	fresh := map[string]*toolLifecycle{}
	for a := WalkArray(Path(j.ev.Data, "message", "content")); a.Next(); {
		block := a.Value()
		if !StringIs(Member(block, "type"), "tool-call") {
			continue
		}
		id := scalarKey(Member(block, "id"))
		if fresh[id] != nil || j.r.tools[id] != nil {
			j.found(CodeCallAdvertised, "a call of that id is pending")
		}
		fresh[id] = &toolLifecycle{unread: j.cut, name: scalarKey(Member(block, "name")), arguments: scalarKey(Member(block, "arguments"))}
	}
	j.then(func() {
		for id, t := range fresh {
			j.r.tools[id] = t
		}
		j.r.mostTools = max(j.r.mostTools, len(j.r.tools))
	})
}

func (j *judgement) call() {
	if !j.requireStep() {
		return
	}
	t := j.r.tools[scalarKey(j.member("callId"))]
	same := t != nil && (j.cut || t.unread || t.name == scalarKey(j.member("name")) && t.arguments == scalarKey(j.member("arguments")))
	if !same || t.started {
		j.found(CodeCallNotAdvertised, "want the name and arguments of one advertised call, once")
		return
	}
	j.then(func() { t.started = true })
}

func (j *judgement) result() {
	r := j.r
	if op := j.ev.SurfaceOp; op == nil || op.Replace {
		j.requireTurn()
		return
	}
	if !j.requireStep() {
		return
	}
	res := r.d.ToolResultOf(j.ev)
	id := scalarKey(res.RawCallID)
	t := r.tools[id]
	if t == nil {
		j.found(CodeResultNotAdvertised, "no advertised call has its call id")
		return
	}
	if !t.started && !j.cut && !j.exactRepair(res) {
		j.found(CodeRepairInexact, "the call never started; want the exact result that repair makes")
	}
	j.then(func() { delete(r.tools, id) })
}

// exactRepair reports whether the result is what repair makes of a call that
// never started. Migration keeps ids, so that the number in one made before
// may be another than the event's own.
func (j *judgement) exactRepair(res ToolResult) bool {
	failure := j.member("error")
	if !res.IsError || !StringIs(res.RawErrorCode, codeNotStarted) || !StringIs(Member(failure, "name"), nameNotStarted) ||
		j.ev.SourceEventSeqs != nil {
		return false
	}
	id, _ := String(Member(res.Message, "id"))
	call := res.CallID()
	if j.r.d.sealsForks && strings.HasPrefix(id, "forked-tool-result-"+call+"-") {
		return true // judged with the row
	}
	suffix, ok := strings.CutPrefix(id, "interrupted-tool-result-"+call+"-")
	n, plain := plainCount(suffix)
	if !ok || !plain || !j.r.d.movedRepairs && n != j.ev.Seq {
		return false
	}
	a := WalkArray(res.Content)
	return a.Next() && StringIs(Member(a.Value(), "type"), "text") && StringIs(Member(a.Value(), "text"), textNotStarted) && !a.Next()
}

func (j *judgement) developer() {
	r := j.r
	if !j.requireStep() {
		return
	}
	raw := j.member("headerSeq")
	if raw == nil {
		return
	}
	seq, ok := Count(raw)
	tools := r.headers[seq]
	if !ok || tools == nil {
		j.found(CodeDeveloperHeader, "headerSeq names no earlier request/header")
		return
	}
	if tools.unread {
		return
	}
	for a := WalkArray(Path(j.ev.Data, "message", "content")); a.Next(); {
		if !StringIs(Member(a.Value(), "type"), "tool-addition") {
			continue
		}
		if complete, one := tools.defined[scalarKey(Member(a.Value(), "toolName"))]; !one || !complete {
			j.found(CodeDeveloperHeader, "request/header %d does not define an added tool exactly once", seq)
		}
	}
}

func (j *judgement) requestHeader() {
	r := j.r
	header := j.member("header")
	var tools *headerTools
	if r.d.toolRole {
		tools = r.tools4(Member(header, "tools"))
	}
	provider := scalarKey(Path(header, "config", "provider"))
	j.requireTurn()
	seq := j.ev.Seq
	j.then(func() {
		r.provider = provider
		if tools != nil {
			r.headers[seq], r.lastTools = tools, tools
		}
	})
}

// tools4 reads the tools that a header of version 4 defines. Headers that repeat
// the last one share its tools, so that a ledger which writes its header often
// stays small.
func (r *Relations) tools4(list []byte) *headerTools {
	digest := sha256.Sum256(list)
	if r.lastTools != nil && r.lastTools.digest == digest {
		return r.lastTools
	}
	t := &headerTools{digest: digest, defined: map[string]bool{}}
	for a := WalkArray(list); a.Next(); {
		name := scalarKey(Member(a.Value(), "name"))
		_, again := t.defined[name]
		t.defined[name] = !again && KindOf(Member(a.Value(), "description")) == KindString &&
			KindOf(Member(a.Value(), "parameters")) == KindObject
	}
	return t
}

func (j *judgement) dispatch() {
	r := j.r
	if !j.requireTurn() {
		return
	}
	root, parent, child := scalarKey(j.member("rootCallId")), scalarKey(j.member("parentCallId")), scalarKey(j.member("subCallId"))
	known := r.dispatches[child]
	if known != nil && known.root != root {
		j.found(CodeDispatch, "the root call changes")
		return
	}
	if up := r.dispatches[parent]; parent != root && (up == nil || up.root != root) {
		j.found(CodeDispatch, "the parent call does not belong to the root call")
		return
	}
	s := &dispatchState{root: root, parent: parent, name: scalarKey(j.member("name")), arguments: valueKey(j.member("arguments"))}
	if j.ev.Type == r.d.ptcStart {
		if known != nil {
			j.found(CodeDispatch, "the sub-call starts again")
			return
		}
		j.then(func() { r.dispatches[child] = s })
		return
	}
	switch {
	case known == nil || known.settled:
		j.found(CodeDispatch, "no start, or settled already")
	case known.parent != s.parent || known.name != s.name || known.arguments != s.arguments:
		j.found(CodeDispatch, "differs from its start")
	default:
		j.then(func() { known.settled = true })
	}
}

func (j *judgement) retry() {
	r := j.r
	turn, step, ok := TurnStep(j.ev)
	current := r.step
	if current == 0 {
		current = r.nextStep - 1
	}
	if r.turn == 0 || !ok || turn != r.turn || step != current {
		j.found(CodeRetry, "want turn %d step %d", r.turn, current)
		return
	}
	provider := scalarKey(j.member("provider"))
	if provider != r.provider && r.provider != "" {
		j.found(CodeRetry, "the provider is not that of the last request/header")
		return
	}
	id, number := scalarKey(j.member("retryId")), scalarKey(j.member("retry"))
	chain := fmt.Sprint(turn, " ", step, " ", provider, policyKey(j.member("policyKey"), j.ev.Seq))
	prior, known := r.chains[chain]
	if number != strconv.FormatInt(prior.number+1, 10) {
		j.found(CodeRetryChain, "want retry %d", prior.number+1)
		return
	}
	if known && prior.id != id {
		j.found(CodeRetryChain, "the retry id changes within its chain")
		return
	}
	if _, used := r.retryIDs[id]; !known && used {
		j.found(CodeRetryChain, "the retry id belongs to another chain")
		return
	}
	place := retryPlace{scalarKey(j.member("turn")), scalarKey(j.member("step"))}
	j.then(func() {
		r.chains[chain] = retryChain{prior.number + 1, id}
		r.retryIDs[id] = struct{}{}
		if _, again := r.scheduled[id+number]; !again {
			r.scheduled[id+number] = place
		}
	})
}

// policyKey keeps apart what JavaScript never calls equal: two objects.
func policyKey(raw []byte, seq int64) string {
	if k := KindOf(raw); k == KindObject || k == KindArray {
		return fmt.Sprint("object ", seq)
	}
	return scalarKey(raw)
}

func (j *judgement) retryStarted() {
	r := j.r
	key := scalarKey(j.member("retryId")) + scalarKey(j.member("retry"))
	place, ok := r.scheduled[key]
	_, again := r.started[key]
	switch {
	case !ok:
		j.found(CodeRetryStarted, "no retry of that id and number was scheduled")
	case place.turn != scalarKey(j.member("turn")) || place.step != scalarKey(j.member("step")):
		j.found(CodeRetryStarted, "turn and step are not those that were scheduled")
	case again:
		j.found(CodeRetryStarted, "the retry has started already")
	default:
		j.then(func() { r.started[key] = struct{}{} })
	}
}

func (j *judgement) title() {
	r := j.r
	seqs := j.member("messageSeqs")
	empty := KindOf(seqs) == KindArray && isEmpty(seqs)
	request := j.ev.Type != "session/title"
	if KindOf(seqs) != KindArray || !request && empty != StringIs(Path(j.ev.Data, "source", "kind"), "user") {
		j.found(CodeTitle, "messageSeqs have to be empty exactly for a title by the user")
		return
	}
	var cited []int64
	for a := WalkArray(seqs); a.Next(); {
		seq, ok := Count(a.Value())
		if _, human := r.humans[seq]; !ok || !human {
			j.found(CodeTitle, "messageSeqs have to cite earlier messages of the user")
			return
		}
		cited = append(cited, seq)
	}
	if !request {
		return
	}
	messages := WalkArray(j.member("messages"))
	one := messages.Next()
	message := messages.Value()
	blocks := WalkArray(Member(message, "content"))
	if !one || messages.Next() || !StringIs(Member(message, "role"), "user") ||
		!r.d.titleSource.Matches(Member(message, "source")) || !blocks.Next() {
		j.found(CodeTitle, "want one message of the titles' plugin")
		return
	}
	block := blocks.Value()
	if blocks.Next() || !StringIs(Member(block, "type"), "text") || r.d.framesTitles && !r.framed(Member(block, "text"), cited) {
		j.found(CodeTitle, "the message does not represent messageSeqs")
	}
}

// framed reports whether raw is the request's framing of the cited messages.
func (r *Relations) framed(raw []byte, cited []int64) bool {
	if KindOf(raw) != KindString || hasLoneSurrogate(raw) {
		return false
	}
	text := AppendString(nil, raw)
	take := func(want string) bool {
		if len(text) < len(want) || string(text[:len(want)]) != want {
			return false
		}
		text = text[len(want):]
		return true
	}
	if !take(titleFraming) || !take("[") {
		return false
	}
	for i, seq := range cited {
		if i > 0 && !take(",") || !take(`{"seq":`+strconv.FormatInt(seq, 10)+`,"text":`) || len(text) == 0 || text[0] != '"' {
			return false
		}
		end := skipString(text, 0)
		if want := r.humans[seq]; want != unreadText && sha256.Sum256(text[:end]) != want {
			return false
		}
		text = text[end:]
		if !take("}") {
			return false
		}
	}
	return string(text) == "]"
}

// unreadText stands for the text of a message whose line was too long to read.
var unreadText [sha256.Size]byte

// humanText is the digest of a user's text as JSON.stringify writes it.
func humanText(content []byte) [sha256.Size]byte {
	var units []uint16
	for a, n := WalkArray(content), 0; a.Next(); {
		text := Member(a.Value(), "text")
		if !StringIs(Member(a.Value(), "type"), "text") || KindOf(text) != KindString {
			continue
		}
		if n > 0 {
			units = append(units, '\n')
		}
		units = append(units, utf16Units(text)...)
		n++
	}
	return sha256.Sum256(appendUnits(nil, units))
}

func (j *judgement) command() {
	r, seq := j.r, j.ev.Seq
	id := scalarKey(j.member("commandId"))
	_, known := r.commands[id]
	if j.ev.Type == "command/run" {
		if known {
			j.found(CodeCommand, "the command id ran already")
		}
	} else {
		if !known {
			j.found(CodeCommand, "no command/run has its command id")
		}
		if raw := j.member("sourceEventSeq"); raw != nil {
			source, ok := Count(raw)
			if _, own := r.commandSeqs[source]; !ok || own || source >= seq || !StringIs(j.member("kind"), "success") {
				j.found(CodeCommand, "sourceEventSeq has to name an earlier event that is no command, of a success")
			}
		}
	}
	run := j.ev.Type == "command/run"
	j.then(func() {
		if run {
			r.commands[id] = struct{}{}
		}
		r.commandSeqs[seq] = struct{}{}
	})
}

func (j *judgement) delivery() {
	r := j.r
	version := j.member("sessionFormatVersion")
	n := int64(0)
	if KindOf(version) != KindNone && KindOf(version) != KindNull {
		var ok bool
		if n, ok = Count(version); !ok {
			return
		}
	}
	if n != int64(r.header.Version) {
		return
	}
	through, ok := Count(j.member("throughSeq"))
	if id, isString := String(j.member("sessionId")); !ok || through >= j.ev.Seq || !isString || id == "" {
		j.found(CodeDelivery, "want an earlier throughSeq and a session id")
		return
	} else if id == r.header.ID {
		return
	}
	finding := fail(j.ev, CodeDelivery, "the marker of this generation names another session").(*InvariantError)
	switch {
	case r.header.ParentSession == nil, r.inherited >= 0 && j.ev.Seq >= r.inherited:
		j.err = finding
	case r.inherited < 0:
		j.then(func() { r.pending = append(r.pending, finding) })
	}
}

func (j *judgement) catalog() {
	r := j.r
	if !r.d.ownCatalog || r.inherited >= 0 && j.ev.Seq < r.inherited {
		return
	}
	id := scalarKey(j.member("childId"))
	if _, dup := r.children[id]; dup {
		finding := fail(j.ev, CodeCatalog, "the catalog has the child already").(*InvariantError)
		if r.inherited < 0 && r.header.IsSeeded {
			j.then(func() { r.pending = append(r.pending, finding) })
			return
		}
		j.err = finding
		return
	}
	j.then(func() { r.children[id] = struct{}{} })
}

func (j *judgement) crossCompaction() {
	c := j.r.compaction
	if c == nil || c.crossed != nil {
		return
	}
	finding := fail(j.ev, CodeCompaction, "the turn crosses an open compaction").(*InvariantError)
	j.then(func() { c.crossed = finding })
}

func (j *judgement) compact() {
	r := j.r
	if c := r.compaction; c != nil && c.crossed != nil && (j.ev.Type == "compaction/end" || j.ev.Type == "compaction/start") {
		// No session/end-seed orphaned the compaction in time.
		if j.err == nil {
			j.err = c.crossed
		}
		j.then(func() { c.crossed = nil })
	}
	turn := int64(0)
	rawTurn := j.member("turn")
	if KindOf(rawTurn) != KindNull {
		turn, _ = Count(rawTurn)
		if turn == 0 {
			turn = -1 // no turn that could be open
		}
	}
	switch j.ev.Type {
	case "compaction/start":
		if r.compaction != nil {
			j.found(CodeCompaction, "another compaction is open")
		} else if turn != r.turn {
			j.found(CodeCompaction, "the turn is not the open one")
		}
		c := &compactionState{id: scalarKey(j.member("compactionId")), command: scalarKey(j.member("sourceCommandId")), turn: turn}
		j.then(func() { r.compaction = c })
	case "compaction/summary":
		c := j.compactionOwner(j.ev.Data)
		if c == nil {
			return
		}
		if c.turn != r.turn {
			j.found(CodeCompaction, "the turn of the compaction is not the open one")
		} else if c.summarized {
			j.found(CodeCompaction, "a second summary")
		}
		j.span()
		j.then(func() { c.summarized = true })
	case "compaction/end":
		c := j.compactionOwner(j.ev.Data)
		if c == nil {
			return
		}
		switch {
		case turn != c.turn:
			j.found(CodeCompaction, "the end names another turn than the start")
		case c.turn != r.turn:
			j.found(CodeCompaction, "the turn of the compaction is not the open one")
		case j.member("error") == nil && !c.summarized:
			j.found(CodeCompaction, "a successful end needs a summary")
		}
		j.then(func() { r.compaction = nil })
	case "compaction/prune":
		j.span()
	}
}

func (j *judgement) compactionOwner(data []byte) *compactionState {
	c := j.r.compaction
	if c == nil || c.id != scalarKey(Member(data, "compactionId")) || c.command != scalarKey(Member(data, "sourceCommandId")) {
		j.found(CodeCompaction, "no open compaction of that id and command")
		return nil
	}
	return c
}

// span checks that shadowedSeqs are the nodes between the range's ends.
func (j *judgement) span() {
	r := j.r
	rng := j.member("shadowedRange")
	start, okStart := Count(Member(rng, "start"))
	end, okEnd := Count(Member(rng, "end"))
	from, to := r.position(start), r.position(end)
	list := j.member("shadowedSeqs")
	if !okStart || !okEnd || from < 0 || to < from || KindOf(list) != KindArray {
		if KindOf(list) != KindArray || !isEmpty(list) || r.d.toolRole {
			j.found(CodeCompactionSpan, "shadowedRange is no span of the surface")
		}
		return
	}
	at := from
	for a := WalkArray(list); a.Next(); at++ {
		seq, ok := Count(a.Value())
		if !ok || at > to || r.surface[at] != seq {
			j.found(CodeCompactionSpan, "shadowedSeqs are not the nodes of shadowedRange")
			return
		}
		if seq == r.head {
			j.found(CodeSystemHead, "a compaction shadows the system head")
		}
	}
	if at != to+1 {
		j.found(CodeCompactionSpan, "shadowedSeqs leave nodes of shadowedRange out")
	}
}

// position finds a live node, from the end: most replaces are near it.
func (r *Relations) position(seq int64) int {
	for i := len(r.surface) - 1; i >= 0; i-- {
		if r.surface[i] == seq {
			return i
		}
	}
	return -1
}

func (j *judgement) userMessage() {
	source := j.member("source")
	if op := j.ev.SurfaceOp; (op == nil || op.Replace) && j.r.d.compactSource.Matches(source) {
		j.compactionOwner(source)
	}
	if StringIs(Member(source, "kind"), "user") {
		sum, seq := humanText(j.member("content")), j.ev.Seq
		j.then(func() { j.r.humans[seq] = sum })
	}
}

// surface folds the event into the surface, as far as relations need it.
func (j *judgement) surface() {
	r, ev := j.r, j.ev
	if !r.d.IsSurface(ev.Type) {
		return
	}
	if ev.SurfaceOp == nil {
		code := CodeSurfaceOpMissing
		if ev.RawSurfaceOp != nil {
			code = CodeSurfaceOpMalformed
		}
		j.found(code, "want append or replace")
		j.stop = true
		return
	}
	seq := ev.Seq
	system := ev.Type == TypeSystemMessage
	if system && len(r.surface) > 0 && r.head < 0 {
		j.found(CodeSystemHead, "the first node is no system message")
	}
	if !ev.SurfaceOp.Replace {
		first := system && len(r.surface) == 0
		j.then(func() {
			r.surface = append(r.surface, seq)
			if first {
				r.head = seq
			}
		})
		return
	}
	from, to := r.position(ev.SurfaceOp.Start), r.position(ev.SurfaceOp.End)
	if from < 0 || to < from {
		j.found(CodeSurfaceSpan, "%d to %d is no span of the current surface", ev.SurfaceOp.Start, ev.SurfaceOp.End)
		j.stop = true
		return
	}
	r.cited = append(r.cited[:0], ev.SourceEventSeqs...)
	slices.Sort(r.cited)
	for _, s := range r.surface[from : to+1] {
		if _, ok := slices.BinarySearch(r.cited, s); !ok {
			j.found(CodeSurfaceSources, "sourceEventSeqs do not cite node %d", s)
		}
	}
	head := r.head >= 0 && from == 0 && r.surface[0] == r.head
	if head && (!system || to != from) {
		j.found(CodeSystemHead, "the system head yields only to a system/message over exactly it")
	}
	j.then(func() {
		r.surface[from] = seq
		r.surface = append(r.surface[:from+1], r.surface[to+1:]...)
		if head {
			r.head = seq
		}
	})
}
