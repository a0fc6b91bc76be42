package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	common "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// One refused record among 512 costs about 2·log2(512) more requests.
//
// CASES 20.
func TestOnePoisonRecordIsFoundAndTheRestArrives(t *testing.T) {
	for _, at := range []int{0, 1, 255, 256, 300, 511} {
		m := newMemory()
		for i := range 512 {
			body := fmt.Sprintf(`{"n":%d}`, i)
			if i == at {
				body = `{"n":"POISON"}`
			}
			m.add("s", stored(t, record("s", i, body)))
		}
		fill(t, m, "later", 10)
		s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400-if=POISON")})
		d := newDeliverer(t, m, quick(s.URL()))
		drain(t, d)
		acked, refused, _ := m.counts()
		if acked != 521 || refused != 1 || len(uids(s)) != 521 || distinct(uids(s)) != 521 {
			t.Errorf("poison at %d: %d acked, %d refused, %d received", at, acked, refused, len(uids(s)))
		}
		q := m.quarantined()[0]
		if q.ID != outbox.ID(at+1) || q.Reason != ReasonRefused || q.Outcome != outbox.OutcomeRefused || !strings.Contains(q.ReceiverWords, "POISON") || q.Payload != nil {
			t.Errorf("quarantined %+v", q)
		}
		if n := d.Stats().Requests; n > 2+18 {
			t.Errorf("poison at %d: %d requests, want at most 2 and 2·9 more", at, n)
		}
		if !slices.IsSortedFunc(uidsOf(t, s, "s"), func(a, b int) int { return a - b }) {
			t.Errorf("poison at %d: the session's order is lost", at)
		}
	}
}

// uidsOf returns the event seqs of one session in order of arrival.
func uidsOf(t *testing.T, s *receiver.Server, session string) []int {
	t.Helper()
	var out []int
	for _, r := range s.Records() {
		a := attrs(r.Log.GetAttributes())
		if a[telemetry.KeySessionID].GetStringValue() == session {
			out = append(out, int(a[telemetry.KeyEventSeq].GetIntValue()))
		}
	}
	return out
}

func attrs(kvs []*common.KeyValue) map[string]*common.AnyValue {
	out := make(map[string]*common.AnyValue)
	for _, kv := range kvs {
		if _, twice := out[kv.GetKey()]; twice {
			panic("attribute twice: " + kv.GetKey())
		}
		out[kv.GetKey()] = kv.GetValue()
	}
	return out
}

func TestSeveralPoisonRecordsAreAllFound(t *testing.T) {
	m := newMemory()
	poison := map[int]bool{3: true, 4: true, 90: true, 91: true, 92: true, 127: true}
	for i := range 128 {
		m.add("s", stored(t, record("s", i, fmt.Sprintf(`{"poison":"%v"}`, poison[i]))))
	}
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "422-if=true")})
	d := newDeliverer(t, m, quick(s.URL()))
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 122 || refused != 6 || distinct(uids(s)) != 122 || len(uids(s)) != 122 {
		t.Errorf("%d acked, %d refused, %d received", acked, refused, len(uids(s)))
	}
	for _, q := range m.quarantined() {
		if !poison[int(q.ID)-1] {
			t.Errorf("record %d is in quarantine", q.ID)
		}
	}
}

func TestAReceiverThatRefusesEverythingIsHeldAndNothingIsPutAside(t *testing.T) {
	m := newMemory()
	fill(t, m, "a", 100)
	fill(t, m, "b", 100)
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400:message=broken schema")})
	cfg := quick(s.URL())
	cfg.MinHold, cfg.MaxHold = time.Hour, time.Hour
	var l logs
	cfg.Logger = l.logger()
	cfg.Workers = 3
	d := newDeliverer(t, m, cfg)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
	if acked, refused, pending := m.counts(); acked != 0 || refused != 0 || pending != 200 {
		t.Fatalf("%d acked, %d refused, %d pending", acked, refused, pending)
	}
	if n := d.Stats().Requests; n > 60 {
		t.Errorf("%d requests before it was held", n)
	}
	if n := l.count("receiver holding"); n != 1 || !strings.Contains(l.String(), "broken schema") {
		t.Errorf("said %d times: %s", n, l.String())
	}
	// Looking again costs two requests, and changes nothing while it is broken.
	before := d.Stats().Requests
	failures := d.State().Failures
	d.TryNow()
	until(t, d, "another look", func() bool { return d.State().Failures > failures })
	if n := d.Stats().Requests - before; n > 2 {
		t.Errorf("a look cost %d requests", n)
	}
	s.SetBehavior(receiver.Behavior{})
	d.TryNow()
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 200 || refused != 0 || distinct(uids(s)) != 200 {
		t.Errorf("mended: %d acked, %d refused", acked, refused)
	}
}

