package telemetry

import (
	"encoding/binary"
)

// EventKey names the event that a damaged entry of an outbox was made of, so
// that it can be captured again. It has no content: the session stands there as
// the keyed digest that also names its cursor.
type EventKey struct {
	Session     string
	Incarnation uint32
	Seq         int64
}

const (
	keyEvent = 'e'
	keyOps   = 'o'
)

func (k EventKey) append(dst []byte) []byte {
	dst = appendString(append(dst, keyEvent), k.Session)
	dst = binary.AppendUvarint(dst, uint64(k.Incarnation))
	return binary.AppendUvarint(dst, uint64(k.Seq))
}

func opsKey(uid string) []byte { return append([]byte{keyOps}, uid...) }

// ParseEventKey reads the key of an entry. It is false for entries that are no
// event, such as ops records.
func ParseEventKey(key []byte) (EventKey, bool) {
	if len(key) == 0 || key[0] != keyEvent {
		return EventKey{}, false
	}
	in := reader{b: key[1:]}
	k := EventKey{Session: in.string(), Incarnation: uint32(in.uvarint()), Seq: int64(in.uvarint())}
	return k, !in.bad && len(in.b) == 0
}
