package redact

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strconv"
)

// context is what the surroundings of a value say about it.
type context struct {
	keyed []keyMatch // the rules that the key above belongs to
	name  []byte     // decoded key whose text some rule looks for; nil for none
	hash  uint64     // names the way from the nearest array; 0: in no array
	elem  bool       // an element of an array under that key
	key   bool       // a key itself, which is no value at any path
	flat  flatness   // an array here may be names and values in turn
}

// keyMatch is a rule that takes what stands under a key, as the rule classes it.
type keyMatch struct {
	rule  *rule
	class int
}

var noContext = context{}

// keyInfo is what is known about a key's text; keys repeat.
type keyInfo struct {
	keyed   []keyMatch
	literal bool // the key holds literals: its value is scanned together with it
	finds   bool // the key itself may hold a match
	role    keyRole
	within  bool // the key means something to a rule with Within
	flat    flatness
}

// flatness says whether an array under a key is names and values in turn.
type flatness uint8

const (
	notFlat   flatness = iota
	maybeFlat          // "headers": those of a request, or of a table
	flat               // "rawHeaders"
)

type keyRole uint8

const (
	roleNone keyRole = iota
	roleName
	roleValue
	roleLabel // names what a text is typed into
	roleText  // that text
)

// The walker. Each function takes the position of what it reads in v.text,
// which is JSON (perhaps), and returns the position behind it; ok is false
// where v.text is not JSON, and then the position is where that shows.

func (s *scan) space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// value reads one value at i.
func (s *scan) value(v *view, i, depth int, ctx context) (int, bool) {
	b := v.text
	if i >= len(b) {
		return i, false
	}
	if depth > s.e.limits.Depth && (b[i] == '{' || b[i] == '[') {
		end, ok := skipValue(b, i)
		if ok {
			s.tooDeep(v, i, end)
			s.whole(v, i, end, ctx)
		}
		return end, ok
	}
	at := i
	switch c := b[i]; {
	case c == '"':
		d, end, ok := s.readString(v, i)
		if !ok {
			return end, false
		}
		s.stringValue(d, ctx)
		if end == at+2 {
			s.whole(v, at, end, ctx)
		}
		return end, true
	case c == '{':
		end, ok := s.object(v, i, depth, ctx)
		if ok {
			s.whole(v, at, end, ctx)
		}
		return end, ok
	case c == '[':
		end, ok := s.array(v, i, depth, ctx)
		if ok {
			s.whole(v, at, end, ctx)
		}
		return end, ok
	case c == '-' || '0' <= c && c <= '9':
		end, ok := numberEnd(b, i)
		if ok {
			s.number(v, i, end, ctx)
		}
		return end, ok
	}
	end, ok := literalEnd(b, i)
	if ok {
		s.whole(v, at, end, ctx)
	}
	return end, ok
}

// whole applies the rules that take a value by its key or path alone to what is
// neither number nor text: an object, an array, true, false, null, "".
func (s *scan) whole(v *view, start, end int, ctx context) {
	if len(ctx.keyed) == 0 && len(s.e.byPath) == 0 {
		return
	}
	text := v.text[start:end]
	leaf := text[0] != '{' && text[0] != '['
	// A drop leaves null in an array, and in place of everything.
	last := len(s.path) - 1
	gone := text[0] == 'n' && (last < 0 || s.path[last].index >= 0)
	var d *view
	take := func(r *rule) {
		if gone && r.Action == Drop {
			return
		}
		if d == nil {
			d = s.newView()
			*d = view{text: text, parent: v, base: start, whole: len(text), number: true, json: true, nested: v.nested, depth: v.depth}
		}
		s.emit(d, 0, len(text), r)
	}
	for _, r := range s.e.byPath {
		if s.valueSelected(r, leaf) {
			take(r)
		}
	}
	for _, k := range ctx.keyed {
		if r := k.rule; r.takesAll() && (!ctx.elem || len(r.paths) > 0) {
			take(r)
		}
	}
}

// valueSelected reports whether a rule without an expression selects the value
// at the current path. What ends in ** selects the leaves, each by itself.
func (s *scan) valueSelected(r *rule, leaf bool) bool {
	for _, p := range r.paths {
		if (leaf || p[len(p)-1] != "**") && pathMatches(p, s.path) {
			return true
		}
	}
	return false
}

// takesAll says that a rule for keys takes every value, whatever it is.
func (c *rule) takesAll() bool { return len(c.keys) > 0 && c.re == nil && c.Validator == "" }

// canonical is a JSON value with its members in order and without spaces.
func canonical(text []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return out
}

// tooDeep replaces a value whose nesting is beyond the limit.
func (s *scan) tooDeep(v *view, start, end int) {
	d := s.newView()
	*d = view{text: v.text[start:end], parent: v, base: start, whole: end - start, number: true, nested: v.nested}
	s.exhaust(d)
}

func literalEnd(b []byte, i int) (int, bool) {
	for _, l := range [...]string{"true", "false", "null"} {
		if len(b)-i >= len(l) && string(b[i:i+len(l)]) == l {
			return i + len(l), true
		}
	}
	return i, false
}

func numberEnd(b []byte, i int) (int, bool) {
	digits := func() bool {
		from := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return i, false
		}
	}
	return i, true
}

// stringEnd finds the end of the string whose quote stands at i.
func stringEnd(b []byte, i int) (end int, escaped, ok bool) {
	end, f, ok := stringScan(b, i)
	return end, f&hasEscape != 0, ok
}

