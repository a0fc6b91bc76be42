package config

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// field is one key of the configuration: what the file may say, what it means
// where the file says nothing, and what the reference page tells about it.
// The table below is the only list of keys.
type field struct {
	key string // dotted
	typ string // for the reference
	def string // as written in the file
	doc string
	env string // standard variables that set it too
	// at points to a single value; decode reads everything else.
	at     func(*Config) any
	decode func(*loader, *node)
	oneOf  []string
	min    int64
	max    int64 // 0: none
	path   bool
}

// genAIVersion is the version of the conventions that telemetry pins.
func genAIVersion() string { return path.Base(telemetry.GenAISchemaURL) }

// transport reports whether the key says how records leave.
func (f *field) transport() bool { return strings.HasPrefix(f.key, "exporter.") }

var fields = []field{
	{key: "mode", typ: "`FULL` \\| `FEEDBACK_ONLY` \\| `DISABLED`", def: "DISABLED", doc: "How much may leave. Positive consent: without it nothing is read, kept or sent.",
		at: func(c *Config) any { return &c.Mode }},
	{key: "feedback_scope", def: "lifetime", doc: "Under `FEEDBACK_ONLY`: how far back a feedback opens the gate, to the start of the current lifetime or of the session.",
		at: func(c *Config) any { return &c.FeedbackScope }, oneOf: []string{"lifetime", "session"}},
	{key: "catch_up", typ: "bool", def: "false", doc: "After a wider mode than the last: go on from the cursor instead of from now.",
		at: func(c *Config) any { return &c.CatchUp }},
	{key: "sources", typ: "list of `dsh: { path, start_at }`", def: `- dsh: { path: "${env:DSH_HOME:-~/.dsh}/sessions", start_at: beginning }`,
		doc:    "Where sessions come from. `path` is a DSH sessions root; `start_at` is `beginning` or `now`, for sessions met the first time.",
		decode: (*loader).decodeSources},
	{key: "vocabulary", typ: "list of `{ type, surface }`", def: "[]", doc: "Event types to accept beyond the built-in ones, such as `{ type: acme/note, surface: false }`.",
		decode: (*loader).decodeVocabulary},
	{key: "redact", typ: "mapping, or the word `none`", def: "", doc: "What is made unreadable. `none` has to be written out; it warns at start and on every health answer.",
		decode: (*loader).decodeRedact},
	{key: "redact.policies", typ: "list", def: "[builtin:secrets, builtin:pii]", doc: "Policies in order: built-in ones by name, own ones as paths of TOML files relative to this file."},
	{key: "redact.key_file", typ: "path", def: `""`, doc: "Key for the action `token`; at least 32 bytes, readable by its owner only."},
	{key: "gen_ai", def: "false", doc: "Also give records the `gen_ai.*` attributes of OpenTelemetry's semantic conventions " + genAIVersion() + " (mapping.md).",
		at: func(c *Config) any { return &c.GenAI }},
	{key: "max_record_bytes", def: "1MiB", doc: "A longer body is cut at its largest strings, after redaction, and marked with its original length.",
		at: func(c *Config) any { return &c.MaxRecordBytes }, min: 1 << 10, max: 1 << 30},
	{key: "max_line_bytes", def: "16MiB", doc: "The body of a ledger line above this is withheld.",
		at: func(c *Config) any { return &c.MaxLineBytes }, min: 4 << 10, max: 1 << 30},
	{key: "on_divergence", def: "continue", doc: "When a ledger no longer agrees with what was captured from it: go on from the last common point as a new incarnation, or hold the session.",
		at: func(c *Config) any { return (*string)(&c.OnDivergence) }, oneOf: []string{"continue", "hold"}},
	{key: "outbox.dir", typ: "path", def: `""`, doc: "Data directory. Empty: `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/otel-bridge`, else `~/.local/state/otel-bridge`.",
		at: func(c *Config) any { return &c.Outbox.Dir }, path: true},
	{key: "outbox.max_size", def: "10GiB", doc: "Above this intake stops until there is room; nothing is dropped.",
		at: func(c *Config) any { return &c.Outbox.MaxSize }, min: 4 << 20},
	{key: "exporter.endpoint", typ: "URL", def: `""`, doc: "The receiver, such as `https://collector.example.com/v1/logs`. Without a path `/v1/logs` is added.",
		env: "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT",
		at:  func(c *Config) any { return &c.Exporter.Endpoint }},
	{key: "exporter.headers", typ: "mapping", def: "{}", doc: "Request headers, such as `authorization: \"Bearer ${env:OTLP_TOKEN}\"`. Values are never printed.",
		env:    "OTEL_EXPORTER_OTLP_LOGS_HEADERS, OTEL_EXPORTER_OTLP_HEADERS",
		decode: (*loader).decodeHeaders},
	{key: "exporter.headers_file", typ: "path", def: `""`, doc: "File with one `name: value` a line; goes before `headers`.",
		at: func(c *Config) any { return &c.Exporter.HeadersFile }, path: true},
	{key: "exporter.compression", def: "gzip", env: "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION, OTEL_EXPORTER_OTLP_COMPRESSION", doc: "Of requests.",
		at: func(c *Config) any { return &c.Exporter.Compression }, oneOf: []string{"gzip", "none"}},
	{key: "exporter.body", def: "structured", doc: "A record's body as an OTLP value, or as its JSON text in a string.",
		at: func(c *Config) any { return &c.Exporter.Body }, oneOf: []string{"structured", "json"}},
	{key: "exporter.timeout", def: "10s", env: "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT", doc: "For one request; the variables count milliseconds.",
		at: func(c *Config) any { return &c.Exporter.Timeout }},
	{key: "exporter.max_batch.records", def: "512", doc: "Records in one request.",
		at: func(c *Config) any { return &c.Exporter.MaxBatch.Records }, min: 1, max: 1 << 16},
	{key: "exporter.max_batch.bytes", def: "4MiB", doc: "Bytes of records in one request; a larger record goes alone.",
		at: func(c *Config) any { return &c.Exporter.MaxBatch.Bytes }, min: 1 << 10, max: 64 << 20},
	{key: "exporter.workers", def: "4", doc: "Requests at the same time.",
		at: func(c *Config) any { return &c.Exporter.Workers }, min: 1, max: 64},
	{key: "exporter.allow_plaintext", def: "false", doc: "Allow plain http to a host that is not loopback.",
		at: func(c *Config) any { return &c.Exporter.AllowPlaintext }},
	{key: "exporter.tls.ca_file", typ: "path", def: `""`, env: "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE, OTEL_EXPORTER_OTLP_CERTIFICATE", doc: "PEM certificates to trust instead of the system's.",
		at: func(c *Config) any { return &c.Exporter.TLS.CAFile }, path: true},
	{key: "exporter.tls.cert_file", typ: "path", def: `""`, env: "OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", doc: "Client certificate.",
		at: func(c *Config) any { return &c.Exporter.TLS.CertFile }, path: true},
	{key: "exporter.tls.key_file", typ: "path", def: `""`, env: "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY, OTEL_EXPORTER_OTLP_CLIENT_KEY", doc: "Client key, readable by its owner only.",
		at: func(c *Config) any { return &c.Exporter.TLS.KeyFile }, path: true},
	{key: "resource", typ: "mapping", def: "{}", env: "OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME", doc: "Resource attributes, such as `deployment.environment.name: production`, beside the bridge's own: `service.name`, `.version`, `.instance.id`, `host.name`, and in Kubernetes `k8s.pod.name`, `k8s.pod.uid`, `k8s.namespace.name`, `k8s.node.name`, `k8s.container.name` from `POD_NAME`, `POD_UID`, `POD_NAMESPACE`, `NODE_NAME`, `CONTAINER_NAME`.",
		decode: (*loader).decodeResource},
	{key: "session_idle", def: "30m", doc: "A session without a new event for so long counts as idle.",
		at: func(c *Config) any { return &c.SessionIdle }},
	{key: "shutdown_timeout", def: "25s", doc: "For a clean stop; what is left then is kept.",
		at: func(c *Config) any { return &c.ShutdownTimeout }},
	{key: "admin.listen", typ: "host:port", def: "127.0.0.1:8321", doc: "`/healthz`, `/readyz` and `/metrics`, free of content; empty for none.",
		at: func(c *Config) any { return &c.Admin.Listen }},
	{key: "log.level", typ: "`debug` \\| `info` \\| `warn` \\| `error`", def: "info", doc: "What is logged to stderr.",
		at: func(c *Config) any { return &c.Log.Level }},
	{key: "log.format", def: "text", doc: "Of the log.",
		at: func(c *Config) any { return &c.Log.Format }, oneOf: []string{"text", "json"}},
}

