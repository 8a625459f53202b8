package reach

import (
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// scanRule notes every boundary that a rule draws.
func (u *Universe) scanRule(p *program.Program, r *program.Rule) {
	for i := range r.Match {
		u.scanCondition(p, &r.Match[i])
	}
	for _, a := range r.Actions {
		e := program.EffectOf(a)
		if e.Map != "" {
			u.scanSet(p.Set(e.Map), e.Reads)
		}
		if e.Gates {
			u.dimension(gateField(a))
		}
		if e.Bans != "" {
			for _, never := range e.Asks {
				u.scanSet(p.Set(never), []program.Field{program.Source})
			}
		}
		if m := (mapping{e.Rewrites.From, e.Rewrites.As}); m.from.IsValid() && !slices.Contains(u.maps, m) {
			u.maps = append(u.maps, m)
		}
		if w := e.Rewrites; e.Ends && mayGoThere(r, w) {
			u.boundary(program.Destination, addrset.Of(addrset.Range{From: w.To, To: w.To}))
			if w.Port != 0 {
				u.dimension(program.Port).cut(onePort(w.Port))
			}
		}
	}
}

func (u *Universe) scanCondition(p *program.Program, c *program.Condition) {
	switch {
	case c.Text != "" || c.Field == program.Opaque:
		u.dimension(opaqueField(c.Text))
		if !slices.Contains(u.opaque, c.Text) {
			u.opaque = append(u.opaque, c.Text)
		}
	case c.Set != "":
		u.scanSet(p.Set(c.Set), setKey(c))
	case isAddress(c.Field):
		u.boundary(c.Field, addrset.Of(c.Addresses...))
	case c.Field == program.Status:
		for _, n := range c.Names {
			u.dimension(statusField(n))
		}
	case c.Field == program.Extension:
		u.dimension(extensionField(c))
	case c.Field == program.Mark && c.Mask != 0:
		u.dimension(markField(c))
	default:
		u.scanValues(c)
	}
	u.scanTracked(c.Field)
}

func (u *Universe) scanValues(c *program.Condition) {
	d := u.dimension(c.Field)
	for _, n := range c.Names {
		if _, followed := program.FollowedName(n); followed && d.kind == devices {
			u.dimension(followedField(c.Field, n))
			continue
		}
		d.name(n)
	}
	for _, n := range c.Numbers {
		if c.Mask == 0 {
			d.cut(n)
		}
	}
	if c.Field == program.HopLimit {
		for _, n := range beforeForwarding(c.Numbers) {
			d.cut(n)
		}
	}
}

// scanTracked makes the fields that say of a flow what it was before it was
// rewritten: they are those of the packet where nobody rewrites.
func (u *Universe) scanTracked(f program.Field) {
	switch f {
	case program.OriginalSource, program.OriginalDestination, program.OriginalPort:
		u.dimension(f)
		u.dimension(statusField("dnat"))
		u.dimension(statusField("snat"))
	}
}

func setKey(c *program.Condition) []program.Field {
	if len(c.SetKey) > 0 {
		return c.SetKey
	}
	return []program.Field{c.Field}
}

func (u *Universe) scanSet(s *program.Set, key []program.Field) {
	if s == nil {
		return
	}
	if zone, own := program.CutOwnSet(s.ID); own && s.Life == program.Followed {
		u.dimension(kindOf(key[0]))
		if zone != "" && !u.now {
			u.dimension(ownField(zone))
			u.dimension(ownBehind(zone))
		}
		return
	}
	if s.Life == program.Dynamic || s.Life == program.Followed {
		u.dimension(tableField(s, key))
		u.dimension(tableBehind(s, key))
		return
	}
	if len(key) == 1 && isAddress(key[0]) && len(s.Elements) == 0 {
		u.boundary(key[0], s.Addresses)
	}
	for i := range s.Elements {
		for j, part := range s.Elements[i].Parts {
			if j >= len(key) {
				break
			}
			switch f := key[j]; {
			case part.Addresses.From.IsValid():
				u.boundary(f, addrset.Of(part.Addresses))
			case f == program.Status:
				u.dimension(statusField(part.Name))
			case part.Name != "":
				u.dimension(f).name(part.Name)
			default:
				u.dimension(f).cut(part.Numbers)
			}
			u.scanTracked(key[j])
		}
	}
}

// boundary notes a set that a field is asked for.
func (u *Universe) boundary(f program.Field, s addrset.Set) { u.dimension(f).blocks.add(s) }

func (u *Universe) scanQuestion(q Question) {
	if q.From != nil {
		u.boundary(program.Source, *q.From)
	}
	if q.To != nil {
		u.boundary(program.Destination, *q.To)
	}
	for _, conditions := range q.Match {
		for i := range conditions {
			u.scanCondition(&program.Program{}, &conditions[i])
		}
	}
}

// scanKinds draws the boundaries of addresses that the routing table treats in
// its own way.
func (u *Universe) scanKinds() {
	for _, f := range []program.Field{program.Source, program.Destination} {
		u.boundary(f, addrset.FromPrefixes(loopback...))
	}
	if !u.own.IsEmpty() {
		u.dimension(program.DestinationType)
	}
	if u.by[program.DestinationHere] != nil {
		for name, set := range u.here {
			u.dimension(program.InInterface).name(name)
			u.boundary(program.Destination, set)
		}
	}
	for _, k := range kindFields {
		if u.by[k.kind] == nil {
			continue
		}
		for _, p := range [][]netip.Prefix{multicast, broadcast} {
			u.boundary(k.address, addrset.FromPrefixes(p...))
		}
		if !u.own.IsEmpty() {
			u.boundary(k.address, u.own)
		}
	}
}

// mostMaps is how many rewritings of one address on one way the classes tell
// apart: one without state, one with.
const mostMaps = 3

// scanMaps draws the boundaries that rewriting moves: where a set begins behind a
// map of prefixes, it begins before it too.
func (u *Universe) scanMaps() {
	for _, f := range []program.Field{program.Source, program.Destination, program.OriginalSource, program.OriginalDestination} {
		d := u.by[f]
		if d == nil {
			continue
		}
		for _, m := range u.maps {
			d.blocks.add(addrset.FromPrefixes(m.from))
		}
		for range mostMaps {
			for _, s := range slices.Clone(d.blocks.sets) {
				for _, m := range u.maps {
					if moved := m.before(s); !moved.IsEmpty() {
						d.blocks.add(moved)
					}
				}
			}
		}
	}
}

// mapping is one prefix put into the place of another.
type mapping struct{ from, to netip.Prefix }

// before is the addresses that the map puts into the set. With the set itself and
// the map's prefix, which are told apart anyhow, that says of every address whether
// it is in the set behind the map; and of a map that the set has nothing to do with
// it is none, so that many maps draw few boundaries.
func (m mapping) before(s addrset.Set) addrset.Set {
	var moved addrset.Builder
	for r := range s.Intersect(addrset.FromPrefixes(m.to)).Each() {
		moved.AddRange(addrset.Range{From: mapPrefix(r.From, m.to, m.from), To: mapPrefix(r.To, m.to, m.from)})
	}
	return moved.Set()
}

// Fields that are yes or no, and that no packet carries.

func gateField(a program.Action) program.Field {
	return program.Field("gate:" + program.ActionText(a))
}

func tableField(s *program.Set, key []program.Field) program.Field {
	text := "table:" + s.ID
	if s.Others { // which no limit and no ban fills: nothing is assumed of it
		text = filledPrefix + s.ID
	}
	for _, f := range key {
		text += " " + string(f)
	}
	return program.Field(text)
}

const (
	filledPrefix = "filled:"
	behindSuffix = " behind rewriting"
)

// cutFilled gives the set that another program fills and the field that is looked up in it;
// none where its value comes by a rewriting.
func cutFilled(field program.Field) (set string, key program.Field, is bool) {
	about, is := strings.CutPrefix(string(field), filledPrefix)
	about, behind := strings.CutSuffix(about, behindSuffix)
	set, of, _ := strings.Cut(about, " ")
	if behind {
		of = ""
	}
	return set, program.Field(of), is
}

// tableBehind says that the packet's key is in a table when the key has been
// rewritten.
func tableBehind(s *program.Set, key []program.Field) program.Field {
	return tableField(s, key) + behindSuffix
}

// followedField says that an interface is one that the host decides on.
func followedField(f program.Field, name string) program.Field {
	return program.Field(followedPrefix + string(f) + " " + name)
}

const followedPrefix = "followed:"

func cutFollowed(field program.Field) (f program.Field, name string, is bool) {
	text, is := strings.CutPrefix(string(field), followedPrefix)
	of, name, _ := strings.Cut(text, " ")
	return program.Field(of), name, is
}

// ownField says that the destination is one of the host's own addresses in a zone.
func ownField(zone string) program.Field { return program.Field(ownPrefix + zone) }

// ownBehind says so of what the destination was rewritten to.
func ownBehind(zone string) program.Field { return ownField(zone) + " behind rewriting" }

const ownPrefix = "own:"

func cutOwn(field program.Field) (zone string, is bool) {
	zone, is = strings.CutPrefix(string(field), ownPrefix)
	return zone, is && !strings.Contains(zone, " ")
}

// scanFollowed makes classes of the interfaces and addresses that such sets hold now,
// for witnesses.
func (u *Universe) scanFollowed(p *program.Program) {
	for i := range p.Sets {
		if p.Sets[i].Life != program.Followed {
			continue
		}
		held := p.Sets[i].Held()
		if zone, own := program.CutOwnSet(p.Sets[i].ID); own && zone != "" {
			var b addrset.Builder
			for _, a := range held.Addresses {
				b.AddAddr(a)
			}
			u.owned[zone] = u.owned[zone].Union(b.Set())
			u.boundary(program.Destination, u.owned[zone])
			if !u.now {
				u.boundary(program.Destination, addrset.FromPrefixes(linkLocal...))
			}
			u.ownsLoopback = u.ownsLoopback || p.Sets[i].Follow != nil && program.Fits(p.Sets[i].Follow.Interfaces, "lo", nil)
		}
		for _, name := range held.Names {
			u.followed[name] = true
			for _, f := range []program.Field{program.InInterface, program.OutInterface} {
				if d := u.by[f]; d != nil {
					d.name(name)
				}
			}
		}
	}
}

// scanApart makes classes of interfaces that no default route leaves by.
func (u *Universe) scanApart(patterns []string) {
	for _, d := range u.dimensions {
		if f, _, followed := cutFollowed(d.field); followed {
			for _, n := range patterns {
				u.by[f].name(n)
			}
		}
	}
	u.apart = patterns
}

func opaqueField(text string) program.Field { return program.Field("opaque:" + text) }

func statusField(name string) program.Field { return program.Field("status:" + name) }

// extensionField and markField stand for conditions that are asked as they are.
func extensionField(c *program.Condition) program.Field {
	plain := *c
	plain.Not = false
	return program.Field("extension:" + plain.String())
}

func markField(c *program.Condition) program.Field {
	plain := *c
	plain.Not = false
	return program.Field("mark:" + plain.String())
}

// bannedSets are the sets that the bans of a program ask.
func bannedSets(p *program.Program) []*program.Set {
	var out []*program.Set
	seen := map[string]bool{}
	var note func(r *program.Rule)
	chain := func(name string) {
		c := p.Chain(name)
		if c == nil || seen["chain "+name] {
			return
		}
		seen["chain "+name] = true
		for i := range c.Rules {
			note(&c.Rules[i])
		}
	}
	note = func(r *program.Rule) {
		for i := range r.Match {
			c := &r.Match[i]
			s := p.Set(c.Set)
			if s == nil || c.Not || seen[c.Set] || !isAddress(c.Field) {
				continue
			}
			seen[c.Set] = true
			out = append(out, s)
		}
		for _, a := range r.Actions {
			e := program.EffectOf(a)
			chain(e.Calls)
			chain(e.Goes)
		}
	}
	for _, h := range p.Hooks {
		c := p.Chain(h.Chain)
		if c == nil {
			continue
		}
		for i := range c.Rules {
			if s := c.Rules[i].Stage; s == program.StageBan || s == program.StageBanFlows {
				note(&c.Rules[i])
			}
		}
	}
	return out
}
