package query

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/language/geo"
	"sluice/internal/language/resolve"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
	"sluice/internal/system/host"
)

// Compiled is a policy with the program that it means.
type Compiled struct {
	*resolve.Resolved
	Program *program.Program
	Stop    <-chan struct{} // ends what is proved, by reach.ErrStopped, when it is closed; nil: nothing does
}

// Answer is what happens to packets of one class.
type Answer struct {
	Verdict string `json:"verdict"` // allowed, dropped, rejected
	Traffic
	By Decider `json:"by"`
	// Also is who decides on some of them instead, with the same verdict.
	Also []Decider `json:"also-by,omitempty"`
}

// Query gives what happens to all packets that fit the words, as few classes
// that are exact. Verdicts, where there are any, are those that are asked for. The error
// is reach.ErrTooLarge where there are too many kinds of packets.
func Query(c Compiled, w Words, verdicts []program.Verdict, countries func() (*geo.Database, error)) ([]Answer, error) {
	var answers []Answer
	var err error
	if refused := reach.Guard(func() { answers, _, err = query(c, w, verdicts, countries) }); refused != nil {
		return nil, refused
	}
	return answers, err
}

// query gives the universe of the answers too.
func query(c Compiled, w Words, verdicts []program.Verdict, countries func() (*geo.Database, error)) ([]Answer, *reach.Universe, error) {
	c.Program = asMeant(c.Program)
	questions, err := w.Read(c.Resolved)
	if err != nil {
		return nil, nil, err
	}
	base, err := w.everything(c.Resolved)
	if err != nil {
		return nil, nil, err
	}
	leads, err := w.leads(c)
	if err != nil {
		return nil, nil, err
	}
	ports, err := w.publishedPorts(c)
	if err != nil {
		return nil, nil, err
	}
	never := append(impossibleHere(c), rewrittenBefore("dnat", "snat")...)
	told := slices.Concat(questions, base, never)
	for i := range leads {
		told = append(told, leads[i].questions...)
	}
	for i := range ports {
		told = append(append(told, ports[i].questions...), ports[i].arrivals(c))
	}
	u := reach.NewUniverse(reach.Options{Own: c.own(), Elsewhere: !c.Facts.Known, Here: c.Here(), Now: true, Questions: told, Stop: c.Stop}, c.Program)
	names := NewNames(countries, c.Resolved)
	q := &querying{c: c, verdicts: verdicts, u: u, say: newWording(u, names, w.States, c), out: []Answer{}}
	for _, at := range ways {
		q.way = at.Way
		nat := translated(u, c.Program, at.Way)
		spoken := u.Minus(u.Unbanned(region(u, base, at.Way)), region(u, never, at.Way))
		for i := range ports {
			spoken = u.Minus(spoken, u.And(region(u, []reach.Question{ports[i].arrivals(c)}, at.Way), untouched(u, nat)))
		}
		asked := u.And(spoken, region(u, questions, at.Way))
		outcomes := u.Outcomes(c.Program, at.Way)
		// What takes another way in the end is no packet of this one.
		all := u.And(spoken, u.Or(all(u, outcomes), rewritten(u, c, at.Way)))
		if err := q.answers(outcomes, asked, all, nil); err != nil {
			return nil, nil, err
		}
		for i := range leads {
			l := &leads[i]
			r := u.Minus(u.And(u.And(spoken, region(u, l.questions, at.Way)), l.by(u, nat)), asked)
			asked = u.Or(asked, r)
			err := q.answers(outcomes, r, all, func(class *class) bool {
				class.more = append(class.more, l.text())
				return true
			})
			if err != nil {
				return nil, nil, err
			}
		}
		for i := range ports {
			p := &ports[i]
			r := u.Unbanned(region(u, p.questions, at.Way))
			err := q.answers(outcomes, r, r, func(class *class) (is bool) {
				class.words = []string{host.Published{Protocol: p.Protocol, Port: p.Port}.String()}
				class.more = append(class.more, p.text())
				class.from, class.to = p.family(class.from), nil
				class.witness, is = p.arrived(c, class.witness)
				return is
			})
			if err != nil {
				return nil, nil, err
			}
		}
	}
	return q.out, u, names.Err()
}

// querying is what answers are made of.
type querying struct {
	c        Compiled
	verdicts []program.Verdict
	u        *reach.Universe
	say      *wording
	way      reach.Way
	out      []Answer
}

