package receiver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Path is where logs are received.
const Path = "/v1/logs"

const (
	// defaultMaxRequest bounds a decoded request.
	defaultMaxRequest = 64 << 20
	// inWork bounds how many requests are decoded at the same time.
	inWork = 8
	// dripEvery is the pause between two bytes of a Drip answer.
	dripEvery = 100 * time.Millisecond
)

// loginPage is what HTML answers, as a captive portal would.
const loginPage = `<!doctype html><html><head><title>Sign in</title></head><body><form action="/login">Sign in to continue</form></body></html>`

// Options configure a [Server]. The zero value accepts everything on a free
// loopback port and keeps nothing.
type Options struct {
	Addr       string        // empty: 127.0.0.1:0
	File       *File         // nil: records are counted, not written
	Behavior   Behavior      // what it answers after the script
	Script     []Behavior    // what the first requests are answered, in order
	For        time.Duration // misbehave this long after the start, then accept; 0: always
	Keep       int           // how many of the latest requests to remember
	MaxRequest int64         // decoded bytes; 0: 64 MiB
	TLS        *tls.Config   // nil: plain HTTP
	Logger     *slog.Logger  // nil: silent
}

// Request is one remembered request.
type Request struct {
	Time      time.Time
	Header    http.Header
	WireBytes int64 // as received
	Bytes     int64 // decoded
	Records   int   // in the request
	Kept      int   // accepted and, with a File, durable
	Answer    Behavior
	Logs      *collogs.ExportLogsServiceRequest // what was kept
}

// Record is one accepted record with what stood around it.
type Record struct {
	Resource *resource.Resource
	Scope    *common.InstrumentationScope
	Log      *logs.LogRecord
}

// Totals count since the start.
type Totals struct {
	Requests, Records, Kept, WireBytes, Bytes int64
}

// Server is a running receiver.
type Server struct {
	opts  Options
	addr  net.Addr
	http  *http.Server
	start time.Time
	slots chan struct{}
	stop  chan struct{} // closed by Close: hanging handlers return
	done  chan struct{} // closed when Serve has returned
	work  sync.WaitGroup

	mu       sync.Mutex
	behavior Behavior
	script   []Behavior
	requests []Request
	totals   Totals
	closed   bool
}

// Start listens and serves until [Server.Close].
func Start(opts Options) (*Server, error) {
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	if opts.MaxRequest <= 0 {
		opts.MaxRequest = defaultMaxRequest
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := net.Listen("tcp", opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("receiver cannot listen on %s: %w", opts.Addr, err)
	}
	s := &Server{
		opts:     opts,
		addr:     l.Addr(),
		start:    time.Now(),
		slots:    make(chan struct{}, inWork),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		behavior: opts.Behavior,
		script:   opts.Script,
	}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		TLSConfig:         opts.TLS,
		ErrorLog:          log.New(io.Discard, "", 0), // handshake noise of hostile tests
	}
	go func() {
		defer close(s.done)
		if opts.TLS != nil {
			_ = s.http.ServeTLS(l, "", "")
		} else {
			_ = s.http.Serve(l)
		}
	}()
	return s, nil
}

// Addr is the address it listens on.
func (s *Server) Addr() string { return s.addr.String() }

// URL is the endpoint for logs.
func (s *Server) URL() string {
	if s.opts.TLS != nil {
		return "https://" + s.Addr() + Path
	}
	return "http://" + s.Addr() + Path
}

// Close ends all connections, hanging ones too, and waits for the handlers.
// The File stays open: it is its opener's to close.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	err := s.http.Close()
	<-s.done
	s.work.Wait()
	return err
}

// SetBehavior changes the answer for all requests from now on and ends the
// script.
func (s *Server) SetBehavior(b Behavior) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behavior, s.script = b, nil
}

// Requests returns the remembered requests, oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Records returns the accepted records of the remembered requests.
func (s *Server) Records() []Record {
	var out []Record
	for _, r := range s.Requests() {
		for _, rl := range r.Logs.GetResourceLogs() {
			for _, sl := range rl.GetScopeLogs() {
				for _, lr := range sl.GetLogRecords() {
					out = append(out, Record{Resource: rl.GetResource(), Scope: sl.GetScope(), Log: lr})
				}
			}
		}
	}
	return out
}

