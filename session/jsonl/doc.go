// Package jsonl reads and writes the files in which DSH keeps its sessions: a
// header line and one JSON row an event, ended by LF, plain or in concatenated
// zstd frames, as the versions 0 to 4 of the package
// @deepseek-ai/dsh-session-persistence-jsonl do. docs/invariants.md has the rules
// with an example each.
//
// There are two readers for two truths. Reader reads a finished file: what does
// not belong to its accepted prefix is a torn tail, or refuses the file.
// LiveReader reads a file that is still being written: what is not whole yet is
// waited for, and its Position takes the place up after a restart.
//
// Memory is bounded by the line limit (WithMaxLine) and the zstd window
// (WithMaxWindow), never by the size of a file or of a line. Nothing of a
// complete zstd frame is given before its checksum has been verified.
//
// Writer makes such files, Inspect and Recover mend one after a crash, and Persist
// keeps the sessions of a store in them.
//
// A reader is used by one goroutine at a time. No reader starts a goroutine.
package jsonl
