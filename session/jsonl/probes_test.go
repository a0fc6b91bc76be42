package jsonl

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/surface"
)

// layer is where a change is refused. The reader refuses what the reference's
// codec does; above it stand trace, surface and relations, as its restorer does.
type layer string

const (
	accepted layer = "accepted"
	byReader layer = "the reader"
	byLedger layer = "trace, surface or relations"
)

// refusedBy reads a version 3 or 4 file with every check there is.
func refusedBy(t *testing.T, text string) (layer, error) {
	t.Helper()
	evs, r, err := readAll(write(t, "session.jsonl", []byte(text)))
	if err == nil && r.Tail().Torn() {
		err = r.Tail().Cause
	}
	if err != nil {
		return byReader, err
	}
	mem := &events{}
	view := surface.NewView(mem, r.Dialect())
	admitters := []session.Admitter{
		session.NewTrace(r.Header(), r.Dialect(), session.Core(r.Dialect())), view, surface.NewRequests(view),
		session.NewRelations(r.Header(), r.Dialect(), r.InheritedCount()),
	}
	for i := range evs {
		mem.list = evs[:i]
		if err := session.Admit(&evs[i], admitters...); err != nil {
			return byLedger, err
		}
	}
	return accepted, nil
}

// The acceptance probes of DSH-FORMAT-V3-V4 §6: one change each. Where the
// table says that one layer of the reference is lenient and another refuses, a
// reader of ours has both, and refuses.
func TestAcceptanceProbes(t *testing.T) {
	load := func(name string) string {
		data, err := os.ReadFile(shared(t, "data", "dsh", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	swap := map[int]string{3: load("v3/orig-swap.jsonl"), 4: load("v4/orig-swap.jsonl")}
	nativeV4, fork := load("v4/native-v4.jsonl"), load("v4/native-v4-fork-open.jsonl")

	one := func(find, replace string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, find) {
				t.Fatalf("%q is not there", find)
			}
			return strings.Replace(s, find, replace, 1)
		}
	}
	// last row plus one more, with its seq
	more := func(row string) func(string) string {
		return func(s string) string {
			return s + fmt.Sprintf(row, strings.Count(s, "\n")-1) + "\n"
		}
	}
	headless := func(version int, source string) string {
		return fmt.Sprintf(`{"type":"session","version":%d,"id":"s","createdAt":1,"isSeeded":false,"delegationDepth":0}
{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}
{"type":"step/start","seq":1,"time":1,"data":{"turn":1,"step":1}}
{"type":"user/message","seq":2,"time":1,"data":{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},"surfaceOp":"append"}
{"type":"system/message","seq":3,"time":1,"data":{"turn":1,"step":1,"message":{"id":"m","role":"system","source":{"kind":%s},"content":[]}},"surfaceOp":"append"}
`, version, source)
	}
	unchanged := func(s string) string { return s }
	for _, c := range []struct {
		name   string
		base   string // orig-swap of the version when empty
		edit   func(string) string
		v3, v4 layer // empty: not for that version
	}{
		// With sources of kind plugin in version 3, and their own kinds in version 4.
		{"unchanged", "", unchanged, accepted, accepted},
		{"developer/message", nativeV4, unchanged, "", accepted},
		{"replace with start and end", "", one(`{"op":"replace","startSeq":8,"endSeq":8}`, `{"op":"replace","start":8,"end":8}`), byReader, byReader},
		{"header.system", "", one(`"data":{"header":{`, `"data":{"header":{"system":"",`), byReader, byReader},
		{"empty adapterDefaults", "", one(`"data":{"header":{`, `"data":{"header":{"adapterDefaults":{},`), byReader, byReader},
		{"sources on assistant/message", "", func(s string) string {
			i := strings.Index(s, `{"type":"assistant/message"`)
			return s[:i] + strings.Replace(s[i:], `"surfaceOp":"append"`, `"sourceEventSeqs":[1],"surfaceOp":"append"`, 1)
		}, byReader, byReader},
		{"empty sources on a surface row", "", one(`"sourceEventSeqs":[22]`, `"sourceEventSeqs":[]`), byReader, byReader},
		{"replacement omits a shadowed node", "", one(`"sourceEventSeqs":[12]`, `"sourceEventSeqs":[9]`), byLedger, byLedger},
		{"user message over the system head", "", more(`{"type":"user/message","seq":%d,"time":1,"data":{"content":[],"source":{"kind":"user"},"role":"user","id":"u"},"surfaceOp":{"op":"replace","startSeq":75,"endSeq":75},"sourceEventSeqs":[75]}`), byLedger, byLedger},
		{"system message outside its step", "", one(`"seq":42,"time":1796034591862,"data":{"turn":2,"step":1`, `"seq":42,"time":1796034591862,"data":{"turn":2,"step":2`), byLedger, byLedger},
		{"other source kind on the title's message", "", func(s string) string {
			i := strings.Index(s, `{"type":"user/message"`)
			return s[:i] + strings.Replace(s[i:], `"source":{"kind":"user"}`, `"source":{"kind":"hook"}`, 1)
		}, byLedger, byLedger},
		{"error without isError", "", func(s string) string {
			i := strings.Index(s, `"isError":true`)
			return s[:i] + `"isError":false` + s[i+len(`"isError":true`):]
		}, byReader, byReader},
		{"unknown type", "", more(`{"type":"acme/x","seq":%d,"time":1,"data":{}}`), byLedger, byLedger},
		{"unknown type, ignorable", "", more(`{"type":"acme/x","seq":%d,"time":1,"data":{},"ignorable":true}`), accepted, accepted},
		{"tool/code-dispatch", "", more(`{"type":"tool/code-dispatch","seq":%d,"time":1,"data":{}}`), byReader, byReader},
		{"unknown content block in user/message", "", more(`{"type":"user/message","seq":%d,"time":1,"data":{"content":[{"type":"hologram"}],"source":{"kind":"user"},"role":"user","id":"u"},"surfaceOp":"append"}`), accepted, accepted},
		{"seedLength", "", one(`"delegationDepth"`, `"seedLength":0,"delegationDepth"`), byReader, byReader},
		{"relative cwd", "", one(`"cwd":"/`, `"cwd":"`), byReader, byReader},
		{"extra envelope key", "", one(`{"type":"sandbox/mode",`, `{"type":"sandbox/mode","x":1,`), byReader, byReader},
		{"isSeeded without marker", "", one(`"isSeeded":false`, `"isSeeded":true`), byReader, byReader},
		{"source kind plugin", "", one(`{"kind":"runtime-context",`, `{"kind":"plugin","plugin":"runtime-context",`), "", byReader},
		{"wrapped tool result", "", one(`"content":[{"type":"text","text":"ok 14 tests"}]`, `"content":[{"type":"tool-result","toolCallId":"call-a-2","content":[],"isError":false}]`), "", byReader},
		{"developer/message, not known", "", one(`{"type":"assistant/attempt","seq":15,`, `{"type":"developer/message","seq":15,`), byLedger, ""},
		{"developer/message with empty content", nativeV4, one(`"content":[{"type":"tool-removal","toolName":"search"}]`, `"content":[]`), "", accepted},
		{"empty tools", "", func(s string) string {
			rows := strings.Split(s, "\n")
			for i, row := range rows {
				if strings.HasPrefix(row, `{"type":"request/header"`) {
					tools := string(session.Path([]byte(row), "data", "header", "tools"))
					rows[i] = strings.Replace(row, tools, "[]", 1)
					break
				}
			}
			return strings.Join(rows, "\n")
		}, byReader, byReader},
		{"tool-role message", "", one(`"content":[{"type":"tool-result","toolCallId":"call-a-2","content":[{"type":"text","text":"ok 14 tests"}],"isError":false}],"role":"user"`,
			`"toolCallId":"call-a-2","content":[{"type":"text","text":"ok 14 tests"}],"isError":false,"role":"tool"`), accepted, ""},
		{"duplicate own catalog child", nativeV4, func(s string) string {
			i := strings.Index(s, `{"type":"subagent/catalog"`)
			row := s[i : i+strings.IndexByte(s[i:], '\n')]
			seq := string(session.Member([]byte(row), "seq"))
			return more(strings.Replace(row, `"seq":`+seq, `"seq":%d`, 1))(s)
		}, "", byLedger},
		// The published restorer of version 3 (dsh-session-format-v2-to-v3 0.1.5-alpha.1)
		// refuses these two as well.
		{"system message without a head", headless(3, `"plugin","plugin":"p"`), unchanged, byLedger, ""},
		{"system message without a head", headless(4, `"system-prompt"`), unchanged, "", byLedger},
		{"compaction over the system head", "", more(`{"type":"compaction/prune","seq":%d,"time":1,"data":{"shadowedRange":{"start":75,"end":75},"shadowedSeqs":[75],"shadowedTokenCount":0}}`), byLedger, byLedger},
		// The reference leaves this to its projection, which is built in here.
		{"image/offload with a bad index", "", more(`{"type":"image/offload","seq":%d,"time":1,"data":{"targets":[{"seq":9,"imageIndexes":[7]}]}}`), "", byLedger},
		{"tool addition without headerSeq", nativeV4, one(`"headerSeq":`, `"x":`), "", byReader},
		{"tool removal with headerSeq", nativeV4, func(s string) string {
			i := strings.Index(s, `"tool-removal"`)
			j := strings.LastIndex(s[:i], `"data":{`)
			return s[:j] + `"data":{"headerSeq":20,` + s[j+len(`"data":{`):]
		}, "", byReader},
		{"deferLoading false", nativeV4, one(`"deferLoading":true`, `"deferLoading":false`), "", byReader},
		{"forked id with another seq", fork, one(`forked-tool-result-call-8-66`, `forked-tool-result-call-8-67`), "", byReader},
	} {
		for version, want := range map[int]layer{3: c.v3, 4: c.v4} {
			if want == "" {
				continue
			}
			t.Run(fmt.Sprint(c.name, "/v", version), func(t *testing.T) {
				base := c.base
				if base == "" {
					base = swap[version]
				}
				got, err := refusedBy(t, c.edit(base))
				if got != want {
					t.Errorf("%s: %v; want %s", got, err, want)
				}
				var corrupt *CorruptError
				if want == byReader && errors.As(err, &corrupt) && corrupt.Code == "" {
					t.Errorf("no code: %v", err)
				}
			})
		}
	}
}