// More poison records in a row than the limit do not block what follows them,
// in the same batch or a later one.
func TestManyRefusedInARowAreConvictedByAWitness(t *testing.T) {
	m := newMemory()
	for i := range 30 {
		m.add("s", stored(t, record("s", i, `"POISON"`)))
	}
	fill(t, m, "s", 70)
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400-if=POISON")})
	cfg := quick(s.URL())
	cfg.MaxBatchRecords = 16 // the witness is not in the first batch
	d := newDeliverer(t, m, cfg)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
	if _, refused, _ := m.counts(); refused != 0 {
		t.Fatalf("%d put aside without a witness", refused)
	}
	d.cfg.MaxBatchRecords = 64
	d.circuit.mu.Lock()
	d.circuit.records = 64
	d.circuit.mu.Unlock()
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 70 || refused != 30 {
		t.Errorf("%d acked, %d refused", acked, refused)
	}
}

// The receiver took the records before them: eight at the end are at fault.
func TestManyRefusedAtTheEndOfAGoodBatchAreConvicted(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 100)
	for i := range 20 {
		m.add("s", stored(t, record("s", 100+i, `"POISON"`)))
	}
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400-if=POISON")})
	cfg := quick(s.URL())
	cfg.MaxRefusals = 20
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 100 || refused != 20 {
		t.Errorf("%d acked, %d refused", acked, refused)
	}
}

func TestFewRefusedRecordsAloneAreConvictedWithoutAWitness(t *testing.T) {
	m := newMemory()
	for i := range 3 {
		m.add("s", stored(t, record("s", i, `"POISON"`)))
	}
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400-if=POISON")})
	d := newDeliverer(t, m, quick(s.URL()))
	drain(t, d)
	if _, refused, _ := m.counts(); refused != 3 {
		t.Errorf("%d refused", refused)
	}
}

// CASES 21.
func TestASizeLimitIsLearnedAndKept(t *testing.T) {
	for _, spec := range []string{"413-over=20000", "400-over=20000"} {
		m := newMemory()
		for i := range 200 {
			m.add("s", stored(t, record("s", i, `"`+strings.Repeat("x", 1000)+`"`)))
		}
		s := startReceiver(t, receiver.Options{Behavior: behavior(t, spec)})
		cfg := quick(s.URL())
		cfg.MaxBatchRecords = 64
		d := newDeliverer(t, m, cfg)
		drain(t, d)
		if acked, refused, _ := m.counts(); acked != 200 || refused != 0 {
			t.Fatalf("%d acked, %d refused", acked, refused)
		}
		limit := d.State().RequestBytes
		if limit < 10000 || limit > 20000 {
			t.Errorf("learned limit %d", limit)
		}
		refused := 0
		for _, r := range s.Requests() {
			if r.Kept == 0 {
				refused++
			}
		}
		if refused != 3 { // 64 records, 32, 16
			t.Errorf("%d requests over the limit, want 3", refused)
		}
	}
}

