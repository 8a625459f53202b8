package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/selector"
	"sluice/internal/language/source"
)

// partKeys are those of a policy that only a part of a fleet may have.
var partKeys = []string{"hosts", "requires", "guests", "only", "drift"}

// ReadFleet reads the file of a fleet and the text of each of its parts, for no one host.
// The policy has the fleet's sets and Fleet, and nothing of the parts but their texts.
func (r Reading) ReadFleet(path string) (*Policy, error) {
	l, data, err := r.open(path)
	if err != nil {
		return nil, err
	}
	l.every = true
	return l.run(path, data)
}

// mayStandInFleet says whether a key may be in a file, which is a part of a fleet or none.
func (f *file) mayStandInFleet(e source.Entry) bool {
	switch {
	case f.isFleet && e.Name == "include":
		f.fail(f.At(e.Key), "list the file under parts of the fleet; it can select its hosts", "include cannot be used in a part of a fleet")
	case !f.isFleet && f.follow && slices.Contains(partKeys, e.Name):
		f.unread = true // the fleet has the rest
		f.ofAll(e.Key, "%s is only for parts of a fleet, but this is the policy of one host", e.Name)
	default:
		return true
	}
	return false
}

// ofAll reports a file that can be read for a host of a fleet alone.
func (f *file) ofAll(n *yaml.Node, format string, args ...any) {
	e := f.policy.Errorf(f.At(n), "", format, args...)
	e.Remedy = GiveLabels
	f.errs = append(f.errs, e)
}

// ofFleet reads a file that is not a policy but the view of a host or the file of a fleet;
// false where it is neither.
func (f *file) ofFleet(root *yaml.Node) bool {
	key, _ := has(root, "fleet")
	if len(f.stack) != 1 || key == nil {
		return false
	}
	f.versions++
	if version, _ := has(root, "version"); version == nil && !f.lenient {
		f.fail(f.At(root), "write version: 1 as the first line", "version is missing")
	}
	host, _ := has(root, "host")
	switch isView := host != nil; {
	case isView && (f.view != nil || f.every):
		f.fail(f.At(key), "name the file of the fleet", "%s is the file of one host in a fleet", f.Name)
	case isView:
		f.hostView(root)
	case f.follow && f.view == nil && !f.every:
		f.ofAll(key, "%s describes a whole fleet, but a policy is for one host", f.Name)
	default:
		f.fleetFile(root)
	}
	return true
}

