package load

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

// Side is one of two loads that are compared, as a report that "sluice-lab load" has
// made.
type Side struct {
	Name   string // what tables and charts call it
	Report *figures.Report
}

// Compared is two loads beside each other.
type Compared struct {
	Sections []figures.Section
	Warnings []string
	Worse    bool // B is significantly worse than A
}

// Compare puts two loads beside each other and says what differs by more than
// chance: see figures.Compare. Errors are looked at too where they are so few that
// the median second has none.
func Compare(a, b Side, least float64) (*Compared, error) {
	left, err := a.section()
	if err != nil {
		return nil, err
	}
	right, err := b.section()
	if err != nil {
		return nil, err
	}
	found := figures.Compare(asOne(a.Report, left), asOne(b.Report, right), least)
	out := &Compared{Sections: []figures.Section{beside(a, b, left, right)}, Warnings: slices.Compact(found.Warnings)}

	s := figures.Section{Name: "difference", Title: fmt.Sprintf("%s against %s", b.Name, a.Name)}
	for _, d := range found.Figures {
		if d.Quantity == errorRate {
			d.Verdict = errorsVerdict(seriesOf(left, errorRate), seriesOf(right, errorRate), d.Verdict)
		}
		switch d.Verdict {
		case figures.Worse, figures.Better, figures.Same:
		default:
			continue // one figure of all the time, or in one of the two alone
		}
		out.Worse = out.Worse || d.Verdict == figures.Worse
		change := ""
		if d.Ratio != 0 {
			change = fmt.Sprintf(" (%+.1f %%)", 100*(d.Ratio-1))
			s.Add(figures.Figure{Case: d.Quantity + ", " + d.Case, Subject: b.Name + " against " + a.Name, Quantity: "ratio", Unit: "×", Samples: stats.Series{d.Ratio}, Note: string(d.Verdict)})
		}
		s.Text = append(s.Text, fmt.Sprintf("%s, %s: %s, from %s to %s %s%s, p=%.3f n=%d+%d", d.Quantity, d.Case, d.Verdict,
			figures.Number(d.Old.Median), figures.Number(d.New.Median), d.Unit, change, d.P, d.Rounds[0], d.Rounds[1]))
	}
	if len(s.Text) == 0 {
		s.Text = []string{"Too few intervals to tell, or none of the same length: four are the least."}
	}
	out.Sections = append(out.Sections, s)
	return out, nil
}

// section of a report that is of a load.
func (s Side) section() (*figures.Section, error) {
	for i := range s.Report.Sections {
		if c := &s.Report.Sections[i]; c.Name == "load" {
			if subjects := subjectsOf(c); len(subjects) != 1 {
				return nil, fmt.Errorf("%s has %d loads, not one: %s", s.Name, len(subjects), strings.Join(subjects, ", "))
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s is no report of a load\nhint: sluice-lab load URL --save FILE writes one", s.Name)
}

func subjectsOf(s *figures.Section) []string {
	var out []string
	for _, f := range s.Figures {
		if !slices.Contains(out, f.Subject) {
			out = append(out, f.Subject)
		}
	}
	return out
}

// asOne is a report of the load alone, with no name.
func asOne(r *figures.Report, s *figures.Section) *figures.Report {
	c := *s
	c.Figures = renamed(s, "")
	out := *r
	out.Sections = []figures.Section{c}
	return &out
}

func renamed(s *figures.Section, name string) []figures.Figure {
	out := slices.Clone(s.Figures)
	for i := range out {
		out[i].Subject = name
	}
	return out
}

// beside is one section of both, a column and a line of each chart each.
func beside(a, b Side, left, right *figures.Section) figures.Section {
	s := figures.Section{Name: "load", Title: a.Name + " and " + b.Name}
	for _, side := range []struct {
		Side
		section *figures.Section
	}{{a, left}, {b, right}} {
		s.Text = append(s.Text, side.Name+": "+side.section.Title)
		s.Figures = append(s.Figures, renamed(side.section, side.Name)...)
		for _, c := range side.section.Charts {
			i := slices.IndexFunc(s.Charts, func(o figures.Chart) bool { return o.Title == c.Title })
			if i < 0 {
				i = len(s.Charts)
				s.Charts = append(s.Charts, c)
				s.Charts[i].Lines, s.Charts[i].Marks = nil, nil
			}
			for _, l := range c.Lines {
				l.Name, l.Bars = side.Name+": "+l.Name, false
				s.Charts[i].Lines = append(s.Charts[i].Lines, l)
			}
			for _, m := range c.Marks {
				m.Text = side.Name + ": " + m.Text
				s.Charts[i].Marks = append(s.Charts[i].Marks, m)
			}
		}
	}
	return s
}

// seriesOf a quantity that has one.
func seriesOf(s *figures.Section, quantity string) stats.Series {
	for _, f := range s.Figures {
		if f.Quantity == quantity {
			return f.Samples
		}
	}
	return nil
}

// errorsVerdict looks at means where medians are the same: errors in a fourth of
// all seconds leave the median at none.
func errorsVerdict(a, b stats.Series, verdict figures.Verdict) figures.Verdict {
	if verdict != figures.Same || len(a) == 0 || len(b) == 0 {
		return verdict
	}
	if c := stats.Compare(a, b); !c.Enough || c.P >= noise {
		return verdict
	}
	mean := func(s stats.Series) (sum float64) {
		for _, x := range s {
			sum += x
		}
		return sum / float64(len(s))
	}
	switch d := mean(b) - mean(a); {
	case d > 0:
		return figures.Worse
	case d < 0:
		return figures.Better
	}
	return verdict
}
