package jsonl

import "github.com/otel-bridge/otel-bridge/session"

const (
	// DefaultMaxLine is the longest line that is kept whole, in bytes.
	DefaultMaxLine = 16 << 20
	// DefaultMaxWindow is the largest zstd window that is decoded, in bytes.
	// The reference writer uses 2 MiB; 8 MiB is what RFC 8878 recommends
	// decoders to support.
	DefaultMaxWindow = 8 << 20

	// longestLine is where reading a line as a stream stops: a line end that
	// never comes must not keep a reader for ever.
	longestLine = 4 << 30
	// maxHeader bounds the header line, which has to be held whole.
	maxHeader = 1 << 20
)

// Option changes how a file is read.
type Option func(*options)

type options struct {
	maxLine   int
	longest   int64
	maxWindow uint64
	vocab     *session.Vocabulary
	digestKey []byte
}

// WithMaxLine sets the longest line, in bytes, that is kept whole. Of a longer
// one only the envelope is read and the event has DataTruncated set; a packed row
// of chunks has no envelope for each of its events, so that a longer one is
// refused with CodeOversized. Values below 1 KiB count as 1 KiB; the default is
// DefaultMaxLine.
func WithMaxLine(bytes int) Option {
	return func(o *options) { o.maxLine = max(bytes, 1<<10) }
}

// WithMaxWindow sets the largest zstd window, in bytes, that a frame may ask
// for: the decoder's memory is a small multiple of it. Values below 1 KiB count
// as 1 KiB; the default is DefaultMaxWindow.
func WithMaxWindow(bytes uint64) Option {
	return func(o *options) { o.maxWindow = max(bytes, 1<<10) }
}

// WithVocabulary sets the event types that rows are checked against. The
// default is session.Core of the file's dialect.
func WithVocabulary(v *session.Vocabulary) Option {
	return func(o *options) { o.vocab = v }
}

// WithDigestKey makes Identity.HeaderDigest an HMAC-SHA-256 under key, so that
// it can be stored without giving away the header (a working directory holds a
// user's name).
func WithDigestKey(key []byte) Option {
	return func(o *options) { o.digestKey = append([]byte(nil), key...) }
}

func newOptions(opts []Option) options {
	o := options{maxLine: DefaultMaxLine, longest: longestLine, maxWindow: DefaultMaxWindow}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
