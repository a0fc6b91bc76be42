package telemetry

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// SealOutbox is what a Sealer needs of an outbox.Outbox.
type SealOutbox interface {
	Outbox
	Stats() outbox.Stats
	ScanStates(fn func(outbox.Info) bool, states ...outbox.State) error
	Damaged() []outbox.Damage
}

// Sealer turns the draft of a summary into the summary, when all events of its
// span are settled: it tells the outcomes apart, links it to the summary before
// it and signs it. The summary and the place in the chain are committed
// together, so that a span has one summary whatever crashes when.
//
// Who delivers from an outbox that a Capture with Config.Attest fills has to
// keep drafts back: entries for which IsDraft is true are never sent, but sealed
// when the entries before them in their stream are settled, and then
// acknowledged. It is safe for concurrent use, for drafts of different streams.
type Sealer struct {
	outbox SealOutbox
	key    ed25519.PrivateKey
	id     string // of the key
	policy string
	tap    func(*Record)

	mu      sync.Mutex
	scanned bool
	trouble map[string]bool // streams that have entries in quarantine, or held
	sealed  int64
}

// NewSealer returns a sealer for the drafts of c in o, the outbox of c.
func (c *Capture) NewSealer(o SealOutbox) *Sealer {
	key := c.cfg.Installation.signer()
	return &Sealer{
		outbox: o, key: key, id: KeyID(key.Public().(ed25519.PublicKey)), policy: c.policy,
		tap: c.cfg.Tap, trouble: make(map[string]bool),
	}
}

const keyDraft = 'd'

// IsDraft tells the drafts of summaries by the keys of their entries.
func IsDraft(key []byte) bool { return len(key) > 0 && key[0] == keyDraft }

func (s *Sealer) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed += int64(n)
}

// Sealed counts the drafts that this Sealer found, or made, a summary of: so many
// entries were acknowledged that no receiver has got.
func (s *Sealer) Sealed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sealed
}

// Troubled tells the sealer that an entry of a stream went into quarantine.
func (s *Sealer) Troubled(stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble[stream] = true
}

// sealPrefix starts the keys of the cursors that say how far a stream's summaries
// have come; discardPrefix of those that say what an operator has given up.
const (
	sealPrefix    = "summary/"
	discardPrefix = "discarded/"
)

// chainEnd is the end of a stream's chain of summaries.
type chainEnd struct {
	span uint64
	hash string
}

func (s *Sealer) chainEnd(stream string) (chainEnd, error) {
	v, ok := s.outbox.Cursor(sealPrefix + stream)
	if !ok {
		return chainEnd{}, nil
	}
	in := reader{b: v}
	e := chainEnd{in.uvarint(), in.string()}
	if in.bad {
		return e, fmt.Errorf("%s%s: %w", sealPrefix, stream, errCursor)
	}
	return e, nil
}

// Seal commits the summary of a draft; the caller then acknowledges the draft. A
// draft that was sealed before is fine. It does not wait for room: the error
// wraps outbox.ErrFull then, and Seal may be called again.
func (s *Sealer) Seal(ctx context.Context, draft outbox.Leased) error {
	_, err := s.SealAll(ctx, []outbox.Leased{draft})
	return err
}

// sealBytes is how much SealAll commits at once, about.
const sealBytes = 768 << 10

// SealAll is Seal for drafts in the order of their streams: they share a sync. It
// returns how many of them, from the first on, are sealed; an error speaks of the
// next one.
func (s *Sealer) SealAll(ctx context.Context, drafts []outbox.Leased) (sealed int, err error) {
	for sealed < len(drafts) && err == nil {
		var n int
		n, err = s.sealSome(ctx, drafts[sealed:], sealBytes)
		if errors.Is(err, outbox.ErrFull) && n == 0 {
			n, err = s.sealSome(ctx, drafts[sealed:], 0) // there may be room for one
		}
		sealed += n
	}
	return sealed, err
}

// sealSome commits the summaries of the first drafts, of at least one, in one
// batch.
func (s *Sealer) sealSome(ctx context.Context, drafts []outbox.Leased, limit int) (sealed int, err error) {
	b := sealBatch{s: s, streams: make(map[string]*sealState)}
	n := 0
	for n < len(drafts) && (n == 0 || b.bytes < limit) {
		if err = b.add(drafts[n]); err != nil {
			break
		}
		n++
	}
	if n == 0 {
		return 0, err
	}
	if cerr := b.commit(ctx); cerr != nil {
		return 0, cerr
	}
	s.count(n)
	return n, err
}

// sealBatch is summaries that are committed together.
type sealBatch struct {
	s       *Sealer
	streams map[string]*sealState
	order   []string // of streams
	entries []outbox.Entry
	tapped  []Record
	bytes   int
}

// sealState is what a stream's cursors say with the batch.
type sealState struct {
	end       chainEnd
	discarded []seqRange
	moved     bool // the end has
	changed   bool // discarded has
}

