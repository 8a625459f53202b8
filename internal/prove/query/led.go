package query

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// leads are the packets that lines of nat make into those that are asked for,
// though they come as others.
func (w Words) leads(c Compiled) ([]leading, error) {
	var out []leading
	if w.Service == "" && w.To == "" {
		return nil, nil // asked for are all as they arrive
	}
	for _, n := range c.Policy.NAT {
		if n.Kind != policy.Redirect && n.Kind != policy.Map {
			continue
		}
		l := leading{line: n}
		for _, at := range w.hooks(c.Resolved) {
			if at.Way == reach.Out {
				continue
			}
			questions, err := w.lead(c, at.Way, n)
			if err != nil {
				return nil, err
			}
			l.questions = append(l.questions, questions...)
		}
		out = append(out, l)
	}
	return out, nil
}

// leading is a line of nat, and the packets that it may make into those that are
// asked for.
type leading struct {
	line      *policy.NAT
	questions []reach.Question
}

func (w Words) lead(c Compiled, way reach.Way, n *policy.NAT) ([]reach.Question, error) {
	asked, err := w.parse(c.Resolved, way, false)
	if err != nil || way == reach.In && (asked.out != nil || hasInterface(c.Resolved, asked.to)) {
		return nil, err
	}
	var out []reach.Question
	for _, f := range sides(c.Resolved, asked.from, program.InInterface) {
		for _, t := range sides(c.Resolved, asked.to, program.OutInterface) {
			to, fits := before(n, t.addresses, c)
			if !fits {
				continue
			}
			more := slices.Concat(asked.conditions(c.Resolved, way), f.conditions, t.conditions)
			match := Alternatives(asked.services, program.Port, more)
			if n.Kind == policy.Redirect {
				match = asWas(n, asked.services, more)
			}
			if len(match) == 0 && len(asked.services) > 0 {
				continue
			}
			q := reach.Question{Way: way, States: w.States, From: elsewhere(c.Resolved, f.addresses, way, true), To: to, Match: match}
			out = append(out, q)
		}
	}
	return out, nil
}

// before is the destinations that a line may lead to the addresses that are asked
// for; nil is any.
func before(n *policy.NAT, asked *addrset.Set, c Compiled) (to *addrset.Set, fits bool) {
	if n.Kind == policy.Map {
		if asked == nil {
			return nil, false // asked for as they arrive
		}
		var b addrset.Builder
		for r := range asked.Intersect(addrset.Of(n.Inside.Range)).Each() {
			b.AddRange(addrset.Range{From: moved(r.From, n.Inside.Range, n.Outside.Range), To: moved(r.To, n.Inside.Range, n.Outside.Range)})
		}
		s := b.Set()
		return &s, !s.IsEmpty()
	}
	target := n.Target.Address.From
	switch {
	case asked == nil:
		return nil, true
	case target.IsValid():
		return nil, asked.Contains(target)
	}
	own := c.own()
	return nil, own.IsEmpty() || asked.Overlaps(own)
}

// moved gives the address that has the place in one prefix that a has in another
// of the same length.
func moved(a netip.Addr, from, to addrset.Range) netip.Addr {
	out, place, base := to.From.AsSlice(), a.AsSlice(), from.From.AsSlice()
	for i := range out {
		out[i] |= place[i] ^ base[i]
	}
	b, _ := netip.AddrFromSlice(out)
	return b
}

// asWas are the packets of a redirect that are of one of the services behind it.
func asWas(n *policy.NAT, services []policy.ServiceRef, more []program.Condition) (out [][]program.Condition) {
	comes := Alternatives([]policy.ServiceRef{*n.Service}, program.Port, more)
	if len(services) == 0 {
		return comes
	}
	for _, behind := range Alternatives(services, program.Port, nil) {
		if n.Target.Port != 0 {
			i := slices.IndexFunc(behind, func(c program.Condition) bool { return c.Field == program.Port })
			if i >= 0 && !slices.ContainsFunc(behind[i].Numbers, func(r program.NumberRange) bool {
				return r.From <= uint64(n.Target.Port) && uint64(n.Target.Port) <= r.To
			}) {
				continue
			}
			if i >= 0 {
				behind = slices.Delete(slices.Clone(behind), i, i+1)
			}
		}
		for _, came := range comes {
			out = append(out, slices.Concat(came, behind))
		}
	}
	return out
}

// translated is a program's NAT of what comes in, and what it makes of all packets
// of a way.
func translated(u *reach.Universe, p *program.Program, way reach.Way) []reach.Outcome {
	if way == reach.Out {
		return nil
	}
	only := *p
	only.Hooks = slices.DeleteFunc(slices.Clone(p.Hooks), func(h program.Hook) bool { return h.Kind != program.Prerouting })
	return u.Outcomes(&only, way)
}

// by is the packets that a line of nat rewrites.
func (l *leading) by(u *reach.Universe, outcomes []reach.Outcome) (out reach.Region) {
	want := []string{"destination to an address of the host"}
	if n := l.line; n.Kind == policy.Map {
		want[0] = "destination from " + prefixText(n.Outside.Range) + " to " + prefixText(n.Inside.Range)
	} else {
		if a := n.Target.Address.From; a.IsValid() {
			want[0] = "destination to " + a.String()
		}
		if n.Target.Port != 0 {
			want = append(want, "port to "+strconv.Itoa(int(n.Target.Port)))
		}
	}
	for _, o := range outcomes {
		if !slices.ContainsFunc(want, func(text string) bool { return !slices.Contains(o.Change, text) }) {
			out = u.Or(out, o.Region)
		}
	}
	return out
}

func prefixText(r addrset.Range) string { return strings.Join(texts(r.Prefixes()), " ") }

func texts(list []netip.Prefix) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
	}
	return out
}

// text says where the line leads.
func (l *leading) text() string {
	n := l.line
	place := " by line " + strconv.Itoa(n.Pos.Line)
	if n.Kind == policy.Map {
		return "mapped to " + prefixText(n.Inside.Range) + place
	}
	switch a := n.Target.Address.From; {
	case !a.IsValid():
		return "redirected to port " + strconv.Itoa(int(n.Target.Port)) + " of this host" + place
	case n.Target.Port == 0:
		return "redirected to " + a.String() + place
	default:
		return "redirected to " + netip.AddrPortFrom(a, n.Target.Port).String() + place
	}
}

// untouched is the packets that no line of nat rewrites, nor keeps out of tracking.
func untouched(u *reach.Universe, outcomes []reach.Outcome) (out reach.Region) {
	for _, o := range outcomes {
		if len(o.Change) == 0 {
			out = u.Or(out, o.Region)
		}
	}
	return out
}
