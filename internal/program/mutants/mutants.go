// Package mutants has optimizer passes that are wrong on purpose: each changes
// what a program means, in one of the ways in which a pass that was meant well
// goes wrong. Tests run them behind a pass of package optimize
// (optimize.Options.After), and fail where the proof over all packets, or the
// comparison with the kernel, does not notice. No product code imports it.
package mutants

import (
	"slices"
	"strings"

	"sluice/internal/program"
)

// Pass is one wrong pass.
type Pass struct {
	Name string
	// Run changes the program in place and says whether it did: a program may have
	// nothing of the kind that the pass gets wrong. What it changes it makes again,
	// so a copy of the program with its own slice of chains stays as it was. A changed program is well formed, and of the kind that a
	// backend takes. That no packet meets the change can happen: a rule that is
	// dropped may have been hidden.
	Run func(*program.Program) bool
}

// Passes are the five that every proof has to catch.
var Passes = []Pass{
	{"drop-last-rule", dropLastRule},
	{"swap-overlapping-rules", swapOverlapping},
	{"widen-prefix", widenPrefix},
	{"forget-ipv6", forgetIPv6},
	{"established-as-new", establishedAsNew},
}

// policyRule says whether a rule is one of the policy's own, or several of them
// merged, and not what holds without being written, nor a default.
func policyRule(r *program.Rule) bool {
	if r.Stage != program.StageRules && r.Stage != "" || len(r.Actions) == 0 {
		return false
	}
	if slices.ContainsFunc(r.Match, func(c program.Condition) bool { return strings.HasPrefix(c.Set, "rules.") }) {
		return true
	}
	return len(r.Match) > 0 && (r.ID != "" || r.Origin.Line > 0)
}

// verdict is what a rule ends in, "" where it does not end in a verdict.
func verdict(r *program.Rule) program.Verdict {
	if len(r.Actions) == 0 {
		return ""
	}
	return program.EffectOf(r.Actions[len(r.Actions)-1]).Decides
}

// gated says that a limit may keep the rule from deciding.
func gated(r *program.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool {
		e := program.EffectOf(a)
		return e.Gates && e.Bounds
	})
}

// falls is the verdict that a packet meets behind all rules of a chain with
// conditions; "" where another chain says it.
func falls(p *program.Program, c *program.Chain) program.Verdict {
	for i := range c.Rules {
		if v := verdict(&c.Rules[i]); len(c.Rules[i].Match) == 0 && v != "" && !gated(&c.Rules[i]) {
			return v
		}
	}
	for _, h := range p.Hooks {
		if h.Chain == c.Name {
			return h.Default
		}
	}
	return ""
}

// filters are the chains that decide, the last first: those behind hooks that
// filter and all that are no base chain.
func filters(p *program.Program) (out []*program.Chain) {
	for i := len(p.Chains) - 1; i >= 0; i-- {
		c := &p.Chains[i]
		at := slices.IndexFunc(p.Hooks, func(h program.Hook) bool { return h.Chain == c.Name })
		if at < 0 || p.Hooks[at].Phase == program.Filter {
			out = append(out, c)
		}
	}
	return out
}

// dropLastRule removes the last rule that decides otherwise than what follows.
func dropLastRule(p *program.Program) bool {
	for _, c := range filters(p) {
		otherwise := falls(p, c)
		for i := len(c.Rules) - 1; i >= 0; i-- {
			if v := verdict(&c.Rules[i]); policyRule(&c.Rules[i]) && v != "" && v != program.Return && v != otherwise {
				c.Rules = slices.Delete(slices.Clone(c.Rules), i, i+1)
				return true
			}
		}
	}
	return false
}

// swapOverlapping lets two rules change places of which a packet can match both,
// and which decide differently. The rules in between stay where they are.
func swapOverlapping(p *program.Program) bool {
	for _, c := range filters(p) {
		for first := range c.Rules {
			a := &c.Rules[first]
			if !decides(a) {
				continue
			}
			for second := first + 1; second < len(c.Rules); second++ {
				b := &c.Rules[second]
				if decides(b) && verdict(a) != verdict(b) && overlap(p, a, b) && !covers(p, c.Rules[:first], a, b) {
					rules := slices.Clone(c.Rules)
					rules[first], rules[second] = rules[second], rules[first]
					c.Rules = rules
					return true
				}
			}
		}
	}
	return false
}

// decides says that a rule of the policy ends in a verdict by its conditions alone.
func decides(r *program.Rule) bool {
	v := verdict(r)
	return policyRule(r) && v != "" && v != program.Return && !gated(r)
}

// establishedAsNew lets packets of flows that exist be taken for such as begin one.
func establishedAsNew(p *program.Program) bool {
	changed := false
	for i := range p.Chains {
		c := &p.Chains[i]
		var rules []program.Rule
		for _, r := range c.Rules {
			r.Match = slices.Clone(r.Match)
			dead := false
			for j := range r.Match {
				m := &r.Match[j]
				if m.Field != program.State || m.Set != "" {
					continue
				}
				names := slices.DeleteFunc(slices.Clone(m.Names), func(n string) bool { return n == "established" })
				if slices.Contains(names, "new") {
					names = append(names, "established")
				}
				if slices.Equal(names, m.Names) {
					continue
				}
				changed = true
				m.Names = names
				dead = dead || len(names) == 0 && !m.Not
			}
			r.Match = slices.DeleteFunc(r.Match, func(m program.Condition) bool {
				return m.Field == program.State && m.Set == "" && len(m.Names) == 0
			})
			if !dead {
				rules = append(rules, r)
			}
		}
		c.Rules = rules
	}
	return changed
}
