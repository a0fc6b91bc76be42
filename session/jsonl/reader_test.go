package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// write makes a file of the test.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// frames compresses text as a session's writer does: the header line, then one
// frame for every n lines.
func frames(t testing.TB, text []byte, n int) []byte {
	t.Helper()
	lines := bytes.SplitAfter(text, []byte("\n"))
	out := compress(t, lines[0])
	for lines = lines[1:]; len(lines) > 0 && len(lines[0]) > 0; lines = lines[min(n, len(lines)):] {
		out = append(out, stream(t, bytes.Join(lines[:min(n, len(lines))], nil))...)
	}
	return out
}

// readAll reads a finished file to its end.
func readAll(path string, opts ...Option) (evs []session.Event, r *Reader, err error) {
	r, err = Open(path, opts...)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for r.Next() {
		evs = append(evs, r.Event().Clone())
	}
	return evs, r, r.Err()
}

// same compares events by what a ledger says of them.
func same(a, b []session.Event) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d events, want %d", len(a), len(b))
	}
	for i := range a {
		x, y := a[i], b[i]
		if fmt.Sprint(x.Seq, x.Time, x.Type, string(x.Data), x.SurfaceOp != nil, x.SourceEventSeqs, x.Ignorable, string(x.RawSurfaceOp)) !=
			fmt.Sprint(y.Seq, y.Time, y.Type, string(y.Data), y.SurfaceOp != nil, y.SourceEventSeqs, y.Ignorable, string(y.RawSurfaceOp)) {
			return fmt.Errorf("event %d: %d %s, want %d %s", i, x.Seq, x.Type, y.Seq, y.Type)
		}
	}
	return nil
}

const (
	headerV0 = `{"type":"session","version":0,"id":"s","createdAt":1,"delegationDepth":0}` + "\n"
	headerV3 = `{"type":"session","version":3,"id":"s","createdAt":1,"isSeeded":false,"delegationDepth":0}` + "\n"
)

func rowOf(seq int) string {
	return fmt.Sprintf(`{"type":"x/opaque","seq":%d,"time":%d,"data":{"n":%d},"ignorable":true}`+"\n", seq, seq, seq)
}

