package session

import (
	"bytes"
	"math"
	"runtime"
	"strconv"
)

// Header is the first line of a session ledger. It never changes once it is
// written. Optional members are nil when the header does not have them.
type Header struct {
	// Version is the format generation, 0 to 4.
	Version int
	// ID is the session's id; it may be any string, the empty one included.
	ID string
	// CreatedAt is in Unix milliseconds and not negative.
	CreatedAt int64
	// Cwd is the agent's working directory. Version 0 takes any string, later
	// versions only absolute paths.
	Cwd *string
	// ParentSession is the id of the session that this one was forked from, or
	// that started this subagent.
	ParentSession *string
	// SeedLength is the number of inherited events (versions 0 and 1 only).
	SeedLength *int64
	// IsSeeded says that the ledger starts with inherited events. Versions 0
	// and 1 say so by having a SeedLength; from version 2 the last
	// session/end-seed{inherited:true} marks the cut.
	IsSeeded bool
	// Origin is "subagent" or empty.
	Origin string
	// DelegationDepth is 0 for a session that no other agent started.
	DelegationDepth int64
	// AgentPreset names the preset that the session was started with.
	AgentPreset *string
}

// originSubagent is the only origin that headers know.
const originSubagent = "subagent"

// ParseHeader reads the first line of a ledger, with or without its line feed,
// and finds the dialect that the rest is written in. The version is looked at
// before anything else. The error is an *UnsupportedVersionError or a
// *HeaderError.
func ParseHeader(line []byte) (*Header, *Dialect, error) {
	return parseHeader(line, nil)
}

// ParseHeaderRecord is ParseHeader for a record that has to be framed: it ends
// with its only line feed.
func ParseHeaderRecord(record []byte) (*Header, *Dialect, error) {
	if err := checkFrame(record); err != nil {
		return nil, nil, err
	}
	return ParseHeader(record)
}

func checkFrame(record []byte) error {
	if i := bytes.IndexByte(record, '\n'); i < 0 || i != len(record)-1 {
		return &HeaderError{Code: CodeHeaderFraming, Detail: "want one line ended by a line feed"}
	}
	return nil
}

// ParseHeaderRecord is d.ParseHeader for a record that has to be framed.
func (d *Dialect) ParseHeaderRecord(record []byte) (*Header, error) {
	if err := checkFrame(record); err != nil {
		return nil, err
	}
	return d.ParseHeader(record)
}

// ParseHeader reads the header of a ledger that has to be of d's version. A
// header of another version is an *UnsupportedVersionError, Newer or not as
// seen from d.
func (d *Dialect) ParseHeader(line []byte) (*Header, error) {
	h, _, err := parseHeader(line, d)
	return h, err
}

func parseHeader(line []byte, want *Dialect) (*Header, *Dialect, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if bytes.IndexByte(line, '\n') >= 0 {
		return nil, nil, &HeaderError{Code: CodeHeaderFraming, Detail: "want one line"}
	}
	if err := ValidJSON(line); err != nil {
		return nil, nil, &HeaderError{Code: CodeHeaderJSON, Err: err}
	}
	line = TrimSpace(line)
	if KindOf(line) != KindObject {
		return nil, nil, &HeaderError{Code: CodeHeaderNotObject, Detail: "want a JSON object"}
	}
	d, err := headerDialect(Member(line, "version"), want)
	if err != nil {
		return nil, nil, err
	}
	h, err := d.headerShape(line)
	if err != nil {
		return nil, nil, err
	}
	return h, d, nil
}

// headerDialect looks at nothing but the version.
func headerDialect(raw []byte, want *Dialect) (*Dialect, error) {
	if raw == nil {
		return nil, &HeaderError{Code: CodeHeaderShape, Field: "version", Detail: "missing"}
	}
	n, ok := ParseNumber(raw)
	if !ok {
		return nil, &HeaderError{Code: CodeHeaderShape, Field: "version", Detail: "want a number"}
	}
	newest := float64(MaxVersion)
	if want != nil {
		newest = float64(want.version)
	}
	v, exact := SafeInteger(raw)
	if exact && v >= MinVersion && v <= MaxVersion && (want == nil || int(v) == want.version) {
		return &dialects[v], nil
	}
	err := &UnsupportedVersionError{Version: clampInt(n.Float), Newer: n.Float > newest, Fraction: n.Float != math.Trunc(n.Float)}
	if !exact {
		err.Literal = shortNumber(raw)
	}
	return nil, err
}

