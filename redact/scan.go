package redact

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"unicode/utf8"
)

// span is a range of the input that has to go, with the rule that says so.
type span struct {
	start, end int32
	rule       int32
	path       int32 // index into scan.paths
	token      int32 // index into scan.tokens, -1: none
	suffix     int32 // > 1: tells keys apart that became equal
	quotes     int8  // JSON number or literal: 1 + how deep in strings it stands; 0: text
	kind       spanKind
	depth      int8 // decode steps to where it was found
}

type spanKind uint8

const (
	spanText   spanKind = iota
	spanRemove          // a member of an object, with its comma
	spanNull            // an element of an array, or a value that stands alone
)

// window is a part of a text in which a regex rule may match.
type window struct{ lo, hi int }

// scan is what an engine works with, one call after the other. What belongs to
// one call stands in run, which begins anew with each; the rest is room to work
// in, and what is remembered of keys and short strings, which is the same
// whatever came before.
type scan struct {
	e *Engine
	run

	// Of one text: cleared behind it, by rule. A call that ends in a panic leaves
	// them as they are; its scan is not used again.
	hits     []hit
	windows  [][]window
	touched  []*rule
	seenGate []bool
	gates    []int32
	skip     []int
	openEnd  []int         // where the class ends that follows an anchor
	notes    []*[Notes]int // by rule
	seenNote []bool
	noted    []int32

	views   []*view    // slab
	chunk   []byte     // room for unescaped strings
	bufs    []*builder // slab
	work    [2][]byte
	keys    map[string]keyInfo
	short   *shortCache
	passes  int       // begun so far, in all calls
	emitted []emitted // by rule; of the pass that it names
}

// run is the state of one call.
type run struct {
	src   []byte
	root  view
	spans []span
	fuel  int // bytes that may still be scanned
	steps int // decode steps that may still be made
	burnt int // fuel that this call has used, over all passes

	path     []pathElem
	paths    []string
	pathOf   int32 // paths index of the current path, -1: not built
	tokens   [][]byte
	withhold string
	spent    int // values replaced for want of fuel
	dropRule *rule
	dropped  bool // a rule with action drop matched since this was last cleared
	passed   int  // matches that gave no span: the path is not selected, they are markers, or what they take is taken

	blobs   []window         // stretches of base64 data in the current text
	marks   []window         // our own markers in the current text
	memos   []memo           // by class, in the current text
	bounded [RunClasses]memo // the same for RunEnd
	line    lineMemo
	cand    Candidate
	gaveUp  *view // the text that a rule could not look at for want of fuel

	used        int // of the slab of views
	most        int // how many of them this call has used at once
	usedBuf     int // of the slab of builders
	joins       []joinPiece
	members     []member
	keyAt       []keyPlace // of the objects that are being walked
	objects     []window   // the objects in arrays of the JSON that is being walked, without those inside of others
	firstObject int        // of that JSON; before are those of the JSON around it
}

// next is the state at the beginning of a call, with the room of the last one.
func (r *run) next() run {
	return run{
		pathOf: -1,
		spans:  r.spans[:0], path: r.path[:0], paths: r.paths[:0], tokens: r.tokens[:0],
		blobs: r.blobs[:0], marks: r.marks[:0], memos: r.memos[:0],
		line:  lineMemo{asked: r.line.asked[:0], answers: r.line.answers[:0]},
		joins: r.joins[:0], members: r.members[:0], keyAt: r.keyAt[:0], objects: r.objects[:0],
	}
}

// emitted is the last match of a rule.
type emitted struct {
	view       *view
	pass       int
	start, end int
}

// memo is what Candidate.Run and RunEnd remember of a text.
type memo struct {
	class      *Class
	start, end int
}

// member is one member of an object or element of an array being walked, kept
// only when some rule may drop it.
type member struct {
	start, end int
	dropped    bool
}

