package peers

import (
	"fmt"

	"sluice/internal/language/policy"
)

// counted is a chain that counts, logs and decides.
func (w *iptablesText) counted(c code, r Rule) string {
	name := c.chain("then")
	var pre []string
	if l := r.Limit; l != nil {
		count, unit, _ := rateOf(l)
		burst := l.Burst
		if burst == 0 {
			burst = l.Count
		}
		if l.PerSource {
			pre = append(pre, fmt.Sprintf("-m hashlimit --hashlimit-name %s --hashlimit-mode srcip --hashlimit-srcmask %d --hashlimit-upto %d/%s --hashlimit-burst %d",
				name, w.sourceBits(), count, unit, burst))
		} else {
			pre = append(pre, fmt.Sprintf("-m limit --limit %d/%s --limit-burst %d", count, unit, burst))
		}
	}
	if r.Max != nil {
		mask := 0
		if r.Max.PerSource {
			mask = w.sourceBits()
		}
		pre = append(pre, fmt.Sprintf("-m connlimit --connlimit-upto %d --connlimit-mask %d", r.Max.Count, mask))
	}
	last := name
	if len(pre) > 0 && (r.Log != nil || r.Action == policy.Reject) {
		last = c.chain("then")
		c.emit(name, pre, nil, "-j "+last)
		pre = nil
	}
	w.decide(c, last, r, pre)
	if r.bans() && c.how == ipsets {
		w.banOver(c, name, r.Limit)
	}
	return name
}

func (w *iptablesText) decide(c code, chain string, r Rule, pre []string) {
	if r.Log != nil {
		c.line(chain, "%s", logs(*r.Log))
	}
	if r.Action == policy.Reject {
		w.rejects(c, chain)
		return
	}
	c.emit(chain, pre, nil, w.verdict(c, r.Action, Way{}))
}

// sourceBits is what counts as one source: an address of IPv4, a /64 of IPv6.
func (w *iptablesText) sourceBits() int {
	if w.family == 6 {
		return 64
	}
	return 32
}
