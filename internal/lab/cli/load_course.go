package cli

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
)

// courseWidth is how many columns a course takes at most.
const courseWidth = 60

// courseLevels are the heights of a column; none is a zero.
var courseLevels = []rune("▁▂▃▄▅▆▇█")

// printLoadCourses draws what a report of a load has over time below it.
func printLoadCourses(cmd *cobra.Command, r *figures.Report) {
	if w := cmd.OutOrStdout(); !command.JSON(cmd) {
		printCourses(w, r.Sections[0].Charts, "time", func(s string) string { return command.Paint(w, "1", s) })
	}
}

// printCourses draws the charts of a group as text: a row for each line, a column
// for the same time in all of them, so that what happened at once stands above one
// another. Rows of a chart share their scale, but where it is logarithmic.
func printCourses(w io.Writer, charts []figures.Chart, group string, bold func(string) string) {
	total, each, name := 0.0, 0.0, 0
	var over []figures.Chart
	for _, c := range charts {
		if c.Group != group {
			continue
		}
		over = append(over, c)
		for _, l := range c.Lines {
			name = max(name, utf8.RuneCountInString(l.Name))
			if n := len(l.Points); n > 1 {
				total = max(total, l.Points[n-1].X)
				if each == 0 {
					each = l.Points[1].X - l.Points[0].X
				}
			}
		}
	}
	if each <= 0 {
		return
	}
	// What a watch saw after the last whole interval joins it.
	columns := int(math.Ceil(total/each - 0.5))
	each *= math.Ceil(float64(columns) / courseWidth)
	columns = int(math.Ceil(total/each - 0.5))
	fmt.Fprintf(w, "\n%s\n", bold(fmt.Sprintf("Over %s s, %s s a column, with the highest value of each row", figures.Number(total), figures.Number(each))))
	for _, c := range over {
		unit := c.Y.Unit
		if unit == "" {
			unit = c.Y.Name
		}
		fmt.Fprintf(w, "  %s (%s)\n", c.Title, unit)
		highest := 0.0
		for _, l := range c.Lines {
			highest = max(highest, mostOf(l))
		}
		for _, l := range c.Lines {
			scale := highest
			if c.Y.Log {
				scale = mostOf(l)
			}
			fmt.Fprintf(w, "    %-*s  %s  %s\n", name, l.Name, courseOf(l, each, columns, scale), figures.Number(mostOf(l)))
		}
		if c.Note != "" {
			fmt.Fprintf(w, "    %s\n", c.Note)
		}
		for _, m := range c.Marks {
			fmt.Fprintf(w, "    at %s s: %s\n", figures.Number(m.X), m.Text)
		}
	}
}

func mostOf(l figures.Line) float64 {
	most := 0.0
	for _, p := range l.Points {
		if p.Y > most { // not for what is not a number
			most = p.Y
		}
	}
	return most
}

// courseOf draws one line. A point is that of the interval that ends there; a column
// has the mean of its intervals.
func courseOf(l figures.Line, each float64, columns int, scale float64) string {
	sum, count := make([]float64, columns), make([]float64, columns)
	before := 0.0
	for _, p := range l.Points {
		at := min(int((before+p.X)/2/each), columns-1)
		before = p.X
		if at >= 0 && !math.IsNaN(p.Y) {
			sum[at] += p.Y
			count[at]++
		}
	}
	var b strings.Builder
	for i := range sum {
		switch mean := sum[i] / count[i]; {
		case count[i] == 0:
			b.WriteRune(' ')
		case mean <= 0 || scale <= 0:
			b.WriteRune('·')
		default:
			level := int(math.Ceil(mean/scale*float64(len(courseLevels)))) - 1
			b.WriteRune(courseLevels[min(max(level, 0), len(courseLevels)-1)])
		}
	}
	return b.String()
}
