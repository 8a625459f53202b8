package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

// view is what a page shows: page.html reads all of it, draw.js Drawn alone.
type view struct {
	*figures.Report
	Machine, When, Took string
	Goals               []goal
	Sections            []section
	Drawn               drawn
}

// drawn is what draw.js reads.
type drawn struct {
	// Subjects have the same colour on every chart.
	Subjects []string `json:"subjects"`
	Bars     []bars   `json:"bars"`
	Stacks   []stack  `json:"stacks"`
}

type goal struct {
	figures.Goal
	Measured, Times, Bounds, Limit, Same, Word string
}

type section struct {
	figures.Section
	Before, After []block // what is read before and after the charts
	Tables        []table
	Stacks        []int // in drawn.Stacks
}

type table struct {
	figures.Table
	Head    []string // columns of the figures as text: subjects, or cases where it is Turned
	Names   []string // rows
	Rows    [][]cell
	Drawn   int    // in drawn.Bars, -1: not there
	Single  bool   // one figure alone, which is written large
	Of      string // the only case of several subjects, where the quantity does not say it
	Better  string // what is better, "" where that is not known
	Says    string // what the table comes to
	TooMany int    // figures, for a chart
}

// cell is one figure in words.
type cell struct {
	Median, Bounds, Note string
}

// bars is one table as a chart. The cells are by case, then by subject.
type bars struct {
	Unit     string   `json:"unit"`
	Log      bool     `json:"log"`
	Low      number   `json:"low"` // where a logarithmic axis begins
	Cases    []string `json:"cases"`
	Subjects []string `json:"subjects"`
	Cells    [][]bar  `json:"cells"`
	// Turned: the cases are subjects, each with its colour, and the subject is the
	// only case.
	Turned bool `json:"turned"`
}

// bar is one figure as it is drawn.
type bar struct {
	Value number `json:"value"`
	Low   number `json:"low"`
	High  number `json:"high"`
	Text  string `json:"text"` // beside it
}

// stack is charts above one another that share their horizontal axis.
type stack struct {
	X      axis    `json:"x"`
	Low    number  `json:"low"`
	High   number  `json:"high"`
	Charts []chart `json:"charts"`
}

type axis struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	Log  bool   `json:"log"`
}

type chart struct {
	Title string `json:"title"`
	Note  string `json:"note"`
	Y     axis   `json:"y"`
	From  number `json:"from"`
	Lines []line `json:"lines"`
	Marks []mark `json:"marks"`
}

type line struct {
	Name   string      `json:"name"`
	Step   bool        `json:"step"`
	Bars   bool        `json:"bars"`
	Points [][4]number `json:"points"` // x, y and the bounds of y
}

type mark struct {
	X    number `json:"x"`
	Text string `json:"text"`
}

type number = stats.Number

// logSpan is how many times the least value the greatest has to be for a
// logarithmic axis: below it, the shortest bar can still be read.
const logSpan = 30

// widest is how many subjects a table of figures has before it is turned round;
// mostBars is how many bars a chart can have that a person still reads.
const (
	widest   = 6
	mostBars = 400
)

func newView(r *figures.Report) view {
	v := view{
		Drawn:  drawn{Subjects: []string{}, Bars: []bars{}, Stacks: []stack{}}, // never null
		Report: r, Machine: r.Machine.String(), When: r.When.Format("2 January 2006, 15:04 MST"),
		Took: figures.Number(r.Took) + " s",
	}
	if r.Took >= 120 {
		v.Took = fmt.Sprintf("%.0f min", r.Took/60)
	}
	for _, g := range r.Goals {
		v.Goals = append(v.Goals, newGoal(g))
	}
	for _, s := range r.Sections {
		out := section{Section: s}
		drawn, charts := len(s.Charts) > 0, s.Charts
		for _, t := range s.Tables() {
			i := slices.IndexFunc(s.Charts, func(c figures.Chart) bool { return c.Title == t.Quantity })
			shown := v.table(t, i < 0)
			if i >= 0 && s.Charts[i].Note == "" {
				charts = slices.Clone(charts)
				charts[i].Note = shown.Says
			}
			drawn = drawn || shown.Drawn >= 0
			out.Tables = append(out.Tables, shown)
		}
		out.Before = blocks(s.Text)
		if drawn && len(out.Before) > 2 { // the picture first, then what is to be known of it
			out.Before, out.After = out.Before[:1], out.Before[1:]
		}
		for _, charts := range groups(charts) {
			out.Stacks = append(out.Stacks, len(v.Drawn.Stacks))
			v.Drawn.Stacks = append(v.Drawn.Stacks, newStack(charts))
		}
		v.Sections = append(v.Sections, out)
	}
	return v
}

func newGoal(g figures.Goal) goal {
	sign, word := "at most", map[figures.Reached]string{figures.Yes: "reached", figures.No: "not reached", figures.NotShown: "not shown"}[g.Reached]
	if g.More {
		sign = "at least"
	}
	out := goal{Goal: g, Measured: quantity(g.Measured.Median, g.Unit), Limit: sign + " " + quantity(g.Limit, g.Unit), Word: word}
	if g.Measured.Low != g.Measured.High {
		out.Bounds = between(g.Measured.Low, g.Measured.High, g.Unit)
	}
	if g.Unit == "×" && !g.More {
		out.Times = times(g.Measured.Median)
	}
	if g.Same != nil {
		out.Same = figures.Number(g.Same.Median)
		if g.Same.Low != g.Same.High {
			out.Same += " (" + between(g.Same.Low, g.Same.High, "") + ")"
		}
	}
	return out
}

