package check

import (
	"fmt"
	"math/big"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/system/host"
)

// openManagement finds rules that open a port of management to everybody: to at
// least half of the internet's addresses of a family, on the side of the default
// route. Where the default route is not known, rules that name a side are left
// out.
func (c *checker) openManagement() {
	ways := c.ledElsewhere()
	for _, s := range c.sections() {
		if s.Hook == policy.Output || s.Hook == policy.Forward && !c.facts.Known {
			continue
		}
		for _, st := range c.standings(s) {
			if st.own && st.known && st.rule.Action == policy.Allow {
				c.openPorts(s, st)
			}
			if st.known && st.rule.Action == policy.Allow && st.rule.Published {
				c.openBehind(s, st, ways)
			}
		}
	}
}

func (c *checker) openPorts(s *policy.Section, st *standing) {
	r := st.rule
	bounded := r.Limit != nil && r.Limit.PerSource || r.Max != nil && r.Max.PerSource
	dimension := service
	if r.Published {
		dimension = original
	}
	var open []string
	var shown []box
	limit := true
	for i := range management {
		m := &management[i]
		if bounded && m.withLimit {
			continue
		}
		ports := numbers{wire(m.protocol, m.from, m.to)}
		found := c.openTo(s.Hook, st.left, dimension, ports)
		if len(found) == 0 {
			continue
		}
		if len(shown) == 0 {
			shown = found
		}
		limit = limit && m.withLimit
		open = append(open, fmt.Sprintf("%s/%s (%s)", protocolNames[m.protocol], policy.PortRange{From: m.from, To: m.to}, m.what))
	}
	if len(open) == 0 {
		return
	}
	pos, hint := openHint(r, limit)
	f := c.report(OpenManagement, Warning, pos, hint, "open to everybody on the internet: %s", english.Few(open, 4))
	c.shows(f, s.Hook, shown, r)
}

// openHint is where a rule says what it opens, and the way out; limit says that a
// limit is one too.
func openHint(r *policy.Rule, limit bool) (pos policy.Pos, hint string) {
	hint = "restrict the sources: from WHO"
	if r.From == nil && r.Limit == nil && r.Max == nil && r.Log == nil && r.In == nil && r.Out == nil && r.To == nil {
		hint = "restrict the sources: " + r.Text + " from WHO"
	}
	if limit {
		hint += ", or limit it: limit 6/30s per source"
	}
	pos = r.Pos
	if len(r.Services) > 0 {
		pos = r.Services[0].Pos
	}
	return pos, hint
}

// openTo gives packets to some ports that half of the internet may send; none
// where it may not.
func (c *checker) openTo(hook policy.Hook, boxes []box, dimension int, ports numbers) []box {
	for _, family := range []int{4, 6} {
		var from addrset.Set
		var open []box
		for i := range boxes {
			b := boxes[i]
			if familyOfBox(&b) != family || !c.fromOutside(hook, &b) {
				continue
			}
			if dimension == original {
				b.numbers[original] = b.numbers[original].minus(one(notRewritten))
			}
			b.numbers[dimension] = b.numbers[dimension].intersect(ports)
			if b.empty() {
				continue
			}
			if real := realPackets([]box{b}); len(real) > 0 {
				from = from.Union(b.addresses[source])
				open = append(open, real...)
			}
		}
		if len(open) > 0 && mostOfInternet(from, family) {
			return open
		}
	}
	return nil
}

// fromOutside says whether packets may come in by the side of the default route.
func (c *checker) fromOutside(hook policy.Hook, b *box) bool {
	if !c.facts.Known {
		return sameNumbers(b.numbers[in], c.universe(hook, familyOfBox(b)).numbers[in])
	}
	fits := func(n numbers, name string) bool { return len(n.intersect(one(c.names.index(name)))) > 0 }
	if !slices.ContainsFunc(c.facts.DefaultRoute, func(name string) bool { return fits(b.numbers[in], name) }) {
		return false
	}
	// What leaves by the same side again is nobody's here.
	return hook != policy.Forward || slices.ContainsFunc(c.facts.Interfaces, func(i host.Interface) bool {
		return i.Name != loopback && i.Master == "" && !slices.Contains(c.facts.DefaultRoute, i.Name) && fits(b.numbers[out], i.Name)
	})
}

