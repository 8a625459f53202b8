package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/internal/base/addrset"
	"sluice/internal/base/sorting"
	"sluice/internal/language/geo"
	"sluice/internal/language/policy"
	"sluice/internal/program"
	"sluice/internal/prove/reach"
)

// State is whether packets that begin connections pass.
type State string

// States, from all of them to none.
const (
	Allowed State = "allowed" // all, without a limit
	Limited State = "limited" // all, some within a limit
	Partly  State = "partly"  // some
	Blocked State = "blocked" // none
)

// Map is from which countries connections may begin.
type Map struct {
	Policy    string    `json:"policy"` // its file
	Service   string    `json:"service"`
	Hook      string    `json:"hook"`
	To        string    `json:"to,omitempty"`
	Publisher string    `json:"publisher"`
	Date      time.Time `json:"date,omitzero"` // of the country data
	Countries []Place   `json:"countries"`     // by code
	Elsewhere Place     `json:"elsewhere"`     // the addresses of no country
	Notes     []string  `json:"notes,omitempty"`
	Seconds   float64   `json:"seconds"`
}

// Place is the addresses of a country, or those of none. IPv6 is counted in networks of /48.
type Place struct {
	Country   string `json:"country,omitempty"` // its code
	Name      string `json:"name"`
	State     State  `json:"state"`
	Addresses uint64 `json:"addresses"` // of IPv4
	Allowed   uint64 `json:"allowed"`   // of these, from which a connection may begin
	Prefixes6 uint64 `json:"prefixes6"`
	Allowed6  uint64 `json:"allowed6"`
	Lines     []Line `json:"lines"` // that decide, at most mostLines
}

// MapOf says from which countries connections of a service may begin: of each source, in by
// the interfaces that lead to it, from any port. The service, the hook (input, or forward) and
// where they go are of the words. The error is reach.ErrTooLarge, or reach.ErrStopped soon
// after the context ends.
func MapOf(ctx context.Context, c Compiled, w Words, a *Atlas) (*Map, error) {
	began := time.Now()
	var out *Map
	var err error
	if refused := reach.Guard(func() { out, err = mapOf(ctx, c, w, a) }); refused != nil {
		return nil, refused
	}
	if err == nil {
		out.Seconds = time.Since(began).Seconds()
	}
	return out, err
}

func mapOf(ctx context.Context, c Compiled, w Words, a *Atlas) (*Map, error) {
	w.Hook = cmp.Or(w.Hook, string(policy.Input))
	way := reach.Way(w.Hook)
	if way != reach.In && way != reach.Through {
		return nil, fmt.Errorf("a map is of input or forward, and not of %q", w.Hook)
	}
	c.Program = asMeant(c.Program)
	b, err := w.beginsBy(c, way)
	if err != nil {
		return nil, err
	}
	never := append(impossibleHere(c), rewrittenBefore("dnat", "snat")...)
	from := routes(c.Resolved, way, program.InInterface)
	told := slices.Concat(b.told(c), never, from, routes(c.Resolved, way, program.OutInterface))
	u := reach.NewUniverse(reach.Options{
		Own: c.own(), Elsewhere: !c.Facts.Known, Here: c.Here(), Now: true, Questions: told, Stop: ctx.Done(),
	}, c.Program)
	asked := u.And(b.region(u, c, translated(u, c.Program, way), never), region(u, from, way))
	out := &Map{
		Policy: c.Policy.File, Service: cmp.Or(w.Service, "any"), Hook: w.Hook, To: w.To,
		Publisher: a.publisher, Date: a.date, Countries: []Place{}, Notes: c.notes(),
	}
	places := c.beginning(u, way, u.Outcomes(c.Program, way), asked).places(a)
	for i, code := range a.codes[1:] {
		p := places[i+1]
		p.Country, p.Name = code, geo.CountryOf(code).Name
		out.Countries = append(out.Countries, p)
	}
	sorting.By(out.Countries, func(a, b Place) int { return cmp.Compare(a.Country, b.Country) })
	out.Elsewhere = places[0]
	out.Elsewhere.Name = "no country"
	return out, nil
}

// places are the sources of packets by place.
func (b *beginning) places(a *Atlas) []Place {
	u := b.u
	asked, passes, free := b.part(u.Everything())
	from, may := u.Sources(asked), u.Sources(passes)
	all, refused, bounded := classes(may, from), classes(u.Sources(u.Minus(asked, passes)), from), classes(u.Sources(u.Minus(asked, free)), from)
	by := make([][]int, len(b.groups))
	for i, g := range b.groups {
		by[i] = classes(u.Sources(g.region), from)
	}
	out := make([]Place, len(a.codes))
	for place, shares := range a.shares(u, len(from)) {
		p := &out[place]
		there := func(in []int) bool {
			return slices.ContainsFunc(in, func(class int) bool { return shares[class] != share{} })
		}
		switch {
		case !there(all):
			p.State = Blocked
		case there(refused):
			p.State = Partly
		case there(bounded):
			p.State = Limited
		default:
			p.State = Allowed
		}
		var six, six6 addrset.Number
		for class, s := range shares {
			if from[class] {
				p.Addresses += s.four
				six = six.Add(s.six)
			}
			if may[class] {
				p.Allowed += s.four
				six6 = six6.Add(s.six)
			}
		}
		p.Prefixes6, p.Allowed6 = networks48(six), networks48(six6)
		p.Lines = linesOf(b.groups, func(i int) bool { return there(by[i]) })
	}
	return out
}

// networks48 is how many networks of /48 so many addresses of IPv6 fill.
func networks48(n addrset.Number) uint64 { return n.Hi >> 16 }

// classes are those that are in both.
func classes(in, of []bool) (out []int) {
	for class, is := range in {
		if is && of[class] {
			out = append(out, class)
		}
	}
	return out
}

// Line is a line of a policy that decides, or a built-in rule.
type Line struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"` // 0: no line does
	Rule string `json:"rule"`
}
