package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/commands.md anew")

const referenceHead = `# Commands

<!-- Made by ` + "`go test ./cmd/otel-bridge/internal/cli -run TestCommandsPageIsCurrent -update`" + `; do not edit. -->

Results go to stdout, everything else to stderr, with the prefix ` + "`otel-bridge: `" + `. ` + "`--output json`" + ` gives one JSON
object a line. ` + "`-`" + ` is stdin. Every flag can be given as ` + "`OTEL_BRIDGE_<FLAG>`" + `. Exit codes: 0 fine; 1 failed; 2 usage;
3 done, but something was withheld, refused, held, quarantined or left; 75 receiver unavailable, everything kept; 78
configuration ([troubleshooting.md](troubleshooting.md), "Exit codes").
`

// reference appends what the help of a command says, and of those below it.
func reference(b *bytes.Buffer, c *cobra.Command, parents string) {
	name := strings.TrimSpace(parents + " " + c.Name())
	usage := strings.TrimSpace(parents + " " + c.Use)
	fmt.Fprintf(b, "\n## %s\n\n", name)
	if !c.HasSubCommands() {
		fmt.Fprintf(b, "    otel-bridge %s\n\n", usage)
	}
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	was := false
	for line := range strings.Lines(text + "\n") {
		// Lines that are set off stay as they are.
		off := strings.HasPrefix(line, "  ")
		if off != was && strings.TrimSpace(line) != "" {
			b.WriteByte('\n')
		}
		if was = off; off {
			line = "  " + line
		}
		b.WriteString(line)
	}
	var flags []*pflag.Flag
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "output" {
			flags = append(flags, f)
		}
	})
	if len(flags) > 0 {
		b.WriteString("\n| flag | | default |\n|---|---|---|\n")
	}
	for _, f := range flags {
		value, words := pflag.UnquoteUsage(f)
		def := f.DefValue
		if slices.Contains([]string{"", "false", "[]", "0", "0s"}, def) {
			def = ""
		} else {
			def = "`" + def + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", strings.TrimSpace("--"+f.Name+" "+value), words, def)
	}
	for _, below := range c.Commands() {
		reference(b, below, name)
	}
}

func TestCommandsPageIsCurrent(t *testing.T) {
	a := newApp(nil, &bytes.Buffer{}, &bytes.Buffer{}, func(string) (string, bool) { return "", false })
	page := bytes.NewBufferString(referenceHead)
	for _, c := range a.commands() {
		reference(page, c, "")
	}
	path := filepath.Join("..", "..", "..", "..", "docs", "commands.md")
	if *update {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, page.Bytes()) {
		t.Errorf("docs/commands.md is not what the commands say of themselves; run this test with -update. It would be\n%s", page)
	}
}
