package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestPackedRunsExpandToTheEventsThatTheyStandFor(t *testing.T) {
	for _, c := range []struct {
		name, row string
		want      []string // each event as a row
	}{
		{"text", `{"type":"text-chunks","seq0":5,"time0":100,"data":{"turn":1,"step":2,"index":0,"dt":[3,-1],"texts":["a","\"é\"",""]}}`, []string{
			`{"type":"assistant/chunk","seq":5,"time":100,"data":{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}}`,
			`{"type":"assistant/chunk","seq":6,"time":103,"data":{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"\"é\""}}}`,
			`{"type":"assistant/chunk","seq":7,"time":102,"data":{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":""}}}`,
		}},
		{"reasoning, one member, keys in another order", `{"data":{"texts":["x"],"dt":[],"index":3,"step":1,"turn":1},"time0":-5,"seq0":0,"type":"reasoning-chunks"}`, []string{
			`{"type":"assistant/chunk","seq":0,"time":-5,"data":{"turn":1,"step":1,"chunk":{"type":"reasoning-delta","index":3,"text":"x"}}}`,
		}},
		{"a call with a name", `{"type":"tool-call-chunks","seq0":1,"time0":1,"data":{"turn":1,"step":1,"index":1,"dt":[0],"id":"c","name":"glob","args":["{","}"]}}`, []string{
			`{"type":"assistant/chunk","seq":1,"time":1,"data":{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":1,"id":"c","name":"glob","argumentsDelta":"{"}}}`,
			`{"type":"assistant/chunk","seq":2,"time":1,"data":{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":1,"id":"c","name":"glob","argumentsDelta":"}"}}}`,
		}},
		{"a call without a name", `{"type":"tool-call-chunks","seq0":1,"time0":1,"data":{"turn":1,"step":1,"index":1,"dt":[],"id":"c","args":["{"]}}`, []string{
			`{"type":"assistant/chunk","seq":1,"time":1,"data":{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":1,"id":"c","argumentsDelta":"{"}}}`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := dialect(t, 0)
			dec := NewDecoder(d, nil)
			var ev Event
			run, err := dec.Decode([]byte(c.row), &ev)
			if err != nil || run == nil {
				t.Fatalf("got %v, %v", run, err)
			}
			if run.Len() != len(c.want) {
				t.Fatalf("%d events, want %d", run.Len(), len(c.want))
			}
			for i, want := range c.want {
				if !run.Next(&ev) {
					t.Fatalf("no event %d", i)
				}
				if got := string(AppendEvent(nil, d, &ev)); got != want {
					t.Errorf("event %d is\n%s\nwant\n%s", i, got, want)
				}
				if turn, step, ok := TurnStep(&ev); !ok || turn != run.Turn || step != run.Step {
					t.Errorf("event %d is of turn %d step %d", i, turn, step)
				}
			}
			if run.Next(&ev) {
				t.Error("one event too many")
			}
			var decode *DecodeError
			if err := DecodeEvent(d, nil, []byte(c.row), &ev); !errors.As(err, &decode) || decode.Code != CodeRowPacked {
				t.Errorf("as one event: %v", err)
			}
			if _, err := NewDecoder(dialect(t, 2), nil).Decode([]byte(c.row), &ev); err == nil {
				t.Error("version 2 has no packed rows")
			}
		})
	}
}

