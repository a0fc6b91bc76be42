package config

import (
	"fmt"
	"strings"
)

// decodeRoot reads the file's mapping by the table of fields.
func (l *loader) decodeRoot(root *node) {
	l.decodeMapping(root, "")
}

func (l *loader) decodeMapping(n *node, parent string) {
	l.uniqueKeys(n)
	for _, e := range n.entries {
		key := e.key
		if parent != "" {
			key = parent + "." + e.key
		}
		f, known := fieldByKey(key)
		switch {
		case key == "mode" && e.value.kind == scalarNode:
			// decided already
		case !known && len(children(key)) > 0:
			if key == "exporter" && !l.transport {
				continue // under DISABLED no transport setting is even read
			}
			l.decodeSection(e, key)
		case !known:
			l.unknownKey(e, parent)
		case e.value.kind == nullNode:
			// an empty value is the default
		case f.decode != nil:
			l.where[key] = Problem{File: l.opts.File, Line: e.line, Column: e.col}
			f.decode(l, e.value)
		default:
			l.decodeScalar(e.value, f)
		}
	}
}

func (l *loader) decodeSection(e entry, key string) {
	switch e.value.kind {
	case nullNode:
	case mappingNode:
		l.decodeMapping(e.value, key)
	default:
		l.fail(e.value, key, "is a mapping of "+strings.Join(children(key), ", ")+"; this is "+e.value.kind.String())
	}
}

func (l *loader) decodeScalar(n *node, f *field) {
	l.where[f.key] = Problem{File: l.opts.File, Line: n.line, Column: n.col}
	text, tainted, ok := l.scalar(n, f.key)
	if !ok {
		return
	}
	if err := f.set(l.cfg, text, l.base); err != nil {
		shown := fmt.Sprintf("%q ", text)
		if tainted || f.key == "exporter.endpoint" || len(text) > 80 {
			shown = "the value "
		}
		l.fail(n, f.key, shown+err.Error())
	}
}

// scalar returns a single value with ${env:…} expanded.
func (l *loader) scalar(n *node, key string) (text string, tainted, ok bool) {
	if n.kind != scalarNode {
		l.fail(n, key, "is a single value; this is "+n.kind.String())
		return "", false, false
	}
	text, tainted, err := expand(n.text, l.opts.LookupEnv)
	if err != nil {
		l.fail(n, key, err.Error())
		return "", tainted, false
	}
	return text, tainted, true
}

func (l *loader) unknownKey(e entry, parent string) {
	msg := fmt.Sprintf("unknown key %q", e.key)
	if parent != "" {
		msg += " in " + parent
	}
	if s := suggest(parent, e.key); s != "" {
		msg += fmt.Sprintf("; did you mean %q?", s)
	} else {
		msg += "; known here: " + strings.Join(children(parent), ", ")
	}
	l.add(Problem{File: l.opts.File, Line: e.line, Column: e.col, Message: msg})
}

func (l *loader) uniqueKeys(n *node) {
	seen := make(map[string]bool, len(n.entries))
	for _, e := range n.entries {
		if seen[e.key] {
			l.add(Problem{File: l.opts.File, Line: e.line, Column: e.col, Message: fmt.Sprintf("the key %q stands here a second time", e.key)})
		}
		seen[e.key] = true
	}
}

// record reads a small mapping with a fixed set of keys, as list items have.
func (l *loader) record(n *node, key string, known []string, set func(e entry)) {
	if n.kind != mappingNode {
		l.fail(n, key, "is a mapping of "+strings.Join(known, ", ")+"; this is "+n.kind.String())
		return
	}
	l.uniqueKeys(n)
	for _, e := range n.entries {
		if contains(known, e.key) {
			set(e)
			continue
		}
		msg := fmt.Sprintf("unknown key %q in %s", e.key, key)
		best := nearest(e.key, known)
		if best != "" {
			msg += fmt.Sprintf("; did you mean %q?", best)
		} else {
			msg += "; known here: " + strings.Join(known, ", ")
		}
		l.add(Problem{File: l.opts.File, Line: e.line, Column: e.col, Message: msg})
	}
}

func (l *loader) list(n *node, key string, each func(i int, item *node)) {
	if n.kind != sequenceNode {
		l.fail(n, key, "is a list; this is "+n.kind.String())
		return
	}
	for i, item := range n.items {
		each(i, item)
	}
}