// CASES 35 and 21: a record larger than the batch limit is sent alone; larger
// than the receiver's limit, it goes to quarantine and requests do not shrink.
func TestASingleRecordThatIsTooLarge(t *testing.T) {
	m := newMemory()
	huge := `"` + strings.Repeat("x", 100_000) + `"`
	m.add("s", stored(t, record("s", 0, huge)))
	fill(t, m, "s", 50)
	s := startReceiver(t, receiver.Options{})
	cfg := quick(s.URL())
	cfg.MaxBatchBytes = 50_000
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 51 || refused != 0 {
		t.Errorf("%d acked, %d refused", acked, refused)
	}

	m = newMemory()
	fill(t, m, "s", 50)
	m.add("s", stored(t, record("s", 50, huge)))
	fill(t, m, "s", 50)
	s = startReceiver(t, receiver.Options{Behavior: behavior(t, "413-over=90000")})
	d = newDeliverer(t, m, quick(s.URL()))
	drain(t, d)
	acked, refused, _ := m.counts()
	if q := m.quarantined(); acked != 100 || refused != 1 || q[0].ID != 51 || q[0].Reason != ReasonTooLarge || q[0].Outcome != outbox.OutcomeRefused {
		t.Errorf("%d acked, %+v", acked, q)
	}
	if limit := d.State().RequestBytes; limit != 0 && limit < 20_000 {
		t.Errorf("one large record made requests shrink to %d", limit)
	}

	m = newMemory()
	fill(t, m, "s", 20)
	m.add("s", stored(t, record("s", 20, huge)))
	cfg = quick(s.URL())
	cfg.MaxRequestBytes = 90_000
	d = newDeliverer(t, m, cfg)
	drain(t, d)
	if q := m.quarantined(); len(q) != 1 || q[0].Reason != ReasonOverLimit || !strings.Contains(q[0].ReceiverWords, "sender's limit") {
		t.Errorf("over the sender's limit: %+v", q)
	}
}

// After an answer that leaves open which records were refused, requests hold
// one record, and grow with each clean acknowledgement.
//
// CASES 22.
func TestAnUnknownOutcomeMakesTheNextVerdictsDefinite(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 600)
	s := startReceiver(t, receiver.Options{Script: []receiver.Behavior{behavior(t, "partial=3"), {}, behavior(t, "partial=3"), {}}})
	cfg := quick(s.URL())
	cfg.MaxBatchRecords = 64
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	var sizes []int
	for _, r := range s.Requests() {
		sizes = append(sizes, r.Records)
	}
	// partial over 64; one clean; then "partial=3" over two is all of them:
	// split into two singles, both clean; from there it doubles.
	want := []int{64, 1, 2, 1, 1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 64, 64, 23}
	if !slices.Equal(sizes, want) {
		t.Errorf("request sizes %v, want %v", sizes, want)
	}
	if acked, refused, _ := m.counts(); acked != 536 || refused != 64 {
		t.Errorf("%d acked, %d refused", acked, refused)
	}
	for _, q := range m.quarantined() {
		if q.Outcome != outbox.OutcomeUnknown || q.Reason != ReasonPartial || !strings.Contains(q.ReceiverWords, "3 of 64") || !strings.Contains(q.ReceiverWords, "some records were refused") {
			t.Fatalf("%+v", q)
		}
	}
}

// CASES 24: the first of two batches is answered 429, the second 200.
func TestARetriedBatchIsSentAgainAlone(t *testing.T) {
	m := newMemory()
	fill(t, m, "a", 4)
	fill(t, m, "b", 4)
	s := startReceiver(t, receiver.Options{Script: []receiver.Behavior{behavior(t, "429:retry-after=0"), {}}})
	cfg := quick(s.URL())
	cfg.MaxBatchRecords = 4
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if acked, _, _ := m.counts(); acked != 8 || len(uids(s)) != 8 || distinct(uids(s)) != 8 {
		t.Errorf("%d acked, received %v", acked, uids(s))
	}
	for i, r := range s.Requests() {
		if r.Records != 4 {
			t.Errorf("request %d holds %d records", i, r.Records)
		}
	}
}