func TestMalformedRunsAreRefused(t *testing.T) {
	const good = `{"type":"text-chunks","seq0":5,"time0":100,"data":{"turn":1,"step":2,"index":0,"dt":[3],"texts":["a","b"]}}`
	const tool = `{"type":"tool-call-chunks","seq0":1,"time0":1,"data":{"turn":1,"step":1,"index":1,"dt":[],"id":"c","name":"n","args":["{"]}}`
	for _, c := range []struct{ row, old, new string }{
		{good, `"seq0":5`, `"seq0":-1`}, {good, `"seq0":5`, `"seq0":"5"`}, {good, `"seq0":5`, `"seq0":9007199254740991`},
		{good, `"time0":100`, `"time0":1.5`}, {good, `"time0":100`, `"time0":-0`}, {good, `"time0":100`, `"time0":9007199254740991`},
		{good, `"time0":100,`, ``}, {good, `"seq0":5,`, ``}, {good, `"seq0":5`, `"seq0":5,"seq":5`}, {good, `"seq0":5`, `"seq0":5,"x":1`},
		{good, `"seq0":5`, `"seq0":5,"ignorable":true`}, {good, `"seq0":5`, `"seq0":5,"surfaceOp":"append"`},
		{good, `"turn":1`, `"turn":-1`}, {good, `"turn":1,`, ``}, {good, `"step":2`, `"step":"2"`}, {good, `"index":0`, `"index":0.5`},
		{good, `"dt":[3]`, `"dt":[]`}, {good, `"dt":[3]`, `"dt":[3,4]`}, {good, `"dt":[3]`, `"dt":["3"]`}, {good, `"dt":[3]`, `"dt":[1.5]`}, {good, `"dt":[3]`, `"dt":3`},
		{good, `["a","b"]`, `[]`}, {good, `["a","b"]`, `["a",1]`}, {good, `["a","b"]`, `"ab"`}, {good, `"texts"`, `"args"`},
		{good, `"index":0`, `"index":0,"id":"c"`}, {good, `{"turn":1,"step":2,"index":0,"dt":[3],"texts":["a","b"]}`, `[]`},
		{tool, `"id":"c",`, ``}, {tool, `"id":"c"`, `"id":""`}, {tool, `"id":"c"`, `"id":1`}, {tool, `"name":"n"`, `"name":1`}, {tool, `"args"`, `"texts"`},
	} {
		row := strings.Replace(c.row, c.old, c.new, 1)
		if row == c.row {
			t.Fatalf("%s is not in the row", c.old)
		}
		var ev Event
		_, err := NewDecoder(dialect(t, 1), nil).Decode([]byte(row), &ev)
		var decode *DecodeError
		if !errors.As(err, &decode) || decode.Code != CodeRowRun || decode.Stage != StageEnvelope {
			t.Errorf("%s: %v", row, err)
		}
	}
}

// stage tells where a row is refused; -1 where it is not.
func stage(err error) int {
	var decode *DecodeError
	if errors.As(err, &decode) {
		return int(decode.Stage)
	}
	return -1
}

