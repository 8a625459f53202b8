package figures

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Print writes a report as text: goals, then of each section one table per
// quantity, a row a case and a column a subject. bold and faint wrap text where
// the reader's terminal has styles; nil leaves it as it is.
func (r *Report) Print(w io.Writer, bold, faint func(string) string) {
	plain := func(s string) string { return s }
	if bold == nil {
		bold = plain
	}
	if faint == nil {
		faint = plain
	}
	fmt.Fprintln(w, bold(r.Title))
	fmt.Fprintln(w, faint(fmt.Sprintf("%s, %s, %.0f s", r.Machine, r.When.Format("2006-01-02 15:04 MST"), r.Took)))
	for i := range r.Sections {
		s := &r.Sections[i]
		fmt.Fprintf(w, "\n%s\n", bold(s.Title))
		for _, t := range s.Text {
			fmt.Fprintln(w, t)
		}
		for _, t := range s.Tables() {
			t.print(w)
		}
	}
	if len(r.Goals) > 0 {
		fmt.Fprintf(w, "\n%s\n", bold("What was to be reached"))
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  \tasked\tmeasured\tbounds\tA/A\treached")
		for _, g := range r.Goals {
			sign, same := "≤", ""
			if g.More {
				sign = "≥"
			}
			if g.Same != nil {
				same = Number(g.Same.Median)
				if low, high := Number(g.Same.Low), Number(g.Same.High); low != high {
					same += " (" + low + " – " + high + ")"
				}
			}
			fmt.Fprintf(tw, "  %s\t%s %s %s\t%s %s\t%s – %s\t%s\t%s\n", g.Name, sign, Number(g.Limit), g.Unit,
				Number(g.Measured.Median), g.Unit, Number(g.Measured.Low), Number(g.Measured.High), same, g.Reached)
		}
		_ = tw.Flush()
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
}

// Table is the figures of a section that have one quantity.
type Table struct {
	Quantity, Unit  string
	Cases, Subjects []string // in the order in which they came
	Cells           map[[2]string]Figure
}

// Tables are a section's figures by quantity, in the order in which they came.
func (s *Section) Tables() []Table {
	var out []Table
	for _, f := range s.Figures {
		i := slices.IndexFunc(out, func(t Table) bool { return t.Quantity == f.Quantity && t.Unit == f.Unit })
		if i < 0 {
			i = len(out)
			out = append(out, Table{Quantity: f.Quantity, Unit: f.Unit, Cells: map[[2]string]Figure{}})
		}
		t := &out[i]
		if !slices.Contains(t.Cases, f.Case) {
			t.Cases = append(t.Cases, f.Case)
		}
		if !slices.Contains(t.Subjects, f.Subject) {
			t.Subjects = append(t.Subjects, f.Subject)
		}
		t.Cells[[2]string{f.Case, f.Subject}] = f
	}
	return out
}

// widest is how many columns of text a table may take before it is turned round.
const widest = 132

func (t *Table) print(w io.Writer) {
	fmt.Fprintf(w, "  %s (%s)\n", t.Quantity, t.Unit)
	rows := [][]string{append([]string{""}, t.Subjects...)}
	for _, c := range t.Cases {
		row := []string{c}
		for _, s := range t.Subjects {
			row = append(row, t.cell(c, s))
		}
		rows = append(rows, row)
	}
	width, sum := widths(rows)
	if turned := Transposed(rows); sum > widest {
		if width2, sum2 := widths(turned); sum2 < sum {
			rows, width = turned, width2
		}
	}
	for _, row := range rows {
		fmt.Fprintf(w, "    %-*s", width[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(w, "  %*s", width[i+1], cell)
		}
		fmt.Fprintln(w)
	}
}

// widths are those of the columns, and of the whole table.
func widths(rows [][]string) (each []int, sum int) {
	each = make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			each[i] = max(each[i], utf8.RuneCountInString(cell))
		}
	}
	for _, w := range each {
		sum += 2 + w
	}
	return each, sum + 2
}

// Transposed turns a table round: its columns are the rows.
func Transposed[T any](rows [][]T) [][]T {
	out := make([][]T, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			out[i] = append(out[i], cell)
		}
	}
	return out
}

func (t *Table) cell(row, subject string) string {
	f, there := t.Cells[[2]string{row, subject}]
	switch {
	case !there:
		return ""
	case len(f.Samples) == 0:
		return f.Note
	}
	return Number(f.Estimate.Median) + spread(f)
}

// spread is the wider half of the confidence interval, in per cent of the median,
// or of a figure near zero in its own unit.
func spread(f Figure) string {
	e := f.Estimate
	half := max(e.High-e.Median, e.Median-e.Low)
	switch {
	case len(f.Samples) < 2 || half == 0 || !isNumber(half):
		return ""
	case math.Abs(e.Median) < 2*half:
		return " ±" + Number(half)
	}
	return fmt.Sprintf(" ±%.0f%%", math.Ceil(100*half/math.Abs(e.Median)))
}

// Number writes three digits or all before the point, whatever the size.
func Number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return "–"
	case math.IsInf(x, 0):
		return map[bool]string{true: "∞", false: "-∞"}[x > 0]
	case a >= 10_000_000:
		return fmt.Sprintf("%.3g", x)
	case a >= 100:
		return thousands(fmt.Sprintf("%.0f", x))
	}
	return fmt.Sprintf("%.3g", x)
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}
