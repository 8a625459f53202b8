package policy

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxDepth bounds the nesting of a policy; the language itself needs 6.
const maxDepth = 24

// document parses the text of a file to its one YAML document; nil when there
// is none or it has an error.
func (f *file) document() *yaml.Node {
	loader, err := yaml.NewLoader(strings.NewReader(f.src.text),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		f.fail(f.src.pos(0, 0), "", "%v", err)
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
		f.fail(f.src.at(&second), "put it into a file of its own and include that", "second YAML document in one file")
		return nil
	}
	if f.refuse(&first) {
		return nil
	}
	return &first
}

// refuse reports the first anchor, alias, merge key or tag in the tree; who
// uses one uses many.
func (f *file) refuse(n *yaml.Node) bool {
	const why = "they make a rule say what stands elsewhere, and a few lines stand for millions; name a set, a zone or a service instead"
	switch {
	case n.Kind == yaml.AliasNode:
		f.fail(f.src.at(n), why, "YAML aliases are not part of the language")
		return true
	case n.Anchor != "":
		f.fail(f.src.at(n), why, "YAML anchors are not part of the language")
		return true
	case n.Tag == "!!merge" && n.Style&quotedStyles == 0:
		f.fail(f.src.at(n), why, "YAML merge keys are not part of the language")
		return true
	case n.Style&yaml.TaggedStyle != 0 || n.Tag == "!":
		f.fail(f.src.at(n), "leave out the tag", "YAML tags are not part of the language")
		return true
	}
	return slices.ContainsFunc(n.Content, f.refuse)
}

var ruleLine = regexp.MustCompile(`^\s*(-\s+)?(default:\s+)?(allow|drop|reject|deny|clamp|masquerade|redirect|map)\s`)

// syntaxError reports what the YAML library said, in the words of this
// language where the cause can be told.
func (f *file) syntaxError(err error) {
	var loadErr *yaml.LoadError
	if !errors.As(err, &loadErr) {
		f.fail(f.src.pos(1, 1), "", "%v", err)
		return
	}
	mark := loadErr.Mark
	line := min(max(mark.Line, 1), len(f.src.lines))
	// The end of the file is not where the mistake is.
	if mark.Line > len(f.src.lines) || (line == len(f.src.lines) && f.src.lines[line-1] == "") {
		if c := loadErr.ContextMark; c.Line > 0 && c.Line <= len(f.src.lines) {
			mark, line = c, c.Line
		}
	}
	pos := f.src.pos(line, max(mark.Column, 1))
	text := f.src.lines[line-1]
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
		message, hint = "YAML directives are not part of the language", "leave out the line"
	case strings.Contains(text, "rules: ["):
		hint = "write each rule on a line of its own, with - before it"
	case ruleLine.MatchString(text):
		hint = "put the whole line of the rule into single quotes, as in - 'drop log \"in: \"'"
	case strings.Contains(message, "mapping values are not allowed"):
		hint = "a colon and a blank make a key; put a text with them into quotes, and indent all keys of a mapping alike"
	}
	f.fail(pos, hint, "%s", message)
}

// kindName is what a node is, for messages.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if isNull(n) {
			return "empty"
		}
		return quote(n.Value)
	case yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
	}
	return "something else"
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Style&(quotedStyles|blockStyles) == 0
}

// entry is one key of a mapping with its value.
type entry struct {
	key   *yaml.Node
	name  string
	value *yaml.Node
}

// entries returns the pairs of a mapping whose keys are texts, each once.
// Nothing is returned for an empty node.
func (f *file) entries(n *yaml.Node, what string) []entry {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		f.fail(f.src.at(n), "", "%s must be a mapping, this is %s", what, kindName(n))
		return nil
	}
	var out []entry
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || isNull(k) {
			f.fail(f.src.at(k), "", "a key must be a name, this is %s", kindName(k))
			continue
		}
		if other := first[k.Value]; other != nil {
			f.fail(f.src.at(k), "", "key %s is already in line %d", quote(k.Value), other.Line)
			continue
		}
		first[k.Value] = k
		out = append(out, entry{k, k.Value, n.Content[i+1]})
	}
	return out
}

// known returns the entries of a mapping of a shape of the language, and
// reports the keys that it does not have.
func (f *file) known(n *yaml.Node, s *shape) []entry {
	all := f.entries(n, s.what)
	out := all[:0]
	for _, e := range all {
		if s.key(e.name) == nil {
			names := s.keyNames()
			hint := "known are " + strings.Join(names, ", ")
			if len(names) == 0 {
				hint = ""
			}
			f.fail(f.src.at(e.key), hint, "unknown key %s in %s%s", quote(e.name), s.what, didYouMean(e.name, names))
			continue
		}
		out = append(out, e)
	}
	return out
}

// list returns the elements of a list; a single text stands for a list of one,
// and an empty node for an empty list.
func (f *file) list(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case isNull(n):
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	case n.Kind == yaml.ScalarNode:
		return []*yaml.Node{n}
	}
	f.fail(f.src.at(n), f.accident(n), "%s must be a list, this is %s", what, kindName(n))
	return nil
}

// text returns the value of a scalar that must not be empty.
func (f *file) text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		f.fail(f.src.at(n), f.accident(n), "%s must be a text, this is %s", what, kindName(n))
		return "", false
	case isNull(n) || strings.TrimSpace(n.Value) == "":
		f.fail(f.src.at(n), "", "%s is empty", what)
		return "", false
	}
	return n.Value, true
}

// flag returns the value of a scalar that is true or false.
func (f *file) flag(n *yaml.Node, what string) (value, ok bool) {
	if n.Kind == yaml.ScalarNode && n.Style&quotedStyles == 0 {
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
	f.fail(f.src.at(n), hint, "%s must be true or false, this is %s", what, kindName(n))
	return false, false
}

// once keeps where an option is set, and fails where it was set before.
func (f *file) once(e entry, at *Pos) bool {
	if at.Line != 0 {
		f.fail(f.src.at(e.key), "", "%s is already set, see %s", e.name, *at)
		return false
	}
	*at = f.src.at(e.value)
	return true
}

// either reads an option that is one of two words, and says whether it is the second.
func (f *file) either(e entry, first, second string) bool {
	switch e.value.Value {
	case first:
	case second:
		return true
	default:
		f.fail(f.src.at(e.value), "write "+first+" or "+second, "%s must be %s or %s, this is %s", e.name, first, second, kindName(e.value))
	}
	return false
}

// accident returns a hint when a mapping looks like a line of words in which a
// colon and a blank made YAML see a key.
func (f *file) accident(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode || len(n.Content) < 2 {
		return ""
	}
	k, v := n.Content[0], n.Content[1]
	if k.Kind != yaml.ScalarNode || k.Style&quotedStyles != 0 || !strings.ContainsAny(k.Value, " \t") {
		return ""
	}
	line := k.Value + ":"
	if v.Kind == yaml.ScalarNode {
		line += " " + v.Value
	}
	return "the colon before the blank makes YAML see a key here; put the whole line into quotes: '" +
		strings.ReplaceAll(line, "'", "''") + "'"
}
