package otlp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// CheckClientFiles reads a client's certificate and key and says what is wrong with
// each; both nil when the pair loads. The texts hold neither paths nor content.
func CheckClientFiles(certFile, keyFile string) (cert, key error) {
	certPEM, cert := readFile(certFile)
	keyPEM, key := readFile(keyFile)
	if cert == nil {
		cert = checkCertificate(certPEM)
	}
	if key == nil {
		key = checkKey(keyPEM)
	}
	if cert == nil && key == nil {
		if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
			key = errors.New("is not the key of the certificate")
		}
	}
	return cert, key
}

// readFile reads a file; its errors are without its path.
func readFile(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	return b, bare(err)
}

// bare is an error of the file system without the path.
func bare(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func checkCertificate(b []byte) error {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New("holds a certificate that cannot be parsed")
		}
		return nil
	}
	return errors.New("holds no certificate in PEM form")
}

func checkKey(b []byte) error {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue
		}
		if strings.HasPrefix(block.Type, "ENCRYPTED") || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return errors.New("holds a key that is encrypted")
		}
		_, err8 := x509.ParsePKCS8PrivateKey(block.Bytes)
		_, err1 := x509.ParsePKCS1PrivateKey(block.Bytes)
		_, errEC := x509.ParseECPrivateKey(block.Bytes)
		if err8 != nil && err1 != nil && errEC != nil {
			return errors.New("holds a key that cannot be parsed")
		}
		return nil
	}
	return errors.New("holds no private key in PEM form")
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

// clientFiles are the files that requests rest on, as they were looked at last.
type clientFiles struct {
	mu       sync.Mutex
	stamps   [4]fileStamp
	problems []fileProblem
}

// fileProblem says why a file that was good once cannot be used any more.
type fileProblem struct{ file, why string }

func (p fileProblem) String() string {
	return "the " + p.file + " cannot be used: " + p.why + "; what was read from it before goes on"
}

// watchFiles looks at the files until ctx ends.
func (d *Deliverer) watchFiles(ctx context.Context) {
	for sleep(ctx, lookEvery) {
		d.lookAtFiles()
	}
}

// lookAtFiles reads again what has changed, says what cannot be used any more and what
// can again, and ends a hold, which a change may have mended.
func (d *Deliverer) lookAtFiles() {
	f, c := &d.files, &d.cfg
	f.mu.Lock()
	defer f.mu.Unlock()
	was, before := f.stamps, f.problems
	for i, path := range []string{c.HeadersFile, c.TLS.CAFile, c.TLS.CertFile, c.TLS.KeyFile} {
		f.stamps[i] = stampOf(path)
	}
	f.problems = nil
	note := func(file string, err error) {
		if err != nil {
			f.problems = append(f.problems, fileProblem{file, err.Error()})
		}
	}
	if c.HeadersFile != "" {
		d.headers.reload()
		note("headers file", d.headers.problem())
	}
	if cs, ok := d.base.(*connections); ok {
		ca, cert, key := cs.reload()
		note("CA file", ca)
		note("client certificate", cert)
		note("client key", key)
	}
	for _, p := range f.problems {
		if !slices.Contains(before, p) {
			c.Logger.Warn("a file of the exporter cannot be used; what was read from it before goes on", "file", p.file, "why", p.why)
		}
	}
	mended := f.stamps != was
	for _, p := range before {
		if !slices.ContainsFunc(f.problems, func(now fileProblem) bool { return now.file == p.file }) {
			c.Logger.Info("a file of the exporter can be used again", "file", p.file)
			mended = true
		}
	}
	if mended {
		d.closeIdle() // a connection keeps the certificate that it was made with
		d.circuit.mended()
	}
}

func (f *clientFiles) warnings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, p := range f.problems {
		out = append(out, p.String())
	}
	return out
}
