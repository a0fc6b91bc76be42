package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Controller is what a running bridge lets its operator do.
type Controller interface {
	// Outbox does an operation on the running outbox.
	Outbox(ctx context.Context, req OutboxRequest, emit func(any) error) error
	// Status tells of sessions, backlog and receiver.
	Status(ctx context.Context) (any, error)
	// Tap calls ready and gives every record that is exported from then on,
	// until ctx ends.
	Tap(ctx context.Context, ready func(), emit func(any) error) error
	// Session does an operation on one session.
	Session(ctx context.Context, req SessionRequest) error
	// Reload reads the configuration again.
	Reload(ctx context.Context) error
}

// SessionRequest is an operator's wish about one session.
type SessionRequest struct {
	Op SessionOp `json:"op"`
	// Session is the id as records have it.
	Session string `json:"session"`
	// To is the seq to go back to (rewind).
	To int64 `json:"to,omitempty"`
}

// SessionOp names what is to be done.
type SessionOp string

// The operations on sessions.
const (
	// SessionHold keeps a session from being captured any further.
	SessionHold SessionOp = "hold"
	// SessionAccept lets a session go on that an operator holds, or that is held
	// because its past has changed.
	SessionAccept SessionOp = "accept"
	// SessionRewind has what follows from a seq on go out again.
	SessionRewind SessionOp = "rewind"
)

// Answers are lines: {"item":…} for each result, then one {"done":true} or
// {"error":"…"}. An answer without the last one was cut off.
type line struct {
	Item  json.RawMessage `json:"item,omitempty"`
	Done  bool            `json:"done,omitempty"`
	Error string          `json:"error,omitempty"`
}

// ControlHandler serves the control socket.
func ControlHandler(c Controller) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/outbox", func(w http.ResponseWriter, r *http.Request) {
		var req OutboxRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil {
			http.Error(w, "the request is not understood", http.StatusBadRequest)
			return
		}
		answer(w, func(emit func(any) error) error { return c.Outbox(r.Context(), req, emit) })
	})
	mux.HandleFunc("POST /v1/status", func(w http.ResponseWriter, r *http.Request) {
		answer(w, func(emit func(any) error) error {
			s, err := c.Status(r.Context())
			if err != nil {
				return err
			}
			return emit(s)
		})
	})
	mux.HandleFunc("POST /v1/tap", func(w http.ResponseWriter, r *http.Request) {
		answer(w, func(emit func(any) error) error {
			// The answer's beginning tells the other side that it listens.
			ready := func() { _ = http.NewResponseController(w).Flush() }
			return c.Tap(r.Context(), ready, emit)
		})
	})
	mux.HandleFunc("POST /v1/session", func(w http.ResponseWriter, r *http.Request) {
		var req SessionRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil {
			http.Error(w, "the request is not understood", http.StatusBadRequest)
			return
		}
		answer(w, func(func(any) error) error { return c.Session(r.Context(), req) })
	})
	mux.HandleFunc("POST /v1/reload", func(w http.ResponseWriter, r *http.Request) {
		answer(w, func(func(any) error) error { return c.Reload(r.Context()) })
	})
	return mux
}

func answer(w http.ResponseWriter, do func(emit func(any) error) error) {
	w.Header().Set("Content-Type", "application/jsonl")
	flush := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	err := do(func(v any) error {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := enc.Encode(line{Item: raw}); err != nil {
			return err
		}
		return flush.Flush()
	})
	last := line{Done: true}
	if err != nil {
		last = line{Error: err.Error()}
	}
	// The client may be gone; then nobody is left to tell.
	_ = enc.Encode(last)
}

// Call makes a request of the bridge that runs on dataDir, calls open when the
// answer begins, and gives each result to emit as JSON. The error is
// ErrNotRunning where none does.
func Call(ctx context.Context, dataDir, path string, req any, open func(), emit func(json.RawMessage) error) error {
	client, err := ControlClient(dataDir)
	if err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bridge"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("the running sidecar does not answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the running sidecar answers %s; is it another version?", resp.Status)
	}
	open()
	br := bufio.NewReader(resp.Body)
	for {
		text, err := br.ReadBytes('\n')
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("the running sidecar's answer was cut off: %w", err)
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("the running sidecar's answer is not understood: %w", err)
		}
		switch {
		case l.Error != "":
			return errors.New(l.Error)
		case l.Done:
			return nil
		}
		if err := emit(l.Item); err != nil {
			return err
		}
	}
}
