package calibrate

import (
	"sluice/internal/backend/nftables"
	"sluice/internal/backend/nftables/calibration"
	"sluice/internal/lab/figures"
	"sluice/internal/lab/stats"
)

// Subjects of a report.
const (
	here      = "this machine"
	elsewhere = "default"
)

// sections of a report, by what the names of their constants begin with.
var sections = []struct{ prefix, name, title, quantity string }{
	{"packet.", "packet", "What a packet costs, where what it asks is near in the caches", "added per packet"},
	{"lookup.", "lookup", "What a lookup costs where all elements are asked for in turn", "added per packet"},
	{"load.", "load", "What is loaded", "time"},
	{"memory.", "memory", "What is held", "kernel memory"},
	{"sets.", "sets", "What sets take, by the kernel's way to keep them", "of a set"},
}

// Sections are the constants of a calibration beside the default ones. The series
// are those of the run that measured it; nil where it was read, when bounds stand for
// them.
func Sections(c *calibration.Calibration, series map[string]stats.Series) []figures.Section {
	defaults := nftables.DefaultCosts()
	var out []figures.Section
	for _, s := range sections {
		section := figures.Section{Name: s.name, Title: s.title}
		for _, constant := range nftables.Constants() {
			if len(constant.Name) < len(s.prefix) || constant.Name[:len(s.prefix)] != s.prefix {
				continue
			}
			found, measured := series[constant.Name]
			if !measured {
				value := constant.Of(&c.Costs)
				found = stats.Series{value}
				if b, has := c.Spread[constant.Name]; has {
					found = stats.Series{min(b.Low, value), value, max(b.High, value)}
				}
			}
			f := figures.Figure{Case: constant.What, Subject: here, Quantity: s.quantity, Unit: constant.Unit, Samples: found}
			section.Add(f)
			f.Subject, f.Samples = elsewhere, stats.Series{constant.Of(&defaults)}
			section.Add(f)
		}
		out = append(out, section)
	}
	return out
}