// What a string holds, as far as its end was looked for.
const (
	hasEscape  = 1 << iota // a backslash
	hasUnicode             // bytes beyond ASCII, or \\u
)

func stringScan(b []byte, i int) (end int, flags int, ok bool) {
	i++
	high := uint64(0)
	for {
		// Short strings are the rule; a long clean stretch is crossed by
		// words.
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			if m := special(w); m != 0 {
				n := bits.TrailingZeros64(m) &^ 7
				high |= w & (1<<n - 1)
				i += n >> 3
				break
			}
			high |= w
			i += 8
		}
		for i < len(b) {
			c := b[i]
			if c == '"' {
				if high&0x8080808080808080 != 0 {
					flags |= hasUnicode
				}
				return i + 1, flags, true
			}
			if c < 0x20 {
				return i, flags, false
			}
			high |= uint64(c)
			if c == '\\' {
				flags |= hasEscape
				n := escapeLength(b[i:])
				if n == 0 {
					return i, flags, false
				}
				if n == 6 {
					flags |= hasUnicode
				}
				i += n
				break
			}
			i++
			if i&7 == 0 && i+8 <= len(b) {
				break
			}
		}
		if i >= len(b) {
			return i, flags, false
		}
	}
}

// readString finds the end of the string whose quote stands at i and makes its
// decoded view.
func (s *scan) readString(v *view, i int) (d *view, end int, ok bool) {
	b := v.text
	first := i + 1
	i = first
	high := uint64(0)
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		if m := special(w); m != 0 {
			n := bits.TrailingZeros64(m) &^ 7
			high |= w & (1<<n - 1)
			i += n >> 3
			break
		}
		high |= w
		i += 8
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		high |= uint64(b[i])
		i++
	}
	if i >= len(b) || b[i] < 0x20 {
		return nil, i, false
	}
	d = s.newView()
	*d = view{parent: v, nested: v.nested, depth: v.depth, base: first}
	if d.nested >= 0 {
		d.nested++
	}
	if b[i] == '"' {
		d.text, d.plain = b[first:i], high&0x8080808080808080 == 0
		return d, i + 1, true
	}
	// From the first escape on the text is copied as it is read, eight bytes at a
	// time: there is room for eight more than all that follows. Twice as much is
	// made, because JSON inside of strings takes room as well.
	if need := len(b) - first + 8; cap(s.chunk)-len(s.chunk) < need {
		s.chunk = make([]byte, 0, max(2*need, 64<<10))
	}
	out := s.chunk[len(s.chunk):cap(s.chunk)]
	n := copy(out, b[first:i])
	unicode := false
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			binary.LittleEndian.PutUint64(out[n:], w)
			if m := special(w); m != 0 {
				k := bits.TrailingZeros64(m) &^ 7
				high |= w & (1<<k - 1)
				i += k >> 3
				n += k >> 3
				break
			}
			high |= w
			i += 8
			n += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
			high |= uint64(b[i])
			out[n] = b[i]
			n++
			i++
		}
		if i >= len(b) || b[i] < 0x20 {
			return nil, i, false
		}
		if b[i] == '"' {
			break
		}
		if i+1 < len(b) && simpleEscape[b[i+1]] != 0 {
			out[n] = simpleEscape[b[i+1]]
			n++
			i += 2
			continue
		}
		if escapeLength(b[i:]) == 0 {
			return nil, i, false
		}
		unicode = true
		to, k := decodeEscape(out[:n], b[i:])
		n = len(to)
		i += k
	}
	d.text, d.escaped = out[:n:n], i-first
	d.plain = !unicode && high&0x8080808080808080 == 0
	s.chunk = s.chunk[:len(s.chunk)+n]
	return d, i + 1, true
}

// simpleEscape is what the escapes of one letter stand for.
var simpleEscape = [256]byte{'"': '"', '\\': '\\', '/': '/', 'n': '\n', 't': '\t', 'r': '\r', 'b': ' ', 'f': ' '}

// special is not zero when one of eight bytes is a quote, a backslash or a
// control character; its lowest bit is in the first of these.
func special(w uint64) uint64 {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	q := w ^ ones*'"'
	s := w ^ ones*'\\'
	return ((q-ones)&^q | (s-ones)&^s | (w-ones*0x20)&^w) & high
}

// escapeLength is the length of the JSON escape at the start of b, 0 when it
// is not one.
func escapeLength(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

// skipValue reads a value without looking into it and without recursion.
func skipValue(b []byte, i int) (int, bool) {
	var open []bool // true: object
	skip := func() {
		for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
			i++
		}
	}
	key := func() bool {
		skip()
		if i >= len(b) || b[i] != '"' {
			return false
		}
		end, _, ok := stringEnd(b, i)
		i = end
		if !ok {
			return false
		}
		skip()
		if i >= len(b) || b[i] != ':' {
			return false
		}
		i++
		return true
	}
	for {
		skip()
		if i >= len(b) {
			return i, false
		}
		ok := true
		switch c := b[i]; {
		case c == '{' || c == '[':
			i++
			skip()
			if i < len(b) && (b[i] == '}' && c == '{' || b[i] == ']' && c == '[') {
				i++
				break
			}
			open = append(open, c == '{')
			if c == '{' && !key() {
				return i, false
			}
			continue
		case c == '"':
			i, _, ok = stringEnd(b, i)
		case c == '-' || '0' <= c && c <= '9':
			i, ok = numberEnd(b, i)
		default:
			i, ok = literalEnd(b, i)
		}
		if !ok {
			return i, false
		}
		for {
			if len(open) == 0 {
				return i, true
			}
			skip()
			if i >= len(b) {
				return i, false
			}
			top := open[len(open)-1]
			if b[i] == ',' {
				i++
				if top && !key() {
					return i, false
				}
				break
			}
			if b[i] == '}' && top || b[i] == ']' && !top {
				i++
				open = open[:len(open)-1]
				continue
			}
			return i, false
		}
	}
}

