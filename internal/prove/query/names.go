package query

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/language/geo"
	"sluice/internal/language/resolve"
)

// Name is what a set of addresses is called.
type Name struct {
	// Text is the name. It is of the set's addresses and of no others where Exact
	// holds; else it says how many ranges there are, and the first.
	Text  string
	Exact bool
	Count Count
	// Everybody says that the set holds every address.
	Everybody bool
}

// String is the name with how many addresses it stands for.
func (n Name) String() string {
	switch {
	case n.Everybody:
		return n.Text
	case !n.Exact:
		return n.Text + " (" + n.Count.String() + " in all)"
	}
	return n.Text + " (" + n.Count.String() + ")"
}

// Names knows what sets of addresses are called. It may be used for several sets;
// it is not safe for concurrent use.
type Names struct {
	known     []known // those that are preferred first
	countries func() ([]known, error)
	given     map[string]Name // of small sets, by what String of the set says
	free      addrset.Set     // addresses that are not spoken of: a name may hold them or not
	among     map[string]*Names
	err       error
}

// NewNames takes the names of policies: of one, or of an old and a new one. A
// set that differs between them is called "X of FILE", or where the files have one name "X of
// the old policy". Countries are looked for
// in the data, which are opened when first needed; nil: no country has a name.
func NewNames(countries func() (*geo.Database, error), policies ...*resolve.Resolved) *Names {
	n := &Names{given: map[string]Name{}}
	for i, r := range policies {
		for _, s := range r.Policy.Sets {
			if set := r.Sets[s.Name]; set != nil && !set.IsEndpoints() {
				n.add(s.Name, r.Policy.File, set.Addresses, i, policies)
			}
		}
	}
	for i, r := range policies {
		for _, z := range r.Policy.Zones {
			zone := r.Zones[z.Name]
			switch {
			case zone == nil || !zone.HasNetworks:
			case len(zone.Interfaces) == 0:
				n.add(z.Name, r.Policy.File, zone.Networks, i, policies)
			default:
				n.add("the networks of "+z.Name, r.Policy.File, zone.Networks, i, policies)
			}
		}
	}
	if len(policies) > 0 {
		n.remember("this host", ownAddresses(policies[0]))
	}
	n.countries = func() ([]known, error) { return nil, nil }
	if countries != nil {
		n.countries = sync.OnceValues(func() ([]known, error) { return places(countries) })
	}
	return n
}

// add remembers a set under its name, and with the file where another policy
// has another set of that name.
func (n *Names) add(name, file string, s addrset.Set, i int, policies []*resolve.Resolved) {
	text := name
	for j, other := range policies {
		plain := strings.TrimPrefix(name, "the networks of ")
		var there addrset.Set
		has := false
		if set := other.Sets[plain]; set != nil {
			there, has = set.Addresses, true
		} else if zone := other.Zones[plain]; zone != nil && zone.HasNetworks {
			there, has = zone.Networks, true
		}
		if j == i || !has || there.Equal(s) {
			continue
		}
		if text = name + " of " + file; file == other.Policy.File {
			text = name + " of the " + choose(i < j, "old", "new") + " policy"
		}
	}
	n.remember(text, s)
}

func (n *Names) remember(text string, s addrset.Set) {
	if s.IsEmpty() || slices.ContainsFunc(n.known, func(k known) bool { return k.text == text && k.set.Equal(s) }) {
		return
	}
	n.known = append(n.known, newKnown(text, s))
}

// ownAddresses is the host's own addresses, as far as the facts know them, except
// for those of loopback.
func ownAddresses(r *resolve.Resolved) addrset.Set {
	own, _ := r.Facts.Addresses()
	return own.Difference(loopback)
}

var loopback = addrset.FromPrefixes(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))

// places are the continents, then the countries.
func places(open func() (*geo.Database, error)) ([]known, error) {
	d, err := open()
	if err != nil {
		return nil, err
	}
	all, err := d.ByCountry()
	if err != nil {
		return nil, err
	}
	continents := map[string]*addrset.Builder{}
	var countries []known
	for _, code := range slices.Sorted(maps.Keys(all)) {
		if continent := geo.CountryOf(code).Continent; continent != "" {
			if continents[continent] == nil {
				continents[continent] = &addrset.Builder{}
			}
			continents[continent].AddSet(all[code])
		}
		if _, err := geo.KnownCountry(code); err == nil {
			countries = append(countries, newKnown(code, all[code]))
		}
	}
	var out []known
	for _, code := range slices.Sorted(maps.Keys(continents)) {
		out = append(out, newKnown("continent "+code, continents[code].Set()))
	}
	return append(out, countries...), nil
}

