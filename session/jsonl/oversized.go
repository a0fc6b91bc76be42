package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
)

const (
	maxEnvelope = 1 << 20 // of what is kept of a line beyond the limit, in bytes
	maxKey      = 256     // longer keys name nothing that is kept
	maxDepth    = 100_000 // a bit each; real ledgers nest less than 20 levels
)

// oversized is what is left of a line beyond the limit: a small row with the
// same envelope and, of the payload, the members that the invariants of
// package session look at. No text of a message is among them.
type oversized struct {
	row []byte // valid until the next oversized line
	err error  // why the line has no readable envelope
}

// keep says what is copied of a JSON value: all of it, or parts of an object or
// of the elements of an array. Nil means nothing.
type keep struct {
	all  bool
	keys map[string]*keep
	elem *keep
}

var (
	keepAll = &keep{all: true}

	// keepData lists numbers, flags, ids and kinds; nothing that a person or a
	// model wrote.
	keepData = &keep{keys: map[string]*keep{
		"turn": keepAll, "step": keepAll, "callId": keepAll, "inherited": keepAll,
		"source": {keys: map[string]*keep{"kind": keepAll, "plugin": keepAll}},
		"message": {keys: map[string]*keep{
			"id": keepAll, "role": keepAll, "toolCallId": keepAll, "isError": keepAll,
			"source": {keys: map[string]*keep{"kind": keepAll, "plugin": keepAll, "callId": keepAll}},
			"content": {elem: &keep{keys: map[string]*keep{
				"type": keepAll, "id": keepAll, "toolCallId": keepAll, "isError": keepAll,
			}}},
		}},
		"error": {keys: map[string]*keep{"name": keepAll, "code": keepAll}},
	}}
)

type scanState byte

const (
	sValue     scanState = iota // a value, after white space
	sFirstElem                  // a value or ]
	sFirstKey                   // a key or }
	sKey                        // a key
	sColon                      // the colon behind a key
	sAfter                      // , or the end of the container, or the end of all
	sString                     // inside a string
	sEscape                     // behind a backslash
	sHex                        // inside \uXXXX
	sLiteral                    // inside true, false, null
	sMinus                      // behind -
	sZero                       // behind a leading 0
	sInt                        // inside the integer part
	sDot                        // behind the dot
	sFrac                       // inside the fraction
	sExp                        // behind e
	sExpSign                    // behind the sign of the exponent
	sExpDigits                  // inside the exponent
	sFailed
)

type keepMode byte

const (
	mFilter keepMode = iota // choosing members by a keep
	mCopy                   // inside a value that is kept whole
	mSkip                   // inside a value that is left out
)

// envelopeScanner validates one JSON object that comes in pieces and copies
// what keep says of it, in memory that does not depend on the object's size.
type envelopeScanner struct {
	state   scanState
	isKey   bool   // the string being read is a key
	literal string // rest of the literal being read
	hex     int    // hex digits still to come
	stack   []uint64
	depth   int

	mode   keepMode
	at     int // depth of the value that mCopy or mSkip ends with
	frames []keepFrame
	key    []byte // raw key of the current member, in mFilter only
	row    []byte
	err    error
}

type keepFrame struct {
	node    *keep
	members int
}

var errNotObject = errors.New("the line is no JSON object")

func (s *envelopeScanner) reset() {
	*s = envelopeScanner{stack: s.stack[:0], frames: s.frames[:0], key: s.key[:0], row: s.row[:0]}
}

func (s *envelopeScanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.state = sFailed
}

func (s *envelopeScanner) badByte() { s.fail(errors.New("the line is not valid JSON")) }

// finish ends the line.
func (s *envelopeScanner) finish() *oversized {
	if s.state != sFailed && (s.state != sAfter || s.depth != 0) {
		s.badByte()
	}
	if s.err != nil {
		return &oversized{err: s.err}
	}
	return &oversized{row: s.row}
}

