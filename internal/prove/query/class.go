package query

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// class is packets in words, before their addresses have names.
type class struct {
	way      reach.Way
	words    []string // services, each as a rule says it
	families [2]bool  // IPv4, IPv6
	// Addresses of the families that the class has; nil where they are all.
	from, to *addrset.Set
	in, out  string   // what is said of the interfaces; "" is any
	more     []string // what else holds
	region   reach.Region
	witness  packet.Packet
	// Here is what the class says of whether the destination is an address of the
	// interface that the packet comes in by.
	here packet.Answer
	// Limited says that a limit or a set that the kernel fills is part of it.
	limited bool
}

// classes makes as few classes of a region as words can tell.
func (w *wording) classes(way reach.Way, r reach.Region, among reach.Among) []class {
	var list []class
	for _, c := range w.universe.ClassesAmong(way, r, among) {
		list = append(list, w.class(c))
	}
	list = merge(list, func(c *class) string { return c.key(true, false) }, w.joinFamilies)
	list = merge(list, func(c *class) string { return c.key(false, true) }, w.joinServices)
	return list
}

// merge joins the classes of one key, where join agrees.
func merge(list []class, key func(*class) string, join func(a, b *class) bool) []class {
	var out []class
	at := map[string][]int{}
next:
	for i := range list {
		k := key(&list[i])
		for _, j := range at[k] {
			if join(&out[j], &list[i]) {
				continue next
			}
		}
		at[k] = append(at[k], len(out))
		out = append(out, list[i])
	}
	return out
}

// key is all that a class says but its families and addresses, or but its
// services.
func (c *class) key(services, sides bool) string {
	parts := slices.Concat([]string{string(c.way), c.in, c.out}, c.more)
	if services {
		parts = append(parts, "services", strings.Join(c.words, "\n"))
	}
	if sides {
		parts = append(parts, "sides", family(c.families), setKey(c.from), setKey(c.to))
	}
	return strings.Join(parts, "\x00")
}

func setKey(s *addrset.Set) string {
	if s == nil {
		return "any"
	}
	return string(must(s.MarshalBinary()))
}

// must is for what never fails.
func must(data []byte, _ error) []byte { return data }

// joinFamilies makes one of what is said of IPv4 and of IPv6: the addresses of a
// packet are of one family.
func (w *wording) joinFamilies(a, b *class) bool {
	if a.families[0] && b.families[0] || a.families[1] && b.families[1] {
		return false
	}
	either := func(x, y *addrset.Set, source bool) *addrset.Set {
		if x == nil && y == nil {
			return nil
		}
		all := w.spoken(a.way, source)
		part := func(x *addrset.Set, families [2]bool) addrset.Set {
			if x == nil {
				return all.Intersect(whole(families)).Difference(w.ownForwarded(a.way, source))
			}
			return *x
		}
		both := part(x, a.families).Union(part(y, b.families))
		if w.anything(both, all, a.way, source) {
			return nil
		}
		return &both
	}
	a.from, a.to = either(a.from, b.from, true), either(a.to, b.to, false)
	a.families = [2]bool{true, true}
	w.join(a, b)
	return true
}

// joinServices makes one of classes that differ in the service alone.
func (w *wording) joinServices(a, b *class) bool {
	for _, word := range b.words {
		if !slices.Contains(a.words, word) {
			a.words = append(a.words, word)
		}
	}
	a.words = simplify(a.words)
	w.join(a, b)
	return true
}

func (w *wording) join(a, b *class) {
	a.region = w.universe.Or(a.region, b.region)
	if a.witness.Family() == 6 && b.witness.Family() == 4 {
		a.witness = b.witness
	}
}

func whole(families [2]bool) addrset.Set {
	switch families {
	case [2]bool{true, false}:
		return addrset.All().Only4()
	case [2]bool{false, true}:
		return addrset.All().Only6()
	}
	return addrset.All()
}

// family is the word of a rule for the families; "" for both.
func family(families [2]bool) string {
	switch families {
	case [2]bool{true, false}:
		return "ipv4"
	case [2]bool{false, true}:
		return "ipv6"
	}
	return ""
}

// class says what the fields of a class of packets mean.
func (w *wording) class(c reach.Class) class {
	out := class{way: c.Way, region: c.Region, witness: c.Witness, families: [2]bool{true, true}}
	out.words = w.services(c, &out.families)
	from, to := w.side(c, program.Source), w.side(c, program.Destination)
	for i := range out.families {
		for _, s := range []*addrset.Set{from, to} {
			out.families[i] = out.families[i] && (s == nil || i == 0 && s.Has4() || i == 1 && s.Has6())
		}
	}
	out.from, out.to = w.within(from, out.families, c.Way, true), w.within(to, out.families, c.Way, false)
	for _, v := range c.Fields {
		w.field(&out, c.Way, v)
	}
	return out
}

// spoken are the addresses that packets spoken of may have on one side.
func (w *wording) spoken(way reach.Way, source bool) addrset.Set {
	return impossible(w.policies[0], way, source).Complement()
}

// side is the addresses of one end; nil where they are all that there are.
func (w *wording) side(c reach.Class, f program.Field) *addrset.Set {
	v, told := c.Values(f)
	if !told {
		return nil
	}
	s := v.Addresses.Intersect(w.spoken(c.Way, f == program.Source))
	return &s
}

// within leaves the families that the class has; nil where nothing is left out.
func (w *wording) within(s *addrset.Set, families [2]bool, way reach.Way, source bool) *addrset.Set {
	if s == nil {
		return nil
	}
	all := w.spoken(way, source).Intersect(whole(families))
	part := s.Intersect(all)
	if w.anything(part, all, way, source) {
		return nil
	}
	return &part
}

// anything says whether a set is all that a side can be.
func (w *wording) anything(s, all addrset.Set, way reach.Way, source bool) bool {
	return s.Union(w.ownForwarded(way, source).Intersect(all)).Equal(all)
}

// ownForwarded are addresses of this host as the destination of what is forwarded:
// where NAT does not lead such packets elsewhere there are none, as everybody knows.
func (w *wording) ownForwarded(way reach.Way, source bool) addrset.Set {
	if way != reach.Through || source || !w.policies[0].Facts.Known {
		return addrset.Set{}
	}
	return ownAddresses(w.policies[0])
}
