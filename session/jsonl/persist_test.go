package jsonl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/otel-bridge/otel-bridge/session"
)

func appendAll(t *testing.T, l *session.Ledger, cs ...session.Candidate) {
	t.Helper()
	for _, c := range cs {
		if _, err := l.Append(c); err != nil {
			t.Fatal(err)
		}
	}
}

func candidate(typ, data string) session.Candidate {
	c := session.Candidate{Type: typ, Data: json.RawMessage(data)}
	if typ == session.TypeUserMessage {
		c.SurfaceOp = &session.SurfaceOp{}
	}
	return c
}

var turn = []session.Candidate{
	candidate("turn/start", `{"turn":1}`),
	candidate("user/message", `{"content":[{"type":"text","text":"hi"}],"source":{"kind":"user"},"role":"user","id":"u"}`),
	candidate("turn/end", `{"turn":1,"reason":{"kind":"completed"}}`),
}

func TestStoreWithPersistenceKeepsItsSessionsInFiles(t *testing.T) {
	ctx := context.Background()
	for version := range 5 {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			root := t.TempDir()
			store := session.NewMemoryStore(nil, nil)
			p := Persist(store, root)
			cwd := "/srv/demo shop"
			l, err := store.Create(ctx, session.CreateOptions{Header: session.Header{Version: version, ID: "s/1", Cwd: &cwd}})
			if err != nil {
				t.Fatal(err)
			}
			if entries, _ := os.ReadDir(root); len(entries) != 0 {
				t.Error("a session without events has a file")
			}
			appendAll(t, l, turn...)
			if err := store.Flush(ctx, "s/1"); err != nil {
				t.Fatal(err)
			}
			child, err := store.Fork(ctx, "s/1", session.ForkOptions{ID: "child"})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(store.Dispose(ctx, "child"), store.Dispose(ctx, "s/1")); err != nil {
				t.Fatal(err)
			}
			found, err := DiscoverRoot(root)
			if err != nil || len(found) != 2 || found[1].ID != "s/1" || found[1].Name.Generation != version {
				t.Fatalf("%+v, %v", found, err)
			}
			evs, r, err := readAll(p.Path(l.Header()))
			if err != nil || len(evs) != 3 {
				t.Fatal(len(evs), err)
			}
			if err := trace(r, evs); err != nil {
				t.Error(err)
			}
			evs, r, err = readAll(p.Path(child.Header()))
			if err != nil || len(evs) != 4 || r.InheritedCount() != 3 {
				t.Errorf("%d events, %d inherited, %v", len(evs), r.InheritedCount(), err)
			}
		})
	}
}

func TestSessionIsResumedAfterACrash(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	p := Persist(session.NewMemoryStore(nil, nil), root, WithoutCompression())
	l, err := p.store.Create(ctx, session.CreateOptions{Header: session.Header{Version: 4, ID: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, turn[:2]...)
	if err := p.store.Flush(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	path := p.Path(l.Header())
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"type":"half`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	again := Persist(session.NewMemoryStore(nil, nil), root, WithoutCompression())
	l, err = again.Resume(ctx, path, time.UnixMilli(5))
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, candidate("turn/start", `{"turn":2}`))
	if err := errors.Join(again.store.Flush(ctx, "s"), again.store.Flush(ctx, "s"), again.store.Dispose(ctx, "s")); err != nil {
		t.Fatal(err)
	}
	evs, r, err := readAll(path)
	if err != nil || r.Tail().Torn() {
		t.Fatal(err)
	}
	var types []string
	for _, ev := range evs {
		types = append(types, ev.Type)
	}
	if want := "[turn/start user/message turn/end session/end-seed turn/start]"; fmt.Sprint(types) != want {
		t.Errorf("%v, want %s", types, want)
	}
}

func TestFileOfAnotherSessionVetoesANewOne(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	first := Persist(session.NewMemoryStore(nil, nil), root)
	l, err := first.store.Create(ctx, session.CreateOptions{Header: session.Header{Version: 3, ID: "s", CreatedAt: 1}})
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, turn...)
	if err := first.store.Dispose(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	second := Persist(session.NewMemoryStore(nil, nil), root)
	if _, err := second.store.Create(ctx, session.CreateOptions{Header: session.Header{Version: 3, ID: "s", CreatedAt: 2}}); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	// The same header, and another history or a shorter one.
	events := l.Events(0)
	other := append([]session.Event(nil), events...)
	other[len(other)-1].Time++
	for name, evs := range map[string][]session.Event{"other": other, "shorter": events[:2]} {
		if _, err := second.store.Create(ctx, session.CreateOptions{Header: *l.Header(), Events: evs}); !errors.Is(err, ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if evs, _, err := readAll(first.Path(l.Header())); err != nil || len(evs) != 3 {
		t.Error(len(evs), err)
	}
	if _, err := second.store.Create(ctx, session.CreateOptions{Header: *l.Header(), Events: events}); err != nil {
		t.Errorf("the same history: %v", err)
	}
}

func TestFailedFlushKeepsTheSessionAndIsTriedAgain(t *testing.T) {
	ctx := context.Background()
	p := Persist(session.NewMemoryStore(nil, nil), t.TempDir(), withFaults(&faulty{write: 2, short: 9}))
	l, err := p.store.Create(ctx, session.CreateOptions{Header: session.Header{Version: 2, ID: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, turn[:1]...)
	if err := p.store.Flush(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, turn[1:]...)
	if err := p.store.Dispose(ctx, "s"); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	if _, ok := p.store.Get("s"); !ok {
		t.Fatal("the session left with events that are not durable")
	}
	if err := p.store.Dispose(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if evs, _, err := readAll(p.Path(l.Header())); err != nil || len(evs) != 3 {
		t.Error(len(evs), err)
	}
	if left, _ := filepath.Glob(filepath.Join(p.root, "*", "*", "*.tmp")); len(left) != 0 {
		t.Error(left)
	}
}
