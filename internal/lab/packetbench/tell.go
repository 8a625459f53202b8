package packetbench

import (
	"fmt"
	"math"
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
	first := b.labs[1].name
	figure := func(quantity, unit, subject string, c caseOf, of stats.Series) {
		s.Add(figures.Figure{Case: c.name, Subject: subject, Quantity: quantity, Unit: unit, Samples: of})
	}
	each := func(do func(l *lab, c caseOf, bare, own stats.Series)) {
		for _, c := range b.cases {
			for _, l := range b.labs[1:] {
				if l.name == first+Again {
					continue
				}
				if _, left := l.left[c.name]; left {
					do(l, c, nil, nil)
					continue
				}
				do(l, c, r.NS(measure.Of(Bare, c.name)), r.NS(measure.Of(l.name, c.name)))
			}
		}
	}
	each(func(l *lab, c caseOf, bare, own stats.Series) {
		if own == nil {
			s.Add(figures.Figure{Case: c.name, Subject: l.name, Quantity: Added, Unit: unit, Note: "otherwise"})
			return
		}
		figure(Added, unit, l.name, c, own.Minus(bare))
	})
	for _, c := range b.cases {
		figure(Whole, unit, Bare, c, r.NS(measure.Of(Bare, c.name)))
	}
	each(func(l *lab, c caseOf, _, own stats.Series) {
		if own != nil {
			figure(Whole, unit, l.name, c, own)
		}
	})
	if len(b.labs) > 3 {
		each(func(l *lab, c caseOf, _, own stats.Series) {
			if own != nil && l.name != first {
				figure(Ratio, "×", l.name, c, own.Per(r.NS(measure.Of(first, c.name))))
			}
		})
	}
	for _, c := range b.cases {
		figure(Same, "×", first, c, r.NS(measure.Of(first+Again, c.name)).Per(r.NS(measure.Of(first, c.name))))
	}
	b.report.Sections = append(b.report.Sections, s, b.sent())
	b.noise(r, first)
}

// sent says what the packets were, and what was left out.
func (b *bench) sent() figures.Section {
	s := figures.Section{Name: figures.Traffic, Title: "What was sent", Figures: []figures.Figure{}}
	for _, c := range b.cases {
		s.Text = append(s.Text, c.name+": "+c.text)
	}
	for _, l := range b.labs[1:] {
		for _, c := range b.cases {
			if why, left := l.left[c.name]; left {
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
func (b *bench) noise(r *measure.Result, first string) {
	noisy, worst, off := 0, "", 0.0
	for _, c := range b.cases {
		same := r.NS(measure.Of(first+Again, c.name)).Per(r.NS(measure.Of(first, c.name)))
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