func (b *sealBatch) stream(name string) (*sealState, error) {
	if st := b.streams[name]; st != nil {
		return st, nil
	}
	end, err := b.s.chainEnd(name)
	if err != nil {
		return nil, err
	}
	st := &sealState{end: end}
	if v, ok := b.s.outbox.Cursor(discardPrefix + name); ok {
		st.discarded, _ = decodeRanges(v) // one that is broken says nothing
	}
	b.streams[name] = st
	b.order = append(b.order, name)
	return st, nil
}

// add puts the summary of a draft into the batch, if it has none yet.
func (b *sealBatch) add(draft outbox.Leased) error {
	rec, err := DecodeRecord(draft.Payload)
	if err != nil {
		return err
	}
	sum, err := ParseSummary(rec.Body)
	if err != nil {
		return err
	}
	st, err := b.stream(draft.Stream)
	if err != nil || sum.Span <= st.end.span {
		return err
	}
	fates, err := b.s.fates(draft.Stream, sum)
	if err != nil {
		return err
	}
	discarded, left := splitRanges(st.discarded, sum.Incarnation, sum.To)
	for _, r := range discarded {
		for seq := max(r.from, sum.From); seq <= min(r.to, sum.To); seq++ {
			fates.seqs[seq] = Discarded
		}
	}
	sum.Runs = fates.apply(sum.Runs)
	for i, a := range sum.Attempts {
		if o, ok := fates.uids[a.UID]; ok {
			sum.Attempts[i].Outcome = o
		}
	}
	sum.Previous, sum.Key = st.end.hash, b.s.id
	body, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	if rec.Body, err = SignBody(b.s.key, OpSummary, body); err != nil {
		return err
	}
	payload, err := rec.AppendBinary(nil)
	if err != nil {
		return err
	}
	st.end, st.moved = chainEnd{sum.Span, BodyHash(rec.Body)}, true
	if len(discarded) > 0 {
		st.discarded, st.changed = left, true
	}
	b.entries = append(b.entries, outbox.Entry{Key: opsKey(rec.UID), Stream: draft.Stream, Payload: payload})
	b.bytes += len(payload)
	if b.s.tap != nil {
		b.tapped = append(b.tapped, rec)
	}
	return nil
}

// commit makes the summaries durable together with the ends of their chains.
func (b *sealBatch) commit(ctx context.Context) error {
	if len(b.entries) == 0 {
		return nil // all were sealed before
	}
	// The draft goes when its summary is there, and its segment with it.
	batch := outbox.Batch{Entries: b.entries, Urgent: true}
	for _, name := range b.order {
		st := b.streams[name]
		if st.moved {
			value := appendString(binary.AppendUvarint(nil, st.end.span), st.end.hash)
			batch.Cursors = append(batch.Cursors, outbox.Cursor{Key: sealPrefix + name, Value: value})
		}
		if st.changed {
			batch.Cursors = append(batch.Cursors, outbox.Cursor{Key: discardPrefix + name, Value: encodeRanges(st.discarded)})
		}
	}
	if _, err := b.s.outbox.Commit(ctx, &batch); err != nil {
		return err
	}
	for i := range b.tapped {
		b.s.tap(&b.tapped[i])
	}
	return nil
}

// fates are the events and ops records whose outcome is not that of the draft.
type fates struct {
	seqs map[int64]Outcome
	uids map[string]Outcome
}

// fates looks for what is in quarantine, held or damaged; mostly nothing is.
func (s *Sealer) fates(stream string, sum *Summary) (fates, error) {
	f := fates{seqs: map[int64]Outcome{}, uids: map[string]Outcome{}}
	note := func(key []byte, o Outcome) {
		if k, ok := ParseEventKey(key); ok {
			if k.Incarnation == sum.Incarnation && sum.From <= k.Seq && k.Seq <= sum.To {
				f.seqs[k.Seq] = o
			}
		} else if len(key) > 0 && key[0] == keyOps {
			f.uids[string(key[1:])] = o
		}
	}
	stats := s.outbox.Stats()
	if stats.Damaged > 0 {
		for _, d := range s.outbox.Damaged() {
			if d.Stream == stream {
				note(d.Key, Damaged)
			}
		}
	}
	if stats.Quarantined == 0 && stats.Held == 0 {
		return f, nil
	}
	s.mu.Lock()
	scanned, troubled := s.scanned, s.trouble[stream]
	s.mu.Unlock()
	if scanned && !troubled {
		return f, nil
	}
	err := s.outbox.ScanStates(func(i outbox.Info) bool {
		if !scanned {
			s.Troubled(i.Stream)
		}
		if i.Stream == stream {
			o := Quarantined
			if i.State == outbox.Held {
				o = OnHold
			}
			note(i.Key, o)
		}
		return true
	}, outbox.Quarantined, outbox.Held)
	if err != nil {
		return f, err
	}
	s.mu.Lock()
	s.scanned = true
	s.mu.Unlock()
	return f, nil
}

