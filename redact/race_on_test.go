//go:build race

package redact_test

// raceDetector: sync.Pool forgets at random under it, and all is ten times
// slower. What runs in one goroutine gains nothing from it: the corpora run
// whole without it, and a sample with it.
const raceDetector = true
