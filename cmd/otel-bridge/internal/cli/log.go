package cli

import (
	"fmt"
	"log/slog"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
)

// logger logs to stderr as the configuration says. JSON lines have no prefix:
// they would not be JSON any more.
func (a *app) logger(cfg *config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.Log.Level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.rawStderr, o))
	}
	return slog.New(slog.NewTextHandler(a.stderr, o))
}

// warn says what is allowed and still has to be said.
func (a *app) warn(cfg *config.Config) {
	for _, w := range cfg.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", w)
	}
}
