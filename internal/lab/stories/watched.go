package stories

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/hostcharts"
	"sluice/internal/lab/stats"
	"sluice/internal/lab/testnet"
	"sluice/internal/system/hostwatch"
)

// site is one subject of a story: a client, and the host that it reaches a web
// server on or through.
type site struct {
	name         string
	client, host *testnet.Namespace
	url          string
}

// course is a site under load, with what the kernel of the host showed meanwhile.
type course struct {
	site  *site
	asked *Asked
	from  time.Time // second 0
	seen  hostwatch.Result
}

// watch loads a site and watches its host.
func (s *Stage) watch(ctx context.Context, site *site, a Asking) (*course, error) {
	c := &course{site: site, from: time.Now()}
	w, err := hostwatch.Start(ctx, hostwatch.Options{
		Namespaces: []hostwatch.Namespace{{Path: site.host.Path()}}, Every: a.Every, From: c.from,
	})
	if err != nil {
		return nil, err
	}
	a.URL = site.url
	c.asked, err = s.ask(ctx, site.client, a)
	c.seen = w.Stop()
	for _, text := range c.seen.Warnings {
		s.Warn("%s", text)
	}
	return c, err
}

// space is what the host's namespace showed.
func (c *course) space() hostwatch.Space { return c.seen.Spaces[0] }

// mostEntries is how many entries the connection table had at most, NaN where there was
// no table to be read: that it was never seen is no evidence that it was empty.
func (c *course) mostEntries() float64 {
	entries := c.space().Entries
	if len(entries) == 0 {
		return math.NaN()
	}
	return slices.Max(entries)
}

// counted is the total of one of the table's counters, such as "drop".
func (c *course) counted(name string) uint64 {
	for _, counter := range c.space().Table {
		if counter.Name == name {
			return counter.Total
		}
	}
	return 0
}

// failed is how many requests failed.
func (c *course) failed() (sum float64) {
	for _, n := range c.asked.Failed {
		sum += float64(n)
	}
	return sum
}

// figure adds one of the course to a section.
func (c *course) figure(to *figures.Section, about, quantity, unit string, more bool, value float64) {
	to.Add(figures.Figure{Case: about, Subject: c.site.name, Quantity: quantity, Unit: unit, More: more, Samples: stats.Series{value}})
}

// drops lists where the kernel dropped packets, a line each, other than where it did
// so on the bare site as well.
func (c *course) drops(bare *course) (lines []string) {
	usual := map[string]bool{}
	for _, d := range bare.space().Drops {
		usual[d.Name] = true
	}
	for _, d := range c.space().Drops {
		if usual[d.Name] {
			continue
		}
		reason := ""
		if d.Reason != "" {
			reason = ", reason " + d.Reason
		}
		lines = append(lines, fmt.Sprintf("%d packets dropped in %s%s", d.Total, d.Function, reason))
	}
	return lines
}

// answeredLine is the answered requests per second over time.
func (c *course) answeredLine() figures.Line {
	l := figures.Line{Name: c.site.name}
	shift := c.asked.Start.Sub(c.from)
	for _, i := range c.asked.Intervals {
		l.Points = append(l.Points, figures.Point{X: (shift + i.To).Seconds(), Y: i.Rate()})
	}
	return l
}

// entriesLine is the connection table's use over time.
func (c *course) entriesLine() figures.Line {
	l := figures.Line{Name: c.site.name}
	for i, n := range c.space().Entries {
		l.Points = append(l.Points, figures.Point{X: c.seen.At[i], Y: n})
	}
	return l
}

// fullMark marks the moment when the table was full.
func (c *course) fullMark() (marks []figures.Mark, full bool) {
	at, full := c.seen.FullAt(c.space())
	if full {
		marks = append(marks, figures.Mark{X: at, Text: "the table is full"})
	}
	return marks, full
}

// timeAxis is shared by the charts of one group.
var timeAxis = figures.Axis{Name: "time", Unit: "s"}

// overTime draws several courses above one another: requests, the table's use, and
// what the kernel dropped on the host of the one that is looked into.
func overTime(group string, limit int, looked *course, all ...*course) []figures.Chart {
	requests := figures.Chart{Title: "Answered requests per second", Group: group, X: timeAxis, Y: figures.Axis{Name: "requests", Unit: "1/s"}}
	table := figures.Chart{Title: "Entries of the connection table", Group: group, X: timeAxis, Y: figures.Axis{Name: "entries"}}
	end := 0.0
	for _, c := range all {
		requests.Lines = append(requests.Lines, c.answeredLine())
		entries := c.entriesLine()
		table.Lines = append(table.Lines, entries)
		if n := len(entries.Points); n > 0 {
			end = max(end, entries.Points[n-1].X)
		}
	}
	if limit > 0 {
		table.Lines = append(table.Lines, figures.Line{Name: "limit", Points: []figures.Point{{Y: float64(limit)}, {X: end, Y: float64(limit)}}})
	}
	marks, _ := looked.fullMark()
	requests.Marks, table.Marks = marks, marks
	charts := []figures.Chart{requests, table}
	for _, c := range hostcharts.Draw(looked.seen, group) {
		// Its own table is in the chart above.
		if c.Title != "Connection table" {
			c.Title += " (" + looked.site.name + ")"
			charts = append(charts, c)
		}
	}
	return charts
}
