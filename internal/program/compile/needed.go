package compile

import (
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// Chains that sections share.
const (
	neededChain = "icmp_needed"
	errorChain  = "icmp_errors"
)

// ICMP types, from the registries that RFC 792 and RFC 4443 began.
var (
	icmpErrors    = []uint64{3, 11, 12}     // destination unreachable (fragmentation needed among it), time exceeded, parameter problem
	icmpRequests  = []uint64{8, 13, 15, 17} // echo, timestamp, information, address mask
	icmpv6Errors  = []uint64{1, 2, 3, 4}    // destination unreachable, packet too big, time exceeded, parameter problem
	icmpv6Request = []uint64{128, 139}      // echo, node information

	// Neighbour discovery, its inverse and its secured form; they are never
	// forwarded, so a hop limit of 255 says that a neighbour sent them
	// (RFC 4861 section 7.1, RFC 3122, RFC 3971).
	neighbourDiscovery = []uint64{133, 134, 135, 136, 141, 142, 148, 149}
	// Multicast listener discovery (RFC 2710, RFC 3810) comes from a
	// link-local address, or from none while an address is being tested
	// (RFC 3590).
	listenerDiscovery = []uint64{130, 131, 132, 143}
)

// needed lets pass the ICMP that the network cannot work without (RFC 4890
// sections 4.3.1 and 4.4.1), and sends ICMP requests to the rules whatever their
// state: 200 echo requests of one id are one flow, and a limit behind the state
// would count 1.
func (c *compiler) needed(hook policy.Hook, base, rules string) {
	icmp := base + "_icmp"
	c.append(base, program.Rule{
		Stage: program.StageNeeded, Match: match{numbers(program.Protocol, packet.ICMP, packet.ICMPv6)},
		Actions: []program.Action{program.Jump{Chain: icmp}},
	})
	errors := c.errorsWithoutFlow(hook)
	if len(errors) > 0 {
		c.errorChain()
	}
	if hook != policy.Forward {
		c.neededChain()
	}
	c.chain(icmp, "ICMP of "+base+": what is needed passes, requests go to the rules")
	if hook != policy.Forward {
		c.append(icmp, program.Rule{Actions: []program.Action{program.Jump{Chain: neededChain}}})
	}
	c.append(icmp, errors...)
	if invalid := c.invalid(base, ""); invalid != nil {
		c.append(icmp, *invalid)
	}
	// What of ICMP is related is an error about a flow, or a redirect (icmp_is_err,
	// nf_conntrack_icmpv6_error); a request that somebody expects goes to the rules.
	toRules := []program.Action{program.Goto{Chain: rules}}
	c.append(icmp,
		program.Rule{Match: match{protocol(packet.ICMP), numbers(program.ICMPType, icmpRequests...)}, Actions: toRules, Comment: "requests are counted one by one"},
		program.Rule{Match: match{protocol(packet.ICMPv6), numbers(program.ICMPv6Type, icmpv6Request...)}, Actions: toRules, Comment: "requests are counted one by one"},
		program.Rule{Match: match{names(program.State, "related")}, Actions: accept, Comment: "errors about known flows"},
	)
}

// errorsWithoutFlow lets pass the ICMP errors that connection tracking has no flow
// for: all, where the policy says so, else those about what keeps no state, which
// path MTU discovery needs. Those about known flows are related. Nothing that
// bypasses is forwarded, and what is mapped without state is not tracked, errors to
// and from its machines among it; what the host itself says of either belongs to
// no flow.
func (c *compiler) errorsWithoutFlow(hook policy.Hook) (out []program.Rule) {
	pass := func(comment string, m match) {
		out = append(out, program.Rule{Match: m, Actions: []program.Action{program.Jump{Chain: errorChain}}, Comment: comment})
	}
	if t := c.policy.Tracking; t.ErrorsAll {
		pass("icmp-errors: all", nil)
		return out
	}
	bypass := c.policy.Tracking.Bypass
	noState := match{names(program.State, "invalid", "untracked")}
	switch {
	case hook == policy.Output && (len(bypass) > 0 || c.stateless()):
		pass("errors of the host about what keeps no state", noState)
		return out
	case hook == policy.Input && slices.ContainsFunc(bypass, func(b policy.Bypass) bool { return b.To == nil }):
		pass("errors about what keeps no state", noState)
		return out
	case hook == policy.Input:
		for i := range bypass {
			for _, to := range c.bypassAddresses(bypass[i].To) {
				pass("errors about what keeps no state", noState.and(to...))
			}
		}
	}
	if hook != policy.Output && c.stateless() {
		pass("errors about what is mapped without state", match{untracked})
	}
	return out
}

// bypassAddresses gives the ways for a packet to go to an address of a bypass,
// whatever the port.
func (c *compiler) bypassAddresses(w *policy.Who) (out []match) {
	rest := *w
	rest.Items = nil
	var ends addrset.Set
	for _, item := range w.Items {
		if s := c.Sets[item.Name]; s == nil || !s.IsEndpoints() {
			rest.Items = append(rest.Items, item)
			continue
		}
		for _, e := range c.Sets[item.Name].Endpoints {
			ends = ends.Union(addrset.Of(e.Address))
		}
	}
	if len(rest.Items) > 0 {
		out = c.who(&rest, side{address: program.Destination, iface: program.OutInterface})
	}
	if !ends.IsEmpty() {
		out = append(out, match{addresses(program.Destination, ends)})
	}
	return out
}

func (c *compiler) errorChain() {
	if c.program.Chain(errorChain) != nil {
		return
	}
	c.chain(errorChain, "ICMP errors, which path MTU discovery and every sender need")
	c.append(errorChain,
		program.Rule{Match: match{protocol(packet.ICMP), numbers(program.ICMPType, icmpErrors...)}, Actions: accept, Comment: "errors"},
		program.Rule{Match: match{protocol(packet.ICMPv6), numbers(program.ICMPv6Type, icmpv6Errors...)}, Actions: accept, Comment: "errors and packet too big"},
	)
}

func (c *compiler) neededChain() {
	if c.program.Chain(neededChain) != nil {
		return
	}
	c.chain(neededChain, "ICMP that the network cannot work without")
	c.append(neededChain,
		program.Rule{Match: neighbours(), Actions: accept, Comment: "neighbour discovery"},
		program.Rule{
			Match: match{
				protocol(packet.ICMPv6), numbers(program.ICMPv6Type, listenerDiscovery...),
				addresses(program.Source, addrset.MustParse("fe80::/10", "::/128")),
			},
			Actions: accept, Comment: "multicast listener discovery",
		},
	)
}

func neighbours() match {
	return match{protocol(packet.ICMPv6), numbers(program.ICMPv6Type, neighbourDiscovery...), numbers(program.HopLimit, 255)}
}

// answers accepts what answers the host without a state to say so.
func (c *compiler) answers(hook policy.Hook, base string) {
	switch hook {
	case policy.Input:
		c.append(base,
			program.Rule{
				Stage:   program.StageAnswers,
				Match:   match{family(4), protocol(packet.UDP), portRange(program.SourcePort, 67, 67), portRange(program.Port, 68, 68)},
				Actions: accept, Comment: "answers to the host's DHCP",
			},
			program.Rule{
				Stage: program.StageAnswers,
				Match: match{
					addresses(program.Source, addrset.MustParse("fe80::/10")),
					protocol(packet.UDP), portRange(program.SourcePort, 547, 547), portRange(program.Port, 546, 546),
				},
				Actions: accept, Comment: "answers to the host's DHCPv6",
			})
	case policy.Output:
		c.append(base, program.Rule{
			Stage: program.StageAnswers, Match: match{protocol(packet.TCP), names(program.State, "related"), tcpFlags(flagRST, flagRST)},
			Actions: accept, Comment: "the reset of a packet that was rejected belongs to its flow",
		})
		c.untrackedAnswers(base)
	}
}
