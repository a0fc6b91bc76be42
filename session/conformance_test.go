package session

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/internal/conformance"
)

func TestConformanceHeader(t *testing.T) {
	type outcome struct {
		Outcome, Reason string
		Newer           bool
		Posix, Win32    *outcome
	}
	var tab struct {
		Cases []struct {
			ID                 string
			Record, BytesHex   *string
			FixtureFirstRecord string
			TS                 outcome
			Meta               map[string]any
		}
		AbsolutePaths []struct {
			Path         string
			Posix, Win32 bool
		}
	}
	table(t, "header", &tab)
	v3 := dialect(t, 3)
	reasons := map[string]Code{
		"framing": CodeHeaderFraming, "json": CodeHeaderJSON, "not-object": CodeHeaderNotObject,
		"retired-policy-fields": CodeHeaderRetired, "not-session-header": CodeHeaderShape,
	}
	count := conformance.New(t, "header")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			var record []byte
			switch {
			case c.BytesHex != nil:
				var err error
				if record, err = hex.DecodeString(*c.BytesHex); err != nil {
					t.Fatal(err)
				}
			case c.Record != nil:
				record = []byte(*c.Record + "\n")
			default:
				raw := fixture(t, c.FixtureFirstRecord)
				record = raw[:strings.IndexByte(string(raw), '\n')+1]
			}
			want := c.TS
			if want.Posix != nil {
				want = *want.Posix
				if runtime.GOOS == "windows" {
					want = *c.TS.Win32
				}
			}
			// The reference of the table reads version 3 only.
			h, err := v3.ParseHeaderRecord(record)
			var shape *HeaderError
			var version *UnsupportedVersionError
			switch want.Outcome {
			case "admitted":
				if err != nil {
					t.Fatal(err)
				}
				if c.Meta != nil {
					wantMeta(t, h, c.Meta)
				}
			case "unsupported":
				if !errors.As(err, &version) || version.Newer != want.Newer {
					t.Fatalf("got %v, want unsupported, newer %v", err, want.Newer)
				}
			case "rejected":
				code := reasons[want.Reason]
				if !errors.As(err, &shape) || shape.Code != code && !(code == CodeHeaderShape && shape.Code == CodeHeaderCwd) {
					t.Fatalf("got %v, want %s", err, code)
				}
			case "type-error":
				// The reference fails while it prints the id; here ids are not
				// printed, and the version refuses the header.
				if err == nil {
					t.Fatal("the header was admitted")
				}
			default:
				t.Fatalf("the table has a new outcome %q", want.Outcome)
			}
		})
	}
	for _, c := range tab.AbsolutePaths {
		count.Run(t, "path "+c.Path, func(t *testing.T) {
			if IsAbsolutePath(c.Path, false) != c.Posix || IsAbsolutePath(c.Path, true) != c.Win32 {
				t.Errorf("want %v on POSIX, %v on Windows", c.Posix, c.Win32)
			}
		})
	}
}

func wantMeta(t *testing.T, h *Header, meta map[string]any) {
	t.Helper()
	got := map[string]any{
		"version": float64(h.Version), "id": h.ID, "createdAt": float64(h.CreatedAt),
		"isSeeded": h.IsSeeded, "delegationDepth": float64(h.DelegationDepth),
	}
	for k, p := range map[string]*string{"cwd": h.Cwd, "parentSession": h.ParentSession, "agentPreset": h.AgentPreset} {
		if p != nil {
			got[k] = *p
		}
	}
	if h.Origin != "" {
		got["origin"] = h.Origin
	}
	if !reflect.DeepEqual(got, meta) {
		t.Errorf("header is %v, want %v", got, meta)
	}
}

type wantEnvelope struct {
	Type            string
	Seq, Time       int64
	Ignorable       bool
	SurfaceOp       json.RawMessage
	SourceEventSeqs []int64
}

