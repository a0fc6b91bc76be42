//go:build unix

package jsonl

import (
	"io/fs"
	"syscall"
)

// fileID gives device and inode.
func fileID(info fs.FileInfo) (device, inode uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return uint64(st.Dev), uint64(st.Ino) //nolint:unconvert // their types differ by system
}
