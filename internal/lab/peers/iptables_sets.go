package peers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// code is a table that is written to, with the way that sets are asked there.
type code struct {
	*iptablesText
	table string
	how   layout
}

// iptablesTest asks for one side.
type iptablesTest struct {
	side string // src, dst
	*Addresses
}

// is asks for a prefix.
func (t iptablesTest) is(p netip.Prefix) string { return "-" + t.side[:1] + " " + plain(p) }

func (c code) line(chain, format string, args ...any) {
	fmt.Fprintf(&c.iptablesText.table(c.table).rules, "-A "+chain+" "+format+"\n", args...)
}

func (c code) declare(chain string) {
	t := c.iptablesText.table(c.table)
	t.chains = append(t.chains, chain)
}

// chain makes a chain with a name of its own.
func (c code) chain(kind string) string {
	c.number++
	name := fmt.Sprintf("%s%s%d", c.prefix, kind, c.number)
	c.declare(name)
	return name
}

// emit writes one rule: the conditions, then a test of each side, then what is done.
func (c code) emit(chain string, pre []string, tests []iptablesTest, do string) {
	if len(tests) == 0 {
		c.line(chain, "%s", strings.Join(append(slices.Clone(pre), do), " "))
		return
	}
	t, rest := tests[0], tests[1:]
	v4, v6 := t.Set.CountPrefixes()
	switch n := v4 + v6; {
	case n == 1 && !(t.counts && c.how == ipsets):
		p := t.Set.Prefixes()[0]
		is := t.is(p)
		if t.Not {
			is = "! " + is
		}
		c.emit(chain, append(slices.Clone(pre), is), rest, do)
	case (n > inline || t.counts) && c.how == ipsets:
		not := ""
		if t.Not {
			not = "! "
		}
		c.emit(chain, append(slices.Clone(pre), fmt.Sprintf("-m set %s--match-set %s %s", not, c.set(t), t.side)), rest, do)
	case n > inline && c.how == chainPer8:
		c.per8(chain, pre, t, c.then(rest, do))
	default:
		c.members(chain, pre, t, c.then(rest, do))
	}
}

// then is where a member of a set goes: what is done, where nothing more is asked,
// else a chain that asks it.
func (c code) then(rest []iptablesTest, do string) string {
	if len(rest) == 0 {
		return do
	}
	chain := c.chain("rest")
	c.emit(chain, nil, rest, alone(do))
	return "-j " + chain
}

// alone is what is done where the rule asks for no protocol: a reset has to.
func alone(do string) string {
	if strings.Contains(do, "tcp-reset") {
		return "-p tcp " + do
	}
	return do
}

// members has a rule for each prefix. The opposite is a chain that members leave.
func (c code) members(chain string, pre []string, t iptablesTest, do string) {
	if t.Not {
		without := c.chain("without")
		for p := range t.Set.EachPrefix() {
			c.line(without, "%s -j RETURN", t.is(p))
		}
		c.line(without, "%s", alone(do))
		c.emit(chain, pre, nil, "-j "+without)
		return
	}
	before := strings.Join(pre, " ")
	if before != "" {
		before += " "
	}
	for p := range t.Set.EachPrefix() {
		c.line(chain, "%s%s %s", before, t.is(p), do)
	}
}

// per8 has a chain of rules for each /8 (of IPv6: for each first 16 bits), and a
// jump to each.
func (c code) per8(chain string, pre []string, t iptablesTest, do string) {
	do = alone(do)
	to := chain
	if len(pre) > 0 || t.Not {
		to = c.chain("set")
		c.emit(chain, pre, nil, "-j "+to)
	}
	jump, member := "-j", do
	if t.Not {
		jump, member = "-g", "-j RETURN" // back to where the set was asked
	}
	c.number++
	number := c.number
	for _, b := range blocks(t.Set) {
		name := fmt.Sprintf("%sof%d_%s", c.prefix, number, b.name())
		c.declare(name)
		c.line(to, "%s %s %s", t.is(netip.PrefixFrom(b.first, b.bits)), jump, name)
		for _, p := range b.prefixes {
			c.line(name, "%s %s", t.is(p), member)
		}
		if t.Not {
			c.line(name, "%s", do)
		}
	}
	if t.Not {
		c.line(to, "%s", do)
	}
}

// set makes an ipset of the addresses, once, and returns its name.
func (c code) set(t iptablesTest) string {
	name := identifier(t.Name)
	if name == "" {
		c.number++
		name = fmt.Sprintf("group%d_", c.number)
	}
	const longest = 30 // IPSET_MAXNAMELEN of linux/netfilter/ipset/ip_set.h, less its zero and the family
	name = fmt.Sprintf("%.*s%d", longest-1, name, c.family)
	if c.named[name] {
		return name
	}
	c.named[name] = true
	kind := "hash:ip"
	var members []netip.Prefix
	for p := range t.Set.EachPrefix() {
		if !p.IsSingleIP() {
			kind = "hash:net"
		}
		if p.Bits() == 0 { // hash:net has no prefix of length 0
			half := p.Addr().AsSlice()
			half[0] = 128
			upper, _ := netip.AddrFromSlice(half)
			members = append(members, netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(upper, 1))
			kind = "hash:net"
			continue
		}
		members = append(members, p)
	}
	size := len(members)
	counters := ""
	if t.counts {
		counters = " counters"
	}
	fmt.Fprintf(c.sets, "create %s %s family %s maxelem %d hashsize %d%s\n", name, kind, c.inet(), max(size, 65536), max(size/4, 64), counters)
	for _, p := range members {
		fmt.Fprintf(c.sets, "add %s %s\n", name, plain(p))
	}
	return name
}
