package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/otel-bridge/otel-bridge/telemetry"
	"github.com/otel-bridge/otel-bridge/telemetry/outbox"
)

// body is about the size and shape of a ledger's tool result, with text that
// compresses as such text does.
func benchBody(i int) string {
	var text strings.Builder
	for j := range 12 {
		fmt.Fprintf(&text, `internal/module%d/file_%d.go:%d: func (s *Server) handle%d(ctx context.Context) error\n`, i%7, j, (i*31+j*17)%997, (i*7919+j)%1000)
	}
	return fmt.Sprintf(`{"turn":%d,"step":%d,"callId":"call_%08x","message":{"role":"tool","content":[{"type":"text","text":"%s"}]},"durationMs":%d,"isError":false}`, i%9, i%5, i*2654435761, text.String(), i%4000)
}

// stock leases the same records again and again, without a lock held for long:
// what is measured is delivery.
type stock struct {
	payloads [][]byte
	left     atomic.Int64
	next     atomic.Int64
}

func (s *stock) Pending() int64 { return max(s.left.Load(), 0) }

func (s *stock) Lease(ctx context.Context, lim outbox.Limits) (Lease, error) {
	if l, _ := s.TryLease(lim); l != nil {
		return l, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *stock) TryLease(lim outbox.Limits) (Lease, error) {
	if s.left.Add(-int64(lim.Records)) < 0 {
		return nil, nil
	}
	from := s.next.Add(int64(lim.Records)) - int64(lim.Records)
	l := &stockLease{entries: make([]outbox.Leased, lim.Records)}
	for i := range l.entries {
		n := from + int64(i)
		l.entries[i] = outbox.Leased{ID: outbox.ID(n + 1), Payload: s.payloads[n%int64(len(s.payloads))]}
	}
	return l, nil
}

type stockLease struct{ entries []outbox.Leased }

func (l *stockLease) Entries() []outbox.Leased           { return l.entries }
func (l *stockLease) Ack(...outbox.ID) error             { return nil }
func (l *stockLease) Quarantine(...outbox.Refused) error { panic("quarantine in a benchmark") }
func (l *stockLease) Close() error                       { return nil }

// drainServer reads requests and answers 200: the receiver's own cost is kept
// out of the figures.
func drainServer(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	tb.Cleanup(func() { _ = srv.Close(); <-done })
	return "http://" + l.Addr().String() + "/v1/logs"
}

const batchSize = 512

func benchStock(b *testing.B) (payloads [][]byte, size int64) {
	b.Helper()
	for i := range 4 * batchSize {
		p := stored(b, record("session", i, benchBody(i)))
		payloads = append(payloads, p)
		size += int64(len(p))
	}
	return payloads, size / 4
}

// BenchmarkDelivery counts one batch of 512 records as one operation; MB/s are
// of stored payload.
func BenchmarkDelivery(b *testing.B) {
	payloads, size := benchStock(b)
	for _, compression := range []string{"none", "gzip"} {
		for _, form := range []string{"structured", "json"} {
			for _, workers := range []int{1, 2} {
				b.Run(fmt.Sprintf("compression=%s/body=%s/workers=%d", compression, form, workers), func(b *testing.B) {
					s := &stock{payloads: payloads}
					cfg := quick(drainServer(b))
					cfg.Compression, cfg.Workers, cfg.Body = compression, workers, form
					d := newDeliverer(b, s, cfg)
					s.left.Store(int64(b.N) * batchSize)
					b.SetBytes(size)
					b.ReportAllocs()
					b.ResetTimer()
					if err := d.Drain(context.Background()); err != nil {
						b.Fatal(err)
					}
					report(b, d.Stats())
				})
			}
		}
	}
}

func report(b *testing.B, st Stats) {
	b.ReportMetric(float64(b.N*batchSize)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(st.RawBytes)/b.Elapsed().Seconds()/1e6, "request-MB/s")
	b.ReportMetric(float64(st.RawBytes)/float64(st.WireBytes), "ratio")
}

// BenchmarkBareClient posts the very same bodies, made before, with a bare
// http.Client: the floor that delivery is compared with.
func BenchmarkBareClient(b *testing.B) {
	payloads, size := benchStock(b)
	for _, compression := range []string{"none", "gzip"} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("compression=%s/workers=%d", compression, workers), func(b *testing.B) {
				bodies, raw, wire := prebuilt(b, payloads, compression)
				url := drainServer(b)
				client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
				defer client.CloseIdleConnections()
				b.SetBytes(size)
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				var next atomic.Int64
				for range workers {
					wg.Go(func() {
						for {
							n := next.Add(1) - 1
							if n >= int64(b.N) {
								return
							}
							req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(bodies[n%int64(len(bodies))]))
							if err != nil {
								b.Error(err)
								return
							}
							resp, err := client.Do(req)
							if err != nil {
								b.Error(err)
								return
							}
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					})
				}
				wg.Wait()
				report(b, Stats{RawBytes: raw * int64(b.N), WireBytes: wire * int64(b.N)})
			})
		}
	}
}

