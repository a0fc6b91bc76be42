package otlp

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otel-bridge/otel-bridge/internal/receiver"
	"github.com/otel-bridge/otel-bridge/telemetry"
)

// No variable of the environment changes what is sent, where to, or how.
func TestAHostileEnvironmentChangesNothing(t *testing.T) {
	other := startReceiver(t, receiver.Options{})
	ca := newAuthority(t)
	for k, v := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": other.URL(), "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": other.URL(),
		"OTEL_EXPORTER_OTLP_HEADERS": "x-evil=1", "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "x-evil=1,authorization=evil",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION": "gzip",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "1", "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT": "1",
		"OTEL_EXPORTER_OTLP_INSECURE": "true", "OTEL_EXPORTER_OTLP_LOGS_INSECURE": "true",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": ca.certFile, "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE": ca.certFile,
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": ca.certFile, "OTEL_EXPORTER_OTLP_CLIENT_KEY": ca.keyFile,
		"OTEL_EXPORTER_OTLP_PROTOCOL":                 "grpc",
		"OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT": "5", "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT": "2",
		"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "5", "OTEL_ATTRIBUTE_COUNT_LIMIT": "2",
		"OTEL_RESOURCE_ATTRIBUTES": "evil=1,service.name=evil,deployment.environment.name=evil", "OTEL_SERVICE_NAME": "evil",
		"OTEL_SDK_DISABLED": "true", "OTEL_LOGS_EXPORTER": "none", "OTEL_BLRP_MAX_QUEUE_SIZE": "1",
		"HTTP_PROXY": other.URL(), "http_proxy": other.URL(), "ALL_PROXY": other.URL(),
	} {
		t.Setenv(k, v)
	}
	deep := attribute.StringValue("bottom")
	for range 100 {
		deep = attribute.SliceValue(deep)
	}
	r := record("session-with-a-long-id", 0, `{"text":"`+strings.Repeat("long ", 1000)+`"}`)
	for i := range 200 {
		r.Attributes = append(r.Attributes, attribute.String(fmt.Sprintf("attribute.%03d", i), strings.Repeat("v", 300)))
	}
	r.Attributes = append(r.Attributes, attribute.KeyValue{Key: "deep", Value: deep})
	bare := record("session-with-a-long-id", 1, `1`)
	bare.Resource = nil
	m := newMemory()
	m.add("s", stored(t, r), stored(t, bare))
	s := startReceiver(t, receiver.Options{})
	cfg := quick(s.URL())
	cfg.Compression = "none"
	cfg.Timeout = patience
	cfg.Headers = map[string]string{"x-mine": "2"}
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if n := other.Totals().Requests; n != 0 {
		t.Errorf("%d requests went to the environment's endpoint", n)
	}
	recs := s.Records()
	if len(recs) != 2 {
		t.Fatalf("%d records", len(recs))
	}
	for _, got := range recs {
		res := attrs(got.Resource.GetAttributes())
		if seq := attrs(got.Log.GetAttributes())[telemetry.KeyEventSeq].GetIntValue(); seq == 1 {
			if len(res) != 0 {
				t.Errorf("a record without a resource got %v", res)
			}
			continue
		}
		if len(res) != 2 || res["service.name"].GetStringValue() != "agent" || res["service.instance.id"].GetStringValue() != "i-1" {
			t.Errorf("resource %v", res)
		}
		a := attrs(got.Log.GetAttributes())
		if len(a) != len(r.AllAttributes()) || a[telemetry.KeySessionID].GetStringValue() != "session-with-a-long-id" || len(a["attribute.199"].GetStringValue()) != 300 || got.Log.GetDroppedAttributesCount() != 0 {
			t.Errorf("%d attributes, want %d: %.200v", len(a), len(r.AllAttributes()), a)
		}
		v := a["deep"]
		for v.GetArrayValue() != nil {
			v = v.GetArrayValue().GetValues()[0]
		}
		if v.GetStringValue() != "bottom" {
			t.Error("a deep attribute was cut")
		}
	}
	h := s.Requests()[0].Header
	if h.Get("X-Evil") != "" || h.Get("Authorization") != "" || h.Get("Content-Encoding") != "" || h.Get("X-Mine") != "2" {
		t.Errorf("headers %v", h)
	}
}

