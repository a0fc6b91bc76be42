package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/sidecar"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
)

func (a *app) validate() *cobra.Command {
	var offline bool
	c := &cobra.Command{
		Use:   "validate [--offline] --config F",
		Short: "Check a configuration, its policies, permissions and receiver",
		Long: `Check a configuration before the start: keys and values, policies, key files and permissions, and unless --offline,
that the receiver answers an empty request (400 and 422 count as reachable). Every problem is told with file and line;
the exit code is 78 then.`,
		Args: cobra.NoArgs,
	}
	flags := a.configFile(c).pipeline()
	c.Flags().BoolVar(&offline, "offline", false, "do not ask the receiver")
	return command(c, func(ctx context.Context, _ []string) error {
		cfg, err := flags.load(config.Options{AllSections: true})
		var ce *config.Error
		if err != nil && !errors.As(err, &ce) {
			return err
		}
		if ce == nil {
			a.warn(cfg)
			ce = &config.Error{Problems: a.permissions(cfg)}
			if cfg.Exporter.Endpoint != "" && !offline {
				ce.Problems = append(ce.Problems, reachable(ctx, cfg)...)
			}
		}
		if len(ce.Problems) == 0 {
			if a.output == "text" {
				fmt.Fprintln(a.stdout, "ok")
			}
			return nil
		}
		if a.output == "json" {
			enc := json.NewEncoder(a.stdout)
			for _, p := range ce.Problems {
				if err := enc.Encode(p); err != nil {
					return err
				}
			}
			return &exit{exitConfig, nil}
		}
		return ce
	})
}

// reachable asks the receiver with an empty request.
func reachable(ctx context.Context, cfg *config.Config) []config.Problem {
	ctx, cancel := context.WithTimeout(ctx, cfg.Exporter.Timeout+time.Second)
	defer cancel()
	if err := otlp.Check(ctx, sidecar.OTLPConfig(cfg, nil)); err != nil {
		return []config.Problem{{Key: "exporter.endpoint", Message: err.Error()}}
	}
	return nil
}

// permissions looks at what the configuration leads to on this machine.
func (a *app) permissions(cfg *config.Config) []config.Problem {
	var out []config.Problem
	if len(cfg.Sources) == 0 {
		fmt.Fprintln(a.stderr, "warning: sources: there are none, so that run has nothing to read")
	}
	for _, src := range cfg.Sources {
		_, err := os.ReadDir(src.DSH.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(a.stderr, "warning: sources: %s is not there yet; it will be waited for\n", src.DSH.Path)
		case err != nil:
			out = append(out, config.Problem{Key: "sources", Message: err.Error()})
		case sidecar.Misplaced(src.DSH.Path):
			fmt.Fprintf(a.stderr, "warning: sources: %s has session files, but none at PROJECT/SESSION/session.jsonl; run does not read them, export does\n", src.DSH.Path)
		}
	}
	st, err := os.Stat(cfg.Outbox.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		out = append(out, config.Problem{Key: "outbox.dir", Message: err.Error()})
	case !st.IsDir():
		out = append(out, config.Problem{Key: "outbox.dir", Message: cfg.Outbox.Dir + " is not a directory"})
	case st.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		out = append(out, config.Problem{Key: "outbox.dir", Message: fmt.Sprintf("%s has mode %#o, so others can look into it; chmod 700 it", cfg.Outbox.Dir, st.Mode().Perm())})
	}
	return out
}
