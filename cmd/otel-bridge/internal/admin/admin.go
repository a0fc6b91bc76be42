// Package admin has the two doors of a running bridge. The TCP listener serves
// health and metrics, which hold no content and change nothing. The control
// socket is a Unix socket that only its owner can open; everything that shows
// records or changes state goes through it.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health is what the health pages tell. None of it may be content.
type Health struct {
	Mode string `json:"mode"`
	// Warnings hold while the program runs, such as redaction being off.
	Warnings []string `json:"warnings,omitempty"`
	// Reasons say why the bridge is not ready; empty when it is.
	Reasons []string `json:"reasons,omitempty"`
}

// Handler serves /healthz, /readyz and /metrics. /healthz answers 200 as long
// as the program can answer; /readyz answers 503 while there are reasons.
func Handler(health func() Health, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	answer := func(ready bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			h := health()
			body := struct {
				Status string `json:"status"`
				Health
			}{"ok", h}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			if ready && len(h.Reasons) > 0 {
				body.Status = "not ready"
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			// The client may be gone; there is nobody else to tell.
			_ = json.NewEncoder(w).Encode(body)
		}
	}
	mux.HandleFunc("GET /healthz", answer(false))
	mux.HandleFunc("GET /readyz", answer(true))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

// Server is one open door.
type Server struct {
	srv  *http.Server
	ln   net.Listener
	done chan error
}

// Serve opens a door on a listener, which it closes in the end.
func Serve(ln net.Listener, h http.Handler) *Server {
	s := &Server{
		srv: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
		},
		ln:   ln,
		done: make(chan error, 1),
	}
	go func() { s.done <- s.srv.Serve(ln) }()
	return s
}

// Addr is the address that was bound.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close stops serving. Requests in work get until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.srv.Close())
	}
	if serr := <-s.done; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}
