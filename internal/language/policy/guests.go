package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"

	"sluice/internal/base/addrset"
	"sluice/internal/base/selector"
	"sluice/internal/base/sorting"
	"sluice/internal/language/source"
)

// guestsName is the set of the host's own guests, which every policy of a fleet has.
const guestsName = "guests"

// Held is an interface from which no other source may come: a guest is there. Sources
// that are of a link alone, and that of who has no address yet, come from any: see
// [linkSources].
type Held struct {
	Pos       Pos // of what says so
	Guest     string
	Interface Word
	Addresses []Range
	Text      string // what says so
}

// linkSources are what a host sends from before it has an address, and to its neighbours
// alone: no router passes them on (RFC 4291 2.5.2 and 2.5.6, RFC 1122 3.2.1.3).
var linkSources = []string{"0.0.0.0/32", "::/128", "fe80::/10"}

// guestsOf reads the guests of a host.
func (f *file) guestsOf(n *yaml.Node) (out []Guest) {
	for _, e := range f.Entries(n, "guests") {
		g := Guest{Pos: f.At(e.Key), Name: e.Name}
		if p := checkHost(e.Name); p != nil {
			f.fail(g.Pos, "write letters, digits, dots, hyphens and _, at most 253", "%s is not the name of a guest", source.Quote(e.Name))
		}
		for _, k := range f.Known(e.Value, grammar.Of("guest")) {
			switch k.Name {
			case "interface":
				if name, ok := f.Text(k.Value, k.Name); ok {
					g.Interface = Word{f.At(k.Value), name}
				}
			case "netns":
				if name, ok := f.Text(k.Value, k.Name); ok {
					g.Netns = Word{f.At(k.Value), name}
				}
			case "addresses":
				g.Addresses = f.addresses(k.Value, k.Name)
			case "public":
				g.Public = f.addresses(k.Value, k.Name)
			case "labels":
				g.Labels = f.labels(k.Value)
			case "rules":
				if name, ok := f.Text(k.Value, k.Name); ok {
					g.Rules = &Word{f.RuneAt(k.Value, 0), name}
				}
			}
		}
		out = append(out, g)
	}
	return out
}

// checkGuests checks the guests of a view, of a file or not, and makes the set of them.
func (f *file) checkGuests(guests []Guest) {
	own := &Set{Pos: f.policy.Fleet.Pos, Name: guestsName, Own: true}
	interfaces := map[[2]string]*Guest{}
	var all []claim
	for i := range guests {
		g := &guests[i]
		if g.Pos.Line == 0 {
			g.Pos = own.Pos
		}
		fail := func(at Pos, hint, format string, args ...any) {
			if at.Line == 0 {
				at = g.Pos
			}
			f.fail(at, hint, "guest %s: %s", g.Name, fmt.Sprintf(format, args...))
		}
		p, at := checkInterface(g.Interface.Text), [2]string{g.Netns.Text, g.Interface.Text}
		switch other := interfaces[at]; {
		case g.Interface.Text == "":
			fail(g.Pos, "write interface: NAME", "it has no interface")
		case p != nil:
			fail(g.Interface.Pos, p.hint, "%s", p.message)
		case g.Interface.Text == "default-route" || g.Interface.Text[len(g.Interface.Text)-1] == '*':
			fail(g.Interface.Pos, "name one interface", "%s may be more than one interface", g.Interface.Text)
		case other != nil:
			fail(g.Interface.Pos, "give each guest an interface", "%s is also the interface of guest %s", g.Interface.Text, other.Name)
		case g.Netns.Text != "" && checkHost(g.Netns.Text) != nil:
			fail(g.Netns.Pos, "write letters, digits, dots, hyphens and _", "%s is not the name of a network namespace", source.Quote(g.Netns.Text))
		case f.view.Netns != "" && g.Netns.Text != f.view.Netns:
			fail(g.Pos, "write netns: "+f.view.Netns+", or move it to another file", "it is not in network namespace %s, and this file is for that one", f.view.Netns)
		case len(g.Addresses) == 0:
			fail(g.Pos, "write addresses: [10.30.0.5]", "it has no address")
		}
		interfaces[at] = g
		for _, r := range slices.Concat(g.Addresses, g.Public) {
			if r.Pos.Line == 0 {
				r.Pos = g.Pos
			}
			all = append(all, claim{r, g.Name})
		}
		for _, r := range g.Addresses {
			if r.Pos.Line == 0 {
				r.Pos = g.Pos
			}
			own.Elements = append(own.Elements, r)
		}
	}
	f.claimedTwice(all)
	f.sets[guestsName] = own
	f.policy.Sets = append(f.policy.Sets, own)
}

