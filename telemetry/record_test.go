package telemetry

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

func sampleRecord() Record {
	id := Identity{SessionID: "s-1", CreatedAt: 1796031737844, FormatVersion: 2, Incarnation: 3, Seq: 41}
	return Record{
		SessionScoped: true, Identity: id, UID: id.UID(), Type: "tool/result", EventName: "tool/result",
		TimeMs: 1796031737881, ObservedMs: 1796031737999, Severity: SeverityError,
		Attributes: []attribute.KeyValue{
			attribute.String(KeyCwd, "/srv/demo"),
			attribute.Map("nested", attribute.Bool("yes", true), attribute.Float64("half", .5),
				attribute.Slice("list", attribute.Value{}, attribute.ByteSliceValue([]byte{0, 1}))),
			attribute.StringSlice("words", []string{"a", ""}),
			attribute.BoolSlice("bools", []bool{true, false}),
			attribute.Float64Slice("doubles", []float64{math.Inf(1), 0}),
		},
		Surface: SurfaceFacts{Op: SurfaceReplace, Start: 9, End: 4, Sources: []int64{7, 9, 11, 4},
			Seen: true, Nodes: 12, ReplaceGeneration: 1, ContentGeneration: 2, Hash: [32]byte{1, 31: 2}},
		Body:     []byte(`{"turn":1}`),
		Resource: NewResource("https://example.com/schema", attribute.String("service.name", "agent"), attribute.Int("n", 7)),
		Scope:    Scope{Name: ScopeLedger, Version: "1"},
		Policy:   "sha256:00", Redactions: []RuleCount{{"aws-access-token", 2}, {"pii-email", 1}},
		Inherited: true, Cut: 4096,
	}
}

func TestStoredRecordComesBackAsItWas(t *testing.T) {
	full := sampleRecord()
	ops := Record{Channel: ChannelOps, Op: OpBridgeStarted, EventName: OpBridgeStarted, UID: OpsUID("i", 1), Identity: Identity{}}
	marker := *full.withhold(ReasonPolicy, full.Resource, full.Scope)
	for _, want := range []Record{full, ops, marker, {}} {
		stored, err := want.AppendBinary([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(stored[len("before"):])
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v\nwant\n%+v", got, want)
		}
	}
}

func TestDecoderGivesEqualResourcesOnePointer(t *testing.T) {
	a, b := sampleRecord(), sampleRecord()
	other := sampleRecord()
	other.Resource = NewResource("", attribute.String("service.name", "another"))
	var d Decoder
	var got []*Resource
	for _, r := range []Record{a, b, other} {
		stored, _ := r.AppendBinary(nil)
		dec, err := d.Decode(stored)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, dec.Resource)
	}
	if got[0] != got[1] || got[0] == got[2] {
		t.Fatalf("pointers %p %p %p", got[0], got[1], got[2])
	}
}

