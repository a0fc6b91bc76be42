package session

import (
	"bytes"
	"strconv"
)

// This file holds what generations from 3 on refuse in a payload by itself,
// with no knowledge of other events. structure is refused even behind a row
// that already ended the accepted prefix; payload only inside it.

// structure judges a row before its envelope is looked at. known is its type
// where that is in the vocabulary.
func (d *Dialect) structure(e *envelope, known *EventType) error {
	s := structure{e: e, ignorable: string(e.ignorable) == "true"}
	if known != nil {
		s.typ = known.Name
	} else {
		s.typ, _ = String(e.typ)
	}
	return s.check(d)
}

func (s *structure) check(d *Dialect) error {
	for _, r := range d.retired {
		if s.typ == r && !s.ignorable {
			return s.fail(CodeRetired, "this version replaced the type")
		}
	}
	if d.toolRole {
		return s.version4()
	}
	return s.version3()
}

type structure struct {
	e         *envelope
	typ       string
	ignorable bool
}

func (s *structure) fail(code Code, detail string) error {
	f := s.e.fail(code, detail).(*DecodeError)
	f.Stage = StageStructure
	return f
}

// version3: the request header has no system prompt, and a system message has
// an exact shape.
func (s *structure) version3() error {
	switch s.typ {
	case TypeRequestHeader:
		return s.requestHeader()
	case TypeSystemMessage:
		return s.systemMessage3()
	}
	return nil
}

func (s *structure) requestHeader() error {
	if KindOf(s.e.data) != KindObject {
		return s.fail(CodeStructure, "data has to be an object")
	}
	header := s.e.member("header")
	if KindOf(header) != KindObject {
		return s.fail(CodeStructure, "header has to be an object")
	}
	if Member(header, "system") != nil {
		return s.fail(CodeRetired, "header.system is a system/message now")
	}
	return nil
}

func (s *structure) systemMessage3() error {
	var turn, step, message []byte
	if what := s.e.exactMembers([]slot{{"turn", &turn}, {"step", &step}, {"message", &message}}, nil); what != "" {
		return s.fail(CodeStructure, "data "+what)
	}
	if !positive(turn) || !positive(step) {
		return s.fail(CodeStructure, "turn and step have to be positive")
	}
	var id, role, source, content []byte
	if what := exactMembers(message, []slot{{"id", &id}, {"role", &role}, {"source", &source}, {"content", &content}}, nil); what != "" {
		return s.fail(CodeStructure, "message "+what)
	}
	if !nonEmpty(id) || !StringIs(role, "system") {
		return s.fail(CodeStructure, "message needs an id and the role system")
	}
	if !pluginSource(source) {
		return s.fail(CodeStructure, "message needs a plugin's source")
	}
	if what := contentBlocks(content, 0); what != "" {
		return s.fail(CodeStructure, "content "+what)
	}
	return nil
}

// version4 refuses what version 4 retired wherever it interprets content: the
// sources of plugins, wrapped tool results, developer messages out of place.
func (s *structure) version4() error {
	if s.typ == TypeRequestHeader {
		if err := s.requestHeader(); err != nil {
			return err
		}
		for tools := WalkArray(Path(s.e.member("header"), "tools")); tools.Next(); {
			if lazy := Member(tools.Value(), "deferLoading"); lazy != nil && string(lazy) != "true" {
				return s.fail(CodeStructure, "deferLoading has to be true, or absent")
			}
		}
		return nil
	}
	switch s.typ {
	case TypeSystemMessage, TypeDeveloperMessage, TypeToolResult:
		// These have a shape of their own, whatever they say.
	default:
		if s.e.quiet || !s.e.scanned && quiet(s.e.data) {
			return nil
		}
	}
	switch s.typ {
	case TypeUserMessage:
		return s.message4(s.e.data)
	case TypeSystemMessage:
		if err := s.message4(s.e.member("message")); err != nil {
			return err
		}
		return s.systemMessage4()
	case TypeDeveloperMessage:
		return s.developer()
	case TypeAssistantMessage:
		if err := s.message4(s.e.member("message")); err != nil {
			return err
		}
		return s.stream(s.e.member("stream"))
	case TypeAssistantAttempt:
		return s.stream(s.e.member("stream"))
	case TypeToolResult:
		return s.toolResult4()
	case "team/message/queued":
		return s.content(Member(s.e.member("message"), "content"), false, false)
	case "agent/inbox/spliced":
		return s.messages4(s.e.member("inserted"))
	case "session/title-llm-request":
		return s.messages4(s.e.member("messages"))
	case "compaction/summary":
		if err := s.content(s.e.member("summary"), true, false); err != nil {
			return err
		}
		return s.content(s.e.member("rawOutput"), true, false)
	case "tool/ptc-dispatch":
		return s.content(s.e.member("content"), false, false)
	}
	return nil
}