// guestsHere are the guests whose interfaces are where the policy is of.
func (f *file) guestsHere() (out []Guest) {
	if f.policy.Fleet == nil || f.view == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.policy.Fleet.Guests), func(g Guest) bool { return g.Netns.Text != f.view.Netns })
}

// ofNamespace leaves of a policy what is in a network namespace of guests: what is
// forwarded there. All else is the host's.
func (f *file) ofNamespace() {
	p := f.policy
	for _, g := range p.Fleet.Guests {
		if g.Netns.Text != "" && !f.spaced {
			at := g.Netns.Pos
			if at.Line == 0 {
				at = g.Pos
			}
			f.fail(at, "write guests: {enforce: namespace} in a part of this host, or use an interface of the host", "guest %s is in network namespace %s, which has no policy", g.Name, g.Netns.Text)
		}
	}
	if f.view == nil || f.view.Netns == "" {
		return
	}
	p.Input, p.Output, p.NAT, p.Ban, p.NeverBan, p.Exceptions = nil, nil, nil, nil, nil, nil
	p.Expect = slices.DeleteFunc(p.Expect, func(x *Expectation) bool { return x.On != Forward })
}

// boundGuests holds guests to what is signed, which a view is not: whoever has
// the key of a controller writes it.
func (f *file) boundGuests(fleet *Fleet) {
	own := f.sets[guestsName]
	if own == nil || !own.Own {
		return // it is read for no host
	}
	addresses, public := f.policy.GuestBounds()
	for r := range addresses.Each() {
		own.Within = append(own.Within, Range{own.Pos, r})
	}
	for i := range fleet.Guests {
		g := &fleet.Guests[i]
		if !fleet.Attaches(g) {
			at := g.Interface.Pos
			if at.Line == 0 {
				at = g.Pos
			}
			f.fail(at, "use one of guests: {interfaces: […]} in the file of the fleet, or add this one there", "guest %s: %s is not an interface for guests", g.Name, g.Interface.Text)
		}
		f.bound(g, g.Addresses, addresses, "is not within any set by guests", "give it an address within one of them, or add the address to the within of one in the file of the fleet")
		f.bound(g, g.Public, public, "is not a public address for guests", "use one of guests: {public: […]} in the file of the fleet, or add this one there")
	}
}

func (f *file) bound(g *Guest, all []Range, within addrset.Set, what, hint string) {
	for _, r := range all {
		if within.ContainsSet(addrset.Of(r.Range)) {
			continue
		}
		if r.Pos.Line == 0 {
			r.Pos = g.Pos
		}
		f.fail(r.Pos, hint, "guest %s: %s %s", g.Name, r.Range, what)
	}
}

func setOf(ranges []Range) addrset.Set {
	var b addrset.Builder
	for _, r := range ranges {
		b.AddRange(r.Range)
	}
	return b.Set()
}

// GuestBounds are the addresses that guests of a fleet may have, and the public ones.
func (p *Policy) GuestBounds() (addresses, public addrset.Set) {
	var within []Range
	for _, s := range p.Sets {
		if s.Guests != nil {
			within = append(within, s.Within...)
		}
	}
	return setOf(within), setOf(p.Fleet.Public)
}

