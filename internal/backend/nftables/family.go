package nftables

import "slices"

// families leaves out what a chain tells, where packets of one family alone come.
func (l *lowering) families() {
	bits := map[int]protocols{4: 1, 6: 2}
	come := l.tree.come(bits[4]|bits[6], func(s Statement) (out protocols) {
		for f, bit := range bits {
			if s.fits(f) {
				out |= bit
			}
		}
		return out
	}, func(Rule) protocols { return 0 })
	for _, c := range l.tree.Chains {
		var rules []Rule
		for i, some := range come[c.Name] {
			r := c.Rules[i]
			switch {
			case some == bits[4] && !r.fits(4), some == bits[6] && !r.fits(6):
				continue
			case some == bits[4], some == bits[6]:
				r.Statements = slices.DeleteFunc(slices.Clone(r.Statements), Statement.asksFamily)
			}
			rules = append(rules, r)
		}
		c.Rules = rules
	}
}

func (r Rule) fits(family int) bool {
	return !slices.ContainsFunc(r.Statements, func(s Statement) bool { return !s.fits(family) })
}
