package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/link"
)

// Trip is a packet that asks routing for its way.
type Trip struct {
	Source, Destination netip.Addr
	In                  string // device that it comes in by; "": the host sends it
	Mark                uint32
	Protocol            uint8
	SourcePort, Port    uint16
	User                int64 // that sends it, -1: none
}

// Leads is what routing does with a packet.
type Leads string

// Where routing leads a packet.
const (
	Here    Leads = "here"    // to this host itself
	Onward  Leads = "onward"  // out by a device
	Nowhere Leads = "nowhere" // it is dropped, or answered with an ICMP error
	Unknown Leads = "unknown" // what is known of the host does not say
)

// Way is the answer of routing. Out has several devices where the kernel
// chooses by a hash of the flow, or by what is not known here.
type Way struct {
	Leads Leads
	Out   []string
	Why   string // by which route, or why it leads nowhere or is not known
}

// loopback is the device by which the host talks to itself. What comes in by it keeps
// the route by which it was sent, and is not asked again (skb_valid_dst in
// net/ipv4/ip_input.c).
const loopback = "lo"

// Router answers where routing leads a packet.
type Router func(Trip) Way

// Route answers by the rules and routes that the facts hold; by addresses and
// default routes alone where they hold none, which leaves more unknown.
func (f Facts) Route(t Trip) Way {
	switch {
	case !f.Known:
		return Way{Leads: Unknown, Why: "nothing is known of the host"}
	case t.In == loopback:
		return Way{Leads: Here, Out: []string{loopback}}
	case f.Routing == nil:
		return f.guess(t)
	case f.Routing.Partial:
		return Way{Leads: Unknown, Why: "the host has more routes than its facts hold"}
	}
	w := f.lookUp(t, f.vrfOf(t.In))
	if t.In == "" || w.Leads == Nowhere || w.Leads == Unknown {
		return w
	}
	if w.Leads == Here {
		if why := f.refusesSource(t, ""); why != "" {
			return Way{Leads: Nowhere, Why: why}
		}
		return w
	}
	var refused string
	w.Out = slices.DeleteFunc(slices.Clone(w.Out), func(out string) bool {
		why := f.refusesSource(t, out)
		refused = cmp.Or(refused, why)
		return why != ""
	})
	if len(w.Out) == 0 {
		return Way{Leads: Nowhere, Why: refused}
	}
	return w
}

// Kernel answers by asking the kernel of this host, in the calling thread's network
// namespace, for which the facts were read.
func (f Facts) Kernel(t Trip) Way {
	l := link.Lookup{
		Source: t.Source, Destination: t.Destination, Mark: t.Mark, Protocol: t.Protocol,
		SourcePort: t.SourcePort, Port: t.Port, User: t.User,
	}
	if t.In == loopback {
		return f.Route(t)
	}
	if t.In != "" {
		i := slices.IndexFunc(f.Interfaces, func(i Interface) bool { return i.Name == t.In })
		if i < 0 {
			return f.Route(t) // a device that is not there has no answer but that of the tables
		}
		l.In = f.Interfaces[i].Index
	}
	found, err := link.Ask(l)
	if err != nil {
		return Way{Leads: Unknown, Why: err.Error()}
	}
	switch {
	case found.Error == unix.EINVAL && t.In != "" || found.Error == unix.EXDEV:
		return Way{Leads: Nowhere, Why: fmt.Sprintf("the kernel takes no packet from %s in by %s (rp_filter, or no valid source), or has a blackhole route for it", t.Source, t.In)}
	case found.Error == unix.EINVAL:
		return Way{Leads: Nowhere, Why: "the route to " + t.Destination.String() + " is a blackhole"}
	case found.Error == unix.EACCES:
		return Way{Leads: Nowhere, Why: "the route to " + t.Destination.String() + " prohibits it"}
	case found.Error != 0:
		return f.noRoute(t)
	case found.Type == unix.RTN_LOCAL, found.Type == unix.RTN_ANYCAST, t.In != "" && (found.Type == unix.RTN_BROADCAST || found.Type == unix.RTN_MULTICAST):
		return Way{Leads: Here, Out: []string{"lo"}}
	}
	w := Way{Leads: Onward}
	for _, i := range f.Interfaces {
		if slices.Contains(found.Hops, i.Index) {
			w.Out = append(w.Out, i.Name)
		}
	}
	if w.Out == nil {
		return Way{Leads: Unknown, Why: "the device of the route to " + t.Destination.String() + " is not known"}
	}
	if len(w.Out) > 1 {
		w.Why = "a hash of the flow chooses among the next hops of its route"
	} else if by := f.Route(t); slices.Equal(by.Out, w.Out) {
		w.Why = by.Why
	}
	return w
}