// table is one quantity. draw is false of what a chart of the report shows already,
// as growth.
func (v *view) table(t figures.Table, draw bool) table {
	out := table{Table: t, Drawn: -1, Head: t.Subjects, Names: t.Cases}
	var measured, values []figures.Figure
	for _, c := range t.Cases {
		var row []cell
		for _, s := range t.Subjects {
			f, there := t.Cells[[2]string{c, s}]
			if there {
				measured = append(measured, f)
			}
			if hasValue(f) {
				values = append(values, f)
			}
			row = append(row, newCell(f))
		}
		out.Rows = append(out.Rows, row)
	}
	if len(t.Subjects) > widest && len(t.Subjects) > len(t.Cases) {
		out.Head, out.Names, out.Rows = t.Cases, t.Subjects, figures.Transposed(out.Rows)
	}
	switch {
	case len(values) == 0: // notes alone
		return out
	case !slices.ContainsFunc(values, func(f figures.Figure) bool { return !f.More }):
		out.Better = "more is better"
	case slices.Contains([]string{"ns", "s", "ms", "instructions"}, t.Unit):
		out.Better = "less is better"
	}
	switch bars := len(t.Cases) * len(t.Subjects); {
	case len(measured) == 1:
		out.Single = true
		return out
	case draw && bars > mostBars:
		out.TooMany = bars
		return out
	case len(t.Cases) == 1 && !strings.Contains(t.Quantity, t.Cases[0]):
		out.Of = t.Cases[0]
	}
	out.Says = says(t)
	if draw {
		out.Drawn = len(v.Drawn.Bars)
		v.Drawn.Bars = append(v.Drawn.Bars, newBars(t, values))
	}
	for _, s := range t.Subjects {
		if !slices.Contains(v.Drawn.Subjects, s) {
			v.Drawn.Subjects = append(v.Drawn.Subjects, s)
		}
	}
	return out
}

// hasValue is false of a figure that has a note alone, or only rounds without
// a number.
func hasValue(f figures.Figure) bool {
	m := f.Estimate.Median
	return len(f.Samples) > 0 && !math.IsNaN(m) && !math.IsInf(m, 0)
}

func newCell(f figures.Figure) cell {
	c := cell{Note: f.Note}
	if len(f.Samples) == 0 {
		return c
	}
	e := f.Estimate
	c.Median = quantity(e.Median, f.Unit)
	if e.Low != e.High && hasValue(f) {
		c.Bounds = between(e.Low, e.High, f.Unit)
	}
	return c
}

func newBars(t figures.Table, values []figures.Figure) bars {
	out := bars{Unit: t.Unit, Cases: t.Cases, Subjects: t.Subjects}
	least, most := math.Inf(1), 0.0
	for _, f := range values {
		if m := f.Estimate.Median; m > 0 {
			least, most = min(least, m), max(most, m)
		}
	}
	// What is near zero would give the axis decades without a bar.
	least = max(least, most/1e5)
	below := slices.ContainsFunc(values, func(f figures.Figure) bool { return f.Estimate.High < 0 })
	if most > logSpan*least && !below {
		out.Log = true
		decade := math.Pow(10, math.Floor(math.Log10(least)))
		if least < 1.5*decade { // a bar that could not be seen
			decade /= 10
		}
		out.Low = number(decade)
	}
	for _, c := range t.Cases {
		row := make([]bar, len(t.Subjects))
		for i, s := range t.Subjects {
			row[i] = newBar(t.Cells[[2]string{c, s}])
		}
		out.Cells = append(out.Cells, row)
	}
	if len(t.Cases) == 1 {
		out.Turned = true
		out.Cases, out.Subjects = t.Subjects, t.Cases
		turned := make([][]bar, len(t.Subjects))
		for i, b := range out.Cells[0] {
			turned[i] = []bar{b}
		}
		out.Cells = turned
	}
	return out
}

func newBar(f figures.Figure) bar {
	if !hasValue(f) {
		none := number(math.NaN())
		return bar{none, none, none, short(f.Note)}
	}
	e := f.Estimate
	out := bar{number(e.Median), number(e.Low), number(e.High), quantity(e.Median, f.Unit)}
	if f.Note != "" {
		out.Text += "  " + short(f.Note)
	}
	return out
}

// groups keeps charts together that share a group.
func groups(charts []figures.Chart) [][]figures.Chart {
	var out [][]figures.Chart
	for _, c := range charts {
		i := -1
		if c.Group != "" {
			i = slices.IndexFunc(out, func(g []figures.Chart) bool { return g[0].Group == c.Group })
		}
		if i < 0 {
			out = append(out, nil)
			i = len(out) - 1
		}
		out[i] = append(out[i], c)
	}
	return out
}

func newStack(charts []figures.Chart) stack {
	s := stack{X: axis(charts[0].X)}
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range charts {
		out := chart{Title: c.Title, Note: c.Note, Y: axis(c.Y), From: number(c.From), Lines: []line{}, Marks: []mark{}}
		for _, l := range c.Lines {
			drawn := line{Name: l.Name, Step: l.Step, Bars: l.Bars, Points: [][4]number{}}
			for _, p := range l.Points {
				low, high = min(low, p.X), max(high, p.X)
				at := [4]number{number(p.X), number(p.Y), number(p.Y), number(p.Y)}
				if p.Low != p.High { // both are left out of a report where there are none
					at[2], at[3] = number(p.Low), number(p.High)
				}
				drawn.Points = append(drawn.Points, at)
			}
			out.Lines = append(out.Lines, drawn)
		}
		for _, m := range c.Marks {
			low, high = min(low, m.X), max(high, m.X)
			out.Marks = append(out.Marks, mark{number(m.X), m.Text})
		}
		s.Charts = append(s.Charts, out)
	}
	if s.X.Unit == "s" && low > 0 && low < high/2 {
		low = 0 // where time began
	}
	s.Low, s.High = number(low), number(high)
	return s
}
