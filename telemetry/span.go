package telemetry

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// openSpan is the part of a session that no summary speaks of yet. It is part of
// the cursor, so it is committed together with the records that it lists.
//
//	event ──▶ open span ──(turn ended, idle, shutdown, full)──▶ draft ──▶ summary
//	          in the cursor                      in the outbox, behind   when its
//	                                             the span's records      turn comes
//
// The outbox gives out the entries of a stream in order and to one lease at a
// time. So when the turn of the draft has come, what stands before it is
// settled, and the Sealer turns it into the summary. Capture has nothing to wait
// for and no state of records that wait.
type openSpan struct {
	number   uint64 // of the open span, from 1 on
	from     int64
	policy   string
	runs     []spanRun
	leaves   []Leaf // of the events with a record, in order
	attempts []spanAttempt
	turnEnd  bool // a turn has ended in it
	gen      *Generation
}

type spanRun struct {
	outcome Outcome
	n       int64
}

type spanAttempt struct {
	uid      string
	leaf     Leaf
	withheld bool
}

// Bounds of a span. Leaves stand in the cursor, which is written with every
// commit, so a span with many of them ends early.
const (
	spanEvents = 1000
	spanLeaves = 256
)

func (s *openSpan) empty() bool { return len(s.runs) == 0 }

func (s *openSpan) events() int64 {
	n := int64(0)
	for _, r := range s.runs {
		n += r.n
	}
	return n
}

// full tells whether a span has to end. One that has no record at all is a line
// or two however long it is.
func (s *openSpan) full() bool {
	if len(s.leaves)+len(s.attempts) >= spanLeaves {
		return true
	}
	return s.events() >= spanEvents && (len(s.leaves) > 0 || slices.ContainsFunc(s.runs, func(r spanRun) bool { return r.outcome.Records() || r.outcome == Elided }))
}

func (s *openSpan) add(seq int64, policy string, o Outcome, leaf Leaf) {
	if s.empty() {
		s.number++
		s.from, s.policy = seq, policy
	}
	if n := len(s.runs); n > 0 && s.runs[n-1].outcome == o {
		s.runs[n-1].n++
	} else {
		s.runs = append(s.runs, spanRun{o, 1})
	}
	if o == Delivered {
		s.leaves = append(s.leaves, leaf)
	}
}

// next is the span after this one.
func (s *openSpan) next() openSpan { return openSpan{number: s.number} }

// Outcomes as the cursor has them.
var spanOutcomes = [...]Outcome{Delivered, Withheld, Elided, Inherited, OutOfScope}