// noRoute is the answer where the kernel finds none.
func (f Facts) noRoute(t Trip) Way {
	none := Way{Leads: Nowhere, Why: fmt.Sprintf("there is no route to %s", t.Destination)}
	if t.In == "" {
		return none
	}
	switch w := f.Route(t); {
	case w.Leads != Onward:
		return none
	case map[bool]bool{true: f.Forwarding4, false: f.Forwarding6}[t.Destination.Is4()]:
		return Way{Leads: Nowhere, Why: "this host does not forward what comes in by " + t.In}
	default:
		return w // nothing is forwarded at all, which is no matter of routes
	}
}

// guess is the way by addresses and default routes alone.
func (f Facts) guess(t Trip) Way {
	const older = "the facts hold no routes: write them again with sluice facts --json"
	best, name := -1, ""
	for _, i := range f.Interfaces {
		for _, p := range i.Addresses {
			if p.Addr() == t.Destination {
				return Way{Leads: Here, Out: []string{"lo"}}
			}
			if p.Bits() > best && p.Masked().Contains(t.Destination) {
				best, name = p.Bits(), i.Name
			}
		}
	}
	switch {
	case t.Destination.IsLoopback(), slices.ContainsFunc(f.Local, func(p netip.Prefix) bool { return p.Contains(t.Destination) }):
		return Way{Leads: Here, Out: []string{"lo"}}
	case name != "":
		return Way{Leads: Onward, Out: []string{name}}
	case len(f.DefaultRoute) == 1:
		return Way{Leads: Onward, Out: f.DefaultRoute}
	case len(f.DefaultRoute) > 1:
		return Way{Leads: Onward, Out: f.DefaultRoute, Why: older}
	}
	return Way{Leads: Unknown, Why: older}
}

// defaultRules are those of a kernel without policy routing.
var defaultRules = []RoutingRule{{Action: "lookup", Table: 255}, {Action: "lookup", Table: 254}, {Action: "lookup", Table: 253}}

// lookUp goes through the rules as fib_rules_lookup does (net/core/fib_rules.c).
// vrf is the table of the packet's VRF, 0 where it is in none.
func (f Facts) lookUp(t Trip, vrf uint32) Way {
	six := t.Destination.Is6()
	var rules []RoutingRule
	for _, r := range f.Routing.Rules {
		if r.IPv6 == six {
			rules = append(rules, r)
		}
	}
	if rules == nil {
		rules = defaultRules
	}
	after := uint32(0)
	for _, r := range rules {
		if r.Priority < after || !r.fits(t, vrf != 0) {
			continue
		}
		if r.Strange {
			return Way{Leads: Unknown, Why: fmt.Sprintf("rule %d of ip rule asks what is not known of the packet", r.Priority)}
		}
		switch r.Action {
		case "goto":
			after = r.Goto
			continue
		case "blackhole", "unreachable", "prohibit":
			return Way{Leads: Nowhere, Why: fmt.Sprintf("rule %d of ip rule says %s", r.Priority, r.Action)}
		case "lookup":
		default:
			continue
		}
		table := r.Table
		if r.VRF {
			table = vrf
		}
		routes := f.inTable(table, t)
		if len(routes) == 0 || routes[0].Type == routeThrow {
			continue
		}
		if routes[0].Type == "" && r.SuppressLength != nil && routes[0].To.Bits() <= *r.SuppressLength {
			continue
		}
		return wayOf(routes)
	}
	return Way{Leads: Nowhere, Why: fmt.Sprintf("there is no route to %s", t.Destination)}
}

// fits says whether a rule holds for a packet (fib_rule_match, fib4_rule_match,
// fib6_rule_match).
func (r RoutingRule) fits(t Trip, inVRF bool) bool {
	in := t.In
	if in == "" {
		in = "lo" // what the host sends (LOOPBACK_IFINDEX)
	}
	source := func() bool { return t.Source.IsValid() && r.From.Contains(t.Source) }
	between := func(p *[2]uint16, port uint16) bool { return p == nil || p[0] <= port && port <= p[1] }
	is := (r.In == "" || r.In == in) &&
		r.Out == "" && // no socket is bound to a device
		(r.Mark == nil || (t.Mark^r.Mark.Value)&r.Mark.Mask == 0) &&
		(!r.VRF || inVRF) &&
		(r.Users == nil || t.User >= 0 && t.In == "" && int64(r.Users[0]) <= t.User && t.User <= int64(r.Users[1])) &&
		(!r.From.IsValid() || r.From.Bits() == 0 || source()) &&
		(!r.To.IsValid() || r.To.Contains(t.Destination)) &&
		r.TOS == 0 && (r.Protocol == 0 || r.Protocol == t.Protocol) &&
		between(r.SourcePorts, t.SourcePort) && between(r.Ports, t.Port)
	return is != r.Not
}

