package scale

import (
	"fmt"
	"slices"
	"strings"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
	"sluice/internal/lab/stats"
)

// Quantities of the figures.
const (
	loading = "time to load"
	busy    = "time of processors to load"
	kernel  = "memory that the kernel keeps for it"
	tool    = "memory of the programs that load"
)

// section is what a dimension has shown.
func (s *series) section() figures.Section {
	out := figures.Section{Name: "scale-" + s.Name, Title: s.Title, Text: []string{s.about}}
	var quantities []string
	for _, st := range s.steps {
		row := fmt.Sprintf("%s %s", figures.Number(float64(st.n)), s.Name)
		for _, f := range st.packets.Figures {
			if f.Quantity != packetbench.Added || f.Subject == packetbench.Bare {
				continue
			}
			quantity := "added to a packet that is " + strings.TrimPrefix(f.Case, "IPv4, ")
			f.Case, f.Quantity = row, quantity
			out.Add(f)
		}
		for _, side := range s.sides {
			l, there := st.loads[side.name]
			if !there {
				continue
			}
			add := func(quantity, unit string, of stats.Series) {
				f := figures.Figure{Case: row, Subject: side.name, Quantity: quantity, Unit: unit, Samples: of}
				if len(of) == 0 {
					f.Note = "–"
				}
				out.Add(f)
			}
			add(loading, "s", l.seconds)
			add(busy, "s", l.cpu)
			add(kernel, "MiB", mebibytes(l.kernel))
			add(tool, "MiB", mebibytes(l.tool))
		}
		for _, f := range out.Figures {
			if !slices.Contains(quantities, f.Quantity) {
				quantities = append(quantities, f.Quantity)
			}
		}
	}
	slices.SortStableFunc(out.Figures, func(a, b figures.Figure) int {
		return slices.Index(quantities, a.Quantity) - slices.Index(quantities, b.Quantity)
	})
	for _, q := range quantities {
		out.Charts = append(out.Charts, s.chart(q, out.Figures))
		out.Text = append(out.Text, s.growth(q, out.Figures)...)
	}
	for _, side := range s.sides {
		if l, gone := s.lefts[side.name]; gone {
			out.Text = append(out.Text, fmt.Sprintf("%s is left out from %s on: %s", side.name, figures.Number(float64(l.at)), l.why))
		}
	}
	return out
}

func mebibytes(n int64) stats.Series {
	if n <= 0 {
		return nil
	}
	return stats.Series{float64(n) / (1 << 20)}
}

// of are the figures of a quantity and a side by the step they belong to.
func (s *series) of(quantity, side string, all []figures.Figure) (out []figures.Point, unit string) {
	for _, st := range s.steps {
		row := fmt.Sprintf("%s %s", figures.Number(float64(st.n)), s.Name)
		for _, f := range all {
			if f.Quantity == quantity && f.Subject == side && f.Case == row && len(f.Samples) > 0 {
				out = append(out, figures.Point{X: float64(st.n), Y: f.Estimate.Median, Low: f.Estimate.Low, High: f.Estimate.High})
				unit = f.Unit
			}
		}
	}
	return out, unit
}

// chart draws a quantity on logarithmic axes. What is not above zero has no place on
// one.
func (s *series) chart(quantity string, all []figures.Figure) figures.Chart {
	c := figures.Chart{Title: quantity, X: figures.Axis{Name: s.Name, Log: true}, Y: figures.Axis{Name: quantity, Log: true}}
	for _, side := range s.sides {
		points, unit := s.of(quantity, side.name, all)
		points = slices.DeleteFunc(points, func(p figures.Point) bool { return p.Y <= 0 || p.Low <= 0 })
		if len(points) > 0 {
			c.Y.Unit = unit
			c.Lines = append(c.Lines, figures.Line{Name: side.name, Points: points})
		}
	}
	return c
}

// growth says by how much a quantity grows from the first step to the last that a
// side has.
func (s *series) growth(quantity string, all []figures.Figure) []string {
	var said []string
	for _, side := range s.sides {
		points, _ := s.of(quantity, side.name, all)
		if len(points) < 2 || points[0].Y <= 0 {
			continue
		}
		first, last := points[0], points[len(points)-1]
		said = append(said, fmt.Sprintf("%s %s× (%s×)", side.name, figures.Number(last.Y/first.Y), figures.Number(last.X/first.X)))
	}
	if len(said) == 0 {
		return nil
	}
	return []string{quantity + " grows with the " + s.Name + " (in brackets, how many times more of them): " + strings.Join(said, ", ")}
}
