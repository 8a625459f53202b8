package nftables

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"sluice/internal/backend"
	"sluice/internal/program"
)

// layoutFrom is from how many ranges of a family on a set may be laid out in
// chains: asking a smaller one costs little, and a reader understands it better
// as it is.
const layoutFrom = 1024

// layoutChoice says how layouts are chosen.
type layoutChoice struct {
	from    int // ranges
	choose  func(all []*largeSet, budget program.Layout)
	choices map[string]string // see artifact.Choices; where they say nothing, choose does
}

// What the layouts of all large sets together may take, where the policy says
// nothing.
const (
	defaultLayoutMemory = 64 << 20 // bytes
	// Of load time it is what one interval set for each of them would take and
	// this part of it, at least what a small policy does not notice.
	defaultLayoutMore = 4           // a quarter
	defaultLayoutLoad = 250_000_000 // ns
)

// largeSet is a set and family for which a layout is chosen.
type largeSet struct {
	set     *program.Set
	family  int
	uses    int
	spans   []span
	model   *CostModel
	costs   []backend.LayoutCost // by candidate
	current int                  // the candidate
	kept    bool                 // it was chosen before
}

// choice names a set and family in what was chosen.
func choice(set string, family int) string { return fmt.Sprintf("set %s, IPv%d", set, family) }

// keep takes the candidate that was chosen before, whatever it costs.
func (x *largeSet) keep(choices map[string]string) {
	x.current = slices.IndexFunc(candidates[x.family], func(c candidate) bool { return c.name == choices[choice(x.set.ID, x.family)] })
	if x.kept = x.current >= 0; !x.kept {
		x.current = 0
	}
}

// layOut chooses a layout for each large static set, within the budget, and makes it.
func (l *lowering) layOut() {
	all := l.chooseLayouts()
	l.noteOverBudget(slices.DeleteFunc(slices.Clone(all), func(x *largeSet) bool { return x.kept }))
	for _, x := range all {
		l.layouts = append(l.layouts, backend.LayoutReport{
			Set: x.set.ID, Family: x.family, Ranges: len(x.spans), Uses: x.uses,
			Chosen: x.costs[x.current].Name, Candidates: x.costs, Origin: x.set.Origin,
		})
		if x.current > 0 {
			if l.laid[x.set.ID] == nil {
				l.laid[x.set.ID] = map[int]*laid{}
			}
			l.laid[x.set.ID][x.family] = newLaid(x.set, x.family, candidates[x.family][x.current].make(whole(x.spans)))
		}
	}
}

// chooseLayouts finds the large sets, and a candidate for each.
func (l *lowering) chooseLayouts() []*largeSet {
	budget := l.program.Layout
	if budget.Memory == 0 {
		budget.Memory = defaultLayoutMemory
	}
	uses := l.uses()
	var all []*largeSet
	for i := range l.program.Sets {
		s := &l.program.Sets[i]
		counted := s.Counters && l.can[backend.SetElementCounters] != backend.No
		if s.Life != program.Static || s.Commands || counted || s.Verdicts || len(s.Key) != 1 || !isAddress(s.Key[0]) || uses[s.ID] == 0 {
			continue
		}
		addresses := allAddresses(s)
		for _, f := range families {
			spans := spansOf(addresses, f)
			ranges := slices.ContainsFunc(spans, func(s span) bool { return s.from.address(f) != s.to.address(f) })
			if ranges && len(spans) >= l.choice.from { // single addresses are a hash set
				all = append(all, &largeSet{set: s, family: f, uses: uses[s.ID], spans: spans, model: l.costs})
			}
		}
	}
	if budget.Load == 0 {
		for _, x := range all {
			_, ns := l.costs.set(kindInterval, len(x.spans), x.family == 6)
			budget.Load += uint64(ns)
		}
		budget.Load = max(budget.Load+budget.Load/defaultLayoutMore, defaultLayoutLoad)
	}
	var open []*largeSet
	for _, x := range all {
		if x.keep(l.choice.choices); !x.kept {
			open = append(open, x)
		}
	}
	// Mostly these are the two families of one set.
	var estimating sync.WaitGroup
	for half := range 2 {
		estimating.Go(func() {
			for i := half; i < len(all); i += 2 {
				all[i].estimate()
			}
		})
	}
	estimating.Wait()
	l.choice.choose(open, budget)
	return all
}

