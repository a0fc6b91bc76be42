package surface

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/otel-bridge/otel-bridge/session"
)

const (
	shown     = `{"type":"image","attachment":{"attachmentId":"a"}}`
	offloaded = `{"type":"image","attachment":{"attachmentId":"a"},"offloaded":true}`
)

func userContent(content string) string {
	return `{"content":` + content + `,"source":{"kind":"user"},"role":"user","id":"u"}`
}

func targets(s string) string { return `{"targets":` + s + `}` }

func TestImageOffloadMarksImagesDepthFirst(t *testing.T) {
	nested := `[` + shown + `,{"type":"tool-result","content":[` + shown + `,{"content":[` + shown + `],"type":"tool-result"}]},"note",7,[], ` + shown + ` ]`
	want := `[` + shown + `,{"type":"tool-result","content":[` + shown + `,{"content":[` + offloaded + `],"type":"tool-result"}]},"note",7,[], ` + offloaded + ` ]`
	for version, data := range map[int]string{
		3: toolData("c", nested),
		4: toolDataV4("c", nested),
	} {
		var l ledger
		l.add(typeUser, appendOp(), userContent(nested))
		l.add(typeTool, appendOp(), data)
		l.add(typeOffload, nil, targets(`[{"seq":0,"imageIndexes":[2,3]},{"imageIndexes":[2.0,3e0],"seq":1}]`))
		v := NewView(&l, dialect(t, version))
		for seq := range int64(2) {
			m, ok, err := v.Message(seq)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if !strings.Contains(string(m.Message), want) {
				t.Errorf("v%d seq %d: %s", version, seq, m.Message)
			}
		}
		s, _ := v.Surface()
		if s.ContentGeneration() != 1 || s.ReplaceGeneration() != 0 {
			t.Errorf("generations are %d and %d", s.ContentGeneration(), s.ReplaceGeneration())
		}
		wantNodes(t, s, 0, 1)
	}
}

func TestImageOffloadKeepsTheMemberWhereItStands(t *testing.T) {
	var l ledger
	l.add(typeUser, appendOp(), userContent(`[{"type":"image","offloaded": false ,"attachment":1}]`))
	l.add(typeOffload, nil, targets(`[{"seq":0,"imageIndexes":[0]}]`))
	m, _, err := NewView(&l, dialect(t, 3)).Message(0)
	if err != nil {
		t.Fatal(err)
	}
	if want := userContent(`[{"type":"image","offloaded": true ,"attachment":1}]`); string(m.Message) != want {
		t.Errorf("got  %s\nwant %s", m.Message, want)
	}
}

func TestImageOffloadRefusals(t *testing.T) {
	two := userContent(`[` + shown + `,` + shown + `]`)
	done := userContent(`[` + offloaded + `,null]`)
	broken := userContent(`[` + shown + `,null,` + shown + `]`)
	noList := userContent(`[` + shown + `,{"type":"tool-result","content":"x"}]`)
	for _, c := range []struct {
		data string
		code session.Code
	}{
		{`{}`, CodeOffloadData},
		{`null`, CodeOffloadData},
		{targets(`[]`), CodeOffloadData},
		{`{"targets":[{"seq":0,"imageIndexes":[0]}],"x":1}`, CodeOffloadData},
		{targets(`[{"seq":0,"imageIndexes":[0],"x":1}]`), CodeOffloadData},
		{targets(`[{"seq":0,"imageIndexes":[]}]`), CodeOffloadData},
		{targets(`[{"seq":-0,"imageIndexes":[0]}]`), CodeOffloadData},
		{targets(`[{"seq":9007199254740992,"imageIndexes":[0]}]`), CodeOffloadData},
		{targets(`[{"seq":0,"imageIndexes":[0]},null]`), CodeOffloadData},
		{targets(`[{"seq":0,"imageIndexes":[0]},{"seq":0.0,"imageIndexes":[1]}]`), CodeOffloadDuplicate},
		{targets(`[{"seq":6,"imageIndexes":[-1]}]`), CodeOffloadNotCurrent},
		{targets(`[{"seq":6,"imageIndexes":[0]},null]`), CodeOffloadNotCurrent},
		{targets(`[{"seq":5,"imageIndexes":[1,0]}]`), CodeOffloadType},
		{targets(`[{"seq":0,"imageIndexes":[-0]}]`), CodeOffloadIndexes},
		{targets(`[{"seq":0,"imageIndexes":[-1e-400]}]`), CodeOffloadIndexes},
		{targets(`[{"seq":0,"imageIndexes":[0.5]}]`), CodeOffloadIndexes},
		{targets(`[{"seq":0,"imageIndexes":[1,1]}]`), CodeOffloadIndexes},
		{targets(`[{"seq":0,"imageIndexes":["0"]}]`), CodeOffloadIndexes},
		{targets(`[{"seq":0,"imageIndexes":[0,5,6]}]`), CodeOffloadMissing},
		{targets(`[{"seq":1,"imageIndexes":[0]},null]`), CodeOffloadAgain},
		{targets(`[{"seq":2,"imageIndexes":[0]}]`), CodeOffloadContent},
		{targets(`[{"seq":2,"imageIndexes":[5]}]`), CodeOffloadContent},
		{targets(`[{"seq":3,"imageIndexes":[0]}]`), CodeOffloadContent},
		{targets(`[{"seq":4,"imageIndexes":[0]}]`), CodeOffloadMissing},
	} {
		t.Run(c.data, func(t *testing.T) {
			var l ledger
			l.add(typeUser, appendOp(), two)
			l.add(typeUser, appendOp(), done)
			l.add(typeUser, appendOp(), broken)
			l.add(typeUser, appendOp(), noList)
			l.user("no image")
			l.add(typeSystem, appendOp(), systemData("x"))
			l.add("turn/start", nil, `{}`)
			s := New(dialect(t, 3))
			mustFold(t, s, l.events...)
			wantRefusal(t, s.Fold(l.add(typeOffload, nil, c.data)), c.code)
			// A refused decision is refused whole.
			mustFold(t, s, &session.Event{Seq: 7, Type: typeOffload, Data: json.RawMessage(targets(`[{"seq":0,"imageIndexes":[0,1]}]`))})
			if got := s.Decisions(0); len(got) != 1 || s.ContentGeneration() != 1 {
				t.Errorf("decisions %v, generation %d", got, s.ContentGeneration())
			}
		})
	}
}

