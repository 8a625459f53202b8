package query

import (
	"context"
	"fmt"
	"slices"

	"sluice/internal/base/english"
	"sluice/internal/base/packet"
	"sluice/internal/language/geo"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// Kind is how packets are treated otherwise.
type Kind string

// Kinds of changes, the most dangerous first.
const (
	Opened    Kind = "opened"    // allowed, and was not
	Reached   Kind = "reached"   // allowed in both, and led to where they did not arrive before
	Loosened  Kind = "loosened"  // allowed in both, and more of them than before
	Closed    Kind = "closed"    // not allowed any more
	Tightened Kind = "tightened" // allowed in both, and fewer of them
	Rejected  Kind = "rejected"  // rejected, and was dropped
	Silenced  Kind = "silenced"  // dropped, and was rejected
	Rewritten Kind = "rewritten" // allowed in both, with other addresses or ports, or by another way
	Tracked   Kind = "tracked"   // allowed in both, and tracked in one alone
	Handled   Kind = "handled"   // allowed in both, and handed to a flowtable or clamped in one alone
	Logged    Kind = "logged"    // of one verdict in both, and logged otherwise
)

// order of kinds in a report.
var order = []Kind{Opened, Reached, Loosened, Closed, Tightened, Rejected, Silenced, Rewritten, Tracked, Handled, Logged}

// Opens says whether more passes than before.
func (k Kind) Opens() bool { return k == Opened || k == Reached || k == Loosened }

// Change is packets of one class that two policies treat differently.
type Change struct {
	Kind Kind `json:"kind"`
	Traffic
	// Reaches is where packets arrive that were led elsewhere before, such as
	// "10.20.0.5 tcp/5432".
	Reaches string `json:"reaches,omitempty"`
	Old     Side   `json:"old"`
	New     Side   `json:"new"`

	inner []string // services that are reached
	later bool     // not before a default route leaves by another interface
}

// Side is what one of the policies does with the packets.
type Side struct {
	Verdict string    `json:"verdict"`
	By      []Decider `json:"by"`
	// How is what else it does: rewriting, limits, logs.
	How []string `json:"how,omitempty"`
}

// Diff is what a new policy does with packets that an old one did not.
type Diff struct {
	// Changes are sorted, the most dangerous first.
	Changes []Change
	// Settings are kernel settings that differ, and what limits ban: "NAME: OLD to NEW".
	Settings []string

	universe *reach.Universe
}

// Report is a Diff of two policies by their names.
type Report struct {
	Old   string `json:"old"`
	New   string `json:"new"`
	Opens bool   `json:"opens"`
	// Brief is the same as Differences in fewer words.
	Brief       []BriefLine `json:"brief"`
	Differences []Change    `json:"differences,omitzero"`
	Settings    []string    `json:"settings"`
}

// Report is the difference between policies of these names.
func (d *Diff) Report(old, next string) Report {
	return Report{old, next, d.Opens(), d.Brief(), append([]Change{}, d.Changes...), append([]string{}, d.Settings...)}
}

// Opens says whether anything passes that did not pass before.
func (d *Diff) Opens() bool {
	return slices.ContainsFunc(d.Changes, func(c Change) bool { return c.Kind.Opens() })
}

// Compare says of all packets which two policies treat differently. Both were
// compiled for the same host. The error is reach.ErrStopped soon after the context ends.
func Compare(ctx context.Context, old, next Compiled, countries func() (*geo.Database, error)) (*Diff, error) {
	var out *Diff
	var err error
	if refused := reach.Guard(func() { out, err = compareAll(ctx, old, next, countries) }); refused != nil {
		return nil, fmt.Errorf("compare %s and %s: %w", old.Policy.File, next.Policy.File, refused)
	}
	return out, err
}

func compareAll(ctx context.Context, old, next Compiled, countries func() (*geo.Database, error)) (*Diff, error) {
	old.Program = old.Program.BehindRouting()
	next.Program = alignLimits(old.Program, next.Program.BehindRouting())
	x := &comparison{policies: [2]Compiled{old, next}}
	var questions []reach.Question
	for _, at := range ways {
		one, err := Words{Hook: string(at.Hook)}.way(next.Resolved, at.Way, false)
		if err != nil {
			return nil, err
		}
		questions = append(questions, one...)
	}
	var err error
	if x.ports, err = (Words{States: []packet.State{packet.New}}).publishedPorts(next); err != nil {
		return nil, err
	}
	told := slices.Concat(questions, impossibleHere(next, old), expected())
	for i := range x.ports {
		told = append(told, x.ports[i].arrivals(next))
	}
	x.u = reach.NewUniverse(reach.Options{
		Own: next.own(), Elsewhere: !next.Facts.Known, Here: next.Here(), Apart: next.Apart(), Questions: told, Settled: true, Stop: ctx.Done(),
	}, old.Program, next.Program)
	for i, c := range x.policies {
		nat := untouched(x.u, translated(x.u, c.Program, reach.In))
		for j := range x.ports {
			x.led[i] = x.u.Or(x.led[i], x.u.And(x.u.Region(x.ports[j].arrivals(next)), nat))
		}
	}
	x.names = NewNames(countries, old.Resolved, next.Resolved)
	x.say = newWording(x.u, x.names, []packet.State{packet.New}, next, old)
	for _, group := range [][]reach.Way{{reach.In, reach.Through}, {reach.Out}} {
		if err := x.compare(group, questions); err != nil {
			return nil, err
		}
	}
	out := &Diff{Changes: ofNow(x.changes), Settings: append(settings(old.Program, next.Program), limitBans(old.Program, next.Program)...), universe: x.u}
	sortByDanger(out.Changes)
	return out, x.names.Err()
}

// comparison is two policies while they are compared; the old one comes first.
type comparison struct {
	policies [2]Compiled
	u        *reach.Universe
	names    *Names
	say      *wording
	changes  []Change

	// Ports that another tool publishes, and the packets that it leads on as they
	// arrive: what happens to these is told of them behind the rewriting.
	ports []published
	led   [2]reach.Region

	// Of the ways that are compared at one time: what may come in can go one way
	// under the one policy and another one under the other.
	ways     []reach.Way
	domain   map[reach.Way]reach.Region // packets that are spoken of
	outcomes [2]map[reach.Way][]reach.Outcome
	verdicts [2]map[program.Verdict]reach.Region
	taken    [2]map[reach.Way]reach.Region // packets that take a way
}

// compare looks at packets of some ways.
func (x *comparison) compare(group []reach.Way, questions []reach.Question) error {
	x.ways, x.domain = group, map[reach.Way]reach.Region{}
	for i, c := range x.policies {
		x.outcomes[i], x.verdicts[i], x.taken[i] = map[reach.Way][]reach.Outcome{}, map[program.Verdict]reach.Region{}, map[reach.Way]reach.Region{}
		for _, way := range group {
			x.outcomes[i][way] = x.u.Outcomes(c.Program, way)
			x.taken[i][way] = all(x.u, x.outcomes[i][way])
			for _, o := range x.outcomes[i][way] {
				x.verdicts[i][o.Verdict] = x.u.Or(x.verdicts[i][o.Verdict], o.Region)
			}
		}
	}
	var spoken reach.Region
	for _, way := range group {
		x.domain[way] = x.u.Minus(region(x.u, questions, way), region(x.u, impossibleHere(x.policies[1], x.policies[0]), way))
		if way == reach.In {
			x.domain[way] = x.u.Minus(x.domain[way], x.u.And(x.led[0], x.led[1]))
		}
		spoken = x.u.Or(spoken, x.u.And(x.domain[way], x.u.Or(x.taken[0][way], x.taken[1][way])))
	}
	unlimited := x.u.Unlimited(spoken)
	var different, always reach.Region
	for _, from := range verdicts {
		for _, to := range verdicts {
			if from == to {
				continue
			}
			both := x.u.And(x.verdicts[0][from], x.verdicts[1][to])
			different = x.u.Or(different, both)
			always = x.u.Or(always, x.u.And(both, unlimited))
			if err := x.change(verdictKind(from, to), x.u.And(both, unlimited), nil, nil); err != nil {
				return err
			}
		}
	}
	if err := x.limits(x.u.Unbanned(x.u.And(different, spoken)), always, unlimited); err != nil {
		return err
	}
	if err := x.effects(unlimited); err != nil {
		return err
	}
	if x.u.Empty(x.u.And(different, spoken)) {
		x.unspoken(different)
	}
	return nil
}

var verdicts = []program.Verdict{program.Accept, program.Drop, program.Reject}

// verdictKind is what a change of the verdict is.
func verdictKind(from, to program.Verdict) Kind {
	switch {
	case to == program.Accept:
		return Opened
	case from == program.Accept:
		return Closed
	case to == program.Reject:
		return Rejected
	}
	return Silenced
}

// change notes packets that are treated otherwise, as few classes.
func (x *comparison) change(kind Kind, r reach.Region, old, next []string) error {
	side := 1 // whose ways the packets are told by
	if kind == Closed || kind == Tightened {
		side = 0
	}
	for _, way := range x.ways {
		mine := x.u.And(r, x.taken[side][way])
		if x.u.Empty(mine) {
			continue
		}
		everything := x.u.And(x.domain[way], x.u.Or(x.u.Or(x.taken[0][way], x.taken[1][way]), rewritten(x.u, x.policies[1], way)))
		// What is said of new flows goes for those that another flow expects.
		told := x.u.Minus(mine, region(x.u, expected(), way))
		if x.u.Empty(told) {
			told = mine
		}
		classes := x.say.classes(way, told, reach.Among{All: x.u.Unlimited(everything), More: mine})
		if kind == Opened && len(classes) > 1 && policed(x.policies[0], way) && !policed(x.policies[1], way) {
			classes = []class{wholeWay(classes[0], mine)}
		}
		for _, class := range classes {
			class.witness = nicer(x.u, class, mine, x.policies[1].Facts)
			c := Change{Kind: kind, Traffic: x.say.traffic(class)}
			if kind == Reached {
				var place string
				place, c.inner = reaches(class, next)
				c.Reaches = place + " " + english.List(c.inner)
			}
			var err error
			if c.Old, err = x.side(0, class, mine, old); err != nil {
				return err
			}
			if c.New, err = x.side(1, class, mine, next); err != nil {
				return err
			}
			c.later = x.u.Empty(x.u.Now(x.u.And(class.region, mine)))
			x.changes = append(x.changes, c)
		}
	}
	return nil
}

// ofNow leaves out what happens once a default route leaves by another interface,
// where the same lines do the same with the same services by those of now.
func ofNow(changes []Change) []Change {
	now := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.later })
	return slices.DeleteFunc(changes, func(c Change) bool {
		return c.later && slices.ContainsFunc(now, func(d Change) bool {
			return c.Kind == d.Kind && c.Hook == d.Hook && slices.Equal(c.Services, d.Services) && c.Reaches == d.Reaches && c.Old.same(d.Old) && c.New.same(d.New)
		})
	})
}