// CASES 25: the answer is lost after acceptance.
func TestALostAnswerGivesDuplicatesUnderTheSameIdentity(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 20)
	s := startReceiver(t, receiver.Options{Script: []receiver.Behavior{{}, behavior(t, "lost")}})
	cfg := quick(s.URL())
	cfg.MaxBatchRecords = 5
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if acked, _, _ := m.counts(); acked != 20 || len(uids(s)) != 25 || distinct(uids(s)) != 20 {
		t.Errorf("%d acked, %d received, %d distinct; want one batch twice", acked, len(uids(s)), distinct(uids(s)))
	}
}

// CASES 16 and 26: nobody listens, or the name is not known, at the start.
func TestAReceiverThatIsNotThereIsWaitedFor(t *testing.T) {
	for name, endpoint := range map[string]string{
		"connection refused": "http://127.0.0.1:1/v1/logs",
		"name":               "https://no-such-host.invalid/v1/logs",
	} {
		m := newMemory()
		fill(t, m, "s", 3)
		d := newDeliverer(t, m, quick(endpoint))
		until(t, d, "retries", func() bool { return d.State().Failures >= 3 })
		if state := d.State(); state.Status != Retrying || !strings.Contains(state.Reason, name) {
			t.Errorf("%s: %+v", name, state)
		}
		if _, _, pending := m.counts(); pending != 3 {
			t.Errorf("%d pending", pending)
		}
	}
}

// CASES 18: shutdown while the receiver hangs.
func TestStoppingCancelsWhatIsUnderWayAndGivesLeasesBack(t *testing.T) {
	m := newMemory()
	for i := range 8 {
		fill(t, m, strconv.Itoa(i), 10)
	}
	s := startReceiver(t, receiver.Options{Behavior: receiver.Behavior{Kind: receiver.Hang}})
	cfg := quick(s.URL())
	cfg.Workers, cfg.MaxBatchRecords, cfg.Timeout = 4, 10, time.Hour
	d := newDeliverer(t, m, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := d.Drain(ctx)
	var left *UndeliveredError
	if !errors.As(err, &left) || left.Pending != 80 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "80 records") {
		t.Errorf("drain: %v", err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("waited for the receiver: %v", took)
	}
	if m.nowLeased != 0 {
		t.Errorf("%d bytes are still leased", m.nowLeased)
	}
	s.SetBehavior(receiver.Behavior{})
	drain(t, d)
	if acked, _, _ := m.counts(); acked != 80 {
		t.Errorf("%d acked", acked)
	}
}

func TestWorkersShareTheWorkAndNothingArrivesTwice(t *testing.T) {
	m := newMemory()
	for i := range 40 {
		fill(t, m, "session-"+strconv.Itoa(i), 25)
	}
	s := startReceiver(t, receiver.Options{Script: []receiver.Behavior{{}, behavior(t, "503"), {}, behavior(t, "500"), behavior(t, "429:retry-after=0")}})
	cfg := quick(s.URL())
	cfg.Workers, cfg.MaxBatchRecords = 4, 20
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if acked, _, _ := m.counts(); acked != 1000 || len(uids(s)) != 1000 || distinct(uids(s)) != 1000 {
		t.Errorf("%d acked, %d received, %d distinct", acked, len(uids(s)), distinct(uids(s)))
	}
	for i := range 40 {
		if got := uidsOf(t, s, "session-"+strconv.Itoa(i)); len(got) != 25 {
			t.Errorf("session %d: %v", i, got)
		}
	}
}

func TestDrainWhileRunningWaitsForTheRunner(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 50)
	s := startReceiver(t, receiver.Options{Script: []receiver.Behavior{behavior(t, "503"), behavior(t, "503")}})
	cfg := quick(s.URL())
	cfg.MaxBatchRecords = 10
	d := newDeliverer(t, m, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	until := time.Now().Add(patience)
	for d.Stats().Leases == 0 && time.Now().Before(until) {
		time.Sleep(time.Millisecond)
	}
	drain(t, d)
	if _, _, pending := m.counts(); pending != 0 {
		t.Errorf("%d pending after the drain", pending)
	}
	if err := d.Run(ctx); !errors.Is(err, ErrRunning) {
		t.Errorf("second Run: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDrainOfNothingEndsAtOnceEvenWhenTheReceiverIsHeld(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 1)
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "401")})
	cfg := quick(s.URL())
	cfg.MinHold, cfg.MaxHold = time.Hour, time.Hour
	d := newDeliverer(t, m, cfg)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
	m.mu.Lock()
	m.entries[0].settled = true // an operator discards it
	m.mu.Unlock()
	drain(t, d)
}

