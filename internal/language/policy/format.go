package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

// Format returns a policy text in its canonical form: two blanks a level, rules
// and lines of nat as lines of words in the order of the grammar, addresses and
// codes in their shortest form, old words renewed, comments kept, at most one empty line at a
// place. Names need not be defined and version may be missing, since a part of
// a policy may be formatted alone. Errors are of type [Errors].
//
// The YAML library can write its nodes too, but moves comments and drops empty
// lines, and a policy under version control has to keep both. So the text is
// written here, node by node, and the comments come from the source.
func Format(name string, data []byte) ([]byte, error) {
	l := newLoader(name)
	l.lenient = true
	f := &file{loader: l, File: source.New(name, data, dialect, &l.errs), stack: []string{name}}
	f.Renews = true
	l.files = []string{name}
	l.policy.lines[name] = f.Lines
	if errs := f.CheckText(data); len(errs) > 0 {
		return nil, errs
	}
	doc := f.Document()
	if doc != nil {
		f.top(doc)
	}
	if len(l.errs) > 0 {
		return nil, l.errs.Sorted(l.files)
	}
	p := &printer{file: f, comments: f.Comments(doc)}
	end := len(f.Lines) + 1
	if len(doc.Content) > 0 && !source.IsNull(doc.Content[0]) {
		p.block(doc.Content[0], 0, end)
	}
	p.flush(end, 1, 0)
	return []byte(p.out.String()), nil
}

// printer writes a document again.
type printer struct {
	*file
	out      strings.Builder
	comments []source.Comment // not yet written
	last     int              // the source line that was written last
	hyphen   bool             // the next entry begins an element of a list
}

// block writes the entries of a mapping or list, each on a line of its own.
// Comments from limit on belong to what follows.
func (p *printer) block(n *yaml.Node, indent, limit int) {
	step := 2
	if n.Kind == yaml.SequenceNode {
		step = 1
	}
	for i := 0; i < len(n.Content); i += step {
		next := limit
		if i+step < len(n.Content) {
			next = n.Content[i+step].Line
		}
		if step == 1 {
			text, ok := p.inline(n.Content[i], false)
			if !ok { // a mapping: no list of the language has lists
				p.hyphen = true
				p.block(n.Content[i], indent+2, next)
				continue
			}
			p.entry(n.Content[i].Line, p.LastLine(n.Content[i]), indent, "- "+text)
			continue
		}
		p.pair(n.Content[i], n.Content[i+1], indent, next)
	}
}

func (p *printer) pair(k, v *yaml.Node, indent, limit int) {
	text := p.scalar(k, false) + ":"
	value, ok := p.inline(v, false)
	switch {
	case ok && value == "": // below it may stand what is commented out
		p.entry(k.Line, p.LastLine(v), indent, text)
	case ok:
		p.entry(k.Line, p.LastLine(v), indent, text+" "+value)
		return
	default:
		last := k.Line
		if p.commentInside(v, k.Line) {
			last-- // it is about the first element
		}
		p.entry(k.Line, last, indent, text)
		p.block(v, indent+2, limit)
	}
	// Comments at the end of a block that are indented deeper than its key. A
	// list may be indented like its key, and so may what is commented out.
	hyphens := v.Kind == yaml.SequenceNode && v.Column == k.Column && len(v.Content) > 0
	for {
		p.flush(limit, k.Column+1, indent+2)
		if !hyphens || len(p.comments) == 0 || p.comments[0].Line >= limit || p.comments[0].Column < k.Column ||
			!strings.HasPrefix(strings.TrimLeft(p.comments[0].Text, "# "), "- ") {
			return
		}
		p.flush(p.comments[0].Line+1, k.Column, indent+2)
	}
}

// commentInside reports whether the next comment is in this line, behind
// the bracket that opens a collection.
func (p *printer) commentInside(n *yaml.Node, line int) bool {
	if n.Style&yaml.FlowStyle == 0 || len(p.comments) == 0 || p.comments[0].Line != line || n.Content[0].Line != line {
		return false
	}
	return p.Inside(n, p.comments[0])
}