// noteOverBudget says where what the policy gives the large sets is less than any
// layout needs.
func (l *lowering) noteOverBudget(all []*largeSet) {
	var least, chosen backend.LayoutCost
	for _, x := range all {
		first, now := x.costs[0], x.costs[x.current]
		least.Memory, least.Load = least.Memory+first.Memory, least.Load+first.Load
		chosen.Memory, chosen.Load = chosen.Memory+now.Memory, chosen.Load+now.Load
	}
	tell := func(what string, budget, least, chosen uint64, text func(uint64) string) {
		if budget == 0 || chosen <= budget {
			return
		}
		smaller := ""
		if chosen < least {
			smaller = ", what was chosen " + text(chosen)
		}
		l.note(program.Origin{}, "layout: %s: %s is not enough: even one interval set for each large set needs %s%s", what, text(budget), text(least), smaller)
	}
	tell("memory", l.program.Layout.Memory, least.Memory, chosen.Memory, mebibytes)
	tell("load", l.program.Layout.Load, least.Load, chosen.Load, milliseconds)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func milliseconds(ns uint64) string { return fmt.Sprintf("%.0f ms", float64(ns)/1e6) }

// uses is in how many ways rules ask each set of the packet's own addresses: what asks
// of the same address and does the same shares its chains.
func (l *lowering) uses() map[string]int {
	out, seen := map[string]int{}, map[string]bool{}
	for _, c := range l.program.Chains {
		for _, r := range c.Rules {
			does := ""
			for _, a := range r.Actions {
				does += program.ActionText(a) + ", "
			}
			if len(r.Actions) > 1 { // in a chain of the rule's own
				does += cmp.Or(r.ID, c.Name)
			}
			for _, m := range r.Match {
				if m.Set == "" || m.Field != program.Source && m.Field != program.Destination || len(m.SetKey) > 1 {
					continue
				}
				if use := fmt.Sprint(m.Set, m.Field, m.Not, does); !seen[use] {
					seen[use] = true
					out[m.Set]++
				}
			}
		}
	}
	return out
}

// estimate prices the candidates.
func (x *largeSet) estimate() {
	byAddress, byRange := trafficsOf(x.spans, x.family)
	for _, c := range candidates[x.family] {
		x.costs = append(x.costs, x.model.price(c.name, c.make(whole(x.spans)), x.family, x.uses, byAddress, byRange))
	}
}

// choose takes for each set the last candidate that fits beside what is taken for the
// others, the first one before their turn.
func choose(all []*largeSet, budget program.Layout) {
	var memory, load uint64
	for _, x := range all {
		memory, load = memory+x.costs[0].Memory, load+x.costs[0].Load
	}
	for better := true; better; { // what takes less than the first one makes room
		better = false
		for _, x := range all {
			for i := len(x.costs) - 1; i > x.current; i-- {
				now, next := x.costs[x.current], x.costs[i]
				m, t := memory-now.Memory+next.Memory, load-now.Load+next.Load
				if m <= max(budget.Memory, memory) && t <= max(budget.Load, load) {
					x.current, memory, load, better = i, m, t, true
					break
				}
			}
		}
	}
}

// Choices is the layout of each large set by set and family: what Keeping takes.
func (a *artifact) Choices() map[string]string {
	out := map[string]string{}
	for _, r := range a.layouts {
		out[choice(r.Set, r.Family)] = r.Chosen
	}
	return out
}

// Layouts says how the large sets are laid out.
func (a *artifact) Layouts() []backend.LayoutReport { return slices.Clone(a.layouts) }
