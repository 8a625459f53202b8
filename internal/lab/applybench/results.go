package applybench

import (
	"fmt"
	"slices"

	"sluice/internal/lab/figures"
	"sluice/internal/lab/measure"
	"sluice/internal/lab/stats"
)

// key is a cell of the tables.
type key struct{ change, rival string }

// cell is what one rival's change took, one figure a round.
type cell struct {
	wall, cpu        stats.Series // ms
	resident, kernel stats.Series // MiB
	sent, received   stats.Series // KiB
	lost, passed     stats.Series // packets
	packets          stats.Series
}

func (c *cell) count(n counts) {
	c.lost, c.passed, c.packets = append(c.lost, float64(n.Lost)), append(c.passed, float64(n.Passed)), append(c.packets, float64(n.Sent))
}

// results are the cells, and what weakens them.
type results struct {
	cells    map[key]*cell
	warnings []string
}

func (r *results) cell(change, rival string) *cell {
	k := key{change, rival}
	if r.cells[k] == nil {
		r.cells[k] = &cell{}
	}
	return r.cells[k]
}

func (r *results) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// report writes what was measured.
func (b *bench) report(r *figures.Report) {
	r.Seed = b.Seed
	info := b.world.geo.Info()
	of := countrySets(b.base.resolved)
	r.Warnings = append(r.Warnings, b.warnings...)
	if b.noGeo != "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s is left out: %s", onePercent, b.noGeo))
	}
	if b.wireless != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("bytes over netlink are left out: %s", firstLine(b.wireless)))
	}
	ratios := figures.Section{
		Name: "ratios", Title: "Against the others, and against itself",
		Text: []string{
			"What sluice takes against each other way, of the same rounds: below 1 it takes less. It is sluice --no-verify, since no other way reads back what it has loaded; the column of itself is the error of the method.",
		},
	}
	for _, q := range []struct {
		name string
		of   func(*cell) stats.Series
	}{
		{"time by the clock", func(c *cell) stats.Series { return c.wall }},
		{"time of processors", func(c *cell) stats.Series { return c.cpu }},
	} {
		for _, change := range b.names() {
			mine := q.of(b.cell(change, Unproved))
			for _, rival := range b.others() {
				if other := q.of(b.cell(change, rival)); len(mine) > 0 && len(other) > 0 {
					ratio := mine.Per(other)
					subject := "against " + rival
					if rival == Again {
						subject = "itself (A/A)"
					}
					ratios.Add(figures.Figure{Case: change, Subject: subject, Quantity: "ratio, " + q.name, Unit: "×", Samples: ratio})
				}
			}
		}
	}
	packets := figures.Section{
		Name: "packets", Title: "Packets treated wrongly while it changed",
		Text: []string{
			fmt.Sprintf("%s to the host, %d packets each millisecond, while the change is made and %v before and after: counted before every hook of a ruleset and behind its last one. Lost are those that old and new rules both allow (new ones, and those of known connections), let through those that neither allows.", flowsText(b.flows), burst, lead),
		},
	}
	about := b.about() + ". Medians."
	if b.noGeo == "" {
		about = fmt.Sprintf("%s: its sets of countries have %d IPv4 and %d IPv6 ranges (%s, %s). Medians.", b.about(), of.Len4(), of.Len6(), info.Source, info.Date.Format("January 2006"))
	}
	costs := figures.Section{
		Name: "costs", Title: "What a change takes",
		Text: []string{
			about,
			"sluice reads back and proves what it has loaded; --no-verify leaves that out, as the others do. Memory is the most at one time: of the processes with what they started, and what the kernel holds more than before, old and new together.",
		},
	}
	for _, q := range []struct {
		to         *figures.Section
		name, unit string
		of         func(*cell) stats.Series
	}{
		{&costs, "time by the clock", "ms", func(c *cell) stats.Series { return c.wall }},
		{&costs, "time of processors", "ms", func(c *cell) stats.Series { return c.cpu }},
		{&costs, "memory of processes", "MiB", func(c *cell) stats.Series { return c.resident }},
		{&costs, kernelMemory, "MiB", func(c *cell) stats.Series { return c.kernel }},
		{&costs, "sent over netlink", "KiB", func(c *cell) stats.Series { return c.sent }},
		{&costs, "received over netlink", "KiB", func(c *cell) stats.Series { return c.received }},
		{&packets, "lost", "packets", func(c *cell) stats.Series { return c.lost }},
		{&packets, "let through", "packets", func(c *cell) stats.Series { return c.passed }},
		{&packets, "sent", "packets", func(c *cell) stats.Series { return c.packets }},
	} {
		for _, change := range append(b.names(), atRest) {
			for _, rival := range rivals {
				c, there := b.cells[key{change, rival}]
				if !there {
					continue
				}
				f := figures.Figure{Case: change, Subject: rival, Quantity: q.name, Unit: q.unit, Samples: q.of(c)}
				if len(f.Samples) == 0 {
					f.Note = missing(q.name, change, rival)
				}
				if len(f.Samples) > 0 || f.Note != "" {
					q.to.Add(f)
				}
			}
		}
	}
	r.Sections = append(r.Sections, ratios, packets, costs)
	lost, passed := b.wrong(Sluice)
	switch {
	case len(b.flows) == 0:
		r.Warnings = append(r.Warnings, "the policy allows and refuses nothing that could be sent: no packets were counted")
	case len(lost) > 0:
		r.Goals = append(r.Goals,
			figures.AtMost("packets lost by sluice that old and new rules allow", "packets", 0, lost, nil),
			figures.AtMost("packets let through by sluice that neither allows", "packets", 0, passed, nil))
	}
	if text, noisy := measure.Noisy(b.itself()); noisy {
		r.Warnings = append(r.Warnings, "the machine is too noisy to tell small differences of time: "+text)
	}
	if e := sum(b.restLost()); e > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%.0f packets were treated wrongly while nothing was done: the counts of changes have that error", e))
	}
}