func TestEverySharedSessionFileReads(t *testing.T) {
	root := shared(t, "data", "dsh")
	read := 0
	for version := 0; version <= 4; version++ {
		dir := filepath.Join(root, fmt.Sprint("v", version))
		ledgers, err := Discover(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ledgers {
			read++
			t.Run(fmt.Sprint("v", version, "/", filepath.Base(l.Path)), func(t *testing.T) {
				evs, r, err := readAll(l.Path)
				if err != nil || r.Tail().Torn() || len(evs) == 0 {
					t.Fatalf("%d events, %v, tail %+v", len(evs), err, r.Tail())
				}
				if r.Dialect().Version() != version {
					t.Errorf("dialect %d", r.Dialect().Version())
				}
				for i, ev := range evs {
					if ev.Seq != int64(i) || !json.Valid(ev.Data) {
						t.Fatalf("event %d has seq %d", i, ev.Seq)
					}
				}
				// One is refused, by name, as the reference's restorer refuses it.
				err = trace(r, evs)
				var broken *session.InvariantError
				if restart := version == 3 && strings.HasPrefix(filepath.Base(l.Path), "native-v3-restart"); restart {
					if !errors.As(err, &broken) || broken.Code != session.CodeTurnOpen || broken.Seq != 10 {
						t.Errorf("the trace says %v", err)
					}
				} else if err != nil {
					t.Error(err)
				}
				raw, zstd := strings.CutSuffix(l.Path, ".zstd")
				if version >= 3 && zstd {
					want, _, err := readAll(raw)
					if err := errors.Join(err, same(evs, want)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	if read < 80 {
		t.Errorf("only %d files", read)
	}
}

func TestPackedAndPlainChunksReadTheSame(t *testing.T) {
	packed := headerV0 +
		`{"type":"text-chunks","seq0":0,"time0":10,"data":{"turn":1,"step":1,"index":0,"dt":[5,-2],"texts":["a","b\"","c"]}}` + "\n" +
		`{"type":"tool-call-chunks","seq0":3,"time0":20,"data":{"turn":1,"step":1,"index":1,"id":"c","name":"n","dt":[],"args":["{"]}}` + "\n"
	plain := headerV0 +
		`{"type":"assistant/chunk","seq":0,"time":10,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}}` + "\n" +
		`{"type":"assistant/chunk","seq":1,"time":15,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"b\""}}}` + "\n" +
		`{"type":"assistant/chunk","seq":2,"time":13,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"c"}}}` + "\n" +
		`{"type":"assistant/chunk","seq":3,"time":20,"data":{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":1,"id":"c","name":"n","argumentsDelta":"{"}}}` + "\n"
	a, _, errA := readAll(write(t, "a.jsonl", []byte(packed)))
	b, _, errB := readAll(write(t, "b.jsonl", []byte(plain)))
	if err := errors.Join(errA, errB, same(a, b)); err != nil {
		t.Fatal(err)
	}
}

func TestTailRulesOfARawFile(t *testing.T) {
	end := `{"type":"turn/end","seq":2,"time":0,"data":{"turn":1,"reason":{"kind":"completed"}}}` + "\n"
	for _, c := range []struct {
		name   string
		text   string
		events int
		tail   int // bytes
		code   session.Code
		row    int64
	}{
		{"whole", rowOf(0) + rowOf(1), 2, 0, "", 0},
		{"header only", "", 0, 0, "", 0},
		{"half a line", rowOf(0) + `{"type":"x`, 1, 10, "", 0},
		{"a whole row without line end", rowOf(0) + strings.TrimSpace(rowOf(1)), 1, len(rowOf(1)) - 1, "", 0},
		{"a bad row at the end", rowOf(0) + "{\n", 1, 2, "", 0},
		{"a bad row and good ones behind it", rowOf(0) + "{\n" + rowOf(1), 1, 2 + len(rowOf(1)), "", 0},
		{"an empty line", rowOf(0) + "\n", 1, 1, "", 0},
		{"a bad row before a turn/end", rowOf(0) + "{\n" + end, 1, 0, session.CodeRowJSON, 3},
		{"a gap", rowOf(0) + rowOf(2), 1, len(rowOf(2)), "", 0},
		{"a gap before a turn/end", rowOf(0) + rowOf(5) + rowOf(6) + end, 1, 0, session.CodeSeqGap, 3},
		{"a turn/end out of place", rowOf(0) + end, 1, 0, session.CodeSeqGap, 3},
		{"a packed row with a gap is dropped whole", rowOf(0) + `{"type":"text-chunks","seq0":3,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["a"]}}` + "\n", 1, 101, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := []byte(headerV0 + c.text)
			evs, r, err := readAll(write(t, "s.jsonl", text))
			var corrupt *CorruptError
			if c.code != "" {
				if !errors.As(err, &corrupt) || corrupt.Code != c.code || corrupt.Row != c.row {
					t.Fatalf("%v, want code %s in row %d", err, c.code, c.row)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if len(evs) != c.events {
				t.Errorf("%d events, want %d", len(evs), c.events)
			}
			if c.code == "" && (r.Tail().Bytes != int64(c.tail) || r.Tail().Torn() != (c.tail > 0) || r.Tail().Torn() && r.Tail().Offset != int64(len(text)-c.tail)) {
				t.Errorf("tail %+v, want %d bytes", r.Tail(), c.tail)
			}
			if want := int64(len(text) - c.tail); c.code == "" && r.CommittedBytes() != want {
				t.Errorf("%d bytes committed, want %d", r.CommittedBytes(), want)
			}
		})
	}
}

func TestTornFrameGivesItsWholeLines(t *testing.T) {
	// Blocks hold 128 KiB, so a cut in the second one leaves the first.
	var body []byte
	for i := range 20_000 {
		body = append(body, rowOf(i)...)
	}
	first := append(compress(t, []byte(headerV0)), compress(t, []byte(rowOf(0)))...)
	body = body[len(rowOf(0)):]
	last := stream(t, body)
	file := append(bytes.Clone(first), last...)
	evs, r, err := readAll(write(t, "s.jsonl.zstd", file[:len(file)-5]))
	if err != nil || len(evs) < 1000 || !r.Tail().Torn() {
		t.Fatalf("%d events, %v, %+v", len(evs), err, r.Tail())
	}
	if tail := r.Tail(); tail.Offset != int64(len(first)) || tail.Bytes != int64(len(last)-5) || tail.Skip == 0 || tail.Cause != nil {
		t.Errorf("%+v", tail)
	}
	for i, ev := range evs {
		if ev.Seq != int64(i) {
			t.Fatal(i, ev.Seq)
		}
	}
}

func TestFrameZeroHoldsExactlyTheHeader(t *testing.T) {
	header, body := []byte(headerV0), []byte(rowOf(0))
	for name, c := range map[string]struct {
		file []byte
		code session.Code
		err  error
	}{
		"all in one frame":      {compress(t, append(bytes.Clone(header), body...)), CodeHeaderFrame, nil},
		"no line end":           {append(compress(t, header[:len(header)-1]), compress(t, body)...), CodeHeaderFrame, nil},
		"header over two":       {append(compress(t, header[:9]), compress(t, header[9:])...), CodeHeaderFrame, nil},
		"empty first frame":     {append(compress(t, nil), compress(t, header)...), CodeHeaderFrame, nil},
		"torn":                  {compress(t, header)[:20], "", ErrHeaderIncomplete},
		"magic only":            {zstdMagic, "", ErrHeaderIncomplete},
		"empty file":            {nil, "", ErrHeaderIncomplete},
		"raw without line end":  {header[:len(header)-1], "", ErrHeaderIncomplete},
		"raw, not JSON":         {[]byte("{\n"), session.CodeHeaderJSON, nil},
		"raw, an event":         {body, session.CodeHeaderShape, nil},
		"raw, version 5":        {[]byte(strings.Replace(headerV0, `version":0`, `version":5`, 1)), CodeVersion, nil},
		"raw, header too long":  {append(bytes.Repeat([]byte{' '}, 2<<20), '\n'), session.CodeHeaderFraming, nil},
		"zstd, frame ends mid":  {append(compress(t, header), compress(t, body[:9])...), CodeFrameLine, nil},
		"zstd, flipped bit":     {flip(append(compress(t, header), compress(t, body)...), -1), CodeChecksum, nil},
		"zstd, noise behind it": {append(compress(t, header), "noise"...), CodeFrame, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := readAll(write(t, "s", c.file))
			var corrupt *CorruptError
			switch {
			case c.err != nil && !errors.Is(err, c.err):
				t.Errorf("%v, want %v", err, c.err)
			case c.code != "" && (!errors.As(err, &corrupt) || corrupt.Code != c.code):
				t.Errorf("%v, want code %s", err, c.code)
			}
		})
	}
	var version *session.UnsupportedVersionError
	_, err := Open(write(t, "s", []byte(`{"version":17}`+"\n")))
	if !errors.As(err, &version) || !version.Newer || version.Version != 17 {
		t.Errorf("%v", err)
	}
}

func flip(b []byte, at int) []byte {
	b[(at+len(b))%len(b)] ^= 1
	return b
}

// The last row of a file is a whole line and no event. From version 2 on that is
// where the ledger ends. The reader of versions 0 and 1 takes any object that has
// the next seq, and refuses the session for it afterwards.
func TestWhereALedgerEndsIsAskedByVersion(t *testing.T) {
	header := func(version int) string {
		seeded := ""
		if version > 1 {
			seeded = `"isSeeded":false,`
		}
		return fmt.Sprintf(`{"type":"session","version":%d,"id":"s","createdAt":1,%s"delegationDepth":0}`+"\n", version, seeded)
	}
	for name, c := range map[string]struct {
		row       string
		refuses01 session.Code // empty: torn there too
	}{
		"no type":         {`{"seq":1,"time":1,"data":{}}`, session.CodeFieldMissing},
		"no time":         {`{"type":"plan/mode","seq":1,"data":{}}`, session.CodeFieldMissing},
		"no data":         {`{"type":"plan/mode","seq":1,"time":1}`, session.CodeFieldMissing},
		"a time":          {`{"type":"plan/mode","seq":1,"time":1.5,"data":{}}`, session.CodeTime},
		"a type":          {`{"type":7,"seq":1,"time":1,"data":{}}`, session.CodeType},
		"ignorable":       {`{"type":"plan/mode","seq":1,"time":1,"data":{},"ignorable":false}`, session.CodeIgnorable},
		"one field more":  {`{"type":"plan/mode","seq":1,"time":1,"data":{},"x":1}`, session.CodeFieldUnexpected},
		"sources":         {`{"type":"tool/result","seq":1,"time":1,"data":{},"sourceEventSeqs":[1],"surfaceOp":"append"}`, session.CodeSources},
		"no seq":          {`{"type":"plan/mode","time":1,"data":{}}`, ""},
		"another seq":     {`{"type":"plan/mode","seq":2,"time":1.5,"data":{}}`, ""},
		"no object":       {`[1]`, ""},
		"no JSON":         {`{"type"`, ""},
		"a malformed run": {`{"type":"text-chunks","seq0":1,"time0":1,"seq":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["a"]}}`, ""},
	} {
		for version := range 4 {
			t.Run(fmt.Sprint(name, "/v", version), func(t *testing.T) {
				evs, r, err := readAll(write(t, "s.jsonl", []byte(header(version)+rowOf(0)+c.row+"\n")))
				if version <= 1 && c.refuses01 != "" {
					var corrupt *CorruptError
					if !errors.As(err, &corrupt) || corrupt.Code != c.refuses01 || corrupt.Row != 3 {
						t.Errorf("%v, want %s in row 3", err, c.refuses01)
					}
				} else if err != nil || len(evs) != 1 || !r.Tail().Torn() || r.Tail().Cause == nil {
					t.Errorf("%d events, %v, tail %+v", len(evs), err, r.Tail())
				}
			})
		}
	}
	for version := range 4 {
		_, r, err := readAll(write(t, "s.jsonl", []byte(header(version)+`{"type":"session/end-seed","seq":0,"time":1,"data":5}`+"\n")))
		if err != nil || r.Tail().Torn() != (version > 1) {
			t.Errorf("v%d, the payload of session/end-seed: %v, tail %+v", version, err, r.Tail())
		}
	}
}

func TestSeedMarkersAndHeaderHaveToAgree(t *testing.T) {
	seeded := strings.Replace(headerV3, "false", "true", 1)
	marker := func(seq int, data string) string {
		return fmt.Sprintf(`{"type":"session/end-seed","seq":%d,"time":0,"data":%s}`+"\n", seq, data)
	}
	for _, c := range []struct {
		name, text string
		count      int64
		code       session.Code
	}{
		{"last marker", seeded + marker(0, `{"inherited":true}`) + rowOf(1) + marker(2, `{"inherited":true}`) + marker(3, `{}`), 2, ""},
		{"none", seeded + marker(0, `{}`), 0, session.CodeMarkerMissing},
		{"unexpected", headerV3 + marker(0, `{"inherited":true}`), 0, session.CodeMarkerUnexpected},
		{"unseeded", headerV3 + marker(0, `{}`), 0, ""},
		{"seedLength", strings.Replace(headerV0, `,"del`, `,"seedLength":1,"del`, 1) + rowOf(0) + marker(1, `{}`), 1, ""},
		{"seedLength beyond the events", strings.Replace(headerV0, `,"del`, `,"seedLength":2,"del`, 1) + rowOf(0), 0, session.CodeMarkerMissing},
		{"seedLength beyond a torn tail", strings.Replace(headerV0, `,"del`, `,"seedLength":2,"del`, 1) + rowOf(0) + rowOf(1)[:20], 0, session.CodeMarkerMissing},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, "s.jsonl", []byte(c.text))
			_, r, err := readAll(path)
			var corrupt *CorruptError
			if c.code != "" {
				if !errors.As(err, &corrupt) || corrupt.Code != c.code {
					t.Fatalf("%v, want %s", err, c.code)
				}
				return
			}
			if err != nil || r.InheritedCount() != c.count {
				t.Errorf("%d inherited, want %d; %v", r.InheritedCount(), c.count, err)
			}
			if n, err := InheritedCount(path); err != nil || n != c.count {
				t.Errorf("looking ahead: %d, want %d; %v", n, c.count, err)
			}
		})
	}
}