// mostOfInternet says whether a set holds at least half of the internet's
// addresses of a family.
func mostOfInternet(s addrset.Set, family int) bool {
	s = s.Intersect(internet)
	if family == 4 {
		return s.Count4() >= internet.Count4()/2
	}
	half := new(big.Int).Rsh(internet.Count6(), 1)
	return s.Count6().Cmp(half) >= 0
}

// openSections finds defaults that let everything through, and sections that are
// left out where packets pass.
func (c *checker) openSections() {
	p := c.policy
	router := c.facts.Forwarding4 || c.facts.Forwarding6
	if p.Input != nil && p.Input.Default == policy.Allow {
		c.report(DefaultAllow, Warning, defaultPos(p.Input), "default: drop, and a rule for each service",
			"input allows everything that no rule refuses: any service that starts later is open")
	}
	if p.Forward != nil && p.Forward.Default == policy.Allow && (router || !c.facts.Known) {
		severity, where := Remark, ""
		if router {
			severity, where = Warning, "this host forwards packets, and "
		}
		c.report(DefaultAllow, severity, defaultPos(p.Forward), "default: drop, and a rule for each direction",
			"%sforward allows everything that no rule refuses", where)
	}
	c.leftOut(router)
}

// leftOut finds sections that are left out where packets pass. It is told at the
// section that is there, else where the policy begins.
func (c *checker) leftOut(router bool) {
	p := c.policy
	at, severity, only := policy.Pos{File: p.File, Line: 1, Column: 1}, Warning, ", and there is no other section"
	for _, s := range []*policy.Section{p.Output, p.Forward, p.Input} { // the last one that is there
		if s != nil {
			at, severity, only = s.Pos, Remark, ""
		}
	}
	if p.Input == nil {
		c.report(NotPoliced, severity, at, "add input with default: drop, and rules for this host's services",
			"input is missing%s: everything sent to this host is allowed", only)
	}
	if p.Forward == nil && c.facts.Known && router {
		what := ""
		if ports := c.publishedTexts(); len(ports) > 0 {
			what = "; ports that other tools publish are open to everybody:  " + english.Few(ports, 3)
		}
		c.report(NotPoliced, Warning, at, "add forward with default: drop, and rules for what may pass",
			"this host forwards packets, and forward is missing: all of them are allowed%s", what)
	}
}

func (c *checker) publishedTexts() []string {
	var out []string
	for _, p := range c.facts.Published {
		out = append(out, p.String())
	}
	return out
}

// openFamilies finds rules that close one family of what stays open in the
// other.
func (c *checker) openFamilies() {
	for _, s := range c.sections() {
		all := c.standings(s)
		for i, st := range all {
			if !st.own || st.rule.Action == policy.ClampMSS {
				continue
			}
			c.closesIPv4Alone(s, all, i)
			c.everybodyOfOne(s, all, i)
		}
	}
}

// closesIPv4Alone: "ipv4" in a rule that refuses. One whose sets have no IPv6
// address says it to be clear.
func (c *checker) closesIPv4Alone(s *policy.Section, all []*standing, at int) {
	r := all[at].rule
	if r.Family != 4 || r.Action == policy.Allow || !c.bothFamilies(r.From) || !c.bothFamilies(r.To) {
		return
	}
	open := *r
	if packets, by := c.openAfter(s, all, at, &open, 6); len(packets) > 0 {
		f := c.report(IPv6Open, Remark, r.Pos, "remove \"ipv4\", unless IPv6 should stay open",
			"this rule refuses IPv4 only: the same stays open over IPv6")
		c.shows(f, s.Hook, packets, by)
	}
}

func (c *checker) bothFamilies(w *policy.Who) bool {
	if w == nil {
		return true
	}
	a := c.whoAddresses(w)
	return c.hasInterfaces(w) && a.IsEmpty() || a.Has4() == a.Has6()
}

