package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Decoder turns the rows of one ledger file into events. It keeps memory that
// the events share, so that decoding a row allocates nothing in the long run.
// It is not safe for concurrent use.
type Decoder struct {
	d     *Dialect
	v     *Vocabulary
	check validator
	op    SurfaceOp
	next  int64 // the seq that is taken next, or -1
	seqs  []int64
	order []int64
	run   ChunkRun
	index [16]member // of a row's data
	jumps jumps      // of a row
}

// NewDecoder returns a decoder for rows of dialect d; v tells which types are
// known to carry no surface fields, nil means Core(d).
func NewDecoder(d *Dialect, v *Vocabulary) *Decoder {
	if v == nil {
		v = Core(d)
	}
	return &Decoder{d: d, v: v, next: -1}
}

// maxSources bounds what the ranges of one row may expand to where nobody has said
// which seq comes next: a few bytes of a hostile row can name any number of events.
const maxSources = 1 << 22

// Expect tells the decoder which seq is taken next. The sources of an event with
// a later one are not expanded and left nil: nobody takes that event, and a few
// bytes of ranges could name any number of them.
func (x *Decoder) Expect(next int64) { x.next = next }

// DecodeEvent decodes one row, without its line feed, into ev. The event's Data
// and RawSurfaceOp share memory with row. A packed run is refused with
// CodeRowPacked. The error is a *DecodeError; at StageGeneration ev is filled.
//
// Whether ev.Seq is the next one is the trace's question.
func DecodeEvent(d *Dialect, v *Vocabulary, row []byte, ev *Event) error {
	run, err := NewDecoder(d, v).Decode(row, ev)
	if err == nil && run != nil {
		return &DecodeError{Code: CodeRowPacked, Stage: StageEnvelope, Seq: run.Seq0, Detail: "a packed run is more than one event"}
	}
	return err
}

// member is one member of an object as it is written.
type member struct{ key, value []byte }

// envelope holds the members of a row that count; nil means absent.
type envelope struct {
	typ, seq, time, data   []byte
	op, sources, ignorable []byte
	seq0, time0            []byte // packed runs only
	unexpected             []byte // the first key that no envelope has
	opFirst                bool   // surfaceOp stands before sourceEventSeqs

	scanned, quiet bool // the scan has looked for loud strings, and found none

	// index holds the members of data where the scan has listed them all.
	index   []member
	indexed bool
	dataAt  int // where data begins in the row
}

// member finds a member of the payload, the last of duplicates.
func (e *envelope) member(name string) []byte {
	if !e.indexed {
		return Member(e.data, name)
	}
	var found []byte
	for _, m := range e.index {
		if StringIs(m.key, name) {
			found = m.value
		}
	}
	return found
}

// Decode decodes one row, without its line feed. A row of one event goes into
// ev, and run is nil. A packed run (versions 0 and 1) is returned as run, and ev
// is left alone. Both share memory with row and with the decoder, and are valid
// until the next call.
//
// The error is a *DecodeError; at StageGeneration ev is filled.
func (x *Decoder) Decode(row []byte, ev *Event) (run *ChunkRun, err error) {
	var e envelope
	if err := x.scan(row, &e); err != nil {
		return nil, err
	}
	known := x.known(e.typ)
	if x.d.rowChecks {
		if err := x.d.structure(&e, known); err != nil {
			return nil, err
		}
	}
	if x.d.chunks && isPacked(e.typ) {
		if err := x.run.decode(&e); err != nil {
			return nil, err
		}
		return &x.run, nil
	}
	if err := x.envelope(&e, ev, known); err != nil {
		return nil, err
	}
	if x.d.rowChecks {
		return nil, x.generation(&e, ev, known)
	}
	return nil, nil
}

// CheckStructure applies only those refusals of d that hold even behind a row
// which already ended the accepted prefix of a damaged ledger. Rows that are no
// JSON objects pass. The error is a *DecodeError at StageStructure.
func CheckStructure(d *Dialect, row []byte) error {
	x := Decoder{d: d}
	var e envelope
	if !d.rowChecks || x.scan(row, &e) != nil {
		return nil
	}
	return d.structure(&e, nil)
}

