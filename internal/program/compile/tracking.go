package compile

import (
	"slices"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/system/host"
)

const (
	prerouting = "prerouting_raw"
	output     = "output_raw"
)

// tracking keeps out of connection tracking what needs none.
func (c *compiler) tracking() {
	c.untrackLoopback()
	for i := range c.policy.Tracking.Bypass {
		c.bypass(&c.policy.Tracking.Bypass[i])
	}
}

func (c *compiler) rawChains() {
	c.base(program.Prerouting, program.Raw, prerouting, "before connection tracking")
	c.base(program.Output, program.Raw, output, "before connection tracking")
}

// untrackLoopback: what the host says to itself needs no state, unless another
// tool rewrites it at output (a published container port is reached over
// loopback that way).
func (c *compiler) untrackLoopback() {
	if c.Facts.ForeignOutputNAT {
		c.note(program.Origin{}, "loopback stays tracked, since another tool's NAT chain looks at output")
		return
	}
	c.rawChains()
	for _, prefix := range []string{"127.0.0.0/8", "::1/128"} {
		inside := match{addresses(program.Source, addrset.MustParse(prefix)), addresses(program.Destination, addrset.MustParse(prefix))}
		actions := []program.Action{program.NoTrack{}, program.Accept}
		c.append(prerouting, program.Rule{Stage: program.StageLoopback, Match: match{fromLoopback}.and(inside...), Actions: actions, Comment: "the host to itself"})
		c.append(output, program.Rule{Stage: program.StageLoopback, Match: match{toLoopback}.and(inside...), Actions: actions, Comment: "the host to itself"})
	}
}

// bypass keeps a service out of tracking where the local end is the service:
// what comes in to its port at an address of this host, and what leaves from
// there. At output the way to such a port of this host's own is there too,
// since that packet meets output first and would be tracked there.
func (c *compiler) bypass(b *policy.Bypass) {
	c.rawChains()
	o := originOf(b.Pos, "bypass: "+bypassText(b))
	actions := []program.Action{program.NoTrack{}}
	own := c.isOwn(b.To)
	add := func(chain string, here program.Condition, known bool, d direction) {
		for _, service := range services(b.Services, d.destinationPort) {
			for _, to := range c.who(b.To, side{d.destination, d.out, d.destinationPort, protocolOf(service)}) {
				m := service.and(to...)
				if !known {
					m = m.and(here)
				}
				c.append(chain, program.Rule{Stage: program.StageTrack, Match: m, Actions: actions, Origin: o, Comment: o.Text})
			}
		}
	}
	add(prerouting, toHost, own, straight)
	add(output, fromHost, own, mirrored)
	// What the host sends to an address that has left it goes to another host, and its
	// answer has to find a state. Of what it sends elsewhere this asks nothing.
	add(output, toHost, false, straight)
}

// isOwn says that each address of a side is this host's, so that the routing
// table need not be asked, which costs more than all other questions of a bypass.
// Addresses come and go, and a host that carries packets to others, or that programs
// ask for addresses it does not have, still receives packets to one that has gone:
// there the routing table is asked. Bridged packets meet prerouting too, where
// br_netfilter is loaded, which may be at any time.
func (c *compiler) isOwn(w *policy.Who) bool {
	f := c.Facts
	if w == nil || !f.Known || f.Forwarding4 || f.Forwarding6 || f.NonLocalBind || f.ForwardingUnread ||
		slices.ContainsFunc(f.Interfaces, func(i host.Interface) bool { return i.Kind == "bridge" }) {
		return false
	}
	asked := c.whoAddresses(w)
	for _, item := range w.Items {
		if z := c.Zones[item.Name]; z != nil && len(z.Interfaces) > 0 {
			return false
		}
		if set := c.Sets[item.Name]; set != nil {
			if set.Living {
				return false
			}
			for _, e := range set.Endpoints {
				asked = asked.Union(addrset.Of(e.Address))
			}
		}
	}
	if !addrset.FromPrefixes(f.Local...).ContainsSet(asked) {
		return false
	}
	c.program.Rests = append(c.program.Rests, program.Rest{Kept: asked.Ranges()}, program.Rest{NoBridge: true})
	return true
}

func bypassText(b *policy.Bypass) string {
	text := ""
	for i, s := range b.Services {
		if i > 0 {
			text += ", "
		}
		text += s.Text
	}
	return text
}