// answers says what happens to some packets, told from all. Edit, where there is
// one, says more of a class; false leaves it out.
func (q *querying) answers(outcomes []reach.Outcome, asked, all reach.Region, edit func(*class) bool) error {
	u := q.u
	if u.Empty(asked) {
		return nil
	}
	among := reach.Among{All: all}
	groups := decided(u, q.c, q.way, outcomes, asked)
	same, covered := map[program.Verdict]reach.Region{}, map[program.Verdict]reach.Region{}
	for _, g := range groups {
		same[g.verdict] = u.Or(same[g.verdict], g.region)
	}
	for _, g := range groups {
		if len(q.verdicts) > 0 && !slices.Contains(q.verdicts, g.verdict) {
			continue
		}
		// What always holds is said as it is; of lines, what others with the
		// same verdict allow need not be told apart.
		if among.More = same[g.verdict]; g.by.Line == 0 {
			among.More = g.region
		}
		for _, class := range q.say.classes(q.way, g.region, among) {
			if u.Empty(u.Minus(u.And(class.region, g.region), covered[g.verdict])) {
				continue // a line above has said it
			}
			covered[g.verdict] = u.Or(covered[g.verdict], class.region)
			class.witness = nicer(u, class, g.region, q.c.Facts)
			if edit != nil && !edit(&class) {
				continue
			}
			if err := checkWitness(q.c, class, g.verdict); err != nil {
				return err
			}
			a := Answer{Verdict: ActionOf(g.verdict).Done(), Traffic: q.say.traffic(class), By: g.by}
			for _, other := range groups {
				if other.verdict == g.verdict && other.by != g.by && !u.Empty(u.And(other.region, class.region)) {
					a.Also = append(a.Also, other.by)
				}
			}
			q.out = append(q.out, a)
		}
	}
	return nil
}

// checkWitness asks the reference, which takes limits as not reached.
func checkWitness(c Compiled, class class, v program.Verdict) error {
	if class.limited {
		return nil
	}
	return agree(c.Resolved, class.witness, class.way, v)
}

// region is the packets of all questions of a way.
func region(u *reach.Universe, questions []reach.Question, way reach.Way) (out reach.Region) {
	for _, q := range questions {
		if q.Way == way {
			out = u.Or(out, u.Region(q))
		}
	}
	return out
}

// rewritten is the packets to this host: of some of them NAT leads elsewhere, and
// who reads of these wants to be told from the rest.
func rewritten(u *reach.Universe, c Compiled, way reach.Way) (none reach.Region) {
	if own := c.own(); way == reach.Through && !own.IsEmpty() {
		return u.Region(reach.Question{Way: way, To: &own})
	}
	return none
}

// all is the packets of all outcomes.
func all(u *reach.Universe, outcomes []reach.Outcome) (out reach.Region) {
	for _, o := range outcomes {
		out = u.Or(out, o.Region)
	}
	return out
}

// group is packets with one verdict by one line.
type group struct {
	verdict program.Verdict
	by      Decider
	region  reach.Region
}

// decided parts packets of a way by verdict and by whoever decided, in the order of
// the program.
func decided(u *reach.Universe, c Compiled, way reach.Way, outcomes []reach.Outcome, asked reach.Region) []group {
	type key struct {
		verdict program.Verdict
		by      Decider
	}
	at := map[key]int{}
	var out []group
	for _, o := range outcomes {
		r := u.And(o.Region, asked)
		if u.Empty(r) {
			continue
		}
		k := key{o.Verdict, deciderOf(&o, policed(c, way), string(way))}
		i, known := at[k]
		if !known {
			i = len(out)
			at[k] = i
			out = append(out, group{verdict: k.verdict, by: k.by})
		}
		out[i].region = u.Or(out[i].region, r)
	}
	// What is written, in the order of the lines and bans behind them, then what always
	// holds: where a line drops the same of others too, it is said of the line.
	place := func(g group) int {
		switch {
		case g.by.Line == 0:
			return math.MaxInt
		case strings.HasPrefix(g.by.Text, "ban"):
			return math.MaxInt32 + g.by.Line
		}
		return g.by.Line
	}
	sorting.StableBy(out, func(a, b group) int { return cmp.Compare(place(a), place(b)) })
	return out
}

// policed says whether the policy has a section for a way.
func policed(c Compiled, way reach.Way) bool {
	switch way {
	case reach.In:
		return c.Policy.Input != nil
	case reach.Through:
		return c.Policy.Forward != nil
	}
	return c.Policy.Output != nil
}

// own is the host's own addresses; empty where nobody knows them.
func (c Compiled) own() addrset.Set {
	if !c.Facts.Known {
		return addrset.Set{}
	}
	return ownAddresses(c.Resolved)
}
