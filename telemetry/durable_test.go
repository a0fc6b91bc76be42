package telemetry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	apilog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/otel-bridge/otel-bridge/internal/faultfs"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// kept is the last processor of a provider, an exporter's place.
type kept struct{ records []sdklog.Record }

func (k *kept) OnEmit(_ context.Context, r *sdklog.Record) error {
	k.records = append(k.records, r.Clone())
	return nil
}
func (k *kept) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }
func (k *kept) Shutdown(context.Context) error                         { return nil }
func (k *kept) ForceFlush(context.Context) error                       { return nil }

func emitSample(p *sdklog.LoggerProvider) {
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}, TraceFlags: trace.FlagsSampled,
	}))
	var r apilog.Record
	r.SetTimestamp(time.Unix(0, 1796031737881000001))
	r.SetObservedTimestamp(time.Unix(0, 1796031737881000002))
	r.SetSeverity(apilog.SeverityWarn2)
	r.SetSeverityText("careful SECRET")
	r.SetEventName("login")
	r.SetBody(attribute.MapValue(attribute.Float64("ratio", 5), attribute.String("note", "a SECRET"),
		attribute.Slice("list", attribute.Float64Value(1), attribute.StringValue("SECRET"))))
	r.AddAttributes(attribute.String("k", "SECRET"), attribute.Float64Slice("d", []float64{1, 2}), attribute.String(KeySessionID, "its own"))
	p.Logger("lib", apilog.WithInstrumentationVersion("v1"), apilog.WithSchemaURL("https://example.com"),
		apilog.WithInstrumentationAttributes(attribute.String("scope.attr", "x"))).Emit(ctx, r)
}

func testProvider(processors ...sdklog.Processor) *sdklog.LoggerProvider {
	opts := []sdklog.LoggerProviderOption{sdklog.WithResource(resource.NewSchemaless(attribute.String("service.name", "prog")))}
	for _, p := range processors {
		opts = append(opts, sdklog.WithProcessor(p))
	}
	return sdklog.NewLoggerProvider(opts...)
}

