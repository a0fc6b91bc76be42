package receiver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// lineStart is what every line that [AppendJSON] made begins with.
const lineStart = `{"resourceLogs":[`

// maxGroup bounds the bytes that one write joins, so that memory does not
// grow with the number of waiting requests.
const maxGroup = 8 << 20

var errFileClosed = errors.New("receiver file is closed")

// File writes lines durably: Append returns when the line has been written
// and synced. Concurrent calls share one write and one sync.
type File struct {
	w     io.Writer
	f     *os.File // nil: w is not a regular file, nothing to sync
	close func() error
	lines chan line
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
	size  int64 // of f, up to the last durable line; owned by the loop
	err   error // sticky: the file could not be brought back to size
}

type line struct {
	text []byte
	done chan error
}

// OpenFile opens path for appending and creates it with mode 0600 where it
// does not exist. A last line without its end was never acknowledged: it is
// cut off, provided that it is one of ours. A device or a pipe, such as
// /dev/null, gets the lines as they come; there is nothing to sync.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		file := newFile(f, nil)
		file.close = f.Close
		go file.loop()
		return file, nil
	}
	size, err := wholeLines(f)
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		err = syncName(path)
	}
	if err == nil {
		_, err = f.Seek(size, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("receiver file %s: %w", path, err)
	}
	file := newFile(f, f)
	file.size, file.close = size, f.Close
	go file.loop()
	return file, nil
}

// NewFile writes to w (standard output, say), which is neither synced nor
// closed.
func NewFile(w io.Writer) *File {
	file := newFile(w, nil)
	go file.loop()
	return file
}

func newFile(w io.Writer, f *os.File) *File {
	return &File{w: w, f: f, close: func() error { return nil }, lines: make(chan line), stop: make(chan struct{}), done: make(chan struct{})}
}

// syncName makes the file's name durable, which its own sync does not. Windows
// has no sync of directories.
func syncName(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// wholeLines returns the length of f up to its last line end.
func wholeLines(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	buf := make([]byte, 64<<10)
	for pos := end; pos > 0; {
		n := min(int64(len(buf)), pos)
		pos -= n
		if _, err := f.ReadAt(buf[:n], pos); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return pos + int64(i) + 1, checkTail(f, pos+int64(i)+1, end)
		}
	}
	return 0, checkTail(f, 0, end)
}

func checkTail(f *os.File, from, to int64) error {
	head := make([]byte, min(to-from, int64(len(lineStart))))
	if _, err := f.ReadAt(head, from); err != nil {
		return err
	}
	if string(head) != lineStart[:len(head)] {
		return errors.New("its last line has no end and is not OTLP JSON; choose another file")
	}
	return nil
}

// Append writes text, which must hold no line end, as one durable line. The
// caller may reuse text when Append has returned.
func (f *File) Append(text []byte) error {
	l := line{text: text, done: make(chan error, 1)}
	select {
	case f.lines <- l:
		return <-l.done
	case <-f.stop:
		return errFileClosed
	}
}

// Close waits for lines in work and closes the file.
func (f *File) Close() error {
	f.once.Do(func() { close(f.stop) })
	<-f.done
	if err := f.close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (f *File) loop() {
	defer close(f.done)
	var buf []byte
	var group []line
	for {
		select {
		case <-f.stop:
			return
		case l := <-f.lines:
			group = append(group[:0], l)
			buf = append(append(buf[:0], l.text...), '\n')
		}
		for more := true; more && len(buf) < maxGroup; {
			select {
			case l := <-f.lines:
				group = append(group, l)
				buf = append(append(buf, l.text...), '\n')
			default:
				more = false
			}
		}
		err := f.write(buf)
		for _, l := range group {
			l.done <- err
		}
		clear(group)
		if cap(buf) > 2*maxGroup {
			buf = nil
		}
	}
}

// write appends buf and syncs; on failure the file is brought back to its
// last durable length, so that no half line stays.
func (f *File) write(buf []byte) error {
	if f.err != nil {
		return f.err
	}
	_, err := f.w.Write(buf)
	if f.f == nil {
		return err
	}
	if err == nil {
		err = f.f.Sync()
	}
	if err == nil {
		f.size += int64(len(buf))
		return nil
	}
	back := f.f.Truncate(f.size)
	if back == nil {
		_, back = f.f.Seek(f.size, io.SeekStart)
	}
	if back != nil {
		f.err = fmt.Errorf("receiver file could not be rolled back: %w", back)
		return f.err
	}
	return err
}
