package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/base/sorting"
	"sluice/internal/importer"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// ChainCost is what the rules of a base chain, and of those it leads to, cost a packet: an
// estimate by how many of them it is asked by.
type ChainCost struct {
	Ruleset string           `json:"ruleset"` // "iptables-legacy", "nft table inet filter"
	Tool    string           `json:"tool"`    // as importer.Ruleset has it
	Family  string           `json:"family"`
	Table   string           `json:"table"`
	Chain   string           `json:"chain"` // as the tool has it
	Hook    program.HookKind `json:"hook"`
	Known   Asked            `json:"known"` // a packet of a known connection
	New     Asked            `json:"new"`   // the first packet of one, to a port that nobody listens at

	of   *importer.Ruleset
	base program.Hook
}

// Asked is by how many rules a packet is asked, and what that costs it.
type Asked struct {
	Rules int     `json:"rules"`
	NS    float64 `json:"ns"` // estimated
}

// Text names the chain.
func (c *ChainCost) Text() string {
	table := ""
	if c.Tool != "nft" {
		table = c.Table + "/"
	}
	return fmt.Sprintf("%s, chain %s%s, hook %s", c.Ruleset, table, c.Chain, c.Hook)
}

// The packets that costs are of: of TCP, from port 443 of a host of the internet to a high
// port, of this host or of one behind it.
var (
	CostFrom    = map[int]netip.Addr{4: netip.AddrFrom4([4]byte{1, 1, 1, 1}), 6: netip.MustParseAddr("2606:4700:47::11")}
	CostTo      = map[int]netip.Addr{4: netip.MustParseAddr("198.51.100.1"), 6: netip.MustParseAddr("2001:db8:0:1::1")}
	CostThrough = map[int]netip.Addr{4: netip.MustParseAddr("10.77.0.80"), 6: netip.MustParseAddr("2001:db8:77::80")}
)

// The ports of those packets.
const (
	CostFromPort = 443
	CostToPort   = someEphemeral
)

// FamilyOf is the family, 4 or 6, of the packets that costs of a ruleset's chains are of.
func (c *ChainCost) FamilyOf() int {
	if c.Family == "ip6" {
		return 6
	}
	return 4
}

// Costs are those of all base chains of rulesets that ask a packet anything, the dearest
// first.
func Costs(rulesets []*importer.Ruleset) []ChainCost {
	out := []ChainCost{}
	for _, r := range rulesets {
		if !meets(r, 4) && !meets(r, 6) {
			continue
		}
		at := len(out)
		for i, b := range r.Bases {
			out = append(out, ChainCost{
				Ruleset: toolOf(r), Tool: r.Tool, Family: r.Family, Table: b.Table, Chain: b.Chain, Hook: b.Hook,
				of: r, base: r.Program.Hooks[i],
			})
		}
		for _, way := range []packet.Way{packet.In, packet.Through, packet.Out} {
			for _, known := range []bool{true, false} {
				for chain, n := range askedBy(r, way, known) {
					i := slices.IndexFunc(r.Program.Hooks, func(h program.Hook) bool { return h.Chain == chain })
					if i < 0 || i >= len(r.Bases) || wayOf(r.Bases[i].Hook) != way {
						continue
					}
					to := &out[at+i].New
					if known {
						to = &out[at+i].Known
					}
					*to = Asked{n, ruleCost(r, n)}
				}
			}
		}
	}
	out = slices.DeleteFunc(out, func(c ChainCost) bool { return c.Known.Rules+c.New.Rules == 0 })
	sorting.By(out, func(a, b ChainCost) int {
		return cmp.Or(cmp.Compare(b.Known.NS+b.New.NS, a.Known.NS+a.New.NS), cmp.Compare(a.Text(), b.Text()))
	})
	return out
}

// wayOf is the way of packets by which a hook's chains are priced; "" of those that are not.
func wayOf(h program.HookKind) packet.Way {
	switch h {
	case program.Prerouting, program.Input:
		return packet.In
	case program.Forward, program.Postrouting:
		return packet.Through
	case program.Output:
		return packet.Out
	}
	return ""
}

// askedBy counts the rules that a packet is asked by, by base chain.
func askedBy(r *importer.Ruleset, way packet.Way, known bool) map[string]int {
	family := 4
	if !meets(r, 4) {
		family = 6
	}
	p := packet.Packet{
		In: "eth0", Source: CostFrom[family], Destination: CostTo[family], Protocol: packet.TCP, SourcePort: CostFromPort, Port: CostToPort,
		Flags: packet.SYN, State: packet.New, DestinationLocal: packet.Yes, SourceLocal: packet.No, Owner: -1,
	}
	if known {
		p.Flags, p.State = packet.ACK, packet.Established
	}
	switch way {
	case packet.Through:
		p.Destination, p.DestinationLocal, p.Out = CostThrough[family], packet.No, "eth1"
	case packet.Out:
		p.Source, p.Destination = p.Destination, p.Source
		p.In, p.Out, p.SourceLocal, p.DestinationLocal, p.SourcePort, p.Port = "", "eth0", packet.Yes, packet.No, CostToPort, CostFromPort
	}
	counts, base, last := map[string]int{}, "", ""
	m := silentMeter()
	m.Base = func(h program.Hook) { base, last = h.Chain, "" }
	m.Rule = func(rule *program.Rule) {
		if rule.ID == "" || rule.ID != last { // one of the tool's may be several
			counts[base]++
		}
		last = rule.ID
	}
	reach.Measure(r.Program, p, way, m)
	return counts
}

// ChainsHead stands above the lines of Chains.
const ChainsHead = "estimated cost of rules for a packet of a known connection, and for a new one to a closed port"

// mostChains bounds how many are printed.
const mostChains = 10

// Chains are lines of what base chains cost, the dearest; none where there are no rules.
func (r *Report) Chains() (lines []string) {
	for i := range r.Costs[:min(len(r.Costs), mostChains)] {
		c := &r.Costs[i]
		lines = append(lines, fmt.Sprintf("%7s %7s ns  %s (%s, %s)", english.Grouped(uint64(c.Known.NS+0.5)), english.Grouped(uint64(c.New.NS+0.5)), c.Text(), english.Plural(c.Known.Rules, "rule"), english.Grouped(uint64(c.New.Rules))))
	}
	if n := len(r.Costs) - mostChains; n > 0 {
		lines = append(lines, fmt.Sprintf("%d more that cost less", n))
	}
	return lines
}

// filters says that a chain stands where rules filter that know the connection.
func (c *ChainCost) filters() bool {
	return c.base.Phase == program.Watching || c.base.Phase == program.Filter || c.base.Phase == program.Behind
}
