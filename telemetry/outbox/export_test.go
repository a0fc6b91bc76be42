package outbox

// WithVersion gives the image of a segment or checkpoint another format version, its
// checksum made right.
func WithVersion(b []byte, version uint32) []byte {
	le.PutUint32(b[8:], version)
	if string(b[:8]) == segMagic {
		le.PutUint32(b[108:], checksum(b[:108]))
	} else {
		le.PutUint32(b[36:], checksum(b[:36]))
	}
	return b
}

// Datasync is the sync that the outbox uses, for the bare append beside it.
var Datasync = datasync
