package session

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/internal/conformance"
)

func TestConformanceFork(t *testing.T) {
	var tab struct {
		Logs  map[string]string
		Cases []struct {
			ID, Log  string
			Edits    []edit
			Boundary *json.RawMessage
			TS       struct {
				Outcome, Class, Code string
				Stored, Closers      int
				EndSeed              bool
			}
		}
	}
	table(t, "fork", &tab)
	d := dialect(t, 3)
	now := time.UnixMilli(1_800_000_000_000)
	codes := map[string]Code{"INVALID_BOUNDARY": CodeForkBoundary, "OPEN_TURN": CodeForkOpenTurn}
	count := conformance.New(t, "fork")
	for _, c := range tab.Cases {
		count.Run(t, c.ID, func(t *testing.T) {
			header, rows := edited(t, fixture(t, tab.Logs[c.Log]), c.Edits)
			h, err := d.ParseHeader([]byte(header))
			if err != nil {
				t.Fatal(err)
			}
			stored := decodeRows(t, d, rows)
			closers, err := Closers(d, stored)
			if err != nil {
				t.Fatal(err)
			}
			resumed, err := Resume(d, stored, now)
			if err != nil {
				t.Fatal(err)
			}
			source := append(append([]Event{}, stored...), resumed...)
			boundary := int64(LastSeq)
			if c.Boundary != nil {
				n, _ := ParseNumber(*c.Boundary)
				if !n.IsInt {
					t.Fatalf("boundary %s is no int64; it belongs on the list", *c.Boundary)
				}
				boundary = n.Int
			}
			seed, inherited, err := ForkSeed(d, source, boundary, now)
			var refused *ForkError
			if c.TS.Outcome == "rejected" {
				want := CodeForkLossy
				if c.TS.Code != "" {
					want = codes[c.TS.Code]
				}
				if !errors.As(err, &refused) || refused.Code != want {
					t.Fatalf("got %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.TS.Outcome != "forked" {
				t.Fatalf("the table has a new outcome %q", c.TS.Outcome)
			}
			want := c.TS.Stored + c.TS.Closers
			if c.TS.EndSeed {
				want++
			}
			if inherited != int64(want) || len(seed) != want+1 {
				t.Fatalf("inherits %d events and begins with %d, want %d and their marker", inherited, len(seed), want)
			}
			if c.TS.Closers > 0 && c.TS.Closers != len(closers) {
				t.Errorf("%d closers, want %d", len(closers), c.TS.Closers)
			}
			for i := range seed[:want] {
				if string(AppendEvent(nil, d, &seed[i])) != string(AppendEvent(nil, d, &source[i])) {
					t.Errorf("event %d differs from the source's", i)
				}
			}
			if tagged, ok := IsEndSeed(&seed[want]); !ok || !tagged || seed[want].Seq != inherited {
				t.Errorf("the seed ends in %+v, want the inherited marker", seed[want])
			}
			child := ForkHeader(h, "child", inherited, now)
			if child.ParentSession == nil || *child.ParentSession != h.ID || !child.IsSeeded || child.SeedLength != nil {
				t.Errorf("the child's header is %+v", child)
			}
		})
	}
}