// joinPiece is a string that may be a fragment of a longer text: one of the
// strings of an array, or of the same key in the objects of an array.
type joinPiece struct {
	hash  uint64
	v     *view
	lifts uint8 // out of so many arrays of one element
}

func newScan(e *Engine) *scan {
	s := &scan{e: e, windows: make([][]window, len(e.rules)), seenGate: make([]bool, len(e.rules)), skip: make([]int, len(e.rules)), openEnd: make([]int, len(e.rules)), emitted: make([]emitted, len(e.rules)),
		notes: make([]*[Notes]int, len(e.rules)), seenNote: make([]bool, len(e.rules)),
		keys: map[string]keyInfo{}, short: new(shortCache)}
	return s
}

// maxKept bounds what a pooled state keeps in memory.
const maxKept = 1 << 20

// reset ends a call: what it read is not kept alive, and no more room than
// maxKept.
func (s *scan) reset() {
	clear(s.paths)
	clear(s.tokens)
	if cap(s.joins) > maxKept/64 {
		s.joins = nil
	}
	// Views are cleared as they are taken again; here only, so that they do
	// not keep texts alive.
	if s.most > 1024 {
		s.views = nil
	}
	for _, v := range s.views[:min(s.most, len(s.views))] {
		*v = view{}
	}
	total := 0
	for i, b := range s.bufs {
		total += cap(b.text) + 16*cap(b.segs)
		if total > maxKept {
			s.bufs = s.bufs[:i]
			break
		}
	}
	if cap(s.chunk) > maxKept {
		s.chunk = nil
	}
	s.chunk = s.chunk[:0]
	if cap(s.hits) > maxKept/8 {
		s.hits = nil
	}
	for i := range s.work {
		if cap(s.work[i]) > maxKept {
			s.work[i] = nil
		}
	}
	s.run = s.next()
}

// newView is a view that the caller fills whole.
func (s *scan) newView() *view {
	if s.used == len(s.views) {
		s.views = append(s.views, new(view))
	}
	v := s.views[s.used]
	s.used++
	s.most = max(s.most, s.used)
	return v
}

// room is n bytes that nobody else has, empty.
func (s *scan) room(n int) []byte {
	if cap(s.chunk)-len(s.chunk) < n {
		s.chunk = make([]byte, 0, max(n, 64<<10))
	}
	from := len(s.chunk)
	s.chunk = s.chunk[:from+n]
	return s.chunk[from:from:len(s.chunk)]
}

func (s *scan) newBuilder() *builder {
	if s.usedBuf == len(s.bufs) {
		s.bufs = append(s.bufs, new(builder))
	}
	b := s.bufs[s.usedBuf]
	s.usedBuf++
	b.text, b.segs = b.text[:0], b.segs[:0]
	return b
}

// maxPasses bounds how often output is looked at again. Each pass with a
// finding leaves fewer characters outside of markers, so that the end is
// reached; two passes are the rule.
const maxPasses = 16

func (s *scan) redact(dst, src []byte, json bool) ([]byte, *Report, error) {
	s.run = s.next()
	if len(src) > 1<<30 {
		return dst, nil, fmt.Errorf("%w: more than 1 GiB", ErrInternal)
	}
	var rep *Report
	in := src
	for pass := 0; ; pass++ {
		if pass == maxPasses {
			return dst, nil, ErrInternal
		}
		err := s.pass(in, json)
		s.burnt += len(in) + s.e.limits.ScanBytes + 32*len(in) - s.fuel
		if err != nil {
			return dst, nil, err
		}
		if len(s.spans) == 0 {
			break
		}
		if rep == nil {
			rep = &Report{}
		}
		s.merge()
		buf := &s.work[pass%2]
		*buf = s.splice((*buf)[:0], in, rep)
		in = *buf
	}
	out := append(dst, in...)
	if rep == nil {
		return out, s.e.clean, nil
	}
	rep.Withhold, rep.Exhausted = s.withhold, s.spent
	s.cleanPaths(rep)
	rep.sort()
	return out, rep, nil
}

