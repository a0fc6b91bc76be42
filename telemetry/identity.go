package telemetry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Identity says which event of which ledger a record is. It is one tuple
// everywhere: in deduplication, cursors, audit and the record's uid. Nothing
// after capture can change it.
type Identity struct {
	// SessionID is the session's id, or the keyed token that stands for it
	// when a redaction rule matches the id.
	SessionID string
	// CreatedAt is when the session was created, in Unix milliseconds.
	CreatedAt int64
	// FormatVersion is the generation of the ledger's format.
	FormatVersion int
	// Incarnation counts how often the ledger was found to have another past
	// than the one that was captured.
	Incarnation uint32
	// Seq is the number of the event in its ledger.
	Seq int64
}

// UID returns the log.record.uid of the ledger record with this identity. It
// depends on nothing but the tuple: the first 16 bytes of
//
//	SHA-256("otel-bridge/ledger/1" 00, length of the session id, session id,
//	        created at, format version, incarnation, seq)
//
// (numbers as 8 bytes, big endian), marked and written as a UUID of version 8
// (RFC 9562).
func (id Identity) UID() string {
	var few [160]byte
	b := append(few[:0], "otel-bridge/ledger/1\x00"...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(id.SessionID)))
	b = append(b, id.SessionID...)
	b = binary.BigEndian.AppendUint64(b, uint64(id.CreatedAt))
	b = binary.BigEndian.AppendUint64(b, uint64(id.FormatVersion))
	b = binary.BigEndian.AppendUint64(b, uint64(id.Incarnation))
	b = binary.BigEndian.AppendUint64(b, uint64(id.Seq))
	return uuid8(b)
}

// OpsUID returns the log.record.uid of an ops record: like Identity.UID, over
// "otel-bridge/ops/1" 00, the length of the installation id, the id, and the
// number of the ops record in this installation.
func OpsUID(installation string, number uint64) string {
	var few [96]byte
	b := append(few[:0], "otel-bridge/ops/1\x00"...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(installation)))
	b = append(b, installation...)
	b = binary.BigEndian.AppendUint64(b, number)
	return uuid8(b)
}

func uuid8(b []byte) string {
	sum := sha256.Sum256(b)
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], u[0:4])
	s[8] = '-'
	hex.Encode(s[9:13], u[4:6])
	s[13] = '-'
	hex.Encode(s[14:18], u[6:8])
	s[18] = '-'
	hex.Encode(s[19:23], u[8:10])
	s[23] = '-'
	hex.Encode(s[24:36], u[10:16])
	return string(s[:])
}

// isUUID tells the text form of a UUID.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}
