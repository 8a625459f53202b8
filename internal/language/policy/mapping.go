package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ruleMapping turns a rule or an expectation that is written as a mapping into
// the tokens of the line that says the same.
func (f *file) ruleMapping(n *yaml.Node, shapeName string) ([]token, bool) {
	m, ok := f.mappingRule(n, shapeName)
	if !ok {
		return nil, false
	}
	action := m.first
	m.word(action, action.name)
	if e, ok := m.by["published"]; ok {
		m.flag(e, "published")
	}
	m.values(action)
	for _, name := range []string{"family", "from", "to", "in", "out", "user", "limit", "max", "log", "on", "state"} {
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
	m.word(kind, kind.name)
	if kind.name != "masquerade" {
		m.values(kind)
	} else if kind.value.Value != "any" || kind.value.Kind != yaml.ScalarNode {
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
	by    map[string]entry
	first entry // the key that says what the line is
	toks  []token
	bad   bool
}

func (f *file) mappingRule(n *yaml.Node, shapeName string) (*mappingForm, bool) {
	before := len(f.errs)
	heads := shapeOf(shapeName).oneOf
	m := &mappingForm{file: f, node: n, by: map[string]entry{}}
	var found []string
	for _, e := range f.known(n, shapeOf(shapeName)) {
		m.by[e.name] = e
		if slices.Contains(heads, e.name) {
			if len(found) == 0 {
				m.first = e
			}
			found = append(found, e.name)
		}
	}
	switch {
	case len(f.errs) > before:
		return nil, false
	case len(found) == 0:
		f.fail(f.src.at(n), "", "%s needs one of the keys %s", shapeOf(shapeName).what, strings.Join(heads, ", "))
		return nil, false
	case len(found) > 1:
		f.fail(f.src.at(m.by[found[1]].key), "write two", "%s and %s in one mapping", found[0], found[1])
		return nil, false
	}
	return m, true
}

func (m *mappingForm) word(e entry, text string) {
	m.toks = append(m.toks, token{wordToken, text, m.src.at(e.key)})
}

// values appends a scalar's words, or a list in brackets.
func (m *mappingForm) values(e entry) { m.valuesOf(e.value, e.name) }

func (m *mappingForm) valuesOf(n *yaml.Node, what string) {
	switch n.Kind {
	case yaml.ScalarNode:
		if _, ok := m.file.text(n, what); !ok {
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
			m.fail(extra.pos, "give it a key of its own", "unexpected %s in %s", quote(extra.text), what)
			return
		}
		m.toks = append(m.toks, toks[:len(toks)-1]...)
	case yaml.SequenceNode:
		m.toks = append(m.toks, token{openToken, "[", m.src.at(n)})
		for i, c := range n.Content {
			if i > 0 {
				m.toks = append(m.toks, token{commaToken, ",", m.src.at(c)})
			}
			if c.Kind != yaml.ScalarNode {
				m.bad = true
				m.fail(m.src.at(c), m.accident(c), "%s must be words, this is %s", what, kindName(c))
				return
			}
			m.valuesOf(c, what)
		}
		m.toks = append(m.toks, token{closeToken, "]", m.src.at(n)})
	default:
		m.bad = true
		m.fail(m.src.at(n), m.accident(n), "%s must be words or a list, this is %s", what, kindName(n))
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

func (m *mappingForm) flag(e entry, word string) {
	on, ok := m.file.flag(e.value, e.name)
	m.bad = m.bad || !ok
	if on {
		m.word(e, word)
	}
}

func (m *mappingForm) family(e entry) {
	if v := e.value; v.Kind == yaml.ScalarNode && (v.Value == "ipv4" || v.Value == "ipv6") {
		m.toks = append(m.toks, token{wordToken, v.Value, m.src.at(v)})
		return
	}
	m.bad = true
	m.fail(m.src.at(e.value), "write ipv4 or ipv6", "%s must be ipv4 or ipv6, this is %s", e.name, kindName(e.value))
}

// text appends a scalar as it is, as the text of a log.
func (m *mappingForm) text(e entry) {
	if e.value.Kind != yaml.ScalarNode {
		m.bad = true
		m.fail(m.src.at(e.value), m.accident(e.value), "%s must be a text, this is %s", e.name, kindName(e.value))
		return
	}
	if isNull(e.value) {
		return
	}
	m.toks = append(m.toks, token{textToken, e.value.Value, m.src.at(e.value)})
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

func (m *mappingForm) limit(e entry) {
	if e.value.Kind != yaml.MappingNode {
		if _, ok := m.file.text(e.value, "limit"); !ok {
			m.bad = true
			return
		}
		m.rest(e.value)
		return
	}
	by := m.sub(e.value, "limit", "rate")
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
}

func (m *mappingForm) max(e entry) {
	if e.value.Kind != yaml.MappingNode {
		if _, ok := m.file.text(e.value, "max"); !ok {
			m.bad = true
			return
		}
		m.rest(e.value)
		if !strings.Contains(e.value.Value, "connection") {
			m.word(e, "connections")
		}
		return
	}
	by := m.sub(e.value, "max", "connections")
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
func (m *mappingForm) sub(n *yaml.Node, shapeName, required string) map[string]entry {
	before := len(m.errs)
	by := map[string]entry{}
	for _, e := range m.known(n, shapeOf(shapeName)) {
		by[e.name] = e
	}
	if _, ok := by[required]; !ok && len(m.errs) == before {
		m.fail(m.src.at(n), "", "%s needs the key %s", shapeName, required)
	}
	m.bad = m.bad || len(m.errs) > before
	return by
}

func (m *mappingForm) done() ([]token, bool) {
	return append(m.toks, token{endToken, "", m.src.at(m.node)}), !m.bad
}
