package outbox

import (
	"errors"
	"fmt"
)

// ErrFull says that the size limit is reached or that the disk is full. What was
// written of the batch has been rolled back; the same call works again when there is
// room, see [Outbox.WaitRoom].
var ErrFull = errors.New("outbox: full")

// ErrClosed is returned by everything after Close.
var ErrClosed = errors.New("outbox: closed")

// ErrTooLarge says that a batch can never fit, whatever drains: split it.
var ErrTooLarge = errors.New("outbox: batch too large")

// ErrNotFound says that no entry with that id is in the outbox any more (or ever was).
var ErrNotFound = errors.New("outbox: no such entry")

// ErrNotLeased says that an entry was settled through a lease that does not hold it.
var ErrNotLeased = errors.New("outbox: entry not in this lease")

// LockedError says who has the directory open.
type LockedError struct {
	Dir      string
	PID      int
	Host     string
	Instance string
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("outbox: %s is in use by process %d on %s (instance %q); stop that one first", e.Dir, e.PID, e.Host, e.Instance)
}

// VersionError says that a file is of a format version above this build's.
type VersionError struct {
	File    string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("outbox: %s has format version %d, this build reads up to %d; use a newer build", e.File, e.Version, formatVersion)
}

// StateError says that an operation does not apply to an entry in its present state.
type StateError struct {
	ID    ID
	State State
	Op    string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("outbox: cannot %s entry %d: it is %s", e.Op, e.ID, e.State)
}

// DamageError locates bytes that are not what was written.
type DamageError struct {
	File   string
	Offset int64
	What   string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("outbox: %s at offset %d: %s", e.File, e.Offset, e.What)
}
