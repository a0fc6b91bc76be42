//go:build !race

package redact_test

const raceDetector = false
