package secrets

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// Notes of the rule for assignments.
const (
	noteHeader   = iota // where the line that heads the last table begins
	noteTableEnd        // and where that table ends
)

// maxTable is how far below its heading a table is read.
const maxTable = 256 << 10

// findColumn takes the column of a table below a heading that names a secret:
// CSV, tabs, Markdown, what database shells print.
func findColumn(c *redact.Candidate, n *name, sep byte) {
	text := c.Text()
	line := bytes.LastIndexByte(text[max(0, n.start-1024):n.start], '\n') + 1
	if n.start > 1024 {
		if line == 0 {
			return
		}
		line += n.start - 1024
	}
	head, end := c.Note(noteHeader), c.Note(noteTableEnd)
	if *head != line+1 && n.start < *end {
		return // a row of a table that has been read
	}
	stop := bytes.IndexByte(text[line:min(len(text), line+4096)], '\n')
	if stop < 0 || line+stop+1 >= len(text) {
		return
	}
	stop += line
	if !c.Work(stop - line) {
		return
	}
	first := rowStart(text, line, sep)
	// Programs are indented, and list names with commas as well.
	blanks := first - runBack(text, first, first-line, space)
	indented := sep != '|' && blanks > 0 && (blanks > 1 || blanks == first-line)
	cells, named, column := 0, 0, -1
	for i := first; i <= stop; {
		s, e, next := cell(text, i, stop, sep)
		switch {
		case e > s && heading(text[s:e]):
			if i <= n.start && n.start < next {
				column = cells
			}
			named++
		case e > s || sep != '|': // a list rather than a heading
			return
		}
		cells++
		i = next
	}
	if named < 2 || column < 0 {
		return
	}
	i := stop + 1
	for i < len(text) && i-line < maxTable {
		to := bytes.IndexByte(text[i:], '\n')
		if to < 0 {
			to = len(text)
		} else {
			to += i
		}
		if !c.Work(to - i) {
			break
		}
		k, rule := rowStart(text, i, sep), true
		for _, ch := range text[k:to] {
			rule = rule && (ch == '-' || ch == '+' || ch == '|' || ch == ':' || ch == ' ' || ch == '=' || ch == '\r')
		}
		if !rule {
			at, from, until := 0, -1, -1
			for at < 256 && k <= to {
				s, e, next := cell(text, k, to, sep)
				if at == column {
					from, until = s, e
				}
				at++
				k = next
			}
			if at != cells {
				break
			}
			if from >= 0 && until > from && cellSecret(text[from:until], n) && (!indented || unlikeWords(text[from:until]) || until-from >= 20 && !codeWord(text[from:until]) && secretish(text[from:until])) {
				c.Emit(from, until)
			}
		} else if k == to {
			break
		}
		i = to + 1
	}
	*head, *end = line+1, i
}

// rowStart is content for rows of tables, in which a bar belongs to the row.
func rowStart(text []byte, i int, sep byte) int {
	if sep != '|' {
		return content(text, i)
	}
	i = run(text, i, space)
	e := run(text, i, decimal)
	switch {
	case e > i && e < len(text) && text[e] == '\t':
		i = e + 1
	case e > i && bytes.HasPrefix(text[e:], arrow):
		i = e + len(arrow)
	case i < len(text) && text[i] == '>':
		i++
	}
	return run(text, i, space)
}

// rowValue takes V of a row NAME,V.
func rowValue(text []byte, n *name, sep byte) (int, int, bool) {
	if !n.upper || sep == '|' || n.end >= len(text) || text[n.end] != sep || !beginsLine(text, n.start) {
		return 0, 0, false
	}
	s, e := n.end+1, n.end+1
	for e < len(text) && text[e] > ' ' && text[e] != sep && text[e] != '"' && e-s < maxValue && !escapeStop(text, e) {
		e++
	}
	if e < len(text) && text[e] != sep && text[e] != '\n' && text[e] != '\r' {
		return 0, 0, false
	}
	v := head(text[s:e])
	return s, e, unlikeWords(v) || len(v) >= 16 && secretish(v) && !codeWord(v) && !shape.Placeholder(v)
}

// cellBorder says what stands between the cells of a line in which the name is
// one: a comma, a semicolon, a tab or a bar.
func cellBorder(text []byte, n *name) (byte, bool) {
	border := func(b byte) bool { return b == ',' || b == ';' || b == '\t' || b == '|' }
	decor := func(b byte) bool { return b == ' ' || b == '"' || b == '`' || b == '*' || b == '\'' }
	before, after := byte('\n'), byte('\n')
	i := n.start
	for k := 0; i > 0 && k < 40 && decor(text[i-1]); k++ {
		i--
	}
	if i > 0 {
		before = text[i-1]
	}
	i = n.end
	for k := 0; i < len(text) && k < 40 && decor(text[i]); k++ {
		i++
	}
	if i < len(text) {
		after = text[i]
	}
	if after == '\r' {
		after = '\n'
	}
	switch {
	case border(after) && (before == after || before == '\n' || beginsLine(text, n.start)):
		return after, true
	case border(before) && after == '\n':
		return before, true
	}
	return 0, false
}

// cell reads the cell at i of a line that ends at stop: the limits of what it
// holds, and where the next one begins.
func cell(text []byte, i, stop int, sep byte) (s, e, next int) {
	s = i
	for s < stop && (text[s] == ' ' || text[s] == '`' || text[s] == '*') {
		s++
	}
	if s < stop && text[s] == '"' {
		q := s + 1
		for q < stop && (text[q] != '"' || q+1 < stop && text[q+1] == '"') {
			if text[q] == '"' {
				q++
			}
			q++
		}
		if q < stop {
			next = q + 1
			for next < stop && text[next] != sep {
				next++
			}
			return s + 1, q, next + 1
		}
	}
	e = s
	for e < stop && text[e] != sep {
		e++
	}
	next = e + 1
	for e > s && (blank(text[e-1]) || text[e-1] == '`' || text[e-1] == '*') {
		e--
	}
	return s, e, next
}

// heading: a few words of letters.
func heading(b []byte) bool {
	if len(b) > 40 {
		return false
	}
	for i, c := range b {
		if !(alnum(c) && (i > 0 || !decimal(c)) || c == '_' || c == ' ' || c == '-' || c == '#' || c >= 0x80) {
			return false
		}
	}
	return true
}

func cellSecret(v []byte, n *name) bool {
	if len(v) < 4 || len(v) > maxValue || shape.Placeholder(v) || shape.Version(v) || bytes.IndexByte(v, ' ') >= 0 || call(v) || formatted(v) || pathLike(v) {
		return false
	}
	if n.class == passwordKey {
		return !word(v) && !allDigits(v) && !bytes.ContainsAny(v, "()")
	}
	return len(v) >= 16 && secretish(v) || unlikeWords(v)
}