// stringView makes the decoded view of the string content v.text[start:end].
func (s *scan) stringView(v *view, start, end int, escaped bool) *view {
	d := s.newView()
	*d = view{parent: v, nested: v.nested, depth: v.depth}
	if d.nested >= 0 {
		d.nested++
	}
	if !escaped {
		d.text, d.base = v.text[start:end], start
		return d
	}
	d.text, d.base, d.escaped = appendUnescaped(s.room(end-start), v.text[start:end]), start, end-start
	return d
}

// object reads an object.
func (s *scan) object(v *view, i, depth int, ctx context) (int, bool) {
	b := v.text
	i = s.space(b, i+1)
	first, firstKey := len(s.members), len(s.keyAt)
	var (
		pairs    pair
		within   within
		redacted bool // some key was
	)
	outer := s.dropped
	for n := 0; ; n++ {
		if i >= len(b) {
			return i, false
		}
		if b[i] == '}' && n == 0 {
			return i + 1, true
		}
		if b[i] != '"' {
			return i, false
		}
		from := i
		end, escaped, ok := stringEnd(b, i)
		if !ok {
			return end, false
		}
		s.dropped = false
		var key []byte
		kv := s.stringView(v, i+1, end-1, escaped)
		key = kv.text
		info := s.keyInfo(key)
		shown := key
		before := len(s.spans)
		if info.finds {
			s.stringValue(kv, context{key: true})
			if len(s.spans) > before {
				redacted = true
				shown = s.maskedKey(before)
			}
		}
		s.keyAt = append(s.keyAt, keyPlace{from + 1, end - 1, before, len(s.spans)})
		i = s.space(b, end)
		if i >= len(b) || b[i] != ':' {
			return i, false
		}
		i = s.space(b, i+1)
		s.push(pathElem{key: shown, index: -1})
		child := context{keyed: info.keyed, hash: ctx.hash, flat: info.flat}
		if len(ctx.keyed) > 0 {
			child.keyed = inherit(info.keyed, ctx.keyed, key)
		}
		if info.literal {
			child.name = key
		}
		if ctx.hash != 0 {
			child.hash = hashKey(ctx.hash, key)
		}
		at := i
		i, ok = s.value(v, i, depth+1, child)
		if !ok {
			return i, false
		}
		if info.role != roleNone {
			pairs.add(s, v, info.role, at, i)
		}
		if info.within {
			within.add(s, v, key, at, i)
		}
		s.pop()
		if s.e.hasDrop {
			s.members = append(s.members, member{from, i, s.dropped})
		}
		i = s.space(b, i)
		if i >= len(b) {
			return i, false
		}
		if b[i] == ',' {
			i = s.space(b, i+1)
			continue
		}
		if b[i] == '}' {
			break
		}
		return i, false
	}
	s.dropped = false
	s.pair(v, &pairs, depth, first)
	if len(within.rules) > 0 {
		within.apply(s, v)
	}
	if s.e.hasDrop {
		s.dropMembers(v, first)
		s.members = s.members[:first]
	}
	s.dropped = outer
	if redacted {
		s.uniqueKeys(v, s.keyAt[firstKey:])
	}
	s.keyAt = s.keyAt[:firstKey]
	return i + 1, true
}

// headerName is what stands in a string that may be the name of a header.
func headerName(value []byte) []byte {
	if len(value) < 4 || len(value) > 80 || value[0] != '"' {
		return nil
	}
	name := value[1 : len(value)-1]
	for _, c := range name {
		if !wordByte(c) && c != '-' {
			return nil
		}
	}
	return name
}

// headerValue reports whether a string behind a name reads like a header's
// value rather than a name itself.
func headerValue(name, rest []byte) bool {
	if bytes.IndexByte(name, '-') < 0 && !equalFold(name, "authorization") || len(rest) == 0 || rest[0] != '"' {
		return false
	}
	end, _, ok := stringEnd(rest, 0)
	return ok && bytes.ContainsAny(rest[:min(end, 256)], "0123456789")
}

// inherit adds the rules of the key above an object that hold for one of its
// members too.
func inherit(own, above []keyMatch, name []byte) []keyMatch {
	for _, k := range above {
		if k.rule.Member == nil || slices.ContainsFunc(own, func(o keyMatch) bool { return o.rule == k.rule }) {
			continue
		}
		if class := k.rule.Member(k.class, name); class != 0 {
			own = append(slices.Clip(own), keyMatch{k.rule, class})
		}
	}
	return own
}

