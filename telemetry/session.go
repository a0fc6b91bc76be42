package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// Session captures one session from its source.
//
//	asleep ──Pull, and the source has changed──▶ awake (a reading is open)
//	   ▲                                            │
//	   └───────────── Release, an error ────────────┘
//
// When it wakes up the ledger is replayed from its beginning to the cursor
// without exporting. That rebuilds the trace, the surface and the open stream,
// and compares the ledger's past with the digests in the cursor. Asleep it
// holds next to nothing. It is not safe for concurrent use.
type Session struct {
	c    *Capture
	src  Source
	opts SessionOptions

	header *session.Header
	key    string   // names the session in the outbox; "" before it is known
	ident  Identity // of the next record, but for its seq
	attrs  []attribute.KeyValue
	seed   int64 // inherited events

	cur       cursor
	durable   []byte   // the cursor as it is committed; nil before the first time
	accounted Outcomes // of cur, as the Capture has them
	now       string   // fingerprint of the source at the last Pull
	quiet     string   // the same, when nothing more was to be done
	short     string   // the same, when the source had less than was captured
	unknown   string   // code of the hold of a ledger whose header is not understood
	batch     batch
	met       Ledger // open since the session was met, and not read yet
	awake     *reading
	scout     *scout
	beyond    int64 // events beyond the watermark when the scout last looked
}

// ErrReplaced says that the source has another session now than it had when
// this Session was made, or none yet: make another Session for it. This one goes
// on with the file that it has open, as long as Reading says so.
var ErrReplaced = errors.New("the source has another session now")

// ErrShorter says that the source has less than was captured of it, and nothing
// else: it is being copied or unpacked, perhaps. What has not changed at the next
// Pull counts as diverged.
var ErrShorter = errors.New("the ledger has less than was captured of it")

// SessionOptions say how a session is captured.
type SessionOptions struct {
	// FromNow makes a session that is met for the first time start at its end.
	FromNow bool
	// Patient makes Pull give ErrShorter before it takes a ledger that is shorter
	// for one that has diverged.
	Patient bool
}

// Progress is what a Pull has come to.
type Progress struct {
	// SessionID is as records have it; "" where the header could not be read.
	SessionID string
	// Next is the seq of the first event that nothing is decided about.
	Next int64
	// Beyond counts events that were read and lie beyond the watermark.
	Beyond int64
	// Records counts the records that this Pull has committed.
	Records int
	// More is true when Pull stopped at its limit.
	More bool
	// Outcomes are those of the session since it was met.
	Outcomes Outcomes
}

// reading is an open ledger with everything that is rebuilt by replaying it.
type reading struct {
	led   Ledger
	adm   *admission
	proj  projector
	chain *chain
	genai *genAI // nil where it is not asked for

	path      path // as the cursor has it
	toEnd     bool // everything up to the present end is out of scope
	truncated int64
	events    int // since the last commit
}

// Session returns a Session that reads from src. Nothing is opened yet.
func (c *Capture) Session(src Source, opts SessionOptions) *Session {
	return &Session{c: c, src: src, opts: opts, batch: batch{c: c}}
}

// Pull captures what the source has beyond the cursor, as far as consent
// covers it, at most limit events of it (0: all). It waits while the outbox has
// no room.
//
// Errors: a *HeldError when the ledger cannot be understood, for as long as
// neither the ledger nor the program nor its vocabulary changes; ErrTaken; the
// context's; ErrShorter; or one of reading and writing, after which Pull may be called
// again. Nothing that was committed is lost or done twice. With fs.ErrNotExist and
// ErrReplaced all the same what the file had that is still open was captured: its
// writer may hold it too, so Pull gives what it gets, until Release.
func (s *Session) Pull(ctx context.Context, limit int) (Progress, error) {
	var p Progress
	if err := s.c.turns.take(ctx); err != nil {
		return p, err
	}
	defer s.c.turns.give()
	s.batch.turn = true
	defer func() { s.batch.turn = false }()
	err := s.pull(ctx, limit, &p)
	for range 2 {
		if !errors.Is(err, errChanging) {
			break
		}
		s.Release()
		err = s.pull(ctx, limit, &p)
	}
	if err != nil && !(errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrReplaced)) {
		s.sleep() // else what is open, if anything, may still grow
	}
	s.close()
	p.SessionID, p.Next, p.Outcomes = s.cur.id, s.cur.next, s.cur.outcomes
	if s.scout != nil {
		s.beyond = max(0, s.scout.adm.next()-s.cur.next)
	}
	p.Beyond = s.beyond
	return p, err
}

