package reach

import (
	"slices"

	"sluice/internal/program"
)

// scanFragments tells later fragments apart where they get to a chain that asks
// for what they do not carry.
func (u *Universe) scanFragments(programs []*program.Program) {
	u.assembled = true
	for _, p := range programs {
		var everywhere, atDevices bool
		eachRule(p, nil, func(r *program.Rule) { everywhere = everywhere || asks(p, r, carriedOnce) })
		for _, h := range p.Hooks {
			if h.Kind == program.Ingress {
				eachRule(p, []string{h.Chain}, func(r *program.Rule) { atDevices = atDevices || asks(p, r, carriedOnce) })
			}
		}
		assembled := assembles(p)
		if atDevices || everywhere && !assembled {
			u.dimension(program.Fragment).cut(program.NumberRange{From: 1, To: 1})
		}
		u.assembled = u.assembled && assembled
	}
}

// assembles says whether the kernel puts packets together behind ingress, as it does
// where it tracks connections (nf_defrag_ipv4 and nf_defrag_ipv6).
func assembles(p *program.Program) (tracked bool) {
	eachRule(p, nil, func(r *program.Rule) {
		tracked = tracked || asks(p, r, ofTracking) || slices.ContainsFunc(r.Actions, tracks)
	})
	return tracked
}

// carriedOnce are the fields of a header that only the first fragment has.
var carriedOnce = []program.Field{
	program.Port, program.SourcePort, program.TCPFlags, program.ICMPType, program.ICMPCode, program.ICMPv6Type, program.ICMPv6Code,
}

var ofTracking = []program.Field{
	program.State, program.Direction, program.Status, program.OriginalSource, program.OriginalDestination, program.OriginalPort,
}

// tracks says whether the kernel tracks connections for an action.
func tracks(a program.Action) bool { return program.EffectOf(a).Tracks }

// asks says whether a rule asks for one of some fields.
func asks(p *program.Program, r *program.Rule, fields []program.Field) bool {
	is := func(f program.Field) bool { return slices.Contains(fields, f) }
	for i := range r.Match {
		if is(r.Match[i].Field) || slices.ContainsFunc(r.Match[i].SetKey, is) {
			return true
		}
	}
	return slices.ContainsFunc(r.Actions, func(a program.Action) bool { return slices.ContainsFunc(program.EffectOf(a).Reads, is) })
}

// eachRule gives the rules of the chains that some chains lead to, these included;
// of all without any.
func eachRule(p *program.Program, chains []string, give func(*program.Rule)) {
	if chains == nil {
		for i := range p.Chains {
			chains = append(chains, p.Chains[i].Name)
		}
	}
	seen := map[string]bool{}
	for len(chains) > 0 {
		c := p.Chain(chains[0])
		chains = chains[1:]
		if c == nil || seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		for i := range c.Rules {
			give(&c.Rules[i])
			for _, a := range c.Rules[i].Actions {
				chains = append(chains, p.Leads(a)...)
			}
		}
	}
}

// scanMarks names as what nobody can decide a mark that is written in part and
// asked for more than what was written.
func (u *Universe) scanMarks(programs []*program.Program) {
	var written, asked []uint32
	for _, p := range programs {
		eachRule(p, nil, func(r *program.Rule) {
			for _, a := range r.Actions {
				if m := program.EffectOf(a).Marks; m.Mask != 0 {
					written = append(written, m.Mask)
				}
			}
			for i := range r.Match {
				if c := &r.Match[i]; c.Field == program.Mark {
					asked = append(asked, maskOf(c.Mask))
				}
			}
		})
	}
	for _, w := range written {
		if text := "a mark that was written in part"; slices.ContainsFunc(asked, func(a uint32) bool { return a&w != 0 && a&^w != 0 }) && !slices.Contains(u.opaque, text) {
			u.opaque = append(u.opaque, text)
		}
	}
}

func maskOf(mask uint64) uint32 {
	if mask == 0 {
		return ^uint32(0)
	}
	return uint32(mask) //nolint:gosec // the mark has 32 bits
}
