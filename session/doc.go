// Package session is the ledger of an agent session: the event vocabulary, the
// envelope, the dialects of the format generations 0 to 4, and the invariants
// that every event is checked against before it counts.
//
// A reader goes from bytes to events like this:
//
//	header, dialect, err := session.ParseHeader(line)       // which generation
//	decoder := session.NewDecoder(dialect, nil)             // rows to events
//	trace := session.NewTrace(header, dialect, nil)         // what must hold
//	run, err := decoder.Decode(row, &event)                 // run: a packed row
//	err = session.Admit(&event, trace)                      // plan, then commit
//
// Everything that generations do differently is in a Dialect. Which types of
// events exist is in a Vocabulary, a value that callers extend. What is refused
// has a stable Code; docs/invariants.md explains each.
//
// A Ledger holds the events of a session that this process writes, a Store the
// sessions that live in it. Recovery closes turns that a crash or a fork left
// open, Relations and CheckStored judge what a Trace lets pass.
//
// The rules are those of the DeepSeek Harness (DSH), whose files package
// session/jsonl reads and writes. This package knows nothing of files.
package session
