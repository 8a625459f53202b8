package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sluice/internal/system/kernel/link"
)

// Routing is the rules and routes by which the kernel finds the way of a packet.
type Routing struct {
	Rules  []RoutingRule `json:"rules"` // of each family in the order in which they are asked
	Routes []Route       `json:"routes"`
	// Partial: there are more routes than are kept, so that nothing can be said of
	// the way of a packet.
	Partial bool `json:"partial,omitempty"`
}

// mostRoutes is how many routes facts hold: those of a host, not those of a
// router that has the internet's.
const mostRoutes = 4096

// RoutingRule is one rule of policy routing (ip-rule(8)). What is left out is not
// asked of a packet.
type RoutingRule struct {
	IPv6     bool         `json:"ipv6,omitempty"`
	Priority uint32       `json:"priority"`
	Not      bool         `json:"not,omitempty"` // it holds for what does not fit the rest
	From     netip.Prefix `json:"from,omitzero"`
	To       netip.Prefix `json:"to,omitzero"`
	In       string       `json:"in,omitempty"` // "lo": what the host itself sends
	Out      string       `json:"out,omitempty"`
	Mark     *Mark        `json:"mark,omitempty"`
	TOS      uint8        `json:"tos,omitempty"`
	Protocol uint8        `json:"protocol,omitempty"`
	// Ports and users are from the first to the second, both included.
	SourcePorts *[2]uint16 `json:"source-ports,omitempty"`
	Ports       *[2]uint16 `json:"ports,omitempty"`
	Users       *[2]uint32 `json:"users,omitempty"`
	// Strange: it asks what nobody knows of a packet, such as the group of a device.
	Strange bool `json:"strange,omitempty"`

	Action string `json:"action"`          // "lookup", "goto", "nop", "blackhole", "unreachable", "prohibit"
	Table  uint32 `json:"table,omitempty"` // that is looked up: 255 local, 254 main, 253 default
	Goto   uint32 `json:"goto,omitempty"`  // priority of the rule that is asked next
	VRF    bool   `json:"vrf,omitempty"`   // the table is that of the packet's VRF
	// SuppressLength: routes found with at most so long a prefix do not count.
	SuppressLength *int `json:"suppress-length,omitempty"`
}

// Mark is a mark of packets that a rule asks for.
type Mark struct {
	Value uint32 `json:"value"`
	Mask  uint32 `json:"mask"`
}

// Route is one route of one routing table.
type Route struct {
	To     netip.Prefix `json:"to"`
	Table  uint32       `json:"table"`
	Type   string       `json:"type,omitempty"` // "" is unicast; "local", "broadcast", "blackhole", "unreachable", "prohibit", "throw"
	Metric uint32       `json:"metric,omitempty"`
	TOS    uint8        `json:"tos,omitempty"`
	Hops   []Hop        `json:"hops,omitempty"` // several: a hash of the flow chooses
}

// Hop is one way that a route leads.
type Hop struct {
	Via  netip.Addr `json:"via,omitzero"`
	Out  string     `json:"out,omitempty"`
	Dead bool       `json:"dead,omitempty"` // its device is down
}

// FactsVersion is the version of facts that this program writes. It reads those
// of every version up to it; facts without a version hold no routing.
const FactsVersion = 2

// ReadRouting reads the rules and routes of the calling thread's network
// namespace, which only those need who ask where a packet goes.
func (f *Facts) ReadRouting() {
	names := map[int]string{}
	for _, i := range f.Interfaces {
		names[i.Index] = i.Name
	}
	var r Routing
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := link.Rules(family)
		if err != nil {
			f.unread("routing", err)
			return
		}
		for _, rule := range rules {
			r.Rules = append(r.Rules, routingRule(rule))
		}
	}
	routes, whole, err := link.Routes(mostRoutes)
	if err != nil {
		f.unread("routing", err)
		return
	}
	if r.Partial = !whole; r.Partial {
		routes = nil
		f.unread("routes", fmt.Errorf("there are more than %d", mostRoutes))
	}
	for _, route := range routes {
		out := Route{To: route.To, Table: route.Table, Type: routeTypes[route.Type], Metric: route.Metric, TOS: route.TOS}
		if out.Type == "multicast" {
			continue // nobody asks about multicast
		}
		for _, hop := range route.Hops {
			if out.Type != "" && out.Type != routeLocal && out.Type != "broadcast" {
				break // those that lead nowhere name loopback in IPv6
			}
			out.Hops = append(out.Hops, Hop{Via: hop.Via, Out: names[hop.Index], Dead: hop.Dead})
		}
		r.Routes = append(r.Routes, out)
	}
	f.Routing, f.Version = &r, FactsVersion
	f.readReversePath(os.DirFS("/proc/sys/net/ipv4/conf"))
}

