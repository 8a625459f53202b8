package query

import (
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// beginning is first packets of connections on one way, and what happens to them.
type beginning struct {
	u      *reach.Universe
	asked  reach.Region
	passes reach.Region // as long as limits let them through
	free   reach.Region // whatever limits do
	groups []group      // by whoever decides
	keep   []program.Field
}

// beginning takes those of asked that take the way.
func (c Compiled) beginning(u *reach.Universe, way reach.Way, outcomes []reach.Outcome, asked reach.Region) *beginning {
	asked = u.And(asked, all(u, outcomes))
	var accepted reach.Region
	for _, o := range outcomes {
		if o.Verdict == program.Accept {
			accepted = u.Or(accepted, o.Region)
		}
	}
	accepted = u.And(accepted, asked)
	return &beginning{
		u: u, asked: asked, passes: u.Unlimited(accepted), free: u.Minus(accepted, u.Whatever(u.Minus(asked, accepted))),
		groups: decided(u, c, way, outcomes, asked), keep: c.unrouted(),
	}
}

// unrouted are the fields that a sender has to be let pass with in whatever he has there, since
// it is not known which interface leads to him.
func (c Compiled) unrouted() []program.Field {
	if c.Facts.Known && len(c.Facts.DefaultRoute) > 0 {
		return nil
	}
	return []program.Field{program.InInterface, program.OutInterface}
}

// notes are those of a query, and what is not known of interfaces.
func (c Compiled) notes() []string {
	out := Notes(c)
	if c.unrouted() != nil {
		out = append(out, "it is not known which interfaces lead where: what passes on some of them only is called partly")
	}
	return out
}

// part is how those of some packets fare, by what they ask for: each that a sender can have
// pass in some way passes.
func (b *beginning) part(of reach.Region) (asked, passes, free reach.Region) {
	u := b.u
	return u.However(u.And(b.asked, of), b.keep...), u.However(u.And(b.passes, of), b.keep...), u.However(u.And(b.free, of), b.keep...)
}

// mostLines is how many lines are named: thousands may decide of a place.
const mostLines = 100

// linesOf are those that decide, of groups.
func linesOf(groups []group, decides func(i int) bool) []Line {
	out := []Line{}
	for i, g := range groups {
		l := Line{g.by.File, g.by.Line, g.by.Text}
		if len(out) == mostLines {
			break
		}
		if !slices.Contains(out, l) && decides(i) {
			out = append(out, l)
		}
	}
	return out
}

// beginsBy is a question with what it takes to know which packets are meant.
type beginsBy struct {
	Words
	way       reach.Way
	questions []reach.Question
	leads     []leading
	ports     []published
}

// beginsBy reads words about packets that begin connections.
func (w Words) beginsBy(c Compiled, way reach.Way) (*beginsBy, error) {
	w.States, w.Hook = []packet.State{packet.New}, string(way)
	b := &beginsBy{Words: w, way: way}
	var err error
	if b.questions, err = w.way(c.Resolved, way, true); err != nil {
		return nil, err
	}
	if own := c.own(); way == reach.In && !own.IsEmpty() {
		for i := range b.questions {
			to := own.Intersect(*b.questions[i].To)
			b.questions[i].To = &to
		}
	}
	if b.leads, err = w.leads(c); err != nil {
		return nil, err
	}
	b.ports, err = w.publishedPorts(c)
	return b, err
}

// told is what a universe is to know of it.
func (b *beginsBy) told(c Compiled) []reach.Question {
	out := slices.Clone(b.questions)
	for i := range b.leads {
		out = append(out, b.leads[i].questions...)
	}
	for i := range b.ports {
		out = append(append(out, b.ports[i].questions...), b.ports[i].arrivals(c))
	}
	return out
}

// region is the packets as they arrive: those that are meant, and those that are led to where
// they are meant.
func (b *beginsBy) region(u *reach.Universe, c Compiled, nat []reach.Outcome, never []reach.Question) reach.Region {
	out := u.And(region(u, b.questions, b.way), region(u, routes(c.Resolved, b.way, program.OutInterface), b.way))
	for i := range b.ports {
		p := &b.ports[i]
		out = u.Minus(out, u.And(region(u, []reach.Question{p.arrivals(c)}, b.way), untouched(u, nat)))
	}
	for i := range b.leads {
		l := &b.leads[i]
		out = u.Or(out, u.And(region(u, l.questions, b.way), l.by(u, nat)))
	}
	out = u.Minus(out, region(u, never, b.way))
	for i := range b.ports {
		out = u.Or(out, region(u, b.ports[i].questions, b.way))
	}
	return u.Unbanned(out)
}

// routes are the packets of a way whose source (or, for OutInterface, destination) is where the
// interface leads that they come in (go out) by; all packets where nobody knows.
func routes(r *resolve.Resolved, way reach.Way, device program.Field) []reach.Question {
	if !r.Facts.Known || device == program.OutInterface && way != reach.Through {
		return []reach.Question{{Way: way}}
	}
	address := program.Source
	if device == program.OutInterface {
		address = program.Destination
	}
	var match [][]program.Condition
	var routed addrset.Set
	for _, l := range leadings(r.Facts) {
		if to := l.to.Difference(routed); !to.IsEmpty() {
			match = append(match, []program.Condition{{Field: device, Names: l.by}, {Field: address, Addresses: to.Ranges()}})
		}
		routed = routed.Union(l.to)
	}
	rest := []program.Condition{{Field: address, Not: true, Addresses: routed.Ranges()}}
	if len(r.Facts.DefaultRoute) > 0 {
		rest = append(rest, program.Condition{Field: device, Names: r.Facts.DefaultRoute})
	}
	return []reach.Question{{Way: way, Match: append(match, rest)}}
}
