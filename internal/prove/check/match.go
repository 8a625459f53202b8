package check

import (
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// interfaceNames numbers the kinds of interface names that the policy tells
// apart: 0 is no interface, then each name that a zone has, one name for each
// wildcard that no narrower pattern fits, and one that no pattern fits. Where a zone
// follows the default route, the same again for interfaces that one leaves by: which
// these are changes without the policy, so that no finding may rest on it.
type interfaceNames struct {
	kinds   []string
	follows bool
	route   []string // interfaces that default routes leave by now
}

const (
	loopback = "lo"
	// No interface's name holds a control character.
	someOther = "\x01"
)

func newInterfaceNames(r *resolve.Resolved) interfaceNames {
	n := interfaceNames{kinds: []string{"", loopback, someOther}, route: r.Facts.DefaultRoute}
	for _, z := range r.Policy.Zones {
		for _, pattern := range r.Zones[z.Name].Interfaces {
			name := pattern
			switch wild := len(pattern) - 1; {
			case pattern == resolve.RouteInterfaces:
				n.follows = true
				continue
			case wild >= 0 && pattern[wild] == '*':
				name = pattern[:wild] + someOther
			}
			if !slices.Contains(n.kinds, name) {
				n.kinds = append(n.kinds, name)
			}
		}
	}
	return n
}

// byRoute is the kind of the same interfaces where a default route leaves by them.
func (n interfaceNames) byRoute(kind int) uint64 { return uint64(len(n.kinds) + kind) } //nolint:gosec // few

// routable says of a kind that a default route may leave by such interfaces.
func routable(kind int) bool { return kind > 1 }

// of is the interfaces that patterns fit.
func (n interfaceNames) of(patterns []string) numbers {
	followed := slices.Contains(patterns, resolve.RouteInterfaces)
	var all []span
	for i, name := range n.kinds {
		fits := i > 0 && slices.ContainsFunc(patterns, func(p string) bool { return resolve.MatchInterface(p, name) })
		if fits {
			all = append(all, span{uint64(i), uint64(i)})
		}
		if n.follows && routable(i) && (fits || followed) {
			all = append(all, span{n.byRoute(i), n.byRoute(i)})
		}
	}
	return numbersOf(all...)
}

// index is the kind that an interface's name is of: its own, else that of the
// longest wildcard that fits it.
func (n interfaceNames) index(name string) uint64 {
	best := 2 // someOther
	for i, kind := range n.kinds {
		switch start, wild := strings.CutSuffix(kind, someOther); {
		case i > 0 && kind == name:
			return n.now(i, name)
		case wild && strings.HasPrefix(name, start) && len(start) >= len(n.kinds[best])-len(someOther):
			best = i
		}
	}
	return n.now(best, name)
}

func (n interfaceNames) now(kind int, name string) uint64 {
	if n.follows && routable(kind) && slices.Contains(n.route, name) {
		return n.byRoute(kind)
	}
	return uint64(kind) //nolint:gosec // few
}

// every is all interfaces but loopback, on which nothing is policed.
func (n interfaceNames) every() numbers {
	last := len(n.kinds) - 1
	all := []span{{2, uint64(last)}} //nolint:gosec // few
	if n.follows {
		all = append(all, span{n.byRoute(2), n.byRoute(last)})
	}
	return numbersOf(all...)
}

// universe is every packet of one family that the rules of a hook can meet.
func (c *checker) universe(hook policy.Hook, family int) box {
	key := universeKey{hook, family}
	if _, ok := c.universes[key]; !ok {
		c.universes[key] = c.newUniverse(hook, family)
	}
	return c.universes[key]
}

type universeKey struct {
	hook   policy.Hook
	family int
}

func (c *checker) newUniverse(hook policy.Hook, family int) box {
	all := addrset.All().Only4()
	if family == 6 {
		all = addrset.All().Only6()
	}
	b := box{addresses: [addressDimensions]addrset.Set{all, all, all}}
	services := everyService(family)
	b.numbers = [numberDimensions]numbers{
		service:    services,
		original:   append(slices.Clone(services), span{notRewritten, notRewritten}),
		sourcePort: {{0, 65535}},
		user:       one(noUser),
		in:         c.names.every(),
		out:        c.names.every(),
	}
	switch hook {
	case policy.Input:
		b.numbers[out] = one(0)
	case policy.Output:
		b.numbers[in] = one(0)
		b.numbers[original] = one(notRewritten)
		b.numbers[user] = numbers{{0, noUser}}
	case policy.Forward: // both interfaces, no socket
	}
	return b
}

func familiesOf(only int) []int {
	if only != 0 {
		return []int{only}
	}
	return []int{4, 6}
}

type boxKey struct {
	hook policy.Hook
	rule *policy.Rule
}

// packets is what a rule matches when it is in the section of a hook.
func (c *checker) packets(hook policy.Hook, r *policy.Rule) []box {
	key := boxKey{hook, r}
	if b, ok := c.boxes[key]; ok {
		return b
	}
	var all []box
	for _, family := range familiesOf(r.Family) {
		all = append(all, c.packetsOf(hook, r, family)...)
	}
	c.boxes[key] = all
	return all
}

func (c *checker) packetsOf(hook policy.Hook, r *policy.Rule, family int) []box {
	u := c.universe(hook, family)
	b := u
	if r.Published {
		b.numbers[original] = b.numbers[original].intersect(servicesOf(r.Services, family))
	} else {
		b.numbers[service] = servicesOf(r.Services, family)
	}
	for zone, dimension := range map[*policy.Word]int{r.In: in, r.Out: out} {
		if zone != nil {
			if z := c.Zones[zone.Text]; z != nil && len(z.Interfaces) > 0 {
				b.numbers[dimension] = b.numbers[dimension].intersect(c.names.of(z.Interfaces))
			}
		}
	}
	if len(r.Users) > 0 {
		var ids []span
		for _, w := range r.Users {
			id := uint64(c.Users[w.Text])
			ids = append(ids, span{id, id})
		}
		b.numbers[user] = b.numbers[user].intersect(numbersOf(ids...))
	}
	if b.empty() {
		return nil
	}
	from := c.side(u, r.From, source, in, sourcePort)
	to := c.side(u, r.To, destination, out, service)
	if r.Published {
		to = c.side(u, r.To, originalDestination, out, original)
	}
	return both([]box{b}, both(from, to))
}

// side is the packets of a universe whose one side fits WHO: its address, its
// interface, and for endpoints its port.
func (c *checker) side(u box, w *policy.Who, address, iface, port int) []box {
	if w == nil {
		return []box{u}
	}
	var parts []box
	add := func(b box) {
		if !b.empty() {
			parts = append(parts, b)
		}
	}
	var together addrset.Set
	for _, item := range w.Items {
		z, s := c.Zones[item.Name], c.Sets[item.Name]
		switch {
		case item.Name == "":
			together = together.Union(addrset.Of(item.Literal))
		case z != nil && len(z.Interfaces) == 0:
			together = together.Union(z.Networks)
		case z != nil:
			b := u
			b.numbers[iface] = b.numbers[iface].intersect(c.names.of(z.Interfaces))
			if z.HasNetworks {
				b.addresses[address] = b.addresses[address].Intersect(z.Networks)
			}
			add(b)
		case s != nil && s.IsEndpoints():
			for _, e := range s.Endpoints {
				add(endpointBox(u, e, address, port))
			}
		case s != nil:
			together = together.Union(s.Addresses)
		}
	}
	b := u
	b.addresses[address] = b.addresses[address].Intersect(together)
	add(b)
	if !w.Not {
		return parts
	}
	// Too much here would be findings that are wrong, so it has all the effort
	// that the boxes themselves allow.
	all := effort{left: questionPart * maxBoxes * maxBoxes}
	rest, ok := all.minus([]box{u}, parts)
	if !ok {
		return []box{u}
	}
	return rest
}

func endpointBox(u box, e policy.Endpoint, address, port int) box {
	u.addresses[address] = u.addresses[address].Intersect(addrset.Of(e.Address))
	if port == sourcePort {
		u.numbers[service] = u.numbers[service].intersect(numbers{wholeProtocol(e.Protocol)})
		u.numbers[sourcePort] = one(uint64(e.Port))
		return u
	}
	u.numbers[port] = u.numbers[port].intersect(numbers{wire(e.Protocol, e.Port, e.Port)})
	return u
}

// ends says whether every packet that fits the rule ends its way there. One
// over a limit goes on, unless all its like are banned, which never-ban undoes; and one
// with an end does so for a time.
func ends(r *policy.Rule) bool {
	return r.Action != policy.ClampMSS && r.Limit == nil && r.Max == nil && r.Until.IsZero()
}
