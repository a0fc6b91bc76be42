package otlp

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"strings"
)

// CheckClientFiles reads a client's certificate and key and says what is wrong with
// each; both nil when the pair loads. The texts hold neither paths nor content.
func CheckClientFiles(certFile, keyFile string) (cert, key error) {
	certPEM, cert := readPEM(certFile)
	keyPEM, key := readPEM(keyFile)
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

func readPEM(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return b, err
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