func fieldByKey(key string) (*field, bool) {
	for i := range fields {
		if fields[i].key == key {
			return &fields[i], true
		}
	}
	return nil, false
}

// set parses text into the field. base is where a relative path starts.
func (f *field) set(c *Config, text, base string) error {
	switch p := f.at(c).(type) {
	case *telemetry.Mode:
		return nil // decideMode
	case *telemetry.FeedbackScope:
		scope, err := telemetry.ParseFeedbackScope(text)
		if err != nil {
			return fmt.Errorf("is not one of %s", strings.Join(f.oneOf, ", "))
		}
		*p = scope
	case *string:
		if f.oneOf != nil && !contains(f.oneOf, text) {
			return fmt.Errorf("is not one of %s", strings.Join(f.oneOf, ", "))
		}
		if f.path {
			resolved, err := resolvePath(text, base)
			if err != nil {
				return err
			}
			text = resolved
		}
		*p = text
	case *bool:
		switch text {
		case "true":
			*p = true
		case "false":
			*p = false
		default:
			return errors.New("is neither true nor false")
		}
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("is not a whole number")
		}
		if int64(n) < f.min || f.max > 0 && int64(n) > f.max {
			return fmt.Errorf("must be from %d to %d", f.min, f.max)
		}
		*p = n
	case *Size:
		n, err := ParseSize(text)
		if err != nil {
			return err
		}
		if int64(n) < f.min {
			return fmt.Errorf("must be at least %s", Size(f.min))
		}
		if f.max > 0 && int64(n) > f.max {
			return fmt.Errorf("must be at most %s", Size(f.max))
		}
		*p = n
	case *time.Duration:
		d, err := parseDuration(text)
		if err != nil {
			return err
		}
		*p = d
	case *slog.Level:
		switch text {
		case "debug", "info", "warn", "error":
			return p.UnmarshalText([]byte(text))
		}
		return errors.New("is not one of debug, info, warn, error")
	}
	return nil
}

