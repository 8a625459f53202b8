package limits

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

// report fills a report of the product section by section.
type report struct {
	*figures.Report
	// progress is told what goes on; nil: nobody.
	progress func(format string, args ...any)
}

// measured is the subject of figures that have one alone.
const measured = "measured"

func (r *report) title(section, what string) {
	r.Sections = append(r.Sections, figures.Section{Name: section, Title: strings.ToUpper(what[:1]) + what[1:], Figures: []figures.Figure{}})
	r.tell("%s", what)
}

func (r *report) tell(format string, args ...any) {
	if r.progress != nil {
		r.progress(format, args...)
	}
}

// current is the section that figures go to.
func (r *report) current() *figures.Section { return &r.Sections[len(r.Sections)-1] }

// say tells the reader of the section something.
func (r *report) say(format string, args ...any) {
	s := r.current()
	s.Text = append(s.Text, fmt.Sprintf(format, args...))
}

// add adds a figure of the section.
func (r *report) add(row, subject, quantity, unit string, s stats.Series) {
	r.current().Add(figures.Figure{Case: row, Subject: subject, Quantity: quantity, Unit: unit, Samples: s})
}

// lookup finds what was measured: of whom, and which quantity.
type lookup func(quantity, of string) stats.Series

// judge reports what is asked of a section.
func (r *report) judge(s section, of lookup) {
	for _, g := range s.goals {
		value := of(g.quantity, g.of)
		if g.against != "" {
			r.ratio(g.name, g.limit, value.Per(of(g.quantity, g.against)), of(g.quantity, s.itself[0]).Per(of(g.quantity, s.itself[1])))
			continue
		}
		if g.unit == "s" {
			value = slices.Clone(value)
			for i := range value {
				value[i] /= 1000 // from ms
			}
		}
		r.atMost(g.name, g.unit, value, g.limit)
	}
}

// ratio reports a ratio, and beside it that of one side against itself, of the same
// rounds. A limit of 0 asks nothing.
func (r *report) ratio(name string, limit float64, ratio, same stats.Series) {
	r.add(name, measured, "ratio", "×", ratio)
	r.add(name, "itself (A/A)", "ratio", "×", same)
	if limit != 0 {
		r.Goals = append(r.Goals, figures.AtMost(r.current().Name+": "+name, "×", limit, ratio, same))
	}
}

// atMost reports what is not a ratio. Nothing can be set against itself there, so the
// bound of its confidence interval has to be within the limit; 0 asks nothing.
func (r *report) atMost(name, unit string, value stats.Series, limit float64) {
	r.add(name, measured, map[string]string{"MiB": "memory", "ms": "time", "s": "time"}[unit], unit, value)
	if limit == 0 {
		return
	}
	g := figures.Goal{Name: r.current().Name + ": " + name, Unit: unit, Limit: limit, Measured: value.Estimate(), Reached: figures.No}
	switch {
	case g.Measured.High <= limit:
		g.Reached = figures.Yes
	case g.Measured.Median <= limit:
		g.Reached = figures.NotShown
	}
	r.Goals = append(r.Goals, g)
}
