package host

import (
	"fmt"
	"net/netip"

	"sluice/internal/system/kernel/attached"
	"sluice/internal/system/kernel/ruleset"
)

// Facts is what one host, in one network namespace, is at one moment. It is
// plain data: it survives a round trip through JSON, so that a policy can be
// compiled for another host from the file that "sluice facts --json" made there.
//
// Lists are sorted and never hold doubles, so that equal hosts give equal bytes.
type Facts struct {
	// Version is FactsVersion; 0 in facts that hold no routing.
	Version int `json:"version,omitempty"`
	// Known says that the rest was read from a host. Where it is false, nothing
	// is known and no finding may rest on what is missing here.
	Known bool `json:"known"`
	// Namespace is the name of the network namespace (ip-netns(8)), "" for the
	// host's own; a caller that was started inside of one may say "" as well.
	Namespace string `json:"namespace,omitempty"`

	Interfaces   []Interface `json:"interfaces,omitempty"`
	DefaultRoute []string    `json:"default-route,omitempty"` // interfaces that the default routes (IPv4 and IPv6, main table) leave by

	// Local is the prefixes of the local routing table: every address in them
	// is taken as the host's own, those of interfaces and those of routes of
	// type local.
	Local []netip.Prefix `json:"local,omitempty"`
	// NonLocalBind: programs may bind to addresses that the host does not have
	// (net.ipv4.ip_nonlocal_bind or its IPv6 twin), as where an address moves
	// between hosts.
	NonLocalBind bool `json:"non-local-bind"`

	EphemeralFrom uint16 `json:"ephemeral-from,omitempty"` // net.ipv4.ip_local_port_range, which IPv6 uses too
	EphemeralTo   uint16 `json:"ephemeral-to,omitempty"`   // inclusive
	// Forwarding4: what comes in by one device at the least is forwarded
	// (net.ipv4.ip_forward or net.ipv4.conf.DEVICE.forwarding).
	Forwarding4 bool `json:"forwarding4"`
	// Forwarding6: the same (net.ipv6.conf.all.forwarding or
	// net.ipv6.conf.DEVICE.force_forwarding).
	Forwarding6 bool `json:"forwarding6"`
	// ForwardingUnread: a parameter of those, or of NonLocalBind, could not be read,
	// so that what is off above may be on.
	ForwardingUnread bool `json:"forwarding-unread,omitempty"`

	// ForeignOutputNAT says that another tool has a NAT chain that looks at
	// output, in nftables or legacy iptables; one without rules counts, since
	// its owner may fill it at any time. Such a chain rewrites what the host
	// sends to itself, and needs tracking on loopback.
	ForeignOutputNAT bool           `json:"foreign-output-nat"`
	ForeignChains    []ForeignChain `json:"foreign-chains,omitempty"` // base chains of other tools
	Published        []Published    `json:"published,omitempty"`      // ports that foreign DNAT rules publish

	ConntrackMax     uint64 `json:"conntrack-max,omitempty"`     // entries, of the whole machine
	ConntrackBuckets uint64 `json:"conntrack-buckets,omitempty"` // of the whole machine
	ConntrackCount   uint64 `json:"conntrack-count,omitempty"`   // entries of this namespace
	MemoryBytes      uint64 `json:"memory-bytes,omitempty"`      // of the machine

	Resolvers  []netip.Addr `json:"resolvers,omitempty"` // name servers that the host itself asks
	SSHClients []SSHClient  `json:"ssh-peers,omitempty"`
	// OuterFlows carry the packets of those SSHClients who come through tunnels.
	OuterFlows []OuterFlow `json:"outer-flows,omitempty"`

	Askers []Asker `json:"askers,omitempty"` // programs that ask others from a port of their own

	// Servers and Firewalls are read by ReadServers alone.
	Servers  []Server     `json:"servers,omitempty"`  // package mirrors and time servers that the host asks by itself
	Gateways []netip.Addr `json:"gateways,omitempty"` // routers of the default routes

	// Firewalls are those of other tools that start with the host; read by ReadServers.
	Firewalls []Firewall `json:"firewalls,omitempty"`

	// Routing is read by ReadRouting alone; nil where nobody did.
	Routing *Routing `json:"routing,omitempty"`

	// Attached is what decides about packets beside rules: XDP, tc, BPF programs at
	// netfilter hooks, IPVS. Read by ReadAttached alone.
	Attached []attached.Thing `json:"attached,omitempty"`

	// Unread says what could not be read, and why, one line each; the facts
	// that it names are missing above.
	Unread []string `json:"unread,omitempty"`
}

