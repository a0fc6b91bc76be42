package config

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// node is a YAML value with its place. One of entries, items and text holds it.
type node struct {
	kind      nodeKind
	line, col int
	text      string  // scalar
	entries   []entry // mapping, in the order of the file
	items     []*node // sequence
}

type entry struct {
	key       string
	line, col int
	value     *node
}

type nodeKind int

const (
	nullNode nodeKind = iota
	scalarNode
	mappingNode
	sequenceNode
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "a single value", "a mapping", "a list"}[k]
}

// maxDepth keeps a document's nesting, and with it our recursion, small.
const maxDepth = 16

// parseDocument reads YAML text. The result is nil for an empty document.
func parseDocument(file string, text []byte) (*node, []Problem) {
	f, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p := Problem{File: file, Line: 1, Column: 1, Message: "is not YAML"}
		var ye yaml.Error
		if errors.As(err, &ye) {
			msg, _, _ := strings.Cut(ye.GetMessage(), "\n")
			p.Message = "is not YAML: " + msg
			if t := ye.GetToken(); t != nil && t.Position != nil {
				p.Line, p.Column = t.Position.Line, t.Position.Column
			}
		}
		return nil, []Problem{p}
	}
	c := converter{file: file}
	var root *node
	for _, d := range f.Docs {
		if d.Body == nil {
			continue
		}
		if root != nil {
			c.fail(d.Body, "a second YAML document starts here; the configuration is one document")
			break
		}
		root = c.node(d.Body, 0)
	}
	return root, c.problems
}

type converter struct {
	file     string
	problems []Problem
}

func (c *converter) fail(n ast.Node, msg string) {
	line, col := place(n)
	c.problems = append(c.problems, Problem{File: c.file, Line: line, Column: col, Message: msg})
}

func (c *converter) node(n ast.Node, depth int) *node {
	line, col := place(n)
	out := &node{line: line, col: col}
	if depth > maxDepth {
		c.fail(n, "is nested too deeply")
		return out
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
	case *ast.MappingNode:
		out.kind = mappingNode
		c.entries(out, n.Values, depth)
	case *ast.MappingValueNode:
		out.kind = mappingNode
		c.entries(out, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		out.kind = sequenceNode
		for _, v := range n.Values {
			out.items = append(out.items, rejoin(c.node(v, depth+1), v))
		}
	case *ast.StringNode:
		out.kind, out.text = scalarNode, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = scalarNode, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		// The text as written: what it means is for the key to say.
		out.kind, out.text = scalarNode, n.GetToken().Value
	default:
		c.fail(n, "anchors, aliases, merges and tags are not used in this file; write the value out")
	}
	return out
}

// rejoin makes a:b one value again. YAML has a colon separate only before a
// blank, and the parser forgets that in a list inside braces.
func rejoin(n *node, v ast.Node) *node {
	if n.kind != mappingNode || len(n.entries) != 1 {
		return n
	}
	e := n.entries[0]
	switch v := v.(type) {
	case *ast.MappingNode:
		if v.Start.Type == token.MappingStartType || v.Values[0].Key.GetToken().Type != token.StringType {
			return n
		}
	case *ast.MappingValueNode:
		if v.Key.GetToken().Type != token.StringType {
			return n
		}
	}
	if e.value.kind != scalarNode || e.value.line != e.line || e.value.col != e.col+utf8.RuneCountInString(e.key)+1 {
		return n
	}
	return &node{kind: scalarNode, line: e.line, col: e.col, text: e.key + ":" + e.value.text}
}

func (c *converter) entries(out *node, values []*ast.MappingValueNode, depth int) {
	for _, v := range values {
		line, col := place(v.Key)
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			c.fail(v.Key, "anchors, aliases, merges and tags are not used in this file; write the value out")
			continue
		}
		tk := v.Key.GetToken()
		out.entries = append(out.entries, entry{key: tk.Value, line: line, col: col, value: c.node(v.Value, depth+1)})
	}
	if len(out.entries) > 0 {
		// A block mapping's own token is a colon; its first key is its place.
		out.line, out.col = out.entries[0].line, out.entries[0].col
	}
}

func place(n ast.Node) (line, col int) {
	if n == nil {
		return 0, 0
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 0, 0
}