// pass looks at one text and leaves the spans to replace.
func (s *scan) pass(in []byte, json bool) error {
	s.src = in
	s.passes++
	s.root = view{text: in}
	s.spans = s.spans[:0]
	s.used, s.usedBuf = 0, 0
	s.path, s.pathOf = s.path[:0], -1
	s.joins, s.members, s.keyAt = s.joins[:0], s.members[:0], s.keyAt[:0]
	s.objects, s.firstObject = s.objects[:0], 0
	s.gaveUp = nil
	s.fuel = s.e.limits.ScanBytes + 32*len(in)
	s.steps = s.e.limits.Steps + len(in)/16
	if json {
		s.root.nested = 0
		end, ok := s.value(&s.root, s.space(in, 0), 0, noContext)
		if ok {
			end = s.space(in, end)
			ok = end == len(in)
		}
		if !ok {
			s.spans = s.spans[:0]
			return fmt.Errorf("%w: offset %d", ErrInvalidJSON, end)
		}
		if s.dropped {
			s.dropped = false
			s.removeAll(&s.root, 0, len(in), spanNull)
		}
		return nil
	}
	s.stringValue(&s.root, noContext)
	if s.dropped {
		s.dropped = false
	}
	return nil
}

// merge joins overlapping spans; what is left is sorted and disjoint.
func (s *scan) merge() {
	sort.SliceStable(s.spans, func(i, j int) bool {
		if s.spans[i].start != s.spans[j].start {
			return s.spans[i].start < s.spans[j].start
		}
		return s.spans[i].end > s.spans[j].end
	})
	out := s.spans[:1]
	for _, p := range s.spans[1:] {
		last := &out[len(out)-1]
		if p.start >= last.end {
			out = append(out, p)
			continue
		}
		if p.end <= last.end && p.end-p.start < last.end-last.start {
			// Within what goes as a whole, whose place and quotes are the outer ones.
			if p.kind != last.kind {
				continue
			}
			p.quotes = last.quotes
			if last.quotes > 0 {
				p.suffix = last.suffix
			}
		}
		end := max(last.end, p.end)
		if s.beats(p, *last) {
			start, quotes, suffix := last.start, last.quotes, last.suffix
			*last = p
			last.start = start
			last.quotes, last.suffix = quotes, suffix
		}
		last.quotes = max(last.quotes, p.quotes)
		last.suffix = max(last.suffix, p.suffix)
		last.end = end
	}
	s.spans = out
}

func (s *scan) beats(a, b span) bool {
	if a.kind != b.kind {
		return a.kind == spanRemove || a.kind == spanNull && b.kind == spanText
	}
	ra, rb := s.e.rules[a.rule], s.e.rules[b.rule]
	if ra.precedence != rb.precedence {
		return ra.precedence < rb.precedence
	}
	if a.depth != b.depth {
		return a.depth < b.depth
	}
	if la, lb := a.end-a.start, b.end-b.start; la != lb {
		return la > lb
	}
	return a.rule < b.rule
}

// splice copies in with the spans replaced and counts them.
func (s *scan) splice(dst, in []byte, rep *Report) []byte {
	pos := 0
	for _, p := range s.spans {
		dst = append(dst, in[pos:p.start]...)
		pos = int(p.end)
		r := s.e.rules[p.rule]
		rep.add(r.ID, s.paths[p.path])
		switch p.kind {
		case spanRemove:
			continue
		case spanNull:
			dst = append(dst, "null"...)
			continue
		}
		if p.quotes > 0 {
			dst = appendQuote(dst, int(p.quotes)-1)
		}
		if p.token >= 0 {
			dst = append(dst, s.tokens[p.token]...)
		} else {
			dst = append(dst, r.marker...)
		}
		if p.suffix > 1 {
			dst = append(dst, '~')
			dst = strconv.AppendInt(dst, int64(p.suffix), 10)
		}
		if p.quotes > 0 {
			dst = appendQuote(dst, int(p.quotes)-1)
		}
	}
	return append(dst, in[pos:]...)
}