// CASES 36: credentials are in no error, state, log line or quarantine entry,
// also when the receiver echoes them.
func TestCredentialsShowNowhere(t *testing.T) {
	const token, pass, key, fileToken, asked = "tok-3f9a8b7c6d", "pa55-w0rd-9x", "qk-77aa88bb99", "ft-1234567890", "as-0987654321"
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("X-File: "+fileToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets := []string{token, pass, key, fileToken, asked, base64.StdEncoding.EncodeToString([]byte("user:" + pass))}
	for _, spec := range []string{
		"401:message=ECHO", "400:message=ECHO", "503:message=ECHO", "302:location=http://user:" + pass + "@127.0.0.1/?k=" + key, "html", "reset", "hang",
		"partial=1:message=ECHO", "warn=ECHO", "418:message=ECHO", "413:message=ECHO",
	} {
		spec = strings.ReplaceAll(spec, "ECHO", "you sent "+strings.Join(secrets, " "))
		m := newMemory()
		fill(t, m, "s", 2)
		s := startReceiver(t, receiver.Options{Behavior: behavior(t, spec)})
		endpoint := strings.Replace(s.URL(), "http://", "http://user:"+pass+"@", 1) + "?key=" + key
		cfg := quick(endpoint)
		cfg.Timeout = 200 * time.Millisecond
		cfg.Headers = map[string]string{"X-Token": "Bearer " + token}
		cfg.HeadersFile = file
		cfg.HeadersFunc = func() (map[string]string, error) { return map[string]string{"X-Asked": asked}, nil }
		var l logs
		cfg.Logger = l.logger()
		d := newDeliverer(t, m, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		ended := make(chan struct{})
		go func() { // that many have seen everything
			defer close(ended)
			for s.Totals().Requests < 8 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		err := d.Drain(ctx)
		cancel()
		<-ended
		shown := fmt.Sprintf("%v %+v %+v %v %s %v", err, d.State(), m.quarantined(), Check(t.Context(), cfg), l.String(), errors.Unwrap(err))
		for _, secret := range secrets {
			if strings.Contains(shown, secret) {
				t.Errorf("%.20s: %q shows in %s", spec, secret, shown)
			}
		}
		if strings.Contains(spec, "message=") && strings.Contains(spec, "400") && !strings.Contains(shown, "you sent") {
			t.Errorf("%.20s: the receiver's words are gone: %s", spec, shown)
		}
		got := s.Requests()[0]
		if got.Header.Get("X-Token") != "Bearer "+token || got.Header.Get("X-File") != fileToken || !strings.HasPrefix(got.Header.Get("Authorization"), "Basic ") {
			t.Errorf("%.20s: headers %v", spec, got.Header)
		}
	}
	for _, cfg := range []Config{
		{Endpoint: "https://user:" + pass + "@\x7f/"}, {Endpoint: "ftp://user:" + pass + "@host/"}, {Endpoint: "http://user:" + pass + "@collector.example.com/"},
		{Endpoint: "https://h/", Headers: map[string]string{"a": token + "\n"}}, {Endpoint: "https://h/", Headers: map[string]string{token + " ": "x"}},
		{Endpoint: "https://h/", Headers: map[string]string{"Content-Type": token}}, {Endpoint: "https://h/#" + key}, {Endpoint: "https://h/", Compression: token}, {Endpoint: "https://h/", Body: token},
	} {
		_, err := New(newMemory(), cfg)
		var wrong *ConfigError
		if !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", cfg, err)
			continue
		}
		for _, secret := range secrets {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q shows in %v", secret, err)
			}
		}
	}
}

func TestWithoutARedactorNoWordOfTheReceiverIsKept(t *testing.T) {
	for _, redact := range []func(string) string{nil, func(string) string { panic("x") }} {
		m := newMemory()
		fill(t, m, "s", 2)
		s := startReceiver(t, receiver.Options{Script: []receiver.Behavior{behavior(t, "partial=1:message=QUOTE")}})
		cfg := quick(s.URL())
		cfg.Redact = redact
		var l logs
		cfg.Logger = l.logger()
		d := newDeliverer(t, m, cfg)
		drain(t, d)
		q := m.quarantined()
		if len(q) != 2 || !strings.Contains(q[0].ReceiverWords, "1 of 2") || strings.Contains(q[0].ReceiverWords+l.String(), "QUOTE") {
			t.Errorf("%+v %s", q, l.String())
		}
	}
	m := newMemory()
	fill(t, m, "s", 1)
	s := startReceiver(t, receiver.Options{Behavior: behavior(t, "400:message=it holds jane@example.com")})
	cfg := quick(s.URL())
	cfg.Redact = func(s string) string { return strings.ReplaceAll(s, "jane@example.com", "[REDACTED:pii-email]") }
	d := newDeliverer(t, m, cfg)
	drain(t, d)
	if q := m.quarantined(); q[0].ReceiverWords != "it holds [REDACTED:pii-email]" {
		t.Errorf("%+v", q)
	}
}

func TestConfigurationsThatAreNotSafeOrMakeNoSenseAreRefused(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	for field, cfgs := range map[string][]Config{
		"Endpoint": {{}, {Endpoint: "localhost:4318"}, {Endpoint: "https://"}, {Endpoint: "http://collector.example.com/v1/logs"}, {Endpoint: "http://10.0.0.1:4318/v1/logs"},
			{Endpoint: "http://127.0.0.1.example.com/"}, {Endpoint: "http://localhost.example.com/"}, {Endpoint: "http://[::2]/"}},
		"Workers":      {{Endpoint: "https://h/", Workers: -1}},
		"Timeout":      {{Endpoint: "https://h/", Timeout: -1}},
		"TLS":          {{Endpoint: "https://h/", TLS: TLS{CertFile: "x"}}, {Endpoint: "http://localhost/", TLS: TLS{CAFile: "x"}}},
		"TLS.CertFile": {{Endpoint: "https://h/", TLS: TLS{CertFile: "/nope", KeyFile: "/nope"}}, {Endpoint: "https://h/", TLS: TLS{CertFile: "secure_test.go", KeyFile: a.keyFile}}},
		"TLS.KeyFile":  {{Endpoint: "https://h/", TLS: TLS{CertFile: a.certFile, KeyFile: "/nope"}}, {Endpoint: "https://h/", TLS: TLS{CertFile: a.certFile, KeyFile: a.certFile}}, {Endpoint: "https://h/", TLS: TLS{CertFile: a.certFile, KeyFile: b.keyFile}}},
		"TLS.CAFile":   {{Endpoint: "https://h/", TLS: TLS{CAFile: "/nope"}}, {Endpoint: "https://h/", TLS: TLS{CAFile: "secure_test.go"}}},
		"HeadersFile":  {{Endpoint: "https://h/", HeadersFile: "/nope"}, {Endpoint: "https://h/", HeadersFile: "secure_test.go"}},
	} {
		for _, cfg := range cfgs {
			_, err := New(newMemory(), cfg)
			var wrong *ConfigError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%+v: %v, want an error about %s", cfg, err, field)
			}
		}
	}
	for _, ok := range []Config{
		{Endpoint: "http://127.0.0.1:4318/v1/logs"}, {Endpoint: "http://127.9.9.9/"}, {Endpoint: "http://[::1]:4318/v1/logs"}, {Endpoint: "http://LOCALHOST/x"}, {Endpoint: "http://[::ffff:127.0.0.1]/"},
		{Endpoint: "http://collector.example.com/v1/logs", AllowPlaintext: true}, {Endpoint: "https://collector.example.com/v1/logs"},
	} {
		if _, err := New(newMemory(), ok); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	if _, err := New(newMemory(), Config{Endpoint: "http://collector.example.com/"}); !errors.Is(err, ErrPlaintext) {
		t.Errorf("%v", err)
	}
}

// A name that was judged to be this machine may resolve to another one.
func TestPlaintextIsRefusedByAddressToo(t *testing.T) {
	cfg := Config{Endpoint: "http://localhost/", Proxy: func(*http.Request) (*url.URL, error) {
		return &url.URL{Scheme: "http", Host: "192.0.2.1:80"}, nil // TEST-NET: never dialled
	}}
	m := newMemory()
	fill(t, m, "s", 1)
	cfg.MinHold = time.Hour
	d := newDeliverer(t, m, cfg)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
	if reason := d.State().Reason; !strings.Contains(reason, "plain http") {
		t.Error(reason)
	}
}

func TestHeadersAreReadAgainWhenTheyChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		t.Helper()
		// Replaced as a mounted secret is.
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("authorization: Bearer one\nx-both: file\n\n# comment\n")
	s := startReceiver(t, receiver.Options{})
	cfg := quick(s.URL())
	cfg.Headers = map[string]string{"x-both": "fixed", "x-fixed": "1", "Host": "virtual.example.com"}
	cfg.HeadersFile = file
	m := newMemory()
	d := newDeliverer(t, m, cfg)
	for _, step := range []struct{ text, want string }{
		{"", "Bearer one"},
		{"authorization: Bearer three-3\n", "Bearer three-3"},
		{"half written", "Bearer three-3"}, // the last good ones stay
		{"authorization:Bearer 4", "Bearer 4"},
	} {
		if step.text != "" {
			write(step.text)
		}
		fill(t, m, "s", 1)
		drain(t, d)
		all := s.Requests()
		h := all[len(all)-1].Header
		if h.Get("Authorization") != step.want || h.Get("X-Fixed") != "1" {
			t.Errorf("after %q: %v", step.text, h)
		}
	}
	if got := s.Requests()[0].Header.Get("X-Both"); got != "file" {
		t.Errorf("x-both is %q", got)
	}

	n := 0
	cfg.HeadersFunc = func() (map[string]string, error) {
		n++
		if n == 2 {
			return nil, errors.New("vault says TOPSECRET")
		}
		return map[string]string{"Authorization": fmt.Sprintf("Bearer f%d", n)}, nil
	}
	d = newDeliverer(t, m, cfg)
	fill(t, m, "s", 1)
	drain(t, d)
	fill(t, m, "s", 1)
	drain(t, d)
	all := s.Requests()
	if got := all[len(all)-1].Header.Get("Authorization"); got != "Bearer f3" {
		t.Errorf("authorization %q after a failing function", got)
	}
}

