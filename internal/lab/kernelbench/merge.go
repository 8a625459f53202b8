package kernelbench

import (
	"fmt"
	"math"
	"slices"

	"sluice/internal/lab/figures"
)

// Merge puts what several kernels gave into one report, a column each; of one kernel
// several reports may follow each other, with different figures.
func Merge(reports []*figures.Report) *figures.Report {
	all := &figures.Report{Schema: figures.Schema, Title: "What packets pay, by layout and kernel"}
	for i, r := range reports {
		switch {
		case i == 0:
			all.When, all.Machine, all.Seed = r.When, r.Machine, r.Seed
		case r.Machine.Kernel != reports[i-1].Machine.Kernel:
			all.Machine.Kernel += ", " + r.Machine.Kernel
		}
		for _, w := range r.Warnings {
			if !slices.Contains(all.Warnings, w) {
				all.Warnings = append(all.Warnings, w)
			}
		}
		for _, s := range r.Sections {
			at := slices.IndexFunc(all.Sections, func(o figures.Section) bool { return o.Name == s.Name })
			if at < 0 {
				all.Sections = append(all.Sections, figures.Section{Name: s.Name, Title: s.Title})
				at = len(all.Sections) - 1
			}
			for _, t := range s.Text {
				if !slices.Contains(all.Sections[at].Text, t) {
					all.Sections[at].Text = append(all.Sections[at].Text, t)
				}
			}
			all.Sections[at].Figures = append(all.Sections[at].Figures, s.Figures...)
		}
	}
	return all
}

// Agreement is what two runs of the same differ by.
type Agreement struct {
	Figures int     // compared
	Worst   float64 // relative difference of the medians: 0.02 is 2 %
	Which   string  // the figure that differs by it
}

// Agree compares the figures of two runs. One that only one of them has is an error.
// What is added to the bare stack is compared on the scale of the whole packet that
// it is a part of: a difference of ten instructions is not much when nothing is added.
func Agree(a, b *figures.Report) (Agreement, error) {
	var out Agreement
	find := func(s *figures.Section, f figures.Figure) (figures.Figure, bool) {
		i := slices.IndexFunc(s.Figures, func(o figures.Figure) bool { return key(o) == key(f) })
		if i < 0 {
			return figures.Figure{}, false
		}
		return s.Figures[i], true
	}
	if n, m := count(a), count(b); n != m {
		return out, fmt.Errorf("one run has %d figures, the other %d", n, m)
	}
	for i := range a.Sections {
		s := &a.Sections[i]
		at := slices.IndexFunc(b.Sections, func(o figures.Section) bool { return o.Name == s.Name })
		if at < 0 {
			return out, fmt.Errorf("the other run has no section %s", s.Name)
		}
		for _, f := range s.Figures {
			other, there := find(&b.Sections[at], f)
			if !there {
				return out, fmt.Errorf("%s: the other run has no %q", s.Name, key(f))
			}
			if (len(f.Samples) == 0) != (len(other.Samples) == 0) {
				return out, fmt.Errorf("%s: one run could not measure %q", s.Name, key(f))
			}
			if len(f.Samples) == 0 {
				continue
			}
			scale := math.Abs(f.Estimate.Median)
			bareRow := bareLayout
			if s.Name == "limits" {
				bareRow = unlimitedRow
			}
			if bare, ok := find(s, figures.Figure{Case: bareRow, Subject: f.Subject, Quantity: f.Quantity, Unit: f.Unit}); ok && f.Case != bareRow && s.Name != "forward" {
				scale += bare.Estimate.Median
			}
			off := math.Abs(f.Estimate.Median - other.Estimate.Median)
			if off > 0 {
				off /= scale
			}
			out.Figures++
			if off >= out.Worst {
				out.Worst, out.Which = off, key(f)
			}
		}
	}
	return out, nil
}

func count(r *figures.Report) (n int) {
	for _, s := range r.Sections {
		n += len(s.Figures)
	}
	return n
}

func key(f figures.Figure) string {
	return fmt.Sprintf("kernel %s, %s, %s (%s)", f.Subject, f.Case, f.Quantity, f.Unit)
}
