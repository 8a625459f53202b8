package packetbench

import (
	"iter"
	"net/netip"
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/lab/measure"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
	"sluice/internal/prove/reference"
)

// finder looks for packets of a kind: it makes guesses from the lines of a policy,
// and asks package reference about each.
type finder struct {
	*resolve.Resolved
	devices []measure.Device
	sources int
	seed    uint64
}

// guess is a service at an address, asked by some sources through a device.
type guess struct {
	in       string
	from     addrset.Set
	to       netip.Addr
	protocol uint8
	port     uint16
}

// found are packets of a kind.
type found struct {
	guess
	sources []netip.Addr   // each is treated as is wanted
	path    reference.Path // of the first
}

// wanted says whether what happens to a packet makes it one of the kind.
type wanted func(p packet.Packet, path reference.Path) bool

// sample is how many sources of a guess are asked about before all are drawn.
const sample = 16

// first gives the packets of the first guess that has many, or of the one that has
// most. Sources come by address weight.
func (f *finder) first(family addrset.Family, guesses iter.Seq[guess], want wanted) (best found, ok bool) {
	for g := range guesses {
		if family == addrset.IPv6 != g.to.Is6() {
			continue
		}
		from := g.from.Only4()
		if family == addrset.IPv6 {
			from = g.from.Only6()
		}
		from = measure.Usable(from)
		if from.IsEmpty() {
			continue
		}
		if few := f.those(g, measure.ByAddress(from, family, sample, f.seed), want); len(few.sources) == 0 {
			continue
		}
		all := f.those(g, measure.ByAddress(from, family, f.sources, f.seed), want)
		if len(all.sources) > len(best.sources) {
			best = all
		}
		if len(best.sources) > f.sources/2 {
			break
		}
	}
	return best, len(best.sources) > 0
}

// those are the sources that are treated as is wanted.
func (f *finder) those(g guess, sources []netip.Addr, want wanted) found {
	out := found{guess: g}
	for _, a := range sources {
		p := f.packet(g, a)
		if reference.Own(f.Facts, a) {
			continue
		}
		path := reference.Follow(f.Resolved, p, f.way(g.to))
		if !want(p, path) {
			continue
		}
		if len(out.sources) == 0 {
			out.path = path
		}
		out.sources = append(out.sources, a)
	}
	return out
}

func (f *finder) packet(g guess, from netip.Addr) packet.Packet {
	p := packet.Packet{
		In: g.in, Source: from, Destination: g.to, Protocol: g.protocol, SourcePort: measure.SourcePort, Port: g.port,
		HopLimit: 64, Owner: -1,
	}
	if g.protocol == packet.TCP {
		p.Flags = packet.SYN
	}
	return p
}

func (f *finder) way(to netip.Addr) packet.Way {
	if reference.Own(f.Facts, to) {
		return packet.In
	}
	return packet.Through
}

// side is the addresses that a side of a rule means at a device.
func (f *finder) side(who *policy.Who, device string) addrset.Set {
	if who == nil {
		return addrset.All()
	}
	var out addrset.Set
	for _, item := range who.Items {
		zone, set := f.Zones[item.Name], f.Sets[item.Name]
		switch {
		case item.Name == "":
			out = out.Union(addrset.Of(item.Literal))
		case zone != nil && len(zone.Interfaces) > 0 && !zone.HasInterface(device):
		case zone != nil && !zone.HasNetworks:
			out = addrset.All()
		case zone != nil:
			out = out.Union(zone.Networks)
		case set != nil:
			out = out.Union(set.Addresses)
		}
	}
	if who.Not {
		return out.Complement()
	}
	return out
}

// behind is who sends by a device: its networks, or of the first all that are not
// behind another one.
func (f *finder) behind(device string) addrset.Set {
	others := addrset.Set{}
	for i, d := range f.devices {
		networks := addrset.FromPrefixes(d.Networks...)
		if d.Name == device && i > 0 {
			return networks
		}
		others = others.Union(networks)
	}
	return others.Complement()
}

// through are the devices that a zone is about.
func (f *finder) through(zone *policy.Word) []string {
	var out []string
	for _, d := range f.devices {
		if zone == nil || len(f.Zones[zone.Text].Interfaces) == 0 || f.Zones[zone.Text].HasInterface(d.Name) {
			out = append(out, d.Name)
		}
	}
	return out
}

// service is what a packet asks for.
type service struct {
	protocol uint8
	port     uint16
}

// someService is asked for where a rule is about any.
var someService = service{packet.TCP, 443}

