package otlp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

func openOutbox(t *testing.T, dir string) *outbox.Outbox {
	t.Helper()
	o, err := outbox.Open(dir, outbox.Options{SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// commit puts n records of one session into the outbox.
func commit(t *testing.T, o *outbox.Outbox, session string, from, n int, body func(i int) string) {
	t.Helper()
	var b outbox.Batch
	for i := from; i < from+n; i++ {
		r := record(session, i, body(i))
		b.Entries = append(b.Entries, outbox.Entry{Key: []byte(r.UID), Stream: session, Payload: stored(t, r)})
	}
	if _, err := o.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func plain(i int) string { return fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, strings.Repeat("x", 200)) }

// CASES 17 and 16: 503 for longer than any retry budget while 10,000 records
// come in, a restart in between, then 200.
func TestALongOutageLosesNothing(t *testing.T) {
	dir := t.TempDir()
	o := openOutbox(t, dir)
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "503")})
	cfg := quick(s.URL())
	cfg.Workers = 4
	d := newDeliverer(t, FromOutbox(o), cfg)
	for i := range 10 {
		commit(t, o, "session-"+strconv.Itoa(i), 0, 500, plain)
	}
	until(t, d, "many failures", func() bool { return d.State().Failures > 20 })
	if st := o.Stats(); st.Pending != 5000 || st.Leased != 0 {
		t.Fatalf("%+v", st)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}

	o = openOutbox(t, dir)
	d = newDeliverer(t, FromOutbox(o), cfg)
	for i := range 10 {
		commit(t, o, "session-"+strconv.Itoa(i), 500, 500, plain)
	}
	// The outage ends while delivery runs: had it been stopped just before, the
	// receiver could accept a request that nobody waits for any more.
	over := false
	until(t, d, "everything after the outage", func() bool {
		if !over && d.State().Failures > 5 {
			s.SetBehavior(receiver.Behavior{})
			over = true
		}
		return over && o.Stats().Pending == 0
	})
	if st := o.Stats(); st.Pending != 0 || st.Acked != 10000 || st.Quarantined != 0 {
		t.Errorf("%+v", st)
	}
	if got := uids(s); len(got) != 10000 || distinct(got) != 10000 {
		t.Errorf("%d received, %d distinct", len(got), distinct(got))
	}
	for i := range 10 {
		for at, seq := range uidsOf(t, s, "session-"+strconv.Itoa(i)) {
			if at != seq {
				t.Fatalf("session %d is out of order at %d", i, at)
			}
		}
	}
}

// Records that wait for a receiver are an operator's to discard or hold, also those that were
// tried already.
func TestWhatIsDiscardedOrHeldInAPauseIsNotSent(t *testing.T) {
	for _, answer := range []string{"503", "401"} {
		t.Run(answer, func(t *testing.T) {
			o := openOutbox(t, t.TempDir())
			for _, session := range []string{"a", "b", "c", "d"} {
				commit(t, o, session, 0, 3, plain)
			}
			s := startReceiver(t, receiver.Options{Behavior: behavior(t, answer)})
			cfg := quick(s.URL())
			cfg.Workers = 4
			cfg.MinBackoff, cfg.MaxBackoff, cfg.MinHold, cfg.MaxHold = time.Hour, time.Hour, time.Hour, time.Hour
			d := newDeliverer(t, FromOutbox(o), cfg)
			tried, acted := 1, false
			until(t, d, "all but what was discarded or held", func() bool {
				st := o.Stats()
				switch {
				case acted:
					return st.Pending == 0
				case d.State().Failures < tried || st.Leased > 0:
				case tried < 3:
					tried++
					d.TryNow()
				default:
					// Entries 1, 4, 7 and 10 are the first of each session.
					if err := o.Discard(1, 5, 9); err != nil {
						t.Error(err)
					}
					if n, err := o.Hold(func(i outbox.Info) bool { return i.ID == 10 }); n != 1 || err != nil {
						t.Error(n, err)
					}
					s.SetBehavior(receiver.Behavior{})
					d.TryNow()
					acted = true
				}
				return false
			})
			if st := o.Stats(); len(uids(s)) != 8 || st.Acked != 8 || st.Discarded != 3 || st.Held != 1 {
				t.Errorf("%d received, %+v", len(uids(s)), st)
			}
		})
	}
}