func (s *Session) pull(ctx context.Context, limit int, p *Progress) (failed error) {
	fingerprint, err := s.fingerprint()
	if err != nil {
		if s.awake == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// A file that was renamed or removed is still read to its end.
		defer func(gone error) { failed = cmp.Or(failed, gone) }(err)
	}
	s.now = fingerprint
	if s.awake == nil && s.rests(fingerprint) {
		return s.held()
	}
	if s.key == "" {
		if err := s.meet(); err != nil {
			return s.holdUnknown(ctx, err)
		}
		if s.rests(fingerprint) {
			return s.held()
		}
	}
	if held := s.cur.held; held != nil && held.Code == CodeOperator {
		return held
	}
	if s.durable == nil || s.cur.unplaced {
		if err := s.succeed(ctx, p); err != nil {
			return err
		}
	}
	if s.mustSkip() {
		if err := s.skipToEnd(ctx, p); err != nil {
			return err
		}
	}
	s.cur.epoch = s.c.cfg.Installation.Epoch
	watermark := int64(unbounded)
	if s.c.cfg.Mode == FeedbackOnly {
		if watermark, err = s.scan(ctx); err != nil {
			return err
		}
		if watermark < s.cur.next {
			// A cursor all the same: the session is known from now on, should
			// consent grow.
			if err := s.flush(ctx, p); err != nil {
				return err
			}
			if err := s.elsewhere(); err != nil {
				return err
			}
			s.quiet = fingerprint
			return s.held()
		}
	}
	if s.awake == nil {
		if err := s.wake(ctx, p); err != nil {
			return err
		}
	}
	if err := s.run(ctx, watermark, limit, p); err != nil {
		return err
	}
	// A turn that ends where the ledger ends for now ends the span; what is
	// behind makes larger spans.
	if !p.More && s.cur.span.turnEnd && !s.awake.turnOpen() {
		if err := s.endSpan(ctx); err != nil {
			return err
		}
	}
	if err := s.flush(ctx, p); err != nil {
		return err
	}
	if !p.More {
		if err := s.elsewhere(); err != nil {
			return err
		}
		s.quiet = fingerprint
	}
	return s.held()
}

// fingerprint is that of the source and of all else that decides what can be
// read from it.
func (s *Session) fingerprint() (string, error) {
	f, err := s.src.Fingerprint()
	if err != nil || f == "" {
		return "", err
	}
	return f + " " + s.c.profile, nil
}

// rests tells whether nothing more is to be done with the source as it is.
func (s *Session) rests(fingerprint string) bool {
	return fingerprint != "" && s.key != "" && !s.mustSkip() &&
		(s.quiet == fingerprint || s.cur.fingerprint == fingerprint)
}

// held is why the session is held, or nil.
func (s *Session) held() error {
	switch {
	case s.cur.held != nil:
		return s.cur.held
	case s.scout != nil && s.scout.held != nil:
		return s.scout.held
	}
	return nil
}

// meet learns which session the source has, and its cursor.
func (s *Session) meet() (err error) {
	led, err := s.src.Open()
	if err != nil {
		return heldBy(err, 0)
	}
	s.close()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.c.cfg.Mode == Full {
		s.met = led // it is read next
	} else {
		defer led.Close() // the scout goes first
	}
	header := *led.Header()
	key := sessionKey(s.c.cfg.Installation.Key, &header)
	if err := s.c.own(generations(key), s); err != nil {
		return err
	}
	id := validUTF8(header.ID)
	if red := s.c.cfg.Redaction; red != nil {
		id = red.sessionID(id)
	}
	s.header, s.key, s.batch.stream = &header, key, cursorPrefix+key
	s.ident = Identity{SessionID: id, CreatedAt: header.CreatedAt, FormatVersion: header.Version}
	if err := s.load(); err != nil {
		s.unmeet()
		return err
	}
	s.accounted = s.cur.outcomes
	return nil
}

// close closes what was opened to meet the session, if nobody has read it.
func (s *Session) close() {
	if s.met != nil {
		s.met.Close()
		s.met = nil
	}
}

// unmeet forgets which session the source has.
func (s *Session) unmeet() {
	if s.key != "" {
		s.c.disown(generations(s.key), s)
		s.key = ""
	}
}

