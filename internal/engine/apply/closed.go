package apply

import (
	"fmt"
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/program"
)

// ClosedRunsError says that the closed policy runs, which nobody applied: it has no
// text that could be read, compared or refreshed.
type ClosedRunsError struct{ Generation int }

func (e *ClosedRunsError) Error() string {
	return fmt.Sprintf("the closed policy runs (generation %d): the confirmed one could not be restored, and only ssh is allowed", e.Generation)
}

// closedProgram is what stands when the policy of the boot cannot be loaded:
// nothing comes in but ssh, nothing is forwarded, and the host may ask out. What
// a network cannot work without passes, as under every policy.
func closedProgram(scope string, sshPorts []uint16) *program.Program {
	one := func(field program.Field, values ...uint64) program.Condition {
		c := program.Condition{Field: field}
		for _, v := range values {
			c.Numbers = append(c.Numbers, program.NumberRange{From: v, To: v})
		}
		return c
	}
	allow := func(comment string, match ...program.Condition) program.Rule {
		return program.Rule{Match: match, Actions: []program.Action{program.Accept}, Comment: comment}
	}
	ports := make([]uint64, 0, len(sshPorts))
	for _, p := range sshPorts {
		ports = append(ports, uint64(p))
	}
	slices.Sort(ports)
	established := program.Condition{Field: program.State, Names: []string{"established"}}
	return &program.Program{
		Owner: "sluice", Scope: scope,
		Hooks: []program.Hook{
			{Kind: program.Input, Phase: program.Filter, Default: program.Drop, Chain: "input"},
			{Kind: program.Forward, Phase: program.Filter, Default: program.Drop, Chain: "forward"},
		},
		Chains: []program.Chain{
			{Name: "input", Comment: "closed: the confirmed policy could not be loaded", Rules: []program.Rule{
				allow("loopback", program.Condition{Field: program.InInterface, Names: []string{"lo"}}),
				allow("ICMP errors", one(program.Protocol, packet.ICMP), one(program.ICMPType, 3, 11, 12)),
				allow("ICMPv6 errors", one(program.Protocol, packet.ICMPv6), one(program.ICMPv6Type, 1, 2, 3, 4)),
				allow("neighbour and router discovery", one(program.Protocol, packet.ICMPv6), one(program.ICMPv6Type, 133, 134, 135, 136, 137), one(program.HopLimit, 255)),
				allow("multicast listeners", one(program.Protocol, packet.ICMPv6), one(program.ICMPv6Type, 130, 131, 132, 143)),
				allow("replies", established),
				allow("DHCP answers", one(program.Protocol, packet.UDP), one(program.Family, 4), one(program.SourcePort, 67), one(program.Port, 68)),
				allow("DHCPv6 answers", one(program.Protocol, packet.UDP), one(program.Family, 6), one(program.SourcePort, 547), one(program.Port, 546)),
				allow("ssh, to fix this", one(program.Protocol, packet.TCP), one(program.Port, ports...)),
			}},
			{Name: "forward", Comment: "closed: the confirmed policy could not be loaded"},
		},
	}
}
