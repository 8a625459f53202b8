package source

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Comment is one comment of the source, from # on.
type Comment struct {
	Line, Column int
	Text         string
	Alone        bool // nothing before it in its line
}

func (p place) before(o place) bool {
	return p.line < o.line || p.line == o.line && p.column < o.column
}

// Comments finds the comments of a document in order. Whether # begins one
// depends on the scalars around it: inside quotes and blocks it does not.
func (f *File) Comments(doc *yaml.Node) []Comment {
	type span struct{ from, to place }
	var spans []span // in the order of the text
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		switch {
		case n.Kind != yaml.ScalarNode:
		case n.Style&BlockStyles != 0: // its header may have a comment behind it
			spans = append(spans, span{place{n.Line + 1, 1}, f.end(n)})
		case n.Style&QuotedStyles != 0:
			spans = append(spans, span{place{n.Line, n.Column}, f.end(n)})
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(doc)
	inside := func(at place) bool {
		i, _ := slices.BinarySearchFunc(spans, at, func(sp span, at place) int {
			if at.before(sp.to) {
				return 1
			}
			return -1
		})
		return i < len(spans) && !at.before(spans[i].from)
	}
	var out []Comment
	for i, line := range f.Lines {
		if !strings.Contains(line, "#") {
			continue
		}
		column, blank := 0, true
		for offset, r := range line {
			column++
			if r == '#' && blank && !inside(place{i + 1, column}) {
				out = append(out, Comment{i + 1, column, strings.TrimRight(line[offset:], " \t"), strings.TrimSpace(line[:offset]) == ""})
				break
			}
			blank = r == ' ' || r == '\t'
		}
	}
	return out
}

// Inside reports whether a comment stands between the beginning and the end of a
// node.
func (f *File) Inside(n *yaml.Node, c Comment) bool {
	at := place{c.Line, c.Column}
	return place{n.Line, n.Column}.before(at) && at.before(f.endOf(n))
}

// LastLine returns the line in which a node ends.
func (f *File) LastLine(n *yaml.Node) int {
	p := f.endOf(n)
	if p.column == 1 && p.line > n.Line { // behind the line end of a block
		return p.line - 1
	}
	return min(p.line, len(f.Lines))
}

// endOf returns the place behind a node.
func (f *File) endOf(n *yaml.Node) place {
	switch {
	case n.Kind == yaml.ScalarNode:
		return f.end(n)
	case len(n.Content) == 0 || n.Style&yaml.FlowStyle != 0:
		at := place{n.Line, n.Column + 1}
		if len(n.Content) > 0 {
			at = f.endOf(n.Content[len(n.Content)-1])
		}
		return f.closing(at)
	}
	return f.endOf(n.Content[len(n.Content)-1])
}

// closing finds the bracket that closes a flow collection, behind its last
// element.
func (f *File) closing(at place) place {
	for line := at.line; line <= len(f.Lines); line++ {
		text, column := f.Lines[line-1], 1
		if line == at.line {
			text, column = text[f.offset(line, at.column):], at.column
		}
		blank := column == 1
		for _, r := range text {
			if r == ']' || r == '}' {
				return place{line, column + 1}
			}
			if r == '#' && blank {
				break
			}
			blank = r == ' ' || r == '\t'
			column++
		}
	}
	return at
}