// array reads an array.
func (s *scan) array(v *view, i, depth int, ctx context) (int, bool) {
	b := v.text
	i = s.space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, true
	}
	firstJoin, first := len(s.joins), len(s.members)
	outer := s.dropped
	var name []byte // the string before
	count := 0
	for n := 0; ; n++ {
		count++
		s.dropped = false
		s.push(pathElem{index: n})
		from := i
		var ok bool
		// A rule of the key above holds for strings and numbers directly in the array.
		child := context{hash: 1, keyed: ctx.keyed, elem: true, flat: ctx.flat}
		if i < len(b) && b[i] != '{' {
			child.name = ctx.name
		}
		if name != nil && n%2 == 1 && (ctx.flat == flat || headerValue(name, b[i:])) {
			info := s.keyInfo(name)
			child.keyed = append(slices.Clip(child.keyed), info.keyed...)
			if info.literal {
				child.name = name
			}
		}
		i, ok = s.value(v, i, depth+1, child)
		s.pop()
		if !ok {
			return i, false
		}
		if ctx.flat != notFlat {
			name = headerName(b[from:i])
		}
		if b[from] == '{' {
			for len(s.objects) > s.firstObject && s.objects[len(s.objects)-1].lo > from {
				s.objects = s.objects[:len(s.objects)-1]
			}
			s.objects = append(s.objects, window{from, i})
		}
		if s.e.hasDrop && s.dropped {
			s.removeAll(v, from, i, spanNull)
		}
		i = s.space(b, i)
		if i >= len(b) {
			return i, false
		}
		if b[i] == ',' {
			i = s.space(b, i+1)
			continue
		}
		if b[i] == ']' {
			break
		}
		return i, false
	}
	s.members = s.members[:first]
	s.dropped = false
	s.join(v, firstJoin)
	s.joins = s.joins[:firstJoin+s.lift(firstJoin, count, ctx.hash)]
	s.dropped = outer
	return i + 1, true
}

// number looks at a JSON number.
func (s *scan) number(v *view, start, end int, ctx context) {
	spelled := v.text[start:end]
	plain := bytes.IndexByte(spelled, '.') < 0 && bytes.IndexByte(spelled, 'e') < 0 && bytes.IndexByte(spelled, 'E') < 0
	if plain && len(spelled) < 4 && len(ctx.keyed) == 0 && len(s.e.byPath) == 0 {
		return
	}
	// What leaves is the number, not its spelling.
	text, ok := spelled, false
	if !plain {
		if text, ok = integral(spelled); !ok {
			text = spelled
		}
	}
	var d *view
	lazy := func() *view {
		if d == nil {
			d = s.newView()
			*d = view{text: text, parent: v, base: start, whole: end - start, number: true, nested: v.nested, depth: v.depth}
		}
		return d
	}
	s.selected(lazy, ctx, text, true)
	if len(text) >= minNumber {
		if len(s.e.numbers) > 0 && s.spend(lazy(), len(text)) {
			s.digits(lazy())
		}
		if ctx.name != nil {
			s.withName(lazy(), ctx.name)
		}
	}
}

// integral writes a number with a fraction or an exponent as an integer, if it
// is one or becomes one as a float64, and has 20 digits at most.
func integral(n []byte) ([]byte, bool) {
	const most = 20
	i, point, exp := 0, -1, 0
	var digits []byte
	if n[0] == '-' {
		i++
	}
	for ; i < len(n); i++ {
		switch c := n[i]; {
		case c == '.':
			point = len(digits)
			continue
		case digit(c):
			digits = append(digits, c)
			continue
		}
		e, err := strconv.Atoi(string(n[i+1:]))
		if err != nil || e > 1<<20 || e < -1<<20 {
			return nil, false
		}
		exp = e
		break
	}
	if point < 0 {
		point = len(digits)
	}
	point += exp
	for len(digits) > 1 && digits[0] == '0' {
		digits = digits[1:]
		point--
	}
	if point <= 0 || point > most {
		return nil, false
	}
	out := make([]byte, 0, most+1)
	if n[0] == '-' {
		out = append(out, '-')
	}
	if rest := digits[min(point, len(digits)):]; len(bytes.Trim(rest, "0")) > 0 {
		if point < minNumber {
			return nil, false
		}
		f, err := strconv.ParseFloat(string(n), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
			return nil, false
		}
		return strconv.AppendFloat(out[:0], f, 'f', -1, 64), true
	}
	out = append(out, digits[:min(point, len(digits))]...)
	for k := len(digits); k < point; k++ {
		out = append(out, '0')
	}
	return out, true
}

// selected applies the rules that take a value by its key or path.
func (s *scan) selected(get func() *view, ctx context, text []byte, number bool) {
	for _, r := range s.e.byPath {
		if s.pathSelected(r) && len(text) > 0 && !isMarker(text) {
			s.emit(get(), 0, len(text), r)
		}
	}
	for _, k := range ctx.keyed {
		a, b, ok := 0, len(text), len(text) > 0
		if k.rule.Accept != nil {
			a, b, ok = k.rule.Accept(k.class, text, number)
		}
		if !ok || isMarker(text[a:b]) || k.rule.Validator != "" && !validators[k.rule.Validator](text[a:b]) {
			continue
		}
		s.emit(get(), a, b, k.rule)
	}
}

func isMarker(b []byte) bool {
	if len(b) == 0 || b[0] != '[' {
		return false
	}
	m, ok := marker(b, 0)
	return ok && m.hi == len(b)
}

// stringValue looks at a decoded string: by its key, as JSON, as text.
func (s *scan) stringValue(v *view, ctx context) {
	text := v.text
	if len(text) == 0 {
		return
	}
	// What a key takes is looked into all the same: a rule that knows what the
	// value is has the better name for it.
	if !ctx.key {
		s.selected(func() *view { return v }, ctx, text, false)
	}
	if ctx.hash != 0 {
		s.joins = append(s.joins, joinPiece{hash: ctx.hash, v: v})
	}
	if len(text) < 3 {
		return
	}
	if len(text) <= maxShort && ctx.name == nil && v.plain && v.escaped == 0 && v.segs == nil {
		s.shortText(v)
		return
	}
	if looksLikeJSON(text) && s.nestedJSON(v) {
		return
	}
	s.jsonLines(v)
	if ctx.name != nil {
		s.withName(v, ctx.name)
	}
	s.text(v)
}

