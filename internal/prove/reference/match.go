package reference

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
)

// fits says whether a packet fits all words of a rule; why is the first word
// that it does not fit, where steps are wanted.
func (w *walk) fits(rule *policy.Rule, p packet.Packet) (why string, ok bool) {
	if rule.Published {
		tracked := p.State != packet.Untracked && p.State != packet.Invalid
		if !p.DNAT || !tracked {
			return "the connection did not arrive by DNAT", false
		}
		p.Port, p.Destination = p.Original.Port, p.Original.Destination
	}
	switch {
	case rule.Family != 0 && rule.Family != p.Family():
		return w.because("it is for IPv%d", rule.Family), false
	case len(rule.Services) > 0 && !serviceIn(rule.Services, p):
		return w.because("it is not for %s", serviceOf(p)), false
	case rule.In != nil && !w.through(rule.In.Text, p.In, p.InRoute):
		return w.because("the packet does not come in by %s", rule.In.Text), false
	case rule.Out != nil && !w.through(rule.Out.Text, p.Out, p.OutRoute):
		return w.because("the packet does not leave by %s", rule.Out.Text), false
	case !w.who(rule.From, p.Source, p.In, p.InRoute):
		return w.because("%s%s is %s", p.Source, w.byDevice(rule.From, "in", p.In), w.outside(rule.From)), false
	case !w.who(rule.To, p.Destination, p.Out, p.OutRoute):
		return w.because("%s%s is %s", p.Destination, w.byDevice(rule.To, "out", p.Out), w.outside(rule.To)), false
	case len(rule.Users) > 0 && !w.by(rule.Users, p.Owner):
		return "another user sends the packet", false
	case !rule.Until.IsZero() && p.Moment() >= rule.Until.Unix():
		return w.because("it ended at %s", rule.Until.Format(time.RFC3339)), false
	}
	return "", true
}

func (w *walk) because(format string, args ...any) string {
	if w.quiet {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func (w *walk) by(users []policy.Word, owner int64) bool {
	return owner >= 0 && slices.ContainsFunc(users, func(u policy.Word) bool { return int64(w.Users[u.Text]) == owner })
}

// serviceIn says whether a packet is of one of the services, by its destination
// port.
func serviceIn(services []policy.ServiceRef, p packet.Packet) bool {
	return anyMatch(services, func(m policy.ServiceMatch) bool { return onWire(m, p) })
}

// portsIn is serviceIn for rules that look at the ports of the packet's protocol:
// "[tcp/80, tcp]" does not, since it is all of TCP.
func portsIn(services []policy.ServiceRef, p packet.Packet) bool {
	return serviceIn(services, p) && !anyMatch(services, func(m policy.ServiceMatch) bool { return len(m.Ports) == 0 && onWire(m, p) })
}

func anyMatch(services []policy.ServiceRef, is func(policy.ServiceMatch) bool) bool {
	return slices.ContainsFunc(services, func(s policy.ServiceRef) bool { return slices.ContainsFunc(s.Matches, is) })
}

func onWire(m policy.ServiceMatch, p packet.Packet) bool {
	switch {
	case m.Any:
		return true
	case m.ICMP != nil:
		return p.Protocol == packet.ICMP && int(p.ICMPType) == m.ICMP.V4 || p.Protocol == packet.ICMPv6 && int(p.ICMPType) == m.ICMP.V6
	case m.Protocol == packet.ICMP && p.Protocol == packet.ICMPv6:
		return true
	case m.Protocol != p.Protocol:
		return false
	}
	return len(m.Ports) == 0 || slices.ContainsFunc(m.Ports, func(r policy.PortRange) bool { return r.From <= p.Port && p.Port <= r.To })
}

// who asks for a side of a packet: its address and, of zones, its interface.
func (w *walk) who(side *policy.Who, a netip.Addr, device string, route packet.Answer) bool {
	if side == nil {
		return true
	}
	found := false
	for _, item := range side.Items {
		if w.isOf(item, a, device, route) {
			found = true
			break
		}
	}
	return found != side.Not
}

// isOf says whether an address, at an interface, is of one set, zone or literal.
func (w *walk) isOf(item policy.WhoItem, a netip.Addr, device string, route packet.Answer) bool {
	if zone := w.Zones[item.Name]; zone != nil && len(zone.Interfaces) > 0 && !w.through(item.Name, device, route) {
		return false
	}
	_, in := w.inItem(item, a)
	return in
}

// inItem says whether a set, zone or literal holds an address, and by which
// range. Zones hold every address where they name no networks.
func (w *walk) inItem(item policy.WhoItem, a netip.Addr) (addrset.Range, bool) {
	if item.Name == "" {
		in := item.Literal.Contains(a)
		if in {
			w.note(Membership{Address: a, In: true, Element: item.Literal})
		}
		return item.Literal, in
	}
	addresses := addrset.Set{}
	if zone := w.Zones[item.Name]; zone != nil {
		if !zone.HasNetworks {
			return addrset.Range{}, true
		}
		addresses = zone.Networks
	} else if set := w.Sets[item.Name]; set != nil {
		addresses = set.Addresses
		if set.Others && w.packet.Filled.Fills(item.Name, a) {
			addresses = addrset.Of(addrset.Range{From: a, To: a})
		}
	}
	in := addresses.Contains(a)
	var element addrset.Range
	if in && !w.quiet {
		element, _ = addresses.Find(a)
	}
	w.note(Membership{Set: item.Name, Address: a, In: in, Element: element})
	return element, in
}

func (w *walk) note(m Membership) {
	if !w.quiet {
		w.asked = append(w.asked, m)
	}
}

// through asks for a zone's interfaces alone; a zone without interfaces is on
// every one.
func (w *walk) through(name, device string, route packet.Answer) bool {
	zone := w.Zones[name]
	switch {
	case len(zone.Interfaces) == 0:
		return true
	case device == "":
		return false
	case route == packet.Unknown || !zone.FollowsRoute():
		return zone.HasInterface(device)
	}
	return route == packet.Yes || zone.Names(device)
}

// outside says that an address is not what a side of a rule names.
func (w *walk) outside(side *policy.Who) string {
	var items []string
	for _, item := range side.Items {
		items = append(items, itemText(item))
	}
	text := strings.Join(items, ", ")
	if side.Not {
		return "in " + text
	}
	return "not in " + text
}

// byDevice says by which interface a side is looked at, where zones are asked.
func (w *walk) byDevice(side *policy.Who, way, name string) string {
	zone := func(i policy.WhoItem) bool { return w.Zones[i.Name] != nil && len(w.Zones[i.Name].Interfaces) > 0 }
	if w.quiet || !slices.ContainsFunc(side.Items, zone) {
		return ""
	}
	if name == "" {
		return " " + way + " by no interface"
	}
	return " " + way + " by " + name
}

func itemText(item policy.WhoItem) string {
	if item.Name != "" {
		return item.Name
	}
	return item.Literal.String()
}

// serviceOf is a packet's service as a policy writes it.
func serviceOf(p packet.Packet) string {
	name := packet.PortProtocolName(p.Protocol)
	switch {
	case name != "":
		return fmt.Sprintf("%s/%d", name, p.Port)
	case p.Protocol == packet.ICMP:
		return fmt.Sprintf("icmp type %d", p.ICMPType)
	case p.Protocol == packet.ICMPv6:
		return fmt.Sprintf("icmpv6 type %d", p.ICMPType)
	}
	return fmt.Sprintf("proto/%d", p.Protocol)
}