// appendQuote writes a quote as it stands in a string that is nested deep
// JSON strings down.
func appendQuote(dst []byte, deep int) []byte {
	for i := 0; i < 1<<deep-1; i++ {
		dst = append(dst, '\\')
	}
	return append(dst, '"')
}

// cleanPaths makes sure that no path shows what a rule would take out of it.
func (s *scan) cleanPaths(rep *Report) {
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Path == "" {
			continue
		}
		for n := 0; n < maxPasses; n++ {
			if s.pass([]byte(f.Path), false) != nil || len(s.spans) == 0 {
				break
			}
			s.merge()
			var ignored Report
			f.Path = string(s.splice(nil, []byte(f.Path), &ignored))
		}
	}
	// Paths that have become equal are one.
	out := rep.Findings[:0]
next:
	for _, f := range rep.Findings {
		for i := range out {
			if out[i].Rule == f.Rule && out[i].Path == f.Path {
				out[i].Count += f.Count
				continue next
			}
		}
		out = append(out, f)
	}
	rep.Findings = out
}

// emit records that [start,end) of a view has to go.
func (s *scan) emit(v *view, start, end int, r *rule) {
	if start >= end {
		return
	}
	if len(r.paths) > 0 && !s.pathSelected(r) || len(s.marks) > 0 && onlyMarkers(v.text, start, end, s.marks) {
		s.passed++
		return
	}
	// What lies within the rule's last match in this text adds nothing to it.
	last := &s.emitted[r.index]
	if last.view == v && last.pass == s.passes && last.start <= start && end <= last.end {
		return
	}
	*last = emitted{v, s.passes, start, end}
	p := span{rule: r.index, path: s.pathIndex(), token: -1, depth: int8(min(v.depth, 100))}
	switch r.Action {
	case Token:
		text := v.text[start:end]
		if v.json {
			s.fuel -= len(text)
			text = canonical(text)
		}
		s.tokens = append(s.tokens, []byte(s.e.key.Pseudonym(r.ID, text)))
		p.token = int32(len(s.tokens) - 1)
	case Withhold:
		if s.withhold == "" {
			s.withhold = r.ID
		}
	case Drop:
		s.dropped, s.dropRule = true, r
	}
	s.up(v, start, end, p)
}

// onlyMarkers reports whether [start,end) holds nothing but our own markers
// and punctuation.
func onlyMarkers(text []byte, start, end int, marks []window) bool {
	touched := false
	i := sort.Search(len(marks), func(i int) bool { return marks[i].hi > start })
	for pos := start; pos < end; {
		if i < len(marks) && marks[i].lo <= pos {
			pos = max(pos, marks[i].hi)
			touched = true
			i++
			continue
		}
		c := text[pos]
		if digit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf {
			return false
		}
		pos++
	}
	return touched
}

func (s *scan) up(v *view, start, end int, p span) {
	if v.number {
		start, end = 0, len(v.text)
		p.quotes = int8(min(v.nested, 100) + 1)
		if v.nested < 0 {
			p.quotes = 0
		}
	}
	if v.parent == nil && v.segs == nil { // the root has no escapes
		s.add(v.base+start, v.base+end, p)
		return
	}
	if v.whole > 0 && p.kind == spanText { // any match takes the same range
		k := taker{p.rule, p.depth}
		if slices.Contains(v.takers, k) {
			s.passed++
			return
		}
		v.takers = append(v.takers, k)
	}
	if v.escaped > 0 || v.segs != nil || v.pieces != nil {
		s.fuel -= (end - start) / 16 // segments to walk over
	}
	v.ranges(start, end, func(a, b int) {
		if v.parent == nil {
			s.add(a, b, p)
			return
		}
		s.up(v.parent, a, b, p)
	})
}