func looksLikeJSON(text []byte) bool {
	i := 0
	for i < len(text) && i < 64 && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	if i == len(text) {
		return false
	}
	switch text[i] {
	case '{', '[':
		return true
	case '"':
		return len(text) > i+2 && text[len(text)-1] == '"'
	}
	return false
}

// nestedJSON walks the text of a string as JSON. When it is not JSON after
// all, everything is as it was before.
func (s *scan) nestedJSON(v *view) bool {
	end, ok := wholeJSON(v.text)
	s.fuel -= end
	if !ok {
		return s.cutJSON(v)
	}
	if v.depth >= s.e.limits.Decode || s.steps <= 0 {
		s.exhaust(v)
		return true
	}
	s.steps--
	if !s.spend(v, len(v.text)) {
		return true
	}
	inner := s.newView()
	*inner = *v
	inner.depth++
	return s.walkNested(inner)
}

// walkNested walks a view that is JSON.
func (s *scan) walkNested(v *view) bool {
	joins, members, keys, dropped := len(s.joins), len(s.members), len(s.keyAt), s.dropped
	firstObject := s.firstObject
	s.firstObject = len(s.objects)
	s.push(pathElem{index: -1, json: true})
	_, ok := s.value(v, s.space(v.text, 0), 0, noContext)
	s.pop()
	s.joins, s.members, s.keyAt = s.joins[:joins], s.members[:members], s.keyAt[:keys]
	s.objects, s.firstObject = s.objects[:s.firstObject], firstObject
	s.dropped = s.dropped || dropped
	return ok
}

// jsonLines walks a text of lines that are JSON, or the data of server-sent
// events, as an array of them: what a model answers comes in such pieces. They
// are looked at as text all the same.
func (s *scan) jsonLines(v *view) {
	text := v.text
	if text[0] != '{' && !bytes.HasPrefix(text, dataLine) && !bytes.HasPrefix(text, eventLine) || !severalObjects(text) || !s.mayDecode(v) {
		return
	}
	inner := s.newView()
	*inner = *v
	inner.depth++
	joins, members, keys, dropped := len(s.joins), len(s.members), len(s.keyAt), s.dropped
	firstObject := s.firstObject
	s.firstObject = len(s.objects)
	s.push(pathElem{index: -1, json: true})
	for i, n := 0, 0; i < len(text); n++ {
		end := i + bytes.IndexByte(text[i:], '\n')
		if end < i {
			end = len(text)
		}
		from := i
		if bytes.HasPrefix(text[i:end], dataLine) {
			from = s.space(text, i+len(dataLine))
		}
		if from < end && text[from] == '{' && s.spend(v, end-from) {
			if e, ok := skipValue(text[:end], from); ok && len(bytes.TrimRight(text[e:end], " \t\r")) == 0 {
				s.push(pathElem{index: n})
				s.value(inner, from, 0, context{hash: 1, elem: true})
				s.pop()
			}
		}
		i = end + 1
	}
	s.join(inner, joins)
	s.pop()
	s.joins, s.members, s.keyAt = s.joins[:joins], s.members[:members], s.keyAt[:keys]
	s.objects, s.firstObject = s.objects[:s.firstObject], firstObject
	s.dropped = s.dropped || dropped
}

// severalObjects reports whether more than one line looks like an object.
func severalObjects(text []byte) bool {
	for n := 0; ; {
		end := bytes.IndexByte(text, '\n')
		line := text
		if end >= 0 {
			line = text[:end]
		}
		line = bytes.TrimSpace(bytes.TrimPrefix(line, dataLine))
		if len(line) > 1 && line[0] == '{' && line[len(line)-1] == '}' {
			if n++; n > 1 {
				return true
			}
		}
		if end < 0 {
			return false
		}
		text = text[end+1:]
	}
}

var (
	dataLine  = []byte("data:")
	eventLine = []byte("event:")
)

func wholeJSON(b []byte) (int, bool) {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	end, ok := skipValue(b, i)
	if !ok {
		return end, false
	}
	return end, len(bytes.TrimRight(b[end:], " \n\t\r")) == 0
}

// withName scans a value together with its key, for rules that know a secret
// by the name before it.
func (s *scan) withName(v *view, name []byte) {
	const most = 4096
	if len(v.text) > most || len(name) > 256 || !s.spend(v, len(name)+len(v.text)) {
		return
	}
	b := s.newBuilder()
	b.dead([]byte{'"'})
	b.dead(name)
	b.dead([]byte(`": "`))
	if v.number {
		b.unit(v.text, 0, len(v.text))
	} else {
		b.literal(v.text, 0)
	}
	b.dead([]byte{'"'})
	d := s.newView()
	*d = view{text: b.text, segs: b.segs, parent: v, nested: -1, depth: v.depth}
	s.match(d)
}

// join looks at the strings of an array, and at the strings that have the same
// key in an array of objects, as one text each: a secret may be cut in pieces.
func (s *scan) join(v *view, first int) {
	pieces := s.joins[first:]
	if len(pieces) < 2 {
		return
	}
	if !slices.IsSortedFunc(pieces, joinOrder) {
		slices.SortStableFunc(pieces, joinOrder)
	}
	for i := 0; i < len(pieces); {
		h := pieces[i].hash
		end := i
		for end < len(pieces) && pieces[end].hash == h {
			end++
		}
		group := pieces[i:end]
		i = end
		if len(group) < 2 || constant(group) {
			continue
		}
		b := s.newBuilder()
		n, argv := 0, false
		for _, p := range group {
			if p.v.parent != v {
				continue
			}
			n++
			t := p.v.text
			argv = argv || len(t) > 1 && t[0] == '-' && bytes.IndexByte(t, ' ') < 0
			b.text = append(b.text, t...)
		}
		if n < 2 {
			continue
		}
		d := s.newView()
		*d = view{text: b.text, pieces: group, parent: v, nested: -1, depth: v.depth, joined: true}
		s.text(d)
		if argv && h == 1 {
			s.argv(v, d)
		}
	}
}