func checkEnvelope(t *testing.T, ev *Event, want wantEnvelope) {
	t.Helper()
	if ev.Type != want.Type || ev.Seq != want.Seq || ev.Time != want.Time || ev.Ignorable != want.Ignorable {
		t.Errorf("event is %s %d %d %v, want %+v", ev.Type, ev.Seq, ev.Time, ev.Ignorable, want)
	}
	if !reflect.DeepEqual(ev.SourceEventSeqs, want.SourceEventSeqs) {
		t.Errorf("sources are %v, want %v", ev.SourceEventSeqs, want.SourceEventSeqs)
	}
	if (ev.RawSurfaceOp == nil) != (want.SurfaceOp == nil) {
		t.Fatalf("surfaceOp is %s, want %s", ev.RawSurfaceOp, want.SurfaceOp)
	}
	if want.SurfaceOp != nil {
		got, _ := Canonical(nil, ev.RawSurfaceOp)
		must, _ := Canonical(nil, want.SurfaceOp)
		if string(got) != string(must) {
			t.Errorf("surfaceOp is %s, want %s", got, must)
		}
	}
}

// decodeAt decodes a row as the seqth event of a ledger of dialect d.
func decodeAt(d *Dialect, row []byte, seq int64, ev *Event) error {
	err := DecodeEvent(d, Core(d), row, ev)
	var decode *DecodeError
	if errors.As(err, &decode) && decode.Stage != StageGeneration {
		return err
	}
	if ev.Seq != seq {
		return fmt.Errorf("seq gap: want %d, got %d", seq, ev.Seq)
	}
	return err
}

func TestConformanceEventEnvelope(t *testing.T) {
	type outcome struct {
		Outcome  string
		Envelope wantEnvelope
	}
	var tab struct {
		FixtureEnvelopes struct {
			Log    string
			Events []wantEnvelope
		}
		Cases []struct {
			ID          string
			ExpectedSeq int64
			Row         string
			TS          outcome
			V3          *outcome
		}
	}
	table(t, "event-envelope", &tab)
	check := func(t *testing.T, d *Dialect, row string, seq int64, want outcome) {
		var ev Event
		err := decodeAt(d, []byte(row), seq, &ev)
		switch want.Outcome {
		case "decoded":
			if err != nil {
				t.Fatal(err)
			}
			checkEnvelope(t, &ev, want.Envelope)
		case "rejected", "thrown":
			// Thrown is a TypeError of the reference while it prints a seq that
			// is an object: here that seq is refused like any other.
			if err == nil {
				t.Fatalf("version %d decoded it: %+v", d.Version(), ev)
			}
		default:
			t.Fatalf("the table has a new outcome %q", want.Outcome)
		}
	}
	count := conformance.New(t, "event-envelope")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			check(t, dialect(t, 2), c.Row, c.ExpectedSeq, c.TS)
			v3 := c.TS
			if c.V3 != nil {
				v3 = *c.V3
			}
			check(t, dialect(t, 3), c.Row, c.ExpectedSeq, v3)
		})
	}
	rows := lines(fixture(t, tab.FixtureEnvelopes.Log))[1:]
	for i, want := range tab.FixtureEnvelopes.Events {
		count.Run(t, fmt.Sprintf("fixture/%d", i), func(t *testing.T) {
			var ev Event
			if err := decodeAt(dialect(t, 3), rows[i], int64(i), &ev); err != nil {
				t.Fatal(err)
			}
			checkEnvelope(t, &ev, want)
		})
	}
}

