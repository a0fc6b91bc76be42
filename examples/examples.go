// Package examples holds what can be run or read to learn the program: example
// sessions, a sidecar configuration, and in embed a Go program that uses the
// packages without the command line.
package examples

import "embed"

// Sessions are session files of format version 0; sessions/README.md says where
// they come from.
//
//go:embed sessions/*.jsonl
var Sessions embed.FS
