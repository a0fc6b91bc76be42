package otlp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// maxHeadersFile bounds what is read of a headers file.
const maxHeadersFile = 64 << 10

// headers are the sender's own headers: fixed ones, a file's, a function's.
type headers struct {
	fixed http.Header
	file  string
	ask   func() (map[string]string, error)

	mu      sync.Mutex
	stamp   fileStamp
	ofFile  http.Header
	fileErr error
	asked   http.Header // the function's latest
}

// newHeaders checks everything once, so that a mistake shows at the start.
func newHeaders(c *Config, u *url.URL) (*headers, error) {
	h := &headers{fixed: make(http.Header), file: c.HeadersFile, ask: c.HeadersFunc}
	if u.User != nil {
		pass, _ := u.User.Password()
		h.fixed.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+pass)))
	}
	if err := addHeaders(h.fixed, c.Headers); err != nil {
		return nil, &ConfigError{Field: "Headers", Err: err}
	}
	if h.file != "" {
		h.reload()
		if h.fileErr != nil {
			return nil, &ConfigError{Field: "HeadersFile", Err: h.fileErr}
		}
	}
	return h, nil
}

// apply puts the headers on req. It fails only when a function fails.
func (h *headers) apply(req *http.Request) error {
	set(req, h.fixed)
	if h.file != "" {
		set(req, h.reload())
	}
	if h.ask == nil {
		return nil
	}
	asked, err := h.ask()
	if err != nil {
		return errors.New("headers are not available") // err may hold a secret
	}
	dst := make(http.Header, len(asked))
	if err := addHeaders(dst, asked); err != nil {
		return err
	}
	h.mu.Lock()
	h.asked = dst
	h.mu.Unlock()
	set(req, dst)
	return nil
}

func set(req *http.Request, h http.Header) {
	for name, values := range h {
		if name == "Host" {
			req.Host = values[0]
			continue
		}
		req.Header[name] = values
	}
}

// reload returns the file's headers, read again if the file has changed, or could
// not be read. What can't be read leaves the last good ones.
func (h *headers) reload() http.Header {
	h.mu.Lock()
	defer h.mu.Unlock()
	stamp := stampOf(h.file)
	if h.ofFile != nil && h.fileErr == nil && stamp == h.stamp {
		return h.ofFile
	}
	fresh, err := readHeaders(h.file)
	h.fileErr = err
	if err == nil {
		h.ofFile = fresh
	}
	h.stamp = stamp
	return h.ofFile
}

// problem is why the file could not be read the last time, or nil.
func (h *headers) problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fileErr
}

// secrets calls fn with every value that must not show anywhere.
func (h *headers) secrets(fn func(string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, set := range []http.Header{h.fixed, h.ofFile, h.asked} {
		for _, values := range set {
			for _, v := range values {
				fn(v)
				if _, token, ok := strings.Cut(v, " "); ok { // "Bearer TOKEN"
					fn(token)
				}
			}
		}
	}
}

// readHeaders reads a headers file. Its errors hold nothing of it.
func readHeaders(path string) (http.Header, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, bare(err)
	}
	if info.Size() > maxHeadersFile {
		return nil, fmt.Errorf("is larger than %d bytes", maxHeadersFile)
	}
	raw, err := readFile(path)
	if err != nil {
		return nil, err
	}
	h := make(http.Header)
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("line %d is not \"name: value\"", n)
		}
		value = strings.TrimSpace(value)
		if !httpguts.ValidHeaderFieldValue(value) { // what it is the value of may be anything too
			return nil, fmt.Errorf("line %d: the header's value is not valid", n)
		}
		if err := addHeader(h, strings.TrimSpace(name), value); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return h, nil
}

func addHeaders(dst http.Header, src map[string]string) error {
	for name, value := range src {
		if err := addHeader(dst, name, value); err != nil {
			return err
		}
	}
	return nil
}

// addHeader refuses what would break the request. Its errors name the header
// only when the name is well formed.
func addHeader(dst http.Header, name, value string) error {
	if !httpguts.ValidHeaderFieldName(name) {
		return errors.New("a header's name is not valid")
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("the value of header %s is not valid", name)
	}
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Content-Type", "Content-Encoding", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Te", "Upgrade", "Expect", "Accept-Encoding":
		return fmt.Errorf("header %s belongs to the sender", name)
	}
	dst[name] = []string{value}
	return nil
}
