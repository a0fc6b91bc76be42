package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// With a limit that most rows are beyond, every shared file still reads: same
// envelopes, and the trace takes what is left of the payloads.
func TestRowsOverTheLimitKeepTheirEnvelopeInEveryVersion(t *testing.T) {
	ledgers, err := Discover(shared(t, "data", "dsh"))
	if err != nil {
		t.Fatal(err)
	}
	truncated := map[string]int{}
	for _, l := range ledgers {
		dir := filepath.Base(filepath.Dir(l.Path))
		if dir == "torn" || strings.HasSuffix(l.Path, "planted.jsonl") {
			continue
		}
		t.Run(dir+"/"+filepath.Base(l.Path), func(t *testing.T) {
			path := unpacked(t, l.Path)
			full, r, err := readAll(path)
			if err != nil {
				t.Fatal(err)
			}
			cut, _, err := readAll(path, func(o *options) { o.maxLine = 120 })
			if err != nil {
				t.Fatal(err)
			}
			if len(full) != len(cut) {
				t.Fatalf("%d events, want %d", len(cut), len(full))
			}
			for i := range full {
				a, b := full[i], cut[i]
				if a.Seq != b.Seq || a.Time != b.Time || a.Type != b.Type || a.Ignorable != b.Ignorable ||
					!bytes.Equal(a.RawSurfaceOp, b.RawSurfaceOp) || fmt.Sprint(a.SourceEventSeqs) != fmt.Sprint(b.SourceEventSeqs) {
					t.Fatalf("event %d differs in its envelope", i)
				}
				if !b.DataTruncated {
					if !bytes.Equal(a.Data, b.Data) {
						t.Fatalf("event %d differs", i)
					}
					continue
				}
				truncated[fmt.Sprint(r.Dialect().Version(), " ", b.Type)]++
				turnA, stepA, okA := session.TurnStep(&a)
				turnB, stepB, okB := session.TurnStep(&b)
				if turnA != turnB || stepA != stepB || okA != okB || !json.Valid(b.Data) {
					t.Fatalf("event %d: %s", i, b.Data)
				}
				if ra, rb := r.Dialect().ToolResult(a.Data), r.Dialect().ToolResult(b.Data); ra.CallID() != rb.CallID() || ra.IsError != rb.IsError || ra.ErrorCode() != rb.ErrorCode() {
					t.Fatalf("event %d: %s", i, b.Data)
				}
			}
			if !strings.Contains(l.Path, "restart") {
				if err := trace(r, cut); err != nil {
					t.Error(err)
				}
				if err := trace(r, cut, session.WithStrict()); err != nil {
					t.Errorf("what is left of the payloads breaks a relation: %v", err)
				}
			}
			sameClosers(t, r.Dialect(), full, cut)
		})
	}
	t.Log(truncated)
}

// unpacked writes a file anew without packed rows: one that is over the limit
// has no envelope for each of its events and is refused.
func unpacked(t *testing.T, path string) string {
	evs, r, err := readAll(path)
	if err != nil {
		t.Fatal(err)
	}
	text := append(session.AppendHeader(nil, r.Header()), '\n')
	for i := range evs {
		text = append(session.AppendEvent(text, r.Dialect(), &evs[i]), '\n')
	}
	return write(t, "s.jsonl", text)
}

// trace checks the invariants of evs.
func trace(r *Reader, evs []session.Event, opts ...session.TraceOption) error {
	tr := session.NewTrace(r.Header(), r.Dialect(), session.Core(r.Dialect()), opts...)
	for i := range evs {
		if err := session.Admit(&evs[i], tr); err != nil {
			return err
		}
	}
	return errors.Join(tr.Finish()...)
}

// sameClosers checks that what is left of oversized rows closes every prefix with
// the very bytes that the whole rows do.
func sameClosers(t *testing.T, d *session.Dialect, full, cut []session.Event) {
	t.Helper()
	a, b := session.NewRecovery(d), session.NewRecovery(d)
	for i := range full {
		if err := errors.Join(a.Observe(&full[i]), b.Observe(&cut[i])); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		want, got := rowsOf(d, a.Closers(session.CauseInterrupted)), rowsOf(d, b.Closers(session.CauseInterrupted))
		if !bytes.Equal(want, got) {
			t.Fatalf("behind event %d the closers are\n%swant\n%s", i, got, want)
		}
	}
}

func rowsOf(d *session.Dialect, evs []session.Event) []byte { return appendRows(nil, d, evs, false) }

