package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"
)

// connections are those to the receiver, shared by all workers. They are made
// anew when a file that they rest on has changed. Authorities that do not load
// (half replaced, say) leave the last good ones.
type connections struct {
	cfg  *Config
	url  *url.URL
	cert *clientCert

	mu        sync.Mutex
	loaded    fileStamp // state of the authorities' file at the latest load
	looked    fileStamp // and when changed looked
	transport *http.Transport
}

// newConnections reads all files once, so that a mistake shows at the start.
func newConnections(c *Config, u *url.URL) (*connections, error) {
	cs := &connections{cfg: c, url: u, cert: &clientCert{certFile: c.TLS.CertFile, keyFile: c.TLS.KeyFile}}
	if c.TLS.CertFile != "" {
		cert, key := CheckClientFiles(c.TLS.CertFile, c.TLS.KeyFile)
		switch {
		case cert != nil:
			return nil, &ConfigError{Field: "TLS.CertFile", Err: cert}
		case key != nil:
			return nil, &ConfigError{Field: "TLS.KeyFile", Err: key}
		}
		if _, err := cs.cert.get(nil); err != nil {
			return nil, &ConfigError{Field: "TLS", Err: err}
		}
	}
	if err := cs.load(stampOf(c.TLS.CAFile)); err != nil {
		return nil, &ConfigError{Field: "TLS.CAFile", Err: err}
	}
	return cs, nil
}

// load reads the authorities. The caller holds mu, or is the only one.
func (c *connections) load(now fileStamp) error {
	c.loaded, c.looked = now, now
	var roots *x509.CertPool
	if c.cfg.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.cfg.TLS.CAFile)
		if err != nil {
			return err
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return errors.New("holds no certificate in PEM form")
		}
	}
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	c.transport = newTransport(c.cfg, c.url, c.cert, roots)
	return nil
}

// RoundTrip sends over connections that fit the files as they are now.
func (c *connections) RoundTrip(req *http.Request) (*http.Response, error) {
	return c.current().RoundTrip(req)
}

func (c *connections) current() *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg.TLS.CAFile != "" {
		if now := stampOf(c.cfg.TLS.CAFile); now != c.loaded {
			_ = c.load(now) // the last good ones stay
		}
	}
	return c.transport
}

// CloseIdleConnections closes what no request uses.
func (c *connections) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transport.CloseIdleConnections()
}

// changed says once for each change of the files that there was one.
func (c *connections) changed() bool {
	if c.cert.changed() {
		c.CloseIdleConnections() // a connection keeps the certificate that it was made with
		return true
	}
	if c.cfg.TLS.CAFile == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := stampOf(c.cfg.TLS.CAFile)
	if now == c.looked {
		return false
	}
	c.looked = now
	return true
}

// newTransport makes connections that trust roots; nil: those of the system.
func newTransport(c *Config, u *url.URL, cert *clientCert, roots *x509.CertPool) *http.Transport {
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
		return t
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName, RootCAs: roots}
	if c.TLS.CertFile != "" {
		t.TLSClientConfig.GetClientCertificate = cert.get
	}
	return t
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
