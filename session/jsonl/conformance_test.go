package jsonl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/internal/conformance"
	"github.com/otel-bridge/otel-bridge/session"
)

// table reads a conformance table.
func table(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(shared(t, "data", "conformance", "session", name+"-cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func TestConformanceZstdFrame(t *testing.T) {
	var tab struct {
		Cases []struct {
			ID    string
			Input struct {
				Text     *string
				Repeat   string
				Times    int
				Rows     int
				Xorshift uint32
				Bytes    int
			}
			FrameHex    string
			FrameBytes  int
			FrameSHA256 string `json:"frameSha256"`
			InputBytes  int
		}
	}
	table(t, "zstd-frame", &tab)
	if len(tab.Cases) != 13 {
		t.Errorf("%d cases", len(tab.Cases))
	}
	count := conformance.New(t, "zstd-frame")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			var input []byte
			switch in := c.Input; {
			case in.Text != nil:
				input = []byte(*in.Text)
			case in.Repeat != "":
				input = bytes.Repeat([]byte(in.Repeat), in.Times)
			case in.Rows > 0:
				for i := range in.Rows {
					input = fmt.Appendf(input, `{"type":"turn/start","seq":%d,"time":%d,"data":{"turn":%d}}`+"\n", i, i+1, i)
				}
			default:
				x := in.Xorshift
				for range in.Bytes {
					x ^= x << 13
					x ^= x >> 17
					x ^= x << 5
					input = append(input, byte(x))
				}
			}
			if len(input) != c.InputBytes {
				t.Fatalf("the input has %d bytes, want %d", len(input), c.InputBytes)
			}
			if c.FrameHex != "" {
				frame, err := hex.DecodeString(c.FrameHex)
				if err != nil {
					t.Fatal(err)
				}
				got, err := readFrames(append(bytes.Clone(frame), frame...), DefaultMaxWindow)
				if err != nil || len(got) != 2 || !bytes.Equal(got[0], input) || !bytes.Equal(got[1], input) {
					t.Fatalf("%d frames, %v", len(got), err)
				}
			}
			w, err := newWriter("", &session.Header{}, dialect3(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			made, err := w.encode(nil, input)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(made[:6], []byte{0x28, 0xB5, 0x2F, 0xFD, 0x04, 0x58}) {
				t.Errorf("frame header % x", made[:6])
			}
			got, err := readFrames(made, DefaultMaxWindow)
			if err != nil || len(got) != 1 || !bytes.Equal(got[0], input) {
				t.Fatalf("what was encoded gives %d frames, %v", len(got), err)
			}
			count.Part(t, c.ID, "bytes", func(t *testing.T) {
				if c.FrameHex != "" && hex.EncodeToString(made) != c.FrameHex {
					t.Errorf("%x", made)
				}
				if sum := sha256.Sum256(made); c.FrameHex == "" && hex.EncodeToString(sum[:]) != c.FrameSHA256 {
					t.Errorf("%d bytes, want %d", len(made), c.FrameBytes)
				}
			})
		})
	}
}

func dialect3(t *testing.T) *session.Dialect {
	t.Helper()
	d, err := session.DialectOf(3)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var atLine = regexp.MustCompile(`at line (\d+)`)

func TestConformanceLogScan(t *testing.T) {
	var tab struct {
		Cases []struct {
			ID       string
			Lines    []string
			Tail     string
			BytesHex string
			Fixture  string
			TS       struct {
				Outcome, Class, Message string
				Header                  map[string]any
				Events                  int
				InheritedEventCount     int64
				CommittedBytes          int64
				Numbers                 []struct {
					Event         int
					Pointer, Bits string
				}
				Sources map[string][]int64
			}
		}
	}
	table(t, "log-scan", &tab)
	if len(tab.Cases) != 76 {
		t.Errorf("%d cases", len(tab.Cases))
	}
	count := conformance.New(t, "log-scan")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			var text []byte
			switch {
			case c.Fixture != "":
				data, err := os.ReadFile(shared(t, "data", c.Fixture))
				if err != nil {
					t.Fatal(err)
				}
				text = data
			case c.BytesHex != "":
				data, err := hex.DecodeString(c.BytesHex)
				if err != nil {
					t.Fatal(err)
				}
				text = data
			default:
				for _, l := range c.Lines {
					text = append(append(text, l...), '\n')
				}
				text = append(text, c.Tail...)
			}
			path := write(t, "session.jsonl", text)
			before, _ := os.ReadFile(path)
			evs, r, err := readAll(path)
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("reading changed the file")
			}
			if c.TS.Outcome == "thrown" {
				checkThrown(t, err, c.TS.Class, c.TS.Message)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(evs) != c.TS.Events || r.InheritedCount() != c.TS.InheritedEventCount || r.CommittedBytes() != c.TS.CommittedBytes {
				t.Errorf("%d events, %d inherited, %d bytes, want %d, %d, %d", len(evs), r.InheritedCount(), r.CommittedBytes(),
					c.TS.Events, c.TS.InheritedEventCount, c.TS.CommittedBytes)
			}
			var header map[string]any
			if err := json.Unmarshal(session.AppendHeader(nil, r.Header()), &header); err != nil {
				t.Fatal(err)
			}
			delete(header, "type")
			if fmt.Sprint(header) != fmt.Sprint(c.TS.Header) {
				t.Errorf("header %v, want %v", header, c.TS.Header)
			}
			for _, n := range c.TS.Numbers {
				raw := session.Member(evs[n.Event].Data, strings.TrimPrefix(n.Pointer, "/data/"))
				num, ok := session.ParseNumber(raw)
				if got := fmt.Sprintf("%016x", math.Float64bits(num.Float)); !ok || got != n.Bits {
					t.Errorf("event %d %s: %s, want %s", n.Event, n.Pointer, got, n.Bits)
				}
			}
			for seq, want := range c.TS.Sources {
				i, _ := strconv.Atoi(seq)
				if fmt.Sprint(evs[i].SourceEventSeqs) != fmt.Sprint(want) {
					t.Errorf("event %d cites %v, want %v", i, evs[i].SourceEventSeqs, want)
				}
			}
		})
	}
}

