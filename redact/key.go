package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// Key is the secret of action "token": equal values get equal pseudonyms
// under the same key and rule, and nobody without the key can tell which
// value a pseudonym stands for. To rotate, make a key with a new id.
type Key struct {
	id     string
	secret []byte
}

// NewKey makes a key of at least 32 bytes. The id stands in each pseudonym
// and has 1 to 32 of the characters a-z A-Z 0-9 _ -. Whoever reads the bytes
// from a file checks the file's permissions.
func NewKey(id string, secret []byte) (*Key, error) {
	if len(secret) < 32 {
		return nil, errors.New("redact: key: at least 32 bytes are needed; make one with a random generator")
	}
	if !validID(id) || len(id) > 32 {
		return nil, errors.New("redact: key: an id has 1 to 32 of the characters a-z A-Z 0-9 . _ -")
	}
	return &Key{id: id, secret: append([]byte(nil), secret...)}, nil
}

// ID is the key's id.
func (k *Key) ID() string { return k.id }

// tokenBytes is how much of the HMAC a pseudonym shows: 128 bits.
const tokenBytes = 16

// Pseudonym is the keyed token that stands for value under a rule:
// [TOKEN:rule-id:key-id:32 hex digits], the first 128 bits of HMAC-SHA-256.
// The rule's id is part of what is hashed, so that one value cannot be
// followed across rules.
func (k *Key) Pseudonym(rule string, value []byte) string {
	m := hmac.New(sha256.New, k.secret)
	m.Write([]byte("otel-bridge redact token v1\x00"))
	m.Write([]byte(rule))
	m.Write([]byte{0})
	m.Write(value)
	sum := m.Sum(nil)
	return "[TOKEN:" + rule + ":" + k.id + ":" + hex.EncodeToString(sum[:tokenBytes]) + "]"
}
