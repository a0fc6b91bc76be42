// Package receiver is an OTLP/HTTP logs receiver for one machine: it writes
// what it accepts durably before it answers, and misbehaves on purpose where
// a [Behavior] says so. Tests, the sink command and the demo use it.
//
// It is meant for loopback. Memory is bounded: a request by its size limit,
// requests in work by a fixed number, remembered requests by [Options.Keep].
//
// The file that it writes holds one request a line, in the form of the
// OpenTelemetry Collector's file exporter: lowerCamelCase keys, 64-bit
// integers as strings, enumerations as numbers, trace and span ids in hex.
package receiver
