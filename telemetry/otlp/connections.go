package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
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
	err       error     // of that load
	transport *http.Transport
}

// newConnections reads all files once, so that a mistake shows at the start.
func newConnections(c *Config, u *url.URL) (*connections, error) {
	cs := &connections{cfg: c, url: u, cert: &clientCert{certFile: c.TLS.CertFile, keyFile: c.TLS.KeyFile}}
	if c.TLS.CertFile != "" {
		cert, key := cs.cert.reload()
		switch {
		case cert != nil:
			return nil, &ConfigError{Field: "TLS.CertFile", Err: cert}
		case key != nil:
			return nil, &ConfigError{Field: "TLS.KeyFile", Err: key}
		}
	}
	if err := cs.load(stampOf(c.TLS.CAFile)); err != nil {
		return nil, &ConfigError{Field: "TLS.CAFile", Err: err}
	}
	return cs, nil
}

// load reads the authorities. The caller holds mu, or is the only one.
func (c *connections) load(now fileStamp) error {
	c.loaded = now
	var roots *x509.CertPool
	if c.cfg.TLS.CAFile != "" {
		pem, err := readFile(c.cfg.TLS.CAFile)
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
		if now := stampOf(c.cfg.TLS.CAFile); now != c.loaded || c.err != nil {
			c.err = c.load(now) // the last good ones stay
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

// reload reads the files that have changed, or could not be used, and says what
// is wrong with them. The texts hold neither paths nor content.
func (c *connections) reload() (ca, cert, key error) {
	c.current()
	c.mu.Lock()
	ca = c.err
	c.mu.Unlock()
	cert, key = c.cert.reload()
	return ca, cert, key
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
	cert   *tls.Certificate
	// What was wrong then.
	certErr, keyErr error
}

// reload says what is wrong with the files, both nil where there are none.
func (c *clientCert) reload() (cert, key error) {
	if c.certFile == "" {
		return nil, nil
	}
	_, _ = c.get(nil) // what it says is kept
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.certErr, c.keyErr
}

func (c *clientCert) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [2]fileStamp{stampOf(c.certFile), stampOf(c.keyFile)}
	if c.cert != nil && now == c.loaded && c.certErr == nil && c.keyErr == nil {
		return c.cert, nil
	}
	c.loaded = now
	c.certErr, c.keyErr = CheckClientFiles(c.certFile, c.keyFile)
	if c.certErr == nil && c.keyErr == nil {
		cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
		if err == nil {
			c.cert = &cert
		} else {
			c.certErr = errors.New("changes while it is read") // it was good just now
		}
	}
	if c.cert == nil {
		return nil, errors.New("client certificate does not load")
	}
	return c.cert, nil
}
