package jsonl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/otel-bridge/otel-bridge/session"
)

// Codes of CorruptError that only a file can have; all others are those of
// package session.
const (
	// CodeHeaderFrame: frame 0 does not hold exactly the header line.
	CodeHeaderFrame session.Code = "header-frame"
	// CodeFrame: a frame is no well-formed zstd frame.
	CodeFrame session.Code = "zstd-frame"
	// CodeChecksum: a complete frame fails its checksum.
	CodeChecksum session.Code = "zstd-checksum"
	// CodeWindow: a frame asks for more memory than allowed.
	CodeWindow session.Code = "zstd-window"
	// CodeFrameLine: a complete frame ends inside a line. A writer puts whole lines
	// into a frame, so that a crash does not do this; the reference refuses it too.
	CodeFrameLine session.Code = "zstd-frame-line"
	// CodeLineTooLong: a line is beyond what is read even as a stream.
	CodeLineTooLong session.Code = "line-too-long"
	// CodeOversized: the envelope of a line over the limit cannot be read, as that
	// of a packed row of chunks never can.
	CodeOversized session.Code = "line-oversized"
	// CodeVersion: the header names a format version that is not read here; the
	// cause is a *session.UnsupportedVersionError.
	CodeVersion session.Code = "version"
	// CodePosition: a position does not fit the file.
	CodePosition session.Code = "position"
)

// CorruptError reports a file that is refused. Its text holds places and
// codes, never content.
type CorruptError struct {
	// File is the path as it was opened.
	File string
	// Row is the 1-based line of the decoded file, the header being row 1; 0
	// when no single row is at fault.
	Row int64
	// Offset is the byte offset in the file: of the line in a raw file, of the
	// frame in a compressed one.
	Offset int64
	// Code names the fault: one of the codes above or of package session.
	Code session.Code
	// Err is the cause; it may be nil.
	Err error
}

func (e *CorruptError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Row > 0 {
		b.WriteString(": row ")
		b.WriteString(strconv.FormatInt(e.Row, 10))
	}
	fmt.Fprintf(&b, ": corrupt session file at byte %d [%s]", e.Offset, e.Code)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// TruncatedError reports a growing file that has become shorter than the place
// up to which it was read, or whose bytes just before that place are others
// now: a writer cut a crash tail or rolled an append back, or the file was
// replaced in place. The events after Offset have to be compared or read again.
type TruncatedError struct {
	File   string
	Offset int64 // where reading stood
	Size   int64 // what the file has now
}

func (e *TruncatedError) Error() string {
	if e.Size < e.Offset {
		return fmt.Sprintf("%s: shrank to %d bytes, below the read position %d: compare what was read before and open the file again", e.File, e.Size, e.Offset)
	}
	return fmt.Sprintf("%s: the bytes before the read position %d have changed: compare what was read before and open the file again", e.File, e.Offset)
}

// Is makes errors.Is(err, ErrTruncated) true.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

var (
	// ErrTruncated is what a LiveReader reports when the file no longer holds
	// what was read of it; the error is a *TruncatedError.
	ErrTruncated = errors.New("session file truncated or rewritten behind the read position")
	// ErrHeaderIncomplete is what opening a file without a whole header line
	// reports. For a growing file it means: try again when it has grown.
	ErrHeaderIncomplete = errors.New("session file has no complete header line")
	// ErrClosed is what a closed reader or writer reports.
	ErrClosed = errors.New("session file is closed")

	errPartial     = errors.New("bytes after the last line end")
	errTornFrame   = errors.New("incomplete zstd frame at the end of the file")
	errLineTooLong = errors.New("line is longer than any that is read")
)
