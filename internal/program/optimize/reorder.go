package optimize

import (
	"sluice/internal/base/english"
	"sluice/internal/program"
)

// reorder puts rules that were hit often before rules that were hit less, where
// they commute. It goes by the counters of a running firewall; without them
// the policy's order stays.
//
// Of the rules that nothing has to be before any more, the next is always
// the one that was hit most, or that stands in the way of those that were: by
// the mean of what it lets come. What was never counted stays where it is, and so
// does what holds without being written.
func reorder(w *work) {
	if len(w.options.Profile) == 0 {
		return
	}
	f := w.facts()
	for i := range w.Chains {
		if chain := &w.Chains[i]; len(chain.Rules) <= allCompared {
			if moved := byHits(w, f, chain); moved > 0 {
				w.say(english.Plural(moved, "rule") + " of chain " + chain.Name + " went up before rules that were hit less")
			}
		}
	}
}

// byHits puts the rules of a chain in order and says how many went up.
func byHits(w *work, f *facts, chain *program.Chain) int {
	n, rules := len(chain.Rules), f.ordered(chain)
	q := queue{hits: make([]hit, n), behind: make([][]int, n), worth: make([]mean, n), waits: make([]int, n)}
	for i := range n {
		q.hits[i] = hitsOf(w.Program, &chain.Rules[i], w.options.Profile, 0)
		q.hits[i].counted = q.hits[i].counted && isPolicys(&chain.Rules[i])
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			if !q.hits[i].counted || !q.hits[j].counted || !rules.commuteAt(i, j) {
				q.behind[i] = append(q.behind[i], j)
				q.waits[j]++
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		q.worth[i] = q.worthOf(i, decides(&chain.Rules[i]))
	}
	out, moved := make([]program.Rule, 0, n), 0
	for at := range n {
		next := q.next()
		if next > at {
			moved++
		}
		out = append(out, chain.Rules[next])
	}
	if moved > 0 {
		chain.Rules = out
	}
	return moved
}

// isPolicys says that a rule's place is the policy's choice. What holds without
// being written stands where it does for a reason.
func isPolicys(r *program.Rule) bool {
	return r.Stage == "" || r.Stage == program.StageRules || r.Stage == program.StageTrack
}

// queue is the rules of a chain on their way into another order.
type queue struct {
	hits   []hit
	behind [][]int // by rule: those that have to stay behind it
	worth  []mean
	waits  []int // by rule: how many have to come before it; -1: it has its place
}

// mean is packets for each rule of several.
type mean struct{ packets, rules uint64 }

func (m mean) above(o mean) bool { return m.packets*o.rules > o.packets*m.rules }

func (q *queue) worthOf(i int, decides bool) mean {
	own := mean{rules: 1}
	if decides {
		own.packets = q.hits[i].packets
	}
	best := own
	for _, j := range q.behind[i] {
		if with := (mean{own.packets + q.worth[j].packets, 1 + q.worth[j].rules}); with.above(best) {
			best = with
		}
	}
	return best
}

// next takes the next rule out of the queue.
func (q *queue) next() int {
	best := -1
	for i, waits := range q.waits {
		if waits == 0 && (best < 0 || q.worth[i].above(q.worth[best])) {
			best = i
		}
	}
	q.waits[best] = -1
	for _, j := range q.behind[best] {
		q.waits[j]--
	}
	return best
}

// hit is how many packets a rule was seen to match.
type hit struct {
	packets uint64
	counted bool
}

func (h *hit) add(profile map[string]uint64, counter string) {
	if counter == "" {
		return
	}
	n, known := profile[counter]
	h.packets += n
	h.counted = h.counted || known
}

// deepest bounds how far counters are looked for along jumps.
const deepest = 16

// hitsOf adds up the counters of a rule, of the elements that it asks, and of
// where it leads.
func hitsOf(p *program.Program, r *program.Rule, profile map[string]uint64, depth int) hit {
	var out hit
	if depth > deepest {
		return out
	}
	ofSet := func(id string) {
		if set := p.Set(id); set != nil && set.Counters {
			seen := map[string]bool{}
			for _, e := range set.Elements {
				if !seen[e.Counter] {
					seen[e.Counter] = true
					out.add(profile, e.Counter)
				}
			}
		}
	}
	for _, c := range r.Match {
		if !c.Not {
			ofSet(c.Set)
		}
	}
	for _, a := range r.Actions {
		e := program.EffectOf(a)
		if e.Counts != "" {
			out.add(profile, e.Counts)
		}
		ofSet(e.Map)
		for _, name := range p.Leads(a) {
			for i := range p.Chain(name).Rules {
				if h := hitsOf(p, &p.Chain(name).Rules[i], profile, depth+1); h.counted {
					out.packets += h.packets
					out.counted = true
				}
			}
		}
	}
	return out
}

// decides says whether packets that match a rule mostly end there, so that
// asking it early spares them the rest.
func decides(r *program.Rule) bool {
	if len(r.Actions) == 0 {
		return false
	}
	last := program.EffectOf(r.Actions[len(r.Actions)-1])
	return last.Ends || last.Calls != "" || last.Map != ""
}