func TestMemoryInFlightIsBounded(t *testing.T) {
	m := newMemory()
	for i := range 64 {
		m.add(strconv.Itoa(i), stored(t, record("s", i, `"`+strings.Repeat("x", 50_000)+`"`)))
	}
	s := startReceiver(t, receiver.Options{Keep: 1})
	cfg := quick(s.URL())
	cfg.Workers, cfg.MaxBatchBytes, cfg.MaxInFlightBytes = 8, 120_000, 250_000
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if m.maxLeased > 250_000 || m.maxLeased < 100_000 {
		t.Errorf("%d bytes were leased at the same time", m.maxLeased)
	}
	if acked, _, _ := m.counts(); acked != 64 {
		t.Errorf("%d acked", acked)
	}
}

// CASES 28: one string that is not UTF-8 does not stop the others.
func TestInvalidTextIsMendedAndTheOthersAreNotTouched(t *testing.T) {
	m := newMemory()
	bad := record("s", 1, `{"a":"\ud800","b":"ok"}`)
	bad.EventName = "na\xffme"
	bad.Attributes = append(bad.Attributes, attribute.String("k\xfe", "v\xfd"), attribute.Map("m", attribute.String("x", "\xff")),
		attribute.Slice("l", attribute.StringValue("\xff")), attribute.StringSlice("ls", []string{"\xff", "é"}))
	m.add("s", stored(t, record("s", 0, `"first"`)), stored(t, bad), stored(t, record("s", 2, `"last"`)))
	s := startReceiver(t, receiver.Options{})
	d := newDeliverer(t, m, quick(s.URL()))
	drain(t, d)
	recs := s.Records()
	if acked, refused, _ := m.counts(); acked != 3 || refused != 0 || len(recs) != 3 {
		t.Fatalf("%d acked, %d refused, %d received", acked, refused, len(recs))
	}
	if n := d.Stats().Requests; n != 1 {
		t.Errorf("%d requests", n)
	}
	mid := recs[1].Log
	a := attrs(mid.GetAttributes())
	body := attrs(mid.GetBody().GetKvlistValue().GetValues())
	if mid.GetEventName() != "na\uFFFDme" || a["k\uFFFD"].GetStringValue() != "v\uFFFD" || body["a"].GetStringValue() != "\uFFFD" || body["b"].GetStringValue() != "ok" ||
		a["m"].GetKvlistValue().GetValues()[0].GetValue().GetStringValue() != "\uFFFD" || a["l"].GetArrayValue().GetValues()[0].GetStringValue() != "\uFFFD" || a["ls"].GetArrayValue().GetValues()[1].GetStringValue() != "é" {
		t.Errorf("mended record %v", mid)
	}
	if recs[0].Log.GetBody().GetStringValue() != "first" || recs[2].Log.GetBody().GetStringValue() != "last" {
		t.Error("neighbours changed")
	}
}

func TestWhatCannotBeReadGoesToQuarantineUnsent(t *testing.T) {
	m := newMemory()
	broken := record("s", 1, `{"a":`)
	m.add("s", stored(t, record("s", 0, `1`)), []byte("junk"), stored(t, broken), nil, stored(t, record("s", 4, `2`)))
	s := startReceiver(t, receiver.Options{})
	d := newDeliverer(t, m, quick(s.URL()))
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 2 || refused != 3 {
		t.Errorf("%d acked, %d refused", acked, refused)
	}
	for _, q := range m.quarantined() {
		if q.Reason != ReasonUndecoded || q.Outcome != outbox.OutcomeRefused {
			t.Errorf("%+v", q)
		}
	}
	if n := d.Stats().Unsendable; n != 3 {
		t.Errorf("%d unsendable", n)
	}
}

