package workload

import (
	"math/rand/v2"
	"strconv"
)

// ledger writes the rows of one session into b.
type ledger struct {
	w       *Workload
	r       *rand.Rand
	texts   *pool
	version int
	b       []byte

	rows, seq, records int64
	time               int64
	turns              int64
	nodes              []int64 // of the surface, since the last compaction
	untilSecret        int64
	left               int64 // bytes until the session is as long as it shall be
	mark               int   // where the row being written starts
}

const model = `"source":{"kind":"model","provider":"mock-provider","model":"mock-model"}`

func (g *ledger) header(id string) {
	g.add(`{"type":"session","version":`, g.version, `,"id":"`, id, `","createdAt":`, g.time, `,"cwd":"/srv/app"`)
	if g.version >= 2 {
		g.add(`,"isSeeded":false`)
	}
	g.add(`,"delegationDepth":0}`)
	g.b = append(g.b, '\n')
	g.rows++
}

// add appends strings and integers.
func (g *ledger) add(parts ...any) {
	for _, p := range parts {
		switch v := p.(type) {
		case string:
			g.b = append(g.b, v...)
		case int:
			g.b = strconv.AppendInt(g.b, int64(v), 10)
		case int64:
			g.b = strconv.AppendInt(g.b, v, 10)
		}
	}
}

// open starts a row; its data follows.
func (g *ledger) open(typ string) int64 {
	g.mark = len(g.b)
	g.time += int64(g.r.IntN(30))
	g.add(`{"type":"`, typ, `","seq":`, g.seq, `,"time":`, g.time, `,"data":{`)
	g.seq++
	g.records++
	return g.seq - 1
}

// done ends a row; after is what follows the data.
func (g *ledger) done(after string) {
	g.b = append(g.b, '}')
	g.b = append(g.b, after...)
	g.end()
}

func (g *ledger) end() {
	g.b = append(g.b, '}', '\n')
	g.untilSecret -= int64(len(g.b) - g.mark)
	g.rows++
}

func (g *ledger) event(typ string, data ...any) {
	g.open(typ)
	g.add(data...)
	g.done("")
}

func (g *ledger) id() string { return uuid(g.r) }

func pick(r *rand.Rand, from []fragment) *fragment { return &from[r.IntN(len(from))] }

// secret returns words with a secret in them where it is time for one.
func (g *ledger) secret() string {
	if g.untilSecret > 0 {
		return ""
	}
	g.untilSecret += g.w.SecretEvery
	s, text := plant(g.r, len(g.w.Secrets))
	g.w.Secrets = append(g.w.Secrets, s)
	return text
}

func (g *ledger) begin() {
	g.event("permission/preset", `"preset":"workspace-write"`)
	g.event("sandbox/mode", `"mode":"workspace-write"`)
	g.event("approval/policy", `"policy":"ask"`)
}

func (g *ledger) turn() {
	g.turns++
	prompt := pick(g.r, g.texts.prompts).once
	if g.r.IntN(4) == 0 {
		prompt = pick(g.r, g.texts.cjk).once
	}
	if s := g.secret(); s != "" {
		prompt += " " + s + "\\n"
	}
	message := `{"content":[{"type":"text","text":"` + prompt + `"}],"source":{"kind":"user"},"role":"user","id":"` + g.id() + `"}`

	g.event("agent/inbox/spliced", `"target":"next-turn","start":0,"inserted":[`, message, `]`)
	g.event("turn/start", `"turn":`, g.turns)
	g.event("agent/inbox/spliced", `"target":"next-turn","start":0,"removedCount":1,"inserted":[]`)
	// A short session has short turns, so that many of them can be small.
	steps := min(int64(2+g.r.IntN(7)), 1+g.left/(8<<10))
	for step := int64(1); step <= steps; step++ {
		g.event("step/start", `"turn":`, g.turns, `,"step":`, step)
		if step == 1 {
			node := g.open("user/message")
			g.b = append(g.b, message[1:len(message)-1]...)
			g.done(`,"surfaceOp":"append"`)
			g.nodes = append(g.nodes, node)
			if g.turns == 1 {
				g.event("session/title", `"title":"Fix the build","messageSeqs":[`, node, `],"source":{"kind":"fallback"}`)
				g.request()
			}
		}
		g.step(step, step == steps)
		g.event("step/end", `"turn":`, g.turns, `,"step":`, step)
	}
	g.event("turn/end", `"turn":`, g.turns, `,"reason":{"kind":"completed"}`)
	if g.turns%7 == 0 {
		g.event("feedback/record", `"text":"`, pick(g.r, g.texts.prompts).once, `"`)
	}
	if len(g.nodes) > 120 {
		g.compact()
	}
}

