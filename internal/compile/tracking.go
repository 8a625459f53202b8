package compile

import (
	"sluice/internal/policy"
	"sluice/internal/program"
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
		inside := match{addresses(program.Source, prefixSet(prefix)), addresses(program.Destination, prefixSet(prefix))}
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
	add := func(chain string, where program.Condition, d direction) {
		for _, service := range services(b.Services, d.destinationPort) {
			for _, to := range c.who(b.To, side{d.destination, d.out, d.destinationPort, protocolOf(service)}) {
				c.append(chain, program.Rule{Stage: program.StageTrack, Match: service.and(to...).and(where), Actions: actions, Origin: o, Comment: o.Text})
			}
		}
	}
	add(prerouting, toHost, straight)
	add(output, fromHost, mirrored)
	add(output, toHost, straight)
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