// load reads the cursor as it is committed.
func (s *Session) load() error {
	value, ok := s.c.cfg.Outbox.Cursor(cursorPrefix + s.key)
	cur := cursor{epoch: s.c.cfg.Installation.Epoch}
	if !ok {
		value = nil
	} else {
		var err error
		if cur, err = decodeCursor(value); err != nil {
			return fmt.Errorf("cursor of session %s: %w", s.key, err)
		}
	}
	s.durable, s.cur = value, cur
	s.cur.id, s.cur.createdAt, s.cur.version = s.ident.SessionID, s.ident.CreatedAt, s.ident.FormatVersion
	s.ident.Incarnation = s.cur.incarnation
	return nil
}

// Release lets go of the open ledger and of all that can be rebuilt from it.
func (s *Session) Release() {
	s.sleep()
	s.scout.close()
	s.scout = nil
}

// Close releases the session and lets another source have it.
func (s *Session) Close() {
	s.Release()
	s.unmeet()
}

// sleep drops everything that is not committed.
func (s *Session) sleep() {
	s.close()
	if s.awake != nil {
		s.awake.led.Close()
		s.awake = nil
	}
	_, _ = s.batch.arrived() // whatever came of it, load tells
	s.batch = batch{c: s.c, stream: s.batch.stream, turn: s.batch.turn}
	if s.key == "" {
		return
	}
	// A commit whose end was not seen may have been made.
	if err := s.load(); err != nil {
		s.unmeet() // and nothing is captured on a guess
		return
	}
	s.c.account(&s.accounted, s.cur.outcomes)
}

// open starts a reading and the state that goes with it.
func (s *Session) open() (*reading, error) {
	led := s.met
	if s.met = nil; led == nil {
		var err error
		if led, err = s.src.Open(); err != nil {
			return nil, heldBy(err, s.cur.next)
		}
	}
	adm, err := newAdmission(led.Header(), s.c.cfg.EventTypes)
	if err == nil && sessionKey(s.c.cfg.Installation.Key, led.Header()) != s.key {
		err = ErrReplaced
	}
	if err == nil {
		if s.seed, err = s.src.Inherited(); err != nil {
			err = heldBy(err, s.cur.next)
		}
	}
	if err != nil {
		led.Close()
		return nil, err
	}
	s.attrs = s.headerAttributes()
	r := &reading{
		led: led, adm: adm,
		proj:  projector{dialect: adm.dialect},
		chain: newChain(s.c.cfg.Installation.Key),
	}
	if s.c.cfg.GenAI {
		r.genai = newGenAI(adm.dialect)
	}
	return r, nil
}

// headerAttributes are those that all records of the session have.
func (s *Session) headerAttributes() []attribute.KeyValue {
	var kvs []attribute.KeyValue
	if s.header.Cwd != nil {
		kvs = append(kvs, attribute.String(KeyCwd, *s.header.Cwd))
	}
	if s.header.ParentSession != nil {
		kvs = append(kvs, attribute.String(KeyParentID, *s.header.ParentSession))
	}
	switch {
	case s.header.SeedLength != nil:
		kvs = append(kvs, attribute.Int64(KeySeedLength, *s.header.SeedLength))
	case s.header.IsSeeded:
		kvs = append(kvs, attribute.Int64(KeySeedLength, s.seed))
	}
	return kvs
}

// wake opens the ledger and replays it to the cursor, from its last common
// point with what was captured if it has another past now.
func (s *Session) wake(ctx context.Context, p *Progress) error {
	for {
		r, err := s.open()
		if err != nil {
			return s.hold(ctx, err, p)
		}
		common, shorter, err := s.replay(ctx, r)
		if err == nil && common < 0 {
			s.awake, s.short = r, ""
			s.cur.path = r.path
			return nil
		}
		r.led.Close()
		if err != nil {
			return s.hold(ctx, err, p)
		}
		if shorter && s.opts.Patient && s.short != s.now {
			s.short = s.now
			return ErrShorter
		}
		if err := s.diverged(ctx, common, p); err != nil {
			return err
		}
	}
}

