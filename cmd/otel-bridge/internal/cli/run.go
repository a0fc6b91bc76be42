package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/sidecar"
)

func (a *app) sidecar() *cobra.Command {
	var (
		dry     bool
		profile string
	)
	c := &cobra.Command{
		Use:   "run --config F",
		Short: "Run the sidecar until it is told to stop",
		Long: `Watch DSH sessions roots and send what their sessions gain, until SIGTERM or SIGINT; SIGHUP reads the
configuration again. After a clean stop the exit code is 0 whatever remains in the data directory. Under DISABLED it
serves health, creates nothing, and waits.

--dry-run writes records as OTLP JSON lines to stdout; nothing is kept and nothing is sent.`,
		Args: cobra.NoArgs,
	}
	flags := a.configFile(c).pipeline()
	c.Flags().BoolVar(&dry, "dry-run", false, "write records to stdout instead of sending them")
	c.Flags().StringVar(&profile, "pprof", "", "loopback `address` to serve Go's profiles on, below /debug/pprof/")
	return a.lasting(c, func(ctx context.Context, _ []string) (err error) {
		load := func() (*config.Config, error) { return flags.load(config.Options{NoEndpoint: dry, NoData: dry}) }
		cfg, err := load()
		if err != nil {
			return err
		}
		a.limitMemory()
		if profile != "" {
			at, stop, err := servePprof(profile)
			if err != nil {
				return fmt.Errorf("run: --pprof: %w", err)
			}
			defer func() { err = errors.Join(err, stop()) }()
			fmt.Fprintf(a.stderr, "run: profiles at http://%s/debug/pprof/\n", at)
		}
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		o := sidecar.RunOptions{Logger: a.logger, Load: load, Reload: hangup}
		if dry {
			o.DryRun = a.stdout
		}
		if err := sidecar.Run(ctx, cfg, o); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("run: %w", err)
		}
		return nil
	})
}
