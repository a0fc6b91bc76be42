package secrets

import (
	"bytes"

	"github.com/otel-bridge/otel-bridge/redact"
	"github.com/otel-bridge/otel-bridge/redact/internal/shape"
)

// pemRule finds private keys also where a piece of the block is missing:
// without its end, the text is secret to its end; without its beginning, the
// lines of base64 before the end.
func pemRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-private-key",
		Description: "A private key in PEM form, whole, without its END line, or without its BEGIN line.",
		Literals:    []string{"-----begin", "-----end", "private key"},
		Find:        findPEM,
	}
}

// pemHeader reads the rest of a BEGIN or END line from i and reports where
// "PRIVATE KEY-----" ends.
func pemHeader(text []byte, i int) (end int, ok bool) {
	limit := min(len(text), i+120)
	line := text[i:limit]
	const words = "PRIVATE KEY"
	at := 0
	// Not by a copy in upper case: bytes that are no UTF-8 make it longer.
	for at+len(words) <= len(line) && !bytes.EqualFold(line[at:at+len(words)], []byte(words)) {
		at++
	}
	if at+len(words) > len(line) {
		return 0, false
	}
	for _, c := range line[:at] {
		if !(c == ' ' || c == '-' || c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9') {
			return 0, false
		}
	}
	end = i + at + len("PRIVATE KEY")
	if rest := text[end:]; len(rest) >= 6 && bytes.EqualFold(rest[:6], []byte(" BLOCK")) {
		end += 6
	}
	dashes := run(text, end, func(b byte) bool { return b == '-' })
	if dashes-end >= 1 || dashes == len(text) {
		return dashes, true
	}
	return 0, false
}

func findPEM(c *redact.Candidate) {
	text, start, end := c.Text(), c.Start(), c.End()
	switch lit := text[start]; {
	case lit != '-':
		return
	case end-start == len("-----end"):
		// Reached only when no BEGIN has claimed it.
		stop, ok := pemHeader(text, end)
		if !ok {
			return
		}
		from := bodyBefore(text, start)
		if from < start {
			c.Emit(from, stop)
		}
		return
	}
	body, ok := pemHeader(text, end)
	if !ok {
		return
	}
	for at := body; ; {
		n := bytes.Index(text[at:], []byte("-----"))
		if n < 0 {
			c.Emit(start, len(text))
			c.Skip(len(text))
			return
		}
		at += n
		if len(text)-at >= 8 && bytes.EqualFold(text[at+5:at+8], []byte("END")) {
			if stop, ok := pemHeader(text, at+8); ok {
				c.Emit(start, stop)
				c.Skip(stop)
				return
			}
		}
		at += 5
	}
}

// bodyBefore goes back over lines that may belong to a PEM body.
func bodyBefore(text []byte, end int) int {
	from := end
	for from > 0 {
		i := from
		for i > 0 && blank(text[i-1]) {
			i--
		}
		j := runBack(text, i, 100, func(b byte) bool { return alnum(b) || b == '+' || b == '/' || b == '=' })
		if i-j < 8 {
			break
		}
		from = j
	}
	return from
}

// puttyRule finds the private lines of PuTTY's key files.
func puttyRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-putty-key",
		Description: "The private part of a PuTTY key file.",
		Literals:    []string{"private-lines:"},
		Find: func(c *redact.Candidate) {
			text := c.Text()
			nl := bytes.IndexByte(text[c.End():min(len(text), c.End()+32)], '\n')
			if nl < 0 {
				return
			}
			from := c.End() + nl + 1
			to := len(text)
			if mac := bytes.Index(text[from:], []byte("Private-MAC")); mac >= 0 {
				to = from + mac
			}
			c.Skip(to)
			for to > from && blank(text[to-1]) {
				to--
			}
			for from < to && blank(text[from]) {
				from++
			}
			c.Emit(from, to)
		},
	}
}

func userInfoRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-url-password",
		Description: "The password in a URL's authority, or a user name there that is a token.",
		Literals:    []string{"://"},
		Find:        shape.UserInfo,
	}
}

// awsRule finds AWS's secret access keys, which have no prefix, near a key id.
func awsRule() redact.Rule {
	return redact.Rule{
		ID:          "bridge-aws-secret-key",
		Description: "A 40-character secret within 400 characters of an AWS access key id.",
		Literals:    []string{"AKIA", "ASIA"},
		Find: func(c *redact.Candidate) {
			text := c.Text()
			id := c.Run(c.End(), alnumClass)
			if id-c.End() != 16 || c.Start() > 0 && alnum(text[c.Start()-1]) || !upperDigits(text[c.End():id]) {
				return
			}
			lo, hi := max(0, c.Start()-400), min(len(text), id+400)
			// Near the next key id only what has not been looked at.
			read := c.Note(0)
			if *read > lo {
				lo = *read
			}
			c.Work(max(0, hi-lo))
			for i := lo; i < hi; *read = i {
				e := c.Run(i, secretClass)
				if e-i == 40 && bothCases(text[i:e]) && redact.Entropy(text[i:e]) > 4 &&
					!bytes.Contains(text[i:e], []byte("EXAMPLE")) && (e == len(text) || text[e] != '=') {
					c.Emit(i, e)
				}
				i = e + 1
			}
		},
	}
}

var secretClass = redact.ClassOf(func(b byte) bool { return alnum(b) || b == '/' || b == '+' })

func bothCases(b []byte) bool {
	var lo, up, di bool
	for _, c := range b {
		lo = lo || 'a' <= c && c <= 'z'
		up = up || 'A' <= c && c <= 'Z'
		di = di || '0' <= c && c <= '9' || c == '/' || c == '+'
	}
	return lo && up && di
}
