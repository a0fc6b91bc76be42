package session

import "math"

// MinVersion and MaxVersion bound the format generations that are read.
const (
	MinVersion = 0
	MaxVersion = 4
)

// Names of the event types that the ledger itself gives a meaning to.
const (
	TypeUserMessage      = "user/message"
	TypeAssistantMessage = "assistant/message"
	TypeAssistantAttempt = "assistant/attempt"
	TypeAssistantChunk   = "assistant/chunk"
	TypeSystemMessage    = "system/message"
	TypeDeveloperMessage = "developer/message"
	TypeToolCall         = "tool/call"
	TypeToolResult       = "tool/result"
	TypeTurnStart        = "turn/start"
	TypeTurnEnd          = "turn/end"
	TypeStepStart        = "step/start"
	TypeStepEnd          = "step/end"
	TypeRequestHeader    = "request/header"
	TypeRequestContext   = "request/context"
	TypeEndSeed          = "session/end-seed"
	TypeFeedbackRecord   = "feedback/record"
	TypeImageOffload     = "image/offload"
)

// Dialect says how one format generation writes what all of them mean. There is
// one value per version; nothing else compares version numbers.
type Dialect struct {
	version int

	seedLength       bool // header: seedLength instead of isSeeded
	absoluteCwd      bool // header: cwd must be absolute
	surface          []string
	replaceStart     string
	replaceEnd       string
	chunks           bool // assistant/chunk events and packed rows
	toolRole         bool // tool/result: role tool, no wrapper block
	sealsForks       bool
	systemHead       bool // a system/message at the surface's head is protected
	assistantSources bool
	rowChecks        bool // surface fields and payload structure are the row's
	todoNeedsTurn    bool
	systemSource     Source
	contextSource    Source
	compactSource    Source
	titleSource      Source
	ptcStart, ptcEnd string
	retired          []string
	ownTypes         []string // known to this version only
	stepTypes        []string // relations: nothing but their step
	framesTitles     bool     // relations: a title request has the exact text
	movedRepairs     bool     // relations: ids of repairs keep an older seq
	restartTurns     bool     // relations: a restart may leave a turn open
	ownCatalog       bool     // relations: a child stands in the catalog once
}

// Source names who owns a message: the members kind and, up to version 3 for
// plugins, plugin of its source.
type Source struct {
	Kind   string
	Plugin string // empty when the kind alone says it
}

// Matches reports whether the valid JSON object source is s's.
func (s Source) Matches(source []byte) bool {
	return StringIs(Member(source, "kind"), s.Kind) &&
		(s.Plugin == "" || StringIs(Member(source, "plugin"), s.Plugin))
}

const systemPromptPlugin = "@deepseek-ai/dsh-system-prompt"

var surfaceV0 = []string{TypeUserMessage, TypeAssistantMessage, TypeToolResult}

// dialects is never changed. What differs is DSH's own, version by version; the
// rules stand in docs/invariants.md.
var dialects = [MaxVersion + 1]Dialect{
	plugin(Dialect{
		version: 0, seedLength: true, surface: surfaceV0, replaceStart: "start", replaceEnd: "end",
		chunks: true, assistantSources: true, todoNeedsTurn: true, framesTitles: true,
		ptcStart: "tool/code-dispatch-start", ptcEnd: "tool/code-dispatch",
	}),
	plugin(Dialect{
		version: 1, seedLength: true, absoluteCwd: true, surface: surfaceV0, replaceStart: "start", replaceEnd: "end",
		chunks: true, assistantSources: true, todoNeedsTurn: true, framesTitles: true,
		ptcStart: "tool/code-dispatch-start", ptcEnd: "tool/code-dispatch",
	}),
	plugin(Dialect{
		version: 2, absoluteCwd: true, surface: surfaceV0, replaceStart: "start", replaceEnd: "end",
		stepTypes: []string{TypeAssistantAttempt}, movedRepairs: true,
		ptcStart: "tool/code-dispatch-start", ptcEnd: "tool/code-dispatch",
	}),
	plugin(Dialect{
		version: 3, absoluteCwd: true, surface: []string{TypeSystemMessage, TypeUserMessage, TypeAssistantMessage, TypeToolResult},
		replaceStart: "startSeq", replaceEnd: "endSeq", systemHead: true, rowChecks: true,
		stepTypes: []string{TypeAssistantAttempt}, movedRepairs: true,
		ptcStart: "tool/ptc-dispatch-start", ptcEnd: "tool/ptc-dispatch",
		retired: []string{"tool/code-dispatch-start", "tool/code-dispatch"},
		// Of the second implementation of version 3, which the conformance
		// tables come from; version 4 has developer messages instead.
		ownTypes: []string{"request/tool-update", "subagent/routing-decision"},
	}),
	{
		version: 4, absoluteCwd: true,
		surface:      []string{TypeSystemMessage, TypeDeveloperMessage, TypeUserMessage, TypeAssistantMessage, TypeToolResult},
		replaceStart: "startSeq", replaceEnd: "endSeq", systemHead: true, rowChecks: true,
		toolRole: true, sealsForks: true,
		stepTypes: []string{TypeAssistantAttempt}, movedRepairs: true, ownCatalog: true,
		ptcStart: "tool/ptc-dispatch-start", ptcEnd: "tool/ptc-dispatch",
		retired:       []string{"tool/code-dispatch-start", "tool/code-dispatch"},
		systemSource:  Source{Kind: "system-prompt"},
		contextSource: Source{Kind: "runtime-context"},
		compactSource: Source{Kind: "compact-checkpoint"},
		titleSource:   Source{Kind: "dsh-session-title-llm"},
	},
}