// CASES 18: the receiver hangs at shutdown; the next start delivers.
func TestAHangingReceiverAtShutdownKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	o := openOutbox(t, dir)
	commit(t, o, "a", 0, 2500, plain)
	commit(t, o, "b", 0, 2500, plain)
	s := startReceiver(t, receiver.Options{Behavior: receiver.Behavior{Kind: receiver.Hang}})
	d := newDeliverer(t, FromOutbox(o), Config{Endpoint: s.URL(), Timeout: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	var left *UndeliveredError
	if err := d.Drain(ctx); !errors.As(err, &left) || left.Pending != 5000 || time.Since(began) > patience {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	o = openOutbox(t, dir)
	s.SetBehavior(receiver.Behavior{})
	drain(t, newDeliverer(t, FromOutbox(o), quick(s.URL())))
	if st := o.Stats(); st.Acked != 5000 || distinct(uids(s)) != 5000 {
		t.Errorf("%+v, %d received", st, distinct(uids(s)))
	}
}

// CASES 20 and 22 with the real quarantine: what an operator sees.
func TestQuarantineKeepsWhyAndWhat(t *testing.T) {
	o := openOutbox(t, t.TempDir())
	commit(t, o, "s", 0, 512, func(i int) string {
		if i == 77 {
			return `"POISON"`
		}
		return plain(i)
	})
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400-if=POISON")})
	d := newDeliverer(t, FromOutbox(o), quick(s.URL()))
	drain(t, d)
	st := o.Stats()
	if st.Acked != 511 || st.Quarantined != 1 || st.Committed != 512 || d.Stats().Requests != 19 {
		t.Errorf("%+v after %d requests", st, d.Stats().Requests)
	}
	commit(t, o, "t", 0, 5, plain)
	s.SetBehavior(behavior(t, "partial=2:message=no room"))
	drain(t, d)
	n := 0
	err := o.Scan(func(i outbox.Info) bool {
		if i.State != outbox.Quarantined {
			return true
		}
		n++
		q := i.Quarantine
		r, err := telemetry.DecodeRecord(i.Payload)
		if err != nil || string(i.Key) != r.UID {
			t.Errorf("%v, key %q", err, i.Key)
		}
		switch r.Identity.SessionID {
		case "s":
			if r.Identity.Seq != 77 || q.Reason != ReasonRefused || q.Outcome != outbox.OutcomeRefused || q.ReceiverWords != "the request holds POISON" {
				t.Errorf("%+v", q)
			}
		case "t":
			if q.Reason != ReasonPartial || q.Outcome != outbox.OutcomeUnknown || !strings.Contains(q.ReceiverWords, "2 of 5") || !strings.Contains(q.ReceiverWords, "no room") {
				t.Errorf("%+v", q)
			}
		}
		return true
	})
	if err != nil || n != 6 {
		t.Errorf("%d in quarantine, %v", n, err)
	}
}

// CASES 26: nobody listens at first; then the receiver comes up.
func TestAReceiverThatComesUpLaterGetsEverything(t *testing.T) {
	s := startReceiver(t, receiver.Options{})
	addr := s.Addr()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o := openOutbox(t, t.TempDir())
	commit(t, o, "s", 0, 300, plain)
	d := newDeliverer(t, FromOutbox(o), quick("http://"+addr+"/v1/logs"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	for d.State().Failures < 3 {
		time.Sleep(time.Millisecond)
	}
	s = startReceiver(t, receiver.Options{Addr: addr})
	drain(t, d)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := uids(s); len(got) != 300 || distinct(got) != 300 || o.Stats().Acked != 300 {
		t.Errorf("%d received, %+v", len(got), o.Stats())
	}
}

// Whatever a receiver answers, in whatever order, with restarts in between: a
// record is received, or in quarantine, or pending; only answers that were lost
// make duplicates, of the batch in flight.
func TestRandomFaultsLoseNothing(t *testing.T) {
	faults := []string{"ok", "ok", "ok", "503", "429:retry-after=0", "500", "400", "422", "413", "400-if=POISON", "413-over=3000", "partial=1", "partial=3:json", "partial=600", "warn=w",
		"lost", "reset", "html", "302", "401", "404", "hang", "endless", "204"}
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			var script []receiver.Behavior
			for range 60 {
				script = append(script, behavior(t, faults[r.IntN(len(faults))]))
			}
			s := startReceiver(t, receiver.Options{Script: script, Behavior: behavior(t, "400-if=POISON")})
			dir := t.TempDir()
			cfg := quick(s.URL())
			cfg.Workers, cfg.MaxBatchRecords = 1+r.IntN(4), 1+r.IntN(64)
			cfg.Timeout = 100 * time.Millisecond
			want := make(map[string]bool)
			seqs := make(map[string]int)
			o := openOutbox(t, dir)
			for range 6 { // restarts
				for range 3 {
					session := strconv.Itoa(r.IntN(5))
					n := 1 + r.IntN(60)
					commit(t, o, session, seqs[session], n, func(i int) string {
						if r.IntN(40) == 0 {
							return `"POISON"`
						}
						return plain(i)
					})
					for i := range n {
						want[record(session, seqs[session]+i, "").UID] = true
					}
					seqs[session] += n
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(60))*time.Millisecond)
				if err := newDeliverer(t, FromOutbox(o), cfg).Run(ctx); err != nil {
					t.Fatal(err)
				}
				cancel()
				if err := o.Close(); err != nil {
					t.Fatal(err)
				}
				o = openOutbox(t, dir)
			}
			cfg.Timeout = patience
			s.SetBehavior(behavior(t, "400-if=POISON"))
			drain(t, newDeliverer(t, FromOutbox(o), cfg))

			received := make(map[string]int)
			for _, uid := range uids(s) {
				received[uid]++
			}
			quarantined := make(map[string]bool)
			if err := o.Scan(func(i outbox.Info) bool {
				if i.State == outbox.Quarantined {
					quarantined[string(i.Key)] = true
				}
				return true
			}); err != nil {
				t.Fatal(err)
			}
			for uid := range want {
				if received[uid] == 0 && !quarantined[uid] {
					t.Errorf("record %s is lost", uid)
				}
			}
			if st := o.Stats(); st.Pending != 0 || int(st.Committed) != len(want) || st.Committed != st.Acked+st.Quarantined {
				t.Errorf("%+v for %d records", st, len(want))
			}
		})
	}
}