func TestImageIsOffloadedOnceAndAReplacedNodeLosesItsProjection(t *testing.T) {
	var l ledger
	l.add(typeTool, appendOp(), toolData("c", `[`+shown+`,`+shown+`]`))
	l.add(typeOffload, nil, targets(`[{"seq":0,"imageIndexes":[0]}]`))
	l.add(typeOffload, nil, targets(`[{"seq":0,"imageIndexes":[1]}]`))
	s := New(dialect(t, 3))
	mustFold(t, s, l.events...)
	wantRefusal(t, s.Clone().Fold(&session.Event{Seq: 3, Type: typeOffload, Data: json.RawMessage(targets(`[{"seq":0,"imageIndexes":[0,1]}]`))}),
		CodeOffloadAgain)

	mustFold(t, s, l.add(typeTool, replaceOp(0, 0), toolData("c", `[`+shown+`]`), 0))
	if len(s.states) != 1 || len(s.decisions) != 0 {
		t.Errorf("%d states and %d decisions are remembered", len(s.states), len(s.decisions))
	}
	mustFold(t, s, l.add(typeOffload, nil, targets(`[{"seq":3,"imageIndexes":[0]}]`)))
	v := NewView(&l, dialect(t, 3))
	for seq, marks := range map[int64]int{0: 0, 3: 1} {
		m, _, err := v.Message(seq)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(m.Message), `"offloaded":true`); n != marks {
			t.Errorf("seq %d shows %d marks, want %d", seq, n, marks)
		}
	}
}

// Up to version 2 image/offload is a type like any other that is not known: one
// that may be passed over changes nothing, whatever its payload is.
func TestImageOffloadMeansNothingBeforeVersion3(t *testing.T) {
	for version := range 3 {
		for _, data := range []string{`{}`, targets(`[{"seq":0,"imageIndexes":[0]}]`)} {
			var l ledger
			l.add(typeUser, appendOp(), userContent(`[`+shown+`]`))
			l.add(typeOffload, nil, data).Ignorable = true
			v := NewView(&l, dialect(t, version))
			m, _, err := v.Message(0)
			if err != nil || string(m.Message) != userContent(`[`+shown+`]`) {
				t.Errorf("v%d %s: %s, %v", version, data, m.Message, err)
			}
			if s, err := v.Surface(); err != nil || s.ContentGeneration() != 0 {
				t.Errorf("v%d %s: %v", version, data, err)
			}
		}
	}
}

func TestImageOffloadNeedsItsProjection(t *testing.T) {
	s := New(dialect(t, 4), WithProjections())
	mustFold(t, s, &session.Event{Type: typeUser, SurfaceOp: appendOp(), Data: json.RawMessage(userContent(`[` + shown + `]`))})
	wantRefusal(t, s.Fold(&session.Event{Seq: 1, Type: typeOffload, Data: json.RawMessage(targets(`[{"seq":0,"imageIndexes":[0]}]`))}),
		CodeProjectionMissing)
}

