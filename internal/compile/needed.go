package compile

import (
	"sluice/internal/policy"
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
// sections 4.3.1 and 4.4.1), in every state, and sends ICMP requests to the
// rules whatever their state: 200 echo requests of one id are one flow, and a
// limit behind the state would count 1.
func (c *compiler) needed(hook policy.Hook, base, rules string) {
	icmp := base + "_icmp"
	c.append(base, program.Rule{
		Stage: program.StageNeeded, Match: match{numbers(program.Protocol, protoICMP, protoICMPv6)},
		Actions: []program.Action{program.Jump{Chain: icmp}},
	})
	shared := neededChain
	if hook == policy.Forward {
		shared = errorChain
	}
	c.sharedICMP(shared)
	c.chain(icmp, "ICMP of "+base+": what is needed passes, requests go to the rules")
	c.append(icmp, program.Rule{Actions: []program.Action{program.Jump{Chain: shared}}})
	if invalid := c.invalid(base, ""); invalid != nil {
		c.append(icmp, *invalid)
	}
	// What of ICMP is related is an error about a flow, or a redirect (icmp_is_err,
	// nf_conntrack_icmpv6_error); a request that somebody expects goes to the rules.
	toRules := []program.Action{program.Goto{Chain: rules}}
	c.append(icmp,
		program.Rule{Match: match{protocol(protoICMP), numbers(program.ICMPType, icmpRequests...)}, Actions: toRules, Comment: "requests are counted one by one"},
		program.Rule{Match: match{protocol(protoICMPv6), numbers(program.ICMPv6Type, icmpv6Request...)}, Actions: toRules, Comment: "requests are counted one by one"},
		program.Rule{Match: match{names(program.State, "related")}, Actions: accept, Comment: "errors about known flows"},
	)
}

func (c *compiler) sharedICMP(name string) {
	if c.program.Chain(name) != nil {
		return
	}
	if name == errorChain {
		c.chain(name, "ICMP errors, which path MTU discovery and every sender need")
		c.append(name,
			program.Rule{Match: match{protocol(protoICMP), numbers(program.ICMPType, icmpErrors...)}, Actions: accept, Comment: "errors"},
			program.Rule{Match: match{protocol(protoICMPv6), numbers(program.ICMPv6Type, icmpv6Errors...)}, Actions: accept, Comment: "errors and packet too big"},
		)
		return
	}
	c.sharedICMP(errorChain)
	c.chain(name, "ICMP that the network cannot work without")
	c.append(name,
		program.Rule{Actions: []program.Action{program.Jump{Chain: errorChain}}},
		program.Rule{Match: neighbours(), Actions: accept, Comment: "neighbour discovery"},
		program.Rule{
			Match: match{
				protocol(protoICMPv6), numbers(program.ICMPv6Type, listenerDiscovery...),
				addresses(program.Source, prefixSet("fe80::/10", "::/128")),
			},
			Actions: accept, Comment: "multicast listener discovery",
		},
	)
}

func neighbours() match {
	return match{protocol(protoICMPv6), numbers(program.ICMPv6Type, neighbourDiscovery...), numbers(program.HopLimit, 255)}
}

// answers accepts what answers the host without a state to say so.
func (c *compiler) answers(hook policy.Hook, base string) {
	switch hook {
	case policy.Input:
		c.append(base,
			program.Rule{
				Stage:   program.StageAnswers,
				Match:   match{family(4), protocol(protoUDP), portRange(program.SourcePort, 67, 67), portRange(program.Port, 68, 68)},
				Actions: accept, Comment: "answers to the host's DHCP",
			},
			program.Rule{
				Stage: program.StageAnswers,
				Match: match{
					addresses(program.Source, prefixSet("fe80::/10")),
					protocol(protoUDP), portRange(program.SourcePort, 547, 547), portRange(program.Port, 546, 546),
				},
				Actions: accept, Comment: "answers to the host's DHCPv6",
			})
	case policy.Output:
		c.append(base, program.Rule{
			Stage: program.StageAnswers, Match: match{protocol(protoTCP), names(program.State, "related"), tcpFlags(flagRST, flagRST)},
			Actions: accept, Comment: "the reset of a packet that was rejected belongs to its flow",
		})
		c.untrackedAnswers(base)
	}
}
