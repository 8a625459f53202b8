package source

import (
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxDepth bounds the nesting of a file; the policy itself needs 6.
const maxDepth = 24

// Document parses the text of a file to its one YAML document; nil when there
// is none or it has an error.
func (f *File) Document() *yaml.Node {
	loader, err := yaml.NewLoader(strings.NewReader(f.text),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		f.Fail(f.Pos(0, 0), "", "%v", err)
		return nil
	}
	var first yaml.Node
	switch err := loader.Load(&first); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.DocumentNode, Line: 1, Column: 1}
	case err != nil:
		f.syntaxError(err)
		return nil
	}
	var second yaml.Node
	switch err := loader.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		f.syntaxError(err)
		return nil
	default:
		f.Fail(f.At(&second), f.dialect.Second, "second YAML document in one file")
		return nil
	}
	if f.refuse(&first) {
		return nil
	}
	if l := f.dialect.Language; l != nil && len(Renames) > 0 && len(first.Content) > 0 {
		f.renew(first.Content[0], l.shapeOf(first.Content[0]))
	}
	return &first
}

// refuse reports the first anchor, alias, merge key or tag in the tree; who
// uses one uses many.
func (f *File) refuse(n *yaml.Node) bool {
	why := f.dialect.Anchors
	switch {
	case n.Kind == yaml.AliasNode:
		f.Fail(f.At(n), why, "YAML aliases are not part of the language")
		return true
	case n.Anchor != "":
		f.Fail(f.At(n), why, "YAML anchors are not part of the language")
		return true
	case n.Tag == "!!merge" && n.Style&QuotedStyles == 0:
		f.Fail(f.At(n), why, "YAML merge keys are not part of the language")
		return true
	case n.Style&yaml.TaggedStyle != 0 || n.Tag == "!":
		f.Fail(f.At(n), "remove the tag", "YAML tags are not part of the language")
		return true
	}
	return slices.ContainsFunc(n.Content, f.refuse)
}

// syntaxError reports what the YAML library said, in the words of this
// language where the cause can be told.
func (f *File) syntaxError(err error) {
	var loadErr *yaml.LoadError
	if !errors.As(err, &loadErr) {
		f.Fail(f.Pos(1, 1), "", "%v", err)
		return
	}
	mark := loadErr.Mark
	line := min(max(mark.Line, 1), len(f.Lines))
	// The end of the file is not where the mistake is.
	if mark.Line > len(f.Lines) || (line == len(f.Lines) && f.Lines[line-1] == "") {
		if c := loadErr.ContextMark; c.Line > 0 && c.Line <= len(f.Lines) {
			mark, line = c, c.Line
		}
	}
	pos := f.Pos(line, max(mark.Column, 1))
	text := f.Lines[line-1]
	message := loadErr.Message
	if loadErr.ContextMsg != "" {
		message += " " + loadErr.ContextMsg
	}
	message = "not YAML: " + message
	hint := ""
	switch {
	case strings.Contains(message, "exceeded max depth"):
		message = "nested too deeply"
	case strings.Contains(message, "unknown anchor"):
		message, hint = "YAML aliases are not part of the language", `put a text that begins with * into quotes: "*"`
	case strings.HasPrefix(strings.TrimSpace(text), "%"):
		message, hint = "YAML directives are not part of the language", "remove the line"
	case f.dialect.Fix != nil && f.dialect.Fix(text) != "":
		hint = f.dialect.Fix(text)
	case strings.Contains(message, "mapping values are not allowed"):
		hint = "a colon and a space make a key; put a text with them into quotes, and indent all keys of a mapping the same"
	}
	f.Fail(pos, hint, "%s", message)
}

// KindName is what a node is, for messages.
func KindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if IsNull(n) {
			return "empty"
		}
		return Quote(n.Value)
	case yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
	}
	return "something else"
}

// IsNull reports whether a node was left empty.
func IsNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Style&(QuotedStyles|BlockStyles) == 0
}

// Entry is one key of a mapping with its value.
type Entry struct {
	Key   *yaml.Node
	Name  string
	Value *yaml.Node
}

// Entries returns the pairs of a mapping whose keys are texts, each once.
// Nothing is returned for an empty node.
func (f *File) Entries(n *yaml.Node, what string) []Entry {
	if IsNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		f.Fail(f.At(n), "", "%s must be a mapping, not %s", what, KindName(n))
		return nil
	}
	var out []Entry
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || IsNull(k) {
			f.Fail(f.At(k), "", "a key must be a name, not %s", KindName(k))
			continue
		}
		if other := first[k.Value]; other != nil {
			f.Fail(f.At(k), "", "key %s is already on line %d", Quote(k.Value), other.Line)
			continue
		}
		first[k.Value] = k
		out = append(out, Entry{k, k.Value, n.Content[i+1]})
	}
	return out
}