// replay takes r to the cursor without exporting, and compares digests on the
// way. It returns -1 when the ledger has the past that was captured, or else
// the length of the last common part, and whether the rest is missing and not
// another one.
func (s *Session) replay(ctx context.Context, r *reading) (common int64, shorter bool, err error) {
	points := s.cur.points
	differs := false
	for r.adm.next() < s.cur.next && !differs {
		if r.adm.next()&1023 == 0 && ctx.Err() != nil {
			return 0, false, ctx.Err()
		}
		if !r.led.Next() {
			if err := r.led.Err(); err != nil && !truncated(err) {
				return 0, false, heldBy(err, r.adm.next())
			}
			return common, true, nil
		}
		ev := r.led.Event()
		if err := r.adm.admit(ev); err != nil {
			return 0, false, err
		}
		if r.proj.observe(ev, false).attempt || ev.Seq < s.cur.from {
			r.proj.forget()
		}
		r.genai.observe(ev, s.cur.from)
		r.digest(ev)
		if len(points) > 0 && points[0].n == r.chain.n {
			// Under another line limit other lines are incomplete, and digests
			// say nothing.
			if points[0] == r.chain.here() || r.truncated != s.cur.truncatedAt(r.chain.n) {
				common = points[0].n
			} else {
				differs = true
			}
			points = points[1:]
		}
	}
	if differs {
		return common, false, nil
	}
	return -1, false, nil
}

func truncated(err error) bool {
	var cut *jsonl.TruncatedError
	return errors.As(err, &cut)
}

// digest takes an event into the chain.
func (r *reading) digest(ev *session.Event) {
	if ev.DataTruncated {
		r.truncated++
	}
	r.chain.add(ev)
	r.path.add(r.adm.dialect, ev)
	if ev.Type == session.TypeTurnEnd {
		r.chain.turnEnded()
	}
}

// mustSkip tells whether configuration or consent say that what stands in the
// ledger now is not for us.
func (s *Session) mustSkip() bool {
	if s.key == "" {
		return false
	}
	if s.durable == nil {
		return s.opts.FromNow
	}
	return s.cur.skipping || s.cur.epoch != s.c.cfg.Installation.Epoch && !s.c.cfg.CatchUp
}

// skipToEnd moves the cursor to the present end. All events up to there are out
// of scope.
func (s *Session) skipToEnd(ctx context.Context, p *Progress) error {
	if s.awake == nil {
		if err := s.wake(ctx, p); err != nil {
			return err
		}
	}
	before := s.cur.outcomes.OutOfScope
	// The end may only be reached by another process, or when a hold is over.
	s.cur.skipping = true
	s.awake.toEnd = true
	if err := s.run(ctx, unbounded, 0, p); err != nil {
		return err
	}
	s.awake.toEnd = false
	s.cur.skipping, s.cur.epoch = false, s.c.cfg.Installation.Epoch
	if n := s.cur.outcomes.OutOfScope - before; n > 0 && s.c.cfg.Mode == Full {
		body := fmt.Appendf(nil, `{"events":%d,"next":%d}`, n, s.cur.next)
		if err := s.ops(ctx, OpOutOfScope, SeverityInfo, body, s.cur.next); err != nil {
			return err
		}
	}
	return s.flush(ctx, p)
}

// Bounds of one batch. A batch is also committed when there is nothing more to
// read.
const (
	batchRecords = 512
	batchBytes   = 768 << 10 // with one record of the default limit still below 2 MiB
	batchEvents  = 1 << 15
)

// politeEvents is after how many events a session lets others go first. Capture
// has always something to do and delivery mostly waits, for a disk or a receiver:
// without it each of its steps waits for a time slice of capture's, and half of
// the records are still there when the ledgers have been read.
const politeEvents = 32

