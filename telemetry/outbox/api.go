package outbox

import (
	"log/slog"
	"time"
)

// ID is the number of an entry in its outbox. Ids ascend in the order of commits and
// are never used again.
type ID uint64

// Entry is one record to be kept until it is settled.
type Entry struct {
	// Key is the owner's identity of the record. It is reported when the record is
	// damaged. At most 65,535 bytes.
	Key []byte
	// Stream names the ordering domain: entries of one stream are leased in order and by
	// one lease at a time. The empty stream has no order. At most 65,535 bytes.
	Stream string
	// Payload is opaque, at most 64 MiB; a batch has at most 1 GiB.
	Payload []byte
	// Held commits the entry in the held state: not leased until it is sent by hand.
	Held bool
}

// Cursor is a delta of the owner's position; a nil Value deletes the key.
type Cursor struct {
	Key   string
	Value []byte
}

// Batch is what one Commit makes durable: all of it or nothing.
type Batch struct {
	Entries []Entry
	Cursors []Cursor
	// Urgent lets the batch pass the size limit and use the reserve of a full disk. It is for
	// what has other entries settled: where these keep all of the disk nothing else makes room.
	Urgent bool
}

// Options of Open. The zero value is fine.
type Options struct {
	// MaxSize bounds the bytes on disk that Commit may fill, quarantine included. Settling
	// is never refused, so a quarantine may pass it by what it adds. 0: 10 GiB.
	MaxSize int64
	// SegmentSize in bytes, 4 to 16 MiB (smaller for tests). 0: 8 MiB; never more than a
	// quarter of MaxSize.
	SegmentSize int64
	// GroupDelay is how long a Commit that finds no other waiting for the disk waits for
	// company. 0 waits for nobody; commits that arrive during a sync share the next one in any
	// case. At most 100 ms.
	GroupDelay time.Duration
	// Window is how many pending entries are looked at ahead of the oldest, so that a stream
	// in flight does not block the others. About 64 bytes of memory each. 0: 32,768.
	Window int
	// FS replaces the file system, for tests. nil: the operating system's.
	FS FS
	// Instance goes into the lock file, for the message to a second process.
	Instance string
	// Logger gets what an operator should know: damage, a full disk, a recovery. nil: nothing.
	Logger *slog.Logger
}

// Limits bound one lease. A zero field sets no bound of that kind, except that a lease never
// holds more than 4,096 entries. The first entry is given out even when it is over Bytes alone.
type Limits struct {
	Records int
	Bytes   int
}

// Leased is one entry handed out for delivery.
type Leased struct {
	ID      ID
	Key     []byte
	Stream  string
	Payload []byte
}

// Outcomes of a quarantined entry.
const (
	// OutcomeRefused: the receiver refused exactly this record.
	OutcomeRefused = "refused"
	// OutcomeUnknown: the receiver may have taken it.
	OutcomeUnknown = "unknown"
)

// Refused moves a leased entry into quarantine.
type Refused struct {
	ID ID
	// Reason is a short code of the owner's.
	Reason string
	// Outcome is OutcomeRefused or OutcomeUnknown.
	Outcome string
	// ReceiverWords is what the receiver said, already made safe by the owner; kept up to 4 KiB.
	ReceiverWords string
	// Payload as sent; nil: as committed.
	Payload []byte
}

// State of an entry.
type State uint8

// States of an entry.
const (
	Pending State = iota
	Acked
	Quarantined
	Held
	Discarded
	// Lost: damaged on disk; see Outbox.Damaged.
	Lost
)

func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Acked:
		return "acked"
	case Quarantined:
		return "quarantined"
	case Held:
		return "held"
	case Discarded:
		return "discarded"
	case Lost:
		return "damaged"
	}
	return "unknown"
}

// Info is an entry as an operator sees it. Its byte slices are valid during the callback only.
type Info struct {
	ID         ID
	State      State
	Leased     bool
	Key        []byte
	Stream     string
	Payload    []byte
	Quarantine *Quarantine // nil unless it is or was in quarantine
}

// Quarantine is why an entry is there.
type Quarantine struct {
	Reason        string
	Outcome       string
	ReceiverWords string
	Time          time.Time
}

// Stats of an outbox. Committed = Acked + Quarantined + Held + Discarded + Pending, always.
type Stats struct {
	Committed   int64 // since the outbox was made, less Lost
	Acked       int64
	Quarantined int64
	Held        int64
	Discarded   int64
	Pending     int64 // leased ones included
	Leased      int64
	Lost        int64 // entries lost to damage since the outbox was made, captured again or not
	Damaged     int64 // of these, not yet dealt with: see Outbox.Damaged

	Cursors      int
	NextID       ID
	Segments     int
	DiskBytes    int64 // all files of the outbox
	UnackedBytes int64 // log bytes of segments that still hold unsettled entries
	// Full: the last intake was refused for want of room and none has worked since.
	Full bool
	// Degraded: something was lost, set aside or rebuilt and wants an operator's eye; Recovery says what.
	Degraded bool
	// LastError is the last failure of housekeeping (checkpoint, rewriting), nil after a success.
	LastError error
}

// Damage is one lost entry, or several in a row whose headers are lost too.
type Damage struct {
	// ID of the entry, 0 when not even that is known.
	ID ID
	// Key and Stream are nil and empty when the header could not be read, and for a whole segment
	// that was set aside or is missing (ID 0). The owner then goes back to where Outbox.Before
	// says that it was; what is delivered twice has the same key.
	Key    []byte
	Stream string
	// Segment is the number of the segment, 0 when it is not known; Offset the place in it.
	Segment uint64
	Offset  int64

	slot uint32
}

// Recovery is what Open found and did.
type Recovery struct {
	Took             time.Duration
	CheckpointLost   bool  // no valid slot although there were segments
	CheckpointSlots  int   // valid slots
	ScannedBytes     int64 // of the log
	TornBytes        int64 // cut at the tail
	TornBatches      int   // batches of the last group that were not whole; nobody was told that they were committed, or the tail is damaged
	HeadersRebuilt   int   // segment headers
	HeadersCorrected int   // record headers with one wrong bit
	StateBlocksLost  int   // blocks of states of which no copy was valid
	SegmentsMissing  int
	SegmentsAside    []string // files renamed to *.damaged
	Unaccounted      int64    // entries that damage took without a trace (counted as lost); negative: commits lost
}