// CheckGuest says in one sentence why something can be no guest of a host; which other guests
// there are, and what addresses a fleet's may have, it does not know.
func CheckGuest(g Guest) error {
	if p := checkHost(g.Name); p != nil {
		return fmt.Errorf("%s is not the name of a guest: %s", source.Quote(g.Name), p.hint)
	}
	for name, value := range g.Labels {
		if err := selector.CheckLabel(name, value); err != nil {
			return fmt.Errorf("guest %s: %w", g.Name, err)
		}
	}
	_, err := Reading{View: &View{Netns: g.Netns.Text, Guests: []Guest{g}}, Texts: map[string][]byte{
		"fleet.yaml": []byte("version: 1\nfleet: fleet\nparts: part.yaml\nsets: {all: {guests: a, within: [0.0.0.0/0, \"::/0\"]}}\nguests: {public: [0.0.0.0/0, \"::/0\"]}\n"),
		"part.yaml":  []byte("version: 1\nguests: {enforce: namespace, public: map}\n"),
	}}.Load("fleet.yaml")
	var all Errors
	if errors.As(err, &all) {
		text := all[0].Message
		if hint := all[0].Hint; hint != "" {
			text += ": " + hint
		}
		return errors.New(text)
	}
	return err
}

// claim is an address that a guest has.
type claim struct {
	Range
	guest string
}

// claimedTwice reports addresses that overlap, at the later of both places.
func (f *file) claimedTwice(all []claim) {
	sorting.StableBy(all, func(a, b claim) int { return a.Range.Range.From.Compare(b.Range.Range.From) })
	for i := 1; i < len(all); i++ {
		one, other := all[i-1], all[i]
		if one.Range.Range.To.Compare(other.Range.Range.From) < 0 {
			continue
		}
		if one.Pos.Line > other.Pos.Line || one.Pos.Line == other.Pos.Line && one.Pos.Column > other.Pos.Column {
			one, other = other, one
		}
		f.fail(other.Pos, "", "guest %s: %s is already in use, see %s", other.guest, other.Range.Range, one.Pos)
		if all[i-1].Range.Range.To.Compare(all[i].Range.Range.To) > 0 {
			all[i] = all[i-1] // it may reach over the next ones too
		}
	}
}

// guests reads what is done for the guests of the hosts of a part.
func (f *file) guests(e source.Entry) {
	of := f.guestsHere()
	keys := f.Known(e.Value, grammar.Of("guests"))
	if len(keys) == 0 {
		f.fail(f.At(e.Key), "write guests: {enforce: forward}", "guests is empty")
	}
	for _, k := range keys {
		text, ok := f.Text(k.Value, k.Name)
		switch {
		case !ok:
		case k.Name == "enforce" && text != "forward" && text != "namespace":
			f.fail(f.At(k.Value), "write enforce: forward, or enforce: namespace", "enforce must be forward or namespace, not %s", source.Quote(text))
		case k.Name == "enforce" && f.Once(k, &f.enforced):
			f.spaced = text == "namespace"
			for _, g := range of {
				f.policy.Held = append(f.policy.Held, Held{f.At(k.Key), g.Name, g.Interface, g.Addresses, "guests: enforce: " + text})
			}
		case k.Name == "public" && text != "map":
			f.fail(f.At(k.Value), "write public: map", "public must be map, not %s", source.Quote(text))
		case k.Name == "public" && f.Once(k, &f.published):
			for _, g := range of {
				f.publish(k, g)
			}
		}
	}
}

// RulesFolder is the folder, beside the file of a fleet, of the rules that guests' owners have
// written, and NetnsFolder that of views of network namespaces. No part is in them.
const (
	RulesFolder = "guest-rules"
	NetnsFolder = "guest-netns"
)

