// Package session is the ledger of an agent session: the event vocabulary, the
// envelope, the dialects of the format generations 0 to 4, and the invariants
// that every event is checked against before it counts.
//
// The rules are those of the DeepSeek Harness (DSH), whose files package
// session/jsonl reads and writes. This package knows nothing of files.
package session