func (s *structure) messages4(list []byte) error {
	for a := WalkArray(list); a.Next(); {
		if err := s.message4(a.Value()); err != nil {
			return err
		}
	}
	return nil
}

// message4 judges a message of any role but developer.
func (s *structure) message4(message []byte) error {
	var role, source, content []byte
	for o := WalkObject(message); o.Next(); {
		switch {
		case o.KeyIs("role"):
			role = o.Value()
		case o.KeyIs("source"):
			source = o.Value()
		case o.KeyIs("content"):
			content = o.Value()
		}
	}
	if StringIs(role, "developer") {
		return s.fail(CodeStructure, "the role developer belongs to developer/message")
	}
	if StringIs(Member(source, "kind"), "plugin") {
		return s.fail(CodeRetired, "a source of kind plugin; producers have kinds of their own now")
	}
	return s.content(content, true, false)
}

// content judges the blocks of a content array. changes says that tool changes
// are looked at, developer that they are welcome.
func (s *structure) content(content []byte, changes, developer bool) error {
	for a := WalkArray(content); a.Next(); {
		if err := s.block(a.Value(), changes, developer); err != nil {
			return err
		}
	}
	return nil
}

// loudString reports whether a string value is one of the names that version 4
// looks for in messages. Almost no payload has one, or spells anything by number,
// and need not be walked then.
func loudString(raw []byte) bool {
	switch string(raw) {
	case `"plugin"`, `"developer"`, `"tool-result"`, `"tool-addition"`, `"tool-removal"`:
		return true
	}
	return false
}

// quiet reports whether no string value in raw, which is valid, is loud or spells
// a character by its number.
func quiet(raw []byte) bool {
	var v validator
	_, err := v.value(raw, 0)
	return err == nil && !v.loud
}

func (s *structure) block(block []byte, changes, developer bool) error {
	if KindOf(block) != KindObject {
		return nil
	}
	typ := Member(block, "type")
	switch {
	case StringIs(typ, "tool-result"):
		return s.fail(CodeRetired, "a tool-result block; the message of a tool/result is the result now")
	case !changes, !StringIs(typ, "tool-addition") && !StringIs(typ, "tool-removal"):
		return nil
	case !developer:
		return s.fail(CodeStructure, "a change of tools needs the role developer")
	case !nonEmpty(Member(block, "toolName")):
		return s.fail(CodeStructure, "a change of tools needs a toolName")
	case StringIs(typ, "tool-addition") && Member(block, "tool") != nil:
		return s.fail(CodeStructure, "a tool-addition has no definition of its own")
	}
	return nil
}

func (s *structure) stream(stream []byte) error {
	for a := WalkArray(stream); a.Next(); {
		entry := a.Value()
		if KindOf(entry) != KindObject || !StringIs(Member(entry, "type"), "chunk") {
			continue
		}
		chunk := Member(entry, "chunk")
		switch typ := Member(chunk, "type"); {
		case StringIs(typ, "block-end"):
			if err := s.block(Member(chunk, "block"), true, false); err != nil {
				return err
			}
		case StringIs(typ, "block-start"):
			switch kind, _ := String(Member(chunk, "blockType")); kind {
			case "tool-result":
				return s.fail(CodeRetired, "a tool-result block in a stream")
			case "tool-addition", "tool-removal":
				return s.fail(CodeStructure, "a change of tools needs the role developer")
			}
		}
	}
	return nil
}