func TestDurableProcessorStoresRecordsWholeAndGivesThemBack(t *testing.T) {
	o := newModelOutbox()
	want := &kept{}
	emitSample(testProvider(NewDurableProcessor(o), want))
	stored := o.records(t)
	if len(stored) != 1 {
		t.Fatalf("%d records", len(stored))
	}
	ctx, again, err := stored[0].LogRecord(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	got := &kept{}
	testProvider(got).Logger(stored[0].Scope.Name).Emit(ctx, again)
	a, b := got.records[0], want.records[0]
	if !reflect.DeepEqual(a.Body(), b.Body()) || a.TraceID() != b.TraceID() || a.SpanID() != b.SpanID() || a.TraceFlags() != b.TraceFlags() ||
		!a.Timestamp().Equal(b.Timestamp()) || !a.ObservedTimestamp().Equal(b.ObservedTimestamp()) ||
		a.Severity() != b.Severity() || a.SeverityText() != b.SeverityText() || a.EventName() != b.EventName() {
		t.Errorf("got %+v\nwant %+v", a, b)
	}
	attrs := attributeMap(stored[0].AllAttributes())
	if attrs[KeySessionID] != "its own" || len(attrs) != 4 || len(attrs[KeyRecordUID].(string)) != 36 {
		t.Errorf("attributes %v", attrs)
	}
	if s := stored[0].Scope; s.Version != "v1" || s.SchemaURL != "https://example.com" || s.Attributes.Len() != 1 {
		t.Errorf("scope %+v", s)
	}
	if kv := attributeMap(stored[0].Resource.Attributes()); kv["service.name"] != "prog" {
		t.Errorf("resource %v", stored[0].Resource.Attributes())
	}
}

func TestDurableProcessorRedactsBeforeItStores(t *testing.T) {
	o := newModelOutbox()
	emitSample(testProvider(NewDurableProcessor(o, WithRedaction(NewRedaction(fakeEngine{}, nil)))))
	r := o.records(t)[0]
	if holdsSecret(&r) {
		t.Errorf("stored %+v", r)
	}
	want := attribute.MapValue(attribute.Float64("ratio", 5), attribute.String("note", "a [REDACTED:fake-secret]"),
		attribute.Slice("list", attribute.Float64Value(1), attribute.StringValue("[REDACTED:fake-secret]")))
	if !reflect.DeepEqual(r.Log.Body, want) {
		t.Errorf("body %v, want %v", r.Log.Body, want)
	}
	again := NewRedaction(fakeEngine{hash: "2"}, nil)
	if out := again.Again(&r); out.Policy != "fake:2" || !reflect.DeepEqual(out.Log.Body, want) {
		t.Errorf("again %+v", out.Log)
	}
}

// A program's own uid is text like any other: one that a rule matches has the same
// stand-in each time, one that says nothing stays.
func TestDurableProcessorRedactsTheProgramsOwnUID(t *testing.T) {
	o := newModelOutbox()
	p := testProvider(NewDurableProcessor(o, WithRedaction(NewRedaction(fakeEngine{}, []byte("key")))))
	uids := []string{"SECRET-1", "SECRET-1", "01J9ZK6Q4T", "FAIL-1", "PANIC-1", "WITHHOLD-1", "f47ac10b-58cc-4372-a567-0e02b2c3d479"}
	for i, body := range []string{"fine", "FAIL", "PANIC"} {
		for _, uid := range uids {
			var r apilog.Record
			r.SetBody(attribute.StringValue(body))
			r.AddAttributes(attribute.String(KeyRecordUID, uid))
			p.Logger("l").Emit(context.Background(), r)
		}
		got := o.records(t)[i*len(uids):]
		for j, r := range got {
			if stays := j == 2 || j == 6; stays != (r.UID == uids[j]) || len(r.UID) != 36 && !stays || holdsSecret(&r) {
				t.Errorf("%s, %s: %s", body, uids[j], r.UID)
			}
		}
		if got[0].UID != got[1].UID || got[0].UID == got[3].UID {
			t.Errorf("%s: %s %s %s", body, got[0].UID, got[1].UID, got[3].UID)
		}
	}
}

func TestDurableProcessorStoresAMarkerOfWhatItCannotRedact(t *testing.T) {
	o := newModelOutbox()
	p := NewDurableProcessor(o, WithRedaction(NewRedaction(fakeEngine{}, nil)))
	var r apilog.Record
	r.SetBody(attribute.StringValue("FAIL SECRET"))
	r.AddAttributes(attribute.String("k", "v"))
	testProvider(p).Logger("l").Emit(context.Background(), r)
	m := o.records(t)[0]
	if m.Withheld != ReasonRedaction || holdsSecret(&m) || len(m.AllAttributes()) != 2 || m.Log.Body.Type() != attribute.EMPTY {
		t.Errorf("%+v", m)
	}
	if s := p.Stats(); s != (DurableStats{Committed: 1, Withheld: 1}) {
		t.Errorf("%+v", s)
	}
}

// fullOutbox has no room until it is told.
type fullOutbox struct {
	*modelOutbox
	room chan struct{}
}

func (o *fullOutbox) Commit(ctx context.Context, b *outbox.Batch) (outbox.ID, error) {
	select {
	case <-o.room:
		return o.modelOutbox.Commit(ctx, b)
	default:
		return 0, outbox.ErrFull
	}
}

func (o *fullOutbox) WaitRoom(ctx context.Context) error {
	select {
	case <-o.room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestDurableProcessorWaitsForRoomAndThenRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fullOutbox{newModelOutbox(), make(chan struct{})}
		p := NewDurableProcessor(o, WithWait(time.Minute))
		var record sdklog.Record
		begin := time.Now()
		if err := p.OnEmit(t.Context(), &record); !errors.Is(err, outbox.ErrFull) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.OnEmit(ctx, &record); !errors.Is(err, outbox.ErrFull) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		var emits sync.WaitGroup
		for range 3 {
			emits.Go(func() {
				if err := p.OnEmit(t.Context(), &record); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		flushed, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := p.ForceFlush(flushed); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush did not wait: %v", err)
		}
		close(o.room)
		emits.Wait()
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := p.OnEmit(t.Context(), &record); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s != (DurableStats{Committed: 3, Refused: 2}) || len(o.entries) != 3 {
			t.Errorf("%+v, %d entries", s, len(o.entries))
		}
	})
}

// Whatever operation of the disk is the last one before a crash that forgets all that was
// not synced: each record whose OnEmit returned nil is there, and none in part.
func TestWhatADurableProcessorHasAcknowledgedSurvivesACrash(t *testing.T) {
	const records = 12
	for crash := 1; ; crash++ {
		fs := faultfs.New()
		fs.CrashAt(crash)
		acknowledged := map[string]bool{}
		if o, err := outbox.Open("/box", outbox.Options{FS: fs, SegmentSize: 16 << 10}); err == nil {
			p := NewDurableProcessor(o)
			for i := range records {
				var r sdklog.Record
				r.SetBody(attribute.StringValue(fmt.Sprint("record ", i, strings.Repeat(" and more", 400))))
				if p.OnEmit(t.Context(), &r) == nil {
					acknowledged[r.Body().AsString()] = true
				}
			}
			if s := p.Stats(); s.Committed != int64(len(acknowledged)) || s.Committed+s.Refused != records {
				t.Fatalf("crash %d: %+v, %d acknowledged", crash, s, len(acknowledged))
			}
			o.Close()
		}
		o, err := outbox.Open("/box", outbox.Options{FS: fs.Crash(faultfs.KeepNothing, nil), SegmentSize: 16 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Scan(func(i outbox.Info) bool {
			r, err := DecodeRecord(i.Payload)
			if err != nil {
				t.Fatalf("crash %d: %v", crash, err)
			}
			delete(acknowledged, r.Log.Body.AsString())
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if len(acknowledged) > 0 {
			t.Fatalf("crash at operation %d: %d acknowledged records are gone", crash, len(acknowledged))
		}
		all := o.Stats().Committed
		o.Close()
		if all == records && fs.Ops() < crash {
			return // the whole run
		}
	}
}

func TestEarlyReturnComesBackBeforeTheSyncAndFlushWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fullOutbox{newModelOutbox(), make(chan struct{})}
		p := NewDurableProcessor(o, WithEarlyReturn(2), WithWait(time.Minute))
		var record sdklog.Record
		for range 3 { // one is being committed, two are in line
			if err := p.OnEmit(t.Context(), &record); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		begin := time.Now()
		if err := p.OnEmit(t.Context(), &record); !errors.Is(err, outbox.ErrFull) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown did not wait: %v", err)
		}
		if len(o.entries) != 0 {
			t.Errorf("%d entries", len(o.entries))
		}
		close(o.room)
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s != (DurableStats{Committed: 3, Refused: 1}) || len(o.entries) != 3 {
			t.Errorf("%+v, %d entries", s, len(o.entries))
		}
	})
}

func TestEarlyReturnCountsWhatTheOutboxRefuses(t *testing.T) {
	o := newModelOutbox()
	o.fail, o.failOn = outbox.ErrClosed, 1
	p := NewDurableProcessor(o, WithEarlyReturn(8))
	var record sdklog.Record
	if err := p.OnEmit(context.Background(), &record); err != nil {
		t.Fatal(err)
	}
	if err := p.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s != (DurableStats{Failed: 1}) {
		t.Errorf("%+v", s)
	}
}

// narrowOutbox has room when it is told to, and takes no batch above a size.
type narrowOutbox struct {
	*fullOutbox
	most int
}

func (o *narrowOutbox) Commit(ctx context.Context, b *outbox.Batch) (outbox.ID, error) {
	n := 0
	for _, e := range b.Entries {
		n += len(e.Payload)
	}
	if n > o.most {
		return 0, outbox.ErrTooLarge
	}
	return o.fullOutbox.Commit(ctx, b)
}

func TestARecordThatIsTooLargeTakesNoOthersOfTheLineWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &narrowOutbox{&fullOutbox{newModelOutbox(), make(chan struct{})}, 10000}
		p := NewDurableProcessor(o, WithEarlyReturn(8))
		for _, size := range []int{1, 1, 20000, 6000, 6000} { // the first waits for room, the others in line
			var record sdklog.Record
			record.SetBody(attribute.StringValue(strings.Repeat("x", size)))
			if err := p.OnEmit(t.Context(), &record); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		close(o.room)
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s != (DurableStats{Committed: 4, Failed: 1}) || len(o.entries) != 4 {
			t.Errorf("%+v, %d entries", s, len(o.entries))
		}
	})
}

func TestRedactingProcessorRedactsForThoseBehindIt(t *testing.T) {
	behind := &kept{}
	emitSample(testProvider(NewRedactingProcessor(NewRedaction(fakeEngine{}, nil)), behind))
	r := behind.records[0]
	var all strings.Builder
	all.WriteString(r.Body().String() + r.SeverityText() + r.EventName())
	r.WalkAttributes(func(kv attribute.KeyValue) bool { all.WriteString(kv.Value.String()); return true })
	if strings.Contains(all.String(), "SECRET") && strings.Count(all.String(), "SECRET") > strings.Count(all.String(), "[REDACTED:fake-secret]") {
		t.Errorf("passed on: %s", all.String())
	}

	// Where the scope matches, nothing of the record is passed on.
	var rec apilog.Record
	rec.SetBody(attribute.StringValue("body"))
	testProvider(NewRedactingProcessor(NewRedaction(fakeEngine{}, nil)), behind).Logger("SECRET lib").Emit(context.Background(), rec)
	if r := behind.records[1]; r.Body().Type() != attribute.EMPTY || r.AttributesLen() != 1 {
		t.Errorf("passed on: %v", r.Body())
	}
}

func BenchmarkDurableProcessor(b *testing.B) {
	for _, emitters := range []string{"1", "16"} {
		b.Run(emitters+" emitting", func(b *testing.B) {
			o, err := outbox.Open(b.TempDir(), outbox.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer o.Close()
			provider := testProvider(NewDurableProcessor(o))
			logger := provider.Logger("bench")
			var r apilog.Record
			r.SetBody(attribute.StringValue(strings.Repeat("x", 1000)))
			if emitters == "16" {
				b.SetParallelism(8)
			} else {
				b.SetParallelism(1)
			}
			b.ReportAllocs()
			b.SetBytes(1000)
			if emitters == "1" {
				for b.Loop() {
					logger.Emit(context.Background(), r)
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					logger.Emit(context.Background(), r)
				}
			})
		})
	}
}