func TestStructureIsRefusedEvenBehindADamagedRow(t *testing.T) {
	head3 := `{"turn":1,"step":1,"message":{"id":"m","role":"system","source":{"kind":"plugin","plugin":"p"},"content":[{"type":"text","text":"x"}]}}`
	head4 := strings.Replace(head3, `{"kind":"plugin","plugin":"p"}`, `{"kind":"system-prompt"}`, 1)
	dev := `{"turn":1,"step":1,"headerSeq":0,"message":{"id":"m","role":"developer","source":{"kind":"tool-registry"},"content":[{"type":"tool-addition","toolName":"f"}]}}`
	res := `{"turn":1,"step":1,"message":{"id":"r","role":"tool","source":{"kind":"tool","callId":"c"},"toolCallId":"c","content":[],"isError":true},"error":{"name":"E","code":"C"}}`
	type change struct{ old, new string }
	for _, c := range []struct {
		version   int
		typ, data string
		ok        bool
		changes   []change
	}{
		{3, TypeSystemMessage, head3, true, nil},
		{3, TypeSystemMessage, head3, false, []change{
			{`"turn":1`, `"turn":0`}, {`"step":1,`, ``}, {`"turn":1`, `"turn":1,"x":1`}, {`"id":"m"`, `"id":""`}, {`"id":"m"`, `"id":"m","extra":1`},
			{`"system"`, `"user"`}, {`"kind":"plugin"`, `"kind":"user"`}, {`"plugin":"p"`, `"plugin":""`}, {`"plugin":"p"`, `"plugin":"p","more":1`},
			{`"text":"x"`, `"text":1`}, {`"text":"x"`, `"text":"x","extra":1`}, {`[{"type":"text","text":"x"}]`, `"x"`},
		}},
		{3, TypeRequestHeader, `{"header":{"config":{}},"reason":"initial"}`, true, nil},
		{3, TypeRequestHeader, `{"header":{"config":{}}}`, false, []change{{`"config":{}`, `"system":""`}, {`{"config":{}}`, `1`}, {`{"header":{"config":{}}}`, `[]`}}},
		{2, TypeRequestHeader, `{"header":{"config":{},"system":"x"}}`, true, nil},
		{3, "tool/code-dispatch", `{}`, false, []change{{``, ``}}},
		{4, "tool/code-dispatch-start", `{}`, false, []change{{``, ``}}},
		{4, TypeSystemMessage, head4, true, nil},
		{4, TypeSystemMessage, head4, false, []change{
			{`"kind":"system-prompt"`, `"kind":"plugin","plugin":"p"`}, {`"turn":1`, `"turn":0`}, {`"system"`, `"developer"`}, {`"type":"text","text":"x"`, `"type":"tool-result"`},
			{`"text":"x"`, `"text":1`}, {`"type":"text"`, `"type":""`},
		}},
		{4, TypeSystemMessage, head4, true, []change{{`"turn":1`, `"turn":1,"x":1`}, {`"type":"text","text":"x"`, `"type":"other"`}}},
		{4, TypeUserMessage, `{"id":"u","role":"user","source":{"kind":"user"},"content":[{"type":"text","text":"x"}]}`, true, []change{{`"type":"text"`, `"type":"odd"`}}},
		{4, TypeUserMessage, `{"id":"u","role":"user","source":{"kind":"user"},"content":[{"type":"text","text":"x"}]}`, false, []change{
			{`"kind":"user"`, `"kind":"plugin","plugin":"p"`}, {`"role":"user"`, `"role":"developer"`}, {`"type":"text"`, `"type":"tool-result"`},
			{`"type":"text"`, `"type":"tool\u002dresult"`}, {`"type":"text"`, `"type":"tool-addition","toolName":"f"`},
		}},
		{4, TypeDeveloperMessage, dev, true, []change{{`"kind":"tool-registry"`, `"kind":"x"`}, {`"headerSeq":0,`, `"headerSeq":0,"more":1,`}}},
		{4, TypeDeveloperMessage, dev, false, []change{
			{`"headerSeq":0,`, ``}, {`"headerSeq":0`, `"headerSeq":-1`}, {`tool-addition`, `tool-removal`}, {`"toolName":"f"`, `"toolName":""`}, {`"toolName":"f"`, `"toolName":"f","tool":{}`},
			{`"developer"`, `"system"`}, {`"kind":"tool-registry"`, `"kind":"plugin"`}, {`"turn":1`, `"turn":0`}, {`"id":"m"`, `"id":""`},
		}},
		{4, TypeRequestHeader, `{"header":{"tools":[{"name":"f","deferLoading":true}]}}`, true, nil},
		{4, TypeRequestHeader, `{"header":{"tools":[{"name":"f","deferLoading":true}]}}`, false, []change{{`true`, `false`}, {`"tools"`, `"system":"x","tools"`}}},
		{4, TypeToolResult, res, true, []change{{`,"error":{"name":"E","code":"C"}`, ``}, {`"isError":true`, `"isError":true,"plugin:message:x":1`}}},
		{4, TypeToolResult, res, false, []change{
			{`"role":"tool"`, `"role":"user"`}, {`"toolCallId":"c"`, `"toolCallId":"d"`}, {`"isError":true`, `"isError":false`}, {`,"isError":true`, ``}, {`"isError":true`, `"isError":1`},
			{`"content":[]`, `"content":[{"type":"tool-result"}]`}, {`"content":[]`, `"content":{}`}, {`"kind":"tool"`, `"kind":"user"`}, {`"kind":"tool"`, `"kind":"plugin"`}, {`"id":"r"`, `"id":""`},
			{`"code":"C"`, `"code":"C"},"message":{"id":1`},
		}},
		{4, TypeAssistantAttempt, `{"turn":1,"step":1,"stream":[{"type":"chunk","time":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}]}`, true, []change{{`"text"`, `"tool-call"`}, {`"text"`, `"odd"`}}},
		{4, TypeAssistantAttempt, `{"turn":1,"step":1,"stream":[{"type":"chunk","time":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}]}`, false, []change{{`"text"`, `"tool-result"`}, {`"text"`, `"tool-removal"`}}},
		{4, "compaction/summary", `{"summary":[{"type":"text","text":"x"}]}`, false, []change{{`"text"`, `"tool-result"`}, {`"text","text":"x"`, `"tool-addition"`}}},
		{4, "agent/inbox/spliced", `{"target":"next-turn","start":0,"inserted":[{"role":"user","source":{"kind":"user"},"content":[]}]}`, false, []change{{`"kind":"user"`, `"kind":"plugin"`}, {`"content":[]`, `"content":[{"type":"tool-result"}]`}}},
	} {
		changes := c.changes
		if c.ok {
			changes = append(changes, change{"", ""})
		}
		for _, ch := range changes {
			data := strings.Replace(c.data, ch.old, ch.new, 1)
			row := fmt.Sprintf(`{"type":%q,"seq":3,"time":0,"data":%s`, c.typ, data)
			if dialect(t, c.version).IsSurface(c.typ) {
				row += `,"surfaceOp":"append"`
			}
			row += "}"
			var ev Event
			err := DecodeEvent(dialect(t, c.version), nil, []byte(row), &ev)
			if c.ok != (err == nil) || !c.ok && stage(err) != int(StageStructure) {
				t.Errorf("version %d %s: %v", c.version, row, err)
			}
			if behind := CheckStructure(dialect(t, c.version), []byte(row)); (behind == nil) != c.ok {
				t.Errorf("behind a damaged row, version %d %s: %v", c.version, row, behind)
			}
			if err == nil {
				continue
			}
			if err := CheckPayload(dialect(t, c.version), &Event{Seq: 3, Type: c.typ, Data: json.RawMessage(data), SurfaceOp: &SurfaceOp{}}); err == nil {
				t.Errorf("an event that is refused as a row is not refused before it is one: %s", row)
			}
		}
	}
	// What is ignorable is not interpreted.
	for _, version := range []int{3, 4} {
		var ev Event
		if err := DecodeEvent(dialect(t, version), nil, []byte(`{"type":"tool/code-dispatch","seq":0,"time":0,"data":{},"ignorable":true}`), &ev); err != nil {
			t.Errorf("version %d: an ignorable retired type: %v", version, err)
		}
	}
}

