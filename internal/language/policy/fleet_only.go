package policy

import (
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/selector"
	"sluice/internal/language/source"
)

// onlyLine is how a part says that it is of some guests.
var onlyLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^only[ \t]*:`) })

// isOnly says whether a part is of some guests alone; of a text that cannot be read, a line
// says it.
func (f *file) isOnly(doc *yaml.Node, data []byte) bool {
	key, _ := has(rootOf(doc), "only")
	return key != nil || doc == nil && onlyLine().Match(data)
}

// onlyGuests reads of which guests a part is: `guests SELECTOR`; nil after an error.
func (f *file) onlyGuests(n *yaml.Node) *selector.Selector {
	text, ok := f.Text(n, "only")
	if !ok {
		return nil
	}
	of := strings.TrimLeft(text, " ")
	rest, is := strings.CutPrefix(of, "guests ")
	if !is {
		f.fail(f.RuneAt(n, 0), "write only: guests app=shop", "the scope of a part must be guests, not %s", source.Quote(text))
		return nil
	}
	s, err := selector.Parse(rest)
	if err != nil {
		f.badSelector(n, "only", text, len(text)-len(rest), err)
		return nil
	}
	f.canon[n] = "guests " + s.String()
	return s
}

// ofGuests is the scope of the guests of the host that a selector selects; nil where it
// has none.
func (f *Fleet) ofGuests(s *selector.Selector) []Scope {
	who := &Who{}
	for _, g := range f.Guests {
		if !s.Match(g.Labels) {
			continue
		}
		for _, r := range g.Addresses {
			who.Items = append(who.Items, WhoItem{Pos: r.Pos, Literal: r.Range})
		}
	}
	if len(who.Items) == 0 {
		return nil
	}
	return []Scope{{Word: "to", Who: who, Guests: s.String()}}
}

// forwarded checks that an expectation of a part of some guests is of what is forwarded, as
// the rules of the part are.
func (l *loader) forwarded(x *Expectation) {
	switch {
	case x.On != "" && x.On != Forward:
		l.fail(x.Pos, "remove on "+string(x.On), "%s belongs to the host, but a part with only is for its guests", x.On)
	case len(x.Users) > 0:
		l.fail(x.Pos, "remove by user", "users belong to the host, but a part with only is for its guests")
	default:
		x.On = Forward
	}
}

// rootOf is the first node of a document, which may be none.
func rootOf(doc *yaml.Node) *yaml.Node {
	if doc == nil || len(doc.Content) == 0 {
		return &yaml.Node{}
	}
	return doc.Content[0]
}

// has gives the key of a mapping and its value, or nil.
func has(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i], n.Content[i+1]
			}
		}
	}
	return nil, nil
}
