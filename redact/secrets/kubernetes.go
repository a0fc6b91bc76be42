package secrets

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// kubernetesRule takes the data of a Kubernetes Secret, in YAML and in JSON,
// whatever its keys are.
func kubernetesRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-kubernetes-secret",
		Description: "The values under data and stringData of a Kubernetes Secret.",
		Within:      &redact.Within{Member: "kind", Value: "Secret", Under: []string{"data", "stringData"}},
		Literals:    []string{"data:", "\"secret\""},
		Find: func(c *redact.Candidate) {
			if c.Text()[c.Start()] == '"' {
				findManifest(c)
			} else {
				findKubernetes(c)
			}
		},
	}
}

const maxManifest = 8 << 10

// What is kept about a text: the data that has been taken, the members that
// have been looked for, and how far the lines of the present document have been
// read, with the last one that says kind: Secret.
const (
	noteData = iota
	noteMember
	noteMember2
	noteLine
	noteRead
	noteKind
	noteEnded
)

func findKubernetes(c *redact.Candidate) {
	text, at := c.Text(), c.Start()
	if at >= 6 && bytes.EqualFold(text[at-6:at], []byte("string")) {
		at -= 6
	}
	line := at
	for n := 0; line > 0 && text[line-1] != '\n'; n++ {
		if n == 200 {
			return
		}
		line--
	}
	first := margin(text, line)
	if run(text, first, space) != at {
		return
	}
	read := c.Note(noteData)
	if c.Start() < *read || !secretManifest(c, line) {
		return
	}
	depth := at - first
	for i, n := nextLine(text, c.End()), 0; n < 512 && i < len(text); n++ {
		*read = i
		first = margin(text, i)
		key := run(text, first, space)
		if key >= len(text) {
			return
		}
		if text[key] == '\n' || text[key] == '\r' {
			i = nextLine(text, key)
			continue
		}
		if key-first <= depth {
			return
		}
		colon := run(text, key, func(b byte) bool { return nameByte(b) || b == '"' || b == '\'' || b == '/' })
		if colon >= len(text) || text[colon] != ':' {
			return
		}
		v := run(text, colon+1, space)
		if v < len(text) && (text[v] == '|' || text[v] == '>') {
			for i = nextLine(text, v); i < len(text); i = nextLine(text, i) { // the block's lines
				at := margin(text, i)
				s := run(text, at, space)
				e := lineEnd(text, s)
				if e > s && s-at <= key-first {
					break
				}
				if e > s {
					c.Emit(s, e)
				}
			}
			continue
		}
		e := lineEnd(text, v)
		s, stop := v, e
		if s < stop && (text[s] == '"' || text[s] == '\'') {
			if qs, qe, ok := quotedValue(text, s); ok {
				s, stop = qs, qe
			}
		}
		if stop-s >= 4 && !shape.Placeholder(text[s:stop]) {
			c.Emit(s, stop)
		}
		i = nextLine(text, e)
	}
}

// nextLine returns where the line after the one at i begins.
func nextLine(text []byte, i int) int {
	n := bytes.IndexByte(text[min(i, len(text)):], '\n')
	if n < 0 {
		return len(text)
	}
	return i + n + 1
}

// findManifest reads a manifest in JSON that stands in other text.
func findManifest(c *redact.Candidate) {
	text, at := c.Text(), c.Start()
	i := at
	for i > 0 && (blank(text[i-1]) || text[i-1] == ':') {
		i--
	}
	if i < 6 || !bytes.EqualFold(text[i-6:i], []byte(`"kind"`)) {
		return
	}
	lo, hi := max(0, at-maxManifest), min(len(text), at+maxManifest)
	if n := bytes.LastIndex(text[lo:at], []byte("apiVersion")); n >= 0 {
		lo += n
	}
	for k, member := range [...]string{`"data"`, `"stringData"`} {
		read := c.Note(noteMember + k)
		from := max(lo, *read)
		if from >= hi || !c.Work(hi-from) {
			continue
		}
		n := bytes.Index(text[from:hi], []byte(member))
		if n < 0 {
			*read = max(from, hi-len(member))
			continue
		}
		n = run(text, from+n+len(member), func(b byte) bool { return blank(b) || b == ':' })
		*read = n
		if n >= hi || text[n] != '{' {
			continue
		}
		for key := true; n < hi && text[n] != '}'; n++ {
			switch text[n] {
			case ':':
				key = false
			case ',':
				key = true
			case '"':
				s, e, ok := quotedValue(text, n)
				if !ok {
					n++ // the empty string
					continue
				}
				if !key && !shape.Placeholder(text[s:e]) {
					c.Emit(s, e)
				}
				n = e
			}
		}
		*read = n
	}
}

func blankByte(b byte) bool { return blank(b) }

func lineEnd(text []byte, i int) int {
	e := i
	for e < len(text) && text[e] != '\n' && text[e] != '\r' {
		e++
	}
	for e > i && space(text[e-1]) {
		e--
	}
	return e
}

// secretManifest reports whether the document around pos says kind: Secret. It
// is asked for growing positions, and reads each line once.
func secretManifest(c *redact.Candidate, pos int) bool {
	text := c.Text()
	line, read, kind, ended := c.Note(noteLine), c.Note(noteRead), c.Note(noteKind), c.Note(noteEnded)
	lo, hi := max(0, pos-maxManifest), min(len(text), pos+maxManifest)
	if *read < lo { // far behind: nothing before counts
		*line, *read, *kind, *ended = lo, lo, 0, 0
	}
	from := *read
	for {
		if *ended != 0 && *line < pos { // a separator stands there, and pos behind it
			*ended, *kind = 0, 0
		}
		if *ended != 0 || *read >= hi {
			break
		}
		n := bytes.IndexByte(text[*read:hi], '\n')
		if n < 0 {
			*read = hi
			if hi == len(text) && kindSecret(text[*line:hi]) {
				*kind = *line + 1
			}
			break
		}
		end := *read + n
		if kindSecret(text[*line:end]) {
			*kind = *line + 1
		}
		*line, *read = end+1, end+1
		if bytes.HasPrefix(text[*line:], []byte("---")) {
			*ended = 1
		}
	}
	c.Work(*read - from)
	return *kind > lo
}

func kindSecret(line []byte) bool {
	n := bytes.LastIndex(line, []byte("kind:"))
	return n >= 0 && bytes.EqualFold(bytes.Trim(line[n+len("kind:"):], " \t\r\"'"), []byte("secret"))
}