func (g *ledger) request() {
	g.event("request/header", `"header":{"config":{"provider":"mock-provider","model":"mock-model","maxTokens":8192,"reasoningEffort":"high"},"adapterDefaults":{"reasoningEffort":true,"maxTokens":true},"system":"`,
		pick(g.r, g.texts.prompts).once, pick(g.r, g.texts.cjk).once,
		`","tools":[{"name":"bash","description":"Run a shell command.","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}},`+
			`{"name":"read","description":"Read a file.","parameters":{"type":"object","properties":{"file_path":{"type":"string"},"offset":{"type":"integer"}},"required":["file_path"]}},`+
			`{"name":"edit","description":"Change a file.","parameters":{"type":"object","properties":{"file_path":{"type":"string"},"old_string":{"type":"string"},"new_string":{"type":"string"}}}}]},"reason":"initial"`)
	g.event("request/context", `"provider":"mock-provider","model":"mock-model","contextWindow":131072`)
}

// block is one piece of an assistant's answer.
type block struct {
	kind string // reasoning, text, tool-call
	text *fragment
	id   string // of a call
	name string
}

func (g *ledger) answer(last bool) []block {
	var blocks []block
	if g.r.IntN(3) > 0 {
		t := pick(g.r, g.texts.prose)
		if g.r.IntN(5) == 0 {
			t = pick(g.r, g.texts.cjk)
		}
		blocks = append(blocks, block{kind: "reasoning", text: t})
	}
	if last || g.r.IntN(3) == 0 {
		blocks = append(blocks, block{kind: "text", text: pick(g.r, g.texts.prose)})
	}
	if !last {
		for range 1 + g.r.IntN(2) {
			c := block{kind: "tool-call", id: "call_00_" + hexes(g.r, 8)}
			switch n := g.r.IntN(10); {
			case n < 5:
				c.name, c.text = "bash", pick(g.r, g.texts.commands)
			case n < 8:
				c.name, c.text = "read", pick(g.r, g.texts.reads)
			default:
				c.name, c.text = "edit", pick(g.r, g.texts.edit)
			}
			blocks = append(blocks, c)
		}
	}
	return blocks
}

func (b *block) json(g *ledger) {
	if b.kind == "tool-call" {
		g.add(`{"type":"tool-call","id":"`, b.id, `","name":"`, b.name, `","arguments":"`, b.text.once, `"}`)
		return
	}
	g.add(`{"type":"`, b.kind, `","text":"`, b.text.once, `"}`)
}

func (g *ledger) step(step int64, last bool) {
	blocks := g.answer(last)
	usage := `{"inputTokens":` + strconv.Itoa(900+g.r.IntN(90000)) + `,"outputTokens":` + strconv.Itoa(20+g.r.IntN(900)) + `,"cacheReadTokens":512,"reasoningTokens":12}`
	first := g.seq
	start := g.time
	if g.version < 2 {
		g.chunks(step, blocks, usage, last)
	}
	chunks := g.seq - first

	node := g.open("assistant/message")
	g.add(`"turn":`, g.turns, `,"step":`, step, `,"message":{"role":"assistant","content":[`)
	for i := range blocks {
		if i > 0 {
			g.b = append(g.b, ',')
		}
		blocks[i].json(g)
	}
	g.add(`],`+model+`,"id":"`, g.id(), `"},"usage":`, usage)
	if g.version >= 2 {
		g.stream(start, blocks, usage, last)
		g.done(`,"surfaceOp":"append"`)
	} else {
		g.b = append(g.b, `},"sourceEventSeqs":[`...)
		for i := range chunks {
			if i > 0 {
				g.b = append(g.b, ',')
			}
			g.b = strconv.AppendInt(g.b, first+i, 10)
		}
		g.b = append(g.b, `],"surfaceOp":"append"`...)
		g.end()
	}
	g.nodes = append(g.nodes, node)

	for i := range blocks {
		if blocks[i].kind == "tool-call" {
			g.tool(step, &blocks[i])
		}
	}
}