// add records a range of the input. A match that comes down to one of our
// markers, whatever it had around it in its view, would be found for ever.
func (s *scan) add(start, end int, p span) {
	if p.kind == spanText && s.src[start] == '[' {
		if m, ok := marker(s.src, start); ok && end <= m.hi {
			s.passed++
			return
		}
	}
	p.start, p.end = int32(start), int32(end)
	s.spans = append(s.spans, p)
}

func (s *scan) pathSelected(r *rule) bool {
	for _, p := range r.paths {
		if pathMatches(p, s.path) {
			return true
		}
	}
	return false
}

// spend takes n bytes of fuel. When there is not enough, the whole of v is
// replaced, and the answer is false.
func (s *scan) spend(v *view, n int) bool {
	if n <= s.fuel {
		s.fuel -= n
		return true
	}
	s.fuel = min(s.fuel, 0)
	s.exhaust(v)
	return false
}

func (s *scan) exhaust(v *view) {
	if len(v.text) == 0 {
		return
	}
	if bytes.Equal(bytes.TrimSpace(v.text), s.e.limit.marker) {
		return
	}
	s.spent++
	marks := s.marks
	s.marks = nil
	s.emit(v, 0, len(v.text), s.e.limit)
	s.marks = marks
}

// text runs all rules over the view's text and over the forms it may decode to.
func (s *scan) text(v *view) {
	if len(v.text) < 3 || !s.spend(v, len(v.text)) {
		return
	}
	s.match(v)
	s.decode(v)
}

// match runs the rules over the text as it stands.
func (s *scan) match(v *view) {
	text := v.text
	hits := s.hits[:0]
	s.blobs = s.blobs[:0]
	pos := 0
	if len(text) > minBlob {
		for at := 0; ; {
			start, end, ok := blob(text, at)
			if !ok {
				break
			}
			at = end
			hits = s.e.machine.scanAt(text, pos, start+blobEdge, hits)
			s.blobs = append(s.blobs, window{start + blobEdge, end - blobEdge})
			pos = end - blobEdge
		}
	}
	hits = s.e.machine.scanAt(text, pos, len(text), hits)
	s.hits = hits
	if len(s.blobs) > 0 {
		v.blobs = append([]window(nil), s.blobs...)
	}
	s.marks = s.marks[:0]
	s.forget()
	for _, h := range hits {
		if h.literal >= s.e.markers {
			if m, ok := marker(text, int(h.end)-int(s.e.machine.length[h.literal])); ok {
				s.marks = append(s.marks, m)
			}
		}
	}
	if len(hits) > 0 {
		s.hitRules(v, hits)
	}
	for _, r := range s.e.always {
		if r.gated && !s.seenGate[r.index] {
			continue
		}
		s.regex(v, r, 0, len(text))
	}
	for _, g := range s.gates {
		s.seenGate[g] = false
	}
	s.gates = s.gates[:0]
	if len(s.e.numbers) > 0 {
		s.digits(v)
	}
	s.marks = s.marks[:0]
}

// forget drops what rules remember of the text before.
func (s *scan) forget() {
	s.memos = s.memos[:0]
	s.bounded = [RunClasses]memo{}
	for _, r := range s.noted {
		s.seenNote[r] = false
	}
	s.noted = s.noted[:0]
	s.line.text = nil
}

// candidateFuel is what asking a rule about a place costs, beside what it
// accounts for itself.
const candidateFuel = 16