// Totals returns the counts since the start.
func (s *Server) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totals
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()

	if r.URL.Path != Path {
		http.Error(w, "no such path; logs are received at "+Path, http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST is received here", http.StatusMethodNotAllowed)
		return
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isJSON := media == "application/json"
	if !isJSON && media != "application/x-protobuf" {
		http.Error(w, "want application/x-protobuf or application/json", http.StatusUnsupportedMediaType)
		return
	}
	s.receive(w, r, isJSON)
}

func (s *Server) receive(w http.ResponseWriter, r *http.Request, isJSON bool) {
	a := answer{w: w, r: r, json: isJSON, stop: s.stop}
	req := Request{Time: time.Now(), Header: r.Header.Clone()}
	behavior, status, err := s.take(r, isJSON, &req)
	if err != nil {
		behavior = Behavior{Kind: Refuse, Status: status, Message: err.Error()}
	}
	req.Answer = behavior
	s.remember(&req)
	s.opts.Logger.Debug("request", "records", req.Records, "kept", req.Kept, "bytes", req.Bytes)
	a.give(behavior, req.Records-req.Kept)
}

// take reads, judges and keeps one request; it holds a slot only that long.
// An error comes with the status to refuse with.
func (s *Server) take(r *http.Request, isJSON bool, req *Request) (Behavior, int, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.stop:
		return Behavior{}, http.StatusServiceUnavailable, errors.New("receiver is closing")
	case <-r.Context().Done():
		return Behavior{}, http.StatusServiceUnavailable, r.Context().Err()
	}
	raw, status, err := s.read(r, req)
	if err != nil {
		return Behavior{}, status, err
	}
	msg, err := decode(raw, isJSON)
	if err != nil {
		return Behavior{}, http.StatusBadRequest, err
	}
	req.Records = count(msg)
	b := s.choose(raw)
	switch b.Kind {
	case OK, Lost:
		req.Kept = req.Records
	case Partial:
		req.Kept = dropLast(msg, req.Records, b.Rejected)
	default:
		return b, 0, nil
	}
	if req.Kept == 0 {
		return b, 0, nil
	}
	req.Logs = msg
	if s.opts.File == nil {
		return b, 0, nil
	}
	if err := s.opts.File.Append(AppendJSON(make([]byte, 0, 2*len(raw)), msg)); err != nil {
		req.Kept, req.Logs = 0, nil
		s.opts.Logger.Error("records could not be written; the sender is told to try again", "err", err)
		return Behavior{}, http.StatusServiceUnavailable, errors.New("records could not be written; try again")
	}
	return b, 0, nil
}

func (s *Server) read(r *http.Request, req *Request) ([]byte, int, error) {
	limit := s.opts.MaxRequest
	wire := &counter{r: http.MaxBytesReader(nil, r.Body, limit)}
	body := io.Reader(wire)
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(wire)
		if err != nil {
			return nil, http.StatusBadRequest, errors.New("body is not gzip")
		}
		defer func() { _ = z.Close() }()
		body = z
	case "zstd":
		z, err := zstd.NewReader(wire, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(limit)))
		if err != nil {
			return nil, http.StatusBadRequest, errors.New("body is not zstd")
		}
		defer z.Close()
		body = z
	default:
		return nil, http.StatusUnsupportedMediaType, errors.New("content encoding is not gzip, zstd or identity")
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= limit {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(body, limit+1))
	req.WireBytes, req.Bytes = wire.n, n
	if tooLarge := new(http.MaxBytesError); n > limit || errors.As(err, &tooLarge) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, http.StatusRequestEntityTooLarge, errors.New("http: request body too large")
	}
	if err != nil {
		return nil, http.StatusBadRequest, errors.New("body could not be read")
	}
	return buf.Bytes(), 0, nil
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func decode(raw []byte, isJSON bool) (*collogs.ExportLogsServiceRequest, error) {
	if isJSON {
		return ParseJSON(raw)
	}
	msg := new(collogs.ExportLogsServiceRequest)
	if err := proto.Unmarshal(raw, msg); err != nil {
		return nil, fmt.Errorf("body does not parse as an OTLP logs request (%d bytes)", len(raw))
	}
	return msg, nil
}

// choose takes the behaviour for this request off the script; a behaviour
// whose condition does not hold, and any after Options.For, is OK.
func (s *Server) choose(raw []byte) Behavior {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.behavior
	if len(s.script) > 0 {
		b, s.script = s.script[0], s.script[1:]
	}
	if s.opts.For > 0 && time.Since(s.start) >= s.opts.For {
		return Behavior{}
	}
	if b.If != "" && !bytes.Contains(raw, []byte(b.If)) || b.Over > 0 && int64(len(raw)) <= b.Over {
		return Behavior{}
	}
	return b
}

func count(msg *collogs.ExportLogsServiceRequest) int {
	n := 0
	for _, rl := range msg.GetResourceLogs() {
		for _, sl := range rl.GetScopeLogs() {
			n += len(sl.GetLogRecords())
		}
	}
	return n
}