func TestRefreshSendsTheChangedRecordAndKeepsItInQuarantine(t *testing.T) {
	m := newMemory()
	for i, body := range []string{`"old secret"`, `"fine"`, `"fail"`, `"panic"`, `"old POISON"`} {
		m.add("s", stored(t, record("s", i, body)))
	}
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400-if=POISON")})
	cfg := quick(s.URL())
	var l logs
	cfg.Logger = l.logger()
	cfg.Refresh = func(r *telemetry.Record) error {
		switch body := string(r.Body); {
		case body == `"fail"`:
			return errors.New("cannot: TOPSECRET")
		case body == `"panic"`:
			panic("TOPSECRET")
		case strings.Contains(body, "old"):
			r.Body = []byte(strings.ReplaceAll(body, "secret", "[REDACTED:x]"))
			r.Policy = "sha256:new"
		}
		return nil
	}
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 2 || refused != 3 {
		t.Fatalf("%d acked, %d refused", acked, refused)
	}
	recs := s.Records()
	if recs[0].Log.GetBody().GetStringValue() != "old [REDACTED:x]" || attrs(recs[0].Log.GetAttributes())[telemetry.KeyPolicy].GetStringValue() != "sha256:new" ||
		recs[1].Log.GetBody().GetStringValue() != "fine" {
		t.Errorf("received %v", recs)
	}
	for _, q := range m.quarantined() {
		switch q.ID {
		case 3, 4:
			if q.Reason != ReasonNotRefreshed || q.Payload != nil {
				t.Errorf("%+v", q)
			}
		case 5:
			r, err := telemetry.DecodeRecord(q.Payload)
			if err != nil || r.Policy != "sha256:new" || q.Reason != ReasonRefused {
				t.Errorf("%+v: %v", q, err)
			}
		}
		if strings.Contains(q.ReceiverWords, "TOPSECRET") {
			t.Error("an error's text is kept")
		}
	}
	if strings.Contains(l.String(), "TOPSECRET") {
		t.Error("an error's text is logged")
	}
	if n := d.Stats().Refreshed; n != 2 {
		t.Errorf("%d refreshed", n)
	}
}

// A receiver has the records: failing to note that must not send them again.
func TestAFailingAcknowledgementIsTriedAgainWithoutSending(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 5)
	m.ackErrors = []error{errors.New("disk"), errors.New("disk"), nil}
	s := startReceiver(t, receiver.Options{})
	cfg := quick(s.URL())
	var l logs
	cfg.Logger = l.logger()
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if len(uids(s)) != 5 || m.acks != 3 || l.count("does not take a result") != 1 {
		t.Errorf("%d received, %d acks, log %s", len(uids(s)), m.acks, l.String())
	}
	m = newMemory()
	fill(t, m, "s", 5)
	m.ackErrors = []error{outbox.ErrClosed}
	d = newDeliverer(t, m, quick(s.URL()))
	if err := d.Run(t.Context()); !errors.Is(err, outbox.ErrClosed) {
		t.Errorf("a closed outbox ends Run with %v", err)
	}
}

// An outbox without room for a quarantine does not stop delivery, which makes
// room, and does not put the refused record aside or lose it.
func TestAQuarantineThatFindsNoRoomDoesNotStopTheOthers(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 20)
	m.add("s", stored(t, record("s", 20, `"POISON"`)))
	fill(t, m, "s", 20)
	fill(t, m, "other", 20)
	m.full = true
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400-if=POISON")})
	cfg := quick(s.URL())
	d := newDeliverer(t, m, cfg)
	until(t, d, "the others are delivered", func() bool { a, _, _ := m.counts(); return a == 60 })
	if _, refused, pending := m.counts(); refused != 0 || pending != 1 {
		t.Errorf("%d refused, %d pending", refused, pending)
	}
	m.mu.Lock()
	m.full = false
	m.mu.Unlock()
	drain(t, d)
	if acked, refused, _ := m.counts(); acked != 60 || refused != 1 || len(uids(s)) != 60 {
		t.Errorf("%d acked, %d refused, %d received", acked, refused, len(uids(s)))
	}
}

