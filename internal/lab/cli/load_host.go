package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"sluice/internal/cli/command"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
	"sluice/internal/system/hostwatch"
)

// watchedSpaces are the namespaces to watch; nil is none.
func watchedSpaces(cmd *cobra.Command) ([]hostwatch.Namespace, error) {
	names, _ := cmd.Flags().GetStringSlice("netns-of")
	if watch, _ := cmd.Flags().GetBool("watch-host"); len(names) == 0 {
		if watch {
			return []hostwatch.Namespace{{}}, nil
		}
		return nil, nil
	}
	var out []hostwatch.Namespace
	for _, name := range names {
		space, err := command.OpenNetns(name)
		if err != nil {
			return nil, err
		}
		_ = space.Close()
		n := hostwatch.Namespace{Path: filepath.Join("/run/netns", name)}
		if len(names) > 1 {
			n.Name = name
		}
		out = append(out, n)
	}
	if unix.Geteuid() != 0 {
		return nil, fmt.Errorf("watch the network namespace %s: not permitted\nhint: run it as root", names[0])
	}
	return out, nil
}

// hostWarnings are what could not be seen. Without root that is most of it, for one
// reason.
func hostWarnings(seen hostwatch.Result) []string {
	if unix.Geteuid() == 0 {
		return seen.Warnings
	}
	return []string{"dropped packets, and what the connection table refused, are not shown: that needs root"}
}

// hostSection are figures of what was seen beside a load: its charts are those of
// the load's section, whose time axis they share.
func hostSection(seen hostwatch.Result) (s figures.Section, some bool) {
	s = figures.Section{Name: "host", Title: "What the host saw of it"}
	for _, space := range seen.Spaces {
		subject := cmp.Or(space.Name, "host")
		add := func(row, quantity, unit string, of ...float64) {
			s.Add(figures.Figure{Case: row, Subject: subject, Quantity: quantity, Unit: unit, Samples: of})
		}
		if len(space.Entries) > 0 {
			add("most", "connection table", "entries", slices.Max(space.Entries))
			add("limit", "connection table", "entries", slices.Max(space.Max))
		}
		for _, c := range space.Table {
			add(c.Name, "connection table, counters", "packets", float64(c.Total))
		}
		for _, d := range space.Drops {
			add(d.Name, "packets dropped", "packets", float64(d.Total))
		}
		for _, c := range space.TCP {
			add(c.Name, "TCP, counters", "events", float64(c.Total))
		}
		if at, full := seen.FullAt(space); full {
			s.Text = append(s.Text, fmt.Sprintf("The connection table of %s was full from second %s on.", subject, figures.Number(at)))
		}
	}
	for i, shares := range seen.Softirq {
		var percent stats.Series
		for _, share := range shares {
			percent = append(percent, 100*share)
		}
		if len(percent) > 0 {
			s.Add(figures.Figure{Case: fmt.Sprintf("processor %d", i), Subject: "all", Quantity: "softirq of each " + everyText(seen.Every), Unit: "%", Samples: percent})
		}
	}
	return s, len(s.Figures) > 0
}

func everyText(every time.Duration) string {
	if every == time.Second {
		return "second"
	}
	return every.String()
}

// shifted moves charts along the time axis.
func shifted(charts []figures.Chart, by time.Duration) []figures.Chart {
	charts = slices.Clone(charts)
	for i := range charts {
		c := &charts[i]
		c.Lines, c.Marks = slices.Clone(c.Lines), slices.Clone(c.Marks)
		for j := range c.Lines {
			l := &c.Lines[j]
			l.Points = slices.Clone(l.Points)
			for k := range l.Points {
				l.Points[k].X += by.Seconds()
			}
		}
		for j := range c.Marks {
			c.Marks[j].X += by.Seconds()
		}
	}
	return charts
}
