package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/internal/lab/figures"
)

// Charts are the course over time of one load or of several beside each other,
// and latency by percentile. Those over time share their axis, and that of all
// charts with the same group: seconds since the start, each value standing at the
// end of its interval.
func Charts(group string, results ...*Result) []figures.Chart {
	over := func(title, quantity, unit string) figures.Chart {
		return figures.Chart{Title: title, Group: group, X: figures.Axis{Name: "time", Unit: "s"}, Y: figures.Axis{Name: quantity, Unit: unit}}
	}
	requests := over("Requests answered", "requests", "1/s")
	failed := over("Errors", "errors", "1/s")
	latency := over("Latency, corrected for coordinated omission", "latency", "ms")
	connect := over("Time to connect", "time", "ms")
	open := over("Open connections", "connections", "")
	latency.Y.Log, connect.Y.Log = true, true
	for _, r := range results {
		label := func(text string) string {
			if len(results) == 1 {
				return text
			}
			return r.name() + ", " + text
		}
		requests.Lines = append(requests.Lines, figures.Line{Name: r.name(), Points: r.points(func(i Interval) float64 { return i.Rate() })})
		for _, k := range Kinds(r.Errors) {
			failed.Lines = append(failed.Lines, figures.Line{Name: label(string(k)), Bars: len(results) == 1, Points: r.points(func(i Interval) float64 {
				return perSecond(i.Errors[k], i.To-i.From)
			})})
		}
		latency.Lines = append(latency.Lines, r.lines(label, len(results) == 1, func(i Interval) Percentiles { return i.Latency })...)
		if r.Options.NewConnections || len(r.Intervals) > 0 && r.Connect.TotalCount() > r.Intervals[0].Connect.Count {
			connect.Lines = append(connect.Lines, r.lines(label, false, func(i Interval) Percentiles { return i.Connect })...)
		}
		open.Lines = append(open.Lines, figures.Line{Name: r.name(), Points: r.points(func(i Interval) float64 { return float64(i.Open) })})
	}
	var out []figures.Chart
	for _, c := range []figures.Chart{requests, failed, latency, connect, open, byPercentile(results)} {
		if len(c.Lines) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// points of what every interval has.
func (r *Result) points(of func(Interval) float64) []figures.Point {
	var out []figures.Point
	for _, i := range r.Intervals {
		out = append(out, figures.Point{X: i.To.Seconds(), Y: of(i)})
	}
	return out
}

// lines of percentiles; an interval without any has no point.
func (r *Result) lines(label func(string) string, all bool, of func(Interval) Percentiles) []figures.Line {
	kinds := []struct {
		name string
		of   func(Percentiles) time.Duration
	}{
		{"50 %", func(p Percentiles) time.Duration { return p.P50 }},
		{"99 %", func(p Percentiles) time.Duration { return p.P99 }},
		{"longest", func(p Percentiles) time.Duration { return p.Max }},
	}
	if !all {
		kinds = kinds[:2]
	}
	var out []figures.Line
	for _, k := range kinds {
		line := figures.Line{Name: label(k.name)}
		for _, i := range r.Intervals {
			if p := of(i); p.Count > 0 {
				line.Points = append(line.Points, figures.Point{X: i.To.Seconds(), Y: milliseconds(k.of(p))})
			}
		}
		if len(line.Points) > 0 {
			out = append(out, line)
		}
	}
	return out
}

// byPercentile shows what one of so many requests takes at least, corrected and
// as measured.
func byPercentile(results []*Result) figures.Chart {
	c := figures.Chart{
		Title: "Latency by percentile",
		X:     figures.Axis{Name: "one of so many requests is slower", Log: true},
		Y:     figures.Axis{Name: "latency", Unit: "ms", Log: true},
		Note:  "2 is the median, 100 the 99th percentile.",
	}
	for _, r := range results {
		for _, h := range []struct {
			name string
			of   *hdrhistogram.Histogram
		}{{"corrected", r.Latency}, {"as measured", r.Raw}} {
			line := figures.Line{Name: r.name() + ", " + h.name}
			for _, of := range []float64{1.25, 1.6, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6} {
				if float64(h.of.TotalCount()) < of {
					break
				}
				line.Points = append(line.Points, figures.Point{X: of, Y: milliseconds(time.Duration(h.of.ValueAtPercentile(100 * (1 - 1/of))))})
			}
			if len(line.Points) > 0 {
				c.Lines = append(c.Lines, line)
			}
		}
	}
	return c
}