func (s *scan) hitRules(v *view, hits []hit) {
	text := v.text
	c := &s.cand
	*c = Candidate{s: s, v: v, text: text}
	for _, h := range hits {
		for _, u := range s.e.users[h.literal] {
			r := u.rule
			if u.gate {
				if !s.seenGate[r.index] {
					s.seenGate[r.index] = true
					s.gates = append(s.gates, r.index)
				}
				continue
			}
			end := int(h.end)
			if r.native {
				if end <= s.skip[r.index] {
					continue
				}
				c.rule, c.start, c.end = r, end-int(s.e.machine.length[h.literal]), end
				s.fuel -= candidateFuel
				r.Find(c)
				if s.skip[r.index] > 0 && len(s.windows[r.index]) == 0 {
					s.windows[r.index] = append(s.windows[r.index], window{})
					s.touched = append(s.touched, r)
				}
				continue
			}
			if r.operator {
				if !operatorFollows(text, end) {
					continue
				}
			} else if u.cond != nil && !u.cond.holds(text, end-int(s.e.machine.length[h.literal]), end) {
				continue
			}
			lo := max(end-int(s.e.machine.length[h.literal])-r.anchor.before-utf8.UTFMax, 0)
			hi := min(addWidth(end, r.anchor.after)+utf8.UTFMax, len(text))
			if u.cond != nil && u.cond.open != nil && u.cond.rest < unbounded {
				if s.openEnd[r.index] < end {
					e := end
					for e < hi && u.cond.open[text[e]] {
						e++
					}
					s.openEnd[r.index] = e
				}
				hi = min(s.openEnd[r.index]+u.cond.rest+utf8.UTFMax, hi)
			}
			for lo > 0 && lo < len(text) && !utf8.RuneStart(text[lo]) {
				lo--
			}
			w := s.windows[r.index]
			if n := len(w); n > 0 && lo <= w[n-1].hi {
				w[n-1].hi = max(w[n-1].hi, hi)
				w[n-1].lo = min(w[n-1].lo, lo)
				continue
			} else if n == 0 {
				s.touched = append(s.touched, r)
			}
			s.windows[r.index] = append(w, window{lo, hi})
		}
	}
	for _, r := range s.touched {
		w := s.windows[r.index]
		s.windows[r.index] = w[:0]
		s.openEnd[r.index] = 0
		if r.native {
			s.skip[r.index] = 0
			continue
		}
		if r.gated && !s.seenGate[r.index] {
			continue
		}
		for _, x := range w {
			s.regex(v, r, x.lo, x.hi)
		}
	}
	s.touched = s.touched[:0]
}

// regex runs one rule's expression between lo and hi.
func (s *scan) regex(v *view, r *rule, lo, hi int) {
	if r.SkipReport {
		return
	}
	s.fuel -= hi - lo
	s.findRegex(r, v.text, lo, hi, func(start, end, at int) {
		for _, q := range r.required {
			if !s.nearby(v.text, at, q) {
				return
			}
		}
		s.emitChecked(v, start, end, r)
	})
}

// nearby reports whether a required rule matches close enough to position at.
func (s *scan) nearby(text []byte, at int, q requiredRule) bool {
	found := false
	line, col := position(text, at)
	s.fuel -= len(text)
	s.findRegex(q.rule, text, 0, len(text), func(_, _, other int) {
		l, c := position(text, other)
		if q.lines != nil && abs(line-l) > *q.lines || q.columns != nil && abs(col-c) > *q.columns {
			return
		}
		found = true
	})
	return found
}