// authority is a test CA with a certificate for loopback and one for a client.
type authority struct {
	cert              *x509.Certificate
	key               *ecdsa.PrivateKey
	certFile, keyFile string
	dir               string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.certFile, a.keyFile = a.write(t, "ca", der, a.key)
	return a
}

func (a *authority) write(t *testing.T, name string, der []byte, key *ecdsa.PrivateKey) (certFile, keyFile string) {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

func (a *authority) issue(t *testing.T, name string, serial int64, until time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return a.write(t, name, der, key)
}

func (a *authority) server(t *testing.T, until time.Time) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(a.issue(t, "server", 2, until))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, MinVersion: tls.VersionTLS12}
}

func TestTLSProblemsHoldAndSayWhatToMend(t *testing.T) {
	a := newAuthority(t)
	valid := time.Now().Add(time.Hour)
	mutual := a.server(t, valid)
	mutual.ClientAuth = tls.RequireAndVerifyClientCert
	trusted := TLS{CAFile: a.certFile}
	for name, c := range map[string]struct {
		server *tls.Config
		tls    TLS
		scheme string
		reason string // empty: delivered
	}{
		"trusted":            {server: a.server(t, valid), tls: trusted},
		"not trusted":        {server: a.server(t, valid), reason: "trusted authority"},
		"other name":         {server: a.server(t, valid), tls: TLS{CAFile: a.certFile, ServerName: "other.example.com"}, reason: "another name"},
		"expired":            {server: a.server(t, time.Now().Add(-time.Hour)), tls: trusted, reason: "expired"},
		"plain on the port":  {tls: trusted, scheme: "https", reason: "does not speak TLS"},
		"no client's":        {server: mutual, tls: trusted, reason: "client certificate"},
		"TLS on a http port": {server: a.server(t, valid), scheme: "http", reason: "use https"},
	} {
		m := newMemory()
		fill(t, m, "s", 1)
		s := startReceiver(t, receiver.Options{TLS: c.server})
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		if c.scheme != "" {
			u.Scheme = c.scheme
		}
		cfg := quick(u.String())
		cfg.TLS = c.tls
		cfg.MinHold, cfg.MaxHold = time.Hour, time.Hour
		d := newDeliverer(t, m, cfg)
		if c.reason == "" {
			drain(t, d)
			continue
		}
		until(t, d, name, func() bool { return d.State().Status == Holding })
		if reason := d.State().Reason; !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %s", name, reason)
		}
		if _, _, pending := m.counts(); pending != 1 {
			t.Errorf("%s: not kept", name)
		}
	}
}

