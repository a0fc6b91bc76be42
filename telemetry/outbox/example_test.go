package outbox_test

import (
	"context"
	"fmt"
	"os"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// An entry and the cursor that accounts for it become durable together; the
// entry is forgotten when whoever leased it says that it has arrived.
func Example() {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	o, err := outbox.Open(dir, outbox.Options{Instance: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Close()

	ctx := context.Background()
	if _, err := o.Commit(ctx, &outbox.Batch{
		Entries: []outbox.Entry{{Key: []byte("uid-1"), Stream: "session-1", Payload: []byte("record")}},
		Cursors: []outbox.Cursor{{Key: "session-1", Value: []byte("next=1")}},
	}); err != nil {
		fmt.Println(err) // none of it counts
		return
	}

	lease, err := o.Lease(ctx, outbox.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range lease.Entries() {
		fmt.Printf("%s: %s\n", e.Key, e.Payload)
		if err := lease.Ack(e.ID); err != nil {
			fmt.Println(err)
		}
	}
	if err := lease.Close(); err != nil { // gives back what was not settled
		fmt.Println(err)
	}
	s := o.Stats()
	fmt.Println(s.Committed, "committed,", s.Acked, "acked,", s.Pending, "pending")
	// Output:
	// uid-1: record
	// 1 committed, 1 acked, 0 pending
}