// Without gives the names for when some addresses are not spoken of: then it is no
// matter whether a name holds them.
func (n *Names) Without(free addrset.Set) *Names {
	key := free.String()
	if known := n.among[key]; known != nil {
		return known
	}
	out := &Names{known: strip(n.known, free), given: map[string]Name{}, free: free}
	out.countries = sync.OnceValues(func() ([]known, error) {
		all, err := n.countries()
		n.err = err
		return strip(all, free), err
	})
	if n.among == nil {
		n.among = map[string]*Names{}
	}
	n.among[key] = out
	return out
}

// strip takes addresses out of known sets; those that nothing is left of go.
func strip(all []known, free addrset.Set) []known {
	var out []known
	for _, k := range all {
		if !k.set.Overlaps(free) {
			out = append(out, k)
		} else if rest := k.set.Difference(free); !rest.IsEmpty() {
			out = append(out, newKnown(k.text, rest))
		}
	}
	return out
}

// Of names a set.
func (n *Names) Of(s addrset.Set) Name {
	s = s.Difference(n.free)
	key := ""
	if s.Len4()+s.Len6() <= fewRanges {
		key = s.String()
		if given, ok := n.given[key]; ok {
			return given
		}
	}
	out := n.find(s)
	if key != "" {
		n.given[key] = out
	}
	return out
}

// Err is what was wrong with the country data, where they were needed.
func (n *Names) Err() error { return n.err }

// fewRanges is up to how many ranges a set is told by them alone.
const fewRanges = 3

func (n *Names) find(s addrset.Set) Name {
	out := Name{Count: countOf(s), Exact: true}
	whole, family := n.free.Complement(), ""
	both := whole.Has4() && whole.Has6()
	switch {
	case s.IsEmpty():
		out.Text = "nobody"
		return out
	case s.Equal(whole):
		out.Text, out.Everybody = "anywhere", true
		return out
	case both && !s.Has6():
		whole, family = whole.Only4(), "IPv4"
	case both && !s.Has4():
		whole, family = whole.Only6(), "IPv6"
	}
	if s.Equal(whole) {
		out.Text = "any " + family + " address"
		return out
	}
	x := expression{whole: whole, family: family, known: project(n.known, family), free: n.free}
	if text, ok := x.exactly(s); ok {
		out.Text = text
		return out
	}
	if size(x.closed(s)) <= fewRanges {
		out.Text = x.few(s)
		return out
	}
	if text, ok := x.say(s); ok {
		out.Text = text
		return out
	}
	countries, err := n.countries()
	if err != nil {
		n.err = err
	}
	if len(countries) > 0 {
		x.known = append(x.known, project(countries, family)...)
		if text, ok := x.say(s); ok {
			out.Text = text
			return out
		}
	}
	out.Exact = false
	out.Text = ranges(x.closed(s))
	return out
}

// project leaves of each known set what is of one family.
func project(all []known, family string) []known {
	if family == "" {
		return slices.Clone(all)
	}
	var out []known
	for _, k := range all {
		part := k.set.Only4()
		if family == "IPv6" {
			part = k.set.Only6()
		}
		if part.IsEmpty() {
			continue
		}
		if !part.Equal(k.set) {
			k = newKnown(family+" of "+k.text, part)
		}
		out = append(out, k)
	}
	return out
}

// few tells a few ranges by themselves, or by what they are not.
func (x *expression) few(s addrset.Set) string {
	rest := x.whole.Difference(s)
	if text, ok := x.exactly(rest); ok {
		return x.but([]string{text})
	}
	rest, s = x.closed(rest), x.closed(s)
	if size(s) > 1 {
		names := *x
		names.namesOnly = true
		if text, ok := names.say(s.Difference(x.free)); ok {
			return text
		}
	}
	if size(rest) < size(s) {
		return x.but([]string{literals(rest)})
	}
	return literals(s)
}

// closed is a set with those addresses that are not spoken of and lie in the gaps
// between its ranges, so that it has fewer.
func (x *expression) closed(s addrset.Set) addrset.Set {
	out := s
	for r := range x.free.Each() {
		before, after := r.From.Prev(), r.To.Next()
		if before.IsValid() && after.IsValid() && s.Contains(before) && s.Contains(after) {
			out = out.Union(addrset.Of(r))
		}
	}
	return out
}

func literals(s addrset.Set) string {
	var out []string
	for r := range s.Each() {
		out = append(out, r.String())
	}
	return english.List(out)
}

// ranges says how many there are, and the first of each family.
func ranges(s addrset.Set) string {
	var first []string
	for _, part := range []addrset.Set{s.Only4(), s.Only6()} {
		for r := range part.Each() {
			first = append(first, r.String())
			break
		}
	}
	return english.Grouped(s.Len4()+s.Len6()) + " ranges, the first " + english.List(first)
}