func (s *structure) systemMessage4() error {
	message := s.e.member("message")
	content := Member(message, "content")
	switch {
	case KindOf(s.e.data) != KindObject || KindOf(message) != KindObject:
		return s.fail(CodeStructure, "data and message have to be objects")
	case !positive(s.e.member("turn")) || !positive(s.e.member("step")):
		return s.fail(CodeStructure, "turn and step have to be positive")
	case !nonEmpty(Member(message, "id")) || !StringIs(Member(message, "role"), "system"):
		return s.fail(CodeStructure, "message needs an id and the role system")
	case KindOf(content) != KindArray:
		return s.fail(CodeStructure, "content has to be an array")
	}
	for a := WalkArray(content); a.Next(); {
		if what := looseBlock(a.Value()); what != "" {
			return s.fail(CodeStructure, "content block "+what)
		}
	}
	return nil
}

func (s *structure) developer() error {
	message := s.e.member("message")
	content := Member(message, "content")
	kind := Path(message, "source", "kind")
	switch {
	case KindOf(s.e.data) != KindObject || !StringIs(Member(message, "role"), "developer"):
		return s.fail(CodeStructure, "want a message of the role developer")
	case !positive(s.e.member("turn")) || !positive(s.e.member("step")):
		return s.fail(CodeStructure, "turn and step have to be positive")
	}
	if err := s.content(content, true, true); err != nil {
		return err
	}
	if !nonEmpty(Member(message, "id")) || KindOf(content) != KindArray || !nonEmpty(kind) || StringIs(kind, "plugin") {
		return s.fail(CodeStructure, "message needs id, content and a producer's source")
	}
	additions := false
	for a := WalkArray(content); a.Next(); {
		additions = additions || StringIs(Member(a.Value(), "type"), "tool-addition")
	}
	headerSeq := s.e.member("headerSeq")
	if _, ok := Count(headerSeq); additions && !ok {
		return s.fail(CodeStructure, "additions need a headerSeq")
	}
	if !additions && headerSeq != nil {
		return s.fail(CodeStructure, "headerSeq without additions")
	}
	return nil
}

func (s *structure) toolResult4() error {
	if KindOf(s.e.data) != KindObject {
		return s.fail(CodeStructure, "data has to be an object")
	}
	message := s.e.member("message")
	var id, role, source, call, content, isError []byte
	for o := WalkObject(message); o.Next(); {
		switch {
		case o.KeyIs("id"):
			id = o.Value()
		case o.KeyIs("role"):
			role = o.Value()
		case o.KeyIs("source"):
			source = o.Value()
		case o.KeyIs("toolCallId"):
			call = o.Value()
		case o.KeyIs("content"):
			content = o.Value()
		case o.KeyIs("isError"):
			isError = o.Value()
		}
	}
	failure := s.e.member("error")
	switch {
	case KindOf(message) != KindObject || !nonEmpty(id):
		return s.fail(CodeStructure, "want a message with an id")
	case StringIs(Member(source, "kind"), "plugin"):
		return s.fail(CodeRetired, "a source of kind plugin")
	case !StringIs(role, "tool"):
		return s.fail(CodeStructure, "want the role tool")
	case !nonEmpty(call) || !sameString(call, Member(source, "callId")):
		return s.fail(CodeStructure, "toolCallId and source.callId have to agree")
	case !StringIs(Member(source, "kind"), "tool"):
		return s.fail(CodeStructure, "want a source of kind tool")
	case KindOf(content) != KindArray:
		return s.fail(CodeStructure, "content has to be an array")
	case isError != nil && KindOf(isError) != KindBool:
		return s.fail(CodeStructure, "isError has to be boolean")
	case failure != nil && string(isError) != "true":
		return s.fail(CodeStructure, "an error needs isError true")
	}
	if err := s.content(content, true, false); err != nil {
		return err
	}
	return s.forkResult(id, source, content, failure)
}

