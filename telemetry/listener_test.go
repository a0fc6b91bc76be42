package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

func plain(typ, body string) *Record {
	id := Identity{SessionID: "s", CreatedAt: 1, Seq: 7}
	return &Record{SessionScoped: true, Identity: id, UID: id.UID(), Type: typ, EventName: typ,
		TimeMs: 5, ObservedMs: 6, Severity: SeverityInfo, Body: json.RawMessage(body),
		Attributes: []attribute.KeyValue{attribute.String(KeyCwd, "/srv")},
		Resource:   NewResource("", attribute.String("service.name", "x")), Scope: Scope{Name: ScopeLedger}}
}

func TestWaterfallRunsGateThenRedactionThenTheCallersListeners(t *testing.T) {
	var order []string
	step := func(name string) Listener {
		return ListenerFunc(func(ctx context.Context, r *Record, next Next) (*Record, error) {
			order = append(order, name+" in "+string(r.Body))
			out, err := next(ctx, r)
			order = append(order, name+" out")
			if out != nil {
				out.Body = json.RawMessage(`"SECRET of ` + name + `"`)
			}
			return out, err
		})
	}
	gate := func(r *Record) bool { order = append(order, "gate "+string(r.Body)); return true }
	w := NewWaterfall(gate, NewRedaction(fakeEngine{}, nil), step("a"), step("b"))
	out, err := w.Run(context.Background(), plain("user/message", `"SECRET raw"`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`gate "SECRET raw"`, `a in "SECRET raw"`, `b in "SECRET raw"`, "b out", "a out"}
	if !slices.Equal(order, want) {
		t.Errorf("order %q", order)
	}
	if string(out.Body) != `"[REDACTED:fake-secret] of a"` {
		t.Errorf("body %s", out.Body)
	}
	if !reflect.DeepEqual(out.Redactions, []RuleCount{{"fake-secret", 1}}) || out.Policy != "fake:" {
		t.Errorf("redactions %v under %q", out.Redactions, out.Policy)
	}
}

func TestWhatTheGateRefusesReachesNoListener(t *testing.T) {
	w := NewWaterfall(func(*Record) bool { return false }, nil, ListenerFunc(func(context.Context, *Record, Next) (*Record, error) {
		t.Error("a listener was called")
		return nil, nil
	}))
	if out, err := w.Run(context.Background(), plain("a", "1")); out != nil || !errors.Is(err, ErrNotCovered) {
		t.Fatalf("%v, %v", out, err)
	}
}

// Whatever listeners do, identity stays, a withheld record has no body, and
// nothing that redaction would have taken out goes out.
func TestNoListenerCanChangeIdentityOrLetContentOutOfAWithheldRecord(t *testing.T) {
	vandal := func(r *Record) {
		r.Identity = Identity{SessionID: "other", Seq: 99}
		r.UID, r.Type, r.Channel, r.Op = "other", "other", ChannelOps, "other"
		r.SessionScoped, r.Inherited, r.Withheld, r.Policy, r.Cut = false, true, "SECRET", "SECRET", 3
		r.Redactions = []RuleCount{{"SECRET", 1}}
		r.Surface = SurfaceFacts{Seen: true, Nodes: 99}
		r.EventName = "name with SECRET"
		r.Scope = Scope{Name: "SECRET", Version: "SECRET"}
		r.Attributes = append(r.Attributes, attribute.String("SECRET key", "v"), attribute.String("a", "SECRET"),
			attribute.Map("m", attribute.StringSlice("l", []string{"SECRET"}), attribute.ByteSlice("b", []byte("SECRET"))))
		r.Resource = NewResource("SECRET", attribute.String("r", "SECRET"))
		r.Body = json.RawMessage(`{"b":"SECRET"}`)
	}
	for name, c := range map[string]struct {
		end  func(r *Record) (*Record, error)
		typ  string
		want Reason
	}{
		"returns":           {end: func(r *Record) (*Record, error) { return r, nil }},
		"drops":             {end: func(r *Record) (*Record, error) { return nil, nil }, want: ReasonDropped},
		"errs":              {end: func(r *Record) (*Record, error) { return r, errors.New("SECRET") }, want: ReasonListenerError},
		"panics":            {end: func(r *Record) (*Record, error) { panic("SECRET") }, want: ReasonListenerPanic},
		"invalid body":      {end: func(r *Record) (*Record, error) { r.Body = []byte(`{"SECRET`); return r, nil }, want: ReasonInvalidBody},
		"engine fails":      {end: func(r *Record) (*Record, error) { r.Body = []byte(`"FAIL SECRET"`); return r, nil }, want: ReasonRedaction},
		"engine panics":     {end: func(r *Record) (*Record, error) { r.Body = []byte(`"PANIC SECRET"`); return r, nil }, want: ReasonRedaction},
		"rule withholds":    {end: func(r *Record) (*Record, error) { r.Body = []byte(`"WITHHOLD SECRET"`); return r, nil }, want: ReasonPolicy},
		"fails on scope":    {end: func(r *Record) (*Record, error) { r.Scope.Name = "FAIL SECRET"; return r, nil }, want: ReasonRedaction},
		"fails on resource": {end: func(r *Record) (*Record, error) { r.Resource = NewResource("FAIL"); return r, nil }, want: ReasonRedaction},
		"type matches":      {typ: "acme/SECRET", end: func(r *Record) (*Record, error) { return r, nil }, want: ReasonEventType},
		"type matches, too": {typ: "acme/SECRET", end: func(r *Record) (*Record, error) { return nil, nil }, want: ReasonDropped},
		"type fails":        {typ: "FAIL", end: func(r *Record) (*Record, error) { return r, nil }, want: ReasonRedaction},
		"type panics":       {typ: "PANIC SECRET", end: func(r *Record) (*Record, error) { return nil, nil }, want: ReasonDropped},
	} {
		t.Run(name, func(t *testing.T) {
			typ := c.typ
			if typ == "" {
				typ = "user/message"
			}
			in := plain(typ, `{"b":"SECRET"}`)
			w := NewWaterfall(nil, NewRedaction(fakeEngine{}, nil), ListenerFunc(func(_ context.Context, r *Record, _ Next) (*Record, error) {
				vandal(r)
				return c.end(r)
			}))
			out, err := w.Run(context.Background(), in)
			if err != nil {
				t.Fatal(err)
			}
			if holdsSecret(out) {
				t.Errorf("the secret goes out: %+v", out)
			}
			if out.Identity != in.Identity || out.UID != in.UID || out.Channel != in.Channel || out.Inherited || out.Surface.Seen || out.Cut != 0 {
				t.Errorf("identity or facts changed: %+v", out)
			}
			if wantType := map[bool]string{true: "user/message", false: RedactedType}[c.typ == ""]; out.Type != wantType {
				t.Errorf("type %q, want %q", out.Type, wantType)
			}
			if out.Withheld != c.want {
				t.Errorf("withheld %q, want %q", out.Withheld, c.want)
			}
			if c.want != "" && (len(out.Body) > 0 || len(out.Attributes) > 0 || out.EventName != out.Type) {
				t.Errorf("a marker with content: %+v", out)
			}
			if in.EventName != typ || string(in.Body) != `{"b":"SECRET"}` || len(in.Attributes) != 1 {
				t.Errorf("the listener did not get a copy: %+v", in)
			}
		})
	}
}

func TestListenerThatKeepsItsRecordCannotChangeWhatGoesOut(t *testing.T) {
	var kept *Record
	w := NewWaterfall(nil, nil, ListenerFunc(func(ctx context.Context, r *Record, next Next) (*Record, error) {
		kept = r
		return next(ctx, r)
	}))
	out, err := w.Run(context.Background(), plain("a", `"ab"`))
	if err != nil {
		t.Fatal(err)
	}
	copy(kept.Body, `"xx"`)
	kept.Attributes[0] = attribute.String("x", "x")
	if string(out.Body) != `"ab"` || out.Attributes[0].Key != KeyCwd {
		t.Fatalf("changed afterwards: %+v", out)
	}
}

func TestListenerThatFailsForTheEndOfItsContextDecidesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w := NewWaterfall(nil, nil, ListenerFunc(func(ctx context.Context, r *Record, next Next) (*Record, error) {
		cancel()
		return nil, ctx.Err()
	}))
	if out, err := w.Run(ctx, plain("a", "1")); out != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, %v", out, err)
	}
}

