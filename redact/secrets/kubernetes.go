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

func findKubernetes(c *redact.Candidate) {
	text, at := c.Text(), c.Start()
	if at >= 6 && bytes.EqualFold(text[at-6:at], []byte("string")) {
		at -= 6
	}
	indent := runBack(text, at, 64, space)
	if indent > 0 && text[indent-1] != '\n' {
		return
	}
	if !c.Work(2*maxManifest) || !secretManifest(text, indent) {
		return
	}
	depth := at - indent
	i := run(text, c.End(), blankByte)
	for n := 0; n < 512 && i < len(text); n++ {
		line := i
		for line > 0 && text[line-1] != '\n' {
			line--
		}
		if i-line <= depth && i > c.End() {
			return
		}
		colon := run(text, i, func(b byte) bool { return nameByte(b) || b == '"' || b == '\'' || b == '/' })
		if colon >= len(text) || text[colon] != ':' {
			return
		}
		keyIndent := i - line
		v := run(text, colon+1, space)
		if v < len(text) && (text[v] == '|' || text[v] == '>') {
			nl := bytes.IndexByte(text[v:], '\n')
			if nl < 0 {
				return
			}
			i = run(text, v+nl, blankByte)
			for i < len(text) { // the block's lines
				line = bytes.LastIndexByte(text[:i], '\n') + 1
				if i-line <= keyIndent {
					break
				}
				e := lineEnd(text, i)
				c.Emit(i, e)
				i = run(text, e, blankByte)
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
		i = run(text, e, blankByte)
	}
}

// findManifest reads a manifest in JSON that stands in other text.
func findManifest(c *redact.Candidate) {
	text, at := c.Text(), c.Start()
	i := at
	for i > 0 && (blank(text[i-1]) || text[i-1] == ':') {
		i--
	}
	if i < 6 || !bytes.EqualFold(text[i-6:i], []byte(`"kind"`)) || !c.Work(2*maxManifest) {
		return
	}
	lo, hi := max(0, at-maxManifest), min(len(text), at+maxManifest)
	if n := bytes.LastIndex(text[lo:at], []byte("apiVersion")); n >= 0 {
		lo += n
	}
	for _, member := range [...]string{`"data"`, `"stringData"`} {
		n := bytes.Index(text[lo:hi], []byte(member))
		if n < 0 {
			continue
		}
		n = run(text, lo+n+len(member), func(b byte) bool { return blank(b) || b == ':' })
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

// secretManifest reports whether the document around pos says kind: Secret.
func secretManifest(text []byte, pos int) bool {
	lo, hi := max(0, pos-maxManifest), min(len(text), pos+maxManifest)
	if i := bytes.LastIndex(text[lo:pos], []byte("\n---")); i >= 0 {
		lo += i
	}
	if i := bytes.Index(text[pos:hi], []byte("\n---")); i >= 0 {
		hi = pos + i
	}
	doc := text[lo:hi]
	for i := 0; i < len(doc); {
		n := bytes.Index(doc[i:], []byte("kind:"))
		if n < 0 {
			return false
		}
		i += n + len("kind:")
		v := bytes.Trim(doc[i:lineEnd(doc, i)], " \t\"'")
		if bytes.EqualFold(v, []byte("secret")) {
			return true
		}
	}
	return false
}