// apply takes the runs apart where an event had another outcome.
func (f *fates) apply(runs []SummaryRun) []SummaryRun {
	if len(f.seqs) == 0 {
		return runs
	}
	var out []SummaryRun
	for _, r := range runs {
		for seq := r.From; seq <= r.To; seq++ {
			o, other := f.seqs[seq]
			if !other || !r.Outcome.Records() {
				o = r.Outcome
			}
			n := len(out)
			same := n > 0 && out[n-1].To == seq-1 && out[n-1].Outcome == o && (len(out[n-1].Leaves) > 0) == (len(r.Leaves) > 0)
			if !same {
				out = append(out, SummaryRun{Outcome: o, From: seq})
				n++
			}
			out[n-1].To = seq
			if len(r.Leaves) > 0 {
				out[n-1].Leaves = append(out[n-1].Leaves, r.Leaves[seq-r.From])
			}
		}
	}
	return out
}

// seqRange is events of one incarnation in a row.
type seqRange struct {
	incarnation uint32
	from, to    int64
}

// EntryKey is the stream and the key of an entry of an outbox.
type EntryKey struct {
	Stream string
	Key    []byte
}

// Discarding is to be called before an operator gives up entries of the outbox:
// the summaries of their spans say so then, as far as they are not made yet. Those
// that are not given up after all are to be Kept. The error is the outbox's.
func (t *Trail) Discarding(ctx context.Context, entries []EntryKey) error {
	return t.noteDiscarded(ctx, entries, addRange)
}

// Kept takes back what Discarding has noted of entries. The error is the outbox's.
func (t *Trail) Kept(ctx context.Context, entries []EntryKey) error {
	return t.noteDiscarded(ctx, entries, removeRange)
}

func (t *Trail) noteDiscarded(ctx context.Context, entries []EntryKey, change func([]seqRange, seqRange) []seqRange) error {
	o := t.outbox
	events := map[string][]seqRange{}
	for _, e := range entries {
		if k, ok := ParseEventKey(e.Key); ok && strings.HasPrefix(e.Stream, cursorPrefix) {
			events[e.Stream] = addRange(events[e.Stream], seqRange{k.Incarnation, k.Seq, k.Seq})
		}
	}
	var b outbox.Batch
	for stream, more := range events {
		v, _ := o.Cursor(discardPrefix + stream)
		all, err := decodeRanges(v)
		if err != nil {
			return err
		}
		for _, r := range more {
			all = change(all, r)
		}
		b.Cursors = append(b.Cursors, outbox.Cursor{Key: discardPrefix + stream, Value: encodeRanges(all)})
	}
	if len(b.Cursors) == 0 {
		return nil
	}
	// To give something up must be possible when there is no room: what the
	// summaries then do not say stands in the ops record of the action.
	if _, err := o.Commit(ctx, &b); err != nil && !errors.Is(err, outbox.ErrFull) {
		return err
	}
	return nil
}

// addRange adds a range behind or beside those that are there.
func addRange(list []seqRange, r seqRange) []seqRange {
	if n := len(list); n > 0 && list[n-1].incarnation == r.incarnation && list[n-1].to+1 == r.from {
		list[n-1].to = r.to
		return list
	}
	return append(list, r)
}

// removeRange takes a range out of those that are there.
func removeRange(list []seqRange, r seqRange) []seqRange {
	var out []seqRange
	for _, l := range list {
		if l.incarnation != r.incarnation || l.to < r.from || r.to < l.from {
			out = append(out, l)
			continue
		}
		if l.from < r.from {
			out = append(out, seqRange{l.incarnation, l.from, r.from - 1})
		}
		if r.to < l.to {
			out = append(out, seqRange{l.incarnation, r.to + 1, l.to})
		}
	}
	return out
}

// splitRanges takes what an operator has given up apart: of a span that ends at to,
// and of later ones.
func splitRanges(all []seqRange, incarnation uint32, to int64) (mine, left []seqRange) {
	for _, r := range all {
		switch {
		case r.incarnation > incarnation || r.incarnation == incarnation && r.from > to:
			left = append(left, r)
			continue
		case r.incarnation == incarnation:
			mine = append(mine, r)
			if r.to > to {
				left = append(left, seqRange{r.incarnation, to + 1, r.to})
			}
		}
	}
	return mine, left
}

// encodeRanges is nil for none, so that the cursor goes.
func encodeRanges(list []seqRange) []byte {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b seqRange) int {
		if a.incarnation != b.incarnation {
			return int(a.incarnation) - int(b.incarnation)
		}
		return int(a.from - b.from)
	})
	b := binary.AppendUvarint(nil, uint64(len(list)))
	for _, r := range list {
		b = binary.AppendUvarint(b, uint64(r.incarnation))
		b = binary.AppendUvarint(b, uint64(r.from))
		b = binary.AppendUvarint(b, uint64(r.to-r.from))
	}
	return b
}

func decodeRanges(b []byte) ([]seqRange, error) {
	if len(b) == 0 {
		return nil, nil
	}
	in := reader{b: b}
	list := make([]seqRange, in.count(3))
	for i := range list {
		list[i].incarnation = uint32(in.uvarint())
		list[i].from = int64(in.uvarint())
		list[i].to = list[i].from + int64(in.uvarint())
	}
	if in.bad {
		return nil, errCursor
	}
	return list, nil
}