// BenchmarkDeliveryBesideBareClient alternates between delivery and a bare client that posts
// the same bodies, made before, so that both meet the same machine. Of-bare is the bare
// client's time by delivery's: 1 is as fast. One operation is 32 requests of 512 records, one
// at a time.
func BenchmarkDeliveryBesideBareClient(b *testing.B) {
	const requests = 32
	payloads, size := benchStock(b)
	for _, compression := range []string{"none", "gzip"} {
		b.Run("compression="+compression, func(b *testing.B) {
			bodies, raw, wire := prebuilt(b, payloads, compression)
			s := &stock{payloads: payloads}
			cfg := quick(drainServer(b))
			cfg.Compression, cfg.Workers = compression, 1
			d := newDeliverer(b, s, cfg)
			url := drainServer(b)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			var ours, theirs time.Duration
			b.SetBytes(requests * size)
			for b.Loop() {
				start := time.Now()
				s.left.Store(requests * batchSize)
				if err := d.Drain(context.Background()); err != nil {
					b.Fatal(err)
				}
				ours += time.Since(start)
				b.StopTimer()
				start = time.Now()
				for i := range requests {
					req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(bodies[i%len(bodies)]))
					if err != nil {
						b.Fatal(err)
					}
					resp, err := client.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				theirs += time.Since(start)
				b.StartTimer()
			}
			n := float64(b.N * requests)
			b.ReportMetric(n*batchSize/ours.Seconds(), "records/s")
			b.ReportMetric(n*float64(raw)/ours.Seconds()/1e6, "request-MB/s")
			b.ReportMetric(n*float64(wire)/theirs.Seconds()/1e6, "bare-wire-MB/s")
			b.ReportMetric(theirs.Seconds()/ours.Seconds(), "of-bare")
		})
	}
}

// prebuilt returns the bodies that delivery sends for payloads.
func prebuilt(b *testing.B, payloads [][]byte, compression string) (bodies [][]byte, raw, wire int64) {
	b.Helper()
	var mu sync.Mutex
	s := &stock{payloads: payloads}
	s.left.Store(int64(len(payloads)))
	cfg := quick("http://127.0.0.1:1/")
	cfg.Compression = compression
	cfg.base = roundTripper(func(req *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(req.Body)
		mu.Lock()
		bodies = append(bodies, body)
		mu.Unlock()
		return &http.Response{StatusCode: 200, Body: http.NoBody}, err
	})
	d := newDeliverer(b, s, cfg)
	if err := d.Drain(context.Background()); err != nil {
		b.Fatal(err)
	}
	st := d.Stats()
	return bodies, st.RawBytes / int64(len(bodies)), st.WireBytes / int64(len(bodies))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// BenchmarkEncode makes requests of 512 stored records, as delivery does and as
// the SDK and its exporter do: bytes of the very same meaning.
func BenchmarkEncode(b *testing.B) {
	payloads, size := benchStock(b)
	payloads = payloads[:batchSize]
	for _, form := range []string{"structured", "json"} {
		b.Run("direct/body="+form, func(b *testing.B) {
			e := encoder{json: form == "json"}
			items := make([]item, batchSize)
			var out bytes.Buffer
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				e.reset()
				for i, p := range payloads {
					r, err := e.decoder.Decode(p)
					if err != nil {
						b.Fatal(err)
					}
					if items[i].encoded, err = e.add(&r); err != nil {
						b.Fatal(err)
					}
				}
				q := e.layout(items)
				out.Reset()
				q.write(&out)
			}
		})
		b.Run("sdk/body="+form, func(b *testing.B) {
			s := newSDK(b)
			var decoder telemetry.Decoder
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				s.records = s.records[:0]
				for _, p := range payloads {
					r, err := decoder.Decode(p)
					if err != nil {
						b.Fatal(err)
					}
					s.add(b, &r, form == "json")
				}
				s.export(b)
			}
		})
	}
}

// BenchmarkGzip shows what level costs what.
func BenchmarkGzip(b *testing.B) {
	payloads, _ := benchStock(b)
	bodies, raw, _ := prebuilt(b, payloads, "none")
	for _, level := range []int{gzip.BestSpeed, 3, gzip.DefaultCompression} {
		b.Run(fmt.Sprintf("level=%d", level), func(b *testing.B) {
			var out bytes.Buffer
			w, err := gzip.NewWriterLevel(&out, level)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(raw)
			for b.Loop() {
				out.Reset()
				w.Reset(&out)
				_, _ = w.Write(bodies[0])
				_ = w.Close()
			}
			b.ReportMetric(float64(len(bodies[0]))/float64(out.Len()), "ratio")
		})
	}
}
