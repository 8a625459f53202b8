package nftables

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"

	"sluice/internal/backend"
	"sluice/internal/base/sorting"
	"sluice/internal/program"
)

// prices is what the parts of one program cost.
type prices struct {
	costs   *PacketCosts
	program *program.Program
	sets    map[string]float64        // by set
	layouts func() map[string]float64 // of large sets, by choice
	told    func() map[*program.Condition]bool
}

// Prices gives what a packet costs for the parts of a program.
func (n nftables) Prices(p *program.Program) backend.Prices {
	return &prices{costs: &n.costs.Packet, program: p, sets: map[string]float64{}, told: sync.OnceValue(func() map[*program.Condition]bool {
		return n.toldProtocols(p)
	}), layouts: sync.OnceValue(func() map[string]float64 {
		out := map[string]float64{}
		for _, x := range (&lowering{program: p, costs: n.costs, choice: n.choice()}).chooseLayouts() {
			out[choice(x.set.ID, x.family)] = x.costs[x.current].NS()
		}
		return out
	})}
}

// laid is what a lookup in a large set costs as it is laid out; false where it is
// not large.
func (p *prices) laid(c *program.Condition, family int) (float64, bool) {
	s := p.program.Set(c.Set)
	if s == nil || s.Life != program.Static || map[int]int{4: s.Addresses.Len4(), 6: s.Addresses.Len6()}[family] < layoutFrom {
		return 0, false
	}
	ns, has := p.layouts()[choice(c.Set, family)]
	return ns, has
}

func (p *prices) Base(program.Hook) float64 { return p.costs.Base }

// Rule is the condition on the family of the other variant of a rule about
// addresses, where nothing is asked before it.
func (p *prices) Rule(r *program.Rule) float64 {
	if len(r.Match) == 0 || p.silent(r) >= 0 {
		return 0
	}
	for _, c := range r.Match {
		if c.Field == program.Family {
			return 0
		}
	}
	if isAddress(r.Match[p.Order(r)[0]].Field) {
		return p.costs.Compare
	}
	return 0
}

// Order is that of the lowered rule.
func (p *prices) Order(r *program.Rule) []int {
	if i := p.silent(r); i >= 0 {
		return []int{i}
	}
	out := make([]int, len(r.Match))
	for i := range out {
		out[i] = i
	}
	sorting.StableBy(out, func(a, b int) int { return cmp.Compare(rankOf(&r.Match[a]), rankOf(&r.Match[b])) })
	beforeProtocol(out, func(i int) string {
		c := &r.Match[i]
		switch {
		case inWord(c):
			return flagsWord
		case c.Field == program.Protocol:
			return "meta l4proto"
		}
		return ""
	}, flagsWord)
	return out
}

// silent is the place of a condition on a set that commands fill: while it is
// empty, no rule asks it. -1: there is none.
func (p *prices) silent(r *program.Rule) int {
	return slices.IndexFunc(r.Match, func(c program.Condition) bool { return p.commands(&c) })
}

func (p *prices) commands(c *program.Condition) bool {
	set := p.program.Set(c.Set)
	return set != nil && set.Commands && !c.Not
}

// rankOf is the rank of the statement that a condition becomes.
func rankOf(c *program.Condition) int {
	s := Statement{Kind: Match, Op: operator(c.Not), Set: c.Set}
	switch c.Field {
	case program.InInterface, program.OutInterface:
		s.Field = "iifname"
		if followed, _ := splitFollowed(c.Names); len(followed) > 0 {
			s.Set = followed[0]
		}
		if len(c.Names) == 1 && c.Names[0] == loopback {
			s.Field = "iif"
		}
	case program.Protocol:
		s.Field, s.Values = "meta l4proto", make([]string, len(c.Numbers))
	case program.Family:
		s.Field = "meta nfproto"
	case program.State, program.Status:
		s.Field, s.Values = plainFields[c.Field], make([]string, len(c.Names))
		if h, is := ofHandshake(c); is {
			s = h
		}
	case program.OriginalSource, program.OriginalDestination, program.OriginalPort:
		s.Field = "ct original"
	default:
		s.Field = plainFields[c.Field]
		if isAddress(c.Field) {
			s.Field = "ip"
		}
	}
	return rank(s)
}

func (p *prices) Condition(c *program.Condition, family int) float64 {
	if c.Set != "" && isAddress(c.Field) && !p.commands(c) {
		if ns, large := p.laid(c, family); large {
			return p.costs.Compare + ns
		}
	}
	switch {
	case c.Set != "" && p.commands(c), c.Field == program.Protocol && p.told()[c]:
		return 0
	case c.Set != "" && isAddress(c.Field):
		return p.costs.Compare + p.set(c.Set) // with one on the family
	case c.Set != "":
		return p.set(c.Set)
	case c.Field == program.SourceType || c.Field == program.DestinationType || c.Field == program.DestinationHere:
		if family == 6 {
			return p.costs.Route6
		}
		return p.costs.Route
	case c.Field == program.State || c.Field == program.Status:
		return p.costs.Compare
	case len(c.Names) == 1 && strings.HasPrefix(c.Names[0], "@"):
		return p.set(c.Names[0][1:])
	case len(c.Names) > 1 || len(c.Numbers) > 1 || len(c.Addresses) > 2:
		return p.costs.Some
	case len(c.Names) == 1 && (c.Field == program.InInterface || c.Field == program.OutInterface) && c.Names[0] != loopback:
		return p.costs.Name
	case len(c.Numbers) == 1 && c.Numbers[0].From != c.Numbers[0].To:
		return p.costs.Range
	case len(c.Addresses) > 0:
		return 2 * p.costs.Compare
	}
	return p.costs.Compare
}

// set is what looking up costs.
func (p *prices) set(id string) float64 {
	if ns, known := p.sets[id]; known {
		return ns
	}
	s := p.program.Set(id)
	ns := p.costs.Hash
	if s != nil && !exact(s) {
		ns = p.costs.Interval + p.costs.Halve*math.Log2(float64(2+s.Len()))
	}
	if s != nil && s.Counters {
		ns += p.costs.Counter / 2 // only what is found is counted
	}
	p.sets[id] = ns
	return ns
}

// exact says whether a set has single values alone, so that it is a hash table.
func exact(s *program.Set) bool {
	for r := range s.Addresses.Each() {
		if r.From != r.To {
			return false
		}
	}
	for _, e := range s.Elements {
		for _, v := range e.Parts {
			if v.Addresses.From != v.Addresses.To || v.Numbers.From != v.Numbers.To || strings.HasSuffix(v.Name, "*") {
				return false
			}
		}
	}
	return true
}

func (p *prices) Action(a program.Action) float64 {
	switch a := a.(type) {
	case program.Verdict:
		return 0
	case program.Jump, program.Goto:
		return p.costs.Jump
	case program.VerdictMap:
		return p.set(a.Set)
	case program.Count:
		return p.costs.Counter
	case program.Limit:
		if a.Asks {
			return p.set(a.Table)
		}
		if a.Per != program.Together {
			return p.costs.Bucket
		}
		return p.costs.Limit
	case program.ConnectionLimit:
		return p.costs.Tracked
	case program.Log:
		return p.costs.Limit
	case program.SetAdd:
		return p.costs.Bucket
	case program.SetMark, program.NoTrack, program.Offload:
		return p.costs.Mark
	case program.ClampMSS:
		return p.costs.Rewrite + p.costs.Route // what the route carries is asked
	}
	return p.costs.Rewrite
}

var _ backend.Pricer = nftables{}
