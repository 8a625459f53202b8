package compile

import "sluice/internal/program"

// heldSources is the set of what may come by the interfaces of guests.
const heldSources = "guests.sources"

// held drops what comes by the interface of a guest from another source than the guest's
// own, whatever flow it says to be of: who guesses the ports of a neighbour's flow would
// else speak in it.
func (c *compiler) held() {
	if len(c.policy.Held) == 0 {
		return
	}
	pair := []program.Field{program.InInterface, program.Source}
	o := originOf(c.policy.Held[0].Pos, c.policy.Held[0].Text)
	sources := program.Set{ID: heldSources, Key: pair, Life: program.Static, Origin: o}
	var interfaces []string
	for i := range c.policy.Held {
		h := &c.policy.Held[i]
		interfaces = append(interfaces, h.Interface.Text)
		for r := range h.Sources().Each() {
			sources.Elements = append(sources.Elements, program.Element{Parts: []program.Value{{Name: h.Interface.Text}, {Addresses: r}}})
		}
		c.program.Rests = append(c.program.Rests, program.Rest{Named: h.Interface.Text})
	}
	c.sets[heldSources] = true
	c.program.Sets = append(c.program.Sets, sources)
	of := program.Condition{Field: program.InInterface, Set: heldSources, SetKey: pair, Not: true}
	for _, hook := range []program.HookKind{program.Input, program.Forward} {
		chain := c.base(hook, program.Filter, string(hook), "guests; the policy leaves "+string(hook)+" open")
		c.append(chain.Name, program.Rule{
			Stage: program.StageHeld, Match: match{names(program.InInterface, interfaces...), of},
			Actions: c.counted("guests_"+string(hook), o, "sources that are not the guest's", program.Drop),
			Origin:  o, Comment: "a source that is not the guest's",
		})
	}
}