func TestALeaseThatFailsIsTriedAgain(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 5)
	m.leaseError = 3
	s := startReceiver(t, receiver.Options{})
	cfg := quick(s.URL())
	var l logs
	cfg.Logger = l.logger()
	drain(t, newDeliverer(t, m, cfg))
	if acked, _, _ := m.counts(); acked != 5 || l.count("the outbox fails") != 3 {
		t.Errorf("%d acked: %s", acked, l.String())
	}
}

// A receiver that closes idle connections is no failure.
func TestAnIdleConnectionThatWasClosedIsOpenedAgainQuietly(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	idle := make(chan struct{}, 100)
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle {
				_ = c.Close()
				idle <- struct{}{}
			}
		}}
	served := make(chan struct{})
	go func() { _ = srv.Serve(l); close(served) }()
	defer func() { _ = srv.Close(); <-served }()
	m := newMemory()
	d := newDeliverer(t, m, quick("http://"+l.Addr().String()+"/"))
	sent := 0
	until(t, d, "each record", func() bool {
		if acked, _, _ := m.counts(); acked == sent {
			if sent == 20 {
				return true
			}
			if sent > 0 {
				<-idle
			}
			fill(t, m, "s", 1)
			sent++
		}
		return false
	})
	// One that is closed in the very moment it is used again is a failure.
	if st := d.Stats(); st.Retries > 5 {
		t.Errorf("%d retries for 20 requests", st.Retries)
	}
}

func TestAWarningIsSaidOnce(t *testing.T) {
	m := newMemory()
	fill(t, m, "s", 50)
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "warn=schema is old")})
	cfg := quick(s.URL())
	cfg.MaxBatchRecords = 5
	var l logs
	cfg.Logger = l.logger()
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if acked, _, _ := m.counts(); acked != 50 || l.count("schema is old") != 1 {
		t.Errorf("%d acked; %s", acked, l.String())
	}
}