// services are some of a rule's, those of TCP first: all ports that it names by
// themselves, the first of each range.
func services(refs []policy.ServiceRef) []service {
	if len(refs) == 0 {
		return []service{someService}
	}
	var out []service
	for _, protocol := range []uint8{packet.TCP, packet.UDP} {
		for _, ref := range refs {
			for _, m := range ref.Matches {
				switch {
				case m.Any && protocol == packet.TCP:
					out = append(out, someService)
				case m.Protocol != protocol:
				case len(m.Ports) == 0:
					out = append(out, service{protocol, someService.port})
				default:
					for _, r := range m.Ports {
						out = append(out, service{protocol, r.From})
					}
				}
			}
		}
	}
	return out[:min(len(out), mostAddresses)]
}

// own are the host's addresses, those of a device first.
func (f *finder) own(device string) []netip.Addr {
	var here, elsewhere []netip.Addr
	for _, i := range f.Facts.Interfaces {
		for _, p := range i.InOrder() {
			switch a := p.Addr(); {
			case a.IsLoopback() || a.IsLinkLocalUnicast():
			case i.Name == device:
				here = append(here, a)
			default:
				elsewhere = append(elsewhere, a)
			}
		}
	}
	return append(here, elsewhere...)
}

// inputs are guesses about what comes to the host by rules that are meant; turned
// takes who is not in a rule's from.
func (f *finder) inputs(turned bool, meant func(*policy.Rule) bool) iter.Seq[guess] {
	return func(yield func(guess) bool) {
		if f.Policy.Input == nil {
			return
		}
		for _, rule := range f.Policy.Input.Rules {
			if !meant(rule) || turned && rule.From == nil {
				continue
			}
			for _, device := range f.through(rule.In) {
				from := f.side(rule.From, device)
				if turned {
					from = from.Complement()
				}
				for _, to := range f.own(device) {
					if rule.To != nil && !f.names(rule.To, to) {
						continue
					}
					for _, s := range services(rule.Services) {
						if !yield(guess{device, from.Intersect(f.behind(device)), to, s.protocol, s.port}) {
							return
						}
					}
				}
			}
		}
	}
}

// names says whether a side names an address, whatever the device.
func (f *finder) names(who *policy.Who, a netip.Addr) bool {
	return slices.ContainsFunc(f.devices, func(d measure.Device) bool { return f.side(who, d.Name).Contains(a) })
}

// asked are guesses about services at the host's addresses, from a set.
func (f *finder) asked(from addrset.Set, what ...service) iter.Seq[guess] {
	return func(yield func(guess) bool) {
		for _, d := range f.devices {
			for _, to := range f.own(d.Name) {
				for _, s := range what {
					if !yield(guess{d.Name, from.Intersect(f.behind(d.Name)), to, s.protocol, s.port}) {
						return
					}
				}
			}
		}
	}
}

// forwards are guesses about what goes through the host by rules that allow.
func (f *finder) forwards() iter.Seq[guess] {
	return func(yield func(guess) bool) {
		var rules []*policy.Rule
		if f.Policy.Forward != nil {
			rules = slices.Clone(f.Policy.Forward.Rules)
		}
		rules = append(rules, &policy.Rule{Action: policy.Allow}) // what the default allows
		for _, rule := range rules {
			if rule.Action != policy.Allow {
				continue
			}
			for _, in := range f.through(rule.In) {
				from := f.side(rule.From, in).Intersect(f.behind(in))
				for _, out := range f.through(rule.Out) {
					if in == out {
						continue
					}
					for _, to := range f.some(f.side(rule.To, out).Intersect(f.behind(out))) {
						for _, s := range services(rule.Services) {
							if !yield(guess{in, from, to, s.protocol, s.port}) {
								return
							}
						}
					}
				}
			}
		}
	}
}

// examples are addresses for documentation (RFC 5737, RFC 3849), for whoever is somewhere
// outside.
var examples = []netip.Addr{
	netip.MustParseAddr("192.0.2.80"), netip.MustParseAddr("203.0.113.80"), netip.MustParseAddr("2001:db8:4d::80"),
}

// some are a few addresses of a set that are not the host's.
func (f *finder) some(s addrset.Set) []netip.Addr {
	var own addrset.Builder
	for _, a := range f.own("") {
		own.AddAddr(a)
	}
	s = measure.Usable(s.Difference(own.Set()))
	var out []netip.Addr
	for _, a := range examples {
		if s.Contains(a) {
			out = append(out, a)
		}
	}
	for _, family := range []addrset.Family{addrset.IPv4, addrset.IPv6} {
		if family == addrset.IPv4 && s.Has4() || family == addrset.IPv6 && s.Has6() {
			out = append(out, measure.ByAddress(s, family, 3, f.seed)...)
		}
	}
	return out
}
