package policy

import (
	"sluice/internal/base/addrset"
	"sluice/internal/language/source"
)

// group reads whose addresses a set of a fleet holds.
func (f *file) group(s *Set, k source.Entry) {
	sel := f.selector(k)
	if sel == nil {
		return
	}
	w := &Word{f.RuneAt(k.Value, 0), sel.String()}
	if k.Name == "hosts" {
		s.Hosts = w
	} else {
		s.Guests = w
	}
}

// groupKeys checks what is next to hosts or guests, and puts the members into the set.
func (f *file) groupKeys(s *Set, by map[string]source.Entry) {
	k, is := by["hosts"]
	if !is {
		k, is = by["guests"]
	}
	within, bounded := by["within"]
	switch {
	case f.lenient:
	case !is && bounded && !s.Live:
		f.fail(f.At(within.Key), "", "within without hosts, guests or live: true")
	case !is: // see isLive
	case f.policy.Fleet == nil || f.policy.Fleet.File != f.Name:
		f.fail(f.At(k.Key), "define it in the file of the fleet, since its members are the same on every host", "a set by %s cannot be defined here", k.Name)
	case len(s.Within) == 0:
		f.fail(f.At(k.Key), "write within: [203.0.113.0/24]; no member can be outside it", "set %s needs within, which bounds the addresses of its members", source.Quote(s.Name))
	case f.view != nil:
		f.members(s)
	}
}

// members puts into a set what the view says is in it.
func (f *file) members(s *Set) {
	all := setOf(s.Within)
	for _, m := range f.view.Members[s.Name] {
		if m.Pos.Line == 0 {
			m.Pos = s.Pos
		}
		if !all.ContainsSet(addrset.Of(m.Range)) {
			f.fail(m.Pos, "", "%s is not within set %s, see %s", m.Range, source.Quote(s.Name), s.Within[0].Pos)
			continue
		}
		s.Elements = append(s.Elements, m)
	}
}