// Every field of a record arrives as stored.
func TestARecordArrivesWhole(t *testing.T) {
	r := record("s-1", 7, `{"s":"é😀\u0000","i":9223372036854775807,"n":-9223372036854775808,"big":9223372036854775808,"d":0.1,"t":true,"z":null,"a":[1,[],{}],"o":{"k":{"k":1}}}`)
	r.Severity = telemetry.SeverityError
	r.Identity.Incarnation = 2
	r.Surface = telemetry.SurfaceFacts{Op: telemetry.SurfaceReplace, Start: 5, End: 3, Sources: []int64{3, 4, 5}, Seen: true, Nodes: 9, ReplaceGeneration: 1, ContentGeneration: 2}
	r.Redactions = []telemetry.RuleCount{{Rule: "jwt", Count: 2}}
	r.Attributes = append(r.Attributes, attribute.Float64("f", math.Inf(-1)), attribute.ByteSlice("b", []byte{0, 255}))
	far := record("s-1", 8, ``)
	far.TimeMs = math.MaxInt64
	ops := &telemetry.Record{Channel: telemetry.ChannelOps, Op: telemetry.OpBridgeStarted, UID: telemetry.OpsUID("inst", 1), TimeMs: 1000, ObservedMs: 2000, Severity: telemetry.SeverityWarn,
		EventName: "bridge.started", Scope: telemetry.Scope{Name: telemetry.ScopeOps, Version: "1.2.3"}, Resource: telemetry.NewResource("https://schema/1", attribute.String("a", "b"))}
	m := newMemory()
	m.add("s", stored(t, r), stored(t, far), stored(t, ops))
	s := startReceiver(t, receiver.Options{})
	d := newDeliverer(t, m, quick(s.URL()))
	drain(t, d)
	recs := map[string]receiver.Record{}
	for _, rec := range s.Records() {
		recs[attrs(rec.Log.GetAttributes())[telemetry.KeyRecordUID].GetStringValue()] = rec
	}
	got := recs[r.UID]
	a := attrs(got.Log.GetAttributes())
	if got.Log.GetTimeUnixNano() != 1796031742486000000 || got.Log.GetObservedTimeUnixNano() != 1796031742999000000 || got.Log.GetSeverityNumber() != 17 || got.Log.GetSeverityText() != "ERROR" || got.Log.GetEventName() != "user/message" {
		t.Errorf("head %v", got.Log)
	}
	if len(a) != len(r.AllAttributes()) || a[telemetry.KeySessionID].GetStringValue() != "s-1" || a[telemetry.KeyEventSeq].GetIntValue() != 7 || a[telemetry.KeyIncarnation].GetIntValue() != 2 ||
		a[telemetry.KeySurfaceOp].GetStringValue() != "replace" || len(a[telemetry.KeySurfaceSources].GetArrayValue().GetValues()) != 3 ||
		attrs(a[telemetry.KeyRedactions].GetKvlistValue().GetValues())["jwt"].GetIntValue() != 2 || !math.IsInf(a["f"].GetDoubleValue(), -1) || string(a["b"].GetBytesValue()) != "\x00\xff" {
		t.Errorf("attributes %v", a)
	}
	body := attrs(got.Log.GetBody().GetKvlistValue().GetValues())
	if body["s"].GetStringValue() != "é😀\x00" || body["i"].GetIntValue() != math.MaxInt64 || body["n"].GetIntValue() != math.MinInt64 || body["big"].GetDoubleValue() != 9223372036854775808 ||
		body["d"].GetDoubleValue() != 0.1 || !body["t"].GetBoolValue() || body["z"].GetValue() != nil || len(body["a"].GetArrayValue().GetValues()) != 3 || len(body) != 9 {
		t.Errorf("body %v", body)
	}
	if res := attrs(got.Resource.GetAttributes()); len(res) != 2 || res["service.name"].GetStringValue() != "agent" || got.Scope.GetName() != telemetry.ScopeLedger || got.Scope.GetVersion() != "1.2.3" {
		t.Errorf("resource %v scope %v", res, got.Scope)
	}
	if f := recs[far.UID].Log; f.GetTimeUnixNano() != 0 || attrs(f.GetAttributes())[telemetry.KeyTimeMs].GetIntValue() != math.MaxInt64 || f.GetBody().GetValue() != nil {
		t.Errorf("far time %v", f)
	}
	if o := recs[ops.UID]; o.Scope.GetName() != telemetry.ScopeOps || attrs(o.Resource.GetAttributes())["a"].GetStringValue() != "b" || o.Log.GetSeverityText() != "WARN" {
		t.Errorf("ops %v", o)
	}

	m.mu.Lock()
	m.entries = nil
	m.mu.Unlock()
	m.add("s", stored(t, r))
	s = startReceiver(t, receiver.Options{})
	cfg := quick(s.URL())
	cfg.Body = "json"
	drain(t, newDeliverer(t, m, cfg))
	if got := s.Records()[0].Log.GetBody().GetStringValue(); got != string(r.Body) {
		t.Errorf("as JSON: %s", got)
	}
}

// A request that is under way when delivery is ended gets its answer, so that
// its records are not sent again; nothing new is begun, and one that is not
// answered is given up.
func TestWhatIsUnderWayAtAStopIsAnswered(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			began, answer := make(chan struct{}, 10), make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // so that the end of the client shows
				began <- struct{}{}
				select {
				case <-answer:
				case <-r.Context().Done():
				}
			}))
			defer s.Close()
			m := newMemory()
			fill(t, m, "a", 30)
			cfg := quick(s.URL)
			cfg.MaxBatchRecords, cfg.Timeout, cfg.StopGrace = 10, time.Hour, patience
			if !answered {
				cfg.StopGrace = time.Millisecond
			}
			d := newDeliverer(t, m, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- d.Run(ctx) }()
			<-began
			cancel()
			want := 0
			if answered {
				close(answer)
				want = 10
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if acked, refused, pending := m.counts(); acked != want || refused != 0 || pending != 30-want {
				t.Errorf("%d acked, %d refused, %d pending", acked, refused, pending)
			}
			if n := d.Stats().Requests; n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