// write takes the next piece of the line.
func (s *envelopeScanner) write(p []byte) {
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch s.state {
		case sString:
			if s.mode == mSkip {
				// The long way through a body: nothing to copy.
				for c != '"' && c != '\\' && c >= ' ' {
					if i++; i == len(p) {
						return
					}
					c = p[i]
				}
			}
			switch {
			case c == '"':
				s.copyStringByte(c)
				s.endString()
				continue
			case c == '\\':
				s.state = sEscape
			case c < ' ':
				s.badByte()
			}
			s.copyStringByte(c)
			continue
		case sEscape:
			switch c {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				s.state = sString
			case 'u':
				s.state, s.hex = sHex, 4
			default:
				s.badByte()
			}
			s.copyStringByte(c)
			continue
		case sHex:
			if !isHex(c) {
				s.badByte()
			} else if s.hex--; s.hex == 0 {
				s.state = sString
			}
			s.copyStringByte(c)
			continue
		case sLiteral:
			if c != s.literal[0] {
				s.badByte()
				continue
			}
			s.copyByte(c)
			if s.literal = s.literal[1:]; s.literal == "" {
				s.endValue()
			}
			continue
		case sFailed:
			return
		}
		if s.inNumber() {
			if s.numberByte(c) {
				s.copyByte(c)
				continue
			}
			if !s.numberEnds() {
				s.badByte()
				continue
			}
			s.endValue()
		}
		if c == ' ' || c == '\t' || c == '\r' {
			continue
		}
		s.structural(c)
	}
	if len(s.row) > maxEnvelope {
		s.fail(fmt.Errorf("the envelope alone is longer than %d bytes", maxEnvelope))
	}
}

// structural takes a byte between values.
func (s *envelopeScanner) structural(c byte) {
	switch s.state {
	case sFirstKey, sKey:
		switch {
		case c == '"':
			s.state, s.isKey = sString, true
			s.key = s.key[:0]
			s.copyByte(c)
		case c == '}' && s.state == sFirstKey:
			s.close(c)
		default:
			s.badByte()
		}
	case sColon:
		if c != ':' {
			s.badByte()
			return
		}
		s.copyByte(c)
		s.state = sValue
	case sAfter:
		switch {
		case s.depth == 0:
			s.badByte()
		case c == ',':
			s.copyByte(c)
			if s.state = sValue; s.inObject() {
				s.state = sKey
			}
		case c == '}' && s.inObject(), c == ']' && !s.inObject():
			s.close(c)
		default:
			s.badByte()
		}
	case sFirstElem, sValue:
		if c == ']' && s.state == sFirstElem {
			s.close(c)
			return
		}
		s.startValue(c)
	}
}

func (s *envelopeScanner) startValue(c byte) {
	if s.depth == 0 && c != '{' {
		s.fail(errNotObject)
		return
	}
	open := s.chooseValue(c)
	switch {
	case c == '{' || c == '[':
		if s.depth == maxDepth {
			s.fail(errors.New("the line nests too deep"))
			return
		}
		if s.depth>>6 == len(s.stack) {
			s.stack = append(s.stack, 0)
		}
		if c == '{' {
			s.stack[s.depth>>6] |= 1 << (s.depth & 63)
			s.state = sFirstKey
		} else {
			s.stack[s.depth>>6] &^= 1 << (s.depth & 63)
			s.state = sFirstElem
		}
		s.depth++
		if open != nil {
			s.row = append(s.row, c)
			s.frames = append(s.frames, keepFrame{node: open})
			return
		}
	case c == '"':
		s.state, s.isKey = sString, false
	case c == 't':
		s.state, s.literal = sLiteral, "rue"
	case c == 'f':
		s.state, s.literal = sLiteral, "alse"
	case c == 'n':
		s.state, s.literal = sLiteral, "ull"
	case c == '-':
		s.state = sMinus
	case c == '0':
		s.state = sZero
	case c-'1' < 9:
		s.state = sInt
	default:
		s.badByte()
		return
	}
	s.copyByte(c)
}

