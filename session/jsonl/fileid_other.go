//go:build !unix

package jsonl

import "io/fs"

// fileID gives nothing here: a FileInfo of this system has neither number.
func fileID(fs.FileInfo) (device, inode uint64) { return 0, 0 }
