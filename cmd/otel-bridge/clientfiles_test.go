//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// replace puts a file in the place of another as a mounted secret is replaced.
func (r *rig) replace(path, text string) {
	r.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.rename(path+".new", path)
}

// readyz waits until the health page matches, or does not where want is false.
func (r *rig) readyz(expr string, want bool) {
	r.t.Helper()
	re := regexp.MustCompile(expr)
	r.poll(fmt.Sprintf("/readyz with %s: %v", expr, want), func() bool {
		page := r.page("/readyz")
		return page != "" && re.MatchString(page) == want
	}, func() string { return r.page("/readyz") })
}

// A headers file that cannot be used any more is said once for each thing that is
// wrong with it, at once and not when it is needed next; its content is not. What was
// read before goes on.
func TestAHeadersFileThatIsNoneAnyMoreIsTold(t *testing.T) {
	r := newRig(t)
	headers := filepath.Join(r.dir, "headers")
	r.replace(headers, "x-token: first-one\n")
	r.configure(fmt.Sprintf("exporter: { endpoint: %q, headers_file: %q }", r.srv.URL(), headers))
	r.write(r.path("s"), head("s"), row(0, "before"))
	r.start()
	r.awaitEvents("s", 0)
	r.readyz("headers file", false)

	const secret = "hunter2hunter2"
	r.replace(headers, "# comment\n"+secret+"-name: a\x01"+secret+"\n")
	r.awaitLog(`level=WARN msg="a file of the exporter cannot be used[^"]*" file="headers file" why="line 2: `)
	r.readyz("headers file cannot be used: line 2", true)
	if out := r.operate("status"); !strings.Contains(out, "headers file cannot be used: line 2") {
		t.Errorf("status says\n%s", out)
	}
	r.write(r.path("s"), row(1, "with the old header"))
	r.awaitEvents("s", 1)

	if err := os.Remove(headers); err != nil {
		t.Fatal(err)
	}
	r.awaitLog(`file="headers file" why="no such file`)
	r.readyz("headers file cannot be used: no such file", true)
	r.write(r.path("s"), row(2, "and still"))
	r.awaitEvents("s", 2)
	for _, req := range r.srv.Requests() {
		if got := req.Header.Get("X-Token"); got != "first-one" {
			t.Errorf("a request with header %q", got)
		}
	}

	r.replace(headers, "x-token: second\n")
	r.awaitLog(`level=INFO msg="a file of the exporter can be used again" file="headers file"`)
	r.readyz("headers file", false)
	r.write(r.path("s"), row(3, "with the new header"))
	r.awaitEvents("s", 3)
	requests := r.srv.Requests()
	if got := requests[len(requests)-1].Header.Get("X-Token"); got != "second" {
		t.Errorf("the last request has header %q", got)
	}
	r.stop()
	if n := r.logs("a file of the exporter cannot be used"); n != 2 {
		t.Errorf("said %d times, of two changes", n)
	}
	if strings.Contains(strings.ToLower(string(r.log.bytes())), secret) {
		t.Error("content of the file is in the log")
	}
	r.once("s", 3)
}

// The same goes for the files of TLS, also while nothing can be sent.
func TestFilesOfTLSThatCannotBeUsedAnyMoreAreTold(t *testing.T) {
	r := newRig(t)
	cert, key := selfSigned(t)
	ca, certFile, keyFile := filepath.Join(r.dir, "ca.pem"), filepath.Join(r.dir, "cert.pem"), filepath.Join(r.dir, "key.pem")
	good := map[string]string{ca: cert, certFile: cert, keyFile: key}
	for path, text := range good {
		r.replace(path, text)
	}
	r.configure("shutdown_timeout: 1s", fmt.Sprintf("exporter: { endpoint: 'https://127.0.0.1:1/v1/logs', tls: { ca_file: %q, cert_file: %q, key_file: %q } }", ca, certFile, keyFile))
	r.start()
	r.readyz("cannot be used", false)
	names := map[string]string{ca: "CA file", certFile: "client certificate", keyFile: "client key"}
	for path := range names {
		r.replace(path, "half")
	}
	for _, name := range names {
		r.awaitLog(fmt.Sprintf(`level=WARN msg="a file of the exporter cannot be used[^"]*" file=%q why="holds no `, name))
		r.readyz(name+" cannot be used: holds no ", true)
	}
	for path := range names {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		r.awaitLog(fmt.Sprintf(`file=%q why="no such file`, name))
	}
	for path, text := range good {
		r.replace(path, text)
	}
	for _, name := range names {
		r.awaitLog(fmt.Sprintf(`msg="a file of the exporter can be used again" file=%q`, name))
	}
	r.readyz("cannot be used", false)
	r.stop()
}

// The key of the action "token" is read at a start and a reload only, so that one
// that is damaged would show at the next one and not before.
func TestAKeyFileThatIsNoneAnyMoreIsTold(t *testing.T) {
	r := newRig(t)
	key := filepath.Join(r.dir, "key")
	good := strings.Repeat("k3y-", 8)
	r.replace(key, good)
	r.configure(fmt.Sprintf("redact: { key_file: %q }", key))
	r.write(r.path("s"), head("s"), row(0, "before"))
	r.start()
	r.awaitEvents("s", 0)
	r.readyz("key_file", false)

	const garbage = "hunter2"
	r.replace(key, garbage)
	r.awaitLog(`level=WARN msg="redact.key_file cannot be used any more[^"]*" why=`)
	r.readyz("redact.key_file cannot be used any more", true)
	r.write(r.path("s"), row(1, "with the key that was read"))
	r.awaitEvents("s", 1)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	r.awaitLog(`msg="redact.key_file cannot be used any more[^"]*" why="[^"]*no such file`)
	r.replace(key, good)
	r.awaitLog(`level=INFO msg="redact.key_file can be used again"`)
	r.readyz("key_file", false)
	r.stop()
	if n := r.logs("redact.key_file cannot be used"); n != 2 {
		t.Errorf("said %d times, of two changes", n)
	}
	if strings.Contains(string(r.log.bytes()), garbage) {
		t.Error("content of the file is in the log")
	}
	r.once("s", 1)
}

// selfSigned is a certificate and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", pkcs8)
}
