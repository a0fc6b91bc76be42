package telemetry

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/otel-bridge/otel-bridge/session"
)

// The names of OpenTelemetry's conventions for generative AI that records of a
// ledger may have beside their own, see Config.GenAI. This file pins their
// version: v1.41.0 is the last one in which they stand beside the other
// conventions, all of them "in development".
//
// What the ledger does not say is left out: gen_ai.tool.type, since an event
// does not tell what sort of tool it is, and gen_ai.response.id.
const keyConversationID = semconv.GenAIConversationIDKey

// GenAISchemaURL names the version of the conventions that the gen_ai.*
// attributes follow.
const GenAISchemaURL = semconv.SchemaURL

// providerNames are DSH's ids of providers that the conventions have a name for.
// Other ids go out as the ledger has them, as the conventions allow.
var providerNames = map[string]string{
	"deepseek-official": semconv.GenAIProviderNameDeepseek.Value.AsString(),
}

// maxGenAILen bounds a name, model or call id, in bytes. A longer one is no
// name: it is left out, not cut, since a piece of a secret matches no rule.
const maxGenAILen = 256

// genAI makes the gen_ai.* attributes of the events of one reading, in order. It
// remembers what an event says of a later one: which model is asked, and which
// tool an open call is of. All of that is rebuilt when the ledger is replayed, so
// that a record is the same whenever it is made. A nil *genAI makes none.
type genAI struct {
	dialect         *session.Dialect
	provider, model string
	tools           map[string]string // by call id, of the open step
}

func newGenAI(d *session.Dialect) *genAI {
	return &genAI{dialect: d, tools: map[string]string{}}
}

// observe takes the event whose record, if it has one, has been made. Of events
// that stay out of scope, which end before from, nothing is remembered beyond it.
func (g *genAI) observe(ev *session.Event, from int64) {
	if g == nil {
		return
	}
	switch ev.Type {
	case session.TypeRequestHeader:
		config := session.Path(ev.Data, "header", "config")
		g.provider, g.model = shortName(session.Member(config, "provider")), shortName(session.Member(config, "model"))
	case session.TypeToolCall:
		if id, tool := shortName(session.Member(ev.Data, "callId")), shortName(session.Member(ev.Data, "name")); id != "" && tool != "" {
			g.tools[id] = tool
		}
	case session.TypeStepEnd, session.TypeTurnEnd, session.TypeTurnStart:
		clear(g.tools)
	}
	if ev.Seq+1 == from {
		g.provider, g.model = "", ""
		clear(g.tools)
	}
}

// attributes appends those of an event's record to kvs, which it does not change.
// body is what the record's body is made of.
func (g *genAI) attributes(kvs []attribute.KeyValue, conversation string, ev *session.Event, body []byte) []attribute.KeyValue {
	if g == nil {
		return kvs
	}
	kvs = append(slices.Clip(kvs), keyConversationID.String(conversation))
	switch ev.Type {
	case session.TypeRequestHeader:
		config := session.Path(ev.Data, "header", "config")
		return asked(kvs, session.Member(config, "provider"), session.Member(config, "model"))
	case session.TypeRequestContext:
		return asked(kvs, session.Member(ev.Data, "provider"), session.Member(ev.Data, "model"))
	case "session/title-llm-request":
		route := session.Member(ev.Data, "route")
		return asked(kvs, session.Member(route, "provider"), session.Member(route, "model"))
	case "compaction/summary":
		if session.Member(ev.Data, "provider") == nil {
			return kvs // no model was asked for it
		}
		kvs = asked(kvs, session.Member(ev.Data, "provider"), session.Member(ev.Data, "model"))
		return usage(kvs, session.Member(ev.Data, "usage"))
	case "llm/retry":
		kvs = asked(kvs, session.Member(ev.Data, "provider"), nil)
		return withText(kvs, semconv.GenAIRequestModelKey, g.model)
	case session.TypeAssistantMessage:
		source := session.Path(ev.Data, "message", "source")
		kvs = asked(kvs, session.Member(source, "provider"), nil)
		kvs = withText(kvs, semconv.GenAIRequestModelKey, g.model)
		kvs = withText(kvs, semconv.GenAIResponseModelKey, shortName(session.Member(source, "model")))
		return usage(kvs, session.Member(ev.Data, "usage"))
	case session.TypeAssistantAttempt:
		return g.attempt(kvs, body)
	case session.TypeToolCall:
		return called(kvs, shortName(session.Member(ev.Data, "callId")), shortName(session.Member(ev.Data, "name")))
	case session.TypeToolResult:
		id := shortName(g.dialect.ToolResult(ev.Data).RawCallID)
		return called(kvs, id, g.tools[id])
	case "tool/code-dispatch-start", "tool/code-dispatch", "tool/ptc-dispatch-start", "tool/ptc-dispatch":
		return called(kvs, shortName(session.Member(ev.Data, "subCallId")), shortName(session.Member(ev.Data, "name")))
	}
	return kvs
}

