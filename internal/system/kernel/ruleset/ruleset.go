// Package ruleset reads the rules that other tools have in the network
// namespace of the calling thread: nftables through "nft -j", iptables over
// nftables where nft cannot show its extensions, and legacy iptables through
// iptables-legacy-save. host and apply call it. It changes nothing, and loads no kernel
// module that is not there. Texts are for whoever reads rules whole: package importer.
//
// What comes out is a coarse form that answers four questions: which base
// chains are there, can one of them drop, can one rewrite, and which ports do they
// publish. A
// condition that this form cannot hold is left out, so that a rule here matches
// at least what the real one matches.
package ruleset

import "net/netip"

// Table is one table of another tool.
type Table struct {
	Family string // "ip", "ip6", "inet", "bridge", "netdev", "arp"
	Name   string
	Legacy bool // of legacy iptables
	Chains []*Chain
}

// Chain is a chain in its table; Hook is empty for one that only jumps reach.
type Chain struct {
	Name     string
	Type     string // "filter", "nat", "route"
	Hook     string
	Priority int
	Policy   string // "accept" or "drop"
	Rules    []Rule
}

// Rule is one rule. Match lists alternatives, of which one has to hold; none at
// all is a rule without conditions that this form can hold.
type Rule struct {
	Match []Match
	Drops bool // drops, rejects or queues
	// Rewrites: changes addresses, ports, marks or other parts of the packet, or
	// whether it is tracked.
	Rewrites bool
	// More is what it does beside.
	More  []Effect
	Jumps []Jump
	NAT   []Rewrite // of the destination

	extension bool // has an xtables extension that nft does not translate
}

// Effect is what a rule does to packets or flows beside dropping and rewriting.
type Effect string

// Effects of statements and xtables targets.
const (
	Copies   Effect = "copy"    // sends a copy elsewhere: dup, TEE
	Forwards Effect = "pass"    // sends it past all hooks behind: fwd, dup of family netdev
	Offloads Effect = "offload" // hands the flow to a flowtable: flow add
	Expects  Effect = "expect"  // has a connection expected: ct expectation
	Helps    Effect = "helper"  // sets a helper of connection tracking, which expects connections
	Times    Effect = "timeout" // sets how long entries of connection tracking live
	Unknown  Effect = "unknown" // a statement that is not known here
)

// Opens says whether packets or flows that a policy refuses may pass by it. What is
// expected is asked by the policy's rules.
func (e Effect) Opens() bool {
	switch e {
	case Copies, Forwards, Offloads, Unknown:
		return true
	}
	return false
}

// Match is what a packet has to be; a zero member is anything.
type Match struct {
	Protocol    string // "tcp", "udp", "sctp", …
	From, To    uint16 // destination ports, both included; 0, 0 is every port
	Destination netip.Addr
}

// Jump leads to a chain of the same table.
type Jump struct {
	Match Match // beside that of the rule
	Chain string
}

// Rewrite is a new destination.
type Rewrite struct {
	Match Match // beside that of the rule
	// To is invalid where the rule redirects to this host or cannot be read;
	// its port is 0 where the packet keeps its own.
	To netip.AddrPort
}

// And is what has to hold for both; false when nothing can.
func (m Match) And(o Match) (Match, bool) {
	switch {
	case m.Protocol == "":
		m.Protocol = o.Protocol
	case o.Protocol != "" && o.Protocol != m.Protocol:
		return Match{}, false
	}
	switch {
	case m.From == 0 && m.To == 0:
		m.From, m.To = o.From, o.To
	case o.From != 0 || o.To != 0:
		m.From, m.To = max(m.From, o.From), min(m.To, o.To)
		if m.From > m.To {
			return Match{}, false
		}
	}
	switch {
	case !m.Destination.IsValid():
		m.Destination = o.Destination
	case o.Destination.IsValid() && o.Destination != m.Destination:
		return Match{}, false
	}
	return m, true
}

// More alternatives than this are not worth their memory; the condition is
// then left out.
const maxAlternatives = 8192

// cross is the alternatives of two conditions that both have to hold; nil is
// no condition, an empty list one that nothing fulfils.
func cross(a, b []Match) []Match {
	switch {
	case a == nil:
		return b
	case b == nil, len(a)*len(b) > maxAlternatives:
		return a
	}
	both := []Match{}
	for _, x := range a {
		for _, y := range b {
			if m, ok := x.And(y); ok {
				both = append(both, m)
			}
		}
	}
	return both
}