func (g *ledger) tool(step int64, c *block) {
	call := g.seq
	g.event("tool/call", `"turn":`, g.turns, `,"step":`, step, `,"callId":"`, c.id, `","name":"`, c.name, `","arguments":"`, c.text.once, `"`)
	var text *fragment
	switch n := g.r.IntN(200); {
	case n == 0 && g.left > 1<<20:
		text = pick(g.r, g.texts.big)
	case c.name == "read":
		text = pick(g.r, g.texts.code)
	case c.name == "edit" || n < 80:
		text = pick(g.r, g.texts.listing)
	default:
		text = pick(g.r, g.texts.logs)
	}
	failed := g.r.IntN(20) == 0
	node := g.open("tool/result")
	g.add(`"turn":`, g.turns, `,"step":`, step, `,"message":{"source":{"kind":"tool","callId":"`, c.id, `"},"content":[{"type":"tool-result","toolCallId":"`, c.id, `","content":[{"type":"text","text":"`, text.once)
	if s := g.secret(); s != "" {
		g.add(`\n`, s, `\n`)
	}
	g.add(`"}],"isError":`, strconv.FormatBool(failed), `}],"role":"user","id":"`, g.id(), `"}`)
	if failed {
		g.add(`,"error":{"name":"ToolError","code":"EXIT_NONZERO"}`)
	}
	g.done(`,"sourceEventSeqs":[` + strconv.FormatInt(call, 10) + `],"surfaceOp":"append"`)
	g.nodes = append(g.nodes, node)
}

// run is how many deltas a writer packs into one row: what a model sends between two flushes.
const run = 24

// chunks writes a step's stream as version 0 does: single events and packed rows.
func (g *ledger) chunks(step int64, blocks []block, usage string, last bool) {
	before := g.records
	place := func(typ string) {
		g.mark = len(g.b)
		g.add(`{"type":"`, typ, `","`)
	}
	single := func(chunk ...any) {
		place("assistant/chunk")
		g.add(`seq":`, g.seq, `,"time":`, g.time, `,"data":{"turn":`, g.turns, `,"step":`, step, `,"chunk":`)
		g.add(chunk...)
		g.done("")
		g.seq++
	}
	for i := range blocks {
		b := &blocks[i]
		single(`{"type":"block-start","index":`, i, `,"blockType":"`, b.kind, `"}`)
		for at := 0; at < len(b.text.pieces); at += run {
			pieces := b.text.pieces[at:min(at+run, len(b.text.pieces))]
			if len(pieces) < 3 { // a writer packs runs of three and more
				for _, p := range pieces {
					if b.kind == "tool-call" {
						single(`{"type":"tool-call-delta","index":`, i, `,"id":"`, b.id, `","name":"`, b.name, `","argumentsDelta":"`, p, `"}`)
					} else {
						single(`{"type":"`, b.kind, `-delta","index":`, i, `,"text":"`, p, `"}`)
					}
				}
				continue
			}
			place(b.kind + "-chunks")
			g.add(`seq0":`, g.seq, `,"time0":`, g.time, `,"data":{"turn":`, g.turns, `,"step":`, step, `,"index":`, i)
			g.packed(b, pieces)
			g.done("")
			g.seq += int64(len(pieces))
		}
	}
	for i := range blocks {
		g.mark = len(g.b)
		g.add(`{"type":"assistant/chunk","seq":`, g.seq, `,"time":`, g.time, `,"data":{"turn":`, g.turns, `,"step":`, step, `,"chunk":{"type":"block-end","index":`, i, `,"block":`)
		blocks[i].json(g)
		g.b = append(g.b, '}')
		g.done("")
		g.seq++
	}
	single(`{"type":"usage","usage":`, usage, `}`)
	single(`{"type":"finish","reason":{"kind":"`, finish(last), `"}}`)
	g.records = before + 1 // the started-signal
}

