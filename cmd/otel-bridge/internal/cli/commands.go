package cli

import "github.com/spf13/cobra"

// commands are in the order in which a new user meets them.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.demo(),
		a.export(),
		a.sidecar(),
		a.sink(),
		a.validate(),
		a.verify(),
		a.audit(),
		a.surface(),
		a.redact(),
		a.outbox(),
		a.sessions(),
		a.status(),
		a.tap(),
		a.version(),
		a.completion(),
	}
}
