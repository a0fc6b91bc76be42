package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/redact"
)

func (a *app) redactTest() *cobra.Command {
	var keyFile string
	c := command(&cobra.Command{
		Use:   "test POLICY...",
		Short: "Run the policies' own examples",
		Long: `Run the examples that policies bring: [[rules.examples]] with text and expect, and those of the policies that
they extend, each policy by itself. Without --key-file the action token works with a key for tests. Each failure is one line: policy, rule, what was expected and what came out. The exit code is 1 then.`,
		Args: cobra.MinimumNArgs(1),
	}, func(_ context.Context, args []string) error {
		total := 0
		var failed []redact.Failure
		var err error
		for _, policy := range args { // each by itself: two policies may change one another
			n, bad, err := config.TestPolicy(policy, keyFile)
			if err != nil {
				return &exit{exitConfig, fmt.Errorf("redact test: %w", err)}
			}
			total += n
			failed = append(failed, bad...)
		}
		enc := json.NewEncoder(a.stdout)
		for _, f := range failed {
			if a.output == "json" {
				line := failure{Policy: f.Policy, Rule: f.Rule, Example: f.Index, Expect: f.Expect, Got: f.Got}
				if f.Err != nil {
					line.Error = f.Err.Error()
				}
				err = enc.Encode(line)
			} else {
				_, err = fmt.Fprintln(a.stdout, f)
			}
			if err != nil {
				return err
			}
		}
		fmt.Fprintf(a.stderr, "redact test: %d of %d examples pass\n", total-len(failed), total)
		if len(failed) > 0 {
			return &exit{exitFailed, nil}
		}
		return nil
	})
	c.Flags().StringVar(&keyFile, "key-file", "", "key `file` for the action token (default: a key for tests)")
	return c
}

// failure is an example that failed. The texts are the policy's own.
type failure struct {
	Policy  string `json:"policy"`
	Rule    string `json:"rule"`
	Example int    `json:"example"`
	Expect  string `json:"expect"`
	Got     string `json:"got"`
	Error   string `json:"error,omitempty"`
}
