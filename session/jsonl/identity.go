package jsonl

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Identity says which file a path led to. Device and inode alone do not: a
// removed file's inode is given to the next one. Two identities are of the same
// ledger file when Same says so.
type Identity struct {
	// Device and Inode are those of the operating system, 0 where it has none.
	Device, Inode uint64
	// HeaderDigest is the SHA-256 of the header line without its line end, or
	// its HMAC under WithDigestKey. A header never changes.
	HeaderDigest [32]byte
	// Size is the file's size in bytes. It is not part of what Same compares.
	Size int64
}

// Same tells whether both are of one file of one session.
func (a Identity) Same(b Identity) bool {
	return a.Device == b.Device && a.Inode == b.Inode && a.HeaderDigest == b.HeaderDigest
}

// Identify opens the file at path and tells which one it is. The error wraps
// ErrHeaderIncomplete when it has no whole header line.
func Identify(path string, opts ...Option) (Identity, error) {
	o := newOptions(opts)
	t, err := openText(path, &o)
	if err != nil {
		return Identity{}, err
	}
	defer t.Close()
	return t.identity(&o)
}

func (t *text) identity(o *options) (Identity, error) {
	info, err := t.f.Stat()
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Size: info.Size()}
	id.Device, id.Inode = fileID(info)
	if o.digestKey == nil {
		id.HeaderDigest = sha256.Sum256(t.header)
		return id, nil
	}
	mac := hmac.New(sha256.New, o.digestKey)
	mac.Write(t.header)
	mac.Sum(id.HeaderDigest[:0])
	return id, nil
}
