package surface

import (
	"encoding/json"
	"slices"

	"github.com/otel-bridge/otel-bridge/session"
)

// ImageOffload is the projection of image/offload events: images of a
// user/message or a tool/result are marked "offloaded":true, so that a model is
// no longer shown them. Images are counted depth-first, through the content of
// nested tool-result blocks.
//
// It remembers one byte for each image of a message. Deriving a message reads
// every decision about it, which names few messages in practice.
type ImageOffload struct{}

var _ Projection = ImageOffload{}

// What ImageOffload remembers of each image of a message, in order, and of the
// place where the content stops being a tree of blocks.
const (
	imageShown byte = iota
	imageOffloaded
	imagesBroken
	imagesUnread // alone: the line is longer than the reader's limit
)

// maxBlockNesting bounds the walk through nested tool-result blocks, since each
// level reads what is below it again. Content that nests deeper counts as
// broken; real content nests once.
const maxBlockNesting = 32

// Type is "image/offload".
func (ImageOffload) Type() string { return typeOffload }

// Remember notes the images of a user/message or a tool/result.
func (ImageOffload) Remember(ev *session.Event) []byte {
	if ev.Type != typeUser && ev.Type != typeTool {
		return nil
	}
	if ev.DataTruncated {
		return []byte{imagesUnread}
	}
	message, ok := derive(ev)
	if !ok {
		return nil
	}
	return appendImages(nil, ev, ev.Member(message, "content"), 0)
}

func appendImages(state []byte, ev *session.Event, blocks []byte, depth int) []byte {
	if session.KindOf(blocks) != session.KindArray || depth == maxBlockNesting {
		return append(state, imagesBroken)
	}
	for a := ev.WalkArray(blocks); a.Next(); {
		if session.KindOf(a.Value()) == session.KindNull {
			return append(state, imagesBroken)
		}
		switch b := readBlock(ev.WalkObject(a.Value())); {
		case session.StringIs(b.typ, "image"):
			if string(b.offloaded) == "true" {
				state = append(state, imageOffloaded)
			} else {
				state = append(state, imageShown)
			}
		case session.StringIs(b.typ, "tool-result"):
			state = appendImages(state, ev, b.content, depth+1)
			if n := len(state); n > 0 && state[n-1] == imagesBroken {
				return state
			}
		}
	}
	return state
}

// block holds what of a content block matters for images.
type block struct{ typ, content, offloaded []byte }

func readBlock(o session.Object) (b block) {
	for o.Next() {
		switch {
		case o.KeyIs("type"):
			b.typ = o.Value()
		case o.KeyIs("content"):
			b.content = o.Value()
		case o.KeyIs("offloaded"):
			b.offloaded = o.Value()
		}
	}
	return b
}

// Plan judges one image/offload event.
func (ImageOffload) Plan(ev *session.Event, h History, dst []Change) ([]Change, error) {
	fail := func(c session.Code, detail string) ([]Change, error) {
		return dst, refuse(ev, c, detail)
	}
	targets, ok := onlyMember(session.TrimSpace(ev.Data), "targets")
	if !ok || session.KindOf(targets) != session.KindArray {
		return fail(CodeOffloadData, "the payload must be one non-empty list of targets")
	}
	first := len(dst)
	var many map[int64]bool // the targets, where they are too many to look through
	for a := session.WalkArray(targets); a.Next(); {
		seq, indexes, ok := offloadTarget(a.Value())
		if !ok {
			return fail(CodeOffloadData, "a target must be a seq and a non-empty list of image indexes")
		}
		if many == nil && len(dst)-first == 32 {
			many = map[int64]bool{}
			for _, c := range dst[first:] {
				many[c.Seq] = true
			}
		}
		if many[seq] || many == nil && slices.ContainsFunc(dst[first:], func(c Change) bool { return c.Seq == seq }) {
			return fail(CodeOffloadDuplicate, targetDetail(seq, "stands there twice"))
		}
		switch h.NodeType(seq) {
		case "":
			return fail(CodeOffloadNotCurrent, targetDetail(seq, "is not a current node"))
		case typeUser, typeTool:
		default:
			return fail(CodeOffloadType, targetDetail(seq, "must be a user/message or a tool/result"))
		}
		state, code, detail := offload(slices.Clone(h.State(seq)), indexes)
		if code != "" {
			return fail(code, targetDetail(seq, detail))
		}
		dst = append(dst, Change{seq, state})
		if many != nil {
			many[seq] = true
		}
	}
	if len(dst) == first {
		return fail(CodeOffloadData, "the payload must be one non-empty list of targets")
	}
	return dst, nil
}

