package packetbench

import (
	"iter"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/prove/reference"
)

// rewritten are guesses about what a line of nat rewrites.
func (f *finder) rewritten(n *policy.NAT) iter.Seq[guess] {
	switch n.Kind {
	case policy.Masquerade:
		return f.masqueraded(n)
	case policy.Redirect:
		return f.redirected(n)
	}
	return f.mapped(n)
}

func (f *finder) masqueraded(n *policy.NAT) iter.Seq[guess] {
	return func(yield func(guess) bool) {
		for g := range f.forwards() {
			g.from = g.from.Intersect(f.side(n.From, g.in))
			if !g.from.IsEmpty() && !yield(g) {
				return
			}
		}
		// What a forward section is not there for passes too.
		for _, out := range f.through(n.Out) {
			for _, in := range f.through(nil) {
				from := f.side(n.From, in).Intersect(f.behind(in))
				if in == out || from.IsEmpty() {
					continue
				}
				for _, to := range f.some(f.behind(out)) {
					if !yield(guess{in, from, to, someService.protocol, someService.port}) {
						return
					}
				}
			}
		}
	}
}

func (f *finder) redirected(n *policy.NAT) iter.Seq[guess] {
	return func(yield func(guess) bool) {
		for _, in := range f.through(n.In) {
			to := f.own(in)
			if len(n.On) > 0 {
				to = nil
				for _, on := range n.On {
					to = append(to, on.Range.From)
				}
			}
			for _, from := range f.callers(in) {
				for _, a := range to {
					for _, s := range services([]policy.ServiceRef{*n.Service}) {
						if !yield(guess{in, from, a, s.protocol, s.port}) {
							return
						}
					}
				}
			}
		}
	}
}

// callers are who may ask by a device: all, and who a rule of forward or input
// names, since all may hold few of these.
func (f *finder) callers(in string) []addrset.Set {
	behind := f.behind(in)
	out := []addrset.Set{behind}
	for _, section := range []*policy.Section{f.Policy.Forward, f.Policy.Input} {
		if section == nil {
			continue
		}
		for _, rule := range section.Rules {
			if rule.From != nil && rule.Action == policy.Allow {
				out = append(out, f.side(rule.From, in).Intersect(behind))
			}
		}
	}
	return out
}

// mapped asks for the machines behind a map by their outer addresses, by what rules
// of forward allow to the inner ones, and for others by the machines themselves.
func (f *finder) mapped(n *policy.NAT) iter.Seq[guess] {
	return func(yield func(guess) bool) {
		inside := addrset.Of(n.Inside.Range)
		for g := range f.forwards() {
			if inside.Contains(g.to) {
				outer := g
				outer.to = moved(g.to, n.Inside.Range, n.Outside.Range)
				for _, from := range []addrset.Set{g.from, f.behind(g.in)} {
					outer.from = from
					if !yield(outer) {
						return
					}
				}
			}
		}
		for g := range f.forwards() {
			g.from = g.from.Intersect(inside)
			if !g.from.IsEmpty() && !yield(g) {
				return
			}
		}
	}
}

// moved gives the address of one prefix the place in another of the same length.
func moved(a netip.Addr, from, to addrset.Range) netip.Addr {
	out, place, base := to.From.AsSlice(), a.AsSlice(), from.From.AsSlice()
	for i := range out {
		out[i] |= place[i] ^ base[i]
	}
	m, _ := netip.AddrFromSlice(out)
	return m
}

// rewrittenBy wants packets that are allowed and that a line of nat rewrites.
func (f *finder) rewrittenBy(n *policy.NAT) wanted {
	return func(p packet.Packet, path reference.Path) bool {
		if path.Verdict != policy.Allow || !unlimited(path) || p.Source == path.Packet.Source && p.Destination == path.Packet.Destination && p.Port == path.Packet.Port {
			return false
		}
		if untracked := path.Packet.State == packet.Untracked; untracked != n.Stateless {
			return false
		}
		steps := reference.Explain(f.Resolved, p, f.way(p.Destination)).Steps
		return slices.ContainsFunc(steps, func(s reference.Step) bool { return s.Stage == "nat" && s.Pos == n.Pos })
	}
}

// natName is what a reader calls the work of a line of nat.
func natName(n *policy.NAT) string {
	if n.Stateless {
		return string(n.Kind) + ", stateless"
	}
	return string(n.Kind)
}
