package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// outcome is what became of one request.
type outcome uint8

const (
	acked       outcome = iota // the receiver has it
	refusedAll                 // the receiver refuses what it was sent: find the record
	refusedSome                // it took some, and does not say which
	tooLarge                   // split
	retryLater                 // the receiver can't now
	holdAll                    // something has to be mended first
	stopped                    // we gave up: shutdown
)

// verdict is a judged answer. Reason is made here and free of content; words
// are the receiver's, bounded but not yet safe.
type verdict struct {
	outcome    outcome
	status     int
	reason     string
	words      string
	rejected   int64
	retryAfter time.Duration // 0: none
	size       int           // of the request before compression
}

const (
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
	// maxWords bounds what is kept of a receiver's words.
	maxWords = 1 << 10
)

// judge says what an answer to a request of sent records means.
func judge(resp *http.Response, body []byte, sent int) verdict {
	v := verdict{status: resp.StatusCode, retryAfter: retryAfter(resp.Header)}
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return judgeSuccess(v, resp.Header.Get("Content-Type"), body, sent)
	case status >= 300 && status < 400:
		v.outcome = holdAll
		v.reason = fmt.Sprintf("%d from receiver: a redirect%s, which is no acknowledgement; set the endpoint to the final address", status, redirectHost(resp.Header))
		return v
	}
	v.words = errorWords(resp.Header.Get("Content-Type"), body)
	v.outcome, v.reason = judgeStatus(v.status, v.words)
	return v
}

// keptAndTried ends the reasons for trying again. Check, which keeps nothing,
// leaves it out.
const keptAndTried = "; everything is kept and tried again"

func judgeStatus(status int, words string) (outcome, string) {
	o, what := holdAll, "not an answer that OTLP/HTTP knows"
	switch status {
	case 408, 500, 502, 503, 504:
		o, what = retryLater, "not available"+keptAndTried
	case 429:
		o, what = retryLater, "too many requests"+keptAndTried
	case 413:
		o, what = tooLarge, "request too large"
	case 400:
		switch {
		case saysTooLarge(words):
			o, what = tooLarge, "request too large"
		case saysTLS(words):
			what = "it speaks TLS on this port; use https in the endpoint"
		default:
			o, what = refusedAll, "request refused"
		}
	case 422:
		o, what = refusedAll, "request refused"
	case 401:
		what = "credentials refused; mend headers or headers_file"
	case 402:
		what = "payment or quota required; see to the account"
	case 403:
		what = "not permitted; the credentials lack the right to write logs here"
	case 404:
		what = "no such path; the endpoint usually ends with /v1/logs"
	case 405:
		what = "POST is not allowed; the endpoint is not an OTLP/HTTP path"
	case 407:
		what = "the proxy wants credentials"
	case 415:
		what = "media type or compression not accepted; it may not take OTLP protobuf or gzip"
	case 501:
		what = "not implemented; it may not take logs"
	}
	return o, fmt.Sprintf("%d from receiver: %s", status, what)
}

// saysTooLarge recognises how servers say 413 with a 400: Go's
// MaxBytesReader, gRPC gateways, nginx.
func saysTooLarge(words string) bool {
	w := strings.ToLower(words)
	return strings.Contains(w, "too large") || strings.Contains(w, "larger than max")
}

// saysTLS recognises how servers (Go, nginx) answer plain HTTP on a TLS port:
// with a 400 that has nothing to do with any record. It must be their words and
// no quotation, since a record may say the same.
func saysTLS(words string) bool {
	w := strings.ToLower(words)
	return strings.HasPrefix(w, "client sent an http request to an https server") ||
		strings.HasPrefix(w, "<html> <head><title>400 the plain http request was sent to https port</title>")
}

func judgeSuccess(v verdict, contentType string, body []byte, sent int) verdict {
	if len(bytes.TrimSpace(body)) == 0 {
		return v
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = ""
	}
	partial, ok := partialSuccess(media, body)
	if !ok {
		v.outcome = holdAll
		v.reason = fmt.Sprintf("%d from receiver with %s that is no OTLP answer: a login page or another server stands there; check the endpoint", v.status, mediaWords(media))
		return v
	}
	v.rejected, v.words = partial.GetRejectedLogRecords(), bound(partial.GetErrorMessage())
	switch {
	case v.rejected == 0:
		return v
	case v.rejected < 0:
		v.outcome, v.reason = holdAll, fmt.Sprintf("%d from receiver: a partial success with a negative count", v.status)
	case v.rejected >= int64(sent):
		v.outcome, v.reason = refusedAll, fmt.Sprintf("partial success: all %d records refused", sent)
	default:
		v.outcome, v.reason = refusedSome, fmt.Sprintf("partial success: %d of %d records refused, not known which", v.rejected, sent)
	}
	return v
}

// mediaWords names the usual media types and no other: a state tells nothing
// that a receiver could have put in.
func mediaWords(media string) string {
	switch media {
	case "text/html", "text/plain", "text/xml", "application/xml", "application/json", "application/grpc",
		"application/octet-stream", "application/x-protobuf", "application/protobuf":
		return media
	}
	return "a media type"
}

