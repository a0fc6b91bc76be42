package sidecar

import (
	"errors"
	"io/fs"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/session/jsonl"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// FinishedSource is a session file of which the accepted prefix is read.
func FinishedSource(cfg *config.Config, path string) telemetry.Source {
	return telemetry.FinishedFile(path, eventTypes(cfg), jsonl.WithMaxLine(int(cfg.MaxLineBytes)))
}

// BodiesOf is the capture that a configuration asks for, as far as it decides
// which events have a record and what these look like. Tokens are those of the
// configuration's data directory; where that is not at hand there is no installation.
func BodiesOf(cfg *config.Config) (telemetry.Config, error) {
	out := telemetry.Config{
		Mode: cfg.Mode, FeedbackScope: cfg.FeedbackScope, EventTypes: eventTypes(cfg), MaxRecordBytes: int(cfg.MaxRecordBytes),
	}
	var err error
	if out.Installation, err = telemetry.ReadInstallation(cfg.Outbox.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	if !cfg.Redact.None && cfg.Redact.Engine != nil {
		in := out.Installation
		if in == nil {
			in = telemetry.NewInstallation()
		}
		out.Redaction = telemetry.NewRedaction(telemetry.NewEngine(cfg.Redact.Engine), in.Key)
	}
	return out, nil
}
