package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
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
	// CAFile has the authorities to trust instead of the system's.
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
		"MaxRetryAfter": int64(c.MaxRetryAfter), "MaxRefusals": int64(c.MaxRefusals),
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

// newTransport makes the connections. It is shared by all workers.
func newTransport(c *Config, u *url.URL, cert *clientCert) (*http.Transport, error) {
	dialer := &net.Dialer{Timeout: c.Timeout, KeepAlive: 30 * time.Second}
	if u.Scheme == "http" && !c.AllowPlaintext {
		// A name such as localhost may resolve to anything.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			if ap, err := netip.ParseAddrPort(address); err != nil || !ap.Addr().Unmap().IsLoopback() {
				return ErrPlaintext
			}
			return nil
		}
	}
	t := &http.Transport{
		Proxy:                  c.Proxy,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           c.Workers,
		MaxIdleConnsPerHost:    c.Workers,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    c.Timeout,
		MaxResponseHeaderBytes: 256 << 10,
		OnProxyConnectResponse: proxyAnswer,
	}
	if u.Scheme != "https" {
		return t, nil
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return nil, &ConfigError{Field: "TLS.CAFile", Err: err}
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, wrong("TLS.CAFile", "holds no certificate in PEM form")
		}
	}
	if c.TLS.CertFile != "" {
		if _, err := cert.get(nil); err != nil {
			return nil, &ConfigError{Field: "TLS", Err: err}
		}
		t.TLSClientConfig.GetClientCertificate = cert.get
	}
	return t, nil
}

// clientCert reads a certificate again when one of its files has changed. A
// pair that does not load (half replaced, say) leaves the last good one.
type clientCert struct {
	certFile, keyFile string

	mu     sync.Mutex
	loaded [2]fileStamp // state of the files at the latest load
	looked [2]fileStamp // and when changed looked
	cert   *tls.Certificate
}

func (c *clientCert) stamps() [2]fileStamp {
	return [2]fileStamp{stampOf(c.certFile), stampOf(c.keyFile)}
}

func (c *clientCert) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.stamps()
	if c.cert != nil && now == c.loaded {
		return c.cert, nil
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	switch {
	case err == nil:
		c.cert = &cert
	case c.cert == nil:
		return nil, fmt.Errorf("client certificate does not load: %w", err)
	}
	c.loaded, c.looked = now, now
	return c.cert, nil
}

// changed says once for each change of the files that there was one.
func (c *clientCert) changed() bool {
	if c.certFile == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.stamps()
	if now == c.looked {
		return false
	}
	c.looked = now
	return true
}

// fileStamp tells two states of a file apart.
type fileStamp struct {
	mod  time.Time
	size int64
}

// stampOf returns the zero stamp for a file that is not there.
func stampOf(path string) fileStamp {
	info, err := os.Stat(path) // follows the links of a mounted secret
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.ModTime(), info.Size()}
}
