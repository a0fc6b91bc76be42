package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

func withGenAI(c *Config) { c.GenAI = true }

// genAIOf are the gen_ai.* attributes of a record.
func genAIOf(r *Record) map[string]any {
	out := map[string]any{}
	for _, kv := range r.AllAttributes() {
		if strings.HasPrefix(string(kv.Key), "gen_ai.") {
			out[string(kv.Key)] = kv.Value.AsInterface()
		}
	}
	return out
}

func pathOf(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

// expectation says by the convention's text, and with nothing of genAI, what the
// events of a ledger have, in order.
type expectation struct {
	id, model, provider string
	tools               map[string]string
}

func (e *expectation) next(typ string, data any) map[string]any {
	out := map[string]any{"gen_ai.conversation.id": e.id}
	set := func(key string, v any) {
		if s, ok := v.(string); ok && s != "" {
			if key == "gen_ai.provider.name" && s == "deepseek-official" {
				s = "deepseek" // the convention's own name of it
			}
			out[key] = s
		}
	}
	usage := func(u any) {
		m, _ := u.(map[string]any)
		n := func(k string) int64 { f, _ := m[k].(float64); return int64(f) }
		if _, ok := m["inputTokens"]; ok {
			out["gen_ai.usage.input_tokens"] = n("inputTokens") + n("cacheReadTokens") + n("cacheWriteTokens")
		}
		for of, key := range map[string]string{"outputTokens": "output_tokens", "reasoningTokens": "reasoning.output_tokens",
			"cacheReadTokens": "cache_read.input_tokens", "cacheWriteTokens": "cache_creation.input_tokens"} {
			if _, ok := m[of]; ok {
				out["gen_ai.usage."+key] = n(of)
			}
		}
	}
	switch typ {
	case "request/header":
		out["gen_ai.operation.name"] = "chat"
		set("gen_ai.provider.name", pathOf(data, "header", "config", "provider"))
		set("gen_ai.request.model", pathOf(data, "header", "config", "model"))
		e.provider, _ = pathOf(data, "header", "config", "provider").(string)
		e.model, _ = pathOf(data, "header", "config", "model").(string)
	case "request/context", "compaction/summary":
		out["gen_ai.operation.name"] = "chat"
		set("gen_ai.provider.name", pathOf(data, "provider"))
		set("gen_ai.request.model", pathOf(data, "model"))
		usage(pathOf(data, "usage"))
	case "session/title-llm-request":
		out["gen_ai.operation.name"] = "chat"
		set("gen_ai.provider.name", pathOf(data, "route", "provider"))
		set("gen_ai.request.model", pathOf(data, "route", "model"))
	case "llm/retry":
		out["gen_ai.operation.name"] = "chat"
		set("gen_ai.provider.name", pathOf(data, "provider"))
		set("gen_ai.request.model", e.model)
	case "assistant/message":
		out["gen_ai.operation.name"] = "chat"
		set("gen_ai.provider.name", pathOf(data, "message", "source", "provider"))
		set("gen_ai.request.model", e.model)
		set("gen_ai.response.model", pathOf(data, "message", "source", "model"))
		usage(pathOf(data, "usage"))
	case "assistant/attempt", "attempt":
		out["gen_ai.operation.name"] = "chat"
		set("gen_ai.provider.name", e.provider)
		set("gen_ai.request.model", e.model)
		parts, _ := pathOf(data, "stream").([]any)
		for _, p := range parts {
			if pathOf(p, "type") == "chunk" {
				p = pathOf(p, "chunk") // as the ledger has it
			}
			if pathOf(p, "type") == "usage" {
				usage(pathOf(p, "usage"))
			}
		}
	case "tool/call":
		out["gen_ai.operation.name"] = "execute_tool"
		set("gen_ai.tool.name", pathOf(data, "name"))
		set("gen_ai.tool.call.id", pathOf(data, "callId"))
		id, _ := pathOf(data, "callId").(string)
		e.tools[id], _ = pathOf(data, "name").(string)
	case "tool/result":
		out["gen_ai.operation.name"] = "execute_tool"
		id, _ := pathOf(data, "message", "source", "callId").(string)
		set("gen_ai.tool.call.id", id)
		set("gen_ai.tool.name", e.tools[id])
	case "tool/code-dispatch", "tool/code-dispatch-start", "tool/ptc-dispatch", "tool/ptc-dispatch-start":
		out["gen_ai.operation.name"] = "execute_tool"
		set("gen_ai.tool.name", pathOf(data, "name"))
		set("gen_ai.tool.call.id", pathOf(data, "subCallId"))
	case "step/end", "turn/end":
		clear(e.tools)
	}
	return out
}

func viaJSON(t *testing.T, v any) (out any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Real sessions of every format, against the convention.
func TestGenAIAttributesOfRealSessions(t *testing.T) {
	root := readSchema(t)
	seen, attempts := map[string]bool{}, 0
	for _, pattern := range []string{"v0/lab-*.jsonl", "v0/orig-*.jsonl", "v1/*.jsonl", "v2/*.jsonl", "v3/*.jsonl", "v4/*.jsonl"} {
		files, err := filepath.Glob(filepath.Join(shared(t, "dsh"), pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, file := range files {
			if strings.Contains(file, "v3/native-v3-restart") {
				continue // refused, on purpose
			}
			o := newModelOutbox()
			pull(t, testCapture(t, o, withGenAI).Session(FinishedFile(file, nil), SessionOptions{}))
			e := expectation{tools: map[string]string{}}
			n := 0
			for _, r := range o.records(t) {
				var data any
				if err := json.Unmarshal(r.Body, &data); err != nil {
					t.Fatal(err)
				}
				typ := r.Type
				switch {
				case r.Channel == ChannelLedger:
				case r.Op == OpAttempt:
					typ = OpAttempt
					attempts++
				default:
					if got := genAIOf(&r); len(got) != 0 {
						t.Errorf("%s: an ops record %s has %v", file, r.Op, got)
					}
					continue
				}
				if err := root.check(root.Defs["genAI"], viaJSON(t, genAIOf(&r)), typ); err != nil {
					t.Errorf("%s: docs/records.schema.json: %v", file, err)
				}
				if e.id == "" {
					e.id = r.Identity.SessionID
				}
				if got, want := genAIOf(&r), e.next(typ, data); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s seq %d %s: got %v, want %v", file, r.Identity.Seq, typ, got, want)
				} else {
					for k := range got {
						seen[k] = true
					}
				}
				n++
			}
			if n == 0 {
				t.Errorf("%s: no record", file)
			}
		}
	}
	// What the sessions at hand have, so that nothing above is true of nothing.
	want := []string{"gen_ai.conversation.id", "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model",
		"gen_ai.response.model", "gen_ai.tool.call.id", "gen_ai.tool.name", "gen_ai.usage.cache_read.input_tokens",
		"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.reasoning.output_tokens"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("attributes seen: %q", got)
	}
	if attempts == 0 {
		t.Error("no ops record of an attempt seen")
	}
}

// aTurn has a header, an answer with every count, a tool call and its result.
func aTurn(model, tool string) []string {
	return []string{
		`turn/start {"turn":1}`,
		`step/start {"turn":1,"step":1}`,
		fmt.Sprintf(`request/header {"header":{"config":{"provider":"deepseek-official","model":%q}},"reason":"initial"}`, model),
		fmt.Sprintf(`assistant/message {"turn":1,"step":1,"message":{"id":"a","role":"assistant","source":{"kind":"model","provider":"deepseek-official","model":%q},`+
			`"content":[{"type":"tool-call","id":"c1","name":%q,"arguments":"{}"}]},`+
			`"usage":{"inputTokens":100,"outputTokens":20,"cacheReadTokens":30,"cacheWriteTokens":7,"reasoningTokens":5}}`, model+"-0613", tool),
		fmt.Sprintf(`tool/call {"turn":1,"step":1,"callId":"c1","name":%q,"arguments":"{}"}`, tool),
		`tool/result {"turn":1,"step":1,"message":{"id":"r","role":"user","source":{"kind":"tool","callId":"c1"},` +
			`"content":[{"type":"tool-result","toolCallId":"c1","content":[],"isError":false}]}}`,
		`step/end {"turn":1,"step":1}`,
		`turn/end {"turn":1,"reason":{"kind":"completed"}}`,
	}
}

func TestGenAIUsageCountsCachedTokensAsInput(t *testing.T) {
	records, _ := captured(t, ledger("s", aTurn("m", "bash")...), withGenAI)
	want := map[string]any{
		"gen_ai.conversation.id": "s", "gen_ai.operation.name": "chat", "gen_ai.provider.name": "deepseek",
		"gen_ai.request.model": "m", "gen_ai.response.model": "m-0613",
		"gen_ai.usage.input_tokens": int64(137), "gen_ai.usage.cache_read.input_tokens": int64(30), "gen_ai.usage.cache_creation.input_tokens": int64(7),
		"gen_ai.usage.output_tokens": int64(20), "gen_ai.usage.reasoning.output_tokens": int64(5),
	}
	if got := genAIOf(&records[3]); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if got := genAIOf(&records[5]); got["gen_ai.tool.name"] != "bash" || got["gen_ai.tool.call.id"] != "c1" {
		t.Errorf("the result has %v", got)
	}
}

func TestGenAIIsOffByDefault(t *testing.T) {
	records, _ := captured(t, ledger("s", aTurn("m", "bash")...), nil)
	for _, r := range records {
		if got := genAIOf(&r); len(got) != 0 {
			t.Errorf("%s has %v", r.Type, got)
		}
	}
}

func TestGenAILeavesOutWhatIsNoNameOrCount(t *testing.T) {
	for _, raw := range []string{``, `null`, `-1`, `1.5`, `"7"`, `9007199254740993`, `{}`} {
		if n, ok := tokens([]byte(raw)); ok {
			t.Errorf("%s counts %d", raw, n)
		}
	}
	for _, s := range []string{strings.Repeat("x", maxGenAILen+1), strings.Repeat("é", maxGenAILen)} {
		raw, _ := json.Marshal(s)
		if got := shortName(raw); got != "" {
			t.Errorf("%d bytes make a name of %d", len(s), len(got))
		}
	}
	escaped := `"` + strings.Repeat(`\u0061`, maxGenAILen) + `"`
	if got := shortName([]byte(escaped)); got != strings.Repeat("a", maxGenAILen) {
		t.Errorf("the longest name is of %d bytes", len(got))
	}
}

// A record is the same whenever it is made: in one reading, in a process of its
// own for each event, and when it is captured again.
func TestGenAIIsTheSameOnEveryDelivery(t *testing.T) {
	src := ledger("s", aTurn("m", "bash")...)
	want, _ := captured(t, src, withGenAI)
	o := newModelOutbox()
	var keys []EventKey
	for more := true; more; {
		s := testCapture(t, o, withGenAI).Session(src, SessionOptions{})
		p, err := s.Pull(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		more = p.More
		s.Close()
	}
	s := testCapture(t, o, withGenAI).Session(src, SessionOptions{})
	pull(t, s)
	for i := range want {
		keys = append(keys, EventKey{s.Key(), 0, int64(i)})
	}
	if missing, err := s.Recapture(t.Context(), keys); err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	got := o.records(t)
	if len(got) != 2*len(want) {
		t.Fatalf("%d records", len(got))
	}
	for i, r := range got {
		if w := want[i%len(want)]; !reflect.DeepEqual(r, w) {
			t.Errorf("record %d: got %+v, want %+v", i, r, w)
		}
	}
}

// What stays out of scope tells nothing of itself in later records, also when
// those are captured again.
func TestGenAIRemembersNothingOutOfScope(t *testing.T) {
	lines := aTurn("hidden-model", "hidden-tool")
	src := ledger("s", lines[:5]...) // as far as the call
	o := newModelOutbox()
	s := testCapture(t, o, withGenAI).Session(src, SessionOptions{FromNow: true})
	if p := pull(t, s); p.Outcomes.OutOfScope != 5 {
		t.Fatalf("%+v", p)
	}
	s.Close()
	src.append(lines[5:]...)
	s = testCapture(t, o, withGenAI).Session(src, SessionOptions{})
	pull(t, s)
	if _, err := s.Recapture(t.Context(), []EventKey{{s.Key(), 0, 5}}); err != nil {
		t.Fatal(err)
	}
	results := 0
	for _, r := range o.records(t) {
		stored, _ := r.AppendBinary(nil)
		if strings.Contains(string(stored), "hidden") {
			t.Errorf("%s tells %v", r.Type, genAIOf(&r))
		}
		if r.Type == "tool/result" {
			results++
			if got := genAIOf(&r); got["gen_ai.tool.call.id"] != "c1" || got["gen_ai.tool.name"] != nil {
				t.Errorf("the result has %v", got)
			}
		}
	}
	if results != 2 {
		t.Errorf("%d results", results)
	}
}

// The attributes are data: they go through redaction like the body, also when a
// record is redacted again, and a marker has none of them.
func TestGenAIAttributesAreRedacted(t *testing.T) {
	change := func(c *Config) {
		c.GenAI, c.Redaction = true, NewRedaction(fakeEngine{}, testInstallation.Key)
	}
	src := ledger("s SECRET", aTurn("m-SECRET", "tool SECRET")...)
	records, p := captured(t, src, change)
	again := NewRedaction(fakeEngine{hash: "2"}, testInstallation.Key)
	for _, r := range records {
		for _, r := range []*Record{&r, again.Again(&r)} {
			if holdsSecret(r) {
				t.Errorf("%s: %v", r.Type, genAIOf(r))
			}
			if got := genAIOf(r)["gen_ai.conversation.id"]; got != p.SessionID || got != r.Identity.SessionID {
				t.Errorf("%s: conversation %v in session %s", r.Type, got, r.Identity.SessionID)
			}
		}
	}
	if got := genAIOf(&records[4])["gen_ai.tool.name"]; got != "tool [REDACTED:fake-secret]" {
		t.Errorf("tool name %v", got)
	}

	// A rule that comes later and matches the id.
	records, _ = captured(t, ledger("s SECRET2", aTurn("m", "t")...), func(c *Config) {
		c.GenAI, c.Redaction = true, NewRedaction(fakeEngine{hash: "1"}, testInstallation.Key)
	})
	r := again.Again(&records[3])
	if got := genAIOf(r)["gen_ai.conversation.id"]; holdsSecret(r) || got != r.Identity.SessionID {
		t.Errorf("conversation %v in session %s", got, r.Identity.SessionID)
	}

	records, p = captured(t, ledger("s", aTurn("m", "WITHHOLD")...), change)
	if p.Outcomes.Withheld == 0 {
		t.Fatal("nothing was withheld")
	}
	for _, r := range records {
		if got := genAIOf(&r); r.Withheld != "" && len(got) > 0 {
			t.Errorf("a marker has %v", got)
		}
	}
}

// A listener sees them, and what it makes of them goes through redaction.
func TestGenAIAttributesPassListeners(t *testing.T) {
	var seen []attribute.KeyValue
	records, _ := captured(t, ledger("s", aTurn("m", "t")...), func(c *Config) {
		c.GenAI = true
		c.Listeners = []Listener{ListenerFunc(func(ctx context.Context, r *Record, next Next) (*Record, error) {
			if r.Type == "tool/call" {
				seen = r.Attributes
				r.Attributes = nil
			}
			return next(ctx, r)
		})}
	})
	if !slices.ContainsFunc(seen, func(kv attribute.KeyValue) bool {
		return kv.Key == "gen_ai.tool.name" && kv.Value.AsString() == "t"
	}) {
		t.Errorf("the listener saw %v", seen)
	}
	if got := genAIOf(&records[4]); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}