// RowType reads the type of a row that is a JSON object, envelope or not; ok is
// false for any other row.
func RowType(row []byte) (typ string, ok bool) {
	if ValidJSON(row) != nil {
		return "", false
	}
	row = TrimSpace(row)
	if KindOf(row) != KindObject {
		return "", false
	}
	return String(Member(row, "type"))
}

// scan checks that row is one JSON object and finds its members, in one pass.
func (x *Decoder) scan(row []byte, e *envelope) error {
	i := skipSpace(row, 0)
	if i >= len(row) || row[i] != '{' {
		if err := ValidJSON(row); err != nil {
			return &DecodeError{Code: CodeRowJSON, Stage: StageJSON, Seq: -1, Err: err}
		}
		return &DecodeError{Code: CodeRowNotObject, Stage: StageEnvelope, Seq: -1, Detail: "want a JSON object"}
	}
	x.check.loud = false
	x.jumps.reset()
	x.check.jumps = &x.jumps
	end, err := x.members(row, skipSpace(row, i+1), e)
	e.scanned, e.quiet = true, !x.check.loud
	if err == nil {
		if end = skipSpace(row, end); end != len(row) {
			err = &SyntaxError{end, "end of the row"}
		}
	}
	if err != nil {
		return &DecodeError{Code: CodeRowJSON, Stage: StageJSON, Seq: -1, Err: err}
	}
	return nil
}

func (x *Decoder) members(row []byte, i int, e *envelope) (int, error) {
	if i < len(row) && row[i] == '}' {
		return i + 1, nil
	}
	for {
		key, value, err := keyAt(row, i)
		if err != nil {
			return value, err
		}
		data := StringIs(key, "data")
		if e.indexed = e.indexed && !data; data && value < len(row) && row[value] == '{' {
			e.index, e.indexed, e.dataAt = x.index[:0], true, value
			i, err = x.payload(row, skipSpace(row, value+1), e)
		} else {
			i, err = x.check.value(row, value)
		}
		if err != nil {
			return i, err
		}
		e.set(key, row[value:i])
		next, closed, err := memberEnd(row, i)
		if err != nil || closed {
			return next, err
		}
		i = next
	}
}

// payload checks the members of data and lists them, so that nobody has to walk
// over a long one again to find a short one behind it.
func (x *Decoder) payload(row []byte, i int, e *envelope) (int, error) {
	if i < len(row) && row[i] == '}' {
		return i + 1, nil
	}
	for {
		key, value, err := keyAt(row, i)
		if err != nil {
			return value, err
		}
		if i, err = x.check.value(row, value); err != nil {
			return i, err
		}
		if len(e.index) < cap(e.index) {
			e.index = append(e.index, member{key, row[value:i]})
		} else {
			e.indexed = false
		}
		next, closed, err := memberEnd(row, i)
		if err != nil || closed {
			return next, err
		}
		i = next
	}
}

// keyAt checks a key and its colon. It returns the key, quotes included, and
// where the value starts.
func keyAt(b []byte, i int) (key []byte, value int, err error) {
	if i >= len(b) || b[i] != '"' {
		return nil, i, &SyntaxError{i, "a key"}
	}
	end, _, err := checkString(b, i)
	if err != nil {
		return nil, end, err
	}
	key = b[i:end]
	if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
		return nil, i, &SyntaxError{i, "a colon"}
	}
	return key, skipSpace(b, i+1), nil
}

// memberEnd goes on behind a member's value: to the next key, or behind the
// object.
func memberEnd(b []byte, i int) (next int, closed bool, err error) {
	if i = skipSpace(b, i); i >= len(b) {
		return i, false, &SyntaxError{i, "a comma or a closing brace"}
	}
	switch b[i] {
	case '}':
		return i + 1, true, nil
	case ',':
		return skipSpace(b, i+1), false, nil
	}
	return i, false, &SyntaxError{i, "a comma or a closing brace"}
}

func (e *envelope) set(key, value []byte) {
	slot := e.slot(string(key[1 : len(key)-1]))
	if slot == nil {
		// Only a key with an escape can mean a name that it does not spell.
		if name, _ := String(key); len(name)+2 < len(key) {
			slot = e.slot(name)
		}
	}
	switch {
	case slot != nil:
		e.opFirst = e.opFirst || slot == &e.sources && e.op != nil
		*slot = value
	case e.unexpected == nil:
		e.unexpected = key
	}
}

