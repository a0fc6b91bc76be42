// Command bare sends the lines of ledgers as they are: nothing checked, nothing
// redacted, nothing kept. It is the limit that a sender can reach on a machine
// with the receiver beside it, and what everything that otel-bridge does is
// paid out of.
//
//	bare DIR ENDPOINT gzip|none
package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otel-bridge/otel-bridge/bench/receiver"
)

const batch = 512 // records in a request, as all senders have

func main() {
	if err := carry(os.Args[1], os.Args[2], os.Args[3] == "gzip"); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func carry(dir, endpoint string, compress bool) error {
	files := make(chan string)
	var g errgroup.Group
	g.Go(func() error {
		defer close(files)
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".jsonl") {
				files <- path
			}
			return err
		})
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			s := sender{endpoint: endpoint, compress: compress}
			for path := range files {
				if err := s.file(path); err != nil {
					for range files { // lets the walk end
					}
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

type sender struct {
	endpoint string
	compress bool

	record, records, request []byte
	n                        int
	packed                   bytes.Buffer
	packer                   *gzip.Writer
}

// file sends a file's lines; the name of its folder names the session.
func (s *sender) file(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	name := filepath.Base(filepath.Dir(path))
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if seq, ok := receiver.LineSeq(line); ok {
			if err := s.add(name, seq, line); err != nil {
				return err
			}
		}
	}
	return s.send()
}

func (s *sender) add(session string, seq int64, line []byte) error {
	r := protowire.AppendTag(s.record[:0], 5, protowire.BytesType)
	r = protowire.AppendVarint(r, uint64(protowire.SizeTag(1)+protowire.SizeBytes(len(line))))
	r = protowire.AppendTag(r, 1, protowire.BytesType)
	r = protowire.AppendBytes(r, line)
	var value []byte
	value = protowire.AppendTag(value, 1, protowire.BytesType)
	value = protowire.AppendString(value, session)
	r = attribute(r, "session.id", value)
	value = protowire.AppendTag(value[:0], 3, protowire.VarintType)
	value = protowire.AppendVarint(value, uint64(seq))
	r = attribute(r, "event.seq", value)
	s.record = r
	s.records = protowire.AppendTag(s.records, 2, protowire.BytesType)
	s.records = protowire.AppendBytes(s.records, r)
	if s.n++; s.n < batch {
		return nil
	}
	return s.send()
}

func attribute(r []byte, key string, value []byte) []byte {
	var kv []byte
	kv = protowire.AppendTag(kv, 1, protowire.BytesType)
	kv = protowire.AppendString(kv, key)
	kv = protowire.AppendTag(kv, 2, protowire.BytesType)
	kv = protowire.AppendBytes(kv, value)
	r = protowire.AppendTag(r, 6, protowire.BytesType)
	return protowire.AppendBytes(r, kv)
}

func (s *sender) send() error {
	if s.n == 0 {
		return nil
	}
	// A resource with one scope, which holds the records.
	q := protowire.AppendTag(s.request[:0], 1, protowire.BytesType)
	q = protowire.AppendVarint(q, uint64(protowire.SizeTag(2)+protowire.SizeBytes(len(s.records))))
	q = protowire.AppendTag(q, 2, protowire.BytesType)
	q = protowire.AppendBytes(q, s.records)
	s.request, s.records, s.n = q, s.records[:0], 0
	body := q
	if s.compress {
		s.packed.Reset()
		if s.packer == nil {
			s.packer, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed)
		}
		s.packer.Reset(&s.packed)
		if _, err := s.packer.Write(q); err != nil {
			return err
		}
		if err := s.packer.Close(); err != nil {
			return err
		}
		body = s.packed.Bytes()
	}
	req, err := http.NewRequest(http.MethodPost, s.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if s.compress {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the receiver answers %s", resp.Status)
	}
	return nil
}