// RulesFile is the file in it of a guest.
func RulesFile(guest string) string { return RulesFolder + "/" + guest + ".yaml" }

// rulesOf has the rules of the guests' owners be read when the rest is whole.
func (f *file) rulesOf(guests []Guest) {
	for i := range guests {
		g := &guests[i]
		if g.Rules == nil {
			continue
		}
		at := g.Rules.Pos
		if at.Line == 0 {
			at = g.Pos
		}
		if g.Rules.Text != RulesFile(g.Name) {
			f.fail(at, "write rules: "+RulesFile(g.Name), "the rules of guest %s cannot be in %s", g.Name, g.Rules.Text)
			continue
		}
		own := &Who{}
		for _, r := range g.Addresses {
			own.Items = append(own.Items, WhoItem{Pos: r.Pos, Literal: r.Range})
		}
		f.scoped = append(f.scoped, scopedFile{at, filepath.Join(f.beside(), g.Rules.Text), []Scope{{Word: "to", Who: own}, {Word: "from", Who: own}}, g})
	}
}

// beside is the folder of the fleet's file.
func (f *file) beside() string { return filepath.Dir(f.policy.Fleet.File) }

// ownSet is the set of a guest's addresses in its owner's rules.
const ownSet = "me"

// knowsGuest has the rules of a guest's owner be read as such.
func (l *loader) knowsGuest(g *Guest) {
	l.guest = g
	me := &Set{Pos: g.Pos, Name: ownSet, Elements: g.Addresses}
	l.sets[ownSet] = me
	l.policy.Sets = append(l.policy.Sets, me)
}

// joinFromGuests adds what guests' owners allow these to reach, behind all else. What of it
// leads to other guests of the host does not count: that is for the rules of those.
func (l *loader) joinFromGuests() {
	section := l.policy.Forward
	if len(l.fromGuests) == 0 || section == nil {
		return
	}
	if section.Default != Allow {
		r := &Rule{Pos: l.fromGuests[0].Pos, Action: section.Default}
		all := func() *Who { return &Who{Pos: r.Pos, Items: []WhoItem{{Pos: r.Pos, Name: guestsName}}} }
		r.From, r.To = all(), all()
		r.Text = string(section.Default) + " any from " + guestsName + " to " + guestsName
		section.Rules = append(section.Rules, r)
	}
	section.Rules = append(section.Rules, l.fromGuests...)
}

// publish maps each public address of a guest to an address of its own: the first of a
// family to the first, and so on.
func (f *file) publish(k source.Entry, g Guest) {
	inner := map[int][]Range{}
	for _, r := range g.Addresses {
		if r.Range.From == r.Range.To {
			inner[familyOf(r.Range)] = append(inner[familyOf(r.Range)], r)
		}
	}
	for _, public := range g.Public {
		at := public.Pos
		if at.Line == 0 {
			at = g.Pos
		}
		family := familyOf(public.Range)
		switch {
		case public.Range.From != public.Range.To:
			f.fail(at, "write single addresses", "guest %s: public %s is more than one address", g.Name, public.Range)
			continue
		case len(inner[family]) == 0:
			f.fail(at, "each public address needs an address of the guest", "guest %s has no IPv%d address for public %s", g.Name, family, public.Range)
			continue
		}
		to := inner[family][0]
		inner[family] = inner[family][1:]
		line := &NAT{Pos: f.At(k.Key), Kind: Map, Family: family, Outside: &Range{at, public.Range}, Inside: &to}
		line.Text = line.canonical()
		f.maps = append(f.maps, line)
	}
}

// Sources are the sources that an interface may have.
func (h *Held) Sources() addrset.Set {
	var b addrset.Builder
	for _, r := range h.Addresses {
		b.AddRange(r.Range)
	}
	for _, text := range linkSources {
		r, err := addrset.ParseRange(text)
		if err != nil {
			panic(err) // of a constant
		}
		b.AddRange(r)
	}
	return b.Set()
}
