package source

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"sluice"
)

// Renamed is a word that is called otherwise since a version. For a year the old word means the
// same and gives a warning; the releases after that refuse it.
type Renamed struct {
	Of       string // the title of a language, or the command of a flag: "sluice check"
	Shape    string // of which the word is a key or a value; "": a word of rules and other lines, or a flag
	Old, New string // of flags with their hyphens
	Since    string // the version, such as "0.2.0"
	On       string // its date, such as "2027-01-31"
}

// Renames are all. CONTRIBUTING.md says what else a new one needs.
var Renames []Renamed

// until is the day from which on the word is an error.
func (r *Renamed) until() time.Time {
	on, err := time.Parse(time.DateOnly, r.On)
	if err != nil {
		panic(err) // a mistake in the table
	}
	return on.AddDate(1, 0, 0)
}

// Over says whether this version refuses the word.
func (r *Renamed) Over() bool { return !sluice.Released.Before(r.until()) }

// String is the warning, and later the error.
func (r *Renamed) String() string {
	return fmt.Sprintf("%q is called %q since Sluice %s, and is an error from %s on", r.Old, r.New, r.Since, r.until().Format(time.DateOnly))
}

// RenamedOf is the row of an old word; nil: there is none.
func RenamedOf(of, shape, word string) *Renamed {
	i := slices.IndexFunc(Renames, func(r Renamed) bool { return r.Of == of && r.Shape == shape && r.Old == word })
	if i < 0 {
		return nil
	}
	return &Renames[i]
}

// old returns what a word is called now, and notes at what place the file calls it otherwise.
func (f *File) old(shape, word string, pos Pos) (now string, is bool) {
	r := RenamedOf(f.dialect.Language.Title, shape, word)
	if r == nil {
		return word, false
	}
	hint := "write " + r.New
	switch {
	case r.Over() && !f.Renews:
		f.Fail(pos, hint, "%s", r)
	case f.OldWords != nil:
		*f.OldWords = append(*f.OldWords, NewError(f.Lines, pos, hint, "%s", r))
	}
	return r.New, true
}

// Word is a word of a line, as it is called now.
func (f *File) Word(word string, pos Pos) string {
	now, _ := f.old("", word, pos)
	return now
}

// renew puts the words of now into a node, which is of that shape.
func (f *File) renew(n *yaml.Node, s *Shape) {
	l := f.dialect.Language
	switch n.Kind {
	case yaml.ScalarNode:
		f.renewScalar(n, s)
		if s.List != "" { // of one element
			f.renewScalar(n, l.Of(s.List))
		}
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if s.List != "" {
				f.renew(c, l.Of(s.List))
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if s.Values != "" {
				f.renew(v, l.Of(s.Values))
				continue
			}
			if k.Kind == yaml.ScalarNode {
				f.renewScalar(k, s)
			}
			if key := s.Key(k.Value); key != nil {
				f.renew(v, l.Of(key.Shape))
			}
		}
	case yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
	}
}

func (f *File) renewScalar(n *yaml.Node, s *Shape) {
	if now, is := f.old(s.Name, n.Value, f.At(n)); is {
		f.runes[n] = f.places(n) // the new word has no others
		n.Value = now
	}
}

// Shape is that of a whole file.
func (l *Language) shapeOf(root *yaml.Node) *Shape {
	has := func(key string) bool {
		for i := 0; root.Kind == yaml.MappingNode && i < len(root.Content); i += 2 {
			if root.Content[i].Value == key {
				return true
			}
		}
		return false
	}
	for _, o := range l.Others {
		if has(o.Key) && (o.And == "" || has(o.And)) {
			return l.Of(o.Shape)
		}
	}
	return l.Shapes[0]
}
