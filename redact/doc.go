// Package redact finds secrets and personal data in structured telemetry and
// replaces them, so that everything else stays byte for byte.
//
// An Engine is compiled once from policies and is safe for concurrent use. It
// takes JSON (Engine.JSON), text (Engine.Text) or decoded values (Engine.Map,
// Engine.Value), and is pure and deterministic: bytes in, bytes and a Report
// out; no I/O, no clock, no globals. The built-in policies are in the packages
// redact/secrets and redact/pii; ParsePolicy reads gitleaks' TOML with a few
// optional fields more.
//
//	e, err := redact.New(redact.Options{Policies: []*redact.Policy{secrets.Policy(), pii.Policy()}})
//	out, report, err := e.JSON(nil, record)
//
// # How it works
//
// A walker reads JSON and hands each decoded string to the rules as a view: a
// text with a map back to the bytes it came from. Views are made of views: JSON
// in strings, text without its invisible characters, without escapes, URL and
// base64 decoded, several strings put together. One Aho-Corasick pass over a
// view's text says which rules have to look where. What they find travels up
// the chain of views to ranges of the input, which are replaced in one go; then
// the output is looked at again, until nothing is found any more. That is why
// redacting twice is redacting once.
//
// # Failures
//
// When an error is returned, the input must not be passed on. No error holds
// anything of the input. Panics of rules are contained (ErrInternal).
package redact