// Interface is one link with its addresses.
type Interface struct {
	Name      string         `json:"name"`
	Index     int            `json:"index"`
	Addresses []netip.Prefix `json:"addresses,omitempty"` // the address itself with the length of its network, not masked
	// Order is the addresses as the kernel lists them, which is how it chooses
	// among several, where that is another order than that of Addresses.
	Order  []netip.Prefix `json:"order,omitempty"`
	Master string         `json:"master,omitempty"` // bridge that it is a port of
	Kind   string         `json:"kind,omitempty"`   // kernel's name of its kind: "veth", "bridge", "wireguard"; "device" is hardware
	Up     bool           `json:"up"`
	MTU    int            `json:"mtu,omitempty"` // bytes; 0 is not known
	// VRF is the VRF that it is in, by whose name rules see it; a VRF itself has
	// the table of its routes.
	VRF      string `json:"vrf,omitempty"`
	VRFTable uint32 `json:"vrf-table,omitempty"`
	// ReversePath is rp_filter of IPv4 (1 strict, 2 loose), read by ReadRouting.
	ReversePath int `json:"rp-filter,omitempty"`
}

// InOrder gives the addresses as the kernel lists them.
func (i Interface) InOrder() []netip.Prefix {
	if len(i.Order) > 0 {
		return i.Order
	}
	return i.Addresses
}

// ForeignChain is a base chain that Sluice does not own.
type ForeignChain struct {
	Family   string `json:"family"` // "ip", "ip6", "inet", "bridge", "netdev", "arp"; legacy iptables: "ip" and "ip6"
	Table    string `json:"table"`
	Name     string `json:"name"`
	Legacy   bool   `json:"legacy,omitempty"` // of legacy iptables, not of nftables
	Type     string `json:"type"`             // "filter", "nat", "route"
	Hook     string `json:"hook"`             // "prerouting", "input", "forward", "output", "postrouting", "ingress", "egress"
	Priority int    `json:"priority"`
	Policy   string `json:"policy"` // "accept" or "drop"
	Drops    bool   `json:"drops"`  // its policy, one of its rules or a chain that they lead to drops, rejects or queues
	// Rewrites: the same changes packets, or whether they are tracked.
	Rewrites bool `json:"rewrites,omitempty"`
	// More is what the same do beside, sorted.
	More  []ruleset.Effect `json:"more,omitempty"`
	Rules int              `json:"rules"` // in the base chain itself
}

// Published is a port that a foreign DNAT rule leads elsewhere.
type Published struct {
	Protocol string         `json:"protocol"`         // "tcp", "udp", "sctp"; "" is every one
	Address  netip.Addr     `json:"address,omitzero"` // that the outside asks; invalid: every one
	Port     uint16         `json:"port"`             // that the outside sees; 0: every one, or more than can be listed
	To       netip.AddrPort `json:"to,omitzero"`      // invalid: this host itself, or not to be read; its port 0: the same as outside
}

// SSHClient is somebody who manages the host at this moment.
type SSHClient struct {
	Remote netip.AddrPort `json:"remote"`
	Local  netip.AddrPort `json:"local"`
	// Unproved: connected to an ssh server that does not say whether anybody is logged in.
	Unproved bool `json:"unproved,omitempty"`
}

// String reads as "tcp/8080 to 172.17.0.2:80".
func (p Published) String() string {
	service := "every port"
	switch {
	case p.Port != 0 && p.Protocol != "":
		service = fmt.Sprintf("%s/%d", p.Protocol, p.Port)
	case p.Port != 0:
		service = fmt.Sprintf("port %d", p.Port)
	case p.Protocol != "":
		service = "every port of " + p.Protocol
	}
	if p.Address.IsValid() {
		service += " of " + p.Address.String()
	}
	switch {
	case !p.To.Addr().IsValid():
		return service
	case p.To.Port() == 0:
		return service + " to " + p.To.Addr().String()
	}
	return service + " to " + p.To.String()
}
