package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/load"
)

const (
	// redraw is the least time between two drawings.
	redraw = 200 * time.Millisecond
	// chartHeight of one of the two charts, in lines, where the terminal has room.
	chartHeight = 8
	leastHeight = 3
	axisWidth   = 10 // about what the vertical axis takes of a line
	widest      = 160
)

// loadView shows a load while it runs: two charts on a terminal, else a line an
// interval.
type loadView struct {
	w     io.Writer
	size  func() (width, height int, err error) // nil: no terminal
	total time.Duration
	ticks []load.Tick
	last  time.Time // of the last drawing
	lines int       // of the last drawing
	begun bool
}

func newLoadView(cmd *cobra.Command, total time.Duration) *loadView {
	v := &loadView{w: command.Bare(cmd.ErrOrStderr()), total: total}
	if f, is := v.w.(*os.File); is && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		v.size = func() (int, int, error) { return term.GetSize(int(f.Fd())) }
	}
	return v
}

// tick shows one more interval.
func (v *loadView) tick(t load.Tick) {
	v.ticks = append(v.ticks, t)
	now := time.Now()
	if v.size == nil {
		// Intervals shorter than a second do not have a line each.
		if n := len(v.ticks); n < 2 || t.To.Truncate(time.Second) != t.From.Truncate(time.Second) {
			fmt.Fprintln(v.w, tickLine(t, v.total))
		}
		return
	}
	if now.Sub(v.last) < redraw && t.Done < 1 {
		return
	}
	v.last = now
	width, height, err := v.size()
	if err != nil || width < 20 {
		width, height = 80, 24
	}
	v.draw(drawLoad(v.ticks, v.total, min(width-1, widest), height-1))
}

// draw replaces the last drawing in one write, each line in its place, so that
// nothing flickers: the terminal shows it as one change where it knows how
// (synchronized output, mode 2026).
func (v *loadView) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[?2026h")
	if !v.begun {
		b.WriteString("\x1b[?25l")
		v.begun = true
	}
	if v.lines > 1 {
		fmt.Fprintf(&b, "\x1b[%dA", v.lines-1)
	}
	b.WriteString("\r")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\n\r")
		}
		b.WriteString(line + "\x1b[K")
	}
	// What a longer drawing has left below.
	b.WriteString("\x1b[J\x1b[?2026l")
	v.lines = len(lines)
	_, _ = io.WriteString(v.w, b.String())
}

// done leaves the last drawing where it is.
func (v *loadView) done() {
	if v.begun {
		_, _ = io.WriteString(v.w, "\x1b[?25h\n\n")
	}
}

// tickLine is an interval in words.
func tickLine(t load.Tick, total time.Duration) string {
	text := fmt.Sprintf("%s of %s: %s requests/s", t.To, total, figures.Number(t.Rate()))
	if t.Latency.Count > 0 {
		text += ", 99 % below " + load.TimeText(t.Latency.P99)
	}
	text += fmt.Sprintf(", %s open", figures.Number(float64(t.Open)))
	for _, k := range load.Kinds(t.Errors) {
		text += fmt.Sprintf(", %s %s", figures.Number(float64(t.Errors[k])), k)
	}
	return text
}

// drawLoad draws requests per second and the 99th percentile over the whole time,
// and a line about the present, into so many lines of such a width.
func drawLoad(ticks []load.Tick, total time.Duration, width, height int) []string {
	columns := max(10, width-axisWidth)
	// Two charts with a title each, and the line.
	rows := min(chartHeight, (height-5)/2)
	rates := spread(ticks, total, columns, func(t load.Tick) float64 { return t.Rate() })
	late := spread(ticks, total, columns, func(t load.Tick) float64 {
		if t.Latency.Count == 0 {
			return math.NaN()
		}
		return float64(t.Latency.P99) / float64(time.Millisecond)
	})
	var lines []string
	add := func(title string, values []float64, rows int) {
		lines = append(lines, title)
		lines = append(lines, plot(values, rows)...)
	}
	if rows < leastHeight {
		if height > leastHeight+3 {
			add("requests/s", rates, height-4)
		}
	} else {
		add("requests/s", rates, rows-1)
		add("99 % of latencies below, ms", late, rows-1)
	}
	lines = append(lines, tickLine(ticks[len(ticks)-1], total))
	for i := range lines {
		if runes := []rune(lines[i]); len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return lines
}

// plot is a chart of rows + 1 lines that begins at zero.
func plot(values []float64, rows int) []string {
	most := 1.0
	for _, v := range values {
		if !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	text := asciigraph.Plot(values, asciigraph.Height(rows), asciigraph.LowerBound(0), asciigraph.UpperBound(most),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%7s", figures.Number(v)) }))
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// spread lays intervals along the columns of the whole time; what is to come is
// empty. A column that several intervals share shows their mean.
func spread(ticks []load.Tick, total time.Duration, columns int, of func(load.Tick) float64) []float64 {
	sum, count := make([]float64, columns), make([]float64, columns)
	at := func(t time.Duration) float64 { return float64(t) / float64(total) * float64(columns) }
	for _, t := range ticks {
		v := of(t)
		if math.IsNaN(v) {
			continue
		}
		for i := int(at(t.From)); i < min(columns, int(math.Ceil(at(t.To)))); i++ {
			sum[i] += v
			count[i]++
		}
	}
	for i := range sum {
		sum[i] /= count[i] // NaN where nothing is
	}
	return sum
}