// sparse writes a version 3 file with a message of n bytes between short rows.
func sparse(t testing.TB, n int64, compressed bool) string {
	t.Helper()
	var text io.Reader = io.MultiReader(
		strings.NewReader(rowOf(0)),
		strings.NewReader(`{"type":"user/message","seq":1,"time":1,"data":{"content":[{"type":"text","text":"`),
		io.LimitReader(letters{}, n),
		strings.NewReader(`"}],"source":{"kind":"user"},"role":"user","id":"m"},"surfaceOp":"append"}`+"\n"+rowOf(2)))
	path := filepath.Join(t.TempDir(), "s.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !compressed {
		if _, err := io.Copy(f, io.MultiReader(strings.NewReader(headerV3), text)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if _, err := f.Write(compress(t, []byte(headerV3))); err != nil {
		t.Fatal(err)
	}
	if err := streamTo(f, text); err != nil {
		t.Fatal(err)
	}
	return path
}

type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a' + byte(i%23)
	}
	return len(p), nil
}

func TestLongLineAmongShortOnes(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		t.Run(fmt.Sprint("15 MB, zstd ", compressed), func(t *testing.T) {
			evs, _, err := readAll(sparse(t, 15_000_000, compressed))
			if err != nil || len(evs) != 3 || evs[1].DataTruncated || len(evs[1].Data) < 15_000_000 {
				t.Fatalf("%d events, %v", len(evs), err)
			}
		})
		t.Run(fmt.Sprint("100 MB, zstd ", compressed), func(t *testing.T) {
			path := sparse(t, 100_000_000, compressed)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			evs, r, err := readAll(path)
			runtime.ReadMemStats(&after)
			if err != nil || len(evs) != 3 || r.Tail().Torn() || evs[2].Seq != 2 {
				t.Fatalf("%d events, %v", len(evs), err)
			}
			if ev := evs[1]; !ev.DataTruncated || ev.Type != "user/message" || ev.Seq != 1 || ev.SurfaceOp == nil || len(ev.Data) > 1000 {
				t.Errorf("%+v", ev)
			}
			// All that was allocated, not only what was live at once.
			if got := after.TotalAlloc - before.TotalAlloc; got > 80<<20 {
				t.Errorf("%d MiB allocated", got>>20)
			}
			live, err := OpenLive(path, Position{})
			if err != nil {
				t.Fatal(err)
			}
			defer live.Close()
			if err := same(drain(t, live), evs); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLineWithoutEndIsGivenUp(t *testing.T) {
	short := func(o *options) { o.maxLine, o.longest = 1024, 1<<16 }
	path := write(t, "s.jsonl", append([]byte(headerV3), bytes.Repeat([]byte{'a'}, 1<<17)...))
	_, r, err := readAll(path, short)
	if err == nil {
		t.Fatalf("no error, tail %+v", r.Tail())
	}
	bomb := append(compress(t, []byte(headerV3)), stream(t, make([]byte, 1<<22))...)
	if _, _, err = readAll(write(t, "s", bomb), short); err == nil {
		t.Fatal("no error for a bomb")
	}
}

func TestOversizedRowWithoutEnvelopeIsReportedWithItsPlace(t *testing.T) {
	bad := `{"type":"x/opaque","seq":1,"data":{"s":"` + strings.Repeat("x", 5000) + "\"},}\n"
	_, r, err := readAll(write(t, "s.jsonl", []byte(headerV3+rowOf(0)+bad)), WithMaxLine(1024))
	if err != nil || r.Tail().Row != 3 || r.Tail().Cause == nil || strings.Contains(r.Tail().Cause.Error(), "xxx") {
		t.Errorf("%v, %+v", err, r.Tail())
	}
	live, err := OpenLive(write(t, "s.jsonl", []byte(headerV3+rowOf(0)+bad)), Position{}, WithMaxLine(1024))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if !live.Next() || live.Next() || live.Err() == nil {
		t.Errorf("%v", live.Err())
	}
}

// Behind a row that ended the prefix, a reduced payload is no structural fault.
func TestOversizedRowInATailRefusesNothing(t *testing.T) {
	long := `{"type":"system/message","seq":2,"time":1,"data":{"turn":1,"step":1,"message":{"id":"m","role":"system","source":{"kind":"plugin","plugin":"p"},"content":[{"type":"text","text":"` +
		strings.Repeat("x", 3000) + `"}]}},"surfaceOp":"append"}` + "\n"
	evs, r, err := readAll(write(t, "s.jsonl", []byte(headerV3+rowOf(0)+"{\n"+long)), WithMaxLine(1024))
	if err != nil || len(evs) != 1 || r.Tail().Row != 3 {
		t.Errorf("%d events, %v, %+v", len(evs), err, r.Tail())
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("%v", err)
	}
}
