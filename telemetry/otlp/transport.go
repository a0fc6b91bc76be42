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

// transport is one worker's way to the receiver, below its exporter. It puts
// the body in, compresses it, adds what is private (query, headers) and judges
// the answer before otlploghttp does. It is not safe for concurrent use; an
// exporter is not either.
//
// The body is not the exporter's, for three reasons. Its way there, by a tree of
// values for each record, a tree of messages and proto.Marshal, took three
// quarters of the time of delivery (BenchmarkEncode has both). The SDK makes no
// record whose resource is free of this process's OTEL_RESOURCE_ATTRIBUTES,
// which would relabel a backlog. And the size of a request has to be known
// before it is made, to split it. What is sent instead is the same message
// (TestEncodingIsWhatTheSDKSends).
type transport struct {
	next      http.RoundTripper
	url       *url.URL // without user info
	host      string   // for messages
	headers   *headers
	timeout   time.Duration
	gzip      *gzip.Writer // nil: send as it is
	userAgent string
	counts    *counters

	request request // the next one, set by the worker
	judged  bool    // it was made, and last says what became of it
	last    verdict
	body    *requestBody // of the last request: its memory may be used again
}

// RoundTrip always returns an empty 200 when there is a verdict: what the
// exporter makes of an answer is not used.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	_ = req.Body.Close()
	t.last = t.send(req.Context(), req.Header)
	t.last.size = t.request.size
	t.judged = true
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, Request: req,
	}, nil
}

// send makes one attempt with t.request.
func (t *transport) send(ctx context.Context, header http.Header) verdict {
	attempt, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	body, err := t.encode()
	if err != nil {
		return verdict{outcome: holdAll, reason: "the request cannot be compressed: " + err.Error()}
	}
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
	t.counts.rawBytes.Add(int64(t.request.size))
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return t.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return judge(resp, nil, t.request.records) // its body says nothing
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch success := resp.StatusCode < 300; {
	case len(answer) > maxAnswer && success:
		return verdict{outcome: holdAll, status: resp.StatusCode, reason: fmt.Sprintf("%d from receiver with an answer of more than %d bytes: no OTLP answer; check the endpoint", resp.StatusCode, maxAnswer)}
	case err != nil && success:
		return t.failed(ctx, err) // what was cut off may have been a refusal
	}
	return judge(resp, answer, t.request.records)
}

// failed tells a shutdown from what the receiver or the network did.
func (t *transport) failed(ctx context.Context, err error) verdict {
	if ctx.Err() != nil {
		return verdict{outcome: stopped}
	}
	return judgeError(err, t.host)
}

// encode returns the body to send. net/http may still read a body after
// RoundTrip has returned, so the last one's memory is used again only when it
// was read to its end.
func (t *transport) encode() (*requestBody, error) {
	var buf []byte
	if t.body != nil && t.body.done.Load() && !t.body.again.Load() && cap(t.body.data) <= maxKept {
		buf = t.body.data[:0]
	}
	out := bytes.NewBuffer(buf)
	if t.gzip == nil {
		out.Grow(t.request.size)
		t.request.write(out)
	} else {
		t.gzip.Reset(out)
		t.request.write(t.gzip)
		if err := t.gzip.Close(); err != nil {
			return nil, err
		}
	}
	t.body = &requestBody{data: out.Bytes()}
	return t.body, nil
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