func TestRedactionKeepsWhatNoRuleTouched(t *testing.T) {
	d := NewRedaction(fakeEngine{}, nil)
	attrs := []attribute.KeyValue{
		attribute.Float64("whole double", 5), attribute.Int64Slice("ints", []int64{1, 2}),
		attribute.String("s", "SECRET"), attribute.ByteSlice("bytes", []byte{0xff}), attribute.Bool("b", true),
	}
	for range 2 { // the second time from memory
		r := plain("a", `{"x":1}`)
		r.Attributes = attrs
		if why := d.apply(r); why != "" {
			t.Fatal(why)
		}
		want := append(slices.Clone(attrs[:2]), attribute.String("s", "[REDACTED:fake-secret]"), attrs[3], attrs[4])
		if !reflect.DeepEqual(r.Attributes, want) {
			t.Fatalf("got %v, want %v", r.Attributes, want)
		}
	}
}

func TestSessionIDThatMatchesBecomesATokenThatStays(t *testing.T) {
	d := NewRedaction(fakeEngine{}, []byte("key"))
	token, err := d.SessionID("my SECRET session")
	if err != nil || !isToken(token) || strings.Contains(token, "SECRET") {
		t.Fatalf("%q, %v", token, err)
	}
	if again, _ := d.SessionID(token); again != token {
		t.Errorf("the token of a token is %q", again)
	}
	if other, _ := NewRedaction(fakeEngine{}, []byte("other")).SessionID("my SECRET session"); other == token {
		t.Error("the token does not depend on the key")
	}
	if id, _ := d.SessionID("plain"); id != "plain" {
		t.Errorf("an id without match became %q", id)
	}
	r := plain("a", "1")
	r.Attributes = append(r.Attributes, attribute.String(KeyParentID, "my SECRET session"))
	if why := d.apply(r); why != "" || r.Attributes[1].Value.AsString() != token {
		t.Errorf("%s, parent %v", why, r.Attributes)
	}
}