func TestAClientCertificateIsReadAgainWhenItChanges(t *testing.T) {
	a := newAuthority(t)
	server := a.server(t, time.Now().Add(time.Hour))
	server.ClientAuth = tls.RequireAndVerifyClientCert
	var mu sync.Mutex
	var serials []int64
	server.VerifyConnection = func(cs tls.ConnectionState) error {
		mu.Lock()
		defer mu.Unlock()
		serials = append(serials, cs.PeerCertificates[0].SerialNumber.Int64())
		return nil
	}
	s := startReceiver(t, receiver.Options{TLS: server})
	cfg := quick(s.URL())
	cfg.TLS.CAFile = a.certFile
	cfg.TLS.CertFile, cfg.TLS.KeyFile = a.issue(t, "client", 100, time.Now().Add(time.Hour))
	m := newMemory()
	d := newDeliverer(t, m, cfg)
	d.base.(*connections).transport.DisableKeepAlives = true // a handshake for each request
	fill(t, m, "s", 1)
	drain(t, d)
	a.issue(t, "client", 1<<40, time.Now().Add(time.Hour))
	fill(t, m, "s", 1)
	drain(t, d)
	if err := os.WriteFile(cfg.TLS.CertFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	fill(t, m, "s", 1)
	drain(t, d)
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(serials) != fmt.Sprint([]int64{100, 1 << 40, 1 << 40}) {
		t.Errorf("certificates %v", serials)
	}
}

// An authority that is not the receiver's holds everything; another one in its
// file is taken without a restart, and a broken file leaves it.
func TestAuthoritiesAreReadAgainWhenTheyChange(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	s := startReceiver(t, receiver.Options{TLS: a.server(t, time.Now().Add(time.Hour))})
	cfg := quick(s.URL())
	cfg.TLS.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	put := func(pem []byte) {
		if err := os.WriteFile(cfg.TLS.CAFile, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(a *authority) []byte {
		pem, err := os.ReadFile(a.certFile)
		if err != nil {
			t.Fatal(err)
		}
		return pem
	}
	put(read(other))
	cfg.MinHold, cfg.MaxHold = time.Hour, time.Hour
	m := newMemory()
	fill(t, m, "s", 1)
	d := newDeliverer(t, m, cfg)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
	put(append(read(other), read(a)...))
	drain(t, d)
	put([]byte("half"))
	fill(t, m, "s", 1)
	drain(t, d)
	put(read(other))
	fill(t, m, "s", 1)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
}

// A client certificate that has run out holds everything; a new one is taken
// without a restart.
func TestANewClientCertificateEndsAHold(t *testing.T) {
	a := newAuthority(t)
	server := a.server(t, time.Now().Add(time.Hour))
	server.ClientAuth = tls.RequireAndVerifyClientCert
	s := startReceiver(t, receiver.Options{TLS: server})
	cfg := quick(s.URL())
	cfg.TLS.CAFile = a.certFile
	cfg.TLS.CertFile, cfg.TLS.KeyFile = a.issue(t, "client", 100, time.Now().Add(-time.Hour))
	cfg.MinHold, cfg.MaxHold = time.Hour, time.Hour
	m := newMemory()
	fill(t, m, "s", 1)
	d := newDeliverer(t, m, cfg)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
	a.issue(t, "client", 1<<40, time.Now().Add(time.Hour))
	drain(t, d)
}

func TestAProxyIsUsedAndItsRefusalIsUnderstood(t *testing.T) {
	a := newAuthority(t)
	s := startReceiver(t, receiver.Options{TLS: a.server(t, time.Now().Add(time.Hour))})
	var mu sync.Mutex
	refuse := 407
	connects := 0
	proxy := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		status := refuse
		connects++
		mu.Unlock()
		if r.Method != http.MethodConnect || status != 0 {
			w.WriteHeader(status)
			return
		}
		up, err := net.Dial("tcp", s.Addr())
		if err != nil {
			w.WriteHeader(502)
			return
		}
		down, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(up, down); _ = up.Close() }()
		_, _ = io.Copy(down, up)
		_ = down.Close()
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { _ = proxy.Serve(l); close(served) }()
	defer func() { _ = proxy.Close(); <-served }()

	m := newMemory()
	fill(t, m, "s", 3)
	cfg := quick(s.URL())
	cfg.TLS.CAFile = a.certFile
	cfg.MinHold, cfg.MaxHold = time.Hour, time.Hour
	cfg.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword("u", "proxy-pass")})
	d := newDeliverer(t, m, cfg)
	until(t, d, "hold", func() bool { return d.State().Status == Holding })
	if st := d.State(); !strings.Contains(st.Reason, "proxy answered 407") || strings.Contains(st.Reason, "proxy-pass") {
		t.Errorf("%+v", st)
	}
	mu.Lock()
	refuse = 503
	mu.Unlock()
	d.TryNow()
	until(t, d, "retry", func() bool { return d.State().Status == Retrying })
	mu.Lock()
	refuse = 0
	mu.Unlock()
	drain(t, d)
	if len(uids(s)) != 3 || connects < 3 {
		t.Errorf("%d received, %d CONNECTs", len(uids(s)), connects)
	}
}

// The answer's length, speed and compression cost bounded memory and time.
func TestAnswersAreReadWithinBounds(t *testing.T) {
	var gz bytes.Buffer
	w := gzipWriter(&gz)
	_, _ = w.Write(make([]byte, 64<<20))
	_ = w.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/header" {
			rw.Header().Set("X-Long", strings.Repeat("x", 300<<10))
			return
		}
		rw.Header().Set("Content-Type", "application/x-protobuf")
		rw.Header().Set("Content-Encoding", "gzip")
		_, _ = rw.Write(gz.Bytes())
	})}
	served := make(chan struct{})
	go func() { _ = srv.Serve(l); close(served) }()
	defer func() { _ = srv.Close(); <-served }()
	for _, path := range []string{"/bomb", "/header"} {
		m := newMemory()
		fill(t, m, "s", 1)
		cfg := quick("http://" + l.Addr().String() + path)
		cfg.MinHold, cfg.MinBackoff = time.Hour, time.Hour
		d := newDeliverer(t, m, cfg)
		until(t, d, path, func() bool { return !d.State().Ready() })
		if _, _, pending := m.counts(); pending != 1 {
			t.Errorf("%s: not kept: %+v", path, d.State())
		}
	}
}