func (s *openSpan) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, s.number)
	var flags byte
	if s.turnEnd {
		flags |= 1
	}
	if s.gen != nil {
		flags |= 2
	}
	b = append(b, flags)
	if s.gen != nil {
		b = binary.AppendUvarint(b, uint64(s.gen.FromVersion))
		b = binary.AppendUvarint(b, uint64(s.gen.ToVersion))
		b = binary.AppendVarint(b, s.gen.LastSeq)
		b = binary.AppendVarint(b, s.gen.NextSeq)
	}
	b = binary.AppendUvarint(b, uint64(len(s.runs)))
	for _, r := range s.runs {
		b = append(b, byte(slices.Index(spanOutcomes[:], r.outcome)))
		b = binary.AppendUvarint(b, uint64(r.n))
	}
	if s.empty() {
		return b
	}
	b = binary.AppendUvarint(b, uint64(s.from))
	b = appendString(b, s.policy)
	for i := range s.leaves {
		b = append(b, s.leaves[i][:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(s.attempts)))
	for _, a := range s.attempts {
		b = appendString(b, a.uid)
		b = append(b, a.leaf[:]...)
		if a.withheld {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

func (in *reader) span() openSpan {
	s := openSpan{number: in.uvarint()}
	flags := in.byte()
	s.turnEnd = flags&1 != 0
	if flags&2 != 0 {
		s.gen = &Generation{FromVersion: int(in.uvarint()), ToVersion: int(in.uvarint()), LastSeq: in.varint(), NextSeq: in.varint()}
	}
	sent := uint64(0)
	for range in.count(2) {
		code, n := in.byte(), in.uvarint()
		if int(code) >= len(spanOutcomes) {
			in.fail()
			return s
		}
		s.runs = append(s.runs, spanRun{spanOutcomes[code], int64(n)})
		if spanOutcomes[code] == Delivered {
			sent += n
		}
	}
	if s.empty() {
		return s
	}
	s.from = int64(in.uvarint())
	s.policy = in.string()
	if sent > uint64(len(in.b)/len(Leaf{})) {
		in.fail()
		return s
	}
	s.leaves = make([]Leaf, sent)
	for i := range s.leaves {
		copy(s.leaves[i][:], in.take(len(Leaf{})))
	}
	for range in.count(len(Leaf{})) {
		a := spanAttempt{uid: in.string()}
		copy(a.leaf[:], in.take(len(Leaf{})))
		a.withheld = in.byte() == 1
		s.attempts = append(s.attempts, a)
	}
	return s
}

// summary is the span as a draft says it: everything that had a record counts
// as delivered, since nothing else is known yet.
func (s *openSpan) summary(id Identity) *Summary {
	id.Seq = s.from
	out := &Summary{
		Version: SummaryVersion, Span: s.number, FormatVersion: id.FormatVersion, Incarnation: id.Incarnation,
		From: s.from, FirstUID: id.UID(), Policy: s.policy, Generation: s.gen,
	}
	seq, leaves := s.from, s.leaves
	for _, r := range s.runs {
		run := SummaryRun{Outcome: r.outcome, From: seq, To: seq + r.n - 1}
		if r.outcome == Delivered {
			run.Leaves = make([]string, r.n)
			for i := range run.Leaves {
				run.Leaves[i] = leafText(leaves[i])
			}
			leaves = leaves[r.n:]
		}
		out.Runs = append(out.Runs, run)
		seq += r.n
	}
	out.To = seq - 1
	for _, a := range s.attempts {
		o := Delivered
		if a.withheld {
			o = Withheld
		}
		out.Attempts = append(out.Attempts, SummaryAttempt{UID: a.uid, Outcome: o, Leaf: leafText(a.leaf)})
	}
	return out
}

func leafText(l Leaf) string {
	if l == (Leaf{}) {
		return ""
	}
	return hex.EncodeToString(l[:])
}

// skipsUncovered: under FeedbackOnly nothing is told of events that are stepped over,
// since there may be no feedback behind them. They wait in the open span.
func (s *Session) skipsUncovered() bool { return s.c.cfg.Mode == FeedbackOnly && s.cur.skipping }

// beyondFeedback: under FeedbackOnly events were stepped over, or captured under a wider
// mode, that no feedback has covered yet.
func (s *Session) beyondFeedback() bool {
	return s.c.cfg.Mode == FeedbackOnly && s.cur.next > s.cur.feedback
}

// endSpan puts the draft of a summary of the open span into the batch, behind
// the records that it speaks of.
func (s *Session) endSpan(ctx context.Context) error {
	if s.cur.span.empty() || s.skipsUncovered() {
		return nil
	}
	draft, err := s.draft(ctx, s.ident, s.batch.stream, &s.cur.span)
	if err != nil {
		return err
	}
	s.batch.add(draft)
	s.cur.span = s.cur.span.next()
	return nil
}

// draft is the entry of a draft. Its number, and so its uid, is that of the
// summary that it becomes.
func (s *Session) draft(ctx context.Context, id Identity, stream string, sp *openSpan) (outbox.Entry, error) {
	sum := sp.summary(id)
	body, err := json.Marshal(sum)
	if err != nil {
		return outbox.Entry{}, err
	}
	rec, err := s.opsRecord(ctx, OpSummary, SeverityInfo, body, sum.To, sum.To)
	if err != nil {
		return outbox.Entry{}, err
	}
	rec.Identity = id
	rec = s.c.waterfall.ours(rec)
	payload, err := rec.AppendBinary(nil)
	return outbox.Entry{Key: append([]byte{keyDraft}, rec.UID...), Stream: stream, Payload: payload}, err
}

// Settle ends the open span, so that a summary speaks of everything that was
// captured: at a shutdown, or when a ledger will not grow any more. Without
// Config.Attest it does nothing.
func (s *Session) Settle(ctx context.Context) error { return s.rest(ctx, "") }

// Idle says once, in an ops record "session.idle", that the session has not grown
// for a while, and ends the open span. Under FeedbackOnly, where that would tell
// of what lies beyond the watermark, it is Settle.
func (s *Session) Idle(ctx context.Context) error { return s.rest(ctx, OpSessionIdle) }

// Ended is Idle for a session whose ledger is gone, or closed for good:
// "session.ended".
func (s *Session) Ended(ctx context.Context) error { return s.rest(ctx, OpSessionEnded) }

func (s *Session) rest(ctx context.Context, op string) error {
	if !s.c.cfg.Attest || s.key == "" || s.durable == nil {
		return nil // nothing was captured
	}
	if s.c.cfg.Mode != Full || !s.cur.opened {
		op = ""
	}
	level := restLevel(op)
	if level <= s.cur.rested {
		op, level = "", s.cur.rested
	}
	if op == "" && (s.cur.span.empty() || s.beyondFeedback()) {
		return nil
	}
	if s.awake == nil {
		s.sleep() // the cursor as it is committed
	}
	var p Progress
	err := s.endSpan(ctx)
	if err == nil && op != "" {
		s.cur.rested = level
		body := append(binaryInt([]byte(`{"last_seq":`), s.cur.next-1), '}')
		err = s.ops(ctx, op, SeverityInfo, body, s.cur.next-1)
	}
	if err == nil {
		err = s.flush(ctx, &p)
	}
	if err != nil {
		s.sleep()
	}
	return err
}

func restLevel(op string) byte {
	switch op {
	case OpSessionIdle:
		return 1
	case OpSessionEnded:
		return 2
	}
	return 0
}
