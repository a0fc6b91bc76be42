// Package receiver is the far end of every run: an OTLP/HTTP receiver that only
// counts. It tells records apart by who they are, so that what is missing and
// what came twice is known, and it can fail on purpose. It listens on loopback.
package receiver

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
)

// Stats since the last reset.
type Stats struct {
	Requests   int64 `json:"requests"` // accepted ones
	Refused    int64 `json:"refused"`
	Records    int64 `json:"records"`    // accepted, doubles included
	Distinct   int64 `json:"distinct"`   // identities among them
	Duplicates int64 `json:"duplicates"` // of an identity already seen
	Others     int64 `json:"others"`     // records that are no event of a ledger: ops records, header lines
	WireBytes  int64 `json:"wire_bytes"`
	PlainBytes int64 `json:"plain_bytes"` // after decompression
	BodyBytes  int64 `json:"body_bytes"`  // of the bodies, as encoded values, doubles left out
	LastNano   int64 `json:"last_nano"`   // when the last new record was accepted, Unix
	Malformed  int64 `json:"malformed"`   // requests that could not be read: a fault of the bench or of a sender
}

// Control changes what the receiver does. A nil field leaves a thing as it is.
type Control struct {
	Reset bool `json:"reset,omitempty"`
	// Status answers every request with it instead of taking it; 0 or 200 takes them.
	Status *int `json:"status,omitempty"`
	// LoseAnswer takes every n-th request and breaks the connection instead of answering; 0 never.
	LoseAnswer *int `json:"lose_answer,omitempty"`
	// Keep holds the decompressed requests in memory, up to 256 MiB, for /kept.
	Keep *bool `json:"keep,omitempty"`
}

// Receiver is an http.Handler.
type Receiver struct {
	mu         sync.Mutex
	stats      Stats
	seen       map[string]*bitmap
	status     int
	loseAnswer int
	keep       bool
	kept       bytes.Buffer
}

// New returns a receiver that takes everything.
func New() *Receiver { return &Receiver{seen: map[string]*bitmap{}} }

const keepLimit = 256 << 20

var buffers = sync.Pool{New: func() any { return new(work) }}

// work is what one request needs, used again.
type work struct {
	wire, plain bytes.Buffer
	gzip        *gzip.Reader
	records     []record
}

func (rc *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/control":
		rc.control(w, r)
	case "/stats":
		rc.mu.Lock()
		s := rc.stats
		rc.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s)
	case "/kept":
		rc.mu.Lock()
		defer rc.mu.Unlock()
		_, _ = w.Write(rc.kept.Bytes())
	default:
		rc.logs(w, r)
	}
}

func (rc *Receiver) control(w http.ResponseWriter, r *http.Request) {
	var c Control
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if c.Reset {
		rc.stats, rc.seen = Stats{}, map[string]*bitmap{}
		rc.kept = bytes.Buffer{}
	}
	if c.Status != nil {
		rc.status = *c.Status
	}
	if c.LoseAnswer != nil {
		rc.loseAnswer = *c.LoseAnswer
	}
	if c.Keep != nil {
		rc.keep = *c.Keep
	}
}

func (rc *Receiver) logs(w http.ResponseWriter, r *http.Request) {
	b := buffers.Get().(*work)
	defer buffers.Put(b)
	b.wire.Reset()
	if _, err := b.wire.ReadFrom(r.Body); err != nil {
		return // the sender went away
	}
	rc.mu.Lock()
	status := rc.status
	if status != 0 && status != http.StatusOK {
		rc.stats.Refused++
	}
	rc.mu.Unlock()
	if status != 0 && status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	plain, err := b.decode(r.Header.Get("Content-Encoding"))
	if err == nil {
		read := walk
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			read = walkJSON
		}
		b.records, err = read(b.records[:0], plain)
	}
	if err != nil {
		rc.mu.Lock()
		rc.stats.Malformed++
		rc.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	lose := rc.take(b, plain)
	if lose {
		panic(http.ErrAbortHandler) // breaks the connection without an answer
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Header().Set("Content-Length", strconv.Itoa(0))
	w.WriteHeader(http.StatusOK)
}

func (b *work) decode(encoding string) ([]byte, error) {
	if encoding != "gzip" {
		return b.wire.Bytes(), nil
	}
	wire := bytes.NewReader(b.wire.Bytes())
	var err error
	if b.gzip == nil {
		b.gzip, err = gzip.NewReader(wire)
	} else {
		err = b.gzip.Reset(wire)
	}
	if err != nil {
		return nil, err
	}
	b.plain.Reset()
	if _, err := io.Copy(&b.plain, b.gzip); err != nil {
		return nil, err
	}
	return b.plain.Bytes(), nil
}

// take counts an accepted request and says whether its answer shall be lost.
func (rc *Receiver) take(b *work, plain []byte) (lose bool) {
	now := time.Now().UnixNano()
	rc.mu.Lock()
	defer rc.mu.Unlock()
	s := &rc.stats
	s.Requests++
	s.WireBytes += int64(b.wire.Len())
	s.PlainBytes += int64(len(plain))
	for i := range b.records {
		r := &b.records[i]
		s.Records++
		if !r.event {
			s.Others++
			continue
		}
		seen := rc.seen[string(r.session)] // no allocation for a look-up
		if seen == nil {
			seen = new(bitmap)
			rc.seen[string(r.session)] = seen
		}
		if !seen.set(r.seq) {
			s.Duplicates++
			continue
		}
		s.Distinct++
		s.BodyBytes += r.body
		s.LastNano = now
	}
	if rc.keep && rc.kept.Len()+len(plain) <= keepLimit {
		rc.kept.Write(plain)
	}
	return rc.loseAnswer > 0 && s.Requests%int64(rc.loseAnswer) == 0
}

// bitmap is a set of sequence numbers.
type bitmap []uint64

// set adds n and says whether it was new.
func (m *bitmap) set(n int64) bool {
	for int64(len(*m)) <= n>>6 {
		*m = append(*m, 0)
	}
	word, bit := &(*m)[n>>6], uint64(1)<<(n&63)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
