package surface

import (
	"encoding/json"

	"github.com/otel-bridge/otel-bridge/session"
)

// DeriveMessage returns the message that ev shows to the model when no
// projection has changed it: of a user/message the payload itself, of a
// tool/result its message, of the other surface types their message unless its
// content is empty. ok is false for an event that shows none, log-only events
// included. No framing is added. The message shares memory with ev.Data.
func DeriveMessage(d *session.Dialect, ev *session.Event) (message json.RawMessage, ok bool) {
	if !d.IsSurface(ev.Type) {
		return nil, false
	}
	return derive(ev)
}

func derive(ev *session.Event) (json.RawMessage, bool) {
	if ev.DataTruncated {
		return nil, false
	}
	data := session.TrimSpace(ev.Data)
	switch ev.Type {
	case typeUser:
		return data, len(data) > 0
	case typeTool:
		m := ev.Member(data, "message")
		return m, m != nil
	case typeSystem, typeDeveloper, typeAssistant:
		m := ev.Member(data, "message")
		if m == nil || emptyContent(ev.Member(m, "content")) {
			return nil, false
		}
		return m, true
	}
	return nil, false
}

// emptyContent reports whether content, a list of blocks, has no blocks. A
// string, which no current writer puts there, is empty when it is "".
func emptyContent(content []byte) bool {
	switch session.KindOf(content) {
	case session.KindArray:
		a := session.WalkArray(content)
		return !a.Next()
	case session.KindString:
		return session.StringIs(content, "")
	default:
		return content == nil
	}
}

// text is what a message says as plain text: "" where it has no blocks, the
// text where it is exactly one text block; ok is false otherwise.
func text(message []byte) (s string, ok bool) {
	blocks := session.WalkArray(session.Member(message, "content"))
	if !blocks.Next() {
		return "", session.KindOf(session.Member(message, "content")) == session.KindArray
	}
	first := blocks.Value()
	if blocks.Next() || !session.StringIs(session.Member(first, "type"), "text") {
		return "", false
	}
	return session.String(session.Member(first, "text"))
}
