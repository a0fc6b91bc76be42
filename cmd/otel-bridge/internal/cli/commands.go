package cli

import "github.com/spf13/cobra"

func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.run(),
		a.export(),
		a.sink(),
		a.verify(),
		a.redact(),
		a.outbox(),
		a.surface(),
		a.version(),
		a.completion(),
	}
}