// What the parts of a stream hold is short, and at most so many arrays of one
// element deep: {"candidates": [{"content": {"parts": [{"text": "…"}]}}]}.
const (
	maxPart  = 256
	maxLifts = 3
)

// lift keeps the strings of an array of one element for the array around it,
// and returns how many there are.
func (s *scan) lift(first, count int, hash uint64) int {
	if count != 1 || hash == 0 {
		return 0
	}
	n := first
	for _, p := range s.joins[first:] {
		if p.lifts < maxLifts && len(p.v.text) <= maxPart {
			s.joins[n] = joinPiece{hash*1099511628211 ^ p.hash | 4, p.v, p.lifts + 1}
			n++
		}
	}
	return n - first
}

func joinOrder(a, b joinPiece) int { return cmp.Compare(a.hash, b.hash) }

// constant: one short word over and over, as the types of a stream's parts.
func constant(group []joinPiece) bool {
	first := group[0].v.text
	if len(first) > maxShort {
		return false
	}
	for _, c := range first {
		if !(c == '-' || c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			return false
		}
	}
	for _, p := range group[1:] {
		if !bytes.Equal(p.v.text, first) {
			return false
		}
	}
	return true
}

// argv looks at an array of command line words with spaces between them.
func (s *scan) argv(v, joined *view) {
	joined.mapped()
	b := s.newBuilder()
	for i := range joined.segs {
		g := joined.segs[i]
		if g.gap && i > 0 {
			b.dead([]byte{' '})
		}
		from, to := int(g.pos), joined.segEnd(i)
		g.pos = int32(len(b.text))
		b.segs = append(b.segs, g)
		b.text = append(b.text, joined.text[from:to]...)
	}
	d := s.newView()
	*d = view{text: b.text, segs: b.segs, parent: v, nested: -1, depth: v.depth}
	s.text(d)
}

func hashKey(h uint64, key []byte) uint64 {
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ 0xff) * 1099511628211
	if h == 0 {
		return 2
	}
	return h
}

// maxKeys bounds the memory of keys that have been seen.
const maxKeys = 4096

// keyInfo finds out what the rules say about a key.
func (s *scan) keyInfo(key []byte) keyInfo {
	if k, ok := s.keys[string(key)]; ok {
		return k
	}
	var k keyInfo
	as := key
	if nextHidden(key, 0) >= 0 {
		var b builder
		b.visible(key, 0)
		key = b.text
	}
	for _, r := range s.e.keyed {
		class := 0
		switch {
		case r.Key != nil:
			class = r.Key(withoutMarkers(key))
		case r.keyMatches(withoutMarkers(key)):
			class = 1
		}
		if class != 0 {
			k.keyed = append(k.keyed, keyMatch{r, class})
		}
	}
	hits := s.e.machine.scan(key, s.hits[:0])
	s.hits = hits
	k.literal = len(hits) > 0
	k.finds = k.literal || len(key) > 24 || bytes.IndexByte(key, '\\') >= 0 || bytes.IndexByte(key, '%') >= 0
	for _, c := range as {
		k.finds = k.finds || mayHide[c] || '0' <= c && c <= '9'
	}
	k.finds = k.finds || len(s.e.always) > 0
	k.role = pairRole(key)
	switch normalKey(string(key)) {
	case "rawheaders", "rawtrailers", "rawrequestheaders", "rawresponseheaders":
		k.flat = flat
	case "headers", "headerlist", "trailers", "requestheaders", "responseheaders":
		k.flat = maybeFlat
	}
	for _, r := range s.e.within {
		w := r.Within
		k.within = k.within || equalFold(key, w.Member)
		for _, u := range w.Under {
			k.within = k.within || equalFold(key, u)
		}
	}
	if len(s.keys) >= maxKeys {
		clear(s.keys)
	}
	if len(as) <= 256 {
		s.keys[string(as)] = k
	}
	return k
}

// withoutMarkers cuts our own markers out of a key: the id of a rule is no
// reason to redact what stands under it.
func withoutMarkers(key []byte) []byte {
	for at := bytes.IndexByte(key, '['); at >= 0 && at < len(key); {
		m, ok := marker(key, at)
		if ok {
			key = append(append([]byte(nil), key[:m.lo]...), key[m.hi:]...)
		} else {
			at++
		}
		next := bytes.IndexByte(key[min(at, len(key)):], '[')
		if next < 0 {
			break
		}
		at += next
	}
	return key
}

// maskedKey is how a key shows in paths: by the rules that matched in it.
func (s *scan) maskedKey(from int) []byte {
	best := s.spans[from]
	for _, p := range s.spans[from+1:] {
		if s.beats(p, best) {
			best = p
		}
	}
	return s.e.rules[best.rule].marker
}

// pair collects a name member and a value member that stand side by side, as
// in {"key":"password","value":"..."}.
type pair struct {
	name       []byte
	named      bool
	start, end int
	valued     bool
	label      bool // the name is a label
	text       bool // the value is a text beside one
}