func position(text []byte, at int) (line, column int) {
	return bytes.Count(text[:at], []byte{'\n'}), at - bytes.LastIndexByte(text[:at], '\n')
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// marker recognises one of our own markers at the start of a literal hit.
func marker(text []byte, at int) (window, bool) {
	if !bytes.HasPrefix(text[at:], []byte("[REDACTED:")) && !bytes.HasPrefix(text[at:], []byte("[TOKEN:")) {
		return window{}, false
	}
	for i := at + len("[TOKEN:"); i < len(text) && i < at+300; i++ {
		switch c := text[i]; {
		case c == ']':
			return window{at, i + 1}, true
		case c >= utf8.RuneSelf || c != ':' && !validID(string(rune(c))):
			return window{}, false
		}
	}
	return window{}, false
}

// decode looks at what the text may be an encoded form of.
func (s *scan) decode(v *view) {
	text := v.text
	if !v.plain {
		spelled := spelled(text)
		if spelled.hidden {
			if b := s.newBuilder(); b.around(text, nextHidden, b.visible) {
				s.derived(v, b)
			}
		}
		if spelled.folded {
			if b := s.newBuilder(); b.around(text, nextFolded, b.fold) {
				s.derived(v, b)
			}
		}
	}
	if bytes.IndexByte(text, '\\') >= 0 {
		if b := s.newBuilder(); b.around(text, nextBackslash, b.unescape) {
			s.derived(v, b)
		}
	}
	if bytes.IndexByte(text, '+') >= 0 {
		if b := s.newBuilder(); b.around(text, nextForm, b.form) {
			s.derived(v, b)
		}
	}
	if bytes.IndexByte(text, '%') >= 0 {
		if b := s.newBuilder(); b.around(text, nextPercent, b.percent) {
			s.derived(v, b)
		}
	}
	if bytes.IndexByte(text, '&') >= 0 {
		if b := s.newBuilder(); b.around(text, nextEntity, b.entities) {
			s.derived(v, b)
		}
	}
	s.base64(v)
}

// derived scans a decoded form of v's text.
func (s *scan) derived(v *view, b *builder) {
	if !s.mayDecode(v) {
		return
	}
	d := s.newView()
	*d = view{text: b.text, segs: b.segs, parent: v, nested: -1, depth: v.depth + 1, joined: v.joined}
	s.text(d)
}

func (s *scan) mayDecode(v *view) bool {
	if v.depth >= s.e.limits.Decode || s.steps <= 0 {
		s.exhaust(v)
		return false
	}
	s.steps--
	return true
}

func (s *scan) base64(v *view) {
	blobs := v.blobs
	tried := 0
	for pos := 0; ; {
		for len(blobs) > 0 && blobs[0].lo-blobEdge <= pos+minBase64 && pos < blobs[0].hi {
			pos = blobs[0].hi + blobEdge
			blobs = blobs[1:]
		}
		limit := len(v.text)
		if len(blobs) > 0 {
			limit = blobs[0].lo - blobEdge
		}
		start, line1, end, ok := base64Run(v.text[:limit], pos, tried)
		if !ok {
			if limit < len(v.text) {
				pos = limit
				continue
			}
			return
		}
		pos = end
		for _, r := range s.e.runs {
			s.cand = Candidate{s: s, v: v, rule: r, text: v.text, start: start, end: end}
			s.fuel -= candidateFuel
			r.Find(&s.cand)
		}
		s.fuel -= end - start
		text, ok := decodeBase64(nil, v.text[start:end])
		if !ok && line1+2 < end { // what follows the first line was no part of it
			tried = end
			if text, ok = decodeBase64(nil, v.text[start:line1]); ok {
				end, pos = line1, line1
			}
		}
		if !ok {
			continue
		}
		if !s.mayDecode(v) {
			return
		}
		d := s.newView()
		*d = view{text: text, parent: v, base: start, whole: end - start, nested: -1, depth: v.depth + 1}
		s.stringValue(d, noContext)
	}
}

// pathElem is one step of a path: a key or an index.
type pathElem struct {
	key   []byte
	index int // >= 0: an element of an array
	json  bool
}

func (p pathElem) matches(pattern string) bool {
	switch {
	case pattern == "*":
		return !p.json
	case p.json:
		return pattern == "(json)"
	case p.index >= 0:
		return pattern == strconv.Itoa(p.index)
	}
	return string(p.key) == pattern
}

func (s *scan) pathIndex() int32 {
	if s.pathOf >= 0 {
		return s.pathOf
	}
	var b []byte
	for _, p := range s.path {
		switch {
		case p.index >= 0:
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(p.index), 10)
			b = append(b, ']')
			continue
		case p.json:
			b = append(b, ".(json)"...)
			continue
		}
		if len(b) > 0 {
			b = append(b, '.')
		}
		k := p.key
		if len(k) > 200 {
			k = append(append([]byte(nil), k[:cutRune(k, 200)]...), "…"...)
		}
		b = append(b, k...)
	}
	s.paths = append(s.paths, string(b))
	s.pathOf = int32(len(s.paths) - 1)
	return s.pathOf
}

