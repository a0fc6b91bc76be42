package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
)

// transport is one worker's way to the receiver: below its exporter, so that
// it sees each request as it is sent and judges each answer before otlploghttp
// does. It is not safe for concurrent use; an exporter is not either.
type transport struct {
	next      http.RoundTripper
	url       *url.URL // without user info
	host      string   // for messages
	headers   *headers
	timeout   time.Duration
	gzip      *gzip.Writer // nil: send as it is
	maxSize   int          // largest request sent, before compression
	userAgent string
	counts    *counters
	resources *resourceKeys

	// Set by the worker for one request.
	sent  int // records in it
	limit int // learned limit, 0: none; a single record is sent all the same

	judged bool
	last   verdict
	body   *requestBody // of the last compressed request: its memory may be used again
}

// RoundTrip always returns an empty 200 when there is a verdict: what the
// exporter makes of an answer is not used.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var whole grab
	_, err := io.Copy(&whole, req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	raw := t.resources.restore(whole)
	t.last = t.send(req.Context(), req.Header, raw)
	t.last.size = len(raw)
	t.judged = true
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, Request: req,
	}, nil
}

// send makes one attempt with an encoded request.
func (t *transport) send(ctx context.Context, header http.Header, raw []byte) verdict {
	if len(raw) > t.maxSize {
		return verdict{outcome: tooLarge, local: true, reason: fmt.Sprintf("request of %d bytes is over the sender's limit of %d", len(raw), t.maxSize)}
	}
	if t.limit > 0 && len(raw) > t.limit && t.sent > 1 {
		return verdict{outcome: tooLarge, local: true, reason: "over the receiver's known limit"}
	}
	attempt, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	body := t.encode(raw)
	req, err := http.NewRequestWithContext(attempt, http.MethodPost, t.url.String(), body)
	if err != nil {
		return verdict{outcome: holdAll, reason: "no request can be made for the endpoint"}
	}
	req.ContentLength = int64(len(body.data))
	// For a connection that the receiver closed while it was idle: net/http
	// sends again when nothing of the request has been answered or taken.
	req.GetBody = func() (io.ReadCloser, error) {
		body.again.Store(true)
		return &requestBody{data: body.data}, nil
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if t.gzip != nil {
		req.Header.Set("Content-Encoding", "gzip")
	}
	req.Header.Set("User-Agent", t.userAgent+header.Get("User-Agent"))
	if err := t.headers.apply(req); err != nil {
		return verdict{outcome: holdAll, reason: err.Error()}
	}
	t.counts.requests.Add(1)
	t.counts.wireBytes.Add(int64(len(body.data)))
	t.counts.rawBytes.Add(int64(len(raw)))
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return t.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return judge(resp, nil, t.sent) // its body says nothing
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch success := resp.StatusCode < 300; {
	case len(answer) > maxAnswer && success:
		return verdict{outcome: holdAll, status: resp.StatusCode, reason: fmt.Sprintf("%d from receiver with an answer of more than %d bytes: no OTLP answer; check the endpoint", resp.StatusCode, maxAnswer)}
	case err != nil && success:
		return t.failed(ctx, err) // what was cut off may have been a refusal
	}
	return judge(resp, answer, t.sent)
}

// failed tells a shutdown from what the receiver or the network did.
func (t *transport) failed(ctx context.Context, err error) verdict {
	if ctx.Err() != nil {
		return verdict{outcome: stopped}
	}
	return judgeError(err, t.host)
}

// grab takes the exporter's body over without a copy: its reader writes all of
// it at once, and the exporter makes a new one for each request.
type grab []byte

func (g *grab) Write(p []byte) (int, error) {
	if *g == nil {
		*g = p[:len(p):len(p)]
	} else {
		*g = append(*g, p...)
	}
	return len(p), nil
}

// encode returns the body to send. net/http may still read a body after
// RoundTrip has returned, so the last one's memory is used again only when it
// was read to its end.
func (t *transport) encode(raw []byte) *requestBody {
	if t.gzip == nil {
		return &requestBody{data: raw}
	}
	var buf []byte
	if t.body != nil && t.body.done.Load() && !t.body.again.Load() {
		buf = t.body.data[:0]
	}
	out := bytes.NewBuffer(buf)
	t.gzip.Reset(out)
	_, _ = t.gzip.Write(raw) // a bytes.Buffer does not fail
	_ = t.gzip.Close()
	t.body = &requestBody{data: out.Bytes()}
	return t.body
}

// requestBody notes when it has been read to its end, and when net/http has
// asked for another one over the same memory.
type requestBody struct {
	data  []byte
	off   int
	done  atomic.Bool
	again atomic.Bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.done.Load() {
		return 0, io.EOF
	}
	if b.off == len(b.data) {
		b.done.Store(true)
		return 0, io.EOF
	}
	n := copy(p, b.data[b.off:])
	b.off += n
	return n, nil
}

func (b *requestBody) Close() error { return nil }
