package surface_test

import (
	"fmt"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/surface"
)

// What the model sees, event by event: two messages, and a summary that takes
// their place.
func ExampleSurface() {
	dialect, err := session.DialectOf(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	decoder, saw := session.NewDecoder(dialect, nil), surface.New(dialect)
	for _, row := range []string{
		`{"type":"user/message","seq":0,"time":1,"data":{"role":"user","id":"m0","source":{"kind":"user"},"content":[{"type":"text","text":"one"}]},"surfaceOp":"append"}`,
		`{"type":"user/message","seq":1,"time":2,"data":{"role":"user","id":"m1","source":{"kind":"user"},"content":[{"type":"text","text":"two"}]},"surfaceOp":"append"}`,
		`{"type":"user/message","seq":2,"time":3,"data":{"role":"user","id":"m2","source":{"kind":"user"},"content":[{"type":"text","text":"both"}]},"surfaceOp":{"op":"replace","start":0,"end":1},"sourceEventSeqs":[0,1]}`,
	} {
		var event session.Event
		if _, err := decoder.Decode([]byte(row), &event); err != nil {
			fmt.Println(err)
			return
		}
		if err := saw.Fold(&event); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(saw.Nodes())
	}
	// Output:
	// [0]
	// [0 1]
	// [2]
}