// fleetFile reads what is one for all hosts, and the parts.
func (f *file) fleetFile(root *yaml.Node) {
	f.isFleet = true
	fleet := &Fleet{Pos: f.At(root), File: f.Name, RollOut: defaultRollOut()}
	f.policy.Fleet = fleet
	if v := f.view; v != nil {
		f.checkView(v)
		fleet.Host, fleet.Labels, fleet.Guests = v.Host, v.Labels, slices.Clone(v.Guests)
		f.checkGuests(fleet.Guests)
	}
	var parts *yaml.Node
	for _, e := range f.Known(root, grammar.Of("fleet")) {
		switch e.Name {
		case "version":
			f.Version(e.Value)
		case "fleet":
			fleet.Pos = f.At(e.Value)
			if name, ok := f.Text(e.Value, "fleet"); ok && f.checked(e.Value, checkFleet(name)) {
				fleet.Name = name
			}
		case "parts":
			parts = e.Value
		case "sets":
			f.named(e, f.set)
		case "exceptions":
			f.exceptions(e, &fleet.Exceptions)
		case "bans":
			fleet.Bans = f.banBounds(e)
		case "guests":
			for _, k := range f.Known(e.Value, grammar.Of("fleet-guests")) {
				switch k.Name {
				case "public":
					fleet.Public = f.addresses(k.Value, k.Name)
				case "interfaces":
					fleet.Interfaces = f.interfaces(k.Value)
				}
			}
		case "share-bans":
			fleet.ShareBans = f.shareBans(e)
		case "roll-out":
			f.rollOut(e, &fleet.RollOut)
		case "access":
			fleet.Access = f.access(e)
		case "approve":
			fleet.Approve = f.approve(e)
		case "signing":
			text, _ := f.Text(e.Value, "signing")
			if fleet.OnlineSigning = text == "controller"; text != "" && !fleet.OnlineSigning && text != "offline" {
				f.fail(f.At(e.Value), "write offline or controller", "signing must be offline or controller, not %s", source.Quote(text))
			}
		}
	}
	f.boundGuests(fleet)
	f.boundShared(fleet)
	if parts == nil {
		if !f.lenient {
			f.fail(fleet.Pos, "write parts: [parts/*.yaml]", "the fleet has no parts")
		}
		return
	}
	if !f.follow {
		f.unread = true
		f.List(parts, "parts")
		return
	}
	before := len(f.errs)
	for _, n := range f.List(parts, "parts") {
		pattern, ok := f.Text(n, "parts")
		if !ok {
			continue
		}
		for _, name := range f.included(n, pattern) {
			f.part(n, name)
		}
	}
	f.ofNamespace()
	f.rulesOf(fleet.Guests)
	// The source of a guest with an address of its own is that, whatever else is rewritten.
	f.policy.NAT = slices.Concat(f.maps, f.policy.NAT)
	if !f.every && len(f.errs) == before && !slices.ContainsFunc(fleet.Parts, func(p Part) bool { return p.Matches }) {
		f.fail(f.At(parts), "add a part without hosts, which applies to every host", "no part applies to %s, which would be unprotected", fleet)
	}
}

