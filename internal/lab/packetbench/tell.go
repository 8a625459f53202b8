package packetbench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
)

// Quantities of the figures, as tables and comparisons of runs have them.
const (
	Added = "added to the bare stack, per packet"
	Whole = "whole way through the stack, per packet"
	Ratio = "whole packet against the first column"
	Same  = "the first column against itself (A/A), whole packet"
)

// tell makes the report of what was measured.
func (b *bench) tell(r *measure.Result) {
	unit := "ns"
	if b.report.Machine.Counted {
		unit = "instructions"
	}
	s := figures.Section{Name: "packet", Title: "Cost of a packet by its kind", Text: []string{
		fmt.Sprintf("Packets are injected by %s into a namespace of each column, in turn, %d rounds. "+
			"Bounds are those of the median, at 95 %%.", b.Way, r.Rounds()),
	}}
	subjects := b.subjects()
	first := subjects[0]
	figure := func(quantity, unit, subject string, c caseOf, of stats.Series) {
		s.Add(figures.Figure{Case: c.name, Subject: subject, Quantity: quantity, Unit: unit, Samples: of})
	}
	each := func(do func(subject string, c caseOf, bare, own stats.Series)) {
		for _, c := range b.cases {
			for _, subject := range subjects {
				if own := b.labsOf(r, subject, c); len(own) > 0 {
					do(subject, c, r.NS(measure.Of(Bare, c.name)), own[0])
					continue
				}
				do(subject, c, nil, nil)
			}
		}
	}
	each(func(subject string, c caseOf, bare, own stats.Series) {
		if own == nil {
			s.Add(figures.Figure{Case: c.name, Subject: subject, Quantity: Added, Unit: unit, Note: "otherwise"})
			return
		}
		figure(Added, unit, subject, c, own.Minus(bare))
	})
	for _, c := range b.cases {
		figure(Whole, unit, Bare, c, r.NS(measure.Of(Bare, c.name)))
	}
	each(func(subject string, c caseOf, _, own stats.Series) {
		if own != nil {
			figure(Whole, unit, subject, c, own)
		}
	})
	if len(subjects) > 1 {
		each(func(subject string, c caseOf, _, own stats.Series) {
			if own != nil && subject != first {
				figure(Ratio, "×", subject, c, own.Per(b.labsOf(r, first, c)[0]))
			}
		})
	}
	for _, c := range b.cases {
		figure(Same, "×", first, c, b.same(r, c))
	}
	b.report.Sections = append(b.report.Sections, s, b.sent())
	b.noise(r)
}

// subjects are those that were loaded, in their order.
func (b *bench) subjects() (names []string) {
	for _, l := range b.labs[1:] {
		if !slices.Contains(names, l.subject) {
			names = append(names, l.subject)
		}
	}
	return names
}

// labsOf is what a case costs in the labs of a subject that take part in it, the
// cheapest first where each subject has several.
func (b *bench) labsOf(r *measure.Result, subject string, c caseOf) (out []stats.Series) {
	for _, l := range b.labs[1:] {
		if _, left := l.left[c.name]; !left && l.subject == subject {
			out = append(out, r.NS(measure.Of(l.name, c.name)))
		}
	}
	if b.Labs > 0 {
		slices.SortStableFunc(out, func(x, y stats.Series) int { return cmp.Compare(x.Estimate().Median, y.Estimate().Median) })
	}
	return out
}

// same is the second lab of the first subject against the first.
func (b *bench) same(r *measure.Result, c caseOf) stats.Series {
	labs := b.labsOf(r, b.labs[1].subject, c)
	return labs[1].Per(labs[0])
}

// sent says what the packets were, and what was left out.
func (b *bench) sent() figures.Section {
	s := figures.Section{Name: figures.Traffic, Title: "What was sent", Figures: []figures.Figure{}}
	for _, c := range b.cases {
		s.Text = append(s.Text, c.name+": "+c.text)
	}
	for _, l := range b.labs[1:] {
		for _, c := range b.cases {
			if why, left := l.left[c.name]; left && l.name == l.subject {
				s.Text = append(s.Text, fmt.Sprintf("%s means something else for %s: %s", l.name, c.name, why))
			}
		}
	}
	var whys []string
	names := map[string][]string{}
	for _, l := range b.lacks {
		if names[l.why] == nil {
			whys = append(whys, l.why)
		}
		names[l.why] = append(names[l.why], l.name)
	}
	for _, why := range whys {
		s.Text = append(s.Text, fmt.Sprintf("not measured: %s: %s", strings.Join(names[why], "; "), why))
	}
	return s
}

// noise warns where the same rules differ from themselves.
func (b *bench) noise(r *measure.Result) {
	noisy, worst, off := 0, "", 0.0
	for _, c := range b.cases {
		same := b.same(r, c)
		text, is := measure.Noisy(same)
		if !is {
			continue
		}
		noisy++
		e := same.Estimate()
		if d := max(math.Abs(e.High-1), math.Abs(e.Low-1)); d > off {
			worst, off = c.name+", "+text, d
		}
	}
	if noisy == 0 {
		return
	}
	wayOut := "More rounds help, so does a machine that does nothing else; make kernels counts instructions instead"
	if b.report.Machine.Counted {
		wayOut = "More rounds help: the kernel did other work in some"
	}
	b.warn(fmt.Sprintf("too noisy to tell %d of %d kinds to %g %%; worst: %s. %s", noisy, len(b.cases), 100*measure.MostNoise, worst, wayOut))
}