func TestForkedResultsCarryTheirOwnSeq(t *testing.T) {
	row := `{"type":"tool/result","seq":7,"time":0,"data":{"turn":1,"step":1,"message":{"id":"forked-tool-result-c-7","role":"tool","toolCallId":"c","isError":true,"source":{"kind":"tool","callId":"c"},"content":[{"type":"text","text":"x"}]},"error":{"name":"ToolNotStartedError","code":"TOOL_NOT_STARTED"}},"surfaceOp":"append"}`
	replaced := strings.Replace(strings.Replace(row, `"surfaceOp":"append"`, `"sourceEventSeqs":[5],"surfaceOp":{"op":"replace","startSeq":5,"endSeq":5}`, 1), "result-c-7", "result-c-5", 1)
	for _, c := range []struct {
		row, old, new string
		ok            bool
	}{
		{row, "", "", true},
		{replaced, "", "", true},
		{row, "result-c-7", "result-c-8", false},
		{row, "result-c-7", "result-c-07", false},
		{row, "result-c-7", "result-d-7", false},
		{row, `"ToolNotStartedError"`, `"Other"`, false},
		{row, `"surfaceOp"`, `"sourceEventSeqs":[1],"surfaceOp"`, false},
		{row, `[{"type":"text","text":"x"}]`, `[]`, false},
		{row, `[{"type":"text","text":"x"}]`, `[{"type":"text","text":"x"},{"type":"text","text":"x"}]`, false},
		{row, `"type":"text"`, `"type":"other"`, false},
		{replaced, "[5]", "[4]", false},
		{replaced, "[5]", "[4,5]", false},
		{replaced, "result-c-5", "result-c-7", false},
		{row, "TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN", true},
		{row, "forked-tool-result-c-7", "other", true},
	} {
		var ev Event
		err := DecodeEvent(dialect(t, 4), nil, []byte(strings.Replace(c.row, c.old, c.new, 1)), &ev)
		if (err == nil) != c.ok {
			t.Errorf("%s -> %s: %v", c.old, c.new, err)
		}
	}
}

