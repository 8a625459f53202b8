package packetbench

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/lab/measure"
	"sluice/internal/language/policy"
	"sluice/internal/language/resolve"
)

// outer are the addresses of a lab on the device of its default route.
var outer = []netip.Prefix{netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8:0:1::1/64")}

// mostDevices and mostAddresses bound what a lab has of a policy with many zones
// and services; kinds are found among the first.
const (
	mostDevices   = 8
	mostAddresses = 16
)

// devicesOf makes the devices of a host that has the zones of a policy, that of the
// default route first.
func devicesOf(p *policy.Policy) []measure.Device {
	outside := outsideOf(p)
	devices := []measure.Device{{Name: "eth0", Addresses: outer}}
	if outside != nil {
		if name := nameOf(outside); name != "" {
			devices[0].Name = name
		}
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(devices, func(d measure.Device) bool { return d.Name == name })
	}
	for _, z := range p.Zones {
		name := nameOf(z)
		if z == outside || name == "" || name == "lo" || taken(name) || len(devices) == mostDevices {
			continue
		}
		d := measure.Device{Name: name}
		for _, r := range z.Networks {
			for _, n := range r.Range.Prefixes() {
				if len(d.Networks) < mostAddresses {
					d.Networks = append(d.Networks, n)
				}
			}
		}
		if len(d.Networks) == 0 {
			n := len(devices)
			d.Networks = []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(n), 0}), 24),
				netip.MustParsePrefix(fmt.Sprintf("2001:db8:77:%x::/64", n)),
			}
		}
		for _, n := range d.Networks {
			d.Addresses = append(d.Addresses, netip.PrefixFrom(within(n, 1), n.Bits()))
		}
		devices = append(devices, d)
	}
	if p.Forward != nil && len(devices) == 1 { // without zones there has to be another side
		devices = append(devices, measure.Device{
			Name: "eth1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.0.1/24"), netip.MustParsePrefix("2001:db8:77::1/64")},
			Networks: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("2001:db8:77::/64")},
		})
	}
	return devices
}

// outsideOf is the zone that the default route leaves by: the one that says so, the
// one that packets are masqueraded out of or redirected in, or of those with
// interfaces and without networks the only one, or the one with a usual name; nil
// where there is none.
func outsideOf(p *policy.Policy) *policy.Zone {
	var without []*policy.Zone
	for _, z := range p.Zones {
		if slices.ContainsFunc(z.Interfaces, func(w policy.Word) bool { return w.Text == resolve.DefaultRoute }) {
			return z
		}
		if len(z.Interfaces) > 0 && len(z.Networks) == 0 {
			without = append(without, z)
		}
	}
	for _, n := range p.NAT {
		for _, side := range []*policy.Word{n.Out, n.In} {
			for _, z := range p.Zones {
				if side != nil && z.Name == side.Text && len(z.Interfaces) > 0 {
					return z
				}
			}
		}
	}
	if len(without) == 1 {
		return without[0]
	}
	for _, z := range without {
		if slices.Contains(usual, z.Name) {
			return z
		}
	}
	return nil
}

var usual = []string{"wan", "internet", "world", "outside", "external", "public", "uplink"}

// nameOf is a device name that fits a zone's interfaces; "" where it names none.
func nameOf(z *policy.Zone) string {
	name := ""
	for _, w := range z.Interfaces {
		switch start, wild := strings.CutSuffix(w.Text, "*"); {
		case w.Text == resolve.DefaultRoute:
			return "eth0"
		case name != "":
		case wild && len(start) < 15:
			name = start + "0"
		case !wild:
			name = w.Text
		}
	}
	return name
}

// within is the address that has a place in a network, or its last one.
func within(n netip.Prefix, place byte) netip.Addr {
	bytes := n.Masked().Addr().AsSlice()
	if host := n.Addr().BitLen() - n.Bits(); host < 8 {
		place = min(place, 1<<host-1)
	}
	bytes[len(bytes)-1] |= place
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// ownOf are more addresses that the policy takes for the host's: those of services
// that bypass tracking, of rules of input, and of nat.
func ownOf(r *resolve.Resolved) []netip.Addr {
	var b addrset.Builder
	add := func(s addrset.Set) {
		for _, part := range []addrset.Set{s.Only4(), s.Only6()} {
			n := 0
			for e := range part.Each() {
				if n++; n > mostAddresses/2 {
					break
				}
				b.AddAddr(e.From)
			}
		}
	}
	who := func(w *policy.Who) {
		if w == nil || w.Not {
			return
		}
		for _, item := range w.Items {
			switch set := r.Sets[item.Name]; {
			case item.Name == "":
				add(addrset.Of(item.Literal))
			case set != nil && set.IsEndpoints():
				for _, e := range set.Endpoints { // many may be at one address
					b.AddAddr(e.Address.From)
				}
			case set != nil:
				add(set.Addresses)
			}
		}
	}
	for i := range r.Policy.Tracking.Bypass {
		who(r.Policy.Tracking.Bypass[i].To)
	}
	if r.Policy.Input != nil {
		for _, rule := range r.Policy.Input.Rules {
			who(rule.To)
		}
	}
	for _, n := range r.Policy.NAT {
		for _, on := range n.On {
			b.AddAddr(on.Range.From)
		}
		if n.As != nil {
			b.AddAddr(n.As.Range.From)
		}
	}
	var out []netip.Addr
	for e := range b.Set().Each() {
		for a := e.From; a.IsValid() && a.Compare(e.To) <= 0 && len(out) < 2*mostAddresses; a = a.Next() {
			out = append(out, a)
		}
	}
	return out
}