// shortNumber is a number as it stands, cut where it is longer than any version.
func shortNumber(raw []byte) string {
	const most = 24
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

func (d *Dialect) headerShape(line []byte) (*Header, error) {
	for _, retired := range []string{"sandboxMode", "approvalPolicy"} {
		if Member(line, retired) != nil {
			return nil, &HeaderError{Code: CodeHeaderRetired, Field: retired, Detail: "a pre-release wrote this; it is not read"}
		}
	}
	h := &Header{Version: d.version}
	var typ, id, createdAt, depth, seeded bool
	var wrong map[string]bool // fields whose last value so far is none that they may have
	for o := WalkObject(line); o.Next(); {
		v := o.Value()
		key, ok := String(o.RawKey())
		switch key {
		case "type":
			typ, ok = true, StringIs(v, "session")
		case "version":
			// headerDialect has judged the last one, the only one that counts.
		case "id":
			id = true
			h.ID, ok = String(v)
		case "createdAt":
			createdAt = true
			h.CreatedAt, ok = Count(v)
		case "delegationDepth":
			depth = true
			h.DelegationDepth, ok = Count(v)
		case "cwd":
			h.Cwd, ok = stringPtr(v)
		case "parentSession":
			h.ParentSession, ok = stringPtr(v)
		case "agentPreset":
			h.AgentPreset, ok = stringPtr(v)
		case "origin":
			h.Origin, ok = originSubagent, StringIs(v, originSubagent)
		case "seedLength":
			if !d.seedLength {
				return nil, unexpectedField(o.RawKey())
			}
			var n int64
			n, ok = Count(v)
			h.SeedLength, h.IsSeeded = &n, true
		case "isSeeded":
			if d.seedLength {
				return nil, unexpectedField(o.RawKey())
			}
			seeded, ok = true, KindOf(v) == KindBool
			h.IsSeeded = string(v) == "true"
		default:
			return nil, unexpectedField(o.RawKey())
		}
		if !ok && wrong == nil {
			wrong = map[string]bool{}
		}
		if wrong != nil {
			wrong[key] = !ok // of duplicates the last one counts
		}
	}
	for key, is := range wrong {
		if is {
			return nil, &HeaderError{Code: CodeHeaderShape, Field: key, Detail: "wrong type or value"}
		}
	}
	for _, must := range []struct {
		there bool
		name  string
	}{{typ, "type"}, {id, "id"}, {createdAt, "createdAt"}, {seeded || d.seedLength, "isSeeded"}, {depth, "delegationDepth"}} {
		if !must.there {
			return nil, &HeaderError{Code: CodeHeaderShape, Field: must.name, Detail: "missing"}
		}
	}
	if d.absoluteCwd && h.Cwd != nil && !IsAbsolutePath(*h.Cwd, runtime.GOOS == "windows") {
		return nil, &HeaderError{Code: CodeHeaderCwd, Field: "cwd", Detail: "want an absolute path"}
	}
	return h, nil
}

// unexpectedField names a field by length only where it could be content.
func unexpectedField(rawKey []byte) error {
	name, _ := String(rawKey)
	switch name {
	case "seedLength", "isSeeded":
		return &HeaderError{Code: CodeHeaderShape, Field: name, Detail: "this version does not have it"}
	}
	return &HeaderError{Code: CodeHeaderShape, Detail: "unexpected field of " + strconv.Itoa(len(name)) + " bytes"}
}

func stringPtr(raw []byte) (*string, bool) {
	s, ok := String(raw)
	return &s, ok
}

// IsAbsolutePath says what the reference's platform says of a path: a leading
// slash, and on Windows a leading backslash or a drive followed by either.
func IsAbsolutePath(path string, windows bool) bool {
	if path == "" {
		return false
	}
	if path[0] == '/' {
		return true
	}
	if !windows {
		return false
	}
	if path[0] == '\\' {
		return true
	}
	return len(path) > 2 && (path[0]|0x20) >= 'a' && (path[0]|0x20) <= 'z' && path[1] == ':' &&
		(path[2] == '/' || path[2] == '\\')
}

// hasSeedLength is Dialect.HasSeedLength of a version that may be none.
func hasSeedLength(version int) bool {
	d, err := DialectOf(version)
	return err == nil && d.seedLength
}

// AppendHeader appends h as the reference writes it, without a line feed. It
// judges nothing: a header that no reader takes is written too.
func AppendHeader(dst []byte, h *Header) []byte {
	dst = append(dst, `{"type":"session","version":`...)
	dst = strconv.AppendInt(dst, int64(h.Version), 10)
	dst = append(dst, `,"id":`...)
	dst = AppendQuoted(dst, h.ID)
	dst = append(dst, `,"createdAt":`...)
	dst = strconv.AppendInt(dst, h.CreatedAt, 10)
	str := func(key string, s *string) {
		if s != nil {
			dst = append(dst, key...)
			dst = AppendQuoted(dst, *s)
		}
	}
	str(`,"cwd":`, h.Cwd)
	str(`,"parentSession":`, h.ParentSession)
	if hasSeedLength(h.Version) {
		if h.SeedLength != nil {
			dst = append(dst, `,"seedLength":`...)
			dst = strconv.AppendInt(dst, *h.SeedLength, 10)
		}
	} else {
		dst = append(dst, `,"isSeeded":`...)
		dst = strconv.AppendBool(dst, h.IsSeeded)
	}
	if h.Origin != "" {
		str(`,"origin":`, &h.Origin)
	}
	dst = append(dst, `,"delegationDepth":`...)
	dst = strconv.AppendInt(dst, h.DelegationDepth, 10)
	str(`,"agentPreset":`, h.AgentPreset)
	return append(dst, '}')
}

// AppendQuoted appends s as JSON.stringify and RFC 8785 write strings. Invalid
// UTF-8 becomes U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, s...)
	dst = quoteTail(dst, start)
	return append(dst, '"')
}
