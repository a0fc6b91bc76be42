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

func (s *Sealer) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed++
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
	rec, err := DecodeRecord(draft.Payload)
	if err != nil {
		return err
	}
	sum, err := ParseSummary(rec.Body)
	if err != nil {
		return err
	}
	end, err := s.chainEnd(draft.Stream)
	if err != nil {
		return err
	}
	if sum.Span <= end.span {
		s.count()
		return nil
	}
	fates, err := s.fates(draft.Stream, sum)
	if err != nil {
		return err
	}
	discarded, left := s.discarded(draft.Stream, sum.Incarnation, sum.To)
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
	sum.Previous, sum.Key = end.hash, s.id
	body, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	if rec.Body, err = SignBody(s.key, OpSummary, body); err != nil {
		return err
	}
	payload, err := rec.AppendBinary(nil)
	if err != nil {
		return err
	}
	value := appendString(binary.AppendUvarint(nil, sum.Span), BodyHash(rec.Body))
	b := outbox.Batch{
		Entries: []outbox.Entry{{Key: opsKey(rec.UID), Stream: draft.Stream, Payload: payload}},
		Cursors: []outbox.Cursor{{Key: sealPrefix + draft.Stream, Value: value}},
	}
	if len(discarded) > 0 {
		b.Cursors = append(b.Cursors, outbox.Cursor{Key: discardPrefix + draft.Stream, Value: encodeRanges(left)})
	}
	if _, err := s.outbox.Commit(ctx, &b); err != nil {
		return err
	}
	s.count()
	if s.tap != nil {
		s.tap(&rec)
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
// the summaries of their spans say so then, as far as they are not made yet. The
// error is the outbox's.
func (t *Trail) Discarding(ctx context.Context, entries []EntryKey) error {
	o := t.outbox
	gone := map[string][]seqRange{}
	for _, e := range entries {
		if k, ok := ParseEventKey(e.Key); ok && strings.HasPrefix(e.Stream, cursorPrefix) {
			gone[e.Stream] = addRange(gone[e.Stream], seqRange{k.Incarnation, k.Seq, k.Seq})
		}
	}
	var b outbox.Batch
	for stream, more := range gone {
		v, _ := o.Cursor(discardPrefix + stream)
		all, err := decodeRanges(v)
		if err != nil {
			return err
		}
		for _, r := range more {
			all = addRange(all, r)
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

// discarded returns what an operator has given up of a span, and of later ones.
func (s *Sealer) discarded(stream string, incarnation uint32, to int64) (mine, left []seqRange) {
	v, ok := s.outbox.Cursor(discardPrefix + stream)
	if !ok {
		return nil, nil
	}
	all, _ := decodeRanges(v) // one that is broken says nothing
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
