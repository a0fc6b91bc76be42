//go:build !unix

package jsonl

// syncDir does nothing: this system has no way to sync a directory.
func syncDir(string) error { return nil }
