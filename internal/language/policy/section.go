package policy

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// section reads input, output or forward. A section may be spread over
// included files: rules add up, default and accelerate are said once.
func (f *file) section(e entry, where **Section, hook Hook) {
	if isNull(e.value) {
		f.fail(f.src.at(e.key), "write default: drop, or leave out the section: then it is not policed", "%s is empty", hook)
		return
	}
	if e.value.Kind != yaml.MappingNode {
		hint := ""
		if e.value.Kind == yaml.SequenceNode {
			hint = "write default: and rules: under it, and the list under rules"
		}
		f.fail(f.src.at(e.value), hint, "%s must be a mapping, this is %s", hook, kindName(e.value))
		return
	}
	s := *where
	if s == nil {
		s = &Section{Pos: f.src.at(e.key), Hook: hook}
		*where = s
	}
	shape := *shapeOf("section")
	if hook == Forward {
		shape = *shapeOf("forward")
	}
	shape.what = string(hook)
	for _, k := range f.entries(e.value, string(hook)) {
		switch k.name {
		case "default":
			f.defaultAction(k, s)
		case "rules":
			f.blockList[k.value] = true
			for _, n := range f.ruleList(k.value) {
				if r := f.ruleNode(n, hook); r != nil {
					s.Rules = append(s.Rules, r)
				}
			}
		case "accelerate":
			if hook != Forward {
				f.fail(f.src.at(k.key), "put it under forward", "accelerate cannot be used in %s: only what goes through this host can be offloaded", hook)
				continue
			}
			if s.AccelPos.Line != 0 {
				f.fail(f.src.at(k.key), "", "accelerate is already set, see %s", s.AccelPos)
				continue
			}
			s.AccelPos = f.src.at(k.key)
			s.Accelerate, _ = f.flag(k.value, "accelerate")
		default:
			names := shape.keyNames()
			f.fail(f.src.at(k.key), "known are "+strings.Join(names, ", "), "unknown key %s in %s%s", quote(k.name), hook, didYouMean(k.name, names))
		}
	}
}

// ruleList is list without the single text: a list that was forgotten is more
// likely than a section of one rule.
func (f *file) ruleList(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		f.fail(f.src.at(n), "write each rule on a line of its own, with - before it", "rules must be a list, this is %s", kindName(n))
		return nil
	}
	return f.list(n, "rules")
}

// defaultAction reads `drop`, `drop log "in"`, or the same as a mapping.
func (f *file) defaultAction(e entry, s *Section) {
	if !f.once(e, &s.DefaultPos) {
		return
	}
	s.Default = Drop // after an error
	toks, ok := f.defaultTokens(e.value)
	if !ok {
		return
	}
	const hint = "write drop, reject or allow, and log \"PREFIX\" behind it where wanted"
	w := &words{file: f, toks: toks}
	t, ok := w.word("drop, reject or allow", hint)
	if !ok {
		return
	}
	switch t.text {
	case "allow", "drop", "reject":
		s.Default = Action(t.text)
	default:
		w.failAt(t, hint, "unknown default %s%s", quote(t.text), didYouMean(t.text, []string{"allow", "drop", "reject"}))
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
		text += " " + logText(*s.DefaultLog)
	}
	f.setLine(e.value, text)
}

func (f *file) defaultTokens(n *yaml.Node) ([]token, bool) {
	if n.Kind == yaml.MappingNode && f.accident(n) == "" {
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
	if _, ok := f.text(n, "default"); !ok {
		return nil, false
	}
	return f.tokens(n)
}

// sections checks, when all files are read, that every section says what
// becomes of the rest.
func (l *loader) sections() {
	for _, s := range []*Section{l.policy.Input, l.policy.Output, l.policy.Forward} {
		if s != nil && s.DefaultPos.Line == 0 && !l.unread {
			l.fail(s.Pos, "write default: drop, reject or allow", "%s has no default", s.Hook)
		}
	}
}
