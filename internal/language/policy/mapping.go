package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

// ruleMapping turns a rule or an expectation that is written as a mapping into
// the tokens of the line that says the same.
func (f *file) ruleMapping(n *yaml.Node, shapeName string) ([]token, bool) {
	m, ok := f.mappingRule(n, shapeName)
	if !ok {
		return nil, false
	}
	action := m.first
	m.word(action, action.Name)
	if e, ok := m.by["published"]; ok {
		m.flag(e, "published")
	}
	m.values(action)
	for _, name := range []string{"family", "from", "to", "in", "out", "user", "limit", "max", "until", "log", "on", "state"} {
		e, ok := m.by[name]
		if !ok {
			continue
		}
		switch name {
		case "family":
			m.family(e)
		case "user":
			m.word(e, "by")
			m.word(e, "user")
			m.values(e)
		case "limit":
			m.word(e, "limit")
			m.limit(e)
		case "max":
			m.word(e, "max")
			m.max(e)
		case "log":
			m.word(e, "log")
			m.text(e)
		default:
			m.word(e, name)
			m.values(e)
		}
	}
	return m.done()
}

// natMapping does the same for a line of nat.
func (f *file) natMapping(n *yaml.Node) ([]token, bool) {
	m, ok := f.mappingRule(n, "nat")
	if !ok {
		return nil, false
	}
	kind := m.first
	m.word(kind, kind.Name)
	if kind.Name != "masquerade" {
		m.values(kind)
	} else if kind.Value.Value != "any" || kind.Value.Kind != yaml.ScalarNode {
		m.family(kind)
	}
	for _, name := range []string{"from", "out", "in", "as", "on", "family", "to", "stateless"} {
		e, ok := m.by[name]
		switch {
		case !ok:
		case name == "family":
			m.family(e)
		case name == "stateless":
			m.flag(e, name)
		default:
			m.word(e, name)
			m.values(e)
		}
	}
	return m.done()
}

// mappingForm collects the tokens of a mapping.
type mappingForm struct {
	*file
	node  *yaml.Node
	by    map[string]source.Entry
	first source.Entry // the key that says what the line is
	toks  []token
	bad   bool
}

func (f *file) mappingRule(n *yaml.Node, shapeName string) (*mappingForm, bool) {
	before := len(f.errs)
	heads := grammar.Of(shapeName).OneOf
	m := &mappingForm{file: f, node: n, by: map[string]source.Entry{}}
	var found []string
	for _, e := range f.Known(n, grammar.Of(shapeName)) {
		m.by[e.Name] = e
		if slices.Contains(heads, e.Name) {
			if len(found) == 0 {
				m.first = e
			}
			found = append(found, e.Name)
		}
	}
	switch {
	case len(f.errs) > before:
		return nil, false
	case len(found) == 0:
		f.fail(f.At(n), "", "%s needs one of the keys %s", grammar.Of(shapeName).What, strings.Join(heads, ", "))
		return nil, false
	case len(found) > 1:
		f.fail(f.At(m.by[found[1]].Key), "write two", "both %s and %s in one mapping", found[0], found[1])
		return nil, false
	}
	return m, true
}

func (m *mappingForm) word(e source.Entry, text string) {
	m.toks = append(m.toks, token{wordToken, text, m.At(e.Key)})
}

// values appends a scalar's words, or a list in brackets.
func (m *mappingForm) values(e source.Entry) { m.valuesOf(e.Value, e.Name) }

func (m *mappingForm) valuesOf(n *yaml.Node, what string) {
	switch n.Kind {
	case yaml.ScalarNode:
		if _, ok := m.file.Text(n, what); !ok {
			m.bad = true
			return
		}
		toks, ok := m.tokens(n)
		if !ok {
			m.bad = true
			return
		}
		// A clause's value must not bring further clauses with it.
		if extra := m.extraClause(toks); extra != nil {
			m.bad = true
			m.fail(extra.pos, "give it a key of its own", "unexpected %s in %s", source.Quote(extra.text), what)
			return
		}
		m.toks = append(m.toks, toks[:len(toks)-1]...)
	case yaml.SequenceNode:
		m.toks = append(m.toks, token{openToken, "[", m.At(n)})
		for i, c := range n.Content {
			if i > 0 {
				m.toks = append(m.toks, token{commaToken, ",", m.At(c)})
			}
			if c.Kind != yaml.ScalarNode {
				m.bad = true
				m.fail(m.At(c), m.Accident(c), "%s must be words, not %s", what, source.KindName(c))
				return
			}
			m.valuesOf(c, what)
		}
		m.toks = append(m.toks, token{closeToken, "]", m.At(n)})
	default:
		m.bad = true
		hint := m.Accident(n)
		if hint == "" {
			hint = "put the keys of a rule next to each other, as in {" + what + ": ssh, from: office}"
		}
		m.fail(m.At(n), hint, "%s must be words or a list, not %s", what, source.KindName(n))
	}
}

