// Package telemetry turns the events of a session ledger into log records that
// may leave the machine, and puts them durably into an outbox together with
// the place in the ledger where it stopped.
//
// # The way of an event
//
//	Source ──▶ Capture ──▶ project (by dialect) ──▶ Record ──▶ Waterfall ──▶ size cut ──▶ outbox.Batch
//	(ledger)   cursor,      chunk events, streams,             gate ▸ redaction            records and
//	           trace,       attempts                           ▸ your listeners            cursor, together
//	           surface
//
// Capture pulls: the ledger is the source and the buffer, and back-pressure is
// a cursor that stops. A record that cannot be made safe is withheld: a marker
// of identity, type and reason goes in its place. A ledger that cannot be
// understood is held where it stands, and nothing after that point is guessed.
//
// The names of attributes are constants in this package (Key...); what they mean
// stands in docs/mapping.md, and the kinds of ops records (Op...) in
// docs/records.md.
package telemetry
