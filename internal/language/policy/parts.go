package policy

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
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
	if len(doc.Content) == 0 || source.IsNull(doc.Content[0]) {
		f.versions++ // one error is enough
		if first {
			f.fail(f.Pos(1, 1), "begin the policy with version: 1", "file is empty")
		}
		return
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		f.fail(f.At(root), "begin the policy with version: 1", "the policy must be a mapping, not %s", source.KindName(root))
		f.unread = true
		return
	}
	if !f.guard && f.ofFleet(root) {
		return
	}
	shape := grammar.Of("policy")
	if f.guard {
		shape = grammar.Of("guard")
	}
	entries := f.Known(root, shape)
	version, expects := false, false
	for _, e := range entries {
		version, expects = version || e.Name == "version", expects || e.Name == "expect"
	}
	if f.guard && !expects && len(f.errs) == 0 {
		f.fail(f.At(root), "write what must hold, such as - deny ssh from not 203.0.113.0/24, or remove the file", "expect is missing")
	}
	if !version && first {
		f.fail(f.At(root), "write version: 1 as the first line", "version is missing")
	}
	f.versions++
	var includes *yaml.Node
	for _, e := range entries {
		if f.scope != nil && !f.mayStand(e) || !f.mayStandInFleet(e) {
			continue
		}
		switch e.Name {
		case "version":
			f.Version(e.Value)
		case "hosts":
			f.selector(e)
		case "only":
			if by := f.onlyGuests(e.Value); by != nil && f.policy.Fleet != nil {
				f.scope = append([]Scope{}, f.policy.Fleet.ofGuests(by)...)
			}
		case "requires":
			for _, w := range f.namesOf(e.Value, e.Name) {
				f.required[w.Text] = true
				f.after(func() { f.requires(w) })
			}
		case "guests":
			f.guests(e)
		case "drift":
			f.drift(e)
		case "include":
			includes = e.Value
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
		case "exceptions":
			f.exceptions(e, &f.policy.Exceptions)
		case "tracking":
			f.tracking(e.Value)
		case "layout":
			f.layout(e)
		case "counters":
			if counted, ok := f.Flag(e.Value, "counters"); f.Once(e, &f.policy.CountersPos) && ok {
				f.policy.Uncounted = !counted
			}
		case "log":
			f.logTo(e)
		case "input":
			f.section(e, &f.policy.Input, Input)
		case "output":
			f.section(e, &f.policy.Output, Output)
		case "forward":
			f.section(e, &f.policy.Forward, Forward)
		case "nat":
			f.blockList[e.Value] = true
			for _, n := range f.List(e.Value, "nat") {
				if line := f.natNode(n); line != nil {
					f.policy.NAT = append(f.policy.NAT, line)
				}
			}
		case "expect":
			f.expect(e)
		}
	}
	if includes != nil {
		for _, n := range f.List(includes, "include") {
			f.include(n)
		}
	}
}

// named reads a mapping of definitions with free names.
func (f *file) named(e source.Entry, read func(source.Entry)) {
	for _, d := range f.Entries(e.Value, e.Name) {
		if f.isFleet && d.Name == guestsName {
			f.fail(f.At(d.Key), "use another name", "guests is a reserved name in a fleet")
			continue
		}
		if p := checkName(d.Name); p != nil {
			f.fail(f.At(d.Key), p.hint, "%s", p.message)
			// Its uses would all be unknown, and are not worth a second error.
			if nameSyntax().MatchString(d.Name) {
				continue
			}
		}
		read(d)
	}
}

// taken says whether the name of a zone or a set is one already, and reports it.
func (f *file) taken(e source.Entry, what string) bool {
	if z := f.zones[e.Name]; z != nil {
		return f.isAlready(e, what, "zone", z.Pos)
	}
	if s := f.sets[e.Name]; s != nil {
		return f.isAlready(e, what, "set", s.Pos)
	}
	return false
}

func (f *file) isAlready(e source.Entry, what, otherWhat string, other Pos) bool {
	hint := ""
	if other.File != f.Name {
		hint = f.bothHint()
	}
	f.fail(f.At(e.Key), hint, "%s %s is already a %s, see %s", what, source.Quote(e.Name), otherWhat, other)
	return true
}

func (f *file) zone(e source.Entry) {
	z := &Zone{Pos: f.At(e.Key), Name: e.Name}
	if f.taken(e, "zone") {
		return
	}
	f.zones[e.Name] = z
	f.policy.Zones = append(f.policy.Zones, z)
	before := len(f.errs)
	for _, k := range f.Known(e.Value, grammar.Of("zone")) {
		switch k.Name {
		case "interfaces":
			z.Interfaces = f.interfaces(k.Value)
		case "networks":
			z.Networks = f.addresses(k.Value, "networks")
		}
	}
	if len(f.errs) == before && len(z.Interfaces)+len(z.Networks) == 0 {
		f.fail(f.At(e.Key), "give it interfaces, networks, or both", "zone %s has neither interfaces nor networks", source.Quote(e.Name))
	}
}