// missing is why a figure is not there, "" where none is expected.
func missing(quantity, name, rival string) string {
	for _, c := range changes {
		if c.name == name && quantity == kernelMemory {
			return unchargedBy(rival, c)
		}
	}
	return ""
}

const kernelMemory = "memory of the kernel"

// names are the changes that were made.
func (b *bench) names() (out []string) {
	for _, c := range changes {
		if c.to != countries || b.noGeo == "" {
			out = append(out, c.name)
		}
	}
	return out
}

func (b *bench) others() (out []string) {
	for _, e := range b.rivals {
		if e.name != Sluice && e.name != Unproved {
			out = append(out, e.name)
		}
	}
	return out
}

// wrong are the packets that a rival has treated wrongly, one figure a round and
// change.
func (b *bench) wrong(rival string) (lost, passed stats.Series) {
	for _, change := range b.names() {
		if c := b.cells[key{change, rival}]; c != nil {
			lost, passed = append(lost, c.lost...), append(passed, c.passed...)
		}
	}
	return lost, passed
}

// itself is A/A: one way against itself, every change a round of its own.
func (b *bench) itself() (out stats.Series) {
	for _, change := range b.names() {
		out = append(out, b.cell(change, Unproved).wall.Per(b.cell(change, Again).wall)...)
	}
	return out
}

func (b *bench) restLost() (out stats.Series) {
	for _, e := range b.rivals {
		if c := b.cells[key{atRest, e.name}]; c != nil {
			out = slices.Concat(out, c.lost, c.passed)
		}
	}
	return out
}

func sum(s stats.Series) (out float64) {
	for _, x := range s {
		out += x
	}
	return out
}

func (b *bench) about() string {
	if b.Policy == "" {
		return "A policy with http and https for Europe alone, ssh for one network and 650 bans"
	}
	return b.Policy
}

// flowsText says what is sent.
func flowsText(flows []flow) string {
	var n [classes]int
	for _, f := range flows {
		n[f.class]++
	}
	return fmt.Sprintf("%d flows (%d that old and new rules allow, %d of connections that were there before, %d that neither allows)", len(flows), n[allowed], n[established], n[refused])
}