// extraClause returns the first word that would begin another clause.
func (m *mappingForm) extraClause(toks []token) *token {
	for i, t := range toks {
		if t.kind == wordToken && (clauseNamed(t.text) != nil || slices.Contains([]string{"as", "on", "stateless"}, t.text)) {
			return &toks[i]
		}
	}
	return nil
}

func (m *mappingForm) flag(e source.Entry, word string) {
	on, ok := m.file.Flag(e.Value, e.Name)
	m.bad = m.bad || !ok
	if on {
		m.word(e, word)
	}
}

func (m *mappingForm) family(e source.Entry) {
	if v := e.Value; v.Kind == yaml.ScalarNode && (v.Value == "ipv4" || v.Value == "ipv6") {
		m.toks = append(m.toks, token{wordToken, v.Value, m.At(v)})
		return
	}
	m.bad = true
	m.fail(m.At(e.Value), "write ipv4 or ipv6", "%s must be ipv4 or ipv6, not %s", e.Name, source.KindName(e.Value))
}

// text appends a scalar as it is, as the text of a log.
func (m *mappingForm) text(e source.Entry) {
	if e.Value.Kind != yaml.ScalarNode {
		m.bad = true
		m.fail(m.At(e.Value), m.Accident(e.Value), "%s must be a text, not %s", e.Name, source.KindName(e.Value))
		return
	}
	if source.IsNull(e.Value) {
		return
	}
	m.toks = append(m.toks, token{textToken, e.Value.Value, m.At(e.Value)})
}

// rest appends the words of a scalar that may have several clauses of its own.
func (m *mappingForm) rest(n *yaml.Node) {
	toks, ok := m.tokens(n)
	if !ok {
		m.bad = true
		return
	}
	m.toks = append(m.toks, toks[:len(toks)-1]...)
}

func (m *mappingForm) limit(e source.Entry) {
	if e.Value.Kind != yaml.MappingNode {
		if _, ok := m.file.Text(e.Value, "limit"); !ok {
			m.bad = true
			return
		}
		m.rest(e.Value)
		return
	}
	by := m.sub(e.Value, "limit", "rate")
	if m.bad {
		return
	}
	m.values(by["rate"])
	if per, ok := by["per"]; ok {
		m.word(per, "per")
		m.values(per)
	}
	if burst, ok := by["burst"]; ok {
		m.word(burst, "burst")
		m.values(burst)
	}
	if ban, ok := by["ban"]; ok {
		m.word(ban, "then")
		m.word(ban, "ban")
		m.values(ban)
	}
	if widen, ok := by["widen"]; ok {
		m.flag(widen, "widen")
	}
}

func (m *mappingForm) max(e source.Entry) {
	if e.Value.Kind != yaml.MappingNode {
		if _, ok := m.file.Text(e.Value, "max"); !ok {
			m.bad = true
			return
		}
		m.rest(e.Value)
		if !strings.Contains(e.Value.Value, "connection") {
			m.word(e, "connections")
		}
		return
	}
	by := m.sub(e.Value, "max", "connections")
	if m.bad {
		return
	}
	m.values(by["connections"])
	m.word(by["connections"], "connections")
	if per, ok := by["per"]; ok {
		m.word(per, "per")
		m.values(per)
	}
}

// sub reads a mapping inside the mapping.
func (m *mappingForm) sub(n *yaml.Node, shapeName, required string) map[string]source.Entry {
	before := len(m.errs)
	by := map[string]source.Entry{}
	for _, e := range m.Known(n, grammar.Of(shapeName)) {
		by[e.Name] = e
	}
	if _, ok := by[required]; !ok && len(m.errs) == before {
		m.fail(m.At(n), "", "%s needs the key %s", shapeName, required)
	}
	m.bad = m.bad || len(m.errs) > before
	return by
}

func (m *mappingForm) done() ([]token, bool) {
	return append(m.toks, token{endToken, "", m.At(m.node)}), !m.bad
}
