package sidecar

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// withdraw notes in a data directory that is there already that consent has
// been taken back: what is pending is held, and a wider mode later goes on from
// then, not from where capture stopped. It creates nothing. A data directory
// that another process uses, or that cannot be opened, is left alone and said
// so: DISABLED has to start all the same.
func (g *generation) withdraw() {
	if err := g.noteDisabled(); err != nil {
		g.log.Error("that the mode is DISABLED could not be noted in the data directory: a wider mode later goes on from where capture stopped", "error", err)
	}
}

func (g *generation) noteDisabled() (err error) {
	dir := g.cfg.Outbox.Dir
	if _, err := os.Stat(filepath.Join(dir, telemetry.InstallationFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	ob, err := outbox.Open(dir, outbox.Options{MaxSize: int64(g.cfg.Outbox.MaxSize), Instance: "otel-bridge run", Logger: g.log})
	if err != nil {
		return Explain(err)
	}
	defer func() { err = errors.Join(err, ob.Close()) }()
	in, err := telemetry.OpenInstallation(dir)
	if err != nil || in.Mode == telemetry.Disabled {
		return err
	}
	n, err := ob.Hold(func(i outbox.Info) bool { return i.State == outbox.Pending })
	if err != nil {
		return err
	}
	if n > 0 {
		g.log.Warn("consent was taken back: what was pending is held; see `outbox send` and `outbox discard`", "records", n)
	}
	_, _, err = in.Start(telemetry.Disabled, in.Policy)
	return err
}