// Known returns the entries of a mapping of a shape of the language, and
// reports the keys that it does not have.
func (f *File) Known(n *yaml.Node, s *Shape) []Entry {
	if n.Kind != yaml.MappingNode && !IsNull(n) && len(s.Examples) > 0 && strings.HasPrefix(s.Examples[0], "{") {
		f.Fail(f.At(n), "write it as in "+s.Examples[0], "%s must be a mapping, not %s", s.What, KindName(n))
		return nil
	}
	all := f.Entries(n, s.What)
	out := all[:0]
	for _, e := range all {
		if s.Key(e.Name) == nil {
			f.Unknown(e, s)
			continue
		}
		out = append(out, e)
	}
	return out
}

// Unknown reports a key that a shape does not have.
func (f *File) Unknown(e Entry, s *Shape) {
	names := s.KeyNames()
	hint, near := "", DidYouMean(e.Name, names)
	if len(names) > 0 {
		hint = "known are " + strings.Join(names, ", ")
	}
	if f.dialect.Instead != nil {
		if instead := f.dialect.Instead(s.Name, e.Name); instead != "" {
			hint, near = instead, ""
		}
	}
	f.Fail(f.At(e.Key), hint, "unknown key %s in %s%s", Quote(e.Name), s.What, near)
}

// List returns the elements of a list; a single text stands for a list of one,
// and an empty node for an empty list.
func (f *File) List(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case IsNull(n):
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	case n.Kind == yaml.ScalarNode:
		return []*yaml.Node{n}
	}
	f.Fail(f.At(n), f.Accident(n), "%s must be a list, not %s", what, KindName(n))
	return nil
}

// Text returns the value of a scalar that must not be empty.
func (f *File) Text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		f.Fail(f.At(n), f.Accident(n), "%s must be a text, not %s", what, KindName(n))
		return "", false
	case IsNull(n) || strings.TrimSpace(n.Value) == "":
		f.Fail(f.At(n), "", "%s is empty", what)
		return "", false
	}
	return n.Value, true
}

// Flag returns the value of a scalar that is true or false.
func (f *File) Flag(n *yaml.Node, what string) (value, ok bool) {
	if n.Kind == yaml.ScalarNode && n.Style&QuotedStyles == 0 {
		switch n.Value {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	hint := "write true or false"
	switch strings.ToLower(n.Value) {
	case "yes", "on", "true", "1", "y":
		hint = "write true"
	case "no", "off", "false", "0", "n":
		hint = "write false"
	}
	f.Fail(f.At(n), hint, "%s must be true or false, not %s", what, KindName(n))
	return false, false
}

// Version refuses another version of a language than the first.
func (f *File) Version(n *yaml.Node) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Value == "1":
	case n.Kind == yaml.ScalarNode && n.Value != "" && strings.Trim(n.Value, "0123456789") == "":
		f.Fail(f.At(n), "write version: 1", "this sluice does not know version %s of the language", Quote(n.Value))
	default:
		f.Fail(f.At(n), "write version: 1", "version must be 1, not %s", KindName(n))
	}
}

// Once keeps where an option is set, and fails where it was set before.
func (f *File) Once(e Entry, at *Pos) bool {
	if at.Line != 0 {
		f.Fail(f.At(e.Key), "", "%s is already set, see %s", e.Name, *at)
		return false
	}
	*at = f.At(e.Value)
	return true
}

// Either reads an option that is one of two words, and says whether it is the second.
func (f *File) Either(e Entry, first, second string) bool {
	switch e.Value.Value {
	case first:
	case second:
		return true
	default:
		f.Fail(f.At(e.Value), "write "+first+" or "+second, "%s must be %s or %s, not %s", e.Name, first, second, KindName(e.Value))
	}
	return false
}

// Accident returns a hint when a mapping looks like a line of words in which a
// colon and a blank made YAML see a key.
func (f *File) Accident(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode || len(n.Content) < 2 {
		return ""
	}
	k, v := n.Content[0], n.Content[1]
	if k.Kind != yaml.ScalarNode || k.Style&QuotedStyles != 0 || !strings.ContainsAny(k.Value, " \t") {
		return ""
	}
	line := k.Value + ":"
	if v.Kind == yaml.ScalarNode {
		line += " " + v.Value
	}
	return "the colon before the space makes a key in YAML; put the whole line into quotes: '" +
		strings.ReplaceAll(line, "'", "''") + "'"
}
