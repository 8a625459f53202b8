package policy

import (
	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

// section reads input, output or forward. A section may be spread over
// included files: rules add up, default and accelerate are said once.
func (f *file) section(e source.Entry, where **Section, hook Hook) {
	if source.IsNull(e.Value) {
		f.fail(f.At(e.Key), "write default: drop, or remove the section, which is then not filtered", "%s is empty", hook)
		return
	}
	if e.Value.Kind != yaml.MappingNode {
		hint := "write default: drop below it, and rules: with a list of rules"
		if e.Value.Kind == yaml.SequenceNode {
			hint = "write default: and rules: under it, and the list under rules"
		}
		f.fail(f.At(e.Value), hint, "%s must be a mapping, not %s", hook, source.KindName(e.Value))
		return
	}
	s := *where
	if s == nil {
		s = &Section{Pos: f.At(e.Key), Hook: hook}
		*where = s
	}
	shape := *grammar.Of("section")
	if hook == Forward {
		shape = *grammar.Of("forward")
	}
	shape.What = string(hook)
	for _, k := range f.Entries(e.Value, string(hook)) {
		if f.scope != nil && shape.Key(k.Name) != nil && k.Name != "rules" {
			what, hint := f.withOnly()
			f.fail(f.At(k.Key), hint, "%s cannot be set in %s: it applies to everybody", k.Name, what)
			continue
		}
		switch k.Name {
		case "default":
			f.defaultAction(k, s)
		case "rules":
			f.blockList[k.Value] = true
			for _, n := range f.ruleList(k.Value) {
				if r := f.ruleNode(n, hook); r != nil {
					s.Rules = append(s.Rules, r)
				}
			}
		case "accelerate":
			if hook != Forward {
				f.fail(f.At(k.Key), "put it under forward", "accelerate cannot be used in %s: only forwarded packets can be offloaded", hook)
				continue
			}
			if f.Once(k, &s.AccelPos) {
				s.AccelPos = f.At(k.Key)
				s.Accelerate, _ = f.Flag(k.Value, "accelerate")
			}
		default:
			f.Unknown(k, &shape)
		}
	}
}

// ruleList is list without the single text: a list that was forgotten is more
// likely than a section of one rule.
func (f *file) ruleList(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode && !source.IsNull(n) {
		f.fail(f.At(n), "write each rule on its own line, after -", "rules must be a list, not %s", source.KindName(n))
		return nil
	}
	return f.List(n, "rules")
}

// defaultAction reads `drop`, `drop log "in"`, or the same as a mapping.
func (f *file) defaultAction(e source.Entry, s *Section) {
	if !f.Once(e, &s.DefaultPos) {
		return
	}
	s.Default = Drop // after an error
	toks, ok := f.defaultTokens(e.Value)
	if !ok {
		return
	}
	const hint = "write drop, reject or allow, optionally followed by log \"PREFIX\""
	w := &words{file: f, toks: toks}
	t, ok := w.word("drop, reject or allow", hint)
	if !ok {
		return
	}
	switch t.text {
	case "allow", "drop", "reject":
		s.Default = Action(t.text)
	default:
		w.failAt(t, hint, "unknown default %s%s", source.Quote(t.text), source.DidYouMean(t.text, []string{"allow", "drop", "reject"}))
		return
	}
	if w.accept("log") {
		if s.DefaultLog, ok = w.logPrefix(); !ok {
			return
		}
	}
	if t := w.peek(); t.kind != endToken {
		w.failAt(t, hint, "unexpected %s in default", t.describe())
		return
	}
	text := string(s.Default)
	if s.DefaultLog != nil {
		text += " " + LogText(*s.DefaultLog)
	}
	f.setLine(e.Value, text)
}

func (f *file) defaultTokens(n *yaml.Node) ([]token, bool) {
	if n.Kind == yaml.MappingNode && f.Accident(n) == "" {
		m := &mappingForm{file: f, node: n}
		by := m.sub(n, "default", "action")
		if m.bad {
			return nil, false
		}
		m.values(by["action"])
		if log, ok := by["log"]; ok {
			m.word(log, "log")
			m.text(log)
		}
		return m.done()
	}
	if _, ok := f.Text(n, "default"); !ok {
		return nil, false
	}
	return f.tokens(n)
}

// sections checks, when all files are read, that every section says what
// happens to the rest.
func (l *loader) sections() {
	for _, s := range []*Section{l.policy.Input, l.policy.Output, l.policy.Forward} {
		if s != nil && s.DefaultPos.Line == 0 && !l.unread {
			l.fail(s.Pos, "write default: drop, reject or allow", "%s has no default", s.Hook)
		}
	}
}