// offload marks the images with these indexes in state.
func offload(state, indexes []byte) (marked []byte, c session.Code, detail string) {
	previous := int64(-1)
	for a := session.WalkArray(indexes); a.Next(); {
		i, ok := session.Count(a.Value())
		if !ok || i <= previous {
			return nil, CodeOffloadIndexes, "must have strictly increasing image indexes"
		}
		previous = i
	}
	if len(state) == 1 && state[0] == imagesUnread {
		return state, "", ""
	}
	images, broken := state, false
	if n := len(state); n > 0 && state[n-1] == imagesBroken {
		images, broken = state[:n-1], true
	}
	missing := false
	for a := session.WalkArray(indexes); a.Next(); {
		switch i, _ := session.Count(a.Value()); {
		case i >= int64(len(images)):
			missing = true
		case images[i] == imageOffloaded:
			return nil, CodeOffloadAgain, "has an image that is offloaded already"
		default:
			images[i] = imageOffloaded
		}
	}
	switch {
	case broken:
		return nil, CodeOffloadContent, "has content that is no tree of blocks"
	case missing:
		return nil, CodeOffloadMissing, "has no image at an index"
	}
	return state, "", ""
}

// offloadTarget reads {"seq","imageIndexes"}, which has no other members.
func offloadTarget(raw []byte) (seq int64, indexes []byte, ok bool) {
	for o := session.WalkObject(raw); o.Next(); {
		switch {
		case o.KeyIs("seq"):
			seq, ok = session.Count(o.Value())
		case o.KeyIs("imageIndexes"):
			indexes = o.Value()
		default:
			return 0, nil, false
		}
	}
	a := session.WalkArray(indexes)
	return seq, indexes, ok && a.Next()
}

// onlyMember returns the value of the member with this name of an object that
// has no other.
func onlyMember(raw []byte, name string) (value []byte, ok bool) {
	for o := session.WalkObject(raw); o.Next(); {
		if !o.KeyIs(name) {
			return nil, false
		}
		value = o.Value()
	}
	return value, value != nil
}

// Project marks the images that ev names for the node with this seq.
func (ImageOffload) Project(ev *session.Event, seq int64, message json.RawMessage) (json.RawMessage, error) {
	targets, _ := onlyMember(session.TrimSpace(ev.Data), "targets")
	for a := session.WalkArray(targets); a.Next(); {
		at, indexes, ok := offloadTarget(a.Value())
		if !ok || at != seq {
			continue
		}
		content := session.Member(message, "content")
		if session.KindOf(content) != session.KindArray {
			return nil, refuse(ev, CodeOffloadContent, targetDetail(seq, "has content that is no tree of blocks"))
		}
		m := marker{indexes: session.WalkArray(indexes)}
		m.advance()
		out := make([]byte, 0, len(message)+64)
		start := offsetIn(message, content)
		out = append(out, message[:start]...)
		out = m.blocks(out, content, 0)
		return append(out, message[start+len(content):]...), nil
	}
	return nil, refuse(ev, CodeOffloadData, targetDetail(seq, "is not named"))
}

// marker writes content with marks at the images whose indexes it walks.
type marker struct {
	indexes session.Array
	want    int64 // the next index, -1 behind the last
	at      int64 // images so far
}

func (m *marker) advance() {
	m.want = -1
	if m.indexes.Next() {
		m.want, _ = session.Count(m.indexes.Value())
	}
}

func (m *marker) blocks(dst, content []byte, depth int) []byte {
	if depth == maxBlockNesting {
		return append(dst, content...)
	}
	from := 0
	for a := session.WalkArray(content); a.Next(); {
		raw := a.Value()
		switch b := readBlock(session.WalkObject(raw)); {
		case session.StringIs(b.typ, "image"):
			if m.at == m.want {
				start := offsetIn(content, raw)
				dst = append(dst, content[from:start]...)
				dst = appendOffloaded(dst, raw, b.offloaded)
				from = start + len(raw)
				m.advance()
			}
			m.at++
		case session.StringIs(b.typ, "tool-result") && session.KindOf(b.content) == session.KindArray:
			at := offsetIn(content, b.content)
			dst = append(dst, content[from:at]...)
			dst = m.blocks(dst, b.content, depth+1)
			from = at + len(b.content)
		}
	}
	return append(dst, content[from:]...)
}

// appendOffloaded appends block with "offloaded":true: in the place of old, the
// value that it has, or at its end.
func appendOffloaded(dst, block, old []byte) []byte {
	if old != nil {
		at := offsetIn(block, old)
		dst = append(dst, block[:at]...)
		dst = append(dst, "true"...)
		return append(dst, block[at+len(old):]...)
	}
	dst = append(dst, block[:len(block)-1]...)
	return append(dst, `,"offloaded":true}`...)
}

// offsetIn is the offset of part in whole, of whose memory it is a piece.
func offsetIn(whole, part []byte) int { return cap(whole) - cap(part) }