func TestBacklogIsRedactedAgainUnderAnotherPolicy(t *testing.T) {
	old := NewRedaction(fakeEngine{hash: "1"}, []byte("k"))
	r := plain("a", `"SECRET1 SECRET2"`)
	r.Identity.SessionID = "SECRET2"
	if why := old.apply(r); why != "" {
		t.Fatal(why)
	}
	if old.Again(r) != r {
		t.Error("a record of this policy was redacted again")
	}
	now := NewRedaction(fakeEngine{hash: "2"}, []byte("k"))
	out := now.Again(r)
	if string(out.Body) != `"[REDACTED:fake-secret] [REDACTED:fake-secret]"` || out.Policy != "fake:2" {
		t.Errorf("%s under %s", out.Body, out.Policy)
	}
	if !isToken(out.Identity.SessionID) || out.UID != out.Identity.UID() {
		t.Errorf("identity %+v with uid %s", out.Identity, out.UID)
	}
	if !reflect.DeepEqual(out.Redactions, []RuleCount{{"fake-secret", 2}}) {
		t.Errorf("counts %v", out.Redactions)
	}
	failing := plain("a", `"FAIL"`)
	failing.Policy = "older"
	if out := now.Again(failing); out.Withheld != ReasonRedaction || len(out.Body) > 0 {
		t.Errorf("%+v", out)
	}
	if (*Redaction)(nil).Again(r) != r {
		t.Error("no redaction changed a record")
	}
}

func TestInvalidUTF8NeverGoesOut(t *testing.T) {
	for _, red := range []*Redaction{nil, NewRedaction(fakeEngine{}, nil)} {
		w := NewWaterfall(nil, red)
		r := plain("a", "1")
		r.EventName, r.Scope.Name = "n\xff", "s\xff"
		r.Attributes = []attribute.KeyValue{attribute.String("k\xff", "v\xff"), attribute.StringSlice("l", []string{"\xff"}),
			attribute.Map("m", attribute.Slice("s", attribute.StringValue("\xff")))}
		out, err := w.Run(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range out.Attributes {
			if !validKeyValue(kv) {
				t.Errorf("invalid: %v", kv)
			}
		}
		if out.EventName != "n\uFFFD" || out.Scope.Name != "s\uFFFD" {
			t.Errorf("%q %q", out.EventName, out.Scope.Name)
		}
	}
}

// Values of every type are looked into; what no rule touched is as it was, in type too.
func TestValuesOfOpenTelemetryAreRedacted(t *testing.T) {
	d := NewRedaction(fakeEngine{}, nil)
	const marker = "[REDACTED:fake-secret]"
	for name, c := range map[string]struct{ in, want attribute.Value }{
		"text":      {attribute.StringValue("a SECRET b"), attribute.StringValue("a " + marker + " b")},
		"clean":     {attribute.StringValue("clean"), attribute.StringValue("clean")},
		"texts":     {attribute.StringSliceValue([]string{"x", "SECRET"}), attribute.SliceValue(attribute.StringValue("x"), attribute.StringValue(marker))},
		"ints":      {attribute.Int64SliceValue([]int64{1, 2}), attribute.Int64SliceValue([]int64{1, 2})},
		"double":    {attribute.Float64Value(5), attribute.Float64Value(5)},
		"no value":  {attribute.Value{}, attribute.Value{}},
		"bool":      {attribute.BoolValue(true), attribute.BoolValue(true)},
		"map":       {attribute.MapValue(attribute.String("k", "SECRET"), attribute.Int("n", 1)), attribute.MapValue(attribute.String("k", marker), attribute.Int("n", 1))},
		"key":       {attribute.MapValue(attribute.String("SECRET", "v")), attribute.MapValue(attribute.String(marker, "v"))},
		"deep list": {attribute.SliceValue(attribute.IntValue(1), attribute.SliceValue(attribute.StringValue("SECRET"))), attribute.SliceValue(attribute.IntValue(1), attribute.SliceValue(attribute.StringValue(marker)))},
	} {
		var f Findings
		got, err := d.Value(c.in, &f)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if texts := string(appendJSONValue(nil, got)); strings.Contains(texts, "SECRET") || texts != string(appendJSONValue(nil, c.want)) {
			t.Errorf("%s: %s", name, texts)
		}
		if reflect.DeepEqual(c.in, c.want) && !reflect.DeepEqual(got, c.in) {
			t.Errorf("%s changed its type: %v", name, got.Type())
		}
	}
	for _, text := range []string{"FAIL SECRET", "PANIC SECRET"} {
		func() {
			defer func() { _ = recover() }() // whoever calls it contains a panic, as the processor does
			if got, err := d.Value(attribute.StringValue(text), new(Findings)); err == nil {
				t.Errorf("a failing engine lets %v pass", got.Type())
			}
		}()
	}
}