// interfaces reads one or more interfaces; none is no nil.
func (f *file) interfaces(of *yaml.Node) []Word {
	all := []Word{}
	for _, n := range f.List(of, "interfaces") {
		if name, ok := f.Text(n, "an interface"); ok && f.checked(n, checkInterface(name)) {
			all = append(all, Word{f.At(n), name})
		}
	}
	return all
}

// checked reports the problem of a scalar, if it has one.
func (f *file) checked(n *yaml.Node, p *problem) bool {
	if p != nil {
		f.fail(f.RuneAt(n, 0), p.hint, "%s", p.message)
	}
	return p == nil
}

// addresses reads one or more literal addresses, prefixes and ranges.
func (f *file) addresses(n *yaml.Node, what string) []Range {
	var out []Range
	for _, c := range f.List(n, what) {
		s, ok := f.Text(c, "an address")
		if !ok {
			continue
		}
		s = strings.TrimSpace(s)
		r, p := parseRange(s)
		if p != nil {
			switch {
			case p.hint != "":
			case nameSyntax().MatchString(s):
				p.hint = "for other sets write {union: [" + s + "]}"
			case strings.Trim(s, "0123456789./-") != "" && strings.Contains(s, "."):
				p.hint = "host names are not resolved; write addresses"
			}
			f.checked(c, p)
			continue
		}
		f.canon[c] = r.String()
		out = append(out, Range{f.RuneAt(c, 0), r})
	}
	return out
}

// namesOf reads names of sets.
func (f *file) namesOf(n *yaml.Node, what string) []Word {
	var out []Word
	for _, c := range f.List(n, what) {
		s, ok := f.Text(c, "a name")
		if !ok {
			continue
		}
		if isLiteral(s) {
			f.fail(f.At(c), "put addresses into a separate set and name it", "%s must be names of sets, not %s", what, source.Quote(s))
			continue
		}
		if f.checked(c, checkName(s)) {
			out = append(out, Word{f.RuneAt(c, 0), s})
		}
	}
	return out
}

func (f *file) service(e source.Entry) {
	if other := f.services[e.Name]; other != nil {
		f.isAlready(e, "service", "service", other.service.Pos)
		return
	}
	d := &serviceDefinition{service: &Service{Pos: f.At(e.Key), Name: e.Name}, file: f}
	f.services[e.Name] = d
	f.policy.Services = append(f.policy.Services, d.service)
	nodes := f.List(e.Value, "service "+source.Quote(e.Name))
	if len(nodes) == 0 && (source.IsNull(e.Value) || e.Value.Kind == yaml.SequenceNode) {
		f.fail(f.At(e.Key), "write tcp/PORT", "service %s is empty", source.Quote(e.Name))
	}
	for _, n := range nodes {
		s, ok := f.Text(n, "a service")
		if !ok {
			continue
		}
		m, p := parseServiceWord(s)
		ref := ServiceRef{Pos: f.RuneAt(n, 0), Text: s}
		switch {
		case p != nil:
		case m != nil:
			ref.Text, ref.Matches = m.String(), []ServiceMatch{*m}
			f.canon[n] = ref.Text
		case s == "any":
			p = problemf("name services or protocols", "any cannot be part of a service")
		case isLiteral(s):
			p = problemf("", "%s is not a service", source.Quote(s))
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
func (f *file) bans(e source.Entry) []Who {
	var out []Who
	for _, n := range f.List(e.Value, e.Name) {
		s, ok := f.Text(n, e.Name)
		if !ok {
			continue
		}
		if strings.HasPrefix(s, "not ") {
			f.fail(f.At(n), "define a set with except", "not cannot be used in %s", e.Name)
			continue
		}
		pos := f.RuneAt(n, 0)
		item, p := whoItem(token{wordToken, strings.TrimSpace(s), pos})
		if !f.checked(n, p) {
			continue
		}
		w := Who{Pos: pos, Items: []WhoItem{item}}
		if item.Name == "" {
			f.canon[n] = item.Literal.String()
		}
		f.checkWho(&w, e.Name, true)
		f.after(func() {
			if e.Name == "ban" {
				f.mayFill(item.Name, item.Pos, e.Name)
			} else {
				f.mayLive(item.Name, item.Pos, e.Name)
			}
		})
		out = append(out, w)
	}
	return out
}

func checkURL(s string) *problem {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return problemf("", "%s is not a URL", source.Quote(s))
	case u.Scheme != "http" && u.Scheme != "https":
		return problemf("write https://…", "URL %s is neither http nor https", source.Quote(s))
	case u.Host == "":
		return problemf("", "URL %s has no host", source.Quote(s))
	case u.User != nil:
		return problemf("many can read a policy; download such a list with another tool and name the file", "the URL contains a password")
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
