package compile

import (
	"sluice/internal/language/policy"
	"sluice/internal/program"
)

// section makes the base chain of one of the policy's sections and the chain
// of its rules.
func (c *compiler) section(s *policy.Section) {
	if s == nil {
		return
	}
	name := string(s.Hook)
	rules := name + "_rules"
	c.base(program.HookKind(s.Hook), program.Filter, name, "what "+name+" decides; the policy's own rules are in "+rules)
	if s.Default != policy.Allow {
		c.program.Hooks[len(c.program.Hooks)-1].Default = program.Drop // sections come first, so the hook is the one just made
	}
	c.chain(rules, "the policy's rules for "+name+", for new flows, ICMP requests and untracked packets")

	c.loopback(s.Hook, name)
	c.needed(s.Hook, name, rules)
	c.state(name)
	c.answers(s.Hook, name)
	if s.Hook == policy.Forward {
		c.forward(s)
	}
	c.append(name, program.Rule{Stage: program.StageRules, Actions: []program.Action{program.Goto{Chain: rules}}})

	for _, r := range s.Rules {
		if r.Action == policy.ClampMSS {
			continue
		}
		c.append(rules, c.rule(r, s.Hook)...)
		if s.Hook == policy.Forward && c.stateless() {
			c.append(rules, c.mirror(r)...)
		}
	}
	c.publishedElsewhere(s.Hook, rules)
	c.sectionDefault(s, rules)
	c.countHandshakes(s.Hook)
}

func (c *compiler) loopback(hook policy.Hook, chain string) {
	switch hook {
	case policy.Input:
		c.append(chain, program.Rule{Stage: program.StageLoopback, Match: match{fromLoopback}, Actions: accept, Comment: "loopback is allowed"})
	case policy.Output:
		c.append(chain, program.Rule{Stage: program.StageLoopback, Match: match{toLoopback}, Actions: accept, Comment: "loopback is allowed"})
	}
}

// state accepts what belongs to a flow that was allowed, and refuses what
// belongs to none. A flow that another one expects (state related) is asked by the
// rules like every other that begins: a policy names no helpers, so whoever made the
// expectation was not asked what is open. Behind an answer it is established.
func (c *compiler) state(chain string) {
	c.append(chain, program.Rule{
		Stage: program.StageState, Match: match{names(program.State, "established")}, Actions: accept,
		Comment: "packets of flows that were allowed",
	})
	if invalid := c.invalid(chain, program.StageInvalid); invalid != nil {
		c.append(chain, *invalid)
	}
}

// invalid gives the rule that drops what connection tracking cannot explain;
// nil where the policy lets it pass on to the rules.
func (c *compiler) invalid(section string, stage program.Stage) *program.Rule {
	t := c.policy.Tracking
	if t.InvalidAllow {
		return nil
	}
	o := originOf(t.InvalidPos, "invalid: drop")
	return &program.Rule{
		Stage: stage, Match: match{names(program.State, "invalid")},
		Actions: c.counted(section+"_invalid", o, "invalid packets", program.Drop),
		Origin:  o, Comment: "belongs to no connection",
	}
}

// publishedElsewhere puts the published rules of input behind the rules of
// forward and the other way round: they are about a connection that arrived by
// DNAT, wherever it leads, and a section's own rules come first.
func (c *compiler) publishedElsewhere(hook policy.Hook, chain string) {
	var other *policy.Section
	switch hook {
	case policy.Input:
		other = c.policy.Forward
	case policy.Forward:
		other = c.policy.Input
	}
	if other == nil {
		return
	}
	for _, r := range other.Rules {
		if r.Published && !r.Exception { // which is there already
			c.append(chain, c.rule(r, hook)...)
		}
	}
}

func (c *compiler) sectionDefault(s *policy.Section, chain string) {
	text := "default: " + string(s.Default)
	if s.DefaultLog != nil {
		text += " " + policy.LogText(*s.DefaultLog)
	}
	o := originOf(s.DefaultPos, text)
	id := string(s.Hook) + "_default"
	actions := c.counted(id, o, text)
	switch {
	case s.DefaultLog != nil:
		actions = append(actions, c.logged(id, *s.DefaultLog, o, verdict(s.Default))...)
	case c.policy.LogsNetlink && s.Default != policy.Allow:
		actions = append(actions, c.logged(id, "", o, verdict(s.Default))...)
	default:
		actions = append(actions, verdict(s.Default))
	}
	c.append(chain, program.Rule{ID: id, Actions: actions, Origin: o})
}

var accept = []program.Action{program.Accept}
