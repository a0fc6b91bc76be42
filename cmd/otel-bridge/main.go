// Command otel-bridge carries the session ledgers of an AI agent, checked and
// redacted, to an OpenTelemetry receiver, and loses nothing on the way.
package main

import (
	"os"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/cli"
)

func main() { os.Exit(cli.Main()) }
