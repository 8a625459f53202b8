package hostwatch

import (
	"fmt"
	"slices"

	"sluice/internal/lab/figures"
)

// mostLines is how many courses a chart shows; the rest is drawn as one.
const mostLines = 7

// FullAt is the moment from which on the connection table had no room: it had all
// the entries that it may have, or threw some out for others.
func (r Result) FullAt(s Space) (second float64, full bool) {
	for i, at := range r.At {
		if s.Entries != nil && s.Max[i] > 0 && s.Entries[i] >= s.Max[i] {
			return at, true
		}
		for _, c := range s.Table {
			if (c.Name == "drop" || c.Name == "early_drop") && c.Counts[i] > 0 {
				return at, true
			}
		}
	}
	return 0, false
}

// Charts draws what was seen, on the time axis of a group. What did not happen has
// no chart.
func (r Result) Charts(group string) []figures.Chart {
	var out []figures.Chart
	add := func(c figures.Chart) {
		if len(c.Lines) > 0 {
			c.Group, c.X = group, figures.Axis{Name: "time", Unit: "s"}
			out = append(out, c)
		}
	}
	for _, s := range r.Spaces {
		add(r.tableChart(s))
		add(r.rates("Connection table: refused, thrown out, searched again"+s.title(), s.Table, "1/s"))
		var drops []Course
		for _, d := range s.Drops {
			drops = append(drops, d.Course)
		}
		add(r.rates("Packets dropped, by kernel function and reason"+s.title(), drops, "packets/s"))
		add(r.rates("What TCP counts of lost and late connections"+s.title(), s.TCP, "1/s"))
	}
	softirq := figures.Chart{Title: "Receiving packets (softirq), share of each processor", Y: figures.Axis{Name: "share", Unit: "%"}}
	for i, shares := range r.Softirq {
		percent := slices.Clone(shares)
		for at := range percent {
			percent[at] *= 100
		}
		softirq.Lines = append(softirq.Lines, r.line(fmt.Sprintf("processor %d", i), percent))
	}
	add(softirq)
	return out
}

func (s Space) title() string {
	if s.Name == "" {
		return ""
	}
	return ": " + s.Name
}

// tableChart has the limit only where it is in reach: else entries were a line at 0.
func (r Result) tableChart(s Space) figures.Chart {
	c := figures.Chart{Title: "Connection table" + s.title(), Y: figures.Axis{Name: "entries"}}
	if len(s.Entries) == 0 {
		return c
	}
	c.Lines = append(c.Lines, r.line("entries", s.Entries))
	limit := slices.Max(s.Max)
	if 10*slices.Max(s.Entries) >= limit {
		c.Lines = append(c.Lines, r.line("limit", s.Max))
	} else {
		c.Note = fmt.Sprintf("The limit is %s entries.", figures.Number(limit))
	}
	if at, full := r.FullAt(s); full {
		c.Marks = append(c.Marks, figures.Mark{X: at, Text: "the table is full"})
	}
	return c
}

// rates draws courses as events a second.
func (r Result) rates(title string, courses []Course, unit string) figures.Chart {
	c := figures.Chart{Title: title, Y: figures.Axis{Name: "rate", Unit: unit}}
	courses = slices.Clone(courses)
	slices.SortStableFunc(courses, func(a, b Course) int { return int(min(b.Total, 1<<62)) - int(min(a.Total, 1<<62)) })
	rest := Course{Name: "others", Counts: make([]float64, len(r.At))}
	for i, course := range courses {
		if i < mostLines || len(courses) == mostLines+1 {
			c.Lines = append(c.Lines, r.line(course.Name, r.perSecond(course)))
			continue
		}
		for at, n := range course.Counts {
			rest.Counts[at] += n
		}
		rest.Total += course.Total
	}
	if rest.Total > 0 {
		c.Lines = append(c.Lines, r.line(rest.Name, r.perSecond(rest)))
	}
	return c
}

func (r Result) perSecond(c Course) []float64 {
	out := make([]float64, len(c.Counts))
	before := r.Began
	for i, at := range r.At {
		out[i] = c.Counts[i] / max(at-before, 1e-3)
		before = at
	}
	return out
}

func (r Result) line(name string, values []float64) figures.Line {
	l := figures.Line{Name: name}
	for i, at := range r.At {
		l.Points = append(l.Points, figures.Point{X: at, Y: values[i]})
	}
	return l
}
