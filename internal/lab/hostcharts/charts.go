// Package hostcharts draws what hostwatch has recorded of a host, on the time axis of
// other charts. Callers: lab/cli, for a load, and the stories.
package hostcharts

import (
	"fmt"
	"slices"

	"sluice/internal/lab/figures"
	"sluice/internal/system/hostwatch"
)

type result struct{ hostwatch.Result }

// mostLines is how many courses a chart shows; the rest is drawn as one.
const mostLines = 7

// Draw draws what was seen, on the time axis of a group. What did not happen has no
// chart.
func Draw(seen hostwatch.Result, group string) []figures.Chart {
	r := result{seen}
	var out []figures.Chart
	add := func(c figures.Chart) {
		if len(c.Lines) > 0 {
			c.Group, c.X = group, figures.Axis{Name: "time", Unit: "s"}
			out = append(out, c)
		}
	}
	for _, s := range r.Spaces {
		add(r.tableChart(s))
		add(r.rates("Connection table: refused, thrown out, searched again"+title(s), s.Table, "1/s"))
		var drops []hostwatch.Course
		for _, d := range s.Drops {
			drops = append(drops, d.Course)
		}
		add(r.rates("Packets dropped, by kernel function and reason"+title(s), drops, "packets/s"))
		add(r.rates("What TCP counts of lost and late connections"+title(s), s.TCP, "1/s"))
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

func title(s hostwatch.Space) string {
	if s.Name == "" {
		return ""
	}
	return ": " + s.Name
}

// tableChart has the limit only where it is in reach: else entries were a line at 0.
func (r result) tableChart(s hostwatch.Space) figures.Chart {
	c := figures.Chart{Title: "Connection table" + title(s), Y: figures.Axis{Name: "entries"}}
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
func (r result) rates(title string, courses []hostwatch.Course, unit string) figures.Chart {
	c := figures.Chart{Title: title, Y: figures.Axis{Name: "rate", Unit: unit}}
	courses = slices.Clone(courses)
	slices.SortStableFunc(courses, func(a, b hostwatch.Course) int { return int(min(b.Total, 1<<62)) - int(min(a.Total, 1<<62)) })
	rest := hostwatch.Course{Name: "others", Counts: make([]float64, len(r.At))}
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

func (r result) perSecond(c hostwatch.Course) []float64 {
	out := make([]float64, len(c.Counts))
	before := r.Began
	for i, at := range r.At {
		out[i] = c.Counts[i] / max(at-before, 1e-3)
		before = at
	}
	return out
}

func (r result) line(name string, values []float64) figures.Line {
	l := figures.Line{Name: name}
	for i, at := range r.At {
		l.Points = append(l.Points, figures.Point{X: at, Y: values[i]})
	}
	return l
}
