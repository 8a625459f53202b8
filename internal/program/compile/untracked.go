package compile

import (
	"slices"

	"sluice/internal/base/packet"
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// answersChain holds what answers without a state.
const answersChain = "output_answers"

// untrackedAnswers lets the host's bypassed services answer: untracked traffic
// has no replies, so the rules of input are asked the other way round.
func (c *compiler) untrackedAnswers(base string) {
	if len(c.policy.Tracking.Bypass) == 0 && !c.stateless() {
		return
	}
	c.append(base, program.Rule{
		Stage: program.StageAnswers, Match: match{untracked}, Actions: []program.Action{program.Jump{Chain: answersChain}},
		Comment: "what bypasses tracking has no established replies",
	})
	c.chain(answersChain, "answers of services that bypass tracking: the rules of input the other way round")
	c.append(answersChain, program.Rule{
		Match: match{protocol(packet.TCP), tcpFlags(flagRST, flagRST)}, Actions: accept,
		Comment: "the reset of an untracked packet is untracked itself",
	})
	if len(c.policy.Tracking.Bypass) == 0 {
		return
	}
	bypassed := c.bypassedServices()
	input := c.policy.Input
	if input != nil {
		c.mirrorInput(input, bypassed)
	}
	if input == nil || input.Default == policy.Allow {
		for _, m := range bypassed {
			c.append(answersChain, program.Rule{Match: noBareSYN(m), Actions: accept, Comment: "input is open to what bypasses tracking, so its answers pass"})
		}
	}
}

// mirrorInput asks the rules of input the other way round, as far as they are
// about what bypasses tracking.
func (c *compiler) mirrorInput(input *policy.Section, bypassed []match) {
	for _, r := range input.Rules {
		for _, m := range c.mirror(r) {
			all := m.Match[1:] // the chain is asked for untracked packets alone
			for _, s := range bypassed {
				if meets(all, []match{s}) {
					m.Match = within(all, s)
					c.append(answersChain, m)
				}
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
		m = noBareSYN(match{untracked}.and(m...))
		out = append(out, program.Rule{Match: m, Actions: []program.Action{action}, Origin: originOf(r.Pos, r.Text), Comment: "answers to " + r.Text})
	}
	return out
}

// noBareSYN keeps out of a match of TCP what opens a connection.
func noBareSYN(m match) match {
	if slices.ContainsFunc(m, isTCP) {
		return m.and(not(tcpFlags(flagSYN, flagSYN|flagACK)))
	}
	return m
}

func isTCP(c program.Condition) bool {
	return c.Field == program.Protocol && !c.Not && len(c.Numbers) == 1 && c.Numbers[0].From == packet.TCP
}

// bypassedServices is what bypasses tracking, by source port.
func (c *compiler) bypassedServices() []match { return c.bypassedAt(program.SourcePort) }

// bypassedAt is what bypasses tracking, by a port; no match where nothing does.
func (c *compiler) bypassedAt(port program.Field) []match {
	if len(c.policy.Tracking.Bypass) == 0 {
		return nil
	}
	var refs []policy.ServiceRef
	for _, b := range c.policy.Tracking.Bypass {
		refs = append(refs, b.Services...)
	}
	return services(refs, port)
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

// within narrows the numbers of a match that meets a service to those of the service.
func within(m, service match) match {
	out := slices.Clone(m)
	for _, s := range service {
		for i := range out {
			if out[i].Field == s.Field && !out[i].Not {
				out[i].Numbers = common(out[i].Numbers, s.Numbers)
			}
		}
	}
	return out
}

func common(a, b []program.NumberRange) []program.NumberRange {
	var out []program.NumberRange
	for _, x := range a {
		for _, y := range b {
			if r := (program.NumberRange{From: max(x.From, y.From), To: min(x.To, y.To)}); r.From <= r.To {
				out = append(out, r)
			}
		}
	}
	return out
}

func overlap(a, b []program.NumberRange) bool {
	return slices.ContainsFunc(a, func(x program.NumberRange) bool {
		return slices.ContainsFunc(b, func(y program.NumberRange) bool { return x.From <= y.To && y.From <= x.To })
	})
}
