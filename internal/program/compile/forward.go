package compile

import (
	"slices"

	"sluice/internal/base/addrset"
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
			Actions: []program.Action{c.counter(id, o, r.Text), program.ClampMSS{}}, Origin: o,
		})
	}
}

// accelerate hands established TCP and UDP flows to the flowtable. An offloaded
// flow meets neither prerouting nor forward any more, so bans are asked once
// more at ingress, before the flowtable.
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
	c.append("forward", program.Rule{
		Stage:   program.StageOffload,
		Match:   match{names(program.State, "established"), numbers(program.Protocol, packet.TCP, packet.UDP)},
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

// earlyBans asks the bans before the flowtable. The routing table cannot be
// asked there, so the host's own addresses are asked of a set. Nor is anything
// rewritten yet: a destination that the policy leads elsewhere is none of the
// packet's, which forward asks about. What goes to all of a network comes to input,
// where bans ask of the source alone.
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
	own := c.own("")
	var led addrset.Set
	for _, n := range c.policy.NAT {
		for _, r := range append(slices.Clone(n.On), rangesOf(n.Outside, n.As)...) {
			led = led.Union(addrset.Of(r.Range))
		}
	}
	_, broadcasts := c.Facts.Addresses()
	for _, p := range parts {
		if p.set == limitBanned {
			continue // of what begins a flow, which no flowtable carries
		}
		actions := []program.Action{c.counter(p.counter, p.origin, ""), program.Drop}
		from := p.match(program.Source).and(not(inSet(program.Source, own)))
		to := p.match(program.Destination).and(not(inSet(program.Destination, own)))
		heard := broadcasts
		if c.program.Set(p.set).Life == program.Static { // others come to hold more
			heard = heard.Intersect(p.addresses)
		}
		if spared := led.Union(heard); !spared.IsEmpty() {
			to = to.and(not(addresses(program.Destination, spared)))
		}
		c.append(chain, program.Rule{Match: from, Actions: actions, Origin: p.origin}, program.Rule{Match: to, Actions: actions, Origin: p.origin})
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