// shout is a projection of a caller's own: it appends to the text of a message
// how often it has been shouted at.
type shout struct{}

func (shout) Type() string { return "acme/shout" }

func (shout) Remember(ev *session.Event) []byte {
	if ev.Type == typeUser {
		return []byte{0}
	}
	return nil
}

func (shout) Plan(ev *session.Event, h History, dst []Change) ([]Change, error) {
	seq, _ := session.Count(session.Member(ev.Data, "at"))
	if h.NodeType(seq) != typeUser {
		return dst, &session.InvariantError{Code: "shout-type", Seq: ev.Seq, Type: ev.Type}
	}
	return append(dst, Change{seq, []byte{h.State(seq)[0] + 1}}), nil
}

func (shout) Project(_ *session.Event, _ int64, message json.RawMessage) (json.RawMessage, error) {
	return append(append(json.RawMessage{}, message[:len(message)-1]...), `,"shout":true}`...), nil
}

func TestCallersProjectionsJoinTheBuiltInOne(t *testing.T) {
	d := dialect(t, 4)
	v, err := session.Core(d).With(session.EventType{Name: "acme/shout"})
	if err != nil {
		t.Fatal(err)
	}
	var l ledger
	l.add(typeUser, appendOp(), userContent(`[`+shown+`]`))
	l.add("acme/shout", nil, `{"at":0}`)
	l.add(typeOffload, nil, targets(`[{"seq":0,"imageIndexes":[0]}]`))
	l.add("acme/shout", nil, `{"at":0}`)
	view := NewView(&l, d, WithVocabulary(v), WithProjections(ImageOffload{}, shout{}))
	m, _, err := view.Message(0)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(userContent(`[`+offloaded+`]`), `"id":"u"}`, `"id":"u","shout":true,"shout":true}`, 1)
	if string(m.Message) != want {
		t.Errorf("got  %s\nwant %s", m.Message, want)
	}
	s, _ := view.Surface()
	if got := fmt.Sprint(s.Decisions(0), s.states[stateKey{0, 1}]); got != "[1 2 3] [2]" {
		t.Errorf("decisions and state are %s", got)
	}
	_, err = view.Plan(&session.Event{Seq: 4, Type: "acme/shout", Data: json.RawMessage(`{"at":3}`)})
	wantRefusal(t, err, "shout-type")
}

func TestDeepNestingIsWalkedWithinBounds(t *testing.T) {
	deep := strings.Repeat(`[{"type":"tool-result","content":`, 100_000) + `[]` + strings.Repeat(`}]`, 100_000)
	var l ledger
	s := New(dialect(t, 3))
	mustFold(t, s, l.add(typeUser, appendOp(), userContent(deep)), l.add(typeTool, appendOp(), toolData("c", deep)))
	wantRefusal(t, s.Fold(l.add(typeOffload, nil, targets(`[{"seq":0,"imageIndexes":[0]}]`))), CodeOffloadContent)
}

func TestDecisionAboutManyNodesNamesEachOnce(t *testing.T) {
	s := New(dialect(t, 4))
	var l ledger
	list := []string{}
	for i := range 100 {
		mustFold(t, s, l.add(typeUser, appendOp(), userContent(`[`+shown+`]`)))
		list = append(list, fmt.Sprintf(`{"seq":%d,"imageIndexes":[0]}`, i))
	}
	for _, again := range []int{0, 31, 32, 50, 99} {
		wantRefusal(t, s.Fold(&session.Event{Seq: 100, Type: typeOffload, Data: json.RawMessage(targets("[" + strings.Join(append(list[:100:100], list[again]), ",") + "]"))}),
			CodeOffloadDuplicate)
	}
	mustFold(t, s, l.add(typeOffload, nil, targets("["+strings.Join(list, ",")+"]")))
	if len(s.decisions) != 100 || s.ContentGeneration() != 1 {
		t.Errorf("%d nodes changed, generation %d", len(s.decisions), s.ContentGeneration())
	}
}

func TestInstalledProjectionMakesItsTypeKnown(t *testing.T) {
	s := New(dialect(t, 4), WithProjections(shout{}))
	var l ledger
	ev := l.user("a")
	mustFold(t, s, ev, &session.Event{Seq: 1, Type: "acme/shout", Data: json.RawMessage(`{"at":0}`), Ignorable: true})
	if len(s.Decisions(0)) != 1 {
		t.Error("an ignorable decision was passed over, though its projection is installed")
	}
}