// A record at a time while delivery runs: nothing waits for a full batch.
func TestRecordsAreDeliveredAsTheyCome(t *testing.T) {
	o := openOutbox(t, t.TempDir())
	s := startReceiver(t, receiver.Options{})
	cfg := quick(s.URL())
	cfg.Workers = 3
	d := newDeliverer(t, FromOutbox(o), cfg)
	sent := 0
	until(t, d, "each record", func() bool {
		if int(s.Totals().Kept) == sent {
			if sent == 30 {
				return true
			}
			commit(t, o, "s", sent, 1, plain)
			sent++
		}
		return false
	})
	drain(t, d)
	if st := o.Stats(); st.Acked != 30 || st.Pending != 0 {
		t.Errorf("%+v", st)
	}
}

func TestAClosedOutboxEndsDelivery(t *testing.T) {
	o := openOutbox(t, t.TempDir())
	s := startReceiver(t, receiver.Options{})
	d := newDeliverer(t, FromOutbox(o), quick(s.URL()))
	done := make(chan error)
	go func() { done <- d.Run(context.Background()) }()
	time.Sleep(10 * time.Millisecond)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, outbox.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("still running")
	}
}

// What a program logs through the durable processor arrives as an exporter of
// the SDK would have sent it, with a uid added.
func TestRecordsOfAProgramArriveWhole(t *testing.T) {
	o := openOutbox(t, t.TempDir())
	direct := newSDK(t)
	res := resource.NewWithAttributes("https://example.com/schema", attribute.String("service.name", "program"))
	provider := sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithAttributeValueLengthLimit(-1),
		sdklog.WithProcessor(direct), sdklog.WithProcessor(telemetry.NewDurableProcessor(o)))
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1}))
	var r apilog.Record
	r.SetTimestamp(time.Unix(0, 1796031742486123457))
	r.SetObservedTimestamp(time.Unix(0, 1796031742486123458))
	r.SetSeverity(apilog.SeverityWarn2)
	r.SetSeverityText("odd")
	r.SetEventName("event")
	r.SetBody(attribute.MapValue(attribute.Int("a", 1), attribute.Slice("b", attribute.StringValue("x"))))
	r.AddAttributes(attribute.String("k", "v"), attribute.Float64("f", 1.5))
	provider.Logger("lib", apilog.WithInstrumentationVersion("1"), apilog.WithSchemaURL("https://example.com/lib"),
		apilog.WithInstrumentationAttributes(attribute.Bool("lib", true))).Emit(ctx, r)

	s := startReceiver(t, receiver.Options{})
	drain(t, newDeliverer(t, FromOutbox(o), quick(s.URL())))
	got, want := s.Requests()[0].Logs, parseRequest(t, direct.export(t))
	canonical(got)
	canonical(want)
	rec := got.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	if len(rec.Attributes) != 3 || rec.Attributes[0].Key != telemetry.KeyRecordUID || rec.Attributes[0].Value.GetStringValue() == "" {
		t.Fatalf("attributes %v", rec.Attributes)
	}
	rec.Attributes = rec.Attributes[1:]
	if !proto.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}
