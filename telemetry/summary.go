package telemetry

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/otel-bridge/otel-bridge/session"
)

// Outcome is what became of an event. Outcomes are stable and free of content.
type Outcome string

// The outcomes that a Summary tells of.
const (
	// Delivered: a receiver has acknowledged the record.
	Delivered Outcome = "delivered"
	// Withheld: a receiver has acknowledged a marker that stands for the record.
	Withheld Outcome = "withheld"
	// Quarantined: the receiver refused the record, or may have; an operator
	// decides.
	Quarantined Outcome = "quarantined"
	// OnHold: consent has shrunk, or an operator holds the record; an operator
	// decides.
	OnHold Outcome = "held"
	// Discarded: given up by an operator.
	Discarded Outcome = "discarded"
	// Damaged: the disk has lost the record. It is captured again from the ledger,
	// where that still has it, and may have arrived since.
	Damaged Outcome = "damaged"
	// Elided: the event is a piece of a stream, which goes out whole elsewhere.
	Elided Outcome = "elided"
	// Inherited: the event was captured under the session's parent.
	Inherited Outcome = "inherited"
	// OutOfScope: configuration or consent leave the event out.
	OutOfScope Outcome = "out_of_scope"
)

// Records tells whether there is a record of such an event, delivered or not.
func (o Outcome) Records() bool {
	switch o {
	case Elided, Inherited, OutOfScope:
		return false
	}
	return true
}

// SummaryVersion is the version of the form of a Summary.
const SummaryVersion = 1

// Summary is the body of an ops record "session.summary": what became of each
// event of a span of a session whose events are all settled. A session's
// summaries are numbered and linked: each has the hash of the one before it, and
// is signed.
type Summary struct {
	Version int `json:"version"`
	// Span is the number of the summary in its session (id, created at and format
	// version), from 1 on.
	Span          uint64 `json:"span"`
	FormatVersion int    `json:"format_version"`
	Incarnation   uint32 `json:"incarnation"`
	// From and To are the first and the last seq of the span.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// FirstUID is the log.record.uid of the identity with seq From: it binds the
	// summary to its session, whether there is such a record or not.
	FirstUID string `json:"first_uid"`
	// Policy is the redaction policy that the leaves were made under.
	Policy string `json:"policy"`
	// Runs cover From to To without a gap.
	Runs []SummaryRun `json:"runs"`
	// Attempts are the ops records "attempt" of the span.
	Attempts []SummaryAttempt `json:"attempts,omitempty"`
	// Generation is set in the first summary after a session has moved to a newer
	// format: what stands before From was captured under the older one.
	Generation *Generation `json:"generation,omitempty"`
	// Previous is the hash of the summary before this one, "" in the first.
	Previous string `json:"previous,omitempty"`
	// Key is the id of the key of the signature, see KeyID.
	Key string `json:"key,omitempty"`
	// Signature is Ed25519, see SignBody, in base64.
	Signature string `json:"signature,omitempty"`
}

// SummaryRun is events in a row that had the same outcome.
type SummaryRun struct {
	Outcome Outcome `json:"outcome"`
	From    int64   `json:"from"`
	To      int64   `json:"to"`
	// Leaves has the leaf of each body in hex, "" where there is none; nothing for
	// outcomes without a body.
	Leaves []string `json:"leaves,omitempty"`
}

// SummaryAttempt is one ops record "attempt".
type SummaryAttempt struct {
	UID     string  `json:"uid"`
	Outcome Outcome `json:"outcome"`
	Leaf    string  `json:"leaf,omitempty"`
}

// Generation says how a session went on in a newer format.
type Generation struct {
	// FromVersion and ToVersion are the formats.
	FromVersion int `json:"from_version"`
	ToVersion   int `json:"to_version"`
	// LastSeq is the last event that was captured, as the older format counts.
	LastSeq int64 `json:"last_seq"`
	// NextSeq is the event to go on with, as the newer format counts.
	NextSeq int64 `json:"next_seq"`
}

// ErrSummary is wrapped by the errors of ParseSummary.
var ErrSummary = errors.New("not a summary of a session")

// ParseSummary reads the body of a summary and checks its form: the version, and
// that its runs and leaves cover the span.
func ParseSummary(body []byte) (*Summary, error) {
	var s Summary
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("%w: it is no JSON of that form", ErrSummary)
	}
	if s.Version != SummaryVersion {
		return nil, fmt.Errorf("%w of version %d: it has version %d", ErrSummary, SummaryVersion, s.Version)
	}
	next := s.From
	for _, r := range s.Runs {
		n := r.To - r.From + 1
		if r.From != next || n < 1 || len(r.Leaves) > 0 && int64(len(r.Leaves)) != n {
			return nil, fmt.Errorf("%w: its runs do not cover it", ErrSummary)
		}
		next = r.To + 1
	}
	if s.From < 0 || next != s.To+1 || s.From > s.To {
		return nil, fmt.Errorf("%w: its runs do not cover it", ErrSummary)
	}
	return &s, nil
}

// BodyHash is the hash that the next summary has of this one: SHA-256 over the
// canonical form of the body, signature included, in hex; "" for a body that has
// no canonical form.
func BodyHash(body []byte) string {
	leaf := LeafOf(body)
	if leaf == (Leaf{}) {
		return ""
	}
	return hex.EncodeToString(leaf[:])
}

// KeyID names a public key: the first 8 bytes of its SHA-256, in hex.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// signed is what a signature is over: the kind of the ops record and the
// canonical form of its body without the member "signature".
func signed(op string, body []byte) ([]byte, error) {
	b := append(make([]byte, 0, len(body)), '{')
	for o := session.WalkObject(session.TrimSpace(body)); o.Next(); {
		if !o.KeyIs("signature") {
			b = appendMember(b, 1, o.RawKey(), o.Value())
		}
	}
	head := "otel-bridge/" + op + "/1\x00"
	return canonical(append(make([]byte, 0, len(head)+len(b)+1), head...), append(b, '}'))
}

// SignBody adds the member "signature" to the body of an ops record, a JSON
// object that has none: Ed25519 over "otel-bridge/", op, "/1", a zero byte, and
// the canonical form of the body; in base64.
func SignBody(key ed25519.PrivateKey, op string, body []byte) ([]byte, error) {
	text, err := signed(op, body)
	if err != nil {
		return nil, err
	}
	body = openObject(body)
	if len(body) > 1 {
		body = append(body, ',')
	}
	body = append(body, `"signature":"`...)
	body = base64.StdEncoding.AppendEncode(body, ed25519.Sign(key, text))
	return append(body, `"}`...), nil
}

// openObject is a copy of an object without its last brace.
func openObject(body []byte) []byte {
	body = session.TrimSpace(body)
	return slices.Clone(session.TrimSpace(body[:len(body)-1]))
}

// VerifyBody checks the signature of the body of an ops record.
func VerifyBody(key ed25519.PublicKey, op string, body []byte) bool {
	if len(key) != ed25519.PublicKeySize || session.ValidJSON(body) != nil || session.KindOf(session.TrimSpace(body)) != session.KindObject {
		return false
	}
	body = session.TrimSpace(body)
	text, ok := session.String(session.Member(body, "signature"))
	if !ok {
		return false
	}
	sig, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	msg, err := signed(op, body)
	return err == nil && ed25519.Verify(key, msg, sig)
}
