package session_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
)

// Rows of a file become events, and each is judged before it counts.
func ExampleAdmit() {
	header, dialect, err := session.ParseHeader([]byte(`{"type":"session","version":2,"id":"s1","createdAt":1700000000000,"isSeeded":false,"delegationDepth":0}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	decoder := session.NewDecoder(dialect, nil)
	trace := session.NewTrace(header, dialect, nil)
	for _, row := range []string{
		`{"type":"turn/start","seq":0,"time":1700000000001,"data":{"turn":1}}`,
		`{"type":"step/start","seq":1,"time":1700000000002,"data":{"turn":1,"step":2}}`,
	} {
		var event session.Event
		_, err := decoder.Decode([]byte(row), &event)
		if err == nil {
			err = session.Admit(&event, trace)
		}
		var broken *session.InvariantError
		switch {
		case errors.As(err, &broken):
			fmt.Println(event.Seq, event.Type, "is refused:", broken.Code)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(event.Seq, event.Type)
		}
	}
	// Output:
	// 0 turn/start
	// 1 step/start is refused: step-number
}

// A ledger that this process writes: an event joins it, or nothing has changed.
func ExampleLedger() {
	ledger, err := session.NewLedger(
		session.Header{Version: session.MaxVersion, ID: "s1", CreatedAt: 1700000000000},
		session.WithClock(func() time.Time { return time.UnixMilli(1700000000001) }),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ledger.Observe(func(ev *session.Event) { fmt.Println("joined:", ev.Seq, ev.Type) })()

	_, err = ledger.Append(session.Candidate{Type: "turn/start", Data: []byte(`{"turn":1}`)})
	fmt.Println(err)
	_, err = ledger.Append(session.Candidate{Type: "turn/end", Data: []byte(`{"turn":7,"reason":{"kind":"completed"}}`)})
	fmt.Println(err != nil, ledger.Len())
	// Output:
	// joined: 0 turn/start
	// <nil>
	// true 1
}