func (p *pair) add(s *scan, v *view, role keyRole, start, end int) {
	switch role {
	case roleName, roleLabel:
		if p.named && (!p.label || role == roleLabel) || v.text[start] != '"' || end-start > 258 {
			return
		}
		content := v.text[start+1 : end-1]
		if bytes.IndexByte(content, '\\') >= 0 {
			b := s.newBuilder()
			b.unescape(content, 0)
			content = b.text
		}
		if p.name, p.named, p.label = content, true, role == roleLabel; p.label {
			p.name = labelled(content)
		}
	case roleValue, roleText:
		if !p.valued || p.text && role == roleValue {
			p.start, p.end, p.valued, p.text = start, end, true, role == roleText
		}
	}
}

// labelled takes the kind of the thing off its name: password field.
func labelled(name []byte) []byte {
	for {
		i := bytes.LastIndexByte(name, ' ')
		if i < 0 {
			return name
		}
		switch string(bytes.ToLower(name[i+1:])) {
		case "field", "input", "textbox", "box", "text", "textfield", "edit":
			name = name[:i]
		default:
			return name
		}
	}
}

// typedText accepts what somebody types, and no caption.
func typedText(b []byte) bool {
	return len(b) < 128 && bytes.IndexByte(b, ' ') < 0 && bytes.ContainsAny(b, "0123456789!#$%^&*+=")
}

func pairRole(key []byte) keyRole {
	switch normalKey(string(key)) {
	case "selector", "element", "locator", "xpath", "label", "placeholder", "title", "id":
		return roleLabel
	case "text", "input":
		return roleText
	case "name", "key", "field", "header", "headername", "variable", "env", "envname", "param", "parameter", "property", "attribute", "option", "k", "keyname", "fieldname", "varname", "secretname", "setting":
		return roleName
	case "value", "val", "v", "stringvalue", "defaultvalue", "currentvalue", "newvalue", "oldvalue", "secretvalue", "headervalue":
		return roleValue
	}
	return roleNone
}

// pair applies what the name says to the value beside it.
func (s *scan) pair(v *view, p *pair, depth, first int) {
	if !p.named || !p.valued || len(p.name) == 0 || p.text && (!p.label || !typedText(v.text[p.start:p.end])) {
		return
	}
	info := s.keyInfo(p.name)
	if len(info.keyed) == 0 && !info.literal {
		return
	}
	ctx := context{keyed: info.keyed}
	if info.literal {
		ctx.name = append([]byte(nil), p.name...)
	}
	before := len(s.spans)
	s.push(pathElem{key: []byte("value"), index: -1})
	c := v.text[p.start]
	if c != '{' {
		s.again(v, p.start, ctx)
	} else if p.end-p.start <= maxInner && len(ctx.keyed) > 0 {
		s.inner(v, p.start, ctx)
	}
	if c != '-' && !digit(c) && (c != '"' || p.end == p.start+2) {
		s.whole(v, p.start, p.end, ctx)
	}
	s.pop()
	if len(s.spans) > before && s.dropped {
		for i := first; i < len(s.members); i++ {
			if s.members[i].start <= p.start && p.end <= s.members[i].end {
				s.members[i].dropped = true
			}
		}
	}
	s.dropped = false
}

// maxInner is the longest object of which the members are looked at again.
const maxInner = 1024

// inner looks once more at the members of an object for which a rule of the name
// beside it holds: {"name": "password", "value": {"value": …}}.
func (s *scan) inner(v *view, i int, ctx context) {
	b := v.text
	i = s.space(b, i+1)
	for b[i] != '}' {
		end, _, _ := stringEnd(b, i)
		child := context{keyed: inherit(nil, ctx.keyed, b[i+1:end-1])}
		i = s.space(b, s.space(b, end)+1)
		end, _ = skipValue(b, i)
		s.fuel -= end - i
		if len(child.keyed) > 0 && b[i] != '{' {
			s.again(v, i, child)
		}
		if i = s.space(b, end); b[i] == ',' {
			i = s.space(b, i+1)
		}
	}
}

// again looks at a value once more, now that a name has been found for it:
// strings and numbers, also those in arrays. Objects have been walked.
func (s *scan) again(v *view, i int, ctx context) int {
	b := v.text
	switch c := b[i]; {
	case c == '"':
		d, end, _ := s.readString(v, i)
		s.stringValue(d, ctx)
		return end
	case c == '[':
		outer := s.dropped
		i = s.space(b, i+1)
		for n := 0; b[i] != ']'; n++ {
			s.dropped = false
			s.push(pathElem{index: n})
			from := i
			i = s.again(v, i, ctx)
			s.pop()
			if s.e.hasDrop && s.dropped {
				s.removeAll(v, from, i, spanNull)
			}
			if i = s.space(b, i); b[i] == ',' {
				i = s.space(b, i+1)
			}
		}
		s.dropped = outer
		return i + 1
	case c == '-' || '0' <= c && c <= '9':
		end, _ := numberEnd(b, i)
		s.number(v, i, end, ctx)
		return end
	}
	objects := s.objects[s.firstObject:]
	if k := sort.Search(len(objects), func(k int) bool { return objects[k].lo >= i }); k < len(objects) && objects[k].lo == i {
		return objects[k].hi
	}
	end, _ := skipValue(b, i)
	s.fuel -= end - i
	return end
}

// within collects the members of an object that a rule with Within may take.
type within struct {
	rules []*rule        // whose member has the right value
	first [2]memberRange // most objects have few such members
	n     int
	more  []memberRange
}