// setDefaults fills in what the table says. Sources and the data directory
// depend on the environment and are filled in when the file has been read.
func setDefaults(c *Config) {
	for i := range fields {
		f := &fields[i]
		if f.at == nil || f.def == `""` {
			continue
		}
		if err := f.set(c, f.def, ""); err != nil {
			panic("config: default of " + f.key + " " + err.Error())
		}
	}
	c.Mode = telemetry.Disabled
	c.Redact.PolicyNames = DefaultPolicies()
	c.Exporter.Headers = map[string]Secret{}
	c.Resource = map[string]string{}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// typeName says how a value is written, for the reference.
func (f *field) typeName() string {
	if f.typ != "" {
		return f.typ
	}
	if f.oneOf != nil {
		return "`" + strings.Join(f.oneOf, "` \\| `") + "`"
	}
	switch f.at(new(Config)).(type) {
	case *bool:
		return "bool"
	case *int:
		return "number"
	case *Size:
		return "size"
	case *time.Duration:
		return "duration"
	}
	return "text"
}

// suggest names the known key that is nearest to an unknown one below parent:
// a sibling that is spelt alike, or the same word at its right place.
func suggest(parent, key string) string {
	prefix := ""
	if parent != "" {
		prefix = parent + "."
	}
	if best := nearest(key, children(parent)); best != "" {
		return best
	}
	for i := range fields {
		k := fields[i].key
		if strings.HasSuffix(k, "."+key) && !strings.HasPrefix(k, prefix+key) {
			return k
		}
	}
	return ""
}

// nearest is the word that is spelt most like key, or "" when none is near.
func nearest(key string, words []string) string {
	key = strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	best, bestDist := "", 1+(len(key)+2)/3
	for _, w := range words {
		if d := distance(key, w); d < bestDist {
			best, bestDist = w, d
		}
	}
	return best
}

// children lists the keys that may stand below parent, in the table's order.
func children(parent string) []string {
	var out []string
	for i := range fields {
		k := fields[i].key
		if parent != "" {
			rest, ok := strings.CutPrefix(k, parent+".")
			if !ok {
				continue
			}
			k = rest
		}
		k, _, _ = strings.Cut(k, ".")
		if !contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// distance is the number of edits between two keys; a swap of neighbours is one.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
