package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/version"
)

func (a *app) version() *cobra.Command {
	return command(&cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Args:  cobra.NoArgs,
	}, func(context.Context, []string) error {
		v := version.Get()
		if a.output == "json" {
			return json.NewEncoder(a.stdout).Encode(v)
		}
		_, err := fmt.Fprintf(a.stdout, "otel-bridge %s %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
		return err
	})
}