// inTable is the routes of a table that a packet takes: those of the longest
// prefix with the least metric. There are several where the kernel chooses
// by what is not known here (routers of IPv6 that advertise themselves).
func (f Facts) inTable(table uint32, t Trip) (best []Route) {
	better := func(a, b Route) int {
		return cmp.Or(cmp.Compare(b.To.Bits(), a.To.Bits()), cmp.Compare(a.Metric, b.Metric))
	}
	alone := t.In != "" && (t.Destination.IsLinkLocalUnicast() || t.Destination.IsMulticast()) && t.Destination.Is6()
	for _, r := range f.Routing.Routes {
		if r.Table != table || !r.To.Contains(t.Destination) || r.TOS != 0 {
			continue
		}
		if len(r.Hops) > 0 && r.Type == "" {
			r.Hops = slices.DeleteFunc(slices.Clone(r.Hops), func(h Hop) bool { return h.Dead || alone && h.Out != t.In })
			if len(r.Hops) == 0 {
				continue
			}
		}
		switch {
		case len(best) == 0 || better(r, best[0]) < 0:
			best = []Route{r}
		case better(r, best[0]) == 0 && r.To.Addr().Is6() && r.Type == "" && best[0].Type == "":
			best = append(best, r)
		}
	}
	return best
}

func wayOf(routes []Route) Way {
	r := routes[0]
	switch r.Type {
	case routeLocal, "broadcast":
		return Way{Leads: Here, Out: []string{"lo"}, Why: r.String()}
	case "blackhole", "unreachable", "prohibit":
		return Way{Leads: Nowhere, Why: "the route is " + r.String()}
	}
	w := Way{Leads: Onward, Why: r.String()}
	for _, r := range routes {
		for _, h := range r.Hops {
			if h.Out != "" {
				w.Out = append(w.Out, h.Out)
			}
		}
	}
	slices.Sort(w.Out)
	if w.Out = slices.Compact(w.Out); len(w.Out) == 0 {
		return Way{Leads: Unknown, Why: "the device of the route is not known: " + r.String()}
	}
	if len(w.Out) > 1 {
		w.Why = "a hash of the flow chooses among the next hops of its route"
	}
	return w
}

// vrfOf is the table of the VRF that a device is in, 0 where it is in none.
func (f Facts) vrfOf(device string) uint32 {
	for _, i := range f.Interfaces {
		if i.Name == device && i.VRF != "" {
			device = i.VRF
		}
	}
	for _, i := range f.Interfaces {
		if i.Name == device {
			return i.VRFTable
		}
	}
	return 0
}

// refusesSource says why the kernel takes no packet from its source in by its
// device (fib_validate_source, IPv4 alone), where it leaves by out or is for this
// host; "" where it does. The way back is looked up for a packet that comes in by out.
func (f Facts) refusesSource(t Trip, out string) string {
	i := slices.IndexFunc(f.Interfaces, func(i Interface) bool { return i.Name == t.In })
	if t.Destination.Is6() || i < 0 || !t.Source.IsValid() || t.Source.IsUnspecified() {
		return ""
	}
	back := f.lookUp(Trip{Source: t.Destination, Destination: t.Source, In: out, Protocol: t.Protocol, SourcePort: t.Port, Port: t.SourcePort, User: -1}, f.vrfOf(t.In))
	switch filter := f.Interfaces[i].ReversePath; {
	case back.Leads == Here && t.In != "lo":
		return fmt.Sprintf("the kernel takes no packet in by %s whose source %s is an address of the host itself", t.In, t.Source)
	case filter == 1 && back.Leads == Onward && !slices.Contains(back.Out, t.In):
		return fmt.Sprintf("rp_filter is strict on %s, and the route back to %s is by %s", t.In, t.Source, back.Out[0])
	case filter != 0 && back.Leads == Nowhere:
		return fmt.Sprintf("rp_filter is on for %s, and there is no route back to %s", t.In, t.Source)
	}
	return ""
}
