package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/internal/lab/figures"
)

// charts are the course over time, and latency by percentile. Those over time share
// their axis, and that of all charts of the group "time": seconds since the start, each
// value standing at the end of its interval.
func (r *Result) charts() (out []figures.Chart) {
	over := func(title string, y figures.Axis, lines ...figures.Line) {
		if len(lines) > 0 {
			out = append(out, figures.Chart{Title: title, Group: "time", X: figures.Axis{Name: "time", Unit: "s"}, Y: y, Lines: lines})
		}
	}
	over("Requests answered", figures.Axis{Name: "requests", Unit: "1/s"}, figures.Line{Name: subject, Points: r.points(Interval.Rate)})
	var failed []figures.Line
	for _, k := range Kinds(r.Errors) {
		failed = append(failed, figures.Line{Name: string(k), Bars: true, Points: r.points(func(i Interval) float64 {
			return perSecond(i.Errors[k], i.To-i.From)
		})})
	}
	over("Errors", figures.Axis{Name: "errors", Unit: "1/s"}, failed...)
	over("Latency, corrected for coordinated omission", figures.Axis{Name: "latency", Unit: "ms", Log: true},
		r.lines(true, func(i Interval) Percentiles { return i.Latency })...)
	if r.Options.NewConnections || len(r.Intervals) > 0 && r.Connect.TotalCount() > r.Intervals[0].Connect.Count {
		over("Time to connect", figures.Axis{Name: "time", Unit: "ms", Log: true}, r.lines(false, func(i Interval) Percentiles { return i.Connect })...)
	}
	over("Open connections", figures.Axis{Name: "connections"}, figures.Line{Name: subject, Points: r.points(func(i Interval) float64 { return float64(i.Open) })})
	if c := r.byPercentile(); len(c.Lines) > 0 {
		out = append(out, c)
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
func (r *Result) lines(all bool, of func(Interval) Percentiles) []figures.Line {
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
		line := figures.Line{Name: k.name}
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
func (r *Result) byPercentile() figures.Chart {
	c := figures.Chart{
		Title: "Latency by percentile",
		X:     figures.Axis{Name: "one of so many requests is slower", Log: true},
		Y:     figures.Axis{Name: "latency", Unit: "ms", Log: true},
		Note:  "2 is the median, 100 the 99th percentile.",
	}
	for _, h := range []struct {
		name string
		of   *hdrhistogram.Histogram
	}{{"corrected", r.Latency}, {"as measured", r.Raw}} {
		line := figures.Line{Name: subject + ", " + h.name}
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
	return c
}
