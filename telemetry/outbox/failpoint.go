//go:build !failpoints

package outbox

// failpoint names a step at which a crash matters. It does nothing: only a build
// with the tag failpoints, made by tests, dies here when it is told to.
func failpoint(string) {}
