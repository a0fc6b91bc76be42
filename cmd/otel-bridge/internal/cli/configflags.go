package cli

import (
	"github.com/spf13/cobra"

	"github.com/otel-bridge/otel-bridge/cmd/otel-bridge/internal/config"
	"github.com/otel-bridge/otel-bridge/session"
)

// configFlags are the flags that stand for configuration keys.
type configFlags struct {
	app                     *app
	cmd                     *cobra.Command
	file                    string
	mode, endpoint, dataDir string
}

// configFile adds --config.
func (a *app) configFile(c *cobra.Command) *configFlags {
	f := &configFlags{app: a, cmd: c}
	c.Flags().StringVar(&f.file, "config", "", "configuration `file`")
	return f
}

// pipeline adds the flags that override what the file says of the pipeline.
func (f *configFlags) pipeline() *configFlags {
	fl := f.cmd.Flags()
	fl.StringVar(&f.mode, "mode", "", "FULL, FEEDBACK_ONLY or DISABLED")
	fl.StringVar(&f.endpoint, "endpoint", "", "receiver's `URL`, such as http://127.0.0.1:4318/v1/logs")
	f.dataDirFlag()
	return f
}

func (f *configFlags) dataDirFlag() *configFlags {
	f.cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "data `directory`")
	return f
}

// load reads the configuration with the flags that were given before it.
func (f *configFlags) load(o config.Options) (*config.Config, error) {
	o.File = f.file
	o.LookupEnv = f.app.lookup
	for _, ov := range []struct{ flag, key, value string }{
		{"mode", "mode", f.mode},
		{"endpoint", "exporter.endpoint", f.endpoint},
		{"data-dir", "outbox.dir", f.dataDir},
	} {
		if fl := f.cmd.Flags().Lookup(ov.flag); fl == nil || !fl.Changed {
			continue
		}
		from := "--" + ov.flag
		if name := f.app.fromEnv[ov.flag]; name != "" {
			from = name
		}
		o.Overrides = append(o.Overrides, config.Override{Key: ov.key, Value: ov.value, From: from})
	}
	return config.Load(o)
}

// vocabulary is the dialect's core with the event types of the configuration.
func vocabulary(cfg *config.Config, d *session.Dialect) (*session.Vocabulary, error) {
	v := session.Core(d)
	if cfg == nil || len(cfg.Vocabulary) == 0 {
		return v, nil
	}
	types := make([]session.EventType, len(cfg.Vocabulary))
	for i, t := range cfg.Vocabulary {
		types[i] = session.EventType{Name: t.Type, Surface: t.Surface}
	}
	return v.With(types...)
}