func (e *envelope) slot(name string) *[]byte {
	switch name {
	case "type":
		return &e.typ
	case "seq":
		return &e.seq
	case "time":
		return &e.time
	case "data":
		return &e.data
	case "surfaceOp":
		return &e.op
	case "sourceEventSeqs":
		return &e.sources
	case "ignorable":
		return &e.ignorable
	case "seq0":
		return &e.seq0
	case "time0":
		return &e.time0
	}
	return nil
}

// known finds the type in the vocabulary, decoding it only where it has to.
func (x *Decoder) known(raw []byte) *EventType {
	if KindOf(raw) != KindString || x.v == nil {
		return nil
	}
	if t := x.v.types[string(raw[1:len(raw)-1])]; t != nil {
		return t
	}
	name, _ := String(raw)
	return x.v.types[name]
}

func (e *envelope) fail(code Code, detail string) error {
	f := &DecodeError{Code: code, Stage: StageEnvelope, Seq: -1, Detail: detail}
	f.Type, _ = String(e.typ)
	if n, ok := SafeInteger(e.seq); ok {
		f.Seq = n
	}
	return f
}

// envelope applies the checks in the order in which the reference does.
func (x *Decoder) envelope(e *envelope, ev *Event, known *EventType) error {
	for _, must := range [...]struct {
		value []byte
		name  string
	}{{e.typ, "type"}, {e.seq, "seq"}, {e.time, "time"}, {e.data, "data"}} {
		if must.value == nil {
			return e.fail(CodeFieldMissing, must.name)
		}
	}
	switch {
	case e.seq0 != nil:
		return e.fail(CodeFieldUnexpected, "seq0")
	case e.time0 != nil:
		return e.fail(CodeFieldUnexpected, "time0")
	case e.unexpected != nil:
		return e.fail(CodeFieldUnexpected, "a field of "+strconv.Itoa(len(e.unexpected)-2)+" bytes")
	case KindOf(e.typ) != KindString:
		return e.fail(CodeType, "want a string")
	}
	ev.facts = facts{}
	ev.DataTruncated = false
	if known != nil {
		ev.Type = known.Name
	} else {
		ev.Type, _ = String(e.typ)
	}
	var ok bool
	if ev.Time, ok = SafeInteger(e.time); !ok {
		return e.fail(CodeTime, "want a safe integer")
	}
	if ev.Ignorable = e.ignorable != nil; ev.Ignorable && string(e.ignorable) != "true" {
		return e.fail(CodeIgnorable, "want true, or no such field")
	}
	ev.SourceEventSeqs = nil
	if ev.Seq, ok = Count(e.seq); !ok {
		// The decoder of version 2 compares the seq before it judges it, and
		// negative zero equals zero: only the generations on top refuse it.
		n, isNumber := ParseNumber(e.seq)
		if !isNumber || n.Float != 0 || e.sources != nil {
			return e.fail(CodeSeq, "want a count")
		}
		ev.Seq = 0
	}
	if e.sources != nil && (x.next < 0 || ev.Seq <= x.next) {
		if err := x.sources(e, ev.Seq); err != nil {
			return err
		}
		ev.SourceEventSeqs = x.seqs
	}
	if ev.Type == TypeEndSeed && !x.d.seedLength && KindOf(e.data) != KindObject {
		return e.fail(CodeEndSeed, "want an object")
	}
	ev.Data = json.RawMessage(e.data)
	if e.indexed {
		turn, okTurn := Count(e.member("turn"))
		step, okStep := Count(e.member("step"))
		ev.facts = facts{
			of: &e.data[0], counted: okTurn && okStep, turn: turn, step: step,
			jumps: x.jumps.list, start: e.dataAt,
		}
	}
	ev.RawSurfaceOp = json.RawMessage(e.op)
	ev.SurfaceOp = nil
	if e.op != nil && x.surfaceOp(e.op) {
		ev.SurfaceOp = &x.op
	}
	ev.opFirst = e.opFirst
	return nil
}