func TestConformanceSourceEventSeqs(t *testing.T) {
	var tab struct {
		FixtureReferences struct {
			Log    string
			Events []struct {
				Seq             int64
				SourceEventSeqs []int64
			}
		}
		Cases []struct {
			ID    string
			Seq   int64
			Field *string
			TS    struct {
				Outcome string
				Seqs    []int64
			}
		}
	}
	table(t, "source-event-seqs", &tab)
	count := conformance.New(t, "source-event-seqs")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			row := fmt.Sprintf(`{"type":"x/opaque","seq":%d,"time":0,"data":{}`, c.Seq)
			if c.Field != nil {
				row += `,"sourceEventSeqs":` + *c.Field
			}
			row += "}"
			for _, version := range []int{2, 3} {
				var ev Event
				err := DecodeEvent(dialect(t, version), nil, []byte(row), &ev)
				switch c.TS.Outcome {
				case "absent":
					if err != nil || ev.SourceEventSeqs != nil {
						t.Errorf("got %v, %v; want none", ev.SourceEventSeqs, err)
					}
				case "decoded":
					if err != nil || ev.SourceEventSeqs == nil || !reflect.DeepEqual(ev.SourceEventSeqs, c.TS.Seqs) {
						t.Errorf("got %v, %v; want %v", ev.SourceEventSeqs, err, c.TS.Seqs)
					}
				case "rejected":
					var decode *DecodeError
					if !errors.As(err, &decode) || decode.Code != CodeSources {
						t.Errorf("got %v, want %s", err, CodeSources)
					}
				default:
					t.Fatalf("the table has a new outcome %q", c.TS.Outcome)
				}
			}
		})
	}
	_, _, events := readLedger(t, fixture(t, tab.FixtureReferences.Log))
	for _, want := range tab.FixtureReferences.Events {
		if got := events[want.Seq].SourceEventSeqs; !reflect.DeepEqual(got, want.SourceEventSeqs) {
			t.Errorf("event %d of the fixture cites %v, want %v", want.Seq, got, want.SourceEventSeqs)
		}
	}
}

func TestConformanceNumber(t *testing.T) {
	var tab struct {
		Printing []struct{ Lexeme, Text string }
	}
	table(t, "number", &tab)
	count := conformance.New(t, "number")
	for _, c := range tab.Printing {
		count.Run(t, c.Lexeme, func(t *testing.T) {
			n, ok := ParseNumber([]byte(c.Lexeme))
			if !ok {
				t.Fatal("no number")
			}
			if got := string(AppendDouble(nil, n.Float)); got != c.Text {
				t.Errorf("prints %s, want %s", got, c.Text)
			}
		})
	}
}

func TestConformanceRelationships(t *testing.T) {
	var tab struct {
		Cases []struct {
			ID, Header          string
			InheritedEventCount int64
			Events              []string
			Extensions          struct {
				StepEvents                      []string
				PreservedSourceTitleRequestText bool
				LegacyInterruptedTurnRestart    bool
			}
			TS struct {
				Outcome string
				At      int64
			}
		}
	}
	table(t, "relationships", &tab)
	count := conformance.New(t, "relationships")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			// The table's events are those of the version 1 codec, whatever
			// the header says; extensions stand for what later versions add.
			d := *dialect(t, 1)
			d.stepTypes = c.Extensions.StepEvents
			d.framesTitles = !c.Extensions.PreservedSourceTitleRequestText
			d.restartTurns = c.Extensions.LegacyInterruptedTurnRestart
			head := []byte(c.Header)
			h := &Header{}
			version, _ := Count(Member(head, "version"))
			h.Version = int(version)
			h.ID, _ = String(Member(head, "id"))
			h.IsSeeded = string(Member(head, "isSeeded")) == "true"
			if p := Member(head, "parentSession"); p != nil {
				s, _ := String(p)
				h.ParentSession = &s
			}
			r := NewRelations(h, &d, c.InheritedEventCount)
			first := int64(-1)
			note := func(err error) {
				var broken *InvariantError
				if errors.As(err, &broken) && (first < 0 || broken.Seq < first) {
					first = broken.Seq
				}
			}
			for i, row := range c.Events {
				var ev Event
				if err := DecodeEvent(&d, nil, []byte(row), &ev); err != nil {
					note(&InvariantError{Seq: int64(i)})
					break
				}
				note(r.Observe(&ev))
			}
			for _, err := range r.Finish() {
				note(err)
			}
			switch c.TS.Outcome {
			case "accepted":
				if first >= 0 {
					t.Errorf("found something at %d", first)
				}
			case "rejected":
				if first != c.TS.At {
					t.Errorf("found at %d (-1: nothing), want %d", first, c.TS.At)
				}
			case "threw":
				if first < 0 {
					t.Error("found nothing; the reference throws")
				}
			default:
				t.Fatalf("the table has a new outcome %q", c.TS.Outcome)
			}
		})
	}
}