// run captures up to the watermark, the limit or the ledger's end. What it has
// put into the batch last is to be flushed.
func (s *Session) run(ctx context.Context, watermark int64, limit int, p *Progress) error {
	for n := 0; ; n++ {
		r := s.awake
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.adm.next() > watermark {
			if s.scout != nil && s.scout.feedback == watermark && s.scout.mark != r.chain.h {
				return errChanging // what was read is not what consent was given for
			}
			break
		}
		if p.More = limit > 0 && n >= limit; p.More {
			break
		}
		if n%politeEvents == politeEvents-1 {
			runtime.Gosched()
		}
		if r.led.Next() {
			if err := s.event(ctx, r.led.Event(), watermark); err != nil {
				return s.hold(ctx, err, p)
			}
			if s.batch.full() || r.events >= batchEvents {
				if err := s.send(ctx, p); err != nil {
					return err
				}
			}
			continue
		}
		err := r.led.Err()
		if err == nil {
			if s.now == "" || !replaced(r.led) {
				s.cur.fingerprint = s.now
				break
			}
			if !s.there() {
				return cmp.Or(s.flush(ctx, p), ErrReplaced)
			}
		}
		if err != nil && !truncated(err) {
			return s.hold(ctx, heldBy(err, r.adm.next()), p)
		}
		// The past may be another one: read again from the start and compare.
		toEnd := r.toEnd
		if err := s.flush(ctx, p); err != nil {
			return err
		}
		s.sleep()
		if s.scout != nil {
			return errChanging // and how far consent goes has to be seen anew
		}
		if err := s.wake(ctx, p); err != nil {
			return err
		}
		s.awake.toEnd = toEnd
	}
	s.cur.held = nil
	return nil
}

// there tells whether the source has this session.
func (s *Session) there() bool {
	led, err := s.src.Open()
	if err != nil {
		return false
	}
	defer led.Close()
	return sessionKey(s.c.cfg.Installation.Key, led.Header()) == s.key
}

// Reading tells whether a ledger is open.
func (s *Session) Reading() bool { return s.awake != nil }

// replaced tells whether a path leads to another file than the one being read,
// which has been read to its end.
func replaced(led Ledger) bool {
	file, ok := led.(interface{ Replaced() (bool, error) })
	if !ok {
		return false
	}
	yes, err := file.Replaced()
	return err == nil && yes
}

// event takes the next event: judged, folded, and turned into a record when it
// is in scope.
func (s *Session) event(ctx context.Context, ev *session.Event, watermark int64) error {
	r := s.awake
	export, inherited := s.inScope(ev), ev.Seq < s.seed
	if export && inherited {
		s.decideInherited()
		export = s.cur.inherited == inheritExport
	}
	if export && s.c.cfg.Attest && !s.cur.opened {
		if err := s.opened(ctx, ev.Seq); err != nil {
			return err
		}
	}
	isAnswer := ev.Type == session.TypeAssistantMessage || ev.Type == session.TypeAssistantAttempt
	var seen SurfaceFacts
	if export && (isAnswer || r.proj.endsAttempt(ev)) {
		seen = r.seen()
	}
	if err := r.adm.admit(ev); err != nil {
		return err
	}
	pr := r.proj.observe(ev, export)
	if pr.attempt && export {
		if err := s.attempt(ctx, ev, seen, watermark); err != nil {
			return err
		}
	}
	if !isAnswer {
		seen = SurfaceFacts{}
	}
	out := &s.cur.outcomes
	out.Read++
	fate, leaf := Elided, Leaf{}
	switch {
	case export && pr.elided:
		out.Elided++
	case export:
		var withheld bool
		var err error
		withheld, leaf, err = s.batch.putEvent(ctx, &event{
			Event: ev, dialect: r.adm.dialect, isSurface: r.adm.isSurface(ev.Type),
			body: pr.body, seen: seen, inherited: inherited,
			ident: s.ident, attrs: r.genai.attributes(s.attrs, s.ident.SessionID, ev, pr.body), session: s.key,
			consent: consent{s.c.cfg.Mode, watermark},
		})
		if err != nil {
			return err
		}
		if fate = Delivered; withheld {
			fate = Withheld
			out.Withheld++
		} else {
			out.Exported++
		}
	case inherited && s.cur.inherited == inheritSkip:
		fate = Inherited
		out.Inherited++
		r.proj.forget()
	default:
		fate = OutOfScope
		out.OutOfScope++
		s.cur.from = ev.Seq + 1
		r.proj.forget()
	}
	r.genai.observe(ev, s.cur.from)
	r.digest(ev)
	if ev.DataTruncated {
		s.cur.truncated = append(s.cur.truncated, ev.Seq)
	}
	switch {
	case ev.Type == session.TypeTurnEnd:
		s.cur.points = thin(append(s.cur.points, r.chain.here()))
	case ev.Type == session.TypeEndSeed:
		s.cur.lifetime = ev.Seq + 1
	case ev.Type == session.TypeFeedbackRecord && !inherited:
		s.cur.feedback = ev.Seq + 1
	}
	s.cur.next = ev.Seq + 1
	s.cur.path, s.cur.rested = r.path, 0
	r.events++
	return s.attest(ctx, ev, fate, leaf)
}

