package compile

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

const flowtable = "fastpath"

// forward adds what only forwarding has: clamping of segment sizes, which
// established SYN-ACKs need too, and the flowtable.
func (c *compiler) forward(s *policy.Section) {
	for _, r := range s.Rules {
		if r.Action == policy.ClampMSS {
			c.clamp(r)
		}
	}
	if s.Accelerate {
		c.accelerate(s)
	}
}

func (c *compiler) clamp(r *policy.Rule) {
	o := originOf(r.Pos, r.Text)
	syn := match{protocol(packet.TCP), tcpFlags(flagSYN, flagSYN|flagRST)}
	id := c.ruleIDs[r]
	for _, m := range c.ruleMatches(r, straight) {
		c.append("forward", program.Rule{
			Stage: program.StageRewrite, ID: id, Match: syn.and(m...),
			Actions: c.counted(id, o, r.Text, program.ClampMSS{}), Origin: o,
		})
	}
}

// accelerate hands established TCP and UDP flows to the flowtable. An offloaded
// flow meets neither prerouting nor forward any more: who bans an address ends it.
func (c *compiler) accelerate(s *policy.Section) {
	o := originOf(s.AccelPos, "accelerate: true")
	of := c.forwardingNames()
	devices := c.Facts.Devices(func(name string) bool { return program.Fits(of, name, c.Facts.DefaultRoute) })
	c.program.Rests = append(c.program.Rests, program.Rest{Devices: of})
	if len(devices) == 0 {
		c.note(o, "no interface of this host is of a zone, so no flow is accelerated")
		return
	}
	c.program.Flowtables = append(c.program.Flowtables, program.Flowtable{Name: flowtable, Devices: devices})
	m := match{names(program.State, "established"), numbers(program.Protocol, packet.TCP, packet.UDP)}
	if over := c.overBan(); !over.IsEmpty() { // whose flows end with the exception
		m = m.and(not(addresses(program.Source, over)), not(addresses(program.Destination, over)))
	}
	c.append("forward", program.Rule{
		Stage: program.StageOffload, Match: m,
		Actions: []program.Action{program.Offload{Flowtable: flowtable}}, Origin: o, Comment: "established flows take the fast path",
	})
}

// forwardingNames is what zones name their interfaces by, or all where none does.
func (c *compiler) forwardingNames() []string {
	var out []string
	for _, z := range c.policy.Zones {
		out = append(out, c.Zones[z.Name].Interfaces...)
	}
	if len(out) == 0 {
		return []string{"*"}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
