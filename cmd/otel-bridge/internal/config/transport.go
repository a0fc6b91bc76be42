package config

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/otlp"
)

// applyStandardEnv reads the variables that OpenTelemetry's specification names
// (OTLP exporter and resource configuration). The signal's own variable goes
// before the general one.
func (l *loader) applyStandardEnv() {
	if l.cfg.Mode != telemetry.Disabled || l.transport {
		l.resourceFromEnv()
		l.podFromEnv()
	}
	if !l.transport {
		return
	}
	x := &l.cfg.Exporter
	if v, name := l.otlpEnv("ENDPOINT"); v != "" {
		if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			// The general endpoint is a base; the signal's own is used as it is.
			v = strings.TrimRight(v, "/") + "/v1/logs"
		} else if u, err := url.Parse(v); err == nil && u.Path == "" {
			u.Path = "/"
			v = u.String()
		}
		x.Endpoint = v
		l.where["exporter.endpoint"] = Problem{File: name}
		l.endpointFromEnv = true
	}
	if v, name := l.otlpEnv("HEADERS"); v != "" {
		for _, pair := range strings.Split(v, ",") {
			if strings.TrimSpace(pair) == "" {
				continue
			}
			k, val, ok := strings.Cut(pair, "=")
			k = strings.TrimSpace(k)
			val, err := url.PathUnescape(strings.TrimSpace(val))
			if !ok || err != nil {
				l.add(Problem{File: name, Message: "is a list of name=value pairs, separated by commas, values URL-encoded"})
				break
			}
			if msg := headerProblem(k, val); msg != "" {
				l.add(Problem{File: name, Message: msg})
				continue
			}
			x.Headers[strings.ToLower(k)] = Secret(val)
		}
	}
	if v, name := l.otlpEnv("COMPRESSION"); v != "" {
		l.setFromEnv("exporter.compression", v, name)
	}
	if v, name := l.otlpEnv("TIMEOUT"); v != "" {
		ms, err := strconv.ParseInt(v, 10, 32)
		if err != nil || ms <= 0 {
			l.add(Problem{File: name, Message: "is not a number of milliseconds above zero"})
		} else {
			x.Timeout = time.Duration(ms) * time.Millisecond
		}
	}
	for _, c := range []struct{ suffix, key string }{
		{"CERTIFICATE", "exporter.tls.ca_file"},
		{"CLIENT_CERTIFICATE", "exporter.tls.cert_file"},
		{"CLIENT_KEY", "exporter.tls.key_file"},
	} {
		if v, name := l.otlpEnv(c.suffix); v != "" {
			l.setFromEnv(c.key, v, name)
		}
	}
}

func (l *loader) setFromEnv(key, v, name string) {
	f, _ := fieldByKey(key)
	l.where[key] = Problem{File: name}
	if err := f.set(l.cfg, v, ""); err != nil {
		l.add(Problem{File: name, Message: err.Error()})
	}
}

// otlpEnv returns the first non-empty variable for the suffix; the
// specification has an empty variable count as one that is not set.
func (l *loader) otlpEnv(suffix string) (value, name string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_LOGS_", "OTEL_EXPORTER_OTLP_"} {
		if v, _ := l.opts.LookupEnv(prefix + suffix); strings.TrimSpace(v) != "" {
			return strings.TrimSpace(v), prefix + suffix
		}
	}
	return "", ""
}

// podVariables are the names that manifests commonly give to what the downward
// API tells of a Pod, and the attributes that the conventions have for it.
var podVariables = []struct{ variable, attribute string }{
	{"POD_NAME", "k8s.pod.name"},
	{"POD_UID", "k8s.pod.uid"},
	{"POD_NAMESPACE", "k8s.namespace.name"},
	{"NODE_NAME", "k8s.node.name"},
	{"CONTAINER_NAME", "k8s.container.name"},
}

// podFromEnv says which Pod this is, where nothing else has said so. It does only
// inside a cluster: other systems have variables of these names for other things.
func (l *loader) podFromEnv() {
	if v, _ := l.opts.LookupEnv("KUBERNETES_SERVICE_HOST"); v == "" {
		return
	}
	for _, p := range podVariables {
		if v, _ := l.opts.LookupEnv(p.variable); v != "" && l.cfg.Resource[p.attribute] == "" {
			l.cfg.Resource[p.attribute] = v
		}
	}
}

func (l *loader) resourceFromEnv() {
	if v, _ := l.opts.LookupEnv("OTEL_RESOURCE_ATTRIBUTES"); v != "" {
		add := make(map[string]string)
		for _, pair := range strings.Split(v, ",") {
			if strings.TrimSpace(pair) == "" {
				continue
			}
			k, val, ok := strings.Cut(pair, "=")
			k = strings.TrimSpace(k)
			val, err := url.PathUnescape(strings.TrimSpace(val))
			if !ok || k == "" || err != nil {
				// The specification: any error, and the whole variable is discarded.
				l.warn("OTEL_RESOURCE_ATTRIBUTES is not a list of key=value pairs; it is ignored")
				add = nil
				break
			}
			add[k] = val
		}
		for k, v := range add {
			l.cfg.Resource[k] = v
		}
	}
	if v, _ := l.opts.LookupEnv("OTEL_SERVICE_NAME"); v != "" {
		l.cfg.Resource["service.name"] = v
	}
}