// attest takes an event into the open span.
func (s *Session) attest(ctx context.Context, ev *session.Event, fate Outcome, leaf Leaf) error {
	if !s.c.cfg.Attest {
		return nil
	}
	sp := &s.cur.span
	if !sp.empty() && sp.policy != s.c.policy {
		// What was captured before the policy changed: this event was not.
		if err := s.endSpan(ctx); err != nil {
			return err
		}
	}
	sp.add(ev.Seq, s.c.policy, fate, leaf)
	if ev.Type == session.TypeTurnEnd {
		sp.turnEnd = true
	}
	if sp.full() {
		return s.endSpan(ctx)
	}
	return nil
}

// turnOpen tells whether the ledger stands within a turn.
func (r *reading) turnOpen() bool {
	_, open := r.adm.trace.OpenTurn()
	return open
}

// opened says that from an event on the session is captured.
func (s *Session) opened(ctx context.Context, seq int64) error {
	body := append(binaryInt([]byte(`{"format_version":`), int64(s.ident.FormatVersion)), `,"first_seq":`...)
	body = append(binaryInt(body, seq), '}')
	s.cur.opened = true
	return s.ops(ctx, OpSessionOpened, SeverityInfo, body, seq)
}

func binaryInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

// inScope tells whether configuration and consent let an event out.
func (s *Session) inScope(ev *session.Event) bool {
	if s.awake.toEnd {
		return false
	}
	return s.scout == nil || s.c.cfg.FeedbackScope != ScopeLifetime || ev.Seq >= s.scout.lifetime
}

// seen is what the model has seen so far.
func (r *reading) seen() SurfaceFacts {
	return SurfaceFacts{
		Seen: true, Nodes: int64(r.adm.surf.Len()),
		ReplaceGeneration: r.adm.surf.ReplaceGeneration(),
		ContentGeneration: r.adm.surf.ContentGeneration(),
		Hash:              r.adm.surf.Hash(),
	}
}

// attempt puts the record of an attempt that ends with ev into the batch.
func (s *Session) attempt(ctx context.Context, ev *session.Event, seen SurfaceFacts, watermark int64) error {
	body, lastMs, ok := s.awake.proj.takeAttempt()
	rec, err := s.opsRecord(ctx, OpAttempt, SeverityInfo, body, ev.Seq, watermark)
	if err != nil {
		return err
	}
	rec.TimeMs, rec.Surface = lastMs, seen
	rec.Inherited = ev.Seq < s.seed
	rec.Attributes = s.awake.genai.opsAttempt(s.ident.SessionID, body)
	if !ok {
		rec.Withheld = ReasonTooLarge
	}
	withheld, leaf, err := s.batch.put(ctx, rec, opsKey(rec.UID))
	if err != nil {
		return err
	}
	if s.c.cfg.Attest {
		s.cur.span.attempts = append(s.cur.span.attempts, spanAttempt{rec.UID, leaf, withheld})
	}
	s.cur.outcomes.Attempts++
	return nil
}

// ops puts an ops record about the session into the batch. It speaks of nothing
// from the event with seq about on.
func (s *Session) ops(ctx context.Context, op string, severity Severity, body []byte, about int64) error {
	rec, err := s.opsRecord(ctx, op, severity, body, about, about)
	if err != nil {
		return err
	}
	_, _, err = s.batch.put(ctx, rec, opsKey(rec.UID))
	return err
}

func (s *Session) opsRecord(ctx context.Context, op string, severity Severity, body []byte, about, watermark int64) (*Record, error) {
	rec, err := s.c.Trail().record(ctx, op, severity, body)
	if err != nil {
		return nil, err
	}
	rec.SessionScoped, rec.Identity = true, s.ident
	rec.about, rec.consent = about, consent{s.c.cfg.Mode, watermark}
	return rec, nil
}

// flush commits the batch and the cursor, and others with it.
func (s *Session) flush(ctx context.Context, p *Progress, others ...outbox.Cursor) error {
	if err := s.arrived(p); err != nil {
		return err
	}
	value := s.encodeCursor()
	if s.batch.len() == 0 && len(others) == 0 && bytes.Equal(value, s.durable) {
		return nil
	}
	s.begin(ctx, value, others...)
	return s.arrived(p)
}

