package config

import (
	"fmt"
	"strings"
)

// Reference is docs/configuration.md, made from the table of fields.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Made by ` + "`go test ./cmd/otel-bridge/internal/config -run TestReferencePageIsCurrent -update`" + `; do not edit. -->

One YAML file, named by ` + "`--config`" + `. Precedence: flag, environment, file, default. Every flag can be given as
` + "`OTEL_BRIDGE_<FLAG>`" + ` (` + "`--data-dir`" + ` is ` + "`OTEL_BRIDGE_DATA_DIR`" + `), and goes before the standard variables named below. Headers and
resource attributes are merged name by name.

- Unknown keys are errors, with line, column and the nearest known key. Everything that is wrong is reported, and the exit
  code is 78. The mode is decided first; under ` + "`DISABLED`" + ` nothing of ` + "`exporter`" + ` is read.
- Sizes are whole numbers with a unit: ` + "`512KiB`, `1MiB`, `10GiB`" + `. Durations: ` + "`500ms`, `10s`, `30m`" + `.
- ` + "`${env:NAME}`" + ` and ` + "`${env:NAME:-default}`" + ` work in single values, not in keys. The default stands in for an unset or an empty
  variable; without one an unset variable is an error. What a variable held is not printed, but for paths, which messages have to name. ` + "`$${`" + ` is a literal ` + "`${`" + `.
- ` + "`~`" + ` is the home directory. A relative path starts from the directory of the file.
- Anchors, aliases, merges and tags are refused.

| key | value | default | |
|---|---|---|---|
`)
	for i := range fields {
		f := &fields[i]
		def := "`" + f.def + "`"
		if f.def == "" {
			def = ""
		}
		doc := f.doc
		if f.env != "" {
			doc += " Also: `" + strings.ReplaceAll(f.env, ", ", "`, `") + "`."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.key, f.typeName(), def, doc)
	}
	return b.String()
}
