package nftables

import (
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/program"
)

// What is known of packets that get to a chain: which addresses they have, by the
// conditions of the rules that lead there.

// comeTo is the addresses that packets have which get to a chain; false where that
// is not known.
func (r *lifter) comeTo(chain string, field program.Field, depth int) (addrset.Set, bool) {
	c := r.tree.chain(chain)
	if c == nil || c.Base != nil || depth > maxChains {
		return addrset.Set{}, false
	}
	var out addrset.Set
	for _, from := range r.tree.Chains {
		for n, k := range from.Rules {
			last := len(k.Statements) - 1
			for i, s := range k.Statements {
				leads := i == last && (s.Kind == Jump || s.Kind == Goto) && s.Name == chain
				if s.Kind == VerdictMap && r.mapLeads(s, chain) {
					return out, false
				}
				if !leads {
					continue
				}
				mine, known := r.asked(k.Statements[:i], field)
				if !known && !rewritten(from, n, field) {
					mine, known = r.comeTo(from.Name, field, depth+1)
				}
				if !known {
					return out, false
				}
				out = out.Union(mine)
			}
		}
	}
	return out, true
}

func (r *lifter) mapLeads(s Statement, chain string) bool {
	for _, v := range r.tree.verdicts(s) {
		if _, to, leads := strings.Cut(v, " "); leads && to == chain {
			return true
		}
	}
	return false
}

// asked is the addresses that conditions leave; false where none is about the field.
func (r *lifter) asked(statements []Statement, field program.Field) (out addrset.Set, known bool) {
	for _, s := range statements {
		if s.Kind == Rewrite && addressField(s.Field) == field {
			return out, false
		}
		if s.Kind != Match || s.Op != "==" || s.Mask != "" || addressField(s.Field) != field {
			continue
		}
		mine, err := (&walker{lifter: r}).addresses(s)
		if err != nil {
			continue
		}
		if known {
			mine = mine.Intersect(out)
		}
		out, known = mine, true
	}
	return out, known
}

// rewritten says whether a rule of a chain before one of them rewrites the field.
func rewritten(c *Chain, before int, field program.Field) bool {
	for _, k := range c.Rules[:before] {
		for _, s := range k.Statements {
			if s.Kind == Rewrite && addressField(s.Field) == field {
				return true
			}
		}
	}
	return false
}
