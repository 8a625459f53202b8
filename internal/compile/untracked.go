package compile

import (
	"slices"

	"sluice/internal/policy"
	"sluice/internal/program"
)

// untrackedAnswers lets the host's bypassed services answer: untracked traffic
// has no replies, so the rules of input are asked the other way round.
func (c *compiler) untrackedAnswers(base string) {
	if len(c.policy.Tracking.Bypass) == 0 {
		return
	}
	const chain = "output_answers"
	c.append(base, program.Rule{
		Stage: program.StageAnswers, Match: match{untracked}, Actions: []program.Action{program.Jump{Chain: chain}},
		Comment: "what bypasses tracking has no established replies",
	})
	c.chain(chain, "answers of services that bypass tracking: the rules of input the other way round")
	c.append(chain, program.Rule{
		Match: match{protocol(protoTCP), tcpFlags(flagRST, flagRST)}, Actions: accept,
		Comment: "the reset of an untracked packet is untracked itself",
	})
	if c.policy.Input == nil {
		return
	}
	bypassed := c.bypassedServices()
	for _, r := range c.policy.Input.Rules {
		for _, m := range c.mirror(r) {
			if meets(m.Match, bypassed) {
				m.Match = m.Match[1:] // the chain is asked for untracked packets alone
				c.append(chain, m)
			}
		}
	}
}

// mirror gives the rules for what answers an untracked packet that the rule
// decides: the sides turned round and, of TCP, no bare SYN, which would be a
// connection from there. A rule without ports has no mirror, since nothing
// tells its answers from other traffic.
func (c *compiler) mirror(r *policy.Rule) []program.Rule {
	if r.Published || r.Action == policy.ClampMSS {
		return nil
	}
	var out []program.Rule
	for _, m := range c.ruleMatches(r, mirrored) {
		if !hasPorts(m) {
			continue
		}
		action := program.Accept
		if r.Action != policy.Allow {
			action = program.Drop
		}
		m = match{untracked}.and(m...)
		if slices.ContainsFunc(m, isTCP) {
			m = m.and(not(tcpFlags(flagSYN, flagSYN|flagACK)))
		}
		out = append(out, program.Rule{Match: m, Actions: []program.Action{action}, Origin: originOf(r.Pos, r.Text), Comment: "answers to " + r.Text})
	}
	return out
}

func isTCP(c program.Condition) bool {
	return c.Field == program.Protocol && !c.Not && len(c.Numbers) == 1 && c.Numbers[0].From == protoTCP
}

// bypassedServices is what bypasses tracking, by source port.
func (c *compiler) bypassedServices() []match {
	var refs []policy.ServiceRef
	for _, b := range c.policy.Tracking.Bypass {
		refs = append(refs, b.Services...)
	}
	return services(refs, program.SourcePort)
}

// meets says whether a packet can fit the match and one of the services.
func meets(m match, services []match) bool {
	return slices.ContainsFunc(services, func(s match) bool {
		for _, a := range s {
			for _, b := range m {
				if a.Field == b.Field && !b.Not && !overlap(a.Numbers, b.Numbers) {
					return false
				}
			}
		}
		return true
	})
}

func overlap(a, b []program.NumberRange) bool {
	return slices.ContainsFunc(a, func(x program.NumberRange) bool {
		return slices.ContainsFunc(b, func(y program.NumberRange) bool { return x.From <= y.To && y.From <= x.To })
	})
}