// forkResult judges the results that sealing a fork makes up for calls which
// never started: they are known by their id.
func (s *structure) forkResult(id, source, content, failure []byte) error {
	if !StringIs(Member(failure, "code"), codeNotStarted) {
		return nil
	}
	name, _ := String(id)
	const kind = "forked-tool-result-"
	if len(name) < len(kind) || name[:len(kind)] != kind {
		return nil
	}
	bad := func() error {
		return s.fail(CodeStructure, "not the exact result of a fork for a call that never started")
	}
	call, ok := String(Member(source, "callId"))
	if prefix := kind + call + "-"; !ok || len(name) < len(prefix) || name[:len(prefix)] != prefix {
		return bad()
	} else {
		name = name[len(prefix):]
	}
	n, plain := plainCount(name)
	seq, counted := Count(s.e.seq)
	blocks := WalkArray(content)
	one := blocks.Next()
	block := blocks.Value()
	if !plain || !counted || !one || blocks.Next() || KindOf(block) != KindObject ||
		!StringIs(Member(block, "type"), "text") || KindOf(Member(block, "text")) != KindString ||
		!StringIs(Member(failure, "name"), nameNotStarted) {
		return bad()
	}
	if StringIs(Member(s.e.op, "op"), "replace") {
		sources := WalkArray(s.e.sources)
		if n >= seq || !sources.Next() {
			return bad()
		}
		cited, ok := Count(sources.Value())
		if !ok || cited != n || sources.Next() {
			return bad()
		}
		return nil
	}
	if n != seq || s.e.sources != nil || !StringIs(s.e.op, "append") {
		return bad()
	}
	return nil
}

// plainCount reads a count as JavaScript prints it.
func plainCount(s string) (int64, bool) {
	if s == "" || len(s) > 16 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if s[i]-'0' > 9 {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, n <= MaxSafeInteger
}

// payload judges what is refused only inside the accepted prefix.
func (d *Dialect) payload(e *envelope, typ string, data []byte) error {
	switch typ {
	case TypeRequestHeader:
		header := e.member("header")
		if tools := Member(header, "tools"); KindOf(tools) == KindArray && isEmpty(tools) {
			return e.fail(CodeStructure, "an empty list of tools has to be left out")
		}
		if defaults := Member(header, "adapterDefaults"); KindOf(defaults) == KindObject && isEmpty(defaults) {
			return e.fail(CodeStructure, "empty adapterDefaults have to be left out")
		}
	case TypeToolResult:
		if d.toolRole || e.member("error") == nil && KindOf(data) == KindObject {
			return nil
		}
		blocks := WalkArray(Member(e.member("message"), "content"))
		if !blocks.Next() || !StringIs(Member(blocks.Value(), "type"), "tool-result") ||
			string(Member(blocks.Value(), "isError")) != "true" || blocks.Next() {
			return e.fail(CodeStructure, "an error needs exactly one tool-result block with isError true")
		}
	}
	return nil
}

// isEmpty reports whether a valid array or object has nothing in it.
func isEmpty(raw []byte) bool {
	i := skipSpace(raw, 1)
	return i < len(raw) && (raw[i] == ']' || raw[i] == '}')
}

type slot struct {
	name string
	into *[]byte
}

// exactMembers reads an object that has all of must, perhaps some of may, and
// nothing else. It returns what is wrong.
func exactMembers(raw []byte, must, may []slot) (wrong string) {
	if KindOf(raw) != KindObject {
		return "has to be an object"
	}
	for o := WalkObject(raw); o.Next(); {
		if !fill(must, o.key, o.value) && !fill(may, o.key, o.value) {
			return "has an unexpected member"
		}
	}
	return lacking(must)
}

// exactMembers is the same for the payload.
func (e *envelope) exactMembers(must, may []slot) (wrong string) {
	if !e.indexed {
		return exactMembers(e.data, must, may)
	}
	for _, m := range e.index {
		if !fill(must, m.key, m.value) && !fill(may, m.key, m.value) {
			return "has an unexpected member"
		}
	}
	return lacking(must)
}

func fill(slots []slot, key, value []byte) bool {
	for _, s := range slots {
		if StringIs(key, s.name) {
			*s.into = value
			return true
		}
	}
	return false
}

func lacking(must []slot) string {
	for _, s := range must {
		if *s.into == nil {
			return "lacks " + s.name
		}
	}
	return ""
}

func nonEmpty(raw []byte) bool { return KindOf(raw) == KindString && len(raw) > 2 }

func positive(raw []byte) bool {
	n, ok := Count(raw)
	return ok && n > 0
}

// sameString reports whether two valid JSON values are strings that mean the
// same.
func sameString(a, b []byte) bool {
	if KindOf(a) != KindString || KindOf(b) != KindString {
		return false
	}
	if bytes.Equal(a, b) {
		return true
	}
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return false
	}
	return compareStrings(a, b)
}

