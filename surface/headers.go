package surface

import (
	"crypto/sha256"
	"maps"
	"slices"
	"sort"

	"github.com/otel-bridge/otel-bridge/session"
)

// headers remembers which tools each request/header declares, in dialects where
// a developer/message may add tools from one. Headers with the same tools share
// one set, so that a ledger which writes its header often stays small.
type headers struct {
	on   bool
	seqs []int64
	sets []*toolSet
	byID map[nameDigest]*toolSet
}

// toolSet is immutable.
type toolSet struct {
	id    nameDigest
	tools map[nameDigest]toolState // by digest of the name
	// unread is true for a header whose line is longer than the reader's limit:
	// nobody has seen what it declares.
	unread bool
}

type toolState struct {
	times int
	whole bool // description, parameters and deferLoading are as they must be
}

// nameDigest is the first half of a SHA-256.
type nameDigest [16]byte

func digestOf(b []byte) nameDigest {
	sum := sha256.Sum256(b)
	return nameDigest(sum[:16])
}

// read digests the tools of a request/header.
func (h *headers) read(ev *session.Event) *toolSet {
	tools := session.Path(session.TrimSpace(ev.Data), "header", "tools")
	id := digestOf(tools)
	if ev.DataTruncated {
		return &toolSet{unread: true}
	}
	if set := h.byID[id]; set != nil {
		return set
	}
	set := &toolSet{id: id, tools: map[nameDigest]toolState{}}
	for a := session.WalkArray(tools); a.Next(); {
		tool := a.Value()
		name, ok := session.String(session.Member(tool, "name"))
		if !ok {
			continue
		}
		key := digestOf([]byte(name))
		state := set.tools[key]
		defer_ := session.Member(tool, "deferLoading")
		state.times++
		state.whole = session.KindOf(session.Member(tool, "description")) == session.KindString &&
			session.KindOf(session.Member(tool, "parameters")) == session.KindObject &&
			(defer_ == nil || string(defer_) == "true")
		set.tools[key] = state
	}
	return set
}

func (h *headers) add(seq int64, set *toolSet) {
	if h.byID == nil {
		h.byID = map[nameDigest]*toolSet{}
	}
	if !set.unread {
		h.byID[set.id] = set
	}
	h.seqs = append(h.seqs, seq)
	h.sets = append(h.sets, set)
}

func (h *headers) at(seq int64) *toolSet {
	i := sort.Search(len(h.seqs), func(i int) bool { return h.seqs[i] >= seq })
	if i == len(h.seqs) || h.seqs[i] != seq {
		return nil
	}
	return h.sets[i]
}

// check applies the rules about a developer/message: it has a headerSeq exactly
// when it adds tools, and each tool that it adds is declared once, in full, in
// that header.
func (h *headers) check(ev *session.Event) (session.Code, string) {
	if ev.DataTruncated {
		return "", ""
	}
	data := session.TrimSpace(ev.Data)
	headerSeq := session.Member(data, "headerSeq")
	var set *toolSet
	if headerSeq != nil {
		seq, ok := session.Count(headerSeq)
		if ok && seq < ev.Seq {
			set = h.at(seq)
		}
		if set == nil {
			return CodeDeveloperHeader, "headerSeq names no earlier request/header"
		}
	}
	added := false
	for a := session.WalkArray(session.Path(data, "message", "content")); a.Next(); {
		if !session.StringIs(session.Member(a.Value(), "type"), "tool-addition") {
			continue
		}
		added = true
		if set == nil {
			return CodeDeveloperHeader, "tools are added without a headerSeq"
		}
		if set.unread {
			continue
		}
		name, ok := session.String(session.Member(a.Value(), "toolName"))
		if state := set.tools[digestOf([]byte(name))]; !ok || state.times != 1 || !state.whole {
			return CodeDeveloperTool, "an added tool is not declared exactly once, in full, in the header that headerSeq names"
		}
	}
	if set != nil && !added {
		return CodeDeveloperHeader, "headerSeq without an added tool"
	}
	return "", ""
}

func (h *headers) clone() headers {
	c := *h
	c.seqs, c.sets = slices.Clone(h.seqs), slices.Clone(h.sets)
	c.byID = maps.Clone(h.byID)
	return c
}
