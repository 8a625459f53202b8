package policy

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// after does something when all files are read and every name is known.
func (l *loader) after(do func()) {
	if !l.lenient {
		l.later = append(l.later, do)
	}
}

// top reads one file's document.
func (f *file) top(doc *yaml.Node) {
	first := len(f.stack) == 1 && !f.lenient
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		f.versions++ // one error is enough
		if first {
			f.fail(f.src.pos(1, 1), "a policy begins with version: 1", "file is empty")
		}
		return
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		f.fail(f.src.at(root), "a policy begins with version: 1", "the policy must be a mapping, this is %s", kindName(root))
		f.unread = true
		return
	}
	entries := f.known(root, shapeOf("policy"))
	version := false
	for _, e := range entries {
		version = version || e.name == "version"
	}
	if !version && first {
		f.fail(f.src.at(root), "write version: 1 as the first line", "version is missing")
	}
	f.versions++
	var includes *yaml.Node
	for _, e := range entries {
		switch e.name {
		case "version":
			f.version(e.value)
		case "include":
			includes = e.value
		case "zones":
			f.named(e, f.zone)
		case "sets":
			f.named(e, f.set)
		case "services":
			f.named(e, f.service)
		case "ban":
			f.policy.Ban = append(f.policy.Ban, f.bans(e)...)
		case "never-ban":
			f.policy.NeverBan = append(f.policy.NeverBan, f.bans(e)...)
		case "tracking":
			f.tracking(e.value)
		case "layout":
			f.layout(e)
		case "counters":
			if counted, ok := f.flag(e.value, "counters"); f.once(e, &f.policy.CountersPos) && ok {
				f.policy.Uncounted = !counted
			}
		case "input":
			f.section(e, &f.policy.Input, Input)
		case "output":
			f.section(e, &f.policy.Output, Output)
		case "forward":
			f.section(e, &f.policy.Forward, Forward)
		case "nat":
			f.blockList[e.value] = true
			for _, n := range f.list(e.value, "nat") {
				if line := f.natNode(n); line != nil {
					f.policy.NAT = append(f.policy.NAT, line)
				}
			}
		case "expect":
			f.expect(e)
		}
	}
	if includes != nil {
		for _, n := range f.list(includes, "include") {
			f.include(n)
		}
	}
}

func (f *file) version(n *yaml.Node) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Value == "1":
	case n.Kind == yaml.ScalarNode && isDigits(n.Value):
		f.fail(f.src.at(n), "write version: 1", "version %s of the language is not known to this sluice", quote(n.Value))
	default:
		f.fail(f.src.at(n), "write version: 1", "version must be 1, this is %s", kindName(n))
	}
}

// named reads a mapping of definitions with free names.
func (f *file) named(e entry, read func(entry)) {
	for _, d := range f.entries(e.value, e.name) {
		if p := checkName(d.name); p != nil {
			f.fail(f.src.at(d.key), p.hint, "%s", p.message)
			// Its uses would all be unknown, and are not worth a second error.
			if nameSyntax.MatchString(d.name) {
				continue
			}
		}
		read(d)
	}
}

// taken says whether the name of a zone or a set is one already, and reports it.
func (f *file) taken(e entry, what string) bool {
	if z := f.zones[e.name]; z != nil {
		return f.isAlready(e, what, "zone", z.Pos)
	}
	if s := f.sets[e.name]; s != nil {
		return f.isAlready(e, what, "set", s.Pos)
	}
	return false
}

func (f *file) isAlready(e entry, what, otherWhat string, other Pos) bool {
	f.fail(f.src.at(e.key), "", "%s %s is already a %s, see %s", what, quote(e.name), otherWhat, other)
	return true
}

func (f *file) zone(e entry) {
	z := &Zone{Pos: f.src.at(e.key), Name: e.name}
	if f.taken(e, "zone") {
		return
	}
	f.zones[e.name] = z
	f.policy.Zones = append(f.policy.Zones, z)
	before := len(f.errs)
	for _, k := range f.known(e.value, shapeOf("zone")) {
		switch k.name {
		case "interfaces":
			for _, n := range f.list(k.value, "interfaces") {
				if name, ok := f.text(n, "an interface"); ok && f.checked(n, checkInterface(name)) {
					z.Interfaces = append(z.Interfaces, Word{f.src.at(n), name})
				}
			}
		case "networks":
			z.Networks = f.addresses(k.value, "networks")
		}
	}
	if len(f.errs) == before && len(z.Interfaces)+len(z.Networks) == 0 {
		f.fail(f.src.at(e.key), "give it interfaces, networks, or both", "zone %s has neither interfaces nor networks", quote(e.name))
	}
}