// plugin fills in the owners of messages as versions 0 to 3 write them.
func plugin(d Dialect) Dialect {
	d.systemSource = Source{"plugin", systemPromptPlugin}
	d.contextSource = Source{"plugin", systemPromptPlugin}
	d.compactSource = Source{"plugin", "compact"}
	d.titleSource = Source{"plugin", "dsh-session-title-llm"}
	return d
}

// DialectOf returns the dialect of a format version. The error is an
// *UnsupportedVersionError.
func DialectOf(version int) (*Dialect, error) {
	if version < MinVersion || version > MaxVersion {
		return nil, &UnsupportedVersionError{Version: version, Newer: version > MaxVersion}
	}
	return &dialects[version], nil
}

// Version is the format generation.
func (d *Dialect) Version() int { return d.version }

// SurfaceTypes lists the dialect's surface types; the caller must not change it.
func (d *Dialect) SurfaceTypes() []string { return d.surface }

// IsSurface reports whether typ is one of the dialect's surface types.
func (d *Dialect) IsSurface(typ string) bool {
	for _, s := range d.surface {
		if s == typ {
			return true
		}
	}
	return false
}

// ReplaceKeys names the members of surfaceOp that hold the ends of a replace.
func (d *Dialect) ReplaceKeys() (start, end string) { return d.replaceStart, d.replaceEnd }

// StreamsAsChunks says that a model's stream stands in the ledger as
// assistant/chunk events, packed or not (versions 0 and 1).
func (d *Dialect) StreamsAsChunks() bool { return d.chunks }

// EmbedsStreams says that a model's stream stands in data.stream of
// assistant/message and assistant/attempt (from version 2).
func (d *Dialect) EmbedsStreams() bool { return !d.chunks }

// HasSeedLength says that the header counts the inherited events (versions 0
// and 1); otherwise the last inherited session/end-seed marks the cut.
func (d *Dialect) HasSeedLength() bool { return d.seedLength }

// SealsForks says that an open turn is sealed with forked closers where a
// session is forked inside it (from version 4); otherwise such a fork is
// refused.
func (d *Dialect) SealsForks() bool { return d.sealsForks }

// ProtectsSystemHead says that a system/message at the head of the surface
// yields only to a system/message over exactly it (from version 3).
func (d *Dialect) ProtectsSystemHead() bool { return d.systemHead }

// AssistantSources says that assistant/message may carry sourceEventSeqs, even
// empty ones (versions 0 and 1).
func (d *Dialect) AssistantSources() bool { return d.assistantSources }

// SystemPromptSource owns the messages of the system prompt.
func (d *Dialect) SystemPromptSource() Source { return d.systemSource }

// RuntimeContextSource owns the user messages that carry runtime context.
func (d *Dialect) RuntimeContextSource() Source { return d.contextSource }

// ToolRoleResults says that the message of a tool/result is the result itself,
// with role tool (from version 4); before, a user message wraps one block.
func (d *Dialect) ToolRoleResults() bool { return d.toolRole }

// ToolResult is what a tool/result says, where its dialect keeps it. Its slices
// are valid JSON and share memory with the event's data.
type ToolResult struct {
	// RawCallID is the JSON string that names the answered call; nil when the
	// payload has none.
	RawCallID []byte
	// IsError says that the call failed.
	IsError bool
	// RawErrorCode is the JSON string of data.error.code; nil when absent.
	RawErrorCode []byte
	// Message is the message, nil when absent.
	Message []byte
	// Content is the array of content blocks of the result itself.
	Content []byte
}

// CallID is the decoded RawCallID.
func (r ToolResult) CallID() string { s, _ := String(r.RawCallID); return s }

// ErrorCode is the decoded RawErrorCode.
func (r ToolResult) ErrorCode() string { s, _ := String(r.RawErrorCode); return s }

// ToolResult reads the payload of a tool/result. Whatever is absent or of
// another kind is left empty.
func (d *Dialect) ToolResult(data []byte) ToolResult {
	return d.ToolResultOf(&Event{Data: data})
}

// ToolResultOf is ToolResult for the payload of ev. Where ev comes from a Decoder
// it does not read long results again.
func (d *Dialect) ToolResultOf(ev *Event) ToolResult {
	var r ToolResult
	var failure []byte
	for o := ev.WalkObject(ev.Data); o.Next(); {
		switch {
		case o.KeyIs("message"):
			r.Message = o.Value()
		case o.KeyIs("error"):
			failure = o.Value()
		}
	}
	var source, content, isError []byte
	for o := ev.WalkObject(r.Message); o.Next(); {
		switch {
		case o.KeyIs("source"):
			source = o.Value()
		case o.KeyIs("content"):
			content = o.Value()
		case o.KeyIs("isError"):
			isError = o.Value()
		}
	}
	if !d.toolRole {
		isError = nil
		blocks := ev.WalkArray(content)
		content = nil
		if blocks.Next() {
			for o := ev.WalkObject(blocks.Value()); o.Next(); {
				switch {
				case o.KeyIs("content"):
					content = o.Value()
				case o.KeyIs("isError"):
					isError = o.Value()
				}
			}
		}
	}
	r.Content = content
	r.IsError = string(isError) == "true"
	r.RawCallID = stringOnly(Member(source, "callId"))
	r.RawErrorCode = stringOnly(Member(failure, "code"))
	return r
}

func stringOnly(raw []byte) []byte {
	if KindOf(raw) != KindString {
		return nil
	}
	return raw
}

// clampInt makes an int of a number that may be any double.
func clampInt(f float64) int {
	switch {
	case f >= math.MaxInt:
		return math.MaxInt
	case f <= math.MinInt:
		return math.MinInt
	}
	return int(f)
}