// packed writes the tail of a packed row: gaps of time, and the texts.
func (g *ledger) packed(b *block, pieces []string) {
	g.b = append(g.b, `,"dt":[`...)
	for i := 1; i < len(pieces); i++ {
		if i > 1 {
			g.b = append(g.b, ',')
		}
		g.b = append(g.b, byte('1'+i%3))
		g.time += int64(1 + i%3)
	}
	key := `],"texts":["`
	if b.kind == "tool-call" {
		key = `],"id":"` + b.id + `","name":"` + b.name + `","args":["`
	}
	g.b = append(g.b, key...)
	for i, p := range pieces {
		if i > 0 {
			g.b = append(g.b, `","`...)
		}
		g.b = append(g.b, p...)
	}
	g.b = append(g.b, `"]`...)
}

// stream writes a step's stream as version 2 does: embedded in the message.
func (g *ledger) stream(start int64, blocks []block, usage string, last bool) {
	chunk := func(parts ...any) {
		g.add(`{"type":"chunk","time":`, start, `,"chunk":`)
		g.add(parts...)
		g.b = append(g.b, '}', ',')
	}
	g.b = append(g.b, `,"stream":[`...)
	for i := range blocks {
		b := &blocks[i]
		chunk(`{"type":"block-start","index":`, i, `,"blockType":"`, b.kind, `"}`)
		for at := 0; at < len(b.text.pieces); at += run {
			kind := b.kind
			g.add(`{"type":"`, kind, `-chunks","time0":`, start, `,"index":`, i)
			g.packed(b, b.text.pieces[at:min(at+run, len(b.text.pieces))])
			g.b = append(g.b, '}', ',')
		}
	}
	for i := range blocks {
		g.add(`{"type":"chunk","time":`, start, `,"chunk":{"type":"block-end","index":`, i, `,"block":`)
		blocks[i].json(g)
		g.b = append(g.b, `}},`...)
	}
	chunk(`{"type":"usage","usage":`, usage, `}`)
	chunk(`{"type":"finish","reason":{"kind":"`, finish(last), `"}}`)
	g.b[len(g.b)-1] = ']'
}

func finish(last bool) string {
	if last {
		return "stop"
	}
	return "tool-calls"
}

// compact replaces all but the last ten nodes by a summary.
func (g *ledger) compact() {
	shadowed := g.nodes[:len(g.nodes)-10]
	id, text := g.id(), pick(g.r, g.texts.prose).once
	from, to := shadowed[0], shadowed[len(shadowed)-1]
	list := func() {
		for i, n := range shadowed {
			if i > 0 {
				g.b = append(g.b, ',')
			}
			g.b = strconv.AppendInt(g.b, n, 10)
		}
	}
	start := g.seq
	g.event("compaction/start", `"compactionId":"`, id, `","turn":null`)
	g.open("compaction/summary")
	g.add(`"compactionId":"`, id, `","summary":[{"type":"text","text":"`, text, `"}],"rawOutput":[{"type":"text","text":"`, text,
		`"}],"llmStreamCall":true,"shadowedRange":{"start":`, from, `,"end":`, to, `},"shadowedSeqs":[`)
	list()
	g.add(`],"shadowedTokenCount":900,"provider":"mock-provider","model":"mock-model","usage":{"inputTokens":900,"outputTokens":20}`)
	g.done("")
	node := g.open("user/message")
	g.add(`"content":[{"type":"text","text":"`, text, `"}],"source":{"kind":"plugin","plugin":"@deepseek-ai/dsh-compaction-basic"},"role":"user","id":"`, g.id(), `"},"sourceEventSeqs":[`, start, `,`, start+1, `,`)
	list()
	g.add(`],"surfaceOp":{"op":"replace","start":`, from, `,"end":`, to, `}`)
	g.end()
	g.event("compaction/end", `"compactionId":"`, id, `","turn":null`)
	g.nodes = append([]int64{node}, g.nodes[len(g.nodes)-10:]...)
}