// sources expands the field, seqs and ranges of them, into x.seqs.
func (x *Decoder) sources(e *envelope, seq int64) error {
	if KindOf(e.sources) != KindArray {
		return e.fail(CodeSources, "want an array")
	}
	if x.seqs == nil {
		x.seqs = make([]int64, 0, 16)
	}
	out := x.seqs[:0]
	ranges := false
	for a := WalkArray(e.sources); a.Next(); {
		if KindOf(a.Value()) != KindArray {
			n, ok := Count(a.Value())
			if !ok {
				return e.fail(CodeSources, "a member is no count")
			}
			out = append(out, n)
			continue
		}
		var pair [2]int64
		n := 0
		counts := true
		for p := WalkArray(a.Value()); p.Next(); n++ {
			if n < 2 {
				var ok bool
				pair[n], ok = Count(p.Value())
				counts = counts && ok
			}
		}
		switch start, end := pair[0], pair[1]; {
		case n != 2:
			return e.fail(CodeSources, "a range is no pair")
		case !counts:
			return e.fail(CodeSources, "the end of a range is no count")
		case start > end || end >= seq || end-start+1 > seq-int64(len(out)):
			return e.fail(CodeSources, "a range goes beyond the event's own seq")
		case x.next < 0 && end-start >= maxSources-int64(len(out)):
			return e.fail(CodeSources, "the ranges name more events than are read without knowing the ledger")
		default:
			for ; start <= end; start++ {
				out = append(out, start)
			}
			ranges = true
		}
	}
	x.seqs = out
	increasing := true
	for i, n := range out {
		if n >= seq {
			return e.fail(CodeSources, "want unique earlier seqs")
		}
		increasing = increasing && (i == 0 || n > out[i-1])
	}
	if increasing {
		return nil
	}
	if x.duplicates(out) {
		return e.fail(CodeSources, "want unique earlier seqs")
	}
	if ranges {
		return e.fail(CodeSources, "a list with ranges has to increase")
	}
	return nil
}

func (x *Decoder) duplicates(list []int64) bool {
	x.order = append(x.order[:0], list...)
	return repeats(x.order)
}

// repeats sorts list and reports whether a number stands in it twice.
func repeats(list []int64) bool {
	slices.Sort(list)
	for i := 1; i < len(list); i++ {
		if list[i] == list[i-1] {
			return true
		}
	}
	return false
}

// surfaceOp reads a well-formed surfaceOp into x.op.
func (x *Decoder) surfaceOp(raw []byte) bool {
	x.op = SurfaceOp{}
	if StringIs(raw, "append") {
		return true
	}
	var op, start, end, other bool
	for o := WalkObject(raw); o.Next(); {
		switch {
		case o.KeyIs("op"):
			op = StringIs(o.Value(), "replace")
		case o.KeyIs(x.d.replaceStart):
			x.op.Start, start = Count(o.Value())
		case o.KeyIs(x.d.replaceEnd):
			x.op.End, end = Count(o.Value())
		default:
			other = true
		}
	}
	x.op.Replace = true
	return op && start && end && !other
}

// generation applies what generations from 3 on add to a decoded event.
func (x *Decoder) generation(e *envelope, ev *Event, known *EventType) error {
	err := func() error {
		if _, ok := Count(e.seq); !ok {
			return e.fail(CodeSeq, "want a count")
		}
		if known != nil {
			if code, detail := x.d.surfaceFields(ev, known.Surface); code != "" {
				return e.fail(code, detail)
			}
		}
		return x.d.payload(e, ev.Type, ev.Data)
	}()
	if err != nil {
		err.(*DecodeError).Stage = StageGeneration
	}
	return err
}

