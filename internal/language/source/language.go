package source

import (
	"fmt"
	"slices"
	"strings"
)

// Language is a table of all that files of one language may hold. The parser
// takes the known keys from here, Schema and WriteShapes are made of nothing
// else, so the three cannot disagree.
type Language struct {
	Title    string   // of the schema
	Shapes   []*Shape // the first is that of a whole file; the order is that of the reference
	Others   []Other  // other kinds of files, the first that fits
	Includes bool     // a file may leave out what is required, since another has it
	Names    string   // the pattern of free names
	Reserved []string // which are no free names
}

// Other is a kind of file that is told from the first by a key at its top, or by two.
type Other struct {
	Key, And string // And may be ""
	Shape    string
}

// Of returns a shape of the table; a name that is not in it is a mistake of the
// program.
func (l *Language) Of(name string) *Shape {
	i := slices.IndexFunc(l.Shapes, func(s *Shape) bool { return s.Name == name })
	if i < 0 {
		panic(l.Title + ": the language has no shape " + name)
	}
	return l.Shapes[i]
}

// Shape is one kind of value of the language: which YAML it may be written as.
// It may have several forms at once: a set is an address, a list of addresses or
// a mapping.
type Shape struct {
	Name     string // in $defs and in other shapes
	What     string // in messages: "a zone"
	Doc      string // sentences for the reference and the schema
	Text     *Scalar
	List     string // the shape of the elements
	Keys     []Key
	Values   string   // free names as keys: the shape of what they stand for
	Null     bool     // may be left empty
	OneOf    []string // exactly one of these keys is in a mapping
	Examples []string
}

// Scalar is what a single YAML scalar may be.
type Scalar struct {
	JSON    string // JSON type: string, integer, boolean
	Pattern string
	Enum    []string
	Known   []string // of any text those that mean something already, which editors offer
}

// Key is one known key of a mapping.
type Key struct {
	Name     string
	Shape    string
	Doc      string
	Required bool
}

// Key is the key of that name, or nil.
func (s *Shape) Key(name string) *Key {
	for i := range s.Keys {
		if s.Keys[i].Name == name {
			return &s.Keys[i]
		}
	}
	return nil
}

// KeyNames are the names of the keys, in order.
func (s *Shape) KeyNames() []string {
	out := make([]string, len(s.Keys))
	for i, k := range s.Keys {
		out[i] = k.Name
	}
	return out
}

// AnyText is any text.
func AnyText() *Scalar { return &Scalar{JSON: "string"} }

// Matching is a text of a pattern.
func Matching(pattern string) *Scalar { return &Scalar{JSON: "string", Pattern: pattern} }

// OneOf is one of some words.
func OneOf(words ...string) *Scalar { return &Scalar{JSON: "string", Enum: words} }

// Boolean is true or false.
func Boolean() *Scalar { return &Scalar{JSON: "boolean"} }

// Number is a whole number above zero.
func Number() *Scalar { return &Scalar{JSON: "integer"} }

// TextOrNumber is any text, of which YAML may read one as a whole number.
func TextOrNumber() *Scalar { return &Scalar{JSON: "string|integer"} }

// Version1 is the shape of a key version, which is 1.
func Version1() *Shape {
	return &Shape{Name: "version", What: "version", Doc: "Always 1.", Text: &Scalar{JSON: "integer", Enum: []string{"1"}}, Examples: []string{"1"}}
}

// WriteShapes writes the reference of keys and values, as Markdown.
func (l *Language) WriteShapes(b *strings.Builder) {
	b.WriteString("## Keys and values\n\n")
	for _, s := range l.Shapes {
		fmt.Fprintf(b, "### %s\n\n%s\n\n", s.Name, s.Doc)
		if forms := s.forms(); forms != "" {
			fmt.Fprintf(b, "Written as %s.\n\n", forms)
		}
		if s.Keys != nil {
			b.WriteString("| key | value | meaning |\n|---|---|---|\n")
			for _, k := range s.Keys {
				doc := k.Doc
				if k.Required {
					doc += " Required."
				}
				fmt.Fprintf(b, "| `%s` | [%s](#%s) | %s |\n", k.Name, k.Shape, k.Shape, EscapeCell(doc))
			}
			b.WriteByte('\n')
		}
		b.WriteString("```yaml\n" + strings.Join(s.Examples, "\n") + "\n```\n\n")
	}
}

// forms says how a shape may be written.
func (s *Shape) forms() string {
	var out []string
	if s.Text != nil && s.List == "" && s.Keys == nil {
		if s.Null {
			out = append(out, "a text")
		}
	} else if s.Text != nil {
		out = append(out, "a text")
	}
	if s.List != "" {
		out = append(out, fmt.Sprintf("a list of [%s](#%s)", s.List, s.List))
	}
	if s.Keys != nil && (len(out) > 0 || s.Null) {
		out = append(out, "a mapping")
	}
	if s.Values != "" {
		out = append(out, fmt.Sprintf("a mapping of names to [%s](#%s)", s.Values, s.Values))
	}
	if s.Null && len(out) > 0 {
		out = append(out, "or empty")
	}
	return strings.Join(out, ", ")
}

// EscapeCell is a text as it is in a cell of a table.
func EscapeCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