// checkTransport checks what only shows when every source has been read.
func (l *loader) checkTransport() {
	x := &l.cfg.Exporter
	l.checkEndpoint()
	l.checkOwnFile()
	l.readHeadersFile()
	if v, name := l.otlpEnv("PROTOCOL"); v != "" && v != "http/protobuf" {
		if l.endpointFromEnv {
			l.add(Problem{File: name, Message: "asks for a protocol that is not spoken here; only http/protobuf is, so set OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/protobuf and an endpoint for it"})
		} else {
			l.warn("%s is ignored: only http/protobuf is spoken", name)
		}
	}

	if x.TLS.CAFile != "" {
		pem, err := os.ReadFile(x.TLS.CAFile)
		if err != nil {
			l.failAt("exporter.tls.ca_file", "cannot be read: %s", reason(err))
		} else if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			l.failAt("exporter.tls.ca_file", "holds no PEM certificate")
		}
	}
	switch {
	case x.TLS.CertFile == "" && x.TLS.KeyFile == "":
	case x.TLS.KeyFile == "":
		l.failAt("exporter.tls.cert_file", "needs exporter.tls.key_file beside it")
	case x.TLS.CertFile == "":
		l.failAt("exporter.tls.key_file", "needs exporter.tls.cert_file beside it")
	default:
		cert, key := otlp.CheckClientFiles(x.TLS.CertFile, x.TLS.KeyFile)
		if cert != nil {
			l.failAt("exporter.tls.cert_file", "%s", cert)
		}
		if err := privateFile(x.TLS.KeyFile); err != nil {
			l.failAt("exporter.tls.key_file", "%s", err)
		} else if key != nil {
			l.failAt("exporter.tls.key_file", "%s", key)
		}
	}
}

func (l *loader) checkEndpoint() {
	x := &l.cfg.Exporter
	const key = "exporter.endpoint"
	if x.Endpoint == "" {
		// An endpoint that was set and not understood has its problem already.
		if _, tried := l.where[key]; l.cfg.Mode != telemetry.Disabled && !l.opts.NoEndpoint && (!tried || len(l.problems) == 0) {
			p := Problem{File: l.opts.File, Key: key}
			p.Message = "is needed to send anything: set it in the file, with --endpoint, or with OTEL_EXPORTER_OTLP_ENDPOINT"
			l.add(p)
		}
		return
	}
	u, err := url.Parse(x.Endpoint)
	switch {
	case err != nil:
		l.failAt(key, "is not a URL")
		return
	case u.Port() != "" && !isPort(u.Port()):
		l.failAt(key, "has a port that there is not: they are 1 to 65535")
		return
	case u.Scheme != "http" && u.Scheme != "https":
		l.failAt(key, "must start with http:// or https://")
		return
	case u.Hostname() == "":
		l.failAt(key, "names no host")
		return
	case u.User != nil:
		l.failAt(key, "holds a user name or password; put them into exporter.headers, as authorization")
		return
	case u.Fragment != "" || u.RawQuery != "":
		l.failAt(key, "holds a query or fragment, which a receiver's address does not have")
		return
	}
	if u.Path == "" || u.Path == "/" && !l.endpointFromEnv {
		u.Path = "/v1/logs"
	}
	x.Endpoint = u.String()
	if u.Scheme == "http" && !isLoopback(u.Hostname()) && !x.AllowPlaintext {
		l.failAt(key, "is plain http to a host that is not loopback; use https, or say exporter.allow_plaintext: true")
	}
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// isLoopback is true for names and addresses that cannot leave the machine. A
// name other than localhost is not resolved: what it means may change.
func isLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// isCredential is true for the usual names of headers that open a door.
func isCredential(header string) bool {
	header = strings.ToLower(header)
	for _, word := range []string{"authorization", "cookie", "token", "secret", "password", "api-key", "apikey"} {
		if strings.Contains(header, word) {
			return true
		}
	}
	return false
}

// checkOwnFile warns of credentials that are written out in a file for all to read.
func (l *loader) checkOwnFile() {
	if l.credential == "" || !checksPermissions {
		return
	}
	if st, err := os.Stat(l.opts.File); err == nil && st.Mode().Perm()&0o077 != 0 {
		l.warn("%s has a value for the header %q and can be read by others; chmod 600 it, or use headers_file or ${env:NAME}", l.opts.File, l.credential)
	}
}

// maxHeadersFile is far more than any set of headers that a server takes.
const maxHeadersFile = 64 << 10

func (l *loader) readHeadersFile() {
	x := &l.cfg.Exporter
	if x.HeadersFile == "" {
		return
	}
	st, err := os.Stat(x.HeadersFile)
	if err != nil {
		l.failAt("exporter.headers_file", "cannot be read: %s", reason(err))
		return
	}
	if st.Size() > maxHeadersFile {
		l.failAt("exporter.headers_file", "is larger than %s", Size(maxHeadersFile))
		return
	}
	text, err := os.ReadFile(x.HeadersFile)
	if err != nil {
		l.failAt("exporter.headers_file", "cannot be read: %s", reason(err))
		return
	}
	if st.Mode().Perm()&0o077 != 0 && checksPermissions {
		l.warn("%s can be read by others; chmod 600 it", x.HeadersFile)
	}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		msg := "a line is `name: value`"
		if ok {
			msg = headerProblem(name, value)
		}
		if msg != "" {
			l.add(Problem{File: x.HeadersFile, Line: i + 1, Column: 1, Message: msg})
			continue
		}
		x.Headers[strings.ToLower(name)] = Secret(value)
	}
}

// headerProblem checks a header without ever repeating its value.
func headerProblem(name, value string) string {
	if name == "" {
		return "a header needs a name"
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return fmt.Sprintf("%q is not a header name", name)
		}
	}
	switch strings.ToLower(name) {
	case "content-type", "content-encoding", "content-length", "transfer-encoding", "host", "connection":
		return fmt.Sprintf("the header %q is set by the exporter itself", name)
	}
	for i := 0; i < len(value); i++ {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Sprintf("the value of the header %q holds a control character", name)
		}
	}
	return ""
}