func TestDecodeRefusesEveryTruncationWithoutPanic(t *testing.T) {
	r := sampleRecord()
	stored, _ := r.AppendBinary(nil)
	for n := range len(stored) - len(r.Body) {
		if _, err := DecodeRecord(stored[:n]); !errors.Is(err, ErrRecordForm) {
			t.Fatalf("%d of %d bytes: %v", n, len(stored), err)
		}
	}
	later := bytes.Clone(stored)
	later[0] = recordVersion + 1
	if _, err := DecodeRecord(later); !errors.Is(err, ErrRecordForm) {
		t.Fatalf("a later version: %v", err)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	r := sampleRecord()
	stored, _ := r.AppendBinary(nil)
	f.Add(stored)
	f.Add([]byte{recordVersion, 0, 9, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		r.AllAttributes()
		again, err := r.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRecord(again); err != nil {
			t.Fatalf("what was read cannot be stored: %v", err)
		}
	})
}

func attributeMap(kvs []attribute.KeyValue) map[string]any {
	m := make(map[string]any)
	for _, kv := range kvs {
		if _, twice := m[string(kv.Key)]; twice {
			m["twice: "+string(kv.Key)] = true
		}
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

func TestAllAttributesAreThoseOfTheTable(t *testing.T) {
	r := sampleRecord()
	r.Attributes = append(r.Attributes[:1:1], attribute.String(KeySessionID, "another"), attribute.Int(KeyEventSeq, 9), attribute.Int(KeySurfaceNodes, 1))
	r.TimeMs = math.MaxInt64
	want := map[string]any{
		"session.id": "s-1", "session.created_at": int64(1796031737844), "session.format_version": int64(2),
		"event.type": "tool/result", "event.seq": int64(41), "session.cwd": "/srv/demo",
		"log.record.uid": r.UID, "otel_bridge.incarnation": int64(3), "otel_bridge.policy": "sha256:00",
		"otel_bridge.redactions": []attribute.KeyValue{attribute.Int("aws-access-token", 2), attribute.Int("pii-email", 1)},
		"surface.op":             "replace", "surface.start_seq": int64(9), "surface.end_seq": int64(4),
		"surface.source_seqs": []int64{7, 9, 11, 4}, "surface.nodes": int64(12),
		"surface.replace_generation": int64(1), "surface.content_generation": int64(2),
		"surface.hash":          "01" + strings.Repeat("00", 30) + "02",
		"otel_bridge.inherited": true, "otel_bridge.cut": int64(4096), "otel_bridge.time_ms": int64(math.MaxInt64),
	}
	if got := attributeMap(r.AllAttributes()); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if r.Nanoseconds() != 0 {
		t.Errorf("a time that does not fit went out as %d", r.Nanoseconds())
	}
}

func TestMarkerHasIdentityTypeAndReasonOnly(t *testing.T) {
	r := sampleRecord()
	m := r.withhold(ReasonListenerError, r.Resource, r.Scope)
	want := map[string]any{
		"session.id": "s-1", "session.created_at": int64(1796031737844), "session.format_version": int64(2),
		"event.type": "tool/result", "event.seq": int64(41), "log.record.uid": r.UID,
		"otel_bridge.incarnation": int64(3), "otel_bridge.withheld": "listener-error",
	}
	if got := attributeMap(m.AllAttributes()); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if len(m.Body) > 0 || len(m.Attributes) > 0 {
		t.Error("a marker has content")
	}
}

func TestOpsRecordsHaveNoEventSeq(t *testing.T) {
	r := Record{Channel: ChannelOps, Op: OpSessionHeld, SessionScoped: true, UID: OpsUID("inst", 4),
		Identity: Identity{SessionID: "s", CreatedAt: 5, Seq: 9}, Attributes: []attribute.KeyValue{attribute.String("code", "seq-gap")}}
	want := map[string]any{"otel_bridge.op": "session.held", "session.id": "s", "session.created_at": int64(5),
		"log.record.uid": r.UID, "code": "seq-gap"}
	if got := attributeMap(r.AllAttributes()); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestUIDChangesWithEachPartOfTheIdentityAndNothingElse(t *testing.T) {
	base := Identity{"s", 1, 2, 3, 4}
	seen := map[string]bool{base.UID(): true}
	for _, id := range []Identity{{"t", 1, 2, 3, 4}, {"s", 2, 2, 3, 4}, {"s", 1, 3, 3, 4}, {"s", 1, 2, 4, 4}, {"s", 1, 2, 3, 5}} {
		if seen[id.UID()] {
			t.Errorf("%+v has the uid of another", id)
		}
		seen[id.UID()] = true
	}
	// SHA-256 of the documented bytes, computed by other means (Python's hashlib).
	if got, want := base.UID(), "b66b4188-c43a-86c5-ba3d-c68126d07db3"; got != want {
		t.Errorf("uid %s, want %s", got, want)
	}
	if OpsUID("i", 1) == OpsUID("i", 2) || OpsUID("i", 1) == OpsUID("j", 1) {
		t.Error("two ops records share a uid")
	}
}

func TestTimesThatOTLPCannotHoldBecomeZero(t *testing.T) {
	for ms, ns := range map[int64]int64{
		0: 0, 1: 1e6, 1796031737881: 1796031737881e6, 9223372036854: 9223372036854e6,
		9223372036855: 0, -1: 0, math.MinInt64: 0, math.MaxInt64: 0,
	} {
		r := Record{TimeMs: ms, ObservedMs: ms}
		if r.Nanoseconds() != ns || r.ObservedNanoseconds() != ns {
			t.Errorf("%d ms: %d ns, want %d", ms, r.Nanoseconds(), ns)
		}
	}
}

func TestSeverityHasTheTextOfTheDataModel(t *testing.T) {
	for s, want := range map[Severity]string{0: "", 1: "TRACE", 5: "DEBUG", 9: "INFO", 10: "INFO2", 13: "WARN", 16: "WARN4", 17: "ERROR", 21: "FATAL", 24: "FATAL4", 25: ""} {
		if s.String() != want {
			t.Errorf("%d: %q, want %q", s, s.String(), want)
		}
	}
}

func BenchmarkAppendBinary(b *testing.B) {
	r := sampleRecord()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = r.AppendBinary(buf[:0])
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkDecodeRecord(b *testing.B) {
	r := sampleRecord()
	buf, _ := r.AppendBinary(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	var d Decoder
	for b.Loop() {
		if _, err := d.Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}