// readReversePath reads what the kernel asks of the sources of IPv4 packets: the
// stricter of what is set for all devices and for the one (ip-sysctl.rst, rp_filter).
func (f *Facts) readReversePath(conf fs.FS) {
	of := func(name string) int {
		text, err := fs.ReadFile(conf, name+"/rp_filter")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.unread("rp_filter", err)
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
	all := of("all")
	for i := range f.Interfaces {
		f.Interfaces[i].ReversePath = max(all, of(f.Interfaces[i].Name))
	}
}

// From include/uapi/linux/fib_rules.h, FR_ACT_*.
var ruleActions = map[uint8]string{1: "lookup", 2: "goto", 3: "nop", 6: "blackhole", 7: "unreachable", 8: "prohibit"}

var routeTypes = map[uint8]string{
	unix.RTN_LOCAL: routeLocal, unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: routeLocal, unix.RTN_MULTICAST: "multicast",
	unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: routeThrow,
}

const (
	routeLocal = "local"
	routeThrow = "throw"
)

func routingRule(r link.Rule) RoutingRule {
	out := RoutingRule{
		IPv6: r.Family == unix.AF_INET6, Priority: r.Priority, Not: r.Not, From: r.From, To: r.To, In: r.In, Out: r.Out,
		TOS: r.TOS, Protocol: r.Protocol, Users: r.Users, Strange: r.Tunnel != 0 || r.SuppressesGroups,
		Action: ruleActions[r.Action], Goto: r.Goto, VRF: r.VRF,
	}
	if r.Mask != 0 {
		out.Mark = &Mark{r.Mark, r.Mask}
	}
	if r.SourcePorts != [2]uint16{} {
		out.SourcePorts = &r.SourcePorts
	}
	if r.Ports != [2]uint16{} {
		out.Ports = &r.Ports
	}
	if r.SuppressLength >= 0 {
		out.SuppressLength = &r.SuppressLength
	}
	if out.Action == "lookup" && !r.VRF {
		out.Table = r.Table
	}
	return out
}

// Marks are the marks that rules tell apart, no mark first.
func (r *Routing) Marks(ipv6 bool) []uint32 {
	marks := []uint32{0}
	if r == nil {
		return marks
	}
	for _, rule := range r.Rules {
		if rule.IPv6 == ipv6 && rule.Mark != nil && !slices.Contains(marks, rule.Mark.Value) {
			marks = append(marks, rule.Mark.Value)
		}
	}
	return marks
}

// String reads as "198.51.100.0/24 by eth1 (table 100)".
func (r Route) String() string {
	var b strings.Builder
	if r.Type != "" {
		b.WriteString(r.Type + " ")
	}
	if r.To.Bits() == 0 {
		b.WriteString("default")
	} else {
		b.WriteString(r.To.String())
	}
	for i, h := range r.Hops {
		if i > 0 {
			b.WriteString(" or")
		}
		if h.Via.IsValid() {
			fmt.Fprintf(&b, " via %s", h.Via)
		}
		if h.Out != "" {
			fmt.Fprintf(&b, " by %s", h.Out)
		}
	}
	if r.Metric != 0 {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	fmt.Fprintf(&b, " (table %s)", tableName(r.Table))
	return b.String()
}

// String reads as "100: from 10.0.0.0/8 mark 0x1/0xff lookup 100".
func (r RoutingRule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", r.Priority)
	add := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	add(r.IPv6, "ipv6")
	add(r.Not, "not")
	add(r.From.IsValid(), "from %s", r.From)
	add(r.To.IsValid(), "to %s", r.To)
	add(r.In != "", "in %s", r.In)
	add(r.Out != "", "out %s", r.Out)
	if r.Mark != nil {
		add(true, "mark %#x/%#x", r.Mark.Value, r.Mark.Mask)
	}
	add(r.TOS != 0, "tos %#x", r.TOS)
	add(r.Protocol != 0, "protocol %d", r.Protocol)
	if r.SourcePorts != nil {
		add(true, "from ports %d-%d", r.SourcePorts[0], r.SourcePorts[1])
	}
	if r.Ports != nil {
		add(true, "to ports %d-%d", r.Ports[0], r.Ports[1])
	}
	if r.Users != nil {
		add(true, "users %d-%d", r.Users[0], r.Users[1])
	}
	switch {
	case r.VRF:
		b.WriteString(" lookup the table of the VRF")
	case r.Action == "lookup":
		fmt.Fprintf(&b, " lookup %s", tableName(r.Table))
	case r.Action == "goto":
		fmt.Fprintf(&b, " goto %d", r.Goto)
	default:
		b.WriteString(" " + r.Action)
	}
	if r.SuppressLength != nil {
		add(true, "except for prefixes up to /%d", *r.SuppressLength)
	}
	return b.String()
}

// tableName is the name of a routing table where it has one.
func tableName(table uint32) string {
	if name, known := map[uint32]string{255: "local", 254: "main", 253: "default"}[table]; known {
		return name
	}
	return strconv.FormatUint(uint64(table), 10)
}
