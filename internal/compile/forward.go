package compile

import (
	"slices"

	"sluice/internal/addrset"
	"sluice/internal/policy"
	"sluice/internal/program"
	"sluice/internal/resolve"
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
	syn := match{protocol(protoTCP), tcpFlags(flagSYN, flagSYN|flagRST)}
	id := c.ruleIDs[r]
	for _, m := range c.ruleMatches(r, straight) {
		c.append("forward", program.Rule{
			Stage: program.StageRewrite, ID: id, Match: syn.and(m...),
			Actions: []program.Action{c.counter(id, o, r.Text), program.ClampMSS{}}, Origin: o,
		})
	}
}

// accelerate hands established TCP and UDP flows to the flowtable. An offloaded
// flow meets neither prerouting nor forward any more, so bans are asked once
// more at ingress, before the flowtable.
func (c *compiler) accelerate(s *policy.Section) {
	o := originOf(s.AccelPos, "accelerate: true")
	devices := c.forwardingDevices()
	if len(devices) == 0 {
		c.note(o, "no interface of this host is of a zone, so no flow is accelerated")
		return
	}
	c.program.Flowtables = append(c.program.Flowtables, program.Flowtable{Name: flowtable, Devices: devices})
	c.append("forward", program.Rule{
		Stage:   program.StageOffload,
		Match:   match{names(program.State, "established"), numbers(program.Protocol, protoTCP, protoUDP)},
		Actions: []program.Action{program.Offload{Flowtable: flowtable}}, Origin: o, Comment: "established flows take the fast path",
	})
}

// forwardingDevices is the interfaces of the host that are of some zone, or
// all but loopback where no zone names an interface.
func (c *compiler) forwardingDevices() []string {
	var zones []*resolve.Zone
	for _, z := range c.policy.Zones {
		if len(c.Zones[z.Name].Interfaces) > 0 {
			zones = append(zones, c.Zones[z.Name])
		}
	}
	var out []string
	for _, i := range c.Facts.Interfaces {
		if i.Name == "lo" {
			continue
		}
		if len(zones) == 0 || slices.ContainsFunc(zones, func(z *resolve.Zone) bool { return z.HasInterface(i.Name) }) {
			out = append(out, i.Name)
		}
	}
	slices.Sort(out)
	return out
}

// earlyBans asks the bans before the flowtable. The routing table cannot be
// asked there, so the host's own addresses are those that it had. Nor is anything
// rewritten yet: a destination that the policy leads elsewhere is none of the
// packet's, which forward asks about.
func (c *compiler) earlyBans(parts []banPart) {
	if len(c.program.Flowtables) == 0 {
		return
	}
	const chain = "ingress_early"
	c.program.Hooks = append(c.program.Hooks, program.Hook{
		Kind: program.Ingress, Phase: program.Early, Devices: c.program.Flowtables[0].Devices, Default: program.Accept, Chain: chain,
	})
	c.chain(chain, "bans before the flowtable, which accelerated flows do not pass by")
	c.append(chain, program.Rule{Match: neighbours(), Actions: accept, Comment: "neighbour discovery is never banned"})
	var b addrset.Builder
	for _, i := range c.Facts.Interfaces {
		for _, p := range i.Addresses {
			if !neverBanned.Contains(p.Addr()) {
				b.AddAddr(p.Addr())
			}
		}
	}
	own := b.Set()
	for _, n := range c.policy.NAT {
		for _, r := range append(slices.Clone(n.On), rangesOf(n.Outside, n.As)...) {
			b.AddRange(r.Range)
		}
	}
	never := map[program.Field]addrset.Set{program.Source: own, program.Destination: b.Set()}
	for _, p := range parts {
		if p.set == limitBanned {
			continue // of what begins a flow, which no flowtable carries
		}
		actions := []program.Action{c.counter(p.counter, p.origin, ""), program.Drop}
		for _, f := range []program.Field{program.Source, program.Destination} {
			m := p.match(f)
			if !never[f].IsEmpty() {
				m = m.and(not(addresses(f, never[f])))
			}
			c.append(chain, program.Rule{Match: m, Actions: actions, Origin: p.origin})
		}
	}
}

func rangesOf(list ...*policy.Range) (out []policy.Range) {
	for _, r := range list {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out
}