type memberRange struct {
	key        []byte
	start, end int
}

func (w *within) add(s *scan, v *view, key []byte, start, end int) {
	for _, r := range s.e.within {
		if equalFold(key, r.Within.Member) && v.text[start] == '"' && equalFold(v.text[start+1:end-1], r.Within.Value) {
			w.rules = append(w.rules, r)
		}
	}
	if c := v.text[start]; c == '{' || c == '[' || c == '"' {
		if w.n < len(w.first) {
			w.first[w.n] = memberRange{key, start, end}
			w.n++
		} else {
			w.more = append(w.more, memberRange{key, start, end})
		}
	}
}

func (w *within) apply(s *scan, v *view) {
	for _, r := range w.rules {
		for i := 0; i < w.n+len(w.more); i++ {
			var m memberRange
			if i < w.n {
				m = w.first[i]
			} else {
				m = w.more[i-w.n]
			}
			for _, u := range r.Within.Under {
				if !equalFold(m.key, u) {
					continue
				}
				s.push(pathElem{key: m.key, index: -1})
				s.strings(v, m.start, m.end, r)
				s.pop()
			}
		}
	}
}

// taken is a value of which every string has been taken.
type taken struct {
	start, end int
	rule       *rule
}

// strings takes every string of the value at [i,end), however deep.
func (s *scan) strings(v *view, i, end int, r *rule) {
	b, start := v.text, i
	s.fuel -= candidateFuel
	isKey := false
	var open []bool
	at := sort.Search(len(v.taken), func(k int) bool { return v.taken[k].start >= i })
	within := at
	for i < end {
		for at < len(v.taken) && v.taken[at].start < i {
			at++
		}
		if at < len(v.taken) && v.taken[at].start == i && v.taken[at].rule == r {
			i = v.taken[at].end
			continue
		}
		switch b[i] {
		case '{':
			open, isKey = append(open, true), true
		case '[':
			open, isKey = append(open, false), false
		case '}', ']':
			open = open[:len(open)-1]
		case ',':
			isKey = len(open) > 0 && open[len(open)-1]
		case ':':
			isKey = false
		case '"':
			stop, escaped, _ := stringEnd(b, i)
			if !isKey {
				d := s.stringView(v, i+1, stop-1, escaped)
				if !isMarker(d.text) {
					s.emit(d, 0, len(d.text), r)
				}
			}
			i = stop
			continue
		}
		i++
	}
	v.taken = append(v.taken[:within], taken{start, end, r})
}

func equalFold(b []byte, s string) bool { return len(b) == len(s) && bytes.EqualFold(b, []byte(s)) }

// dropMembers removes what rules with action drop have marked.
func (s *scan) dropMembers(v *view, first int) {
	ms := s.members[first:]
	lastKept := -1
	for i := range ms {
		if !ms[i].dropped {
			lastKept = i
		}
	}
	for i := range ms {
		if !ms[i].dropped {
			continue
		}
		switch {
		case i < lastKept:
			s.removeAll(v, ms[i].start, ms[i+1].start, spanRemove)
		case lastKept >= 0:
			s.removeAll(v, ms[lastKept].end, ms[len(ms)-1].end, spanRemove)
			return
		default:
			s.removeAll(v, ms[0].start, ms[len(ms)-1].end, spanRemove)
			return
		}
	}
}

// removeAll turns [start,end) of a container into one removal, named after the
// rule that asked for it last.
func (s *scan) removeAll(v *view, start, end int, kind spanKind) {
	r := s.dropRule
	if r == nil {
		return
	}
	s.up(v, start, end, span{rule: r.index, path: s.pathIndex(), token: -1, kind: kind})
}

// keyPlace is where a key of an object stands in the view, and which spans
// have been found in it.
type keyPlace struct{ from, to, firstSpan, endSpan int }

// uniqueKeys appends ~2, ~3 … to keys of one object that would be equal after
// masking.
func (s *scan) uniqueKeys(v *view, keys []keyPlace) {
	type masked struct {
		text string
		last int // index of the key's last span
	}
	taken := map[string]bool{}
	var changed []masked
	for _, k := range keys {
		from, to := k.from, k.to
		s.fuel -= to - from
		if k.firstSpan == k.endSpan {
			taken[string(v.text[from:to])] = true
			continue
		}
		for at := v; at.parent != nil; at = at.parent {
			at.ranges(from, to, func(x, y int) { from, to = x, y })
		}
		order := make([]int, 0, k.endSpan-k.firstSpan)
		for i := k.firstSpan; i < k.endSpan; i++ {
			order = append(order, i)
		}
		sort.Slice(order, func(i, j int) bool { return s.spans[order[i]].start < s.spans[order[j]].start })
		var text []byte
		pos, last := from, -1
		for _, i := range order {
			p := &s.spans[i]
			if int(p.start) < pos || int(p.end) > to {
				continue
			}
			text = append(append(text, s.src[pos:p.start]...), s.e.rules[p.rule].marker...)
			pos, last = int(p.end), i
		}
		if last < 0 {
			taken[string(v.text[k.from:k.to])] = true
			continue
		}
		changed = append(changed, masked{string(append(text, s.src[pos:to]...)), last})
	}
	next := map[string]int{}
	for _, c := range changed {
		text := c.text
		n := next[c.text]
		for taken[text] {
			n = max(n+1, 2)
			text = c.text + "~" + strconv.Itoa(n)
		}
		next[c.text] = n
		taken[text] = true
		s.spans[c.last].suffix = int32(n)
	}
}