func (s Side) same(t Side) bool {
	return s.Verdict == t.Verdict && slices.Equal(s.By, t.By) && slices.Equal(s.How, t.How)
}

// wholeWay is one class for all that a way lets pass which is not policed any more.
func wholeWay(first class, r reach.Region) class {
	return class{
		way: first.way, words: []string{everyProtocol}, families: [2]bool{true, true}, region: r, witness: first.witness,
		more: []string{"all that the old policy did not allow there"},
	}
}

// side says what a policy does with the packets of a class, and asks the
// reference the same of its witness.
func (x *comparison) side(i int, c class, r reach.Region, how []string) (Side, error) {
	c.region = x.u.And(c.region, r)
	out := Side{How: how}
	asked := false
	first := true
	for _, way := range x.ways {
		for j := range x.outcomes[i][way] {
			o := &x.outcomes[i][way][j]
			if x.u.Empty(x.u.And(o.Region, c.region)) {
				continue
			}
			by := deciderOf(o, policed(x.policies[i], way), string(way))
			if !slices.Contains(out.By, by) {
				out.By = append(out.By, by)
			}
			witness := c.witness
			if way == reach.Through && c.way == reach.In { // led elsewhere here alone, by an interface that is not known yet
				witness = x.u.Witness(way, x.u.And(o.Region, c.region))
			}
			if first {
				out.Verdict, first = ActionOf(o.Verdict).Done(), false
			}
			if asked || !x.u.Holds(o.Region, witness) {
				continue
			}
			asked = true
			out.Verdict = ActionOf(o.Verdict).Done()
			if way == reach.In && x.u.Holds(x.led[i], witness) { // and not by the other policy
				out.How = append(slices.Clone(how), x.ledBy(witness))
				continue
			}
			if err := agree(x.policies[i].Resolved, witness, way, o.Verdict); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// ledBy says where another tool leads a packet.
func (x *comparison) ledBy(witness packet.Packet) string {
	i := slices.IndexFunc(x.ports, func(p published) bool { return x.u.Holds(x.u.Region(p.arrivals(x.policies[1])), witness) })
	return x.ports[i].text()
}
