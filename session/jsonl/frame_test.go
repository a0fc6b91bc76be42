package jsonl

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// encoders are kept over the tests: making one takes longer than a small frame.
var encoders sync.Pool

func encoder(t testing.TB) *zstd.Encoder {
	t.Helper()
	if e, ok := encoders.Get().(*zstd.Encoder); ok {
		return e
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// compress makes one frame with content size and checksum.
func compress(t testing.TB, data []byte) []byte {
	t.Helper()
	e := encoder(t)
	defer encoders.Put(e)
	return e.EncodeAll(data, nil)
}

// stream makes one frame without content size, as a streaming writer does.
func stream(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	e := encoder(t)
	defer encoders.Put(e)
	e.Reset(&b)
	for len(data) > 0 {
		n := min(len(data), 100_000)
		if _, err := e.Write(data[:n]); err != nil {
			t.Fatal(err)
		}
		data = data[n:]
	}
	if err := errors.Join(e.Flush(), e.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readFrames decodes all frames of file one by one.
func readFrames(file []byte, maxWindow uint64) (frames [][]byte, err error) {
	r, err := newFrameReader(bytes.NewReader(file), maxWindow)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for off := int64(0); ; off = r.end {
		if err := r.open(off, 0); err != nil {
			if err == io.EOF {
				err = nil
			}
			return frames, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return frames, err
		}
		frames = append(frames, data)
	}
}

func TestFramesAreWalkedByBlockHeadersNotByMagic(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 400_000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	// Incompressible bytes stand in the file as they are, this magic too.
	copy(noise[1000:], zstdMagic)
	contents := [][]byte{[]byte("x\n"), nil, noise, bytes.Repeat([]byte("ab"), 3<<20), []byte("end\n")}
	var file []byte
	for i, c := range contents {
		if i%2 == 0 {
			file = append(file, compress(t, c)...)
		} else {
			file = append(file, stream(t, c)...)
		}
	}
	got, err := readFrames(file, 64<<20)
	if err != nil || len(got) != len(contents) {
		t.Fatalf("%d frames of %d, %v", len(got), len(contents), err)
	}
	for i := range got {
		if !bytes.Equal(got[i], contents[i]) {
			t.Errorf("frame %d differs", i)
		}
	}
}

func TestFrameCutAnywhereIsIncompleteNotCorrupt(t *testing.T) {
	first := compress(t, []byte("header\n"))
	second := stream(t, []byte(strings.Repeat("some row\n", 30_000)))
	file := append(bytes.Clone(first), second...)
	for cut := 1; cut < len(file); cut++ {
		_, err := readFrames(file[:cut], 8<<20)
		if cut == len(first) {
			if err != nil {
				t.Fatal(err)
			}
		} else if err != io.ErrUnexpectedEOF {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

// Fewer bytes than a magic number behind the last frame are what a write left
// that was cut off, whatever they are; four of them are another frame or none.
func TestFewerBytesThanAMagicNumberAreATail(t *testing.T) {
	file := append(compress(t, []byte(headerV3)), compress(t, []byte(rowOf(0)))...)
	for n := range 6 {
		evs, r, err := readAll(write(t, "s", append(bytes.Clone(file), make([]byte, n)...)))
		if n < 4 {
			if err != nil || len(evs) != 1 || r.Tail().Bytes != int64(n) || n > 0 && r.Tail().Offset != int64(len(file)) {
				t.Errorf("%d bytes: %d events, %v, %+v", n, len(evs), err, r.Tail())
			}
			continue
		}
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Code != CodeFrame {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestDamagedFrameIsCorruption(t *testing.T) {
	good := compress(t, bytes.Repeat([]byte("a row of text\n"), 1000))
	for _, c := range []struct {
		name string
		edit func(b []byte) []byte
		want error
	}{
		{"checksum", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, errFrameChecksum},
		{"magic", func(b []byte) []byte { b[0] ^= 1; return b }, errFrameMagic},
		{"zeros", func([]byte) []byte { return make([]byte, 100) }, errFrameMagic},
		{"four zeros", func([]byte) []byte { return make([]byte, 4) }, errFrameMagic},
		{"reserved bit", func(b []byte) []byte { b[4] |= 8; return b }, errFrameFormat},
		{"dictionary", func(b []byte) []byte { b[4] |= 1; return b }, errFrameDict},
		{"skippable frame", func([]byte) []byte { return []byte{0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 0} }, errFrameMagic},
		{"reserved block type", func([]byte) []byte { return append(bytes.Clone(zstdMagic), 0, 0x58, 7, 0, 0) }, errFrameFormat},
		{"huge block", func([]byte) []byte { return append(bytes.Clone(zstdMagic), 0, 0x58, 0xFF, 0xFF, 0xFF) }, errFrameFormat},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := readFrames(c.edit(bytes.Clone(good)), 8<<20); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	for i := 5; i < len(good); i++ {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if got, err := readFrames(bad, 8<<20); err == nil && !bytes.Equal(got[0], bytes.Repeat([]byte("a row of text\n"), 1000)) {
			t.Errorf("flip at %d went unnoticed", i)
		}
	}
}

func TestWindowBeyondTheLimitIsRefusedBeforeDecoding(t *testing.T) {
	for _, desc := range []byte{0x88, 0x70, 0xF8} { // 128 MiB, 16 MiB, far too much
		file := append(bytes.Clone(zstdMagic), 0x04, desc, 0x01, 0, 0)
		if _, err := readFrames(file, 8<<20); !errors.Is(err, errFrameWindow) {
			t.Errorf("window %#x: %v", desc, err)
		}
	}
	single := append(bytes.Clone(zstdMagic), 0xE4)
	single = binary.LittleEndian.AppendUint64(single, 1<<40)
	if _, err := readFrames(append(single, 1, 0, 0), 8<<20); !errors.Is(err, errFrameWindow) {
		t.Errorf("single segment: %v", err)
	}
}

func TestOtherToolsAgreeOnFrames(t *testing.T) {
	tool, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("the zstd command is not installed")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x.jsonl")
	text := []byte(strings.Repeat("{\"n\":1}\n", 10_000))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"-1", "-3", "-19", "--no-check"} {
		out, err := exec.Command(tool, level, "-c", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := readFrames(append(out, out...), 8<<20)
		if err != nil || len(got) != 2 || !bytes.Equal(got[1], text) {
			t.Errorf("%s: %d frames, %v", level, len(got), err)
		}
	}
}

// Whatever the bytes are, walking ends, and complete frames decode as the
// library decodes them.
func FuzzZstdScan(f *testing.F) {
	for _, h := range []string{"28b52ffd045801000099e9d851", "28b52ffd04580900000a2b57e4ce", "28b52ffd04584d00001061610100fa9f0758cb03f64e"} {
		b, err := hex.DecodeString(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, b...))
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		frames, err := readFrames(file, 1<<20)
		if err != nil {
			return
		}
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		defer dec.Close()
		want, err := dec.DecodeAll(file, nil)
		if err == nil && !bytes.Equal(bytes.Join(frames, nil), want) {
			t.Fatal("decoded differently")
		}
	})
}

// streamTo is stream for what does not fit in memory.
func streamTo(w io.Writer, r io.Reader) error {
	enc, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(2<<20))
	if err != nil {
		return err
	}
	_, err = io.Copy(enc, r)
	return errors.Join(err, enc.Close())
}
