//go:build !unix

package telemetry

// syncDir does nothing where directories cannot be synced: there a rename is
// durable by itself.
func syncDir(string) error { return nil }
