package session

// CheckStored judges an event of a stored ledger by itself, as the reference
// does before it builds a session from one: messages have an id, the role and
// the source of their type and a list of content, answers say where their stream
// is, request headers name provider, model and a known reason. It is not part of
// a Trace: the reference's codecs take events that it refuses here, and so does
// a capture, which interprets less. The error is an *InvariantError with
// CodePayload, or CodeRetired for a reason that is not read any more.
func CheckStored(d *Dialect, ev *Event) error {
	if ev.DataTruncated {
		return nil
	}
	var wrong string
	switch ev.Type {
	case TypeUserMessage:
		wrong = d.storedMessage(ev.Type, ev.Data)
	case TypeSystemMessage, TypeDeveloperMessage, TypeToolResult:
		if d.IsSurface(ev.Type) {
			wrong = d.storedMessage(ev.Type, Member(ev.Data, "message"))
		}
	case TypeAssistantMessage:
		if wrong = d.storedMessage(ev.Type, Member(ev.Data, "message")); wrong == "" {
			wrong = d.settlement(ev)
		}
	case TypeAssistantAttempt:
		if !d.chunks {
			wrong = d.settlement(ev)
		}
	case TypeRequestHeader:
		if StringIs(Member(ev.Data, "reason"), "fallback") {
			return fail(ev, CodeRetired, "the reason fallback is not read any more")
		}
		wrong = storedHeader(ev.Data)
	}
	if wrong != "" {
		return fail(ev, CodePayload, "%s", wrong)
	}
	return nil
}

// storedMessage returns what is wrong with the message of an event of type typ.
func (d *Dialect) storedMessage(typ string, message []byte) string {
	role := map[string]string{
		TypeUserMessage: "user", TypeSystemMessage: "system", TypeDeveloperMessage: "developer",
		TypeAssistantMessage: "assistant", TypeToolResult: "user",
	}[typ]
	if typ == TypeToolResult && d.toolRole {
		role = "tool"
	}
	source, content := Member(message, "source"), Member(message, "content")
	kind := Member(source, "kind")
	switch {
	case !nonEmpty(Member(message, "id")):
		return "the message needs an id"
	case !StringIs(Member(message, "role"), role):
		return "the message needs the role " + role
	case !nonEmpty(kind):
		return "the message needs a source with a kind"
	case KindOf(content) != KindArray:
		return "the message needs a list of content"
	}
	switch typ {
	case TypeSystemMessage:
		if !d.toolRole && (!StringIs(kind, "plugin") || !nonEmpty(Member(source, "plugin"))) {
			return "the message needs a plugin's source"
		}
	case TypeAssistantMessage:
		if !StringIs(kind, "model") || !nonEmpty(Member(source, "provider")) || !nonEmpty(Member(source, "model")) {
			return "the message needs the source of a model"
		}
	case TypeToolResult:
		call := Member(source, "callId")
		if !StringIs(kind, "tool") || !nonEmpty(call) {
			return "the message needs the source of a tool"
		}
		named := Member(message, "toolCallId")
		if !d.toolRole {
			blocks := WalkArray(content)
			one := blocks.Next()
			block := blocks.Value()
			if !one || blocks.Next() || !StringIs(Member(block, "type"), "tool-result") || KindOf(Member(block, "content")) != KindArray {
				return "the message needs exactly one tool-result block"
			}
			named = Member(block, "toolCallId")
		}
		if !sameString(named, call) {
			return "the ids of the call do not agree"
		}
	}
	return ""
}

// settlement returns what is wrong with the end of an attempt at an answer.
func (d *Dialect) settlement(ev *Event) string {
	if _, _, ok := TurnStep(ev); !ok {
		return "turn and step have to be counts"
	}
	if !d.chunks && KindOf(Member(ev.Data, "stream")) != KindArray {
		return "the stream has to be a list"
	}
	return ""
}

func storedHeader(data []byte) string {
	header := Member(data, "header")
	config := Member(header, "config")
	if !nonEmpty(Member(config, "provider")) || !nonEmpty(Member(config, "model")) {
		return "the header needs provider and model"
	}
	if effort := Member(config, "reasoningEffort"); effort != nil && !nonEmpty(effort) {
		return "reasoningEffort has to be a string"
	}
	if defaults := Member(header, "adapterDefaults"); defaults != nil {
		if KindOf(defaults) != KindObject {
			return "adapterDefaults have to be an object"
		}
		for o := WalkObject(defaults); o.Next(); {
			name, _ := String(o.RawKey())
			if name != "reasoningEffort" && name != "maxTokens" || string(Member(defaults, name)) != "true" || Member(config, name) == nil {
				return "adapterDefaults mark members of config with true"
			}
		}
	}
	switch reason, _ := String(Member(data, "reason")); reason {
	case "initial", "resume", "change", "series":
	default:
		return "the reason is not a known one"
	}
	if series := Member(data, "startsSeries"); series != nil && string(series) != "true" {
		return "startsSeries has to be true, or absent"
	}
	return ""
}