func (l *loader) decodeSources(n *node) {
	l.cfg.Sources = []Source{}
	l.list(n, "sources", func(i int, item *node) {
		l.record(item, "sources", []string{"dsh"}, func(e entry) {
			src := DSHSource{StartAt: "beginning"}
			l.record(e.value, "sources.dsh", []string{"path", "start_at"}, func(e entry) {
				text, _, ok := l.scalar(e.value, "sources.dsh."+e.key)
				if !ok {
					return
				}
				switch e.key {
				case "path":
					p, err := resolvePath(text, l.base)
					if err != nil {
						l.fail(e.value, "sources.dsh.path", err.Error())
					}
					src.Path = p
				case "start_at":
					if text != "beginning" && text != "now" {
						l.fail(e.value, "sources.dsh.start_at", "is neither beginning nor now")
					}
					src.StartAt = text
				}
			})
			if src.Path == "" && e.value.kind == mappingNode {
				l.fail(e.value, "sources.dsh", "needs a path")
				return
			}
			l.cfg.Sources = append(l.cfg.Sources, Source{DSH: src})
		})
	})
}

func (l *loader) decodeVocabulary(n *node) {
	l.list(n, "vocabulary", func(i int, item *node) {
		var et EventType
		l.record(item, "vocabulary", []string{"type", "surface"}, func(e entry) {
			text, _, ok := l.scalar(e.value, "vocabulary."+e.key)
			if !ok {
				return
			}
			switch e.key {
			case "type":
				et.Type = text
			case "surface":
				if text != "true" && text != "false" {
					l.fail(e.value, "vocabulary.surface", "is neither true nor false")
				}
				et.Surface = text == "true"
			}
		})
		if item.kind != mappingNode {
			return
		}
		if et.Type == "" {
			l.fail(item, "vocabulary", "needs a type")
			return
		}
		for _, have := range l.cfg.Vocabulary {
			if have.Type == et.Type {
				l.fail(item, "vocabulary", fmt.Sprintf("the type %q stands here a second time", et.Type))
			}
		}
		l.cfg.Vocabulary = append(l.cfg.Vocabulary, et)
	})
}

func (l *loader) decodeRedact(n *node) {
	if n.kind == scalarNode {
		if text, _, ok := l.scalar(n, "redact"); ok {
			if text != "none" {
				l.fail(n, "redact", "is a mapping of policies, key_file, or the word none")
				return
			}
			l.cfg.Redact = Redact{None: true}
		}
		return
	}
	l.record(n, "redact", []string{"policies", "key_file"}, func(e entry) {
		if e.value.kind == nullNode {
			return
		}
		switch e.key {
		case "policies":
			l.where["redact.policies"] = Problem{File: l.opts.File, Line: e.value.line, Column: e.value.col}
			l.cfg.Redact.PolicyNames = nil
			l.list(e.value, "redact.policies", func(i int, item *node) {
				text, _, ok := l.scalar(item, "redact.policies")
				if !ok {
					return
				}
				name, err := policyName(text, l.base)
				if err != nil {
					l.fail(item, "redact.policies", err.Error())
					return
				}
				l.where["redact.policies:"+name] = Problem{File: l.opts.File, Line: item.line, Column: item.col}
				l.cfg.Redact.PolicyNames = append(l.cfg.Redact.PolicyNames, name)
			})
		case "key_file":
			l.where["redact.key_file"] = Problem{File: l.opts.File, Line: e.value.line, Column: e.value.col}
			text, _, ok := l.scalar(e.value, "redact.key_file")
			if !ok {
				return
			}
			p, err := resolvePath(text, l.base)
			if err != nil {
				l.fail(e.value, "redact.key_file", err.Error())
				return
			}
			l.cfg.Redact.KeyFile = p
		}
	})
}

func (l *loader) decodeHeaders(n *node) {
	if n.kind != mappingNode {
		l.fail(n, "exporter.headers", "is a mapping of names to values; this is "+n.kind.String())
		return
	}
	l.uniqueKeys(n)
	for _, e := range n.entries {
		key := "exporter.headers." + e.key
		text, fromEnv, ok := l.scalar(e.value, key)
		if !ok {
			continue
		}
		if !fromEnv && isCredential(e.key) {
			l.credential = strings.ToLower(e.key)
		}
		if msg := headerProblem(e.key, text); msg != "" {
			l.add(Problem{File: l.opts.File, Line: e.line, Column: e.col, Key: "exporter.headers", Message: msg})
			continue
		}
		l.cfg.Exporter.Headers[strings.ToLower(e.key)] = Secret(text)
	}
}

func (l *loader) decodeResource(n *node) {
	if n.kind != mappingNode {
		l.fail(n, "resource", "is a mapping of names to values; this is "+n.kind.String())
		return
	}
	l.uniqueKeys(n)
	for _, e := range n.entries {
		text, _, ok := l.scalar(e.value, "resource."+e.key)
		if !ok {
			continue
		}
		if e.key == "" {
			l.add(Problem{File: l.opts.File, Line: e.line, Column: e.col, Key: "resource", Message: "an attribute needs a name"})
			continue
		}
		l.cfg.Resource[e.key] = text
	}
}