// dropLast removes up to n records from the end of msg, which holds have,
// and returns how many are left.
func dropLast(msg *collogs.ExportLogsServiceRequest, have int, n int64) int {
	keep := have - int(min(n, int64(have)))
	left := keep
	for _, rl := range msg.GetResourceLogs() {
		for _, sl := range rl.GetScopeLogs() {
			k := min(left, len(sl.LogRecords))
			sl.LogRecords = sl.LogRecords[:k]
			left -= k
		}
	}
	return keep
}

func (s *Server) remember(req *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals.Requests++
	s.totals.Records += int64(req.Records)
	s.totals.Kept += int64(req.Kept)
	s.totals.WireBytes += req.WireBytes
	s.totals.Bytes += req.Bytes
	if s.opts.Keep <= 0 {
		return
	}
	if len(s.requests) >= s.opts.Keep {
		n := copy(s.requests, s.requests[1:])
		clear(s.requests[n:])
		s.requests = s.requests[:n]
	}
	s.requests = append(s.requests, *req)
}

// answer writes one answer.
type answer struct {
	w    http.ResponseWriter
	r    *http.Request
	json bool
	stop <-chan struct{}
}

func (a answer) give(b Behavior, rejected int) {
	switch b.Kind {
	case OK:
		status := b.Status
		if status == 0 {
			status = http.StatusOK
		}
		a.otlp(status, Behavior{}, 0)
	case Partial:
		a.otlp(http.StatusOK, b, int64(rejected))
	case Refuse:
		a.refuse(b)
	case Hang:
		a.wait(a.r.Context(), 0)
		panic(http.ErrAbortHandler) // returning would answer 200
	case Reset, Lost:
		a.reset()
	case HTML:
		a.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(a.w, loginPage)
	case Drip:
		a.pour(1, dripEvery)
		panic(http.ErrAbortHandler) // returning would end the body
	case Endless:
		a.pour(32<<10, 0)
		panic(http.ErrAbortHandler)
	}
}

// otlp writes an ExportLogsServiceResponse.
func (a answer) otlp(status int, b Behavior, rejected int64) {
	var resp collogs.ExportLogsServiceResponse
	if b.Kind == Partial && (rejected > 0 || b.Rejected == 0) {
		msg := b.Message
		if msg == "" {
			msg = "some records were refused"
		}
		resp.PartialSuccess = &collogs.ExportLogsPartialSuccess{RejectedLogRecords: rejected, ErrorMessage: msg}
	}
	media, body := "application/x-protobuf", []byte(nil)
	var err error
	if b.Encoding == JSON || b.Encoding == ByRequest && a.json {
		media = "application/json"
		body, err = protojson.Marshal(&resp)
	} else {
		body, err = proto.Marshal(&resp)
	}
	if err != nil { // only a behaviour with words that are not UTF-8
		a.refuse(Behavior{Status: http.StatusInternalServerError, Message: "the scripted answer is not valid UTF-8"})
		return
	}
	if b.Encoding == Charset {
		media += "; charset=utf-8"
	}
	a.w.Header().Set("Content-Type", media)
	a.w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusResetContent {
		_, _ = a.w.Write(body)
	}
}

func (a answer) refuse(b Behavior) {
	h := a.w.Header()
	if b.RetryAfter != "" {
		h.Set("Retry-After", b.RetryAfter)
	}
	if b.Status >= 300 && b.Status < 400 {
		loc := b.Location
		if loc == "" {
			loc = "/login"
		}
		h.Set("Location", loc)
	}
	msg := b.Message
	switch {
	case msg != "":
	case b.If != "":
		msg = "the request holds " + b.If
	case b.Over > 0:
		msg = "http: request body too large"
	default:
		msg = strings.ToLower(http.StatusText(b.Status))
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(msg)))
	a.w.WriteHeader(b.Status)
	if b.Status != http.StatusNotModified {
		_, _ = io.WriteString(a.w, msg)
	}
}

// pour writes an OTLP answer that does not end, size bytes at a time.
func (a answer) pour(size int, every time.Duration) {
	a.w.Header().Set("Content-Type", "application/x-protobuf")
	chunk := bytes.Repeat([]byte{0}, size)
	flush := http.NewResponseController(a.w)
	for {
		if _, err := a.w.Write(chunk); err != nil {
			return
		}
		if err := flush.Flush(); err != nil {
			return
		}
		if every > 0 && !a.wait(a.r.Context(), every) {
			return
		}
		select {
		case <-a.stop:
			return
		default:
		}
	}
}

// wait returns false when the client has gone or the server closes, true
// after d; d 0 waits without end.
func (a answer) wait(ctx context.Context, d time.Duration) bool {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-after:
		return true
	case <-ctx.Done():
	case <-a.stop:
	}
	return false
}

// reset closes the connection with a RST where it can.
func (a answer) reset() {
	if conn, _, err := http.NewResponseController(a.w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
		return
	}
	panic(http.ErrAbortHandler)
}
