package outbox_test

import (
	"bytes"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// FuzzSegment damages a segment: edits are triples of an offset (2 bytes) and a value. With
// reseal the checksums are made right again, so that what the records say is met as it is.
// Whatever it is: no panic, no hang, and the outbox works; without reseal no altered payload.
func FuzzSegment(f *testing.F) {
	box, _ := smallBox(f, false)
	name := segmentOf(box, 1)
	image := box.Bytes(name)
	f.Add([]byte{}, uint16(0), false)
	f.Add([]byte{}, uint16(100), false)
	for _, at := range []int{0, 48, 4096, 4105, 16384, 16390, 16396, 16400, 16408} {
		f.Add([]byte{byte(at), byte(at >> 8), 0xFF}, uint16(at), false)
		f.Add([]byte{byte(at), byte(at >> 8), 0x7F, byte(at + 1), byte(at >> 8), 1}, uint16(0), true)
	}
	f.Fuzz(func(t *testing.T, edits []byte, cut uint16, reseal bool) {
		b := bytes.Clone(image)
		for ; len(edits) >= 3; edits = edits[3:] {
			b[(int(edits[0])|int(edits[1])<<8)%len(b)] = edits[2]
		}
		if reseal {
			b = outbox.Reseal(b)
		}
		fs := box.Clone()
		fs.Put(name, b[:len(b)-int(cut)%len(b)])
		if cut%5 == 1 {
			fs.Put(simDir+"/checkpoint.a", nil)
			fs.Put(simDir+"/checkpoint.b", nil)
		}
		use(t, fs, !reseal)
	})
}

// FuzzCheckpoint does the same with both checkpoint slots.
func FuzzCheckpoint(f *testing.F) {
	box, _ := smallBox(f, true)
	slot := bytes.TrimRight(box.Bytes(simDir+"/checkpoint.a"), "\x00")
	for at := 0; at < len(slot); at += 9 {
		f.Add([]byte{byte(at), byte(at >> 8), 0xFF}, false)
		f.Add([]byte{byte(at), byte(at >> 8), 0x7F}, true)
	}
	f.Fuzz(func(t *testing.T, edits []byte, reseal bool) {
		b := bytes.Clone(slot)
		for ; len(edits) >= 3; edits = edits[3:] {
			b[(int(edits[0])|int(edits[1])<<8)%len(b)] = edits[2]
		}
		if reseal {
			b = outbox.Reseal(b)
		}
		fs := box.Clone()
		fs.Put(simDir+"/checkpoint.a", b)
		fs.Put(simDir+"/checkpoint.b", b)
		use(t, fs, !reseal)
	})
}

func use(t *testing.T, fs *faultfs.FS, honest bool) {
	seen := func(key, p []byte) {
		if !honest {
			return // the fuzzer made it so, and the checksums too
		}
		if n := keyNumber(t, key); !bytes.Equal(p, simPayload(n)) {
			t.Fatalf("entry %d altered", n)
		}
	}
	if v, err := outbox.OpenReadOnly(simDir, outbox.Options{FS: fs}); err == nil {
		if err := v.Scan(func(i outbox.Info) bool {
			if i.State != outbox.Lost {
				seen(i.Key, i.Payload)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		checkSums(t, v.Stats())
		v.Close()
	}
	b, err := outbox.Open(simDir, outbox.Options{FS: fs, SegmentSize: 16 << 10})
	if err != nil {
		return
	}
	defer b.Close()
	if _, err := b.Commit(ctx, ledgerBatch(100, 3)); err != nil {
		t.Fatal(err)
	}
	for {
		l, err := b.TryLease(outbox.Limits{Records: 50})
		if err != nil {
			t.Fatal(err)
		}
		if l == nil {
			break
		}
		for _, e := range l.Entries() {
			seen(e.Key, e.Payload)
			if err := l.Ack(e.ID); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
	}
	if err := b.Recovered(b.Damaged()...); err != nil {
		t.Fatal(err)
	}
	checkSums(t, b.Stats())
}
