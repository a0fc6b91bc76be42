package cli

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *app) completion() *cobra.Command {
	var c *cobra.Command
	c = command(&cobra.Command{
		Use:       "completion SHELL",
		Short:     "Write completions for bash, zsh, fish or powershell",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
	}, func(_ context.Context, args []string) error {
		root := c.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.stdout, true)
		case "zsh":
			return root.GenZshCompletion(a.stdout)
		case "fish":
			return root.GenFishCompletion(a.stdout, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(a.stdout)
		}
		return usagef("completion: unknown shell %q; there are bash, zsh, fish and powershell", args[0])
	})
	return c
}
