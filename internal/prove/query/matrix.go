package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// Matrix is who reaches what: of each of Sources a row of Cells, in the order of Targets.
type Matrix struct {
	Policy  string   `json:"policy"` // its file
	Sources []Origin `json:"sources"`
	Targets []Target `json:"targets"`
	Cells   [][]Cell `json:"cells"`
	Notes   []string `json:"notes,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Origin is who asks: a set or a zone of the policy, or everybody else.
type Origin struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // set, zone, elsewhere
}

// Target is what is asked for: a service of this host, or of a zone or set behind it.
type Target struct {
	Name    string `json:"name"`
	Hook    string `json:"hook"`
	Service string `json:"service"`
	To      string `json:"to,omitempty"`
}

// Cell is whether a source reaches a target, and which lines decide.
type Cell struct {
	State State  `json:"state"`
	Lines []Line `json:"lines"`
}

// Kinds of origins.
const (
	ofSet     = "set"
	ofZone    = "zone"
	ofTheRest = "elsewhere"
)

// mostOrigins and mostTargets bound a matrix.
const (
	mostOrigins = 60
	mostTargets = 60
)

// MatrixOf says who reaches what: the sets and zones of a policy and everybody else, in by the
// interfaces that lead to them, and the services that its rules name, on the host and behind
// it. Of words it takes a service, of which all is then said. The error is reach.ErrTooLarge,
// or reach.ErrStopped soon after the context ends.
func MatrixOf(ctx context.Context, c Compiled, w Words) (*Matrix, error) {
	began := time.Now()
	var out *Matrix
	var err error
	if refused := reach.Guard(func() { out, err = matrixOf(ctx, c, w) }); refused != nil {
		return nil, refused
	}
	if err == nil {
		out.Seconds = time.Since(began).Seconds()
	}
	return out, err
}

func matrixOf(ctx context.Context, c Compiled, w Words) (*Matrix, error) {
	c.Program = asMeant(c.Program)
	out := &Matrix{Policy: c.Policy.File, Sources: c.origins(), Targets: c.targets(w.Service), Notes: c.notes()}
	out.Sources = few(out, out.Sources, mostOrigins, "source")
	out.Targets = few(out, out.Targets, mostTargets, "target")
	asks := make([]*beginsBy, len(out.Targets))
	told := append(impossibleHere(c), rewrittenBefore("dnat", "snat")...)
	never := slices.Clone(told)
	for i, t := range out.Targets {
		var err error
		to := Words{Service: t.Service, To: t.To, Called: w.Called}
		if asks[i], err = to.beginsBy(c, reach.Way(t.Hook)); err != nil {
			return nil, err
		}
		told = append(told, asks[i].told(c)...)
	}
	for _, way := range []reach.Way{reach.In, reach.Through} {
		for _, o := range out.Sources {
			told = append(told, c.comesFrom(o, way)...)
		}
		told = slices.Concat(told, routes(c.Resolved, way, program.InInterface), routes(c.Resolved, way, program.OutInterface))
	}
	u := reach.NewUniverse(reach.Options{
		Own: c.own(), Elsewhere: !c.Facts.Known, Here: c.Here(), Now: true, Questions: told, Stop: ctx.Done(),
	}, c.Program)
	out.Cells = make([][]Cell, len(out.Sources)+1) // the last is of everybody else
	for i := range out.Cells {
		out.Cells[i] = []Cell{}
	}
	for _, way := range []reach.Way{reach.In, reach.Through} {
		outcomes, nat := u.Outcomes(c.Program, way), translated(u, c.Program, way)
		from := make([]reach.Region, len(out.Sources)+1)
		from[len(out.Sources)] = u.Everything()
		for i, o := range out.Sources {
			from[i] = region(u, c.comesFrom(o, way), way)
			from[len(out.Sources)] = u.Minus(from[len(out.Sources)], from[i])
		}
		led := region(u, routes(c.Resolved, way, program.InInterface), way)
		for i := range out.Targets {
			if asks[i].way != way {
				continue
			}
			b := c.beginning(u, way, outcomes, u.And(asks[i].region(u, c, nat, never), led))
			for source := range from {
				out.Cells[source] = append(out.Cells[source], b.cell(from[source]))
			}
		}
	}
	rest := len(out.Sources)
	if slices.ContainsFunc(out.Cells[rest], func(c Cell) bool { return len(c.Lines) > 0 }) { // else zones have everybody
		out.Sources = append(out.Sources, Origin{"elsewhere", ofTheRest})
	}
	out.Cells = out.Cells[:len(out.Sources)]
	return out, nil
}

// few leaves the first ones, and notes how many there are beside.
func few[T any](m *Matrix, all []T, most int, noun string) []T {
	if len(all) <= most {
		return all
	}
	m.Notes = append(m.Notes, english.Plural(len(all)-most, "more "+noun)+" left out")
	return all[:most]
}

// origins are the zones and sets of the policy.
func (c Compiled) origins() (out []Origin) {
	for _, z := range c.Policy.Zones {
		if !c.Zones[z.Name].HasInterface("lo") {
			out = append(out, Origin{z.Name, ofZone})
		}
	}
	for _, s := range c.Policy.Sets {
		if set := c.Sets[s.Name]; set != nil && !set.IsEndpoints() {
			out = append(out, Origin{s.Name, ofSet})
		}
	}
	return out
}

// comesFrom are the packets of a way from one.
func (c Compiled) comesFrom(o Origin, way reach.Way) (out []reach.Question) {
	who := &policy.Who{Items: []policy.WhoItem{{Name: o.Name}}}
	for _, s := range sides(c.Resolved, who, program.InInterface) {
		q := reach.Question{Way: way, From: s.addresses}
		if len(s.conditions) > 0 {
			q.Match = [][]program.Condition{s.conditions}
		}
		out = append(out, q)
	}
	return out
}

// targets are the services that rules name, or one, where rules have them: of input, then of
// forward by where they go to.
func (c Compiled) targets(service string) (out []Target) {
	add := func(t Target) {
		t.Name = t.Service
		if t.To != "" {
			t.Name += " to " + t.To
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	each := func(s *policy.Section, f func(r *policy.Rule, service string)) {
		if s == nil {
			return
		}
		for _, r := range s.Rules {
			if r.Action == policy.ClampMSS || r.Exception {
				continue
			}
			if service != "" || len(r.Services) == 0 {
				f(r, cmp.Or(service, "any"))
				continue
			}
			for _, s := range r.Services {
				f(r, s.Text)
			}
		}
	}
	each(c.Policy.Input, func(_ *policy.Rule, service string) { add(Target{Hook: string(policy.Input), Service: service}) })
	each(c.Policy.Forward, func(r *policy.Rule, service string) {
		t := Target{Hook: string(policy.Forward), Service: service}
		switch {
		case r.To != nil && !r.To.Not:
			for _, i := range r.To.Items {
				if t.To = i.Name; t.To == "" {
					t.To = i.Literal.String()
				}
				add(t)
			}
			return
		case r.Out != nil:
			t.To = r.Out.Text
		}
		add(t)
	})
	return out
}

// cell says how some of the packets fare.
func (b *beginning) cell(of reach.Region) Cell {
	return Cell{b.state(of), linesOf(b.groups, func(i int) bool { return !b.u.Empty(b.u.And(b.groups[i].region, of)) })}
}

// state says how many of them pass.
func (b *beginning) state(of reach.Region) State {
	u := b.u
	asked, passes, free := b.part(of)
	switch {
	case u.Empty(passes):
		return Blocked
	case !u.Empty(u.Minus(asked, passes)):
		return Partly
	case !u.Empty(u.Minus(asked, free)):
		return Limited
	}
	return Allowed
}
