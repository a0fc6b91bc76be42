//go:build race

package redact_test

// raceDetector: sync.Pool forgets at random under it.
const raceDetector = true