// attempt appends the attributes of a stream that became no message, whose body
// has it joined.
func (g *genAI) attempt(kvs []attribute.KeyValue, body []byte) []attribute.KeyValue {
	kvs = append(kvs, semconv.GenAIOperationNameChat)
	kvs = withText(kvs, semconv.GenAIProviderNameKey, providerName(g.provider))
	kvs = withText(kvs, semconv.GenAIRequestModelKey, g.model)
	var last []byte
	for parts := session.WalkArray(session.Member(body, "stream")); parts.Next(); {
		if session.StringIs(session.Member(parts.Value(), "type"), "usage") {
			last = session.Member(parts.Value(), "usage")
		}
	}
	return usage(kvs, last)
}

// opsAttempt is attempt for the ops record of formats 0 and 1.
func (g *genAI) opsAttempt(conversation string, body []byte) []attribute.KeyValue {
	if g == nil {
		return nil
	}
	return g.attempt([]attribute.KeyValue{keyConversationID.String(conversation)}, body)
}

// asked appends which model of which provider a call goes to.
func asked(kvs []attribute.KeyValue, provider, model []byte) []attribute.KeyValue {
	kvs = append(kvs, semconv.GenAIOperationNameChat)
	kvs = withText(kvs, semconv.GenAIProviderNameKey, providerName(shortName(provider)))
	return withText(kvs, semconv.GenAIRequestModelKey, shortName(model))
}

// called appends which tool is called.
func called(kvs []attribute.KeyValue, id, tool string) []attribute.KeyValue {
	kvs = append(kvs, semconv.GenAIOperationNameExecuteTool)
	kvs = withText(kvs, semconv.GenAIToolNameKey, tool)
	return withText(kvs, semconv.GenAIToolCallIDKey, id)
}

// usage appends what a call cost. DSH counts apart what was read from the cache,
// what was written to it, and the rest of the input; the convention's input has
// all three. Its output has the reasoning in it, as DSH's has.
func usage(kvs []attribute.KeyValue, raw []byte) []attribute.KeyValue {
	input, hasInput := tokens(session.Member(raw, "inputTokens"))
	read, hasRead := tokens(session.Member(raw, "cacheReadTokens"))
	created, hasCreated := tokens(session.Member(raw, "cacheWriteTokens"))
	output, hasOutput := tokens(session.Member(raw, "outputTokens"))
	reasoning, hasReasoning := tokens(session.Member(raw, "reasoningTokens"))
	if hasInput {
		kvs = append(kvs, semconv.GenAIUsageInputTokensKey.Int64(input+read+created))
	}
	if hasRead {
		kvs = append(kvs, semconv.GenAIUsageCacheReadInputTokensKey.Int64(read))
	}
	if hasCreated {
		kvs = append(kvs, semconv.GenAIUsageCacheCreationInputTokensKey.Int64(created))
	}
	if hasOutput {
		kvs = append(kvs, semconv.GenAIUsageOutputTokensKey.Int64(output))
	}
	if hasReasoning {
		kvs = append(kvs, semconv.GenAIUsageReasoningOutputTokensKey.Int64(reasoning))
	}
	return kvs
}

// tokens reads a count. What no model can count to is none.
func tokens(raw []byte) (n int64, ok bool) {
	v, ok := session.ParseNumber(raw)
	if !ok || !v.IsInt || v.Int < 0 || v.Int > 1<<53 {
		return 0, false
	}
	return v.Int, true
}

// shortName is the string raw, or "" when it is none or too long to be a name.
func shortName(raw []byte) string {
	if len(raw) > 6*maxGenAILen+2 { // every byte escaped, and the quotes
		return ""
	}
	s, _ := session.String(raw)
	if len(s) > maxGenAILen {
		return ""
	}
	return s
}

func withText(kvs []attribute.KeyValue, key attribute.Key, s string) []attribute.KeyValue {
	if s == "" {
		return kvs
	}
	return append(kvs, key.String(s))
}

func providerName(id string) string {
	if known := providerNames[id]; known != "" {
		return known
	}
	return id
}