// chooseValue decides what happens to the value that starts with c. It returns
// the keep of a container that is filtered member by member.
func (s *envelopeScanner) chooseValue(c byte) *keep {
	if s.mode != mFilter {
		return nil
	}
	if s.depth == 0 {
		return &keep{}
	}
	f := &s.frames[len(s.frames)-1]
	object := s.inObject()
	var node *keep
	if !object {
		node = f.node.elem
	} else if key, ok := s.keyText(); ok {
		switch {
		case len(s.frames) > 1:
			node = f.node.keys[key]
		case key == "data":
			node = keepData
		default:
			node = keepAll // the envelope, and what does not belong there
		}
	} else if len(s.frames) == 1 {
		s.fail(errors.New("the envelope has a key of excessive length"))
	}
	s.at = s.depth
	if node == nil {
		s.mode = mSkip
		return nil
	}
	if f.members++; f.members > 1 {
		s.row = append(s.row, ',')
	}
	if object {
		s.row = append(s.row, s.key...)
		s.row = append(s.row, ':')
	}
	switch {
	case node.all:
		s.mode = mCopy
	case c == '{' && node.keys != nil, c == '[' && node.elem != nil:
		return node
	default:
		s.row = append(s.row, "null"...)
		s.mode = mSkip
	}
	return nil
}

// keyText is the text of the current key; ok is false for one too long to be
// of interest.
func (s *envelopeScanner) keyText() (string, bool) {
	if len(s.key) > maxKey {
		return "", false
	}
	for _, c := range s.key {
		if c == '\\' {
			var text string
			err := json.Unmarshal(s.key, &text)
			return text, err == nil
		}
	}
	return string(s.key[1 : len(s.key)-1]), true
}

func (s *envelopeScanner) close(c byte) {
	s.depth--
	if s.mode == mFilter {
		s.row = append(s.row, c)
		s.frames = s.frames[:len(s.frames)-1]
	} else {
		s.copyByte(c)
	}
	s.endValue()
}

func (s *envelopeScanner) endString() {
	if s.isKey {
		s.state = sColon
		return
	}
	s.endValue()
}

func (s *envelopeScanner) endValue() {
	s.state = sAfter
	if s.mode != mFilter && s.depth == s.at {
		s.mode = mFilter
	}
}

func (s *envelopeScanner) inObject() bool {
	d := s.depth - 1
	return s.stack[d>>6]>>(d&63)&1 == 1
}

func (s *envelopeScanner) copyByte(c byte) {
	if s.mode == mCopy {
		s.row = append(s.row, c)
	}
}

// copyStringByte is copyByte, but in mFilter the only strings are keys.
func (s *envelopeScanner) copyStringByte(c byte) {
	switch {
	case s.mode == mCopy:
		s.row = append(s.row, c)
	case s.mode == mFilter && s.isKey && len(s.key) <= maxKey:
		if len(s.key) == 0 {
			s.key = append(s.key, '"')
		}
		s.key = append(s.key, c)
	}
}

func (s *envelopeScanner) inNumber() bool { return s.state >= sMinus && s.state <= sExpDigits }

// numberEnds tells whether the number may end where it is.
func (s *envelopeScanner) numberEnds() bool {
	return s.state == sZero || s.state == sInt || s.state == sFrac || s.state == sExpDigits
}

// numberByte takes c as part of the number; false when it is none.
func (s *envelopeScanner) numberByte(c byte) bool {
	digit := c-'0' < 10
	switch s.state {
	case sMinus:
		switch {
		case c == '0':
			s.state = sZero
		case digit:
			s.state = sInt
		default:
			return false
		}
		return true
	case sInt, sZero:
		switch {
		case digit && s.state == sInt:
		case c == '.':
			s.state = sDot
		case c == 'e' || c == 'E':
			s.state = sExp
		default:
			return false
		}
		return true
	case sDot, sFrac:
		switch {
		case digit:
			s.state = sFrac
		case (c == 'e' || c == 'E') && s.state == sFrac:
			s.state = sExp
		default:
			return false
		}
		return true
	case sExp:
		if c == '+' || c == '-' {
			s.state = sExpSign
			return true
		}
		fallthrough
	default: // sExpSign, sExpDigits
		if digit {
			s.state = sExpDigits
		}
		return digit
	}
}

func isHex(c byte) bool { return c-'0' < 10 || c-'a' < 6 || c-'A' < 6 }
