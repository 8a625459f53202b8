package policy

import (
	"slices"
	"strings"

	"sluice/internal/language/source"
)

// Comment is a comment of a policy's text.
type Comment struct {
	Pos   Pos
	Text  string // behind the #, without blanks around it
	About int    // line that it is about: its own or, where it stands alone, the next one that says something; 0: none
}

// Comments returns the comments of all files of a policy that was loaded, in the
// order of the files. Lint reads what they allow.
func (p *Policy) Comments() []Comment {
	var out []Comment
	for _, name := range slices.Concat([]string{p.File}, p.Includes) {
		if lines := p.lines[name]; len(lines) > 0 {
			out = append(out, commentsOf(name, lines)...)
		}
	}
	return out
}

func commentsOf(name string, lines []string) []Comment {
	l := newLoader(name)
	f := &file{loader: l, File: source.New(name, []byte(strings.Join(lines, "\n")+"\n"), dialect, &l.errs)}
	doc := f.Document()
	if doc == nil {
		return nil // a policy with such a text was not loaded
	}
	found := f.Comments(doc)
	alone := map[int]bool{}
	for _, c := range found {
		alone[c.Line] = c.Alone
	}
	var out []Comment
	for _, c := range found {
		about := c.Line
		if c.Alone {
			for about++; about <= len(lines) && (alone[about] || strings.TrimSpace(lines[about-1]) == ""); about++ {
			}
			if about > len(lines) {
				about = 0
			}
		}
		out = append(out, Comment{f.Pos(c.Line, c.Column), strings.TrimSpace(strings.TrimLeft(c.Text, "#")), about})
	}
	return out
}