// openAfter is the packets of a rule in another family that a rule which follows
// lets through, or the default, for which by is nil.
func (c *checker) openAfter(s *policy.Section, all []*standing, at int, r *policy.Rule, family int) (open []box, by *policy.Rule) {
	packets, ok := c.minusNeeded(c.packetsOf(s.Hook, r, family))
	if ok {
		packets, ok = c.effort.minus(packets, c.banned(s.Hook))
	}
	whole := hullOf(packets)
	for _, e := range all[:at] {
		if ok && ends(e.rule) && e.hull.meets(&whole) {
			packets, ok = c.effort.minus(packets, e.packets)
		}
	}
	for _, e := range all[at+1:] {
		if !ok || len(packets) == 0 {
			return nil, nil
		}
		if e.rule.Action == policy.ClampMSS || !e.hull.meets(&whole) {
			continue
		}
		if part := realPackets(both(packets, e.packets)); e.rule.Action == policy.Allow && len(part) > 0 {
			return part, e.rule
		}
		if ends(e.rule) {
			packets, ok = c.effort.minus(packets, e.packets)
		}
	}
	if !ok || s.Default != policy.Allow {
		return nil, nil
	}
	return realPackets(packets), nil
}

// everybodyOfOne: 0.0.0.0/0 or ::/0 alone, which look like everybody.
func (c *checker) everybodyOfOne(s *policy.Section, all []*standing, at int) {
	r := all[at].rule
	for i, w := range []*policy.Who{r.From, r.To} {
		if w == nil || w.Not || r.Family != 0 {
			continue
		}
		everybody := addrset.All()
		addresses := c.whoAddresses(w)
		missing := 0
		switch {
		case addresses.Only4().Equal(everybody.Only4()) && !addresses.Has6():
			missing = 6
		case addresses.Only6().Equal(everybody.Only6()) && !addresses.Has4():
			missing = 4
		}
		if missing == 0 || c.hasInterfaces(w) {
			continue
		}
		text := map[int]string{6: "0.0.0.0/0", 4: "::/0"}[missing]
		if r.Action == policy.Allow {
			c.report(EveryIPv4, Remark, w.Pos, "remove the addresses: a rule without them applies to everybody",
				"%s is all of IPv%d only: this allows nothing over IPv%d", text, 10-missing, missing)
			continue
		}
		open := *r
		if i == 0 {
			open.From = nil
		} else {
			open.To = nil
		}
		if packets, by := c.openAfter(s, all, at, &open, missing); len(packets) > 0 {
			f := c.report(EveryIPv4, Warning, w.Pos, "remove the addresses: a rule without them applies to everybody",
				"%s is all of IPv%d only: over IPv%d the same stays open", text, 10-missing, missing)
			c.shows(f, s.Hook, packets, by)
		}
	}
}

// publishedClosed finds ports that another tool publishes and that no rule lets
// through to anybody.
func (c *checker) publishedClosed() {
	var closed []string
	var at *policy.Section
	var shown *Witness
	for _, p := range c.facts.Published {
		protocol, _ := packet.PortProtocol(p.Protocol)
		to := p.To.Addr()
		if p.Port == 0 || protocol == 0 || !to.IsValid() || to.IsLoopback() {
			continue
		}
		hook := policy.Forward
		if c.own.Contains(to) {
			hook = policy.Input
		}
		s := c.section(hook)
		if s == nil {
			continue
		}
		b := c.universe(hook, familyOfAddress(to))
		port := p.To.Port()
		if port == 0 {
			port = p.Port
		}
		b.addresses[destination] = single(to)
		if behind := c.interfacesOf(single(to)); hook == policy.Forward && len(behind) > 0 {
			b.numbers[out] = b.numbers[out].intersect(behind)
		}
		b.numbers[service] = numbers{wire(protocol, port, port)}
		b.numbers[original] = numbers{wire(protocol, p.Port, p.Port)}
		if p.Address.IsValid() && p.Address.Is4() == to.Is4() {
			b.addresses[originalDestination] = single(p.Address)
		} else if here := c.hostAddresses().Intersect(b.addresses[originalDestination]); !here.IsEmpty() {
			b.addresses[originalDestination] = here
		}
		packets, ok := c.effort.minus([]box{b}, c.banned(hook))
		if !ok || len(packets) == 0 {
			continue
		}
		if f := c.fate(s, packets); f.known && !f.allowed {
			closed = append(closed, p.String())
			if at = s; shown == nil {
				shown = &Witness{hook, *c.witness(hook, packets[0], "new")}
			}
		}
	}
	if at == nil {
		return
	}
	f := c.report(PublishedClosed, Remark, defaultPos(at), "add to "+string(at.Hook)+", if it should be reachable: allow published PORT from WHO",
		"other tools publish ports that no rule allows: %s", english.Few(closed, 3))
	f.Witness = shown
}