// entry writes one line that stands for the source lines from first to last,
// with their comments.
func (p *printer) entry(first, last, indent int, text string) {
	begin := indent
	if p.hyphen {
		begin, text = indent-2, "- "+text
		p.hyphen = false
	}
	p.flush(first, 1, begin)
	p.gap(first)
	var own []source.Comment
	for len(p.comments) > 0 && p.comments[0].Line <= last {
		own = append(own, p.comments[0])
		p.comments = p.comments[1:]
	}
	if len(own) == 1 && !own[0].Alone {
		width := begin + utf8.RuneCountInString(text)
		text += strings.Repeat(" ", max(1, own[0].Column-1-width)) + own[0].Text
		own = nil
	}
	for _, c := range own {
		p.line(begin, c.Text)
	}
	p.line(begin, text)
	p.last = last
}

// flush writes the comments before a source line, up to the first one that
// stands to the left of column.
func (p *printer) flush(line, column, indent int) {
	for len(p.comments) > 0 {
		c := p.comments[0]
		if c.Line >= line || c.Column < column {
			return
		}
		p.comments = p.comments[1:]
		p.gap(c.Line)
		p.line(indent, c.Text)
		p.last = c.Line
	}
}

// gap keeps one of the empty lines before a source line.
func (p *printer) gap(line int) {
	if p.out.Len() == 0 {
		return
	}
	for l := p.last + 1; l < line; l++ {
		if strings.TrimSpace(p.Lines[l-1]) == "" {
			p.out.WriteByte('\n')
			return
		}
	}
}

func (p *printer) line(indent int, text string) {
	p.out.WriteString(strings.Repeat(" ", indent) + text + "\n")
}

// inline returns a node as one line, and whether it can be one: a scalar, an
// empty collection, or a collection in flow form without comments inside.
func (p *printer) inline(n *yaml.Node, flow bool) (string, bool) {
	if n.Kind == yaml.ScalarNode || p.canon[n] != "" {
		return p.scalar(n, flow), true
	}
	if len(n.Content) > 0 && (n.Style&yaml.FlowStyle == 0 || p.blockList[n] || p.hasComments(n)) {
		return "", false
	}
	var items []string
	for i := 0; i < len(n.Content); i++ {
		item := ""
		if n.Kind == yaml.MappingNode {
			item = p.scalar(n.Content[i], true) + ": "
			i++
		}
		text, ok := p.inline(n.Content[i], true)
		if !ok {
			return "", false
		}
		if text == "" {
			text = "null"
		}
		items = append(items, item+text)
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		return "[" + strings.Join(items, ", ") + "]", true
	case len(items) == 0:
		return "{}", true
	}
	return "{ " + strings.Join(items, ", ") + " }", true
}

// hasComments reports whether comments stand between the first and the last
// line of a collection.
func (p *printer) hasComments(n *yaml.Node) bool {
	return slices.ContainsFunc(p.comments, func(c source.Comment) bool { return p.Inside(n, c) })
}

// scalar returns a scalar in its canonical form. Texts that have one of their
// own are quoted where YAML needs it, others also where they were.
func (p *printer) scalar(n *yaml.Node, flow bool) string {
	text, canonical := p.canon[n]
	if !canonical {
		if source.IsNull(n) {
			return ""
		}
		text = n.Value
	}
	line := canonical && (n.Kind != yaml.ScalarNode || p.lineText[n])
	quoted := n.Kind == yaml.ScalarNode && n.Style&source.QuotedStyles != 0 && !line
	if !quoted && plainSafe(text, flow) {
		return text
	}
	return quoteScalar(text, line)
}

// plainSafe reports whether YAML reads a text without quotes as that text.
func plainSafe(s string, flow bool) bool {
	switch {
	case s == "" || strings.TrimSpace(s) != s:
		return false
	case strings.ContainsRune("-?:,[]{}#&*!|>'\"%@`<=~", rune(s[0])):
		return false
	case strings.Contains(s, ": ") || strings.Contains(s, " #") || strings.HasSuffix(s, ":"):
		return false
	case flow && strings.ContainsAny(s, ",[]{}"):
		return false
	}
	for _, r := range s {
		if r < ' ' || r == utf8.RuneError || r >= 0x7f && r < 0xa0 || source.IsDeceptive(r) {
			return false
		}
	}
	return true
}

// quoteScalar prefers double quotes, and single ones around what has double
// ones in it: lines of words keep their own quotes readable.
func quoteScalar(s string, line bool) string {
	plain := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f })
	switch {
	case plain && (line || strings.ContainsAny(s, `"\`)):
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	case plain:
		return `"` + s + `"`
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case source.IsDeceptive(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
