package otlp

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
)

// Config says where and how to deliver. Only Endpoint is needed. The
// environment is not read: who wants OTEL_EXPORTER_OTLP_* or HTTPS_PROXY to
// count resolves them and sets the fields.
type Config struct {
	// Endpoint is the full URL, such as https://collector.example.com/v1/logs.
	// User info becomes basic authentication; a query is sent.
	Endpoint string

	// Headers of every request. Values are never printed.
	Headers map[string]string
	// HeadersFile has one "name: value" a line ('#' starts a comment). It is
	// read again when it changes, and counts over Headers.
	HeadersFile string
	// HeadersFunc, if set, is asked before every request and counts over both.
	HeadersFunc func() (map[string]string, error)

	// Compression is "gzip" (default) or "none".
	Compression string
	// Body is "structured" (default: JSON objects become OTLP maps) or "json"
	// (the JSON text as one string).
	Body string
	// Timeout bounds one request from connecting to the end of the answer.
	// Default 10 s.
	Timeout time.Duration

	// MaxBatchRecords and MaxBatchBytes (of stored payloads) bound a request.
	// Defaults 512 and 4 MiB.
	MaxBatchRecords int
	MaxBatchBytes   int
	// MaxRequestBytes bounds a request before compression. Default 20 MiB, as
	// the OTLP specification recommends.
	MaxRequestBytes int
	// MaxInFlightBytes bounds the stored payloads that all workers hold at the
	// same time, and with it memory. Default 8 MiB.
	MaxInFlightBytes int
	// Workers send at the same time, each over an exporter of its own.
	// Default 4.
	Workers int

	// AllowPlaintext permits http:// beyond loopback.
	AllowPlaintext bool
	// TLS is for https endpoints.
	TLS TLS
	// Proxy chooses a proxy, such as http.ProxyFromEnvironment. nil: none.
	Proxy func(*http.Request) (*url.URL, error)
	// UserAgent, if set, is put before the exporter's own product name.
	UserAgent string

	// MinBackoff and MaxBackoff bound the pause after retryable answers.
	// Defaults 1 s and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// MinHold and MaxHold bound the pause between looks at a receiver that has
	// to be mended first. Defaults 15 s and 5 min.
	MinHold, MaxHold time.Duration
	// MaxRetryAfter caps what a receiver may ask for. Default 10 min.
	MaxRetryAfter time.Duration
	// StopGrace is how long requests that are under way when delivery is ended may
	// still be answered; cut off at once they would be sent again. Default 0.
	StopGrace time.Duration
	// MaxRefusals single records in a row refused, with none accepted between
	// them, mean that the receiver is at fault. Default 8.
	MaxRefusals int

	// Redact makes a receiver's words safe to keep and log. Without it they
	// are not kept: an answer may quote what was sent.
	Redact func(words string) string
	// Refresh is called with every record before it is sent and may change it
	// in place: a record of another policy is redacted again there. A record
	// for which it fails or panics is not sent; it goes to quarantine.
	Refresh func(*telemetry.Record) error
	// Logger gets changes of state, never content. nil: silent.
	Logger *slog.Logger

	random func() float64    // [0,1) for jitter; tests set it
	base   http.RoundTripper // below the judging transport; tests set it
}

// TLS names PEM files.
type TLS struct {
	// CAFile has the authorities to trust instead of the system's; read again
	// when it changes.
	CAFile string
	// CertFile and KeyFile are the client's; read again when they change.
	CertFile, KeyFile string
	// ServerName replaces the endpoint's host in verification.
	ServerName string
}

// ConfigError says which field of [Config] is wrong. It never holds a value.
type ConfigError struct {
	Field string
	Err   error
}

func (e *ConfigError) Error() string { return "otlp: " + e.Field + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

func wrong(field, why string) error { return &ConfigError{Field: field, Err: errors.New(why)} }

// ErrPlaintext is the cause of a [ConfigError] for an http endpoint that is
// not on this machine.
var ErrPlaintext = errors.New("plain http beyond loopback is refused; use https, or allow it by name")

// setDefaults fills what is zero.
func (c *Config) setDefaults() {
	def(&c.Compression, "gzip")
	def(&c.Body, "structured")
	def(&c.Timeout, 10*time.Second)
	def(&c.MaxBatchRecords, 512)
	def(&c.MaxBatchBytes, 4<<20)
	def(&c.MaxRequestBytes, 20<<20)
	def(&c.MaxInFlightBytes, 8<<20)
	def(&c.Workers, 4)
	def(&c.MinBackoff, time.Second)
	def(&c.MaxBackoff, 30*time.Second)
	def(&c.MinHold, 15*time.Second)
	def(&c.MaxHold, 5*time.Minute)
	def(&c.MaxRetryAfter, 10*time.Minute)
	def(&c.MaxRefusals, 8)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// check returns the endpoint, or what is wrong. Texts hold no values, since an
// endpoint or a header may be a secret.
func (c *Config) check() (*url.URL, error) {
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "":
		return nil, wrong("Endpoint", "is missing")
	case err != nil:
		return nil, wrong("Endpoint", "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, wrong("Endpoint", "must start with https:// or http://")
	case u.Hostname() == "":
		return nil, wrong("Endpoint", "has no host")
	case u.Fragment != "":
		return nil, wrong("Endpoint", "has a fragment, which is never sent")
	case u.Scheme == "http" && !c.AllowPlaintext && !loopback(u.Hostname()):
		return nil, &ConfigError{Field: "Endpoint", Err: ErrPlaintext}
	}
	if c.Compression != "gzip" && c.Compression != "none" {
		return nil, wrong("Compression", "is neither gzip nor none")
	}
	if c.Body != "structured" && c.Body != "json" {
		return nil, wrong("Body", "is neither structured nor json")
	}
	for name, v := range map[string]int64{
		"Timeout": int64(c.Timeout), "MaxBatchRecords": int64(c.MaxBatchRecords), "MaxBatchBytes": int64(c.MaxBatchBytes),
		"MaxRequestBytes": int64(c.MaxRequestBytes), "MaxInFlightBytes": int64(c.MaxInFlightBytes), "Workers": int64(c.Workers),
		"MinBackoff": int64(c.MinBackoff), "MaxBackoff": int64(c.MaxBackoff), "MinHold": int64(c.MinHold), "MaxHold": int64(c.MaxHold),
		"MaxRetryAfter": int64(c.MaxRetryAfter), "StopGrace": int64(c.StopGrace), "MaxRefusals": int64(c.MaxRefusals),
	} {
		if v < 0 {
			return nil, wrong(name, "is negative")
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return nil, wrong("TLS", "needs a certificate and a key, or neither")
	}
	if c.TLS != (TLS{}) && u.Scheme != "https" {
		return nil, wrong("TLS", "is set, but the endpoint is not https")
	}
	return u, nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
