package outbox

import (
	"log/slog"
	"os"
	"time"
)

// startPatience is how long a start waits, in all, for a disk that gives errors.
const startPatience = 30 * time.Second

// patientFS tries again to read what gives errors, for a while. At a start what cannot be read
// counts as damage and is set aside or cut off; a disk that is away has lost nothing.
type patientFS struct {
	FS
	log  *slog.Logger
	left time.Duration // 0 once the start is over
}

func (p *patientFS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	f, err := p.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &patientFile{f, p}, nil
}

type patientFile struct {
	File
	fs *patientFS
}

func (f *patientFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	for unread(err) && f.fs.left > 0 {
		const pause = 500 * time.Millisecond
		if f.fs.left == startPatience {
			f.fs.log.Warn("outbox: the disk gives errors, the start waits for a while", "error", err)
		}
		f.fs.left -= pause
		time.Sleep(pause)
		n, err = f.File.ReadAt(b, off)
	}
	return n, err
}
