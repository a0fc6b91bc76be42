package outbox

import (
	"io"
	"os"
)

// FS is what an outbox needs of a file system. All names are paths.
type FS interface {
	MkdirAll(dir string, perm os.FileMode) error
	// OpenFile with the flags of package os.
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	// ReadDir returns the names in a directory, sorted.
	ReadDir(dir string) ([]string, error)
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes name exclusively, without waiting, and writes text into it. When another
	// holder has it, held is true and holder is that one's text.
	Lock(name string, text string) (release func() error, holder string, held bool, err error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes the data and the size durable (fdatasync).
	Sync() error
}
