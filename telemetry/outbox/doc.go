// Package outbox is a durable transaction log of opaque entries and cursors, with leases,
// quarantine and held entries. It knows nothing of who captures or who delivers.
//
// # Guarantees
//
// [Outbox.Commit] returns nil when the whole batch, entries and cursor deltas, is on disk;
// otherwise none of it counts. Concurrent calls share one fdatasync.
//
// An entry leaves the outbox by [Lease.Ack], [Outbox.Discard] or [Outbox.Drop] only.
// Entries of one stream are leased in order and by one lease at a time; a stream in
// flight blocks no other, as far as the window looks ahead ([Options].Window entries).
// After a crash what was leased is pending again, so delivery is at least once, under the
// same [ID] and Key.
//
// Settling writes in place, into space that was written when the segment was made, so that
// a full disk cannot refuse it. A quarantine writes the entry anew, with why; when the disk
// is full it uses a reserve (an eighth of a segment and the head of a new one), as do a
// [Batch] that is urgent and the rewriting of segments.
//
// Committed = Acked + Quarantined + Held + Discarded + Pending in [Outbox.Stats], always,
// also after a crash.
//
// Memory: the window, 64 open segments at most with one byte for each entry, the cursors, up
// to 1 MiB of former values of them beside those of the active segment, and what is leased.
// It does not grow with the backlog. Start-up reads the checkpoint, of each sealed segment
// its header and one byte for each entry (twice), and the log behind the checkpoint: about
// 75 KB for 8 MiB of backlog, no payloads.
//
// # Crash model
//
// After a crash any 512-byte sector written since the last sync of its file may be there
// or not, and so may any name created, renamed or removed since the last sync of the
// directory. What was synced is there. A failed sync means that nothing since the last
// good one can be trusted: the batch is rolled back, and states are written again.
//
// # Damage
//
// Every payload is verified when it is leased or scanned: an altered one is never handed
// out. Damage in the middle of the log costs the damaged entry; at its tail, where it
// cannot be told from a torn write, at most the last group of batches that were synced
// together, with their cursors. A single wrong bit costs nothing outside of payloads:
// headers of records and commits are corrected by their checksum, headers of segments,
// states and checkpoints have a second copy. Lost entries are in [Outbox.Damaged], with
// their Key when their header is readable, until the owner says [Outbox.Recovered]. Where
// the Key is lost, or a whole segment, [Outbox.Before] has the cursors to go back to.
//
// The format is docs/outbox-format.md.
package outbox
