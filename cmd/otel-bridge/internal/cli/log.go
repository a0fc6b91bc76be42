package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/redact"
)

// logger logs to stderr as the configuration says. JSON lines have no prefix:
// they would not be JSON any more. What is logged goes through redaction too:
// paths have the names of people in them.
func (a *app) logger(cfg *config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.Log.Level}
	var h slog.Handler = slog.NewTextHandler(a.stderr, o)
	if cfg.Log.Format == "json" {
		h = slog.NewJSONHandler(a.rawStderr, o)
	}
	if cfg.Redact.Engine != nil {
		h = redactingHandler{h, cfg.Redact.Engine}
	}
	return slog.New(limitRepeats(h))
}

// safe is a text for stderr that names of files and event types may stand in,
// redacted as what is logged is.
func safe(cfg *config.Config, text string) string {
	if cfg.Redact.Engine == nil {
		return text
	}
	return redactingHandler{engine: cfg.Redact.Engine}.text(text)
}

// warn says what is allowed and still has to be said.
func (a *app) warn(cfg *config.Config) {
	for _, w := range cfg.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", w)
	}
}

// redactingHandler redacts the texts of a log.
type redactingHandler struct {
	slog.Handler
	engine *redact.Engine
}

// Handle redacts message and attributes.
func (h redactingHandler) Handle(ctx context.Context, r slog.Record) error {
	safe := slog.NewRecord(r.Time, r.Level, h.text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		safe.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, safe)
}

// WithAttrs redacts attributes that go with every record.
func (h redactingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	safe := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		safe[i] = h.attr(a)
	}
	return redactingHandler{h.Handler.WithAttrs(safe), h.engine}
}

// WithGroup keeps redacting below a group.
func (h redactingHandler) WithGroup(name string) slog.Handler {
	return redactingHandler{h.Handler.WithGroup(name), h.engine}
}

func (h redactingHandler) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, h.text(v.String()))
	case slog.KindAny:
		return slog.String(a.Key, h.text(fmt.Sprint(v.Any())))
	case slog.KindGroup:
		safe := make([]any, len(v.Group()))
		for i, g := range v.Group() {
			safe[i] = h.attr(g)
		}
		return slog.Group(a.Key, safe...)
	}
	return a
}

func (h redactingHandler) text(s string) string {
	out, rep, err := h.engine.Text(nil, s)
	if err != nil || rep.Withhold != "" {
		return "[not shown]"
	}
	return string(out)
}