// partialSuccess reads an OTLP logs answer. An answer with fields, none of
// which is partial_success, is another server's: {"error":"not logged in"}.
func partialSuccess(media string, body []byte) (*collogs.ExportLogsPartialSuccess, bool) {
	var resp collogs.ExportLogsServiceResponse
	switch media {
	case "application/x-protobuf", "application/protobuf":
		if err := proto.Unmarshal(body, &resp); err != nil {
			return nil, false
		}
		if resp.PartialSuccess == nil && len(resp.ProtoReflect().GetUnknown()) > 0 {
			return nil, false
		}
	case "application/json":
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &resp); err != nil {
			return nil, false
		}
		if resp.PartialSuccess == nil {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(body, &fields); err != nil {
				return nil, false
			}
			_, camel := fields["partialSuccess"]
			_, snake := fields["partial_success"]
			if len(fields) > 0 && !camel && !snake { // null is allowed
				return nil, false
			}
		}
	default:
		return nil, false
	}
	return resp.PartialSuccess, true
}

// errorWords takes the message out of an error answer: a google.rpc.Status in
// protobuf or JSON, else the text.
func errorWords(contentType string, body []byte) string {
	media, _, _ := mime.ParseMediaType(contentType)
	switch media {
	case "application/x-protobuf", "application/protobuf":
		return bound(statusMessage(body))
	case "application/json":
		var status struct {
			Message string `json:"message"`
		}
		if err := json.Unmarshal(body, &status); err == nil && status.Message != "" {
			return bound(status.Message)
		}
	}
	return bound(string(body[:min(len(body), 4*maxWords)]))
}

// statusMessage is field 2 of google.rpc.Status.
func statusMessage(b []byte) string {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if num == 2 && typ == protowire.BytesType {
			msg, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return ""
			}
			return string(msg[:min(len(msg), 4*maxWords)])
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return ""
		}
		b = b[n:]
	}
	return ""
}

// bound makes words printable on one line and short.
func bound(words string) string {
	words = strings.ToValidUTF8(words, "\uFFFD")
	words = strings.Join(strings.FieldsFunc(words, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	}), " ")
	if len(words) <= maxWords {
		return words
	}
	cut := maxWords
	for !utf8.RuneStart(words[cut]) {
		cut--
	}
	return words[:cut] + "…"
}

// redirectHost says where a redirect leads, without path, query or user info.
func redirectHost(h http.Header) string {
	u, err := url.Parse(h.Get("Location"))
	if err != nil || u.Hostname() == "" || len(u.Host) > 255 || strings.Trim(u.Host, hostCharacters) != "" {
		return ""
	}
	if u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "" {
		return ""
	}
	return " to " + strings.TrimPrefix(u.Scheme+"://"+u.Host, "://")
}

const hostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:[]"

// retryAfter reads seconds, also with a fraction, or any of HTTP's dates. A
// date counts from the answer's own Date, since the two clocks may differ.
func retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		switch {
		case !(s > 0): // NaN too
			return 0
		case s > 1e6:
			s = 1e6
		}
		return time.Duration(s * float64(time.Second))
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}

// proxyError is a proxy's refusal to make a tunnel.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return fmt.Sprintf("proxy answered %d", e.status) }

// proxyAnswer judges the answer to CONNECT by its status, which net/http would
// turn into text.
func proxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{resp.StatusCode}
}

// judgeError says what a failure without an answer means. Of err only its kind
// is told: its text may hold an address with credentials or bytes of an answer.
func judgeError(err error, host string) verdict {
	retry := func(what string) verdict {
		return verdict{outcome: retryLater, reason: what + " (" + host + ")" + keptAndTried}
	}
	hold := func(what string) verdict { return verdict{outcome: holdAll, reason: what} }

	var (
		proxy    *proxyError
		dns      *net.DNSError
		cert     *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		name     x509.HostnameError
		record   tls.RecordHeaderError
		op       *net.OpError
		timedOut net.Error
	)
	switch {
	case errors.As(err, &proxy):
		o, _ := judgeStatus(proxy.status, "")
		if o == retryLater {
			return retry(proxy.Error())
		}
		return hold(proxy.Error() + " and makes no tunnel to the receiver; check the proxy's settings")
	case errors.Is(err, ErrPlaintext):
		return hold("the endpoint's name leads off this machine: " + ErrPlaintext.Error())
	case errors.As(err, &name):
		return hold("TLS: the receiver's certificate is for another name than " + host)
	case errors.As(err, &unknown):
		return hold("TLS: the receiver's certificate is not signed by a trusted authority; set tls.ca_file")
	case errors.As(err, &cert):
		return hold("TLS: the receiver's certificate is not valid (expired, perhaps)")
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return hold("TLS: the receiver does not speak TLS on this port; check scheme and port of the endpoint")
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"):
		return hold("TLS: the handshake failed; a client certificate may be missing or not trusted")
	case errors.Is(err, context.DeadlineExceeded):
		return retry("no whole answer within the time-out")
	case errors.As(err, &dns):
		return retry("name of the receiver not found")
	case errors.Is(err, syscall.ECONNREFUSED):
		return retry("connection refused")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return retry("connection reset")
	case errors.As(err, &timedOut) && timedOut.Timeout():
		return retry("time-out")
	case strings.HasPrefix(err.Error(), "tls: "):
		return hold("TLS: no secure connection to the receiver")
	case strings.Contains(err.Error(), "malformed HTTP"):
		return hold("what answers does not speak HTTP; check the endpoint's port")
	}
	return retry("connection failed")
}