// send is flush that does not wait for the disk: the session reads on meanwhile.
func (s *Session) send(ctx context.Context, p *Progress) error {
	if err := s.arrived(p); err != nil {
		return err
	}
	s.begin(ctx, s.encodeCursor())
	return nil
}

func (s *Session) begin(ctx context.Context, cursor []byte, others ...outbox.Cursor) {
	w := s.batch.send(ctx, append(others, outbox.Cursor{Key: cursorPrefix + s.key, Value: cursor})...)
	w.cursor, w.outcomes = cursor, s.cur.outcomes
	if s.awake != nil {
		s.awake.events = 0
	}
}

// arrived waits for what was sent. After an error the session sleeps: what is
// committed is known when the cursor has been loaded again.
func (s *Session) arrived(p *Progress) error {
	w, err := s.batch.arrived()
	if err != nil {
		s.sleep()
	}
	if w == nil {
		return err
	}
	s.c.account(&s.accounted, w.outcomes)
	s.durable = w.cursor
	p.Records += len(w.entries)
	w.free()
	return nil
}

// encodeCursor is the cursor with the points of the open turn.
func (s *Session) encodeCursor() []byte {
	c := s.cur
	if s.awake != nil {
		c.points = s.awake.chain.points(s.cur.points)
	}
	return c.encode()
}

// hold notes that the ledger cannot be understood. What stood before is
// committed; the ops record goes out once. Errors of other kinds come back as
// they are.
func (s *Session) hold(ctx context.Context, cause error, p *Progress) error {
	var held *HeldError
	if !errors.As(cause, &held) {
		return cause
	}
	known := s.cur.held != nil && s.cur.held.Code == held.Code && s.cur.held.Seq == held.Seq
	s.cur.held = &HeldError{Code: held.Code, Seq: held.Seq}
	s.cur.fingerprint = s.now
	if !known && s.c.cfg.Mode == Full {
		body := appendJSONString([]byte(`{"code":`), held.Code)
		body = fmt.Appendf(body, `,"seq":%d}`, held.Seq)
		if err := s.ops(ctx, OpSessionHeld, SeverityWarn, body, held.Seq); err != nil {
			return err
		}
	}
	if err := s.flush(ctx, p); err != nil {
		return err
	}
	return held
}

// holdUnknown says, once, that not even the header can be understood. There is
// no session to name then, and no cursor to note it in.
func (s *Session) holdUnknown(ctx context.Context, cause error) error {
	var held *HeldError
	if !errors.As(cause, &held) || s.c.cfg.Mode != Full || s.unknown == held.Code {
		return cause
	}
	body := appendJSONString([]byte(`{"code":`), held.Code)
	if err := s.c.EmitOps(ctx, OpSessionHeld, SeverityWarn, append(body, `,"seq":0}`...)); err != nil {
		return err
	}
	s.unknown = held.Code
	return cause
}

// diverged goes on under another incarnation from the last common point, or
// holds the session there.
func (s *Session) diverged(ctx context.Context, common int64, p *Progress) error {
	if s.c.cfg.HoldOnDivergence && !s.cur.accepted {
		return s.hold(ctx, &HeldError{Code: CodeDiverged, Seq: common}, p)
	}
	captured := s.cur.next
	if err := s.endSpan(ctx); err != nil {
		return err
	}
	s.rewind(common)
	s.cur.incarnation++
	s.ident.Incarnation = s.cur.incarnation
	s.cur.accepted, s.cur.held = false, nil
	body := fmt.Appendf(nil, `{"last_common_seq":%d,"captured_seq":%d,"incarnation":%d}`, common-1, captured-1, s.cur.incarnation)
	if err := s.ops(ctx, OpSessionDiverged, SeverityWarn, body, common); err != nil {
		return err
	}
	return s.flush(ctx, p)
}

// rewind takes the cursor back to seq.
func (s *Session) rewind(seq int64) {
	s.cur.next = seq
	s.cur.from = min(s.cur.from, seq)
	if s.cur.feedback > seq {
		s.cur.feedback = 0
	}
	s.cur.lifetime = min(s.cur.lifetime, seq)
	s.cur.points = slices.DeleteFunc(slices.Clone(s.cur.points), func(p point) bool { return p.n > seq })
	s.cur.truncated = slices.DeleteFunc(slices.Clone(s.cur.truncated), func(t int64) bool { return t >= seq })
	s.cur.fingerprint, s.quiet = "", ""
}