// surfaceFields judges surfaceOp and sourceEventSeqs of an event of a known type:
// one of a surface type carries a well-formed surfaceOp, and sources that are
// earlier, distinct and not empty; one of another type carries neither.
func (d *Dialect) surfaceFields(ev *Event, surface bool) (Code, string) {
	if !surface {
		switch {
		case ev.SurfaceOp != nil || ev.RawSurfaceOp != nil:
			return CodeSurfaceOpForbidden, "not a surface type"
		case ev.SourceEventSeqs != nil:
			return CodeSourcesForbidden, "not a surface type"
		}
		return "", ""
	}
	switch op := ev.SurfaceOp; {
	case op == nil && ev.RawSurfaceOp == nil:
		return CodeSurfaceOpMissing, "want append or replace"
	case op == nil:
		return CodeSurfaceOpMalformed, "want append, or a replace with exactly op, " + d.replaceStart + " and " + d.replaceEnd
	case op.Replace && (op.Start < 0 || op.Start >= ev.Seq || op.End < 0 || op.End >= ev.Seq):
		return CodeReplaceNotEarlier, fmt.Sprintf("replaces %d to %d", op.Start, op.End)
	}
	if ev.SourceEventSeqs == nil {
		return "", ""
	}
	if ev.Type == TypeAssistantMessage && !d.assistantSources {
		return CodeSourcesForbidden, "an embedded stream has no sources"
	}
	if len(ev.SourceEventSeqs) == 0 && ev.Type != TypeAssistantMessage {
		return CodeSourcesEmpty, "want at least one"
	}
	increasing := true
	for i, n := range ev.SourceEventSeqs {
		if n < 0 || n >= ev.Seq {
			return CodeSourcesNotEarlier, fmt.Sprintf("cites %d", n)
		}
		increasing = increasing && (i == 0 || n > ev.SourceEventSeqs[i-1])
	}
	if !increasing {
		var few [64]int64
		if repeats(append(few[:0], ev.SourceEventSeqs...)) {
			return CodeSourcesDuplicate, "cites an event twice"
		}
	}
	return "", ""
}

// AppendEvent appends ev as one row in d's form, without a line feed: the
// members in the reference's order, and runs of sources as ranges where the
// generation writes them.
func AppendEvent(dst []byte, d *Dialect, ev *Event) []byte {
	dst = append(dst, `{"type":`...)
	dst = AppendQuoted(dst, ev.Type)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendInt(dst, ev.Seq, 10)
	dst = append(dst, `,"time":`...)
	dst = strconv.AppendInt(dst, ev.Time, 10)
	dst = append(dst, `,"data":`...)
	dst = append(dst, ev.Data...)
	if ev.opFirst {
		dst = d.appendSurfaceOp(dst, ev)
	}
	if ev.SourceEventSeqs != nil {
		dst = append(dst, `,"sourceEventSeqs":`...)
		dst = appendSources(dst, ev.SourceEventSeqs, !d.chunks)
	}
	if !ev.opFirst {
		dst = d.appendSurfaceOp(dst, ev)
	}
	if ev.Ignorable {
		dst = append(dst, `,"ignorable":true`...)
	}
	return append(dst, '}')
}

func (d *Dialect) appendSurfaceOp(dst []byte, ev *Event) []byte {
	switch op := ev.SurfaceOp; {
	case op == nil && ev.RawSurfaceOp != nil:
		dst = append(dst, `,"surfaceOp":`...)
		return append(dst, ev.RawSurfaceOp...)
	case op == nil:
		return dst
	case !op.Replace:
		return append(dst, `,"surfaceOp":"append"`...)
	default:
		dst = append(dst, `,"surfaceOp":{"op":"replace","`...)
		dst = append(dst, d.replaceStart...)
		dst = append(dst, `":`...)
		dst = strconv.AppendInt(dst, op.Start, 10)
		dst = append(dst, `,"`...)
		dst = append(dst, d.replaceEnd...)
		dst = append(dst, `":`...)
		dst = strconv.AppendInt(dst, op.End, 10)
		return append(dst, '}')
	}
}

// appendSources writes runs of three and more as pairs, but only in a list that
// increases: a reader refuses pairs in any other.
func appendSources(dst []byte, list []int64, ranges bool) []byte {
	for i := 1; i < len(list) && ranges; i++ {
		ranges = list[i] > list[i-1]
	}
	dst = append(dst, '[')
	for i := 0; i < len(list); {
		if i > 0 {
			dst = append(dst, ',')
		}
		j := i
		for ranges && j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if j-i >= 2 {
			dst = append(dst, '[')
			dst = strconv.AppendInt(dst, list[i], 10)
			dst = append(dst, ',')
			dst = strconv.AppendInt(dst, list[j], 10)
			dst = append(dst, ']')
			i = j + 1
			continue
		}
		dst = strconv.AppendInt(dst, list[i], 10)
		i++
	}
	return append(dst, ']')
}