// checked reports the problem of a scalar, if it has one.
func (f *file) checked(n *yaml.Node, p *problem) bool {
	if p != nil {
		f.fail(f.src.runeAt(n, 0), p.hint, "%s", p.message)
	}
	return p == nil
}

// addresses reads one or more literal addresses, prefixes and ranges.
func (f *file) addresses(n *yaml.Node, what string) []Range {
	var out []Range
	for _, c := range f.list(n, what) {
		s, ok := f.text(c, "an address")
		if !ok {
			continue
		}
		s = strings.TrimSpace(s)
		r, p := parseRange(s)
		if p != nil {
			if p.hint == "" && nameSyntax.MatchString(s) {
				p.hint = "for other sets write {union: [" + s + "]}"
			}
			f.checked(c, p)
			continue
		}
		f.canon[c] = r.String()
		out = append(out, Range{f.src.runeAt(c, 0), r})
	}
	return out
}

// namesOf reads names of sets.
func (f *file) namesOf(n *yaml.Node, what string) []Word {
	var out []Word
	for _, c := range f.list(n, what) {
		s, ok := f.text(c, "a name")
		if !ok {
			continue
		}
		if isLiteral(s) {
			f.fail(f.src.at(c), "put addresses into a set of their own and name that", "%s wants names of sets, this is %s", what, quote(s))
			continue
		}
		if f.checked(c, checkName(s)) {
			out = append(out, Word{f.src.runeAt(c, 0), s})
		}
	}
	return out
}

func (f *file) service(e entry) {
	if other := f.services[e.name]; other != nil {
		f.isAlready(e, "service", "service", other.service.Pos)
		return
	}
	d := &serviceDefinition{service: &Service{Pos: f.src.at(e.key), Name: e.name}, file: f}
	f.services[e.name] = d
	f.policy.Services = append(f.policy.Services, d.service)
	nodes := f.list(e.value, "service "+quote(e.name))
	if len(nodes) == 0 && (isNull(e.value) || e.value.Kind == yaml.SequenceNode) {
		f.fail(f.src.at(e.key), "write tcp/PORT", "service %s is empty", quote(e.name))
	}
	for _, n := range nodes {
		s, ok := f.text(n, "a service")
		if !ok {
			continue
		}
		m, p := parseServiceWord(s)
		ref := ServiceRef{Pos: f.src.runeAt(n, 0), Text: s}
		switch {
		case p != nil:
		case m != nil:
			ref.Text, ref.Matches = m.String(), []ServiceMatch{*m}
			f.canon[n] = ref.Text
		case s == "any":
			p = problemf("name services or protocols", "any is not part of a service")
		case isLiteral(s):
			p = problemf("", "%s is not a service", quote(s))
		default:
			p = checkName(s)
		}
		if f.checked(n, p) {
			d.words = append(d.words, ref)
		}
	}
	f.after(func() { f.expand(d) })
}

// bans reads ban and never-ban.
func (f *file) bans(e entry) []Who {
	var out []Who
	for _, n := range f.list(e.value, e.name) {
		s, ok := f.text(n, e.name)
		if !ok {
			continue
		}
		if strings.HasPrefix(s, "not ") {
			f.fail(f.src.at(n), "define a set with except", "not cannot be used in %s", e.name)
			continue
		}
		pos := f.src.runeAt(n, 0)
		item, p := whoItem(token{wordToken, strings.TrimSpace(s), pos})
		if !f.checked(n, p) {
			continue
		}
		w := Who{Pos: pos, Items: []WhoItem{item}}
		if item.Name == "" {
			f.canon[n] = item.Literal.String()
		}
		f.checkWho(&w, e.name, true)
		out = append(out, w)
	}
	return out
}

func checkURL(s string) *problem {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return problemf("", "%s is not a URL", quote(s))
	case u.Scheme != "http" && u.Scheme != "https":
		return problemf("write https://…", "URL %s is neither http nor https", quote(s))
	case u.Host == "":
		return problemf("", "URL %s has no host", quote(s))
	case u.User != nil:
		return problemf("policies are read by many; fetch such a list with a tool of your own and name the file", "URL has a password in it")
	}
	return nil
}

// Zone returns the zone of a name, or nil.
func (p *Policy) Zone(name string) *Zone {
	for _, z := range p.Zones {
		if z.Name == name {
			return z
		}
	}
	return nil
}

// Set returns the set of a name, or nil.
func (p *Policy) Set(name string) *Set {
	for _, s := range p.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}
