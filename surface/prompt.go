package surface

import (
	"encoding/json"
	"strconv"

	"github.com/otel-bridge/otel-bridge/session"
)

// SystemPrompt decides how a rendered system prompt reaches the surface of a
// ledger whose dialect has system messages (from version 3). It commits
// nothing: the caller appends the events, in order.
//
// The first prompt, even an empty one, takes the place of the head. Where the
// model's route reads a later system message as the one in force, a changed
// prompt is appended, which keeps what the provider has cached. Otherwise the
// head is rewritten and the later ones are emptied.
type SystemPrompt struct{ view *View }

// NewSystemPrompt returns the projection for the ledger of v.
func NewSystemPrompt(v *View) *SystemPrompt { return &SystemPrompt{v} }

// PromptInput is what one decision about the prompt depends on.
type PromptInput struct {
	// InHistory says that the route reads a later system message as the prompt
	// in force.
	InHistory bool
	// StartsSeries says that the request starts a new series of messages; see
	// Requests.StartsSeries.
	StartsSeries bool
}

// PromptCommit is one system/message to append to the ledger.
type PromptCommit struct {
	// Text is the prompt, "" for none.
	Text string
	// Replace says that it takes the place of the system/message with seq Seq;
	// otherwise it is appended.
	Replace bool
	Seq     int64
}

// Project returns what has to be appended so that rendered is the prompt in
// force: nothing when it is already.
func (p *SystemPrompt) Project(rendered string, in PromptInput) ([]PromptCommit, error) {
	nodes, err := p.nodes()
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return []PromptCommit{{Text: rendered}}, nil
	}
	head := nodes[0]
	if !in.InHistory || in.StartsSeries || rendered == "" {
		var commits []PromptCommit
		for _, n := range nodes[1:] {
			if !n.says("") {
				commits = append(commits, PromptCommit{Replace: true, Seq: n.seq})
			}
		}
		if !head.says(rendered) {
			commits = append(commits, PromptCommit{Text: rendered, Replace: true, Seq: head.seq})
		}
		return commits, nil
	}
	latest := head
	for _, n := range nodes {
		if !n.says("") {
			latest = n
		}
	}
	if latest.says(rendered) {
		return nil, nil
	}
	return []PromptCommit{{Text: rendered}}, nil
}

// promptNode is a system/message on the surface. One that is not plain text
// says something, but nothing that a prompt could equal.
type promptNode struct {
	seq   int64
	text  string
	plain bool
}

func (n promptNode) says(s string) bool { return n.plain && n.text == s }

func (p *SystemPrompt) nodes() ([]promptNode, error) {
	s, err := p.view.Surface()
	if err != nil {
		return nil, err
	}
	var nodes []promptNode
	for i := 0; i < len(s.nodes.slots); i = s.nodes.next(i) {
		if s.nodes.slots[i].kind != kindSystem {
			continue
		}
		seq := s.nodes.slots[i].seq
		ev, err := p.view.event(seq)
		if err != nil {
			return nil, err
		}
		t, plain := text(session.Member(session.TrimSpace(ev.Data), "message"))
		nodes = append(nodes, promptNode{seq, t, plain})
	}
	return nodes, nil
}

// Event makes the system/message that c stands for, without seq and time. The
// message gets this id.
func (c PromptCommit) Event(d *session.Dialect, turn, step int64, id string) session.Event {
	data := append([]byte(`{"turn":`), strconv.FormatInt(turn, 10)...)
	data = append(data, `,"step":`...)
	data = strconv.AppendInt(data, step, 10)
	data = append(data, `,"message":{"id":`...)
	data = session.AppendQuoted(data, id)
	data = append(data, `,"role":"system","source":{`...)
	data = appendSource(data, d.SystemPromptSource())
	data = append(data, `},"content":[`...)
	if c.Text != "" {
		data = appendTextBlock(data, c.Text)
	}
	data = append(data, `]}}`...)
	ev := session.Event{Type: typeSystem, Data: json.RawMessage(data), SurfaceOp: &session.SurfaceOp{}}
	if c.Replace {
		ev.SurfaceOp = &session.SurfaceOp{Replace: true, Start: c.Seq, End: c.Seq}
		ev.SourceEventSeqs = []int64{c.Seq}
	}
	return ev
}

func appendSource(dst []byte, s session.Source) []byte {
	dst = append(dst, `"kind":`...)
	dst = session.AppendQuoted(dst, s.Kind)
	if s.Plugin != "" {
		dst = append(dst, `,"plugin":`...)
		dst = session.AppendQuoted(dst, s.Plugin)
	}
	return dst
}

func appendTextBlock(dst []byte, text string) []byte {
	dst = append(dst, `{"type":"text","text":`...)
	dst = session.AppendQuoted(dst, text)
	return append(dst, '}')
}