// The acceptance probes of DSH-FORMAT-V3-V4 §6, as far as rows and relations
// decide them: one change to orig-swap each.
func TestAcceptanceProbes(t *testing.T) {
	for _, version := range []int{3, 4} {
		raw, err := os.ReadFile(shared(t, "dsh", fmt.Sprintf("v%d", version), "orig-swap.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		find := func(part string) string {
			for _, l := range lines(raw) {
				if strings.Contains(string(l), part) {
					return string(l)
				}
			}
			t.Fatalf("no row has %s", part)
			return ""
		}
		head := string(lines(raw)[0])
		rows := string(raw)
		for _, c := range []struct {
			name, old, new string
			ok             bool
		}{
			{"untouched", "", "", true},
			{"replace with start and end", `"startSeq"`, `"start"`, false},
			{"header.system", `{"header":{`, `{"header":{"system":"",`, false},
			{"an empty list of tools", `{"header":{`, `{"header":{"tools":[],`, false},
			{"seedLength", `"isSeeded":false`, `"isSeeded":false,"seedLength":0`, false},
			{"a relative cwd", `"cwd":"/`, `"cwd":"`, false},
			{"an extra envelope key", `"seq":3,`, `"seq":3,"x":1,`, false},
			{"an unknown block in a user's message", `"data":{"content":[{"type":"text"`, `"data":{"content":[{"type":"odd"},{"type":"text"`, true},
			{"an unknown type", `"type":"feedback/record"`, `"type":"x/y"`, false},
			{"an unknown ignorable type", `"type":"feedback/record"`, `"ignorable":true,"type":"x/y"`, true},
			{"a call in code of the older name", `"type":"feedback/record"`, `"type":"tool/code-dispatch"`, false},
		} {
			t.Run(fmt.Sprintf("v%d/%s", version, c.name), func(t *testing.T) {
				text := rows
				switch {
				case c.old == "" || strings.Contains(head, c.old):
				default:
					find(c.old)
				}
				if strings.Contains(c.name, "tools") {
					// Take the real list out first.
					at := strings.Index(text, `"tools":[`)
					if end := skipValue([]byte(text), at+8); at >= 0 && strings.Contains(text[at-200:at], `{"header":{`) {
						text = text[:at] + `"x":1` + text[end:]
					}
				}
				text = strings.Replace(text, c.old, c.new, 1)
				if got := readAll([]byte(text)); (got == nil) != c.ok {
					t.Errorf("got %v", got)
				}
			})
		}
	}
}

// readAll reads and traces a whole ledger and returns the first refusal.
func readAll(raw []byte) error {
	rows := lines(raw)
	h, d, err := ParseHeader(rows[0])
	if err != nil {
		return err
	}
	dec, trace := NewDecoder(d, nil), NewTrace(h, d, nil)
	for _, row := range rows[1:] {
		var ev Event
		run, err := dec.Decode(row, &ev)
		if err != nil {
			return err
		}
		if run == nil {
			if err := Admit(&ev, trace); err != nil {
				return err
			}
			continue
		}
		for run.Next(&ev) {
			if err := Admit(&ev, trace); err != nil {
				return err
			}
		}
	}
	return nil
}

// A row of a hundred bytes can name more events than there is memory.
func TestRangesOfAnUnknownSeqAreNotExpanded(t *testing.T) {
	row := []byte(`{"type":"user/message","seq":9007199254740990,"time":0,"data":{},"sourceEventSeqs":[[0,9007199254740980]],"surfaceOp":"append"}`)
	var ev Event
	err := DecodeEvent(dialect(t, 2), nil, row, &ev)
	var decode *DecodeError
	if !errors.As(err, &decode) || decode.Code != CodeSources {
		t.Errorf("got %v", err)
	}
	dec := NewDecoder(dialect(t, 2), nil)
	dec.Expect(7)
	if _, err := dec.Decode(row, &ev); err != nil || ev.SourceEventSeqs != nil {
		t.Errorf("%v, %d sources", err, len(ev.SourceEventSeqs))
	}
	row = []byte(`{"type":"user/message","seq":7,"time":0,"data":{},"sourceEventSeqs":[[0,6]],"surfaceOp":"append"}`)
	if _, err := dec.Decode(row, &ev); err != nil || len(ev.SourceEventSeqs) != 7 {
		t.Errorf("%v, %d sources", err, len(ev.SourceEventSeqs))
	}
}

func TestOfDuplicateHeaderFieldsTheLastOneCountsAtNoCost(t *testing.T) {
	dup := strings.Repeat(`"cwd":0,`, 1<<16)
	for last, want := range map[string]bool{`"cwd":"/x"`: true, `"cwd":0`: false} {
		_, _, err := ParseHeader([]byte(`{"type":"session","version":4,"id":"s","createdAt":1,"isSeeded":false,"delegationDepth":0,` + dup + last + `}`))
		if (err == nil) != want {
			t.Errorf("%s: %v", last, err)
		}
	}
}

// FuzzEnvelope decodes rows of any bytes in every version: an event that decodes
// is written and read again as it was.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		`{"type":"user/message","seq":3,"time":-1,"data":{"id":"u"},"surfaceOp":{"op":"replace","startSeq":0,"endSeq":1},"sourceEventSeqs":[[0,2]]}`,
		`{"type":"text-chunks","seq0":5,"time0":100,"data":{"turn":1,"step":2,"index":0,"dt":[3],"texts":["a","b"]}}`,
		`{"type":"system/message","seq":0,"time":0,"data":{"turn":1,"step":1,"message":{"id":"m","role":"system","source":{"kind":"plugin","plugin":"p"},"content":[]}},"surfaceOp":"append"}`,
		`{"ty\u0070e":"t","seq":-0,"time":1e3,"data":null,"ignorable":true}`,
		`{"data":{"turn":1,"turn":2},"data":[1],"type":"turn/start","seq":0,"time":0}`,
	} {
		for version := MinVersion; version <= MaxVersion; version++ {
			f.Add(uint8(version), []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, version uint8, row []byte) {
		d, err := DialectOf(int(version % (MaxVersion + 1)))
		if err != nil {
			t.Fatal(err)
		}
		var ev Event
		run, err := NewDecoder(d, nil).Decode(row, &ev)
		if err != nil {
			if !errors.As(err, new(*DecodeError)) {
				t.Fatalf("an error of another type: %v", err)
			}
			return
		}
		if run == nil {
			again(t, d, &ev)
			return
		}
		n := 0
		for ; run.Next(&ev); n++ {
			c := ev.Clone()
			again(t, d, &c)
		}
		if n != run.Len() {
			t.Fatalf("%d events of a run of %d", n, run.Len())
		}
	})
}

// again checks that an event survives being written and read.
func again(t *testing.T, d *Dialect, ev *Event) {
	t.Helper()
	row := AppendEvent(nil, d, ev)
	var back Event
	if err := DecodeEvent(d, nil, row, &back); err != nil {
		t.Fatalf("%s is written as %s, and not read: %v", ev.Data, row, err)
	}
	if second := AppendEvent(nil, d, &back); string(second) != string(row) {
		t.Fatalf("written as\n%s\nand then as\n%s", row, second)
	}
	sameWalk(t, &back, back.Data)
	rawTurn, rawStep := turnStep(ev.Data)
	turn, step, ok := TurnStep(ev)
	if n, counted := Count(rawTurn); ok && (!counted || n != turn) {
		t.Fatalf("turn %d of %s", turn, ev.Data)
	}
	if n, counted := Count(rawStep); ok && (!counted || n != step) {
		t.Fatalf("step %d of %s", step, ev.Data)
	}
}