// checkThrown compares what refuses a file: the kind of error and, where the
// table tells one, the row (it counts events' rows from 1, we count the header
// too). Texts are each implementation's own.
func checkThrown(t *testing.T, err error, class, message string) {
	t.Helper()
	if err == nil {
		t.Fatalf("not refused: %s %s", class, message)
	}
	if message == "empty or header-less session log" {
		if !errors.Is(err, ErrHeaderIncomplete) {
			t.Errorf("%v", err)
		}
		return
	}
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Code == "" {
		t.Fatalf("%v", err)
	}
	if m := atLine.FindStringSubmatch(message); m != nil {
		if line, _ := strconv.ParseInt(m[1], 10, 64); corrupt.Row != line+1 {
			t.Errorf("row %d, want %d: %v", corrupt.Row, line+1, err)
		}
	}
	var decode *session.DecodeError
	errors.As(err, &decode)
	structural := decode != nil && decode.Stage == session.StageStructure
	seed := corrupt.Code == session.CodeMarkerMissing || corrupt.Code == session.CodeMarkerUnexpected
	if want := class == "SessionFormatError" || class == "SessionFormatUnsupportedError"; want != (structural || seed) {
		t.Errorf("%v is not a %s: %s", err, class, message)
	}
}

// edit is a change to the rows of a log, as the tables have them.
type edit struct {
	Truncate                   *int
	Header, Append, Tail, Text *string
	Row                        *int
	Find, Replace              string
}

func edited(t *testing.T, log []byte, edits []edit) []byte {
	t.Helper()
	rows := strings.Split(strings.TrimSuffix(string(log), "\n"), "\n")
	header, rows := rows[0], rows[1:]
	tail := ""
	for _, e := range edits {
		switch {
		case e.Truncate != nil:
			rows = rows[:*e.Truncate]
		case e.Header != nil:
			header = *e.Header
		case e.Append != nil:
			rows = append(rows, *e.Append)
		case e.Tail != nil:
			tail = *e.Tail
		case e.Row != nil && e.Text != nil:
			rows[*e.Row] = *e.Text
		case e.Row != nil:
			if strings.Count(rows[*e.Row], e.Find) != 1 {
				t.Fatalf("%q is not found exactly once", e.Find)
			}
			rows[*e.Row] = strings.Replace(rows[*e.Row], e.Find, e.Replace, 1)
		default:
			t.Fatal("unknown edit")
		}
	}
	out := header + "\n"
	for _, r := range rows {
		out += r + "\n"
	}
	return []byte(out + tail)
}

// TestConformanceRecover runs the part of the restore table that is about the
// file: what recovery keeps and what it appends. Package surface runs the table
// from the bytes to the request.
func TestConformanceRecover(t *testing.T) {
	var tab struct {
		Logs  map[string]string
		Cases []struct {
			ID, Log string
			Edits   []edit
			TS      struct {
				Outcome         string
				CommittedBytes  int64
				EndSeedAppended bool
				Closers         []json.RawMessage
			}
		}
	}
	table(t, "restore", &tab)
	if len(tab.Cases) != 122 {
		t.Errorf("%d cases", len(tab.Cases))
	}
	count := conformance.New(t, "restore (recovery on disk)")
	for _, c := range tab.Cases {
		if c.TS.Outcome != "restored" {
			continue // what is refused is not recovered
		}
		count.Run(t, c.ID, func(t *testing.T) {
			log, err := os.ReadFile(shared(t, "data", tab.Logs[c.Log]))
			if err != nil {
				t.Fatal(err)
			}
			text := edited(t, log, c.Edits)
			path := write(t, "session.v3.jsonl", text)
			want := text[:c.TS.CommittedBytes:c.TS.CommittedBytes]
			for _, w := range c.TS.Closers {
				var row bytes.Buffer
				if err := json.Compact(&row, w); err != nil {
					t.Fatal(err)
				}
				want = append(append(want, row.Bytes()...), '\n')
			}
			rec, err := Recover(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := textOf(t, path); !bytes.Equal(got, want) {
				t.Errorf("recovered to\n%s\nwant\n%s", got, want)
			}
			evs, _, err := readAll(path)
			if err != nil {
				t.Fatal(err)
			}
			resumed, err := session.Resume(rec.Dialect, evs, time.UnixMilli(0))
			if err != nil || (len(resumed) == 1) != c.TS.EndSeedAppended {
				t.Errorf("%d events on resuming, %v; want a marker: %t", len(resumed), err, c.TS.EndSeedAppended)
			}
		})
	}
}

type events struct{ list []session.Event }

func (e *events) Bounds() (first, next int64) { return 0, int64(len(e.list)) }

func (e *events) Event(seq int64) (*session.Event, error) { return &e.list[seq], nil }