func cutRune(b []byte, n int) int {
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

func (s *scan) push(p pathElem) { s.path = append(s.path, p); s.pathOf = -1 }
func (s *scan) pop()            { s.path = s.path[:len(s.path)-1]; s.pathOf = -1 }

// minNumber is the fewest digits that a rule for numbers looks at.
const minNumber = 7

// digits calls the number rules for each run of digits and their separators.
// Most bytes are not looked at: a run that holds seven digits has one of its
// bytes at every seventh place.
func (s *scan) digits(v *view) {
	text := v.text
	s.cand = Candidate{s: s, v: v, text: text}
	blobs := s.blobs
	blob := len(text)
	if len(blobs) > 0 {
		blob = blobs[0].lo
	}
	for i := minNumber - 1; i < len(text); {
		if i >= blob {
			i = max(i, blobs[0].hi)
			if blobs = blobs[1:]; len(blobs) > 0 {
				blob = blobs[0].lo
			} else {
				blob = len(text)
			}
			continue
		}
		if numberByte[text[i]] == 0 {
			i += minNumber
			continue
		}
		start := i
		for start > 0 && i-start < minNumber && numberByte[text[start-1]] != 0 {
			start--
		}
		if i-start < minNumber-1 {
			i = start + minNumber - 1
			continue
		}
		end := i + 1
		for end < len(text) && numberByte[text[end]] != 0 {
			end++
		}
		s.numbersIn(v, start, end)
		i = end + minNumber
	}
}

// numbersIn does so for a run of digits and separators.
func (s *scan) numbersIn(v *view, from, to int) {
	text := v.text
	for i := from; i < to; {
		if !digit(text[i]) {
			i++
			continue
		}
		if to-i < minNumber {
			return
		}
		start, end := i, i+1
		for end < to && digit(text[end]) {
			end++
		}
		n := end - start
		// Digits before have had their turn, and would have come this far.
		for end < to {
			if digit(text[end]) {
				n++
			} else if !numeric(text, end) {
				break
			}
			end++
		}
		for !digit(text[end-1]) {
			end--
		}
		if n >= minNumber {
			for start > 0 && numberByte[text[start-1]] == 2 && numeric(text, start-1) {
				start--
			}
			for text[start] != '+' && text[start] != '(' && !digit(text[start]) {
				start++
			}
			c := &s.cand
			c.start, c.end = start, end
			for i := range s.e.numbers {
				u := &s.e.numbers[i]
				if n < u.digits {
					break // the others want more
				}
				c.rule = u.rule
				s.fuel -= candidateFuel + end - start
				u.rule.Find(c)
			}
		}
		i = max(i+1, end)
	}
}

// numberByte is 1 for digits, 2 for what stands between the groups of a number.
var numberByte = func() (t [256]uint8) {
	for c := byte('0'); c <= '9'; c++ {
		t[c] = 1
	}
	for _, c := range []byte(" -.()+/") {
		t[c] = 2
	}
	return t
}()

// numeric reports whether the byte at i belongs to a number as people write
// them: digits with single separators between.
func numeric(text []byte, i int) bool {
	switch c := text[i]; {
	case '0' <= c && c <= '9':
		return true
	case c == ' ' || c == '-' || c == '.' || c == '(' || c == ')' || c == '+' || c == '/':
		// Two separators only as in ") 4" or "- (".
		return i > 0 && (digit(text[i-1]) || i > 1 && digit(text[i-2])) || i+1 < len(text) && digit(text[i+1])
	}
	return false
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
