package telemetry

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// manyTurns are the events of so many turns.
func manyTurns(n int) []string {
	var lines []string
	for i := range n {
		lines = append(lines, turn(i+1)...)
	}
	return lines
}

// The session reads on while its records are on their way to disk. Wherever that
// fails, with the records on disk or not, nothing is lost and nothing goes out
// twice when the session goes on.
func TestCommitThatFailsWhileTheSessionReadsOn(t *testing.T) {
	lines := manyTurns(6 * batchRecords / len(turn(1)))
	want, wantP := captured(t, ledger("s", lines...), nil)
	if n := len(want); n < 4*batchRecords {
		t.Fatalf("%d records are too few batches", n)
	}
	for failOn := 1; failOn <= 6; failOn++ {
		for _, made := range []bool{false, true} {
			src := ledger("s", lines...)
			o := newModelOutbox()
			c := testCapture(t, o, nil)
			s := c.Session(src, SessionOptions{})
			o.fail, o.failOn, o.after = errors.New("broken"), failOn, made
			p, err := s.Pull(context.Background(), 0)
			if err != nil {
				if !errors.Is(err, o.fail) {
					t.Fatal(err)
				}
				p = pull(t, s)
			} else if o.commits >= failOn {
				t.Fatalf("commit %d has failed, and nobody was told", failOn)
			}
			if got := o.records(t); !reflect.DeepEqual(got, want) || p.Outcomes != wantP.Outcomes || c.Outcomes() != wantP.Outcomes {
				t.Errorf("failing commit %d, made %v: %d records, want %d; %+v, %+v", failOn, made, len(got), len(want), p.Outcomes, c.Outcomes())
			}
		}
	}
}

// slowOutbox holds commits up until it is let go.
type slowOutbox struct {
	*modelOutbox
	let chan struct{}
}

func (o *slowOutbox) Commit(ctx context.Context, b *outbox.Batch) (outbox.ID, error) {
	<-o.let
	return o.modelOutbox.Commit(ctx, b)
}

func TestSessionReadsOnWhileItsRecordsGoToDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := ledger("s", manyTurns(4*batchRecords/len(turn(1)))...)
		o := &slowOutbox{newModelOutbox(), make(chan struct{})}
		read := 0
		c := testCapture(t, o, func(cfg *Config) {
			cfg.Listeners = []Listener{ListenerFunc(func(ctx context.Context, r *Record, next Next) (*Record, error) {
				read++
				return next(ctx, r)
			})}
		})
		done := make(chan error, 1)
		go func() {
			_, err := c.Session(src, SessionOptions{}).Pull(context.Background(), 0)
			done <- err
		}()
		// The first commit has not returned, and the second batch is full.
		synctest.Wait()
		if o.commits != 0 || read != 2*batchRecords {
			t.Errorf("%d commits and %d records when the session stands still, want 0 and %d", o.commits, read, 2*batchRecords)
		}
		close(o.let)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
