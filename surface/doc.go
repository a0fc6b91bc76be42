// Package surface is the fold of what an agent's model saw.
//
// A session ledger is append-only; what the model is shown is not. Events of
// the surface types add a message at the end, or replace a span of the messages
// that stand there. The surface is the ordered list of the events ("nodes")
// whose messages are shown, named by their seqs. This package computes it for
// every format generation, at any point of a ledger, and derives the messages.
//
// # Parts
//
//   - [Surface] is the fold itself. It holds seqs and digests, never bodies, and
//     is a session.Admitter: it judges a candidate event and folds it when every
//     other admitter agrees.
//   - [View] reads a ledger that can be asked for events by seq. It folds lazily,
//     derives messages and caches them.
//   - [Messages] and [Diff] read a ledger that can only be read from its start,
//     such as a file, with little memory.
//   - [Projection] is a plugin by which a log-only event changes what earlier
//     messages show. [ImageOffload] is built in.
//   - [SystemPrompt], [RuntimeContext] and [Requests] decide what an agent has to
//     append next, and read back what it appended.
//
// # Cost
//
// Let n be the nodes on the surface and k the nodes that a replace shadows, the
// sources that it cites included. An append costs O(1). A replace costs
// O(k log n) for its judgement and O(k) amortised for its execution: when more
// entries are dead than alive the list is packed, which costs O(n) and is paid
// for by the entries that died since. Looking a seq up costs O(log n). A node takes
// about 40 bytes; what projections remember comes on top, where they do.
//
// [Surface.Hash] is computed when it is read. It costs what was appended since
// it was read last; a replace takes it back to a checkpoint at most 128 nodes
// before the replaced span, so that the next reading costs these and everything
// behind the span. A replace near the end of a long surface is therefore cheap,
// and one of the head costs one SHA-256 block for each node, once.
package surface
