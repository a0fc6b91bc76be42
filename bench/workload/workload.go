// Package workload writes session ledgers that look like an agent's work, the
// same bytes for the same Spec: prompts, reasoning, code, Chinese text, log
// files and lock files as tool output (now and then of hundreds of kilobytes),
// compactions, streams (packed chunk rows in version 0, embedded in version 2),
// and made-up secrets whose values are told. They are valid DSH files.
package workload

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// Spec says which ledgers to write.
type Spec struct {
	Version  int   // 0 or 2
	Zstd     bool  // one frame for each turn, as a writer makes them
	Bytes    int64 // of JSON lines over all sessions, before compression; passed by less than one turn a session (at least some 5 KB)
	Sessions int
	Seed     uint64
	// SecretEvery is about how many bytes of ledger lie between two planted
	// secrets; 0 is 64 KiB.
	SecretEvery int64
}

func (s Spec) String() string {
	form := "raw"
	if s.Zstd {
		form = "zstd"
	}
	return fmt.Sprintf("v%d %s, %d MB, %d session(s)", s.Version, form, s.Bytes/1_000_000, s.Sessions)
}

// Workload is what was written.
type Workload struct {
	Spec
	Dir         string
	Files       []string
	LedgerBytes int64 // of JSON lines, headers included
	FileBytes   int64 // on disk
	Rows        int64 // lines, headers included
	Events      int64 // decoded events
	// Records is how many ledger records the bridge makes of them: every event,
	// but of the chunk events of a step only the first.
	Records int64
	Secrets []Secret
}

// Generate writes the ledgers below dir, which it makes.
func Generate(dir string, s Spec) (*Workload, error) {
	switch {
	case s.Version != 0 && s.Version != 2:
		return nil, fmt.Errorf("workload: version %d is not written here: 0 or 2", s.Version)
	case s.Sessions < 1 || s.Bytes < 1:
		return nil, errors.New("workload: at least one session and one byte")
	}
	if s.SecretEvery == 0 {
		s.SecretEvery = 64 << 10
	}
	w := &Workload{Spec: s, Dir: dir}
	texts := newPool(rand.New(rand.NewPCG(s.Seed, 1)))
	for i := range s.Sessions {
		if err := w.session(texts, i); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *Workload) session(texts *pool, i int) (err error) {
	r := rand.New(rand.NewPCG(w.Seed, uint64(i)+2))
	id := fmt.Sprintf("bench-%05d-%s", i, hexes(r, 8))
	name := "session.jsonl"
	if w.Version > 0 {
		name = "session.v" + strconv.Itoa(w.Version) + ".jsonl"
	}
	if w.Zstd {
		name += ".zstd"
	}
	path := filepath.Join(w.Dir, "--work-app--", id, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	out := &output{file: f, buf: bufio.NewWriterSize(f, 1<<20)}
	if w.Zstd {
		// As the reference writes them: a checksum, no content size, level 3.
		if out.frames, err = zstd.NewWriter(nil, zstd.WithEncoderCRC(true), zstd.WithWindowSize(2<<20),
			zstd.WithSingleSegment(false), zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault)); err != nil {
			return err
		}
	}
	g := &ledger{w: w, r: r, texts: texts, version: w.Version, time: 1796031737844, untilSecret: w.SecretEvery / 2}
	g.header(id)
	if err := out.flush(g); err != nil {
		return err
	}
	share := w.Bytes / int64(w.Sessions)
	for g.begin(); out.ledger < share; {
		g.left = share - out.ledger
		g.turn()
		if err := out.flush(g); err != nil {
			return err
		}
	}
	if err := out.buf.Flush(); err != nil {
		return err
	}
	w.Files = append(w.Files, path)
	w.LedgerBytes += out.ledger
	w.FileBytes += out.disk
	w.Rows += g.rows
	w.Events += g.seq
	w.Records += g.records
	return nil
}

// output is one ledger file.
type output struct {
	file         *os.File
	buf          *bufio.Writer
	frames       *zstd.Encoder // nil: raw
	compressed   []byte
	ledger, disk int64
}

// flush writes the lines made so far: a batch, and a frame where there are frames.
func (o *output) flush(g *ledger) error {
	o.ledger += int64(len(g.b))
	data := g.b
	if o.frames != nil {
		o.compressed = o.frames.EncodeAll(data, o.compressed[:0])
		data = o.compressed
	}
	o.disk += int64(len(data))
	g.b = g.b[:0]
	_, err := o.buf.Write(data)
	return err
}