// compareStrings compares by UTF-16 code units, so that two lone surrogates
// differ where the reference tells them apart.
func compareStrings(a, b []byte) bool {
	ua, ub := utf16Units(a), utf16Units(b)
	if len(ua) != len(ub) {
		return false
	}
	for i := range ua {
		if ua[i] != ub[i] {
			return false
		}
	}
	return true
}

// pluginSource judges the source of a plugin's message, versions up to 3.
func pluginSource(source []byte) bool {
	var kind, plugin, form, sections, summary, compaction, command []byte
	may := []slot{{"form", &form}, {"sections", &sections}, {"summary", &summary}}
	compact := StringIs(Member(source, "plugin"), "compact")
	if compact {
		may = append(may, slot{"compactionId", &compaction}, slot{"sourceCommandId", &command})
	}
	if exactMembers(source, []slot{{"kind", &kind}, {"plugin", &plugin}}, may) != "" ||
		!StringIs(kind, "plugin") || !nonEmpty(plugin) {
		return false
	}
	if compact && (!nonEmpty(compaction) || command != nil && !nonEmpty(command)) {
		return false
	}
	if form == nil {
		return true
	}
	switch f, _ := String(form); f {
	case "snapshot":
		if KindOf(sections) != KindArray {
			return false
		}
		for a := WalkArray(sections); a.Next(); {
			var name, text []byte
			if exactMembers(a.Value(), []slot{{"name", &name}, {"text", &text}}, nil) != "" || !nonEmpty(name) || KindOf(text) != KindString {
				return false
			}
		}
		return summary == nil
	case "notice":
		return sections == nil && KindOf(summary) == KindString
	case "instructions", "catalog", "relay", "recall":
		return sections == nil && summary == nil
	}
	return false
}

// maxBlockDepth bounds how deep results may stand inside results: each level is
// walked again from outside.
const maxBlockDepth = 64

// contentBlocks judges blocks of the kinds that version 3 froze; others only
// need a type.
func contentBlocks(content []byte, depth int) (wrong string) {
	if KindOf(content) != KindArray {
		return "has to be an array"
	}
	if depth > maxBlockDepth {
		return "nests too deep"
	}
	for a := WalkArray(content); a.Next(); {
		if wrong = contentBlock(a.Value(), depth); wrong != "" {
			return wrong
		}
	}
	return ""
}

func contentBlock(block []byte, depth int) (wrong string) {
	if KindOf(block) != KindObject {
		return "block has to be an object"
	}
	var typ, text, attachment, id, name, arguments, call, content, isError []byte
	kind, ok := String(Member(block, "type"))
	switch kind {
	case "text", "reasoning":
		if wrong = exactMembers(block, []slot{{"type", &typ}, {"text", &text}}, nil); wrong == "" && KindOf(text) != KindString {
			wrong = "text has to be a string"
		}
	case "image":
		if wrong = exactMembers(block, []slot{{"type", &typ}, {"attachment", &attachment}}, nil); wrong == "" {
			wrong = imageAttachment(attachment)
		}
	case "tool-call":
		wrong = exactMembers(block, []slot{{"type", &typ}, {"id", &id}, {"name", &name}, {"arguments", &arguments}}, nil)
		if wrong == "" && (!nonEmpty(id) || !nonEmpty(name) || KindOf(arguments) != KindString) {
			wrong = "tool-call needs id, name and arguments"
		}
	case "tool-result":
		wrong = exactMembers(block, []slot{{"type", &typ}, {"toolCallId", &call}, {"content", &content}}, []slot{{"isError", &isError}})
		if wrong == "" && (!nonEmpty(call) || isError != nil && KindOf(isError) != KindBool) {
			wrong = "tool-result needs toolCallId and a boolean isError"
		}
		if wrong == "" {
			wrong = contentBlocks(content, depth+1)
		}
	default:
		if !ok || kind == "" {
			wrong = "block needs a type"
		}
	}
	return wrong
}

