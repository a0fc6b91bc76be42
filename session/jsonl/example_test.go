package jsonl_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/otel-bridge/otel-bridge/session"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
)

// A file that is still written is read as far as it is whole; Next may be called
// again when it has grown.
func ExampleLiveReader() {
	dir, err := os.MkdirTemp("", "jsonl")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "session.jsonl")

	w, err := jsonl.Create(path, &session.Header{Version: session.MaxVersion, ID: "s1", CreatedAt: 1}, jsonl.WithoutCompression())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	if err := w.Append(session.Event{Seq: 0, Time: 2, Type: "turn/start", Data: []byte(`{"turn":1}`)}); err != nil {
		fmt.Println(err)
		return
	}

	r, err := jsonl.OpenLive(path, jsonl.Position{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	read := func() {
		for r.Next() {
			fmt.Println(r.Event().Seq, r.Event().Type)
		}
		fmt.Println("the end for now:", r.Err())
	}
	read()
	if err := w.Append(session.Event{Seq: 1, Time: 3, Type: "turn/end", Data: []byte(`{"turn":1,"reason":{"kind":"completed"}}`)}); err != nil {
		fmt.Println(err)
		return
	}
	read()
	// Output:
	// 0 turn/start
	// the end for now: <nil>
	// 1 turn/end
	// the end for now: <nil>
}