// part reads a part into the policy, where it is of this host.
func (f *file) part(n *yaml.Node, name string) {
	if dir, err := filepath.Rel(f.beside(), filepath.Dir(name)); err == nil && (dir == RulesFolder || dir == NetnsFolder) {
		return
	}
	target, err := f.realPath(name)
	if f.here != "" && errors.Is(err, fs.ErrNotExist) {
		return // a host has its own parts alone
	}
	if err != nil {
		f.unread = true
		f.fail(f.At(n), "", "cannot read a part: %v", source.ReadError(name, err))
		return
	}
	if other, done := f.real[target]; done {
		if slices.Contains(f.stack, other) && !strings.ContainsAny(n.Value, `*?[\`) {
			f.fail(f.At(n), "", "%s is not a part", other)
		}
		return
	}
	f.real[target] = name
	data, err := f.readText(name)
	if err != nil {
		f.unread = true
		f.fail(f.At(n), "", "cannot read a part: %v", err)
		return
	}
	// By itself first: whose it is has to be known before it can be of the policy.
	own := newLoader(name)
	own.unread, own.isFleet, own.files = true, true, []string{name}
	of := own.file(name, data, append(slices.Clone(f.stack), name))
	doc := of.parse(data)
	if view, _ := has(rootOf(doc), "host"); view != nil && f.here != "" {
		return // the view of the host, read for a network namespace of it
	}
	p := Part{Pos: of.Pos(1, 1), File: name}
	if key, value := has(rootOf(doc), "hosts"); key != nil {
		p.Pos, p.Selector = of.At(key), of.selector(source.Entry{Key: key, Name: key.Value, Value: value})
	}
	fleet := f.policy.Fleet
	if f.isOnly(doc, data) {
		own.scope = []Scope{}
		if _, value := has(rootOf(doc), "only"); value != nil {
			p.Only = of.onlyGuests(value)
		}
		if !f.every && fleet.selects(p.Selector) && (p.Only == nil || fleet.ofGuests(p.Only) != nil) {
			p.Matches = p.Only != nil
			f.files, fleet.Parts = append(f.files, name), append(fleet.Parts, p)
			f.scoped = append(f.scoped, scopedFile{p.Pos, name, nil, nil})
			return
		}
	}
	p.Matches = len(own.errs) == 0 && !f.every && own.scope == nil && fleet.selects(p.Selector)
	f.files = append(f.files, name)
	fleet.Parts = append(fleet.Parts, p)
	if p.Matches {
		f.policy.Includes = append(f.policy.Includes, name)
		f.policy.OldWords = append(f.policy.OldWords, own.policy.OldWords...)
		f.file(name, data, of.stack).top(doc)
		return
	}
	if doc != nil {
		of.top(doc)
		_ = own.finish()
	}
	if f.every {
		f.policy.OldWords = append(f.policy.OldWords, own.policy.OldWords...)
		at := &fleet.Parts[len(fleet.Parts)-1]
		at.Never = own.policy.neverBanned(f.policy)
		at.Live = slices.DeleteFunc(slices.Clone(own.policy.Sets), func(s *Set) bool { return !s.Live })
	}
	switch {
	case own.scope == nil || !f.tolerant:
		f.errs = append(f.errs, own.errs...)
		f.unread = f.unread || len(own.errs) > 0
	case f.every && len(own.errs) > 0:
		f.policy.Broken = append(f.policy.Broken, Broken{File: name, Errors: own.errs.Sorted(own.files)})
	}
	f.others = append(f.others, own)
	if f.every {
		f.policy.lines[name], f.policy.texts[name] = of.Lines, data
	}
}

// selector reads which hosts or guests are meant; nil after an error.
func (f *file) selector(e source.Entry) *selector.Selector {
	text, ok := f.Text(e.Value, e.Name)
	if !ok {
		return nil
	}
	s, err := selector.Parse(text)
	if err != nil {
		f.badSelector(e.Value, e.Name, text, 0, err)
		return nil
	}
	f.canon[e.Value] = s.String()
	return s
}

// badSelector reports what is wrong with a selector, which begins in a text at an offset.
func (f *file) badSelector(n *yaml.Node, what, text string, offset int, err error) {
	pos := f.RuneAt(n, 0)
	if at := (*selector.Error)(nil); errors.As(err, &at) {
		pos = f.RuneAt(n, utf8.RuneCountInString(text[:min(offset+at.Offset, len(text))]))
	}
	f.fail(pos, "write it as in role=web and env=prod", "%s: %v", what, err)
}

// hostView reads what a host is, and then its fleet.
func (f *file) hostView(root *yaml.Node) {
	v := &View{Members: map[string][]Range{}}
	var fleet *yaml.Node
	before := len(f.errs)
	for _, e := range f.Known(root, grammar.Of("host")) {
		switch e.Name {
		case "version":
			f.Version(e.Value)
		case "fleet":
			fleet = e.Value
		case "host":
			if name, ok := f.Text(e.Value, "host"); ok && f.checked(e.Value, checkHost(name)) {
				v.Host = name
			}
		case "labels":
			v.Labels = f.labels(e.Value)
		case "members":
			for _, m := range f.Entries(e.Value, "members") {
				v.Members[m.Name] = f.addresses(m.Value, "members of "+source.Quote(m.Name))
			}
		case "guests":
			v.Guests = f.guestsOf(e.Value)
		case "netns":
			if name, ok := f.Text(e.Value, "netns"); ok {
				v.Netns = name
			}
		case "lists":
			if text, ok := f.Text(e.Value, "lists"); ok {
				v.Lists = &Word{f.At(e.Value), text}
			}
		}
	}
	name, ok := f.Text(fleet, "fleet")
	if f.lenient {
		return
	}
	if !f.follow || !ok || len(f.errs) > before {
		f.unread = true
		return
	}
	f.view, f.here = v, f.Name
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(f.Name), name)
	}
	target, err := f.realPath(name)
	var data []byte
	if err == nil {
		data, err = f.readText(name)
	} else {
		err = source.ReadError(name, err)
	}
	if err != nil {
		f.unread = true
		f.fail(f.At(fleet), "", "cannot read the fleet: %v", err)
		return
	}
	f.real[target] = name
	f.policy.Includes, f.files = append(f.policy.Includes, name), append(f.files, name)
	of := f.file(name, data, append(slices.Clone(f.stack), name))
	doc := of.parse(data)
	if doc == nil {
		return
	}
	if len(doc.Content) > 0 {
		key, _ := has(doc.Content[0], "fleet")
		host, _ := has(doc.Content[0], "host")
		if key != nil && host == nil {
			of.fleetFile(doc.Content[0])
			return
		}
	}
	f.unread = true
	f.fail(f.At(fleet), "", "%s is not the file of a fleet", name)
}

// labels reads the labels of a host or of a guest.
func (f *file) labels(n *yaml.Node) map[string]string {
	out := map[string]string{}
	for _, e := range f.Entries(n, "labels") {
		value, ok := f.Text(e.Value, "a label")
		if !ok {
			continue
		}
		if err := selector.CheckLabel(e.Name, value); err != nil {
			f.fail(f.At(e.Key), "", "%v", err)
			continue
		}
		out[e.Name] = value
	}
	return out
}

// checkView is for a view that is of no file, in which it would have been checked.
func (f *file) checkView(v *View) {
	if f.here != "" {
		return
	}
	if p := checkHost(cmp.Or(v.Host, "a")); p != nil {
		f.fail(f.Pos(1, 1), p.hint, "%s", p.message)
	}
	for name, value := range v.Labels {
		if err := selector.CheckLabel(name, value); err != nil {
			f.fail(f.Pos(1, 1), "", "%v", err)
		}
	}
}

// Compiled when they are asked, as most policies are of no fleet: they take long.
var (
	fleetSyntax = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(fleetPattern) })
	hostSyntax  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(hostPattern) })
)

func checkFleet(s string) *problem {
	if !fleetSyntax().MatchString(s) {
		return problemf("write lowercase letters, digits, dots and hyphens, at most 253", "%s is not the name of a fleet", source.Quote(s))
	}
	return nil
}

func checkHost(s string) *problem {
	if !hostSyntax().MatchString(s) {
		return problemf("write letters, digits, dots, hyphens and _, at most 253", "%s is not the name of a host", source.Quote(s))
	}
	return nil
}

// Once is that of the file, and says for whom what is set twice is in two parts of a fleet.
func (f *file) Once(e source.Entry, at *Pos) bool {
	if at.Line != 0 && at.File != f.Name && f.isFleet {
		f.fail(f.At(e.Key), f.bothHint(), "%s is already set, see %s", e.Name, *at)
		return false
	}
	return f.File.Once(e, at)
}

// bothHint is what to do about two parts that say one thing; "" where there are none.
func (l *loader) bothHint() string {
	if l.policy.Fleet == nil {
		return ""
	}
	return fmt.Sprintf("both apply to %s: set it in one of them, or exclude the host by the hosts of one", l.policy.Fleet)
}

// requires checks that another part defines a name.
func (f *file) requires(w Word) {
	defined := f.defined(w.Text)
	switch {
	case defined.File == f.Name:
		f.fail(w.Pos, "remove it", "%s is defined in this part, see %s", source.Quote(w.Text), defined)
	case defined.File == "" && !f.unread:
		f.fail(w.Pos, f.elsewhere(w.Text), "no part that applies to %s defines %s", f.policy.Fleet, source.Quote(w.Text))
	}
}

// defined is where a name is defined; File is "" where it is not.
func (l *loader) defined(name string) Pos {
	if s := l.sets[name]; s != nil {
		return s.Pos
	}
	if z := l.zones[name]; z != nil {
		return z.Pos
	}
	if d := l.services[name]; d != nil {
		return d.service.Pos
	}
	return Pos{}
}

// elsewhere is where a name is defined that this host has not.
func (l *loader) elsewhere(name string) string {
	for _, own := range l.others {
		if pos := own.defined(name); pos.File != "" {
			return fmt.Sprintf("%s defines it, but does not apply to %s", pos, l.policy.Fleet)
		}
	}
	return ""
}