func imageAttachment(attachment []byte) (wrong string) {
	var id, media, size, width, height, name, original []byte
	wrong = exactMembers(attachment,
		[]slot{{"attachmentId", &id}, {"mediaType", &media}, {"bytes", &size}, {"width", &width}, {"height", &height}},
		[]slot{{"name", &name}, {"originalDimensions", &original}})
	if wrong != "" {
		return "attachment " + wrong
	}
	return imageFields(id, media, size, width, height, name, original)
}

func imageFields(id, media, size, width, height, name, original []byte) (wrong string) {
	if _, ok := Count(size); !ok || !nonEmpty(id) || !imageType(media) || !positive(width) || !positive(height) {
		return "attachment needs id, media type, bytes, width and height"
	}
	if name != nil && KindOf(name) != KindString {
		return "attachment name has to be a string"
	}
	if original != nil && (!positive(Member(original, "width")) || !positive(Member(original, "height"))) {
		return "attachment originalDimensions need width and height"
	}
	return ""
}

func imageType(raw []byte) bool {
	switch s, _ := String(raw); s {
	case "image/png", "image/jpeg", "image/webp", "image/gif":
		return true
	}
	return false
}

// looseBlock judges a block of a version 4 system message: known fields only,
// further members are kept.
func looseBlock(block []byte) (wrong string) {
	if KindOf(block) != KindObject {
		return "has to be an object"
	}
	kind, _ := String(Member(block, "type"))
	switch kind {
	case "":
		return "needs a type"
	case "text", "reasoning":
		if KindOf(Member(block, "text")) != KindString {
			return "text has to be a string"
		}
	case "tool-call":
		if !nonEmpty(Member(block, "id")) || !nonEmpty(Member(block, "name")) || KindOf(Member(block, "arguments")) != KindString {
			return "tool-call needs id, name and arguments"
		}
	case "image":
		a := Member(block, "attachment")
		if KindOf(a) != KindObject {
			return "image needs an attachment"
		}
		return imageFields(Member(a, "attachmentId"), Member(a, "mediaType"), Member(a, "bytes"), Member(a, "width"),
			Member(a, "height"), Member(a, "name"), Member(a, "originalDimensions"))
	}
	return ""
}

// CheckPayload judges the payload of an event by itself, as far as its format
// generation does (from version 3): what Decode refuses in a row, it refuses in
// an event that has not been a row yet. The error is a *DecodeError.
func CheckPayload(d *Dialect, ev *Event) error {
	if !d.rowChecks {
		return nil
	}
	data := TrimSpace(ev.Data)
	e := envelope{data: data}
	if d.toolRole && ev.Type == TypeToolResult {
		e.seq = strconv.AppendInt(nil, ev.Seq, 10)
		if ev.SourceEventSeqs != nil {
			e.sources = appendSources(nil, ev.SourceEventSeqs, false)
		}
		if ev.SurfaceOp != nil {
			e.op = []byte(`"append"`)
			if ev.SurfaceOp.Replace {
				e.op = []byte(`{"op":"replace"}`)
			}
		}
	}
	s := structure{e: &e, typ: ev.Type, ignorable: ev.Ignorable}
	err := s.check(d)
	if err == nil {
		err = d.payload(&e, ev.Type, data)
	}
	if f, ok := err.(*DecodeError); ok {
		f.Type, f.Seq = ev.Type, ev.Seq
	}
	return err
}
