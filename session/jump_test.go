package session

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// sameWalk compares the walkers of an event with the plain ones, on every value
// of its payload.
func sameWalk(t *testing.T, ev *Event, raw []byte) {
	t.Helper()
	switch KindOf(raw) {
	case KindObject:
		want, got := WalkObject(raw), ev.WalkObject(raw)
		for want.Next() {
			if !got.Next() || !bytes.Equal(got.RawKey(), want.RawKey()) || !bytes.Equal(got.Value(), want.Value()) {
				t.Fatalf("member %s: got %d bytes under %s, want %d", want.RawKey(), len(got.Value()), got.RawKey(), len(want.Value()))
			}
			sameWalk(t, ev, want.Value())
		}
		if got.Next() {
			t.Fatalf("one member too many, %s", got.RawKey())
		}
	case KindArray:
		want, got := WalkArray(raw), ev.WalkArray(raw)
		for want.Next() {
			if !got.Next() || !bytes.Equal(got.Value(), want.Value()) {
				t.Fatalf("got %d bytes, want %d", len(got.Value()), len(want.Value()))
			}
			sameWalk(t, ev, want.Value())
		}
		if got.Next() {
			t.Fatal("one element too many")
		}
	}
}

// randomJSON writes a value with long and short strings, deep and wide lists, and
// white space where there may be some.
func randomJSON(r *rand.Rand, b *strings.Builder, depth int) {
	blank := func() { b.WriteString(strings.Repeat(" ", max(0, r.IntN(5)-2))) }
	blank()
	defer blank()
	switch k := r.IntN(8); {
	case k < 3 && b.Len() < 20_000 && depth < 25:
		b.WriteByte('{')
		for i := range r.IntN(5) {
			if i > 0 {
				b.WriteByte(',')
			}
			blank()
			fmt.Fprintf(b, `"%s%d"`, strings.Repeat(`k\"`, r.IntN(3)*r.IntN(20)), r.IntN(4))
			blank()
			b.WriteByte(':')
			randomJSON(r, b, depth+1)
		}
		b.WriteByte('}')
	case k < 5 && b.Len() < 20_000 && depth < 25:
		b.WriteByte('[')
		for i := range r.IntN(6) * r.IntN(6) {
			if i > 0 {
				b.WriteByte(',')
			}
			randomJSON(r, b, depth+1+r.IntN(8))
		}
		b.WriteByte(']')
	case k < 7:
		fmt.Fprintf(b, `"%s"`, strings.Repeat([...]string{`x`, `\"`, `\\`, `{[`, `\u00e4`, `]}`}[r.IntN(6)], r.IntN(3)*r.IntN(60)))
	default:
		b.WriteString([...]string{"1", "-2.5e3", "true", "null"}[r.IntN(4)])
	}
}

func TestWalkersOfAnEventSeeWhatThePlainOnesSee(t *testing.T) {
	x := NewDecoder(dialect(t, 2), nil)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		var b strings.Builder
		b.WriteString(`{"type":"x/y","seq":0, "data" : {"turn":1,"step":2,"v":`)
		randomJSON(r, &b, 0)
		b.WriteString(`,"w":`)
		randomJSON(r, &b, 0)
		b.WriteString(`},"time":1,"ignorable":true}`)
		var ev Event
		if _, err := x.Decode([]byte(b.String()), &ev); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sameWalk(t, &ev, ev.Data)

		// The facts are those of the slice: of a copy, and of other bytes in its
		// place, nothing is known.
		c := ev.Clone()
		sameWalk(t, &c, c.Data)
		other := ev
		other.Data = []byte(`{"v":"` + strings.Repeat("y", len(ev.Data)) + `"}`)
		sameWalk(t, &other, other.Data)
		sameWalk(t, &ev, other.Data)
	}
}

// More long values than are noted, deeper than is noted, and a row whose data
// stands twice.
func TestWalkersOfAnEventBeyondWhatIsNoted(t *testing.T) {
	long := `"` + strings.Repeat("z", 2*longValue) + `"`
	deep := strings.Repeat(`[`, 3*jumpDepth) + long + strings.Repeat(`]`, 3*jumpDepth)
	x := NewDecoder(dialect(t, 2), nil)
	for _, data := range []string{
		`{"a":[` + strings.Repeat(long+",", 2*maxJumps) + long + `],"b":` + long + `}`,
		`{"a":` + deep + `,"b":[` + deep + `,` + long + `]}`,
		`{"a":` + long + `},"data":{"c":1,"b":` + long + `}`,
	} {
		var ev Event
		if _, err := x.Decode([]byte(`{"type":"x/y","seq":0,"data":`+data+`,"time":1,"ignorable":true}`), &ev); err != nil {
			t.Fatal(err)
		}
		sameWalk(t, &ev, ev.Data)
		if got := ev.Member(ev.Data, "b"); len(got) == 0 {
			t.Error("member b is not found")
		}
	}
}

// A tool's result of 64 KiB of code, as ledgers have them: what answering two
// questions about its surroundings costs, with and without jumps.
func BenchmarkLongResult(b *testing.B) {
	code := strings.Repeat(`if err := f(\"x\"); err != nil {\n\treturn err\n}\n`, 64<<10/50)
	row := []byte(`{"type":"tool/result","seq":0,"time":1,"data":{"turn":1,"step":1,"message":{"id":"m","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"` +
		code + `"}],"isError":false}],"source":{"kind":"tool","callId":"c"}}},"surfaceOp":"append"}`)
	d := dialect(b, 2)
	x := NewDecoder(d, nil)
	var ev Event
	if _, err := x.Decode(row, &ev); err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct {
		name string
		read func() ToolResult
	}{
		{"jumping", func() ToolResult { return d.ToolResultOf(&ev) }},
		{"walking", func() ToolResult { return d.ToolResult(ev.Data) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(len(row)))
			for b.Loop() {
				if way.read().CallID() != "c" {
					b.Fatal("no call id")
				}
			}
		})
	}
}
