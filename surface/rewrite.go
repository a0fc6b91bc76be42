package surface

import (
	"crypto/sha256"

	"github.com/otel-bridge/otel-bridge/session"
)

// digest stands for what a rewrite of a tool/result must not change: the first
// half of SHA-256 over the canonical form of its payload without the content.
type digest [16]byte

// unread stands for a payload that could not be read, because its line is
// longer than the reader's limit. It agrees with every other: a ledger must not
// be held for what nobody has seen.
var unread = digest{}

// rewriteDigest digests the payload of a tool/result but for its content.
func (s *Surface) rewriteDigest(ev *session.Event) digest {
	if ev.DataTruncated {
		return unread
	}
	s.rest = appendRest(s.rest[:0], session.TrimSpace(ev.Data), s.rules.toolRole)
	canon, err := session.Canonical(s.canon[:0], s.rest)
	if err != nil {
		// Not JSON, or nested beyond reason: it has to stay as it is.
		canon = append(s.canon[:0], s.rest...)
	}
	s.canon = canon
	sum := sha256.Sum256(canon)
	d := digest(sum[:16])
	if d == unread {
		d[0] = 1
	}
	return d
}

// appendRest appends data, the payload of a tool/result, with null in the place
// of its content. The content is that of the message where tool results are
// messages of their own role, and before that of the message's first block, the
// other blocks being dropped with it: that is what the reference compares.
func appendRest(dst, data []byte, toolRole bool) []byte {
	if session.KindOf(data) != session.KindObject {
		return append(dst, data...)
	}
	dst, message := appendWithout(dst, data, "message")
	dst = append(dst, `"message":`...)
	if session.KindOf(message) != session.KindObject {
		if message == nil {
			message = []byte("null")
		}
		return append(append(dst, message...), '}')
	}
	dst, content := appendWithout(dst, message, "content")
	if toolRole {
		return append(dst, `"content":null}}`...)
	}
	dst = append(dst, `"content":[`...)
	blocks := session.WalkArray(content)
	if blocks.Next() && session.KindOf(blocks.Value()) == session.KindObject {
		dst, _ = appendWithout(dst, blocks.Value(), "content")
	} else {
		dst = append(dst, '{')
	}
	return append(dst, `"content":null}]}}`...)
}

// appendWithout appends the opening bracket and the members of object, each
// with a comma behind it, but for the one with this name, whose last value it
// returns.
func appendWithout(dst, object []byte, name string) (out, value []byte) {
	dst = append(dst, '{')
	for o := session.WalkObject(object); o.Next(); {
		if o.KeyIs(name) {
			value = o.Value()
			continue
		}
		dst = append(dst, o.RawKey()...)
		dst = append(dst, ':')
		dst = append(dst, o.Value()...)
		dst = append(dst, ',')
	}
	return dst, value
}
